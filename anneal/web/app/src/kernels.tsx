// /k/MODEL: the kernels of a model, their text line by line, why neighbours are two, memory and time.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask, follow, send, useAsked, type Event, type Job, type Kernel, type KernelText, type Kernels, type TextLine, type TimeReport, type Times } from "./api";
import { Chart } from "./chart";
import { big, bytes, count, counted, place, time } from "./format";
import { modelTools, title } from "./models";
import { isRecording, kept, link, put, type Route } from "./route";
import { isSnapshot } from "./snapshot";
import { Facts, Head, hung, Name, Panel, Phase, Reasons, Shown, Table, Tabs, Took, UserLine } from "./ui";
import { Wgsl } from "./wgsl";

type About = { model: string; step: boolean; device: string | null; plan: string | null };

export function KernelsView({ route }: { route: Route }) {
  const q = route.query;
  const about: About = { model: route.name, step: q.get("step") !== "0", device: q.get("device"), plan: q.get("plan") };
  const found = useAsked(`kernels ${JSON.stringify(about)}`, () => ask<Kernels>("kernels", about));
  return (
    <>
      <Head title={title(route.name)} sub={found.value ? totals(found.value) : "The fused kernels, and where each of their lines comes from."}>
        {modelTools(route, "k")}
      </Head>
      <Shown asked={found} what={`planning ${title(route.name)}`}>{(k) => <Whole all={k} route={route} about={about} />}</Shown>
    </>
  );
}

function totals(k: Kernels): string {
  const names = new Set(k.kernels.map((x) => x.name));
  const sum = (f: (x: Kernel) => number) => k.kernels.reduce((a, x) => a + f(x), 0);
  return `${counted(k.kernels.length, "kernel")}, ${names.size} distinct; ${big(sum((x) => x.flops))}FLOP and ${bytes(sum((x) => x.bytes))} a run.`;
}

function Whole({ all, route, about }: { all: Kernels; route: Route; about: About }) {
  const q = route.query;
  const number = q.get("kernel") === null ? 0 : Math.min(Number(q.get("kernel")) || 0, all.kernels.length - 1);
  const view = q.get("as") ?? "list";
  const [measured, job, start] = useTimes(route);
  const [here, there] = [about.device === "cpu" ? "cpu" : "webgpu", measured?.device];
  useEffect(() => { // times are of the kernels that ran: where there is no GPU those are the cpu's
    if (there && there !== here && !isRecording(route.name)) put({ device: there === "cpu" ? "cpu" : null }, true);
  }, [there, here]);
  const timed = there === here ? measured : all.times ?? null;
  const trace = job?.state === "done" ? `/api/jobs/${job.id}/trace` : all.times ? `/api/ask/trace?${new URLSearchParams({ model: route.name, plan: about.plan ?? "0" })}` : null;
  if (!all.kernels.length) return <p class="pad">Nothing is computed here: the plan has no kernel.</p>;
  const phase = q.get("phase") ?? "";
  const find = (q.get("find") ?? "").toLowerCase();
  const rows = all.kernels.map((k, n) => ({ k, n })).filter(({ k }) => (!phase || k.phase === phase) && (!find || `${k.label} ${k.name} ${k.lines.map(place).join(" ")}`.toLowerCase().includes(find)));
  return (
    <>
      <div class="bar">
        <Tabs label="Shown as" value={view} options={[["list", "Kernels"], ["memory", "Memory"], ["roofline", "Roofline"]]} onChange={(v) => put({ as: v === "list" ? null : v })} />
        <label class="field"><span>Only</span>
          <select value={phase} onChange={(e) => put({ phase: e.currentTarget.value || null }, true)}>
            <option value="">every phase</option><option>forward</option><option>backward</option><option>update</option>
          </select>
        </label>
        <label class="field grow"><span>Find</span><input type="search" value={q.get("find") ?? ""} placeholder="module, function or file:line" onInput={(e) => put({ find: e.currentTarget.value || null }, true)} /></label>
        <TimeButton job={job} start={isRecording(route.name) || isSnapshot() ? null : () => start(about)} timed={timed} trace={trace} />
      </div>
      {timed?.times && <Whence of={timed.times} />}
      {view === "memory" && <MemoryOf all={all} number={number} />}
      {view === "roofline" && <Roofline all={all} timed={timed} number={number} />}
      <div class="kernels">
        <Panel title={`Launches in order`} class="list" aside={<span class="faint">{count(rows.length)}</span>}>
          <Table caption="Kernels in the order of their launches" rows={rows} most={120} selected={(r) => r.n === number} sort={q.get("sort") ?? ""} onSort={(sort) => put({ sort }, true)} columns={[
            { head: "#", cell: (r) => r.n, by: (r) => r.n, figure: true },
            { head: "kernel", cell: (r) => <a href={link("k", route.name, { ...Object.fromEntries(q), kernel: r.n, line: null })} class="strong"><Name text={r.k.label || r.k.name} /></a>, by: (r) => r.k.label },
            { head: "phase", cell: (r) => <Phase phase={r.k.phase} />, by: (r) => r.k.phase },
            ...(timed ? [{ head: "time", cell: (r: Row) => time(timed.kernels[r.n]?.seconds ?? 0), by: (r: Row) => timed.kernels[r.n]?.seconds ?? 0, figure: true }] : []),
            { head: "FLOP", cell: (r) => big(r.k.flops), by: (r) => r.k.flops, figure: true },
            { head: "bytes", cell: (r) => bytes(r.k.bytes), by: (r) => r.k.bytes, figure: true },
          ]} />
        </Panel>
        <One all={all} number={number} route={route} about={about} timed={timed} key={number} />
      </div>
    </>
  );
}
type Row = { k: Kernel; n: number };

