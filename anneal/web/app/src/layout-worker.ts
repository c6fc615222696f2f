// The layout, in a worker: every open module, and the whole, is a level that dagre lays out by itself, so opening one
// leaves the insides of the others as they were. An edge that spans many ranks would cost dagre a dummy in each of them;
// such edges are led along the right side instead, those of one box in one lane.
import { graphlib, layout as layered } from "@dagrejs/dagre";

// A box: its key, the module that it is in, its place in the program, and its size, which an open one has by what is
// in it.
export interface Asked { id: number; boxes: [string, string | null, number, [number, number] | null][]; edges: [string, string][] }
export interface Told {
  id: number; boxes: [string, number, number, number, number][]; paths: string[]; width: number; height: number; error?: string;
}

type Point = [number, number];
interface Node { key: string; order: number; w: number; h: number }
interface Place { x: number; y: number; w: number; h: number }
// What a level gives: where its boxes are, and how each of its edges runs: through points, or along a lane at x.
interface Level { at: Map<string, Place>; through: Map<string, Point[]>; lane: Map<string, number>; width: number; height: number }

const LONGEST = 4; // ranks that an edge of dagre's may span
const PAD = { top: 34, side: 14 }; // inside an open module
const ALONE = 6; // boxes without edges in a row
const GAP = 18;
const KEPT = 300;
const kept = new Map<string, Level>();

const pair = (from: string, to: string): string => `${from}\n${to}`;

// The edges without circles (a function that is called twice is one box): those that lead back to a box that came
// before in the program are turned round.
function turned(nodes: Node[], edges: [string, string][]): Set<string> {
  const order = new Map(nodes.map((n) => [n.key, n.order]));
  const readers = new Map<string, string[]>(nodes.map((n) => [n.key, []]));
  for (const [from, to] of edges) readers.get(from)!.push(to);
  for (const list of readers.values()) list.sort((a, b) => order.get(b)! - order.get(a)!);
  const found = new Set<string>();
  const state = new Map<string, number>(); // how many readers were followed; -1 when all were
  for (const { key } of [...nodes].sort((a, b) => a.order - b.order)) {
    const stack = state.has(key) ? [] : [key];
    while (stack.length) {
      const at = stack[stack.length - 1]!;
      const seen = state.get(at) ?? 0;
      const next = readers.get(at)![seen];
      state.set(at, next === undefined ? -1 : seen + 1);
      if (next === undefined) stack.pop();
      else if (!state.has(next)) stack.push(next);
      else if (state.get(next) !== -1) found.add(pair(at, next));
    }
  }
  return found;
}

// How deep each box lies below those that it reads; one that reads nothing lies just above its first reader.
function ranks(nodes: Node[], edges: [string, string][]): Map<string, number> {
  const readers = new Map<string, string[]>(nodes.map((n) => [n.key, []]));
  const missing = new Map<string, number>(nodes.map((n) => [n.key, 0]));
  for (const [from, to] of edges) {
    readers.get(from)!.push(to);
    missing.set(to, missing.get(to)! + 1);
  }
  const first = nodes.filter((n) => !missing.get(n.key)).map((n) => n.key);
  const found = new Map<string, number>(first.map((key) => [key, 0]));
  const ready = [...first];
  for (let at = ready.pop(); at !== undefined; at = ready.pop()) {
    for (const to of readers.get(at)!) {
      found.set(to, Math.max(found.get(to) ?? 0, found.get(at)! + 1));
      missing.set(to, missing.get(to)! - 1);
      if (!missing.get(to)) ready.push(to);
    }
  }
  for (const key of first) {
    const below = readers.get(key)!.map((r) => found.get(r)!);
    if (below.length) found.set(key, Math.min(...below) - 1);
  }
  return found;
}

