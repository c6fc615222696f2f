"""The base of transforms, inverses, and transforms one after another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from anneal.distributions import constraints as c
from anneal.errors import MissingMethodError
from anneal.tensor import Tensor

__all__ = ["ComposeTransform", "Transform", "identity_transform"]

Shape = tuple[int, ...]


def summed(x: Tensor, axes: int) -> Tensor:
    """The sum over so many last axes."""
    return x.sum(tuple(range(-axes, 0))) if axes > 0 else x


def tensor_of(x: Any) -> Any:
    return x if isinstance(x, Tensor) else Tensor(x)


class Transform:
    """Base of transforms: subclasses have `domain`, `codomain`, `bijective`, `sign`, `_call`, `_inverse` and
    `log_abs_det_jacobian`.

    Args:
        cache_size: ignored: an inverse is computed whenever it is asked for.

    >>> from anneal.distributions import ExpTransform
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
        return self._call(tensor_of(x))

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
        return a is b or bool((tensor_of(a) == tensor_of(b)).all().item())
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
        parts: the transforms, the first of which comes first. cache_size: ignored.

    >>> from anneal.distributions import AffineTransform, ExpTransform
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
        self.domain = c.over(self.parts[0].domain, n - self.parts[0].domain.event_dim)
        n = self.parts[0].domain.event_dim
        for p in self.parts:
            n = max(n + p.codomain.event_dim - p.domain.event_dim, p.codomain.event_dim)
        self.codomain = c.over(self.parts[-1].codomain, n - self.parts[-1].codomain.event_dim)

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
