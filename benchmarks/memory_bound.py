"""Work that memory bounds: GB/s by what must be read and written once, beside a copy and the peers, values checked.

    python -m benchmarks.memory_bound --device webgpu --peers wgsl,torch --json
    python -m benchmarks.memory_bound --sizes softmax,norm --mib 64

Every case works on `--mib` of float32 (256 by default). What counts as traffic is the least that any program must move:
each input and each result once. Work that needs a second pass over its input pays for it in GB/s. `share of copy` is
against the faster of our copy and, on webgpu, the hand-written one. Contestants take turns case by case in processes of
their own; see benchmarks.matmul for the clocks.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import _harness as h

PEERS = ("wgsl", "torch", "jax")
Array = npt.NDArray[Any]
# What a result is, made from one tile of the input: the array for the tile, and the axis along which tiles repeat it.
Expected = tuple[Array, int | None]


@dataclass(frozen=True)
class Case:
    """`op` over rows of `columns`, reading and writing `passes` arrays of the full size.

    Inputs are one random tile, repeated: so what comes out repeats too, or is a multiple, and is cheap to check.
    """

    name: str
    op: str
    columns: int
    passes: int
    inputs: str  # x: full size; w: a row; t: an index for every row
    expected: Callable[..., list[Expected]]  # (tiles, *the inputs of one tile in float64)

    def rows(self, mib: float) -> tuple[int, int]:
        """Rows of a tile, and how many tiles."""
        tile = max(1, 2**17 // self.columns)
        rows = int(mib * 2**18) // self.columns
        return (tile, rows // tile) if rows >= 2 * tile else (max(1, rows), 1)

    def tile(self, mib: float) -> list[Array]:
        """The inputs of one tile."""
        random = np.random.default_rng(0)
        rows, _ = self.rows(mib)
        made: list[Array] = []
        for kind in self.inputs:
            if kind == "t":
                made.append(random.integers(0, self.columns, rows).astype(np.int32))
            else:
                shape = (rows, self.columns) if kind == "x" else (self.columns,)
                made.append(random.uniform(-1.0, 1.5, shape).astype(np.float32))
        return made

    def whole(self, mib: float) -> list[Array]:
        """The inputs."""
        tiles = self.rows(mib)[1]
        return [x if k == "w" else np.concatenate([x] * tiles) for k, x in zip(self.inputs, self.tile(mib))]

    def traffic(self, mib: float) -> int:
        rows, tiles = self.rows(mib)
        return self.passes * rows * tiles * self.columns * 4

    def error(self, results: Sequence[Array], mib: float) -> float:
        """The worst relative error among the results; of large ones their first and last tile.

        What comes after the results that are expected (an optimiser's moments) is not looked at.
        """
        tiles = self.rows(mib)[1]
        given = [x.astype(np.float64) if x.dtype == np.float32 else x for x in self.tile(mib)]
        worst = 0.0
        for got, (want, axis) in zip(results, self.expected(tiles, *given)):
            if axis is None:
                worst = max(worst, h.relative_error(got.reshape(want.shape), want))
                continue
            if got.shape[axis] != tiles * want.shape[axis]:
                return math.inf
            size = want.shape[axis]
            for start in (0, got.shape[axis] - size):
                part = got[start : start + size] if axis == 0 else got[:, start : start + size]
                worst = max(worst, h.relative_error(part, want))
        return worst


# -- the same work in float64, on one tile -----------------------------------------------------------------------------


def gelu(x: Array) -> tuple[Array, Array]:
    """The value of tanh-gelu and its slope."""
    c = math.sqrt(2 / math.pi)
    t = np.tanh(c * (x + 0.044715 * x**3))
    return 0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def softmax_backward(x: Array, d: Array) -> Array:
    y = softmax(x)
    return y * (d - (d * y).sum(1, keepdims=True))


def standardized(x: Array) -> tuple[Array, Array]:
    scale = 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    return (x - x.mean(1, keepdims=True)) * scale, scale


def layer_norm_backward(tiles: int, x: Array, w: Array, b: Array, d: Array) -> list[Expected]:
    z, scale = standardized(x)
    g = d * w
    dx = (g - g.mean(1, keepdims=True) - z * (g * z).mean(1, keepdims=True)) * scale
    return [(dx, 0), ((d * z).sum(0) * tiles, None), (d.sum(0) * tiles, None)]


def normed(x: Array) -> tuple[Array, Array]:
    scale = 1 / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5)
    return x * scale, scale


def rms_norm_backward(tiles: int, x: Array, w: Array, d: Array) -> list[Expected]:
    z, scale = normed(x)
    g = d * w
    return [((g - z * (g * z).mean(1, keepdims=True)) * scale, 0), ((d * z).sum(0) * tiles, None)]


def cross_entropy(x: Array, t: Array) -> Array:
    top = x.max(1)
    lse: Array = np.log(np.exp(x - top[:, None]).sum(1)) + top
    return np.asarray((lse - x[np.arange(len(t)), t]).mean())


def cross_entropy_gradient(tiles: int, x: Array, t: Array) -> list[Expected]:
    d = softmax(x)
    d[np.arange(len(t)), t] -= 1
    return [(cross_entropy(x, t), None), (d / len(t) / tiles, 0)]


def adamw(p: Array, g: Array) -> Array:
    """The parameter after two steps."""
    m = v = np.zeros_like(p)
    for step in (1, 2):
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        p = p * (1 - 1e-3 * 0.1) - 1e-3 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.99**step)) + 1e-8)
    return p


CASES = (
    Case("copy", "copy", 1024, 2, "x", lambda n, x: [(x * 1.5, 0)]),
    Case("gelu", "gelu", 1024, 2, "x", lambda n, x: [(gelu(x)[0], 0)]),
    Case("gelu backward", "gelu backward", 1024, 3, "xx", lambda n, x, d: [(gelu(x)[1] * d, 0)]),
    Case("AdamW", "AdamW", 1024, 7, "xx", lambda n, p, g: [(adamw(p, g), 0)]),
    Case("layer norm 1024", "layer norm", 1024, 2, "xww", lambda n, x, w, b: [(standardized(x)[0] * w + b, 0)]),
    Case("layer norm 1024 backward", "layer norm backward", 1024, 3, "xwwx", layer_norm_backward),
    *[
        Case(f"softmax {c}{word}", f"softmax{word}", c, passes, inputs, expected)
        for c in (1024, 4096, 128)
        for word, passes, inputs, expected in (
            ("", 2, "x", lambda n, x: [(softmax(x), 0)]),
            (" backward", 3, "xx", lambda n, x, d: [(softmax_backward(x, d), 0)]),
        )
    ],
    Case("rms norm 1024", "rms norm", 1024, 2, "xw", lambda n, x, w: [(normed(x)[0] * w, 0)]),
    Case("rms norm 1024 backward", "rms norm backward", 1024, 3, "xwx", rms_norm_backward),
    Case("cross-entropy 4096", "cross-entropy", 4096, 1, "xt", lambda n, x, t: [(cross_entropy(x, t), None)]),
    Case("cross-entropy 4096 and gradient", "cross-entropy and gradient", 4096, 2, "xt", cross_entropy_gradient),
    Case("sum", "sum", 1024, 1, "x", lambda n, x: [(np.asarray(x.sum() * n), None)]),
    Case("column sum 1024", "column sum", 1024, 1, "x", lambda n, x: [(x.sum(0) * n, None)]),
    Case("transpose 4096", "transpose", 4096, 2, "x", lambda n, x: [(x.T, 1)]),
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


def prepare(who: Any, case: Case, mib: float) -> tuple[h.Run, Callable[[], float]]:
    run, results = who.memory(case.op, case.whole(mib))
    return run, lambda: case.error(results(), mib)


def compare(names: list[str], cases: list[Case], args: argparse.Namespace) -> dict[str, Any]:
    extra = ["--device", args.device, "--rounds", str(args.rounds), "--sizes", args.sizes, "--mib", str(args.mib)]
    found = h.contest(
        "benchmarks.memory_bound", names, extra, cases, lambda case, s: case.traffic(args.mib) / s / 1e9, args.limit
    )
    result: dict[str, Any] = {
        "benchmark": "memory_bound",
        "unit": "GB/s",
        "machine": h.machine(),
        "device": args.device,
        "mib": args.mib,
        "contestants": found["contestants"],
        "cases": {},
    }
    yardstick = 0.0
    for case, answers in zip(cases, found["cases"]):
        if case.op == "copy":
            yardstick = max(answers.get(n, {}).get("rate", 0.0) for n in ("anneal", "wgsl"))
        mine = answers["anneal"].get("rate")
        result["cases"][case.name] = {
            "bytes": case.traffic(args.mib),
            "results": answers,
            "share_of_copy": mine / yardstick if mine and yardstick else None,
            "ratio": h.ratios(answers),
        }
    return result


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    names = list(result["contestants"])
    return [
        {
            "GB/s": case,
            **{n: h.cell(r["results"].get(n, {})) for n in names},
            "share of copy": r["share_of_copy"] or "-",
            "kernels": r["results"]["anneal"].get("kernels", "-"),
            **{f"/ {n}": r["ratio"].get(n, "-") for n in names if n != "anneal"},
        }
        for case, r in result["cases"].items()
    ]


def main() -> None:
    parser = h.kernel_parser("memory_bound", __doc__, PEERS)
    parser.add_argument("--mib", type=float, default=256, help="size of one array (default 256)")
    args = parser.parse_args()
    if args.tiny:
        args.mib = min(args.mib, 0.25)
    cases = [c for c in CASES if h.chosen(c.name, args.sizes) or c.op == "copy"]
    if args.child:
        h.serve_cases(
            lambda: contestant(args.child, args.device), lambda who, i: prepare(who, cases[i], args.mib), args.rounds
        )
        return
    result = compare(["anneal", *h.chosen_names(parser, args.peers, PEERS, "peer")], cases, args)
    h.report(result, rows(result), args.json)


if __name__ == "__main__":
    main()
