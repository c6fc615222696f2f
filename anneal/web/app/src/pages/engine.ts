// A program on one GPU device: its buffers, pipelines and bind groups, and a run of it as one submission.
import { evaluate, insist, PageError, type Binding, type Call, type Fn, type Kernel, type Place, type Program } from "./format";

export type Numbers = Float32Array | Int32Array | Uint32Array;
/** An array of a result: its numbers, row after row, and its shape. */
export type NDArray = { data: Numbers; shape: number[] };

const KINDS = { f32: Float32Array, i32: Int32Array, u32: Uint32Array, bool: Uint32Array } as const;

/** What WebGPU says is wrong with what `make` makes, as an error; `what` names it. */
export async function sound<T>(device: GPUDevice, what: string, make: () => T | Promise<T>): Promise<T> {
  for (const kind of ["validation", "out-of-memory", "internal"] as const) device.pushErrorScope(kind);
  let made: T;
  let thrown: unknown;
  try {
    made = await make();
  } catch (e) {
    thrown = e;
  }
  for (let n = 0; n < 3; n++) {
    const error = await device.popErrorScope();
    const memory = typeof GPUOutOfMemoryError !== "undefined" && error instanceof GPUOutOfMemoryError;
    if (memory) throw new PageError(`the GPU has no memory for ${what}: close other pages, or export smaller weights`);
    if (error) thrown ??= new PageError(`${what} was refused by this browser: ${error.message}`);
  }
  if (thrown) throw thrown;
  return made!;
}

export class Engine {
  readonly buffers: GPUBuffer[] = [];
  readonly memory: number;
  private readonly pipelines: GPUComputePipeline[] = [];
  private readonly layouts = new Map<string, [GPUBindGroupLayout, GPUPipelineLayout]>();
  private readonly groups = new Map<string, GPUBindGroup>();
  private readonly tables = new Map<string, { buffer: GPUBuffer; names: string[] }>();
  private readonly staging: GPUBuffer[] = [];

  private constructor(readonly device: GPUDevice, readonly program: Program) {
    this.memory = program.buffers.reduce((a, b) => a + b, 0);
  }

  /** Buffers and pipelines of a program; the pipelines are made side by side. */
  static async make(device: GPUDevice, program: Program, sources: string[], told: (kernels: number) => void): Promise<Engine> {
    const engine = new Engine(device, program);
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    await sound(device, `${engine.memory} bytes`, () => {
      for (const size of program.buffers) engine.buffers.push(device.createBuffer({ size, usage }));
    });
    const modules = new Map<number, GPUShaderModule>();
    const made = program.kernels.map(async (kernel, n) => {
      let module = modules.get(kernel.source);
      if (!module) modules.set(kernel.source, (module = device.createShaderModule({ code: sources[kernel.source]!, label: kernel.name })));
      const layout = engine.layout(kernel)[1];
      try {
        engine.pipelines[n] = await device.createComputePipelineAsync({ label: kernel.name, layout, compute: { module, entryPoint: "main" } });
      } catch (e) {
        const lines = (await module.getCompilationInfo()).messages.filter((m) => m.type === "error").map((m) => `line ${m.lineNum}: ${m.message}`);
        throw new PageError(`kernel ${kernel.name} was refused by this browser: ${lines.join("; ") || (e as Error).message}`);
      }
      told(1);
    });
    await sound(device, "the kernels", () => Promise.all(made));
    await sound(device, "the bindings", () => {
      for (const f of Object.values(program.functions)) for (const call of f.calls) engine.group(call);
    });
    return engine;
  }

  private layout(kernel: Kernel): [GPUBindGroupLayout, GPUPipelineLayout] {
    const key = kernel.bindings.map((b) => `${b[0]}${b[4] ? "w" : "r"}`).join();
    let found = this.layouts.get(key);
    if (!found) {
      const entry = (b: Binding): GPUBindGroupLayoutEntry => ({
        binding: b[0],
        visibility: GPUShaderStage.COMPUTE,
        buffer: { type: b[4] ? "storage" : "read-only-storage" },
      });
      const group = this.device.createBindGroupLayout({ entries: kernel.bindings.map(entry) });
      found = [group, this.device.createPipelineLayout({ bindGroupLayouts: [group] })];
      this.layouts.set(key, found);
    }
    return found;
  }

  /** The memory from which a kernel reads the values of variables. */
  private table(names: string[]): GPUBuffer {
    const key = names.join();
    let found = this.tables.get(key);
    if (!found) {
      const size = Math.ceil(names.length / 4) * 16;
      const buffer = this.device.createBuffer({ size, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST });
      this.tables.set(key, (found = { buffer, names }));
    }
    return found.buffer;
  }

  private group(call: Call): GPUBindGroup {
    const key = `${call[0]}:${call[1]}`;
    let found = this.groups.get(key);
    if (!found) {
      const kernel = this.program.kernels[call[0]]!;
      const bound = call[1].map((n) => this.buffers[n]!);
      if (kernel.variables.length) {
        // the values come last, behind what the kernel binds besides
        bound[Math.max(...kernel.bindings.map((b) => b[1]))] = this.table(kernel.variables);
      }
      const entries = kernel.bindings.map(([binding, slot, offset, length]) => {
        const buffer = bound[slot]!;
        return { binding, resource: { buffer, offset, size: Math.min(length, buffer.size - offset) } };
      });
      found = this.device.createBindGroup({ layout: this.layout(kernel)[0], entries });
      this.groups.set(key, found);
    }
    return found;
  }

