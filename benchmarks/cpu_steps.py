"""Steps and runs on the cpu beside torch's eager mode and ONNX Runtime, in turns: a line of JSON for each figure.

    python -m benchmarks.cpu_steps --torch /path/to/python-with-torch            all figures
    python -m benchmarks.cpu_steps --figures lstm,mobilenet --cpu numpy --threads 2 --rounds 8

Training steps are those of `benchmarks/eager_models.py`, under jit here. GPT-2 small has random weights: prompts of 200
and 700 tokens, and the token after them, greedy. ONNX files are those of `benchmarks/cpu_peers.py`, from host arrays to
host arrays. `cold` figures are seconds of a new process after its imports: the first step with an empty cache, of which
the compiler, and the first step of the process after it.

Every contestant lives in a process of its own, with so many threads on so many cores; rounds take turns. `ms` and
`peer_ms` are the medians over all rounds, `ratio` the median of the rounds' ratios, of which others' work on the
machine falls on both; `best_ratio` has the least of each, `cpu_ratio` processor times. `load` is what the system tells,
before and after: ours and theirs are part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import _harness as h

# The most that a figure may be of its peer's.
STEPS = {"gpt": 0.9, "cnn": 0.9, "lstm": 0.9, "encoder": 0.9, "vae": 0.9, "gan": 0.9}
GPT2 = {"prompt_200": 1.1, "prompt_700": 1.1, "decode": 0.95}
ONNX = {
    "mobilenet_v3": 1.3, "efficientnet_b0": 1.3, "resnet18": 4.0, "unet": 3.0, "qdq_resnet18": 3.0, "lstm_onnx": 4.0,
    "int8_lstm": 4.0,
}  # fmt: skip
# Seconds: the first step with nothing in the cache, of which the compiler, and of the next process.
COLD = {"cold_gpt": (4.0, 2.0, 0.4), "cold_cnn": (2.5, 1.5, 0.4)}
FIGURES = (*STEPS, *GPT2, *ONNX, *COLD)
DECODED = 16  # tokens of a round

Loop = Callable[[], Any]


def step_of(who: str, case: str) -> Loop:
    """A training step of the next batch, whose loss is read."""
    from benchmarks import eager

    return eager.contestant(who, case, "cpu")[0]


def text_of(who: str, figure: str, folder: Path) -> Loop:
    """A prompt that is read, or as many tokens as DECODED."""
    from benchmarks import gpt2

    model = gpt2.contestant(who, folder, "cpu")
    tokens = (gpt2.PROMPT * 100)[: 200 if figure == "decode" else int(figure.partition("_")[2])]

    def read() -> None:
        model.prefill(tokens)
        model.wait()

    def say() -> None:
        model.decode(DECODED)
        model.wait()

    read()
    return say if figure == "decode" else read


def file_of(who: str, figure: str, folder: Path, threads: int) -> Loop:
    """A run of an ONNX file."""
    from benchmarks import onnx_peers

    name = "lstm" if figure == "lstm_onnx" else figure
    args = argparse.Namespace(device="cpu", threads=threads, shape=[])
    made = onnx_peers.Ours if who == "jit" else onnx_peers.Theirs
    return made(str(folder / f"{name}.onnx"), args).run


def work(args: argparse.Namespace) -> None:
    """The child process of one contestant and figure."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    who, figure, folder = args.child, args.figures, args.folder
    if who == "torch":
        import torch

        torch.set_num_threads(args.threads)
        about = {"peer": f"torch {torch.__version__}"}
    elif who == "onnxruntime":
        import onnxruntime

        about = {"peer": f"onnxruntime {onnxruntime.__version__}"}
    else:
        about = {"peer": ""}
    if figure in STEPS:
        loop = step_of(who, figure)
    elif figure in GPT2:
        loop = text_of("anneal" if who == "jit" else who, figure, folder)
    else:
        loop = file_of(who, figure, folder, args.threads)
    h.warm(loop, lambda: None, 0.3, 10 if figure in STEPS else 3)

    def round_(_: int) -> dict[str, Any]:
        loop()
        times: list[float] = []
        spent, begun = time.process_time(), time.perf_counter()
        while not times or time.perf_counter() < begun + args.seconds:
            times += h.timed_steps(loop, lambda: None, 1)
        return {"ms": times, "cpu_ms": (time.process_time() - spent) * 1e3 / len(times)}

    h.serve(about, round_)


