// The plain page: the example's inputs as numbers that can be changed, and the results.
import type { Input, Model } from "./anneal";
import { element, turns } from "./parts";

const SHOWN = 64;

export async function form(model: Model, main: HTMLElement): Promise<void> {
  const parts: Node[] = [];
  for (const name of model.functions) {
    const example = await model.example(name);
    const fields = Object.entries(example).map(([key, value]) => {
      const text = typeof value === "number" ? String(value) : Array.from(value as ArrayLike<number>, (x) => Number(x.toPrecision(6))).join(" ");
      return [key, element("textarea", { rows: 3, spellcheck: "false" }, text)] as const;
    });
    const out = element("pre", { role: "region", "aria-live": "polite", tabindex: "0", "aria-label": `results of ${name}` });
    const asked = turns();
    const run = async () => {
      const isLast = asked();
      const inputs: Record<string, Input> = {};
      for (const [key, area] of fields) {
        const numbers = area.value.trim().split(/[\s,]+/).map(Number);
        inputs[key] = typeof example[key] === "number" ? numbers[0]! : numbers;
      }
      try {
        const begun = performance.now();
        const found = await model.call(name, inputs);
        if (!isLast()) return;
        const lines = Object.entries(found).map(([key, { data, shape }]) => {
          const some = Array.from(data.subarray(0, SHOWN), (x) => x.toPrecision(6)).join(" ");
          return `${key} [${shape.join(", ")}]\n${some}${data.length > SHOWN ? " ..." : ""}`;
        });
        out.textContent = `${lines.join("\n\n")}\n\n${(performance.now() - begun).toFixed(1)} ms`;
      } catch (e) {
        if (isLast()) out.textContent = (e as Error).message;
      }
    };
    parts.push(
      element("section", {}, element("h2", {}, name), ...fields.map(([key, area]) => element("label", {}, key, area)), element("p", {}, element("button", { click: run }, `Run ${name}`)), out),
    );
  }
  main.replaceChildren(...parts);
}
