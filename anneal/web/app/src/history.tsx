// /r and /r/ID: runs that were kept, and those that go on, to choose from; one of them, or two side by side.
import { useEffect, useMemo, useState } from "preact/hooks";
import { get, send, useAsked, type Job, type Refused, type Run } from "./api";
import { Chart, smoothed, thinned } from "./chart";
import { bytes, big, count, counted, loss, lossOf, when } from "./format";
import { CopyText } from "./kernels";
import { chosen } from "./overlay";
import { go, link, put, type Route } from "./route";
import { Facts, Failed, Head, Live, Panel, Phase, Shown, Table, useInterval, Waiting, Watching } from "./ui";
import { file, isSnapshot } from "./snapshot";
import { Sample } from "./train";

interface Kernel { name: string; label: string; phase: string; flops: number; bytes: number; fused: string[] }
interface Bundle extends Run {
  config: { options: Record<string, unknown>; settings: Record<string, unknown> } | null; schedule: { kernels: Kernel[] } | null;
  losses: [number, number, number][]; events: { event: string; sample?: string; kernels?: number; kernels_unwatched?: number | null; ranks?: Rank[] }[]; vitals: { step: number; lr?: number; norm?: number }[]; picture: boolean; weights?: boolean; python: string;
}

export function HistoryView({ route }: { route: Route }) {
  const other = route.query.get("with");
  const one = useAsked(route.name ? `run ${route.name}` : null, () => get<Bundle>(`/api/runs/${encodeURIComponent(route.name)}`));
  const two = useAsked(other ? `run ${other}` : null, () => get<Bundle>(`/api/runs/${encodeURIComponent(other!)}`));
  useEffect(() => { if (two.value) document.getElementById("run")?.scrollIntoView(); }, [two.value]);
  return (
    <>
      <Head title="History" sub={<>Runs in <code>runs/</code>: those of this page, and of <code>anneal train --bundle</code>.</>} />
      {route.name && <Shown asked={one} what="reading the bundle">{(a) => <Both a={a} b={other ? two.value : null} />}</Shown>}
      <List route={route} />
    </>
  );
}

// Every run that is kept, with the job that wrote it, and those that train now; `text`: where a search looks.
interface Listed { run: Run; job?: string; text: string }

async function listed(): Promise<Listed[]> {
  const [runs, jobs] = await Promise.all([get<Run[]>("/api/runs"), isSnapshot() ? [] : get<Job[]>("/api/jobs")]);
  const live = jobs.filter((j) => j.kind === "train" && j.ended === null).map((j): Run => ({
    id: `job.${j.id}`, model: j.model, status: j.state, begun: new Date(j.created * 1000).toISOString(), ended: "", device: j.device, error: null, command: "", anneal: "", ...j.about,
  }));
  const named = (name: string, v: unknown) => (v === undefined || v === null ? "" : ` ${name}=${v}`);
  const wrote = new Map(jobs.filter((j) => j.run).map((j) => [j.run, `job.${j.id}`]));
  return [...live, ...runs].map((run) => ({ run, job: wrote.get(run.id), text: `${run.id} ${run.model} ${run.begun} ${when(run.begun)} ${run.status} ${run.device ?? ""} ${run.adapter ?? ""} ${run.command}${named("lr", run.lr)}${named("batch", run.batch)}${named("seed", run.seed)}${named("steps", run.steps)}`.toLowerCase() }));
}

const isLive = (r: Run): boolean => r.id.startsWith("job.");

