// /v/MODEL: the graph of a model, after any pass, and what became of each node.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask, useAsked, type Graph, type GraphNode, type PassGraph, type PassNode, type PassSummary } from "./api";
import { Canvas } from "./canvas";
import { count, counted, place, shape } from "./format";
import { ready } from "./layout";
import { ancestors, grouped, paths, visible, type Box, type Item } from "./groups";
import { current, kept, link, put, type Route } from "./route";
import { Facts, Head, Lines, Live, Panel, Phase, Shown, Table, Tabs, UserLine } from "./ui";
import { modelTools, title } from "./models";

export function GraphView({ route }: { route: Route }) {
  const q = route.query;
  const step = q.get("step") !== "0";
  const about = { model: route.name, step, device: q.get("device"), plan: q.get("plan") };
  useEffect(() => { ready(); }, []);
  const graph = useAsked(`graph ${JSON.stringify(about)}`, () => ask<Graph>("graph", about));
  return (
    <>
      <Head title={title(route.name)} sub={graph.value ? summary(graph.value) : "The tensor graph, and what each pass makes of it."}>
        {modelTools(route, "v")}
      </Head>
      <Shown asked={graph} what={`tracing ${title(route.name)}`}>
        {(g) => <Whole graph={g} route={route} about={about} />}
      </Shown>
    </>
  );
}

function summary(g: Graph): string {
  const forward = g.nodes.filter((n) => n.phase === "forward").length;
  return `${counted(g.nodes.length, "node")}, ${count(forward)} of them forward; ${counted(g.kernels.length, "kernel")}.`;
}

type About = { model: string; step: boolean; device: string | null; plan: string | null };

function Whole({ graph, route, about }: { graph: Graph; route: Route; about: About }) {
  const q = route.query;
  const pass = q.get("pass") ?? "";
  const kernel = q.get("kernel");
  const parts = { ...about, kernel };
  const summaries = useAsked(`passes ${JSON.stringify(parts)}`, () => ask<PassSummary[]>("passes", parts));
  const after = useAsked(pass ? `pass ${pass} ${JSON.stringify(parts)}` : null, () => ask<PassGraph>("pass", { ...parts, name: pass }));
  const table = q.get("as") === "table";
  return (
    <div class="workbench">
      <Panel title={kernel === null ? "Passes of the whole graph" : `Passes of kernel ${kernel}`} id="passes" class="rail"
        aside={kernel !== null && <a class="quiet" href={link("v", route.name, kept(route))}>the whole graph</a>}>
        <Passes list={summaries.value} now={pass} start={kernel === null ? "The program" : ""} />
      </Panel>
      <div class="main">
        <Search graph={graph} />
        {pass && after.value === null ? (
          <Shown asked={after} what={`running the passes up to ${pass}`}>{() => null}</Shown>
        ) : (
          <Drawn graph={graph} after={pass ? after.value : null} route={route} table={table} ofKernel={kernel !== null} />
        )}
      </div>
      <Inspector graph={graph} after={pass ? after.value : null} route={route} about={about} />
    </div>
  );
}

