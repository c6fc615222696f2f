// Small parts that the views share.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, type Asked, type Line, type Refused, type Source, type Spread, useAsked } from "./api";
import { count, file, place, time } from "./format";

export function Panel(props: { title: string; id?: string; aside?: ComponentChildren; children: ComponentChildren; class?: string }) {
  const id = props.id ?? `p-${props.title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return (
    <section class={`panel ${props.class ?? ""}`} aria-labelledby={id}>
      <header>
        <h2 id={id}>{props.title}</h2>
        {props.aside}
      </header>
      {props.children}
    </section>
  );
}

export function Head(props: { title: string; sub?: ComponentChildren; children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${props.title} · anneal studio`;
  }, [props.title]);
  return (
    <div class="head">
      <div>
        <h1 tabIndex={-1}>{props.title}</h1>
        {props.sub !== undefined && <p class="sub">{props.sub}</p>}
      </div>
      {props.children && <div class="tools">{props.children}</div>}
    </div>
  );
}

export function Failed(props: { error: Refused }) {
  const gaps = props.error.gaps;
  return (
    <div class="failed" role="alert">
      <h2>{gaps.length ? "This model has parts that anneal cannot run" : "That did not work"}</h2>
      {gaps.length ? (
        <ul>
          {gaps.map((g) => (
            <li>{g}</li>
          ))}
        </ul>
      ) : (
        <pre>{props.error.message}</pre>
      )}
    </div>
  );
}

export function Waiting(props: { what: string }) {
  const [long, set] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => set(true), 4000);
    return () => clearTimeout(timer);
  }, []);
  return (
    <p class="waiting" role="status">
      <span class="spin" aria-hidden="true" /> {props.what}
      {long && " This is compiled once; the next look is quick."}
    </p>
  );
}

export function Shown<T>(props: { asked: Asked<T>; what: string; children: (value: T) => ComponentChildren }) {
  if (props.asked.error) return <Failed error={props.asked.error} />;
  if (props.asked.value === null) return <Waiting what={props.what} />;
  return <>{props.children(props.asked.value)}</>;
}

export function Choice(props: { label: string; value: string; options: [string, string][]; onChange: (value: string) => void }) {
  return (
    <label class="field">
      <span>{props.label}</span>
      <select value={props.value} onChange={(e) => props.onChange(e.currentTarget.value)}>
        {props.options.map(([value, text]) => (
          <option value={value}>{text}</option>
        ))}
      </select>
    </label>
  );
}

