"""ONNX files run by anneal and by ONNX Runtime: the first run, and ms a run from host arrays to host arrays.

    python -m benchmarks.onnx_peers FOLDER --device cpu --threads 2 --json

Every file of FOLDER is one case. Each contestant has it in a process of its own, which ends with the case, and rounds
go A, B, A, B. Inputs are those of NAME.npz beside NAME.onnx (`benchmarks.onnx_models --save` writes both), else
random and the same for both; the last line is the geometric mean of the ratios, and the worst; `error` is the
relative difference of the outputs. On the cpu device both have `--threads` cores; on webgpu the peer is ONNX
Runtime's WebGPU provider, which comes with the package onnxruntime-webgpu. `first s` is loading the file and one run,
in a process that finds no compiled plans on disk, `with plans` the same in one that finds those of the former.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _harness as h

PEER = "onnxruntime"
PROVIDERS = {"cpu": "CPUExecutionProvider", "webgpu": "WebGpuExecutionProvider"}
TOKENS = 1000  # integer inputs are below: any vocabulary has so many


def random_inputs(
    listed: Iterable[tuple[str, str, Iterable[Any]]], shapes: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """Values of inputs listed as (name, dtype, shape), the same for all who list the same.

    `shapes` has the shapes of inputs that the file leaves open; an open size is 1 otherwise.
    """
    import numpy as np

    generator = np.random.default_rng(0)
    out = {}
    for name, dtype, shape in listed:
        lengths = shapes.get(name) or [n if isinstance(n, int) else 1 for n in shape]
        if "int" in dtype:
            out[name] = generator.integers(0, TOKENS, lengths).astype(dtype)
        elif dtype == "bool":
            out[name] = np.ones(lengths, bool)
        else:
            out[name] = generator.standard_normal(lengths).astype(dtype)
    return out


class Ours:
    """A file loaded and run once by anneal."""

    def __init__(self, path: str, args: argparse.Namespace) -> None:
        from anneal import onnx
        from anneal.backend import get_device

        start = time.perf_counter()
        self.model = onnx.load(path, args.device)
        listed = [(v.name, v.dtype, v.shape or ()) for v in self.model.inputs]
        self.feeds = inputs_of(path, listed, args)
        self.outputs = self.run()
        self.first_s = time.perf_counter() - start
        about = get_device(args.device).describe()
        self.about = {"device": str(about.get("adapter") or about["backend"]), "driver": str(about.get("driver", ""))}

    def run(self) -> list[Any]:
        """The outputs as arrays of the host."""
        return [t.numpy() for t in self.model.run(self.feeds).values()]


class Theirs:
    """A file loaded and run once by ONNX Runtime."""

    def __init__(self, path: str, args: argparse.Namespace) -> None:
        import onnxruntime

        start = time.perf_counter()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = args.threads
        options.log_severity_level = 3
        provider = PROVIDERS[args.device]
        self.session = onnxruntime.InferenceSession(path, options, providers=[provider])
        if self.session.get_providers()[0] != provider:
            raise ImportError(f"this onnxruntime has no {provider}")
        names = {"float": "float32", "double": "float64"}
        kinds = [(i, i.type.removeprefix("tensor(").removesuffix(")")) for i in self.session.get_inputs()]
        self.feeds = inputs_of(path, [(i.name, names.get(k, k), i.shape) for i, k in kinds], args)
        self.outputs = self.run()
        self.first_s = time.perf_counter() - start
        self.about = {"version": onnxruntime.__version__, "provider": provider}

    def run(self) -> list[Any]:
        """The outputs as arrays of the host."""
        outputs: list[Any] = self.session.run(None, self.feeds)
        return outputs


def inputs_of(path: str, listed: Iterable[tuple[str, str, Iterable[Any]]], args: argparse.Namespace) -> dict[str, Any]:
    """The inputs that lie beside a file, else random ones."""
    import numpy as np

    beside = Path(path).with_suffix(".npz")
    if not beside.exists():
        return random_inputs(listed, shapes_of(args))
    with np.load(beside) as kept:
        return dict(kept)


def shapes_of(args: argparse.Namespace) -> dict[str, list[int]]:
    """The shapes that were given as NAME=N,N,..."""
    return {name: [int(n) for n in sizes.split(",")] for name, _, sizes in (s.partition("=") for s in args.shape)}


def work(args: argparse.Namespace) -> None:
    """The child process of one contestant and one file."""
    if args.device == "cpu" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    import numpy as np

    try:
        mine = (Ours if args.child == "anneal" else Theirs)(args.folder, args)
    except Exception as e:  # a peer that is not installed, or a file that one of them cannot run: a row of the table
        h.serve({"error": f"{type(e).__name__}: {e}"[:300]}, lambda _: {})
        return
    np.savez(args.outputs, *mine.outputs)

    def round_(runs: int) -> dict[str, Any]:
        h.warm(mine.run, _nothing, least=2)
        return {"ms": h.timed_steps(mine.run, _nothing, runs)}

    h.serve({"first_s": mine.first_s, **mine.about}, round_)


def _nothing() -> None:
    """Outputs on the host have been waited for."""


def case(path: Path, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Both contestants' figures of one file."""
    saved = {who: folder / f"{path.stem}-{who}.npz" for who in ("anneal", PEER)}
    env = {"ANNEAL_CACHE_DIR": str(folder / path.stem), "ANNEAL_CACHE": "1"}
    if args.device == "cpu":
        env |= {"OPENBLAS_NUM_THREADS": str(args.threads), "OMP_NUM_THREADS": str(args.threads)}

    def worker(who: str) -> h.Worker:
        flags = ["--child", who, "--outputs", str(saved[who]), "--device", args.device, "--threads", str(args.threads)]
        flags += [f"--shape={text}" for text in args.shape]
        return h.Worker("benchmarks.onnx_peers", *flags, str(path), env=env)

    without = worker("anneal").started()
    without.close()
    workers: dict[str, h.Worker] = {}
    for who in ("anneal", PEER):  # one after the other: the first run is timed
        workers[who] = worker(who).started()
    results = {who: dict(w.ready) for who, w in workers.items()}
    results["anneal"]["cold_s"] = without.ready.get("first_s")
    present = {who: w for who, w in workers.items() if "error" not in results[who]}
    times: dict[str, list[float]] = {who: [] for who in present}
    for _ in range(args.rounds):
        for who, w in present.items():
            times[who] += w.round(max(1, args.runs // args.rounds))["ms"]
    for w in workers.values():
        w.close()
    for who, ms in times.items():
        results[who] |= {"median_ms": statistics.median(ms), "min_ms": min(ms)}
    made: dict[str, Any] = {"results": results}
    if len(present) == 2:
        made["error"] = _difference(saved["anneal"], saved[PEER])
        made["ratio"] = results["anneal"]["median_ms"] / results[PEER]["median_ms"]
        made["min_ratio"] = results["anneal"]["min_ms"] / results[PEER]["min_ms"]
    return made


def _difference(mine: Path, theirs: Path) -> float:
    """The largest relative error among the outputs."""
    import numpy as np

    with np.load(mine) as a, np.load(theirs) as b:
        return max(h.relative_error(a[n].astype(float), b[n].astype(float)) for n in b.files)


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    out = []
    for name, found in result["cases"].items():
        ours, theirs = found["results"]["anneal"], found["results"][PEER]
        error = found.get("error")
        out.append(
            {
                "model": name,
                "anneal ms": ours.get("median_ms", "error"),
                "min": ours.get("min_ms", ""),
                f"{PEER} ms": theirs.get("median_ms", "error"),
                "min ": theirs.get("min_ms", ""),
                "ratio": found.get("ratio", ""),
                "of min": found.get("min_ratio", ""),
                "first s": ours.get("cold_s") or "",
                "with plans": ours.get("first_s", ""),
                "theirs": theirs.get("first_s", ""),
                "error": "" if error is None else error if error <= h.TOLERANCE else f"wrong: {error:.1e}",
            }
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.onnx_peers", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("folder", help="where the .onnx files lie")
    parser.add_argument("--device", choices=tuple(PROVIDERS), default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="threads of each on the cpu device (default 2)")
    parser.add_argument("--models", default="", help="only files whose name contains one of these, with commas between")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=N,N", help="of an input with open sizes")
    parser.add_argument("--runs", type=int, default=20, help="timed runs of each (default 20)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default 5)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=("anneal", PEER), help=argparse.SUPPRESS)
    parser.add_argument("--outputs", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if any(not text.partition("=")[2].replace(",", "").isdigit() for text in args.shape):
        parser.error("--shape takes NAME=N,N,...")
    if args.child:
        work(args)
        return
    if min(args.runs, args.rounds, args.threads) < 1:
        parser.error("--runs, --rounds and --threads take a number from 1 up")
    paths = [p.resolve() for p in sorted(Path(args.folder).glob("*.onnx")) if h.chosen(p.stem, args.models)]
    if not paths:
        parser.error(f"no .onnx file in {args.folder} is meant")
    cases: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            cases[path.stem] = case(path, args, Path(folder))
    about: dict[str, Any] = {"benchmark": "onnx_peers", "machine": h.machine(), "device": args.device}
    seen = [found["results"] for found in cases.values()]
    facts = ("device", "driver", "version", "provider")
    contestants = {who: {k: v for r in seen for k, v in r[who].items() if k in facts} for who in ("anneal", PEER)}
    result = {**about, "threads": args.threads, "contestants": contestants, "cases": cases}
    h.report(result, rows(result), args.json)
    ratios = {name: found["min_ratio"] for name, found in cases.items() if "min_ratio" in found}
    if ratios and not args.json:
        worst = max(ratios, key=lambda name: ratios[name])
        print(f"geometric mean {statistics.geometric_mean(ratios.values()):.2f}, worst {ratios[worst]:.2f} ({worst})")


if __name__ == "__main__":
    main()
