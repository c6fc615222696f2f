"""Random numbers drawn into a tensor: it keeps its shape, its dtype and its device, and no gradient flows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from anneal.errors import DTypeError, ShapeError
from anneal.ops.arguments import function
from anneal.ops.facts import is_tensor
from anneal.ops.inplace import changed, need_changeable
from anneal.ops.random import Generator, bernoulli, normal, rand, randint
from anneal.uop import dtypes

if TYPE_CHECKING:
    from anneal.tensor import Tensor

_LARGEST = 1.0 - 2.0**-24  # of the uniform numbers in [0, 1)


def _need_float(x: Tensor, name: str) -> None:
    need_changeable(x, name)
    if not x.dtype.is_float:
        raise DTypeError(f"{name}: draws floats, which a tensor of {x.dtype.name} does not hold; use .float()")


def _between(x: Tensor, generator: Generator | None) -> Tensor:
    """Uniform numbers in (0, 1), float32."""
    return rand(*x.shape, device=x.device, generator=generator).clamp(2.0**-25, _LARGEST)


@function
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
    _need_float(x, "uniform_")
    low = named.pop("from", from_)
    if named:
        raise TypeError(f"uniform_: unexpected argument {next(iter(named))!r}")
    if not low <= to:
        raise ShapeError(f"uniform_: from must not be above to, not {low} and {to}")
    return changed(x, "uniform_", rand(*x.shape, device=x.device, generator=generator) * (to - low) + low)


@function
def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Normal numbers, drawn into this tensor; errors as for `uniform_`, ShapeError for std < 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(3).normal_(5.0, 0.0)
    Tensor([5., 5., 5.], dtype=float32)
    """
    _need_float(x, "normal_")
    if not std >= 0:
        raise ShapeError(f"normal_: std must not be negative, not {std}")
    return changed(x, "normal_", normal(*x.shape, mean=mean, std=std, device=x.device, generator=generator))


@function
def log_normal_(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Tensor:
    """exp of normal numbers of this mean and deviation, drawn into this tensor; errors as for `uniform_`.

    >>> from anneal.tensor import Tensor
    >>> (Tensor.zeros(3).log_normal_() > 0).all().item()
    True
    """
    _need_float(x, "log_normal_")
    if not std > 0:
        raise ShapeError(f"log_normal_: std must be above 0, not {std}")
    return changed(x, "log_normal_", normal(*x.shape, mean=mean, std=std, device=x.device, generator=generator).exp())


@function
def exponential_(x: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Numbers of the exponential distribution of rate `lambd`, drawn into this tensor; errors as for `uniform_`.

    >>> from anneal.tensor import Tensor
    >>> bool((Tensor.zeros(3).exponential_() > 0).all().item())
    True
    """
    _need_float(x, "exponential_")
    if not lambd > 0:
        raise ShapeError(f"exponential_: lambd must be above 0, not {lambd}")
    return changed(x, "exponential_", _between(x, generator).log() * (-1.0 / lambd))


@function
def cauchy_(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Numbers of Cauchy's distribution, drawn into this tensor; errors as for `uniform_`.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(3).cauchy_().shape
    (3,)
    """
    _need_float(x, "cauchy_")
    if not sigma > 0:
        raise ShapeError(f"cauchy_: sigma must be above 0, not {sigma}")
    return changed(x, "cauchy_", ((_between(x, generator) - 0.5) * math.pi).tan() * sigma + median)


@function
def geometric_(x: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill this tensor with draws of the geometric distribution: the number of trials, each with probability `p`, up to
    the first success, 1 or more.

    Raises ShapeError for a p that is not in (0, 1), GradientError as for `add_`.

    >>> from anneal.tensor import Tensor
    >>> (Tensor.zeros(3).geometric_(0.5) >= 1).all().item()
    True
    """
    need_changeable(x, "geometric_")
    if not 0 < p < 1:
        raise ShapeError(f"geometric_: p must lie between 0 and 1, not {p}")
    drawn = (_between(x, generator).log() * (1 / math.log1p(-p))).ceil()
    return changed(x, "geometric_", drawn.cast(x.dtype))


@function
def bernoulli_(x: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """1 with probability `p`, a number or a tensor that broadcasts, else 0, drawn into this tensor.

    Raises ShapeError for a number that is no chance, GradientError as for `add_`.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(2).bernoulli_(1.0)
    Tensor([1., 1.], dtype=float32)
    """
    need_changeable(x, "bernoulli_")
    if not is_tensor(p) and not (isinstance(p, (int, float)) and 0 <= p <= 1):
        raise ShapeError(f"bernoulli_: p lies in 0 to 1, not {p!r}")
    if is_tensor(p):
        return changed(x, "bernoulli_", bernoulli(p.expand(x.shape), generator=generator).cast(x.dtype))
    return changed(x, "bernoulli_", (rand(*x.shape, device=x.device, generator=generator) < p).cast(x.dtype))


@function
def random_(x: Tensor, from_: int = 0, to: int | None = None, *, generator: Generator | None = None) -> Tensor:
    """Whole numbers of [from, to), or of [0, from) if `to` is missing, drawn into this tensor.

    Without both: of [0, 2**31 - 1) or, for a narrower dtype, as many as it holds exactly. Errors as for `randint`.

    >>> from anneal.tensor import Tensor
    >>> (Tensor.zeros(3).random_(0, 4) < 4).all().item()
    True
    """
    need_changeable(x, "random_")
    if to is None and from_:
        from_, to = 0, from_
    if to is None:
        kind = x.dtype
        exact = 1 << (kind.digits if kind.is_float else 1 if kind is dtypes.bool_ else kind.bits - (kind.kind == "int"))
        to = min(exact, (1 << 31) - 1)
    return changed(x, "random_", randint(from_, to, x.shape, device=x.device, generator=generator).cast(x.dtype))
