// /o?runs=A B C: the losses of any number of runs in one chart, those that train now as they grow.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { follow, get, useAsked, type Job, type Refused } from "./api";
import { Chart, type Series } from "./chart";
import { add, aligned, lineOf, slotOf, valueAt, type Curve, type Grid } from "./curves";
import { count, counted, when } from "./format";
import { link, put, type Route } from "./route";
import { Failed, Head, Panel, Switch, Table, useInterval, Waiting } from "./ui";
import { paced } from "./train";

interface Overlaid {
  id: string; model: string; begun: string | number; status: string; live: boolean; at: number; below: number; end: [number, number] | null; loss: Curve; validation: Curve;
  settings: Record<string, unknown>; lost: { step: number; value: string; count: number } | null;
}
interface Answer extends Grid { most: number; settings: string[]; missing: string[]; runs: Overlaid[] }

export const chosen = (route: Route): string[] => [...new Set((route.query.get("runs") ?? "").split(" ").filter(Boolean))];

// The curves of runs; `version` counts what came since. Steps of live runs are added as they come; the server is asked
// anew when a run starts or ends, and when there are twice as many slots as it would give.
function useCurves(runs: string[], log: boolean): { answer: Answer | null; error: Refused | null; version: number } {
  const [again, setAgain] = useState(0);
  const [version, setVersion] = useState(0);
  const last = useRef<Answer | null>(null);
  const asked = useAsked(runs.length ? `curves ${runs.join(" ")} ${log} ${again}` : null, () => get<Answer>(`/api/curves?${new URLSearchParams({ runs: runs.join(" "), ...(log ? { x: "log" } : {}) })}`));
  if (asked.value) last.current = asked.value;
  const answer = runs.length ? last.current : null;
  useEffect(() => {
    if (!answer) return;
    let over = false;
    let waits = false;
    const soon = paced(() => { if (!over) setVersion((n) => n + 1); });
    const anew = () => { // once: a question that is asked while another waits would take its place
      if (!over && !waits) setAgain((n) => n + 1);
      waits = true;
    };
    const stops = answer.runs.filter((r) => r.live && r.status !== "queued").map((r) => follow(r.id.slice(4), (events) => {
      for (const e of events) {
        if (e.event === "start") anew();
        if (e.event !== "step") continue;
        const [step, loss] = [e.step as number, e.loss as number];
        add(r.loss, answer, step, loss);
        r.end = [step, loss];
        if (loss <= 0) r.below++;
        if (typeof e.val_loss === "number") add(r.validation, answer, step, e.val_loss);
        if (slotOf(answer, step) >= 2 * answer.most) anew();
      }
      soon();
    }, (job: Job) => {
      if (job.ended !== null) anew();
      r.status = job.state;
      soon();
    }, String(r.at)));
    return () => {
      over = true;
      for (const stop of stops) stop();
    };
  }, [answer]);
  const queued = answer?.runs.filter((r) => r.status === "queued") ?? [];
  useInterval(() => void get<Job[]>("/api/jobs").then((jobs) => { if (queued.some((r) => jobs.find((j) => `job.${j.id}` === r.id)?.state !== "queued")) setAgain((n) => n + 1); }, () => undefined), queued.length ? 2000 : null);
  return { answer, error: asked.error, version };
}

// The losses of a step by run, once the pointer has rested at it; the slots of many runs have no step by itself.
function useStep(runs: string[], step: number | null): Record<string, number> {
  const [still, setStill] = useState<number | null>(null);
  useEffect(() => {
    const timer = setTimeout(() => setStill(step), 150);
    return () => clearTimeout(timer);
  }, [step]);
  const asked = useAsked(still === null || still !== step ? null : `step ${still} ${runs.join(" ")}`, () => get<{ losses: Record<string, number> }>(`/api/curves?${new URLSearchParams({ runs: runs.join(" "), step: String(still) })}`));
  return asked.value?.losses ?? {};
}

