"""In-place ops: `x += y`, `x.add_(y)`, random numbers drawn into a tensor. The tensor itself shows the result."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from anneal.errors import DTypeError, GradientError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import alias, changing, checked, deferred, function
from anneal.ops.checks import broadcast_shapes, flag, is_tensor, of_python, rank
from anneal.ops.elementwise import Operand, beside
from anneal.ops.inputs import wholes
from anneal.ops.nodes import BOOL, Number, broadcast, check_fits, detached, iota, numbered
from anneal.ops.precision import grad_enabled, no_grad
from anneal.ops.random import Generator, bernoulli, normal, rand, randint
from anneal.runtime import Fun, forbid_in_capture, here, is_realized, outdate_captures
from anneal.uop import Op, UOp, by_rule, const


def need_changeable(x: Tensor, name: str) -> None:
    """Raise GradientError for a leaf that requires a gradient and may be part of a graph."""
    if x._wants and x._leaf and grad_enabled():
        raise GradientError(
            f"{name}: a leaf that requires a gradient cannot be changed in place; use .clone() first, or no_grad()"
        )


def changed(x: Tensor, name: str, new: Tensor) -> Tensor:
    """The tensor `x`, which takes the values of `new`, in its own dtype.

    Nodes do not change: what was computed from the old values keeps them, and gradients go on through the old node (`x
    += f(x)` is right). A view that is changed changes what it is a view of (`bases.py`); other views, taken before,
    keep the old values until they are changed. A leaf that requires a gradient cannot be changed while gradients are
    recorded; under `no_grad` it takes the values and stays a leaf.
    """
    old, u = x.uop, new.uop
    if u.shape != old.shape:
        raise ShapeError(
            f"{name}: the result has shape {u.shape}, and a tensor of shape {old.shape} that is changed in place keeps "
            "its shape; write x = x + y for one that grows"
        )
    if rank(u.dtype) > rank(old.dtype):
        raise DTypeError(
            f"{name}: the result is {u.dtype.name}, which a tensor of {old.dtype.name} that is changed in place cannot "
            "hold; cast it before, or write x = x + y"
        )
    u = u.cast(old.dtype)
    if x._base is not None and x._is_part():
        _change_root(x, name, u, new)
        return x
    if grad_enabled() or not x._wants:
        here.tensors.flags += x._wants is not new._wants
        x._wants, x._leaf, x._spent = new._wants, new._leaf, False
        x._take(u)
    elif x._leaf:
        x.assign(x._new_plain(u))
    else:
        # values that nobody records: the gradient goes to what the tensor was computed from, as it did before
        x._take(by_rule("equal", u, old))
    return x


def _change_root(x: Tensor, name: str, u: UOp, new: Tensor) -> None:
    """Let the tensor that `x` is a view of show `u` in its place, and so `x`."""
    link = x._base
    assert link is not None
    root: Any = link.root
    over: Any = link.detached_base() if grad_enabled() else None
    if over is not None and (new._wants or over._wants):
        need_changeable(over, name)
        changed(over, name, over._new(link.recipe.after(over).written(name, over.uop, u), new))
        return
    whole = link.recipe.written(name, root.uop, u)
    if link.recipe.detached or (x._leaf and x._wants):
        with no_grad():
            changed(root, name, root._new_plain(detached(whole) if new._wants else whole))
        if grad_enabled() and (new._wants or x._wants):
            here.tensors.flags += x._wants is not new._wants
            x._wants, x._leaf, x._spent = new._wants, not new._wants, False
            link.graph = None
            x._show(u.then(Op.CONTIGUOUS) if is_realized(u) else u)
            root._outdate_views(over=x)
    else:
        need_changeable(root, name)
        changed(root, name, root._new(whole, new))


def in_place(x: Tensor, name: str, function: Callable[[Tensor], Tensor]) -> Tensor:
    """The tensor `x`, which takes the values of `function(x)`; `name` is for messages. Errors as for `add_`."""
    need_changeable(x, name)
    return changed(x, name, function(x))


def twin(op: Fun, turns: bool = False) -> Fun:
    """The op NAME_, which gives its first tensor the result of `op`, or with `turns` the result's shape, too."""
    name = f"{op.__name__}_"
    change = _changes(op, name, turns)
    change.__module__ = __name__
    what = "takes the result's values, in its own dtype; errors as for `add_`."
    if turns:
        what = """has that shape from now on. Raises ShapeError for a view and a tensor with views, GradientError
    for a leaf that requires a gradient."""
    change.__doc__ = f"{_said(op)}\n\n    In place: the tensor {what}"
    made = checked(change, name)
    return made if turns else deferred(made, change, changes=True)


