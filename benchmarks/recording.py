"""Whether a recording tells the truth about time: scripts with and without one, beside processes that are busy.

    python -m benchmarks.recording                  all scripts; ends with the table
    python -m benchmarks.recording --script vit     one of them

Each script has a process of its own. It is set up once; in each round a block of its steps runs without a recording,
and one with, and the next round has them the other way round. A block takes about `--seconds`, and has 8 steps at
least; of a script whose rounds take longer than `--limit` there are fewer. `own` is its step by its own clock while it
is recorded, in steps without; `sums` the kernels of all plans in a step, as the recording has them for the steps in
the middle; `parts` the same with the time between the kernels, which is measured by itself; `step` and `kernels` are
the recording's in a step without. Each is a median of rounds, with its quartiles. Ratios further than 15 % from 1 need
a reason, and those that the recording gives are listed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anneal.inspect import recording

__all__ = ["SCRIPTS", "main", "measure", "page", "verdict"]

SECONDS, LEAST, MOST = 0.3, 8, 200  # of a block of steps; and the number of its steps
WARM = 12  # steps before each block: a recording listens to rules in its first ones
LIMIT, FEWEST = 60.0, 3  # seconds for a script, after which no further round begins, if there were so many
FAR, SLOWER = 0.15, 1.5

_HEAD = """
import anneal as an
an.manual_seed(0)
F = an.nn.functional
"""
_PERCEPTRON = """
x, y = an.randn({rows}, 64).realize(), an.randn({rows}, 1).realize()
model = an.nn.Sequential(an.nn.Linear(64, 256), an.nn.GELU(), an.nn.LayerNorm(256), an.nn.Linear(256, 1))
optimizer = an.optim.Adam(model.parameters(), lr=1e-3)
def update(x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss
"""
_EXAMPLE = """
from anneal.training import load_example
example = load_example({name!r})
training = example.make(steps=10**6, batch={batch}, seed=1, lr=example.LR)
step = lambda: training.step().item()
"""
# Of 263 launches a step, which meet at a barrier each: beside busy processes each may cost a time slice, and a round
# took minutes. Two blocks of half the width have the step of the other examples.
_SMALL = ("training = ", "example.DEPTH, example.WIDTH = 2, 64\ntraining = ")
SCRIPTS = {
    "perceptron, jit": _PERCEPTRON.format(rows=128) + "update = an.jit(update)\nstep = lambda: update(x, y).item()",
    "perceptron, 2048 rows": _PERCEPTRON.format(rows=2048)
    + "update = an.jit(update)\nstep = lambda: update(x, y).item()",
    "perceptron, as it stands": _PERCEPTRON.format(rows=1024) + "step = lambda: update(x, y).item()",
    "line fitted": """
x, y = an.randn(65536, 64).realize(), an.randn(65536, 1).realize()
model = an.nn.Linear(64, 1)
optimizer = an.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()
""",
    "convolutions": """
x = an.randn(8, 3, 32, 32).realize()
model = an.nn.Sequential(an.nn.Conv2d(3, 16, 3), an.nn.ReLU(), an.nn.Conv2d(16, 32, 3), an.nn.ReLU())
def step():
    with an.no_grad():
        return model(x).mean().item()
""",
    "attention": """
q, k, v = [an.randn(4, 4, 128, 32).realize() for _ in range(3)]
attend = an.jit(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True).sum())
def step():
    with an.no_grad():
        return attend(q, k, v).item()
""",
    "heat": """
grid = an.randn(1024, 1024).realize()
@an.jit
def flow(grid):
    around = F.pad(grid, (1, 1, 1, 1))
    return (around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:]) / 4
def step():
    global grid
    grid = flow(grid)
    return grid[0, 0].item()
""",
    "functions": """
x = an.randn(1_000_000).realize()
step = lambda: ((x.exp() + 1).log() * x.tanh()).sum().item()
""",
    "conv": _EXAMPLE.format(name="conv", batch=32),
    "nanogpt": _EXAMPLE.format(name="nanogpt", batch=4),
    "makemore-mlp": _EXAMPLE.format(name="makemore-mlp", batch=256),
    "vit": _EXAMPLE.format(name="vit", batch=8).replace(*_SMALL),
}


def measure(name: str, rounds: int, seconds: float = SECONDS, limit: float = LIMIT) -> list[dict[str, Any]]:
    """The seconds of a step in each round: without a recording, and with one by the script and by the recording.

    Fewer rounds than asked for where they take longer than `limit`.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(_HEAD + SCRIPTS[name])
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(script.read_text(), str(script), "exec"), space)
        step: Callable[[], Any] = space["step"]
        steps = min(max(LEAST, int(seconds / _block(step, LEAST))), MOST)
        found = []
        begun = time.perf_counter()
        for n in range(rounds):
            first = _block(step, steps) if n % 2 == 0 else 0.0
            recorded = _recorded(step, steps)
            found.append({"plain": first or _block(step, steps), **recorded})
            if n == 0:
                took = time.perf_counter() - begun
                print(f"{name}: rounds of twice {steps} steps, {took:.1f} s each", file=sys.stderr, flush=True)
            if n + 1 >= FEWEST and time.perf_counter() - begun > limit:
                break
    return found


