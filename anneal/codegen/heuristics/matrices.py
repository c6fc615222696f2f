"""Products of float16 matrices by subgroup matrices, where the target has them and the results are float16 too.

The sums of such hardware are less exact than float32's (NUMERICS.md); rounded to float16 nobody can tell. So float32
results are left to other kernels, but for those of a long sum in pieces (`anneal/schedule/passes/split_reduces.py`).

Workgroups run side by side on a multiprocessor as far as their workgroup memory goes, which the H200's driver gives
about 50 KiB of: two of the largest tile, whose loads one alone would wait for.
"""

from __future__ import annotations

from dataclasses import dataclass

from anneal.codegen.affine import form
from anneal.codegen.fragments import SUBGROUP
from anneal.codegen.heuristics.facts import Facts
from anneal.codegen.matrices import product_of, room
from anneal.codegen.opts import Opt
from anneal.codegen.ranges import extent
from anneal.codegen.target import MatrixShape, Target
from anneal.uop import Op, UOp, dtypes, toposort

_SHAPE = MatrixShape("float16", "float32", 16, 16, 16)
_UNITS = 132  # multiprocessors of the GPU that the figures here were measured on, an H200
_FEW = 12  # workgroups below which kernels of float32 arithmetic, of which more run at once, are as fast


@dataclass(frozen=True, slots=True)
class _Split:
    """Subgroups of a workgroup along rows and columns, matrices of a subgroup, and matrices deep.

    `speeds`: those of 1, 2, ... workgroups on each multiprocessor, as many as there is room for, in TFLOP/s of all.
    """

    subgroups: tuple[int, int]
    matrices: tuple[int, int]
    deep: int
    speeds: tuple[int, ...]

    @property
    def block(self) -> tuple[int, int, int]:
        """Rows, columns and depth of a workgroup's part."""
        m, n = (16 * a * b for a, b in zip(self.subgroups, self.matrices, strict=True))
        return m, n, 16 * self.deep

    @property
    def threads(self) -> int:
        return SUBGROUP * self.subgroups[0] * self.subgroups[1]

    @property
    def room(self) -> int:
        """Bytes of workgroup memory, at most."""
        m, n, _ = self.block
        return room(m, n, 16 * self.deep, self.subgroups[0] * self.subgroups[1] * _SHAPE.m, _SHAPE.n)

    def groups(self, sizes: tuple[int, int, int], batch: int) -> int:
        """Workgroups."""
        m, n, _ = self.block
        return batch * (sizes[0] // m) * (sizes[1] // n)

    def time(self, sizes: tuple[int, int, int], batch: int) -> float:
        """Roughly, for one step of the reduce: rounds of as many workgroups as there is room for, and the last."""
        whole, rest = divmod(-(-self.groups(sizes, batch) // _UNITS), len(self.speeds))
        rounds = whole * len(self.speeds) / self.speeds[-1] + (rest / self.speeds[rest - 1] if rest else 0)
        return rounds * self.block[0] * self.block[1]


_TILES = (
    _Split((2, 2), (4, 4), 2, (181, 280)),
    _Split((2, 2), (4, 3), 2, (160, 245)),
    _Split((2, 2), (3, 4), 2, (160, 245)),
    _Split((2, 4), (2, 2), 2, (154, 202)),
    _Split((2, 2), (4, 2), 2, (141, 197)),
    _Split((2, 2), (2, 4), 4, (180,)),
    _Split((2, 2), (2, 3), 2, (114, 160, 195)),
    _Split((2, 4), (2, 1), 4, (123,)),
    _Split((2, 2), (2, 2), 4, (101, 168)),
    _Split((2, 2), (2, 2), 2, (84, 150, 170)),
)


def matrices(facts: Facts, target: Target) -> tuple[Opt, ...] | None:
    """Opts for the one product of a kernel, if a tile divides its sizes."""
    if _SHAPE not in target.matrices or target.subgroup != SUBGROUP or len(facts.reduces) != 1:
        return None
    order = toposort(facts.stores)
    loops = [a.range for a in facts.axes if a.is_loop]
    k = facts.reduces[0].src[1]
    if any(s.src[0].dtype is not dtypes.float16 for s in facts.stores) and not _is_piece(facts, loops, k):
        return None
    # The loop that varies fastest in memory becomes the columns; of the others the longest the rows.
    for j in reversed(loops):
        rows = [i for i in loops if i is not j and product_of(facts.stores, order, i, j) is not None]
        if rows:
            return _opts(facts, target, max(rows, key=extent), j, k)
    return None


def _is_piece(facts: Facts, loops: list[UOp], k: UOp) -> bool:
    """Is each sum a piece of a longer one? Then a loop goes on in every factor at the end of the reduce."""
    if any(s.src[2] is not facts.reduces[0] for s in facts.stores) or k.src[0].op is not Op.CONST:
        return False
    forms = [form(u.src[1])[0] for u in facts.loads]
    return any(all(f.get(z, 0) == extent(k) * f.get(k, 0) != 0 for f in forms) for z in loops)


def _opts(facts: Facts, target: Target, i: UOp, j: UOp, k: UOp) -> tuple[Opt, ...] | None:
    sizes = extent(i), extent(j), extent(k)
    batch = facts.outputs // (sizes[0] * sizes[1])
    fit = [
        t
        for t in _TILES
        if not any(n % b for n, b in zip(sizes, t.block, strict=True))
        and t.groups(sizes, batch) >= _FEW
        and t.threads <= target.max_threads
        and t.room <= target.workgroup_bytes
    ]
    if not fit:
        return None
    tile = min(fit, key=lambda t: t.time(sizes, batch))
    at, across, deep = facts.number(i), facts.number(j), facts.number(k)
    return (
        Opt("MATRIX", at, _SHAPE.m),
        Opt("MATRIX", across, _SHAPE.n),
        Opt("MATRIX", deep, _SHAPE.k),
        Opt("LOCAL", at, tile.subgroups[0]),
        Opt("LOCAL", across, tile.subgroups[1]),
        Opt("UPCAST", at, tile.matrices[0]),
        Opt("UPCAST", across, tile.matrices[1]),
        Opt("UNROLL", deep, tile.deep),
        Opt("TILE", deep, 1),
        Opt("PREFETCH", deep, 1),
    )
