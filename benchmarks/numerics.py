"""What numbers do on each device: special values, integers at their ends, and how many ULP functions are off.

    python -m benchmarks.numerics                                  the devices there are, as tables
    python -m benchmarks.numerics --json here.json                 what was measured, for another machine's table
    python -m benchmarks.numerics --read benchmarks/numbers/*.json --write NUMERICS.md

References are NumPy's and Python's in float64, rounded once; they share nothing with the compiler. A ULP is the
distance of the two float32 next to the exact value. Results below 2**-126 (denormals), and arguments there, are counted
apart: a GPU may take them for 0.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anneal.backend import get_device
from anneal.tensor import Tensor, dtypes

__all__ = ["BINARY", "INTEGERS", "UNARY", "Measured", "measure", "page"]

Array = npt.NDArray[Any]
nan, inf = math.nan, math.inf
_TINY = 2.0**-126
_EDGE = float(np.finfo(np.float32).max)
_erf = np.vectorize(math.erf, otypes=[float])
_erfc = np.vectorize(math.erfc, otypes=[float])


@dataclass(frozen=True)
class Function:
    """One function of a float: ours, the reference in float64, the arguments it is tried on, and the most ULP
    allowed.
    """

    ours: Callable[[Tensor], Tensor]
    exact: Callable[[Array], Array]
    low: float
    high: float
    ulp: float  # on any device: what the tests hold it to
    near: tuple[float, ...] = ()  # points about which arguments gather


def _lgamma_one(x: float) -> float:
    return inf if abs(x) == inf or (x <= 0 and x == math.floor(x)) else math.lgamma(x)


_lgamma = np.vectorize(_lgamma_one, otypes=[float])


def _erfinv(y: Array) -> Array:
    """By Newton's steps on erf, from the side that keeps its digits."""
    x = np.sign(y) * np.sqrt(np.maximum(-np.log1p(-np.abs(y)), 1e-300)) * 0.9
    x = np.where(np.abs(y) < 0.7, y * 0.9, x)
    for _ in range(40):
        size = np.abs(x)
        off = np.where(size < 0.5, _erf(size) - np.abs(y), (1 - np.abs(y)) - _erfc(size))
        x = np.sign(y) * np.maximum(size - off * np.exp(np.minimum(size * size, 600)) * math.sqrt(math.pi) / 2, 0)
    return np.where(np.abs(y) > 1, nan, np.where(np.abs(y) == 1, np.sign(y) * inf, np.where(y == 0, y, x)))


def _digamma(x: Array) -> Array:
    """Of positive numbers carried up by the recurrence, then the asymptotic series; the others reflected."""
    if (x <= 0).any():
        y = np.where((x < 0) & (x != np.floor(x)), x, 0.5)
        reflected = _digamma(1 - y) - math.pi / np.tan(math.pi * np.fmod(y, 1))
        below = np.where(x == 0, -np.copysign(inf, x), np.where(x == np.floor(x), nan, reflected))
        return np.where(x > 0, _digamma(np.where(x > 0, x, 1)), np.where(np.isnan(x), x, below))
    less = np.zeros_like(x)
    for _ in range(12):
        small = x < 12
        less = less + np.where(small, 1 / np.where(small, x, 1), 0)
        x = np.where(small, x + 1, x)
    z = 1 / (x * x)
    return np.log(x) - 0.5 / x - z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z / 132)))) - less


def _sigmoid(x: Array) -> Array:
    return np.where(x < 0, np.exp(-np.logaddexp(0, -x)), 1 / (1 + np.exp(-x)))


def _named(name: str, exact: Callable[[Array], Array], low: float, high: float, ulp: float, *near: float) -> Function:
    return Function(lambda t: getattr(t, name)(), exact, low, high, ulp, near)


