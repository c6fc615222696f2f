"""Bugs planted in every part of the compiler and below it, each with a program whose line `# here` meets it.

A bug is a context in which one thing is wrong: a line of a rule file, a function of a pass, an opt, the text of a
shader, an op of the NumPy device, the driver. What comes before `# here` and after it is right.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from anneal import settings
from anneal.backend import get_device
from anneal.rewrite import forget
from anneal.schedule import clear_cache
from anneal.tensor import Tensor
from anneal.uop import Arena, Op, Recent, UOp, Weighed, alu, const, dtypes
from tests.fuzz.test_mutations import (
    dropped_barrier,
    gate_off_by_one,
    overlapping_memory,
    range_off_by_one,
    shader,
    shared_gather_bound,
    swapped_reduce,
)

__all__ = ["BUGS", "Bug", "inputs"]

Program = Callable[[Tensor, Tensor], Any]


@dataclass(frozen=True)
class Bug:
    """`against` is what the wrong value is held against, `says` a part of what is said about it."""

    name: str
    plant: Callable[[], AbstractContextManager[None]]
    program: Program
    device: str
    against: str
    says: str = ""


def inputs(device: str) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(3)
    shapes = (24, 36), (36, 48)
    return tuple([Tensor(rng.normal(size=s).astype(np.float32), device=device) for s in shapes])  # type: ignore[return-value]


# -- rules: a wrong line in a rule file ------------------------------------------------------------------------------


@contextmanager
def wrong_line(file: str, old: str, new: str, programs: bool = False) -> Iterator[None]:
    """The rule file called `file` has the line `new` in the place of `old`; with `programs` kernels are made anew."""
    from anneal.rewrite import generate as generator, passes, upat
    from anneal.uop import fold_by

    [(source, target)] = [(s, t) for s, t in generator.targets() if s.name == file]
    text = source.read_text(encoding="utf-8")
    assert text.count(f"\n{old}\n") == 1, f"{old!r} is no line of {file}"
    wrong = text.replace(f"\n{old}\n", f"\n{new}\n")
    right = (generator.generate, upat.parse)
    generate, parse = [partial(_changed, f, text, wrong) for f in right]
    module = importlib.import_module(".".join(target.relative_to(generator.PACKAGE.parent).with_suffix("").parts))
    naming: dict[str, Any] = {"__name__": f"{module.__name__}.wrong"}
    exec(right[0](wrong, file), naming)
    with ExitStack() as stack:
        if programs:
            stack.enter_context(fresh_programs())
        stack.enter_context(mock.patch.object(generator, "generate", generate))
        stack.enter_context(mock.patch.object(upat, "parse", parse))
        stack.enter_context(mock.patch.object(passes, "_telling", passes._telling.__wrapped__))  # not what is kept
        for table in right[1](wrong, file).tables:
            functions = getattr(module, table.name.upper())
            stack.enter_context(mock.patch.dict(functions, naming[table.name.upper()]))
            if table.kind == "fold":
                stack.callback(fold_by, dict(functions))
                fold_by(naming[table.name.upper()])
        yield


def _changed(f: Any, text: str, wrong: str, given: str, *args: Any, **kwargs: Any) -> Any:
    return f(wrong if given == text else given, *args, **kwargs)


# -- passes ----------------------------------------------------------------------------------------------------------


@contextmanager
def concatenation_off_by_one() -> Iterator[None]:
    """A piece of a concatenation is put one row too early."""
    from anneal.schedule.passes import range_propagation

    right = range_propagation.placed

    def wrong(root: UOp, pad: UOp, index: Any) -> Any:
        out = right(root, pad, index)
        if pad.arg[0][0]:
            out = (out[0] - 1, *out[1:])
        return out

    with mock.patch.object(range_propagation, "placed", wrong):
        yield


@contextmanager
def padding_forgotten() -> Iterator[None]:
    """Zeros are put before an axis where they belong behind it."""
    from anneal.schedule.passes import range_propagation

    right = range_propagation.source_index

    def wrong(node: UOp, index: Any) -> Any:
        if node.op is Op.PAD and any(a for _, a in node.arg):
            node = UOp(Op.PAD, node.dtype, node.src, tuple([(b + 1, a - 1) if a else (b, a) for b, a in node.arg]))
        return right(node, index)

    with mock.patch.object(range_propagation, "source_index", wrong):
        yield


@contextmanager
def mask_upside_down() -> Iterator[None]:
    """Readers of a masked value take its mask for the opposite."""
    from anneal.schedule import masks

    right = masks.Mask.on

    def wrong(self: Any, u: UOp, dead: bool = False) -> UOp:
        return right(self, u, True) if dead else right(self._replace(when=not self.when), u)

    with mock.patch.object(masks.Mask, "on", wrong):
        yield


@contextmanager
def partial_sums_overlap() -> Iterator[None]:
    """A long sum in two stages takes its first partial result twice."""
    from anneal.schedule.passes import split_reduces

    right = split_reduces._in_two_stages

    def wrong(u: UOp, pieces: int) -> UOp:
        return alu(Op.MUL, (right(u, pieces), const(u.dtype, 1.25)))

    with mock.patch.object(split_reduces, "_in_two_stages", wrong):
        yield


# -- code generation and the NumPy device ----------------------------------------------------------------------------


@contextmanager
def fresh_programs() -> Iterator[None]:
    from anneal.codegen import kernels

    device: Any = get_device("webgpu")
    with (
        mock.patch.object(device, "_programs", Recent(1024)),
        mock.patch.object(kernels, "_known_body", kernels._body),
    ):
        yield


@contextmanager
def unrolled_term_lost() -> Iterator[None]:
    """The opt UNROLL writes the iteration before the last one twice, and the last one not at all."""
    from anneal.codegen import apply

    right = apply._digits

    def wrong(head: UOp, pieces: Sequence[UOp]) -> UOp:
        found = right(head, pieces)
        if pieces and pieces[-1].arg[1] in ("unroll", "written"):
            last = apply.extent(pieces[-1]) - 1
            return found - (pieces[-1]) // last
        return found

    with mock.patch.object(apply, "_digits", wrong), fresh_programs():
        yield


@contextmanager
def wrong_wgsl(change: Callable[[str], str]) -> Iterator[None]:
    with shader(change), fresh_programs():
        yield


def cleared(name: str, element: str, length: int | str) -> str:
    """A loop in which each thread clears workgroup memory. Where threads do not wait for each other afterwards, those
    that come first read zeros, in every run; else they might find what an earlier run left there, which is right."""
    return f"for (var z = 0; z < {length}; z += 1) {{ {name}[z] = {element}(); }}"


def dropped_barriers(source: str) -> str:
    """Threads that share a reduce no longer wait for each other."""
    shared = re.findall(r"^var<workgroup> (\w+): array<(\w+), (\d+)>;", source, re.M)
    begin = "\n".join(["fn main(\\1) {", *[f"  {cleared(*x)}" for x in shared]])
    return dropped_barrier(re.sub(r"^fn main\((.*)\) {$", begin, source, flags=re.M))


@contextmanager
def barriers_not_written() -> Iterator[None]:
    """Code generation writes no barrier."""
    from anneal.codegen.dialects.wgsl.writer import WgslWriter

    right = WgslWriter.line

    def wrong(self: Any, depth: int, text: str) -> None:
        if "Barrier" in text:
            return
        right(self, depth, text)
        if text.startswith("let lane"):  # threads are about to share what they have
            for x in self.shared:
                right(self, depth, cleared(x.name, x.element, x.length))

    with mock.patch.object(WgslWriter, "line", wrong), fresh_programs():
        yield


def early_thread(source: str) -> str:
    """Every other thread stores in the place of the one before it."""
    return re.sub(r"^  p0\[n0\] = ", "  p0[n0 / 2i * 2i] = ", source, flags=re.M)


@contextmanager
def wrong_numpy() -> Iterator[None]:
    """tanh on the NumPy device is another function."""
    from anneal.backend.cpu import ops

    device: Any = get_device("cpu")
    table = next(t for t in vars(ops).values() if isinstance(t, dict) and Op.TANH in t)
    with (
        settings.override(cpu="numpy"),
        mock.patch.dict(table, {Op.TANH: np.arctan}),
        mock.patch.object(device, "_programs", Weighed(1024, 1024)),
    ):
        yield


# -- drivers ---------------------------------------------------------------------------------------------------------


@contextmanager
def faulty(device_name: str, name: str, fault: Callable[[Any, int], Any], several: bool = False) -> Iterator[None]:
    """The device changes an element of what a kernel stores whose text has `name`, after it ran; with `several` only in
    batches of several kernels."""
    device: Any = get_device(device_name)
    right, runs = device.prepare, [0]

    def prepare(calls: Sequence[Any], values: Any = None) -> Any:
        batch = right(calls, values)
        run = batch.run

        def wrong() -> None:
            run()
            runs[0] += 1
            for program, buffers in calls:
                if re.search(name, str(program.source)) and (len(calls) > 1 or not several):
                    _poke(device, buffers[0], fault, runs[0])

        batch.run = wrong
        return batch

    with mock.patch.object(device, "prepare", prepare):
        yield


def _poke(device: Any, buffer: Any, fault: Callable[[Any, int], Any], run: int) -> None:
    size = buffer.size if isinstance(buffer, np.ndarray) else buffer.nbytes // 4
    [content] = device.download_all([(buffer, size, dtypes.float32)])
    content = content.copy()
    content[5] = fault(content[5], run)
    device.upload(buffer, content)


# -- programs --------------------------------------------------------------------------------------------------------


def negative_sum(x: Tensor, w: Tensor) -> Any:
    y = (x * 2.0).contiguous()
    s = (-y).sum(1).contiguous()  # here
    return s.exp()


def turned(x: Tensor, w: Tensor) -> Any:
    y = (x[:, :24] * 2.0).contiguous()
    s = y.transpose(0, 1).contiguous()  # here
    return s.exp()


def negated(x: Tensor, w: Tensor) -> Any:
    y = (x * 2.0).contiguous()
    s = (-y).sum(0)  # here
    return s.exp()


def reshaped(x: Tensor, w: Tensor) -> Any:
    y = (x * 2.0).contiguous()
    s = y.transpose(0, 1).reshape(864)[:40].contiguous()  # here
    return s.exp()


def cut_twice(x: Tensor, w: Tensor) -> Any:
    y = (x * 2.0).contiguous()
    s = y[1:][2:].contiguous()  # here
    return s.exp()


def padded(x: Tensor, w: Tensor) -> Any:
    y = (x * 2.0).contiguous()
    s = y.pad(((1, 2), (0, 3))).contiguous()  # here
    return s.exp()


def cut(x: Tensor, w: Tensor) -> Any:
    y = (x * 2.0).contiguous()
    s = y[2:20, 3:30].contiguous()  # here
    return s.exp()


def largest(x: Tensor, w: Tensor) -> Any:
    y = (x * 2.0).reshape(24, 6, 6).contiguous()
    s = y.amax((1, 2)).contiguous()  # here
    return s.exp()


def looked_up(x: Tensor, w: Tensor) -> Any:
    y = (x * 2.0).contiguous()
    at = Tensor(np.arange(12, dtype=np.int32) % 7, device=x.device)
    s = y[at].contiguous()  # here
    return s.exp()


def joined(x: Tensor, w: Tensor) -> Any:
    y = (x * 2.0).contiguous()
    s = Tensor.cat([y @ w, (y + 1.0) @ w], dim=0).contiguous()  # here
    return s.exp()


def chained(x: Tensor, w: Tensor) -> Any:
    a = (x * 2.0).contiguous()
    b = (x * 3.0).contiguous()
    c = (a.exp() + 1.0).contiguous()  # here
    return ((b.sum(0) + c.sum(0)).contiguous() + a.flip(0)).contiguous()


def masked(x: Tensor, w: Tensor) -> Any:
    kept = (x.tril(2) * 2.0).contiguous()
    s = (kept @ w).contiguous()  # here
    return s * 0.5, kept.exp().sum(0)


def long_sum(x: Tensor, w: Tensor) -> Any:
    y = (x.reshape(864, 1) * Tensor.ones(1, 512, device=x.device)).contiguous()
    return (y * y).sum().contiguous()  # here


def multiplied(x: Tensor, w: Tensor) -> Any:
    y = (x * 2.0).contiguous()
    s = (y @ w).contiguous()  # here
    return s.exp()


def row_sums(x: Tensor, w: Tensor) -> Any:
    y = (x.reshape(2, 432) * 2.0).contiguous()
    s = (y * y).sum(1).contiguous()  # here
    return s * 0.5


def bent(x: Tensor, w: Tensor) -> Any:
    y = (x * 2.0).contiguous()
    s = y.tanh().contiguous()  # here
    return s.exp()


def exponential(x: Tensor, w: Tensor) -> Any:
    y = (x * 2.0).contiguous()
    s = y.exp().contiguous()  # here
    return s + 1.0


def several(x: Tensor, w: Tensor) -> Any:
    y = (x @ w).contiguous()
    s = y.sum(0, keepdim=True).tanh().contiguous()  # here
    return s, (y - s) @ y.transpose(0, 1)


def rule(file: str, old: str, new: str, programs: bool = False) -> Callable[[], AbstractContextManager[None]]:
    return partial(wrong_line, file, old, new, programs)


def driver(fault: Callable[[Any, int], Any], several: bool = False) -> Callable[[], AbstractContextManager[None]]:
    return partial(faulty, "webgpu", "tanh", fault, several)


DIVIDED = "x:int // c -> divided(x, c)"
TENSORS, KERNELS = "tensor graph", "kernel graph"

BUGS = [
    Bug(
        "a rule drops a sign",
        rule(
            "early.upat",
            "reduce_axis[add, a](-x) -> -reduce_axis[add, a](x)",
            "reduce_axis[add, a](-x) -> reduce_axis[add, a](x)",
        ),
        negative_sum, "cpu", TENSORS, "rule: reduce_axis[add, a](-x) -> reduce_axis[add, a](x)",
    ),
    Bug(
        "a rule that does not transpose",
        rule("early.upat", "permute[p](x) -> x if is_identity(p)", "permute[p](x) -> x if x.shape == u.shape"),
        turned, "cpu", TENSORS, "rule: permute[p](x) -> x if x.shape == u.shape",
    ),
    Bug(
        "a rule forgets a sign",
        rule("early.upat", "reduce_axis[add, a](-x) -> -reduce_axis[add, a](x)", "reduce_axis[add, a](-x) -> reduce_axis[add, a](x)"),
        negated, "cpu", TENSORS, "rule: reduce_axis[add, a](-x) -> reduce_axis[add, a](x)",
    ),
    Bug(
        "a rule of the index algebra",
        rule("symbolic.upat", DIVIDED, f"x:int // c -> 0 if lo(x) >= 0 and hi(x) < 2 * v(c)\n{DIVIDED}"),
        reshaped, "cpu", TENSORS, "rule: x:int // c -> 0 if lo(x) >= 0 and hi(x) < 2 * v(c)",
    ),
    Bug(
        "a fold of constants",
        rule("fold.upat", "(x:int + c1) + c2 -> x + (c1 + c2)", "(x:int + c1) + c2 -> x + (c1 + c1)"),
        cut_twice, "webgpu", TENSORS, "rule: (x:int + c1) + c2 -> x + (c1 + c1)",
    ),
    Bug("a gate one too far", gate_off_by_one, padded, "webgpu", TENSORS),
    Bug("zeros on the other side", padding_forgotten, padded, "webgpu", TENSORS),
    Bug("an index one too high", range_off_by_one, cut, "cpu", TENSORS),
    Bug("a maximum that is a minimum", swapped_reduce, largest, "cpu", TENSORS),
    Bug("a row of the neighbour", shared_gather_bound, looked_up, "cpu", TENSORS),
    Bug("a piece one row early", concatenation_off_by_one, joined, "webgpu", TENSORS),
    Bug("memory given away too early", overlapping_memory, chained, "cpu", "memory", "memory plan is at fault"),
    Bug("a mask upside down", mask_upside_down, masked, "webgpu", TENSORS),
    Bug("a sum in two stages", partial_sums_overlap, long_sum, "webgpu", TENSORS),
    Bug(
        "an opt that loses a term", unrolled_term_lost, multiplied, "webgpu", KERNELS, "without its opts the kernel is right"
    ),
    Bug(
        "a rule of lowering",
        rule("lowering.upat", "exp(x:float) -> by_exp2(x)", "exp(x:float) -> exp2(x)", True),
        exponential, "webgpu", KERNELS, "wrong without its opts too",
    ),
    Bug("a missing barrier", partial(wrong_wgsl, dropped_barriers), row_sums, "webgpu", KERNELS, "the text that ran differs"),
    Bug("a barrier that is not written", barriers_not_written, row_sums, "webgpu", KERNELS, "lacks a barrier"),
    Bug(
        "a thread in the place of its neighbour",
        partial(wrong_wgsl, early_thread), bent, "webgpu", KERNELS, "the text that ran differs",
    ),
    Bug("an op of the NumPy device", wrong_numpy, bent, "cpu", KERNELS, "the program that device cpu made"),
    Bug("a driver that drops a bit", driver(lambda x, _: x * (1 + 2.0**-16)), bent, "webgpu", KERNELS),
    Bug("a driver that is wrong now and then", driver(lambda x, run: x + run), bent, "webgpu", KERNELS, "from run to run"),
    Bug("kernels that do not wait", driver(lambda x, _: x + 1.0, True), several, "webgpu", "one batch"),
]  # fmt: skip


@contextmanager
def compiled_afresh(bug: Bug) -> Iterator[None]:
    """The bug, with nothing kept from before it or after it."""
    clear_cache()
    forget()
    try:
        with Arena(), bug.plant():
            yield
    finally:
        clear_cache()
        forget()
