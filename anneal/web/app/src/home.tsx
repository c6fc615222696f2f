// /: the device, the models, what runs and ran, and a place to drop files.
import { useEffect, useState } from "preact/hooks";
import { ask, follow, get, send, useAsked, type Job, type Run, type Session, type Upload } from "./api";
import { bytes, count, counted, loss, shape, when } from "./format";
import { refresh, title } from "./models";
import { link, put, type Route } from "./route";
import { Facts, Failed, Head, Panel, Shown, Table, useInterval } from "./ui";
import type { Report } from "./doctor";

export function HomeView({ session, route, set }: { session: Session; route: Route; set: (s: Session) => void }) {
  const doctor = useAsked("doctor", () => get<Report>("/api/doctor"));
  const file = session.uploads.find((u) => u.id === route.query.get("file"));
  useInterval(() => void refresh().then(set, () => undefined), session.jobs.some((j) => ["running", "queued", "paused"].includes(j.state)) ? 3000 : 15000);
  return (
    <>
      <Head title="Studio" sub="From a line of your Python to the nodes, the rules, the kernel and its line of WGSL, and back." />
      <div class="home">
        <div>
          <Panel title="Models" aside={<span class="faint">{session.models.length} examples</span>}>
            <ul class="models">
              {session.models.map((m) => (
                <li class="model">
                  <h3><a href={link("v", m.name)}>{m.name}</a></h3>
                  <p>{m.about}</p>
                  <p class="links"><a href={link("v", m.name)} aria-label={`Graph of ${m.name}`}>Graph</a><a href={link("k", m.name)} aria-label={`Kernels of ${m.name}`}>Kernels</a><a href={link("c", m.name)} aria-label={`Check ${m.name}`}>Check</a><a href={link("t", m.name)} aria-label={`Train ${m.name}`}>Train</a>{m.speaks && <a href={link("g", m.name)} aria-label={`Generate with ${m.name}`}>Generate</a>}</p>
                </li>
              ))}
            </ul>
          </Panel>
        </div>
        <div>
          <Panel title="This machine" aside={<a class="quiet" href="/d">doctor</a>}>
            <Shown asked={doctor} what="asking for devices">
              {(d) => (
                <div class="pad device">
                  <p class="strong">{d.adapters.length ? (d.chosen ?? d.adapters[0]!.name) : "no WebGPU adapter"}</p>
                  <p class="faint">{d.cpu ? `cpu: ${d.cpu.cores} cores, NumPy with ${d.cpu.blas}` : ""}</p>
                  {d.cause && <p class="faint">{d.cause}. Everything runs on the cpu.</p>}
                </div>
              )}
            </Shown>
          </Panel>
          <Drop session={session} set={set} shown={file ?? null} />
          <JobsPanel jobs={session.jobs} />
          <Panel title="Recent runs" aside={<a class="quiet" href="/r">all of them</a>}>
            {session.runs.length ? <RunList runs={session.runs.slice(0, 6)} /> : <p class="pad faint">None yet. A training that is started here, or with <code>anneal train --bundle</code>, is kept in <code>runs/</code>.</p>}
          </Panel>
        </div>
      </div>
    </>
  );
}

export function JobsPanel({ jobs }: { jobs: Job[] }) {
  const now = jobs.filter((j) => ["running", "queued", "paused"].includes(j.state));
  const failed = jobs.filter((j) => j.state === "failed").slice(0, 2);
  if (!now.length && !failed.length) return null;
  return (
    <Panel title="At work">
      <ul class="jobs">
        {[...now, ...failed].map((j) => (
          <li><span class={`state ${j.state}`}>{j.state}</span> <a href={jobLink(j)}>{j.kind} {title(j.model)}</a> <span class="faint">{j.device} · {when(j.created)}</span>{j.error && <pre class="bad">{j.error.split("\n").slice(-3).join("\n")}</pre>}</li>
        ))}
      </ul>
    </Panel>
  );
}

export const jobLink = (j: Job): string =>
  j.kind === "train" ? link("t", j.model, { job: j.id }) : j.kind === "sample" ? link("g", j.model, { job: j.id }) : j.kind === "check" ? link("c", j.model, { job: j.id }) : j.kind === "time" ? link("k", j.model, { time: j.id }) : j.kind === "numerics" ? link("d", "", { [j.device]: j.id }) : j.kind === "script" ? link("s", `job.${j.id}`) : "/";

function RunList({ runs }: { runs: Run[] }) {
  return (
    <Table caption="Recent runs" rows={runs} columns={[
      { head: "run", cell: (r) => <a href={link("r", r.id)}>{r.model}</a> }, { head: "ended", cell: (r) => <span class={`state ${r.status}`}>{r.status}</span> },
      { head: "steps", cell: (r) => count(r.steps_done ?? 0), figure: true }, { head: "loss", cell: (r) => loss(r.final_loss), figure: true }, { head: "when", cell: (r) => when(r.begun) },
    ]} />
  );
}

