"""A training step without `@jit` against the same step with it, and against torch's eager mode, interleaved.

`model` is the step without it, whose models are compiled (`model.compile()`), each call with its backward.

    python -m benchmarks.eager                     # all models, a table
    python -m benchmarks.eager --cases mlp,lstm --device webgpu --json
    python -m benchmarks.eager --cases mlp,cnn,encoder --who eager,jit,model
    python -m benchmarks.eager --cases mlp --profile   # where the microseconds of an eager step go
    python -m benchmarks.eager --cases tutorials --who eager,torch   # the programs of benchmarks/tutorials.py

The models are ordinary programs (`benchmarks/eager_models.py`): a loop over batches that makes tensors of arrays, takes
a step and reads the loss. Each contestant lives in a process of its own; rounds take turns, so that whatever else the
machine does falls on all alike. `ms` is the median of the rounds' fastest tenths, `cpu ms` the processor time of a
step over all threads, median of the rounds. On `webgpu` torch stays away unless it has CUDA.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks import _harness as h, tutorials
from benchmarks.eager_models import CASES, Library

WHO = ("eager", "jit", "model", "torch")
# The parts of an eager step, by the functions that begin them: cumulative time without the parts inside.
_PARTS = {
    "bind": ("anneal/runtime/launch.py", ("_bind",)),
    "run": ("anneal/runtime/launch.py", ("run",)),
    "plan": ("anneal/schedule/plan.py", ("plan_for",)),
    "realize": ("anneal/runtime/execution.py", ("realize",)),
    "backward": ("anneal/transforms/accumulate.py", ("backward",)),
    "step": ("anneal/optim/_base.py", ("step",)),
}


def contestant(who: str, case: str, device: str) -> tuple[Callable[[], float], dict[str, Any]]:
    """A step of `who` as a loop has it: the loss of the next batch, read."""
    if who == "torch":
        import torch

        torch.manual_seed(0)
        place = "cuda" if device == "webgpu" and torch.cuda.is_available() else "cpu"
        torch.set_default_device(place)
        library = Library("torch", torch.nn, torch.nn.functional, torch.optim)
        tensor: Callable[[Any], Any] = lambda a: torch.from_numpy(a).to(place)
        about = {"threads": torch.get_num_threads(), "device": place}
    else:
        from anneal import nn, optim
        from anneal.backend import get_device
        from anneal.tensor import Tensor, functional, manual_seed, set_default_device

        set_default_device(device)
        manual_seed(0)
        prepare: Callable[[Any], Any] = (lambda model: model.compile()) if who == "model" else id
        library = Library("anneal", nn, functional, optim, prepare)
        found = get_device(device).describe()
        tensor = Tensor
        about = {"device": str(found.get("adapter") or device), "driver": str(found.get("driver", ""))}
    program = {**tutorials.CASES, **CASES}[case](library)
    step = program.step
    if who == "jit":
        from anneal.tensor import jit

        step = jit(step)
    taken = 0

    def loop() -> float:
        nonlocal taken
        batch = program.batches[taken % len(program.batches)]
        taken += 1
        return float(step(*[tensor(a) for a in batch]).item())

    return loop, about


def work(who: str, case: str, device: str) -> None:
    """The child process of one contestant."""
    loop, about = contestant(who, case, device)
    first = loop()
    for _ in range(5):
        loop()

    def round_(steps: int) -> dict[str, Any]:
        loop()
        times = []
        spent = time.process_time()
        for _ in range(steps):
            begun = time.perf_counter()
            loop()
            times.append((time.perf_counter() - begun) * 1e3)
        return {"ms": times, "cpu_ms": (time.process_time() - spent) * 1e3 / steps}

    h.serve({"loss": first, **about}, round_)


def compare(case: str, device: str, who: Iterable[str], steps: int, rounds: int) -> dict[str, Any]:
    """Rounds of the contestants on one model."""
    workers = {n: h.Worker("benchmarks.eager", "--child", n, "--cases", case, "--device", device) for n in who}
    answers: dict[str, list[dict[str, Any]]] = {n: [] for n in workers}
    for w in workers.values():
        w.started()
    for _ in range(rounds):
        for n, w in workers.items():
            answers[n].append(w.round(steps))
    found = {}
    for n, w in workers.items():
        w.close()
        fast = [statistics.quantiles(a["ms"], n=10)[0] for a in answers[n]]
        found[n] = {
            **w.ready,
            "ms": statistics.median(fast),
            "min_ms": min(t for a in answers[n] for t in a["ms"]),
            "cpu_ms": statistics.median([a["cpu_ms"] for a in answers[n]]),
        }
    ratios = {
        f"{figure} eager / {n}": found["eager"][figure] / found[n][figure]
        for figure in ("ms", "cpu_ms")
        for n in found
        if n != "eager"
    }
    return {"case": case, "device": device, "results": found, "ratios": ratios}


def profile(case: str, device: str, steps: int) -> list[dict[str, Any]]:
    """Microseconds of an eager step by part, as a profiler that watches every call sees them, scaled to the step's own
    time: the shares are right, and code of many small calls is shown a little too large."""
    loop, _ = contestant("eager", case, device)
    for _ in range(6):
        loop()
    gc.collect()
    plain = []
    for _ in range(steps):
        begun = time.perf_counter()
        loop()
        plain.append(time.perf_counter() - begun)
    watch = cProfile.Profile()
    watch.enable()
    for _ in range(steps):
        loop()
    watch.disable()
    stats: Any = pstats.Stats(watch)
    inclusive = {}
    for part, (path, names) in _PARTS.items():
        inclusive[part] = sum(
            v[3] for (file, _, name), v in stats.stats.items() if file.endswith(path) and name in names
        )
    own = dict(inclusive)
    own["realize"] -= own["bind"] + own["run"] + own["plan"]
    own["step"] -= inclusive["realize"]
    own["rest: forward, data, item"] = stats.total_tt - inclusive["realize"] - own["backward"] - own["step"]
    scale = statistics.median(plain) / stats.total_tt * 1e6
    return [{"part": part, "us": seconds * scale} for part, seconds in own.items()] + [
        {"part": "whole step", "us": statistics.median(plain) * 1e6}
    ]


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    out = []
    for r in result["models"]:
        row: dict[str, Any] = {"model": r["case"]}
        for n, found in r["results"].items():
            row |= {f"{n} ms": found["ms"], f"{n} cpu": found["cpu_ms"]}
        row |= {name.replace("_ms", "").replace("ms ", ""): value for name, value in r["ratios"].items()}
        out.append(row)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help="models, by comma, or tutorials")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--who", default=",".join(WHO), help="contestants, by comma; eager is one of them")
    parser.add_argument("--steps", type=int, default=30, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="where the time of an eager step goes")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    cases = list(tutorials.CASES) if args.cases == "tutorials" else args.cases.split(",")
    if args.child:
        work(args.child, cases[0], args.device)
        return
    if args.profile:
        for case in cases:
            print(f"{case} on {args.device}")
            print(h.table(profile(case, args.device, args.steps)))
        return
    results = [compare(c, args.device, args.who.split(","), args.steps, args.rounds) for c in cases]
    first = results[0]["results"]
    found = {"benchmark": "eager", "machine": h.machine(), "contestants": first, "models": results}
    h.report(found, rows(found), args.json)


if __name__ == "__main__":
    main()