function Passes(props: { list: PassSummary[] | null; now: string; start: string }) {
  if (!props.list) return <p class="faint pad" role="status">counting what each pass changes</p>;
  const rows: [string, PassSummary | null][] = props.list.map((p) => [p.info.name, p]);
  if (props.start) rows.unshift(["", null]);
  const keys = (e: KeyboardEvent) => {
    const by = e.key === "ArrowDown" ? 1 : e.key === "ArrowUp" ? -1 : 0;
    if (!by) return;
    e.preventDefault();
    const buttons = [...(e.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("button")];
    buttons[Math.min(buttons.length - 1, Math.max(0, buttons.indexOf(document.activeElement as HTMLElement) + by))]?.focus();
  };
  return (
    <ol class="passes" onKeyDown={keys}>
      {rows.map(([name, p]) => (
        <li>
          <button type="button" aria-pressed={props.now === name} onClick={() => put({ pass: name || null, node: null, group: null })} title={p?.info.reason}>
            <span class="name">{p ? name : props.start}</span>
            {p && <span class="delta" title={`${p.changed} made, ${p.removed} gone`}>
              {p.changed > 0 && <span class="plus">+{p.changed}</span>} {p.removed > 0 && <span class="minus">−{p.removed}</span>}
              {p.changed + p.removed === 0 && <span class="faint">no change</span>}
            </span>}
          </button>
          {props.now === name && p && <p class="reason">{p.info.reason}</p>}
        </li>
      ))}
    </ol>
  );
}

const HIDDEN = new Set(["CONST", "SINK"]);

function itemsOf(graph: Graph, after: PassGraph | null, ofKernel: boolean): Item[] {
  const { paths: groups, leaf } = grouped(graph.nodes);
  if (!after) {
    return graph.nodes.filter((n) => !HIDDEN.has(n.op)).map((n) => ({
      id: n.id, label: n.op, detail: shape(n.shape), src: n.src, phase: n.phase, path: groups[n.id]!, changed: false,
      leaf: leaf[n.id]!,
    }));
  }
  const path: string[][] = [];
  const phase: string[] = [];
  for (const n of after.nodes) {
    const at = n.place === null ? null : graph.nodes[n.place];
    const src = n.src.find((s) => path[s]?.length);
    path[n.id] = at ? groups[at.id]! : src !== undefined && !ofKernel ? path[src]! : [];
    phase[n.id] = at ? at.phase : src !== undefined ? phase[src]! : "forward";
  }
  const loose = !ofKernel && after.info.stage !== "tensor";
  return after.nodes.filter((n) => !HIDDEN.has(n.op)).map((n) => ({
    id: n.id, label: n.op, detail: n.shape.length ? shape(n.shape) : n.arg && n.arg.length < 24 ? n.arg : "", src: n.src,
    phase: ofKernel || loose ? "forward" : phase[n.id]!, path: ofKernel ? [] : path[n.id]!.length ? path[n.id]! : ["new"], changed: n.changed,
    leaf: !ofKernel && n.place !== null && leaf[n.place]!,
  }));
}

function Drawn(props: { graph: Graph; after: PassGraph | null; route: Route; table: boolean; ofKernel: boolean }) {
  const q = props.route.query;
  const open = useMemo(() => new Set((q.get("open") ?? "").split("|").filter(Boolean)), [q.get("open")]);
  const node = q.get("node");
  const shown = props.after && props.after.nodes.length > 0 && (props.ofKernel || props.after.info.stage === "tensor");
  const chosen = node !== null && !props.after ? props.graph.nodes[Number(node)] : undefined;
  const fused = useMemo(() => {
    const mine = new Set(chosen?.kernels ?? []);
    return new Set(props.graph.nodes.filter((n) => n.kernels.some((k) => mine.has(k))).map((n) => n.id));
  }, [chosen, props.graph]);
  const items = useMemo(() => (props.after && !shown ? [] : itemsOf(props.graph, props.after, props.ofKernel)), [props.graph, props.after, props.ofKernel, shown]);
  const related = useMemo(() => {
    if (!fused.size) return new Set<string>();
    return new Set(visible(items, open).boxes.filter((b) => !b.open && b.nodes.some((n) => fused.has(n))).map((b) => b.key));
  }, [items, open, fused]);
  if (props.after && !shown) return <TextOf after={props.after} />;
  if (props.after && items.length > 600 && props.ofKernel) return <Nodes after={props.after} />;
  const select = (b: Box) => (b.group ? put({ group: b.key, node: null }) : put({ node: b.key.slice(1), group: null }));
  const toggle = (b: Box) => {
    const next = new Set(open);
    if (next.has(b.key)) for (const k of [...next]) (k === b.key || k.startsWith(`${b.key}/`)) && next.delete(k);
    else next.add(b.key);
    put({ open: [...next].join("|") || null }, true);
  };
  return (
    <>
      <div class="bar">
        <Tabs label="Shown as" value={props.table ? "table" : "drawing"} options={[["drawing", "Drawing"], ["table", "Table"]]} onChange={(v) => put({ as: v === "table" ? v : null }, true)} />
        <p class="legend" aria-label="Colours">
          <Phase phase="forward" /> <Phase phase="backward" /> <Phase phase="update" /> <span class="phase fused">same kernel</span>
          {props.after && <span class="phase changed">changed by this pass</span>}
        </p>
      </div>
      {props.table ? (
        <BoxTable items={items} open={open} onOpen={toggle} onSelect={select} selected={keyOf(q)} />
      ) : (
        <Canvas items={items} open={open} selected={keyOf(q)} related={related} onSelect={select} onOpen={toggle} label={`Graph of ${title(props.route.name)}`} />
      )}
    </>
  );
}

const keyOf = (q: URLSearchParams): string | null => (q.get("node") !== null ? `#${q.get("node")}` : q.get("group"));

function BoxTable(props: { items: Item[]; open: Set<string>; onOpen: (b: Box) => void; onSelect: (b: Box) => void; selected: string | null }) {
  const view = useMemo(() => visible(props.items, props.open), [props.items, props.open]);
  const names = new Map(view.boxes.map((b) => [b.key, b.label]));
  const into = new Map<string, string[]>();
  for (const e of view.edges) into.set(e.to, [...(into.get(e.to) ?? []), names.get(e.from) ?? ""]);
  return (
    <Table caption="Modules and nodes of the graph" rows={view.boxes} selected={(b) => b.key === props.selected} columns={[
      { head: "name", cell: (b) => <button type="button" class="link" onClick={() => props.onSelect(b)}>{"\u2003".repeat(b.parent ? b.parent.split("/").length : 0)}{b.label}</button> },
      { head: "phase", cell: (b) => <Phase phase={b.phase} />, by: (b) => b.phase },
      { head: "size", cell: (b) => b.detail, by: (b) => b.nodes.length },
      { head: "changed", cell: (b) => b.changed || "", by: (b) => b.changed, figure: true },
      { head: "reads", cell: (b) => (into.get(b.key) ?? []).slice(0, 6).join(", ") },
      { head: "module", cell: (b) => b.group && <button type="button" class="link" onClick={() => props.onOpen(b)}>{b.open ? "close" : "open"}</button> },
    ]} />
  );
}

function TextOf({ after }: { after: PassGraph }) {
  if (after.nodes.length) return <Nodes after={after} />;
  return (
    <pre class="listing" tabIndex={0} aria-label={`What ${after.info.name} made`}>
      <Lines text={after.text.slice(0, 3000).join("\n")} />
      {after.text.length > 3000 && `\n... ${after.text.length - 3000} more lines`}
    </pre>
  );
}

function Nodes({ after }: { after: PassGraph }) {
  return (
    <Table<PassNode> caption={`Nodes after ${after.info.name}`} rows={after.nodes} most={150} columns={[
      { head: "id", cell: (n) => `%${n.id}`, by: (n) => n.id, figure: true },
      { head: "op", cell: (n) => n.op, by: (n) => n.op },
      { head: "dtype", cell: (n) => n.dtype, by: (n) => n.dtype },
      { head: "shape", cell: (n) => (n.shape.length ? shape(n.shape) : "") },
      { head: "arg", cell: (n) => n.arg ?? "", class: "clip" },
      { head: "reads", cell: (n) => n.src.map((s) => `%${s}`).join(" "), class: "clip" },
      { head: "changed", cell: (n) => (n.changed ? <span class="phase changed">changed</span> : ""), by: (n) => (n.changed ? 0 : 1) },
    ]} />
  );
}

function Search({ graph }: { graph: Graph }) {
  const [text, setText] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const index = useMemo(() => graph.nodes.map((n) => `${n.op} ${n.module} ${n.function} ${n.line ? place(n.line) : ""} ${n.shape.join("x")} %${n.id}`.toLowerCase()), [graph]);
  const found = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return null;
    const hits: GraphNode[] = [];
    let total = 0;
    index.forEach((line, i) => {
      if (!words.every((w) => line.includes(w))) return;
      total++;
      if (hits.length < 40) hits.push(graph.nodes[i]!);
    });
    return { hits, total };
  }, [text, index]);
  useEffect(() => {
    const key = (e: KeyboardEvent) => {
      if (e.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test((e.target as Element).tagName)) {
        e.preventDefault();
        input.current?.focus();
      }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
  const choose = (n: GraphNode) => {
    const path = paths(graph.nodes)[n.id]!;
    const open = new Set([...(current().query.get("open") ?? "").split("|").filter(Boolean), ...ancestors(path)]);
    put({ node: n.id, group: null, pass: null, kernel: null, open: [...open].join("|") });
    setText("");
  };
  return (
    <div class="search" role="search">
      <label class="hidden" for="find">Find a node</label>
      <input id="find" ref={input} type="search" placeholder="Find by op, module, function, file:line or shape" value={text} autocomplete="off"
        onInput={(e) => setText(e.currentTarget.value)} onKeyDown={(e) => { if (e.key === "Escape") setText(""); if (e.key === "Enter" && found?.hits[0]) choose(found.hits[0]); }} />
      <Live text={found ? `${found.total} nodes found` : ""} />
      {found && (
        <ul class="hits">
          <li class="faint">{count(found.total)} nodes</li>
          {found.hits.map((n) => (
            <li>
              <button type="button" onClick={() => choose(n)}>
                <Phase phase={n.phase} /> <b>{n.op}</b> {shape(n.shape)} <span class="faint">{n.module || n.function} {n.line ? place(n.line) : ""}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Inspector(props: { graph: Graph; after: PassGraph | null; route: Route; about: About }) {
  const q = props.route.query;
  const node = q.get("node");
  const group = q.get("group");
  const n = node === null ? undefined : props.after ? undefined : props.graph.nodes[Number(node)];
  const made = node !== null && props.after ? props.after.nodes[Number(node)] : undefined;
  return (
    <Panel title="Inspector" class="inspector">
      {n ? <OneNode n={n} {...props} /> : made ? <MadeNode n={made} {...props} /> : group ? <OneGroup name={group} {...props} /> : (
        <p class="pad faint">Select a box to see what it is, which rule made it, the line of your program that it comes from, and the kernels that it became. Press <kbd>?</kbd> for the keys.</p>
      )}
    </Panel>
  );
}

function OneNode({ n, graph, route, about }: { n: GraphNode; graph: Graph; route: Route; about: About }) {
  const readers = useMemo(() => graph.nodes.filter((m) => m.src.includes(n.id)), [n]);
  return (
    <div class="pad">
      <h3 class={`op ${n.phase}`}>{n.op} <span class="faint">%{n.id}</span></h3>
      <Facts rows={[
        ["shape", shape(n.shape)], ["dtype", n.dtype], ["phase", <Phase phase={n.phase} />],
        ...(n.arg !== null ? [["arg", <code class="wrap">{n.arg}</code>] as [string, preact.ComponentChildren]] : []),
        ...(n.low !== null ? [["bounds", `${n.low} to ${n.high}`] as [string, preact.ComponentChildren]] : []),
        ...(n.module ? [["module", n.module] as [string, preact.ComponentChildren]] : []),
        ...(n.function ? [["called", `${n.function}()`] as [string, preact.ComponentChildren]] : []),
      ]} />
      <p><a href={link("x", n.op)}>Rules of {n.op}</a></p>
      {n.rule && <div class="rule"><h4>Made by the rule</h4><code>{n.rule.rule}</code><p class="faint">{n.rule.table} at {n.rule.place}</p></div>}
      <h4>Became</h4>
      {n.kernels.length ? (
        <ul class="plain">
          {n.kernels.map((k) => (
            <li><a class="fusedlink" href={link("k", route.name, { ...kept(route), kernel: k, node: n.id })}>kernel {k}</a> <span class="faint">{graph.kernels[k]?.label}</span></li>
          ))}
        </ul>
      ) : <p class="faint">No kernel: it is memory, or dissolved into an index.</p>}
      {n.line && <><h4>Your line</h4><UserLine line={n.line} model={about.model} step={about.step} /></>}
      <Neighbours head="Reads" ids={n.src} graph={graph} />
      <Neighbours head="Read by" ids={readers.map((r) => r.id)} graph={graph} />
    </div>
  );
}

function Neighbours({ head, ids, graph }: { head: string; ids: number[]; graph: Graph }) {
  if (!ids.length) return null;
  return (
    <>
      <h4>{head}</h4>
      <ul class="plain">
        {ids.slice(0, 12).map((id) => {
          const m = graph.nodes[id]!;
          return <li><button type="button" class="link" onClick={() => put({ node: id, group: null })}>{m.op} %{id}</button> <span class="faint">{m.module || m.function} {shape(m.shape)}</span></li>;
        })}
        {ids.length > 12 && <li class="faint">and {ids.length - 12} more</li>}
      </ul>
    </>
  );
}

function MadeNode({ n, graph }: { n: PassNode; graph: Graph }) {
  const at = n.place === null ? undefined : graph.nodes[n.place];
  return (
    <div class="pad">
      <h3 class="op">{n.op} <span class="faint">%{n.id}</span> {n.changed && <span class="phase changed">changed</span>}</h3>
      <Facts rows={[["shape", shape(n.shape)], ["dtype", n.dtype], ["arg", <code class="wrap">{n.arg ?? "–"}</code>], ["reads", n.src.map((s) => `%${s}`).join(" ") || "–"]]} />
      {at && <p>It stands for <button type="button" class="link" onClick={() => put({ pass: null, node: at.id })}>{at.op} %{at.id}</button> of the program{at.line ? `, ${place(at.line)}` : ""}.</p>}
      <p><a href={link("x", n.op)}>Rules of {n.op}</a></p>
    </div>
  );
}

function OneGroup({ name, graph, route }: { name: string; graph: Graph; route: Route }) {
  const all = useMemo(() => {
    const groups = paths(graph.nodes);
    return graph.nodes.filter((n) => `${groups[n.id]!.join("/")}/`.startsWith(`${name}/`));
  }, [graph, name]);
  const ops = new Map<string, number>();
  for (const n of all) ops.set(n.op, (ops.get(n.op) ?? 0) + 1);
  const kernels = [...new Set(all.flatMap((n) => n.kernels))].sort((a, b) => a - b);
  return (
    <div class="pad">
      <h3 class={`op ${all[0]?.phase ?? ""}`}>{name.split("/").join(" › ")}</h3>
      <Facts rows={[["nodes", count(all.length)], ["kernels", count(kernels.length)], ["phase", <Phase phase={all[0]?.phase ?? "forward"} />]]} />
      <h4>Ops</h4>
      <ul class="chips">{[...ops].sort((a, b) => b[1] - a[1]).map(([op, n]) => <li><a href={link("x", op)}>{op}</a> {n}</li>)}</ul>
      <h4>Kernels</h4>
      <ul class="plain">
        {kernels.slice(0, 24).map((k) => <li><a class="fusedlink" href={link("k", route.name, { ...kept(route), kernel: k })}>kernel {k}</a> <span class="faint">{graph.kernels[k]?.label}</span></li>)}
        {kernels.length > 24 && <li class="faint">and {kernels.length - 24} more</li>}
      </ul>
    </div>
  );
}

