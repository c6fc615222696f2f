// GPT-2 from the visitor's own files: model.safetensors, vocab.json and merges.txt as Hugging Face has them.
import { type Model, PageError, Tensors } from "./anneal";
import { byId, element } from "./parts";
import { type Words, writing } from "./write";

const WORD = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;
const TRANSPOSED = /\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight$/;
const NEEDED = ["model.safetensors", "vocab.json", "merges.txt"];
let words: Words | undefined;

/** The letter that stands for each byte in vocab.json. */
function letters(): string[] {
  const printed = (b: number) => (b >= 0x21 && b < 0x7f) || (b >= 0xa1 && b < 0xad) || b >= 0xae;
  let more = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(printed(b) ? b : more++));
}

/** Byte-level byte-pair encoding: neighbours are joined, those first that stand first in the list of merges. */
export function tokenizer(vocab: Record<string, number>, merges: string): Words {
  const letter = letters();
  const byte = new Map(letter.map((c, b) => [c, b]));
  const ranks = new Map(merges.split("\n").filter((line) => line && !line.startsWith("#version")).map((line, rank) => [line.trim(), rank]));
  const texts = new Map(Object.entries(vocab).map(([text, id]) => [id, text]));
  const encode = (text: string) => {
    const out: number[] = [];
    for (const [word] of text.matchAll(WORD)) {
      let parts = Array.from(new TextEncoder().encode(word), (b) => letter[b]!);
      for (;;) {
        const found = parts.slice(1).map((p, n) => ranks.get(`${parts[n]} ${p}`) ?? Infinity);
        const best = Math.min(...found);
        if (!(best < Infinity)) break;
        const at = found.indexOf(best);
        parts = [...parts.slice(0, at), parts[at]! + parts[at + 1]!, ...parts.slice(at + 2)];
      }
      for (const p of parts) {
        if (vocab[p] === undefined) throw new PageError(`vocab.json has no token ${p}: take it and merges.txt from one folder`);
        out.push(vocab[p]);
      }
    }
    if (!out.length) throw new PageError("give it a text to go on from");
    return out;
  };
  const decode = (ids: number[]) => {
    const bytes = ids.flatMap((id) => Array.from(texts.get(id) ?? "", (c) => byte.get(c) ?? 63));
    return new TextDecoder().decode(new Uint8Array(bytes));
  };
  return { encode, decode };
}

/** Ask for the files, and add their tensors to those of the export. */
export async function askForGpt2(plan: { wanted: Record<string, number[]> }, weights: Tensors): Promise<void> {
  byId("badge").textContent = "waiting for your files";
  const said = element("p", { role: "alert" });
  const chosen = element("input", { type: "file", multiple: true, accept: ".safetensors,.json,.txt" });
  byId("main").replaceChildren(
    element("p", {}, `This page has no weights: it takes GPT-2's from your own folder. Choose ${NEEDED.join(", ")}; they stay on this machine.`),
    element("label", {}, "Files: ", chosen),
    said,
  );
  for (;;) {
    await new Promise((done) => chosen.addEventListener("change", done, { once: true }));
    try {
      const files = new Map(Array.from(chosen.files ?? [], (f) => [f.name, f]));
      const missing = NEEDED.filter((name) => !files.has(name));
      if (missing.length) throw new PageError(`choose ${missing.join(" and ")} as well`);
      const tensors = await Tensors.open(files.get("model.safetensors")!, "model.safetensors");
      words = tokenizer(JSON.parse(await files.get("vocab.json")!.text()), await files.get("merges.txt")!.text());
      for (const [name, shape] of Object.entries(plan.wanted)) {
        const own = name.replace(/^model\./, "");
        const from = [`transformer.${own}`, own].find((n) => tensors.entries.has(n));
        if (!from) throw new PageError(`model.safetensors has no tensor ${own}: it is no GPT-2, or another one`);
        weights.add(tensors, from, name, TRANSPOSED.test(name));
        if (`${weights.entries.get(name)!.shape}` !== `${shape}`) throw new PageError(`tensor ${own} has another shape than this GPT-2's, [${shape}]: take the folder of GPT-2 small`);
      }
      said.textContent = "reading the weights";
      return;
    } catch (e) {
      said.textContent = (e as Error).message;
    }
  }
}

export async function gpt2(model: Model, main: HTMLElement): Promise<void> {
  await writing(model, main, words!, "The meaning of life is", 200, 40);
}
