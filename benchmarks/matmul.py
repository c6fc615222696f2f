"""Products of matrices, and convolution, in float32: TFLOP/s, ours beside the peers', values checked.

    python -m benchmarks.matmul --device webgpu --peers wgsl,torch --json
    python -m benchmarks.matmul --sizes square --tiny          # a software adapter, or a look at whether it works

Contestants take turns case by case in processes of their own. Times are the device's: timestamps of one pass for ours
and for `wgsl`, CUDA events around a captured graph for PyTorch, the host's clock elsewhere. TF32 is off everywhere,
since WebGPU has no tensor cores. The peer `wgsl` is one hand-written kernel: what the shading language gives to whoever
knows the sizes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import _harness as h

PEERS = ("wgsl", "torch", "jax")
Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Product:
    """`batch` products of m x k by k x n; `ta`, `tb`: that operand is stored the other way round and read
    transposed.
    """

    name: str
    m: int
    n: int
    k: int
    batch: int = 1
    ta: bool = False
    tb: bool = False

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    def inputs(self) -> tuple[Array, Array]:
        a, b = (self.k, self.m) if self.ta else (self.m, self.k), (self.n, self.k) if self.tb else (self.k, self.n)
        lead = (self.batch,) if self.batch > 1 else ()
        return _random(0, *lead, *a), _random(1, *lead, *b)

    def error(self, inputs: tuple[Array, Array], result: Array) -> float:
        """Of some rows of the last product, the last row among them."""
        a, b, c = (x[-1] if self.batch > 1 else x for x in (*inputs, result))
        a, b = a.T if self.ta else a, b.T if self.tb else b
        rows = np.unique(np.linspace(0, self.m - 1, 48).astype(int))
        return h.relative_error(c[rows], a[rows].astype(np.float64) @ b.astype(np.float64))

    def tiny(self) -> Product:
        m, n, k = (min(d, 64 if d % 64 == 0 else d % 64 + 1) for d in (self.m, self.n, self.k))
        return replace(self, m=m, n=n, k=k, batch=min(self.batch, 3))


@dataclass(frozen=True)
class Convolution:
    """A 3 x 3 convolution, stride 1, padding 1, of `batch` images of `size` x `size`."""

    name: str
    batch: int
    inputs_: int
    outputs: int
    size: int

    @property
    def flops(self) -> int:
        return 2 * 9 * self.batch * self.size**2 * self.inputs_ * self.outputs

    def inputs(self) -> tuple[Array, Array]:
        return _random(0, self.batch, self.inputs_, self.size, self.size), _random(1, self.outputs, self.inputs_, 3, 3)

    def error(self, inputs: tuple[Array, Array], result: Array) -> float:
        """Of the last image."""
        x, w = (v.astype(np.float64) for v in (inputs[0][-1], inputs[1]))
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1))), (3, 3), (1, 2))
        return h.relative_error(result[-1], np.einsum("chwij,ocij->ohw", windows, w, optimize=True))

    def tiny(self) -> Convolution:
        return replace(self, batch=2, inputs_=4, outputs=8, size=8)


def _random(seed: int, *shape: int) -> Array:
    """Normal numbers, repeated after a prime number of them: cheap, and no two rows of a matrix are alike."""
    return np.resize(np.random.default_rng(seed).standard_normal(1_000_003, dtype=np.float32), shape)


CASES: tuple[Product | Convolution, ...] = (
    Product("square 1024", 1024, 1024, 1024),
    Product("square 4096", 4096, 4096, 4096),
    Product("qkv 16384x1152x384", 16384, 1152, 384),
    Product("mlp 16384x384x1536", 16384, 384, 1536),
    Product("small 768x512x128", 768, 512, 128),
    Product("a @ b.T 16384x1536x384", 16384, 1536, 384, tb=True),
    Product("a.T @ b 384x1536x16384", 384, 1536, 16384, ta=True),
    Product("a.T @ b 128x384x768", 128, 384, 768, ta=True),
    Product("batched 384 of 256x256x64, b.T", 256, 256, 64, batch=384, tb=True),
    Product("batched 384 of 256x64x256", 256, 64, 256, batch=384),
    Product("head 16384x65x384, b.T", 16384, 65, 384, tb=True),
    Product("skinny 32x4096x4096", 32, 4096, 4096),
    Product("matrix-vector 16384x1x4096", 16384, 1, 4096),
    Product("vector-matrix 1x50257x768, b.T", 1, 50257, 768, tb=True),
    Product("odd 1000x1000x1000", 1000, 1000, 1000),
    Product("odd 2047x1025x513", 2047, 1025, 513),
    Convolution("conv 3x3 64x64x128 32x32", 64, 64, 128, 32),
)


def contestant(who: str, device: str) -> Any:
    if who == "wgsl":
        from benchmarks.peers import wgsl_kernels

        return wgsl_kernels.Kernels(device)
    if who == "torch":
        from benchmarks.peers import torch_kernels

        return torch_kernels.Kernels(device)
    if who == "jax":
        from benchmarks.peers import jax_kernels

        return jax_kernels.Kernels(device)
    from benchmarks import ours

    return ours.Kernels(device)


def prepare(who: Any, case: Product | Convolution) -> tuple[h.Run, Callable[[], float]]:
    inputs = case.inputs()
    if isinstance(case, Product):
        run, result = who.product(*inputs, case.ta, case.tb)
    else:
        run, result = who.convolution(*inputs)
    return run, lambda: case.error(inputs, result())


def compare(names: list[str], cases: list[Product | Convolution], args: argparse.Namespace) -> dict[str, Any]:
    extra = ["--device", args.device, "--rounds", str(args.rounds), "--sizes", args.sizes, *["--tiny"] * args.tiny]
    found = h.contest("benchmarks.matmul", names, extra, cases, lambda case, s: case.flops / s / 1e12, args.limit)
    result: dict[str, Any] = {
        "benchmark": "matmul",
        "unit": "TFLOP/s",
        "machine": h.machine(),
        "device": args.device,
        "tiny": args.tiny,
        "contestants": found["contestants"],
        "cases": {},
    }
    for case, answers in zip(cases, found["cases"]):
        result["cases"][case.name] = {"flops": case.flops, "results": answers, "ratio": h.ratios(answers)}
    return result


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    names = list(result["contestants"])
    return [
        {
            "TFLOP/s": case,
            **{n: h.cell(r["results"].get(n, {})) for n in names},
            **{f"/ {n}": r["ratio"].get(n, "-") for n in names if n != "anneal"},
            "kernels": r["results"]["anneal"].get("kernels", "-"),
        }
        for case, r in result["cases"].items()
    ]


def main() -> None:
    parser = h.kernel_parser("matmul", __doc__, PEERS)
    args = parser.parse_args()
    cases = [c.tiny() if args.tiny else c for c in CASES if h.chosen(c.name, args.sizes)]
    if args.child:
        h.serve_cases(lambda: contestant(args.child, args.device), lambda who, i: prepare(who, cases[i]), args.rounds)
        return
    result = compare(["anneal", *h.chosen_names(parser, args.peers, PEERS, "peer")], cases, args)
    h.report(result, rows(result), args.json)


if __name__ == "__main__":
    main()
