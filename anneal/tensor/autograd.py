"""Gradients of tensors that were computed, under torch's names: `autograd.grad(loss, x)`; modes of recording."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from anneal.errors import DTypeError, GradientError, ShapeError
from anneal.ops import no_grad
from anneal.runtime import F, earlier_nodes, flat, here, note_call
from anneal.tensor._tensor import Tensor
from anneal.transforms import backward_of, ended, hooked, leaf_nodes, of_several, releasing, seed, set_apart, taken
from anneal.uop import Src

__all__ = [
    "Variable", "backward", "detect_anomaly", "enable_grad", "grad", "inference_mode", "no_grad", "save_on_cpu",
    "saved_tensors_hooks", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip

Several = Tensor | Sequence[Tensor]

# `anneal.tensor.grad` is the other kind: the gradient of a function.


class set_grad_enabled:
    """Record gradients from here on, or do not, as `mode` says; as a block, or before a function, within it.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> with set_grad_enabled(False):
    ...     y = w * 2
    >>> y.requires_grad, (w * 2).requires_grad
    (False, True)
    """

    def __init__(self, mode: bool) -> None:
        self._before, here.grad = here.grad, bool(mode)
        self._mode = enable_grad if mode else no_grad

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        here.grad = self._before

    def __call__(self, function: F) -> F:
        here.grad = self._before
        return no_grad.around(self._mode, function)


class enable_grad(no_grad):
    """Record gradients within the block, or the function (`orig_func`), also inside `no_grad`.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> with no_grad(), enable_grad():
    ...     y = w * 2
    >>> y.requires_grad
    True
    """

    __slots__ = ()
    _records = True


class inference_mode(no_grad):
    """`no_grad`; `enable_grad` if `mode` is False.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> with inference_mode():
    ...     y = w * 2
    >>> y.requires_grad
    False
    """

    __slots__ = ()

    def __new__(cls, mode: Any = True) -> Any:
        return enable_grad() if mode is False else no_grad() if mode is True else no_grad(mode)


def _list(x: Several) -> list[Tensor]:
    if not hasattr(x, "__iter__"):
        raise DTypeError(f"autograd: takes a tensor or several, not {x!r}")
    return [x] if isinstance(x, Tensor) else list(x)


def grad(
    outputs: Several,
    inputs: Several,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradient of a sum of `outputs` with respect to each of `inputs`: leaves, or tensors on the way from them.

    Args:
        outputs: of one element each, or with `grad_outputs` of any shape: what each is weighted with.
        retain_graph: ignored: a graph stays as long as its tensors.
        create_graph: whether gradients flow through the results.
        only_inputs: ignored, and a warning if False.
        allow_unused: an input that no output depends on gives None, and is no error. materialize_grads: gives zeros.
        is_grads_batched: `grad_outputs` have a first axis more: the results of each, stacked.

    Nothing is added to `.grad`. Raises GradientError for outputs that no gradient flows from, or an input that none
    depends on; ShapeError for weights of another number or shape.

    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> (slope,) = grad((x**3).sum(), x, create_graph=True)
    >>> slope, grad(slope.sum(), x)
    (Tensor([ 3., 12.], dtype=float32, requires_grad=True), (Tensor([ 6., 12.], dtype=float32),))
    """
    if not only_inputs:
        warnings.warn("autograd.grad: only_inputs changes nothing; backward() adds to every leaf", stacklevel=2)
    results, targets = _list(outputs), _list(inputs)
    if is_grads_batched:
        return _batched(results, targets, _list(grad_outputs), create_graph, allow_unused, materialize_grads)
    _check_graph([*results, *targets], "grad")
    set_apart(targets if not any(y._spent for y in results) else ())
    seeds = [seed(y, w, "grad_outputs") for y, w in zip(results, _weights(results, grad_outputs, "grad_outputs"))]
    retain = create_graph if retain_graph is None else retain_graph
    if here.recordings and not retain:
        for t in results:
            here.recordings[-1].note_passed(t)
    rest = results, create_graph, allow_unused, materialize_grads
    with releasing(retain, create_graph):
        known = None if create_graph else taken(results, seeds, targets)
        if known is not None:
            return tuple([_given(t, g, *rest) for t, g in zip(targets, known)])
        live = [(t, _nodes_of(t)) for t in targets]
        found = of_several([(t.uop, c.uop) for t, c in zip(results, seeds)], live)
        made = tuple([_given(t, g if g is None else hooked(t, g), *rest) for t, g in zip(targets, found)])
    return _noted(made, results, targets, grad_outputs) if create_graph else made


def _noted(made: tuple[Tensor | None, ...], *given: Any) -> tuple[Tensor | None, ...]:
    """The gradients, through which others may flow: the call that took them is noted."""
    taken = [t for t in flat(given) if isinstance(t, Tensor)]
    there = [g is not None for g in made]
    note_call(taken, [t.uop for t in taken], [g for g in made if g is not None], _again, (*given, there))
    return made


def _again(results: Several, targets: Several, weights: Any, there: list[bool]) -> list[Any]:
    """The gradients that were there, of a call with other tensors."""
    found = grad(results, targets, weights, True, True, materialize_grads=True)
    return [g for g, kept in zip(found, there, strict=True) if kept]


