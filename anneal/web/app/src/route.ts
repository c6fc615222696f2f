// The address is the state: every view reads what it shows from the path and the query, and writes it there.
import { useEffect, useState } from "preact/hooks";
import { address, isSnapshot } from "./snapshot";

export interface Route {
  view: string;
  name: string;
  query: URLSearchParams;
}

const listeners = new Set<() => void>();

export function current(): Route {
  const at = address();
  const [view = "", ...rest] = at.pathname.replace(/^\//, "").split("/");
  let name = rest.join("/");
  try {
    name = decodeURIComponent(name);
  } catch {
    // shown as it stands
  }
  return { view, name, query: at.searchParams };
}

export function go(url: string, replace = false): void {
  const at = address();
  if (url === at.pathname + at.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", isSnapshot() ? `#${url}` : url);
  for (const f of listeners) f();
}

// The address with some of the query changed; null removes a part.
export function withQuery(changes: Record<string, string | number | boolean | null>): string {
  const at = address();
  const query = at.searchParams;
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === false || value === "") query.delete(key);
    else query.set(key, value === true ? "1" : String(value));
  }
  const text = query.toString();
  return at.pathname + (text ? `?${text}` : "");
}

export function put(changes: Record<string, string | number | boolean | null>, replace = false): void {
  go(withQuery(changes), replace);
}

export function link(view: string, name = "", query: Record<string, string | number | boolean | null> = {}): string {
  const parts = Object.entries(query).filter(([, v]) => v !== null && v !== false && v !== "");
  const text = new URLSearchParams(parts.map(([k, v]) => [k, v === true ? "1" : String(v)])).toString();
  return `/${view}${name ? `/${encodeURIComponent(name)}` : ""}${text ? `?${text}` : ""}`;
}

// What an address says of the graph that is looked at, for links to its other views.
export function kept(route: Route): Record<string, string | null> {
  return { step: route.query.get("step"), device: route.query.get("device"), plan: route.query.get("plan") };
}

// Whether a name is of a program that can be checked: one that was dropped, or that a job recorded.
export const isScript = (name: string): boolean => name.startsWith("job.") || name.endsWith(".py");

// Whether a name is of a recording, which has plans, rather than of a model.
export const isRecording = (name: string): boolean => name.startsWith("job.") || name.endsWith(".zip");

export function useRoute(): Route {
  const [route, set] = useState(current);
  useEffect(() => {
    const update = () => set(current());
    const click = (e: MouseEvent) => {
      const a = (e.target as Element | null)?.closest?.("a");
      if (!a || e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || a.target) return;
      const written = a.getAttribute("href") ?? "";
      if (a.origin !== location.origin || a.hash || a.hasAttribute("download") || !written.startsWith("/")) return;
      e.preventDefault();
      const before = address().pathname;
      go(written);
      if (address().pathname !== before) {
        scrollTo(0, 0);
        requestAnimationFrame(() => document.querySelector<HTMLElement>("h1")?.focus());
      }
    };
    listeners.add(update);
    addEventListener("popstate", update);
    document.addEventListener("click", click);
    return () => {
      listeners.delete(update);
      removeEventListener("popstate", update);
      document.removeEventListener("click", click);
    };
  }, []);
  return route;
}