function List({ route }: { route: Route }) {
  const [all, setAll] = useState<Listed[] | null>(null);
  const [error, setError] = useState<Refused | null>(null);
  const load = () => void listed().then((found) => { setAll(found); setError(null); }, setError);
  useEffect(load, []);
  useInterval(load, all?.some(({ run }) => isLive(run)) ? 3000 : null);
  const q = route.query;
  const [status, model, since, until] = ["status", "model", "since", "until"].map((name) => q.get(name) ?? "");
  const find = q.get("find") ?? "";
  const rows = useMemo(() => {
    const words = find.toLowerCase().split(/\s+/).filter(Boolean);
    return (all ?? []).filter(({ run, text }) => {
      const day = localDay(run.begun);
      return (!status || run.status === status) && (!model || run.model === model) && (!since || day >= since) && (!until || day <= until) && words.every((w) => text.includes(w));
    }).map(({ run }) => run);
  }, [all, find, status, model, since, until]);
  const kept = new Map(all?.map(({ run, job }) => [job, run.id]));
  const picked = new Set(chosen(route).map((id) => kept.get(id) ?? id)); // what was chosen as it trained may have ended
  const pick = (ids: Iterable<string>) => put({ runs: [...ids].join(" ") || null }, true);
  const others = rows.filter((r) => !picked.has(r.id));
  if (error) return <Failed error={error} />;
  if (!all) return <Waiting what="reading the runs" />;
  const field = (name: string, label: string, options: string[], none: string) => (
    <label class="field"><span>{label}</span><select value={q.get(name) ?? ""} onChange={(e) => put({ [name]: e.currentTarget.value || null }, true)}><option value="">{none}</option>{options.map((o) => <option>{o}</option>)}</select></label>
  );
  const day = (name: string, label: string) => <label class="field"><span>{label}</span><input type="date" value={q.get(name) ?? ""} onChange={(e) => put({ [name]: e.currentTarget.value || null }, true)} /></label>;
  return (
    <Panel title="All runs" aside={<span class="faint">{rows.length === all.length ? counted(all.length, "run") : `${count(rows.length)} of ${counted(all.length, "run")}`}</span>}>
      <div class="bar inner">
        <label class="field grow"><span>Find</span><input type="search" value={find} placeholder="name, model, date, device or option: mlp 2026-11 lr=0.01" onInput={(e) => put({ find: e.currentTarget.value || null }, true)} /></label>
        {field("model", "Model", [...new Set(all.map(({ run }) => run.model))].sort(), "all")} {day("since", "From")} {day("until", "To")} {field("status", "Ended", ["done", "stopped", "failed", "running"], "in any way")}
      </div>
      <div class="bar inner">
        <button type="button" class="primary" disabled={!picked.size} onClick={() => go(link("o", "", { runs: [...picked].join(" ") }))}>Compare{picked.size ? ` ${counted(picked.size, "run")}` : ""}</button>
        {others.length > 0 && <button type="button" onClick={() => pick([...picked, ...others.map((r) => r.id)])}>{rows.length === all.length ? `Choose all ${count(all.length)}` : `Choose these ${count(rows.length)}`}</button>}
        {picked.size > 0 && <button type="button" class="quiet" onClick={() => pick([])}>Choose none</button>}
        <Live text={`${counted(rows.length, "run")} in the list, ${count(picked.size)} chosen`} />
      </div>
      {rows.length ? (
        <Table caption="Runs" rows={rows} most={100} sort={q.get("sort") ?? ""} onSort={(sort) => put({ sort }, true)} selected={(r) => r.id === route.name} columns={[
          { head: "choose", cell: (r) => <label class="check pick"><input type="checkbox" aria-label={`choose ${r.model} of ${when(r.begun)}, ${r.id}`} checked={picked.has(r.id)} onChange={(e) => pick(e.currentTarget.checked ? [...picked, r.id] : [...picked].filter((id) => id !== r.id))} /></label> },
          { head: "run", cell: (r) => <a class="strong" href={isLive(r) ? link("t", r.model, { job: r.id.slice(4) }) : link("r", r.id, { ...Object.fromEntries(q), with: null })}>{r.model}</a>, by: (r) => r.model },
          { head: "begun", cell: (r) => when(r.begun), by: (r) => r.begun },
          { head: "ended", cell: (r) => <span class={`state ${r.status}`}>{r.status}</span>, by: (r) => r.status },
          { head: "steps", cell: (r) => isLive(r) ? "–" : count(r.steps_done ?? 0), by: (r) => r.steps_done ?? 0, figure: true },
          { head: "loss", cell: (r) => loss(r.final_loss), by: (r) => r.final_loss ?? Infinity, figure: true },
          { head: "device", cell: (r) => r.device ?? "–", by: (r) => r.device ?? "" },
          { head: "command", cell: (r) => <code>{r.command}</code>, class: "clip" },
          { head: "compare", cell: (r) => route.name && r.id !== route.name && !isLive(r) ? <a href={link("r", route.name, { ...Object.fromEntries(q), with: r.id })} aria-label={`compare with ${r.model} of ${when(r.begun)}`}>beside</a> : "" },
        ]} />
      ) : <p class="pad faint">{all.length ? "No run is like that." : "There is none yet."}</p>}
    </Panel>
  );
}

// A moment's day here, as a field of dates has it.
function localDay(moment: string): string {
  const d = new Date(moment);
  return Number.isNaN(d.getTime()) ? "" : `${d.getFullYear()}-${String(d.getMonth() + 1).padStart(2, "0")}-${String(d.getDate()).padStart(2, "0")}`;
}

