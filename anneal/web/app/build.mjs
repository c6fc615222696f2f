// Bundles src/ into ../static and src/pages into ../../pages/static, or with --check says which built files differ from
// what the sources make.
import { build } from "esbuild";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  legalComments: "none",
  charset: "utf8",
  write: false,
  logLevel: "warning",
};

/** The files that a bundle has, by their names in the folder `out`. */
async function bundle(out, options) {
  const { outputFiles } = await build({ ...common, outdir: out, ...options });
  return outputFiles.map((file) => [file.path.slice(out.length + 1), Buffer.from(file.contents)]);
}

async function studio(out) {
  const made = await bundle(out, {
    entryPoints: [
      { in: "src/main.tsx", out: "main" },
      { in: "src/layout-worker.ts", out: "layout-worker" }, // only the graph's view asks for it
      { in: "src/style.css", out: "style" },
    ],
    jsx: "automatic",
    jsxImportSource: "preact",
  });
  const notices = ["preact", "uplot", "@dagrejs/dagre", "@dagrejs/graphlib"].map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json")));
    const text = readdirSync(folder).find((f) => /^licen[cs]e/i.test(f));
    return `${name} ${version} (${license})\n\n${text ? readFileSync(join(folder, text), "utf8") : ""}`;
  });
  return new Map([
    ...made,
    ["index.html", readFileSync(join(here, "src/index.html"))],
    ["icon.svg", readFileSync(join(here, "src/icon.svg"))],
    ["licences.txt", Buffer.from(notices.join("\n\n----\n\n"))],
  ]);
}

/** What `anneal export` puts beside a model: the page takes the runtime from the file next to it, `single` has both. */
async function pages(out) {
  const entry = (name, as = name) => [{ in: `./src/pages/${name}`, out: as }];
  const apart = { name: "apart", setup: (b) => b.onResolve({ filter: /^\.\/anneal$/ }, () => ({ path: "./anneal.js", external: true })) };
  const types = mkdtempSync(join(tmpdir(), "types-"));
  const tsc = join(here, "node_modules/typescript/bin/tsc");
  execFileSync(process.execPath, [tsc, "--declaration", "--rootDir", "src", "--emitDeclarationOnly", "--outDir", types], { cwd: here });
  const declared = ["format", "files", "engine", "anneal"].map((name) => readFileSync(join(types, "pages", `${name}.d.ts`), "utf8"));
  rmSync(types, { recursive: true });
  return new Map([
    ...(await bundle(out, { entryPoints: entry("anneal.ts", "anneal") })),
    ...(await bundle(out, { entryPoints: entry("page.ts", "page"), plugins: [apart] })),
    ...(await bundle(out, { entryPoints: entry("page.ts", "single") })),
    ...(await bundle(out, { entryPoints: [...entry("style.css", "style"), ...entry("sw.ts", "sw")] })),
    ["anneal.d.ts", Buffer.from(declared.join("\n").replace(/^(import .* from "\.\/.*";|export .* from "\.\/.*";)\n/gm, ""))],
    ["index.html", readFileSync(join(here, "src/pages/index.html"))],
  ]);
}

let faults = 0;
for (const [out, make] of [
  [join(here, "..", "static"), studio],
  [join(here, "..", "..", "pages", "static"), pages],
]) {
  const made = await make(out);
  mkdirSync(out, { recursive: true });
  const there = readdirSync(out);
  if (process.argv.includes("--check")) {
    const wrong = [...made].filter(([n, t]) => !existsSync(join(out, n)) || !readFileSync(join(out, n)).equals(t));
    const extra = there.filter((n) => !made.has(n));
    for (const [name] of wrong) console.error(`${name} is not what the sources make`);
    for (const name of extra) console.error(`${name} is made of no source`);
    faults += wrong.length + extra.length;
  } else {
    for (const name of there) if (!made.has(name)) rmSync(join(out, name));
    for (const [name, text] of made) writeFileSync(join(out, name), text);
  }
}
process.exit(faults ? 1 : 0);