  /** Put numbers into a buffer; where rows are shorter than there is room for, each into its place. */
  write(place: Place, data: Numbers, values: Record<string, number>): void {
    const shape = place.shape.map((e) => evaluate(e, values));
    const laid = shape.every((n, axis) => n === place.room[axis]) ? data : spread(data, shape, place.room, true);
    this.device.queue.writeBuffer(this.buffers[place.buffer]!, 0, laid as Numbers & { buffer: ArrayBuffer });
  }

  setVariables(values: Record<string, number>): void {
    for (const { buffer, names } of this.tables.values()) {
      if (names.every((n) => n in values)) this.device.queue.writeBuffer(buffer, 0, Int32Array.from(names, (n) => values[n]!));
    }
  }

  /** Record calls in one pass. */
  record(encoder: GPUCommandEncoder, calls: Call[], values: Record<string, number>): void {
    const pass = encoder.beginComputePass();
    let last = -1;
    for (const call of calls) {
      const [kernel, , grid, needed] = call;
      let [x, y, z] = grid;
      if (needed !== undefined && z === 1) {
        const count = evaluate(needed, values);
        if (count <= 0) continue;
        if (count <= x) [x, y] = [count, 1];
        else y = Math.ceil(count / x);
      }
      if (!x || !y || !z) continue;
      if (kernel !== last) pass.setPipeline(this.pipelines[kernel]!);
      last = kernel;
      pass.setBindGroup(0, this.group(call));
      pass.dispatchWorkgroups(x, y, z);
    }
    pass.end();
  }

  /** Run a function, in one submission; the numbers of what is `read`, when they have come back. */
  run(f: Fn, values: Record<string, number>, read: Place[]): Promise<NDArray[]> {
    this.setVariables(values);
    const encoder = this.device.createCommandEncoder();
    this.record(encoder, f.calls, values);
    for (const [from, to] of f.copies) encoder.copyBufferToBuffer(this.buffers[from]!, 0, this.buffers[to]!, 0, this.buffers[from]!.size);
    return this.readBack(encoder, read, values);
  }

  /** Submit what is recorded, and read places back through memory that is kept for the next time. */
  async readBack(encoder: GPUCommandEncoder, read: Place[], values: Record<string, number>): Promise<NDArray[]> {
    if (!read.length) {
      this.device.queue.submit([encoder.finish()]);
      return [];
    }
    const sizes = read.map((p) => Math.max(16, Math.ceil((4 * p.room.reduce((a, b) => a * b, 1)) / 16) * 16));
    const total = sizes.reduce((a, b) => a + b, 0);
    const spare = this.staging.findIndex((b) => b.size >= total && b.size <= 4 * total);
    const staging = spare >= 0 ? this.staging.splice(spare, 1)[0]! : this.device.createBuffer({ size: total, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    let at = 0;
    for (const [n, p] of read.entries()) {
      encoder.copyBufferToBuffer(this.buffers[p.buffer]!, 0, staging, at, sizes[n]!);
      at += sizes[n]!;
    }
    this.device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ, 0, total);
    const all = staging.getMappedRange(0, total);
    at = 0;
    const out = read.map((p, n) => {
      const shape = p.shape.map((e) => evaluate(e, values));
      const data = new KINDS[p.dtype](all.slice(at, at + 4 * p.room.reduce((a, b) => a * b, 1)));
      at += sizes[n]!;
      return { data: shape.every((d, axis) => d === p.room[axis]) ? data : spread(data, shape, p.room, false), shape };
    });
    staging.unmap();
    if (this.staging.length < 4) this.staging.push(staging);
    else staging.destroy();
    return out;
  }

  destroy(): void {
    this.device.destroy();
  }
}

/** Rows of `shape` put where rows of `room` begin, or taken from there. */
function spread(data: Numbers, shape: number[], room: number[], out: boolean): Numbers {
  const count = (sizes: number[]) => sizes.reduce((a, b) => a * b, 1);
  const made = new (data.constructor as typeof Float32Array)(count(out ? room : shape));
  const axes = shape.length;
  const step = room.map((_, axis) => count(room.slice(axis + 1)));
  const index = new Array<number>(axes).fill(0);
  for (let n = 0; n < count(shape); n++) {
    const far = index.reduce((sum, i, axis) => sum + i * step[axis]!, 0);
    if (out) made[far] = data[n]!;
    else made[n] = data[far]!;
    for (let axis = axes - 1; axis >= 0 && ++index[axis]! === shape[axis]; axis--) index[axis] = 0;
  }
  return made;
}

export function numbersOf(place: Place, given: unknown, values: Record<string, number>, of: string): Numbers {
  const shape = place.shape.map((e) => evaluate(e, values));
  const count = shape.reduce((a, b) => a * b, 1);
  const said = `${of}: input ${place.name} is ${place.dtype} of shape [${shape.join(", ")}]`;
  insist(given !== undefined && given !== null, `${said}, and was not given`);
  const data = typeof given === "number" ? [given] : (given as NDArray).data ?? (given as ArrayLike<number>);
  insist(typeof (data as ArrayLike<number>).length === "number", `${said}; give an array of ${count} numbers`);
  insist((data as ArrayLike<number>).length === count, `${said}, ${count} numbers; ${(data as ArrayLike<number>).length} were given`);
  const Kind = KINDS[place.dtype];
  const numbers = data as ArrayLike<number>;
  if (place.dtype === "bool") return Uint32Array.from(numbers, (x) => Number(Boolean(x)));
  return data instanceof Kind ? data : Kind.from(numbers);
}
