"""Memory: the peak of training steps beside PyTorch's, planned and measured; and whether a process grows.

    python -m benchmarks.memory --json                                  resident size in 1000 steps, 10,000 realizes
    python -m benchmarks.memory --plan                                  what steps need on a GPU; no device is opened
    python -m benchmarks.memory --device webgpu --peers torch --json    what they took, ours and then PyTorch's

A plan's figures: `inputs` is what the step reads, its state and the batch; `outputs` what it writes elsewhere;
`temporaries` what a replay has memory for beside them; `live` the most of those that are needed at once, in the order
that was chosen: no sharing of memory needs less. `largest` are the largest of them. `expected` is what PyTorch should
take, if it is there to count that (`peers/torch_models.py`).

Measured: `peak_bytes` is the most that the device held, of the first call, the captured one and replays, with what is
kept for reuse (`in_use_peak_bytes` without that); PyTorch's is `torch.cuda.max_memory_allocated`. `steady_bytes` is
what was held after the last replay. `used_bytes` is what the driver says that the device's memory went down by, where
PyTorch can ask it.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchmarks import _harness as h

if TYPE_CHECKING:
    from benchmarks.models import Case

TINY = h.Config(layers=2, heads=2, width=32, context=16, batch=4)
LARGEST = 12


# -- growth ------------------------------------------------------------------------------------------------------------


def training(device: str, steps: int) -> dict[str, Any]:
    from benchmarks import ours

    step = ours.Step(TINY, device)
    start = max(1, steps // 10)
    for _ in range(start):
        step()
    step.wait()
    gc.collect()
    before = h.resident_mib()
    for _ in range(steps - start):
        step()
    step.wait()
    gc.collect()
    after = h.resident_mib()
    return {"from_step": start, "to_step": steps, **_growth(before, after)}


def small_realizes(device: str, calls: int, constants: int) -> dict[str, Any]:
    """`calls` realizes of a small expression with one of `constants` constants: as many different programs."""
    from anneal.tensor import Tensor

    def one(i: int) -> None:
        x = Tensor([float(i), 1.0, 2.0], device=device)
        ((x * 0.5).sum() + float(i % constants)).realize()

    for i in range(max(calls // 5, 2000)):  # nodes are swept when thousands have gathered: that is steady only then
        one(i)
    gc.collect()
    before = h.resident_mib()
    for i in range(calls):
        one(i)
    gc.collect()
    return {"calls": calls, **_growth(before, h.resident_mib())}


def _growth(before: float, after: float) -> dict[str, float]:
    return {"before_mib": before, "after_mib": after, "growth": after / before - 1}


def _rows_of_growth(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"what": n, "before MiB": r["before_mib"], "after MiB": r["after_mib"], "growth %": r["growth"] * 100}
        for n, r in result["results"].items()
    ]


# -- planned ----------------------------------------------------------------------------------------------------------


def plan_figures(case: Case) -> dict[str, Any]:
    """What a training step needs on a GPU, as its plan says."""
    from anneal.codegen import kernel_info
    from benchmarks.models import planned

    plan, overwritten, seconds = planned(case)
    infos = [kernel_info(c.kernel.sink) for c in plan.calls]
    return {
        "kernels": len(plan.calls),
        "distinct_kernels": len(plan.kernels),
        "gflop": sum(i.flops for i in infos) / 1e9,
        "gb_moved": sum(i.bytes_read + i.bytes_written for i in infos) / 1e9,
        **seconds,
        **memory_of(plan, overwritten),
        "expected": _expected(case),
    }


def memory_of(plan: Any, overwritten: Mapping[int, int]) -> dict[str, Any]:
    """The bytes of a plan's values, by what they are."""
    from anneal.schedule import nbytes

    values, calls = plan.values, plan.calls
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    writer: dict[int, Any] = {}
    for n, c in enumerate(calls):
        for v in c.args:
            if values[v].kind == "temp":
                first.setdefault(v, n)
                last[v] = n
                writer.setdefault(v, c)
    live = [0] * (len(calls) + 1)
    for v, n in first.items():
        live[n] += nbytes(values[v])
        live[last[v] + 1] -= nbytes(values[v])
    for n in range(len(calls)):
        live[n + 1] += live[n]
    at = max(range(len(calls)), key=live.__getitem__)
    alike: Counter[tuple[Any, ...]] = Counter()
    for v in first:
        if first[v] <= at <= last[v]:
            by = writer[v]
            alike[by.phase, by.kernel.name, by.args.index(v), values[v].dtype.name, nbytes(values[v])] += 1
    largest = sorted(alike.items(), key=lambda item: -item[0][-1] * item[1])[:LARGEST]
    temporaries = sum(size * dtype.itemsize for size, dtype in plan.temporaries)
    return {
        "inputs": sum(nbytes(v) for v in values if v.kind == "input"),
        "outputs": sum(nbytes(values[v]) for v in dict.fromkeys(plan.outputs) if v not in overwritten),
        "temporaries": temporaries,
        "live": live[at],
        "spread": temporaries / max(live[at], 1),
        "peak_at": f"{calls[at].kernel.name} ({calls[at].phase}), {at + 1} of {len(calls)}",
        "largest": [
            {"count": count, "mib": size / 2**20, "dtype": dtype, "by": f"{name} ({phase}), result {slot}"}
            for (phase, name, slot, dtype, size), count in largest
        ],
    }