export function OverlayView({ route }: { route: Route }) {
  const runs = chosen(route);
  const [logX, logY] = [route.query.get("x") === "log", route.query.get("y") === "log"];
  const { answer, error, version } = useCurves(runs, logX);
  return (
    <>
      <Head title={runs.length ? `Compare ${counted(runs.length, "run")}` : "Compare runs"} sub="The losses of runs in one chart. The address has all of it: the runs and the axes.">
        <a class="button" href={link("r", "", { runs: runs.join(" ") || null })}>Choose runs</a>
      </Head>
      {error ? <Failed error={error} /> : !runs.length ? <p>No run is chosen. <a href="/r">The list</a> has all of them.</p> : !answer ? <Waiting what="reading the losses" /> : <Overlay answer={answer} version={version} logX={logX} logY={logY} runs={runs} />}
    </>
  );
}

const said = (v: unknown): string => (v === null || v === undefined ? "–" : typeof v === "string" ? v : JSON.stringify(v));
const figure = (v: number | null): string => (v === null ? "–" : v !== 0 && Math.abs(v) < 1e-3 ? (+v.toPrecision(5)).toExponential() : String(+v.toPrecision(5)));
// The last value of a curve, or the one at a slot.
const valueOf = (c: Curve, slot: number | null): number | null => valueAt(c, slot ?? c.first + c.values.length - 1);
const sentence = (r: Overlaid): string => (r.lost ? `${r.lost.value} at step ${count(r.lost.step)}${r.lost.count > 1 ? ` and ${count(r.lost.count - 1)} more` : ""}` : "");

function Overlay({ answer, version, logX, logY, runs }: { answer: Answer; version: number; logX: boolean; logY: boolean; runs: string[] }) {
  const [at, setAt] = useState<number | null>(null);
  const [focus, setFocus] = useState<number | null>(null);
  const drawn = useMemo(() => {
    const lines = answer.runs.flatMap((r, i) => [{ curve: r.loss, label: r.id, ...lineOf(i, answer.runs.length), of: i, dots: false }, ...(r.validation.values.length ? [{ curve: r.validation, label: `${r.id}, validation`, ...lineOf(i, answer.runs.length), of: i, dots: true }] : [])]);
    const { slots, x, values } = aligned(answer, lines.map((l) => l.curve), { x: logX, y: logY });
    const series: Series[] = lines.map(({ label, colour, dash, width, dots }, n) => ({ label, colour, dash, width, dots, values: values[n]! }));
    return { slots, x, series, of: lines.map((l) => l.of) };
  }, [answer, version, logX, logY]);
  const n = drawn.x.length;
  const place = at === null ? n - 1 : Math.min(at, n - 1);
  const [slot, step] = [at === null ? null : drawn.slots[place]!, drawn.x[place] ?? 0];
  const thin = answer.head ? answer.runs.some((r) => r.loss.first + r.loss.values.length > answer.head) : answer.stride > 1;
  const exact = useStep(runs, thin && at !== null ? step : null);
  const lossOf = (r: Overlaid): number | null => (slot === null ? (r.end?.[1] ?? null) : (exact[r.id] ?? valueAt(r.loss, slot)));
  const read = (r: Overlaid): string => `${thin && slot !== null && exact[r.id] === undefined && lossOf(r) !== null ? "≈ " : ""}${figure(lossOf(r))}`;
  const below = answer.runs.filter((r) => r.below);
  const validated = answer.runs.some((r) => r.validation.values.length);
  const now = answer.runs.length <= 8 ? `: ${answer.runs.map((r) => `${r.id} ${read(r)}`).join(", ")}` : "";
  const row = (e: Event) => {
    const found = (e.target as Element).closest("tr")?.querySelector<HTMLElement>("[data-run]")?.dataset.run;
    setFocus(found === undefined ? null : Number(found));
  };
  const lines = answer.runs.map((r, i) => ({ r, i }));
  return (
    <>
      <Panel title="Loss" aside={<span class="links"><Switch label="log loss" on={logY} onChange={(on) => put({ y: on ? "log" : null }, true)} /><Switch label="log steps" on={logX} onChange={(on) => put({ x: on ? "log" : null }, true)} /></span>}>
        <div class="pad" data-points={n}>
          {n ? <Chart title="Loss over steps" x={drawn.x} xLabel="step" series={drawn.series} height={340} log={logY} logX={logX} keys={false} format={figure} at={at === null ? null : place} onAt={setAt} focus={focus === null ? null : drawn.of.indexOf(focus)} /> : <p class="faint">None of these runs has a loss {logY ? "above 0 " : ""}yet.</p>}
          {n > 0 && <label class="field steps"><span>Step {count(step)}</span><input type="range" min={0} max={n - 1} value={place} aria-valuetext={`step ${count(step)}${now}`} onInput={(e) => setAt(Number(e.currentTarget.value))} /></label>}
          <Told answer={answer} thin={thin} logX={logX} below={logY ? below : []} validated={validated} />
        </div>
      </Panel>
      <Panel title={at === null ? "Runs, and their losses at their last steps" : `Runs, and their losses at step ${count(step)}`} id="overlaid">
        <div onMouseOver={row} onMouseLeave={() => setFocus(null)} onFocusIn={row} onFocusOut={() => setFocus(null)}>
          <Table caption="The runs" rows={lines} most={200} columns={[
            { head: "line", cell: ({ i }) => <Line i={i} of={answer.runs.length} /> },
            { head: "run", cell: ({ r, i }) => <a class="mono" data-run={i} href={r.id.startsWith("job.") ? link("t", r.model, { job: r.id.slice(4) }) : link("r", r.id)} title={when(r.begun)}>{r.id.replace(/^job\./, "")}</a>, by: ({ r }) => r.id, class: "nowrap" },
            { head: "model", cell: ({ r }) => r.model, by: ({ r }) => r.model },
            ...answer.settings.map((name) => ({ head: name, cell: ({ r }: { r: Overlaid }) => said(r.settings[name]), by: ({ r }: { r: Overlaid }) => (typeof r.settings[name] === "number" ? (r.settings[name] as number) : said(r.settings[name])), figure: answer.runs.some((r) => typeof r.settings[name] === "number") })),
            { head: "loss of the step", cell: ({ r }) => read(r), by: ({ r }) => lossOf(r) ?? Infinity, figure: true },
            ...(validated ? [{ head: "validation", cell: ({ r }: { r: Overlaid }) => figure(valueOf(r.validation, slot)), by: ({ r }: { r: Overlaid }) => valueOf(r.validation, slot) ?? Infinity, figure: true }] : []),
            { head: "state", cell: ({ r }) => <><span class={`state ${r.status}`}>{r.status}</span>{r.lost && <> <span class="bad">{sentence(r)}</span></>}</>, by: ({ r }) => r.status },
            { head: "take out", cell: ({ r }) => <button type="button" class="quiet pick" aria-label={`take out ${r.id}`} onClick={() => put({ runs: runs.filter((id) => id !== r.id).join(" ") || null })}>×</button> },
          ]} />
        </div>
      </Panel>
    </>
  );
}

