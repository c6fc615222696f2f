// anneal.js: runs what `anneal export` wrote.
//
//   import { load } from "./anneal.js";
//   const model = await load("model/");
//   const { out } = await model.run({ x: [1, 2, 3] });
import { Engine, numbersOf, sound, type NDArray } from "./engine";
import { fetched, folder, packed, planText, Tensors, type Source } from "./files";
import { insist, PageError, readPlan, type Fn, type Place, type Plan, type Program } from "./format";

export { PageError } from "./format";
export { embedded, folder, packed, Tensors, type Source } from "./files";
export type { NDArray } from "./engine";

export type Input = number | ArrayLike<number> | NDArray;
export type Progress = { part: "weights" | "kernels"; done: number; of: number };
export type Options = {
  /** hears how far loading has come */
  progress?: (now: Progress) => void;
  /** base64 of the SHA-256 of model.json */
  integrity?: string | undefined;
  /** the program of this profile, in the place of the first that the adapter can run */
  profile?: string;
  /** adds the tensors that the plan wants and no file of the export has: `Tensors.add` */
  visitor?: (plan: Plan, weights: Tensors) => Promise<void>;
  /** hears that the GPU was lost, and that the model runs again */
  lost?: (state: "lost" | "restored" | "gone") => void;
};
export type Checked = {
  ok: boolean;
  /** the error that is worst beside what its result may be off, and that, as parts of its largest magnitude */
  worst: number;
  allowed: number;
  /** the function and its result */
  where: string;
  /** the first kernel that leaves other values than it should, where results differ */
  kernel?: string;
};

/** The first part of a message about an adapter that there is not. */
function advice(): string {
  const agent = navigator.userAgent;
  if (!isSecureContext) return "WebGPU needs a page from https:// or from localhost: serve the folder with `python -m http.server`, and open http://localhost:8000";
  if (/Firefox/.test(agent)) return "this Firefox has no WebGPU here: take version 141 or later on Windows, 145 on macOS, or set dom.webgpu.enabled in about:config";
  if (/Chrome/.test(agent)) return "this browser's WebGPU is off: on Linux start it with --enable-unsafe-webgpu --enable-features=Vulkan, or set chrome://flags/#enable-unsafe-webgpu; elsewhere Chrome and Edge have it from version 113 on, with hardware acceleration on";
  if (/Safari/.test(agent)) return "this Safari has no WebGPU: take version 26 or later";
  return "this browser has no WebGPU: take Chrome or Edge 113, Safari 26 or Firefox 141, or later ones";
}

async function openDevice(programs: Program[], profile?: string): Promise<[GPUDevice, Program, GPUAdapterInfo]> {
  insist(navigator.gpu, `There is no WebGPU: ${advice()}`);
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  insist(adapter, `WebGPU finds no adapter: ${advice()}`);
  const limits = adapter.limits as unknown as Record<string, number>;
  const { isFallbackAdapter, architecture, description, subgroupMinSize } = adapter.info;
  const lacks = (p: Program) => [
    ...p.features.filter((f) => !adapter.features.has(f)),
    ...Object.entries(p.limits).filter(([n, v]) => !(limits[n]! >= v)).map(([n, v]) => `${n} ${v} (it has ${limits[n]})`),
    ...((subgroupMinSize ?? 0) >= p.subgroup ? [] : [`subgroups of ${p.subgroup} threads (it has ${subgroupMinSize ?? 0})`]),
  ];
  const software = isFallbackAdapter || /swiftshader|llvmpipe|lavapipe/i.test(`${architecture} ${description}`);
  const alike = programs.filter((p) => p.software === software);
  const wanted = profile === undefined ? (alike.length ? alike : programs) : programs.filter((p) => p.profile === profile);
  insist(wanted.length, `this model was not exported for ${profile}; it has ${programs.map((p) => p.profile).join(", ")}`);
  const found = wanted.find((p) => !lacks(p).length);
  insist(found, `this adapter is too small for the model: ${lacks(wanted.at(-1)!).join(", ")}; export it for a smaller profile, or open the page on another machine`);
  const requiredFeatures = found.features as GPUFeatureName[];
  const device = await adapter.requestDevice({ requiredLimits: found.limits, requiredFeatures });
  return [device, found, adapter.info];
}

