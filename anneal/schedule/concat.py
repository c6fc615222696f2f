"""Concatenations: a sum of PADs that share out one axis is stored piece by piece, each piece by a member of
the kernel.
"""

from __future__ import annotations

from collections.abc import Container

from anneal.shape import reshaped_index
from anneal.uop import Op, UOp
from anneal.uop.sizes import Size, size

Index = tuple[UOp, ...]
_REORDER = (Op.RESHAPE, Op.PERMUTE, Op.CONTIGUOUS)
_MOST = 64  # pieces


def pieces_of(root: UOp, kept: Container[UOp] = ()) -> list[UOp]:
    """The PADs of which `root`, below any reordering, is the concatenation; none if it is something else.

    Nodes of `kept` are leaves: what lies below them is stored elsewhere.
    """
    pads: list[UOp] = []
    stack = [root]
    top = True
    while stack:
        x = stack.pop()
        if x in kept and x is not root:
            return []
        if x.op is Op.ADD:
            top = False
            stack += (x.src[1], x.src[0])
        elif top and x.op in _REORDER:
            stack.append(x.src[0])
        elif x.op is Op.PAD and not top and len(pads) < _MOST:
            pads.append(x)
        else:
            return []
    axes = {a for p in pads for a, pair in enumerate(p.arg) if pair != (0, 0)}
    if len(axes) != 1:
        return []
    axis = axes.pop()
    begins = {p.arg[axis][0]: p for p in pads}
    pieces: list[UOp] = []
    end: Size = 0
    while end in begins:
        p = begins.pop(end)
        if not p.src[0].size:
            return []
        pieces.append(p)
        end = size(end + p.src[0].shape[axis])
    return pieces if len(pieces) == len(pads) and end == pads[0].shape[axis] else []


def placed(root: UOp, pad: UOp, index: Index) -> Index:
    """The index in `root` of the element of a piece that is at `index` before its PAD."""
    out = tuple([i + b if b.__class__ is not int or b else i for i, (b, _) in zip(index, pad.arg, strict=True)])
    chain = []
    u = root
    while u.op in _REORDER:
        chain.append(u)
        u = u.src[0]
    for v in reversed(chain):
        if v.op is Op.PERMUTE:
            out = tuple([out[a] for a in v.arg])
        elif v.op is Op.RESHAPE:
            out = reshaped_index(out, v.src[0].shape, v.shape)
    return out
