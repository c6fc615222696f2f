"""Products of float16 matrices by subgroup matrices, where the target has them and the result is float16 too.

The sums of such hardware are less exact than float32's (NUMERICS.md); rounded to float16 nobody can tell.
"""

from __future__ import annotations

from dataclasses import dataclass

from anneal.codegen.fragments import SUBGROUP
from anneal.codegen.heuristics.facts import Facts
from anneal.codegen.matrices import product_of
from anneal.codegen.opts import Opt
from anneal.codegen.ranges import extent
from anneal.codegen.target import MatrixShape, Target
from anneal.uop import dtypes, toposort

__all__ = ["matrices"]

_SHAPE = MatrixShape("float16", "float32", 16, 16, 16)
_UNITS = 132  # multiprocessors of the GPU that the figures here were measured on, an H200


@dataclass(frozen=True, slots=True)
class _Tile:
    """Subgroups of a workgroup along rows and columns, matrices of a subgroup, matrices deep, and the speed (of 1)."""

    subgroups: tuple[int, int]
    matrices: tuple[int, int]
    deep: int
    speed: float

    @property
    def block(self) -> tuple[int, int, int]:
        """Rows, columns and depth of a workgroup's part."""
        m, n = (16 * a * b for a, b in zip(self.subgroups, self.matrices, strict=True))
        return m, n, 16 * self.deep


_TILES = (
    _Tile((2, 2), (4, 4), 2, 1.0),
    _Tile((2, 2), (2, 2), 2, 0.55),
)


def matrices(facts: Facts, target: Target) -> tuple[Opt, ...] | None:
    """Opts for the one product of a kernel, if a tile divides its sizes."""
    if _SHAPE not in target.matrices or target.subgroup != SUBGROUP or len(facts.reduces) != 1:
        return None
    if any(s.src[0].dtype is not dtypes.float16 for s in facts.stores):
        return None
    order = toposort(facts.stores)
    loops = [a.range for a in facts.axes if a.is_loop]
    k = facts.reduces[0].src[1]
    for j in reversed(loops):
        rows = [i for i in loops if i is not j and product_of(facts.stores, order, i, j) is not None]
        if rows:
            i = max(rows, key=extent)
            sizes = extent(i), extent(j), extent(k)
            batch = facts.outputs // (sizes[0] * sizes[1])
            fit = [t for t in _TILES if not any(n % b for n, b in zip(sizes, t.block, strict=True))]
            best = min(fit, key=lambda t: _time(t, sizes, batch), default=None)
            return None if best is None else _opts(best, facts.number(i), facts.number(j), facts.number(k))
    return None


def _time(tile: _Tile, sizes: tuple[int, int, int], batch: int) -> float:
    """Roughly its time: the workgroups that the fullest multiprocessor gets, one after another."""
    m, n, _ = tile.block
    groups = batch * (sizes[0] // m) * (sizes[1] // n)
    return -(-groups // _UNITS) * m * n / tile.speed


def _opts(tile: _Tile, i: int, j: int, k: int) -> tuple[Opt, ...]:
    wanted = (
        Opt("LOCAL", i, tile.subgroups[0]),
        Opt("LOCAL", j, tile.subgroups[1]),
        Opt("UPCAST", i, tile.matrices[0]),
        Opt("UPCAST", j, tile.matrices[1]),
        Opt("UNROLL", k, tile.deep),
    )
    shape = (Opt("MATRIX", i, _SHAPE.m), Opt("MATRIX", j, _SHAPE.n), Opt("MATRIX", k, _SHAPE.k))
    return (*shape, *(o for o in wanted if o.amount > 1), Opt("TILE", k, 1))
