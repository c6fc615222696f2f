// The page around a model: loads it, shows whether its values are right, and gives it the look that its kind asks for.
import { embedded, folder, load, type Model, PageError } from "./anneal";
import { askForGpt2 } from "./gpt2";
import { KINDS } from "./kinds";
import { byId, bytes, element } from "./parts";

const badge = byId("badge");
const began = performance.now();

function tell(text: string, kind = ""): void {
  badge.textContent = text;
  badge.className = kind;
}

function failed(e: unknown): void {
  tell("it does not run here", "bad");
  byId("main").replaceChildren(element("p", { role: "alert" }, e instanceof Error ? e.message : String(e)));
  if (!(e instanceof PageError)) console.error(e);
}

async function main(): Promise<void> {
  const single = document.querySelector("script[data-file]") !== null;
  const source = single ? embedded(document) : folder(new URL(".", document.baseURI));
  const integrity = document.querySelector<HTMLMetaElement>("meta[name=model]")?.content;
  const model = await load(source, {
    integrity,
    visitor: askForGpt2,
    progress: ({ part, done, of }) => tell(part === "weights" ? `loading ${bytes(done)} of ${bytes(of)}` : `preparing kernel ${done} of ${of}`),
    lost: (state) => tell({ lost: "the GPU was lost; loading again", restored: "the GPU was lost; the model runs again", gone: "the GPU was lost, and does not come back: open the page again" }[state], state === "restored" ? "" : "bad"),
  });
  const { adapter, profile, memory } = model.about;
  byId("facts").textContent = `${model.plan.made_by} · ${adapter} · kernels for ${profile} · ${bytes(memory)} on the GPU. Nothing that you do here leaves this machine.`;
  const checked = await model.check();
  const [worst, allowed] = [checked.worst, checked.allowed].map((x) => x.toExponential(1));
  if (Object.keys(model.plan.wanted).length) tell(`ready on ${adapter}; the weights are yours, so nothing is compared`, "good");
  else if (checked.ok) tell(`checked: worst error ${worst} of ${allowed} allowed, on ${adapter}`, "good");
  else tell(`wrong values: ${checked.where} is off by ${worst}, and may be by ${allowed}${checked.kernel ? `; the first wrong kernel is ${checked.kernel}` : ""}`, "bad");
  document.documentElement.dataset["ready"] = `${Math.round(performance.now() - began)}`;
  (globalThis as { model?: Model }).model = model;
  const show = KINDS[model.plan.page.kind] ?? KINDS["form"]!;
  await show(model, byId("main"));
  if (!single && "serviceWorker" in navigator) {
    await navigator.serviceWorker.register("sw.js");
    await keep(["anneal.js", "page.js", "style.css", "model.json", ...Object.keys(model.plan.files)]);
  }
}

/** Put what was loaded before the worker was there into its store, so that the page opens without a network. */
async function keep(names: string[]): Promise<void> {
  const store = await caches.open("anneal-page");
  for (const url of [location.pathname, ...names].map((name) => new URL(name, document.baseURI).href))
    if (!(await store.match(url))) await store.add(new Request(url, { cache: "force-cache" }));
  document.documentElement.dataset["kept"] = "";
}

main().catch(failed);
