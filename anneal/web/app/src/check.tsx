// /c/MODEL, and /c/ID of a script: every kernel beside its graph, and every value beside the graph as it was written, in float64.
import { useEffect, useState } from "preact/hooks";
import { follow, get, send, type Job, type Line, type Upload } from "./api";
import { count, place } from "./format";
import { modelTools, refresh, remembered, title } from "./models";
import { go, isScript, link, put, type Route } from "./route";
import { isSnapshot } from "./snapshot";
import { Head, Panel, Phase, Table } from "./ui";

interface Checked { launch: number; kernel: number; name: string; label: string; opts: string; phase: string; elements: number; compared: number; tensor_elements: number; unjudged: number; worst: number; ok: boolean; note: string; lines: Line[] }
interface Report { ok: boolean; text: string; kernels: Checked[]; differences: unknown[]; not_finite: { kind: string; result: boolean } | null }
const RANKS = ["failed", "stopped", "done"]; // of a kernel in the table: what does not agree stands first

/** How a kernel came out, as a class and in words: one that nothing could be held against does not agree. */
function found(k: Checked): [string, string] {
  if (!k.ok) return ["failed", "differs"];
  if (k.elements && !k.compared && !k.tensor_elements) return ["stopped", "not compared"];
  return k.unjudged ? ["stopped", `agrees, ${count(k.unjudged)} not judged`] : ["done", "agrees"];
}

const rank = (k: Checked): number => RANKS.indexOf(found(k)[0]);

export function CheckView({ route }: { route: Route }) {
  const id = route.query.get("job");
  const [job, setJob] = useState<Job | null>(null);
  const [report, setReport] = useState<Report | null>(null);
  const [error, setError] = useState("");
  const [said, setSaid] = useState("");
  const script = isScript(route.name);
  const live = job && ["running", "queued", "paused"].includes(job.state);
  useEffect(() => {
    if (script && id && job && !live) get<{ text: string }>(`/api/jobs/${id}/log`).then((x) => setSaid(x.text), () => undefined);
  }, [job?.state]);
  useEffect(() => {
    setJob(null);
    setSaid("");
    setReport(null);
    if (!id) return;
    return follow(id, (lines) => setReport(lines[lines.length - 1] as unknown as Report), setJob);
  }, [id]);
  const start = (e: SubmitEvent) => {
    e.preventDefault();
    setError("");
    const form = new FormData(e.currentTarget as HTMLFormElement);
    const body = { kind: "check", model: route.name, device: form.get("device"), step: form.get("step") === "on", gradients: form.get("gradients") === "on", arguments: form.get("arguments") };
    send<Job>("POST", "/api/jobs", body).then((made) => put({ job: made.id }), (x: Error) => setError(x.message));
  };
  return (
    <>
      <Head title={`Check ${title(route.name)}`} sub="Every kernel beside its graph, and every value beside the graph as it was written, in float64 with a bound on the error.">{modelTools(route, "c")}</Head>
      <div class="training">
        <Panel title="Start a check">
          <form class="pad form" onSubmit={start}>
            <label class="field"><span>Device</span><select name="device"><option value="auto">auto</option><option value="cpu">cpu</option><option value="webgpu">webgpu</option></select></label>
            {!script && <label class="check"><input type="checkbox" name="step" /><span>a whole training step</span></label>}
            {script && route.name.startsWith("upload.") && <label class="field wide"><span>Arguments</span><input name="arguments" defaultValue={(job?.about.arguments as string | undefined) ?? ""} spellcheck={false} /></label>}
            <label class="check"><input type="checkbox" name="gradients" /><span>{script ? "gradients of its backward() too" : "gradients too"}</span></label>
            <button type="submit" class="primary" disabled={!!live}>Check</button>
            {live && <button type="button" onClick={() => send("POST", `/api/jobs/${id}/cancel`).catch((x: Error) => setError(x.message))}>Cancel</button>}
          </form>
          {error && <p class="bad pad" role="alert">{error}</p>}
          {!isSnapshot() && <Scripts refused={(x) => setError(x.message)} />}
        </Panel>
        <Panel title="What was found" aside={job && <span class={`state ${report ? (report.ok ? "done" : "failed") : job.state}`}>{report ? (report.ok ? "nothing differs" : report.not_finite?.result && !report.differences.length ? `${report.not_finite.kind} in a result` : report.differences.length ? "something differs" : "not ok") : job.state}</span>}>
          <div role="status">
            {!id && <p class="pad faint">Nothing yet. A check runs the {script ? "script" : "model"} once, kernel by kernel.</p>}
            {live && !report && <p class="pad faint"><span class="spin" aria-hidden="true" /> {job.state === "queued" ? "waiting for the device" : "running and comparing"}</p>}
            {job?.error && !report && <pre class="pad bad">{job.error}</pre>}
            {report && <pre class={`pad found ${report.ok ? "" : "bad"}`} role={report.ok ? undefined : "alert"}>{report.text}</pre>}
          </div>
          {report && (
            <Table caption="Kernels that were checked" rows={[...report.kernels].sort((a, b) => rank(a) - rank(b))} columns={[
              { head: "#", cell: (k) => k.kernel, by: (k) => k.kernel, figure: true },
              { head: "kernel", cell: (k) => script ? k.label || k.name : <a href={link("k", route.name, { kernel: k.kernel, step: job?.about.step ? null : "0" })}>{k.label || k.name}</a>, by: (k) => k.label },
              { head: "phase", cell: (k) => <Phase phase={k.phase} />, by: (k) => k.phase },
              { head: "compared", cell: (k) => count(k.compared), by: (k) => k.compared, figure: true },
              { head: "of the bound", cell: (k) => (k.worst === null ? "–" : k.worst.toFixed(3)), by: (k) => k.worst, figure: true },
              { head: "found", cell: (k) => <span class={`state ${found(k)[0]}`}>{found(k)[1]}</span>, by: rank },
              { head: "note", cell: (k) => k.note && <span class="amber">{k.note}</span>, by: (k) => k.note },
              { head: "your lines", cell: (k) => k.lines.map(place).join(", ") },
            ]} />
          )}
          {said && <><h3 class="pad">What it printed</h3><pre class="listing output" tabIndex={0}>{said}</pre></>}
        </Panel>
      </div>
    </>
  );
}

// A script to check: one that is there, or a file of the user's.
function Scripts({ refused }: { refused: (error: Error) => void }) {
  const s = remembered();
  const there = [...(s?.jobs.filter((j) => j.kind === "script").map((j) => [`job.${j.id}`, j.model]) ?? []), ...(s?.uploads.filter((u) => u.kind === "py").map((u) => [u.id, u.name]) ?? [])];
  const take = async (file: File | undefined) => {
    if (!file) return;
    try {
      const made = await send<Upload>("POST", "/api/uploads", file, { "x-file-name": encodeURIComponent(file.name) });
      await refresh();
      go(link("c", made.id));
    } catch (e) {
      refused(e as Error);
    }
  };
  return (
    <div class="pad">
      <h3>A script of yours</h3>
      <label>
        <input type="file" class="hidden" accept=".py" onChange={(e) => { void take(e.currentTarget.files?.[0]); e.currentTarget.value = ""; }} />
        <span class="button">Choose a .py file</span>
      </label>
      <p class="faint">It is run as <code>anneal check FILE.py</code> runs it, in the folder where <code>anneal web</code> was started. If it imports modules beside it, start <code>anneal web --script FILE.py</code> and check it from its page.</p>
      <ul class="plain">{there.map(([name, text]) => <li><a href={link("c", name)}>{text}</a></li>)}</ul>
    </div>
  );
}
