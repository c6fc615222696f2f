"""Compile time: trace, schedule and generate WGSL for forward, backward and AdamW; nothing runs, no device is opened.

    python -m benchmarks.compile_time --config baby --peers tinygrad
    python -m benchmarks.compile_time --config full --growth --json
    python -m benchmarks.compile_time --chain 20000,100000 --json

Every sample is a fresh interpreter; imports and the creation of the weights are not counted. tinygrad 0.14 traces and
schedules the same step on its NULL device, in turns with ours; its code generation is measured once (`peer_codegen_s`),
and `ratio` leaves it out. With `--chain`, instead: as many additions one after another, built, planned, compiled and
run on the cpu device.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks import _harness as h

NULL = {"DEV": "NULL"}
COLD = {"ANNEAL_CACHE": "0"}
DEEPER = 4


def sample(who: str, config: str, layers: int | None, codegen: bool = False) -> dict[str, Any]:
    """One cold measurement of `who` in a process of its own."""
    args = ["--child", who, "--config", config]
    args += ["--layers", str(layers)] if layers is not None else []
    args += ["--codegen"] if codegen else []
    return h.cold("benchmarks.compile_time", *args, env=NULL if who == "tinygrad" else COLD)


def child(who: str, size: h.Config, codegen: bool) -> dict[str, Any]:
    if who == "tinygrad":
        from benchmarks.peers import tinygrad_gpt

        return tinygrad_gpt.schedule_once(size, codegen)
    from benchmarks import ours

    return ours.compile_once(size)


def compare(config: str, layers: int | None, peers: list[str], runs: int, growth: bool) -> dict[str, Any]:
    size = h.CONFIGS[config].deeper(layers)
    ours, deep, theirs = [], [], []
    for _ in range(runs):
        ours.append(sample("anneal", config, layers))
        if growth:
            deep.append(sample("anneal", config, DEEPER * size.layers))
        if "tinygrad" in peers:
            theirs.append(sample("tinygrad", config, layers))
    mine = h.summary([s["seconds"] for s in ours])
    result: dict[str, Any] = {
        **h.describe(config, size),
        "benchmark": "compile_time",
        "machine": h.machine(),
        "runs": runs,
        "anneal_s": mine["median"],
        "anneal_min_s": mine["min"],
        "trace_s": h.summary([s["trace_s"] for s in ours])["median"],
        "schedule_s": h.summary([s["schedule_s"] for s in ours])["median"],
        "codegen_s": h.summary([s["codegen_s"] for s in ours])["median"],
        **{k: ours[0][k] for k in ("params", "kernels", "distinct_kernels", "nodes", "wgsl_bytes")},
        "peer_s": None,
        "ratio": None,
        "mib": h.summary([s["mib"] for s in ours])["median"],
        "deeper": None,
    }
    if growth:
        time, memory = (h.summary([s[k] for s in deep])["median"] for k in ("seconds", "mib"))
        result["deeper"] = {
            "layers": DEEPER * size.layers,
            "seconds": time,
            "mib": memory,
            "time_ratio": time / mine["median"],
            "memory_ratio": memory / result["mib"],
        }
    if theirs:
        peer = h.summary([s["seconds"] for s in theirs])
        codegen = sample("tinygrad", config, layers, codegen=True)["codegen_s"]
        result |= {
            "peer": "tinygrad",
            "peer_s": peer["median"],
            "peer_min_s": peer["min"],
            "peer_kernels": theirs[0]["kernels"],
            "peer_params": theirs[0]["params"],
            "peer_codegen_s": codegen,
            "ratio": mine["median"] / peer["median"],
            "ratio_min": mine["min"] / peer["min"],
            "ratio_with_peer_codegen": mine["median"] / (peer["median"] + codegen),
        }
    return result


def chains(lengths: list[int], runs: int) -> dict[str, Any]:
    """Chains of additions, each of them in processes of its own."""
    found = []
    for n in lengths:
        samples = [h.cold("benchmarks.compile_time", "--child", "anneal", "--chain", str(n)) for _ in range(runs)]
        found.append({"chain": n, **{k: h.summary([s[k] for s in samples]) for k in ("seconds", "build_s", "run_s")}})
    return {"benchmark": "compile_time", "machine": h.machine(), "runs": runs, "chains": found}


def chain_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "who": f"anneal, a chain of {c['chain']} additions",
            "median s": c["seconds"]["median"],
            "min s": c["seconds"]["min"],
            "to build it": c["build_s"]["median"],
            "to plan, compile and run it": c["run_s"]["median"],
        }
        for c in result["chains"]
    ]


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    if "chains" in result:
        return chain_rows(result)
    out = [
        {
            "who": f"anneal, {result['config']}: {result['layers']} layers",
            "median s": result["anneal_s"],
            "min s": result["anneal_min_s"],
            "kernels": result["kernels"],
            "ours / theirs": 1.0,
            "MiB": result["mib"],
        }
    ]
    if result["peer_s"] is not None:
        codegen = result["peer_codegen_s"]
        out += [
            {
                "who": "tinygrad: trace, schedule, code",
                "median s": result["peer_s"] + codegen,
                "min s": result["peer_min_s"] + codegen,
                "kernels": result["peer_kernels"],
                "ours / theirs": result["ratio_with_peer_codegen"],
                "MiB": "",
            },
            {
                "who": "tinygrad: trace, schedule",
                "median s": result["peer_s"],
                "min s": result["peer_min_s"],
                "kernels": result["peer_kernels"],
                "ours / theirs": result["ratio"],
                "MiB": "",
            },
        ]
    if result["deeper"] is not None:
        deeper = result["deeper"]
        out.append(
            {
                "who": f"anneal: {deeper['layers']} layers",
                "median s": deeper["seconds"],
                "min s": "",
                "kernels": "",
                "ours / theirs": "",
                "MiB": deeper["mib"],
            }
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compile_time", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--config", choices=h.CONFIGS, default="baby")
    parser.add_argument("--layers", type=int, help="another depth than the configuration's")
    parser.add_argument("--peers", default="", help="tinygrad, or nothing")
    parser.add_argument("--runs", type=int, default=3, help="cold processes of each (default 3)")
    parser.add_argument("--growth", action="store_true", help=f"also time {DEEPER} times the layers")
    parser.add_argument("--chain", default="", help="a list of lengths: time chains of additions instead")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=("anneal", "tinygrad"), help=argparse.SUPPRESS)
    parser.add_argument("--codegen", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    lengths = [int(n) for n in args.chain.split(",") if n.strip().isdigit() and int(n)]
    if len(lengths) < len(args.chain.split(",")) and args.chain:
        parser.error(f"--chain takes lengths with commas between them, not {args.chain!r}")
    if args.child and lengths:
        from benchmarks import ours

        print(json.dumps(ours.chain_once(lengths[0])))
        return
    if args.child:
        print(json.dumps(child(args.child, h.CONFIGS[args.config].deeper(args.layers), args.codegen)))
        return
    peers = h.chosen_names(parser, args.peers, ("tinygrad",), "peer")
    if args.runs < 1 or (args.layers is not None and args.layers < 1):
        parser.error("--runs and --layers take a number from 1 up")
    if lengths:
        result = chains(lengths, args.runs)
        h.report(result, rows(result), args.json)
        return
    result = compare(args.config, args.layers, peers, args.runs, args.growth)
    h.report(result, rows(result), args.json)


if __name__ == "__main__":
    main()