def _block(step: Callable[[], Any], steps: int) -> float:
    """The median of the seconds of some steps, after others."""
    for _ in range(WARM):
        step()
    times = []
    for _ in range(steps):
        begun = time.perf_counter()
        step()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _recorded(step: Callable[[], Any], steps: int) -> dict[str, Any]:
    """A block that is recorded, by its own clock and by the recording."""
    with recording(later=True) as r:
        own = _block(step, steps)
    r.settle()
    each = [p.times for p in r.plans if p.times and 2 * p.runs > steps]
    main = max(each, key=lambda t: t["total"])
    parts, between = sum(main["parts"].values()), main["parts"]["between kernels"]
    return {
        # of the steps in the middle: medians of kernels and of steps are of different steps
        "own": own, "step": main["step"]["median"], "kernels": (parts - between) * main["step"]["median"],
        "parts": parts, "between": between, "whole": 1.0,
        "reasons": [reason for t in each for reason in t["reasons"]],
    }  # fmt: skip


def verdict(name: str, rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The ratios of a script, each with its quartiles, and the reasons that most rounds gave."""
    pairs = {
        "own": ("own", "plain"), "sums": ("kernels", "step"), "parts": ("parts", "whole"), "step": ("step", "plain"),
        "kernels": ("kernels", "plain"), "between": ("between", "whole"),
    }  # fmt: skip
    ratios = {}
    for key, (a, b) in pairs.items():
        each = [r[a] / r[b] for r in rounds]
        low, median, high = statistics.quantiles(each, n=4, method="inclusive") if len(each) > 1 else each * 3
        ratios[key] = [round(x, 3) for x in (median, low, high)]
    kinds = Counter(kind for r in rounds for kind in {_kind(reason) for reason in r["reasons"]})
    agree = all(abs(ratios[k][0] - 1) <= FAR for k in ("sums", "step", "kernels"))
    return {
        "script": name, "ms": round(statistics.median([r["plain"] for r in rounds]) * 1e3, 3), **ratios, "agree": agree,
        "whole": abs(ratios["parts"][0] - 1) <= FAR, "rounds": len(rounds),
        "reasons": [kind for kind, n in kinds.items() if 2 * n > len(rounds)],
    }  # fmt: skip


def _kind(reason: str) -> str:
    for kind in ("Python between", "other processes", "nothing was computed", "the runs differ"):
        if kind in reason:
            return kind
    return reason


def page(found: Sequence[dict[str, Any]]) -> str:
    """The figures as a table of Markdown, and how many scripts stay within the bars."""
    lines = [
        "| script | rounds | ms a step | own | sums | between kernels | parts | step | kernels | reasons |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for f in found:
        own, sums, parts, step, kernels = [
            f"{f[k][0]:.2f} ({f[k][1]:.2f} to {f[k][2]:.2f})" for k in ("own", "sums", "parts", "step", "kernels")
        ]
        cells = [own, sums, f"{f['between'][0]:.0%}", parts, step, kernels, "; ".join(f["reasons"]) or "-"]
        lines.append(f"| {f['script']} | {f['rounds']} | {f['ms']} | {' | '.join(cells)} |")
    slow = sum(f["own"][0] <= SLOWER for f in found)
    agree = sum(f["agree"] for f in found)
    told = sum(bool(f["agree"] or f["reasons"]) for f in found)
    whole = sum(f["whole"] for f in found)
    lines.append(
        f"\n{len(found)} scripts: {slow} at most {SLOWER} x as slow, {agree} agree within 15 %, {told} or say why; "
        f"the parts of {whole} sum to the step within 15 %"
    )
    return "\n".join(lines)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Processes that compute beside, and end with this one."""
    parent = os.getpid()
    code = f"import os\nwhile os.getppid() == {parent}: sum(range(10 ** 6))"
    beside = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for child in beside:
            child.kill()
            child.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a block of steps")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a script's rounds, three at least")
    parser.add_argument("--busy", type=int, default=len(os.sched_getaffinity(0)), help="processes beside; one a core")
    parser.add_argument("--script", action="append", choices=SCRIPTS, help="only these")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(measure(options.child, options.rounds, options.seconds, options.limit)))
        return
    found = []
    with _busy(options.busy):
        for name in options.script or SCRIPTS:
            command = [sys.executable, "-m", "benchmarks.recording", "--child", name]
            more = ["--rounds", str(options.rounds), "--seconds", str(options.seconds), "--limit", str(options.limit)]
            out = subprocess.run([*command, *more], stdout=subprocess.PIPE, text=True, check=True).stdout
            found.append(verdict(name, json.loads(out.splitlines()[-1])))
            print(page(found[-1:]).splitlines()[2], file=sys.stderr, flush=True)
    print(json.dumps(found) if options.json else page(found))


if __name__ == "__main__":
    main()
