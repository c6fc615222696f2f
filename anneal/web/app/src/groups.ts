// A graph of thousands of nodes as a few boxes: nodes are grouped by phase and module, and modules open one by one.

export interface Item {
  id: number;
  label: string;
  detail: string;
  src: number[];
  phase: string;
  // The names of the groups that the node is in, outermost first; none for a node that stands alone.
  path: string[];
  changed: boolean;
  leaf?: boolean; // memory, a constant, or a view of one
}

export interface Box {
  key: string;
  label: string;
  detail: string;
  phase: string;
  group: boolean;
  open: boolean;
  parent: string | null;
  nodes: number[];
  changed: number;
}

export interface Edge { from: string; to: string; count: number }
export interface View { boxes: Box[]; edges: Edge[]; hidden: number }

const MOST = 140; // nodes of one group that are shown one by one

const keyOf = (path: string[]): string => path.join("/");

// The boxes that are to be seen while the groups of `open` are open. Groups of one child take its place.
export function visible(items: Item[], open: Set<string>): View {
  const direct = new Map<string, number>();
  for (const item of items) direct.set(keyOf(item.path), (direct.get(keyOf(item.path)) ?? 0) + 1);
  const boxes = new Map<string, Box>();
  const of = new Map<number, string>(); // node -> the key of the box that shows it
  let hidden = 0;
  const put = (box: Box) => {
    boxes.set(box.key, box);
    return box;
  };
  for (const item of items) {
    let parent: string | null = null;
    let shown: Box | null = null;
    for (let depth = 1; depth <= item.path.length; depth++) {
      const key = keyOf(item.path.slice(0, depth));
      shown =
        boxes.get(key) ??
        put({
          key, label: item.path[depth - 1]!, detail: "", phase: item.phase, group: true, open: open.has(key), parent,
          nodes: [], changed: 0,
        });
      shown.nodes.push(item.id);
      shown.changed += item.changed ? 1 : 0;
      if (!shown.open) break;
      parent = key;
      shown = null;
    }
    if (shown) {
      of.set(item.id, shown.key);
      continue;
    }
    const count = direct.get(keyOf(item.path)) ?? 0;
    const siblings = parent ? boxes.get(parent) : null;
    if (count > MOST && siblings && siblings.nodes.length > MOST) {
      hidden++;
      continue;
    }
    of.set(item.id, `#${item.id}`);
    put({
      key: `#${item.id}`, label: item.label, detail: item.detail, phase: item.phase, group: false, open: false, parent,
      nodes: [item.id], changed: item.changed ? 1 : 0,
    });
  }
  const edges = new Map<string, Edge>();
  const byId = new Map(items.map((item) => [item.id, item]));
  for (const item of items) {
    const to = of.get(item.id);
    if (!to) continue;
    for (const s of item.src) {
      const from = of.get(s);
      if (!from || from === to) continue;
      // a constant, or memory, that several groups read stands beside the first: that ties none of them to it
      if (byId.get(s)!.leaf && keyOf(byId.get(s)!.path) !== keyOf(item.path)) continue;
      const key = `${from} ${to}`;
      const edge = edges.get(key);
      if (edge) edge.count++;
      else edges.set(key, { from, to, count: 1 });
    }
  }
  for (const box of boxes.values()) if (box.group) box.detail = `${box.nodes.length} nodes`;
  return { boxes: [...boxes.values()], edges: [...edges.values()], hidden };
}

// Groups down to a node, all of which must be open for it to be seen.
export function ancestors(path: string[]): string[] {
  return path.map((_, i) => keyOf(path.slice(0, i + 1)));
}

interface Raw {
  id: number; op: string; src: number[]; phase: string; module: string; function: string; kernels: number[];
  line?: { file: string; line: number } | null;
}

export interface Grouping {
  // The groups of every node, outermost first.
  paths: string[][];
  // Memory, what is made of constants alone, and views of these: they are drawn beside their first user.
  leaf: boolean[];
}

// A group is one call of a module, or of a function where no module was called: what the second call computes is a box
// of its own, "relu (2)". Memory and constants go where they are first used, views of a value that several calls read
// go with that value; numbers of a list stay with its name ("h.0"), and large groups are cut by their kernels.
export function grouped(nodes: Raw[]): Grouping {
  let found = known.get(nodes);
  if (!found) known.set(nodes, (found = group(nodes)));
  return found;
}

export const paths = (nodes: Raw[]): string[][] => grouped(nodes).paths;

const known = new WeakMap<Raw[], Grouping>();
const VIEWS = new Set(["RESHAPE", "EXPAND", "SHRINK", "PAD", "PERMUTE", "FLIP", "CAST", "DETACH", "CONTIGUOUS"]);
const MARKS: Record<string, string> = { forward: "", backward: " \u2032", update: " \u21bb" };
const MOST_CALLS = 30; // of one name whose order is looked at: bits of a mask

