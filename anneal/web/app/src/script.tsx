// /s/NAME: every plan that a script runs, as it runs, with what it prints and how it ends; or a recording that was dropped.
import { useEffect, useState } from "preact/hooks";
import { follow, get, send, useAsked, type Job, type Times } from "./api";
import { count, counted, place, time, when } from "./format";
import { remembered, title } from "./models";
import { go, link, type Route } from "./route";
import { Facts, Head, Live, Panel, Reasons, Shown, Table, Took, useInterval } from "./ui";

interface Plan { number: number; device: string; adapter: string | null; nodes: number; kernels: number; distinct: number; line: string; seconds: number | null; runs: number; times?: Times | null; looked?: boolean }
interface Recording { name: string; anneal: string; python: string; begun: number; ended: number; error: string; left_out: number; plans: Plan[] }

export function ScriptView({ route }: { route: Route }) {
  if (!route.name) return <AllOfThem />;
  return route.name.startsWith("job.") ? <Running route={route} id={route.name.slice(4)} /> : <Dropped route={route} />;
}

function AllOfThem() {
  const s = remembered();
  const jobs = s?.jobs.filter((j) => j.kind === "script") ?? [];
  const files = s?.uploads.filter((u) => u.kind === "recording") ?? [];
  return (
    <>
      <Head title="Scripts" sub="Every plan that a program of yours runs: its graph, its kernels, your lines, the times." />
      <Panel title="How to see one">
        <div class="pad">
          <p><code>anneal web --script FILE.py</code> runs a program and opens this page on it.</p>
          <p><code>anneal record FILE.py -o FILE.zip</code> writes what it ran to a file that can be dropped on the first page; so does a program itself:</p>
          <pre class="listing" tabIndex={0}>{"with anneal.inspect.recording() as r:\n    step()\nr.save(\"step.zip\")"}</pre>
        </div>
      </Panel>
      {jobs.length + files.length > 0 && (
        <Panel title="Those that there are">
          <ul class="jobs">
            {jobs.map((j) => <li><span class={`state ${j.state}`}>{j.state}</span> <a href={link("s", `job.${j.id}`)}>{j.model}</a> <span class="faint">{when(j.created)}</span></li>)}
            {files.map((u) => <li><a href={link("s", u.id)}>{u.name}</a></li>)}
          </ul>
        </Panel>
      )}
    </>
  );
}

function Dropped({ route }: { route: Route }) {
  const found = useAsked(`recording ${route.name}`, () => get<Recording>(`/api/ask/recording?${new URLSearchParams({ model: route.name })}`));
  return (
    <Shown asked={found} what="reading the recording">
      {(r) => (
        <>
          <Head title={r.name || title(route.name)} sub={`${counted(r.plans.length, "plan")}, recorded ${when(r.begun)} by anneal ${r.anneal} in ${time(r.ended - r.begun)}.`} />
          {r.error && <Exception text={r.error} />}
          <Plans plans={r.plans} name={route.name} left={r.left_out} />
        </>
      )}
    </Shown>
  );
}

function Running({ route, id }: { route: Route; id: string }) {
  const [job, setJob] = useState<Job | null>(null);
  const [plans, setPlans] = useState<Plan[]>([]);
  const [done, setDone] = useState<Recording | null>(null);
  const [said, setSaid] = useState("");
  const [error, setError] = useState("");
  useEffect(() => follow(id, (events) => {
    const fresh = events.filter((e) => e.event === "plan") as unknown as Plan[];
    if (fresh.length) setPlans((p) => { const now = [...p]; for (const f of fresh) now[f.number] = f; return now; });
    const end = events.find((e) => e.event === "done");
    if (end) setDone(end as unknown as Recording);
  }, setJob), [id]);
  const live = !!job && ["queued", "running", "paused"].includes(job.state);
  const look = () => get<{ text: string }>(`/api/jobs/${id}/log`).then((x) => setSaid(x.text), () => undefined);
  useEffect(() => void look(), [id, job?.state]);
  useInterval(() => void look(), live ? 1000 : null);
  const act = (what: string) => send<Job>("POST", `/api/jobs/${id}/${what}`).then((j) => { setError(""); if (what === "again") go(link("s", `job.${j.id}`)); }, (e: Error) => setError(e.message));
  const words = (job?.about.arguments as string[] | undefined) ?? [];
  return (
    <>
      <Head title={job?.model ?? title(route.name)} sub="Every plan that the script runs, in the order of their first runs.">
        <div class="buttons">
          {live && <button type="button" onClick={() => act("stop")}>Stop</button>}
          {live && job.state !== "queued" && <button type="button" class="quiet" onClick={() => act("cancel")}>Kill</button>}
          {job && !live && <button type="button" class="primary" onClick={() => act("again")}>Run it again</button>}
          {job?.kind === "script" && <a class="button" href={link("c", route.name)}>Check</a>}
        </div>
      </Head>
      {error && <p class="bad" role="alert">{error}</p>}
      <Live text={job ? `The script is ${job.state}, ${counted(plans.length, "plan")}.` : ""} />
      {done?.error ? <Exception text={done.error} /> : job?.error && <Exception text={job.error} />}
      <Plans plans={done?.plans ?? plans} name={route.name} left={done?.left_out ?? 0} state={job?.state} />
      <div class="two">
        <Panel title="Output" aside={<span class="faint">what it printed</span>}>
          <pre class="listing output" tabIndex={0}>{said || (live ? "nothing yet" : "nothing")}</pre>
        </Panel>
        <Panel title="Run">
          <div class="pad">
            <Facts rows={[["script", <code class="wrap">{String(job?.about.script ?? "–")}</code>], ...(words.length ? [["arguments", words.join(" ")] as [string, string]] : []), ["device", job?.device ?? "–"], ["begun", job?.started ? when(job.started) : "–"], ...(job?.started && job.ended ? [["took", time(job.ended - job.started)] as [string, string]] : [])]} />
          </div>
        </Panel>
      </div>
    </>
  );
}