const KINDS = ".onnx,.safetensors,.gguf,.npy,.npz,.zip,.py";

function Drop({ session, set, shown }: { session: Session; set: (s: Session) => void; shown: Upload | null }) {
  const [over, setOver] = useState(false);
  const [busy, setBusy] = useState("");
  const [error, setError] = useState("");
  const take = async (files: FileList | File[] | null | undefined) => {
    for (const f of files ?? []) {
      setError("");
      setBusy(f.name);
      try {
        const found = await send<Upload>("POST", "/api/uploads", f, { "x-file-name": encodeURIComponent(f.name) });
        set(await refresh());
        put({ file: found.id });
      } catch (e) {
        setError((e as Error).message);
      }
      setBusy("");
    }
  };
  useEffect(() => {
    const stop = (e: DragEvent) => e.preventDefault(); // a file that misses the zone would take the page's place
    addEventListener("dragover", stop);
    addEventListener("drop", stop);
    return () => {
      removeEventListener("dragover", stop);
      removeEventListener("drop", stop);
    };
  }, []);
  const forget = async (u: Upload) => {
    await send("DELETE", `/api/uploads/${u.id}`);
    if (shown?.id === u.id) put({ file: null });
    set(await refresh());
  };
  return (
    <Panel title="Files">
      <div class={`drop ${over ? "over" : ""}`} onDragOver={(e) => { e.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)}
        onDrop={(e) => { e.preventDefault(); setOver(false); void take(e.dataTransfer?.files); }}>
        <label>
          <input type="file" class="hidden" accept={KINDS} multiple onChange={(e) => { void take(e.currentTarget.files); e.currentTarget.value = ""; }} />
          <span class="button">Choose a file</span>
        </label>
        <p>or drop it here: a model (.onnx), weights (.safetensors, .gguf), arrays (.npy, .npz), a run or a recording (.zip), a script to check (.py). It stays on this machine.</p>
        <p role="status" class="faint">{busy && `taking in ${busy}`}</p>
      </div>
      {error && <p class="bad pad" role="alert">{error}</p>}
      {session.uploads.length > 0 && (
        <ul class="files">
          {session.uploads.map((u) => (
            <li class={shown?.id === u.id ? "selected" : ""}>
              <button type="button" class="link" aria-expanded={shown?.id === u.id} onClick={() => put({ file: shown?.id === u.id ? null : u.id })}>{u.name}</button>
              <span class="faint"> {bytes(u.bytes)}</span>
              <button type="button" class="quiet" onClick={() => void forget(u)} aria-label={`Forget ${u.name}`}>forget</button>
              {shown?.id === u.id && <About u={u} />}
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

interface Info { name: string; dtype: string; shape: (number | string | null)[] | null }
interface Onnx {
  name: string; producer: string; opsets: [string, number][]; inputs: Info[]; outputs: Info[]; parameters: number; nodes: number;
  uses: { op: string; domain: string; version: number; count: number; by: string }[];
  gaps: { op: string; node: string; what: string; fix: string }[];
}
interface Statistics { least: number | null; greatest: number | null; mean: number | null; std: number | null; zeros: number; not_finite: number; bins: number[]; first: string[] }
interface Tensors { kind: string; tensors: { name: string; dtype: string; shape: number[]; bytes: number; statistics: Statistics | null }[]; notes: [string, string][] }

function About({ u }: { u: Upload }) {
  if (u.kind === "run") return <p class="links"><a href={link("r", u.id)}>The run</a></p>;
  if (u.kind === "recording") return <p class="links"><a href={link("s", u.id)}>The plans that were recorded</a></p>;
  if (u.kind === "py") return <p class="links"><a href={link("c", u.id)}>Check</a></p>;
  return u.kind === "onnx" ? <OnnxCard u={u} /> : <TensorsCard u={u} />;
}

function OnnxCard({ u }: { u: Upload }) {
  const found = useAsked(`onnx ${u.id}`, () => ask<Onnx>("onnx", { model: u.id }));
  const [job, setJob] = useState<Job | null>(null);
  const [error, setError] = useState("");
  const run = () => send<Job>("POST", "/api/jobs", { kind: "run", model: u.id }).then(setJob, (e: Error) => setError(e.message));
  return (
    <Shown asked={found} what="reading the model">
      {(m) => (
        <div class="about">
          <p>{m.name || "a graph without a name"} by {m.producer || "an unknown program"}: {count(m.nodes)} nodes, {count(m.parameters)} numbers.</p>
          {m.gaps.length ? (
            <div class="failed" role="alert"><h3>{m.gaps.length} nodes cannot be run</h3><ul>{m.gaps.slice(0, 40).map((g) => <li><b>{g.op}</b> {g.node}: {g.what}; {g.fix}</li>)}</ul></div>
          ) : (
            <p class="links"><a href={link("v", u.id)}>Graph</a><a href={link("k", u.id)}>Kernels</a><a href={link("c", u.id)}>Check</a><button type="button" onClick={run} disabled={!!job && !["done", "failed"].includes(job.state)}>Run it</button></p>
          )}
          {error && <p class="bad" role="alert">{error}</p>}
          {job && <RunResult id={job.id} />}
          <p class="faint">reads {m.inputs.map(info).join("; ") || "nothing"}; gives {m.outputs.map(info).join("; ")}</p>
          <ul class="chips">{m.uses.map((x) => <li class={x.by === "nobody" ? "bad" : ""}>{x.op} {x.count}</li>)}</ul>
        </div>
      )}
    </Shown>
  );
}

const info = (v: Info): string => `${v.name} ${v.dtype}[${(v.shape ?? []).map((d) => d ?? "?").join(", ")}]`;

interface RunReport { device: string; seconds: number; outputs: Record<string, string>; times?: { median: number; runs: number } }

function RunResult({ id }: { id: string }) {
  const [job, setJob] = useState<Job | null>(null);
  const [report, setReport] = useState<RunReport | null>(null);
  useEffect(() => {
    return follow(id, (lines) => setReport(lines[lines.length - 1] as unknown as RunReport), setJob);
  }, [id]);
  if (job?.state === "failed") return <pre class="bad" role="alert">{job.error}</pre>;
  if (!report) return <p class="faint" role="status">{job?.state === "queued" ? "waiting for the device" : "running"}</p>;
  return (
    <div role="status">
      <ul class="plain mono">{Object.entries(report.outputs).map(([n, v]) => <li>{n}: {v}</li>)}</ul>
      <p class="faint">{report.times ? `${(report.times.median * 1e3).toFixed(2)} ms, the median of ${counted(report.times.runs, "run")}, ` : ""}on {report.device}; inputs were random</p>
    </div>
  );
}

const figure = (v: number | null | undefined): string => (v === null || v === undefined ? "–" : String(+v.toPrecision(4)));

// How many values lie where, from the least to the greatest.
function Bins({ s }: { s: Statistics | null }) {
  if (!s?.bins.length) return null;
  const most = Math.max(...s.bins);
  return (
    <svg class="bins" width={s.bins.length * 3} height={18} role="img" aria-label={`most of the values lie near ${figure(s.least! + ((s.bins.indexOf(most) + 0.5) / s.bins.length) * (s.greatest! - s.least!))}`}>
      {s.bins.map((n, i) => { const h = n ? Math.max(1, (n / most) * 18) : 0; return <rect x={i * 3} y={18 - h} width={2} height={h} />; })}
    </svg>
  );
}

function TensorsCard({ u }: { u: Upload }) {
  const found = useAsked(`file ${u.id}`, () => ask<Tensors>("file", { model: u.id }));
  if (found.error) return <Failed error={found.error} />;
  return (
    <Shown asked={found} what="reading the file">
      {(t) => (
        <div class="about">
          <p>{counted(t.tensors.length, "tensor")}, {bytes(t.tensors.reduce((a, x) => a + x.bytes, 0))}</p>
          <Table caption={`Tensors of ${u.name}`} rows={t.tensors} most={40} columns={[
            { head: "name", cell: (x) => x.name, by: (x) => x.name, class: "mono" }, { head: "dtype", cell: (x) => x.dtype }, { head: "shape", cell: (x) => shape(x.shape) },
            { head: "bytes", cell: (x) => bytes(x.bytes), by: (x) => x.bytes, figure: true },
            { head: "values", cell: (x) => <Bins s={x.statistics} /> },
            { head: "least", cell: (x) => figure(x.statistics?.least), by: (x) => x.statistics?.least ?? 0, figure: true },
            { head: "greatest", cell: (x) => figure(x.statistics?.greatest), by: (x) => x.statistics?.greatest ?? 0, figure: true },
            { head: "mean", cell: (x) => figure(x.statistics?.mean), by: (x) => x.statistics?.mean ?? 0, figure: true },
            { head: "std", cell: (x) => figure(x.statistics?.std), by: (x) => x.statistics?.std ?? 0, figure: true },
            { head: "zeros", cell: (x) => (x.statistics ? count(x.statistics.zeros) : "–"), by: (x) => x.statistics?.zeros ?? 0, figure: true },
            { head: "nan, inf", cell: (x) => (x.statistics?.not_finite ? <span class="bad">{count(x.statistics.not_finite)}</span> : x.statistics ? 0 : "–"), by: (x) => x.statistics?.not_finite ?? 0, figure: true },
            { head: "begins", cell: (x) => x.statistics?.first.join(", ") ?? "", class: "clip mono" },
          ]} />
          {t.notes.length > 0 && <details><summary>{count(t.notes.length)} notes</summary><Facts rows={t.notes.map(([k, v]) => [k, <span class="wrap">{v}</span>])} /></details>}
          {t.tensors.some((x) => !x.statistics) && <p class="faint">Values of the first 256 MiB were read; the others have no statistics.</p>}
        </div>
      )}
    </Shown>
  );
}
