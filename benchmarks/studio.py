"""The studio's speed, in a headless chromium: start, first view, a large graph, live training, and what that costs.

python -m benchmarks.studio --runs 10 --json

Needs the packages playwright, starlette and uvicorn, and a chromium on the path. Every figure stands with the load of
the machine; where others work beside it, the minima tell, and the processor's time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import _harness as h

FLAGS = ("--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
CLI = "from anneal.cli import main; main()"
GRAPH = "/v/gpt2?step=1"
# What, its bar, and its unit.
BARS = {
    "first response": (0.8, "s"),
    "first response, processor": (None, "s"),
    "first view": (1.5, "s"),
    "sent for the first view": (600, "KB"),
    "graph, nothing known": (None, "s"),
    "graph, plan known, new server": (3.0, "s"),
    "graph, seen before": (3.0, "s"),
    "boxes": (150, ""),
    "opening a module": (1.0, "s"),
    "panning": (45, "frames/s"),
    "zooming": (45, "frames/s"),
    "search": (100, "ms"),
    "event to pixel": (150, "ms"),
    "drawing a run, browser": (None, "% of a core"),
    "drawing a run, server": (None, "% of a core"),
    "slower, no page": (3, "%"),
    "slower, no page, a step": (3, "%"),
    "slower, one page": (15, "%"),
    "slower, one page, a step": (15, "%"),
}
# In the page: after `act`, the milliseconds until `done` holds and a frame with it was drawn.
AFTER = """([act, done]) => new Promise((told) => {
  const begun = performance.now();
  const holds = new Function(`return ${done}`);
  const look = () => holds() ? requestAnimationFrame(() => setTimeout(() => told(performance.now() - begun))) : setTimeout(look, 1);
  new Function(act)();
  look();
})"""
# Frames in a second of moves, one before each frame.
FRAMES = """(kind) => new Promise((told) => {
  const svg = document.querySelector(".canvas svg");
  const { left, top, width, height } = svg.getBoundingClientRect();
  const [x, y] = [left + width / 2, top + height / 2];
  const send = (type, more) => svg.dispatchEvent(new (type === "wheel" ? WheelEvent : PointerEvent)(type, { bubbles: true, pointerId: 1, ...more }));
  svg.setPointerCapture = () => {};
  svg.hasPointerCapture = () => true;
  if (kind === "pan") send("pointerdown", { clientX: x, clientY: y, button: 0 });
  let frames = 0;
  let begun = 0;
  const frame = (now) => {
    begun ||= now;
    if (now - begun > 1500) {
      if (kind === "pan") send("pointerup", {});
      return told((frames * 1000) / (now - begun));
    }
    frames++;
    const at = Math.sin(frames / 20);
    if (kind === "pan") send("pointermove", { clientX: x + 200 * at, clientY: y - 4 * frames });
    else send("wheel", { clientX: x, clientY: y, deltaY: 60 * at });
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""
# Notes when each count of steps was drawn.
WATCH = """() => {
  window.seen = [];
  const look = () => {
    const n = Number(document.querySelector("[data-steps]")?.dataset.steps ?? 0);
    if (n !== window.seen.at(-1)?.[0]) setTimeout(() => window.seen.push([n, Date.now()]));
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""


class Served:
    """A studio in a process of its own, its address, and the seconds until it first answered."""

    def __init__(self, where: Path, cache: Path) -> None:
        self.where, begun = where, time.perf_counter()
        env = h.environment({"ANNEAL_CACHE_DIR": str(cache)})
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", CLI, "web", ":0", "--no-open"], cwd=where, env=env, stdout=subprocess.PIPE, text=True
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1].partition("/?")[0]
        with urllib.request.urlopen(self.url + "/") as answer:
            answer.read()
        self.token = (where / "runs" / ".studio" / "token").read_text()
        self.first, self.begun = time.perf_counter() - begun, begun
        self.cpu = _cpu(self.process.pid)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"x-anneal-token": self.token}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers)) as answer:
            return json.load(answer)


@contextmanager
def served(where: Path, cache: Path) -> Iterator[Served]:
    found = Served(where, cache)
    try:
        yield found
    finally:
        found.stop()


def _cpu(pid: int) -> float:
    """Seconds of processor time of a process so far; 0 where there is no /proc."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def page(browser: Any, studio: Served, path: str, there: str) -> Iterator[tuple[Any, float]]:
    """A new page at a path, and the seconds until `there` could be seen in it."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    name = f"anneal_token_{studio.url.rpartition(':')[2]}"
    context.add_cookies([{"name": name, "value": studio.token, "url": studio.url}])
    context.set_default_timeout(120_000)
    found = context.new_page()
    begun = time.perf_counter()
    found.goto(studio.url + path)
    found.wait_for_selector(there)
    try:
        yield found, time.perf_counter() - begun
    finally:
        context.close()


def starts(browser: Any, runs: int, where: Path, cache: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {
        k: [] for k in ("first response", "first response, processor", "first view", "sent for the first view")
    }
    for _ in range(runs):
        with served(where, cache) as studio:
            found["first response"].append(studio.first)
            found["first response, processor"].append(studio.cpu)
            with page(browser, studio, "/", ".models .links a") as (p, seconds):
                found["first view"].append(seconds)
                entries = "[...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]"
                found["sent for the first view"].append(
                    p.evaluate(f"{entries}.reduce((s, e) => s + e.transferSize, 0)") / 1024
                )
    return found


def graphs(browser: Any, runs: int, where: Path, cache: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}

    def put(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    for _ in range(max(1, runs // 5)):
        with (
            tempfile.TemporaryDirectory() as empty,
            served(where, Path(empty)) as studio,
            page(browser, studio, GRAPH, "svg g.box") as (_, seconds),
        ):
            put("graph, nothing known", seconds)
    with served(where, cache) as studio, page(browser, studio, GRAPH, "svg g.box"):
        pass
    for _ in range(runs):
        with served(where, cache) as studio:
            for name in ("graph, plan known, new server", "graph, seen before"):
                with page(browser, studio, GRAPH, "svg g.box") as (p, seconds):
                    put(name, seconds)
                    put("boxes", p.locator("svg g.box").count())
                    if name.endswith("before"):
                        _used(p, put)
    return found


def _used(p: Any, put: Callable[[str, float], None]) -> None:
    """A graph that is opened, searched and moved."""
    put("zooming", p.evaluate(FRAMES, "zoom"))
    put("panning", p.evaluate(FRAMES, "pan"))
    before = p.locator("svg g.box").count()
    act = (
        "document.querySelector('[data-key=\"h.3\"] .toggle').dispatchEvent(new MouseEvent('click', { bubbles: true }))"
    )
    put("opening a module", p.evaluate(AFTER, [act, f"document.querySelectorAll('svg g.box').length > {before}"]) / 1e3)
    act = (
        "const i = document.querySelector('#find'); i.value = 'reduce_axis 768'; "
        "i.dispatchEvent(new Event('input', { bubbles: true }))"
    )
    put("search", p.evaluate(AFTER, [act, "document.querySelector('.hits button')"]))


def training(browser: Any, where: Path, cache: Path, model: str, steps: int, rounds: int) -> dict[str, list[float]]:
    """How much slower a run is through the studio than in the terminal, in per cent, and when its events were drawn.

    A round is a run of each kind, beside which nothing else is measured, and compares them with one another: the clock
    of a machine wanders. The kinds take turns at being first. `a step` compares the fastest tenth of the steps, which
    the machine's other work leaves alone. The times of events are those of one more run.
    """
    kinds: tuple[str, ...] = ("terminal", "no page", "one page")
    found: dict[str, list[float]] = {"event to pixel": []}
    with served(where, cache) as studio:

        def run(kind: str, lags: list[float] | None = None) -> Run:
            if kind == "terminal":
                return _terminal(where, cache, model, steps)
            if kind == "no page":
                return _through(studio, model, steps)
            with page(browser, studio, f"/t/{model}", "form") as (p, _):
                return _through(studio, model, steps, p, lags)

        run("terminal")  # plans
        run("one page", found["event to pixel"])
        for n in range(rounds):
            runs = {kind: run(kind) for kind in kinds[n % 3 :] + kinds[: n % 3]}
            for kind in kinds[1:]:
                for part, field in (("", "wall"), (", a step", "step"), (", processor", "cpu")):
                    ratio = getattr(runs[kind], field) / getattr(runs["terminal"], field)
                    found.setdefault(f"slower, {kind}{part}", []).append((ratio - 1) * 100)
    return found


@dataclass(frozen=True)
class Run:
    """Seconds, seconds of the processor, and milliseconds of a step among the fastest tenth."""

    wall: float
    cpu: float
    step: float


def _fast(events: str) -> float:
    """The tenth percentile of the steps' times, in milliseconds."""
    times = sorted(e["ms"] for line in events.splitlines() if (e := json.loads(line))["event"] == "step")
    return float(times[len(times) // 10])


def _terminal(where: Path, cache: Path, model: str, steps: int) -> Run:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    words = ["train", model, "--device", "cpu", "--steps", str(steps), "--json"]
    env = h.environment({"ANNEAL_CACHE_DIR": str(cache)})
    line = [sys.executable, "-P", "-c", CLI, *words]
    done = subprocess.run(line, cwd=where, env=env, capture_output=True, text=True, check=True)
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(wall, cpu, _fast(done.stdout))


def _through(studio: Served, model: str, steps: int, p: Any = None, lags: list[float] | None = None) -> Run:
    """The same of a job of the studio's, which page `p` shows; `lags` gets the milliseconds from each event to its
    pixel, and looking for these takes a little of the processor, too.
    """
    job = studio.ask("/api/jobs", {"kind": "train", "model": model, "device": "cpu", "steps": steps})
    place = studio.where / "runs/.studio/jobs" / job["id"]
    written: list[tuple[int, float]] = []
    ended = threading.Event()
    watching = threading.Thread(target=_note, args=(place / "events.jsonl", written, ended))
    if p is not None:
        p.goto(studio.url + f"/t/{model}?job={job['id']}")
    if p is not None and lags is not None:
        p.evaluate(WATCH)
        watching.start()
    while not (pid := studio.ask(f"/api/jobs/{job['id']}")["pid"]):
        time.sleep(0.05)
    cpu = 0.0
    while not (place / "exit").exists():
        cpu = max(cpu, _cpu(pid))
        time.sleep(0.05)
    while (now := studio.ask(f"/api/jobs/{job['id']}"))["state"] in ("queued", "running"):
        time.sleep(0.05)
    if now["state"] != "done":
        raise RuntimeError(f"the run {now['state']}: {now['error']}")
    if p is not None:
        p.wait_for_selector(f"[data-steps='{steps}']")
    if p is not None and lags is not None:
        ended.set()
        watching.join()
        p.wait_for_timeout(100)
        seen = p.evaluate("window.seen")
        for count, at in written:
            drawn = [t for n, t in seen if n >= count]
            if drawn:
                lags.append(drawn[0] - at * 1e3)
    return Run(now["ended"] - now["started"], cpu, _fast((place / "events.jsonl").read_text()))


def _note(path: Path, written: list[tuple[int, float]], ended: threading.Event) -> None:
    """When the file of events had how many steps, within two milliseconds."""
    steps = at = 0
    while not ended.wait(0.002):
        with suppress(OSError):
            if path.stat().st_size > at:
                now = time.time()
                with path.open("rb") as f:
                    f.seek(at)
                    text = f.read()
                text = text[: text.rfind(b"\n") + 1]  # a line that is not whole is read again
                at += len(text)
                more = text.count(b'"event": "step"')
                steps += more
                if more:
                    written.append((steps, now))


def told(driver: Any, chromium: str, where: Path, cache: Path, seconds: float = 12.0) -> dict[str, list[float]]:
    """What a page and the server take of one core while a run is told that does 80 steps a second; no run is there.

    The job's lock is held, and its events are written, by this process.
    """
    from filelock import FileLock

    place = where / "runs/.studio/jobs/20260314T150926-train-a1b2c3"
    place.mkdir(parents=True)
    facts = {"id": place.name, "kind": "train", "model": "makemore-mlp", "device": "cpu", "arguments": [], "about": {}}
    (place / "job.json").write_text(json.dumps({**facts, "state": "running", "pid": os.getpid()}))
    count = 0
    with FileLock(place / "lock"), (place / "events.jsonl").open("a") as events, served(where, cache) as studio:
        before = _descendants(os.getpid())
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        with page(browser, studio, f"/t/makemore-mlp?job={place.name}", "[data-steps]") as (p, _):
            p.wait_for_timeout(2000)
            ours = _descendants(os.getpid()) - before
            begun, cpu = time.perf_counter(), [sum(map(_cpu, ours)), _cpu(studio.process.pid)]
            while time.perf_counter() - begun < seconds:
                for _ in range(8):
                    count += 1
                    step = {"step": count, "loss": 3 / count + count % 7 / 50, "ms": 12 + count % 5 / 9}
                    events.write(json.dumps({"event": "step", **step, "lr": 0.1, "norm": 1 + count % 9 / 9}) + "\n")
                events.flush()
                time.sleep(0.1)
            took = time.perf_counter() - begun
            shares = [100 * (sum(map(_cpu, ours)) - cpu[0]) / took, 100 * (_cpu(studio.process.pid) - cpu[1]) / took]
            p.wait_for_selector(f"[data-steps='{count}']")
        browser.close()
    return {"drawing a run, browser": [shares[0]], "drawing a run, server": [shares[1]]}


def _descendants(root: int) -> set[int]:
    """The processes that one started, and those that they did; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            children.setdefault(int(stat.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return {*found[1:]}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    chromium = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
    if chromium is None:
        raise SystemExit("there is no chromium on the path")
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place, sync_playwright() as driver:
        where, cache = Path(place) / "here", Path(place) / "cache"
        where.mkdir()
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        if "start" in args.parts:
            found |= starts(browser, args.runs, where, cache)
        if "graph" in args.parts:
            found |= graphs(browser, args.runs, where, cache)
        if "train" in args.parts:
            found |= training(browser, where, cache, args.model, args.steps, args.rounds)
        if "page" in args.parts:
            found |= told(driver, chromium, Path(place) / "told", cache)
        browser.close()
    rows = {}
    for name, values in found.items():
        bar, unit = BARS.get(name, (None, "%"))
        rows[name] = {**h.summary(values), "max": max(values), "count": len(values), "bar": bar, "unit": unit}
    return {"benchmark": "studio", "machine": h.machine(), "load": os.getloadavg(), "results": rows}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studio", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument(
        "--parts", default="start,graph,page,train", help="some of start, graph, page and train, with commas between"
    )
    parser.add_argument("--model", default="makemore-mlp", help="what is trained")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=10, help="runs of each kind of training")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.parts = h.chosen_names(parser, args.parts, ("start", "graph", "page", "train"), "part")
    result = measure(args)
    rows = [
        {"what": f"{n} ({r['unit']})" if r["unit"] else n, "min": r["min"], "median": r["median"], "max": r["max"], "bar": r["bar"] or ""}
        for n, r in result["results"].items()
    ]  # fmt: skip
    h.report(result, rows, args.json)
    if not args.json:
        print(f"load of the machine: {', '.join(f'{x:.1f}' for x in result['load'])} (1, 5, 15 minutes)")


if __name__ == "__main__":
    main()
