// Curves of many runs in common slots (anneal/web/curves.py says which), and the ticks of a logarithmic axis.
export interface Grid { stride: number; head: number }
export interface Curve { first: number; values: (number | null)[] }

const octave = (g: Grid, step: number): number => {
  let k = 0;
  for (let end = 2 * g.head; step >= end; end *= 2) k++;
  return k;
};

// Steps from a slot to the next, where `step` is.
const strideAt = (g: Grid, step: number): number => (!g.head ? g.stride : step < g.head ? 1 : 2 * 2 ** octave(g, step));

export function slotOf(g: Grid, step: number): number {
  if (!g.head) return Math.floor(step / g.stride);
  if (step < g.head) return step;
  const k = octave(g, step);
  return g.head + (k * g.head) / 2 + Math.floor((step - g.head * 2 ** k) / (2 * 2 ** k));
}

export function stepOf(g: Grid, slot: number): number {
  if (!g.head) return slot * g.stride;
  if (slot < g.head) return slot;
  const half = g.head / 2;
  const k = Math.floor((slot - g.head) / half);
  return g.head * 2 ** k + ((slot - g.head) % half) * 2 * 2 ** k;
}

// One more step of a run that goes on: of the steps that share two slots the least and the greatest stay, as they came.
export function add(c: Curve, g: Grid, step: number, value: number): void {
  const stride = strideAt(g, step);
  const begin = stride === 1 ? step : Math.floor(step / (2 * stride)) * 2 * stride;
  if (!c.values.length) c.first = slotOf(g, begin);
  const at = slotOf(g, begin) - c.first;
  if (at < 0) return; // from before its first step: the next answer has it
  const put = (i: number, v: number) => {
    while (c.values.length < i) c.values.push(null);
    c.values[i] = v;
  };
  if (stride === 1) return put(at, value);
  const [a, b] = [c.values[at] ?? null, c.values[at + 1] ?? null];
  if (a === null && b === null) return put(at + (step - begin >= stride ? 1 : 0), value);
  const pair = a === null || b === null ? [(a ?? b)!, value] : value < Math.min(a, b) ? [Math.max(a, b), value] : value > Math.max(a, b) ? [Math.min(a, b), value] : [a, b];
  put(at, pair[0]!);
  put(at + 1, pair[1]!);
}

// What a curve has at a slot: its value there, or the last one before; null before its start and after its end.
export function valueAt(c: Curve, slot: number): number | null {
  let i = slot - c.first;
  if (i >= c.values.length) return null;
  while (i >= 0 && c.values[i] === null) i--;
  return i < 0 ? null : c.values[i]!;
}

// The curves over a common axis: the slots that any of them has, their steps, and the values in them. On a logarithmic
// axis there is no step 0, and no value that is not above 0.
export function aligned(g: Grid, curves: Curve[], log: { x: boolean; y: boolean }): { slots: number[]; x: number[]; values: (number | null)[][] } {
  const some = curves.filter((c) => c.values.length);
  const first = Math.max(log.x ? 1 : 0, Math.min(...some.map((c) => c.first)));
  const end = Math.max(...some.map((c) => c.first + c.values.length));
  const slots = some.length ? Array.from({ length: Math.max(0, end - first) }, (_, i) => first + i) : [];
  const shown = (v: number | null | undefined) => (v === undefined || v === null || (log.y && v <= 0) ? null : v);
  return { slots, x: slots.map((s) => stepOf(g, s)), values: curves.map((c) => slots.map((s) => shown(c.values[s - c.first]))) };
}

// Ticks from `low` to `high` on a logarithmic axis whose decade is so long, at least `space` apart: powers of ten (some
// of them, where there are many), with 2 and 5 where there is room; over less than that round numbers.
export function logTicks(low: number, high: number, decade: number, space: number): number[] {
  const within = (digits: number[], every = 1) => {
    const found: number[] = [];
    for (let e = Math.floor(Math.log10(low) + 1e-9); e <= Math.log10(high) + 1e-9; e++)
      for (const d of digits) {
        const v = Number(`${d}e${e}`);
        if (e % every === 0 && v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9)) found.push(v);
      }
    return found;
  };
  const found = Math.log10(2) * decade >= space ? within([1, 2, 5]) : within([1], Math.max(1, Math.ceil(space / decade)));
  return found.length > 2 || (found.length === 2 && high / low > 10) ? found : roundTicks(low, high, Math.max(2, (Math.log10(high / low) * decade) / space));
}

// Round numbers (1, 2 or 5 times a power of ten apart), at most so many.
export function roundTicks(low: number, high: number, most: number): number[] {
  const rough = (high - low) / most;
  if (!(rough > 0)) return [low];
  const power = Math.floor(Math.log10(rough) + 1e-9);
  const by = [1, 2, 5, 10].find((d) => d * 10 ** power >= rough * (1 - 1e-9))!;
  const digits = Math.max(0, -power);
  const found: number[] = [];
  for (let n = Math.ceil((low / 10 ** power) / by - 1e-9); n * by * 10 ** power <= high * (1 + 1e-12); n++) found.push(+(n * by * 10 ** power).toFixed(Math.min(20, digits)));
  return found;
}

// How the i-th of n runs is told from the others: 8 colours, then 8 dashes of each; many lines are thinner.
const DASHES = [[], [8, 5], [2, 4], [10, 4, 2, 4], [18, 6], [10, 4, 2, 4, 2, 4], [4, 4], [18, 4, 4, 4]];
export const lineOf = (i: number, n: number): { colour: string; dash: number[]; width: number } => ({ colour: `--c${i % 8}`, dash: DASHES[Math.floor(i / 8) % 8]!, width: n > 24 ? 1 : 2 });
