// Figures and names as people read them.
export const count = (n: number): string => n.toLocaleString("en-US");
export const counted = (n: number, noun: string): string => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (n >= 1024 && at < units.length - 1) {
    n /= 1024;
    at++;
  }
  return `${at && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

export function big(n: number): string {
  if (n < 1000) return String(Math.round(n));
  const units = ["", "k", "M", "G", "T", "P"];
  let at = 0;
  while (n >= 1000 && at < units.length - 1) {
    n /= 1000;
    at++;
  }
  return `${n < 10 ? n.toFixed(2) : n < 100 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

export function time(seconds: number): string {
  if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(1)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 0.1 ? 2 : 0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

export const file = (path: string): string => path.split(/[\\/]/).pop() ?? path;
export const place = (line: { file: string; line: number }): string => `${file(line.file)}:${line.line}`;
export const shape = (s: (number | string)[]): string => (s.length ? s.join(" × ") : "scalar");
export const loss = (x: number | null | undefined): string => (x === null || x === undefined ? "–" : x.toFixed(4));

// The loss of a run, as it is told everywhere: that of one batch tells little. LAST is what anneal/cli/_reporters.py has.
const LAST = 50;
export const meanLoss = (steps: { loss: number }[]): number | null => { const last = steps.slice(-LAST); return last.length ? last.reduce((sum, s) => sum + s.loss, 0) / last.length : null; };
export const lossOf = (mean: number | null | undefined, steps: number): string => `${loss(mean)}${mean !== null && mean !== undefined && steps > 1 ? `, mean of ${steps < LAST ? "its" : "the last"} ${Math.min(steps, LAST)} steps` : ""}`;

export function when(seconds: number | string): string {
  const date = new Date(typeof seconds === "number" ? seconds * 1000 : seconds);
  return Number.isNaN(date.getTime())
    ? "–"
    : date.toLocaleString(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
}
