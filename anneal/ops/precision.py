"""The precision of functions: of those made of several ops, of what runs under `autocast`, of integers; `no_grad`."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, Self, overload

from anneal.backend import HOST, get_device
from anneal.errors import RangeError
from anneal.ops.checks import is_tensor
from anneal.runtime import F, Handle, here
from anneal.uop import FITS, WRAPS, DType, Nodes, Op, UOp, const, dtypes, promote, users_frame
from anneal.uop.sizes import Size, most

_FLOAT32 = dtypes.float32


def in_single(function: F, keeps: bool) -> F:
    """A function of several ops, whose floats of 8 and 16 bits become float32 first; its results are rounded once.

    They have the dtype that the float tensors among the arguments promote to; with `keeps`, that of the first.
    """

    @functools.wraps(function)
    def in_float32(*args: Any, **options: Any) -> Any:
        given = [a.uop for a in (*args, *options.values()) if isinstance(a, Handle)]
        kinds = [u.dtype for u in given if u.shape or not given[0].shape]  # one number may be float32 for its digits
        if not any(k.is_narrow for k in kinds) or options.get("dtype") is not None:
            return function(*args, **options)
        kind = kinds[0] if keeps else functools.reduce(promote, [k for k in kinds if k.is_float])
        out = function(*[_changed(a, _FLOAT32) for a in args], **{n: _changed(a, _FLOAT32) for n, a in options.items()})
        return _changed(out, kind)

    return in_float32  # type: ignore[return-value]


# -- autocast ---------------------------------------------------------------------------------------------------------


def casts(function: F, rule: str) -> F:
    """`function`, which takes its float tensors in another dtype under `autocast`; within it nothing more is cast.

    Args:
        rule: the dtype, as the word `autocast` of `@function` says it: "low" that of the block, "float32", or "widest"
            what the tensors promote to. float64 is left as it is, and so is a call that names a dtype.
    """

    @functools.wraps(function)
    def cast_first(*args: Any, **options: Any) -> Any:
        kinds = here.autocast
        if not kinds or options.get("dtype") is not None:
            return function(*args, **options)
        given = [t for x in (*args, *options.values()) for t in (x if isinstance(x, (list, tuple)) else (x,))]
        floats = [t for t in given if isinstance(t, Handle) and _may_change(t)]
        low = cast_dtype(kinds, floats[0].device) if floats else None
        here.autocast = ()
        try:
            if low is None:
                return function(*args, **options)
            wide = functools.reduce(promote, [t.uop.dtype for t in floats])
            kind = {"low": low, "float32": _FLOAT32, "widest": wide}[rule]
            return function(*[_changed(x, kind) for x in args], **{n: _changed(x, kind) for n, x in options.items()})
        finally:
            here.autocast = kinds

    return cast_first  # type: ignore[return-value]


def cast_dtype(kinds: tuple[tuple[str, DType], ...], device: str) -> DType | None:
    """The dtype of tensors that blocks of `autocast` in force ask for on a device; None if none does.

    Args:
        kinds: the blocks: a kind of device and a dtype each.
        device: the device's name.

    >>> cast_dtype((("cpu", dtypes.bfloat16),), "cpu:0")
    dtypes.bfloat16
    """
    kind = device.partition(":")[0]
    return next((dtype for name, dtype in kinds if name == kind), None)


def _may_change(t: Any) -> bool:
    kind: DType = t.dtype
    return kind.is_float and kind.bits < 64


def _changed(x: Any, kind: DType) -> Any:
    if isinstance(x, (list, tuple)) and any(isinstance(t, Handle) for t in x):
        return type(x)([_changed(t, kind) for t in x])
    return x.cast(kind) if is_tensor(x) and _may_change(x) else x


# -- integers that outgrow their dtype --------------------------------------------------------------------------------
# Integers that do not wrap around unseen: sums and products in a dtype that holds them, and ops that are refused.
#
# What the bounds of the terms, or how many there are, keep inside 32 bits stays there. What they let out of it is
# int64. Where they tell nothing, a device with int64 adds up in that; the cpu then looks whether the result fits, once
# it has been computed. An op of single elements in int32 that is known to leave that raises at the call; what is not
# known to wraps around.


_INT32, _INT64 = dtypes.int32, dtypes.int64


def largest_of(u: UOp) -> int:
    """The largest size of an element of integers or bools, as far as the bounds tell."""
    return max(abs(int(u.vmin)), abs(int(u.vmax)))  # type: ignore[arg-type]


def _known(u: UOp) -> bool:
    d = u.dtype
    return d.bits < 32 or (u.vmax < d.max and (u.vmin > d.min or d.kind == "uint"))  # type: ignore[operator]


def whole(name: str, device: str, src: Nodes, largest: float, made: Callable[..., UOp]) -> UOp:
    """`made` of integers of 32 bits or fewer, or of bools, all of one dtype, cast to one that holds the result.

    No intermediate result is larger than `largest`. Raises RangeError where it may be more than 32 bits hold, as the
    bounds of the sources tell, on a device that has no more.
    """
    d = src[0].dtype if src[0].dtype.bits == 32 else _INT32
    wide = largest > d.max and not here.wraps
    known = wide and all(map(_known, src))
    if wide and device != HOST and _INT64 not in get_device(device).limits.dtypes:
        if known:
            raise RangeError(
                f"{name}: the result may be as large as {largest:.3g}, more than {d.name} holds, and device {device!r} "
                f"has no int64; give a float dtype, or use device 'cpu'"
            )
        wide = False
    u = made(*[s.cast(_INT64 if wide else d) for s in src])
    return u if not wide or (not here.warns and (known or device != HOST)) else _fitted(name, device, d, u)


def _fitted(name: str, device: str, d: DType, u: UOp) -> UOp:
    """`u` in 32 bits, of which the cpu says if they do not hold it."""
    return UOp(Op.CAST, d, (u,), None, (FITS, name, WRAPS if here.warns else "") if device == HOST else None)


def whole_product(name: str, device: str, src: Nodes, terms: Size, made: Callable[..., UOp]) -> UOp:
    """The result of `made`, each element a sum of `terms` products. Integers of 32 bits get the dtypes of `whole` sums;
    other dtypes keep theirs.
    """
    d = src[0].dtype
    if d.is_float or d.bits != 32:
        return made(*src)
    return whole(name, device, src, most(terms) * math.prod(map(largest_of, src)), made)


def kept(name: str, device: str, src: Nodes, made: Callable[..., UOp]) -> UOp:
    """`made`, which adds up numbers of one dtype in that: the cpu looks whether words of 32 bits held them."""
    d = src[0].dtype
    if d.is_float or d.bits != 32 or device != HOST or here.wraps:
        return made(*src)
    return _fitted(name, device, d, made(*[s.cast(_INT64) for s in src]))


def power(base: int, n: int) -> float:
    """base ** n, infinite where that has more than 64 bits."""
    return float("inf") if base > 1 and n * math.log2(base) > 64 else float(base**n)


def refused(name: str, device: str, u: UOp, right: UOp, text: str) -> UOp:
    """The int32 `u`: where `right` does not hold, the cpu raises ShapeError with a text when it is computed."""
    if device != HOST:
        return u
    wrong = const(_INT64, 1 << 40)
    return UOp(Op.CAST, u.dtype, (right.where(u.cast(_INT64), wrong),), None, (FITS, name, text))


# -- element by element -----------------------------------------------------------------------------------------------

_SEEN = frozenset((Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.FLIP, Op.CONTIGUOUS, Op.DETACH, Op.NEG))


def _reached(u: UOp) -> bool:
    """True if some element reaches the lower bound and some the upper one: so for constants and `arange`, multiplied by
    and added to constants.
    """
    while u.op is not Op.IOTA and u.vmin != u.vmax:
        if u.op in _SEEN or (u.op is Op.CAST and u.src[0].dtype.is_int):
            u = u.src[0]
        elif u.op in (Op.ADD, Op.SUB, Op.MUL) and any(s.vmin == s.vmax for s in u.src):
            u = u.src[u.src[0].vmin == u.src[0].vmax]
        else:
            return False
    return True


def _exact(op: Op, a: UOp, b: UOp) -> tuple[float, float]:
    """The bounds of `op` if integers had no end."""
    bounds: Any = a.vmin, a.vmax, b.vmin, b.vmax
    al, ah, bl, bh = bounds
    if op is Op.ADD:
        return al + bl, ah + bh
    if op is Op.SUB:
        return al - bh, ah - bl
    if op is Op.MUL:
        ends: tuple[float, ...] = (al * bl, al * bh, ah * bl, ah * bh)
    else:  # a power or a shift, which are 0 or little by what is below 0; a shift by 32 or more is 0, too
        most = 31 if op is Op.SHL else bh
        ends = tuple([_grown(op, int(x), int(max(y, 0))) for x in (al, ah) for y in (bl, min(bh, most)) if y <= most])
        ends = (*ends, 0) if al < 0 < ah or bl < 0 or bh > most else ends
    return min(ends), max(ends)


def _grown(op: Op, x: int, n: int) -> float:
    return x * power(2, n) if op is Op.SHL else power(abs(x), n) * (-1 if x < 0 and n % 2 else 1)


def check_growth(op: Op, a: UOp, b: UOp, name: str = "") -> None:
    """Raise RangeError if an element of `op` of integers of 32 bits is known to leave them; or warn, by `name`."""
    d = a.dtype
    for u in (a, b):
        if u.vmin == d.min and u.vmax == d.max:
            return
    low, high = _exact(op, a, b)
    if here.wraps or 0 in a.shape or (d.min <= low and high <= d.max):
        return
    one = a.vmin == a.vmax or b.vmin == b.vmax or (a is b and a.vmin >= 0)  # type: ignore[operator]
    if low > d.max or high < d.min or (one and _reached(a) and _reached(b)):
        far = high if high > d.max else low
        reach = str(far) if isinstance(far, int) and abs(far) < 1e15 else f"{far:.10g}"
        if here.warns:
            warnings.warn(
                f"{name or op.name.lower()}: the result reaches {reach} and wraps around in {d.name}", RuntimeWarning, 2
            )
            return
        raise RangeError(
            f"the result reaches {reach}, which {d.name} does not hold ({d.min} to {d.max}); take int64: "
            f".cast(an.int64), or dtype=an.int64 where the tensor is made"
        )


# -- the switch of gradients ------------------------------------------------------------------------------------------
#
# The switch of gradients: `no_grad`.


class no_grad:
    """A block (or a decorated function) whose results require no gradient. Other threads are not affected.

    Without parentheses before a function, that is `orig_func`.

    >>> from anneal.tensor import Tensor, no_grad
    >>> w = Tensor([1.0, 2.0], requires_grad=True)
    >>> with no_grad():
    ...     y = w * 2
    >>> y.requires_grad
    False
    """

    __slots__ = ("_before",)
    _records = False  # whether gradients are recorded within

    _before: list[bool]

    @overload
    def __new__(cls) -> Self: ...
    @overload
    def __new__(cls, orig_func: F) -> F: ...  # type: ignore[misc]
    def __new__(cls, orig_func: Any = None) -> Any:
        if orig_func is not None:
            return no_grad.around(cls, orig_func)
        self = object.__new__(cls)
        self._before = []
        return self

    def __enter__(self) -> no_grad:
        self._before.append(here.grad)
        here.grad = self._records
        return self

    def __exit__(self, *error: object) -> None:
        here.grad = self._before.pop()

    def __call__(self, function: F) -> F:
        return no_grad.around(type(self), function)

    @staticmethod
    def around(block: Callable[[], Any], function: F) -> F:
        """A function whose body runs in a block, as a decorator makes it; of a generator, each of its steps does."""
        from inspect import isgeneratorfunction

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with block():
                return function(*args, **kwargs)

        @functools.wraps(function)
        def stepped(*args: Any, **kwargs: Any) -> Any:
            steps = function(*args, **kwargs)
            step, given = steps.send, None
            while True:
                try:
                    with block():
                        value = step(given)
                except StopIteration as end:
                    return end.value
                try:
                    step, given = steps.send, (yield value)
                except GeneratorExit:
                    with block():
                        steps.close()
                    raise
                except BaseException as error:
                    step, given = steps.throw, error

        return stepped if isgeneratorfunction(function) else called  # type: ignore[return-value]


def grad_enabled() -> bool:
    """False inside `no_grad`.

    >>> grad_enabled()
    True
    """
    return here.grad


def warn_user(message: str) -> None:
    """Warn at the user's line, at each call: one that warns is not remembered."""
    here.effects += 1
    f, *_ = users_frame()
    warnings.warn_explicit(message, UserWarning, f.f_code.co_filename, f.f_lineno)
