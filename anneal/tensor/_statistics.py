"""Statistics: covariance, histograms, order statistics, integrals of samples, distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from anneal.errors import DTypeError, ShapeError
from anneal.ops import axis_of
from anneal.ops.nodes import Number, iota
from anneal.tensor._elementwise import beside
from anneal.tensor._linalg import Linalg
from anneal.tensor._reduce import Axes
from anneal.tensor._views import need_axes
from anneal.uop import const, dtypes

__all__ = ["Statistics"]


class Statistics(Linalg):
    """Statistics of samples."""

    __slots__ = ()

    def cov(self, correction: int = 1) -> Self:
        """The covariances of variables, which are rows; the columns are samples. A vector is one variable; of one, the
        variance.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]).cov()
        Tensor([[ 1. , -0.5],
                [-0.5,  1. ]], dtype=float32)
        """
        if self.ndim > 2 or not self.ndim:
            raise ShapeError(f"cov: takes a vector or a matrix of variables by samples, not shape {self.shape}")
        x = self._new(self._real())
        rows = x if self.ndim == 2 else x.unsqueeze(0)
        apart = rows - rows.mean(1, keepdim=True)
        out: Self = (apart @ apart.T) / max(rows.shape[1] - correction, 0)
        return out if out.shape[0] != 1 else out.reshape(())

    def corrcoef(self) -> Self:
        """The correlations of variables, which are rows: covariances over the standard deviations.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]).corrcoef().round(3)
        Tensor([[1., 1.],
                [1., 1.]], dtype=float32)
        """
        c = self.cov()
        if not c.ndim:
            return c / c
        size = c.diagonal().sqrt()
        return (c / size.unsqueeze(1) / size.unsqueeze(0)).clip(-1.0, 1.0)

    def histc(self, bins: int = 100, min: Number = 0, max: Number = 0) -> Self:
        """How many elements fall into each of `bins` equal parts of [min, max], as floats; others are not counted.

        With both ends equal, as by default, the range is from the least element to the largest, and one less and one
        more of equal ones.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, 2.0, 1.0, 9.0]).histc(4, 0, 3)
        Tensor([0., 2., 1., 0.], dtype=float32)
        """
        if bins < 1 or not min <= max or not math.isfinite(max - min):
            raise ShapeError(f"histc: takes at least 1 bin and min <= max, not {bins} bins from {min} to {max}")
        x = self._new(self._real()).reshape(-1).detach()
        low: Any = float(min)
        high: Any = float(max)
        if min == max and x.numel():
            low, high = x.min(), x.max()
            same = low.eq(high)
            low, high = same._choose(low - 1.0, low), same._choose(high + 1.0, high)
        elif min == max:
            high = low + 1.0
        place = ((x - low) * (float(bins) / (high - low))).floor()
        inside: Self = (x >= low) & (x <= high)
        last = (bins - 1.0) + 0.0 * place  # the upper end belongs to the last part
        index = inside._choose(place.minimum(last), -1.0).cast("int32")
        return index.bincount(bins).cast(x.dtype)

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Self, Self]:
        """The k-th smallest of an axis, from 1 on, and its position.

        >>> from anneal.tensor import Tensor
        >>> Tensor([3, 1, 2]).kthvalue(2)
        (Tensor(2, dtype=int32), Tensor(2, dtype=int32))
        """
        at = axis_of("kthvalue", dim, self.ndim)
        if not self.ndim:
            one, where = self.reshape(1).kthvalue(k, 0)
            return one.reshape(()), where.reshape(())
        if not 1 <= k <= self.shape[at]:
            raise ShapeError(f"kthvalue: k must be 1 to {self.shape[at]} for axis {at} of shape {self.shape}, not {k}")
        place = self.argsort(at).narrow(at, k - 1, 1)
        value = self._gathered(at, place.uop)
        return (value, place) if keepdim else (value.squeeze(at), place.squeeze(at))

    def msort(self) -> Self:
        """`sort` along the first axis, the values only."""
        return self.sort(0)[0]

    def mode(self, dim: int = -1, keepdim: bool = False) -> tuple[Self, Self]:
        """The element that an axis has most often, the smallest of several, and a position of it.

        >>> from anneal.tensor import Tensor
        >>> Tensor([3, 1, 3, 2]).mode()[0].item()
        3
        """
        at = axis_of("mode", dim, self.ndim)
        if not self.ndim:
            return self, self._new_plain(const(dtypes.int32, 0))
        values, places = self.sort(at)
        rows, where = values.movedim(at, -1), places.movedim(at, -1)
        times = rows.unsqueeze(-1).eq(rows.unsqueeze(-2)).sum(-1)
        best = times.argmax(-1, keepdim=True)  # the first: the smallest value
        value, place = (x._taken(best).movedim(-1, at) for x in (rows, where))
        return (value, place) if keepdim else (value.squeeze(at), place.squeeze(at))

    def nanquantile(
        self, q: float | Sequence[float], axis: Axes = None, keepdim: bool = False, *, dim: Axes = None
    ) -> Self:
        """`quantile` of what is not nan, linear between neighbours; nan where everything is.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, float("nan"), 3.0]).nanquantile(0.5).item()
        2.0
        """
        along = axis if axis is not None else dim
        shares = [q] if isinstance(q, (int, float)) else list(q)
        if not shares or not all(0 <= x <= 1 for x in shares):
            raise ShapeError(f"nanquantile: q must lie in 0 to 1, not {q}")
        rows = self._new(self._real())._as_rows("nanquantile", along)
        order, last = rows.argsort(), (~rows.isnan()).sum(-1, True) - 1
        out: list[Any] = []
        for share in shares:
            place = last.maximum(0).cast(rows.dtype) * float(share)
            low = place.floor()
            ends = [rows._taken(order._taken(e.cast("int32"))) for e in (low, place.ceil())]
            between = ends[0] + (ends[1] - ends[0]) * (place - low)
            out.append(self._back(between.squeeze(-1), along, keepdim))
        several: Self = out[0] if isinstance(q, (int, float)) else out[0].stack(*out[1:])
        return several

    def dist(self, other: Any, p: float = 2.0) -> Self:
        """The p-norm of the difference.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, 2.0]).dist(Tensor([4.0, 6.0])).item()
        5.0
        """
        return (self - self._lift("dist", other)).norm(p)

    def renorm(self, p: float, dim: int, maxnorm: Number) -> Self:
        """Slices along an axis, those longer than `maxnorm` scaled down to it.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[3.0, 4.0], [0.3, 0.4]]).renorm(2.0, 0, 1.0).round(2)
        Tensor([[0.6, 0.8],
                [0.3, 0.4]], dtype=float32)
        """
        at = axis_of("renorm", dim, self.ndim)
        size = self.norm(p, [i for i in range(self.ndim) if i != at], keepdim=True)
        return self * (size > float(maxnorm))._choose(float(maxnorm) / (size + 1e-7), 1.0)

    def _steps(self, name: str, x: Any, dx: Number, at: int) -> Any:
        if x is None:
            return float(dx)
        places = self._lift(name, x)
        if places.ndim == 1:
            steps = places.diff()
            return steps.reshape([steps.shape[0] if i == at else 1 for i in range(self.ndim)])
        return places.diff(dim=at)

    def trapezoid(self, x: Any = None, *, dx: Number = 1, dim: int = -1) -> Self:
        """The integral along an axis by the trapezoidal rule, over places `x` or steps of `dx`.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, 2.0, 3.0]).trapezoid().item()
        4.0
        """
        return self._trapezoids("trapezoid", x, dx, dim).sum(dim)

    def cumulative_trapezoid(self, x: Any = None, *, dx: Number = 1, dim: int = -1) -> Self:
        """The running integral along an axis by the trapezoidal rule.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, 2.0, 3.0]).cumulative_trapezoid()
        Tensor([1.5, 4. ], dtype=float32)
        """
        return self._trapezoids("cumulative_trapezoid", x, dx, dim).cumsum(dim)

    def _trapezoids(self, name: str, x: Any, dx: Number, dim: int) -> Self:
        at = axis_of(name, dim, self.ndim)
        need_axes(name, self.shape)
        n = self.shape[at]
        y = self._new(self._real())
        both: Self = (y.narrow(at, 0, max(0, n - 1)) + y.narrow(at, min(1, n), max(0, n - 1))) * 0.5
        out: Self = both * self._steps(name, x, dx, at)
        return out

    def pdist(self, p: float = 2.0) -> Self:
        """The distances of all pairs of rows, those with the first row first.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]).pdist().round(3)
        Tensor([5.   , 1.   , 4.243], dtype=float32)
        """
        if self.ndim != 2:
            raise ShapeError(f"pdist: takes a matrix of points by coordinates, not shape {self.shape}")
        n = self.shape[0]
        pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
        if not pairs:
            return self.reshape(-1)[:0]
        first, second = ([pair[k] for pair in pairs] for k in (0, 1))
        return (self[first] - self[second]).norm(p, 1)

    def vander(self, N: int | None = None, increasing: bool = False) -> Self:
        """The matrix of the powers of a vector's elements, a row for each; the highest first unless `increasing`.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 2, 3]).vander()
        Tensor([[1, 1, 1],
                [4, 2, 1],
                [9, 3, 1]], dtype=int32)
        """
        if self.ndim != 1:
            raise ShapeError(f"vander: takes a vector, not shape {self.shape}")
        count = self.shape[0] if N is None else N
        powers: list[Any] = [self**k for k in range(count)]
        if not powers:
            return self.reshape(-1, 1)[:, :0]
        first, *rest = powers if increasing else powers[::-1]
        out: Self = first.stack(*rest, dim=1)
        return out

    def matrix_power(self, n: int) -> Self:
        """The product of `n` copies of square matrices, the last two axes; by squaring.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 1], [0, 1]]).matrix_power(5)
        Tensor([[1, 5],
                [0, 1]], dtype=int32)
        """
        if self.ndim < 2 or self.shape[-1] != self.shape[-2]:
            raise ShapeError(f"matrix_power: takes square matrices, not shape {self.shape}")
        if n < 0:
            raise DTypeError(f"matrix_power: there is no inverse here, so {n} must not be negative")
        side = self.shape[-1]
        result: Self | None = None
        square = self
        while n:
            if n & 1:
                result = square if result is None else result @ square
            n >>= 1
            square = square @ square if n else square
        if result is not None:
            return result
        i = self._new_plain(iota(side, 0, 2))
        return self._new(beside(i.eq(i.mT).cast(self.dtype).expand(self.shape).uop, self))
