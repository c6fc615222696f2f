"""vmap: a function of one example becomes one of many, by rewriting each node it made into that of all examples."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal

from anneal.errors import ShapeError, TransformError
from anneal.ops import nodes
from anneal.transforms.batching import repeated, rewritten
from anneal.transforms.reverse import P, R, TypedFunction
from anneal.transforms.trace import Trace, as_tensor, flagged, results_of
from anneal.transforms.tree import broadcast_prefix, flatten, paths_of, rebuild
from anneal.uop import UOp
from anneal.uop.sizes import Size


def vmap(
    f: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    axis_size: int | None = None,
    randomness: Literal["different", "same"] = "different",
    in_dims: Any = ...,
    out_dims: Any = ...,
) -> TypedFunction[P, R]:
    """The function that applies `f` to every example of its arguments at once, as a loop would one by one.

    Args:
        f: from trees of tensors to a tree of tensors. Inside, a tensor has the shape of one example and no values.
        in_axes: the axis of each argument that the examples lie along, None where all share the argument: one int, or a
            tuple with an int, None or tree of them for each positional argument. Keyword arguments use axis 0.
        out_axes: where the examples go in the result: an int, or a tree of them; None for what is the same for all.
        axis_size: the number of examples; needed only if no argument says it.
        randomness: whether random numbers drawn inside are "different" for every example or the "same".
        in_dims, out_dims: torch's names for `in_axes` and `out_axes`.

    Raises TransformError for axes that do not fit the arguments, ShapeError for sizes that differ or an axis that is
    not there.

    >>> from anneal.tensor import Tensor
    >>> dot = vmap(lambda a, b: (a * b).sum(), in_axes=(0, None))
    >>> dot(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([10.0, 1.0]))
    Tensor([12., 34.], dtype=float32)
    """
    in_axes = in_axes if in_dims is ... else in_dims
    out_axes = out_axes if out_dims is ... else out_dims
    if randomness not in ("different", "same"):
        raise TransformError(f'vmap: randomness is "different" or "same", not {randomness!r}')

    @wraps(f)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        trace = Trace("vmap")
        (given, named), fronts, n = _examples(trace, (args, kwargs), in_axes, axis_size)
        out = trace.run(f, given, named, grad=False)
        results, names = results_of("vmap", out), paths_of(out, "the result")
        places = broadcast_prefix("vmap", out_axes, out, "out_axes", "the result")
        many = rewritten(set(trace.made()), [t.uop for t in results], fronts, n, randomness == "different")
        trace.check_escapes(results)
        placed = [_placed(u, differs, at, name, n) for (u, differs), at, name in zip(many, places, names, strict=True)]
        return rebuild(out, iter(flagged([t._new_plain(u) for t, u in zip(results, placed, strict=True)])))

    return mapped


def _examples(
    trace: Trace, given: tuple[tuple[Any, ...], dict[str, Any]], in_axes: Any, axis_size: int | None
) -> tuple[Any, dict[UOp, UOp], Size]:
    """The arguments with stand-ins for one example, for each stand-in all examples along a first axis, and their
    number.
    """
    args, kwargs = given
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if isinstance(axes, tuple) and len(axes) != len(args):
        raise TransformError(
            f"vmap: in_axes has {len(axes)} entries, but the call has {len(args)} positional arguments; give one for "
            "each"
        )
    where = [*paths_of(args, "argument "), *paths_of(kwargs, "argument ")]
    along = [
        *broadcast_prefix("vmap", axes, args, "in_axes", "the arguments"),
        *broadcast_prefix("vmap", 0, kwargs, "in_axes", "the arguments"),
    ]
    sizes: dict[Size, str] = {} if axis_size is None else {axis_size: f"axis_size is {axis_size}"}
    inner: list[Any] = []
    fronts: dict[UOp, UOp] = {}
    for value, at, name in zip(flatten(given), along, where, strict=True):
        if at is None:
            inner.append(value)
            continue
        t = as_tensor("vmap", name, value)
        axis = _axis("in_axes", name, at, t.shape)
        sizes.setdefault(t.shape[axis], f"{name} has {t.shape[axis]} (axis {axis} of shape {t.shape})")
        stand_in = trace.example(t, t.shape[:axis] + t.shape[axis + 1 :])
        fronts[stand_in.uop] = nodes.permute(t.uop, [axis, *[a for a in range(t.ndim) if a != axis]])
        inner.append(stand_in)
    if len(sizes) > 1:
        raise ShapeError(
            f"vmap: the arguments differ in the number of examples: {', '.join(sizes.values())}; in_axes says which "
            "axis counts them, None that an argument is shared"
        )
    if not sizes:
        raise TransformError(
            "vmap: no argument has an axis of examples: give one an axis in in_axes, or pass axis_size"
        )
    return rebuild(given, iter(inner)), fronts, next(iter(sizes))


def _axis(what: str, name: str, at: Any, shape: tuple[int, ...]) -> int:
    if isinstance(at, bool) or not isinstance(at, int):
        raise TransformError(f"vmap: {what} has ints and None as leaves, not {at!r}")
    if not -len(shape) <= at < len(shape):
        raise ShapeError(
            f"vmap: {what} names axis {at} of {name}, which has shape {shape}; "
            + (f"its axes are {-len(shape)} to {len(shape) - 1}" if shape else "use None for what all examples share")
        )
    return at % len(shape)


def _placed(u: UOp, is_batched: bool, at: Any, name: str, n: Size) -> UOp:
    """A result with the axis of examples where out_axes wants it."""
    if at is None:
        if is_batched:
            raise TransformError(f"vmap: out_axes is None for {name}, which differs between examples; give it an axis")
        return u
    if not is_batched:
        u = repeated(u, n)
    rank = len(u.shape)
    axis = _axis("out_axes", name, at, u.shape)
    return nodes.permute(u, [*range(1, axis + 1), 0, *range(axis + 1, rank)])
