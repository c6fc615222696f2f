// /d: the machine's devices beside what this browser says of its own.
import { useEffect, useState } from "preact/hooks";
import { follow, get, send, useAsked, type Job } from "./api";
import { bytes } from "./format";
import { current, put } from "./route";
import { isSnapshot } from "./snapshot";
import { Facts, Head, Panel, Shown, Table } from "./ui";

export interface Adapter { name: string; backend: string; kind: string; driver: string; hardware: boolean; shader_f16: boolean; features: string[]; limits: Record<string, number> }
export interface Report {
  status: string; cause: string | null; advice: string[]; chosen: string | null; adapters: Adapter[];
  cpu?: { status: string; processor: string; cores: number; blas: string }; versions?: Record<string, string>; settings?: Record<string, unknown>;
}
interface Probe { state: string; name: string; features: string[]; limits: Record<string, number> }

export function DoctorView() {
  const report = useAsked("doctor", () => get<Report>("/api/doctor"));
  const probe = useProbe();
  return (
    <>
      <Head title="Doctor" sub="The devices that anneal finds on this machine, beside the one that this browser has." />
      <Shown asked={report} what="asking for devices">
        {(r) => (
          <>
            {r.cause && <Panel title="What to do"><div class="pad"><p class="strong">{r.cause}</p><ul class="advice">{r.advice.map((a) => <li>{a.startsWith("  ") ? <code>{a.trim()}</code> : a}</li>)}</ul></div></Panel>}
            <div class="two">
              <div>
                {r.adapters.map((a) => (
                  <Panel title={a.name} aside={a.name === r.chosen && <span class="state done">used</span>}>
                    <div class="pad"><Facts rows={[["interface", a.backend], ["kind", a.kind || "unknown"], ["driver", a.driver], ["hardware", a.hardware ? "yes" : "no, software"], ["shader-f16", a.shader_f16 ? "yes" : "no"]]} /></div>
                  </Panel>
                ))}
                {!r.adapters.length && <Panel title="WebGPU"><p class="pad">No adapter.</p></Panel>}
                {r.cpu && <Panel title="cpu device"><div class="pad"><Facts rows={[["status", r.cpu.status], ["processor", r.cpu.processor], ["cores", r.cpu.cores], ["BLAS", r.cpu.blas]]} /></div></Panel>}
                {r.versions && <Panel title="Versions"><div class="pad"><Facts rows={Object.entries(r.versions)} /></div></Panel>}
              </div>
              <div>
                <Panel title="This browser" aside={<span class={`state ${probe.state === "ok" ? "done" : ""}`}>{probe.state === "ok" ? "WebGPU" : "no WebGPU"}</span>}>
                  <div class="pad" role="status">
                    {probe.state === "ok" ? <Facts rows={[["adapter", probe.name || "it does not say"], ["shader-f16", probe.features.includes("shader-f16") ? "yes" : "no"], ["subgroups", probe.features.includes("subgroups") ? "yes" : "no"], ["features", probe.features.length]]} /> : <p>{probe.state}</p>}
                  </div>
                </Panel>
                <Cards adapters={r.adapters} />
                <Panel title="Limits"><Limits report={r} probe={probe} /></Panel>
                {r.settings && <Panel title="Settings in force"><div class="pad"><Facts rows={Object.entries(r.settings).map(([k, v]) => [k, String(v === "" ? "unset" : v)])} /></div></Panel>}
              </div>
            </div>
          </>
        )}
      </Shown>
    </>
  );
}

interface Card { device: string; adapter: string | null; functions: { name: string; low: number; high: number; ulps: number; at: number }[]; facts: [string, string][] }