def _expected(case: Case) -> dict[str, int] | None:
    try:
        from benchmarks.peers import torch_models
    except ImportError:
        return None
    return torch_models.expected_bytes(case)


def _rows_of_plans(result: dict[str, Any]) -> list[dict[str, Any]]:
    out = []
    for name, r in result["results"].items():
        needed = r["inputs"] + r["outputs"] + r["temporaries"]
        out.append(
            {
                "step": name,
                "inputs MiB": r["inputs"] / 2**20,
                "temporaries MiB": r["temporaries"] / 2**20,
                "/ live": r["spread"],
                "all MiB": needed / 2**20,
                "PyTorch's MiB": r["expected"]["peak"] / 2**20 if r["expected"] else "",
                "ours / theirs": needed / r["expected"]["peak"] if r["expected"] else "",
                "kernels": r["kernels"],
                "GFLOP": r["gflop"],
                "GB moved": r["gb_moved"],
                "peak at": r["peak_at"],
            }
        )
    return out


# -- measured ---------------------------------------------------------------------------------------------------------


def measured(who: str, case: Case, device: str, steps: int) -> dict[str, Any]:
    """The peak of `who`'s memory over the first steps, and the milliseconds of `steps` more."""
    gc.collect()
    before = _driver_bytes() if device == "webgpu" else None
    return _measured_ours(case, device, steps, before) if who == "anneal" else _measured_torch(case, device, steps)


def _measured_ours(case: Case, device: str, steps: int, before: int | None) -> dict[str, Any]:
    from anneal.backend import get_device
    from benchmarks.models import Step, watched

    opened = get_device(device)
    opened.empty_cache()  # of the case before
    held = opened.held()
    opened.reset_peak()
    with watched(opened) as seen:
        begun = time.perf_counter()
        step = Step(case, device)
        peaks = []
        for _ in range(4):
            step()
            step.wait()
            peaks.append(seen["peak"])
        ready = time.perf_counter() - begun
        times = _times(step, steps)
        after = _driver_bytes() if before is not None else None
    return {
        "peak_bytes": seen["peak"],
        "in_use_peak_bytes": opened.memory().peak,
        "peaks_of_first_steps": peaks,
        "steady_bytes": opened.held(),
        "held_before_bytes": held,
        "used_bytes": after - before if after is not None and before is not None else None,
        "ready_s": ready,
        "kernels": step.kernels,
        **times,
    }


def _measured_torch(case: Case, device: str, steps: int) -> dict[str, Any]:
    import torch

    from benchmarks.peers.torch_models import Step

    cuda = device == "webgpu" and torch.cuda.is_available()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    step = Step(case, device)
    for _ in range(4):
        step()
        step.wait()
    ready = time.perf_counter() - begun
    times = _times(step, steps)
    found = {
        "peak_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "steady_bytes": torch.cuda.memory_allocated() if cuda else None,
        "used_bytes": torch.cuda.max_memory_reserved() if cuda else None,
        "ready_s": ready,
        **times,
    }
    del step
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
    return found


