// The page: its frame, the view that the address names, and the keys.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { session as ask, type Refused, type Session } from "./api";
import { CheckView } from "./check";
import { DoctorView } from "./doctor";
import { ExplainView } from "./explain";
import { GenerateView } from "./generate";
import { GraphView } from "./graph";
import { HistoryView } from "./history";
import { HomeView } from "./home";
import { KernelsView } from "./kernels";
import { remember } from "./models";
import { OverlayView } from "./overlay";
import { go, isRecording, useRoute, type Route } from "./route";
import { ScriptView } from "./script";
import { address, file, isSnapshot, madeAt, unpack } from "./snapshot";
import { TrainView } from "./train";
import { when } from "./format";
import { Failed, Head, Waiting } from "./ui";

const NAV: [string, string, string, string][] = [
  ["", "/", "Studio", "h"], ["v", "/v/nanogpt", "Graph", "v"], ["k", "/k/nanogpt", "Kernels", "k"], ["x", "/x", "Explain", "x"],
  ["c", "/c/mlp", "Check", "c"], ["t", "/t/nanogpt", "Train", "t"], ["g", "/g/gpt2", "Generate", "g"], ["s", "/s", "Scripts", "s"], ["r", "/r", "History", "r"], ["d", "/d", "Doctor", "d"],
];
const KEYS: [string, string][] = [
  ["g then h, v, k, x, c, t, g, s, r, d", "go to a view; v, k, c and t keep the model"], ["/", "find in the view"], ["?", "this list"], ["Esc", "close, or clear what was searched"],
  ["arrows", "in the graph: to the next box; in WGSL and passes: to the next line"], ["Enter", "select the box, or the line"], ["o or Space", "open or close a module"], ["+  −  0", "zoom the graph; 0 shows all of it"],
];

function App() {
  const route = useRoute();
  const [session, set] = useState<Session | null>(null);
  const [error, setError] = useState<Refused | null>(null);
  const keep = (s: Session) => { remember(s); set(s); };
  useEffect(() => { ask().then(keep, setError); }, []);
  useEffect(() => { document.querySelector(".top [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); }, [route.view]);
  const help = useRef<HTMLDialogElement>(null);
  useChords(route, () => (help.current?.open ? help.current.close() : help.current?.showModal()));
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.querySelector<HTMLElement>("main")?.focus(); }}>To the content</a>
      <header class="top">
        <a class="brand" href="/" aria-label="anneal studio, first page"><img src={file("/static/icon.svg")} alt="" width="22" height="22" /> anneal</a>
        {isSnapshot() ? <p class="snapshot">a snapshot of <code>{`${address().pathname}${address().search}`}</code>, {when(madeAt())}</p> : <nav aria-label="Views">
          <ul>
            {NAV.map(([view, url, text]) => (
              <li><a href={target(view, url, route)} aria-current={(route.view === "o" ? "r" : route.view) === view ? "page" : undefined}>{text}</a></li>
            ))}
          </ul>
        </nav>}
        <button type="button" class="quiet" aria-label="Keys" aria-keyshortcuts="?" onClick={() => help.current?.showModal()}><kbd>?</kbd></button>
      </header>
      <main id="main" tabIndex={-1} class={`view-${route.view || "home"}`}>
        {error ? <Failed error={error} /> : session ? <View route={route} session={session} set={keep} /> : <Waiting what="asking the studio's server" />}
      </main>
      <dialog ref={help} aria-labelledby="keys">
        <h2 id="keys">Keys</h2>
        <dl class="facts">{KEYS.map(([key, what]) => <div><dt><kbd>{key}</kbd></dt><dd>{what}</dd></div>)}</dl>
        <form method="dialog"><button type="submit" class="primary">Close</button></form>
      </dialog>
      <footer class="foot"><span>anneal {session?.version}</span> <span>nothing leaves this machine</span> {!isSnapshot() && <><a href={`/api/snapshot?${new URLSearchParams({ view: address().pathname + address().search })}`} download="anneal.html">this view as one file</a> <a href="/static/licences.txt" target="_blank" rel="noopener">licences</a></>}</footer>
    </>
  );
}

// From one view of a model to another the model stays.
function target(view: string, url: string, route: Route): string {
  const keeps = ["v", "k", "c", "t"];
  if (!keeps.includes(view) || !keeps.includes(route.view) || !route.name) return url;
  if (isRecording(route.name) && (view === "t" || view === "c")) return url;
  return view === "t" && route.name.startsWith("upload.") ? url : `/${view}/${encodeURIComponent(route.name)}`;
}

function View({ route, session, set }: { route: Route; session: Session; set: (s: Session) => void }) {
  if (["v", "k", "c", "t"].includes(route.view) && !route.name) return <Missing />;
  switch (route.view) {
    case "": return <HomeView session={session} route={route} set={set} />;
    case "v": return <GraphView route={route} key={route.name} />;
    case "k": return <KernelsView route={route} key={route.name} />;
    case "c": return <CheckView route={route} key={route.name} />;
    case "s": return <ScriptView route={route} key={route.name} />;
    case "x": return <ExplainView route={route} />;
    case "t": return <TrainView route={route} key={route.name} />;
    case "g": return <GenerateView route={{ ...route, name: route.name || "gpt2" }} key={route.name} />;
    case "r": return <HistoryView route={route} />;
    case "o": return <OverlayView route={route} />;
    case "d": return <DoctorView />;
    default: return <Missing />;
  }
}

const Missing = () => <><Head title="There is nothing here" sub="The address names no view." /><p><a href="/">To the first page</a></p></>;

function useChords(route: Route, help: () => void): void {
  const waiting = useRef(-Infinity); // when g was pressed
  const last = useRef({ route, help });
  last.current = { route, help };
  useEffect(() => {
    const key = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test((e.target as Element).tagName)) return;
      const now = e.timeStamp; // not when a busy page hears of it
      const nav = NAV.find((n) => n[3] === e.key);
      if (now - waiting.current < 1200 && nav) {
        waiting.current = -Infinity;
        e.preventDefault();
        go(target(nav[0], nav[1], last.current.route));
      } else if (e.key === "g") waiting.current = now;
      else if (e.key === "?") last.current.help();
      else if (e.key === "/") {
        const input = document.querySelector<HTMLInputElement>("main input[type=search], main [role=search] input");
        if (input) { e.preventDefault(); input.focus(); }
      }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
}

await unpack();
const host = document.getElementById("app")!;
host.textContent = "";
render(<App />, host);
