"""Kernels by the passes: one module for a kernel graph, or for all parts of one together; and their work and costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from functools import lru_cache
from typing import Any

from anneal.codegen.dialects import DIALECTS, merged
from anneal.codegen.hardware import LaunchConfig, grid
from anneal.codegen.linear import Param
from anneal.codegen.opts import KINDS, Opt, Opts
from anneal.codegen.pipeline import Lowering, run_passes
from anneal.codegen.ranges import ACCESSES, mask_of, reads_stored
from anneal.codegen.target import Target
from anneal.errors import CompilerError
from anneal.frozen import frozen
from anneal.schedule import members_of, standalone
from anneal.uop import ALU, Nodes, Op, UOp, arena, decode_value, dtypes, encode_value, toposort


@frozen
class GeneratedKernel:
    """Generated code: WGSL text, the bindings it declares, its launch, and the opts that made it."""

    source: str
    params: tuple[Param, ...]
    launch: LaunchConfig
    grid: tuple[int, int, int]
    opts: Opts
    variables: tuple[str, ...] = ()  # whose values the last binding holds, if there are any


def generate(sink: UOp, target: Target | None = None, opts: Sequence[Opt] | None = None) -> GeneratedKernel:
    """WGSL for the kernel graph `sink`; `opts` are the heuristic's unless given.

    Raises DTypeError for a dtype the target lacks.
    """
    target = target or Target()
    with arena().untracked():  # whose line a node comes from is told by the tensor graph
        parts = members_of(sink)
        if len(parts) > 1:
            _check_order(parts, target)
            return _merged(parts, target)
        s = run_passes(sink, target, opts)
    return _generated(s.source, s.program.params, s.program.launch, s.opts or (), s.text.variables, target)


def _check_order(parts: Nodes, target: Target) -> None:
    """Refuse parts for a processor of which one stores what another reads: they run in any order, and side by side.

    Plans for other devices, whose kernels run at the same time, have none.
    """
    if target.dialect == "c" and any(reads_stored(p.src, x.src) for p in parts for x in parts if x is not p):
        raise CompilerError("one part of a kernel stores what another part reads", stage="render")


def _generated(
    source: str, params: Sequence[Param], launch: LaunchConfig, opts: Opts, names: tuple[str, ...], target: Target
) -> GeneratedKernel:
    """The kernel, with a binding for the values of variables."""
    if names:
        slot = 1 + max(p.slot for p in params)
        params = (*params, Param(slot, UOp(Op.PARAM, dtypes.int32, (), (slot, (len(names),))), False))
    return GeneratedKernel(source, tuple(params), launch, grid(launch.workgroups, target.max_workgroups), opts, names)


def _body(sink: UOp, target: Target, opts: Sequence[Opt] | None = None) -> Lowering:
    """A kernel, or a part of one with slots from 0, on its way to a module."""
    return run_passes(sink, target, opts, until="write-body")


def bodies_of(sink: UOp, target: Target | None = None) -> list[Lowering]:
    """The bodies that `generate` puts into the module of `sink`: one, or one for each of its parts, in their order.

    None comes from a cache, so that listeners see every rule that fires.
    """
    target = target or Target()
    with arena().untracked():
        parts = members_of(sink)
        return [_body(sink, target)] if len(parts) == 1 else _bodies_of(parts, target, _body)[0]


def _bodies_of(
    parts: Nodes, target: Target, body: Callable[[UOp, Target], Lowering]
) -> tuple[list[Lowering], Sequence[Sequence[int]]]:
    """The bodies of the parts of a kernel, as far as they agree on threads, workgroup memory and vectors, and the slots
    of each. `body` makes one.
    """
    target = replace(target, matrices=())  # which want memory of a type of their own
    kernels, slots = zip(*[standalone(p) for p in parts], strict=True)
    bodies = [body(k, target) for k in kernels]
    # Threads that wait for each other are as many as the workgroup has, also after another part got more.
    settled = False
    while not settled:
        settled = True
        threads = max(b.launch.threads for b in bodies)
        for n, b in enumerate(bodies):
            before = [x.text for x in bodies[:n]]
            if b.text.synchronises and (
                b.launch.threads < threads or merged([*before, b.text]).shared_bytes > target.workgroup_bytes
            ):
                bodies[n], settled = _body(kernels[n], target, _flat(target)), False
    return _alike(bodies, kernels, slots, target), slots


def _merged(parts: Nodes, target: Target) -> GeneratedKernel:
    """A kernel in parts: each gets its own opts."""
    bodies, places = _bodies_of(parts, target, _known_body)
    launch = LaunchConfig(sum(b.launch.workgroups for b in bodies), max(b.launch.threads for b in bodies))
    nodes = {slots[x.slot]: x.node for b, slots in zip(bodies, places, strict=True) for x in b.program.params}
    texts = [b.text.bound(slots) for b, slots in zip(bodies, places, strict=True)]
    source, whole = DIALECTS[target.dialect].module(texts, target), merged(texts)
    params = [
        Param(n, UOp(Op.PARAM, node.dtype, (), (n, node.arg[1])), whole.bindings[n][1])
        for n, node in sorted(nodes.items())
    ]
    opts = tuple([o for b in bodies for o in b.opts or ()])
    return _generated(source, params, launch, opts, whole.variables, target)


@lru_cache(512)
def _known_body(part: UOp, target: Target) -> Lowering:
    """The same of a part: many kernels have the same, and one has it many times."""
    return _body(part, target)


def _alike(bodies: list[Lowering], kernels: Nodes, places: Sequence[Sequence[int]], target: Target) -> list[Lowering]:
    """Memory that several parts bind has elements of one type: those that read it by scalars take lanes of vectors."""
    lanes: dict[int, set[int]] = {}
    sub_word: set[int] = set()
    for b, slots in zip(bodies, places, strict=True):
        sub_word.update(slots[p.arg[0]] for p in b.program.sub_word)
        for x in b.program.params:
            lanes.setdefault(slots[x.slot], set()).add(b.program.wide.get(x.node, 1))
    if any(len(found - {1}) > 1 for found in lanes.values()) or any(lanes[slot] != {1} for slot in sub_word):
        # Vectors of two lengths, or beside parts of words: then no part stores vectors.
        return _alike([_body(k, target, _flat(target)) for k in kernels], kernels, places, target)
    out = []
    for b, slots in zip(bodies, places, strict=True):
        wide = {x.node: n for x in b.program.params if (n := max(lanes[slots[x.slot]])) > 1}
        atomic = frozenset(x.node for x in b.program.params if slots[x.slot] in sub_word)
        if atomic != b.program.sub_word or any(b.program.wide.get(node, 1) != n for node, n in wide.items()):
            program = replace(b.program, wide={**b.program.wide, **wide}, sub_word=atomic)
            b = replace(b, program=program, text=b.dialect.write(program, target))
        out.append(b)
    return out


def _flat(target: Target) -> Opts:
    return (Opt("FLAT", 0, min(64, target.max_threads)),)


# ---------------------------------------------------------------------------------------------------------------------
# Generated kernels as plain data, and back.


def encode_kernel(kernel: GeneratedKernel) -> Any:
    """`kernel` as lists of strings and numbers."""
    return encode_value(astuple(kernel))


def decode_kernel(data: Any) -> GeneratedKernel:
    """The kernel that `encode_kernel` wrote down; an exception if this is none."""
    source, params, launch, (x, y, z), opts, variables = decode_value(data)
    *numbers, needed = launch
    bindings = tuple([Param(*p) for p in params])
    if not (
        isinstance(source, str)
        and all(type(n) is int and n > 0 for n in (*numbers, x, y, z))
        and all(type(p.written) is bool and p.slot == p.node.arg[0] for p in bindings)
        and all(isinstance(name, str) for name in variables)
        and (needed is None or isinstance(needed, UOp))
    ):
        raise ValueError("this is no kernel")
    return GeneratedKernel(source, bindings, LaunchConfig(*launch), (x, y, z), decode_opts(opts), variables)


def encode_opts(opts: Opts) -> Any:
    return encode_value(tuple(map(astuple, opts)))


def decode_opts(data: Any) -> Opts:
    """The opts that `encode_opts` wrote down; an exception if these are none."""
    found = tuple([Opt(*o) for o in decode_value(data)])
    if not all(o.kind in KINDS and type(o.axis) is int and type(o.amount) is int for o in found):
        raise ValueError("these are no opts")
    return found


_FREE = frozenset((Op.CAST, Op.BITCAST, Op.WHERE, Op.LT, Op.EQ, Op.NE, Op.NOT, Op.AND, Op.OR, Op.XOR))
_SILENT = frozenset((Op.CAST, Op.BITCAST, Op.WHERE))  # not worth a word in a listing


@frozen
class KernelInfo:
    """Estimates for one run: float operations, bytes read and bytes written.

    An operation counts once for every value of the ranges it stands under; a buffer counts once however often it is
    read, and no more than the kernel can touch of it.
    """

    flops: int
    bytes_read: int
    bytes_written: int


def kernel_info(sink: UOp) -> KernelInfo:
    """Estimates for the kernel graph `sink`. A range whose extent depends on data counts with its upper bound, or 1."""
    order = toposort(sink)
    extents = {u.arg[0]: _extent(u) for u in order if u.op is Op.RANGE}

    @lru_cache(1 << 12)
    def times(mask: int) -> int:
        return math.prod([extent for ident, extent in extents.items() if mask >> ident & 1])

    flops = 0
    touched: dict[tuple[UOp, bool], int] = {}
    for u in order:
        if u.op in ALU and u.dtype.is_float and u.op not in _FREE:
            flops += times(u.ranges)
        elif u.op is Op.REDUCE and u.dtype.is_float:
            flops += times(u.src[0].ranges)
        elif u.op in ACCESSES:
            key = (u.src[0], u.op is Op.STORE)
            touched[key] = touched.get(key, 0) + times(u.ranges)
    moved = [0, 0]  # bytes read, bytes written
    for (param, stored), count in touched.items():
        moved[stored] += min(count, param.arg[1][0]) * param.dtype.itemsize
    return KernelInfo(flops, *moved)


def _extent(r: UOp) -> int:
    e = r.src[0]
    if e.is_const:
        return int(e.arg)
    return int(e.vmax) if e.vmax is not None and e.vmax < 2**31 - 1 else 1


def fused_ops(sink: UOp) -> list[str]:
    """The ops fused into the kernel, sources first: "matmul" or a reduction's name, gathers, elementwise ops."""
    counts: Counter[str] = Counter()
    reads: dict[UOp, bool] = {}  # whether a value depends on memory
    order = toposort(sink)
    products = {u.src[0] for u in order if _is_product(u)}
    for u in order:
        reads[u] = u.op is Op.LOAD or any(reads[x] for x in u.src)
        if u in products:
            continue
        if u.op is Op.REDUCE:
            counts["matmul" if u.src[0] in products else "sum" if u.arg is Op.ADD else u.arg.name.lower()] += 1
        elif u.op is Op.LOAD and reads[u.src[1]]:
            counts["gather"] += 1
        elif u.op in (Op.ARGSORT, Op.SCAN, Op.SCATTER_ADD) or _is_arithmetic(u):
            counts[u.op.name.lower()] += 1
    return [name if n == 1 else f"{name} x{n}" for name, n in counts.items()] or ["copy"]


def _is_arithmetic(u: UOp) -> bool:
    return u.op in ALU and u.op not in _SILENT and (u.dtype.is_float or (bool(u.src) and u.src[0].dtype.is_float))


def _is_product(u: UOp) -> bool:
    """True if this is a sum of products of two operands that both run along it, each over loops of its own."""
    if u.op is not Op.REDUCE or u.arg is not Op.ADD or u.src[0].op is not Op.MUL:
        return False
    a, b = u.src[0].src
    along = mask_of(u.src[1:])
    return bool(a.ranges & along and b.ranges & along and a.ranges != b.ranges)
