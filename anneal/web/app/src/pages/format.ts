// The plan of a page, model.json: its types, and what has to hold before anything is made of it.

export type Expression = number | string | [string, Expression, Expression];
export type DType = "f32" | "i32" | "u32" | "bool";
export type Place = { name: string; buffer: number; dtype: DType; shape: Expression[]; room: number[] };
export type Variable = { name: string; low: number; high: number; example: number };
export type Binding = [number: number, slot: number, offset: number, length: number, written: number];
export type Kernel = { name: string; source: number; bindings: Binding[]; variables: string[] };
export type Call = [kernel: number, buffers: number[], grid: [number, number, number], needed?: Expression];
export type Fn = { inputs: Place[]; outputs: Place[]; variables: Variable[]; calls: Call[]; copies: [number, number][] };
export type Program = {
  profile: string;
  /** whether it is for adapters that run kernels on the CPU */
  software: boolean;
  /** programs of one number have the same calls */
  plan: number;
  limits: Record<string, number>;
  features: string[];
  /** the least threads of a subgroup that kernels rely on; 0: they use none */
  subgroup: number;
  buffers: number[];
  weights: Record<string, number>;
  state: string[];
  kernels: Kernel[];
  functions: Record<string, Fn>;
};
/** Of a value that a kernel writes: dtype (null: it is not compared), elements, a weighted sum, how far that may be off, and the places that it is of, if not of all. */
export type Digest = [dtype: DType | null, size: number, sum: number, off: number, places?: number[]];
export type Plan = {
  name: string;
  made_by: string;
  piece: number;
  files: Record<string, { bytes: number; sha256: string[] }>;
  sources: [number, number][];
  forms: Record<string, "f16" | "int8">;
  /** the shapes of tensors that no file of the export has: the visitor brings them */
  wanted: Record<string, number[]>;
  zeros: Record<string, [dtype: string, shape: number[]]>;
  programs: Program[];
  /** of each function, by plan: how far each result may be off, and what each call writes */
  check: Record<string, { bounds: number[][]; calls: Digest[][][] }>;
  page: { kind: string } & Record<string, unknown>;
};

/** A fault of a page, of what it is given, or of where it runs, in words for its visitor. */
export class PageError extends Error {
  override name = "PageError";
}

export function insist(holds: unknown, text: string): asserts holds {
  if (!holds) throw new PageError(text);
}

const isObject = (x: unknown): x is Record<string, unknown> => typeof x === "object" && x !== null && !Array.isArray(x);
const isCount = (x: unknown, end = 2 ** 40): x is number => Number.isInteger(x) && (x as number) >= 0 && (x as number) < end;
const DTYPES = ["f32", "i32", "u32", "bool"];

/** The plan that model.json has; a PageError names what is wrong with it. */
export function readPlan(text: string): Plan {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch (e) {
    throw new PageError(`model.json is damaged, it is no JSON (${(e as Error).message}): export the model again`);
  }
  const wrong = (what: string) => `model.json is damaged: ${what}; export the model again`;
  insist(isObject(found) && found.format === "anneal.page", "model.json is no plan of a page: was it exported by anneal?");
  insist(found.version === 1, `model.json is of version ${found.version}, and this anneal.js reads 1: take both from one export`);
  const plan = found as unknown as Plan;
  insist(typeof plan.name === "string" && typeof plan.made_by === "string", wrong("it has no name"));
  insist(isCount(plan.piece) && plan.piece >= 1024, wrong("its pieces have no size"));
  insist(isObject(plan.files), wrong("it lists no files"));
  for (const [name, file] of Object.entries(plan.files)) {
    insist(/^[\w.-]+$/.test(name), wrong(`a file is called ${JSON.stringify(name)}`));
    insist(isObject(file) && isCount(file.bytes) && Array.isArray(file.sha256), wrong(`file ${name} has no hashes`));
    insist(file.sha256.length === Math.max(1, Math.ceil(file.bytes / plan.piece)), wrong(`file ${name} has ${file.sha256.length} hashes`));
  }
  for (const name of ["kernels.wgsl", "weights.safetensors", "check.safetensors"])
    insist(plan.files[name], wrong(`it does not list ${name}`));
  const bytes = plan.files["kernels.wgsl"]!.bytes;
  insist(Array.isArray(plan.sources), wrong("it has no kernels"));
  for (const [n, s] of plan.sources.entries())
    insist(Array.isArray(s) && isCount(s[0]) && isCount(s[1]) && s[0] < s[1] && s[1] <= bytes, wrong(`source ${n} is outside kernels.wgsl`));
  insist(Array.isArray(plan.programs) && plan.programs.length > 0, wrong("it has no program"));
  for (const program of plan.programs) readProgram(program, plan, wrong);
  insist(isObject(plan.check) && isObject(plan.page) && isObject(plan.forms) && isObject(plan.zeros) && isObject(plan.wanted), wrong("it has no check or page"));
  return plan;
}

