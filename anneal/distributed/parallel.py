"""Data parallel training: gradients that become their mean over all participants, bucket by bucket.

The buckets are exchanges of their own: each starts as soon as its gradients are computed, while the backward pass goes
on with the layers before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from anneal.distributed.collectives import all_gather, all_reduce, broadcast
from anneal.distributed.processes import Alone, world
from anneal.errors import SettingError
from anneal.ops import as_dtype
from anneal.runtime import Group
from anneal.tensor import Tensor, no_grad
from anneal.uop import DType

__all__ = ["average_gradients", "broadcast_all", "buckets", "clip_parts"]

_FEW = 4  # participants up to which each takes what all others give, and adds it up
_LEAST, _MOST, _PARTS = 4 << 20, 64 << 20, 8  # benchmarks/distributed.md has what other sizes cost


def bucket_bytes(tensors: Sequence[Tensor]) -> int:
    """The bytes of gradients that are exchanged together: a part of all, neither small nor very large."""
    return min(_MOST, max(_LEAST, sum([t.numel() * t.dtype.itemsize for t in tensors]) // _PARTS))


def buckets(tensors: Sequence[Tensor], nbytes: int) -> Iterator[list[int]]:
    """The numbers of tensors that are exchanged together, up to `nbytes`, the last ones first, as gradients come.

    >>> [list(b) for b in buckets([Tensor.zeros(4), Tensor.zeros(2), Tensor.zeros(2)], 16)]
    [[2, 1], [0]]
    """
    found: list[int] = []
    room = nbytes
    for n in reversed(range(len(tensors))):
        size = tensors[n].numel() * tensors[n].dtype.itemsize
        if found and size > room:
            yield found
            found, room = [], nbytes
        found.append(n)
        room -= size
    if found:
        yield found


def average_gradients(
    parameters: Iterable[Tensor],
    group: Group | None = None,
    results: Sequence[Tensor] = (),
    *,
    bucket: int | None = None,
    wire: DType | str | None = None,
) -> list[Tensor]:
    """Make each parameter's `.grad` the mean over the participants; the means of `results`, a loss say, are returned.

    To be called between `backward()` and what uses the gradients, clipping among it. Alone it changes nothing.

    Args:
        parameters: the tensors that train; those without a gradient are left out, at all participants.
        group: this participant's view of the group; None: all processes.
        bucket: the bytes of gradients that are exchanged together; None: an eighth of all, within 4 and 64 MiB.
        wire: the dtype in which gradients travel, "float16" or "bfloat16"; None: their own. Sums are of float32.

    Raises SettingError for a `wire` that is no float.

    >>> w = Tensor([1.0, 2.0], requires_grad=True)
    >>> loss = (w * w).sum()
    >>> loss.backward()
    >>> average_gradients([w], results=[loss])[0].item(), w.grad.tolist()
    (5.0, [2.0, 4.0])
    """
    group = world() if group is None else group
    kind = None if wire is None else as_dtype(wire)
    if kind is not None and not kind.is_float:
        raise SettingError(f"average_gradients: gradients travel as floats, not as {kind.name}")
    if isinstance(group, Alone):
        return list(results)
    trained = [p for p in parameters if p.grad is not None]
    given = [p.grad for p in trained if p.grad is not None]
    with no_grad():
        sent = [g.detach() if kind is None else g.detach().cast(kind) for g in given]
        parts = list(buckets(sent, bucket or bucket_bytes(sent))) or [[]]
        for n, part in enumerate(parts):
            extra = [r.detach() for r in results] if n == len(parts) - 1 else []
            mine = [sent[k] for k in part]
            if kind is not None and kind.itemsize <= 2 and group.size <= _FEW:
                # devices add narrow numbers faster than the host does, as they are read
                made = [g.float().mean(0) for g in all_gather(mine, group)] if mine else []
                made += all_reduce(extra, group, "mean") if extra else []
            else:
                made = all_reduce([*mine, *extra], group, "mean") if mine or extra else []
            for k, mean in zip(part, made, strict=False):
                trained[k].grad = mean if kind is None else mean.cast(given[k].dtype)
            results = made[len(part) :] if n == len(parts) - 1 else results
    return list(results)


def broadcast_all(tensors: Iterable[Tensor], group: Group | None = None, root: int = 0) -> None:
    """Give tensors the values that they have at participant `root` of `group`: models that start alike stay alike."""
    group = world() if group is None else group
    there = list(tensors)
    if there and not isinstance(group, Alone):
        with no_grad():
            for t, same in zip(there, broadcast([t.detach() for t in there], group, root), strict=True):
                t.assign(same)


def clip_parts(parameters: Iterable[Tensor], max_norm: float, group: Group | None = None) -> Tensor:
    """Scale gradients, of which each participant has its part, to a norm of all parts together of at most `max_norm`.

    Args:
        parameters: this participant's parts, with their gradients in `.grad`. group: its view of the group; None: all
            processes.

    Returns the norm before, shape (1,).

    >>> part = Tensor([3.0, 4.0], requires_grad=True)
    >>> (part * part.detach()).sum().backward()
    >>> clip_parts([part], 1.0).item(), part.grad.square().sum().isclose(1.0).item()
    (5.0, True)
    """
    with no_grad():
        given = [(p, p.grad.detach()) for p in parameters if p.grad is not None]
        squares = [g.float().square().sum().reshape(1) for _, g in given]
        norm = all_reduce(sum(squares[1:], squares[0]), group).sqrt()
        scale = (max_norm / (norm + 1e-6)).minimum(Tensor([1.0], device=norm.device))
        for p, g in given:
            p.grad = g * scale.cast(g.dtype)
    return norm