function place(nodes: Node[], edges: [string, string][]): Level {
  const sign = `${nodes.map((n) => `${n.key} ${n.w} ${n.h}`).join("\n")}\n\n${edges.map(([f, t]) => pair(f, t)).join("\n")}`;
  const known = kept.get(sign);
  if (known) return known;
  const back = turned(nodes, edges);
  const down = (f: string, t: string): [string, string] => (back.has(pair(f, t)) ? [t, f] : [f, t]);
  const rank = ranks(nodes, edges.map(([f, t]) => down(f, t)));
  const long = edges.filter(([f, t]) => Math.abs(rank.get(t)! - rank.get(f)!) > LONGEST);
  const off = new Set(long.map(([f, t]) => pair(f, t)));
  const short = edges.filter(([f, t]) => !off.has(pair(f, t)));
  const level: Level = { at: new Map(), through: new Map(), lane: new Map(), width: 0, height: 0 };
  const tied = new Set(short.flat());
  const graph = new graphlib.Graph().setGraph({ nodesep: GAP, ranksep: 34, edgesep: 10, ranker: "longest-path" });
  for (const n of nodes) if (tied.has(n.key)) graph.setNode(n.key, { width: n.w, height: n.h });
  for (const [from, to] of short) graph.setEdge(...down(from, to), {});
  if (tied.size) {
    layered(graph);
    const { width, height } = graph.graph() as { width: number; height: number };
    Object.assign(level, { width, height });
  }
  for (const n of nodes) {
    if (!tied.has(n.key)) continue;
    const { x, y } = graph.node(n.key) as Place;
    level.at.set(n.key, { x: x - n.w / 2, y: y - n.h / 2, w: n.w, h: n.h });
  }
  for (const [from, to] of short) {
    const { points } = graph.edge(...down(from, to)) as { points: { x: number; y: number }[] };
    const way = points.slice(1, -1).map((p): Point => [p.x, p.y]);
    level.through.set(pair(from, to), back.has(pair(from, to)) ? way.reverse() : way);
  }
  beneath(level, nodes.filter((n) => !tied.has(n.key)));
  aside(level, long);
  if (kept.size >= KEPT) kept.delete(kept.keys().next().value as string);
  kept.set(sign, level);
  return level;
}

// Boxes that no short edge ties to another, in rows below the others.
function beneath(level: Level, loose: Node[]): void {
  for (let i = 0; i < loose.length; i += ALONE) {
    const row = loose.slice(i, i + ALONE);
    const y = level.height + (level.height ? GAP : 0);
    let x = 0;
    for (const n of row) {
      level.at.set(n.key, { x, y, w: n.w, h: n.h });
      x += n.w + GAP;
    }
    level.width = Math.max(level.width, x - GAP);
    level.height = y + Math.max(...row.map((n) => n.h));
  }
}

// Lanes for long edges, the shortest innermost; edges of one source, or of one target if it has more, share a lane.
function aside(level: Level, long: [string, string][]): void {
  const out = new Map<string, number>();
  const into = new Map<string, number>();
  for (const [from, to] of long) {
    out.set(from, (out.get(from) ?? 0) + 1);
    into.set(to, (into.get(to) ?? 0) + 1);
  }
  const bundles = new Map<string, { edges: [string, string][]; low: number; high: number }>();
  for (const edge of long) {
    const key = out.get(edge[0])! >= into.get(edge[1])! ? `from ${edge[0]}` : `to ${edge[1]}`;
    const ends = edge.map((k) => level.at.get(k)!).map((b) => b.y + b.h / 2);
    const bundle = bundles.get(key) ?? { edges: [], low: Infinity, high: -Infinity };
    bundle.edges.push(edge);
    bundle.low = Math.min(bundle.low, ...ends);
    bundle.high = Math.max(bundle.high, ...ends);
    bundles.set(key, bundle);
  }
  const taken: { x: number; low: number; high: number }[] = [];
  const boxes = [...level.at.values()];
  const between = Math.max(4, Math.min(9, 240 / Math.max(1, bundles.size)));
  for (const b of [...bundles.values()].sort((p, q) => p.high - p.low - (q.high - q.low))) {
    const meets = (low: number, high: number) => high >= b.low - 6 && low <= b.high + 6;
    let x = Math.max(0, ...boxes.filter((o) => meets(o.y, o.y + o.h)).map((o) => o.x + o.w)) + 20;
    for (const t of taken) if (meets(t.low, t.high)) x = Math.max(x, t.x + between);
    taken.push({ x, low: b.low, high: b.high });
    for (const [from, to] of b.edges) level.lane.set(pair(from, to), x);
    level.width = Math.max(level.width, x + 4);
  }
}

