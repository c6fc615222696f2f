"""Five kernels of the cpu by several compilers and flags, and by NumPy: microseconds on one thread, the least of many.

    python -m benchmarks.cpu_compilers [--compilers gcc,clang,zig,numpy] [--levels=-O2,-O3]
    python -m benchmarks.cpu_compilers --baby    # seconds of compiling a training step of the baby GPT, and of a step

zig is the compiler of the wheel `ziglang`. The kernels are the slowest of: a fused elementwise chain, a convolution,
its weight's gradient, the gradient of a max pool, and a step of an LSTM. The last columns are the seconds that
compiling all of them took, and its processor time.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import anneal as an
from anneal import nn, settings
from anneal.backend import compiler, get_device
from anneal.backend.compiler import Compiler
from anneal.backend.cpu import CpuDevice
from anneal.schedule import clear_cache
from anneal.tensor import functional as F
from benchmarks import _harness as h, ours


def _random(*shape: int) -> an.Tensor:
    return an.tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def cases() -> dict[str, Callable[[], an.Tensor]]:
    """The calls that are timed, by name."""
    x, y = _random(1000, 1000), _random(1000, 1000)
    image, weight = _random(64, 16, 28, 28), _random(32, 16, 3, 3)
    out = _random(64, 32, 28, 28)
    cell = nn.LSTMCell(128, 128)
    given, state = _random(32, 128), (_random(32, 128), _random(32, 128))

    def slope(f: Callable[[an.Tensor], an.Tensor], at: an.Tensor) -> an.Tensor:
        return an.grad(f)(at)

    return {
        "elementwise": lambda: (x * y + x.exp()).tanh() * y,
        "convolution": lambda: F.conv2d(image, weight, padding=1),
        "its weight's gradient": lambda: slope(lambda w: (F.conv2d(image, w, padding=1) * out).sum(), weight),
        "max pool's gradient": lambda: slope(lambda a: (F.max_pool2d(a, 2) ** 2).sum(), image),
        "LSTM step": lambda: cell(given, state)[0],
    }


def measured(f: Callable[[], an.Tensor], device: CpuDevice) -> float:
    """Seconds of all kernels of `f`, each the least of its times."""
    batches: list[Any] = []
    prepare = device.prepare
    device.prepare = lambda *a: batches.append(prepare(*a)) or batches[-1]  # type: ignore[method-assign, func-returns-value]
    try:
        f().realize()
    finally:
        device.prepare = prepare  # type: ignore[method-assign]
    total = 0.0
    for batch in batches:
        runs = np.array([batch.timed().each for _ in range(10)])
        total += float(runs.min(0).sum())
    return total


def baby(device: CpuDevice) -> float:
    """Seconds of a training step of the baby GPT, the least of ten."""
    step = ours.Step(h.CONFIGS["baby"], "cpu")
    times = []
    for _ in range(13):
        begun = time.perf_counter()
        step()
        step.wait()
        times.append(time.perf_counter() - begun)
    return min(times[3:])


def known(name: str) -> Compiler | None:
    """The compiler of this name, if it is here."""
    if name == "zig":
        spec = importlib.util.find_spec("ziglang")
        command, path = (sys.executable, "-m", "ziglang", "cc"), spec and spec.origin
    else:
        path = shutil.which(name)
        command = (path or "",)
    return Compiler(command, compiler._identity(path)) if path else None


@contextmanager
def by(who: str, level: str, device: CpuDevice) -> Iterator[list[float]]:
    """Kernels are made by this compiler, without a cache; adds the seconds of its runs up."""
    flags, whole, find, spent = compiler.FLAGS, compiler._compiled, compiler.find, [0.0, 0.0]

    def timed(texts: Any, found: Any) -> Any:
        begun = time.perf_counter(), children()
        try:
            return whole(texts, found)
        finally:
            spent[0] += time.perf_counter() - begun[0]
            spent[1] += children() - begun[1]

    vars(device).pop("kernels", None)
    compiler.FLAGS = tuple([level if x == "-O2" else x for x in flags])  # type: ignore[misc, assignment]
    compiler.find, compiler._compiled = lambda: known(who), timed  # type: ignore[misc, assignment]
    clear_cache()
    try:
        with settings.override(cpu="numpy" if who == "numpy" else "c", cache=False):
            yield spent
    finally:
        compiler.FLAGS, compiler._compiled, compiler.find = flags, whole, find  # type: ignore[misc]


def children() -> float:
    """The processor time of the compilers that have run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compilers", default="gcc,clang,zig,numpy")
    parser.add_argument("--levels", default="-O2,-O3")
    parser.add_argument("--baby", action="store_true", help="the baby GPT's training step, on all cores")
    args = parser.parse_args()
    device = get_device("cpu")
    assert isinstance(device, CpuDevice)
    if not args.baby:
        device.workers.count = 1
    found = [c for c in args.compilers.split(",") if c == "numpy" or known(c)]
    ways = [(c, level) for c in found for level in (args.levels.split(",") if c != "numpy" else [""])]
    columns = ["step ms"] if args.baby else list(cases())
    print(f"{'':16}" + "".join(f"{name:>24}" for name in columns) + f"{'compiled in':>14}{'processor':>14}")
    for who, level in ways:
        with by(who, level, device) as spent:
            if args.baby:
                row = [baby(device) * 1e3]
            else:
                row = [measured(f, device) * 1e6 for f in cases().values()]
        said = "".join(f"{x:24.1f}" for x in row)
        print(f"{who + ' ' + level:16}{said}{spent[0]:14.2f}{spent[1]:14.2f}", flush=True)


if __name__ == "__main__":
    main()
