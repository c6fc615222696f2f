// Requests to the studio's server, and the records that it answers with.
import { useEffect, useState } from "preact/hooks";
import { answer, isSnapshot } from "./snapshot";

export interface Line { file: string; line: number; function: string }
export interface Rule { rule: string; table: string; place: string; pass_name: string }
export interface PassInfo { pipeline: string; name: string; reason: string; stage: string | null }
export interface GraphNode {
  id: number; op: string; dtype: string; shape: (number | string)[]; arg: string | null; src: number[]; phase: string;
  module: string; function: string; line: Line | null; low: number | null; high: number | null; rule: Rule | null;
  kernels: number[];
}
export interface Graph {
  model: string; nodes: GraphNode[]; kernels: { name: string; label: string; phase: string }[]; passes: PassInfo[];
}
export interface PassNode {
  id: number; op: string; dtype: string; shape: (number | string)[]; arg: string | null; src: number[];
  place: number | null; changed: boolean;
}
export interface PassGraph { info: PassInfo; nodes: PassNode[]; text: string[]; changed: number; removed: number }
export interface PassSummary { info: PassInfo; nodes: number; text: number; changed: number; removed: number }
export interface Buffer { buffer: string; size: number; dtype: string; kind: string; kernel: number | null }
export interface Kernel {
  name: string; reads: Buffer[]; writes: Buffer[]; flops: number; bytes: number; phase: string; fused: string[];
  label: string; lines: Line[]; modules: string[]; functions: string[]; nodes: number[];
}
export interface Life {
  buffer: string; kind: string; dtype: string; bytes: number; first: number; last: number; piece: number | null;
}
export interface Memory { lives: Life[]; live: number[]; given: number; temporary: number }
export interface Kernels {
  model: string; kernels: Kernel[]; refusals: { writer: number; reader: number; reason: string }[]; memory: Memory;
  times?: TimeReport | null;
}
export interface Spread { median: number; low: number; high: number; count: number }
// What was measured of one plan: `step` is from one run to the next, `total` all runs together; reasons say why sums do not agree.
export interface Times {
  runs: number; first: number | null; run: Spread | null; step: Spread | null; others: Spread | null; python: Spread | null;
  kernels: Spread | null; timed: Spread | null; total: number | null; reasons: string[]; parts?: Record<string, number>;
}
export interface Timed { low?: number; high?: number; seconds: number; share: number; gflops: number; gbs: number; opts: string }
export interface TimeReport { seconds: number; plan_seconds: number | null; times?: Times; device: string; adapter: string | null; kernels: Timed[] }
export interface TextLine {
  number: number; text: string; ops: string[]; rules: Rule[]; nodes: number[]; lines: Line[]; modules: string[];
}
export interface Launch {
  opts: string; workgroups: number; threads: number; grid: number[]; bindings: string[];
}
export interface KernelText {
  text: { number: number; name: string; label: string; lines: TextLine[] } | null; error: string; launch: Launch | null;
}
export interface Source { file: string; first: number; line: number; lines: string[] }
export interface Model { name: string; about: string; draws: boolean; speaks: boolean }
export interface Upload { id: string; name: string; kind: string; bytes: number }
export interface Job {
  id: string; kind: string; model: string; device: string; about: Record<string, unknown>; state: string;
  created: number; started: number | null; ended: number | null; code: number | null; error: string; run: string;
}
export interface Run {
  id: string; model: string; status: string; begun: string; ended: string; device?: string; adapter?: string | null;
  steps?: number; steps_done?: number; final_loss?: number | null; batch?: number; lr?: number; seed?: number;
  params?: number; error: string | null; command: string; anneal: string;
}
export interface Session {
  token: string; version: string; models: Model[]; uploads: Upload[]; jobs: Job[]; runs: Run[];
}
export interface Event { event: string; [key: string]: unknown }

export class Refused extends Error {
  constructor(message: string, readonly status: number, readonly gaps: string[] = []) {
    super(message);
  }
}

let token = "";

async function read<T>(response: Response): Promise<T> {
  let value: unknown;
  try {
    value = await response.json();
  } catch {
    throw new Refused(`the server said ${response.status}`, response.status);
  }
  if (!response.ok) {
    const said = value as { error?: string; gaps?: string[] };
    throw new Refused(said.error ?? `the server said ${response.status}`, response.status, said.gaps);
  }
  return value as T;
}

