// Draw a digit: a small grid of points, by pointer or by keys, and what the net reads.
import type { Model } from "./anneal";
import { element, shares, softmax } from "./parts";

export async function draw(model: Model, main: HTMLElement): Promise<void> {
  const { size, labels } = model.plan.page as unknown as { size: number; labels: string[] };
  const [name] = model.functions as [string];
  const input = model.plan.programs[0]!.functions[name]!.inputs[0]!.name;
  const output = model.plan.programs[0]!.functions[name]!.outputs[0]!.name;
  const points = new Float32Array(size * size);
  const cursor = { x: size >> 1, y: size >> 1, shown: false };
  const canvas = element("canvas", { width: size, height: size, tabindex: 0, role: "application", "aria-label": `drawing of ${size} by ${size} points: arrow keys move, space draws, delete rubs out` });
  canvas.style.width = `${size * 18}px`;
  const read = element("div", { "aria-live": "polite" });
  const context = canvas.getContext("2d")!;
  let [running, again] = [false, false];

  async function show(): Promise<void> {
    const image = context.createImageData(size, size);
    for (let n = 0; n < points.length; n++) {
      const at = cursor.shown && n === cursor.y * size + cursor.x;
      image.data.set([255 * points[n]!, at ? 160 : 255 * points[n]!, 255 * points[n]!, 255], 4 * n);
    }
    context.putImageData(image, 0, 0);
    again = running;
    if (running) return;
    running = true;
    do {
      again = false;
      const chances = softmax((await model.call(name, { [input]: points }))[output]!.data);
      read.replaceChildren(shares(labels.map((label, n) => [label, chances[n]!])));
    } while (again);
    running = false;
  }

  function put(x: number, y: number, value: number): void {
    if (x < 0 || y < 0 || x >= size || y >= size) return;
    points[y * size + x] = value;
    void show();
  }

  function point(e: PointerEvent): void {
    if (!e.buttons) return;
    const box = canvas.getBoundingClientRect();
    put(Math.floor(((e.clientX - box.left) / box.width) * size), Math.floor(((e.clientY - box.top) / box.height) * size), e.buttons === 2 ? 0 : 1);
  }

  function key(e: KeyboardEvent): void {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
    if (step) {
      cursor.x = (cursor.x + step[0]! + size) % size;
      cursor.y = (cursor.y + step[1]! + size) % size;
    } else if (e.key === " ") points[cursor.y * size + cursor.x] = 1;
    else if (e.key === "Delete" || e.key === "Backspace") points[cursor.y * size + cursor.x] = 0;
    else return;
    cursor.shown = true;
    e.preventDefault();
    void show();
  }

  canvas.addEventListener("pointerdown", (e) => {
    canvas.setPointerCapture(e.pointerId);
    point(e);
  });
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("contextmenu", (e) => e.preventDefault());
  canvas.addEventListener("keydown", key);
  const clear = element("button", { click: () => (points.fill(0), void show()) }, "Clear");
  main.replaceChildren(
    element("p", {}, "Draw a digit as a dot-matrix display shows it, about 5 points wide and 7 or 14 high."),
    element("div", { class: "row" }, element("div", {}, canvas, element("p", {}, clear)), read),
  );
  await show();
}
