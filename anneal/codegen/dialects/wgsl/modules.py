"""WGSL modules from the bodies of kernels: bindings, workgroup memory, functions, and the workgroups of each kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence

from anneal.codegen.dialects.wgsl.functions import called
from anneal.codegen.dialects.wgsl.segments import declarations, segmented
from anneal.codegen.dialects.writer import Text, in_text, merged_memory, merged_name, variable_name
from anneal.codegen.hardware import grid
from anneal.codegen.target import Target
from anneal.uop import Op, UOp, toposort

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
    if "wg" in text.uses or spare or needed is not None:
        start.append(f"  let wg = {where};")
    if needed is not None:
        start.append(f"  if (wg >= {_expression(needed)}) {{ return; }}")
    elif spare:
        start.append(f"  if (wg >= {workgroups}i) {{ return; }}")
    if "lid" in text.uses:
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
    if any("lid" in t.uses for t in texts):
        lines.append("  let lid = i32(local_id);")
    bindings: dict[int, tuple[str, bool, int]] = {}
    first = 0
    for t in in_text(texts):
        body = list(t.lines)
        for x in t.shared:
            body = [re.sub(rf"\b{x.name}\b", merged_name(x), line) for line in body]
        for slot, (element, written, nbytes) in t.bindings.items():
            bindings[slot] = (element, written or (slot in bindings and bindings[slot][1]), nbytes)
        end = first + t.launch.workgroups
        idle = f" & (local_id < {t.launch.threads}u)" if t.launch.threads < threads else ""
        lines.append(f"  if ((at >= {first}i) & (at < {end}i){idle}) {{")
        if "wg" in t.uses or t.launch.needed is not None:
            lines.append(f"    let wg = at - {first}i;")
        if t.launch.needed is not None:
            lines.append(f"    if (wg >= {_expression(t.launch.needed)}) {{ return; }}")
        lines += ["  " + line for line in body] + ["  }"]
        first = end
    names = tuple(sorted({n for t in texts for n in t.variables}))
    whole = Text(bindings, merged_memory(texts), any(t.f16 for t in texts), frozenset(), (), texts[0].launch, names)
    return _module(whole, threads, lines, target)


_OPERATORS = {Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.IDIV: "/", Op.MOD: "%"}


def _expression(u: UOp) -> str:
    """A number of workgroups as WGSL: sums, products and quotients of what is not negative."""
    text: dict[UOp, str] = {}
    for x in toposort((u,)):
        if x.op is Op.CONST:
            text[x] = f"{x.arg}i"
        elif x.op is Op.VARIABLE:
            text[x] = variable_name(x.arg[0])
        elif x.op is Op.MAX or x.op is Op.MIN:
            text[x] = f"{x.op.name.lower()}({text[x.src[0]]}, {text[x.src[1]]})"
        else:
            text[x] = f"({text[x.src[0]]} {_OPERATORS[x.op]} {text[x.src[1]]})"
    return text[u]


def _module(text: Text, threads: int, lines: Sequence[str], target: Target) -> str:
    if text.variables:
        slot = 1 + max(text.bindings)
        lines = [f"  let {variable_name(n)} = p{slot}[{i}];" for i, n in enumerate(text.variables)] + list(lines)
        text = text._replace(bindings={**text.bindings, slot: ("i32", False, 4 * len(text.variables))})
    bindings, accesses, split = declarations(text.bindings, target.binding_bytes)
    body = "\n".join(segmented(lines, split))
    helpers = called(body)
    f16 = text.f16 or any(_F16.search(part) for part in (body, *helpers))
    head = ["enable f16;"] if f16 else []
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


# All threads of a workgroup come to every matrix; the indices of threads are not looked into to see that.
_UNIFORMITY = tuple(
    f"diagnostic(off, {rule});" for rule in ("chromium.subgroup_matrix_uniformity", "subgroup_uniformity")
)
_MEMORY = re.compile(r"var<storage[^>]*> (\w+): array<")
_BUILTINS = "@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local_id: u32"
