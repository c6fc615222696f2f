"""Slopes of functions of one and of two numbers at extremes and at special points, beside the exact derivative.

The derivative is a formula in mpmath, taken at the float32 argument and rounded to float32; of functions of two numbers
it is torch's in float64. At a kink it is torch's choice. Every elementwise method has a row, or the table of operators
of two: a new one without fails `test_every_function_has_a_row`. What is not within the tolerance has one of its own,
with the reason.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
import pytest

from anneal.tensor import Tensor, functional as F, grad, jvp, vmap
from tests.tensor.gradient_ops import CASES, arrays
from tests.tiers import thinned

Array = np.ndarray[Any, Any]
INF = math.inf

POINTS = (
    0.0,
    1e-30,
    1e-4,
    0.5,
    1.0,
    2.5,
    10.0,
    16.6,
    19.999998,
    20.0,
    20.000002,
    30.0,
    50.0,
    60.0,
    88.0,
    89.0,
    100.0,
    300.0,
    1e30,
    INF,
)

KEPT = "1 - y * y from the kept value y, which is 1 to its last bit: off by 2**-23 at most, as torch's; a cosh would cost an exp"
HALF = "1 + erf(x) cancels far below 0 (LIMITATIONS.md)"
LAST = "the sigmoid of less than -88 is below the smallest normal number, and is multiplied by x"
SUM = "the difference of the two terms of the loss is rounded once, as torch's"
PRODUCT = "the kept share p of softmax: p * (1 - p) rounds 1 - p"


class Row(NamedTuple):
    f: Callable[[Tensor], Tensor]
    slope: Callable[[Any], Any]
    low: float = -INF
    high: float = INF
    at: Mapping[float, float] = {}  # the slope at kinks and at the ends of the domain
    atol: tuple[float, str] = (1e-37, "")
    endless: bool = False  # at infinity it is infinity times 0: nan, as torch's
    more: tuple[float, ...] = ()


def s(x: Any) -> Any:
    """The sigmoid."""
    return 1 / (1 + mp.exp(-x))


def ds(x: Any) -> Any:
    return s(x) * s(-x)


def dsilu(x: Any) -> Any:
    return s(x) + x * ds(x)


def dsoftplus(x: Any) -> Any:
    return s(x)


def dmish(x: Any) -> Any:
    t = mp.log1p(mp.exp(x))
    return mp.tanh(t) + x * mp.sech(t) ** 2 * s(x)


def dgelu(x: Any) -> Any:
    return mp.ncdf(x) + x * mp.npdf(x)


def dgelu_tanh(x: Any) -> Any:
    a, c = 2 * mp.sqrt(2 / mp.pi), mp.mpf("0.044715")
    return s(a * (x + c * x**3)) + x * ds(a * (x + c * x**3)) * a * (1 + 3 * c * x * x)


def dsinc(x: Any) -> Any:
    t = mp.pi * x
    if abs(x) < mp.mpf(10) ** -10:
        return -mp.pi * t / 3
    return (mp.cospi(x) - mp.sinpi(x) / t) / x


def plain(f: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda x: mp.mpf(f(x))


QUICK = float(np.float32(1.702))
NONE = {INF: math.nan, -INF: math.nan}
EXP_1 = "exp(x) - 1 at 0 is what the rate leaves of the target: rounded once"


def beside(x: Tensor, value: float) -> Tensor:
    """A constant of x's shape."""
    return Tensor(np.full(x.shape, value, np.float32), device=x.device)


