"""Five kernels of the cpu by several compilers and flags, and by NumPy: microseconds on one thread, the least of many.

    python -m benchmarks.cpu_compilers [--compilers gcc,clang,numpy] [--levels=-O2,-O3]

The kernels are the slowest of: a fused elementwise chain, a convolution, its weight's gradient, the gradient of a max
pool, and a step of an LSTM. The last column is what compiling all of them took.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import anneal as an
from anneal import nn, settings
from anneal.backend import get_device
from anneal.backend.cpu import CpuDevice, compiler
from anneal.schedule import clear_cache
from anneal.tensor import functional as F


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
        runs = np.array([batch.timed().each()[0] for _ in range(10)])
        total += float(runs.min(0).sum())
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compilers", default="gcc,clang,numpy")
    parser.add_argument("--levels", default="-O2,-O3")
    args = parser.parse_args()
    device = get_device("cpu")
    assert isinstance(device, CpuDevice)
    device.workers.count = 1
    flags = compiler.FLAGS
    found = [c for c in args.compilers.split(",") if c == "numpy" or shutil.which(c)]
    ways = [(c, level) for c in found for level in (args.levels.split(",") if c != "numpy" else [""])]
    print(f"{'':16}" + "".join(f"{name:>24}" for name in cases()) + f"{'compiled in':>14}")
    for who, level in ways:
        device._kernels = None
        compiler.FLAGS = tuple(level if x == "-O2" else x for x in flags)  # type: ignore[misc, assignment]
        path = shutil.which(who) or ""
        compiler.find = lambda path=path: compiler.Compiler((path,), compiler._identity(path))  # type: ignore[assignment, misc]
        spent = [0.0]
        whole = compiler._compiled

        def timed(texts: Any, found: Any, whole: Any = whole, spent: Any = spent) -> Any:
            begun = time.perf_counter()
            try:
                return whole(texts, found)
            finally:
                spent[0] += time.perf_counter() - begun

        compiler._compiled = timed
        clear_cache()
        with settings.override(cpu="numpy" if who == "numpy" else "c", cache=False):
            row = [measured(f, device) * 1e6 for f in cases().values()]
        compiler._compiled = whole
        print(f"{who + ' ' + level:16}" + "".join(f"{us:24.0f}" for us in row) + f"{spent[0]:14.2f}", flush=True)


if __name__ == "__main__":
    main()