function Both({ a, b }: { a: Bundle; b: Bundle | null }) {
  const [error, setError] = useState("");
  const again = (weights: boolean) => send<Job>("POST", `/api/runs/${a.id}/again`, { weights }).then((j) => go(link("t", j.model, { job: j.id })), (e: Error) => setError(e.message));
  const runs = b ? [a, b] : [a];
  const curves = useMemo(() => {
    const steps = [...new Set(runs.flatMap((r) => r.losses.map((l) => l[0])))].sort((x, y) => x - y);
    const x = thinned(steps.length, 1200).map((i) => steps[i]!);
    return { x, series: runs.map((r, i) => {
      const smooth = smoothed(r.losses.map((l) => l[1]));
      const at = new Map(r.losses.map((l, j) => [l[0], smooth[j]!]));
      return { label: b ? `${r.model} ${when(r.begun)}` : "loss, smoothed", values: x.map((s) => at.get(s) ?? null), colour: i ? "--ember" : "--teal" };
    }) };
  }, [a, b]);
  const sample = (r: Bundle) => r.events.find((e) => e.event === "done")?.sample;
  return (
    <>
      <Panel title={b ? `${a.model} beside ${b.model}` : a.model} id="run" aside={b && <a class="quiet" href={link("r", a.id)}>this one alone</a>}>
        <div class="pad">
          <Chart title="Loss" x={curves.x} xLabel="step" series={curves.series} height={220} />
          <div class={b ? "two" : ""}>
            {runs.map((r) => (
              <div>
                {b && <h3>{r.model}, {when(r.begun)}</h3>}
                <Facts rows={[["ended", <span class={`state ${r.status}`}>{r.status}</span>], ["steps", `${count(r.steps_done ?? 0)} of ${count(r.steps ?? 0)}`], ["loss", lossOf(r.final_loss, r.losses.length)], ["batch", r.batch ?? "–"], ["learning rate", r.lr ?? "–"], ["seed", r.seed ?? "–"], ["device", r.adapter ?? r.device ?? "–"], ["parameters", count(r.params ?? 0)], ["anneal", r.anneal], ["kernels", r.schedule ? count(r.schedule.kernels.length) : "–"]]} />
                <Watching done={r.events.find((e) => e.event === "done")} />
                <Ranks run={r} />
                {r.error && <pre class="bad">{r.error}</pre>}
                <p class="command"><code>{r.command}</code> <CopyText text={r.command} /></p>
              </div>
            ))}
          </div>
          {b && <Differences a={a} b={b} />}
          {!b && (
            <div class="buttons">
              <button type="button" class="primary" onClick={() => again(false)}>Re-run</button>
              {a.weights && <button type="button" onClick={() => again(true)}>Continue from its weights</button>}
              <a class="button" href={link("t", a.model, { steps: a.steps ?? null, batch: a.batch ?? null, lr: a.lr ?? null, seed: a.seed ?? null })}>With other options</a>
              <a class="button" href={link("v", a.model)}>Its graph</a>
            </div>
          )}
          {error && <p class="bad" role="alert">{error}</p>}
          {!b && sample(a) !== undefined && <Sample done={{ sample: sample(a)! }} picture={a.picture ? file(`/api/runs/${a.id}/picture`) : null} />}
        </div>
      </Panel>
      {a.schedule && <Panel title={b ? "Kernels of both" : "Kernels"}><Schedules runs={runs} /></Panel>}
    </>
  );
}

interface Rank { median_ms: number; waiting: number; sent_bytes: number }

// The processes that trained together, as the run told last.
function Ranks({ run }: { run: Bundle }) {
  const last = run.events.filter((e) => e.ranks).at(-1)?.ranks;
  return last ? <Table caption="Processes" rows={last.map((r, n) => ({ ...r, n }))} columns={[
    { head: "rank", cell: (r) => r.n, figure: true }, { head: "a step", cell: (r) => `${r.median_ms.toFixed(1)} ms`, figure: true },
    { head: "waiting", cell: (r) => `${(r.waiting * 100).toFixed(1)} %`, figure: true }, { head: "sent in a step", cell: (r) => bytes(r.sent_bytes), figure: true },
  ]} /> : null;
}

function Differences({ a, b }: { a: Bundle; b: Bundle }) {
  const flat = (r: Bundle) => ({ ...(r.config?.options ?? {}), ...(r.config?.settings ?? {}) }) as Record<string, unknown>;
  const [x, y] = [flat(a), flat(b)];
  const names = [...new Set([...Object.keys(x), ...Object.keys(y)])].filter((k) => JSON.stringify(x[k]) !== JSON.stringify(y[k]) && !["save", "picture"].includes(k));
  return (
    <>
      <h3>What differs</h3>
      {names.length ? <Table caption="Options that differ" rows={names} columns={[{ head: "option", cell: (n) => <code>{n}</code> }, { head: "first", cell: (n) => JSON.stringify(x[n] ?? null) }, { head: "second", cell: (n) => JSON.stringify(y[n] ?? null) }]} /> : <p class="faint">No option: they differ by chance, device or version alone.</p>}
    </>
  );
}

function Schedules({ runs }: { runs: Bundle[] }) {
  const sets = runs.map((r) => new Set(r.schedule?.kernels.map((k) => k.name)));
  const rows = runs.flatMap((r, i) => (r.schedule?.kernels ?? []).filter((k) => i === 0 || !sets[0]!.has(k.name)).map((k) => ({ k, i })));
  return (
    <Table caption="Kernels of the runs" rows={rows} most={40} columns={[
      { head: "kernel", cell: (r) => r.k.label || r.k.name, by: (r) => r.k.label }, { head: "phase", cell: (r) => <Phase phase={r.k.phase} />, by: (r) => r.k.phase },
      ...(runs.length > 1 ? [{ head: "in", cell: (r: { k: Kernel }) => sets.map((s) => s.has(r.k.name)).every(Boolean) ? "both" : sets[0]!.has(r.k.name) ? "the first" : "the second" }] : []),
      { head: "FLOP", cell: (r) => big(r.k.flops), by: (r) => r.k.flops, figure: true }, { head: "bytes", cell: (r) => bytes(r.k.bytes), by: (r) => r.k.bytes, figure: true },
    ]} />
  );
}