ROWS: dict[str, Row] = {
    "abs": Row(Tensor.abs, lambda x: mp.sign(x)),
    "neg": Row(Tensor.neg, lambda x: -1),
    "positive": Row(Tensor.positive, lambda x: 1),
    "contiguous": Row(Tensor.contiguous, lambda x: 1),
    "clone": Row(Tensor.clone, lambda x: 1),
    "cast": Row(lambda x: x.cast("float64").cast("float32") if x.device == "cpu" else x, lambda x: 1),
    "float": Row(lambda x: x.float(), lambda x: 1),
    "dropout": Row(lambda x: F.dropout(x, 0.0), lambda x: 1),
    "ceil": Row(Tensor.ceil, lambda x: 0),
    "floor": Row(Tensor.floor, lambda x: 0),
    "round": Row(Tensor.round, lambda x: 0),
    "trunc": Row(Tensor.trunc, lambda x: 0),
    "sign": Row(Tensor.sign, lambda x: 0),
    "heaviside": Row(lambda x: x.heaviside(0.5), lambda x: 0),
    "frac": Row(Tensor.frac, lambda x: 1),
    "nan_to_num": Row(Tensor.nan_to_num, lambda x: 1, at={INF: 0.0, -INF: 0.0}),
    "deg2rad": Row(Tensor.deg2rad, lambda x: mp.pi / 180),
    "rad2deg": Row(Tensor.rad2deg, lambda x: 180 / mp.pi),
    "square": Row(Tensor.square, lambda x: 2 * x),
    "reciprocal": Row(Tensor.reciprocal, lambda x: -1 / (x * x), at={0.0: -INF}),
    "sqrt": Row(Tensor.sqrt, lambda x: 1 / (2 * mp.sqrt(x)), 0, at={0.0: INF}),
    "rsqrt": Row(Tensor.rsqrt, lambda x: -1 / (2 * x * mp.sqrt(x)), 0, at={0.0: -INF}),
    "cbrt": Row(Tensor.cbrt, lambda x: mp.cbrt(abs(x)) ** -2 / 3, at={0.0: INF}),
    "exp": Row(Tensor.exp, mp.exp),
    "exp2": Row(Tensor.exp2, lambda x: mp.mpf(2) ** x * mp.log(2)),
    "expm1": Row(Tensor.expm1, mp.exp),
    "log": Row(Tensor.log, lambda x: 1 / x, 0, at={0.0: INF}),
    "log2": Row(Tensor.log2, lambda x: 1 / (x * mp.log(2)), 0, at={0.0: INF}),
    "log10": Row(Tensor.log10, lambda x: 1 / (x * mp.log(10)), 0, at={0.0: INF}),
    "log1p": Row(Tensor.log1p, lambda x: 1 / (1 + x), -1, at={-1.0: INF}),
    "sin": Row(Tensor.sin, mp.cos, at=NONE),
    "cos": Row(Tensor.cos, lambda x: -mp.sin(x), at=NONE),
    "tan": Row(Tensor.tan, lambda x: mp.sec(x) ** 2, at=NONE),
    "asin": Row(Tensor.asin, lambda x: 1 / mp.sqrt(1 - x * x), -1, 1, at={1.0: INF, -1.0: INF}),
    "acos": Row(Tensor.acos, lambda x: -1 / mp.sqrt(1 - x * x), -1, 1, at={1.0: -INF, -1.0: -INF}),
    "atan": Row(Tensor.atan, lambda x: 1 / (1 + x * x)),
    "sinh": Row(Tensor.sinh, mp.cosh, more=(89.4, -89.4)),
    "cosh": Row(Tensor.cosh, mp.sinh, more=(89.4, -89.4)),
    "tanh": Row(Tensor.tanh, lambda x: mp.sech(x) ** 2, atol=(1.3e-7, KEPT)),
    "asinh": Row(Tensor.asinh, lambda x: 1 / mp.sqrt(x * x + 1)),
    "acosh": Row(Tensor.acosh, lambda x: 1 / mp.sqrt(x * x - 1), 1, at={1.0: INF}),
    "atanh": Row(Tensor.atanh, lambda x: 1 / (1 - x * x), -1, 1, at={1.0: INF, -1.0: INF}),
    "erf": Row(Tensor.erf, lambda x: 2 / mp.sqrt(mp.pi) * mp.exp(-x * x)),
    "erfc": Row(Tensor.erfc, lambda x: -2 / mp.sqrt(mp.pi) * mp.exp(-x * x)),
    "erfinv": Row(Tensor.erfinv, lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(mp.erfinv(x) ** 2), -0.99, 0.99, more=(0.9, -0.9)),
    "lgamma": Row(Tensor.lgamma, mp.digamma, 0, at={0.0: -INF, INF: INF}),
    "mvlgamma": Row(lambda x: x.mvlgamma(1), mp.digamma, 0, at={0.0: -INF, INF: INF}),
    "polygamma": Row(lambda x: x.polygamma(0), lambda x: mp.psi(1, x), 0, at={0.0: INF, 1e-30: INF}),
    "i0": Row(Tensor.i0, lambda x: mp.besseli(1, x), -80, 80),
    "digamma": Row(Tensor.digamma, lambda x: mp.psi(1, x), 0, at={0.0: INF, 1e-30: INF}),
    "logit": Row(lambda x: x.logit(), lambda x: 1 / (x * (1 - x)), 0, 1, at={0.0: INF, 1.0: INF}, more=(0.9, 0.01)),
    "logit, clipped": Row(lambda x: x.logit(0.25), lambda x: 1 / (x * (1 - x)) if 0.25 <= x <= 0.75 else 0, more=(0.25, 0.75)),
    "logit, eps above a half": Row(lambda x: x.logit(0.75), lambda x: 0, more=(0.25, 0.75)),
    "sinc": Row(Tensor.sinc, dsinc, at=NONE, more=(0.1, 0.15, 0.16, 1.5, 3.25)),
    "frexp": Row(lambda x: x.frexp()[0], lambda x: mp.mpf(2) ** -(mp.frexp(x)[1] if x else 0), at={INF: 1.0, -INF: 1.0}),
    "sigmoid": Row(Tensor.sigmoid, ds),
    "logsigmoid": Row(Tensor.logsigmoid, lambda x: s(-x)),
    "relu": Row(Tensor.relu, lambda x: 1 if x > 0 else 0),
    "relu6": Row(Tensor.relu6, lambda x: 1 if 0 < x < 6 else 0, more=(6.0,)),
    "leaky_relu": Row(lambda x: x.leaky_relu(0.25), lambda x: 1 if x > 0 else 0.25),
    "elu": Row(lambda x: x.elu(0.5), lambda x: 1 if x > 0 else mp.exp(x) / 2),
    "celu": Row(lambda x: x.celu(2.0), lambda x: 1 if x > 0 else mp.exp(x / 2)),
    "selu": Row(Tensor.selu, lambda x: 1.0507009873554805 * (1 if x > 0 else 1.6732632423543772 * mp.exp(x))),
    "silu": Row(Tensor.silu, dsilu, atol=(1e-35, LAST), endless=True),
    "mish": Row(Tensor.mish, dmish, atol=(1e-35, LAST), endless=True),
    "gelu": Row(Tensor.gelu, dgelu, atol=(1.3e-7, HALF), endless=True),
    "gelu, tanh": Row(lambda x: x.gelu("tanh"), dgelu_tanh, atol=(1e-35, LAST), endless=True),
    "softplus": Row(Tensor.softplus, lambda x: s(x)),
    "softplus, steep": Row(lambda x: x.softplus(2.0), lambda x: s(2 * x)),
    "softplus, late": Row(lambda x: x.softplus(1.0, 1000.0), lambda x: s(x)),
    "softsign": Row(Tensor.softsign, lambda x: (1 + abs(x)) ** -2, endless=True),
    "hardtanh": Row(Tensor.hardtanh, lambda x: 1 if -1 < x < 1 else 0),
    "hardsigmoid": Row(Tensor.hardsigmoid, lambda x: mp.mpf(1) / 6 if -3 < x < 3 else 0, more=(3.0, -3.0)),
    "hardswish": Row(Tensor.hardswish, lambda x: 0 if x < -3 else 1 if x > 3 else x / 3 + 0.5, more=(2.9, -2.9)),
    "softshrink": Row(Tensor.softshrink, lambda x: 1 if abs(x) > 0.5 else 0),
    "hardshrink": Row(Tensor.hardshrink, lambda x: 1 if abs(x) > 0.5 else 0),
    "tanhshrink": Row(Tensor.tanhshrink, lambda x: mp.tanh(x) ** 2, atol=(1.3e-7, KEPT)),
    "threshold": Row(lambda x: x.threshold(0.5, 2.0), lambda x: 1 if x > 0.5 else 0),
    "clamp": Row(lambda x: x.clamp(-1.0, 2.5), lambda x: 1 if -1 < x < 2.5 else 0),
    "clamp_min": Row(lambda x: x.clamp_min(0.5), lambda x: 1 if x > 0.5 else 0),
    "clamp_max": Row(lambda x: x.clamp_max(0.5), lambda x: 1 if x < 0.5 else 0),
    "masked_fill": Row(lambda x: x.masked_fill(x > 0.5, 1.0), lambda x: 0 if x > 0.5 else 1),
    "float_power": Row(lambda x: x.float_power(2.5), lambda x: 2.5 * x**1.5, 0),
    "gumbel_softmax": Row(lambda x: x * 0.0, lambda x: 0),
    # powers, with constants on either side
    "x ** 0": Row(lambda x: x**0, lambda x: 0),
    "x ** 1": Row(lambda x: x**1, lambda x: 1),
    "x ** 3": Row(lambda x: x**3, lambda x: 3 * x * x),
    "x ** 5": Row(lambda x: x**5, lambda x: 5 * x**4),
    "x ** 0.5": Row(lambda x: x**0.5, lambda x: 0.5 / mp.sqrt(x), 0, at={0.0: INF}),
    "x ** 2.5": Row(lambda x: x**2.5, lambda x: 2.5 * x**1.5, 0),
    "x ** -1": Row(lambda x: x**-1, lambda x: -1 / (x * x), at={0.0: -INF}),
    "x ** -2": Row(lambda x: x**-2.0, lambda x: -2 / x**3, at={0.0: -INF}),
    "2 ** x": Row(lambda x: 2.0**x, lambda x: mp.mpf(2) ** x * mp.log(2)),
    "0 ** x": Row(lambda x: 0.0**x, lambda x: 0 if x >= 0 else -INF),
    # the sigmoid as users write it
    "1 / (1 + exp(-x))": Row(lambda x: 1 / (1 + (-x).exp()), ds),
    "1.0 / (exp(-x) + 1.0)": Row(lambda x: 1.0 / ((-x).exp() + 1.0), ds),
    "(1 + exp(-x)) ** -1": Row(lambda x: (1 + (-x).exp()) ** -1, ds),
    "(1 + exp(-x)).reciprocal()": Row(lambda x: (1 + (-x).exp()).reciprocal(), ds),
    "3 / (2 + exp(-x))": Row(lambda x: 3 / (2 + (-x).exp()), lambda x: 3 * mp.exp(-x) / (2 + mp.exp(-x)) ** 2),
    "x / (1 + exp(-x))": Row(lambda x: x / (1 + (-x).exp()), dsilu, atol=(1e-35, LAST), endless=True),
    "x * sigmoid(1.702 x)": Row(
        lambda x: x * (x * 1.702).sigmoid(),
        lambda x: s(x * QUICK) + x * ds(x * QUICK) * QUICK,
        atol=(1e-35, LAST),
        endless=True,
    ),
    "1 / exp(x)": Row(lambda x: 1 / x.exp(), lambda x: -mp.exp(-x), -60),
    "1 / (exp(x) - 0.5)": Row(lambda x: 1 / (x.exp() - 0.5), lambda x: -mp.exp(x) / (mp.exp(x) - 0.5) ** 2),
    # two classes, of which one is 0
    "glu": Row(lambda x: F.glu(Tensor.stack([beside(x, 2.0), x], dim=1)).reshape(-1), lambda x: 2 * ds(x)),
    "softmax": Row(lambda x: Tensor.stack([x, beside(x, 0.0)], dim=1).softmax(1)[:, 0], ds, atol=(1.3e-7, PRODUCT), endless=True),
    "log_softmax": Row(
        lambda x: Tensor.stack([x, beside(x, 0.0)], dim=1).log_softmax(1)[:, 0],
        lambda x: s(-x),
        atol=(1.3e-7, PRODUCT),
        endless=True,
    ),
    "logsumexp": Row(lambda x: Tensor.stack([x, beside(x, 0.0)], dim=1).logsumexp(1), s, endless=True),
    # losses
    "bce with logits, 1": Row(
        lambda x: F.binary_cross_entropy_with_logits(x, beside(x, 1.0), reduction="none"), lambda x: -s(-x), endless=True
    ),
    "bce with logits, 0": Row(
        lambda x: F.binary_cross_entropy_with_logits(x, beside(x, 0.0), reduction="none"), s, endless=True
    ),
    "bce with logits, 0.25": Row(
        lambda x: F.binary_cross_entropy_with_logits(x, beside(x, 0.25), reduction="none"),
        lambda x: s(x) - 0.25,
        atol=(1e-7, SUM),
        endless=True,
    ),
    "soft margin": Row(lambda x: F.soft_margin_loss(x, beside(x, 1.0), reduction="none"), lambda x: -s(-x)),
    "poisson nll": Row(
        lambda x: F.poisson_nll_loss(x, beside(x, 1.0), reduction="none"), lambda x: mp.expm1(x), atol=(1e-7, SUM), endless=True
    ),
}  # fmt: skip