_TURNS = tuple(k * math.pi / 2 for k in (-40, -7, -3, -2, -1, 1, 2, 3, 7, 40))
UNARY: dict[str, Function] = {
    "relu": _named("relu", lambda x: np.maximum(x, 0), -_EDGE, _EDGE, 0),
    "clip(-1, 2)": Function(lambda t: t.clip(-1, 2), lambda x: np.clip(x, -1, 2), -10, 10, 0),
    "exp": _named("exp", np.exp, -87, 88.7, 4),
    "exp2": _named("exp2", np.exp2, -126, 127.9, 4),
    "expm1": _named("expm1", np.expm1, -90, 88.7, 6, 0.0, 0.5, -0.5),
    "log": _named("log", np.log, _TINY, _EDGE, 4, 1.0),
    "log2": _named("log2", np.log2, _TINY, _EDGE, 4, 1.0),
    "log10": _named("log10", np.log10, _TINY, _EDGE, 5, 1.0),
    "log1p": _named("log1p", np.log1p, -0.9999999, _EDGE, 6, 0.0, 0.25, -0.25),
    "sqrt": _named("sqrt", np.sqrt, 0, _EDGE, 1),
    "rsqrt": _named("rsqrt", lambda x: 1 / np.sqrt(x), _TINY, _EDGE, 3),
    "reciprocal": _named("reciprocal", lambda x: 1 / x, -8e37, 8e37, 3),
    "sin": _named("sin", np.sin, -100, 100, 3, *_TURNS),
    "cos": _named("cos", np.cos, -100, 100, 3, *_TURNS),
    "tan": _named("tan", np.tan, -100, 100, 6, *_TURNS),
    "sin, far": _named("sin", np.sin, -1e30, 1e30, 3),
    "cos, far": _named("cos", np.cos, -1e30, 1e30, 3),
    "asin": _named("asin", np.arcsin, -1, 1, 6, 1.0, -1.0, 0.5),
    "acos": _named("acos", np.arccos, -1, 1, 6, 1.0, -1.0, 0.5),
    "atan": _named("atan", np.arctan, -_EDGE, _EDGE, 6, 1.0, -1.0),
    "sinh": _named("sinh", np.sinh, -88, 88, 8, 0.0),
    "cosh": _named("cosh", np.cosh, -88, 88, 8, 0.0),
    "tanh": _named("tanh", np.tanh, -20, 20, 6, 0.0),
    "asinh": _named("asinh", np.arcsinh, -_EDGE, _EDGE, 8, 0.0),
    "acosh": _named("acosh", np.arccosh, 1, _EDGE, 8, 1.0),
    "atanh": _named("atanh", np.arctanh, -0.9999999, 0.9999999, 8, 0.0),
    "erf": _named("erf", _erf, -6, 6, 8, 0.0, 1.0),
    "erfc": _named("erfc", _erfc, -6, 9, 60, 0.0),
    "cbrt": _named("cbrt", np.cbrt, -_EDGE, _EDGE, 6),
    "sigmoid": _named("sigmoid", _sigmoid, -87, 30, 6),
    "silu": _named("silu", lambda x: x * _sigmoid(x), -80, 80, 8),
    "softplus": _named("softplus", lambda x: np.logaddexp(0, x), -80, 80, 8),
    "logsigmoid": _named("logsigmoid", lambda x: -np.logaddexp(0, -x), -80, 80, 8),
    "mish": _named("mish", lambda x: x * np.tanh(np.logaddexp(0, x)), -20, 30, 16),
    "elu": _named("elu", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), -80, 80, 6, 0.0),
    "softsign": _named("softsign", lambda x: x / (1 + np.abs(x)), -1e30, 1e30, 4),
    "sinc": _named("sinc", np.sinc, -0.9, 0.9, 16, 0.0),
    "logit": _named("logit", lambda x: np.log(x) - np.log1p(-x), 1e-30, 0.4, 8),
    "erfinv": _named("erfinv", _erfinv, -0.99999, 0.99999, 16, 0.0),
    "lgamma": _named("lgamma", _lgamma, 3.0, 1e30, 16),
    "digamma": _named("digamma", _digamma, 2.0, 1e30, 16),
    "deg2rad": _named("deg2rad", np.deg2rad, -1e30, 1e30, 2),
    "floor": _named("floor", np.floor, -_EDGE, _EDGE, 0, 1.0, -1.0, 8388608.0),
    "ceil": _named("ceil", np.ceil, -_EDGE, _EDGE, 0, 1.0, -1.0, 8388608.0),
    "round": _named("round", np.rint, -_EDGE, _EDGE, 0, 0.5, 1.5, -2.5, 8388608.0),
    "trunc": _named("trunc", np.trunc, -_EDGE, _EDGE, 0, 1.0, -1.0, 8388608.0),
    "frac": _named("frac", lambda x: x - np.trunc(x), -1e6, 1e6, 0),
    "sign": _named("sign", np.sign, -_EDGE, _EDGE, 0),
    "gelu": _named("gelu", lambda x: 0.5 * x * _erfc(-x / math.sqrt(2)), -1, 10, 16),
}