def compared(figure: str, args: argparse.Namespace, folder: Path, bar: float) -> dict[str, Any]:
    """The row of a figure that has a peer."""
    peer = "onnxruntime" if figure in ONNX else "torch"
    env = {**_threads(args), "ANNEAL_CPU": args.cpu}
    flags = ["--figures", figure, "--folder", str(folder), "--threads", str(args.threads)]
    flags += ["--seconds", str(args.seconds)]
    before = os.getloadavg()[0]
    workers = {
        who: h.Worker(
            "benchmarks.cpu_steps", "--child", who, *flags, env=env, python=args.torch if who == "torch" else ""
        ).started()
        for who in ("jit", peer)
    }
    answers: dict[str, list[dict[str, Any]]] = {who: [] for who in workers}
    for _ in range(args.rounds):
        for who, w in workers.items():
            answers[who].append(w.round(1))
    for w in workers.values():
        w.close()
    mine, theirs = answers["jit"], answers[peer]
    each = [[statistics.median(a["ms"]) for a in found] for found in (mine, theirs)]
    least = [min(min(a["ms"]) for a in found) for found in (mine, theirs)]
    spent = [statistics.median([a["cpu_ms"] for a in found]) for found in (mine, theirs)]
    parts = DECODED if figure == "decode" else 1
    return {
        "figure": figure, **workers[peer].ready, "ms": statistics.median(each[0]) / parts,
        "peer_ms": statistics.median(each[1]) / parts,
        "ratio": statistics.median([a / b for a, b in zip(*each, strict=True)]), "best_ratio": least[0] / least[1],
        "cpu_ratio": spent[0] / spent[1], "bar": bar, "load": [before, os.getloadavg()[0]],
    }  # fmt: skip


def _threads(args: argparse.Namespace) -> dict[str, str]:
    return {name: str(args.threads) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}


def cold(figure: str, args: argparse.Namespace, bars: tuple[float, float, float]) -> dict[str, Any]:
    """The row of the first step of a new process, and of the next."""
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        env = {**_threads(args), "ANNEAL_CPU": args.cpu, "ANNEAL_CACHE_DIR": folder, "ANNEAL_CACHE": "1"}
        flags = ["--child", "cold", "--figures", figure, "--threads", str(args.threads)]
        first, second = (h.cold("benchmarks.cpu_steps", *flags, env=env) for _ in range(2))
    return {
        "figure": figure, "first_s": first["step_s"], "compiler_s": first["compiler_s"], "second_s": second["step_s"],
        "cpu_s": first["cpu_s"], "second_cpu_s": second["cpu_s"], "imports_s": second["imports_s"], "bar": list(bars),
        "load": [before, os.getloadavg()[0]],
    }  # fmt: skip


def first_step(figure: str, threads: int) -> dict[str, Any]:
    """Seconds of the first step of this process, from a model that there is already."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    begun = time.perf_counter()
    from anneal.backend import compiler

    step = step_of("jit", figure.partition("_")[2])
    imports = time.perf_counter() - begun
    spent = [0.0]
    whole = compiler._compiled

    def timed(*args: Any) -> Any:
        at = time.perf_counter()
        try:
            return whole(*args)
        finally:
            spent[0] += time.perf_counter() - at

    compiler._compiled = timed  # type: ignore[assignment]
    begun, used = time.perf_counter(), sum(os.times()[:4])
    step()
    return {
        "step_s": time.perf_counter() - begun, "cpu_s": sum(os.times()[:4]) - used, "compiler_s": spent[0],
        "imports_s": imports,
    }  # fmt: skip


def prepared(figures: list[str], args: argparse.Namespace, folder: Path) -> Path:
    """The folder with the files that these figures want; those that are missing are made."""
    if set(figures) & set(GPT2) and not (folder / "model.safetensors").exists():
        from benchmarks import gpt2_checkpoint

        gpt2_checkpoint.write(folder)
    if set(figures) & set(ONNX) and not (folder / "int8_lstm.onnx").exists():
        from benchmarks import cpu_peers

        h.ran([args.torch or sys.executable, "-m", "benchmarks.cpu_peers", str(folder)])
        cpu_peers.quantised(folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--figures", default="", help="only those whose name contains one of these, with commas between"
    )
    parser.add_argument("--torch", default="", help="a Python that has torch, if this one does not")
    parser.add_argument("--cpu", default="c", help="what ANNEAL_CPU is (default c)")
    parser.add_argument("--threads", type=int, default=2, help="threads and cores of each (default 2)")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each (default 8)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn, at least (default 0.3)")
    parser.add_argument("--folder", type=Path, help="where the networks' files lie, or are put; else they go again")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child == "cold":
        print(json.dumps(first_step(args.figures, args.threads)))
        return
    if args.child:
        work(args)
        return
    figures = [f for f in FIGURES if h.chosen(f, args.figures)]
    if min(args.rounds, args.threads) < 1 or not figures:
        parser.error(f"--rounds and --threads take a number from 1 up, --figures parts of {', '.join(FIGURES)}")
    print(json.dumps({"machine": h.machine(), "cpu": args.cpu, "threads": args.threads}), flush=True)
    with tempfile.TemporaryDirectory() as made:
        folder = prepared(figures, args, args.folder or Path(made))
        for figure in figures:
            if figure in COLD:
                row = cold(figure, args, COLD[figure])
            else:
                row = compared(figure, args, folder, {**STEPS, **GPT2, **ONNX}[figure])
            print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}), flush=True)


if __name__ == "__main__":
    main()