// How each device rounds, measured in a job whose id is in the address.
function Cards({ adapters }: { adapters: Adapter[] }) {
  const query = current().query;
  const cpu = useCard(query.get("cpu"));
  const gpu = useCard(query.get("webgpu"));
  const [error, setError] = useState("");
  const measure = (device: string) => send<Job>("POST", "/api/jobs", { kind: "numerics", device }).then((j) => { setError(""); put({ [device]: j.id }, true); }, (e: Error) => setError(e.message));
  const cards = [cpu, gpu].filter((c) => c.card).map((c) => c.card!);
  const names = cards[0]?.functions.map((f) => f.name) ?? [];
  const busy = [cpu, gpu].some((c) => c.job && ["queued", "running"].includes(c.job.state));
  const failed = [cpu, gpu].find((c) => c.job?.state === "failed");
  return (
    <Panel title="Numerics" aside={!isSnapshot() && <span class="buttons"><button type="button" onClick={() => measure("cpu")} disabled={busy}>Measure cpu</button>{adapters.length > 0 && <button type="button" onClick={() => measure("webgpu")} disabled={busy}>Measure webgpu</button>}</span>}>
      <div role="status">
        {busy && <p class="pad faint"><span class="spin" aria-hidden="true" /> measuring</p>}
        {failed && <pre class="pad bad">{failed.job!.error}</pre>}
        {error && <p class="pad bad">{error}</p>}
        {!cards.length && !busy && <p class="pad faint">How far each device's functions are from exact ones, and how it rounds: measured in a few seconds.</p>}
      </div>
      {cards.length > 0 && (
        <>
          <Table caption="Largest errors of functions, in units of the last place" rows={names} columns={[
            { head: "function", cell: (n) => <code>{n}</code> },
            ...cards.map((c) => ({ head: `${c.adapter ?? c.device}, ULP`, cell: (n: string) => { const f = c.functions.find((x) => x.name === n); return f ? <span title={`at ${f.at}`}>{f.ulps.toFixed(2)}</span> : "–"; }, by: (n: string) => c.functions.find((x) => x.name === n)?.ulps ?? 0, figure: true })),
          ]} />
          {cards.map((c) => <div class="pad"><h3>{c.adapter ?? c.device}</h3><Facts rows={c.facts} /></div>)}
        </>
      )}
    </Panel>
  );
}

function useCard(id: string | null): { card: Card | null; job: Job | null } {
  const [card, setCard] = useState<Card | null>(null);
  const [job, setJob] = useState<Job | null>(null);
  useEffect(() => {
    setCard(null);
    setJob(null);
    if (id) return follow(id, (lines) => setCard(lines[lines.length - 1] as unknown as Card), setJob);
  }, [id]);
  return { card, job };
}

const camel = (name: string): string => name.replace(/-(\w)/g, (_, c: string) => c.toUpperCase());

function Limits({ report, probe }: { report: Report; probe: Probe }) {
  const mine = report.adapters.find((a) => a.name === report.chosen) ?? report.adapters[0];
  const names = Object.keys(mine?.limits ?? {});
  const said = (name: string, v: number | undefined) => (v === undefined ? "–" : /size/i.test(name) ? bytes(v) : v.toLocaleString("en-US"));
  if (!names.length) return <p class="pad faint">No adapter says any.</p>;
  return <Table caption="Limits of the machine's adapter and of the browser's" rows={names} columns={[
    { head: "limit", cell: (n) => n }, { head: "anneal", cell: (n) => said(n, mine?.limits[n]), figure: true }, { head: "browser", cell: (n) => said(n, probe.limits[camel(n)]), figure: true },
  ]} />;
}

// What `navigator.gpu` says; its types are not in the standard library of this compiler yet.
function useProbe(): Probe {
  const [probe, set] = useState<Probe>({ state: "asking the browser", name: "", features: [], limits: {} });
  useEffect(() => {
    const no = (state: string) => set({ state, name: "", features: [], limits: {} });
    const gpu = (navigator as unknown as { gpu?: { requestAdapter(): Promise<any> } }).gpu;
    if (!gpu) return no("This browser has no navigator.gpu: it is too old, or WebGPU is off.");
    gpu.requestAdapter().then((a) => {
      if (!a) return no("This browser has WebGPU, but no adapter for it.");
      const limits: Record<string, number> = {};
      for (const key in a.limits) limits[key] = a.limits[key];
      const info = a.info ?? {};
      set({ state: "ok", name: [info.vendor, info.architecture, info.description].filter(Boolean).join(" "), features: [...a.features], limits });
    }, (e: Error) => no(`The browser refused: ${e.message}`));
  }, []);
  return probe;
}
