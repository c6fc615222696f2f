"""A distribution: parameters of one batch shape, the shape of an event, formulas that subclasses give; transforms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar, dataclass_transform

from anneal.distributions import constraints as c
from anneal.distributions.constraints import Constraint
from anneal.errors import ArgumentError, GradientError, MissingMethodError, SettingError, ShapeError
from anneal.ops import Explained, broadcast_shapes, guarded, init_of, said
from anneal.runtime import here
from anneal.tensor import Tensor, dtypes, no_grad

Shape = tuple[int, ...]
Formula = Callable[..., Any]
Divergence = TypeVar("Divergence", bound=Callable[[Any, Any], Tensor])
_TABLE: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}  # divergences, by classes


def _absent(name: str) -> Callable[..., Tensor]:
    """A method of which subclasses have their own, if they have `name` at all."""
    return lambda self, *_: self._missing(name)


class Distribution(Explained):
    """Base of distributions: subclasses have `arg_constraints`, a `support` and formulas.

    Args:
        batch_shape: of independent distributions. event_shape: of one draw. validate_args: whether parameters and
            values are checked, which computes them; never within jit and transforms. None: as the class's default,
            which is True.

    >>> from anneal.distributions import Normal
    >>> d = Normal(Tensor([0.0, 1.0]), 1.0)
    >>> d.batch_shape, d.event_shape, d.log_prob(0.0).round(3).tolist()
    ((2,), (), [-0.9190000295639038, -1.4190000295639038])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    support: Any = None
    has_rsample: ClassVar[bool] = False
    has_enumerate_support: ClassVar[bool] = False
    _validates: ClassVar[bool] = True

    def __init_subclass__(
        cls,
        support: Constraint | None = None,
        **row: Constraint | Formula | str,
    ) -> None:
        """A class is a row: the constraints of its parameters, in their order, its support and its formulas.

        Args:
            row: constraints by the parameters' names; `mean`, `mode`, `variance` and `entropy`, functions of the
                distribution (or, but for the last, the name of an attribute), and `values`, those of the support;
                `draw`, of it and a shape, `log` and `cdf`, of it and a value, `icdf`, of it and a probability; `kl`,
                the divergence of it and another of the class.
        """
        super().__init_subclass__()
        if constraints := {name: x for name, x in row.items() if isinstance(x, Constraint)}:
            cls.arg_constraints = constraints
        if support is not None:
            cls.support = support
        for name in row.keys() - constraints.keys():
            formula: Any = row[name]
            if name in ("mean", "mode", "variance"):
                formula = attrgetter(formula) if isinstance(formula, str) else formula
                setattr(cls, name, property(formula, doc=vars(Distribution)[name].__doc__))
            else:
                setattr(cls, f"_{name}", formula)
        if kl := vars(cls).get("_kl"):
            _TABLE[cls, cls] = kl

    def __init__(
        self, batch_shape: Iterable[int] = (), event_shape: Iterable[int] = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = tuple(batch_shape), tuple(event_shape)
        self._checks = type(self)._validates if validate_args is None else validate_args
        self._given: tuple[str, ...] = ()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Check parameters and values by default, or with a false `value` do not."""
        Distribution._validates = value

    def _hold(self, arguments: dict[str, Any]) -> None:
        """Take the parameters among the arguments of `__init__`, numbers too, as attributes of one batch shape."""
        given = {name: value for name, value in arguments.items() if name in self.arg_constraints}
        like = next((v for v in given.values() if isinstance(v, Tensor)), None)
        kept = []
        for name, value in given.items():
            if isinstance(value, Tensor):
                t = value if value.dtype.is_float else value.float()
            elif like is None:
                t = Tensor(value, dtype=dtypes.float32)
            else:
                t = Tensor(value, device=like.device, dtype=like.dtype if like.dtype.is_float else None)
            axes = self.arg_constraints[name].event_dim
            if t.ndim < axes:
                raise ShapeError(f"{type(self).__name__}: {name} has {axes} axes or more, not shape {t.shape}")
            kept.append((t, t.shape[: t.ndim - axes], t.shape[t.ndim - axes :]))
        batch = broadcast_shapes(*[shape for _, shape, _ in kept], name=type(self).__name__)
        for name, (t, _, event) in zip(given, kept, strict=True):
            setattr(self, name, t.expand(*batch, *event) if batch else t)
        Distribution.__init__(self, batch, (), arguments.get("validate_args"))
        self._given = tuple(given)
        self._validate(**{name: getattr(self, name) for name in given})
        self._begin()

    def _begin(self) -> None:
        """Set the attributes that follow from the parameters, which `_hold` has set."""

    def _validate(self, **parameters: Tensor) -> None:
        if not self._checks or here.recordings or here.depth:
            return
        for name, t in parameters.items():
            if not self.arg_constraints[name].check(t.detach()).all().item():
                raise SettingError(
                    f"{type(self).__name__}: {name} is not within {self.arg_constraints[name]}: {t.detach().tolist()}"
                )

    def _tensor(self, value: Any) -> Tensor:
        """A value as a tensor of floats, a number on the parameters' device."""
        if not self._given:  # the distribution is made of other distributions
            return tensor_of(value)
        first = self._first()
        x = value if isinstance(value, Tensor) else Tensor(value, device=first.device, dtype=first.dtype)
        return x if x.dtype.is_float else x.cast(first.dtype)

    def _check_value(self, value: Any, support: Constraint | None = None) -> Tensor:
        """A value as a tensor on the parameters' device. Raises SettingError for one outside `support`, this one's if
        none is given."""
        x, support = self._tensor(value), support or self.support
        if self._checks and not here.recordings and not here.depth and isinstance(support, Constraint):
            if not support.check(x.detach()).all().item():
                raise SettingError(
                    f"{type(self).__name__}: a value is not within its support, {support}: {said(value)}"
                )
        return x

    @property
    def batch_shape(self) -> Shape:
        """The shape of independent distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Shape:
        """The shape of one draw."""
        return self._event_shape

    def expand(self, batch_shape: Iterable[int]) -> Self:
        """The same distribution over a larger batch, `batch_shape`."""
        shape = tuple(batch_shape)
        given = {}
        for name in self._given:
            t: Tensor = getattr(self, name)
            given[name] = t.expand(*shape, *t.shape[t.ndim - self.arg_constraints[name].event_dim :])
        kind: Any = type(self)
        found: Self = kind(**given, **self._settings(), validate_args=False)
        found._checks = self._checks
        return found

    def _settings(self) -> dict[str, Any]:
        """Arguments that are no tensors."""
        return {}

    def _shape(self, sample_shape: Any) -> Shape:
        given = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        return (*given, *self._batch_shape, *self._event_shape)

    def _first(self) -> Any:
        """The first parameter."""
        return getattr(self, self._given[0])

    def _uniform(self, shape: Shape) -> Tensor:
        t = self._first()
        return Tensor.rand(*shape, dtype=t.dtype, device=t.device)

    def _normal(self, shape: Shape) -> Tensor:
        t = self._first()
        return Tensor.randn(*shape, dtype=t.dtype, device=t.device)

    def _exponential(self, shape: Shape) -> Tensor:
        return -(-self._uniform(shape)).log1p()

    # -- what subclasses give, and what follows from it -------------------------------------------------------------

    def _missing(self, name: str) -> NoReturn:
        raise MissingMethodError(f"{type(self).__name__} has no {name}()")

    _draw, _log, _values = _absent("sample"), _absent("log_prob"), _absent("enumerate_support")
    _cdf, _icdf, _entropy = _absent("cdf"), _absent("icdf"), _absent("entropy")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of shape `sample_shape` + batch + event, through which no gradient flows."""
        with no_grad():
            return self._draw(self._shape(sample_shape)).detach()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of shape `sample_shape` + batch + event, through which gradients flow to the parameters.

        Raises MissingMethodError where there is no such draw, GradientError where it has no derivative here.
        """
        if not self.has_rsample:
            self._missing("rsample")
        if not self._flows and any(getattr(self, name).requires_grad for name in self._given):
            raise GradientError(
                f"{type(self).__name__}.rsample: draws from it are not differentiable; use sample(), and "
                "log_prob() for the gradient of a score"
            )
        return self._draw(self._shape(sample_shape))

    _flows: ClassVar[bool] = True  # gradients flow through what `_draw` gives

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability, or of the density, of `value`. Raises SettingError for one outside the
        support.
        """
        return self._log(self._check_value(value))

    def cdf(self, value: Any) -> Tensor:
        """The probability of a draw that is at most `value`."""
        return self._cdf(self._check_value(value))

    def icdf(self, value: Any) -> Tensor:
        """The number that a draw does not exceed with probability `value`."""
        return self._icdf(self._tensor(value))

    def entropy(self) -> Tensor:
        """The mean of -log_prob."""
        return self._entropy()

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    @property
    def mean(self) -> Tensor:
        """The mean of draws."""
        self._missing("mean")

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        self._missing("mode")

    @property
    def variance(self) -> Tensor:
        """The variance of draws."""
        self._missing("variance")

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """The values of the support, along a new first axis; with `expand` for the whole batch."""
        values, event = self._values(), self._event_shape
        rows = values.reshape(-1, *[1] * len(self._batch_shape), *event)
        return rows.expand(-1, *self._batch_shape, *event) if expand else rows

    def __repr__(self) -> str:
        shown = []
        for name in self._given:
            t: Tensor = getattr(self, name)
            shown.append(f"{name}: {t.detach().item() if not t.shape else t.shape}")
        return f"{type(self).__name__}({', '.join(shown)})"


# -- divergences ------------------------------------------------------------------------------------------------------
# Divergences of Kullback and Leibler, by the classes of two distributions.


class Argument:
    """A parameter to type checkers: numbers and tensors are given, a tensor is kept."""

    def __get__(self, of: Any, kind: Any = None) -> Tensor: ...  # type: ignore[empty-body]

    def __set__(self, of: Any, value: Any) -> None: ...


@dataclass_transform(eq_default=False)
class _Dataclass(Distribution):
    """Base by which type checkers take the classes below `Parametric` for dataclasses."""


class Parametric(_Dataclass):
    """Base of distributions whose `__init__` takes their parameters and `validate_args`, and no more."""

    has_rsample = True
    if TYPE_CHECKING:
        _: KW_ONLY
        validate_args: bool | None = None

    def __init_subclass__(cls, **row: Any) -> None:
        super().__init_subclass__(**row)
        if row.keys() & cls.arg_constraints.keys() and "__init__" not in vars(cls):
            kinds = dict.fromkeys(cls.arg_constraints, "Any")
            cls.__annotations__, cls.validate_args = {**kinds, "validate_args": "bool | None"}, None
            cls.__init__ = guarded(init_of(cls, "self._hold(locals())"))  # type: ignore[method-assign]


@guarded
def register_kl(type_p: type, type_q: type) -> Callable[[Divergence], Divergence]:
    """A decorator: the function is the divergence of distributions of the classes `type_p` and `type_q`.

    >>> from anneal.distributions import Normal
    >>> class Mine(Normal):
    ...     pass
    >>> @register_kl(Mine, Mine)
    ... def kl(p, q):
    ...     return Tensor(0.0)
    >>> kl_divergence(Mine(0.0, 1.0), Mine(1.0, 1.0)).item()
    0.0
    """

    if not all(isinstance(kind, type) and issubclass(kind, Distribution) for kind in (type_p, type_q)):
        raise ArgumentError(f"register_kl: takes two classes of distributions, not {type_p!r} and {type_q!r}")

    def keep(function: Divergence) -> Divergence:
        _TABLE[type_p, type_q] = function
        return function

    return keep


def _line(kind: type) -> tuple[type, ...]:
    """The class, and the bases whose divergences are valid for it."""
    line = kind.__mro__
    return line[: next((n for n, above in enumerate(line, 1) if "_apart" in vars(above)), None)]


@guarded
def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The divergence KL(p, q): the mean of log p(x) - log q(x) over draws x of the distribution `p`, `q` being the
    other.

    Raises MissingMethodError for classes without a known divergence.

    >>> from anneal.distributions import Normal
    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
    0.5
    """
    for pair in product(_line(type(p)), _line(type(q))):
        if pair in _TABLE:
            return _TABLE[pair](p, q)
    raise MissingMethodError(
        f"kl_divergence: no formula for {type(p).__name__} and {type(q).__name__}; register_kl adds one"
    )


def nan_like(x: Tensor) -> Tensor:
    return Tensor.full_like(x, math.nan)


# -- transforms -------------------------------------------------------------------------------------------------------
# The base of transforms, inverses, and transforms one after another.


def summed(x: Tensor, axes: int) -> Tensor:
    """The sum over so many last axes."""
    return x.sum(tuple(range(-axes, 0))) if axes > 0 else x


def tensor_of(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else Tensor(x)


class Transform(Explained):
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

    def __init_subclass__(cls, **row: Formula) -> None:
        """A class may be a row of the formulas of its methods, by their names."""
        super().__init_subclass__()
        for name, formula in row.items():
            formula.__doc__ = vars(Transform)[name].__doc__
            setattr(cls, name, formula)

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

    def _call(self, x: Tensor, /) -> Tensor:
        raise MissingMethodError(f"{type(self).__name__} defines no _call(x): define it")

    def _inverse(self, y: Tensor, /) -> Tensor:
        raise MissingMethodError(f"{type(self).__name__} has no inverse: define _inverse(y)")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the factor by which the transform changes volumes at `x`; `y` is the transform of `x`."""
        raise MissingMethodError(f"{type(self).__name__} defines no log_abs_det_jacobian(x, y): define it")

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the transform of a tensor of this `shape`."""
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of a tensor whose transform has this `shape`."""
        return tuple(shape)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not self._same:
            return self is other
        return all(_equal(getattr(self, name), getattr(other, name)) for name in self._same if name)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return a is b or bool((tensor_of(a) == tensor_of(b)).all().item())
    return bool(a == b)


class _Inverse(
    Transform,
    _call=lambda self, x: self._of._inverse(x),
    _inverse=lambda self, y: self._of._call(y),
    log_abs_det_jacobian=lambda self, x, y: -self._of.log_abs_det_jacobian(y, x),
    forward_shape=lambda self, shape: self._of.inverse_shape(shape),
    inverse_shape=lambda self, shape: self._of.forward_shape(shape),
):
    """The inverse of a transform."""

    _same = ("inv",)

    def __init__(self, of: Transform) -> None:
        super().__init__()
        self._of, self.bijective, self.sign = of, of.bijective, of.sign
        self.domain, self.codomain = of.codomain, of.domain

    @property
    def inv(self) -> Transform:
        return self._of

    def __repr__(self) -> str:
        return f"{self._of!r}.inv"


def _widest(pairs: list[tuple[Constraint, Constraint]]) -> Constraint:
    """The last of several sets, each led to the next by a transform, with the event axes that all of them need."""
    n = pairs[0][0].event_dim
    for start, end in pairs:
        n = max(n + end.event_dim - start.event_dim, end.event_dim)
    return c.over(end, n - end.event_dim)


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
        if not all(isinstance(p, Transform) for p in self.parts):
            raise SettingError(f"{type(self).__name__}: parts are Transforms, not {self.parts!r}")
        self.bijective = all(p.bijective for p in self.parts)
        if all(p.sign is not None for p in self.parts):
            self.sign = math.prod([p.sign for p in self.parts])
        if not self.parts:
            return
        self.domain = _widest([(p.codomain, p.domain) for p in reversed(self.parts)])
        self.codomain = _widest([(p.domain, p.codomain) for p in self.parts])

    def _call(self, x: Tensor) -> Tensor:
        for p in self.parts:
            x = p(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for p in reversed(self.parts):
            y = p.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        n, terms = self.domain.event_dim, []
        for p in self.parts:
            after = p(x)
            terms.append(summed(p.log_abs_det_jacobian(x, after), n - p.domain.event_dim))
            n += p.codomain.event_dim - p.domain.event_dim
            x = after
        return sum(terms[1:], terms[0]) if terms else x.zeros_like()

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
