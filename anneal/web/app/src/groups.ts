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
  for (const item of items) {
    const to = of.get(item.id);
    if (!to) continue;
    for (const s of item.src) {
      const from = of.get(s);
      if (!from || from === to) continue;
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

interface Raw { id: number; op: string; src: number[]; phase: string; module: string; function: string; kernels: number[] }

// The groups of every node. Memory and constants go where they are first used; numbers of a list stay with its name
// ("h.0"); what belongs to no module is grouped by the function that made it, and large ones by their kernels.
export function paths(nodes: Raw[]): string[][] {
  let known = grouped.get(nodes);
  if (!known) grouped.set(nodes, (known = group(nodes)));
  return known;
}

const grouped = new WeakMap<Raw[], string[][]>();

function group(nodes: Raw[]): string[][] {
  const user = new Map<number, number>();
  for (const n of nodes) for (const s of n.src) if (!user.has(s)) user.set(s, n.id);
  const byId = new Map(nodes.map((n) => [n.id, n]));
  const leafy = new Map<number, boolean>();
  for (const n of nodes) {
    const still = n.src.length === 0 || (["RESHAPE", "EXPAND", "SHRINK", "PAD", "PERMUTE", "CAST"].includes(n.op) && n.src.every((s) => leafy.get(s)));
    leafy.set(n.id, still && !n.module);
  }
  const found: string[][] = [];
  const sizes = new Map<string, number>();
  const owner = (n: Raw): Raw => {
    let at = n;
    for (let i = 0; i < 64 && leafy.get(at.id); i++) {
      const next = byId.get(user.get(at.id) ?? -1);
      if (!next || next.op === "SINK") break;
      at = next;
    }
    return at;
  };
  for (const n of nodes) {
    const at = owner(n);
    const words: string[] = [];
    if (at.module) {
      for (const part of at.module.split(".")) {
        if (/^\d+$/.test(part) && words.length) words[words.length - 1] += `.${part}`;
        else words.push(part);
      }
    } else {
      words.push(at.phase === "update" ? at.function || "update" : at.function || at.op.toLowerCase());
    }
    const path = [at.phase === "forward" ? words[0]! : `${words[0]} ${at.phase === "backward" ? "′" : "↻"}`, ...words.slice(1)];
    found.push(path);
    sizes.set(keyOf(path), (sizes.get(keyOf(path)) ?? 0) + 1);
  }
  nodes.forEach((n, i) => {
    const size = sizes.get(keyOf(found[i]!)) ?? 0;
    if (size <= 2 && !owner(n).module) found[i] = []; // a box around so few hides more than it tells
    else if (size > MOST) {
      const kernel = owner(n).kernels[0] ?? n.kernels[0];
      found[i] = [...found[i]!, kernel === undefined ? "no kernel of its own" : `kernel ${kernel}`];
    }
  });
  return found;
}
