"""Values in float64 with a bound on the error of computing them in their own dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anneal.backend import MEANINGS, numpy_dtype, of_numpy
from anneal.uop import ALU, REAL, DType, Op, covering, dtypes

Array = NDArray[Any]
EXACT: Array = np.zeros(())  # the error of an exact value


def unheard() -> np.errstate:
    """A block, or a function, in which NumPy does not warn of numbers that are not finite."""
    return np.errstate(all="ignore")


# A sum of more terms is a loop, whose result alone is added to others: of several accumulators, that is.
MOST_TERMS = 64
_ROUNDED_EXACTLY = frozenset((Op.ADD, Op.SUB, Op.MUL, Op.CAST))
_MONOTONE = frozenset((Op.AND, Op.MUL, Op.MIN, Op.OR, Op.ADD, Op.MAX))  # of bools
_SUMS = frozenset((Op.ADD, Op.SUB, Op.NEG, Op.ABS, Op.MAX, Op.MIN))


class Bounded(NamedTuple):
    """Floats as float64, integers and bools in their dtype, and the bound: an array that broadcasts to them.

    A `Bounded` says: a device that computes this by these ops, in any order of a sum, gets a number within `error` of
    `value`. The bound is the running one of Wilkinson and Peters (Higham, Accuracy and Stability of Numerical
    Algorithms, 2nd ed., section 3.3): each op adds its own rounding to what it makes of its sources' bounds. Where an
    op is monotone that is its value at both ends of the interval, so that poles, steps and overflow are met; where a
    choice or a step depends on numbers that are no better known than that, the bound takes in both sides, and `inf`
    says that anything may be there.

    Of a bool a bound above 0 says that it may be either. A sum of `many` terms whose magnitudes add up to `mass` may
    be added up in another order together with what it is added to: WGSL lets drivers do that.
    """

    value: Array
    error: Array = EXACT
    mass: Array | None = None
    many: int = 1

    @property
    def exact(self) -> bool:
        return not self.error.ndim and not self.error

    def whole(self) -> Array:
        """The bound, of the value's shape."""
        return np.broadcast_to(self.error, self.value.shape)

    def magnitude(self) -> Array:
        """The sum of the magnitudes of its terms."""
        return np.abs(self.value) if self.mass is None else self.mass

    def doubted(self, by: Bounded) -> Bounded:
        """These values where `by`, on which they depend, is known; elsewhere anything."""
        return self if by.exact else Bounded(self.value, np.where(by.error > 0, np.inf, self.error))

    def moved(self, move: Callable[[Array], Array]) -> Bounded:
        """This value with its elements in other places."""
        error = EXACT if self.exact else move(self.whole())
        return Bounded(move(self.value), error, None if self.mass is None else move(self.mass), self.many)

    def gated(self, inside: Array) -> Bounded:
        """This value where `inside` is true, 0 elsewhere."""
        value = np.where(inside, self.value, np.zeros((), self.value.dtype))
        return Bounded(value, EXACT if self.exact else np.where(inside, self.whole(), 0.0))


def tight(value: Array, error: Array) -> Bounded:
    """A value with its bound, which is exact where that is 0 everywhere."""
    return Bounded(value, error if error.any() else EXACT)


@unheard()
def exactly(memory: Array) -> Bounded:
    """The value that memory holds; a subnormal number may be read as 0."""
    if memory.dtype.kind in "iub":
        return Bounded(memory)
    wide = memory.astype(float)
    if memory.dtype == np.float64:
        return Bounded(wide)
    size = np.abs(memory if memory.dtype == np.float32 else wide)
    return tight(wide, np.where(size < (2.0**-14 if memory.dtype == np.float16 else 2.0**-126), size, 0.0))


def wide_dtype(dtype: DType) -> np.dtype[Any]:
    """The dtype in which values of `dtype` are computed here: float64 for all floats."""
    return np.dtype(np.float64) if dtype.is_float else numpy_dtype(dtype)