def _said(op: Fun) -> str:
    """The docstring of an op without its examples."""
    return (op.__doc__ or "").partition(">>>")[0].rstrip()


def flagged(op: Fun, name: str) -> Fun:
    """The op as `nn.functional` has it by that name: NAME_ in place, its own with torch's last argument, `inplace`, and
    any other as an alias.
    """
    own = op.__name__
    if name not in (own, f"{own}_"):
        return alias(op, name)
    change, signature = twin(op), inspect.signature(op)
    example = "".join((op.__doc__ or "").partition(">>>")[1:])
    if name != own:
        change.__doc__ = f"{(change.__doc__ or '').partition('>>>')[0].rstrip()}\n\n    {example}"
        return change
    most = len(signature.parameters)

    @functools.wraps(op)
    def given(*args: Any, inplace: bool = False, **options: Any) -> Any:
        if len(args) > most:
            args, inplace = args[:-1], args[-1]
        if inplace.__class__ is not bool:
            inplace = flag(f"{own}: inplace", inplace)
        return (change if inplace else op)(*args, **options)

    last = inspect.Parameter("inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False, annotation="bool")
    given.__signature__ = signature.replace(parameters=[*signature.parameters.values(), last])  # type: ignore[attr-defined]
    given.__doc__ = (
        f"{_said(op)}\n\n    With `inplace` the tensor itself shows the result; errors as for `add_`.\n\n    {example}"
    )
    return given


def _turned(x: Tensor, op: Fun, name: str, args: Any, options: Any) -> Tensor:
    if x.is_leaf and x.requires_grad:
        raise GradientError(f"{name}: a leaf that requires a gradient keeps its shape; write y = x.{op.__name__}()")
    views = [v for r in x._views or () if (v := r()) is not None and v._base is not None and v._base.root is x]
    if views or (x._base is not None and x._is_part()):
        raise ShapeError(
            f"{name}: a tensor that is a view, or of which there are views, keeps its shape; write "
            f"x = x.{op.__name__}(...)"
        )
    forbid_in_capture(f"{name} of a tensor", f"write x = x.{op.__name__}(...)")
    outdate_captures("a tensor's shape was changed in place")
    new = op(x, *args, **options)
    if new is not x:
        u, link, new._base, x._views = new.uop, new._base, None, None
        if link is not None:
            x._was = link.recipe
        x._take(u)
    return x


def _changes(function: Fun, name: str = "", turns: bool = False) -> Fun:
    """A function in place, from one that gives the values which its tensor takes, or with `turns` its shape, too."""
    name = name or function.__name__

    @functools.wraps(inspect.unwrap(function))
    def change(x: Tensor, *args: Any, **options: Any) -> Tensor:
        if turns:
            return _turned(x, function, name, args, options)
        need_changeable(x, name)
        return changed(x, name, function(x, *args, **options))

    return change


# -- arithmetic -------------------------------------------------------------------------------------------------------


@changing
@function
@_changes
def add_(x: Tensor, other: Operand, alpha: Number = 1) -> Tensor:
    """x + alpha * other in place.

    Raises GradientError for a leaf that requires a gradient outside no_grad, ShapeError for a result of another shape,
    DTypeError for one that is no number of this dtype's kind.

    >>> from anneal.tensor import Tensor
    >>> x = y = Tensor([1.0, 2.0])
    >>> x.add_(10), y
    (Tensor([11., 12.], dtype=float32), Tensor([11., 12.], dtype=float32))
    """
    return x.add(other, alpha)


# -- values -----------------------------------------------------------------------------------------------------------


@changing
@function
@_changes
def copy_(x: Tensor, src: Any) -> Tensor:
    """The values of `src`, broadcast to this shape and cast to this dtype; its gradient goes to `src`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).copy_(Tensor([5.7, 6.2]))
    Tensor([[5, 6],
            [5, 6]], dtype=int32)
    """
    given, shape = x._lift(src), x.uop.shape
    if broadcast_shapes(given.uop.shape, shape) != shape:
        raise ShapeError(f"copy_: values of shape {given.shape} do not fit a tensor of shape {x.shape}")
    return given._new(_beside(broadcast(given.uop.cast(x.uop.dtype), shape), x), x)


@changing
@function
@_changes
@wholes("value")
def fill_(x: Tensor, value: Any) -> Tensor:
    """Fill the tensor with one number, in place: a number, or a tensor of shape ().

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).fill_(3)
    Tensor([3., 3.], dtype=float32)
    """
    check_fits(x.uop.dtype, value)
    given = x._lift(value)
    if given.uop.shape:
        raise ShapeError(f"fill_: the value is one number, not a tensor of shape {given.shape}; copy_ takes those")
    u = broadcast(given.uop.cast(x.uop.dtype), x.uop.shape)
    return given._new(_beside(u, x), x)


@changing
@function
@_changes
def fill_diagonal_(x: Tensor, fill_value: Number, wrap: bool = False) -> Tensor:
    """Fill the main diagonal with one number, in place: of a matrix, or of more axes of one size. With `wrap` the
    diagonal of a matrix begins again below it, after one row.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).fill_diagonal_(0)
    Tensor([[0., 2.],
            [3., 0.]], dtype=float32)
    """
    s = x.shape
    if len(s) < 2 or (len(s) > 2 and len(set(s)) > 1):
        raise ShapeError(f"fill_diagonal_: takes a matrix, or axes of one size, not shape {s}")
    row = iota(s[0], 0, len(s))
    if wrap and len(s) == 2:
        row = row % (s[1] + 1)
    row, hit = broadcast(row, s), broadcast(const(BOOL, True), s)
    for axis in range(1, len(s)):
        hit = hit & row.eq(numbered(s, axis))
    return x.masked_fill(x._new_plain(hit), fill_value)


@changing
@function
@_changes
def zero_(x: Tensor) -> Tensor:
    """Zeros everywhere.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2.0, 4.0]).zero_()
    Tensor([0., 0.], dtype=float32)
    """
    return x._new(_beside(broadcast(const(x.uop.dtype, 0), x.uop.shape), x))


def _beside(u: UOp, x: Tensor) -> UOp:
    """New values that do not depend on the old ones: where a gradient flows to those, it is zero."""
    return beside(u, x) if grad_enabled() else u


_LARGEST = 1.0 - 2.0**-24  # of the uniform numbers in [0, 1)


def _need_float(x: Tensor) -> None:
    if not x.dtype.is_float:
        raise DTypeError(f"draws floats, which a tensor of {x.dtype.name} does not hold; use .float()")


def _between(x: Tensor, generator: Generator | None) -> Tensor:
    """Uniform numbers in (0, 1), float32."""
    return rand(*x.shape, device=x.device, generator=generator).clamp(2.0**-25, _LARGEST)


@function
@_changes
def uniform_(
    x: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None, **named: Any
) -> Tensor:
    """Uniform numbers in [from, to), drawn into this tensor (torch's name `from` is taken, too).

    Raises DTypeError for integers, ShapeError for from > to, GradientError as for `add_`.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor.zeros(3).uniform_(2.0, 3.0)
    >>> bool(((x >= 2) & (x < 3)).all().item())
    True
    """
    _need_float(x)
    low: float = named.pop("from", from_)
    if named:
        raise TypeError(f"uniform_: unexpected argument {next(iter(named))!r}")
    if not low <= to:
        raise ShapeError(f"uniform_: from must not be above to, not {low} and {to}")
    return rand(*x.shape, device=x.device, generator=generator) * (to - low) + low


@function
@_changes
def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Normal numbers of `mean` and standard deviation `std`, drawn into this tensor; errors as for `uniform_`,
    ShapeError for std < 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(3).normal_(5.0, 0.0)
    Tensor([5., 5., 5.], dtype=float32)
    """
    _need_float(x)
    if not std >= 0:
        raise ShapeError(f"normal_: std must not be negative, not {std}")
    return normal(*x.shape, mean=mean, std=std, device=x.device, generator=generator)


@function
@_changes
def log_normal_(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Tensor:
    """exp of normal numbers of `mean` and standard deviation `std`, drawn into this tensor; errors as for `uniform_`.

    >>> from anneal.tensor import Tensor
    >>> (Tensor.zeros(3).log_normal_() > 0).all().item()
    True
    """
    _need_float(x)
    if not std > 0:
        raise ShapeError(f"log_normal_: std must be above 0, not {std}")
    return normal(*x.shape, mean=mean, std=std, device=x.device, generator=generator).exp()


@function
@_changes
def exponential_(x: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Numbers of the exponential distribution of rate `lambd`, drawn into this tensor; errors as for `uniform_`.

    >>> from anneal.tensor import Tensor
    >>> bool((Tensor.zeros(3).exponential_() > 0).all().item())
    True
    """
    _need_float(x)
    if not lambd > 0:
        raise ShapeError(f"exponential_: lambd must be above 0, not {lambd}")
    return _between(x, generator).log() * (-1.0 / lambd)


@function
@_changes
def cauchy_(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Numbers of Cauchy's distribution around its `median`, drawn into this tensor; errors as for `uniform_`.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(3).cauchy_().shape
    (3,)
    """
    _need_float(x)
    if not sigma > 0:
        raise ShapeError(f"cauchy_: sigma must be above 0, not {sigma}")
    return ((_between(x, generator) - 0.5) * math.pi).tan() * sigma + median


@function
@_changes
def geometric_(x: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill this tensor with draws of the geometric distribution: the number of trials, each with probability `p`, up to
    the first success, 1 or more.

    Raises ShapeError for a p that is not in (0, 1), GradientError as for `add_`.

    >>> from anneal.tensor import Tensor
    >>> (Tensor.zeros(3).geometric_(0.5) >= 1).all().item()
    True
    """
    if not 0 < p < 1:
        raise ShapeError(f"geometric_: p must lie between 0 and 1, not {p}")
    drawn = (_between(x, generator).log() * (1 / math.log1p(-p))).ceil()
    return drawn.cast(x.dtype)


@function
@_changes
def bernoulli_(x: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """1 with probability `p`, a number or a tensor that broadcasts, else 0, drawn into this tensor.

    Raises ShapeError for a number that is no chance, GradientError as for `add_`.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(2).bernoulli_(1.0)
    Tensor([1., 1.], dtype=float32)
    """
    if is_tensor(p):
        return bernoulli(p.expand(x.shape), generator=generator).cast(x.dtype)
    if not (isinstance(of_python(p), (int, float)) and 0 <= p <= 1):
        raise ShapeError(f"bernoulli_: p lies in 0 to 1, not {p!r}")
    chosen: Tensor = rand(*x.shape, device=x.device, generator=generator) < p
    return chosen.cast(x.dtype)


@function
@_changes
def random_(x: Tensor, from_: int = 0, to: int | None = None, *, generator: Generator | None = None) -> Tensor:
    """Whole numbers of [from, to), or of [0, from) if `to` is missing, drawn into this tensor.

    Without both: of [0, 2**31 - 1) or, for a narrower dtype, as many as it holds exactly. Errors as for `randint`.

    >>> from anneal.tensor import Tensor
    >>> (Tensor.zeros(3).random_(0, 4) < 4).all().item()
    True
    """
    if to is None and from_:
        from_, to = 0, from_
    if to is None:
        kind = x.dtype
        exact = 1 << (kind.digits if kind.is_float else 1 if kind is BOOL else kind.bits - (kind.kind == "int"))
        to = min(exact, (1 << 31) - 1)
    return randint(from_, to, x.shape, device=x.device, generator=generator).cast(x.dtype)