function TimeButton(props: { job: Job | null; start: (() => void) | null; timed: TimeReport | null; trace: string | null }) {
  const { job, timed } = props;
  const busy = job && ["queued", "running"].includes(job.state);
  return (
    <span class="timing">
      {props.start && <button type="button" class="primary" onClick={props.start} disabled={!!busy}>{busy ? (job.state === "queued" ? "waiting for the device" : "measuring") : timed ? "Measure again" : "Measure times"}</button>}
      {timed && timed.plan_seconds !== null && <span class="faint">{time(timed.plan_seconds)} a run on {timed.adapter ?? timed.device}</span>}
      {timed && props.trace && <a class="quiet" href={props.trace} download="anneal-trace.json">trace for Perfetto</a>}
      {job?.state === "failed" && <span class="bad" role="alert">{job.error.split("\n").pop()}</span>}
    </span>
  );
}

// What the times are of, and why they do not add up where they do not.
function Whence({ of }: { of: Times }) {
  return (
    <div class="pad whence">
      <p class="faint">
        {of.kernels && <>All kernels <Took of={of.kernels} />, in {count(of.kernels.count)} of {counted(of.runs, "run")}. </>}
        {of.run && <>A run <Took of={of.run} />. </>}
        {of.step && of.python && <>Python between runs <Took of={of.python} />; a step <Took of={of.step} />.</>}
      </p>
      {of.parts && Object.keys(of.parts).length > 0 && <Facts rows={Object.entries(of.parts).map(([name, part]): [string, string] => [name, `${(100 * part).toFixed(0)} % of a step`])} />}
      <Reasons of={of.reasons} />
    </div>
  );
}

// The times of the kernels, measured in a job whose id is in the address.
function useTimes(route: Route): [TimeReport | null, Job | null, (about: About) => void] {
  const id = route.query.get("time");
  const [timed, setTimed] = useState<TimeReport | null>(null);
  const [job, setJob] = useState<Job | null>(null);
  useEffect(() => {
    setTimed(null);
    setJob(null);
    if (!id) return;
    let lines: Event[] = [];
    return follow(id, (some) => { lines = lines.concat(some); const last = lines[lines.length - 1] as unknown as TimeReport; if (last?.kernels) setTimed(last); }, setJob);
  }, [id]);
  const start = (about: About) => {
    const wanted = { kind: "time", model: about.model, step: about.step, device: about.device ?? "auto" };
    send<Job>("POST", "/api/jobs", wanted).then((made) => put({ time: made.id }, true), (e: Error) => setJob({ state: "failed", error: e.message } as Job));
  };
  return [timed, job, start];
}