/** A model that was exported, on this machine's GPU. */
export class Model {
  private engine!: Engine;
  private info!: GPUAdapterInfo;
  private ready: Promise<void> = Promise.resolve();
  private closed = false;
  private kept = new Map<string, Float32Array | Int32Array | Uint32Array | ArrayBuffer>();

  private constructor(
    readonly plan: Plan,
    private readonly sources: string[],
    private readonly source: Source,
    private weights: Promise<Tensors>,
    private readonly options: Options,
  ) {}

  /** A model of a folder's address, or of another source of its files. */
  static async load(from: string | URL | Source, options: Options = {}): Promise<Model> {
    const source = typeof from === "string" || from instanceof URL ? folder(new URL(from, document.baseURI)) : from;
    insist(globalThis.crypto?.subtle, `There is no WebGPU: ${advice()}`);
    const plan = readPlan(await planText(source, options.integrity));
    const of = plan.files["weights.safetensors"]!.bytes;
    let done = 0;
    const told = (bytes: number) => options.progress?.({ part: "weights", done: (done += bytes), of });
    const weights = fetched(source, plan, "weights.safetensors", told).then(async (blob) => {
      const tensors = (await Tensors.open(blob, "weights.safetensors")).addZeros(plan.zeros);
      if (Object.keys(plan.wanted).length) await options.visitor?.(plan, tensors);
      for (const [name, shape] of Object.entries(plan.wanted)) {
        const found = tensors.entries.get(name);
        insist(found, `tensor ${name} is missing: this model is exported without its weights`);
        insist(`${found.shape}` === `${shape}`, `tensor ${name} has the shape [${found.shape}], and this model's has [${shape}]: the file is of another model`);
      }
      return tensors;
    });
    weights.catch(() => {}); // told where it is waited for
    const wgsl = new Uint8Array(await (await fetched(source, plan, "kernels.wgsl", () => {})).arrayBuffer());
    const sources = plan.sources.map(([a, b]) => new TextDecoder().decode(wgsl.subarray(a, b)));
    const model = new Model(plan, sources, source, weights, options);
    await (model.ready = model.open());
    return model;
  }

  private async open(): Promise<void> {
    const [device, program, info] = await openDevice(this.plan.programs, this.options.profile);
    let done = 0;
    const told = (n: number) => this.options.progress?.({ part: "kernels", done: (done += n), of: program.kernels.length });
    try {
      this.engine = await Engine.make(device, program, this.sources, told);
      this.info = info;
      await this.fill(Object.keys(program.weights));
    } catch (e) {
      device.destroy();
      throw e;
    }
    void device.lost.then(() => this.recover(device));
  }

  /** Put weights onto the GPU: as they were kept last, or as the file has them. */
  private async fill(names: string[]): Promise<void> {
    const file = await this.weights;
    const { program, device, buffers } = this.engine;
    for (const name of names) {
      let data = this.kept.get(name);
      if (!data) {
        const form = this.plan.forms[name];
        data = form ? await file.array(name) : await file.bytes(name);
        if (form === "int8") {
          const scale = await file.array(`${name}#scale`);
          const row = (data as Float32Array).length / scale.length;
          for (let n = 0; n < (data as Float32Array).length; n++) (data as Float32Array)[n]! *= scale[Math.floor(n / row)]!;
        }
      }
      const buffer = buffers[program.weights[name]!]!;
      insist(data.byteLength <= buffer.size, `weight ${name} has ${data.byteLength} bytes, and ${buffer.size} are wanted: the weights are of another model`);
      const whole = Math.floor(data.byteLength / 4) * 4;
      const bytes = new Uint8Array(ArrayBuffer.isView(data) ? (data.buffer as ArrayBuffer) : data);
      device.queue.writeBuffer(buffer, 0, bytes, 0, whole);
      if (whole < bytes.length) {
        const rest = new Uint8Array(4);
        rest.set(bytes.subarray(whole));
        device.queue.writeBuffer(buffer, whole, rest);
      }
    }
  }

