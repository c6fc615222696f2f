// What the views of a model have in common: its name, the way to its other views, and what is planned.
import { get, type Session } from "./api";
import { isRecording, kept, link, put, type Route } from "./route";
import { isSnapshot } from "./snapshot";
import { Choice } from "./ui";

let known: Session | null = null;
export function remember(session: Session): void {
  known = session;
}
export const remembered = (): Session | null => known;

export function title(name: string): string {
  if (name.startsWith("job.")) return known?.jobs.find((j) => `job.${j.id}` === name)?.model ?? "a script";
  return known?.uploads.find((u) => u.id === name)?.name ?? (name.startsWith("upload.") ? "an uploaded file" : name);
}

export async function refresh(): Promise<Session> {
  known = await get<Session>("/api/session");
  return known;
}

const isScriptJob = (name: string): boolean => known?.jobs.find((j) => `job.${j.id}` === name)?.kind === "script";

const VIEWS: [string, string][] = [["v", "Graph"], ["k", "Kernels"], ["c", "Check"], ["t", "Train"]];

export function modelTools(route: Route, here: string) {
  if (isSnapshot()) return null;
  const file = route.name.startsWith("upload.");
  const step = route.query.get("step");
  const recorded = isRecording(route.name);
  const views = recorded ? VIEWS.slice(0, isScriptJob(route.name) ? 3 : 2) : route.name.endsWith(".py") ? VIEWS.slice(2, 3) : VIEWS.filter(([v]) => !(file && v === "t"));
  return (
    <>
      <nav class="tabs" aria-label={`Views of ${title(route.name)}`}>
        {recorded && <a href={link("s", route.name)}>All plans</a>}
        {views.map(([v, text]) => (
          <a href={link(v, route.name, v === "t" || v === "c" ? {} : kept(route))} aria-current={v === here ? "page" : undefined}>{text}</a>
        ))}
      </nav>
      {here !== "t" && here !== "c" && !recorded && (
        <>
          {!file && <Choice label="Shown" value={step === "0" ? "0" : "1"} options={[["1", "training step"], ["0", "forward pass"]]}
            onChange={(v) => put({ step: v === "0" ? "0" : null, kernel: null, node: null, group: null, open: null, pass: null })} />}
          <Choice label="Planned for" value={route.query.get("device") ?? "auto"} options={[["auto", "webgpu"], ["cpu", "cpu"]]}
            onChange={(v) => put({ device: v === "auto" ? null : v, kernel: null })} />
        </>
      )}
    </>
  );
}
