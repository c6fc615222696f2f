"""Reduces over windows: which are folded tap by tap, what lies innermost while they are, and their values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from anneal.backend.cpu import analysis, primitives
from anneal.backend.cpu.analysis import Analysis, share_ranges
from anneal.backend.cpu.layout import CpuProgram
from anneal.backend.cpu.planner import make_plan
from anneal.backend.cpu.primitives import BlockLoop, CpuPlan, Pad
from anneal.uop import DType, Op, UOp, const
from tests.backend.cpu.kernels import F16, F32, I32, check, filled, kernel, load, loop, over, param, reduce, store


@dataclass(frozen=True)
class Case:
    """Windows of `size` over planes of `size * stride` and more, each channel by itself.

    `last` says that channels lie innermost in memory, `turned` that they do so in the result; without `weighted` it is
    a pool.
    """

    channels: int = 6
    height: int = 7
    width: int = 9
    taps: int = 3
    stride: int = 1
    dilation: int = 1
    pad: int = 1
    last: bool = False
    turned: bool = False
    weighted: bool = True
    op: Op = Op.ADD
    dtype: DType = F32

    @property
    def out(self) -> tuple[int, int]:
        reach = self.dilation * (self.taps - 1) + 1
        h, w = [(n + 2 * self.pad - reach) // self.stride + 1 for n in (self.height, self.width)]
        return h, w

    @property
    def sizes(self) -> list[int]:
        h, w = self.out
        return [self.channels * h * w, self.channels * self.height * self.width, self.channels * self.taps**2]

    @property
    def sink(self) -> UOp:
        h, w = self.out
        c, y, x = loop(0, self.channels), loop(1, h), loop(2, w)
        i, j = over(3, self.taps), over(4, self.taps)
        sizes = self.sizes
        row = y * self.stride + i * self.dilation - self.pad
        column = x * self.stride + j * self.dilation - self.pad
        place = self._place(c, row, column, self.height, self.width, self.last)
        inside = None
        if self.pad:
            inside = _within(row, self.height) & _within(column, self.width)
        value = load(param(1, sizes[1], self.dtype), place, inside)
        if self.weighted:
            value = value * load(param(2, sizes[2], self.dtype), (c * self.taps + i) * self.taps + j)
        total = reduce(self.op, value, i, j)
        at = self._place(c, y, x, h, w, self.turned)
        return kernel(store(param(0, sizes[0], self.dtype), at, total * 2 if self.dtype.is_int else total * 2.0))

    def _place(self, c: UOp, y: UOp, x: UOp, height: int, width: int, last: bool) -> UOp:
        return (y * width + x) * self.channels + c if last else (c * height + y) * width + x

    def buffers(self) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        return [filled(rng, n, self.dtype) for n in self.sizes[: 3 if self.weighted else 2]]


def _within(index: UOp, size: int) -> UOp:
    return Op.NOT(Op.LT(index, const(I32, 0))) & (index < size)


def planned(case: Case) -> CpuPlan:
    return make_plan(case.sink)


def folded(plan: CpuPlan) -> list[str]:
    return [i.name for p in plan.phases if isinstance(p, BlockLoop) for i in p.instrs if i.name.startswith("taps")]


def inner(plan: CpuPlan) -> int:
    """The extent of the dim that lies innermost."""
    return plan.dims.extent[plan.order[-1]]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of few outputs count too."""
    monkeypatch.setattr("anneal.backend.cpu.analysis.LEAST", 1)


# -- which ------------------------------------------------------------------------------------------------------------


def test_a_convolution_of_each_channel_is_folded_tap_by_tap() -> None:
    plan = planned(Case(channels=64))
    assert folded(plan) == ["taps_add"]
    assert all(i.name != "reduce_add" for p in plan.phases if isinstance(p, BlockLoop) for i in p.instrs)


@pytest.mark.parametrize("op", [Op.MAX, Op.MIN, Op.ADD, Op.MUL])
def test_a_pool_is_folded_tap_by_tap(op: Op) -> None:
    assert folded(planned(Case(channels=64, weighted=False, op=op, pad=0))) == [f"taps_{op.name.lower()}"]


def test_few_outputs_are_not_worth_a_call_for_each_tap() -> None:
    assert not folded(planned(Case(channels=16)))


def test_windows_of_many_taps_are_reduced_like_anything_else() -> None:
    assert folded(planned(Case(channels=8, height=16, width=16, taps=11, pad=5)))
    assert not folded(planned(Case(channels=8, height=16, width=16, taps=12, pad=5)))


def test_a_product_of_matrices_stays_one() -> None:
    """A convolution that mixes channels has rows and columns for BLAS."""
    outs, ins, n = 32, 3, 16
    o, y, x, c, i, j = loop(0, outs), loop(1, n), loop(2, n), over(3, ins), over(4, 3), over(5, 3)
    image = load(param(1, ins * 18 * 18), (c * 18 + y + i) * 18 + x + j)
    weight = load(param(2, outs * ins * 9), ((o * ins + c) * 3 + i) * 3 + j)
    total = reduce(Op.ADD, image * weight, c, i, j)
    found = Analysis(share_ranges(kernel(store(param(0, outs * n * n), (o * n + y) * n + x, total))))
    assert not found.windows
    assert len(found.dots) == 1


def test_rows_that_do_not_overlap_are_no_windows() -> None:
    i, k = loop(0, 4096), over(1, 64)
    body = load(param(1, 4096 * 64), i * 64 + k) * load(param(2, 4096 * 64), i * 64 + k)
    assert not Analysis(kernel(store(param(0, 4096), i, reduce(Op.ADD, body, k)))).windows