def _times(step: Any, steps: int) -> dict[str, Any]:
    times = h.timed_steps(step, step.wait, steps)
    return {
        "median_ms": statistics.median(times),
        "min_ms": min(times),
        "pipelined_ms": h.pipelined_step(step, step.wait, steps),
        "loss": step.last_loss(),
    }


def _driver_bytes() -> int | None:
    """What is taken of the first CUDA device's memory, by whomever, where PyTorch is there and can ask."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def compare(case: Case, device: str, peers: list[str], steps: int) -> dict[str, Any]:
    """Ours, then each peer's, in this process."""
    answers: dict[str, Any] = {}
    for who in ("anneal", *peers):
        try:
            answers[who] = measured(who, case, device, steps)
        except ImportError as e:
            answers[who] = {"error": str(e)}
    mine = answers["anneal"]
    ratios = {
        figure: {n: _ratio(mine, a, figure) for n, a in answers.items() if n != "anneal"}
        for figure in ("peak_bytes", "steady_bytes", "median_ms", "pipelined_ms")
    }
    return {"results": answers, "ratios": ratios, "planned": plan_figures(case)}


def _ratio(mine: dict[str, Any], other: dict[str, Any], figure: str) -> float | None:
    return mine[figure] / other[figure] if mine.get(figure) and other.get(figure) else None


def _rows_of_peaks(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "step": name,
            "who": who,
            "peak MiB": r["peak_bytes"] / 2**20 if r.get("peak_bytes") else "",
            "steady MiB": r["steady_bytes"] / 2**20 if r.get("steady_bytes") else "",
            "ours / theirs": case["ratios"]["peak_bytes"].get(who) or "",
            "median ms": r.get("median_ms", r.get("error", "")),
            "pipelined ms": r.get("pipelined_ms", ""),
            "ready s": r.get("ready_s", ""),
            "loss": r.get("loss", ""),
        }
        for name, case in result["steps"].items()
        for who, r in case["results"].items()
    ]


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The table of a run, whatever it was about."""
    if "steps" in result:
        return _rows_of_peaks(result)
    return _rows_of_growth(result) if "training" in result["results"] else _rows_of_plans(result)


def _about(device: str) -> dict[str, str]:
    from anneal.backend import get_device

    about = get_device(device).describe()
    return {"device": str(about.get("adapter") or about["name"]), "driver": str(about.get("driver", ""))}


def main() -> None:
    from benchmarks.models import CASES

    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "webgpu"), default="cpu")
    parser.add_argument("--plan", action="store_true", help="what training steps need, without a device")
    parser.add_argument("--peak", action="store_true", help="what training steps take")
    parser.add_argument("--peers", default="", help="torch, or nothing; with it, --peak is meant")
    parser.add_argument("--cases", default=",".join(CASES), help=f"a list of {', '.join(CASES)} (default all)")
    parser.add_argument("--tiny", action="store_true", help="small sizes: does it work, not what does it take")
    parser.add_argument(
        "--steps", type=int, help="timed steps (default 10); without --peak, steps in all (default 1000)"
    )
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    peers = h.chosen_names(parser, args.peers, ("torch",), "peer")
    names = h.chosen_names(parser, args.cases, CASES, "case")
    cases = [CASES[n].tiny() if args.tiny else CASES[n] for n in names]
    result: dict[str, Any] = {"benchmark": "memory", "machine": h.machine(), "device": args.device}
    if args.peak or peers:
        result["contestants"] = {"anneal": _about(args.device)}
        result["steps"] = {c.name: compare(c, args.device, peers, args.steps or 10) for c in cases}
    elif args.plan:
        result["results"] = {c.name: plan_figures(c) for c in cases}
    else:
        result["results"] = {
            "training": training(args.device, args.steps or 1000),
            "realize": small_realizes(args.device, args.calls, 7),
            "realize, new program each": small_realizes(args.device, args.calls, args.calls),
        }
    h.report(result, rows(result), args.json)


if __name__ == "__main__":
    main()