SPECIAL = np.array(
    [nan, inf, -inf, 0.0, -0.0, 1e-45, -1e-45, 1e-39, -1e-39, _TINY, -_TINY, 1, -1, 2.5, -2.5, _EDGE, -_EDGE],
    np.float32,
)


def crossed(kind: str) -> Array:
    """256 values that break things: floats, or integers of the dtype `kind`."""
    rng = np.random.default_rng(7)
    if kind == "float32":
        some = [
            *SPECIAL,
            0.5,
            1.5,
            3,
            7.75,
            0.1,
            1e-20,
            1e20,
            2**23,
            2**24 + 2,
            2**31,
            2**32,
            1 / 3,
            88.7,
            127,
            0.99999994,
        ]
        fixed = np.array([*some, *[-x for x in some[17:]]], np.float32)
        exponents = rng.integers(-149, 128, 256 - fixed.size).astype(float)
        drawn = np.exp2(exponents) * rng.uniform(1, 2, exponents.size) * rng.choice([-1, 1], exponents.size)
        return np.concatenate([fixed, drawn.astype(np.float32)])
    info = np.iinfo(kind)
    some_ints = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 5, 7, 8, 15, 31, 32, 33, 63, 64, 100]
    signed = [-x for x in some_ints[5:]] if info.min < 0 else []
    drawn = rng.integers(info.min, info.max, 256 - len(some_ints) - len(signed), dtype=kind, endpoint=True)
    return np.concatenate([np.array(some_ints + signed, kind), drawn])


def _pow(x: Array, y: Array) -> Array:
    return np.float_power(x, y)


@dataclass(frozen=True)
class Pair:
    """One operation of two floats: ours, NumPy's, and the most ULP allowed (0: every bit)."""

    ours: Callable[[Tensor, Tensor], Tensor]
    exact: Callable[[Array, Array], Array]
    ulp: float = 0
    wide: bool = True  # the reference is computed in float64 and rounded; else in float32


