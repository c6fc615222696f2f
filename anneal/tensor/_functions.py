"""Functions of real numbers and activations, element by element. Integers and bools become float32 first.

What the devices have is used as it is; the rest are formulas in it that keep a value's digits near 0 and near the ends
of the domain. Where the slope is a short formula of its own, it stands beside the value (SPEC.md, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from anneal.errors import DTypeError, ShapeError
from anneal.ops import in_single
from anneal.ops.nodes import broadcast, reshape, share
from anneal.tensor._elementwise import Elementwise, beside
from anneal.uop import DType, Op, UOp, alu, const, dtypes

__all__ = ["Functions", "polynomial"]

_FLOAT32 = dtypes.float32
_BOOL = dtypes.bool_

Operand = Any  # a tensor, an array or a Python number


class Functions(Elementwise):
    """Elementwise functions; `other` is a tensor, an array or a Python number."""

    __slots__ = ()

    # -- functions of real numbers --------------------------------------------------------------------------------

    def exp(self) -> Self:
        """e ** self.

        >>> from anneal.tensor import Tensor
        >>> Tensor([0, 1]).exp().round(4)
        Tensor([1.    , 2.7183], dtype=float32)
        """
        return self._real_unary(Op.EXP)

    def exp2(self) -> Self:
        """2 ** self."""
        return self._real_unary(Op.EXP2)

    @in_single()
    def expm1(self) -> Self:
        """exp(self) - 1, exact for small values too."""
        # Near 0 the difference cancels.
        x = self._new(self._real())
        if x.uop.dtype.bits == 64:
            # 2t / (1 - t) with t = tanh(x / 2) is the same function and does not
            near = x.abs() < 1.0
            half = (near._choose(x, 0.0) * 0.5)._unary(Op.TANH)
            return near._choose((half + half) / (1.0 - half), x.exp() - 1.0)
        # A GPU's tanh is coarse near 0: there, the series, to the last bit of a float32.
        near = x.abs() < 0.5
        inner = near._choose(x, 0.0)
        return near._choose(inner * polynomial(inner, _EXPM1), x.exp() - 1.0)

    def log(self) -> Self:
        """The natural logarithm; -inf at 0, nan below."""
        return self._real_unary(Op.LOG)

    def log2(self) -> Self:
        """The logarithm to base 2."""
        return self._real_unary(Op.LOG2)

    @in_single()
    def log10(self) -> Self:
        """The logarithm to base 10."""
        return self._real_unary(Op.LOG2) * math.log10(2)

    @in_single()
    def log1p(self) -> Self:
        """log(1 + self), exact for small values too."""
        x = self._new(self._real())
        # 1 + x is rounded, and a GPU's log is coarse next to 1: there, 2 artanh(x / (2 + x)) by its series, to the last
        # bit.
        near = x.abs() < 0.25
        inner = near._choose(x, 0.0)
        s = inner / (inner + 2.0)
        series = s * polynomial(s * s, _ARTANH if x.uop.dtype.bits == 64 else _ARTANH[-5:])
        return near._choose(series, (1.0 + x).log())

    def sqrt(self) -> Self:
        """The square root; nan below 0."""
        return self._real_unary(Op.SQRT)

    def rsqrt(self) -> Self:
        """1 / sqrt(self)."""
        return self._real_unary(Op.RSQRT)

    def reciprocal(self) -> Self:
        """1 / self."""
        return self._inverse()

    def square(self) -> Self:
        """self * self."""
        return self * self

    def sin(self) -> Self:
        """The sine of an angle in radians."""
        return self._real_unary(Op.SIN)

    def cos(self) -> Self:
        """The cosine of an angle in radians."""
        return self._real_unary(Op.COS)

    def tan(self) -> Self:
        """The tangent of an angle in radians."""
        return self._real_unary(Op.TAN)

    def tanh(self) -> Self:
        """The hyperbolic tangent."""
        return self._real_unary(Op.TANH)

    def sinh(self) -> Self:
        """The hyperbolic sine."""
        return self._by_slope(lambda x: (_sinh(x), _cosh(x)))

    def cosh(self) -> Self:
        """The hyperbolic cosine."""
        return self._by_slope(lambda x: (_cosh(x), _sinh(x)))

    def erf(self) -> Self:
        """The error function."""
        return self._real_unary(Op.ERF)

    def erfc(self) -> Self:
        """1 - erf(self), which keeps its digits where erf is near 1.

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.0, 1.0]).erfc().round(4)
        Tensor([1.    , 0.1573], dtype=float32)
        """

        def both(x: Self) -> tuple[Self, Self]:
            tail = _upper_tail(x.abs().minimum(40.0))
            return (x < 0.0)._choose(2.0 - tail, tail), (x * x).neg().exp() * (-2 / math.sqrt(math.pi))

        return self._by_slope(both)

    def erfinv(self) -> Self:
        """The inverse of erf: infinite at -1 and 1, nan beyond.

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.0, 0.5]).erfinv().round(4)
        Tensor([0.    , 0.4769], dtype=float32)
        """

        def both(x: Self) -> tuple[Self, Self]:
            end = x.abs().eq(1.0)
            inner = end._choose(0.0, x)
            w = -((1.0 - inner) * (1.0 + inner)).log()
            far = w >= 5.0
            near = polynomial(far._choose(0.0, w) - 2.5, _ERFINV)
            y = inner * far._choose(polynomial(far._choose(w, 5.0).sqrt() - 3.0, _ERFINV_FAR), near)
            if x.uop.dtype.bits == 64:
                for _ in range(2):  # Newton's steps, from the side that keeps its digits
                    size, flat = y.abs(), (y * y).exp() * (math.sqrt(math.pi) / 2)
                    lower, upper = size.erf() - inner.abs(), (1.0 - inner.abs()) - _upper_tail(size)
                    step = (size < 0.5)._choose(lower, upper) * flat
                    y = (y < 0.0)._choose(y + step, y - step)
            slope = (y * y).exp() * (math.sqrt(math.pi) / 2)
            return end._choose(x * math.inf, y), end._choose(math.inf, slope)

        return self._by_slope(both)

    @in_single()
    def logaddexp(self, other: Operand) -> Self:
        """log(exp(self) + exp(other)), without overflow.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1000.0]).logaddexp(Tensor([1000.0])).round(1)
        Tensor([1000.7], dtype=float32)
        """
        o = self._lift("logaddexp", other)
        top = self.maximum(o).detach()
        safe = top.isinf()._choose(0.0, top)
        return ((self - safe).exp() + (o - safe).exp()).log() + safe

    # -- inverse and further functions ----------------------------------------------------------------------------

    def _by_slope(self, function: Callable[[Self], tuple[Self, Self]]) -> Self:
        """A function given as its value and its slope, both made of this tensor as float32 or wider."""
        u = self._real()
        x = self._new(u if u.dtype.bits >= 32 else u.cast(_FLOAT32))
        value, slope = function(x)
        return self._new(UOp(Op.COMPOSITE, x.dtype, (value.uop, x.uop, slope.uop), ("slope", ())).cast(u.dtype))

    def asin(self) -> Self:
        """The angle from -pi/2 to pi/2 with this sine; nan outside [-1, 1].

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.0, 0.5, 1.0]).asin().round(4)
        Tensor([0.    , 0.5236, 1.5708], dtype=float32)
        """

        def both(x: Self) -> tuple[Self, Self]:
            square = (1.0 - x) * (1.0 + x)
            return _arc(x / (1.0 + square.sqrt())) * 2.0, square.rsqrt()

        return self._by_slope(both)

    def acos(self) -> Self:
        """The angle from 0 to pi with this cosine; nan outside [-1, 1].

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, 0.5, -1.0]).acos().round(4)
        Tensor([0.    , 1.0472, 3.1416], dtype=float32)
        """

        def both(x: Self) -> tuple[Self, Self]:
            # from the distance to 1, which keeps its digits: pi/2 - asin(x) would lose them
            size = x.abs()
            angle = _arc(((1.0 - size) / (1.0 + size)).sqrt()) * 2.0
            return (x < 0.0)._choose(math.pi - angle, angle), -((1.0 - x) * (1.0 + x)).rsqrt()

        return self._by_slope(both)

    def atan(self) -> Self:
        """The angle from -pi/2 to pi/2 with this tangent.

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.0, 1.0, -1e9]).atan().round(4)
        Tensor([ 0.    ,  0.7854, -1.5708], dtype=float32)
        """

        def both(x: Self) -> tuple[Self, Self]:
            steep = x.abs() > 1.0
            angle = _arc(steep._choose(1.0 / steep._choose(x, 1.0), x))
            return steep._choose(_signed(math.pi / 2, x) - angle, angle), 1.0 / (1.0 + x * x)

        return self._by_slope(both)

    def atan2(self, other: Operand) -> Self:
        """The angle from -pi to pi of the point (other, self): its tangent is self / other.

        The signs of zeros and infinities count as in NumPy. At (0, 0) the gradient is 0.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, 1.0]).atan2(Tensor([1.0, -1.0])).round(4)
        Tensor([0.7854, 2.3562], dtype=float32)
        """
        y, x, dtype = self._as_reals("atan2", other)
        height, width = y.abs(), x.abs()
        steep = height > width
        # the smaller over the larger; equal sizes (infinities among them) are 1 or -1, and (0, 0) has no slope
        same = height.eq(width) & (width.isinf() | width.eq(0.0))
        above, below = steep._choose(x, y), same._choose(1.0, steep._choose(y, x))
        corner = width.isinf()._choose((_negative(y) ^ _negative(x))._choose(-1.0, 1.0), y.detach())
        angle = same._choose(corner, same._choose(0.0, above) / below).atan()
        quarter, half = _signed(math.pi / 2, y), _signed(math.pi, y)
        return steep._choose(quarter - angle, _negative(x)._choose(angle + half, angle)).cast(dtype)

    def asinh(self) -> Self:
        """The inverse of sinh.

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.0, 1.0, -1e9]).asinh().round(4)
        Tensor([  0.    ,   0.8814, -21.4164], dtype=float32)
        """

        def both(x: Self) -> tuple[Self, Self]:
            size = x.abs()
            far = size > _FAR
            a = far._choose(1.0, size)
            square = a * a
            near = (a + square / (1.0 + (1.0 + square).sqrt())).log1p()
            value = far._choose(far._choose(size, 1.0).log() + math.log(2), near)
            return _negative(x)._choose(-value, value), 1.0 / far._choose(size, (1.0 + square).sqrt())

        return self._by_slope(both)

    def acosh(self) -> Self:
        """The inverse of cosh for what is at least 1; nan below.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, 2.0]).acosh().round(4)
        Tensor([0.   , 1.317], dtype=float32)
        """

        def both(x: Self) -> tuple[Self, Self]:
            far = x > _FAR
            a = far._choose(1.0, x) - 1.0
            near = (a + (a * (a + 2.0)).sqrt()).log1p()
            value = far._choose(far._choose(x, 1.0).log() + math.log(2), near)
            return (x < 1.0)._choose(math.nan, value), (x - 1.0).rsqrt() * (x + 1.0).rsqrt()

        return self._by_slope(both)

    def atanh(self) -> Self:
        """The inverse of tanh; infinite at -1 and 1, nan beyond.

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.0, 0.5]).atanh().round(4)
        Tensor([0.    , 0.5493], dtype=float32)
        """

        def both(x: Self) -> tuple[Self, Self]:
            size = x.abs()
            end = size >= 1.0
            a = end._choose(0.0, size)
            value = (a * 2.0 / (1.0 - a)).log1p() * 0.5
            value = end._choose((size > 1.0)._choose(x * 0.0 + math.nan, math.inf), value)
            return _negative(x)._choose(-value, value), 1.0 / ((1.0 - x) * (1.0 + x))

        return self._by_slope(both)

    arcsin = asin
    arccos = acos
    arctan = atan
    arctan2 = atan2
    arcsinh = asinh
    arccosh = acosh
    arctanh = atanh

    def cbrt(self) -> Self:
        """The cube root, of negative numbers too.

        >>> from anneal.tensor import Tensor
        >>> Tensor([27.0, -8.0]).cbrt().round(4)
        Tensor([ 3., -2.], dtype=float32)
        """

        def both(x: Self) -> tuple[Self, Self]:
            size = x.abs()
            plain = size.eq(0.0) | ~x.isfinite()
            a = plain._choose(1.0, size)
            root = (a.log2() * (1 / 3)).exp2()
            root = root - (root - a / (root * root)) * (1 / 3)  # one step of Newton's: exact to the last bits
            return plain._choose(x, (x < 0.0)._choose(-root, root)), size ** (-2 / 3) * (1 / 3)

        return self._by_slope(both)

    def hypot(self, other: Operand) -> Self:
        """sqrt(self**2 + other**2), without overflow.

        >>> from anneal.tensor import Tensor
        >>> Tensor([3.0, 3e30]).hypot(Tensor([4.0, 4e30]))
        Tensor([5.e+00, 5.e+30], dtype=float32)
        """
        x, y, dtype = self._as_reals("hypot", other)
        # Scaled by the larger of the two, which stands for a constant: the result does not depend on it.
        scale = x.detach().abs().maximum(y.detach().abs())
        scale = (scale.eq(0.0) | ~scale.isfinite())._choose(1.0, scale)
        a, b = x / scale, y / scale
        return (x.isinf() | y.isinf())._choose(math.inf, (a * a + b * b).sqrt() * scale).cast(dtype)

    def _as_reals(self, name: str, other: Operand) -> tuple[Self, Self, DType]:
        """Both operands as floats of 32 bits or more and of one shape, and the dtype of the result."""
        a, b, shape, o = self._meet(name, other)
        dtype = a.dtype if a.dtype.is_float else _FLOAT32
        wide = dtype if dtype.bits >= 32 else _FLOAT32
        return self._new(broadcast(a.cast(wide), shape)), o._new(broadcast(b.cast(wide), shape)), dtype  # type: ignore[return-value]

    def signbit(self) -> Self:
        """Whether the sign is negative; true for -0.0.

        >>> from anneal.tensor import Tensor
        >>> Tensor([-0.0, 0.0, -2.0]).signbit()
        Tensor([ True, False,  True], dtype=bool)
        """
        x = self if self.uop.dtype.bits >= 32 or not self.uop.dtype.is_float else self.cast(_FLOAT32)
        return x._new_plain(_negative(x).uop) if x.uop.dtype.is_float else x < 0

    def copysign(self, other: Operand) -> Self:
        """The size of self with the sign of other.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, -2.0]).copysign(-1.0)
        Tensor([-1., -2.], dtype=float32)
        """
        x, y, dtype = self._as_reals("copysign", other)
        apart: Self = _negative(x) ^ _negative(y)
        # at 0 the size has no slope, as in torch
        slope: Self = x.eq(0.0)._choose(0.0, apart._choose(-1.0, 1.0))
        u = UOp(Op.COMPOSITE, x.dtype, (apart._choose(-x, x).uop, x.uop, slope.uop), ("slope", ()))
        return x._new(beside(u, y), y).cast(dtype)

    def xlogy(self, other: Operand) -> Self:
        """self * log(other), 0 where self is 0.

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.0, 2.0]).xlogy(Tensor([0.0, 1.0]))
        Tensor([0., 0.], dtype=float32)
        """
        x, y, dtype = self._as_reals("xlogy", other)
        # where x is 0 and the logarithm is finite, it is the slope all the same
        still = x.eq(0.0) & (y.le(0.0) | y.eq(math.inf))
        return still._choose(0.0, x * still._choose(1.0, y).log()).cast(dtype)

    @in_single()
    def logit(self, eps: float | None = None) -> Self:
        """log(x / (1 - x)), the inverse of sigmoid; with `eps`, x is clipped to [eps, 1 - eps] first.

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.5, 0.75]).logit().round(4)
        Tensor([0.    , 1.0986], dtype=float32)
        """
        x = self._new(self._real())
        if eps is not None:
            x = (x < eps)._choose(eps, (x > 1 - eps)._choose(1 - eps, x))
        return x.log() - (-x).log1p()

    def sinc(self) -> Self:
        """sin(pi x) / (pi x), 1 at 0.

        >>> from anneal.tensor import Tensor
        >>> Tensor([0.0, 0.5]).sinc().round(4)
        Tensor([1.    , 0.6366], dtype=float32)
        """

        def both(x: Self) -> tuple[Self, Self]:
            # from the distance to the nearest integer, which is exact, where pi * x would be rounded
            size = x.abs()
            whole = size.round()
            odd = (whole - (whole * 0.5).floor() * 2.0).ne(0.0)
            angle, t = odd._choose(whole - size, size - whole) * math.pi, size * math.pi
            near, zero = t < 0.5, t.eq(0.0)
            value, cosine = zero._choose(1.0, angle.sin() / zero._choose(1.0, t)), angle.cos()
            # next to 0 the difference cancels
            inner = near._choose(x, 0.0) * math.pi
            series = inner * polynomial(inner * inner, _SINC) * math.pi
            return value, near._choose(series, (odd._choose(-cosine, cosine) - value) / near._choose(1.0, x))

        return self._by_slope(both)

    def deg2rad(self) -> Self:
        """Degrees as radians."""
        return self._new(self._real()) * (math.pi / 180)

    def rad2deg(self) -> Self:
        """Radians as degrees."""
        return self._new(self._real()) * (180 / math.pi)

    def heaviside(self, values: Operand) -> Self:
        """0 below 0, 1 above, `values` at 0; nan stays nan.

        >>> from anneal.tensor import Tensor
        >>> Tensor([-1.0, 0.0, 2.0]).heaviside(0.5)
        Tensor([0. , 0.5, 1. ], dtype=float32)
        """
        return self.eq(0)._choose(values, self.sign().maximum(0))

    # -- activations ----------------------------------------------------------------------------------------------

    @in_single()
    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x))."""
        return self._new(_logistic(alu(Op.NEG, (self._real(),))))

    @in_single()
    def logsigmoid(self) -> Self:
        """log(sigmoid(x)), without overflow."""
        return -((-self).softplus())

    def relu(self) -> Self:
        """max(x, 0); its slope at 0 is 0.

        >>> from anneal.tensor import Tensor
        >>> Tensor([-1.0, 2.0]).relu()
        Tensor([0., 2.], dtype=float32)
        """
        return self if self.uop.dtype is _BOOL else self._binary("relu", Op.MAX, 0)

    def relu6(self) -> Self:
        """min(max(x, 0), 6)."""
        return self._clip(0, 6)

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """x above 0, negative_slope * x elsewhere."""
        x = self._new(self._real())
        return (x > 0.0)._choose(x, x * negative_slope)

    @in_single()
    def elu(self, alpha: float = 1.0) -> Self:
        """x above 0, alpha * (exp(x) - 1) elsewhere."""
        x = self._new(self._real())
        above = x > 0.0
        # where x is taken the other branch sees 0, so that it cannot overflow and spoil the gradient
        return above._choose(x, above._choose(0.0, x).expm1() * alpha)

    @in_single()
    def celu(self, alpha: float = 1.0) -> Self:
        """x above 0, alpha * (exp(x / alpha) - 1) elsewhere."""
        x = self._new(self._real())
        above = x > 0.0
        return above._choose(x, (above._choose(0.0, x) / alpha).expm1() * alpha)

    @in_single()
    def selu(self) -> Self:
        """The self-normalising exponential unit (Klambauer et al., 2017)."""
        return self.elu(1.6732632423543772) * 1.0507009873554805

    @in_single()
    def silu(self) -> Self:
        """x * sigmoid(x), also called swish."""
        x = self._new(self._real())
        return x * x.sigmoid()

    swish = silu

    @in_single()
    def gelu(self, approximate: str = "none") -> Self:
        """x times the normal distribution function of x; approximate="tanh" for the usual approximation.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0]).gelu().round(4), Tensor([1.0]).gelu("tanh").round(4)
        (Tensor([0.8413], dtype=float32), Tensor([0.8412], dtype=float32))
        """
        # y = x * h; both slopes are written with h, which the backward pass then finds in memory
        x = self._real()
        if approximate == "none":
            h = alu(Op.ERF, (x * (1 / math.sqrt(2)),)) * 0.5 + 0.5
            slope = alu(Op.EXP, (x * x * -0.5,)) * x * (1 / math.sqrt(2 * math.pi)) + h
        elif approximate == "tanh":
            k0 = math.sqrt(2 / math.pi)
            k1 = 0.044715 * k0
            square = x * x
            # (1 + tanh(u)) / 2, as the sigmoid of 2u: exact far below 0 too, and cheaper than tanh
            h = alu(Op.RECIP, (alu(Op.EXP, (x * (square * (-2 * k1) - 2 * k0),)) + 1.0,))
            # (1 - h) * h is 0 long before the square, which may overflow, ends here
            slope = (1 - h) * h * x * (alu(Op.MIN, (square, square.const_like(1024))) * (6 * k1) + 2 * k0) + h
        else:
            raise DTypeError(f'gelu: approximate is "none" or "tanh", not {approximate!r}')
        return self._new(UOp(Op.COMPOSITE, x.dtype, (x * h, x, slope), ("slope", ())))

    @in_single()
    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Self:
        """log(1 + exp(beta * x)) / beta; x itself where beta * x passes the threshold."""
        x = self._new(self._real())
        scaled = x if beta == 1.0 else x * beta
        bent, far = scaled.minimum(threshold), scaled > threshold
        e = bent.exp()
        value = far._choose(x, e.log1p() if beta == 1.0 else e.log1p() / beta)
        inverse = UOp(Op.COMPOSITE, e.dtype, (alu(Op.RECIP, (e.uop + 1.0,)), scaled.uop, e.uop), ("inverse", 1.0))
        slope = far._choose(1.0, self._new_plain(share(inverse, scaled.uop, e.uop, 1.0)))
        return self._new(UOp(Op.COMPOSITE, x.dtype, (value.uop, x.uop, slope.uop), ("slope", ())))

    @in_single()
    def softsign(self) -> Self:
        """x / (1 + |x|)."""
        return self / (self.abs() + 1)

    @in_single()
    def mish(self) -> Self:
        """x * tanh(softplus(x))."""
        return self * self.softplus().tanh()

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """x clipped to [min_val, max_val]."""
        return self._clip(min_val, max_val)

    @in_single()
    def hardsigmoid(self) -> Self:
        """relu6(x + 3) / 6."""
        return (self + 3.0).relu6() / 6.0

    @in_single()
    def hardswish(self) -> Self:
        """x * relu6(x + 3) / 6."""
        return self * self.hardsigmoid()

    def softshrink(self, lambd: float = 0.5) -> Self:
        """x moved towards 0 by `lambd`, 0 where it would pass it.

        >>> from anneal.tensor import Tensor
        >>> Tensor([-1.0, 0.25, 2.0]).softshrink()
        Tensor([-0.5,  0. ,  1.5], dtype=float32)
        """
        x = self._new(self._real())
        return (x > lambd)._choose(x - lambd, (x < -lambd)._choose(x + lambd, x * 0.0))

    def hardshrink(self, lambd: float = 0.5) -> Self:
        """x where |x| > lambd, 0 elsewhere."""
        return (self.abs() <= lambd)._choose(0, self)

    @in_single()
    def tanhshrink(self) -> Self:
        """x - tanh(x)."""
        return self - self.tanh()

    def threshold(self, threshold: float, value: float) -> Self:
        """x above `threshold`, `value` elsewhere."""
        return (self <= threshold)._choose(value, self)

    def prelu(self, weight: Operand) -> Self:
        """x above 0, weight * x elsewhere; a weight of several elements goes along axis 1.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[-2.0, -2.0]]).prelu(Tensor([0.5, 0.25]))
        Tensor([[-1. , -0.5]], dtype=float32)
        """
        x = self._new(self._real())
        w = self._lift("prelu", weight)
        if w.shape == (1,):
            w = w._new(reshape(w.uop, ()))
        if w.ndim == 1:
            if x.ndim < 2 or x.shape[1] != w.shape[0]:
                raise ShapeError(f"prelu: a weight of shape {w.shape} needs axis 1 of {x.shape} to be as long")
            w = w._new(reshape(w.uop, (w.shape[0], *[1] * (x.ndim - 2))))
        return (x > 0.0)._choose(x, x * w)