def points(row: Row) -> Array:
    every = [p for p in (*POINTS, *[-p for p in POINTS], *row.more) if row.low <= p <= row.high]
    return np.array(every, np.float32)


def rounded(v: Any) -> float:
    try:
        return float(np.float32(float(v)))
    except OverflowError:
        return math.copysign(INF, v)


def exact(row: Row, x: float) -> float:
    if x in row.at:
        return -row.at[x] if x == 0 and math.copysign(1, x) < 0 and _odd(row) else row.at[x]
    with mp.workdps(80):
        z = mp.mpf(10) ** 120 * (1 if x > 0 else -1) if math.isinf(x) else mp.mpf(x)
        v = row.slope(z)
        return v if isinstance(v, float) and math.isinf(v) else rounded(v)


def _odd(row: Row) -> bool:
    return row.f in (ROWS["log"].f, ROWS["log2"].f, ROWS["log10"].f, ROWS["logit"].f, ROWS["sqrt"].f) or row in (
        ROWS["rsqrt"], ROWS["x ** -2"], ROWS["x ** 0.5"], ROWS["lgamma"],
    )  # fmt: skip


SLOPES = [pytest.param(d, n, id=f"{d} {n}") for d in ("cpu", "webgpu") for n in ROWS]


@pytest.mark.parametrize(("device", "name"), thinned(SLOPES, test=7, ci=2), indirect=["device"])
def test_slope(device: str, name: str) -> None:
    row = ROWS[name]
    x = Tensor(points(row), device=device, requires_grad=True)
    row.f(x).backward(Tensor(np.ones(x.shape, np.float32), device=device))
    assert x.grad is not None
    with np.errstate(all="ignore"):
        wrong = []
        for at, g in zip(points(row).tolist(), x.grad.tolist(), strict=True):
            want = exact(row, at)
            fits = g == want or (math.isnan(g) and (math.isnan(want) or (row.endless and math.isinf(at))))
            if not (fits or abs(g - want) <= 1e-4 * abs(want) + row.atol[0]):
                wrong.append((at, g, want))
    assert not wrong, "argument, slope, exact slope"