function Exception({ text }: { text: string }) {
  return <div class="failed" role="alert"><h2>The script raised an exception</h2><pre>{text}</pre></div>;
}

function Plans({ plans, name, left, state }: { plans: Plan[]; name: string; left: number; state?: string }) {
  const line = (p: Plan) => { const at = p.line.lastIndexOf(":"); return at < 0 ? "–" : place({ file: p.line.slice(0, at), line: Number(p.line.slice(at + 1)) }); };
  const to = (p: Plan, view: string, text: string | number, kind = "", label?: string) => p.looked === false ? <>{text}</> : <a class={kind} href={link(view, name, { plan: p.number })} aria-label={label}>{text}</a>;
  const said = plans.filter((p) => p.runs > 1 && p.times?.reasons.length).sort((a, b) => (b.times!.total ?? 0) - (a.times!.total ?? 0)).slice(0, 5);
  return (
    <Panel title="Plans" aside={state && <span class={`state ${state}`}>{state}</span>}>
      {plans.length ? (
        <Table caption="Plans that were run" rows={plans} most={100} columns={[
          { head: "plan", cell: (p) => to(p, "v", p.number, "strong"), by: (p) => p.number, figure: true },
          { head: "your line", cell: (p) => line(p), by: (p) => p.line },
          { head: "runs", cell: (p) => count(p.runs), by: (p) => p.runs, figure: true },
          { head: "a run", cell: (p) => (p.times ? <Took of={p.times.run} /> : p.seconds === null ? "–" : time(p.seconds)), by: (p) => p.seconds ?? 0, figure: true },
          { head: "its kernels", cell: (p) => <Took of={p.times?.kernels} />, by: (p) => p.times?.kernels?.median ?? 0, figure: true },
          { head: "Python", cell: (p) => <Took of={p.times?.python} />, by: (p) => p.times?.python?.median ?? 0, figure: true },
          { head: "a step", cell: (p) => <Took of={p.times?.step} />, by: (p) => p.times?.step?.median ?? 0, figure: true },
          { head: "all runs", cell: (p) => (p.times?.total == null ? "–" : time(p.times.total)), by: (p) => p.times?.total ?? 0, figure: true },
          { head: "kernels", cell: (p) => to(p, "k", count(p.kernels), "", `${counted(p.kernels, "kernel")} of plan ${p.number}`), by: (p) => p.kernels, figure: true },
          { head: "nodes", cell: (p) => to(p, "v", count(p.nodes), "", `${p.nodes} nodes of plan ${p.number}`), by: (p) => p.nodes, figure: true },
          { head: "device", cell: (p) => p.adapter ?? p.device },
        ]} />
      ) : <p class="pad faint">{state === "running" ? "It has run nothing yet." : state === "queued" ? "Another job has the device; this one waits." : "It ran no plan."}</p>}
      {plans.some((p) => p.times) && <p class="pad faint">Times were measured while the program ran: medians, and where half of them are. A step is from one run of a plan to its next, with the Python between them. Plans are looked at when the program has ended, or now and then when it takes long.</p>}
      {said.map((p) => <div class="pad"><h3>Plan {p.number}, {line(p)}: why its times do not agree</h3><Reasons of={p.times!.reasons} /></div>)}
      {left > 0 && <p class="pad faint">{counted(left, "run")} of further plans {left === 1 ? "was" : "were"} not kept.</p>}
    </Panel>
  );
}
