"""WGSL modules from the bodies of kernels: bindings, workgroup memory, functions, and the workgroups of each kernel."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from anneal.codegen.dialects.wgsl.functions import called
from anneal.codegen.dialects.writer import Text, in_text, merged, variable_name
from anneal.codegen.hardware import grid
from anneal.codegen.linear import Param
from anneal.codegen.target import Target
from anneal.uop import Op, UOp, toposort

_ALIGNMENT = 256  # of a binding's offset: the most that WebGPU lets an adapter ask for

# ---------------------------------------------------------------------------------------------------------------------
# Memory that one binding cannot show is bound several times, a segment of it each, and accesses are calls.
#
#     p3[i]            p3_at(i)          reads the segment that holds element i
#     p3[i] = v        p3_put(i, v)
#     p3[i].x = v      p3_put_lane(i, 0, v)
#     atomicOr(&p3[i], v)  p3_or(i, v)
#
# Segments are as long as a binding may be, rounded down to the 256 bytes that every adapter aligns offsets to, so all
# but the last are full and a comparison finds the segment. The first is bound at the memory's slot, the others behind
# all slots.
_BYTES = {"f32": 4, "i32": 4, "u32": 4, "f16": 2, "i64": 8, "u64": 8, "f64": 8}


class Binding(NamedTuple):
    """The storage binding `number`: bytes from `offset` on, at most `length`, of the memory at `slot`."""

    number: int
    slot: int
    offset: int
    length: int
    written: bool


def segment_bytes(limit: int) -> int:
    """The length of a segment where a binding has at most `limit` bytes."""
    return limit // _ALIGNMENT * _ALIGNMENT


def segments(nbytes: int, limit: int) -> int:
    """The number of bindings that `nbytes` of memory take.

    >>> segments(1000, 1024), segments(1025, 1024), segments(1000, 1000)
    (1, 2, 1)
    """
    return 1 if nbytes <= limit else -(-nbytes // segment_bytes(limit))


def bindings_of(params: Sequence[Param], limit: int) -> tuple[Binding, ...]:
    """The bindings of a kernel, for memory of any size."""
    length, numbers = segment_bytes(limit), itertools.count(1 + max((p.slot for p in params), default=-1))
    out, more = [], []
    for p in params:
        count = segments(p.nbytes, limit)
        out.append(Binding(p.slot, p.slot, 0, limit if count == 1 else length, p.written))
        more += [Binding(next(numbers), p.slot, w * length, length, p.written) for w in range(1, count)]
    return (*out, *more)


def declarations(bindings: Mapping[int, tuple[str, bool, int]], limit: int) -> tuple[list[str], list[str]]:
    """WGSL of the bindings of a module, and of the functions on those in segments.

    `bindings` maps a slot to the type of its elements, whether it is written, and its bytes.
    """
    head, functions, more = [], [], []
    numbers = itertools.count(1 + max(bindings, default=-1))
    for slot, (element, written, nbytes) in sorted(bindings.items()):
        access = "read_write" if written else "read"
        head.append(f"@group(0) @binding({slot}) var<storage, {access}> p{slot}: array<{element}>;")
        count = segments(nbytes, limit)
        if count == 1:
            continue
        names = [f"p{slot}"]
        for w in range(1, count):
            names.append(f"p{slot}_{w}")
            more.append(f"@group(0) @binding({next(numbers)}) var<storage, {access}> {names[-1]}: array<{element}>;")
        functions += _functions(slot, element, written, names, segment_bytes(limit) // _size(element))
    return head + more, functions


_ELEMENT = re.compile(r"(?:vec([234])<|atomic<)?(\w+)>?")


def _size(element: str) -> int:
    found = _ELEMENT.fullmatch(element)
    assert found is not None
    return int(found[1] or 1) * _BYTES[found[2]]


def _functions(slot: int, element: str, written: bool, names: Sequence[str], length: int) -> list[str]:
    def by_segment(make: str) -> str:
        first = [f"  if (i < {(w + 1) * length}i) {{ {make % _at(name, w * length)} }}" for w, name in enumerate(names)]
        return "\n".join([*first[:-1], "  " + make % _at(names[-1], (len(names) - 1) * length)])

    if element.startswith("atomic"):
        load = by_segment("return atomicLoad(&%s);")
        out = [f"fn p{slot}_load(i: i32) -> u32 {{\n{load}\n}}"]
        for op in ("And", "Or"):
            change = by_segment(f"atomic{op}(&%s, x); return;")
            out.append(f"fn p{slot}_{op.lower()}(i: i32, x: u32) {{\n{change}\n}}")
        return out
    out = [f"fn p{slot}_at(i: i32) -> {element} {{\n{by_segment('return %s;')}\n}}"]
    if written:
        put = by_segment("%s = x; return;")
        out.append(f"fn p{slot}_put(i: i32, x: {element}) {{\n{put}\n}}")
        if element.startswith("vec"):
            one = element[5:-1]
            put = by_segment("%s[lane] = x; return;")
            out.append(f"fn p{slot}_put_lane(i: i32, lane: i32, x: {one}) {{\n{put}\n}}")
    return out


def _at(name: str, start: int) -> str:
    return f"{name}[i - {start}i]" if start else f"{name}[i]"


# ---------------------------------------------------------------------------------------------------------------------


_F16 = re.compile(r"\bf16\b")


def module(texts: Sequence[Text], target: Target) -> str:
    """The module whose entry point `main` runs one program, or several in workgroups of their own."""
    if len(texts) > 1:
        return _merged(texts, target)
    text = texts[0]
    workgroups = text.launch.workgroups
    where, spare = _position(workgroups, target)
    start = []
    needed = text.launch.needed
    if text.uses("wg") or spare or needed is not None:
        start.append(f"  let wg = {where};")
    if needed is not None:
        start.append(f"  if (wg >= {_expression(needed)}) {{ return; }}")
    elif spare:
        start.append(f"  if (wg >= {workgroups}i) {{ return; }}")
    if text.uses("lid"):
        start.append("  let lid = i32(local_id);")
    return _module(text, text.launch.threads, [*start, *text.lines], target)


def _position(workgroups: int, target: Target) -> tuple[str, bool]:
    """A workgroup's number, and whether the grid has more workgroups than there are."""
    nx, ny, nz = grid(workgroups, target.max_workgroups)
    where = "group_id.x" if ny == 1 else f"group_id.x + group_id.y * {nx}u"
    if nz > 1:
        where += f" + group_id.z * {nx * ny}u"
    return f"i32({where})", nx * ny * nz != workgroups


