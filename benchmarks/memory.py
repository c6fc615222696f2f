"""Memory: resident size between step 100 and step 1000 of training, and over 10,000 small realize() calls.

python -m benchmarks.memory --json
"""

from __future__ import annotations

import argparse
import gc
from typing import Any

from benchmarks import _harness as h

TINY = h.Config(layers=2, heads=2, width=32, context=16, batch=4)


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


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"what": n, "before MiB": r["before_mib"], "after MiB": r["after_mib"], "growth %": r["growth"] * 100}
        for n, r in result["results"].items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "webgpu"), default="cpu")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result: dict[str, Any] = {
        "benchmark": "memory",
        "machine": h.machine(),
        "device": args.device,
        "results": {
            "training": training(args.device, args.steps),
            "realize": small_realizes(args.device, args.calls, 7),
            "realize, new program each": small_realizes(args.device, args.calls, args.calls),
        },
    }
    h.report(result, rows(result), args.json)


if __name__ == "__main__":
    main()