_FAR = 2.0**28  # beyond this, sqrt(x * x + 1) is x to the last bit of a float64, and x * x may overflow a float32

_ARTANH = tuple([2 / (2 * n + 1) for n in range(11, -1, -1)])  # 2 artanh(s) / s by powers of s * s
# the derivative of sin(t) / t, over t, by powers of t * t
_SINC = tuple([(-1) ** n * 2 * n / math.factorial(2 * n + 1) for n in range(8, 0, -1)])
_SINH = tuple([1 / math.factorial(2 * n + 1) for n in range(10, -1, -1)])  # sinh(x) / x by powers of x * x
_EXPM1 = tuple([1 / math.factorial(n) for n in range(9, 0, -1)])  # (exp(x) - 1) / x by powers of x

# erfc(x) = t exp(-x * x + T(4t - 2)) with t = 2 / (2 + x), for x >= 0: the Chebyshev series T (Numerical Recipes).
_ERFC = (
    -1.3026537197817094,
    6.4196979235649026e-1,
    1.9476473204185836e-2,
    -9.561514786808631e-3,
    -9.46595344482036e-4,
    3.66839497852761e-4,
    4.2523324806907e-5,
    -2.0278578112534e-5,
    -1.624290004647e-6,
    1.303655835580e-6,
    1.5626441722e-8,
    -8.5238095915e-8,
    6.529054439e-9,
    5.059343495e-9,
    -9.91364156e-10,
    -2.27365122e-10,
    9.6467911e-11,
    2.394038e-12,
    -6.886027e-12,
    8.94487e-13,
    3.13092e-13,
    -1.12708e-13,
    3.81e-16,
    7.106e-15,
    -1.523e-15,
    -9.4e-17,
    1.21e-16,
    -2.8e-17,
)
# erfinv(x) = x P(w - 2.5), or x P(sqrt(w) - 3) from w = 5, with w = -log(1 - x * x), to a float32 (Giles, 2010).
_ERFINV = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
_ERFINV_FAR = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)
# atan(x) = x + x z P(z) / Q(z) with z = x * x, for |x| <= 0.66 (Moshier's Cephes).
_ATAN_P = (
    -8.750608600031904122785e-1,
    -1.615753718733365076637e1,
    -7.500855792314704667340e1,
    -1.228866684490136173410e2,
    -6.485021904942025371773e1,
)
_ATAN_Q = (
    1.0,
    2.485846490142306297962e1,
    1.650270098316988542046e2,
    4.328810604912902668951e2,
    4.853903996359136964868e2,
    1.945506571482613964425e2,
)
# The same for float32, |x| <= 0.42: atan(x) = x + x z P(z).
_ATAN_P32 = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)


