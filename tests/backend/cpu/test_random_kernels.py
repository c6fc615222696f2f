"""Random kernels: nested reduces, shared extents, broken-up and reversed indices, predicates, gathers, several
stores."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from anneal.backend.cpu import planner
from anneal.uop import Op, UOp, const
from tests.backend.cpu.kernels import BOOL, F16, F32, I32, check, filled, kernel, load, loop, over, param, reduce, store
from tests.tiers import thinned

EXTENTS = (1, 2, 3, 3, 4, 6)


class Maker:
    """One random kernel: `self.sink` and its `self.buffers`."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = [F32, F32, F32, I32][self.rng.integers(4)]
        self.buffers: list[np.ndarray] = []
        self.loops = [loop(i, self.pick(EXTENTS)) for i in range(self.rng.integers(0, 4))]
        self.next_range = len(self.loops)
        self.pool: list[tuple[UOp, int]] = []
        size = 1
        for r in self.loops:
            size *= r.src[0].arg
        index = self.row_major(self.loops)
        outputs = [self.new(size, self.dtype) for _ in range(self.rng.integers(1, 3))]
        stores = []
        for p in outputs:
            value = self.value(self.loops, 3)
            if self.rng.random() < 0.2:
                value = value + load(p, index)
            stores.append(store(p, index, value))
        self.sink = kernel(*stores)

    def pick(self, options):  # type: ignore[no-untyped-def]
        return options[int(self.rng.integers(len(options)))]

    def new(self, size: int, dtype) -> UOp:  # type: ignore[no-untyped-def]
        self.buffers.append(filled(self.rng, size, dtype))
        return param(len(self.buffers) - 1, size, dtype)

    def row_major(self, ranges: list[UOp]) -> UOp:
        index = const(I32, 0)
        for r in ranges:
            index = index * r.src[0].arg + r
        return index

    def load(self, ranges: list[UOp], dtype) -> UOp:  # type: ignore[no-untyped-def]
        """A load over some of the ranges, in some order, reversed, shifted, cut up or predicated."""
        some = [r for r in ranges if self.rng.random() < 0.8]
        self.rng.shuffle(some)
        index = const(I32, 0)
        size = 1
        predicate: UOp | None = None
        for r in some:
            n = r.src[0].arg
            term: UOp = r
            way = self.rng.random()
            if way < 0.15:
                term = const(I32, n - 1) - r
            elif way < 0.25:
                n += 2
                term = r + 1
            elif way < 0.4 and n > 1:
                # a pad: part of the range has no element
                shift = int(self.rng.integers(1, n))
                term = r - shift
                n = n - shift
                ok = term >= 0
                if self.rng.random() < 0.3 and n > 1:
                    n -= 1
                    ok = ok & (term < n)
                predicate = ok if predicate is None else predicate & ok
            elif way < 0.45:
                term = r * 2
                n = 2 * n
            index = index * n + term
            size *= n
        way = self.rng.random()
        if way < 0.15 and len(some) > 1 and predicate is None:
            # walk the same elements in another shape
            c = self.pick((2, 3, 4))
            inner = size // c if size % c == 0 else None
            if inner:
                index = index % c * inner + index // c
        elif way < 0.2 and predicate is None:
            index = index * 3 % (size + 1)
            size += 1
        if self.rng.random() < 0.12:
            # gather: rows named by data, some out of range and predicated
            names = self.new(size, I32)
            rows = int(self.rng.integers(1, 5))
            self.buffers[-1] = self.rng.integers(-1, rows + 1, size).astype(np.int32)
            row = load(names, index, predicate)
            inside = (row >= 0) & (row < rows)
            width = 1
            if ranges and self.rng.random() < 0.6:
                r = ranges[-1]
                width = r.src[0].arg
                row = row * width + r
            return load(self.new(rows * width, dtype), row, inside)
        return load(self.new(max(1, size), dtype), index, predicate)

    def value(self, ranges: list[UOp], depth: int) -> UOp:
        way = self.rng.random()
        if depth == 0 or way < 0.15:
            if way < 0.02 and ranges:
                r = self.pick(ranges)
                return r.cast(self.dtype)
            if way < 0.04:
                return const(self.dtype, int(self.rng.integers(-3, 4)))
            return self.load(ranges, self.dtype)
        if way < 0.4:
            new = []
            for _ in range(self.rng.integers(1, 3)):
                new.append(over(self.next_range, self.pick(EXTENTS)))
                self.next_range += 1
            inner = [*ranges, *new]
            if self.rng.random() < 0.5:
                body = self.value(inner, depth - 1) * self.value(inner, depth - 1)
                return reduce(Op.ADD, body, *new)
            return reduce(self.pick((Op.ADD, Op.MAX, Op.MIN, Op.MUL)), self.value(inner, depth - 1), *new)
        a, b = self.value(ranges, depth - 1), self.value(ranges, depth - 1)
        if way < 0.5:
            return (a < b).where(a, const(self.dtype, 0))
        if way < 0.55:
            return a.ne(b).where(a, b)
        if way < 0.6 and ranges:
            r = self.pick(ranges)
            return (r < int(self.rng.integers(0, 4))).where(const(self.dtype, -2), b)
        if self.dtype is F32 and way < 0.7:
            return Op.TANH(a) + b
        if self.dtype is F32 and way < 0.73:
            return a.cast(F16).cast(F32)
        if self.dtype is I32 and way < 0.7:
            return (self.pick((Op.IDIV, Op.MOD)))(a, b)
        if way < 0.75:
            return (a < b).cast(self.dtype)
        return (self.pick((Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN)))(a, b)


LIMITS = {"blocks": (32_768, 65_536), "small blocks": (4, 6), "no blocks": (1, 1)}
ROWS = thinned([pytest.param(*row) for row in itertools.product(LIMITS, range(8))], test=3, ci=3)


@pytest.mark.parametrize(("limits", "seed"), ROWS)
def test_random_kernels_mean_what_the_oracle_says(limits: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    block, inline = LIMITS[limits]
    monkeypatch.setattr("anneal.backend.cpu.layout.BLOCK", block)
    monkeypatch.setattr(planner, "INLINE", inline)
    for n in range(25):
        made = Maker(seed * 1000 + n)
        check(made.sink, *made.buffers, rtol=1e-3, atol=1e-3)
        # the next parameters must plan anew
        from anneal.backend import get_device

        get_device("cpu").__dict__["_programs"].clear()


def test_bool_is_known() -> None:
    assert BOOL.kind == "bool"