  private async recover(device: GPUDevice): Promise<void> {
    if (this.closed || this.engine.device !== device) return;
    this.options.lost?.("lost");
    this.ready = this.open();
    try {
      await this.ready;
      this.options.lost?.("restored");
    } catch {
      this.options.lost?.("gone");
    }
  }

  /** The names of the functions. */
  get functions(): string[] {
    return Object.keys(this.plan.programs[0]!.functions);
  }

  /** The adapter, the profile that its kernels are made for, and the bytes that the model holds on the GPU. */
  get about(): { adapter: string; profile: string; memory: number } {
    const { vendor, architecture, device, description } = this.info;
    const adapter = description || [vendor, architecture, device].filter(Boolean).join(" ") || "an adapter without a name";
    return { adapter, profile: this.engine.program.profile, memory: this.engine.memory };
  }

  /** The tensors that outlive a run, by name. */
  get tensors(): string[] {
    return Object.keys(this.engine.program.weights);
  }

  private function(name: string): Fn {
    const found = this.engine.program.functions[name];
    insist(found, `there is no function ${name}; there are ${this.functions.join(", ")}`);
    return found;
  }

  /** Run the first function. Results that are not in `read` are not read back; by default all are. */
  run(inputs: Record<string, Input> = {}, read?: string[]): Promise<Record<string, NDArray>> {
    return this.call(this.functions[0]!, inputs, read);
  }

  /** Run a function by its name; sizes that vary are numbers among the inputs. */
  async call(name: string, inputs: Record<string, Input> = {}, read?: string[]): Promise<Record<string, NDArray>> {
    await this.ready;
    const engine = this.engine;
    const f = this.function(name);
    const values: Record<string, number> = {};
    for (const v of f.variables) {
      const given = inputs[v.name];
      insist(Number.isInteger(given) && v.low <= (given as number) && (given as number) <= v.high, `${name}: ${v.name} is a whole number from ${v.low} to ${v.high}, not ${given}`);
      values[v.name] = given as number;
    }
    const known = [...f.inputs, ...f.variables].map((p) => p.name);
    for (const key of Object.keys(inputs)) insist(known.includes(key), `${name} has no input ${key}; it has ${known.join(", ") || "none"}`);
    const arrays = f.inputs.map((p) => numbersOf(p, inputs[p.name], values, name));
    for (const [n, p] of f.inputs.entries()) engine.write(p, arrays[n]!, values);
    const places = f.outputs.filter((p) => !read || read.includes(p.name));
    for (const key of read ?? []) insist(places.some((p) => p.name === key), `${name} has no result ${key}; it has ${f.outputs.map((p) => p.name).join(", ")}`);
    const found = await this.guarded(engine, engine.run(f, values, places));
    return Object.fromEntries(places.map((p, n) => [p.name, found[n]!]));
  }

  private async guarded<T>(engine: Engine, run: Promise<T>): Promise<T> {
    const lost = engine.device.lost.then(() => {
      throw new PageError("the GPU was lost during a run; the model is being made ready again with its kept weights: run it once more");
    });
    lost.catch(() => {});
    return Promise.race([run, lost]);
  }

