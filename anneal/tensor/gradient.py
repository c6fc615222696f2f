"""Gradients: `Tensor.backward()` as in PyTorch, and `grad`, `value_and_grad`, `vjp` over functions as in JAX.

All of them are doors to one pass (`_reverse.py`), which writes the adjoint nodes into the graph of the result by the
rules of `gradient.upat`. Nothing is computed until a gradient is realised.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from anneal.errors import DTypeError, GradientError, ShapeError
from anneal.tensor._base import _MODE, TensorBase, grad_enabled, leaf_nodes, leaves
from anneal.tensor._movement import reshape, spread
from anneal.tensor._reverse import gradient
from anneal.tensor.execution import storage_of
from anneal.uop import Op, UOp, const, toposort

if TYPE_CHECKING:
    from anneal.tensor._tensor import Tensor

__all__ = ["backward", "grad", "gradient", "take_results", "value_and_grad", "vjp"]

_NUMBERS = itertools.count()
_RESULTS: list[weakref.ref[Tensor]] = []
_KEPT = 64


# -- the PyTorch-shaped door ------------------------------------------------------------------------------------------


def backward(result: Tensor, cotangent: Tensor | None = None, retain_graph: bool = False) -> None:
    """Add the gradient of `result` to the `.grad` of every leaf it depends on.

    The gradients are lazy: they are computed when realised, best together with the loss and the optimiser's update.

    Args:
        result: a float tensor, of one element unless `cotangent` is given.
        cotangent: what to multiply the result with before summing; same shape. Default 1.
        retain_graph: allow a later backward from the same tensor.

    Raises:
        GradientError: no leaf is reached, the result has several elements and no cotangent, `no_grad` is in force,
            or this tensor's backward has been taken already.
        ShapeError: `cotangent` has another shape.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    Tensor([2., 4., 6.], dtype=float32)
    """
    seed = _seed(result, cotangent)
    if not grad_enabled():
        raise GradientError("backward: called inside no_grad(); move the call out of the block")
    if not result.requires_grad:
        raise GradientError(
            f"backward: {_text(result)} depends on no tensor with requires_grad=True; set it on the tensors whose gradient "
            f"you want before computing with them (a result made inside no_grad() or after detach() has no gradient either)"
        )
    if result._spent:
        raise GradientError(
            "backward: called a second time on the same result, which would add every gradient twice; "
            "use backward(retain_graph=True) the first time if that is meant, or compute the result again"
        )
    live = [t for t in leaves() if t.device == result.device]
    nodes = [leaf_nodes(t) for t in live]
    owners: dict[UOp, Tensor] = {}
    for t, group in zip(live, nodes, strict=True):
        for n in group:
            if owners.setdefault(n, t) is not t:
                raise GradientError(
                    "backward: two leaves show the same value of another tensor and cannot be told apart; "
                    "make one of them a copy, as in Tensor(x.numpy(), requires_grad=True)"
                )
    flat = [n for group in nodes for n in group]
    found = iter(gradient(result.uop, seed, flat, leaves=True))
    reached = False
    for t, group in zip(live, nodes, strict=True):
        for g in itertools.islice(found, len(group)):
            if g is not None:
                reached = True
                t.grad = t._new_plain(g if t.grad is None else t.grad.uop + g)
    if not reached:
        raise GradientError(
            f"backward: no gradient flows from {_text(result)} to a leaf: every path passes detach(), an integer or a "
            f"comparison, or the leaf was changed or freed since"
        )
    if not retain_graph:
        result._spent = True
        memory = storage_of(result.uop)
        if memory is not None:
            # Nobody goes this way again: a list of losses must not keep every step's graph and parameters alive.
            memory.origin = None
        _RESULTS.append(weakref.ref(result))
        del _RESULTS[:-_KEPT]


def take_results() -> list[Tensor]:
    """The live tensors whose backward was taken since the last call: an optimiser computes them with its step."""
    out = [t for r in _RESULTS if (t := r()) is not None]
    _RESULTS.clear()
    return out


def _text(t: TensorBase) -> str:
    return f"the result (shape {t.shape}, {t.dtype.name})"


def _seed(result: Tensor, cotangent: Tensor | None) -> UOp:
    u = result.uop
    if not u.dtype.is_float:
        raise GradientError(
            f"backward: only floats have gradients, and {_text(result)} is not one; use .float() before"
        )
    if cotangent is None:
        if u.size != 1:
            raise GradientError(
                f"backward: {_text(result)} has {u.size} elements; reduce it to one number (.sum(), .mean()) "
                f"or pass backward(gradient=...) of the same shape"
            )
        return const(u.dtype, 1)
    c = result._lift("backward", cotangent).uop
    if c.shape != u.shape:
        raise ShapeError(f"backward: gradient has shape {c.shape}, but the result has {u.shape}; they must be equal")
    return c.cast(u.dtype)


# -- functions over functions -----------------------------------------------------------------------------------------


def grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of `f` with respect to its arguments `argnums`.

    `f` returns one float tensor of one element (with `has_aux`, a pair of it and anything else). An argument may be a
    tensor, or a list, tuple or dict of tensors; its gradient has the same structure. What `f` captures is a constant.

    Raises GradientError if the result is not a float of one element, or an argument not a float tensor.

    >>> from anneal.tensor import Tensor
    >>> slope = grad(lambda x: (x * x * x).sum())
    >>> slope(Tensor([1.0, 2.0])), grad(lambda x: slope(x).sum())(Tensor([1.0, 2.0]))
    (Tensor([ 3., 12.], dtype=float32), Tensor([ 6., 12.], dtype=float32))
    """
    both = value_and_grad(f, argnums, has_aux)

    def gradient_of(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return gradient_of


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Like `grad`, but gives `(value, gradient)`.

    >>> from anneal.tensor import Tensor
    >>> value_and_grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(Tensor([2.0]), Tensor([5.0]))
    (Tensor(10., dtype=float32), (Tensor([5.], dtype=float32), Tensor([2.], dtype=float32)))
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        for n in numbers:
            if not -len(args) <= n < len(args):
                raise GradientError(
                    f"grad: argnums names argument {n}, but the call has {len(args)} positional arguments"
                )
        variables = _Variables()
        given = list(args)
        for n in numbers:
            given[n] = variables.replace(args[n])
        out = variables.call(f, given, kwargs)
        value = out[0] if has_aux else out
        if not isinstance(value, TensorBase):
            raise GradientError(f"grad: the function must return a tensor, not {type(value).__name__}")
        seed = _seed(value, None)  # type: ignore[arg-type]
        values = [value, *_tensors(out[1])] if has_aux else [value]
        results = variables.pull(value.uop, seed, values)
        grads = tuple([variables.like(args[n], results) for n in numbers])
        answer = variables.outside[0]
        whole = (answer, _map(out[1], iter(variables.outside[1:]))) if has_aux else answer
        return whole, grads[0] if isinstance(argnums, int) else grads

    return with_gradient


def vjp(f: Callable[..., Any], *args: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """`f(*args)` and the function that maps a cotangent of it to the cotangents of the arguments.

    >>> from anneal.tensor import Tensor
    >>> y, pull = vjp(lambda x: x * x, Tensor([1.0, 2.0]))
    >>> y, pull(Tensor([1.0, 10.0]))
    (Tensor([1., 4.], dtype=float32), (Tensor([ 2., 40.], dtype=float32),))
    """
    variables = _Variables()
    value = variables.call(f, [variables.replace(a) for a in args], {})
    if not isinstance(value, TensorBase):
        raise GradientError(f"vjp: the function must return a tensor, not {type(value).__name__}")

    def pull(cotangent: Any) -> tuple[Any, ...]:
        results = variables.pull(value.uop, _seed(value, cotangent), [])  # type: ignore[arg-type]
        return tuple([variables.like(a, results) for a in args])

    return variables.restore([value])[0], pull


class _Variables:
    """Stand-ins for the arguments of one call: nodes of their own, so that what `f` captures stays a constant."""

    __slots__ = ("nodes", "originals", "outside")

    def __init__(self) -> None:
        self.nodes: list[UOp] = []
        self.originals: list[Tensor] = []
        self.outside: list[Tensor] = []

    def replace(self, argument: Any) -> Any:
        stand_ins = []
        for t in _tensors(argument):
            if not t.uop.dtype.is_float:
                raise GradientError(f"grad: only floats have gradients; an argument is {t.dtype.name}: use .float()")
            node = UOp(Op.CONTIGUOUS, t.uop.dtype, (t.uop,), tag=("variable", next(_NUMBERS)))
            variable = t._new_plain(node)
            variable.requires_grad = True
            variable.is_leaf = False
            self.nodes.append(node)
            self.originals.append(t)
            stand_ins.append(variable)
        return _map(argument, iter(stand_ins))

    def call(self, f: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        before, _MODE.grad = _MODE.grad, True
        try:
            return f(*args, **kwargs)
        finally:
            _MODE.grad = before

    def pull(self, root: UOp, seed: UOp, others: list[Any]) -> list[Tensor]:
        """The gradients of the stand-ins, with the arguments themselves put back; `others` go to `outside`."""
        found = gradient(root, seed, self.nodes, leaves=True)
        grads = [
            t._new_plain(spread(const(t.dtype, 0), t.shape) if g is None else g)
            for t, g in zip(self.originals, found, strict=True)
        ]
        results = self.restore([*others, *grads])
        self.outside = results[: len(others)]
        return results[len(others) :]

    def like(self, argument: Any, results: list[Tensor]) -> Any:
        """`argument` with its tensors replaced by the next of `results`, which are used up."""
        n = len(_tensors(argument))
        part, results[:n] = results[:n], []
        return _map(argument, iter(part))

    def restore(self, tensors: list[Any]) -> list[Tensor]:
        """`tensors` as graphs of the real arguments."""
        new: dict[UOp, UOp] = dict(zip(self.nodes, [t.uop for t in self.originals], strict=True))
        wanted = {n for t in leaves() for n in leaf_nodes(t)}
        wanting: set[UOp] = set(wanted)
        for u in toposort([t.uop for t in tensors]):
            if u not in new:
                new[u] = u.replace(src=tuple([new[s] for s in u.src])) if u.src else u
            v = new[u]
            if v.op is not Op.DETACH and (_is_variable(v) or any(s in wanting for s in v.src)):
                wanting.add(v)
        out = []
        for t in tensors:
            u = new[t.uop]
            result = t._new_plain(u if u.shape == t.shape else reshape(u, t.shape))
            result.requires_grad = u.dtype.is_float and (u in wanting or _is_variable(u)) and grad_enabled()
            result.is_leaf = not result.requires_grad
            out.append(result)
        return out


def _is_variable(u: UOp) -> bool:
    return u.tag is not None and u.op is Op.CONTIGUOUS and u.tag[0] == "variable"


def _tensors(tree: Any) -> list[Any]:
    """The tensors of nested lists, tuples and dicts, in order."""
    out: list[Any] = []
    stack = [tree]
    while stack:
        t = stack.pop()
        if isinstance(t, TensorBase):
            out.append(t)
        elif isinstance(t, dict):
            stack.extend(reversed(list(t.values())))
        elif isinstance(t, (list, tuple)):
            stack.extend(reversed(t))
        else:
            raise DTypeError(f"grad: arguments are tensors or lists, tuples and dicts of them, not {type(t).__name__}")
    return out


def _map(tree: Any, tensors: Any) -> Any:
    """The same structure with each tensor replaced by the next of `tensors`."""
    if isinstance(tree, TensorBase):
        return next(tensors)
    if isinstance(tree, dict):
        return {k: _map(v, tensors) for k, v in tree.items()}
    if hasattr(tree, "_fields"):
        return type(tree)(*[_map(v, tensors) for v in tree])
    return type(tree)([_map(v, tensors) for v in tree])
