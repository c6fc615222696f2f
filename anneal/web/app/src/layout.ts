// Places for boxes: asked of a worker, which is started when the first graph is on its way.
import type { View } from "./groups";
import { file } from "./snapshot";
import type { Asked, Told } from "./layout-worker";

export interface Placed { x: number; y: number; w: number; h: number }
export interface Path { from: string; to: string; count: number; d: string }
export interface Layout { boxes: Map<string, Placed>; edges: Path[]; width: number; height: number }

// Widths of a character, at the sizes that boxes are labelled in.
const [WIDE, CAPITAL, SMALL] = [7.3, 8.4, 5.9];

let worker: Worker | null = null;
let number = 0;
const waiting = new Map<number, { resolve: (told: Told) => void; reject: (error: Error) => void }>();

function sizeOf(label: string, detail: string, group: boolean): [number, number] {
  const capitals = label.replace(/[^A-Z]/g, "").length;
  const text = Math.ceil(Math.max((label.length - capitals) * WIDE + capitals * CAPITAL, detail.length * SMALL));
  return [Math.max(64, text + (group ? 44 : 22)), detail ? 40 : 28];
}

// Start the worker, so that it is there when the first graph comes.
export function ready(): Worker {
  if (!worker) {
    worker = new Worker(file("/static/layout-worker.js"));
    worker.onmessage = (e: MessageEvent<Told>) => {
      const asked = waiting.get(e.data.id);
      waiting.delete(e.data.id);
      if (e.data.error) asked?.reject(new Error(e.data.error));
      else asked?.resolve(e.data);
    };
    worker.onerror = (e) => {
      worker = null;
      for (const asked of waiting.values()) asked.reject(new Error(e.message || "the worker did not start"));
      waiting.clear();
    };
  }
  return worker;
}

export async function layout(view: View): Promise<Layout> {
  const asked: Asked = {
    id: ++number,
    boxes: view.boxes.map((b) => [b.key, b.parent, b.nodes[(b.nodes.length - 1) >> 1]!, b.open ? null : sizeOf(b.label, b.detail, b.group)]),
    edges: view.edges.map((e) => [e.from, e.to]),
  };
  const told = await new Promise<Told>((resolve, reject) => {
    waiting.set(asked.id, { resolve, reject });
    ready().postMessage(asked);
  });
  const boxes = new Map(told.boxes.map(([key, x, y, w, h]) => [key, { x, y, w, h }]));
  const edges = view.edges.map((e, i) => ({ ...e, d: told.paths[i]! })).filter((e) => e.d);
  return { boxes, edges, width: told.width, height: told.height };
}