def _half_exp(x: Functions) -> Any:
    """exp(x) / 2 for x >= 0, finite to the end of sinh and cosh. From 0.5 on, x - 1 is exact."""
    return (x - 1.0).exp() * (math.e / 2)


def _cosh(x: Functions) -> Any:
    half = _half_exp(x.abs())
    return half + 0.25 / half


def _sinh(x: Functions) -> Any:
    size = x.abs()
    near = size < 1.0
    inner, half = near._choose(x, 0.0), _half_exp(near._choose(1.0, size))
    far = half - 0.25 / half
    table = _SINH if x.uop.dtype.bits == 64 else _SINH[-6:]
    return near._choose(inner * polynomial(inner * inner, table), _negative(x)._choose(-far, far))


def _logistic(x: UOp) -> UOp:
    """1 / (1 + exp(x)): the sigmoid of -x."""
    e = alu(Op.EXP, (x,))
    v = alu(Op.RECIP, (e + 1.0,))
    return UOp(Op.COMPOSITE, v.dtype, (v, x, e), ("inverse", 1.0))


def _arc(x: Functions) -> Any:
    """atan(x) for |x| <= 1."""
    size = x.abs()
    outer = size > 0.42
    t = outer._choose((size - 1.0) / (size + 1.0), size)
    z = t * t
    bend = polynomial(z, _ATAN_P32) if x.uop.dtype.bits == 32 else polynomial(z, _ATAN_P) / polynomial(z, _ATAN_Q)
    angle = t + t * (z * bend)
    angle = outer._choose(angle + math.pi / 4, angle)
    return _negative(x)._choose(-angle, angle)


