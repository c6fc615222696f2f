"""The fuzzer finds what it is there for: bugs planted in rules, gates, reductions, memory plans and shaders.

Each case patches one function of the compiler so that it is subtly wrong, then asks for a difference within BUDGET
programs. A last case asserts that without a planted bug the same programs show none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from anneal.schedule import clear_cache
from anneal.uop import Arena, Op, Recent, UOp, alu, const, dtypes
from tests.fuzz.programs import run

BUDGET, BATCH = 300, 10


def _int(value: int) -> UOp:
    return const(dtypes.int32, value)


@contextmanager
def wrong_rule() -> Iterator[None]:
    """x // c -> 0 where x may reach beyond c: a bound is wrong in the index algebra."""
    from anneal.rewrite import symbolic, symbolic_rules

    def match(u: UOp) -> Any:
        x, c = u.src
        if c.is_const and x.vmin is not None and x.vmin >= 0 and x.vmax is not None and x.vmax < 2 * c.arg:
            return _int(0), "x // c -> 0 if hi(x) < 2 * v(c)"
        return right(u)

    right = symbolic_rules.SYMBOLIC[Op.IDIV]
    symbolic._MEMO.clear()
    with mock.patch.dict(symbolic_rules.SYMBOLIC, {Op.IDIV: match}):
        yield
    symbolic._MEMO.clear()


@contextmanager
def wrong_fold() -> Iterator[None]:
    """(x + c1) < c2 -> x < c2 - c1 + 1: a creation rule is off by one."""
    from anneal.uop import node

    def fold(dtype: Any, src: tuple[UOp, ...]) -> UOp | None:
        x, c = src
        if c.is_const and x.op is Op.ADD and x.src[1].is_const and x.dtype is dtypes.int32:
            return alu(Op.LT, (x.src[0], _int(c.arg - x.src[1].arg + 1)))
        return right(dtype, src)

    right, *facts = node._ALU_FACTS[Op.LT]
    assert right is not None
    with mock.patch.dict(node._ALU_FACTS, {Op.LT: (fold, *facts)}), Arena():
        yield


@contextmanager
def wrong_remainder() -> Iterator[None]:
    """x % 2 -> x - x // 3 * 2: a constant is wrong in the index algebra."""
    from anneal.rewrite import symbolic, symbolic_rules

    def match(u: UOp) -> Any:
        x, c = u.src
        if c.is_const and c.arg == 2:
            return alu(Op.SUB, (x, alu(Op.MUL, (alu(Op.IDIV, (x, _int(3))), _int(2))))), "x % 2 -> x - x // 3 * 2"
        return right(u)

    right = symbolic_rules.SYMBOLIC[Op.MOD]
    symbolic._MEMO.clear()
    with mock.patch.dict(symbolic_rules.SYMBOLIC, {Op.MOD: match}):
        yield
    symbolic._MEMO.clear()


@contextmanager
def gate_off_by_one() -> Iterator[None]:
    """A pad whose upper fence stands one too far."""
    from anneal.schedule.passes import range_propagation

    right = range_propagation.source_index

    def wrong(node: UOp, index: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], UOp | None]:
        below, gate = right(node, index)
        if node.op is Op.PAD:
            gate = None
            for i, s, (before, after) in zip(index, node.src[0].shape, node.arg, strict=True):
                for on, fence in (
                    (before, alu(Op.LT, (_int(before - 1), i))),
                    (after, alu(Op.LT, (i, _int(before + s + 1)))),
                ):
                    if on:
                        gate = fence if gate is None else alu(Op.AND, (gate, fence))
        return below, gate

    with mock.patch.object(range_propagation, "source_index", wrong):
        yield


@contextmanager
def range_off_by_one() -> Iterator[None]:
    """A flip that starts one element late."""
    from anneal.schedule.passes import range_propagation

    right = range_propagation.source_index

    def wrong(node: UOp, index: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], UOp | None]:
        below, gate = right(node, index)
        if node.op is Op.SHRINK:
            below = tuple(
                i + 1 if b and i.vmax is not None and i.vmax < n - 1 else i
                for i, (b, _), n in zip(below, node.arg, node.src[0].shape)
            )
        return below, gate

    with mock.patch.object(range_propagation, "source_index", wrong):
        yield


