// /c/MODEL: every kernel beside its graph, and every value beside the graph as it was written, in float64.
import { useEffect, useState } from "preact/hooks";
import { follow, send, type Job, type Line } from "./api";
import { count, place } from "./format";
import { modelTools, title } from "./models";
import { link, put, type Route } from "./route";
import { Head, Panel, Phase, Table } from "./ui";

interface Checked { launch: number; kernel: number; name: string; label: string; opts: string; phase: string; compared: number; unjudged: number; worst: number; ok: boolean; note: string; lines: Line[] }
interface Report { ok: boolean; device: string; launches: number; kernels: Checked[]; messages?: string[]; text?: string; differences?: unknown[]; not_finite?: unknown }

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
        <Panel title="What was found" aside={job && <span class={`state ${report ? (report.ok ? "done" : "failed") : job.state}`}>{report ? (report.ok ? "nothing differs" : "something differs") : job.state}</span>}>
          <div role="status">
            {!id && <p class="pad faint">Nothing yet. A check runs the model once, kernel by kernel.</p>}
            {live && !report && <p class="pad faint"><span class="spin" aria-hidden="true" /> {job.state === "queued" ? "waiting for the device" : "running and comparing"}</p>}
            {job?.error && <pre class="pad bad">{job.error}</pre>}
            {report?.messages?.map((m) => <p class="pad">{m}</p>)}
          </div>
          {report && (
            <Table caption="Kernels that were checked" rows={report.kernels} columns={[
              { head: "#", cell: (k) => k.kernel, by: (k) => k.kernel, figure: true },
              { head: "kernel", cell: (k) => <a href={link("k", route.name, { kernel: k.kernel, step: job?.about.step ? null : "0" })}>{k.label || k.name}</a>, by: (k) => k.label },
              { head: "phase", cell: (k) => <Phase phase={k.phase} />, by: (k) => k.phase },
              { head: "compared", cell: (k) => count(k.compared), by: (k) => k.compared, figure: true },
              { head: "of the bound", cell: (k) => (k.worst === null ? "–" : k.worst.toFixed(3)), by: (k) => k.worst, figure: true },
              { head: "found", cell: (k) => <span class={`state ${k.ok ? "done" : "failed"}`}>{k.ok ? "agrees" : "differs"}</span>, by: (k) => (k.ok ? 1 : 0) },
              { head: "your lines", cell: (k) => k.lines.map(place).join(", ") },
            ]} />
          )}
        </Panel>
      </div>
    </>
  );
}
