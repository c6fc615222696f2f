// Ticks of a linear axis: 1, 2 or 5 of a power of ten apart; of bytes, of a power of 1024, with the unit at the last one.
const MULTIPLES = [1, 2, 5];

export const STEPS = Array.from({ length: 32 }, (_, i) => MULTIPLES.map((m) => Number(`${m}e${i - 16}`))).flat();
export const WHOLE = STEPS.filter((s) => s >= 1); // of steps, launches, tokens
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
export const BYTES = UNITS.flatMap((_, k) => [1, 10, 100].flatMap((p) => MULTIPLES.map((m) => m * p * 1024 ** k)));

// Texts of ticks that are `by` apart, each another: as many decimals as the distance has.
export function labels(ticks: number[], by: number): string[] {
  const most = Math.max(...ticks.map(Math.abs), 0);
  const exact = (t: number): number => Number((Math.round(t / by) * by).toPrecision(12));
  if (most >= 1e7 || (most > 0 && most < 1e-3)) return ticks.map((t) => (exact(t) === 0 ? "0" : exact(t).toExponential()));
  const decimals = Math.max(0, -Math.floor(Math.log10(by) + 1e-9));
  return ticks.map((t) => (exact(t) || 0).toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }));
}

export function byteLabels(ticks: number[], by: number): string[] {
  let unit = 0;
  while (unit < UNITS.length - 1 && by % 1024 ** (unit + 1) === 0) unit++;
  return ticks.map((t, i) => `${Math.round(t / 1024 ** unit).toLocaleString("en-US")}${i === ticks.length - 1 ? ` ${UNITS[unit]}` : ""}`);
}