  /** The numbers of a tensor that outlives runs. */
  async read(name: string): Promise<Float32Array> {
    await this.ready;
    const buffer = this.engine.program.weights[name];
    insist(buffer !== undefined, `there is no tensor ${name}`);
    const entry = (await this.weights).entries.get(name);
    const room = [entry ? entry.shape.reduce((a, b) => a * b, 1) : this.engine.program.buffers[buffer]! / 4];
    const dtype = entry?.dtype === "I32" ? "i32" : entry?.dtype === "U32" ? "u32" : "f32";
    const place: Place = { name, buffer, dtype, shape: room, room };
    const [found] = await this.guarded(this.engine, this.engine.readBack(this.engine.device.createCommandEncoder(), [place], {}));
    return found!.data as Float32Array;
  }

  /** Change a tensor that outlives runs, as one changes a learning rate or a temperature. */
  async write(name: string, data: ArrayLike<number>): Promise<void> {
    await this.ready;
    const entry = (await this.weights).entries.get(name);
    insist(entry && this.engine.program.weights[name] !== undefined, `there is no tensor ${name}`);
    const count = entry.shape.reduce((a, b) => a * b, 1);
    insist(data.length === count, `tensor ${name} has ${count} numbers; ${data.length} were given`);
    const numbers = entry.dtype === "I32" ? Int32Array.from(data) : entry.dtype === "U32" ? Uint32Array.from(data) : Float32Array.from(data);
    this.kept.set(name, numbers);
    this.engine.device.queue.writeBuffer(this.engine.buffers[this.engine.program.weights[name]!]!, 0, numbers);
  }

  /** What runs have changed, as a safetensors file; what is lost with a GPU comes back as it was saved last. */
  async save(): Promise<Blob> {
    const { entries } = await this.weights;
    const out = new Map<string, { dtype: string; shape: number[]; data: ArrayBuffer }>();
    for (const name of this.engine.program.state) {
      const numbers = await this.read(name);
      this.kept.set(name, numbers);
      const e = entries.get(name)!;
      out.set(name, { dtype: e.dtype, shape: e.shape, data: numbers.buffer as ArrayBuffer });
    }
    return packed(out);
  }

  /** Go on from a file that `save`, or anneal, wrote. */
  async restore(file: Blob): Promise<void> {
    const found = await Tensors.open(file, "the file");
    const mine = await this.weights;
    for (const name of this.engine.program.state) {
      const [old, now] = [mine.entries.get(name)!, found.entries.get(name)];
      insist(now, `the file has no tensor ${name}: it was saved by another model`);
      insist(now.dtype === old.dtype && `${now.shape}` === `${old.shape}`, `tensor ${name} is ${now.dtype} [${now.shape}] in the file, and ${old.dtype} [${old.shape}] here`);
    }
    for (const name of this.engine.program.state) this.kept.set(name, await found.array(name));
    await this.fill(this.engine.program.state);
  }

  /** Go back to the tensors that were exported. */
  async reset(): Promise<void> {
    await this.ready;
    this.kept.clear();
    await this.fill(this.engine.program.state);
  }

  /** A file of the export, beside those of the model: "data.safetensors". */
  async file(name: string): Promise<Tensors> {
    insist(this.plan.files[name], `there is no file ${name} in this export`);
    return Tensors.open(await fetched(this.source, this.plan, name, () => {}), name);
  }

  /** Run the example of every function, and compare the results with those that were exported. Tensors that outlive
   * runs are then as they were exported. */
  async check(): Promise<Checked> {
    await this.ready;
    const examples = await this.file("check.safetensors");
    const out: Checked = { ok: true, worst: 0, allowed: 0, where: "" };
    let most = -1;
    for (const [name, { bounds }] of Object.entries(this.plan.check)) {
      await this.reset();
      const found = await this.call(name, await this.example(name, examples));
      for (const [n, [key, { data }]] of Object.entries(found).entries()) {
        const [error, size] = difference(data, await examples.array(`${name}/out/${key}`));
        const bound = bounds[this.engine.program.plan]![n]!;
        const part = error ? error / bound : 0;
        if (!(part <= most)) [most, out.worst, out.allowed, out.where] = [part, error / size, bound / size, `${name}: ${key}`];
        if (!(part <= 1) && out.ok) {
          out.ok = false;
          const kernel = await this.firstWrong(name, examples);
          if (kernel) out.kernel = kernel;
        }
      }
    }
    await this.reset();
    return out;
  }

