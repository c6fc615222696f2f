"""Start-up, in cold processes: imports, a first tensor, `anneal --help`, and a first training step, with and without a
plan on disk.

python -m benchmarks.startup --device webgpu --json
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks import _harness as h

TIMED = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
INSIDE = {  # seconds in a process that has started, by what it does first
    "import numpy": "import numpy",
    "import anneal": "import anneal",
    "an.zeros(3)": "import anneal as an; an.zeros(3)",
    "print(an.zeros(3))": "import anneal as an; repr(an.zeros(3))",
    "import anneal.tensor": "import anneal.tensor",
}
HELP = "import sys; sys.argv = ['anneal', '--help']; from anneal.cli import main; main()"
FIRST = (
    "import sys, time; from benchmarks import _harness as h, ours; import anneal.nn, anneal.tensor; "
    "t = time.perf_counter(); s = ours.Step(h.CONFIGS['baby'], sys.argv[1]); made = time.perf_counter(); "
    "s(); s.wait(); print(time.perf_counter() - t, time.perf_counter() - made)"
)
LIMITS = {
    "import anneal": 0.01,
    "an.zeros(3)": 0.25,
    "print(an.zeros(3))": 0.25,
    "import anneal.tensor": 0.25,
    "anneal --help": 0.4,
    "first step, second process": 0.5,
}


def run(code: str, cache: str, *args: str, plans: str | None = None) -> tuple[float, str]:
    """Seconds and stdout of a fresh interpreter; byte code is kept in `cache`, as an installation keeps it.

    Compiled plans are kept in `plans`, or not at all.
    """
    env = h.environment(
        {"PYTHONPYCACHEPREFIX": cache, **({"ANNEAL_CACHE_DIR": plans} if plans else {"ANNEAL_CACHE": "0"})}
    )
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *args], env=env, cwd=h.ROOT, capture_output=True, text=True, check=True
    )
    return time.perf_counter() - start, done.stdout


def measure(runs: int, device: str) -> dict[str, Any]:
    inside: dict[str, list[float]] = {name: [] for name in INSIDE}
    helps, bare = [], []
    cold: list[float] = []
    warm: list[float] = []
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as plans:
        run(TIMED.format(INSIDE["print(an.zeros(3))"]), cache), run(HELP, cache)  # writes the byte code
        for _ in range(runs):
            for name, code in INSIDE.items():
                inside[name].append(float(run(TIMED.format(code), cache)[1]))
            helps.append(run(HELP, cache)[0])
            bare.append(run("pass", cache)[0])
        first_step(cache, device, plans)  # fills the folder
        for _ in range(min(runs, 3)):
            cold.append(first_step(cache, device, None))
            warm.append(first_step(cache, device, plans))
    result: dict[str, Any] = {
        "benchmark": "startup",
        "machine": h.machine(),
        "device": device,
        "runs": runs,
        "results": {},
    }
    for name, values in (
        *inside.items(),
        ("anneal --help", helps),
        ("python -c pass", bare),
        ("first step, nothing on disk", cold),
        ("first step, second process", warm),
    ):
        result["results"][name] = {**h.summary(values), "limit": LIMITS.get(name)}
    return result


def first_step(cache: str, device: str, plans: str | None) -> float:
    """Seconds after the imports that a program begins with: opening the device, making model and optimiser, and one
    whole step of `baby`, with what is imported when it is first used."""
    return float(run(FIRST, cache, device, plans=plans)[1].split()[0])


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"what": n, "median ms": r["median"] * 1e3, "min ms": r["min"] * 1e3, "limit ms": (r["limit"] or 0) * 1e3 or ""}
        for n, r in result["results"].items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--device", choices=("cpu", "webgpu"), default="cpu")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(max(1, args.runs), args.device)
    h.report(result, rows(result), args.json)


if __name__ == "__main__":
    main()