BINARY: dict[str, Pair] = {
    "+": Pair(lambda a, b: a + b, np.add),
    "-": Pair(lambda a, b: a - b, np.subtract),
    "*": Pair(lambda a, b: a * b, np.multiply),
    "/": Pair(lambda a, b: a / b, np.divide, 3),
    "//": Pair(lambda a, b: a // b, np.floor_divide, 3, wide=False),
    "%": Pair(lambda a, b: a % b, np.remainder, 0, wide=False),
    "fmod": Pair(lambda a, b: a.fmod(b), np.fmod, 0, wide=False),
    "pow": Pair(lambda a, b: a**b, _pow, 32),
    "maximum": Pair(lambda a, b: a.maximum(b), np.maximum),
    "minimum": Pair(lambda a, b: a.minimum(b), np.minimum),
    "<": Pair(lambda a, b: a < b, np.less, wide=False),
    "<=": Pair(lambda a, b: a <= b, np.less_equal, wide=False),
    ">=": Pair(lambda a, b: a >= b, np.greater_equal, wide=False),
    "==": Pair(lambda a, b: a.eq(b), np.equal, wide=False),
    "!=": Pair(lambda a, b: a.ne(b), np.not_equal, wide=False),
    "atan2": Pair(lambda a, b: a.atan2(b), np.arctan2, 8),
    "hypot": Pair(lambda a, b: a.hypot(b), np.hypot, 6),
    "copysign": Pair(lambda a, b: a.copysign(b), np.copysign, wide=False),
}


def _shift(left: bool) -> Callable[[Array, Array], Array]:
    def f(a: Array, b: Array) -> Array:
        width = a.dtype.itemsize * 8
        inside = (b >= 0) & (b < width)
        by = np.where(inside, b, 0).astype(a.dtype)
        if left:
            return np.where(inside, np.left_shift(a, by), np.zeros_like(a))
        return np.where(inside, np.right_shift(a, by), np.where(a < 0, ~np.zeros_like(a), np.zeros_like(a)))

    return f


def _whole(f: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def by_zero(a: Array, b: Array) -> Array:
        zero = b == 0
        return np.where(zero, 0, f(a, np.where(zero, 1, b).astype(b.dtype))).astype(a.dtype)

    return by_zero


INTEGERS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Array, Array], Array]]] = {
    "+": (lambda a, b: a + b, np.add),
    "-": (lambda a, b: a - b, np.subtract),
    "*": (lambda a, b: a * b, np.multiply),
    "//": (lambda a, b: a // b, _whole(np.floor_divide)),
    "%": (lambda a, b: a % b, _whole(np.remainder)),
    "maximum": (lambda a, b: a.maximum(b), np.maximum),
    "minimum": (lambda a, b: a.minimum(b), np.minimum),
    "<": (lambda a, b: a < b, np.less),
    "==": (lambda a, b: a.eq(b), np.equal),
    "&": (lambda a, b: a & b, np.bitwise_and),
    "^": (lambda a, b: a ^ b, np.bitwise_xor),
    "<<": (lambda a, b: a << b, _shift(True)),
    ">>": (lambda a, b: a >> b, _shift(False)),
}


@dataclass
class Measured:
    """What one device does."""

    device: str
    about: str
    unary: dict[str, tuple[float, float]] = field(default_factory=dict)  # the most ULP, and where
    special: dict[str, list[str]] = field(default_factory=dict)  # of a function: "at x: got, not expected"
    binary: dict[str, dict[str, Any]] = field(default_factory=dict)
    integers: dict[str, int] = field(default_factory=dict)  # "int32 +": wrong ones among 65,536
    casts: dict[str, int] = field(default_factory=dict)
    denormals: dict[str, str] = field(default_factory=dict)


# -- measuring ---------------------------------------------------------------------------------------------------------


def arguments(f: Function, count: int) -> Array:
    """Float32 within the function's domain: evenly spread, of every size, and about its special points."""
    rng = np.random.default_rng(0)
    parts = [np.linspace(max(f.low, -1e4), min(f.high, 1e4), count // 3)]
    top = math.log2(max(abs(f.low), abs(f.high), _TINY))
    sizes = np.exp2(rng.uniform(-125, top, count // 3)) * rng.choice([-1.0, 1.0], count // 3)
    parts.append(sizes)
    each = max(8, count // 3 // max(1, len(f.near)))
    for point in f.near:
        spread = np.exp2(rng.uniform(-24, -1, each)) * rng.choice([-1.0, 1.0], each) * max(abs(point), 1e-3)
        parts.append(np.concatenate([[point], point + spread]))
    x = np.concatenate(parts).astype(np.float32)
    return np.unique(x[(x >= f.low) & (x <= f.high) & ((np.abs(x) >= _TINY) | (x == 0))])


def ulps(got: Array, exact: Array) -> Array:
    """How far float32 values lie from float64 ones, in ULP; equal infinities and nans are 0, unequal ones inf."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        spacing = np.spacing(np.maximum(np.abs(rounded), np.float32(_TINY))).astype(np.float64)
        off = np.abs(got.astype(np.float64) - exact) / spacing
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        # the last float before infinity and infinity are neighbours
        edge = (np.abs(rounded) >= _EDGE * (1 - 2e-6)) & (np.abs(got) >= _EDGE * (1 - 2e-6)) & (got * rounded > 0)
    return np.where(same | edge, 0, np.where(np.isnan(off) | np.isinf(off), inf, off))


def _text(x: Any) -> str:
    return f"{float(x):.6g}"


def _unary(out: Measured, count: int) -> None:
    for name, f in UNARY.items():
        x = arguments(f, count)
        with np.errstate(all="ignore"):
            exact = f.exact(x.astype(np.float64))
        got = f.ours(Tensor(x)).numpy()
        off = ulps(got, exact)
        off[np.abs(exact) < _TINY] = 0  # denormal results are counted apart
        worst = int(off.argmax())
        out.unary[name] = (round(float(off[worst]), 2), float(x[worst]))
        with np.errstate(all="ignore"):
            want = f.exact(SPECIAL.astype(np.float64)).astype(np.float32)
        values = f.ours(Tensor(SPECIAL)).numpy()
        found = []
        for at, got1, want1 in zip(SPECIAL, values, want, strict=True):
            off1 = ulps(np.array([got1]), np.array([want1], np.float64))[0]
            close = off1 <= max(f.ulp, 1) or (off1 < inf and not f.low <= at <= f.high)
            tiny = abs(want1) < 2 * _TINY or 0 < abs(at) < _TINY  # denormals: apart
            if not (close and (got1 != 0 or np.signbit(got1) == np.signbit(want1))) and not tiny:
                found.append(f"at {_text(at)}: {_text(got1)}, not {_text(want1)}")
        if found:
            out.special[name] = found


def _binary(out: Measured) -> None:
    v = crossed("float32")
    a, b = (m.ravel().copy() for m in np.meshgrid(v, v))
    for name, pair in BINARY.items():
        with np.errstate(all="ignore"):
            exact = np.asarray(pair.exact(*(m.astype(np.float64) for m in (a, b)) if pair.wide else (a, b)))
        got = pair.ours(Tensor(a), Tensor(b)).numpy()
        if got.dtype == np.bool_:
            wrong = got != exact
            off = np.where(wrong, inf, 0.0)
        else:
            exact = exact.astype(np.float64)
            off = ulps(got, exact)
        tiny = ((np.abs(a) < _TINY) & (a != 0)) | ((np.abs(b) < _TINY) & (b != 0))
        if got.dtype != np.bool_:
            with np.errstate(all="ignore"):
                tiny |= (np.abs(exact) < _TINY) & (exact != 0)
        if name in ("//", "%"):
            tiny |= np.abs(b) < _TINY * 2**24  # what is left may be one
        zero = np.zeros(a.shape, bool)
        if got.dtype != np.bool_:
            zero = (got == 0) & (exact == 0) & (np.signbit(got) != np.signbit(exact)) & ~tiny
        lost = (off > max(pair.ulp, 0.5)) & ~tiny
        finite = off[~tiny & ~lost]
        shown = [
            f"{_text(a[i])} {name} {_text(b[i])} = {_text(got[i])}, not {_text(exact[i])}"
            for i in np.flatnonzero(lost)[:6]
        ]
        out.binary[name] = {
            "ulp": round(float(finite.max()), 2) if finite.size else 0.0,
            "wrong": int(lost.sum()),
            "zero signs": int(zero.sum()),
            "denormals": int(((off > max(pair.ulp, 0.5)) & tiny).sum()),
            "shown": shown,
        }


def _integers(out: Measured) -> None:
    known = get_device(out.device).limits.dtypes
    for kind in ("int32", "uint32", "int8", "uint8", "int16", "uint16", "int64", "uint64"):
        if getattr(dtypes, kind) not in known:
            continue
        v = crossed(kind)
        a, b = (m.ravel().copy() for m in np.meshgrid(v, v))
        for name, (ours, exact) in INTEGERS.items():
            with np.errstate(all="ignore"):
                want = exact(a, b)
            out.integers[f"{kind} {name}"] = int((ours(Tensor(a), Tensor(b)).numpy() != want).sum())
        floats = crossed("float32")
        info = np.iinfo(kind)
        with np.errstate(all="ignore"):
            whole = np.trunc(np.where(np.isnan(floats), 0, floats).astype(np.float64))
            whole = [int(x) if abs(x) < inf else int(math.copysign(2**70, x)) for x in whole]
            ends = info if info.bits >= 32 else np.iinfo("int32")
            whole = [min(max(x, ends.min), ends.max) for x in whole]
            want = np.array([(x - info.min) % 2**info.bits + info.min for x in whole], object)
        got = Tensor(floats).cast(getattr(dtypes, kind)).numpy()
        out.casts[f"float32 -> {kind}"] = int((got.astype(object) != want).sum())
        with np.errstate(all="ignore"):
            back = v.astype(np.float32)
        out.casts[f"{kind} -> float32"] = int((Tensor(v).cast(dtypes.float32).numpy() != back).sum())


def _denormals(out: Measured) -> None:
    x = np.array([1e-39, -1e-40, 1e-45], np.float32)
    n = np.array([2e-38, -2e-38, 1.2e-38], np.float32)
    kept = {"read, x * 1e10": (Tensor(x) * 1e10).numpy() != 0, "made, n * 0.25": (Tensor(n) * 0.25).numpy() != 0}
    kept["copied"] = Tensor(x).contiguous().flip(0).realize().numpy() != 0
    kept["compared, x > 0"] = (Tensor(np.abs(x)) > 0).numpy()
    kept["added, n - n * 0.999"] = (Tensor(n) - Tensor(n * np.float32(0.999))).numpy() != 0
    for name, keeps in kept.items():
        out.denormals[name] = "kept" if keeps.all() else "0" if not keeps.any() else "some 0"


def measure(device: str, count: int = 100_000) -> Measured:
    """Everything about one device; `count` arguments for each function of one number."""
    from anneal.tensor import set_default_device

    about = get_device(device).describe()
    set_default_device(device)
    try:
        name = f"NumPy {np.__version__}" if device == "cpu" else f"{about['adapter']}, {about['backend']}"
        out = Measured(device, name)
        _unary(out, count)
        _binary(out)
        _integers(out)
        _denormals(out)
        return out
    finally:
        set_default_device(None)


# -- the page ----------------------------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(r) + " |" for r in rows), ""]


_MATRICES = [
    "## Subgroup matrices",
    "",
    "On webgpu, through Dawn, products of float16 numbers are summed by tensor cores where the adapter has them and the result",
    "is float16 (or a piece of a sum that will be). They cut off what a float32 sum would round, so errors grow with the",
    "length of a sum and lean to zero. On an H200, positive operands, the largest relative error of a float32 sum of 256 was",
    "1.8e-6, of 4096 2.8e-5, and 1.1e-4 of 16384; half an ulp of float16 is 4.9e-4.",
    "",
    "There products of bfloat16 are made of float16 numbers, each row and each column scaled by a power of two: exact, but",
    "for what is below 2**-39 of a row's largest. So are those of float32 where `set_float32_matmul_precision` says so: of",
    'two halves (22 bits) and sums of 256 terms at "high", of 11 bits at "medium".',
]


def page(found: Sequence[Measured]) -> str:
    """NUMERICS.md."""
    heads = [m.device if m.device == "cpu" else f"{m.device}: {m.about.split(' (')[0].split(',')[0]}" for m in found]
    lines = ["# Numbers on each device", "", "Made by `python -m benchmarks.numerics`; do not edit.", ""]
    lines += [f"- {h}: {m.about}" for h, m in zip(heads, found, strict=True)]
    lines += ["", "## Functions of one float32: the largest error in ULP, and where", ""]
    rows = []
    for name, f in UNARY.items():
        cells = []
        for m in found:
            off, at = m.unary.get(name, (nan, nan))
            cells.append(f"{off:.4g} at {at:.6g}" if off else "0")
        rows.append([name, f"{f.low:.4g} to {f.high:.4g}", *cells])
    lines += _table(["function", "arguments", *heads], rows)
    lines += [
        "Special arguments (nan, infinities, zeros, 2**-126, 1, 2.5, the largest float, and their negatives) give what",
        "NumPy gives, but for:",
        "",
    ]
    differences = [
        f"- {h}: {n} {'; '.join(t)}" for h, m in zip(heads, found, strict=True) for n, t in m.special.items()
    ]
    lines += [*(differences or ["- nothing."]), ""]
    lines += ["## Operations of two float32: 256 values crossed, 65,536 pairs", ""]
    lines += [
        "The largest error in ULP; then, if there are any, results that are wrong, zeros of the other sign, and results that",
        "differ because a denormal was read or made as 0.",
        "",
    ]
    rows = []
    for name in BINARY:
        cells = []
        for m in found:
            b = m.binary[name]
            parts = [f"{b['ulp']:.3g}"] + [f"{b[k]} {k}" for k in ("wrong", "zero signs", "denormals") if b[k]]
            cells.append(", ".join(parts))
        rows.append([name, *cells])
    lines += _table(["operation", *heads], rows)
    shown = [f"- {h}: {t}" for h, m in zip(heads, found, strict=True) for b in m.binary.values() for t in b["shown"]]
    lines += [*shown, *([""] if shown else [])]
    lines += ["## Integers: 256 values crossed; results that break the rule", ""]
    lines += [
        "`+ - *` wrap around; `//` and `%` round down, by zero they give 0; a shift by the width or more, or by less than 0,",
        "gives 0, or -1 for `>>` of a negative. A float becomes an integer by truncation, the nearest end beyond it, nan 0;",
        "one of 8 or 16 bits is the low bits of that of int32, as torch's: -1.0 is 255 as uint8.",
        "",
    ]
    kinds = dict.fromkeys(k.split()[0] for m in found for k in m.integers)
    rows = []
    for kind in kinds:
        cells = []
        for m in found:
            mine = {k: n for k, n in m.integers.items() if k.split()[0] == kind}
            mine |= {k: n for k, n in m.casts.items() if kind in k.split()}
            wrong = [f"{k} {n}" for k, n in mine.items() if n]
            cells.append("not there" if not mine else ", ".join(wrong) or "none")
        rows.append([kind, *cells])
    lines += _table(["dtype", *heads], rows)
    lines += ["## Denormals", ""]
    names = dict.fromkeys(k for m in found for k in m.denormals)
    lines += _table(["", *heads], [[k, *[m.denormals.get(k, "") for m in found]] for k in names])
    lines += _MATRICES
    return "\n".join(lines).rstrip() + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.numerics", description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="cpu,webgpu")
    parser.add_argument("--count", type=int, default=100_000, help="arguments for each function of one number")
    parser.add_argument("--json", metavar="FILE", help="write what was measured")
    parser.add_argument("--read", nargs="*", metavar="FILE", help="take what was measured from these files")
    parser.add_argument("--write", metavar="FILE", help="write the page")
    given = parser.parse_args(argv)
    if given.read:
        found = [Measured(**m) for f in given.read for m in json.loads(Path(f).read_text())]
    else:
        found = [measure(d, given.count) for d in given.devices.split(",")]
    if given.json:
        Path(given.json).write_text(json.dumps([asdict(m) for m in found]))
    if given.write:
        Path(given.write).write_text(page(found))
    elif not given.json:
        print(page(found))


if __name__ == "__main__":
    main()