function group(nodes: Raw[]): Grouping {
  const at = new Map(nodes.map((n, i) => [n.id, i]));
  const src = nodes.map((n) => n.src.map((s) => at.get(s)).filter((s) => s !== undefined));
  const users: number[][] = nodes.map(() => []);
  src.forEach((from, i) => from.forEach((s) => users[s]!.push(i)));
  const leaf: boolean[] = [];
  const fixed: boolean[] = []; // made of constants alone, as a causal mask is
  nodes.forEach((n, i) => {
    fixed.push(src[i]!.length ? src[i]!.every((s) => fixed[s]) : n.op !== "BUFFER");
    leaf.push(fixed[i]! || !src[i]!.length || (VIEWS.has(n.op) && src[i]!.every((s) => leaf[s])));
  });

  const words = nodes.map((n) => {
    const own = n.module ? wordsOf(n.module) : [n.function || n.op.toLowerCase()];
    return [own[0]! + (MARKS[n.phase] ?? ""), ...own.slice(1)];
  });
  // a view that other groups read too is not theirs, whoever made it first
  const shared = nodes.map(() => false);
  for (let i = nodes.length - 1; i >= 0; i--) {
    const mine = keyOf(words[i]!);
    shared[i] = VIEWS.has(nodes[i]!.op) && users[i]!.some((u) => shared[u] || keyOf(words[u]!) !== mine);
  }
  nodes.forEach((n, i) => {
    if (!leaf[i] && shared[i]) {
      const from = src[i]!.find((s) => !leaf[s]);
      if (from !== undefined && nodes[from]!.phase === n.phase) words[i] = words[from]!;
    }
  });
  const depth = Math.max(1, ...words.map((w) => w.length));
  for (let d = 0; d < depth; d++) numbered(nodes, src, leaf, words, d);

  const owner = (i: number): number => {
    for (let step = 0; step < 64 && leaf[i]; step++) {
      const next = users[i]![0];
      if (next === undefined || nodes[next]!.op === "SINK") break;
      i = next;
    }
    return i;
  };
  const found = nodes.map((_, i) => words[owner(i)]!);
  const size = new Map<string, number>();
  const computed = new Map<string, number[]>();
  nodes.forEach((_, i) => {
    const key = keyOf(found[i]!);
    size.set(key, (size.get(key) ?? 0) + 1);
    if (!leaf[i]) computed.set(key, [...(computed.get(key) ?? []), i]);
  });
  const result = found.map((path, i) => {
    const key = keyOf(path);
    const inside = computed.get(key) ?? [];
    const only = inside.length <= 1 ? nodes[inside[0] ?? i]! : null;
    // a box around one node of the same name hides more than it tells
    if (only && !only.module && (!inside.length || only.function === only.op.toLowerCase())) return [];
    if (size.get(key)! <= MOST) return path;
    const kernel = nodes[owner(i)]!.kernels[0] ?? nodes[i]!.kernels[0];
    return [...path, kernel === undefined ? "no kernel of its own" : `kernel ${kernel}`];
  });
  return { paths: result, leaf };
}

function wordsOf(module: string): string[] {
  const words: string[] = [];
  for (const part of module.split(".")) {
    if (/^\d+$/.test(part) && words.length) words[words.length - 1] += `.${part}`;
    else words.push(part);
  }
  return words;
}

// Tell the calls of one name apart: what is connected inside the group is one call, and so are parts that stand beside
// each other (a gradient's two products), unless they are of the same lines of the forward pass. Word `d` of the
// nodes of the second call becomes "name (2)".
function numbered(nodes: Raw[], src: number[][], leaf: boolean[], words: string[][], d: number): void {
  const root = nodes.map((_, i) => i);
  const find = (i: number): number => {
    while (root[i] !== i) i = root[i] = root[root[i]!]!;
    return i;
  };
  const key = words.map((w, i) => (leaf[i] || w.length <= d ? "" : keyOf(w.slice(0, d + 1))));
  src.forEach((from, i) => {
    for (const s of from) if (key[i] && key[s] === key[i]) root[find(i)] = find(s);
  });
  const parts = new Map<string, Map<number, number[]>>();
  key.forEach((k, i) => {
    if (!k) return;
    if (!parts.has(k)) parts.set(k, new Map());
    const of = parts.get(k)!;
    const r = find(i);
    if (of.has(r)) of.get(r)!.push(i);
    else of.set(r, [i]);
  });
  for (const of of parts.values()) {
    if (of.size < 2) continue;
    const calls = of.size > MOST_CALLS ? [...of.values()] : merged(nodes, src, [...of.values()]);
    calls.slice(1).forEach((call, n) => {
      for (const i of call) words[i] = words[i]!.map((w, at) => (at === d ? `${w} (${n + 2})` : w));
    });
  }
}

function merged(nodes: Raw[], src: number[][], parts: number[][]): number[][] {
  const part = new Map(parts.flatMap((p, n) => p.map((i) => [i, n] as const)));
  const above = new Int32Array(nodes.length); // the parts that a node is made of, as bits
  const needs = parts.map(() => 0);
  nodes.forEach((_, i) => {
    let bits = 0;
    for (const s of src[i]!) bits |= above[s]! | (part.has(s) ? 1 << part.get(s)! : 0);
    above[i] = bits;
    const mine = part.get(i);
    if (mine !== undefined) needs[mine]! |= bits & ~(1 << mine);
  });
  const lineOf = (i: number) => (nodes[i]!.line ? `${nodes[i]!.line!.file}:${nodes[i]!.line!.line}` : "");
  const calls: { nodes: number[]; bits: number; needs: number; lines: Set<string> }[] = [];
  parts.forEach((p, n) => {
    const lines = new Set(p.map(lineOf));
    const forward = nodes[p[0]!]!.phase === "forward";
    const beside = calls.find(
      (c) => !(c.needs & (1 << n)) && !(needs[n]! & c.bits) && !(forward && [...lines].some((l) => c.lines.has(l))),
    );
    if (!beside) calls.push({ nodes: [...p], bits: 1 << n, needs: needs[n]!, lines });
    else {
      beside.nodes.push(...p);
      beside.bits |= 1 << n;
      beside.needs |= needs[n]!;
      for (const l of lines) beside.lines.add(l);
    }
  });
  return calls.map((c) => c.nodes);
}