@pytest.mark.ci
def test_every_function_has_a_row() -> None:
    """A case of one argument whose elements do not meet each other is a function of one number."""
    missing = set()
    for case in CASES:
        if case.shapes != "ab":
            continue
        name = case.names.split()[0]
        array = arrays(case)[0]
        try:
            found = [case.f(Tensor, F, Tensor(array.reshape(shape))).numpy() for shape in ((2, 3), (6, 1), (1, 6))]
        except Exception:
            continue  # it needs its axes
        if found[0].shape == array.shape and all(np.array_equal(found[0].ravel(), y.ravel()) for y in found):
            missing |= {name} - ROWS.keys() - _MOVES
    assert not missing


# Or with rows of other names; angle and sgn have slopes of 0.
_MOVES = {
    *("flip", "narrow", "roll", "transpose", "tril", "where", "pow", "as_strided", "as_strided_scatter", "conj"),
    *("conj_physical", "angle", "sgn"),
}


def test_a_second_derivative_stays_finite_too() -> None:
    x = Tensor(np.array([-1e30, -300.0, -89.0, -50.0, 0.0, 20.0, 300.0], np.float32))
    for f in (Tensor.sigmoid, lambda t: 1 / (1 + (-t).exp()), Tensor.softplus, Tensor.logsigmoid):
        curve = grad(lambda t, f=f: grad(lambda u: f(u).sum())(t).sum())(x).numpy()  # type: ignore[misc]
        assert np.isfinite(curve).all()
    with np.errstate(over="ignore"):
        p = 1 / (1 + np.exp(-x.numpy().astype(np.float64)))
    curve = grad(lambda t: grad(lambda u: u.sigmoid().sum())(t).sum())(x).numpy()
    np.testing.assert_allclose(curve, p * (1 - p) * (1 - 2 * p), rtol=1e-4, atol=1e-30)
    # at 0 too, where max and |x| have none
    losses = grad(lambda t: grad(lambda u: F.binary_cross_entropy_with_logits(u, Tensor([1.0])))(t).sum())
    assert losses(Tensor([0.0])).item() == 0.25


