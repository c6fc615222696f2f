"""The pictures of the studio in the documents, and the page of the gallery that is one of its views.

python -m tools.pictures                  all of them, into docs/studio, in two or three minutes
python -m tools.pictures train history    only these

A studio of its own runs in a temporary folder, and what is shown there was really run: two trainings, a check, times of
kernels, a text, a script. Views are found by their addresses and by what has to be there, not by words of the page.
Needs the packages of the extra `test` and a chromium.
"""

from __future__ import annotations

import argparse
import base64
import functools
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anneal.web.asking import environment

__all__ = ["PAGE", "PICTURES", "main"]

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ("--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
CLI = [sys.executable, "-P", "-c", "from anneal.cli import main; main()"]
PAGE, VIEW = "kernels.html", "/k/mlp?kernel=2&line=14"
SCRIPT = """import anneal as an
from anneal import nn, optim

an.manual_seed(0)
x = an.randn(256, 8)
y = x @ an.arange(8).float().reshape(8, 1)
model = nn.Linear(8, 1)
optimizer = optim.Adam(model.parameters(), lr=0.1)
for step in range(200):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step:3}  loss {loss.item():.4f}")
print(f"largest error {(model(x) - y).abs().max().item():.4f}")
"""
# In the page: what the studio answers, as its own script asks.
ASK = """async ([path, body]) => {
  const session = await (await fetch("/api/session")).json();
  if (!path) return session;
  const headers = { "content-type": "application/json", "x-anneal-token": session.token };
  const answer = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
  if (!answer.ok) throw Error(`${path}: ${await answer.text()}`);
  return await answer.json();
}"""
# In the page: the red, green, blue and alpha of a PNG's pixels.
PIXELS = """async (png) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
  const drawn = new OffscreenCanvas(image.width, image.height).getContext("2d");
  drawn.drawImage(image, 0, 0);
  const { data } = drawn.getImageData(0, 0, image.width, image.height);
  let text = "";
  for (let n = 0; n < data.length; n += 32768) text += String.fromCharCode(...data.subarray(n, n + 32768));
  return [image.width, image.height, btoa(text)];
}"""
RUN = {"kind": "train", "model": "makemore-mlp", "device": "cpu", "steps": 1000, "samples": 4, "bundle": True}


class Studio:
    """A studio's page, and the jobs whose results are shown; each is started when a picture first wants it."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url

    def ask(self, path: str = "", body: dict[str, Any] | None = None) -> Any:
        return self.page.evaluate(ASK, [path, body])

    def ended(self, job: Any) -> Any:
        """A job once it is done. RuntimeError for one that ends otherwise."""
        while (job := self.ask(f"/api/jobs/{job['id']}"))["state"] in ("queued", "running"):
            time.sleep(0.2)
        if job["state"] != "done":
            raise RuntimeError(f"the job {job['kind']} of {job['model']} {job['state']}: {job['error']}")
        return job

    def done(self, **body: Any) -> str:
        return str(self.ended(self.ask("/api/jobs", body))["id"])

    @functools.cached_property
    def files(self) -> None:
        """A network and an array among the files of the first page."""
        import anneal as an
        from anneal import nn

        self.page.goto(self.url + "/")
        with tempfile.TemporaryDirectory() as folder:
            an.onnx.export(nn.Linear(4, 2).eval(), an.zeros(3, 4), f"{folder}/net.onnx")
            an.io.save_npy(an.arange(24).reshape(4, 6), f"{folder}/a.npy")
            for name in ("net.onnx", "a.npy"):
                self.page.set_input_files("input[type=file] >> nth=0", f"{folder}/{name}")
                self.page.wait_for_selector(f".files >> text={name}")

    @functools.cached_property
    def first(self) -> Any:
        return self.ended(self.ask("/api/jobs", {**RUN, "lr": 0.003}))

    @functools.cached_property
    def second(self) -> Any:
        """A run that is still going on."""
        self.first  # noqa: B018 -- they take turns at the device
        return self.ask("/api/jobs", {**RUN, "lr": 0.02})

    @functools.cached_property
    def others(self) -> list[Any]:
        """Two shorter runs, with settings of their own."""
        settings = ({"lr": 0.1, "seed": 2}, {"lr": 0.01, "seed": 3})
        return [self.ended(self.ask("/api/jobs", {**RUN, "steps": 400, **some})) for some in settings]

    @functools.cached_property
    def script(self) -> str:
        (job,) = (j for j in self.ask()["jobs"] if j["kind"] == "script")
        return str(self.ended(job)["id"])

    @functools.cached_property
    def check(self) -> str:
        return self.done(kind="check", model="mlp", device="cpu", step=False, gradients=False)

    @functools.cached_property
    def times(self) -> str:
        return self.done(kind="time", model="mlp", device="cpu", step=True)

    @functools.cached_property
    def numerics(self) -> str:
        return self.done(kind="numerics", device="cpu")

    @functools.cached_property
    def text(self) -> str:
        asked = {"prompt": "em", "greedy": False, "max_tokens": 40, "top_k": 40, "temperature": 1.0, "seed": 0}
        return self.done(kind="sample", model="makemore-mlp", device="cpu", weights=self.first["id"], **asked)


def _home(s: Studio) -> str:
    s.script, s.ended(s.second), s.files
    return "/"


def _history(s: Studio) -> str:
    return f"/r/{s.ended(s.second)['run']}?with={s.first['run']}"


def _overlay(s: Studio) -> str:
    runs = [str(job["run"]) for job in (s.first, s.ended(s.second), *s.others)]
    return f"/o?runs={'+'.join(runs)}&x=log&y=log"


def _steps(least: int) -> Callable[[Any], None]:
    """Waits until so many steps of a run are drawn."""

    def wait(page: Any) -> None:
        page.wait_for_function(f"Number(document.querySelector('[data-steps]').dataset.steps) >= {least}")

    return wait


def _reduction(page: Any) -> None:
    page.locator("svg g.box", has_text="REDUCE_AXIS").first.click()
    page.wait_for_selector(".inspector dl")


def _second(page: Any) -> None:
    page.locator("button.token").nth(1).click()
    page.wait_for_selector(".likely")


def _listing(page: Any) -> None:
    """The text of the kernel at the top, below the bar of the page."""
    page.evaluate("document.querySelector('.origin').closest('section').scrollIntoView(); scrollBy(0, -72)")


@dataclass(frozen=True)
class Picture:
    """The address of a view, what is there once it can be used, and what is done before the picture is taken."""

    address: Callable[[Studio], str]
    there: str
    act: Callable[[Any], None] = lambda page: None
    theme: str = "dark"


OPEN = "/v/nanogpt?step=1&open=h.0|h.0/ln_1"
PASSES = "main >> text=memory-plan"  # the last of the list, which comes after the drawing
KERNEL = "/k/mlp?step=1&kernel=2"
# In this order: the second training goes on while it is shown, and what comes behind it waits for its end.
PICTURES = {
    "script": Picture(lambda s: f"/s/job.{s.script}", "main table"),
    "graph": Picture(lambda s: OPEN, PASSES, _reduction),
    "graph-light": Picture(lambda s: OPEN, PASSES, _reduction, "light"),
    "pass": Picture(lambda s: "/v/mlp?step=1&pass=early-rewrites", PASSES),
    "kernels": Picture(lambda s: KERNEL, ".one dl"),
    "wgsl": Picture(lambda s: f"{KERNEL}&line=14", ".origin h3", _listing),
    "memory": Picture(lambda s: "/k/gpt2?step=1&as=memory&kernel=300", ".plot canvas"),
    "explain": Picture(lambda s: "/x/EXP", ".rules"),
    "roofline": Picture(lambda s: f"{KERNEL}&device=cpu&as=roofline&time={s.times}", "main svg circle"),
    "check": Picture(lambda s: f"/c/mlp?job={s.check}", "main table"),
    "doctor": Picture(lambda s: f"/d?cpu={s.numerics}", "main table"),
    "train": Picture(lambda s: f"/t/makemore-mlp?job={s.second['id']}", ".plot canvas", _steps(400)),
    "train-light": Picture(lambda s: f"/t/makemore-mlp?job={s.second['id']}", ".plot canvas", _steps(500), "light"),
    "generate": Picture(lambda s: f"/g/makemore-mlp?job={s.text}", "button.token", _second),
    "history": Picture(_history, ".plot canvas", lambda page: page.evaluate("scrollTo(0, 0)")),
    "overlay": Picture(_overlay, ".plot canvas"),
    "home": Picture(_home, ".device"),
}


@contextmanager
def served(where: Path) -> Iterator[str]:
    """The address that a studio prints, which runs a script in a folder."""
    (where / "fit.py").write_text(SCRIPT, encoding="utf-8")
    command = [*CLI, "web", ":0", "--no-open", "--script", "fit.py"]
    with subprocess.Popen(command, cwd=where, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            process.wait(20)


def take(studio: Studio, name: str, output: Path) -> None:
    """One picture. RuntimeError where the page has something to complain of."""
    picture, page = PICTURES[name], studio.page
    page.emulate_media(color_scheme=picture.theme, reduced_motion="reduce")
    page.goto(studio.url + picture.address(studio))
    page.wait_for_selector(picture.there)
    picture.act(page)
    page.wait_for_function("!document.querySelector('main .spin')")
    if said := page.locator("main [role=alert]").all_inner_texts():
        raise RuntimeError(f"{name}: the page says {said}")
    page.mouse.move(0, 0)
    page.wait_for_timeout(400)  # charts are drawn in the next frame
    width, height, pixels = page.evaluate(PIXELS, base64.b64encode(page.screenshot()).decode())
    (output / f"{name}.png").write_bytes(small(width, height, base64.b64decode(pixels)))


def small(width: int, height: int, pixels: bytes) -> bytes:
    """A PNG of at most 256 colours, the most frequent ones, a third as long as one of all; from RGBA."""
    packed = np.frombuffer(pixels, "<u4") & 0xFFFFFF
    colours, places, counts = np.unique(packed, return_inverse=True, return_counts=True)
    kept = np.sort(np.argsort(-counts, kind="stable")[:256])
    parts = np.stack([colours >> shift & 255 for shift in (0, 8, 16)], axis=1).astype(np.int32)
    nearest = np.concatenate(
        [((p[:, None] - parts[kept]) ** 2).sum(2).argmin(1) for p in np.array_split(parts, len(parts) // 512 + 1)]
    )
    rows = np.zeros((height, width + 1), np.uint8)  # each begins with the number of its filter; 0 is none
    rows[:, 1:] = nearest[places].reshape(height, width)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", parts[kept].astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.pictures", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join([*PICTURES, PAGE])}; none: all")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "studio", help="the folder to write to")
    args = parser.parse_args(words)
    if unknown := set(args.names) - {*PICTURES, PAGE}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    names = args.names or [*PICTURES, PAGE]
    if PAGE in names:
        command = [*CLI, "web", "--snapshot", VIEW, "-o", str(args.output.resolve() / PAGE)]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(command, cwd=folder, env=environment(), check=True, stderr=subprocess.DEVNULL)
    if chosen := [name for name in PICTURES if name in names]:
        _all(chosen, args.output)


def _all(names: list[str], output: Path) -> None:
    from playwright.sync_api import sync_playwright

    chromium = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as p, served(Path(folder)) as address:
        browser = p.chromium.launch(executable_path=chromium, args=FLAGS)
        context = browser.new_context(viewport={"width": 1280, "height": 800}, bypass_csp=True)
        context.set_default_timeout(60_000)
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda e: wrong.append(str(e)))
        page.goto(address)  # what is printed lets this browser in
        page.wait_for_selector("main h1")
        studio = Studio(page, "/".join(address.split("/")[:3]))
        for name in names:
            take(studio, name, output)
            print(f"wrote {output / name}.png", flush=True)
        browser.close()
    if wrong:
        raise RuntimeError(f"errors of the page: {wrong}")


if __name__ == "__main__":
    main()
