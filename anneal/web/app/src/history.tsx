// /r and /r/ID: runs that were kept; one of them, or two side by side.
import { useEffect, useMemo, useState } from "preact/hooks";
import { get, send, useAsked, type Job, type Run } from "./api";
import { Chart, smoothed, thinned } from "./chart";
import { bytes, big, count, loss, lossOf, when } from "./format";
import { CopyText } from "./kernels";
import { go, link, put, type Route } from "./route";
import { Facts, Head, Panel, Phase, Shown, Table, Watching } from "./ui";
import { file } from "./snapshot";
import { Sample } from "./train";

interface Kernel { name: string; label: string; phase: string; flops: number; bytes: number; fused: string[] }
interface Bundle extends Run {
  config: { options: Record<string, unknown>; settings: Record<string, unknown> } | null; schedule: { kernels: Kernel[] } | null;
  losses: [number, number, number][]; events: { event: string; sample?: string; kernels?: number; kernels_unwatched?: number | null }[]; vitals: { step: number; lr?: number; norm?: number }[]; picture: boolean; weights?: boolean; python: string;
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

function List({ route }: { route: Route }) {
  const runs = useAsked("runs", () => get<Run[]>("/api/runs"));
  const q = route.query;
  const find = (q.get("find") ?? "").toLowerCase();
  const status = q.get("status") ?? "";
  return (
    <Panel title="All runs">
      <div class="bar inner">
        <label class="field grow"><span>Find</span><input type="search" value={q.get("find") ?? ""} placeholder="model, device or command" onInput={(e) => put({ find: e.currentTarget.value || null }, true)} /></label>
        <label class="field"><span>Ended</span><select value={status} onChange={(e) => put({ status: e.currentTarget.value || null }, true)}><option value="">in any way</option><option>done</option><option>stopped</option><option>failed</option></select></label>
      </div>
      <Shown asked={runs} what="reading the runs">
        {(all) => {
          const rows = all.filter((r) => (!status || r.status === status) && `${r.model} ${r.device ?? ""} ${r.adapter ?? ""} ${r.command}`.toLowerCase().includes(find));
          return rows.length ? (
            <Table caption="Runs" rows={rows} most={100} sort={q.get("sort") ?? ""} onSort={(sort) => put({ sort }, true)} selected={(r) => r.id === route.name} columns={[
              { head: "run", cell: (r) => <a class="strong" href={link("r", r.id, { ...Object.fromEntries(q), with: null })}>{r.model}</a>, by: (r) => r.model },
              { head: "begun", cell: (r) => when(r.begun), by: (r) => r.begun },
              { head: "ended", cell: (r) => <span class={`state ${r.status}`}>{r.status}</span>, by: (r) => r.status },
              { head: "steps", cell: (r) => count(r.steps_done ?? 0), by: (r) => r.steps_done ?? 0, figure: true },
              { head: "loss", cell: (r) => loss(r.final_loss), by: (r) => r.final_loss ?? Infinity, figure: true },
              { head: "device", cell: (r) => r.device ?? "–", by: (r) => r.device ?? "" },
              { head: "command", cell: (r) => <code>{r.command}</code>, class: "clip" },
              { head: "compare", cell: (r) => route.name && r.id !== route.name ? <a href={link("r", route.name, { ...Object.fromEntries(q), with: r.id })} aria-label={`compare with ${r.model} of ${when(r.begun)}`}>beside</a> : "" },
            ]} />
          ) : <p class="pad faint">{all.length ? "No run is like that." : "There is none yet."}</p>;
        }}
      </Shown>
    </Panel>
  );
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
