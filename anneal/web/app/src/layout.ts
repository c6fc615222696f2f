// Places for boxes, by ELK in a worker, which is loaded when the first graph is shown.
import ELK, { type ELK as Elk, type ElkNode } from "elkjs/lib/elk-api.js";
import type { View } from "./groups";
import { file } from "./snapshot";

export interface Placed { key: string; x: number; y: number; w: number; h: number }
export interface Path { from: string; to: string; count: number; d: string }
export interface Layout { boxes: Map<string, Placed>; edges: Path[]; width: number; height: number; ms: number }

let elk: Elk | null = null;

const WIDE = 7.3; // a character, at the size that boxes are labelled in
const sizeOf = (label: string, detail: string, group: boolean) => ({
  width: Math.max(64, Math.ceil(Math.max(label.length * WIDE, detail.length * 5.9)) + (group ? 44 : 22)),
  height: detail ? 40 : 28,
});

export async function layout(view: View, down = true): Promise<Layout> {
  elk ??= new ELK({ workerFactory: () => new Worker(file("/static/elk-worker.js")) });
  const begun = performance.now();
  const nodes = new Map<string, ElkNode>();
  for (const box of view.boxes) {
    const node: ElkNode = { id: box.key, children: [], ...(box.open ? {} : sizeOf(box.label, box.detail, box.group)) };
    if (box.open) {
      node.layoutOptions = { "elk.padding": "[top=34,left=14,bottom=14,right=14]" };
      node.labels = [{ text: box.label }];
    }
    nodes.set(box.key, node);
  }
  const root: ElkNode = {
    id: "root",
    layoutOptions: {
      "elk.algorithm": "layered",
      "elk.direction": down ? "DOWN" : "RIGHT",
      "elk.hierarchyHandling": "INCLUDE_CHILDREN",
      "elk.edgeRouting": "POLYLINE",
      "elk.spacing.nodeNode": "18",
      "elk.layered.spacing.nodeNodeBetweenLayers": "34",
      "elk.layered.spacing.edgeNodeBetweenLayers": "10",
      "elk.layered.nodePlacement.strategy": "SIMPLE",
      "elk.layered.thoroughness": "1",
      "elk.separateConnectedComponents": "true",
    },
    children: [],
    edges: [],
  };
  for (const box of view.boxes) {
    const parent = box.parent === null ? root : nodes.get(box.parent)!;
    parent.children!.push(nodes.get(box.key)!);
  }
  root.edges = view.edges.map((e, i) => ({ id: `e${i}`, sources: [e.from], targets: [e.to] }));
  const done = await elk.layout(root);
  const boxes = new Map<string, Placed>();
  const origin = new Map<string, [number, number]>([["root", [0, 0]]]);
  const walk = (node: ElkNode, x: number, y: number) => {
    for (const child of node.children ?? []) {
      const at: Placed = { key: child.id, x: x + child.x!, y: y + child.y!, w: child.width!, h: child.height! };
      boxes.set(child.id, at);
      origin.set(child.id, [at.x, at.y]);
      walk(child, at.x, at.y);
    }
  };
  walk(done, 0, 0);
  const edges: Path[] = [];
  for (const edge of done.edges ?? []) {
    const of = view.edges[Number(edge.id.slice(1))]!;
    const [dx, dy] = origin.get((edge as { container?: string }).container ?? "root") ?? [0, 0];
    const section = edge.sections?.[0];
    if (!section) continue;
    const points = [section.startPoint, ...(section.bendPoints ?? []), section.endPoint];
    const at = points.map((p) => [Math.round(p.x + dx), Math.round(p.y + dy)] as [number, number]);
    edges.push({ ...of, d: curve(at) });
  }
  return { boxes, edges, width: done.width!, height: done.height!, ms: performance.now() - begun };
}

function curve(points: [number, number][]): string {
  let d = `M${points[0]![0]} ${points[0]![1]}`;
  for (let i = 1; i < points.length; i++) {
    const [x0, y0] = points[i - 1]!;
    const [x, y] = points[i]!;
    const half = (y0 + y) / 2;
    d += x0 === x ? `V${y}` : `C${x0} ${half} ${x} ${half} ${x} ${y}`;
  }
  return d;
}
