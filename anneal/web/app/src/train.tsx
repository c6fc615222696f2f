// /t/MODEL: start a training and watch it; the job is in the address, so a reload goes on watching.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { follow, send, type Event, type Job, type Times } from "./api";
import { Chart, Smooth, thinned, type Series } from "./chart";
import { bytes, count, lossOf, meanLoss, time } from "./format";
import { modelTools, refresh, remembered, title } from "./models";
import { link, put, type Route } from "./route";
import { file } from "./snapshot";
import { Facts, Head, Live, Panel, Phase, Reasons, Table, Took, Watching } from "./ui";

export interface Start { model: string; device: string; adapter: string | null; params: number; steps: number; batch: number; seed: number; lr: number; data: string }
export interface Step { step: number; loss: number; ms: number; lr?: number; norm?: number | null; bytes?: number }
export interface Done { steps: number; final_loss: number | null; median_ms: number; compile_s: number; kernels: number; kernels_unwatched?: number | null; sample: string; picture: string | null; stopped: boolean }

export interface Shown { step: number; sample: string; picture: string | null }
export interface Slow { phase: string; label: string; seconds: number; share: number; low?: number; high?: number }
export interface Watched { job: Job | null; start: Start | null; steps: Step[]; smooth: number[]; samples: Shown[]; slowest: Slow[]; times: Times | null; done: Done | null; version: number; calm: number }
const nothing = (): Watched => ({ job: null, start: null, steps: [], smooth: [], samples: [], slowest: [], times: null, done: null, version: 0, calm: 0 });
const GAP_MS = 150; // at least, from one drawing to the next; a run tells of its steps four times a second
const CALM_MS = 1000; // between two drawings of all but the loss

const live = (job: Job | null): boolean => !!job && ["running", "paused", "queued"].includes(job.state);

// Asks for a drawing soon. The run has the same processor: drawing takes a sixth of the time at most, and waits in between.
export function paced(draw: () => void): () => void {
  let planned = false;
  let free = 0;
  const drawn = () => {
    planned = false;
    const begun = performance.now();
    draw();
    setTimeout(() => { free = begun + Math.min(400, Math.max(GAP_MS, 6 * (performance.now() - begun))); });
  };
  return () => {
    if (planned) return;
    planned = true;
    setTimeout(() => requestAnimationFrame(drawn), Math.max(0, free - performance.now()));
  };
}

export function useJob(id: string | null): Watched {
  const state = useRef<Watched>(nothing());
  const [, draw] = useState(0);
  useEffect(() => {
    state.current = nothing();
    draw((n) => n + 1);
    if (!id) return;
    let over = false;
    let calmed = -CALM_MS;
    let settling = 0;
    const smooth = new Smooth();
    const soon = paced(() => {
      if (over) return;
      const begun = performance.now();
      state.current.version++;
      if (begun - calmed >= CALM_MS) {
        calmed = begun;
        state.current.calm++;
      } else {
        settling ||= window.setTimeout(() => { settling = 0; soon(); }, CALM_MS - (begun - calmed)); // nothing may come after these
      }
      draw((n) => n + 1);
    });
    const stop = follow(id, (events: Event[]) => {
      for (const e of events) {
        if (e.event === "step") {
          state.current.steps.push(e as unknown as Step);
          state.current.smooth.push(smooth.next(e.loss as number));
        }
        else if (e.event === "start") state.current.start = e as unknown as Start;
        else if (e.event === "sample") state.current.samples.push(e as unknown as Shown);
        else if (e.event === "kernels") { state.current.slowest = e.slowest as Slow[]; state.current.times = (e.times as Times | undefined) ?? null; }
        else if (e.event === "done") state.current.done = e as unknown as Done;
      }
      soon();
    }, (job) => { state.current.job = job; soon(); });
    return () => {
      over = true;
      clearTimeout(settling);
      stop();
    };
  }, [id]);
  return state.current;
}