function readProgram(program: Program, plan: Plan, wrong: (what: string) => string): void {
  insist(isObject(program) && isObject(program.limits) && Array.isArray(program.features) && isCount(program.subgroup), wrong("a program has no limits"));
  const { buffers, kernels, weights, functions } = program;
  const most = program.limits.maxBufferSize;
  insist(Array.isArray(buffers) && isCount(most), wrong("a program has no buffers"));
  for (const [n, size] of buffers.entries())
    insist(isCount(size, most! + 1) && size >= 16 && size % 16 === 0, wrong(`buffer ${n} has ${size} bytes`));
  const isBuffer = (n: unknown) => isCount(n, buffers.length);
  insist(isObject(weights), wrong("a program has no weights"));
  for (const [name, n] of Object.entries(weights)) insist(isBuffer(n), wrong(`weight ${name} is in buffer ${n}, which is not there`));
  insist(Array.isArray(program.state), wrong("a program has no list of state"));
  for (const name of program.state) insist(name in weights, wrong(`state ${name} is no weight`));
  insist(Array.isArray(kernels), wrong("a program has no kernels"));
  for (const [n, k] of kernels.entries()) {
    insist(isObject(k) && isCount(k.source, plan.sources.length), wrong(`kernel ${n} has no source`));
    insist(Array.isArray(k.bindings) && k.bindings.every((b) => Array.isArray(b) && b.length === 5 && b.every((x) => isCount(x))), wrong(`kernel ${n} has no bindings`));
    insist(Array.isArray(k.variables), wrong(`kernel ${n} has no list of variables`));
  }
  insist(isObject(functions) && Object.keys(functions).length > 0, wrong("a program has no function"));
  for (const [name, f] of Object.entries(functions)) {
    insist(isObject(f) && [f.inputs, f.outputs, f.variables, f.calls, f.copies].every(Array.isArray), wrong(`function ${name} is incomplete`));
    for (const p of [...f.inputs, ...f.outputs]) {
      insist(isObject(p) && isBuffer(p.buffer) && DTYPES.includes(p.dtype), wrong(`${p?.name} of ${name} has no buffer or dtype`));
      insist(Array.isArray(p.shape) && Array.isArray(p.room) && p.room.every((d) => isCount(d)), wrong(`${p.name} of ${name} has no shape`));
      const room = p.room.reduce((a, b) => a * b, 4);
      insist(room <= buffers[p.buffer]!, wrong(`${p.name} of ${name} does not fit its buffer`));
    }
    for (const [n, c] of f.calls.entries()) {
      insist(Array.isArray(c) && isCount(c[0], kernels.length), wrong(`call ${n} of ${name} is of no kernel`));
      insist(Array.isArray(c[1]) && c[1].every(isBuffer), wrong(`call ${n} of ${name} binds a buffer that is not there`));
      insist(Array.isArray(c[2]) && c[2].length === 3 && c[2].every((x) => isCount(x, 65536)), wrong(`call ${n} of ${name} has no grid`));
      const k = kernels[c[0]]!;
      const slots = c[1].length + (k.variables.length ? 1 : 0);
      insist(k.bindings.every((b) => b[1] < slots), wrong(`call ${n} of ${name} has too few buffers`));
      const fits = k.bindings.every((b) => b[1] >= c[1].length || b[2] < buffers[c[1][b[1]]!]!);
      insist(fits, wrong(`call ${n} of ${name} binds memory behind the end of a buffer`));
    }
    for (const c of f.copies)
      insist(Array.isArray(c) && isBuffer(c[0]) && isBuffer(c[1]) && buffers[c[0]!]! <= buffers[c[1]!]!, wrong(`a copy of ${name} is of no buffer`));
  }
}

/** The value of a size for values of its variables. */
export function evaluate(e: Expression, values: Record<string, number>): number {
  if (typeof e === "number") return e;
  if (typeof e === "string") return values[e]!;
  const a = evaluate(e[1], values);
  const b = evaluate(e[2], values);
  switch (e[0]) {
    case "+": return a + b;
    case "-": return a - b;
    case "*": return a * b;
    case "/": return Math.floor(a / b);
    case "%": return a - b * Math.floor(a / b);
    case "min": return Math.min(a, b);
    case "max": return Math.max(a, b);
    default: throw new PageError(`model.json is damaged: a size is computed by ${e[0]}; export the model again`);
  }
}