async function request(url: string, options?: RequestInit): Promise<Response> {
  try {
    return await fetch(url, options);
  } catch {
    throw new Refused("the studio's server does not answer; is `anneal web` still running?", 0);
  }
}

const ELSEWHERE = "This page is a snapshot of one view, and this is not in it. `anneal web` has all of it.";

export async function get<T>(url: string): Promise<T> {
  if (isSnapshot()) {
    const found = answer(url);
    if (found === undefined) throw new Refused(ELSEWHERE, 0);
    return found as T;
  }
  return read<T>(await request(url));
}

export async function session(): Promise<Session> {
  const found = await get<Session>("/api/session");
  token = found.token;
  return found;
}

// What starts or ends work. A server that was started again has another token, which is asked for once.
export async function send<T>(method: string, url: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  if (isSnapshot()) throw new Refused(ELSEWHERE, 0);
  const raw = body instanceof Blob;
  const once = () =>
    request(url, {
      method,
      headers: { "x-anneal-token": token, ...(raw ? {} : { "content-type": "application/json" }), ...headers },
      body: raw ? (body as Blob) : body === undefined ? undefined : JSON.stringify(body),
    });
  if (!token) await session();
  let response = await once();
  if (response.status === 403) {
    await session();
    response = await once();
  }
  return read<T>(response);
}

const kept = new Map<string, Promise<unknown>>();

export function ask<T>(question: string, parts: Record<string, string | number | boolean | null | undefined>): Promise<T> {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parts)) {
    if (value === null || value === undefined || value === false || value === "") continue;
    query.set(key, value === true ? "1" : String(value));
  }
  const url = `/api/ask/${question}?${query}`;
  let found = kept.get(url) as Promise<T> | undefined;
  if (!found) {
    found = get<T>(url);
    kept.set(url, found);
    found.catch(() => kept.delete(url));
    if (kept.size > 60) kept.delete(kept.keys().next().value as string);
  }
  return found;
}

export interface Asked<T> { value: T | null; error: Refused | null; waiting: boolean }

// What a promise gives, for a view; `key` says when to ask again, null asks nothing.
export function useAsked<T>(key: string | null, make: () => Promise<T>): Asked<T> {
  const [state, set] = useState<Asked<T> & { key: string | null }>({ key: null, value: null, error: null, waiting: false });
  useEffect(() => {
    if (key === null) return;
    let over = false;
    set((s) => ({ key, value: s.value, error: null, waiting: true }));
    make().then(
      (value) => over || set({ key, value, error: null, waiting: false }),
      (error) => over || set({ key, value: null, error: error as Refused, waiting: false }),
    );
    return () => {
      over = true;
    };
  }, [key]);
  if (key === null) return { value: null, error: null, waiting: false };
  return state.key === key ? state : { value: null, error: null, waiting: true };
}

// The events of a job as they come, also those before (from a byte of them on); a lost connection goes on where it was.
export function follow(id: string, lines: (events: Event[]) => void, state: (job: Job) => void, from = "0"): () => void {
  if (isSnapshot()) {
    const found = answer(`/api/jobs/${id}/events`) as { lines: Event[]; state: Job } | undefined;
    let over = false;
    queueMicrotask(() => { if (found && !over) { lines(found.lines); state(found.state); } });
    return () => { over = true; };
  }
  let source: EventSource | null = null;
  let at = from;
  let timer = 0;
  let over = false;
  const open = () => {
    source = new EventSource(`/api/jobs/${id}/events?from=${at}`);
    source.addEventListener("lines", (e) => {
      at = e.lastEventId || at;
      lines(JSON.parse(e.data) as Event[]);
    });
    source.addEventListener("state", (e) => {
      const job = JSON.parse(e.data) as Job;
      state(job);
      if (["done", "failed", "stopped", "cancelled"].includes(job.state)) close();
    });
    source.onerror = () => {
      source?.close();
      if (!over) timer = window.setTimeout(open, 500);
    };
  };
  const close = () => {
    over = true;
    clearTimeout(timer);
    source?.close();
  };
  open();
  return close;
}