function One({ all, number, route, about, timed }: { all: Kernels; number: number; route: Route; about: About; timed: TimeReport | null }) {
  const k = all.kernels[number]!;
  const parts = { ...about, kernel: number };
  const text = useAsked(`kernel ${JSON.stringify(parts)}`, () => ask<KernelText>("kernel", parts));
  const t = timed?.kernels[number];
  const refusals = all.refusals.filter((r) => r.writer === number || r.reader === number);
  const q = kept(route);
  return (
    <div class="one">
      <Panel title={`Kernel ${number}`} id="kernel" aside={<span class="quiet mono">{k.name}</span>}>
        <div class="pad">
          <p class="lead">{k.label}</p>
          <p><span class="gold">fused</span> {k.fused.join(" + ")}</p>
          <Facts rows={[
            ["phase", <Phase phase={k.phase} />], ["FLOP", big(k.flops)], ["bytes", bytes(k.bytes)], ["FLOP a byte", (k.flops / Math.max(1, k.bytes)).toFixed(2)],
            ...(t ? [["time", `${time(t.seconds)}${t.low !== undefined && t.high !== undefined ? `, half of its times ${time(t.low)} to ${time(t.high)}` : ""}, ${(t.share * 100).toFixed(1)} %`], ["reached", `${big(t.gflops * 1e9)}FLOP/s, ${big(t.gbs * 1e9)}B/s`]] as [string, string][] : []),
            ...(text.value?.launch ? [["launch", `${count(text.value.launch.workgroups)} × ${text.value.launch.threads} threads`], ["opts", <code class="wrap">{t?.opts ?? text.value.launch.opts ?? "none"}</code>]] as [string, preact.ComponentChildren][] : []),
          ]} />
          <Boundary k={k} n={number} route={route} />
          {refusals.length > 0 && (
            <>
              <h3>Why its neighbours are kernels of their own</h3>
              <ul class="refusals">
                {refusals.map((r) => {
                  const other = r.writer === number ? r.reader : r.writer;
                  return <li><a href={link("k", route.name, { ...Object.fromEntries(route.query), kernel: other, line: null })}>kernel {other}</a> <span class="faint">{all.kernels[other]?.label}</span><br />{r.reason}</li>;
                })}
              </ul>
            </>
          )}
          <p class="links">
            {!isRecording(route.name) && <a href={link("v", route.name, { ...q, kernel: number, pass: "linearise" })}>Its passes</a>}
            {k.nodes[0] !== undefined && <> <a href={link("v", route.name, { ...q, node: k.nodes[0] })}>Its result in the graph</a></>}
          </p>
        </div>
      </Panel>
      <Shown asked={text} what="writing the kernel, and noting where each line comes from">
        {(found) => found.text ? <Text lines={found.text.lines} route={route} about={about} /> : <p class="pad faint">{found.error}</p>}
      </Shown>
    </div>
  );
}

function Boundary({ k, n, route }: { k: Kernel; n: number; route: Route }) {
  const from = (kernel: number | null) => kernel !== null && <span class="from"> from <a href={link("k", route.name, { ...Object.fromEntries(route.query), kernel, line: null })}>kernel {kernel}</a></span>;
  const memory = (b: { buffer: string; dtype: string; size: number }) => <><code>{b.buffer}</code>: {b.dtype}[{b.size}]</>;
  return (
    <div class="boundary">
      <div><h3>Reads</h3><ul class="plain">{k.reads.map((b) => <li>{b.kernel === null && "input "}{memory(b)}{from(b.kernel)}</li>)}</ul></div>
      <div><h3>Writes</h3><ul class="plain">{k.writes.map((b) => <li>{memory(b)} <span class="faint">{b.kind === "output" ? "result" : b.kind === "temp" ? "temporary" : b.kind}</span></li>)}</ul></div>
      <span class="hidden">Boundary of kernel {n}</span>
    </div>
  );
}

