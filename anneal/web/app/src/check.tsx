// /c/MODEL: every kernel beside its graph, and every value beside the graph as it was written, in float64.
import { useEffect, useState } from "preact/hooks";
import { follow, send, type Job, type Line } from "./api";
import { count, place } from "./format";
import { modelTools, title } from "./models";
import { link, put, type Route } from "./route";
import { Head, Panel, Phase, Table } from "./ui";

interface NotFinite { kernel: number; name: string; label: string; kind: string; begins: string; op: string; at: number[]; sources: string[]; inputs: string[]; lines: Line[]; overflow: boolean; result: boolean }
interface Checked { launch: number; kernel: number; name: string; label: string; opts: string; phase: string; elements: number; compared: number; tensor_elements: number; unjudged: number; worst: number; ok: boolean; note: string; lines: Line[] }
interface Report { ok: boolean; reason: string; unjudged: number; device: string; launches: number; kernels: Checked[]; messages?: string[]; text?: string; differences?: unknown[]; not_finite?: NotFinite | null }

/** How a kernel came out, as a class and in words: one that nothing could be held against does not agree. */
function found(k: Checked): [string, string] {
  if (!k.ok) return ["failed", "differs"];
  if (k.elements && !k.compared && !k.tensor_elements) return ["stopped", "not compared"];
  return k.unjudged ? ["stopped", `agrees, ${count(k.unjudged)} not judged`] : ["done", "agrees"];
}

/** The first nan or infinity: which kernel, op and line, of which inputs. */
function Odd({ x }: { x: NotFinite }) {
  const wrong = x.result && (x.kind === "nan" || x.overflow);
  return (
    <p class={`pad ${wrong ? "bad" : "amber"}`} role={wrong ? "alert" : undefined}>
      <b>The first {x.kind} appears in kernel {x.kernel} {x.label || x.name}</b>: {x.op} is {x.begins} at [{x.at.join(", ")}]
      {x.sources.length > 0 && ` of ${x.sources.join("; ")}`}, from {x.lines.map(place).join(", ") || "no line of yours"}.
      {x.inputs.length > 0 && ` Its inputs: ${x.inputs.join("; ")}.`}
      {x.overflow && " It is finite in float64: the op overflows its dtype."}
      {!x.result && " No result has it."}
    </p>
  );
}

export function CheckView({ route }: { route: Route }) {
  const id = route.query.get("job");
  const [job, setJob] = useState<Job | null>(null);
  const [report, setReport] = useState<Report | null>(null);
  const [error, setError] = useState("");
  useEffect(() => {
    setJob(null);
    setReport(null);
    if (!id) return;
    return follow(id, (lines) => setReport(lines[lines.length - 1] as unknown as Report), setJob);
  }, [id]);
  const live = job && ["running", "queued", "paused"].includes(job.state);
  const start = (e: SubmitEvent) => {
    e.preventDefault();
    setError("");
    const form = new FormData(e.currentTarget as HTMLFormElement);
    const body = { kind: "check", model: route.name, device: form.get("device"), step: form.get("step") === "on", gradients: form.get("gradients") === "on" };
    send<Job>("POST", "/api/jobs", body).then((made) => put({ job: made.id }), (x: Error) => setError(x.message));
  };
  return (
    <>
      <Head title={`Check ${title(route.name)}`} sub="Every kernel beside its graph, and every value beside the graph as it was written, in float64 with a bound on the error.">{modelTools(route, "c")}</Head>
      <div class="training">
        <Panel title="Start a check">
          <form class="pad form" onSubmit={start}>
            <label class="field"><span>Device</span><select name="device"><option value="auto">auto</option><option value="cpu">cpu</option><option value="webgpu">webgpu</option></select></label>
            <label class="check"><input type="checkbox" name="step" /><span>a whole training step</span></label>
            <label class="check"><input type="checkbox" name="gradients" /><span>gradients too</span></label>
            <button type="submit" class="primary" disabled={!!live}>Check</button>
            {live && <button type="button" onClick={() => send("POST", `/api/jobs/${id}/cancel`).catch((x: Error) => setError(x.message))}>Cancel</button>}
          </form>
          {error && <p class="bad pad" role="alert">{error}</p>}
        </Panel>
        <Panel title="What was found" aside={job && <span class={`state ${report ? (report.ok ? "done" : "failed") : job.state}`}>{report ? (report.ok ? "nothing differs" : report.not_finite?.result && !report.differences?.length ? `${report.not_finite.kind} in a result` : report.differences?.length ? "something differs" : "not ok") : job.state}</span>}>
          <div role="status">
            {!id && <p class="pad faint">Nothing yet. A check runs the model once, kernel by kernel.</p>}
            {live && !report && <p class="pad faint"><span class="spin" aria-hidden="true" /> {job.state === "queued" ? "waiting for the device" : "running and comparing"}</p>}
            {job?.error && <pre class="pad bad">{job.error}</pre>}
            {report?.not_finite && <Odd x={report.not_finite} />}
            {report && !report.ok && report.reason && <p class="pad bad" role="alert">{report.reason}</p>}
            {report && report.unjudged > 0 && <p class="pad amber">{count(report.unjudged)} elements have no finite bound and were not judged.</p>}
            {report?.messages?.map((m) => <p class="pad">{m}</p>)}
          </div>
          {report && (
            <Table caption="Kernels that were checked" rows={report.kernels} columns={[
              { head: "#", cell: (k) => k.kernel, by: (k) => k.kernel, figure: true },
              { head: "kernel", cell: (k) => <a href={link("k", route.name, { kernel: k.kernel, step: job?.about.step ? null : "0" })}>{k.label || k.name}</a>, by: (k) => k.label },
              { head: "phase", cell: (k) => <Phase phase={k.phase} />, by: (k) => k.phase },
              { head: "compared", cell: (k) => count(k.compared), by: (k) => k.compared, figure: true },
              { head: "of the bound", cell: (k) => (k.worst === null ? "–" : k.worst.toFixed(3)), by: (k) => k.worst, figure: true },
              { head: "found", cell: (k) => <span class={`state ${found(k)[0]}`}>{found(k)[1]}</span>, by: (k) => ["failed", "stopped", "done"].indexOf(found(k)[0]) },
              { head: "note", cell: (k) => k.note && <span class="amber">{k.note}</span>, by: (k) => k.note },
              { head: "your lines", cell: (k) => k.lines.map(place).join(", ") },
            ]} />
          )}
        </Panel>
      </div>
    </>
  );
}
