// The files of a page: fetched from its folder, or out of the page itself, and compared with their hashes on the way.
import { insist, PageError, type Plan } from "./format";

/** A place that has files by name. */
export type Source = { read(name: string): Promise<ReadableStream<Uint8Array>> };

/** The files of the folder at `base`. */
export function folder(base: URL): Source {
  return {
    async read(name) {
      let answer: Response;
      try {
        answer = await fetch(new URL(name, base), { credentials: "same-origin" });
      } catch {
        throw new PageError(`${name} cannot be fetched: is the page served (python -m http.server), and is the network there?`);
      }
      insist(answer.ok && answer.body, `${name} is missing in the page's folder (${answer.status}): export the model again`);
      return answer.body;
    },
  };
}

/** The files that stand in the document itself, in base64. */
export function embedded(root: Document): Source {
  return {
    async read(name) {
      const found = root.querySelector(`script[data-file="${name}"]`);
      insist(found, `${name} is missing in the page: export the model again`);
      const text = atob(found.textContent ?? "");
      return new Blob([Uint8Array.from(text, (c) => c.charCodeAt(0))]).stream();
    },
  };
}

async function hash(data: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", data));
  return btoa(String.fromCharCode(...digest));
}

/** A file of the plan as a blob, piece by piece; `told` hears of the bytes that have come. */
export async function fetched(source: Source, plan: Plan, name: string, told: (bytes: number) => void): Promise<Blob> {
  const { bytes, sha256 } = plan.files[name]!;
  const reader = (await source.read(name)).getReader();
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  let piece = new Uint8Array(Math.min(plan.piece, bytes));
  let filled = 0;
  let total = 0;
  const close = async () => {
    insist((await hash(piece)) === sha256[pieces.length], `${name} is damaged: its bytes are not those that were exported; load the page again, or export the model again`);
    pieces.push(piece);
    piece = new Uint8Array(Math.min(plan.piece, bytes - total));
    filled = 0;
  };
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    for (let at = 0; at < value.length; ) {
      insist(total < bytes, `${name} is damaged: it has more than ${bytes} bytes; export the model again`);
      const part = value.subarray(at, at + piece.length - filled);
      piece.set(part, filled);
      filled += part.length;
      total += part.length;
      at += part.length;
      if (filled === piece.length) await close();
    }
    told(value.length);
  }
  insist(total === bytes, `${name} is cut short: it has ${total} of ${bytes} bytes; load the page again, or export the model again`);
  if (!bytes) await close();
  return new Blob(pieces);
}

/** The text of model.json, of the given hash if there is one. */
export async function planText(source: Source, expected?: string): Promise<string> {
  const data = new Uint8Array(await new Response(await source.read("model.json")).arrayBuffer());
  if (expected) insist((await hash(data)) === expected, "model.json is damaged: it is not the one that this page was exported with; export the model again");
  return new TextDecoder().decode(data);
}

// -- safetensors ------------------------------------------------------------------------------------------------------

export type Entry = { dtype: string; shape: number[]; start: number; end: number };
const WIDTHS: Record<string, number> = { F32: 4, I32: 4, U32: 4, F16: 2, BF16: 2, I16: 2, U16: 2, I8: 1, U8: 1, F8_E4M3: 1, F8_E5M2: 1 };

/** A safetensors file: where each tensor is, and its bytes. */
export class Tensors {
  private readonly others = new Map<string, () => Promise<ArrayBuffer>>();

  private constructor(readonly blob: Blob, readonly entries: Map<string, Entry>) {}

