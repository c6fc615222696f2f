// /x/OP: the rules of an op in the words of the rule files, and an example with its graph before and after.
import { useState } from "preact/hooks";
import { ask, useAsked, type PassGraph } from "./api";
import { shape } from "./format";
import { go, link, put, type Route } from "./route";
import { Head, Lines, Panel, Shown, Table, Tabs } from "./ui";
import { Wgsl } from "./wgsl";

interface Listed { op: string; kind: string; table: string; text: string; comment: string; file: string; line: number }
interface OpRules { op: string; meaning: string; rules: Listed[]; batching: { about: string; place: string; text: string } | null }
interface Node { id: number; op: string; dtype: string; shape: (number | string)[]; arg: string | null; src: number[]; phase: string }
interface Explained {
  name: string; kinds: Record<string, string>; ops: OpRules[];
  example: { call: string; nodes: Node[]; passes: PassGraph[]; kernels: string[] } | null;
}

export function ExplainView({ route }: { route: Route }) {
  const names = useAsked("ops", () => ask<{ ops: string[]; methods: string[] }>("ops", {}));
  const found = useAsked(route.name ? `explain ${route.name}` : null, () => ask<Explained>("explain", { op: route.name }));
  const [text, setText] = useState("");
  const find = (e: Event) => {
    e.preventDefault();
    if (text.trim()) go(link("x", text.trim()));
  };
  return (
    <>
      <Head title={route.name || "Explain"} sub={found.value?.ops.length === 1 ? found.value.ops[0]!.meaning : "The rules that concern an op, as the compiler has them."}>
        <form class="find" onSubmit={find} role="search">
          <label class="field"><span>Op or Tensor method</span>
            <input list="ops" value={text} onInput={(e) => setText(e.currentTarget.value)} placeholder="MUL, softmax, ..." autocomplete="off" />
          </label>
          <datalist id="ops">{[...(names.value?.ops ?? []), ...(names.value?.methods ?? [])].map((n) => <option value={n} />)}</datalist>
          <button type="submit">Explain</button>
        </form>
      </Head>
      {route.name ? (
        <Shown asked={found} what={`reading the rules of ${route.name}`}>{(x) => <Whole x={x} route={route} />}</Shown>
      ) : (
        <Shown asked={names} what="reading the list of ops">
          {(n) => <Panel title="Ops of the language"><ul class="opgrid">{n.ops.map((op) => <li><a href={link("x", op)}>{op}</a></li>)}</ul></Panel>}
        </Shown>
      )}
    </>
  );
}

function Whole({ x, route }: { x: Explained; route: Route }) {
  return (
    <div class="columns">
      <div>
        {x.ops.length !== 1 && <p class="pad">Tensor.{x.name} builds {x.ops.length ? x.ops.map((o, i) => <>{i ? ", " : ""}<a href={link("x", o.op)}>{o.op}</a></>) : "no node of its own"}.</p>}
        {x.ops.map((o) => <Rules o={o} kinds={x.kinds} many={x.ops.length > 1} />)}
      </div>
      {x.example && <Example e={x.example} route={route} />}
    </div>
  );
}

function Rules({ o, kinds, many }: { o: OpRules; kinds: Record<string, string>; many: boolean }) {
  return (
    <Panel title={many ? `Rules of ${o.op}` : "Rules"} id={`rules-${o.op}`} aside={many && <span class="faint">{o.meaning}</span>}>
      <div class="pad">
        {Object.entries(kinds).map(([kind, about]) => {
          const mine = o.rules.filter((r) => r.kind === kind && (r.op === o.op || !["gradient", "forward"].includes(kind)));
          return (
            <div class={`kind ${kind}`}>
              <h3>{about}</h3>
              {mine.length ? (
                <ul class="rules">
                  {mine.map((r, i) => (
                    <li>
                      {r.comment && r.comment !== mine[i - 1]?.comment && <p class="why">{r.comment}</p>}
                      <code>{r.text}</code><span class="faint">{r.file}:{r.line}</span>
                    </li>
                  ))}
                </ul>
              ) : <p class="faint">{kind === "gradient" ? "no rule: nothing flows back through it" : kind === "forward" && o.rules.some((r) => r.kind === "gradient" && r.op === o.op) ? "no rule of its own: the gradient's, which is its own transpose" : "no rule"}</p>}
            </div>
          );
        })}
        <div class="kind batching">
          <h3>batching: what vmap makes of it</h3>
          {o.batching ? <details><summary>{o.batching.about || "a function"} <span class="faint">{o.batching.place}</span></summary><pre class="listing" tabIndex={0}><Lines text={o.batching.text} /></pre></details> : <p class="faint">it is not batched: it stands in no graph that a user builds</p>}
        </div>
      </div>
    </Panel>
  );
}

function Example({ e, route }: { e: NonNullable<Explained["example"]>; route: Route }) {
  const names = ["before", ...e.passes.filter((p) => p.changed || p.removed).map((p) => p.info.name), "WGSL"];
  const now = route.query.get("after") ?? "before";
  const pass = e.passes.find((p) => p.info.name === now);
  return (
    <Panel title={`Example: ${e.call}`} id="example">
      <div class="pad">
        <Tabs label="What is shown" value={now} options={names.map((n) => [n, n === "before" ? "the graph" : n])} onChange={(v) => put({ after: v === "before" ? null : v }, true)} />
        {now === "WGSL" ? e.kernels.map((k) => <pre class="listing" tabIndex={0}><Lines text={k} line={(l) => <Wgsl text={l} />} /></pre>)
          : pass && !pass.nodes.length ? <><p class="why">{pass.info.reason}</p><pre class="listing" tabIndex={0}><Lines text={pass.text.join("\n")} /></pre></>
          : <>
              {pass && <p class="why">{pass.info.reason}</p>}
              <Table caption={`The graph, ${now}`} rows={(pass ? pass.nodes : e.nodes) as Node[]} columns={[
                { head: "id", cell: (n) => `%${n.id}`, figure: true }, { head: "op", cell: (n) => <a href={link("x", n.op)}>{n.op}</a> },
                { head: "shape", cell: (n) => (n.shape.length ? shape(n.shape) : "") }, { head: "dtype", cell: (n) => n.dtype },
                { head: "arg", cell: (n) => n.arg ?? "", class: "clip" }, { head: "reads", cell: (n) => n.src.map((s) => `%${s}`).join(" ") },
                ...(pass ? [{ head: "changed", cell: (n: Node) => ((n as unknown as { changed: boolean }).changed ? <span class="phase changed">changed</span> : "") }] : []),
              ]} />
            </>}
      </div>
    </Panel>
  );
}