def unit(dtype: DType) -> float:
    """Half an ulp of 1. In float64 the reference rounds as well."""
    return 2.0**-52 if dtype is dtypes.float64 else 2.0**-dtype.digits


def smallest(dtype: DType) -> float:
    """The magnitude below which a number is subnormal, and may become 0."""
    return 2.0 ** max(dtype.least, -126)


def terms(count: float) -> float:
    """The roundings of a sum of so many terms, as a multiple of the unit and of the sum of their magnitudes.

    Up to 1024 terms it is their number, which holds for every order (Higham, section 4.2); beyond it grows with the
    root, which holds with overwhelming probability where roundings are independent of each other (Higham and Mary,
    SIAM J. Sci. Comput. 41, 2019).
    """
    return min(count, 32.0 * math.sqrt(count)) + 1.0


@unheard()
def apply(op: Op, dtype: DType, sources: Sequence[Bounded], kinds: Sequence[DType]) -> Bounded:
    """Apply an elementwise op to bounded values; `kinds` are the sources' dtypes."""
    if op is Op.CAST:
        return cast(sources[0], kinds[0], dtype)
    if op is Op.BITCAST:
        return _bitcast(sources[0], kinds[0], dtype)
    if op is Op.WHERE:
        return _where(*sources)
    if op.compares:
        return _compared(op, *sources)
    exact = all(s.exact for s in sources)
    value = np.asarray(MEANINGS[op](*[s.value for s in sources]))
    if dtype.is_float:
        change = EXACT if exact else CHANGES[op](value, *[x for s in sources for x in (s.value, s.error)])
        return _finished(op, dtype, value, change, sources)
    value = value.astype(numpy_dtype(dtype), copy=False)
    return Bounded(value, EXACT if exact else _whole_numbers(op, dtype, value, sources))


def _finished(op: Op, dtype: DType, value: Array, change: Array, sources: Sequence[Bounded]) -> Bounded:
    """The bound of a float: what the sources' bounds change, and the op's own rounding."""
    mass, count = None, 1
    if op in (Op.ADD, Op.SUB):  # the terms of both
        a, b = sources
        mass, count = np.asarray(a.magnitude() + b.magnitude()), min(a.many + b.many, 2 * MOST_TERMS)
    elif op is Op.NEG:
        mass, count = sources[0].mass, sources[0].many
    error = change
    if op.ulps and count > 2 and mass is not None and not _whole_sums(mass, dtype, sources):
        least = count * smallest(dtype)
        error = change + np.where(mass > 0, (count - 1) * unit(dtype) * (mass + change) + least, 0.0)
    elif op.ulps:
        error = change + _rounding(op, dtype, value, change, sources[0].value)
    odd = ~np.isfinite(value)
    if odd.any():
        known = [np.isfinite(s.error) if op in _SUMS else s.error == 0 for s in sources]
        error = np.where(odd, np.where(reduce(np.logical_and, known), 0.0, np.inf), error)
    return rounded(value, np.where(np.isnan(error), np.inf, error), dtype)._replace(mass=mass, many=count)


def _whole_sums(mass: Array, dtype: DType, sources: Sequence[Bounded]) -> bool:
    """True if all terms are whole numbers without a bound: no order of summation rounds."""
    whole = all(s.exact and bool((s.value == np.rint(s.value)).all()) for s in sources)
    return whole and bool((mass < 2.0 ** min(dtype.digits, 31)).all())


