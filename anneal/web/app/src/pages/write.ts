// Write a text: the prompt is read at once, then token after token, with keys and values kept on the GPU.
import type { Model } from "./anneal";
import { element, softmax } from "./parts";

/** Text to tokens and back. */
export type Words = { encode(text: string): number[]; decode(tokens: number[]): string };

/** A token by chance among the likeliest. */
function choose(logits: ArrayLike<number>, temperature: number, most: number): number {
  const order = Array.from(logits, (_, n) => n).sort((a, b) => logits[b]! - logits[a]!);
  if (temperature <= 0) return order[0]!;
  const some = order.slice(0, most || order.length);
  let left = Math.random();
  const chances = softmax(some.map((n) => logits[n]! / temperature));
  return some[chances.findIndex((p) => (left -= p) < 0)] ?? some[0]!;
}

/** Tokens that follow a prompt; what is behind the context's end goes on from its last half. */
export async function* tokens(model: Model, prompt: number[], temperature: number, most: number, stop: () => boolean): AsyncGenerator<number> {
  const { context, block } = model.plan.page as unknown as { context: number; block: number };
  const out = model.plan.programs[0]!.functions["begin"]!.outputs[0]!.name;
  const said = [...prompt];
  let place = 0;
  let logits: ArrayLike<number> = [];
  while (!stop()) {
    if (place === 0 || place === context) {
      const known = said.slice(-(place ? context >> 1 : context));
      const whole = new Int32Array(context);
      whole.set(known);
      logits = (await model.call("begin", { tokens: whole, count: [known.length], blocks: Math.ceil(known.length / block) }))[out]!.data;
      place = known.length;
    } else {
      logits = (await model.call("go_on", { token: [said.at(-1)!], place: [place], blocks: Math.floor(place / block) + 1 }))[out]!.data;
      place++;
    }
    said.push(choose(logits, temperature, most));
    yield said.at(-1)!;
  }
}

export async function writing(model: Model, main: HTMLElement, words: Words, prompt: string, length: number, most: number): Promise<void> {
  const given = element("textarea", { rows: 2, spellcheck: "false" }, prompt);
  const warmth = element("input", { type: "number", min: 0, max: 2, step: 0.1, value: 0.8 });
  const text = element("pre", { role: "region", "aria-live": "off", tabindex: "0", "aria-label": "the text" });
  const rate = element("p", { role: "status" });
  const go = element("button", {}, "Write");
  let running = false;

  async function run(): Promise<void> {
    if (running) return void (running = false);
    running = true;
    go.textContent = "Stop";
    try {
      const start = words.encode(given.value);
      const made: number[] = [];
      text.textContent = given.value;
      const begun = performance.now();
      for await (const token of tokens(model, start, Number(warmth.value), most, () => !running || made.length >= length)) {
        made.push(token);
        text.textContent = given.value + words.decode(made);
        rate.textContent = `${made.length} tokens, ${((1000 * made.length) / (performance.now() - begun)).toFixed(0)} a second`;
      }
    } catch (e) {
      rate.textContent = (e as Error).message;
    }
    running = false;
    go.textContent = "Write";
  }

  go.addEventListener("click", () => void run());
  main.replaceChildren(element("label", {}, "Go on from", given), element("p", { class: "row" }, element("label", {}, "Temperature ", warmth), go), rate, text);
}

/** A model of characters. */
export async function write(model: Model, main: HTMLElement): Promise<void> {
  const { alphabet } = model.plan.page as unknown as { alphabet: string };
  const letters = [...alphabet];
  const words: Words = {
    encode(text) {
      const found = [...text].map((c) => letters.indexOf(c));
      const unknown = [...text].filter((_, n) => found[n]! < 0);
      if (unknown.length || !found.length) throw new Error(unknown.length ? `the model does not know ${unknown.join(" ")}` : "give it a text to go on from");
      return found;
    },
    decode: (made) => made.map((n) => letters[n]).join(""),
  };
  await writing(model, main, words, "ROMEO:", 400, 0);
}