function Text({ lines, route, about }: { lines: TextLine[]; route: Route; about: About }) {
  const q = route.query;
  const chosen = Number(q.get("line")) || 0;
  const node = q.get("node") === null ? null : Number(q.get("node"));
  const list = useRef<HTMLOListElement>(null);
  const line = lines.find((l) => l.number === chosen);
  const keys = (e: KeyboardEvent) => {
    const by = e.key === "ArrowDown" ? 1 : e.key === "ArrowUp" ? -1 : 0;
    if (!by) return;
    e.preventDefault();
    const buttons = [...list.current!.querySelectorAll<HTMLElement>("button")];
    const at = buttons.indexOf(document.activeElement as HTMLElement);
    buttons[Math.max(0, Math.min(buttons.length - 1, at + by))]?.focus();
  };
  useEffect(() => {
    const at = list.current?.querySelector<HTMLElement>("[aria-pressed=true]")?.parentElement;
    if (at) list.current!.scrollTop = at.offsetTop - list.current!.offsetTop - 120; // scrollIntoView would move the page, too
  }, []);
  const first = lines.find((l) => l.number === chosen) ? chosen : lines.find((l) => l.ops.length)?.number ?? 1;
  return (
    <Panel title="WGSL" aside={<CopyText text={lines.map((l) => l.text).join("\n")} />} class="wgsl">
      <div class="split">
        <ol class="code" ref={list} onKeyDown={keys} aria-label="Lines of the kernel; select one to see where it comes from">
          {lines.map((l) => (
            <li>
              <button type="button" tabIndex={l.number === first ? 0 : -1} aria-pressed={l.number === chosen} class={`${l.nodes.length || l.ops.length ? "known" : ""} ${node !== null && l.nodes.includes(node) ? "near" : ""}`}
                onClick={() => put({ line: l.number === chosen ? null : l.number }, true)}>
                <span class="number" aria-hidden="true">{l.number}</span>
                <code class="hung" style={hung(l.text)}><Wgsl text={l.text || " "} /></code>
              </button>
            </li>
          ))}
        </ol>
        <div class="origin" aria-live="polite">
          {line ? <Origin line={line} route={route} about={about} /> : <p class="faint">Select a line: here stands what it computes, the rules that made that, and the line of your program that it comes from.</p>}
        </div>
      </div>
    </Panel>
  );
}

function Origin({ line, route, about }: { line: TextLine; route: Route; about: About }) {
  const q = kept(route);
  return (
    <>
      <h3>Line {line.number}</h3>
      {line.ops.length ? <p class="opsline">{line.ops.join(" · ")}</p> : <p class="faint">A declaration or a bracket: it computes nothing.</p>}
      {line.modules.length > 0 && <p>of <b>{line.modules.join(", ")}</b></p>}
      {line.lines.map((l) => <UserLine line={l} model={about.model} step={about.step} key={`${l.file}:${l.line}`} />)}
      {line.nodes.length > 0 && <><h4>Nodes of the graph</h4><p class="chipsline">{line.nodes.slice(0, 16).map((n) => <a class="chip" href={link("v", route.name, { ...q, node: n })}>%{n}</a>)}{line.nodes.length > 16 && <span class="faint"> and {line.nodes.length - 16} more</span>}</p></>}
      {line.rules.length > 0 && (
        <>
          <h4>Rules, the last one first</h4>
          <ul class="rules">{line.rules.slice(0, 12).map((r) => <li><code>{r.rule}</code><span class="faint">{r.place} in {r.pass_name || "building the graph"}</span></li>)}</ul>
        </>
      )}
    </>
  );
}

export function CopyText({ text }: { text: string }) {
  const [done, set] = useState(false);
  return <button type="button" class="quiet" onClick={() => navigator.clipboard?.writeText(text).then(() => { set(true); setTimeout(() => set(false), 1500); })}>{done ? "copied" : "Copy"}</button>;
}

