"""GPT-2 small in f32 at batch 1: tokens a second, a prompt of 1024 tokens, and the first token of a cold process.

    python -m benchmarks.gpt2 --device webgpu --peers torch,torch-compile,transformers --json

Each contestant lives in a process of its own; rounds go in turns. A round is a prompt of 8 tokens, some tokens to warm
up, and `--tokens` greedy ones, of which the last is waited for; then the long prompt, waited for. `first token`: the
wall time of a whole process that says one token, from its start to its end, with the plans of an earlier process on
disk and without (its driver may still know the kernels). Weights are random, of GPT-2's names and shapes, unless
`--model-dir` names others.

Peers: torch (hand-written, eager), torch-compile (the same, static shapes, CUDA graphs), transformers (generate).
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
from pathlib import Path
from typing import Any

from benchmarks import _harness as h

PEERS = ("torch", "torch-compile", "transformers")
ANNEAL = "import sys; sys.argv = ['anneal', *sys.argv[1:]]; from anneal.cli import main; main()"
PROMPT, LONG = [1, 2, 3, 4, 5, 6, 7, 8], 1024
WARM = 12


class Ours:
    """`prefill(tokens)`, then `decode(count)`, with examples/gpt2; `wait()`."""

    def __init__(self, folder: Path, device: str) -> None:
        from anneal.backend import get_device
        from anneal.tensor import set_default_device
        from examples.gpt2 import Decoder, Sampling, read_checkpoint

        set_default_device(device)
        self.device = get_device(device)
        self.decoder = Decoder(read_checkpoint(folder), Sampling(greedy=True))

    @property
    def about(self) -> dict[str, Any]:
        about = self.device.describe()
        return {"device": str(about.get("adapter") or about["name"]), "driver": str(about.get("driver", ""))}

    def prefill(self, tokens: list[int]) -> None:
        self.decoder.prefill(tokens)

    def decode(self, count: int) -> None:
        for _ in range(count):
            self.decoder.step()

    def wait(self) -> None:
        self.device.synchronize()


def contestant(who: str, folder: Path, device: str) -> Any:
    if who == "anneal":
        return Ours(folder, device)
    from benchmarks.peers import torch_gpt2

    return torch_gpt2.Contestant(folder, device, who.partition("-")[2] or {"torch": "eager"}.get(who, who))


def work(who: str, folder: Path, device: str, long: int) -> None:
    """The child process of one contestant."""
    model = contestant(who, folder, device)
    prompt = (PROMPT * (long // len(PROMPT) + 1))[:long]

    def timed(work: Any, *args: Any) -> float:
        model.wait()
        start = time.perf_counter()
        work(*args)
        model.wait()
        return time.perf_counter() - start

    def round_(tokens: int) -> dict[str, Any]:
        model.prefill(PROMPT)
        model.decode(WARM)
        seconds = timed(model.decode, tokens) / tokens
        times = [timed(model.prefill, prompt) for _ in range(5)]
        return {"token_ms": seconds * 1e3, "prefill_ms": statistics.median(times[1:]) * 1e3}

    round_(WARM)  # compiles and captures
    h.serve(model.about, round_)


def compare(args: argparse.Namespace, folder: Path, names: list[str]) -> dict[str, Any]:
    extra = ["--device", args.device, "--model-dir", str(folder), "--prompt", str(args.prompt)]
    workers: dict[str, h.Worker] = {}
    absent: dict[str, str] = {}
    for n in names:  # one after the other: compiling beside another would slow both
        try:
            workers[n] = h.Worker("benchmarks.gpt2", "--child", n, *extra).started()
        except SystemExit as e:  # a peer that is not installed must not lose the others' figures
            absent[n] = str(e)
    answers: dict[str, list[dict[str, Any]]] = {n: [] for n in workers}
    for _ in range(args.rounds):
        for n, w in workers.items():
            answers[n].append(w.round(args.tokens))
    for w in workers.values():
        w.close()
    results = {}
    for n, found in answers.items():
        token = statistics.median(a["token_ms"] for a in found)
        results[n] = {
            **workers[n].ready, "token_ms": token, "tokens_per_s": 1e3 / token,
            "prefill_ms": statistics.median(a["prefill_ms"] for a in found), "rounds": found,
        }  # fmt: skip
    return {"results": results, "absent": absent}


def first_token(device: str, folder: Path, runs: int) -> dict[str, Any]:
    """Cold processes of the command line; the first fills the plan cache."""

    def run(plans: str) -> dict[str, Any]:
        command = [sys.executable, "-c", ANNEAL, "gpt2", "sample", "Hello, world", "--greedy", "--max-tokens", "1"]
        command += ["--json", "--device", device, "--model-dir", str(folder)]
        start = time.perf_counter()
        done = subprocess.run(
            command,
            env=h.environment({"ANNEAL_CACHE_DIR": plans}),
            cwd=h.ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(f"anneal gpt2 sample failed with code {done.returncode}:\n{done.stderr.strip()}")
        said = json.loads(done.stdout)
        return {"seconds": seconds, "peak_mib": said["memory"]["host_peak_bytes"] / 2**20, **said["seconds"]}

    with tempfile.TemporaryDirectory() as plans:
        cold = run(plans)
        warm = [run(plans) for _ in range(runs)]
    return {"cold": cold, "warm": sorted(warm, key=lambda r: r["seconds"])[len(warm) // 2]}


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    mine, first = result["results"]["anneal"], result.get("first_token")
    out = []
    for n, r in result["results"].items():
        row = {
            "who": n,
            "tokens/s": r["tokens_per_s"],
            "ours / theirs": mine["tokens_per_s"] / r["tokens_per_s"] if r is not mine else "",
            f"prompt of {result['prompt']}, ms": r["prefill_ms"],
            "ours / theirs, time": mine["prefill_ms"] / r["prefill_ms"] if r is not mine else "",
        }
        if first:
            row |= {
                "first token, s": first["warm"]["seconds"] if r is mine else "",
                "nothing on disk, s": first["cold"]["seconds"] if r is mine else "",
                "host peak, MiB": first["warm"]["peak_mib"] if r is mine else "",
            }
        out.append(row)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpt2", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "webgpu"), default="cpu")
    parser.add_argument("--peers", default="", help=f"a list of {', '.join(PEERS)}")
    parser.add_argument("--tokens", type=int, default=200, help="timed tokens of a round (default 200)")
    parser.add_argument("--prompt", type=int, default=LONG, help="tokens of the long prompt (default 1024)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (default 3)")
    parser.add_argument(
        "--cold", type=int, default=0, metavar="RUNS", help="measure the first token in so many processes"
    )
    parser.add_argument("--cores", type=int, help="bind every process to this many cores (Linux)")
    parser.add_argument("--model-dir", type=Path, help="a checkpoint; without it random weights are made, 548 MB")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=("anneal", *PEERS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cores:  # children inherit it
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    if args.child:
        work(args.child, args.model_dir, args.device, args.prompt)
        return
    peers = h.chosen_names(parser, args.peers, PEERS, "peer")
    with tempfile.TemporaryDirectory() as made:
        folder = args.model_dir
        if folder is None:
            from benchmarks import gpt2_checkpoint

            folder = Path(made)
            gpt2_checkpoint.write(folder)
        result: dict[str, Any] = {
            "benchmark": "gpt2",
            "machine": h.machine(),
            "device": args.device,
            "prompt": args.prompt,
            **compare(args, folder, ["anneal", *peers]),
        }
        if args.cold:
            result["first_token"] = first_token(args.device, folder, args.cold)
    h.report(result, rows(result), args.json)


if __name__ == "__main__":
    main()
