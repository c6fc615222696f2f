"""Transforms of random values: functions with inverses that know how they stretch volumes."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from anneal import ops
from anneal.distributions import constraints as c
from anneal.distributions._base import (
    ComposeTransform,
    Distribution,
    Shape,
    Transform,
    identity_transform,
    summed,
    tensor_of,
)
from anneal.distributions._discrete import _soft
from anneal.errors import ArgumentError, MissingMethodError, SettingError, ShapeError
from anneal.linalg import cholesky
from anneal.tensor import Tensor, dtypes

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform", "biject_to",
    "identity_transform", "transform_to",
]  # fmt: skip


class AffineTransform(
    Transform,
    _call=lambda self, x: self.loc + self.scale * x,
    _inverse=lambda self, y: (y - self.loc) / self.scale,
):
    """The line loc + scale * x.

    Args:
        loc: a number or a tensor. scale: the same. event_dim: how many last axes make one event. cache_size: of no
            account.

    >>> AffineTransform(1.0, 2.0)(3.0).item()
    7.0
    """

    bijective = True
    _same = ("loc", "scale", "_events")

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._events = loc, scale, event_dim
        self.domain = self.codomain = c.over(c.real, event_dim)
        if any(not isinstance(n, Tensor) and not hasattr(n, "__float__") for n in (loc, scale)):
            raise ArgumentError(f"AffineTransform: loc and scale are numbers or tensors, not {loc!r} and {scale!r}")
        self.sign = scale.sign() if isinstance(scale, Tensor) else (scale > 0) - (scale < 0)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale
        one = scale.abs().log().expand(*x.shape) if isinstance(scale, Tensor) else x.full_like(math.log(abs(scale)))
        return summed(one, self._events)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return ops.broadcast_shapes(tuple(shape), *[getattr(t, "shape", ()) for t in (self.loc, self.scale)])

    inverse_shape = forward_shape


class ExpTransform(Transform, log_abs_det_jacobian=lambda self, x, y: x):
    """The exponential of x; `cache_size` as of `Transform`.

    >>> ExpTransform().log_abs_det_jacobian(Tensor(2.0), None).item()
    2.0
    """

    bijective, sign, codomain, _same = True, 1, c.positive, ("",)
    _call, _inverse = staticmethod(ops.exp), staticmethod(ops.log)


class SigmoidTransform(
    Transform,
    _call=lambda self, x: _inside(x.sigmoid()),
    log_abs_det_jacobian=lambda self, x, y: x.logsigmoid() - _soft(x),
):
    """The quotient 1 / (1 + exp(-x)), kept off 0 and 1; `cache_size` as of `Transform`.

    >>> SigmoidTransform()(0.0).item()
    0.5
    """

    bijective, sign, codomain, _same = True, 1, c.unit_interval, ("",)

    def _inverse(self, y: Tensor) -> Tensor:
        y = _inside(y)
        return y.log() - (-y).log1p()


class TanhTransform(Transform, log_abs_det_jacobian=lambda self, x, y: 2.0 * (math.log(2.0) - x - _soft(-2.0 * x))):
    """The hyperbolic tangent of x; `cache_size` as of `Transform`.

    >>> TanhTransform()(0.0).item()
    0.0
    """

    bijective, sign, codomain, _same = True, 1, c.interval(-1.0, 1.0), ("",)
    _call, _inverse = staticmethod(ops.tanh), staticmethod(ops.atanh)


class SoftplusTransform(
    Transform,
    _call=lambda self, x: _soft(x),
    _inverse=lambda self, y: (-(-y).expm1()).log() + y,
    log_abs_det_jacobian=lambda self, x, y: x.logsigmoid(),
):
    """The softplus log(1 + exp(x)); `cache_size` as of `Transform`.

    >>> round(SoftplusTransform().inv(2.0).item(), 4)
    1.8546
    """

    bijective, sign, codomain, _same = True, 1, c.positive, ("",)


class PowerTransform(
    Transform,
    _call=lambda self, x: x**self.exponent,
    _inverse=lambda self, y: y ** (1.0 / self.exponent),
    log_abs_det_jacobian=lambda self, x, y: (self.exponent * y / x).abs().log(),
    forward_shape=lambda self, shape: ops.broadcast_shapes(tuple(shape), self.exponent.shape),
    inverse_shape=lambda self, shape: self.forward_shape(shape),
):
    """The power of a positive x.

    Args:
        exponent: a number or a tensor. cache_size: ignored.

    >>> PowerTransform(2.0)(3.0).item()
    9.0
    """

    bijective, domain, codomain, _same = True, c.positive, c.positive, ("exponent",)

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = tensor_of(exponent)
        self.sign = self.exponent.sign()


class AbsTransform(Transform):
    """The magnitude of x, whose inverse is taken to be positive; `cache_size` as of `Transform`.

    >>> AbsTransform()(-2.0).item()
    2.0
    """

    codomain, _same = c.positive, ("",)
    _call, _inverse = staticmethod(ops.abs), staticmethod(ops.positive)


class SoftmaxTransform(Transform):
    """Shares that add up to 1, by their logarithms; `cache_size` as of `Transform`.

    >>> SoftmaxTransform()([0.0, 0.0]).tolist()
    [0.5, 0.5]
    """

    domain, codomain, _same = c.real_vector, c.simplex, ("",)
    _call, _inverse = staticmethod(ops.softmax), staticmethod(ops.log)


class IndependentTransform(
    Transform,
    _call=lambda self, x: self.base_transform._call(x),
    _inverse=lambda self, y: self.base_transform._inverse(y),
    log_abs_det_jacobian=lambda self, x, y: summed(
        self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims
    ),
    forward_shape=lambda self, shape: self.base_transform.forward_shape(shape),
    inverse_shape=lambda self, shape: self.base_transform.inverse_shape(shape),
):
    """A transform of whose values more last axes make one event.

    Args:
        base_transform: that transform. reinterpreted_batch_ndims: how many axes. cache_size: ignored.

    >>> IndependentTransform(ExpTransform(), 1).log_abs_det_jacobian(Tensor([1.0, 2.0]), None).item()
    3.0
    """

    _same = ("base_transform", "reinterpreted_batch_ndims")

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.bijective, self.sign = base_transform.bijective, base_transform.sign
        self.domain = c.over(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = c.over(base_transform.codomain, reinterpreted_batch_ndims)


class ReshapeTransform(
    Transform,
    _call=lambda self, x: x.reshape(self.forward_shape(x.shape)),
    _inverse=lambda self, y: y.reshape(self.inverse_shape(y.shape)),
    forward_shape=lambda self, shape: self._shaped(shape, self.in_shape, self.out_shape),
    inverse_shape=lambda self, shape: self._shaped(shape, self.out_shape, self.in_shape),
):
    """The last axes in another shape.

    Args:
        in_shape: their shape. out_shape: the shape that they get. cache_size: ignored.

    Raises ShapeError for shapes of different numbers of elements.

    >>> ReshapeTransform((4,), (2, 2))(Tensor.zeros(3, 4)).shape
    (3, 2, 2)
    """

    bijective, sign, _same = True, 1, ("in_shape", "out_shape")

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ShapeError(f"ReshapeTransform: {self.in_shape} and {self.out_shape} have other numbers of elements")
        self.domain, self.codomain = (c.over(c.real, len(s)) for s in (self.in_shape, self.out_shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return Tensor.zeros(*x.shape[: x.ndim - len(self.in_shape)], dtype=x.dtype, device=x.device)

    def _shaped(self, shape: Sequence[int], old: Shape, new: Shape) -> Shape:
        cut = len(shape) - len(old)
        if cut < 0 or tuple(shape[cut:]) != old:
            raise ShapeError(f"ReshapeTransform: a tensor of shape {tuple(shape)} does not end in {old}")
        return (*shape[:cut], *new)


class StickBreakingTransform(
    Transform,
    forward_shape=lambda self, shape: (*_ends(self, shape, 1)[:-1], shape[-1] + 1),
    inverse_shape=lambda self, shape: (*_ends(self, shape, 1)[:-1], shape[-1] - 1),
):
    """Shares that add up to 1, each a sigmoid of what those before it leave, so that there is one more of them than of
    numbers; `cache_size` as of `Transform`.

    >>> StickBreakingTransform()([0.0, 0.0]).round(decimals=4).tolist()
    [0.33329999446868896, 0.33329999446868896, 0.33329999446868896]
    """

    bijective, domain, codomain, _same = True, c.real_vector, c.simplex, ("",)

    def _call(self, x: Tensor) -> Tensor:
        z = _inside((x - _left(x)).sigmoid())
        return _padded(z, 0, 1) * _padded((1 - z).cumprod(-1), 1, 0)

    def _inverse(self, y: Tensor) -> Tensor:
        y = _floats(y)
        first = y[..., :-1]
        rest = (1 - first.cumsum(-1)).clamp(min=2.0**y.dtype.least)
        return first.log() - rest.log() + _left(first)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - _left(x)
        return (x.logsigmoid() - x + y[..., :-1].log()).sum(-1)


class LowerCholeskyTransform(
    Transform,
    _call=lambda self, x: x.tril(-1) + x.diagonal(0, -2, -1).exp().diag_embed(),
    _inverse=lambda self, y: y.tril(-1) + y.diagonal(0, -2, -1).log().diag_embed(),
):
    """Lower triangles with positive diagonals, of square matrices; `cache_size` as of `Transform`.

    >>> LowerCholeskyTransform()([[0.0, 5.0], [2.0, 0.0]]).tolist()
    [[1.0, 0.0], [2.0, 1.0]]
    """

    domain, codomain, _same = c.independent(c.real, 2), c.lower_cholesky, ("",)


class PositiveDefiniteTransform(LowerCholeskyTransform):
    """Positive definite matrices: products of `LowerCholeskyTransform`'s with their transposes; `cache_size` as of
    `Transform`.

    >>> PositiveDefiniteTransform()([[0.0, 5.0], [2.0, 0.0]]).tolist()
    [[1.0, 2.0], [2.0, 5.0]]
    """

    codomain = c.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        lower = super()._call(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return super()._inverse(cholesky(y))


class CorrCholeskyTransform(Transform):
    """Cholesky factors of D x D correlation matrices, of vectors of D * (D - 1) / 2 numbers; `cache_size` as of
    `Transform`.

    >>> CorrCholeskyTransform()([0.0]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    bijective, domain, codomain = True, c.real_vector, c.corr_cholesky

    def _call(self, x: Tensor) -> Tensor:
        n = self.forward_shape(x.shape)[-1]
        x = _floats(x)
        eps = 2.0 ** (1 - x.dtype.digits)
        places = [i * (i - 1) // 2 + j if j < i else x.shape[-1] for i in range(n) for j in range(n)]
        whole = _padded(x.tanh().clamp(min=eps - 1, max=1 - eps), 0, 1, 0.0)
        r = whole.index_select(-1, Tensor(places, device=x.device)).reshape(*x.shape[:-1], n, n)
        rest = (1 - r**2).sqrt().cumprod(-1)
        return (r + Tensor.eye(n, dtype=x.dtype, device=x.device)) * _padded(rest[..., :-1], 1, 0)

    def _inverse(self, y: Tensor) -> Tensor:
        rest = _padded((1 - (y * y).cumsum(-1))[..., :-1], 1, 0)
        t = _below(y, 1) / _below(rest, 1).sqrt()
        return (t.log1p() - (-t).log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        rest = _below(1 - (y * y).cumsum(-1), 2)
        return 0.5 * rest.log().sum(-1) - 2 * (x + _soft(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        count = _ends(self, shape, 1)[-1]
        n = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != count:
            raise ShapeError(f"CorrCholeskyTransform: {count} numbers fill no triangle; D * (D - 1) / 2 do")
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        n, m = _ends(self, shape, 2)[-2:]
        if n != m:
            raise ShapeError(f"CorrCholeskyTransform: matrices are square, not of shape {tuple(shape)}")
        return (*shape[:-2], n * (n - 1) // 2)


class StackTransform(Transform):
    """Transforms of the places along an axis, each by its own.

    Args:
        tseq: the transforms. dim: that axis. cache_size: ignored.

    Raises SettingError for what is no transform, ShapeError for a tensor of another number of places.

    >>> StackTransform([ExpTransform(), identity_transform], dim=0)([0.0, 0.0]).tolist()
    [1.0, 0.0]
    """

    lengths: Sequence[int] = ()

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms = self.members = list(tseq)
        if not tseq or not all(isinstance(t, Transform) for t in self.transforms):
            raise SettingError(f"{type(self).__name__}: tseq is of Transforms, not {self.transforms!r}")
        self.dim, self.bijective = dim, all(t.bijective for t in self.transforms)
        self.domain = self._set([t.domain for t in self.transforms])
        self.codomain = self._set([t.codomain for t in self.transforms])

    def _set(self, several: list[c.Constraint]) -> c.Constraint:
        return c.stack(several, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return c.joined([t(part) for t, part in zip(self.transforms, c.parts(self, x), strict=True)], self)

    def _inverse(self, y: Tensor) -> Tensor:
        return c.joined([t.inv(part) for t, part in zip(self.transforms, c.parts(self, y), strict=True)], self)

    def _terms(self, x: Tensor, y: Tensor) -> list[Tensor]:
        each = zip(self.transforms, c.parts(self, x), c.parts(self, y), strict=True)
        return [t.log_abs_det_jacobian(a, b) for t, a, b in each]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return Tensor.stack(self._terms(x, y), self.dim)


class CatTransform(StackTransform):
    """Transforms of stretches along an axis, each by its own.

    Args:
        tseq: the transforms. dim: that axis. lengths: how long each stretch is, 1 where it is not given. cache_size: of
            no account.

    Raises SettingError for what is no transform and for another number of lengths, ShapeError for a tensor of another
    length.

    >>> CatTransform([ExpTransform(), identity_transform], dim=0, lengths=[1, 2])([0.0, 0.0, 3.0]).tolist()
    [1.0, 0.0, 3.0]
    """

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        self.lengths = c.each_length(tseq, lengths)
        super().__init__(tseq, dim, cache_size)

    @property
    def length(self) -> int:
        """The length of all stretches."""
        return sum(self.lengths)

    def _set(self, several: list[c.Constraint]) -> c.Constraint:
        return c.cat(several, self.dim, self.lengths)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        several = zip(self._terms(x, y), self.transforms, strict=True)
        terms = [summed(term, self.event_dim - t.event_dim) for term, t in several]
        dim = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        return Tensor.cat(terms, dim) if dim < 0 else functools.reduce(operator.add, terms)


class CumulativeDistributionTransform(
    Transform,
    _call=lambda self, x: self.distribution.cdf(x),
    _inverse=lambda self, y: self.distribution.icdf(y),
    log_abs_det_jacobian=lambda self, x, y: self.distribution.log_prob(x),
):
    """The probability of what is not above x.

    Args:
        distribution: whose probability it is. cache_size: ignored.

    >>> from anneal.distributions import Normal
    >>> CumulativeDistributionTransform(Normal(0.0, 1.0))(0.0).item()
    0.5
    """

    bijective, sign, codomain = True, 1, c.unit_interval

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution, self.domain = distribution, distribution.support


def _floats(x: Tensor) -> Tensor:
    return x if x.dtype.is_float else x.float()


def _inside(x: Tensor) -> Tensor:
    x = _floats(x)
    return x.clamp(min=2.0**x.dtype.least, max=1.0 - 2.0 ** (1 - x.dtype.digits))


def _padded(x: Tensor, before: int, after: int, value: float = 1.0) -> Tensor:
    return x.pad((before, after), value=value)


def _left(x: Tensor) -> Tensor:
    """The logarithms of how many numbers are left, this one among them."""
    return Tensor.arange(x.shape[-1], 0, -1, dtype=x.dtype, device=x.device).log()


def _below(x: Tensor, diagonal: int) -> Tensor:
    """The elements of matrices on a lower diagonal and below it, row by row."""
    n = x.shape[-1]
    places = [i * n + j for i in range(n) for j in range(i - diagonal + 1)]
    return x.reshape(*x.shape[:-2], n * n).index_select(-1, Tensor(places, dtype=dtypes.int32, device=x.device))


def _ends(of: Transform, shape: Sequence[int], axes: int) -> Shape:
    if len(shape) < axes:
        raise ShapeError(f"{type(of).__name__}: takes tensors of {axes} axes or more, not shape {tuple(shape)}")
    return tuple(shape)


# -- transforms of real numbers to sets of them -----------------------------------------------------------------------


Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """Transforms to constraints, by the constraints' classes.

    >>> transform_to(c.greater_than(2.0))(0.0).item()
    3.0
    """

    def __init__(self) -> None:
        self._registry: dict[type, Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Register a function that makes a transform onto a constraint; without it this is a decorator.

        Args:
            constraint: a constraint, or a class of them. factory: a function of the constraint to a transform.

        Raises ArgumentError for what is no constraint.
        """
        if factory is None:
            return lambda given: self.register(constraint, given)
        kind = type(constraint) if isinstance(constraint, c.Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, c.Constraint)):
            raise ArgumentError(f"register: takes a Constraint or a class of them, not {constraint!r}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: c.Constraint) -> Transform:
        """The transform to the set of a `constraint`. Raises MissingMethodError where none is registered."""
        if type(constraint) not in self._registry:
            raise MissingMethodError(f"no transform to {constraint!r} is registered: register() adds one")
        return self._registry[type(constraint)](constraint)


def _beyond(bound: Any, sign: int) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(bound, sign)])


def _between(of: Any) -> Transform:
    low, high = of.lower_bound, of.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def _registry_of(**own: type[Transform]) -> ConstraintRegistry:
    """A registry of the transforms that both have, and of its own by the names of constraints."""
    registry = ConstraintRegistry()
    rows: dict[Any, Factory] = {
        c.real: lambda of: identity_transform,
        c.greater_than: lambda of: _beyond(of.lower_bound, 1),
        c.greater_than_eq: lambda of: _beyond(of.lower_bound, 1),
        c.less_than: lambda of: _beyond(of.upper_bound, -1),
        c.interval: _between,
        c.half_open_interval: _between,
        c.corr_cholesky: lambda of: CorrCholeskyTransform(),
        c.independent: lambda of: IndependentTransform(registry(of.base_constraint), of.reinterpreted_batch_ndims),
        c.cat: lambda of: CatTransform([registry(one) for one in of.cseq], of.dim, of.lengths),
        c.stack: lambda of: StackTransform([registry(one) for one in of.cseq], of.dim),
    }
    for constraint, factory in rows.items():
        registry.register(constraint, factory)
    for name, made in own.items():
        registry.register(getattr(c, name), lambda of, made=made: made())  # type: ignore[misc]
    return registry


biject_to = _registry_of(simplex=StickBreakingTransform)
transform_to = _registry_of(
    simplex=SoftmaxTransform,
    lower_cholesky=LowerCholeskyTransform,
    positive_definite=PositiveDefiniteTransform,
    positive_semidefinite=PositiveDefiniteTransform,
)
