"""Exchanges between the participants of a group, as nodes with gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from anneal.distributed.groups import Alone, world
from anneal.errors import DTypeError, GroupError, SettingError, ShapeError
from anneal.ops import as_dtype, called_on_host, is_tensor, said
from anneal.ops.nodes import reshape
from anneal.runtime import Begin, Exchange, Group, HostGradient, Reduction, Wait, begun, realize
from anneal.tensor import Tensor, no_grad
from anneal.uop import DType, dtypes, unique

Nodes = Sequence[Any]  # or tensors, for what has the shapes and dtypes of nodes
Tensors = Sequence[Tensor]
X = TypeVar("X", Tensor, list[Tensor], Tensors)  # a tensor, or several

# Every participant makes the same exchanges in the same order, those of gradients among them: whoever takes the
# gradient through one waits for the others to do the same.


def all_reduce(x: X, group: Group | None = None, op: Reduction = "sum") -> X:
    """The sum, or the mean or the largest, of a tensor over the participants of a group: the same bits for each.

    Several tensors take one exchange. The gradient of what a participant computes from the result goes to all of them:
    cotangents are summed, or averaged, in the same way; those of the largest go to whoever gave it, in equal parts.

    Args:
        x: a tensor, or several, of one device, of the same shapes and dtypes for each participant.
        group: this participant's view of the group; None: all processes (`anneal.distributed.init`).
        op: "sum", "max", or "mean" for floats.

    Raises:
        DTypeError: something that is no tensor, bools, or the mean of integers.
        GroupError: no group, an unknown `op`; where the result is computed, a participant that does not come in time.
        ShapeError: no tensor, or an empty one; where the result is computed, participants with other shapes.

    >>> all_reduce(Tensor([1.0, 2.0])).tolist()  # of this process alone
    [1.0, 2.0]
    """
    group, tensors = _checked("all_reduce", x, group)
    _check_op("all_reduce", tensors, op)
    return _called("all_reduce", x, tensors, group, lambda group: _reducing(group, op, tensors))


def reduce_scatter(x: X, group: Group | None = None, op: Reduction = "sum") -> X:
    """This participant's part, along the first axis, of what `all_reduce` gives: x (size * n, ...) becomes (n, ...).

    The gradient of a sum gathers the cotangents of all parts. Arguments and errors as for `all_reduce`, with an `op`
    "sum" or "mean" of a `group`; a ShapeError as well for a first axis that has no equal parts.

    >>> reduce_scatter(Tensor([1, 2, 3, 4])).tolist()  # of this process alone; the first of two has [2, 4]
    [1, 2, 3, 4]
    """
    group, tensors = _checked("reduce_scatter", x, group)
    _check_op("reduce_scatter", tensors, op)
    for t in tensors:
        if not t.ndim or t.shape[0] % group.size:
            raise ShapeError(f"reduce_scatter: shape {t.shape} has no {group.size} equal parts along its first axis")
    return _called("reduce_scatter", x, tensors, group, lambda group: _scattering(group, op, tensors))


def all_gather(x: X, group: Group | None = None) -> X:
    """The tensors x of all participants of `group`, along a new first axis in the order of their numbers.

    The gradient of what any participant computes from it is summed for the one that gave the part. Raises DTypeError,
    GroupError and ShapeError as `all_reduce` does.

    >>> all_gather(Tensor([0, 7])).tolist()  # of this process alone
    [[0, 7]]
    """
    return gathered(x, group, "sum")


def gathered(x: X, group: Group | None, op: Reduction) -> X:
    """`all_gather` of x over a group, whose gradient for a part is reduced by `op`, "sum" or "mean"."""
    group, tensors = _checked("all_gather", x, group)
    if isinstance(group, Alone):
        tensors = [t.reshape(1, *t.shape) for t in tensors]
    return _called("all_gather", x, tensors, group, lambda group: _gathering(group, tensors, op))


def broadcast(x: X, group: Group | None = None, root: int = 0) -> X:
    """The tensor x of participant `root` of `group`, or several of them, for all participants.

    The others give tensors of the same shapes and dtypes, whose values count for nothing. Gradients are summed for the
    root. Raises DTypeError, GroupError and ShapeError as `all_reduce` does.

    >>> broadcast(Tensor([1.0])).item()  # of this process alone
    1.0
    """
    group, tensors = _checked("broadcast", x, group)
    group.check_rank("broadcast", root)
    return _called("broadcast", x, tensors, group, lambda group: _of_root(group, root, tensors))


def send(x: Tensor, dst: int, group: Group | None = None) -> None:
    """Compute a tensor x and give it to participant `dst` of `group`, who calls `recv`. Inside jit each replay does.

    Raises DTypeError for something that is no tensor, GroupError for no such participant.
    """
    group, tensors = _checked("send", x, group)
    group.check_rank("send", dst)

    def begin(arrays: Any, into: Any, now: bool) -> Any:
        group.send(arrays[0] if now else arrays[0].copy(), dst)  # MPI cannot read memory of a device
        return _done([_TOKEN])

    token = _exchange(group, f"send to {dst}", begin, [((1,), dtypes.int32)], None, unique())
    realize(list(called_on_host("send", token, tensors)))


def recv(like: Tensor, src: int, group: Group | None = None) -> Tensor:
    """The tensor that participant `src` of `group` sends, like `like` in shape, dtype and device.

    It is there when the call returns. Raises DTypeError for something that is no tensor, GroupError for no such
    participant, or where the tensor that comes is of another shape or dtype.
    """
    group, tensors = _checked("recv", like, group)
    group.check_rank("recv", src)
    taken = _exchange(
        group,
        f"recv from {src}",
        lambda a, into, now: _done([group.receive(a[0], src, into if now else ())]),
        _kinds(tensors),
        None,
        unique(),
    )
    (out,) = called_on_host("recv", taken, [tensors[0].detach()])
    realize([out])
    return out


def barrier(group: Group | None = None) -> None:
    """Wait until all participants of `group` have come here; their devices may still compute."""
    (group or world()).barrier()


_TOKEN = np.zeros(1, np.int32)


def _checked(name: str, x: Any, group: Any) -> tuple[Group, list[Tensor]]:
    """The group and the tensors that are meant. Raises DTypeError, ShapeError or GroupError where there are none."""
    group = world() if group is None else group
    if not isinstance(group, Group):
        raise GroupError(f"{name}: takes a group, this participant's view of it, not {said(group)}")
    tensors = [x] if is_tensor(x) else list(x) if isinstance(x, (list, tuple)) else [x]
    for t in tensors:
        if not is_tensor(t):
            raise DTypeError(f"{name}: takes a tensor, or a list of them, not {said(t)}")
    if not tensors:
        raise ShapeError(f"{name}: takes at least one tensor")
    return group, tensors


def _called(name: str, x: X, tensors: Tensors, group: Group, exchange: Callable[[Group], Exchange]) -> X:
    """The results of an exchange in a group: one where `x` is a tensor, a list where it was several. Who is alone has
    what it gives."""
    out: Any = list(tensors if isinstance(group, Alone) else called_on_host(name, exchange(group), tensors))
    return out[0] if is_tensor(x) else out  # type: ignore[no-any-return]


def _check_op(name: str, tensors: Tensors, op: str) -> None:
    if op not in ("sum", "mean", "max"):
        raise GroupError(f'{name}: op is "sum", "mean" or "max", not {said(op)}')
    for t in tensors:
        if (t.dtype is dtypes.bool_ and op != "max") or (op == "mean" and not t.dtype.is_float):
            raise DTypeError(f"{name}: the {op} of {t.dtype.name} is none; cast it first")


def _kinds(nodes: Nodes) -> list[Any]:
    return [(u.shape, u.dtype) for u in nodes]


def _reducing(group: Group, op: Reduction, nodes: Nodes) -> Exchange:
    """The exchange that adds up arrays like those of `nodes`; its gradient adds up cotangents."""

    def gradient(inputs: Nodes, outputs: Nodes, cotangents: Nodes) -> Nodes:
        if op != "max":
            return _reducing(group, op, cotangents).nodes(tuple(cotangents))
        largest = [x.eq(y).cast(g.dtype) for x, y, g in zip(inputs, outputs, cotangents, strict=True)]
        made = _reducing(group, "sum", [*cotangents, *largest]).nodes((*cotangents, *largest))
        totals, counts = made[: len(largest)], made[len(largest) :]
        return [m * t / n for m, t, n in zip(largest, totals, counts, strict=True)]

    return _exchange(
        group,
        f"all_reduce ({op})",
        lambda arrays, into, now: group.begin_all_reduce(arrays, op, into, now),
        _kinds(nodes),
        gradient,
    )


def _scattering(group: Group, op: Reduction, nodes: Nodes) -> Exchange:
    """The exchange that gives each participant its part of the sums; its gradient gathers the parts' cotangents."""
    if op == "max":
        raise GroupError(
            'reduce_scatter: op is "sum" or "mean", not "max": its gradient needs the whole; use all_reduce'
        )

    def gradient(inputs: Nodes, outputs: Nodes, cotangents: Nodes) -> Nodes:
        whole = _gathering(group, cotangents, "sum").nodes(tuple(cotangents))
        flat = [reshape(w, x.shape) for w, x in zip(whole, inputs, strict=True)]
        return flat if op == "sum" else [w / group.size for w in flat]

    return _exchange(
        group,
        f"reduce_scatter ({op})",
        lambda arrays, into, now: group.begin_reduce_scatter(arrays, op, into, now),
        [((u.shape[0] // group.size, *u.shape[1:]), u.dtype) for u in nodes],
        gradient,
    )


def _gathering(group: Group, nodes: Nodes, op: Reduction) -> Exchange:
    """The exchange that gives all participants the arrays of all; its gradient reduces cotangents for each part's
    giver."""

    def gradient(inputs: Nodes, outputs: Nodes, cotangents: Nodes) -> Nodes:
        flat = [
            reshape(g, (group.size * max(1, x.shape[0] if x.shape else 1), *x.shape[1:]))
            for g, x in zip(cotangents, inputs, strict=True)
        ]
        made = _scattering(group, op, flat).nodes(tuple(flat))
        return [reshape(m, x.shape) for m, x in zip(made, inputs, strict=True)]

    kinds = [((group.size, *u.shape), u.dtype) for u in nodes]
    return _exchange(group, f"all_gather ({op})", group.begin_all_gather, kinds, gradient)


def _of_root(group: Group, root: int, nodes: Nodes, back: bool = False) -> Exchange:
    """The exchange that gives all participants the arrays of one; or `back`, its transpose, which adds up arrays for
    one and gives zeros to the others. Each is the other's gradient."""

    def begin(arrays: Any, into: Any, now: bool) -> Wait:
        if back:
            return _done(group.reduce(arrays, root))
        return _done(group.broadcast(arrays if now else [a.copy() for a in arrays], root, into if now else ()))

    gradient = lambda inputs, outputs, given: _of_root(group, root, given, not back).nodes(tuple(given))
    name = f"reduce to {root}" if back else f"broadcast from {root}"
    return _exchange(group, name, begin, _kinds(nodes), gradient)


def gathered_later(tensors: Tensors, group: Group, now: bool = False) -> Callable[[], list[Tensor]]:
    """Start `all_gather` of tensors in memory over a group that copies, or make it `now`; what is returned waits for
    the results, which have no gradient."""
    wait = begun(_gathering(group, tensors, "sum"), [t.uop for t in tensors], tensors[0].device, now)
    return lambda: [tensors[0]._new(u) for u in wait()]


def _done(made: list[Any]) -> Wait:
    return lambda into=(): made


def _exchange(
    group: Group, name: str, begin: Begin, results: list[Any], gradient: HostGradient | None, *number: Any
) -> Exchange:
    """The exchange of this `name`: the one that the group made before, with the memory of its results, unless each
    has a `number` of its own."""

    def in_order(arrays: Any, into: Any, now: bool) -> Wait:
        if now:
            group.begin_coming()
        return begin(arrays, into, now)

    key = (name, *results)
    found = None if number or not group.copies else group.made[key]
    if found is None:
        found = Exchange(
            ("exchange", name, group, *number),
            tuple(results),
            lambda *arrays: begin(arrays, (), True)(()),
            name,
            gradient,
            None,  # no rule for vmap: examples would be exchanged one by one
            group=group,
            begin=in_order if group.copies else None,
        )
        if group.copies and not number:
            group.made[key] = found
    return found


# -- data parallel training: gradients become their mean over all participants, bucket by bucket ----------------------
#
# The buckets are exchanges of their own: each starts as soon as its gradients are computed, while the backward pass
# goes on with the layers before.


_FEW = 4  # participants up to which each takes what all others give, and adds it up
_LEAST, _MOST, _PARTS = 4 << 20, 64 << 20, 8  # benchmarks/distributed.md has what other sizes cost


def bucket_bytes(tensors: Tensors) -> int:
    """The bytes of gradients that are exchanged together: a part of all, neither small nor very large."""
    return min(_MOST, max(_LEAST, sum([t.numel() * t.dtype.itemsize for t in tensors]) // _PARTS))


def buckets(tensors: Tensors, nbytes: int) -> Iterator[list[int]]:
    """The numbers of tensors that are exchanged together, up to `nbytes`, the last ones first, as gradients come.

    >>> [list(b) for b in buckets([Tensor.zeros(4), Tensor.zeros(2), Tensor.zeros(2)], 16)]
    [[2, 1], [0]]
    """
    found, room = list[int](), nbytes
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
    results: Tensors = (),
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