def test_taps_are_no_dims_of_a_block() -> None:
    """No array of a loop has them, so blocks are as large as without them."""
    case = Case(channels=64, pad=0)
    plan = planned(case)
    (found,) = [p for p in plan.phases if isinstance(p, BlockLoop)]
    assert math.prod(plan.dims.extent[s] for s in plan.order if found.mask >> s & 1) == case.sizes[0]
    (made,) = CpuProgram(Case(channels=64, height=40, width=40).sink, "test", 2)._loops()
    assert made.workers == 2
    assert sum(math.prod(hi - lo for lo, hi in b.values()) for b in made.blocks) in (40, 64)


# -- layout -----------------------------------------------------------------------------------------------------------


def test_small_planes_are_folded_with_the_channels_innermost() -> None:
    plan = planned(Case(channels=96, height=7, width=7))
    assert inner(plan) == 96
    assert sum(isinstance(p, Pad) for p in plan.phases) == 2  # the planes turned round, and the weights


def test_large_planes_are_folded_as_they_lie() -> None:
    plan = planned(Case(channels=8, height=40, width=64))
    assert inner(plan) == 64
    assert sum(isinstance(p, Pad) for p in plan.phases) == 1


def test_what_lies_right_is_not_copied() -> None:
    plan = planned(Case(channels=64, height=20, width=20, last=True, turned=True, pad=0, weighted=False))
    assert inner(plan) == 64
    assert not any(isinstance(p, Pad) for p in plan.phases)


def test_what_is_read_in_steps_is_folded_with_the_channels_innermost() -> None:
    assert inner(planned(Case(channels=60, height=40, width=64))) == 64
    assert inner(planned(Case(channels=60, height=40, width=64, stride=2))) == 60


# -- values -----------------------------------------------------------------------------------------------------------

SHAPES = [
    Case(),
    Case(last=True),
    Case(turned=True),
    Case(last=True, turned=True),
    Case(pad=0),
    Case(pad=0, channels=30, height=6, width=5),
    Case(stride=2),
    Case(stride=2, last=True, pad=0),
    Case(stride=3, taps=2, pad=0),
    Case(dilation=2, pad=2),
    Case(dilation=3, stride=2, pad=0),
    Case(channels=20, height=6, width=6, taps=5, pad=2),
    Case(channels=20, height=6, width=6, taps=5, pad=2, turned=True),
    Case(weighted=False, pad=0, op=Op.MAX),
    Case(weighted=False, pad=0, op=Op.MIN, stride=2, last=True),
    Case(weighted=False, pad=1, op=Op.ADD, channels=30, height=5, width=5),
    Case(weighted=False, pad=0, op=Op.MAX, stride=2, taps=2, height=12),
    Case(dtype=I32),
    Case(dtype=I32, weighted=False, op=Op.MAX, pad=0),
    Case(channels=1),
    Case(height=3, width=3, pad=0, channels=200),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_values(case: Case, small: None) -> None:
    check(case.sink, *case.buffers())


def test_a_sum_that_others_repeat_is_made_once(small: None) -> None:
    """What is made of it has a dim more."""
    c, h, i, z = loop(0, 8), loop(1, 20), over(2, 3), loop(3, 5)
    total = reduce(Op.ADD, load(param(1, 8 * 22), c * 22 + h + i) * load(param(2, 24), c * 3 + i), i)
    sink = kernel(store(param(0, 800), (z * 8 + c) * 20 + h, total * load(param(3, 5), z)))
    assert folded(make_plan(sink)) == ["taps_add"]
    rng = np.random.default_rng(0)
    check(sink, *[filled(rng, n) for n in (800, 176, 24, 5)])


def test_narrow_floats_are_no_windows(small: None) -> None:
    """They are summed in float32: what is multiplied is no view."""
    case = Case(dtype=F16, weighted=False, op=Op.MAX, pad=0)
    check(case.sink, *case.buffers())


@pytest.mark.parametrize("seed", range(30))
def test_random_windows(seed: int, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    pick = lambda *options: options[int(rng.integers(len(options)))]
    taps, dilation = pick(2, 3), pick(1, 1, 2)
    case = Case(
        channels=pick(1, 3, 4),
        height=pick(5, 6, 8),
        width=pick(5, 7, 9),
        taps=taps,
        stride=pick(1, 1, 2, 3),
        dilation=dilation,
        pad=pick(0, 1, 2),
        last=pick(False, True),
        turned=pick(False, True),
        weighted=pick(False, True, True),
        dtype=pick(F32, F32, I32),
    )
    if seed % 2:  # as if other things were dear
        monkeypatch.setattr(analysis, "_ROW_NS", 1000.0)
    check(case.sink, *case.buffers())


# -- short axes that are no windows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2048, 3), (3, 1024, 5), (1100, 2, 2)], ids=str)
def test_reduces_along_short_rows_go_place_by_place(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    axes = tuple(range(1, len(shape))) if len(shape) != 3 or shape[1] == 2 else (2,)
    out = np.empty([1 if i in axes else n for i, n in enumerate(shape)], np.float32)
    steps = primitives.reduce_calls(Op.MAX, axes, [x], out)
    assert len(steps) == math.prod(shape[i] for i in axes)
    for f, args in steps:
        f(*args)
    np.testing.assert_array_equal(out, x.max(axes, keepdims=True))