  /** The inputs of a function's example. */
  async example(name: string, examples?: Tensors): Promise<Record<string, Input>> {
    const file = examples ?? (await this.file("check.safetensors"));
    const f = this.function(name);
    const out: Record<string, Input> = Object.fromEntries(f.variables.map((v) => [v.name, v.example]));
    for (const p of f.inputs) out[p.name] = await file.array(`${name}/in/${p.name}`);
    return out;
  }

  /** The first kernel of a function that writes other values than those that were found when it was exported. */
  private async firstWrong(name: string, examples: Tensors): Promise<string | undefined> {
    await this.reset();
    const { engine } = this;
    const f = this.function(name);
    const inputs = await this.example(name, examples);
    const values = Object.fromEntries(f.variables.map((v) => [v.name, v.example]));
    for (const p of f.inputs) engine.write(p, numbersOf(p, inputs[p.name], values, name), values);
    engine.setVariables(values);
    const digests = this.plan.check[name]!.calls[engine.program.plan] ?? [];
    for (const [n, call] of f.calls.entries()) {
      const found = digests[n] ?? [];
      const compared = found.map((digest, k) => ({ digest, buffer: call[1][k]! })).filter(({ digest }) => digest[0]);
      const places = compared.map(({ digest: [dtype, size], buffer }): Place => ({ name: "", buffer, dtype: dtype!, shape: [size], room: [size] }));
      const encoder = engine.device.createCommandEncoder();
      const read = new Set([...call[1].slice(found.length), ...Object.values(engine.program.weights)]);
      for (const written of call[1].slice(0, found.length)) if (!read.has(written)) encoder.clearBuffer(engine.buffers[written]!);
      engine.record(encoder, [call], values);
      const arrays = await sound(engine.device, `kernel ${n}`, () => engine.readBack(encoder, places, values));
      for (const [k, { data }] of arrays.entries()) {
        const [, , wanted, off, at] = compared[k]!.digest;
        if (!(Math.abs(weighted(data, at) - wanted) <= off)) return `${engine.program.kernels[call[0]]!.name}, launch ${n} of ${name}`;
      }
    }
    return undefined;
  }

  /** Free the GPU's memory. */
  destroy(): void {
    this.closed = true;
    this.engine.destroy();
  }
}

/** The sum of numbers, each with a weight from -1 to 1 that its place gives; of some places, if they are given. */
function weighted(data: ArrayLike<number>, places?: number[]): number {
  let sum = 0;
  for (let n = 0; n < (places ?? data).length; n++) {
    const at = places ? places[n]! : n;
    if (Number.isFinite(data[at])) sum += (Math.imul(at + 1, 0x9e3779b1) / 2 ** 31) * data[at]!;
  }
  return sum;
}

/** The largest difference, and the largest magnitude. */
export function difference(a: ArrayLike<number>, b: ArrayLike<number>): [number, number] {
  let [most, size] = [0, 1e-30];
  if (a.length !== b.length) return [Infinity, 1];
  for (let n = 0; n < a.length; n++) {
    const [x, y] = [a[n]!, b[n]!];
    if (Number.isFinite(y)) size = Math.max(size, Math.abs(y));
    if (x === y || (Number.isNaN(x) && Number.isNaN(y))) continue;
    const d = Math.abs(x - y);
    most = Number.isNaN(d) ? Infinity : Math.max(most, d);
  }
  return [most, size];
}

/** A model of a folder's address, or of another source of its files. */
export const load = (from: string | URL | Source, options?: Options): Promise<Model> => Model.load(from, options);
