// Small parts that pages are made of. Text is put into a page as text alone.
export function byId(id: string): HTMLElement {
  return document.getElementById(id)!;
}

/** An element with attributes and children; an attribute that is a function listens. */
export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Record<string, unknown> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value as EventListener);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined) made.setAttribute(key, String(value));
  }
  made.append(...children);
  return made;
}

export function bytes(n: number): string {
  return n < 1e4 ? `${n} bytes` : n < 1e6 ? `${(n / 1e3).toFixed(0)} KB` : `${(n / 1e6).toFixed(1)} MB`;
}

/** Numbers as probabilities. */
export function softmax(numbers: ArrayLike<number>): number[] {
  const all = Array.from(numbers);
  const most = Math.max(...all);
  const powers = all.map((x) => Math.exp(x - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((x) => x / sum);
}

/** What tells, of each question that is asked in turn, whether it is the last one still: its answer may be shown then. */
export function turns(): () => () => boolean {
  let last = 0;
  return () => {
    const mine = ++last;
    return () => mine === last;
  };
}

/** A table of names with shares, largest first. */
export function shares(named: [string, number][], most = 5): HTMLElement {
  const rows = [...named].sort((a, b) => b[1] - a[1]).slice(0, most);
  const body = rows.map(([name, share]) =>
    element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, element("meter", { value: share, "aria-label": name })), element("td", {}, `${(100 * share).toFixed(1)} %`)),
  );
  return element("table", {}, element("tbody", {}, ...body));
}

/** A button that saves a blob as a file. */
export function saveAs(blob: Blob, name: string): void {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

export const frame = (): Promise<number> => new Promise((done) => requestAnimationFrame(done));
