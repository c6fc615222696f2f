"""A training step of the character GPT, ours and the peers', in interleaved rounds on one machine.

    python -m benchmarks.train_step --config baby --device cpu --peers torch,jax --json

Each contestant lives in a process of its own, with its default number of threads, warmed up before the first round;
then rounds go A, B, A, B, ... so that whatever else the machine does falls on all of them alike. `median_ms` is over
all steps of all rounds, every step waited for; `pipelined_ms` waits only at the end of a round; `cpu_ms` is processor
time a step, over all threads. On a machine that others use too, `--cores 1` and `cpu_ms` say most: a peer whose threads
spin at barriers can look tens of times slower than it is.

Peers: torch (eager), torch-compile, torch-graphs (with CUDA graphs), jax, tinygrad. With `--device webgpu` PyTorch uses
CUDA where it has it, JAX and tinygrad whatever they choose by themselves.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

from benchmarks import _harness as h

PEERS = ("torch", "torch-compile", "torch-graphs", "jax", "tinygrad")


def contestant(who: str, size: h.Config, device: str) -> Any:
    """The step of `who`: callable, with `about`, `wait()` and `last_loss()`."""
    name, _, mode = who.partition("-")
    if name == "torch":
        from benchmarks.peers import torch_gpt

        return torch_gpt.Step(size, device, mode or "eager")
    if name == "jax":
        from benchmarks.peers import jax_gpt

        return jax_gpt.Step(size, device, mode)
    if name == "tinygrad":
        from benchmarks.peers import tinygrad_gpt

        return tinygrad_gpt.Step(size, device, mode)
    from benchmarks import ours

    return ours.Step(size, device)


def work(who: str, size: h.Config, device: str) -> None:
    """The child process of one contestant."""
    step = contestant(who, size, device)
    start = time.perf_counter()
    step()
    step.wait()
    first = time.perf_counter() - start
    first_loss = step.last_loss()
    h.warm(step, step.wait)

    def round_(steps: int) -> dict[str, Any]:
        h.warm(step, step.wait)
        spent = time.process_time()
        times = h.timed_steps(step, step.wait, steps)
        spent = (time.process_time() - spent) * 1e3 / steps
        count = max(
            steps, min(500, round(100 / statistics.median(times)))
        )  # a tenth of a second, so that clocks stay up
        return {
            "ms": times,
            "cpu_ms": spent,
            "pipelined_ms": h.pipelined_step(step, step.wait, count),
            "loss": step.last_loss(),
        }

    h.serve({"first_s": first, "first_loss": first_loss, **step.about}, round_)


def start(args: argparse.Namespace, configs: list[str], peers: list[str]) -> dict[tuple[str, str], h.Worker]:
    """A waiting worker for every configuration and contestant."""
    # all contestants stay in memory together: JAX would take three quarters of it for itself
    env = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3", **({"DEV": "CPU"} if args.device == "cpu" else {})}

    def worker(config: str, who: str) -> h.Worker:
        extra = ["--device", args.device, "--config", config, *(["--layers", str(args.layers)] if args.layers else [])]
        extra += ["--cores", str(args.cores)] if args.cores else []
        return h.Worker("benchmarks.train_step", "--child", who, *extra, env=env)

    # ours are ready before the others start: their first step is timed on a quiet machine; the others compile side by
    # side
    ours = {(c, "anneal"): worker(c, "anneal").started() for c in configs}
    return {**ours, **{(c, n): worker(c, n) for c in configs for n in peers}}


def compare(args: argparse.Namespace, config: str, started: dict[str, h.Worker]) -> dict[str, Any]:
    """Rounds of the contestants of one configuration."""
    layers, steps, rounds = args.layers, args.steps, args.rounds
    workers: dict[str, h.Worker] = {}
    absent: dict[str, str] = {}
    for n, w in started.items():
        try:
            workers[n] = w.started()
        except SystemExit as e:  # a peer that is not installed or breaks must not lose the others' figures
            absent[n] = str(e)
    names = list(workers)
    answers: dict[str, list[dict[str, Any]]] = {n: [] for n in names}
    for _ in range(rounds):
        for n in names:
            answers[n].append(workers[n].round(max(1, steps // rounds)))
    for w in workers.values():
        w.close()
    result: dict[str, Any] = {
        **h.describe(config, h.CONFIGS[config].deeper(layers)),
        "benchmark": "train_step",
        "machine": h.machine(),
        "rounds": rounds,
        "cores_used": args.cores or "all",
        "results": {},
        "absent": absent,
    }
    for n in names:
        times = [t for a in answers[n] for t in a["ms"]]
        result["results"][n] = {
            **workers[n].ready,
            "median_ms": statistics.median(times),
            "min_ms": min(times),
            "pipelined_ms": statistics.median([a["pipelined_ms"] for a in answers[n]]),
            "cpu_ms": statistics.median([a["cpu_ms"] for a in answers[n]]),
            "round_medians_ms": [statistics.median(a["ms"]) for a in answers[n]],
            "loss": answers[n][-1]["loss"],
        }
    mine = result["results"]["anneal"]
    for ratio, figure in (("ratio", "median_ms"), ("pipelined_ratio", "pipelined_ms"), ("cpu_ratio", "cpu_ms")):
        result[ratio] = {n: mine[figure] / result["results"][n][figure] for n in names if n != "anneal"}
    return result


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "who": n,
            "median ms": r["median_ms"],
            "min ms": r["min_ms"],
            "pipelined ms": r["pipelined_ms"],
            "cpu ms": r["cpu_ms"],
            "first s": r["first_s"],
            "ours / theirs": result["ratio"].get(n, 1.0),
            "pipelined": result["pipelined_ratio"].get(n, 1.0),
            "kernels": r.get("kernels", "-"),
            "device": r["device"],
        }
        for n, r in result["results"].items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.train_step", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--config", default="baby", help=f"a list of {', '.join(h.CONFIGS)} (default baby)")
    parser.add_argument("--layers", type=int, help="another depth than the configuration's")
    parser.add_argument("--device", choices=("cpu", "webgpu"), default="cpu")
    parser.add_argument("--peers", default="", help=f"a list of {', '.join(PEERS)}")
    parser.add_argument("--steps", type=int, default=30, help="timed steps of each (default 30)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default 5)")
    parser.add_argument("--cores", type=int, help="bind every contestant to this many cores (Linux)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=("anneal", *PEERS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        if args.cores:
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
        work(args.child, h.CONFIGS[args.config].deeper(args.layers), args.device)
        return
    peers = h.chosen_names(parser, args.peers, PEERS, "peer")
    configs = h.chosen_names(parser, args.config, h.CONFIGS, "configuration")
    if min(args.steps, args.rounds) < 1:
        parser.error("--steps and --rounds take a number from 1 up")
    workers = start(args, configs, peers)
    for config in configs:
        result = compare(args, config, {n: w for (c, n), w in workers.items() if c == config})
        h.report(result, rows(result), args.json)


if __name__ == "__main__":
    main()