export function Switch(props: { label: string; on: boolean; onChange: (on: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={props.on} onChange={(e) => props.onChange(e.currentTarget.checked)} />
      <span>{props.label}</span>
    </label>
  );
}

// Two or more ways to see one thing; the chosen one is in the address.
export function Tabs(props: { label: string; value: string; options: [string, string][]; onChange: (value: string) => void }) {
  const keys = (e: KeyboardEvent) => {
    const by = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    e.preventDefault();
    const at = props.options.findIndex(([v]) => v === props.value);
    const next = props.options[(at + by + props.options.length) % props.options.length]!;
    props.onChange(next[0]);
    const tabs = (e.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("button");
    tabs[props.options.indexOf(next)]?.focus();
  };
  return (
    <div class="tabs" role="group" aria-label={props.label} onKeyDown={keys}>
      {props.options.map(([value, text]) => (
        <button type="button" aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
          {text}
        </button>
      ))}
    </div>
  );
}

export interface Column<T> {
  head: string;
  cell: (row: T, index: number) => ComponentChildren;
  by?: (row: T) => number | string;
  figure?: boolean;
  class?: string;
}

// A table whose heads sort it, where they can; long ones show their first rows.
export function Table<T>(props: {
  caption: string; rows: T[]; columns: Column<T>[]; selected?: (row: T) => boolean; most?: number; sort?: string;
  onSort?: (sort: string) => void;
}) {
  const [own, setOwn] = useState("");
  const [all, setAll] = useState(false);
  const sort = props.sort ?? own;
  const choose = props.onSort ?? setOwn;
  const [name, down] = [sort.replace(/^-/, ""), sort.startsWith("-")];
  const column = props.columns.find((c) => c.head === name && c.by);
  let rows = props.rows;
  if (column?.by) {
    const by = column.by;
    rows = [...rows].sort((a, b) => {
      const [x, y] = [by(a), by(b)];
      return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
    });
  }
  const most = props.most ?? 200;
  const shown = all ? rows : rows.slice(0, most);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={props.caption}>
      <table>
        <caption class="hidden">{props.caption}</caption>
        <thead>
          <tr>
            {props.columns.map((c) => (
              <th scope="col" class={c.figure ? "figure" : ""} aria-sort={c === column ? (down ? "descending" : "ascending") : undefined}>
                {c.by ? (
                  <button type="button" onClick={() => choose(c.head === name && !down ? `-${c.head}` : c.head)}>
                    {c.head}
                    <span aria-hidden="true">{c === column ? (down ? " ↓" : " ↑") : ""}</span>
                  </button>
                ) : (
                  c.head
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row, i) => (
            <tr class={props.selected?.(row) ? "selected" : ""} aria-current={props.selected?.(row) ? "true" : undefined}>
              {props.columns.map((c) => (
                <td class={`${c.figure ? "figure" : ""} ${c.class ?? ""}`}>{c.cell(row, i)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > shown.length && (
        <button type="button" class="more" onClick={() => setAll(true)}>
          Show all {rows.length} rows
        </button>
      )}
    </div>
  );
}

export function Facts(props: { rows: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {props.rows.map(([name, value]) => (
        <div>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export const Phase = (props: { phase: string }) => <span class={`phase ${props.phase}`}>{props.phase}</span>;

// A long line of code goes on below, four characters further in than it begins.
export const hung = (text: string) => ({ "--in": `${/^\s*/.exec(text)![0].length}` });

export function Lines({ text, line }: { text: string; line?: (text: string) => ComponentChildren }) {
  return <>{text.split("\n").map((l) => <span class="hung" style={hung(l)}>{line ? line(l) : l}{"\n"}</span>)}</>;
}

// What all of these lines begin with, if it is blank, is left out.
export function dedented(lines: string[]): string[] {
  const margins = lines.filter((l) => l.trim()).map((l) => /^[ \t]*/.exec(l)![0]);
  const first = margins[0] ?? "";
  let n = first.length;
  for (const m of margins) while (!m.startsWith(first.slice(0, n))) n--;
  return lines.map((l) => l.slice(Math.min(n, l.length - l.trimStart().length)));
}

// A name that may go on in the next line after a dot or an underscore.
export const Name = ({ text }: { text: string }) => <>{text.split(/(?<=[_.:/])(?=\w)/).map((part, i) => <>{i > 0 && <wbr />}{part}</>)}</>;

// The user's line with the lines around it.
export function UserLine(props: { line: Line; model: string; step: boolean }) {
  const key = `${props.line.file}:${props.line.line}:${props.model}`;
  const found = useAsked<Source>(key, () => ask("source", { model: props.model, step: props.step, file: props.line.file, line: props.line.line }));
  return (
    <figure class="source">
      <figcaption>
        {place(props.line)} <span class="faint">in {props.line.function}</span>
      </figcaption>
      {found.value ? (
        <pre tabIndex={0} aria-label={`${file(props.line.file)} around line ${props.line.line}`}>
          {dedented(found.value.lines).map((text, i) => {
            const number = found.value!.first + i;
            return (
              <span class={number === found.value!.line ? "line here" : "line"}>
                <span class="number" aria-hidden="true">{number}</span>
                <span class="hung" style={hung(text)}>{text || " "}{"\n"}</span>
              </span>
            );
          })}
        </pre>
      ) : (
        <p class="faint">{found.error ? found.error.message : "reading the file"}</p>
      )}
    </figure>
  );
}

export function Live(props: { text: string }) {
  return (
    <p class="hidden" role="status" aria-live="polite">
      {props.text}
    </p>
  );
}

export function useInterval(f: () => void, ms: number | null): void {
  const last = useRef(f);
  last.current = f;
  useEffect(() => {
    if (ms === null) return;
    const timer = setInterval(() => last.current(), ms);
    return () => clearInterval(timer);
  }, [ms]);
}

// A run that is watched has a norm of its gradients, which other plans do not have.
export function Watching({ done }: { done: { kernels?: number; kernels_unwatched?: number | null } | undefined | null }) {
  const [now, alone] = [done?.kernels, done?.kernels_unwatched];
  if (now === undefined || alone === undefined || alone === null || now === alone) return null;
  return <p class="faint">Watching keeps the gradients for their norm, so {now > alone ? "fewer" : "other"} kernels are fused: {count(now)} instead of {count(alone)}.</p>;
}

// A measured time: the median, and where half of the times are.
export function Took({ of }: { of: Spread | null | undefined }) {
  if (!of) return <>–</>;
  return <span title={of.count > 1 ? `the median of ${count(of.count)}; half of them are between ${time(of.low)} and ${time(of.high)}` : "measured once"}>{time(of.median)}{of.count > 1 && <span class="faint spread"> {time(of.low)} to {time(of.high)}</span>}</span>;
}

// Why times that should add up do not.
export function Reasons({ of }: { of: string[] }) {
  return of.length ? <ul class="reasons amber">{of.map((reason) => <li>{reason}</li>)}</ul> : null;
}
