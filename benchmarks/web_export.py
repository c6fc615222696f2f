"""Exported pages beside onnxruntime-web, in one browser on one adapter: the first result, a run, and what is fetched.

    python -m benchmarks.web_export --ort FOLDER [--browser PATH] [--adapter swiftshader] [--runs 30]

FOLDER is where `npm install onnxruntime-web@1.30.0` put node_modules. The models are written by `anneal.onnx.export`
(a CNN, a perceptron, a transformer), and both sides read the same file: ours through `anneal.pages`, theirs as it is.
Runs of the two take turns; each waits for its result on the host.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import http.server
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from anneal import nn, onnx, settings
from anneal.pages import export, of_onnx, of_training
from anneal.tensor import Tensor
from anneal.training import load_example

OURS = """async () => {
  const { load } = await import("./anneal.js");
  const begun = performance.now();
  globalThis.ours = await load("./");
  globalThis.inputs = await ours.example("run");
  globalThis.ourRun = async () => Object.values(await ours.call("run", inputs))[0].data;
  await ourRun();
  return performance.now() - begun;
}"""
THEIRS = """async ([name, shape, kind]) => {
  const ort = await import("../ort/ort.webgpu.bundle.min.mjs");
  ort.env.wasm.wasmPaths = new URL("../ort/", location.href).href;
  ort.env.wasm.numThreads = 1;
  const begun = performance.now();
  const session = await ort.InferenceSession.create("model.onnx", { executionProviders: ["webgpu"] });
  const data = kind === "int64" ? BigInt64Array.from(inputs[Object.keys(inputs)[0]], BigInt) : inputs[Object.keys(inputs)[0]];
  const feeds = { [session.inputNames[0]]: new ort.Tensor(kind, data, shape) };
  globalThis.theirRun = async () => (await session.run(feeds))[session.outputNames[0]].data;
  await theirRun();
  return performance.now() - begun;
}"""
TURNS = """async (count) => {
  const times = [[], []];
  for (let n = 0; n < count; n++)
    for (const [k, run] of [ourRun, theirRun].entries()) {
      const begun = performance.now();
      await run();
      times[k].push(performance.now() - begun);
    }
  const [a, b] = [await ourRun(), await theirRun()];
  let worst = 0, size = 0;
  for (let n = 0; n < a.length; n++) [worst, size] = [Math.max(worst, Math.abs(a[n] - Number(b[n]))), Math.max(size, Math.abs(a[n]))];
  if (!(size > 0)) throw new Error("the results are zeros");
  return [...times.map((t) => t.sort((x, y) => x - y)[t.length >> 1]), worst / size];
}"""


def models() -> dict[str, tuple[nn.Module, Tensor]]:
    """A CNN, a perceptron and a transformer, each with an input."""
    rng = np.random.default_rng(0)
    cnn = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 64, 10),
    )  # fmt: skip
    mlp = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    gpt = nn.GPT(vocab_size=65, block_size=64, n_layer=4, n_head=4, n_embd=128)
    return {
        "cnn": (cnn.eval(), Tensor(rng.normal(size=(1, 3, 32, 32)).astype(np.float32))),
        "mlp": (mlp.eval(), Tensor(rng.normal(size=(64, 256)).astype(np.float32))),
        "transformer": (gpt.eval(), Tensor(rng.integers(0, 65, (1, 64)).astype(np.int32))),
    }


def prepared(place: Path, ort: Path) -> dict[str, tuple[list[int], str, str]]:
    """The folders of all models, with the shape, the dtype and the name of each one's input."""
    files = (ort / "node_modules/onnxruntime-web/dist").glob("ort*")
    (place / "ort").mkdir()
    for f in files:
        if f.name.startswith(("ort.webgpu.bundle.min.mjs", "ort-wasm-simd-threaded.asyncify")):
            shutil.copy(f, place / "ort")
    found = {}
    for name, (model, x) in models().items():
        folder = place / name
        folder.mkdir()
        onnx.export(model, (x,), folder / "model.onnx")
        loaded = onnx.load(folder / "model.onnx", "cpu")
        recipe = of_onnx(loaded, {loaded.inputs[0].name: x})
        export(recipe.functions, recipe.examples, folder, page=recipe.page)
        found[name] = (list(x.shape), str(loaded.inputs[0].dtype), loaded.inputs[0].name)
        (folder / "empty.html").write_text("<!doctype html>")
    return found


def compressed(folder: Path, names: list[str]) -> int:
    """The bytes of files as a server that compresses sends them."""
    return sum(len(gzip.compress((folder / n).read_bytes(), 9)) for n in names)


def sizes() -> None:
    """What a page of nanogpt is, without its weights."""
    example = load_example("nanogpt")
    training = example.make(steps=1, batch=8, seed=1, lr=example.LR)
    with tempfile.TemporaryDirectory() as at:
        recipe = of_training("nanogpt", training, False)
        made = export(recipe.functions, recipe.examples, at, page=recipe.page)
        names = [n for n in made.files if n != "weights.safetensors"]
        print(f"nanogpt, all but the weights, compressed: {compressed(Path(at), names):,} bytes")
        print(f"runtime anneal.js, compressed: {compressed(Path(at), ['anneal.js']):,} bytes")


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ort", type=Path, required=True)
    parser.add_argument("--browser", default=shutil.which("chromium"))
    parser.add_argument("--adapter", default="swiftshader")
    parser.add_argument("--runs", type=int, default=30)
    given = parser.parse_args()
    flags = ["--no-sandbox", "--enable-unsafe-webgpu"]
    flags += [f"--use-webgpu-adapter={given.adapter}"] if given.adapter else []
    with tempfile.TemporaryDirectory() as at, settings.override(device="cpu"):
        sizes()
        found = prepared(Path(at), given.ort)
        theirs = compressed(Path(at) / "ort", [f.name for f in (Path(at) / "ort").iterdir() if f.suffix != ".map"])
        print(f"onnxruntime-web, compressed: {theirs:,} bytes")
        handler: Any = functools.partial(http.server.SimpleHTTPRequestHandler, directory=at)
        http.server.SimpleHTTPRequestHandler.log_message = lambda *_: None  # type: ignore[method-assign]
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with sync_playwright() as p:
            browser = p.chromium.launch(executable_path=given.browser, args=flags)
            print(f"chromium {browser.version}, {given.adapter}, {time.strftime('%Y-%m-%d')}; milliseconds")
            print(
                "| model | first result, ours | theirs | a run, ours | theirs | ratio | difference |\n|---|---|---|---|---|---|---|"
            )
            for name, (shape, kind, _) in found.items():
                page = browser.new_context().new_page()
                page.goto(f"http://127.0.0.1:{server.server_port}/{name}/empty.html")
                first = page.evaluate(OURS), page.evaluate(THEIRS, [name, shape, kind])
                ours, other, worst = page.evaluate(TURNS, given.runs)
                print(
                    f"| {name} | {first[0]:.0f} | {first[1]:.0f} | {ours:.1f} | {other:.1f} | {ours / other:.2f} | {worst:.1e} |"
                )
                page.close()
            browser.close()
        server.shutdown()


if __name__ == "__main__":
    main()