def _nodes_of(t: Tensor) -> Src:
    return (*leaf_nodes(t), *[n for _, n in earlier_nodes([t])]) if t.is_leaf else leaf_nodes(t)


def _batched(
    results: list[Tensor], targets: list[Tensor], weights: list[Any], create: bool, unused: bool | None, zeros: bool
) -> tuple[Any, ...]:
    """Gradients for each row of the weights, stacked."""
    each = [
        grad(results, targets, [w[i] for w in weights], True, create, True, unused, False, True)
        for i in range(weights[0].shape[0])
    ]
    met: Sequence[Any] = [True] * len(targets)
    if not zeros:
        met = grad(results, targets, [w[0] for w in weights], True, create, True, unused)
    rows = zip(zip(*each), met)
    return tuple([None if m is None else Tensor.stack(gs, dim=0) for gs, m in rows])


def _check_graph(tensors: Sequence[Any], name: str) -> None:
    for t in tensors:
        if not isinstance(t, Tensor):
            raise GradientError(f"autograd.{name}: takes tensors, not {type(t).__name__}; grad(f)(x) is of functions")
        if not t.requires_grad:
            raise GradientError(
                f"autograd.{name}: a tensor of shape {t.shape} does not require a gradient: set requires_grad=True on "
                "what it is computed from before"
            )


def backward(
    tensors: Several,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Several | None = None,
) -> None:
    """`t.backward(...)` of each of `tensors`, weighted by `grad_tensors` where they have several elements.

    Args:
        retain_graph: whether a second `backward` of the same results may follow; None: as `create_graph`.
        create_graph: whether gradients are differentiable themselves.
        inputs: the leaves whose `.grad` is added to; None: all.

    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> backward([(x * x).sum(), x.sum()])
    >>> x.grad
    Tensor([3., 5.], dtype=float32)
    """
    results = _list(tensors)
    weights = _weights(results, grad_tensors, "grad_tensors")
    _check_graph(results, "backward")
    if len(results) == 1:
        results[0].backward(weights[0], retain_graph, create_graph, inputs)
    elif results:
        backward_of(results, weights, retain_graph, create_graph, inputs)


def _given(
    t: Tensor, g: Any, results: list[Tensor], create_graph: bool, allow_unused: bool | None, zeros: bool
) -> Tensor | None:
    if g is None:
        if allow_unused is False or not (allow_unused or zeros):
            raise GradientError(
                f"autograd.grad: no output depends on an input of shape {t.shape}; allow_unused=True gives None for it"
            )
        return Tensor.zeros(*t.shape, dtype=t.dtype, device=t.device) if zeros else None
    if isinstance(g, Tensor):
        return g
    # without create_graph no gradient flows through it, though it is computed of the leaves
    return t._new(g, *results) if create_graph else t._new_plain(ended(g))


def _weights(results: list[Tensor], weights: Any, what: str) -> list[Any]:
    """A cotangent, or None, for each result."""
    given = [None] * len(results) if weights is None else _list(weights)
    if len(given) != len(results):
        raise ShapeError(f"autograd: {len(given)} {what} for {len(results)} tensors")
    return given


# -- torch's older names ----------------------------------------------------------------------------------------------


class _IsTensor(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor)


class Variable(metaclass=_IsTensor):
    """A leaf that shows the values of a tensor, and is a tensor: `data.detach().requires_grad_(requires_grad)`.

    Raises DTypeError for what is no tensor, and for one of integers that is to require a gradient.

    Args:
        data: the tensor; None is one without elements.
        requires_grad: whether `backward` gives it a gradient.
        volatile: without effect, as in torch, and a warning if True: write `with no_grad():`.

    >>> Variable(Tensor([1.0]), requires_grad=True).requires_grad
    True
    """

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        if volatile:
            warnings.warn("Variable: volatile has no effect any more; write with no_grad():", stacklevel=2)
        if data is None:
            data = Tensor([])
        if not isinstance(data, Tensor):
            raise DTypeError(f"Variable: the data is a tensor, not {type(data).__name__}: write tensor(data)")
        x = data.detach()
        return x.requires_grad_() if requires_grad else x


def saved_tensors_hooks(*hooks: Any, **options: Any) -> Any:
    """Raises GradientError: nothing is saved for a backward pass before the compiler decides what is kept and what is
    computed again. `utils.checkpoint` keeps less, whatever `hooks` and `options` are for.
    """
    raise GradientError(
        "saved_tensors_hooks: what a backward pass keeps is the compiler's choice, so there are no tensors to hand to "
        "hooks; an.utils.checkpoint.checkpoint(function, *args) keeps a block's arguments alone"
    )


save_on_cpu = saved_tensors_hooks


class set_detect_anomaly(nullcontext[None]):
    """torch's search for the first nan of a backward pass, as a call or a block; here it only warns.

    Args:
        mode: whether it is wanted. check_nan: ignored.

    >>> with set_detect_anomaly(False):
    ...     total = 2.0
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        if mode:
            warnings.warn(
                "detect_anomaly: has no effect; `anneal check script.py` names the op of the first nan",
                stacklevel=2,
            )
        super().__init__()


class detect_anomaly(set_detect_anomaly):
    """`set_detect_anomaly(True)` as a block.

    Args:
        check_nan: ignored.
    """

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(True, check_nan)
