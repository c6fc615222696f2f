"""Transforms of random values: functions with inverses that know how they stretch volumes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from anneal.distributions import constraints as c
from anneal.errors import MissingMethodError, ShapeError
from anneal.tensor import Tensor

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "ComposeTransform",
    "ExpTransform",
    "IndependentTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]

Shape = tuple[int, ...]


def summed(x: Tensor, axes: int) -> Tensor:
    """The sum over so many last axes."""
    return x.sum(tuple(range(-axes, 0))) if axes > 0 else x


def _tensor(x: Any) -> Any:
    return x if isinstance(x, Tensor) else Tensor(x)


class Transform:
    """Base of transforms: subclasses have `domain`, `codomain`, `bijective`, `sign`, `_call`, `_inverse` and
    `log_abs_det_jacobian`.

    Args:
        cache_size: of no account: an inverse is computed whenever it is asked for.

    >>> ExpTransform()(0.0).item(), ExpTransform().inv(1.0).item()
    (1.0, 0.0)
    """

    bijective: bool = False
    sign: Any = None
    domain: Any = c.real
    codomain: Any = c.real
    _same: ClassVar[tuple[str, ...]] = ()  # attributes that equal transforms have equal

    def __init__(self, cache_size: int = 0) -> None:
        self.cache_size = cache_size

    @property
    def event_dim(self) -> int:
        """The number of last axes that are transformed together."""
        return int(max(self.domain.event_dim, self.codomain.event_dim))

    @property
    def inv(self) -> Transform:
        """The inverse."""
        return _Inverse(self)

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The transform itself, whatever the `cache_size`."""
        return self

    def __call__(self, x: Any) -> Any:
        """The transform of `x`."""
        return self._call(_tensor(x))

    def _call(self, x: Tensor) -> Tensor:
        raise MissingMethodError(f"{type(self).__name__} defines no _call(x): define it")

    def _inverse(self, y: Tensor) -> Tensor:
        raise MissingMethodError(f"{type(self).__name__} has no inverse: define _inverse(y)")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the factor by which volumes grow at `x`, of which `y` is the transform."""
        raise MissingMethodError(f"{type(self).__name__} defines no log_abs_det_jacobian(x, y): define it")

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the transform of a tensor of this `shape`."""
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of what has a transform of this `shape`."""
        return tuple(shape)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not (self._same or self is other):
            return self is other
        return all(_equal(getattr(self, name), getattr(other, name)) for name in self._same if name)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return a is b or bool((_tensor(a) == _tensor(b)).all().item())
    return bool(a == b)


class _Inverse(Transform):
    """The inverse of a transform."""

    _same = ("inv",)

    def __init__(self, of: Transform) -> None:
        super().__init__()
        self._of, self.bijective, self.sign = of, of.bijective, of.sign
        self.domain, self.codomain = of.codomain, of.domain

    @property
    def inv(self) -> Transform:
        return self._of

    def _call(self, x: Tensor) -> Tensor:
        return self._of._inverse(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._of._call(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._of.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return self._of.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        return self._of.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{self._of!r}.inv"


class ComposeTransform(Transform):
    """Transforms one after another.

    Args:
        parts: the transforms, the first of which comes first. cache_size: of no account.

    >>> ComposeTransform([AffineTransform(1.0, 2.0), ExpTransform()])(-0.5).item()
    1.0
    """

    _same = ("parts",)

    def __init__(self, parts: Iterable[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)
        self.bijective = all(p.bijective for p in self.parts)
        if all(p.sign is not None for p in self.parts):
            self.sign = math.prod([p.sign for p in self.parts]) if self.parts else 1
        if not self.parts:
            return
        n = self.parts[-1].codomain.event_dim
        for p in reversed(self.parts):
            n = max(n + p.domain.event_dim - p.codomain.event_dim, p.domain.event_dim)
        self.domain = c.independent(self.parts[0].domain, n - self.parts[0].domain.event_dim)
        n = self.parts[0].domain.event_dim
        for p in self.parts:
            n = max(n + p.codomain.event_dim - p.domain.event_dim, p.codomain.event_dim)
        self.codomain = c.independent(self.parts[-1].codomain, n - self.parts[-1].codomain.event_dim)

    def _call(self, x: Tensor) -> Tensor:
        for p in self.parts:
            x = p(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for p in reversed(self.parts):
            y = p.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        n, total = self.domain.event_dim, x.zeros_like() if not self.parts else None
        for p in self.parts:
            after = p(x)
            term = summed(p.log_abs_det_jacobian(x, after), n - p.domain.event_dim)
            total = term if total is None else total + term
            n += p.codomain.event_dim - p.domain.event_dim
            x = after
        assert total is not None
        return total

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        for p in self.parts:
            shape = p.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        for p in reversed(self.parts):
            shape = p.inverse_shape(shape)
        return tuple(shape)

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts!r})"


identity_transform = ComposeTransform([])
identity_transform.bijective = True


class AffineTransform(Transform):
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
        self.domain = self.codomain = c.independent(c.real, event_dim)
        self.sign = scale.sign() if isinstance(scale, Tensor) else (scale > 0) - (scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        found: Tensor = self.loc + self.scale * x
        return found

    def _inverse(self, y: Tensor) -> Tensor:
        found: Tensor = (y - self.loc) / self.scale
        return found

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale
        one = scale.abs().log().expand(*x.shape) if isinstance(scale, Tensor) else x.full_like(math.log(abs(scale)))
        return summed(one, self._events)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        whole = Tensor.zeros(*shape)
        for t in (self.loc, self.scale):
            if isinstance(t, Tensor):
                whole = whole + t.detach()
        return tuple(whole.shape)

    inverse_shape = forward_shape


class ExpTransform(Transform):
    """The exponential of x; `cache_size` as of `Transform`.

    >>> ExpTransform().log_abs_det_jacobian(Tensor(2.0), None).item()
    2.0
    """

    bijective, sign, codomain, _same = True, 1, c.positive, ("",)

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Any) -> Tensor:
        return x


class SigmoidTransform(Transform):
    """The quotient 1 / (1 + exp(-x)), kept off 0 and 1; `cache_size` as of `Transform`.

    >>> SigmoidTransform()(0.0).item()
    0.5
    """

    bijective, sign, codomain, _same = True, 1, c.unit_interval, ("",)

    def _call(self, x: Tensor) -> Tensor:
        return _inside(x.sigmoid())

    def _inverse(self, y: Tensor) -> Tensor:
        y = _inside(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Any) -> Tensor:
        return -_softplus(-x) - _softplus(x)


class TanhTransform(Transform):
    """The hyperbolic tangent of x; `cache_size` as of `Transform`.

    >>> TanhTransform()(0.0).item()
    0.0
    """

    bijective, sign, codomain, _same = True, 1, c.interval(-1.0, 1.0), ("",)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Any) -> Tensor:
        return 2.0 * (math.log(2.0) - x - _softplus(-2.0 * x))


class SoftplusTransform(Transform):
    """The softplus log(1 + exp(x)); `cache_size` as of `Transform`.

    >>> round(SoftplusTransform().inv(2.0).item(), 4)
    1.8546
    """

    bijective, sign, codomain, _same = True, 1, c.positive, ("",)

    def _call(self, x: Tensor) -> Tensor:
        return _softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Any) -> Tensor:
        return -_softplus(-x)


class PowerTransform(Transform):
    """The power of a positive x.

    Args:
        exponent: a number or a tensor. cache_size: of no account.

    >>> PowerTransform(2.0)(3.0).item()
    9.0
    """

    bijective, domain, codomain, _same = True, c.positive, c.positive, ("exponent",)

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = _tensor(exponent)
        self.sign = self.exponent.sign()

    def _call(self, x: Tensor) -> Tensor:
        found: Tensor = x**self.exponent
        return found

    def _inverse(self, y: Tensor) -> Tensor:
        found: Tensor = y ** (1.0 / self.exponent)
        return found

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = (self.exponent * y / x).abs().log()
        return found

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return tuple((Tensor.zeros(*shape) + self.exponent.detach()).shape)

    inverse_shape = forward_shape


class AbsTransform(Transform):
    """The magnitude of x, whose inverse is taken to be positive; `cache_size` as of `Transform`.

    >>> AbsTransform()(-2.0).item()
    2.0
    """

    codomain, _same = c.positive, ("",)

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class SoftmaxTransform(Transform):
    """Shares that add up to 1, by their logarithms; `cache_size` as of `Transform`.

    >>> SoftmaxTransform()([0.0, 0.0]).tolist()
    [0.5, 0.5]
    """

    domain, codomain, _same = c.real_vector, c.simplex, ("",)

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class IndependentTransform(Transform):
    """A transform of whose values more last axes make one event.

    Args:
        base_transform: that transform. reinterpreted_batch_ndims: how many axes. cache_size: of no account.

    >>> IndependentTransform(ExpTransform(), 1).log_abs_det_jacobian(Tensor([1.0, 2.0]), None).item()
    3.0
    """

    _same = ("base_transform", "reinterpreted_batch_ndims")

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.bijective, self.sign = base_transform.bijective, base_transform.sign
        self.domain = c.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = c.independent(base_transform.codomain, reinterpreted_batch_ndims)

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform._call(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform._inverse(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return summed(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        return self.base_transform.inverse_shape(shape)


class ReshapeTransform(Transform):
    """The last axes in another shape.

    Args:
        in_shape: their shape. out_shape: the shape that they get. cache_size: of no account.

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
        self.domain, self.codomain = (c.independent(c.real, len(s)) for s in (self.in_shape, self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return Tensor.zeros(*x.shape[: x.ndim - len(self.in_shape)], dtype=x.dtype, device=x.device)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return self._shaped(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        return self._shaped(shape, self.out_shape, self.in_shape)

    def _shaped(self, shape: Sequence[int], old: Shape, new: Shape) -> Shape:
        cut = len(shape) - len(old)
        if cut < 0 or tuple(shape[cut:]) != old:
            raise ShapeError(f"ReshapeTransform: a tensor of shape {tuple(shape)} does not end in {old}")
        return (*shape[:cut], *new)


def _softplus(x: Tensor) -> Tensor:
    found: Tensor = x.clamp(min=0.0) + (-x.abs()).exp().log1p()
    return found


def _inside(x: Tensor) -> Tensor:
    return x.clamp(min=1.1754943508222875e-38, max=1.0 - 1.1920928955078125e-07)
