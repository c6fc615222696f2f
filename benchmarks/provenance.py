"""What provenance costs when a training step is compiled: processor seconds of fresh interpreters, in turns.

    python -m benchmarks.provenance --config baby,full --pairs 7 --json

`lines off` makes the nodes without noting the user's lines and modules, `off` is the ordinary state, in which nobody
asks for more, and in `on` somebody hears everything: every rule that fires, what each walk and range propagation made
of every node, and the statements of every line of WGSL. The tables that tell of their rules are made before the clock
starts; `set up s` is what that takes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from typing import Any

from benchmarks import _harness as h

MODES = ("lines off", "off", "on")


def child(size: h.Config, mode: str) -> dict[str, Any]:
    from anneal.codegen import writing
    from anneal.rewrite import rebuilt, tracing
    from anneal.schedule import indexed
    from anneal.uop import arena
    from benchmarks import ours

    begun = time.process_time()
    with contextlib.ExitStack() as stack:
        heard = (
            [stack.enter_context(listen()) for listen in (tracing, rebuilt, indexed, writing)] if mode == "on" else []
        )
        if mode == "lines off":
            stack.enter_context(arena().untracked())
        ready = time.process_time()
        result = ours.compile_once(size)
    return {**result, "set_up_s": ready - begun, "heard": sum(map(len, heard))}


def compare(config: str, pairs: int) -> dict[str, Any]:
    samples: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    for n in range(pairs):
        for mode in MODES[:: 1 if n % 2 else -1]:
            args = ("--child", mode, "--config", config)
            samples[mode].append(h.cold("benchmarks.provenance", *args, env={"ANNEAL_CACHE": "0"}))
    result: dict[str, Any] = {"benchmark": "provenance", "config": config, "pairs": pairs}
    for mode, found in samples.items():
        ratios = [s["processor_s"] / o["processor_s"] for s, o in zip(found, samples["off"], strict=True)]
        result[mode] = {
            "processor_s": h.summary([s["processor_s"] for s in found]),
            "set_up_s": h.summary([s["set_up_s"] for s in found])["median"],
            "ratio": h.summary(ratios)["median"],
            "heard": found[0]["heard"],
        }
    return result


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "who": f"{result['config']}, {mode}",
            "median processor s": result[mode]["processor_s"]["median"],
            "min": result[mode]["processor_s"]["min"],
            "to off": result[mode]["ratio"],
            "set up s": result[mode]["set_up_s"],
            "heard": result[mode]["heard"],
        }
        for mode in MODES
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.provenance", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--config", default="baby", help=f"a list of {', '.join(h.CONFIGS)}")
    parser.add_argument("--pairs", type=int, default=7, help="fresh interpreters of each (default 7)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=MODES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    configs = h.chosen_names(parser, args.config, tuple(h.CONFIGS), "config")
    if args.child:
        print(json.dumps(child(h.CONFIGS[configs[0]], args.child)))
        return
    if args.pairs < 1:
        parser.error("--pairs takes a number from 1 up")
    results = [compare(config, args.pairs) for config in configs]
    about = {"benchmark": "provenance", "machine": h.machine(), "results": results}
    h.report(about, [row for r in results for row in rows(r)], args.json)


if __name__ == "__main__":
    main()
