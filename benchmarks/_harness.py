"""What the benchmarks share: the machine's name, warm timing, cold child processes, waiting workers, tables."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a worker binds itself to cores before NumPy starts its threads
    import numpy.typing as npt

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Config:
    """One training problem: a GPT over characters, tanh-gelu, no dropout, AdamW."""

    vocab: int = 65
    layers: int = 4
    heads: int = 4
    width: int = 128
    context: int = 64
    batch: int = 12

    def deeper(self, layers: int | None) -> Config:
        return self if layers is None else replace(self, layers=layers)


CONFIGS = {"baby": Config(), "full": Config(layers=6, heads=6, width=384, context=256, batch=64)}


def machine() -> dict[str, Any]:
    """Processor, cores, system and the versions that decide the figures."""
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "versions": {p: v for p in ("numpy", "wgpu", "torch", "jax", "tinygrad") if (v := _version(p))},
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def resident_mib() -> float:
    """Resident size of this process in MiB, from /proc where there is one, else the peak."""
    try:
        with open("/proc/self/status", encoding="ascii") as f:
            for line in f:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def timed_steps(step: Callable[[], Any], wait: Callable[[], Any], count: int) -> list[float]:
    """Milliseconds of each of `count` steps, every one waited for."""
    out = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        wait()
        out.append((time.perf_counter() - start) * 1e3)
    return out


def pipelined_step(step: Callable[[], Any], wait: Callable[[], Any], count: int) -> float:
    """Milliseconds a step when only the last of `count` is waited for."""
    wait()
    start = time.perf_counter()
    for _ in range(count):
        step()
    wait()
    return (time.perf_counter() - start) * 1e3 / count


def warm(step: Callable[[], Any], wait: Callable[[], Any], seconds: float = 0.1, least: int = 3) -> None:
    """Run for `seconds` and at least `least` times: clocks rise, caches fill, graphs are captured."""
    end = time.perf_counter() + seconds
    done = 0
    while done < least or time.perf_counter() < end:
        step()
        done += 1
        wait()


def measure(run: Callable[[int], float], rounds: int = 5, least: float = 0.01, heat: float = 0.1) -> dict[str, Any]:
    """Seconds of one repeat, where `run(n)` does n of them and returns the seconds that the device took.

    Compiled by a first run, warm after `heat` seconds of work, then `rounds` batches of at least `least` seconds: short
    bursts after a pause meet a clock that has not risen yet.
    """
    run(1)
    once = min(run(1) for _ in range(2))
    count = max(1, min(2048, math.ceil(heat / 4 / once)))
    spent = 0.0
    while spent < heat:
        once = max(run(count), 1e-9)
        spent, once = spent + once, once / count
    count = max(1, min(2048, math.ceil(1.2 * least / once)))
    run(count)
    times = [run(count) / count for _ in range(rounds)]
    return {"seconds": statistics.median(times), "best_seconds": min(times), "repeats": count}


def summary(values: Sequence[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values)}


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child process: this one's, the repository on the path, and `extra`."""
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    return env | dict(extra or {})


