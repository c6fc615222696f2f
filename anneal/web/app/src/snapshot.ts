// A page of one view is self-contained: it holds the answers that it shows (anneal/web/snapshots.py).
interface Kept { view: string; made: number; answers: Record<string, unknown>; files: Record<string, string> }

let kept: Kept | null = null;
const made = new Map<string, string>();

// Unpack what the page has, if it is such a page.
export async function unpack(): Promise<void> {
  const host = document.getElementById("snapshot");
  if (!host) return;
  const packed = Uint8Array.from(atob(host.textContent!), (c) => c.charCodeAt(0));
  const text = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  kept = JSON.parse(text) as Kept;
  if (!location.hash) history.replaceState(null, "", `#${kept.view}`);
}

export const isSnapshot = (): boolean => kept !== null;
export const madeAt = (): number => kept?.made ?? 0;

// The answer at an address; undefined where the page has none.
export function answer(url: string): unknown {
  const at = new URL(url, "file:///");
  const parts = [...at.searchParams].map(([k, v]) => `&${k}=${v}`).sort();
  return kept!.answers[at.pathname + parts.join("")];
}

// The address of a file of the studio's: in a snapshot one of data, or of text that the page has.
export function file(url: string): string {
  if (!kept) return url;
  const found = kept.files[url] ?? "data:,";
  if (found.startsWith("data:")) return found;
  if (!made.has(url)) made.set(url, URL.createObjectURL(new Blob([found], { type: "text/javascript" })));
  return made.get(url)!;
}

// Where the page is: a snapshot keeps its view behind the #.
export function address(): URL {
  return new URL(kept ? location.hash.slice(1) || "/" : location.pathname + location.search, "file:///");
}