# -- of two numbers ---------------------------------------------------------------------------------------------------

PAIR = (0.0, 1e-30, 0.5, 1.0, 2.5, 60.0, 89.0, 1e30)


class Two(NamedTuple):
    f: Callable[[Any, Any], Any]
    torch: Callable[[Any, Any, Any], Any]  # of torch and both
    keep: Callable[[Array, Array], Array] = lambda x, y: np.full(x.shape, True)
    why: str = ""


def finite(x: Array, y: Array) -> Array:
    return (np.abs(x) < 1e18) & (np.abs(y) < 1e18) & (np.abs(x) > 1e-18) & (np.abs(y) > 1e-18)


TWO: dict[str, Two] = {
    "add": Two(lambda x, y: x + y, lambda T, x, y: x + y),
    "sub": Two(lambda x, y: x - y, lambda T, x, y: x - y),
    "mul": Two(lambda x, y: x * y, lambda T, x, y: x * y),
    "div": Two(lambda x, y: x / y, lambda T, x, y: x / y, lambda x, y: y != 0, "torch's nan of x / 0 has another sign and place"),
    "pow": Two(
        lambda x, y: x**y, lambda T, x, y: x**y,
        lambda x, y: (x >= 0) & (np.abs(y) < 80) & ((x == 0) | (x > 1e-20)) & (x < 1e20) & (np.abs(y * np.log2(np.maximum(x, 1e-9))) < 120),
        "powers out of the range of a float32, whose product with a logarithm may be in it, and of negative numbers",
    ),
    "maximum": Two(lambda x, y: x.maximum(y), lambda T, x, y: x.maximum(y)),
    "minimum": Two(lambda x, y: x.minimum(y), lambda T, x, y: x.minimum(y)),
    "fmax": Two(lambda x, y: x.fmax(y), lambda T, x, y: x.maximum(y)),  # as torch's own from 2.14 on
    "fmin": Two(lambda x, y: x.fmin(y), lambda T, x, y: x.minimum(y)),
    "copysign": Two(lambda x, y: x.copysign(y), lambda T, x, y: x.copysign(y)),
    "logaddexp": Two(lambda x, y: x.logaddexp(y), lambda T, x, y: x.logaddexp(y)),
    "logaddexp2": Two(lambda x, y: x.logaddexp2(y), lambda T, x, y: x.logaddexp2(y)),
    "xlogy": Two(
        lambda x, y: x.xlogy(y), lambda T, x, y: x.xlogy(y), lambda x, y: (y > 0) | ((y == 0) & (x != 0)), "0 * log(0) has slope 0, not nan"
    ),
    "ldexp": Two(lambda x, y: x.ldexp(y), lambda T, x, y: x.ldexp(y), lambda x, y: np.abs(y) < 80, "2 ** y out of range"),
    "hypot": Two(lambda x, y: x.hypot(y), lambda T, x, y: x.hypot(y), lambda x, y: (x != 0) | (y != 0), "torch's nan at the corner"),
    "atan2": Two(lambda x, y: x.atan2(y), lambda T, x, y: x.atan2(y), finite, "x * x + y * y out of range"),
    "mse": Two(lambda x, y: F.mse_loss(x, y, "none"), lambda T, x, y: T.nn.functional.mse_loss(x, y, reduction="none")),
    "l1": Two(lambda x, y: F.l1_loss(x, y, "none"), lambda T, x, y: T.nn.functional.l1_loss(x, y, reduction="none")),
    "huber": Two(lambda x, y: F.huber_loss(x, y, "none"), lambda T, x, y: T.nn.functional.huber_loss(x, y, reduction="none")),
    "smooth l1": Two(
        lambda x, y: F.smooth_l1_loss(x, y, "none"), lambda T, x, y: T.nn.functional.smooth_l1_loss(x, y, reduction="none")
    ),
    "bce": Two(
        lambda x, y: F.binary_cross_entropy(x, y, reduction="none"),
        lambda T, x, y: T.nn.functional.binary_cross_entropy(x, y, reduction="none"),
        lambda x, y: (x >= 0) & (x <= 1) & (y >= 0) & (y <= 1),
        "they are probabilities",
    ),
    "bce with logits": Two(
        lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
        lambda T, x, y: T.nn.functional.binary_cross_entropy_with_logits(x, y, reduction="none"),
        lambda x, y: (y >= 0) & (y <= 1) & (np.abs(x) < 1e20),
        "targets are probabilities",
    ),
    "hinge embedding": Two(
        lambda x, y: F.hinge_embedding_loss(x, y.detach(), 1.0, "none") + y * 0,
        lambda T, x, y: T.nn.functional.hinge_embedding_loss(x, y.detach(), 1.0, reduction="none") + y * 0,
        lambda x, y: np.abs(y) == 1,
        "targets are 1 and -1",
    ),
}  # fmt: skip