def cold(module: str, *args: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run `python -m module args` in a fresh interpreter; its last line of stdout is the JSON result."""
    result: dict[str, Any] = json.loads(ran([sys.executable, "-m", module, *args], env).strip().splitlines()[-1])
    return result


def ran(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """The output of a command that is run in the repository; if it fails, this program ends."""
    done = subprocess.run(command, env=environment(env), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed with code {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


class Worker:
    """A child process that keeps a model ready and runs a round of steps whenever it is asked.

    One line of JSON says that it is ready; each number written to it is answered by one line of JSON. Between rounds
    it sleeps in a read, so contestants in separate workers can take turns on one machine.
    """

    def __init__(self, module: str, *args: str, env: Mapping[str, str] | None = None, python: str = "") -> None:
        self.command = [python or sys.executable, "-m", module, *args]
        self.process = subprocess.Popen(
            self.command, env=environment(env), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @cached_property
    def ready(self) -> dict[str, Any]:
        """What it says once it is ready; waits for that."""
        return self._answer()

    def round(self, steps: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Tell it to end, and wait until it has."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def started(self) -> Worker:
        """This, once it is ready."""
        assert self.ready
        return self

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise SystemExit(f"{' '.join(self.command)} ended with code {self.process.wait()}; its message is above")


def serve(ready: Mapping[str, Any], round_: Callable[[int], Mapping[str, Any]]) -> None:
    """The child's side of `Worker`."""
    print(json.dumps(ready), flush=True)
    for line in sys.stdin:
        print(json.dumps(round_(int(line))), flush=True)


Run = Callable[[int], float]  # does the work n times; the seconds that the device took


def serve_cases(
    make: Callable[[], Any],
    prepare: Callable[[Any, int], tuple[Run, Callable[[], float]]],
    rounds: int,
) -> None:
    """The child's side of `contest`: `make` gives the contestant, `prepare` a case's work and the error of its values.

    A peer that is not installed, and a case that fails, answer with "error" and a reason.
    """

    def case(number: int) -> dict[str, Any]:
        try:
            run, check = prepare(contestant, number)
            error = check()
            if not error <= TOLERANCE:
                return {"error": f"wrong values: relative error {error:.1e}"}
            return {**measure(run, rounds), "relative_error": error, **contestant.details}
        except NotImplementedError as e:
            return {"skipped": str(e)}
        except Exception as e:  # whatever a peer's library raises: the other cases still count
            return {"error": f"{type(e).__name__}: {e}"[:300]}

    try:
        contestant = make()
    except ImportError as e:
        print(json.dumps({"error": str(e)}), flush=True)
        return
    serve(contestant.about, case)


TOLERANCE = 1e-4  # of float32 results against float64 ones


def contest(
    module: str,
    names: Sequence[str],
    args: Sequence[str],
    cases: Sequence[Any],
    rate: Callable[[Any, float], float],
    limit: float,
) -> dict[str, Any]:
    """Every contestant in a process of its own; case by case in turns. {"contestants": about, "cases": [answers]}.

    `rate(case, seconds)` is the figure of a case, put into each answer as "rate"; stderr follows along. No case is
    begun after `limit` seconds.
    """
    from anneal import progress

    # without this JAX takes three quarters of the GPU's memory for itself
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    begun = time.monotonic()
    workers = {n: Worker(module, "--child", n, *args, env=env) for n in names}  # they start side by side
    present = {n: w for n, w in workers.items() if "error" not in w.ready}
    found = []
    with progress.shown():
        for number, case in enumerate(progress.told(cases, "measuring", len(cases))):
            if time.monotonic() - begun > limit:
                break
            answers = {n: w.round(number) for n, w in present.items()}
            for a in answers.values():
                if "seconds" in a:
                    a["rate"] = rate(case, a["seconds"])
            found.append(answers)
            figures = ", ".join(f"{n} {figure(cell(a))}" for n, a in answers.items())
            said = f"{number + 1}/{len(cases)} {case.name}: {figures}\n"
            progress.yields(said)
            sys.stderr.write(said)
            sys.stderr.flush()
    for w in workers.values():
        w.close()
    return {"contestants": {n: w.ready for n, w in workers.items()}, "cases": found}


def relative_error(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """The norm of the difference over the norm of what was expected; infinite for another shape."""
    import numpy as np

    if got.shape != expected.shape:
        return math.inf
    return float(np.linalg.norm((got - expected).ravel()) / (np.linalg.norm(expected.ravel()) or 1.0))


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of equal keys as aligned text.

    >>> print(table([{"who": "anneal", "ms": 1.5}, {"who": "torch", "ms": 20.0}]))
    who       ms
    anneal  1.50
    torch  20.00
    """
    columns = list(rows[0]) if rows else ["nothing was measured"]
    cells = [columns, *[[figure(row.get(c, "")) for c in columns] for row in rows]]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    lines = []
    for line in cells:
        first, *rest = (c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths)))
        lines.append("  ".join([first, *rest]).rstrip())
    return "\n".join(lines)


def figure(value: Any) -> str:
    """A value as a table shows it."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def report(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print `result` as JSON, or the machine and `rows` as a table."""
    if as_json:
        print(json.dumps({"command": " ".join(["python", *sys.orig_argv[1:]]), **result}))
        return
    about = result["machine"]
    print(f"{about['cpu']}, {about['cores']} cores, {about['system']}, Python {about['python']}")
    for name, who in result.get("contestants", {}).items():
        print(f"{name}: {', '.join(str(v) for v in who.values() if v)}")
    print(table(rows))
    for case, r in result.get("cases", {}).items():
        for name, answer in r["results"].items():
            if "error" in answer:
                print(f"{case}, {name}: {answer['error']}")


def describe(config: str, size: Config) -> dict[str, Any]:
    return {"config": config, **asdict(size)}


# -- what the kernel benchmarks share ----------------------------------------------------------------------------------


def kernel_parser(name: str, doc: str | None, peers: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=(doc or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "webgpu"), default="cpu")
    parser.add_argument("--peers", default="", help=f"a list of {', '.join(peers)}")
    parser.add_argument("--sizes", default="", help="only cases whose name contains one of these, with commas between")
    parser.add_argument("--tiny", action="store_true", help="small sizes: does it work, not how fast is it")
    parser.add_argument("--rounds", type=int, default=5, help="timed batches of each case (default 5)")
    parser.add_argument("--limit", type=float, default=math.inf, help="start no case after this many seconds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=("anneal", *peers), help=argparse.SUPPRESS)
    return parser


def chosen_names(parser: argparse.ArgumentParser, text: str, known: Iterable[str], what: str) -> list[str]:
    """The names in `text`, with commas between; an unknown one ends the program."""
    names = [n for n in text.split(",") if n]
    if unknown := [n for n in names if n not in known]:
        parser.error(f"unknown {what} {unknown[0]!r}; known: {', '.join(known)}")
    return names


def chosen(name: str, sizes: str) -> bool:
    return not sizes or any(part in name for part in sizes.split(","))


def cell(answer: Mapping[str, Any]) -> Any:
    """The rate of an answer, or why there is none."""
    return answer.get("rate", "-" if "error" not in answer else "wrong" if "wrong" in answer["error"] else "error")


def ratios(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Our rate over each peer's."""
    mine = answers["anneal"].get("rate")
    return {n: mine / a["rate"] for n, a in answers.items() if mine and n != "anneal" and "rate" in a}