def _rounding(op: Op, dtype: DType, value: Array, change: Array, x: Array) -> Array:
    """The bound on an op's own rounding; none where the result needs none. `x` is its first source."""
    # WGSL lets the error of exp grow with the exponent, and so does exp by exp2
    many = op.ulps + 4 * np.abs(x) if op in (Op.EXP, Op.EXP2) else op.ulps
    rounding = many * unit(dtype) * (np.abs(value) + change)
    if op in (Op.LOG, Op.LOG2) and dtype is not dtypes.float64:
        rounding = rounding + np.where((x > 0.4) & (x < 2.5) & (x != 1), 2.0**-21, 0.0)  # WGSL's, beside the zero
    rounding = rounding + smallest(dtype)  # a subnormal result may become 0
    if op in _ROUNDED_EXACTLY and change is EXACT:  # a number of the dtype, not subnormal, needs none
        size = np.abs(value)
        if dtype is dtypes.float64:
            fits = (value == np.rint(value)) & (size < 2.0**31)
        else:
            fits = value.astype(numpy_dtype(dtype)).astype(float) == value
        rounding = np.where(fits & ((size >= smallest(dtype)) | (size == 0)), 0.0, rounding)
    return np.asarray(rounding)


@unheard()
def rounded(value: Array, error: Array, dtype: DType) -> Bounded:
    """A float with its bound: numbers beyond the dtype become infinite, near its end anything."""
    size = np.abs(value)
    error = np.where(np.isnan(error) & np.isfinite(size), np.inf, error)
    beyond = (size + np.where(np.isfinite(error), error, 0.0) > dtype.largest) & np.isfinite(size)
    if dtype is dtypes.float64 or not beyond.any():
        return tight(value, error)
    sure = beyond & (size - error > dtype.largest * (1 + unit(dtype))) & dtype.has_infinity
    value = np.where(sure, np.copysign(np.inf, value), value)
    return Bounded(value, np.where(beyond, np.where(sure, 0.0, np.inf), error))


# -- what a change of the sources makes of a value --------------------------------------------------------------------


def _farthest(f: Callable[..., Any], value: Array, *ends: Array) -> Array:
    """The largest distance of f at the ends from the value; nan where f has none there."""
    found = [np.where((at := f(end)) == value, 0.0, np.abs(at - value)) for end in ends]
    return np.asarray(reduce(np.maximum, found))


def _change(op: Op) -> Callable[..., Array]:
    """The function that the cell of an op's row says."""
    if callable(op.change):
        return of_numpy(op.change)  # type: ignore[no-any-return]
    f = MEANINGS[op]
    if op.change == "monotone":
        return lambda value, x, e: _farthest(f, value, x - e, x + e)
    return lambda value, x, e: np.where((np.abs(x) <= e) & (e > 0), np.inf, _farthest(f, value, x - e, x + e))


def _tangent(value: Array, x: Array, e: Array) -> Array:
    period = np.floor(x / np.pi + 0.5)
    safe = (np.floor((x - e) / np.pi + 0.5) == period) & (np.floor((x + e) / np.pi + 0.5) == period)
    return np.where(safe, _farthest(np.tan, value, x - e, x + e), np.inf)


def _quotient(value: Array, a: Array, ea: Array, b: Array, eb: Array) -> Array:
    change = (ea + np.abs(value) * eb) / (np.abs(b) - eb)
    return np.where((ea == 0) & (eb == 0), 0.0, np.where((np.abs(b) <= eb) & (eb > 0), np.inf, change))


def _floored(value: Array, a: Array, ea: Array, b: Array, eb: Array) -> Array:
    q = a / b
    return _farthest(np.floor, value, *[q + s * (_quotient(q, a, ea, b, eb) + np.abs(q) * 2e-7) for s in (-1, 1)])


def _modulo(value: Array, a: Array, ea: Array, b: Array, eb: Array) -> Array:
    steps = _floored(np.floor(a / b), a, ea, b, eb)
    return np.where(steps == 0, ea + np.abs(np.floor(a / b)) * eb, np.abs(b) + eb)


def _power(value: Array, a: Array, ea: Array, b: Array, eb: Array) -> Array:
    wide = _farthest(lambda x: x, value, *[np.power(a + s * ea, b + t * eb) for s in (-1, 1) for t in (-1, 1)])
    whole = np.abs(b) * np.power(np.abs(a) + ea, np.maximum(b - 1, 0)) * ea  # of a whole exponent
    known = (eb == 0) & (b == np.rint(b)) & (b >= 1)
    return np.where((ea == 0) & (eb == 0), 0.0, np.where(a - ea > 0, wide, np.where(known, whole, np.inf)))