def _merged(texts: Sequence[Text], target: Target) -> str:
    """The module whose `main` runs each of several programs in workgroups of its own, one program's after another's.

    A program with fewer threads than another leaves the others idle, and must have no barrier; what several bind has
    one element type. No workgroup runs two programs, so they have their workgroup memory in common.
    """
    threads = max(t.launch.threads for t in texts)
    where, _ = _position(sum(t.launch.workgroups for t in texts), target)
    lines = [f"  let at = {where};"]
    if any(t.uses("lid") for t in texts):
        lines.append("  let lid = i32(local_id);")
    first = 0
    for t in in_text(texts):
        body = list(t.lines)
        for x in t.shared:
            body = [re.sub(rf"\b{x.name}\b", x.merged_name, line) for line in body]
        end = first + t.launch.workgroups
        idle = f" & (local_id < {t.launch.threads}u)" if t.launch.threads < threads else ""
        lines.append(f"  if ((at >= {first}i) & (at < {end}i){idle}) {{")
        if t.uses("wg") or t.launch.needed is not None:
            lines.append(f"    let wg = at - {first}i;")
        if t.launch.needed is not None:
            lines.append(f"    if (wg >= {_expression(t.launch.needed)}) {{ return; }}")
        lines += ["  " + line for line in body] + ["  }"]
        first = end
    return _module(merged(texts), threads, lines, target)


def _expression(u: UOp) -> str:
    """A number of workgroups as WGSL: sums, products and quotients of what is not negative."""
    text = {}
    for x in toposort(u):
        if x.is_const:
            text[x] = f"{x.arg}i"
        elif x.op is Op.VARIABLE:
            text[x] = variable_name(x.arg[0])
        elif x.op is Op.MAX or x.op is Op.MIN:
            text[x] = f"{x.op.name.lower()}({text[x.src[0]]}, {text[x.src[1]]})"
        else:
            sign = "/" if x.op is Op.IDIV else x.op.sign
            text[x] = f"({text[x.src[0]]} {sign} {text[x.src[1]]})"
    return text[u]


def _module(text: Text, threads: int, lines: Sequence[str], target: Target) -> str:
    if text.variables:
        slot = 1 + max(text.bindings)
        lines = [f"  let {variable_name(n)} = p{slot}[{i}];" for i, n in enumerate(text.variables)] + list(lines)
        text = text._replace(bindings={**text.bindings, slot: ("i32", False, 4 * len(text.variables))})
    bindings, accesses = declarations(text.bindings, target.binding_bytes)
    body = "\n".join(lines)
    if target.rounds_halves:
        body = body.replace("round_f16", "packed_f16")
    helpers = called(body)
    head = ["enable f16;"] if any(_F16.search(part) for part in (body, *helpers, *bindings)) else []
    if target.names_subgroups and "subgroup" in body:
        head.append("enable subgroups;")
    if "subgroup_matrix" in body:
        head += ["enable chromium_experimental_subgroup_matrix;", *_UNIFORMITY]
    head += bindings
    head += [f"var<workgroup> {x.name}: array<{x.element}, {x.length}>;" for x in text.shared]
    if "zero_bits" in body or any("zero_bits" in h for h in helpers):
        # 0, but a compiler does not know that the memory is not empty, nor, if it were, a single bit of this. (That no
        # workgroup lies beyond the last NVIDIA's does know.)
        head.append("var<private> zero_bits: u32;")
        memory = next(m.group(1) for b in bindings if (m := _MEMORY.search(b)))
        body = f"  zero_bits = select(0u, group_id.x * 2654435769u, arrayLength(&{memory}) == 0u);\n" + body
    main = f"@compute @workgroup_size({threads})\nfn main({_BUILTINS}) {{"
    return "\n".join([*head, *helpers, *accesses, main, body, "}"]) + "\n"


# All threads of a workgroup reach every matrix op, which the compiler cannot prove from the thread indices.
_UNIFORMITY = tuple(
    f"diagnostic(off, {rule});" for rule in ("chromium.subgroup_matrix_uniformity", "subgroup_uniformity")
)
_MEMORY = re.compile(r"var<storage[^>]*> (\w+): array<")
_BUILTINS = "@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32"