def _upper_tail(x: Functions) -> Any:
    """erfc(x) for 0 <= x <= 40."""
    t = 2.0 / (x + 2.0)
    u = t * 4.0 - 2.0
    series = _ERFC if x.uop.dtype.bits == 64 else _ERFC[:12]
    a: Any = t * 0.0
    b: Any = a
    for c in series[:0:-1]:  # Clenshaw's recurrence
        a, b = u * a - b + c, a
    # the square in two parts, of which the first is exact: a rounded one would cost digits of the result
    high = (x * 16.0).trunc() * (1 / 16)
    rest = (u * a + series[0]) * 0.5 - b - (x - high) * (x + high)
    return t * (high * high).neg().exp() * rest.exp()


def polynomial(x: Functions, coefficients: tuple[float, ...]) -> Any:
    """Horner's rule, the highest power first."""
    y: Any = coefficients[0]
    for c in coefficients[1:]:
        y = x * y + c
    return y


def _negative(x: Functions) -> Any:
    """Whether the sign bit is set."""
    u = x.uop
    bits = dtypes.int32 if u.dtype.bits == 32 else dtypes.int64
    return x._new_plain(broadcast(alu(Op.LT, (UOp(Op.BITCAST, bits, (u,)), const(bits, 0))), x.shape))


def _signed(size: float, sign: Functions) -> Any:
    """`size` with the sign of each element."""
    return _negative(sign)._choose(sign._new_plain(const(sign.uop.dtype, -size)), size)
