// Lines over a common axis, by uPlot, with a table of the same figures for those who cannot see them.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { logTicks } from "./curves";
import { bytes } from "./format";
import { BYTES, byteLabels, labels, STEPS, WHOLE } from "./ticks";
import { Switch, Table } from "./ui";

export interface Series { label: string; values: (number | null)[]; colour: string; faint?: boolean; fill?: boolean; stepped?: boolean; dash?: number[]; width?: number; dots?: boolean }
interface Props {
  title: string; x: number[]; xLabel: string; series: Series[]; height?: number; log?: boolean; format?: (v: number) => string;
  select?: (index: number) => void; mark?: number | null; sync?: string;
  logX?: boolean; keys?: boolean; at?: number | null; onAt?: (index: number) => void; focus?: number | null; // `at`: where the cursor stands; `focus`: the curve beside which the others are faint
}

const style = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const last = useRef(props);
  last.current = props;
  const [table, setTable] = useState(false);
  const [theme, setTheme] = useState(0);
  const format = props.format ?? ((v: number) => (Math.abs(v) >= 1000 ? v.toLocaleString("en-US") : String(+v.toPrecision(4))));
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const change = () => setTheme((n) => n + 1);
    media.addEventListener("change", change);
    return () => media.removeEventListener("change", change);
  }, []);
  const shapeKey = props.series.map((s) => s.label).join("|") + props.log + props.logX + theme + table;
  useLayoutEffect(() => {
    if (table) return;
    const host = box.current!;
    const [ink, line] = [style("--faint"), style("--line")];
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui" };
    const powers = (long: (u: uPlot) => number, space: number): Partial<uPlot.Axis> => ({ splits: (u, _, low, high) => logTicks(low, high, long(u) / devicePixelRatio / Math.log10(high / low), space), filter: (_, ticks) => ticks });
    const options: uPlot.Options = {
      width: host.clientWidth || 300, height: props.height ?? 180, legend: { show: false }, focus: { alpha: 0.12 }, cursor: { points: { size: 6 }, y: false, ...(props.sync ? { sync: { key: props.sync } } : {}) },
      scales: { x: { time: false, ...(props.logX ? { distr: 3, range: (_: uPlot, low: number, high: number) => around(low, high, 0) } : {}) }, y: props.log ? { distr: 3, range: (_, low, high) => around(low, high, 0.03) } : {} },
      axes: [{ ...axis, ...(props.logX ? { ...powers((u) => u.bbox.width, 50), values: (_: uPlot, ticks: number[]) => ticks.map((t) => t.toLocaleString("en-US")) } : {}) }, { ...axis, ...(props.log ? powers((u) => u.bbox.height, 22) : {}), size: 62, values: (_, ticks) => ticks.map((t) => (t === null ? "" : format(t))) }],
      series: [{}, ...props.series.map((s) => ({
        label: s.label, stroke: style(s.colour), width: s.width ?? (s.faint ? 1 : 2), alpha: s.faint ? 0.45 : 1, points: { show: s.dots ?? false, size: 7, fill: style(s.colour) },
        ...(s.dash ? { dash: s.dash, spanGaps: true } : {}), ...(s.dots ? { paths: () => null } : {}),
        ...(s.fill ? { fill: `color-mix(in srgb, ${style(s.colour)} 18%, transparent)` } : {}),
        ...(s.stepped ? { paths: uPlot.paths.stepped!({ align: 1 }) } : {}),
      }))],
      hooks: {
        drawClear: [(u) => {
          const at = last.current.mark;
          if (at === null || at === undefined) return;
          const x = u.valToPos(last.current.x[at] ?? 0, "x", true);
          u.ctx.fillStyle = style("--gold");
          u.ctx.fillRect(x - 1, u.bbox.top, 2, u.bbox.height);
        }],
        setCursor: [(u) => { const i = u.cursor.idx; if (i !== null && i !== undefined && i !== last.current.at) last.current.onAt?.(i); }],
        ready: [(u) => u.over.addEventListener("click", () => { if (u.cursor.idx !== null && u.cursor.idx !== undefined) last.current.select?.(u.cursor.idx); })],
      },
    };
    Object.assign(options.axes![0]!, { incrs: WHOLE });
    const [incrs, texts] = props.format === bytes ? [BYTES, byteLabels] : [STEPS, labels];
    if (!props.log) Object.assign(options.axes![1]!, { incrs, values: (_: uPlot, ticks: number[], _axis: number, _space: number, by: number) => texts(ticks, by) });
    const made = new uPlot(options, data(last.current), host);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: host.clientWidth, height: props.height ?? 180 }));
    watch.observe(host);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shapeKey]);
  useLayoutEffect(() => { // in the frame that has the new text: another one would cost as much again
    plot.current?.setData(data(props));
  }, [props.x, props.series, props.mark]);
  useLayoutEffect(() => {
    const [u, at] = [plot.current, props.at];
    if (u && at !== undefined && at !== null && u.cursor.idx !== at) u.setCursor({ left: u.valToPos(props.x[at]!, "x"), top: 0 }, false);
  }, [props.at]);
  useLayoutEffect(() => {
    if (props.focus !== undefined) plot.current?.setSeries(props.focus === null ? null : props.focus + 1, { focus: true });
  }, [props.focus]);
  const n = props.x.length;
  const now = props.series.length > 8 ? `${props.series.length} curves` : props.series.map((s) => { const v = s.values[n - 1]; return `${s.label} ${v === null || v === undefined ? "–" : format(v)}`; }).join(", ");
  return (
    <figure class="chart">
      <figcaption>
        <span>{props.title}</span>
        <span class="keys">{props.keys !== false && props.series.map((s) => <span><i class={`swatch ${s.colour.slice(2)} ${s.faint ? "thin" : ""}`} />{s.label}</span>)}</span>
        <Switch label="table" on={table} onChange={setTable} />
      </figcaption>
      {table ? (
        <Table caption={props.title} most={60} rows={props.x.map((_, i) => i)} columns={[
          { head: props.xLabel, cell: (i) => props.x[i], by: (i) => props.x[i]!, figure: true },
          ...props.series.map((s) => ({ head: s.label, cell: (i: number) => { const v = s.values[i]; return v === null || v === undefined ? "" : format(v); }, by: (i: number) => s.values[i] ?? -Infinity, figure: true })),
        ]} />
      ) : (
        <div ref={box} class="plot" role="img" aria-label={`${props.title}, ${n} points; the last: ${now}. The table has all of them.`} />
      )}
    </figure>
  );
}

// What a logarithmic axis shows of values: them, and a part of their length more at either end.
function around(low: number | null, high: number | null, part: number): [number, number] {
  if (low === null || high === null || !(low > 0)) return [1, 10];
  const by = low === high ? 1.1 : (high / low) ** part;
  return [low / by, high * by];
}

const data = (p: Props): uPlot.AlignedData => [p.x, ...p.series.map((s) => s.values)] as uPlot.AlignedData;

// A curve without its jitter: an exponential mean whose start is not pulled to zero.
export class Smooth {
  #mean = 0;
  #weight = 0;
  constructor(readonly keep = 0.92) {}
  next(value: number): number {
    this.#mean = this.keep * this.#mean + (1 - this.keep) * value;
    this.#weight = this.keep * this.#weight + (1 - this.keep);
    return this.#mean / this.#weight;
  }
}

export function smoothed(values: number[]): number[] {
  const smooth = new Smooth();
  return values.map((v) => smooth.next(v));
}

// At most `most` of the places 0..n-1, evenly, with the last one.
export function thinned(n: number, most = 1500): number[] {
  if (n <= most) return [...Array(n).keys()];
  const found = Array.from({ length: most }, (_, i) => Math.floor((i * (n - 1)) / (most - 1)));
  return found;
}
