// Bundles src/ into ../static, or with --check says which built files differ from what the sources make.
import { build } from "esbuild";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "..", "static");
const made = new Map();

const bundled = await build({
  absWorkingDir: here,
  entryPoints: [
    { in: "src/main.tsx", out: "main" },
    { in: "src/layout-worker.ts", out: "layout-worker" }, // only the graph's view asks for it
    { in: "src/style.css", out: "style" },
  ],
  outdir: target,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  write: false,
  logLevel: "warning",
});
for (const file of bundled.outputFiles) made.set(file.path.slice(target.length + 1), Buffer.from(file.contents));
made.set("index.html", readFileSync(join(here, "src/index.html")));
made.set("icon.svg", readFileSync(join(here, "src/icon.svg")));
const notices = ["preact", "uplot", "@dagrejs/dagre", "@dagrejs/graphlib"].map((name) => {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json")));
  const text = readdirSync(folder).find((f) => /^licen[cs]e/i.test(f));
  return `${name} ${version} (${license})\n\n${text ? readFileSync(join(folder, text), "utf8") : ""}`;
});
made.set("licences.txt", Buffer.from(notices.join("\n\n----\n\n")));

mkdirSync(target, { recursive: true });
if (process.argv.includes("--check")) {
  const there = new Set(readdirSync(target));
  const wrong = [...made].filter(([n, t]) => !existsSync(join(target, n)) || !readFileSync(join(target, n)).equals(t));
  const extra = [...there].filter((n) => !made.has(n));
  for (const [name] of wrong) console.error(`${name} is not what the sources make`);
  for (const name of extra) console.error(`${name} is made of no source`);
  process.exit(wrong.length + extra.length ? 1 : 0);
}
for (const name of readdirSync(target)) if (!made.has(name)) rmSync(join(target, name));
for (const [name, text] of made) writeFileSync(join(target, name), text);