export function TrainView({ route }: { route: Route }) {
  const id = route.query.get("job");
  const w = useJob(id);
  return (
    <>
      <Head title={`Train ${title(route.name)}`} sub={remembered()?.models.find((m) => m.name === route.name)?.about}>{modelTools(route, "t")}</Head>
      <div class="training">
        <div>
          {!live(w.job) && <Begin route={route} />}
          {id && <Control w={w} id={id} />}
        </div>
        <div>{id ? <Curves w={w} /> : <Panel title="Curves"><p class="pad faint">Start a run: loss, learning rate, gradient norm, step time and memory are drawn here as they come. It goes on when this page is closed, and when the studio's server is started again.</p></Panel>}</div>
      </div>
    </>
  );
}

function Begin({ route }: { route: Route }) {
  const [error, setError] = useState("");
  const q = route.query;
  const submit = (e: SubmitEvent) => {
    e.preventDefault();
    setError("");
    const form = new FormData(e.currentTarget as HTMLFormElement);
    const body: Record<string, unknown> = { kind: "train", model: route.name, device: form.get("device"), bundle: q.get("bundle") !== "0" };
    for (const key of ["steps", "batch", "seed", "lr", "samples"]) if (form.get(key)) body[key] = Number(form.get(key));
    send<Job>("POST", "/api/jobs", body).then((job) => put({ job: job.id }), (x: Error) => setError(x.message));
  };
  const number = (name: string, label: string, hint: string, step = "1") => (
    <label class="field"><span>{label}</span><input name={name} type="number" inputmode="decimal" step={step} min="0" placeholder={hint} value={q.get(name) ?? ""} /></label>
  );
  return (
    <Panel title="Start a run">
      <form class="pad form" onSubmit={submit}>
        {number("steps", "Steps", "the example's")} {number("batch", "Batch", "the example's")} {number("lr", "Learning rate", "the example's", "any")} {number("seed", "Seed", "1")}
        <label class="field"><span>Device</span><select name="device" defaultValue={q.get("device") ?? "auto"}><option value="auto">auto</option><option value="cpu">cpu</option><option value="webgpu">webgpu</option></select></label>
        <label class="field"><span>Samples on the way</span><select name="samples">{["0", "2", "4", "9"].map((n) => <option value={n} selected={n === (q.get("samples") ?? "4")}>{n}</option>)}</select></label>
        <button type="submit" class="primary">Train</button>
        <p class="faint">{q.get("bundle") === "0" ? "Nothing is kept: the address says bundle=0." : "It is kept in runs/ with its curves, kernels and weights."}</p>
        {error && <p class="bad" role="alert">{error}</p>}
      </form>
    </Panel>
  );
}

function Control({ w, id }: { w: Watched; id: string }) {
  const { job, start, steps, done } = w;
  const [error, setError] = useState("");
  useEffect(() => { if (job?.run) void refresh(); }, [job?.run]);
  if (!job) return <Panel title="Run"><p class="pad faint" role="status">looking for the run</p></Panel>;
  const act = (what: string) => send("POST", `/api/jobs/${id}/${what}`).then(() => setError(""), (e: Error) => setError(e.message));
  const last = steps[steps.length - 1];
  const recent = steps.slice(-25).map((s) => s.ms).sort((a, b) => a - b);
  const ms = recent[recent.length >> 1] ?? 0;
  const left = start && last ? ((start.steps - last.step) * ms) / 1e3 : 0;
  const alive = live(job);
  return (
    <Panel title="Run" aside={<span class={`state ${job.state}`}>{job.state}</span>}>
      <div class="pad">
        <Live text={`The run is ${job.state}.`} />
        {start && <progress max={start.steps} value={last?.step ?? 0} aria-label="Steps done" />}
        <div class="buttons">
          {job.state === "running" && <button type="button" onClick={() => act("pause")}>Pause</button>}
          {job.state === "paused" && <button type="button" onClick={() => act("resume")}>Resume</button>}
          {alive && <button type="button" onClick={() => act("stop")}>{job.state === "queued" ? "Take it out of the queue" : "Stop"}</button>}
          {alive && job.state !== "queued" && <button type="button" class="quiet" onClick={() => act("cancel")}>Kill</button>}
          {job.run && <a class="button" href={link("r", job.run)}>In the history</a>}
        </div>
        {error && <p class="bad" role="alert">{error}</p>}
        {job.state === "queued" && <p class="faint">Another job has the device; this one is next, or further down the queue.</p>}
        {job.state === "running" && !steps.length && <p class="faint" role="status"><span class="spin" aria-hidden="true" /> compiling the first step</p>}
        {job.error && <pre class="bad" role="alert">{job.error}</pre>}
        <Facts rows={[
          ["step", start ? `${count(last?.step ?? 0)} of ${count(start.steps)}` : "–"], ["loss", lossOf(meanLoss(steps), steps.length)], ["a step", ms ? `${ms.toFixed(1)} ms` : "–"],
          ...(alive && left > 0 ? [["left", time(left)] as [string, string]] : []),
          ...(start ? [["device", start.adapter ?? start.device], ["parameters", count(start.params)], ["batch", count(start.batch)], ["data", start.data]] as [string, string][] : []),
          ...(last?.bytes ? [["memory", bytes(last.bytes)] as [string, string]] : []),
          ...(done ? [["compiled in", `${done.compile_s.toFixed(1)} s`], ["kernels a step", <a href={link("k", job.model)}>{done.kernels}</a>]] as [string, preact.ComponentChildren][] : []),
        ]} />
        <Watching done={done} />
        {w.slowest.length > 0 && <Slowest w={w} />}
        {done && <Sample done={done} picture={done.picture ? file(`/api/jobs/${id}/picture`) : null} />}
        {w.samples.length > 0 && <OnTheWay samples={w.samples} id={id} />}
      </div>
    </Panel>
  );
}

// What the model showed at a step; the last one unless another is chosen.
function OnTheWay({ samples, id }: { samples: Shown[]; id: string }) {
  const [at, set] = useState<number | null>(null);
  const s = samples[at ?? samples.length - 1]!;
  return (
    <>
      <h3>What it had learnt on the way</h3>
      <div class="tabs" role="group" aria-label="After which step">
        {samples.map((x, i) => <button type="button" aria-pressed={x === s} onClick={() => set(i)}>step {count(x.step)}</button>)}
      </div>
      {s.picture && <img class="picture" src={file(`/api/jobs/${id}/picture?step=${s.step}`)} alt={`What the model drew after step ${s.step}`} />}
      <pre class="sample" tabIndex={0}>{s.sample}</pre>
    </>
  );
}

function Slowest({ w }: { w: Watched }) {
  return (
    <>
      <h3>Slowest kernels of a step</h3>
      <Table caption="Slowest kernels of a step" rows={w.slowest} columns={[
        { head: "kernel", cell: (s) => <a href={link("k", w.job?.model ?? "", { find: s.label })}>{s.label}</a> }, { head: "phase", cell: (s) => <Phase phase={s.phase} /> },
        { head: "time", cell: (s) => s.low === undefined || s.high === undefined ? time(s.seconds) : <Took of={{ median: s.seconds, low: s.low, high: s.high, count: w.times?.kernels?.count ?? 2 }} />, by: (s) => s.seconds, figure: true }, { head: "share", cell: (s) => `${(s.share * 100).toFixed(1)} %`, figure: true },
      ]} />
      {w.times?.kernels && <p class="faint">Medians of {count(w.times.kernels.count)} steps. All kernels <Took of={w.times.kernels} />{w.times.step && <> of a step of <Took of={w.times.step} /></>}{w.times.python && <>, Python <Took of={w.times.python} /></>}.</p>}
      {w.times && <Reasons of={w.times.reasons} />}
    </>
  );
}

export function Sample({ done, picture }: { done: { sample: string }; picture: string | null }) {
  return (
    <>
      <h3>What it learnt</h3>
      {picture && <img class="picture" src={picture} alt="What the model drew" />}
      <pre class="sample" tabIndex={0}>{done.sample}</pre>
    </>
  );
}

// The loss is drawn with every batch of events; the others, of which nobody sees a tenth of a second, less often.
function Curves({ w }: { w: Watched }) {
  const n = w.steps.length;
  const loss = useMemo(() => {
    const at = thinned(n, live(w.job) ? 600 : 1500); // two dots of the screen each while it runs
    return { x: at.map((i) => w.steps[i]!.step), series: [{ label: "each batch", values: at.map((i) => w.steps[i]!.loss), colour: "--teal", faint: true }, { label: "smoothed", values: at.map((i) => w.smooth[i]!), colour: "--teal" }] };
  }, [w.version, n]);
  return (
    <Panel title="Curves" aside={<span class="faint">{count(n)} steps</span>}>
      <div class="pad charts" data-steps={n}>
        <Chart title="Loss" x={loss.x} xLabel="step" series={loss.series} height={240} />
        {useMemo(() => <Vitals steps={w.steps} />, [w.calm, w.steps])}
      </div>
    </Panel>
  );
}

function Vitals({ steps }: { steps: Step[] }) {
  const at = thinned(steps.length);
  const x = at.map((i) => steps[i]!.step);
  const curve = (label: string, colour: string, of: (s: Step) => number | null | undefined, fill = false): Series[] => [{ label, values: at.map((i) => of(steps[i]!) ?? null), colour, fill }];
  const has = ([one]: Series[]) => one!.values.some((v) => v !== null);
  const [ms, lr, norm, used] = [curve("ms", "--gold", (s) => s.ms), curve("lr", "--ember", (s) => s.lr), curve("norm", "--ember", (s) => s.norm), curve("in use", "--teal", (s) => s.bytes, true)];
  return (
    <div class="two">
      <Chart title="Milliseconds a step" x={x} xLabel="step" series={ms!} log height={130} />
      {has(lr!) && <Chart title="Learning rate" x={x} xLabel="step" series={lr!} height={130} format={(v) => v.toExponential(1)} />}
      {has(norm!) && <Chart title="Norm of the gradients" x={x} xLabel="step" series={norm!} height={130} />}
      {has(used!) && <Chart title="Device memory" x={x} xLabel="step" series={used!} height={130} format={bytes} />}
    </div>
  );
}
