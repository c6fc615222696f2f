"""What the benchmarks share: the machine's name, warm timing, cold child processes, waiting workers, tables."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

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


def summary(values: Sequence[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values)}


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child process: this one's, the repository on the path, and `extra`."""
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    return env | dict(extra or {})


def cold(module: str, *args: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run `python -m module args` in a fresh interpreter; its last line of stdout is the JSON result."""
    command = [sys.executable, "-m", module, *args]
    done = subprocess.run(command, env=environment(env), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed with code {done.returncode}:\n{done.stderr.strip()}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


class Worker:
    """A child process that keeps a model ready and runs a round of steps whenever it is asked.

    One line of JSON says that it is ready; each number written to it is answered by one line of JSON. Between rounds
    it sleeps in a read, so contestants in separate workers can take turns on one machine.
    """

    def __init__(self, module: str, *args: str, env: Mapping[str, str] | None = None) -> None:
        self.command = [sys.executable, "-m", module, *args]
        self.process = subprocess.Popen(
            self.command, env=environment(env), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ready = self._answer()

    def round(self, steps: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

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


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of equal keys as aligned text.

    >>> print(table([{"who": "anneal", "ms": 1.5}, {"who": "torch", "ms": 20.0}]))
    who       ms
    anneal  1.50
    torch  20.00
    """
    columns = list(rows[0])
    cells = [columns, *[[f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    lines = []
    for line in cells:
        first, *rest = (c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths)))
        lines.append("  ".join([first, *rest]).rstrip())
    return "\n".join(lines)


def report(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print `result` as JSON, or the machine and `rows` as a table."""
    if as_json:
        print(json.dumps(result))
        return
    about = result["machine"]
    print(f"{about['cpu']}, {about['cores']} cores, {about['system']}, Python {about['python']}")
    print(table(rows))


def describe(config: str, size: Config) -> dict[str, Any]:
    return {"config": config, **asdict(size)}