function MemoryOf({ all, number }: { all: Kernels; number: number }) {
  const m = all.memory;
  const peak = m.live.reduce((a, b) => Math.max(a, b), 0);
  const x = useMemo(() => m.live.map((_, i) => i), [m]);
  const there = m.lives.filter((l) => l.first <= number && number <= l.last).sort((a, b) => b.bytes - a.bytes);
  return (
    <Panel title="Memory over the launches" aside={<span class="faint">peak {bytes(peak)} beside {bytes(m.given)} given; temporaries share {bytes(m.temporary)}</span>}>
      <div class="pad">
        <Chart title="Bytes of temporaries and results" x={x} xLabel="launch" series={[{ label: "needed", values: m.live, colour: "--teal", fill: true, stepped: true }]} format={bytes} mark={number} select={(i) => put({ kernel: i })} height={170} />
        <h3>There while kernel {number} runs</h3>
        <Table caption={`Values that are needed while kernel ${number} runs`} rows={there} most={12} columns={[
          { head: "value", cell: (l) => <code>{l.buffer}</code> }, { head: "kind", cell: (l) => l.kind },
          { head: "bytes", cell: (l) => bytes(l.bytes), by: (l) => l.bytes, figure: true },
          { head: "written by", cell: (l) => l.first, by: (l) => l.first, figure: true }, { head: "last read by", cell: (l) => l.last, by: (l) => l.last, figure: true },
          { head: "piece", cell: (l) => (l.piece === null ? "its own" : l.piece), figure: true },
        ]} />
      </div>
    </Panel>
  );
}

function Roofline({ all, timed, number }: { all: Kernels; timed: TimeReport | null; number: number }) {
  if (!timed) return <Panel title="Roofline"><p class="pad faint">Measure the times first: the roofline sets what each kernel reached beside what its bytes and its FLOP allow.</p></Panel>;
  const points = timed.kernels.map((t, n) => ({ n, x: all.kernels[n]!.flops / Math.max(1, all.kernels[n]!.bytes), y: t.gflops, s: t.share })).filter((p) => p.y > 0 && p.x > 0);
  if (!points.length) return <Panel title="Roofline"><p class="pad faint">No kernel of this run computes anything.</p></Panel>;
  const [roof, band] = [Math.max(...points.map((p) => p.y)), Math.max(...timed.kernels.map((t) => t.gbs))];
  const W = 640, H = 260, L = 56, B = 32;
  const log = (v: number) => Math.log10(Math.max(v, 1e-6));
  const [x0, x1] = [Math.floor(Math.min(...points.map((p) => log(p.x)))), Math.ceil(Math.max(...points.map((p) => log(p.x)), log(roof / band) + 0.5))];
  const [y0, y1] = [Math.floor(Math.min(...points.map((p) => log(p.y)))), Math.ceil(log(roof))];
  const px = (v: number) => L + ((log(v) - x0) / (x1 - x0)) * (W - L - 12);
  const py = (v: number) => H - B - ((log(v) - y0) / (y1 - y0 || 1)) * (H - B - 12);
  const knee = roof / band;
  return (
    <Panel title="Roofline" aside={<span class="faint">the roofs are the best that any kernel of this run reached</span>}>
      <svg class="roofline" viewBox={`0 0 ${W} ${H}`} role="img" aria-label={`${counted(points.length, "kernel")} by FLOP a byte and GFLOP/s. Best: ${roof.toFixed(1)} GFLOP/s and ${band.toFixed(1)} GB/s. The list of kernels has the figures.`}>
        <path class="roof" d={`M${px(10 ** x0)} ${py(Math.max(10 ** y0, 10 ** x0 * band))} L${px(knee)} ${py(roof)} L${px(10 ** x1)} ${py(roof)}`} />
        {Array.from({ length: x1 - x0 + 1 }, (_, i) => <text class="tick" x={px(10 ** (x0 + i))} y={H - 14} text-anchor="middle">{Number(`1e${x0 + i}`)}</text>)}
        {Array.from({ length: y1 - y0 + 1 }, (_, i) => <text class="tick" x={L - 8} y={py(10 ** (y0 + i)) + 4} text-anchor="end">{Number(`1e${y0 + i}`)}</text>)}
        <text class="tick" x={W - 12} y={H - 2} text-anchor="end">FLOP a byte</text>
        <text class="tick" x={L + 6} y={14}>GFLOP/s</text>
        {points.map((p) => <circle class={`dot ${all.kernels[p.n]!.phase} ${p.n === number ? "selected" : ""}`} cx={px(p.x)} cy={py(p.y)} r={4 + Math.sqrt(p.s) * 14} onClick={() => put({ kernel: p.n })}><title>{`kernel ${p.n}: ${all.kernels[p.n]!.label}`}</title></circle>)}
      </svg>
    </Panel>
  );
}