function Line({ i, of }: { i: number; of: number }) {
  const { colour, dash, width } = lineOf(i, of);
  return <svg class="stroke" width="44" height="12" aria-hidden="true"><path class={colour.slice(2)} d={`M1 ${6 + (width % 2) / 2}H43`} stroke-width={width} stroke-dasharray={dash.join(" ")} /></svg>;
}

// What the picture does not show by itself.
function Told({ answer, thin, logX, below, validated }: { answer: Answer; thin: boolean; logX: boolean; below: Overlaid[]; validated: boolean }) {
  const lost = answer.runs.filter((r) => r.lost);
  const left = below.reduce((n, r) => n + r.below, 0);
  const zero = logX && answer.runs.some((r) => r.loss.first === 0 && r.loss.values.length);
  return (
    <div class="faint notes">
      {thin && <p>{answer.head ? `From step ${count(answer.head)} on, of some neighbouring steps` : `Of every ${count(2 * answer.stride)} steps`} the least and the greatest loss are drawn.</p>}
      {validated && <p>Dots are losses on the validation data.</p>}
      {lost.length > 0 && <p>{counted(lost.length, "run")} diverged; what was finite is drawn: {lost.slice(0, 5).map((r) => `${r.id} was ${sentence(r)}`).join("; ")}{lost.length > 5 ? "; others in the table" : ""}.</p>}
      {left > 0 && <p>{counted(left, "loss").replace(/losss$/, "losses")} of {counted(below.length, "run")} {left === 1 ? "is" : "are"} not above 0 and left out: a logarithmic axis has no place for them.</p>}
      {zero && <p>Step 0 is left out.</p>}
      {answer.missing.length > 0 && <p class="amber">Not found, and left out: {answer.missing.slice(0, 8).join(", ")}{answer.missing.length > 8 ? ` and ${answer.missing.length - 8} more` : ""}.</p>}
    </div>
  );
}