function arrange(asked: Asked): Told {
  const parent = new Map(asked.boxes.map(([key, of]) => [key, of]));
  const line = (key: string): string[] => {
    const found = [key];
    for (let at = parent.get(key); at != null; at = parent.get(at)) found.unshift(at);
    return found;
  };
  // Each edge belongs to the level at which the ways to its ends part.
  const inside = new Map<string | null, { nodes: string[]; edges: Map<string, [string, string]> }>();
  for (const [key, of] of asked.boxes) {
    if (!inside.has(of)) inside.set(of, { nodes: [], edges: new Map() });
    inside.get(of)!.nodes.push(key);
  }
  const routes = asked.edges.map(([from, to]) => {
    const [a, b] = [line(from), line(to)];
    let i = 0;
    while (i < a.length && i < b.length && a[i] === b[i]) i++;
    const [f, t] = [a[i], b[i]];
    if (f === undefined || t === undefined) return null; // between a module and what is in it
    const level = i ? a[i - 1]! : null;
    inside.get(level)?.edges.set(pair(f, t), [f, t]);
    return { from, to, level, f, t };
  });
  const known = new Map(asked.boxes.map(([key, , order, size]) => [key, { order, size }]));
  const levels = new Map<string | null, Level>();
  const measure = (key: string): Node => {
    const { order, size } = known.get(key)!;
    if (size) return { key, order, w: size[0], h: size[1] };
    const level = build(key);
    return { key, order, w: Math.max(120, level.width + 2 * PAD.side), h: level.height + PAD.top + PAD.side };
  };
  const build = (key: string | null): Level => {
    const found = inside.get(key) ?? { nodes: [], edges: new Map<string, [string, string]>() };
    const level = place(found.nodes.map(measure), [...found.edges.values()]);
    levels.set(key, level);
    return level;
  };
  const whole = build(null);
  const at = new Map<string, Place>();
  const origin = new Map<string | null, Point>([[null, [0, 0]]]);
  const spread = (key: string | null) => {
    const [x, y] = origin.get(key)!;
    for (const [child, p] of levels.get(key)!.at) {
      at.set(child, { x: x + p.x, y: y + p.y, w: p.w, h: p.h });
      if (levels.has(child)) {
        origin.set(child, [x + p.x + PAD.side, y + p.y + PAD.top]);
        spread(child);
      }
    }
  };
  spread(null);
  const paths = routes.map((r) => {
    if (!r) return "";
    const level = levels.get(r.level)!;
    const [dx, dy] = origin.get(r.level)!;
    const [from, to] = [at.get(r.from)!, at.get(r.to)!];
    const lane = level.lane.get(pair(r.f, r.t));
    if (lane !== undefined) return along(from, to, lane + dx);
    return curve(from, to, level.through.get(pair(r.f, r.t))!.map(([x, y]) => [x + dx, y + dy]));
  });
  const boxes = [...at].map(([key, p]): Told["boxes"][number] => [key, Math.round(p.x), Math.round(p.y), Math.round(p.w), Math.round(p.h)]);
  return { id: asked.id, boxes, paths, width: Math.ceil(whole.width), height: Math.ceil(whole.height) };
}

// Out of the right side, along the lane, and into the right side.
function along(from: Place, to: Place, x: number): string {
  const [y0, y1] = [Math.round(from.y + from.h / 2), Math.round(to.y + to.h / 2)];
  const lane = Math.round(x);
  const turn = Math.min(8, Math.abs(y1 - y0) / 2) * Math.sign(y1 - y0);
  const round = Math.abs(turn);
  return `M${Math.round(from.x + from.w)} ${y0}H${lane - round}Q${lane} ${y0} ${lane} ${y0 + turn}V${y1 - turn}Q${lane} ${y1} ${lane - round} ${y1}H${Math.round(to.x + to.w)}`;
}

function curve(from: Place, to: Place, through: Point[]): string {
  const down = from.y + from.h <= to.y + 1;
  const first: Point = [from.x + from.w / 2, down ? from.y + from.h : from.y];
  const last: Point = [to.x + to.w / 2, down ? to.y : to.y + to.h];
  const rest = through.filter(([, y]) => (down ? y > first[1] && y < last[1] : y < first[1] && y > last[1]));
  const points = [first, ...rest, last].map(([x, y]): Point => [Math.round(x), Math.round(y)]);
  let d = `M${points[0]![0]} ${points[0]![1]}`;
  for (let i = 1; i < points.length; i++) {
    const [x0, y0] = points[i - 1]!;
    const [x, y] = points[i]!;
    const half = (y0 + y) / 2;
    d += x0 === x ? `V${y}` : `C${x0} ${half} ${x} ${half} ${x} ${y}`;
  }
  return d;
}

const scope = self as unknown as { onmessage: (e: MessageEvent<Asked>) => void; postMessage: (told: Told) => void };
scope.onmessage = (e) => {
  try {
    scope.postMessage(arrange(e.data));
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    scope.postMessage({ id: e.data.id, boxes: [], paths: [], width: 0, height: 0, error: said });
  }
};