def _extreme(best: Callable[..., Any]) -> Callable[..., Array]:
    """The change of the larger of two, or of the smaller."""
    return lambda value, a, ea, b, eb: np.maximum(best(a + ea, b + eb) - value, value - best(a - ea, b - eb))


CHANGES: Mapping[Op, Callable[..., Array]] = covering(
    "the list of changes in anneal/inspect/checking/bounds.py",
    {
        **dict.fromkeys((Op.NEG, Op.ABS), lambda value, x, e: e),
        Op.TAN: _tangent,
        **dict.fromkeys((Op.ADD, Op.SUB), lambda value, a, ea, b, eb: ea + eb),
        # a factor that is surely 0 makes 0 of any finite number
        Op.MUL: lambda value, a, ea, b, eb: (
            np.where(ea == 0, 0.0, ea * (np.abs(b) + eb)) + np.where(eb == 0, 0.0, np.abs(a) * eb)
        ),
        Op.DIV: _quotient,
        Op.IDIV: _floored,
        Op.MOD: _modulo,
        Op.POW: _power,
        Op.MAX: _extreme(np.maximum),
        Op.MIN: _extreme(np.minimum),
        **{op: _change(op) for op in ALU if op.change is not None},
    },
    REAL - {Op.WHERE},
)


# -- choices, whole numbers, other dtypes ----------------------------------------------------------------------------


def _compared(op: Op, a: Bounded, b: Bounded) -> Bounded:
    value = np.asarray(MEANINGS[op](a.value, b.value))
    unsure = a.error + b.error
    if a.value.dtype.kind == "b":
        return Bounded(value, np.minimum(unsure, 1.0))
    apart = np.abs(a.value.astype(float) - b.value.astype(float))
    sure = (apart > unsure) | (unsure == 0) | (np.isnan(apart) & np.isfinite(unsure))
    return tight(value, np.where(sure, 0.0, 1.0))


def _where(condition: Bounded, a: Bounded, b: Bounded) -> Bounded:
    value = np.where(condition.value, a.value, b.value)
    error = np.where(condition.value, a.error, b.error)
    if condition.exact:
        return tight(value, error)
    far = []
    for side in (a, b):  # the one that is chosen is its own bound away
        x, y = side.value.astype(float), value.astype(float)
        apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
        far.append(np.where(np.isnan(apart), np.inf, apart) + side.error)
    return Bounded(value, np.where(condition.error > 0, np.maximum(*far), error))


def _whole_numbers(op: Op, dtype: DType, value: Array, sources: Sequence[Bounded]) -> Array:
    """The bound of an integer or bool, of sources that have one."""
    errors = [s.error for s in sources]
    if dtype.kind == "bool":
        return _logic(op, sources)
    if op in (Op.NEG, Op.ABS, Op.NOT):
        return errors[0]
    if op in (Op.MUL, Op.MAX, Op.MIN):
        return CHANGES[op](value.astype(float), *[x for s in sources for x in (s.value.astype(float), s.error)])
    total = np.asarray(sum(errors))
    return total if op in (Op.ADD, Op.SUB) else np.where(total > 0, np.inf, 0.0)


def _logic(op: Op, sources: Sequence[Bounded]) -> Array:
    """The bound of a bool: of a monotone op it is known where the op gives one thing at both ends."""
    if len(sources) == 1:
        return sources[0].error
    unsure = [s.error > 0 for s in sources]
    if op not in _MONOTONE:
        return np.where(reduce(np.logical_or, unsure), 1.0, 0.0)
    ends = [[np.where(u, end, s.value) for u, s in zip(unsure, sources, strict=True)] for end in (False, True)]
    low, high = (MEANINGS[op](*values) for values in ends)
    return np.where(low != high, 1.0, 0.0)


