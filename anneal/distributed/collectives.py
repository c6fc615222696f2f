"""Exchanges between the participants of a group, as nodes with gradients.

Every participant makes the same exchanges in the same order, those of gradients among them: whoever takes the gradient
through one waits for the others to do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from anneal.errors import DTypeError, GroupError, ShapeError
from anneal.ops import called_on_host, is_tensor, said
from anneal.ops.nodes import reshape, shrink
from anneal.runtime import Exchange, Group, HostGradient, Reduction
from anneal.tensor import Tensor
from anneal.uop import UOp, dtypes

__all__ = ["all_gather", "all_reduce", "broadcast"]

Nodes = Sequence[UOp]


@overload
def all_reduce(x: Tensor, group: Group, op: Reduction = "sum") -> Tensor: ...
@overload
def all_reduce(x: Sequence[Tensor], group: Group, op: Reduction = "sum") -> list[Tensor]: ...
def all_reduce(x: Tensor | Sequence[Tensor], group: Group, op: Reduction = "sum") -> Tensor | list[Tensor]:
    """The sum, or the mean, of a tensor over the participants of a group: the same bits for each of them.

    Several tensors take one exchange. The gradient of what a participant computes from the result goes to all of them:
    cotangents are summed, or averaged, in the same way.

    Args:
        x: a tensor, or several, of one device, of the same shapes and dtypes for each participant.
        group: this participant's view of the group.
        op: "sum", or "mean" for floats.

    Raises:
        DTypeError: something that is no tensor, bools, or the mean of integers.
        GroupError: no group, an unknown `op`; where the result is computed, a participant that does not come in time.
        ShapeError: no tensor, or an empty one; where the result is computed, participants with other shapes.

    >>> from anneal.distributed import in_threads
    >>> in_threads(lambda group: all_reduce(Tensor([1.0, 2.0]) * (group.rank + 1), group).tolist(), 2)
    [[3.0, 6.0], [3.0, 6.0]]
    """
    if op not in ("sum", "mean"):
        raise GroupError(f'all_reduce: op is "sum" or "mean", not {said(op)}')
    tensors = _tensors("all_reduce", x, group)
    for t in tensors:
        if t.dtype is dtypes.bool_ or (op == "mean" and not t.dtype.is_float):
            raise DTypeError(f"all_reduce: the {op} of {t.dtype.name} is none; cast it first")
    out = called_on_host("all_reduce", _reducing(group, op, [t.uop for t in tensors]), tensors)
    return out[0] if is_tensor(x) else list(out)


def all_gather(x: Tensor, group: Group) -> Tensor:
    """The tensors x of all participants of `group`, along a new first axis in the order of their numbers.

    The gradient of what any participant computes from it is summed for the one that gave the part. Raises DTypeError,
    GroupError and ShapeError as `all_reduce` does.

    >>> from anneal.distributed import in_threads
    >>> in_threads(lambda group: all_gather(Tensor([group.rank, 7]), group).tolist(), 2)
    [[[0, 7], [1, 7]], [[0, 7], [1, 7]]]
    """
    (t,) = _tensors("all_gather", x, group)

    def gradient(inputs: Nodes, outputs: Nodes, cotangents: Nodes) -> Nodes:
        (total,) = _reducing(group, "sum", cotangents).nodes(tuple(cotangents))
        own = shrink(total, ((group.rank, group.rank + 1), *[(0, n) for n in inputs[0].shape]))
        return [reshape(own, inputs[0].shape)]

    called = _exchange(group, "all_gather", group.all_gather, [((group.size, *t.shape), t.dtype)], gradient)
    return called_on_host("all_gather", called, [t])[0]


@overload
def broadcast(x: Tensor, group: Group, root: int = 0) -> Tensor: ...
@overload
def broadcast(x: Sequence[Tensor], group: Group, root: int = 0) -> list[Tensor]: ...
def broadcast(x: Tensor | Sequence[Tensor], group: Group, root: int = 0) -> Tensor | list[Tensor]:
    """The tensor x of participant `root` of `group`, or several of them, for all participants.

    The others give tensors of the same shapes and dtypes, whose values count for nothing. Gradients are summed for the
    root. Raises DTypeError, GroupError and ShapeError as `all_reduce` does.

    >>> from anneal.distributed import in_threads
    >>> in_threads(lambda group: broadcast(Tensor([1.0]) * group.rank, group, root=1).item(), 3)
    [1.0, 1.0, 1.0]
    """
    tensors = _tensors("broadcast", x, group)
    group.check_rank("broadcast", root)
    out = called_on_host("broadcast", _from_root(group, root, [t.uop for t in tensors]), tensors)
    return out[0] if is_tensor(x) else list(out)


def _tensors(name: str, x: Any, group: Any) -> list[Tensor]:
    """The tensors that are given. Raises DTypeError, ShapeError or GroupError where there are none, or no group."""
    if not isinstance(group, Group):
        raise GroupError(f"{name}: takes a group, this participant's view of it, not {said(group)}")
    tensors = [x] if is_tensor(x) else list(x) if isinstance(x, (list, tuple)) else [x]
    for t in tensors:
        if not is_tensor(t):
            raise DTypeError(f"{name}: takes a tensor, or a list of them, not {said(t)}")
    if not tensors:
        raise ShapeError(f"{name}: takes at least one tensor")
    return tensors


def _kinds(nodes: Nodes) -> list[Any]:
    return [(u.shape, u.dtype) for u in nodes]


def _reducing(group: Group, op: Reduction, nodes: Nodes) -> Exchange:
    """The exchange that adds up arrays like those of `nodes`; its gradient adds up cotangents."""

    def gradient(inputs: Nodes, outputs: Nodes, cotangents: Nodes) -> Nodes:
        return _reducing(group, op, cotangents).nodes(tuple(cotangents))

    return _exchange(group, f"all_reduce ({op})", lambda arrays: group.all_reduce(arrays, op), _kinds(nodes), gradient)


def _from_root(group: Group, root: int, nodes: Nodes) -> Exchange:
    """The exchange that gives all participants the arrays of one; its gradient adds up cotangents there."""

    def gradient(inputs: Nodes, outputs: Nodes, cotangents: Nodes) -> Nodes:
        return _to_root(group, root, cotangents).nodes(tuple(cotangents))

    return _exchange(
        group, f"broadcast from {root}", lambda arrays: group.broadcast(arrays, root), _kinds(nodes), gradient
    )


def _to_root(group: Group, root: int, nodes: Nodes) -> Exchange:
    """The exchange that adds up arrays for one participant and gives zeros to the others: `_from_root`'s transpose."""

    def gradient(inputs: Nodes, outputs: Nodes, cotangents: Nodes) -> Nodes:
        return _from_root(group, root, cotangents).nodes(tuple(cotangents))

    return _exchange(group, f"reduce to {root}", lambda arrays: group.reduce(arrays, root), _kinds(nodes), gradient)


def _exchange(
    group: Group, name: str, call: Callable[[list[Any]], Any], results: list[Any], gradient: HostGradient
) -> Exchange:
    return Exchange(
        ("exchange", name, group),
        tuple(results),
        lambda *arrays: call(list(arrays)),
        name,
        gradient,
        None,  # no rule for vmap: examples would be exchanged one by one
        group=group,
    )