  /** Tensors of another file by names of this one, some of them with rows and columns exchanged. */
  add(other: Tensors, from: string, as: string, transposed: boolean): void {
    const { dtype, shape } = other.entries.get(from)!;
    this.entries.set(as, { dtype, shape: transposed ? [...shape].reverse() : shape, start: -1, end: -1 });
    this.others.set(as, async () => {
      const numbers = await other.array(from);
      if (!transposed) return numbers.buffer as ArrayBuffer;
      const [rows, columns] = shape as [number, number];
      const out = new Float32Array(numbers.length);
      for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) out[c * rows + r] = numbers[r * columns + c]!;
      return out.buffer;
    });
  }

  /** Add tensors of zeros, which no file has. */
  addZeros(zeros: Plan["zeros"]): Tensors {
    for (const [name, [dtype, shape]] of Object.entries(zeros)) this.entries.set(name, { dtype, shape, start: -1, end: -1 });
    return this;
  }

  static async open(blob: Blob, name: string): Promise<Tensors> {
    const wrong = (what: string) => `${name} is no sound safetensors file: ${what}`;
    insist(blob.size >= 8, wrong("it is too short"));
    const length = Number(new DataView(await blob.slice(0, 8).arrayBuffer()).getBigUint64(0, true));
    insist(length <= blob.size - 8 && length <= 1 << 24, wrong("its header is cut short"));
    let header: Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }>;
    try {
      header = JSON.parse(await blob.slice(8, 8 + length).text());
    } catch {
      throw new PageError(wrong("its header is no JSON"));
    }
    const entries = new Map<string, Entry>();
    for (const [key, value] of Object.entries(header)) {
      if (key === "__metadata__") continue;
      const [start, end] = value?.data_offsets ?? [];
      const sound = Array.isArray(value?.shape) && Number.isInteger(start) && Number.isInteger(end) && start! >= 0 && start! <= end!;
      insist(sound, wrong(`tensor ${key} has no place`));
      insist(8 + length + end! <= blob.size, wrong(`tensor ${key} ends behind the file: it is cut short`));
      const count = value.shape.reduce((a, b) => a * b, 1);
      insist(WIDTHS[value.dtype] !== undefined, wrong(`tensor ${key} is ${value.dtype}, which no page computes with`));
      insist(count * WIDTHS[value.dtype]! === end! - start!, wrong(`tensor ${key} has ${end! - start!} bytes for its shape`));
      entries.set(key, { dtype: value.dtype, shape: value.shape, start: 8 + length + start!, end: 8 + length + end! });
    }
    return new Tensors(blob, entries);
  }

  async bytes(name: string): Promise<ArrayBuffer> {
    const e = this.entries.get(name);
    insist(e, `tensor ${name} is missing in the weights`);
    const other = this.others.get(name);
    if (other) return other();
    if (e.start < 0) return new ArrayBuffer(4 * e.shape.reduce((a, b) => a * b, 1));
    return this.blob.slice(e.start, e.end).arrayBuffer();
  }

  /** The numbers of a tensor of 32-bit numbers, or of what is widened to floats. */
  async array(name: string): Promise<Float32Array | Int32Array | Uint32Array> {
    const data = await this.bytes(name);
    switch (this.entries.get(name)!.dtype) {
      case "F32": return new Float32Array(data);
      case "I32": return new Int32Array(data);
      case "U32": return new Uint32Array(data);
      case "F16": return Float32Array.from(new Uint16Array(data), half);
      case "BF16": return new Float32Array(Uint32Array.from(new Uint16Array(data), (b) => b << 16).buffer);
      case "I8": return Float32Array.from(new Int8Array(data));
      default: throw new PageError(`tensor ${name} is ${this.entries.get(name)!.dtype}, which is not read here`);
    }
  }
}

function half(bits: number): number {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const size = exponent === 31 ? (fraction ? NaN : Infinity) : exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction;
  return bits & 0x8000 ? -size : size;
}

/** A safetensors file of tensors of 32-bit numbers. */
export function packed(tensors: Map<string, { dtype: string; shape: number[]; data: ArrayBuffer }>): Blob {
  let at = 0;
  const header: Record<string, unknown> = {};
  for (const [name, t] of tensors) header[name] = { dtype: t.dtype, shape: t.shape, data_offsets: [at, (at += t.data.byteLength)] };
  let text = new TextEncoder().encode(JSON.stringify(header));
  const spaces = (8 - (text.length % 8)) % 8;
  const length = new DataView(new ArrayBuffer(8));
  length.setBigUint64(0, BigInt(text.length + spaces), true);
  return new Blob([length, text, " ".repeat(spaces), ...[...tensors.values()].map((t) => t.data)]);
}
