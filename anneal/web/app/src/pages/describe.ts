// Describe a picture: a file that is chosen or dropped, in the size that the classifier takes.
import type { Model } from "./anneal";
import { element, shares, softmax, turns } from "./parts";

const MEAN = [0.485, 0.456, 0.406];
const SPREAD = [0.229, 0.224, 0.225];

export async function describe(model: Model, main: HTMLElement): Promise<void> {
  const { size, labels } = model.plan.page as unknown as { size: [number, number]; labels: string[] };
  const [name] = model.functions as [string];
  const f = model.plan.programs[0]!.functions[name]!;
  const [height, width] = size;
  const canvas = element("canvas", { width, height, role: "img", "aria-label": "the picture as the model sees it" });
  const read = element("div", { "aria-live": "polite" });
  const chosen = element("input", { type: "file", accept: "image/*" });

  canvas.style.width = `${Math.max(width, 192)}px`;
  const context = canvas.getContext("2d", { willReadFrequently: true })!;

  const asked = turns();

  async function tell(x: Float32Array, isLast: () => boolean): Promise<void> {
    const begun = performance.now();
    const scores = (await model.call(name, { [f.inputs[0]!.name]: x }))[f.outputs[0]!.name]!.data;
    const sum = Array.from(scores).reduce((a, b) => a + b, 0);
    const chances = Math.abs(sum - 1) < 1e-3 ? Array.from(scores) : softmax(scores);
    if (!isLast()) return; // another picture was chosen meanwhile
    const table = shares(chances.map((p, n) => [labels[n] ?? `class ${n}`, p]));
    read.replaceChildren(table, element("p", { class: "soft" }, `${(performance.now() - begun).toFixed(0)} ms`));
  }

  async function look(file: Blob, isLast: () => boolean): Promise<void> {
    const picture = await createImageBitmap(file);
    if (!isLast()) return;
    const cut = Math.min(picture.width / width, picture.height / height);
    const [w, h] = [width * cut, height * cut];
    context.drawImage(picture, (picture.width - w) / 2, (picture.height - h) / 2, w, h, 0, 0, width, height);
    const { data } = context.getImageData(0, 0, width, height);
    const x = new Float32Array(3 * width * height);
    for (let n = 0; n < width * height; n++)
      for (let c = 0; c < 3; c++) x[c * width * height + n] = (data[4 * n + c]! / 255 - MEAN[c]!) / SPREAD[c]!;
    await tell(x, isLast);
  }

  /** The picture that the model was exported with. */
  async function begin(): Promise<void> {
    const isLast = asked();
    const x = (await model.example(name))[f.inputs[0]!.name] as Float32Array;
    const image = context.createImageData(width, height);
    for (let n = 0; n < width * height; n++)
      image.data.set([...MEAN.map((mean, c) => 255 * (x[c * width * height + n]! * SPREAD[c]! + mean)), 255], 4 * n);
    context.putImageData(image, 0, 0);
    await tell(x, isLast);
  }

  const take = (file?: Blob | null) => {
    if (!file) return;
    const isLast = asked();
    look(file, isLast).catch((e: Error) => {
      if (isLast()) read.replaceChildren(element("p", { role: "alert" }, `this picture cannot be read: ${e.message}`));
    });
  };
  chosen.addEventListener("change", () => take(chosen.files?.[0]));
  document.body.addEventListener("dragover", (e) => e.preventDefault());
  document.body.addEventListener("drop", (e) => {
    e.preventDefault();
    take(e.dataTransfer?.files[0]);
  });
  main.replaceChildren(element("label", {}, "Choose a picture, or drop one here: ", chosen), ...(labels.length && labels.length <= 20 ? [element("p", { class: "soft" }, `It knows: ${labels.join(", ")}.`)] : []), element("div", { class: "row" }, canvas, read));
  await begin();
}