def cast(x: Bounded, kind: DType, dtype: DType) -> Bounded:
    """A value as another dtype."""
    value, error = x.value, x.error
    if dtype.kind == "bool":
        unsure = error if kind.kind == "bool" else np.where((np.abs(value) <= error) & (error > 0), 1.0, 0.0)
        return tight(value != 0, unsure)
    if dtype.is_float:
        wide = value.astype(float)
        if kind.is_float and kind.digits <= dtype.digits and kind.least >= dtype.least:
            return Bounded(wide, error)
        return _finished(Op.CAST, dtype, wide, error, [x])
    out = numpy_dtype(dtype)
    if not kind.is_float:
        return Bounded(value.astype(out), error)
    found = MEANINGS[Op.CAST](value, out)
    if x.exact:
        return Bounded(found)
    ends = [MEANINGS[Op.CAST](value + s * error, out).astype(float) for s in (-1, 1)]
    return Bounded(found, _farthest(lambda at: at, found.astype(float), *ends))


def _bitcast(x: Bounded, kind: DType, dtype: DType) -> Bounded:
    bits = MEANINGS[Op.BITCAST](x.value.astype(numpy_dtype(kind)), numpy_dtype(dtype))
    error = EXACT if x.exact else np.where(x.error > 0, np.inf, 0.0)
    return Bounded(bits.astype(float) if dtype.is_float else bits, error)


# -- a device's elements beside bounded ones --------------------------------------------------------------------------


class Compared(NamedTuple):
    """The counts of a comparison: values judged, values without a bound, values that differ, and the worst one, by its
    error over the bound.
    """

    judged: int
    unjudged: int
    differ: int
    worst: float
    at: int  # the worst that differs, else the worst of all

    @property
    def ok(self) -> bool:
        return not self.differ


def beside(got: Array, expected: Bounded, live: Array | None = None) -> Compared:
    """Compare `got`, elements as a device has them, with the expected ones; only `live` elements count."""
    got = got.ravel()
    if not got.size:
        return Compared(0, 0, 0, 0.0, 0)
    want = expected.value.ravel()
    error = expected.whole().ravel()
    counted = np.ones(got.shape, bool) if live is None else live.ravel()
    unsure = ~np.isfinite(error) | ((error > 0) if want.dtype.kind == "b" else False)
    judged = counted & ~unsure
    with unheard():
        wide = got.astype(float)
        same = got == want if want.dtype.kind in "iub" else (wide == want) | (np.isnan(wide) & np.isnan(want))
        apart = np.where(same, 0.0, np.abs(wide - want.astype(float)))
        part = np.where(same, 0.0, np.where(error > 0, apart / np.where(error > 0, error, 1.0), np.inf))
    part = np.where(judged, np.where(np.isnan(part), np.inf, part), 0.0)
    differ = part > 1.0 + 1e-6
    at = int(np.argmax(part))
    return Compared(int(judged.sum()), int((counted & unsure).sum()), int(differ.sum()), float(part[at]), at)


def ulps(got: float, expected: float, dtype: DType) -> float:
    """The distance in units of the last place of `dtype` at `expected`."""
    if not dtype.is_float:
        return abs(float(got) - float(expected))
    if not np.isfinite(got) or not np.isfinite(expected):
        return 0.0 if got == expected or (got != got and expected != expected) else float("inf")
    exponent = max(int(np.frexp(expected)[1]) - 1 if expected else dtype.least, dtype.least)
    return float(abs(got - expected) / 2.0 ** (exponent - dtype.digits + 1))


def shown(x: Any) -> float | int | bool | str:
    """An element as a JSON value; as text if JSON has no such number."""
    value = np.asarray(x, None if np.asarray(x).dtype.kind in "biuU" else float).item()
    return value if isinstance(value, str) or math.isfinite(value) else str(value)
