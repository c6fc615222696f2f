// Spirals learnt live: the training step runs here, and the plane shows how the net divides it.
import type { Model } from "./anneal";
import { element, frame, saveAs } from "./parts";

const COLOURS = [[214, 94, 44], [31, 119, 180], [60, 150, 75]];

export async function spirals(model: Model, main: HTMLElement): Promise<void> {
  const { side, batch } = model.plan.page as unknown as { side: number; batch: number };
  const file = await model.file("data.safetensors");
  const [points, arms] = [(await file.array("points")) as Float32Array, (await file.array("arms")) as Int32Array];
  const { train, predict } = model.plan.programs[0]!.functions;
  const [xs, ys] = train!.inputs.map((p) => p.name) as [string, string];
  const plane = await model.example("predict");
  const canvas = element("canvas", { width: 480, height: 480, role: "img", "aria-label": "the plane, in the colours of the arms that the net sees, with the points" });
  const context = canvas.getContext("2d")!;
  const said = element("p", { role: "status" });
  const go = element("button", {}, "Train");
  const upload = element("input", { type: "file", accept: ".safetensors", hidden: true, "aria-hidden": "true", tabindex: -1 });
  let [running, steps, loss] = [false, 0, NaN];
  let last: Promise<void> = Promise.resolve(); // what trains, loads or starts anew waits for what was asked for before

  async function paint(): Promise<void> {
    const { data } = (await model.call("predict", plane))[predict!.outputs[0]!.name]!;
    const image = new ImageData(side, side);
    for (let n = 0; n < side * side; n++) {
      const scores = Array.from(data.subarray(3 * n, 3 * n + 3));
      const arm = scores.indexOf(Math.max(...scores));
      image.data.set([...COLOURS[arm]!.map((c) => 255 - (255 - c) * 0.45), 255], 4 * n);
    }
    context.imageSmoothingEnabled = false;
    context.drawImage(await createImageBitmap(image), 0, 0, canvas.width, canvas.height);
    for (let n = 0; n < arms.length; n++) {
      context.fillStyle = `rgb(${COLOURS[arms[n]!]!.join()})`;
      context.fillRect((points[2 * n]! + 1) * 240 - 1, (1 - points[2 * n + 1]!) * 240 - 1, 3, 3);
    }
    said.textContent = steps ? `step ${steps}, loss ${loss.toFixed(3)}` : "not trained yet";
  }

  async function step(read: boolean): Promise<void> {
    const x = new Float32Array(2 * batch);
    const y = new Int32Array(batch);
    for (let n = 0; n < batch; n++) {
      const row = Math.floor(Math.random() * arms.length);
      x.set(points.subarray(2 * row, 2 * row + 2), 2 * n);
      y[n] = arms[row]!;
    }
    const found = await model.call("train", { [xs]: x, [ys]: y }, read ? undefined : []);
    steps++;
    if (read) loss = found[train!.outputs[0]!.name]!.data[0]!;
  }

  function queued(act: () => Promise<void>): Promise<void> {
    last = last.catch(() => undefined).then(act);
    return last;
  }

  async function loop(): Promise<void> {
    while (running) {
      for (let n = 0; n < 10; n++) await step(n === 9);
      await paint();
      await frame();
    }
  }

  function run(on: boolean): void {
    running = on;
    go.textContent = on ? "Pause" : "Train";
  }

  function start(act: () => Promise<void>, begun?: number): Promise<void> {
    run(false);
    return queued(async () => {
      await act();
      steps = begun ?? steps;
      await paint();
    });
  }

  go.addEventListener("click", () => {
    run(!running);
    if (running) void queued(loop);
  });
  upload.addEventListener("change", () => {
    const chosen = upload.files?.[0];
    if (chosen) start(() => model.restore(chosen)).catch((e: Error) => (said.textContent = e.message));
  });
  main.replaceChildren(
    element("p", {}, `A perceptron learns which arm of three spirals a point belongs to: ${arms.length} points, batches of ${batch}, forward, backward and Adam in your browser.`),
    element("p", { class: "row" }, go, element("button", { click: () => start(() => model.reset(), 0) }, "Start anew"), element("button", { click: async () => saveAs(await model.save(), "spirals.safetensors") }, "Save"), element("button", { click: () => upload.click() }, "Load"), upload),
    said,
    canvas,
  );
  await paint();
}
