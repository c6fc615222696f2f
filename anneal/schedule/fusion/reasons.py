"""The obstacles between two kernels, in words: each names what holds for this producer and this reader, and what would
have to be otherwise. `joining.py` decides; nothing here is called except for a report (`refusals`).
"""

from __future__ import annotations

from anneal.schedule.cost_model import CostModel
from anneal.schedule.fusion.groups import Group
from anneal.uop import Op, UOp

_ALONE = {
    Op.ARGSORT: "a sort",
    Op.SEGMENT_SUM: "a sum of the rows that an index selects",
    Op.UPDATE: "a write into a part of memory",
    Op.CONTIGUOUS: "a copy of memory that is overwritten later",
}
_MOVED = {
    Op.PERMUTE: "in another order of axes",
    Op.EXPAND: "repeated along an axis",
    Op.REDUCE_AXIS: "reduced along another axis than its rows",
    Op.PAD: "with padding around it",
    Op.SHRINK: "in part",
    Op.FLIP: "backwards",
}


def alone(p: Group, g: Group, _: CostModel) -> str:
    """The refusal of a node that is always a kernel of its own."""
    who, group = ("the producer", p) if p.opaque else ("the reader", g)
    root = group.roots[0]
    what = (
        "a concatenation, which is stored piece by piece" if group.concatenates else _ALONE.get(root.op, root.op.name)
    )
    return f"{who} is {what}: always a kernel of its own"


def apart(p: Group, g: Group, cost_model: CostModel) -> str:
    """They have neither a size nor rows in common; the cases of `joining._common_row`, in its order."""
    if not p.computes_rows:
        if g.reduces:
            return (
                f"the reader is {_kind(g, cost_model)}, and each of its results needs several results of the producer, "
                f"{_kind(p, cost_model)}: they are stored first"
            )
        if g.size != p.size:
            return (
                f"the producer is {_kind(p, cost_model)} with {p.size} results, and the reader computes {g.size} "
                "values: only elementwise work of the same size joins it"
            )
        return f"the producer is {_kind(p, cost_model)}, and nothing joins one on this device (join_epilogues)"
    if not g.computes_rows:
        return (
            f"the reader is {_kind(g, cost_model)}, which uses each value several times: fused, the producer would be "
            "computed anew for each use"
        )
    if p.row and g.row and p.row != g.row:
        return f"the producer reduces rows of {p.row} and the reader rows of {g.row}: a kernel has rows of one length"
    row = p.row or g.row
    if not row:
        return f"the producer computes {p.size} values and the reader {g.size}: a kernel computes one size"
    return (
        f"the producer computes {p.size} values and the reader {g.size}, with rows of {row}: they join with equal "
        "sizes, or with one value for each row"
    )


def too_long(p: Group, g: Group, cost_model: CostModel) -> str:
    """Together they compute too many nodes."""
    return f"together they compute {p.nodes + g.nodes} nodes, and one kernel at most {cost_model.kernel_steps}"


def needed_between(p: Group, g: Group, _: CostModel) -> str:
    """A third kernel reads the producer's result, and the reader needs the third's."""
    return "another kernel reads the producer's result and makes something that the reader needs: it runs between them"


def moved(by: UOp, cost_model: CostModel) -> str:
    """The reader reads the result elsewhere than where it is made.

    Args:
        by: the node that does.
    """
    if by.op is Op.REDUCE_AXIS and not cost_model.keeps_rows:
        return (
            "the reader reduces the result, and on this device no kernel reduces a row that it also stores (keeps_rows)"
        )
    how = _MOVED.get(by.op, f"through {by.op.name.lower()}")
    return (
        f"the reader takes the result {how}: a reader joins only if it reads each element, or each row, where it is "
        "computed"
    )


def too_many_buffers(p: Group, g: Group, cost_model: CostModel) -> str:
    """Together they bind too many buffers."""
    return f"together they bind more than {cost_model.member_buffers} buffers, the most that this device gives a kernel"


def _kind(g: Group, cost_model: CostModel) -> str:
    if g.vector:
        return "a product of a matrix and a vector"
    if g.product:
        return "a matrix product or a convolution"
    if g.row:
        return f"a reduction of rows of {g.row}"
    return f"a reduction over columns or over rows longer than {cost_model.row_fusion}"