@contextmanager
def swapped_reduce() -> Iterator[None]:
    """A maximum that comes out as a minimum where it is taken over two ranges."""
    from anneal.schedule.passes import range_propagation

    right = range_propagation._reduce

    def wrong(kind: Op, value: UOp, ranges: tuple[UOp, ...], *others: Any) -> UOp:
        return right(Op.MIN if kind is Op.MAX and len(ranges) > 1 else kind, value, ranges, *others)

    with mock.patch.object(range_propagation, "_reduce", wrong):
        yield


@contextmanager
def overlapping_memory() -> Iterator[None]:
    """A memory plan that frees a temporary at its first reader, not its last."""
    from anneal.schedule.passes import memory_plan as module

    right = module._same_size

    def wrong(values: Any, calls: Any) -> Any:
        memory, physical = right(values, calls)
        by_kind: dict[Any, int] = {}
        shared = [(v, by_kind.setdefault(physical[t], t)) for v, t in memory]
        return tuple(shared), physical

    with mock.patch.object(module, "_same_size", wrong):
        yield


@contextmanager
def shared_gather_bound() -> Iterator[None]:
    """A gather that takes its row from the neighbour."""
    from anneal.schedule.passes import range_propagation

    right = range_propagation._Lower.made

    def wrong(self: Any, context: Any) -> Any:
        making = right(self, context)
        return shifted(making) if context[0].op is Op.GATHER else making

    def shifted(making: Any) -> Any:
        where = yield next(making)
        value = yield making.send(where + 1)
        try:
            making.send(value)
        except StopIteration as end:
            return end.value

    with mock.patch.object(range_propagation._Lower, "made", wrong):
        yield


CPU: dict[str, Callable[[], AbstractContextManager[None]]] = {
    f.__name__: f
    for f in (
        wrong_rule,
        wrong_fold,
        wrong_remainder,
        gate_off_by_one,
        range_off_by_one,
        swapped_reduce,
        overlapping_memory,
        shared_gather_bound,
    )
}


@contextmanager
def shader(change: Callable[[str], str]) -> Iterator[None]:
    """Every WGSL text changed on its way to the driver."""
    from anneal.backend import get_device
    from anneal.backend.webgpu import device as module

    right = module.generate

    def wrong(*args: Any, **kwargs: Any) -> Any:
        kernel = right(*args, **kwargs)
        return replace(kernel, source=change(kernel.source))

    device = get_device("webgpu")
    with mock.patch.object(module, "generate", wrong), mock.patch.object(device, "_programs", Recent(1024)):
        yield


def dropped_barrier(source: str) -> str:
    """Threads that share a reduce no longer wait for each other."""
    return source.replace("workgroupBarrier();", "")


def late_thread(source: str) -> str:
    """The last thread inside the bounds takes itself to be outside."""
    return re.sub(r"(if \(!\(\w+ < )(\d+)(i\)\) \{ return; \})", lambda m: f"{m[1]}{int(m[2]) - 1}{m[3]}", source)


def first_difference(bug: AbstractContextManager[None], device: str, budget: int = BUDGET) -> int | None:
    """How many programs it took to see `bug`; None if `budget` did not do."""
    clear_cache()
    try:
        with bug:
            for start in range(0, budget, BATCH):
                if run(range(start, start + BATCH), [device], BATCH):
                    return start + BATCH
        return None
    finally:
        clear_cache()


@pytest.mark.parametrize("bug", CPU.values(), ids=CPU.keys())
def test_a_planted_bug_is_found_on_the_cpu(bug: Callable[[], AbstractContextManager[None]]) -> None:
    assert first_difference(bug(), "cpu") is not None


@pytest.mark.parametrize("change", [dropped_barrier, late_thread], ids=lambda f: f.__name__)
def test_a_planted_bug_is_found_on_webgpu(change: Callable[[str], str], webgpu: str) -> None:
    assert first_difference(shader(change), webgpu) is not None


@pytest.mark.parametrize("budget", [2 * BATCH, pytest.param(BUDGET, marks=pytest.mark.deep)])
def test_without_a_planted_bug_nothing_is_found(budget: int) -> None:
    assert first_difference(nullcontext(), "cpu", budget) is None