# tolerances of rounding where a loss subtracts two terms
ROUNDED = {
    "bce with logits": 1e-6,
    "huber": 1e-6,
    "smooth l1": 1e-6,
    "mse": 1e-6,
    "logaddexp": 1.3e-7,
    "logaddexp2": 1.3e-7,
}


@pytest.mark.parametrize(
    ("device", "name"),
    thinned([pytest.param(d, n) for d in ("cpu", "webgpu") for n in TWO], test=5, ci=2),
    indirect=["device"],
)
def test_slopes_of_two(device: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    row = TWO[name]
    signed = (*PAIR, *[-p for p in PAIR])
    x, y = (np.array(a, np.float32) for a in zip(*itertools.product(signed, signed), strict=True))
    keep = row.keep(x, y)
    x, y = x[keep], y[keep]
    mine = [Tensor(a, device=device, requires_grad=True) for a in (x, y)]
    row.f(*mine).sum().backward()
    theirs = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in (x, y)]
    row.torch(torch, *theirs).sum().backward()
    with np.errstate(all="ignore"):
        for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            assert a.grad is not None
            got, want = a.grad.numpy().astype(np.float64), b.grad.numpy().astype(np.float32).astype(np.float64)
            fits = (got == want) | (np.isnan(got) & np.isnan(want))
            fits |= np.abs(got - want) <= 1e-4 * np.abs(want) + ROUNDED.get(name, 1e-37)
            wrong = [(u, v, g, w) for u, v, g, w in zip(x, y, got, want, strict=True)]
            assert not [r for r, f in zip(wrong, fits, strict=True) if not f], f"argument {k}: x, y, slope, torch's"


def test_forward_mode_and_many_examples_at_extremes() -> None:
    x = Tensor(np.array([[-300.0, -89.0], [-50.0, 60.0]], np.float32))
    one = Tensor(np.ones((2, 2), np.float32))
    p = 1 / (1 + np.exp(-x.numpy().astype(np.float64)))
    want = np.array([[0.0, 0.0], [p[1, 0], np.exp(-60.0)]])  # p * (1 - p)
    for f in (Tensor.sigmoid, lambda t: 1 / (1 + (-t).exp())):
        np.testing.assert_allclose(jvp(f, (x,), (one,))[1].numpy(), want, rtol=1e-4, atol=1e-37)
        rows = vmap(grad(lambda t, f=f: f(t).sum()))(x)  # type: ignore[misc]
        np.testing.assert_allclose(rows.numpy(), want, rtol=1e-4, atol=1e-37)
