"""Generated from anneal/transforms/gradient.upat by `python -m anneal.rewrite.generate`; edit that file, not this one."""
# fmt: off

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from anneal.uop import Op, const, dtypes
from anneal.ops.nodes import share
from anneal.transforms.adjoints import around, expanded, first, flipped, gathered, max_left, max_right, nothing, padded, part
from anneal.transforms.adjoints import permuted, power_base
from anneal.transforms.adjoints import power_exponent, reduced, reshaped, scattered, shrunk, side, standardized, widest

_CONST = Op.CONST
_EXP = Op.EXP
_SIN = Op.SIN
_COS = Op.COS
_EQ = Op.EQ
_WHERE = Op.WHERE

def _gradient_add(y: Any, g: Any) -> Any:
    # a + b -> g, g
    return (g, g)


def _gradient_sub(y: Any, g: Any) -> Any:
    # a - b -> g, -g
    return (g, -g)


def _gradient_mul(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    if s1.op is _CONST:
        # x * c -> g * c, _
        return (g * s1, None)
    if s1 is s0:
        # a * a -> g * (a * 2), _
        return (g * (s0 * 2), None)
    # a * b -> g * b, g * a
    return (g * s1, g * s0)


def _gradient_div(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    if s1.op is _CONST:
        # x / c -> g / c, _
        return (g / s1, None)
    # a / b -> g / b, -(g / b * y)
    return (g / s1, -(g / s1 * y))


def _gradient_neg(y: Any, g: Any) -> Any:
    # -x -> -g
    return (-g,)


def _gradient_mod(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    if s1.op is _CONST and s0.dtype.is_float:
        # a:float % c -> g, _
        return (g, None)
    if s0.dtype.is_float:
        # a:float % b -> g, -(g * (a // b))
        return (g, -(g * (s0 // s1)))


def _gradient_pow(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    if s1.op is _CONST:
        # x ** c -> power_base(g, x, c), _
        return (power_base(g, s0, s1), None)
    # x ** n -> power_base(g, x, n), power_exponent(g, x, n, y)
    return (power_base(g, s0, s1), power_exponent(g, s0, s1, y))


def _gradient_where(y: Any, g: Any) -> Any:
    s0, s1, s2 = y.src
    if s2.op is _CONST:
        # where(p, x, c) -> _, where(p, g, 0), _
        return (None, _WHERE(s0, g, const(g.dtype, 0)), None)
    if s1.op is _CONST:
        # where(p, c, x) -> _, _, where(p, 0, g)
        return (None, None, _WHERE(s0, const(g.dtype, 0), g))
    # where(p, a, b) -> _, where(p, g, 0), where(p, 0, g)
    return (None, _WHERE(s0, g, const(g.dtype, 0)), _WHERE(s0, const(g.dtype, 0), g))


def _gradient_max(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    if s1.op is _CONST:
        # max(x, c) -> where(y == c, 0, g), _
        return (_WHERE(_EQ(y, s1), const(g.dtype, 0), g), None)
    # max(a, b) -> max_left(g, a, b), max_right(g, a, b)
    return (max_left(g, s0, s1), max_right(g, s0, s1))


def _gradient_min(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    if s1.op is _CONST:
        # min(x, c) -> where(y == c, 0, g), _
        return (_WHERE(_EQ(y, s1), const(g.dtype, 0), g), None)
    # min(a, b) -> max_left(g, b, a), max_right(g, b, a)
    return (max_left(g, s1, s0), max_right(g, s1, s0))


def _gradient_abs(y: Any, g: Any) -> Any:
    s0, = y.src
    # abs(x) -> g * side(x)
    return (g * side(s0),)


def _gradient_exp(y: Any, g: Any) -> Any:
    # exp(x) -> g * y
    return (g * y,)


def _gradient_exp2(y: Any, g: Any) -> Any:
    # exp2(x) -> g * y * {math.log(2)}
    return (g * y * math.log(2),)


def _gradient_log(y: Any, g: Any) -> Any:
    s0, = y.src
    # log(x) -> g / x
    return (g / s0,)


def _gradient_log2(y: Any, g: Any) -> Any:
    s0, = y.src
    # log2(x) -> g / (x * {math.log(2)})
    return (g / (s0 * math.log(2)),)


def _gradient_sin(y: Any, g: Any) -> Any:
    s0, = y.src
    # sin(x) -> g * cos(x)
    return (g * _COS(s0),)


def _gradient_cos(y: Any, g: Any) -> Any:
    s0, = y.src
    # cos(x) -> -(g * sin(x))
    return (-(g * _SIN(s0)),)


def _gradient_tan(y: Any, g: Any) -> Any:
    # tan(x) -> g * (y * y + 1)
    return (g * (y * y + 1),)


def _gradient_tanh(y: Any, g: Any) -> Any:
    # tanh(x) -> g * (1 - y * y)
    return (g * (const(y.dtype, 1) - y * y),)


def _gradient_erf(y: Any, g: Any) -> Any:
    s0, = y.src
    # erf(x) -> g * exp(-(x * x)) * {2 / math.sqrt(math.pi)}
    return (g * _EXP(-(s0 * s0)) * (2 / math.sqrt(math.pi)),)


def _gradient_sqrt(y: Any, g: Any) -> Any:
    # sqrt(x) -> g / (y * 2)
    return (g / (y * 2),)


def _gradient_rsqrt(y: Any, g: Any) -> Any:
    # rsqrt(x) -> g * (y * y * y * -0.5)
    return (g * (y * y * y * -0.5),)


def _gradient_recip(y: Any, g: Any) -> Any:
    # recip(x) -> -(g * y * y)
    return (-(g * y * y),)


def _gradient_call(y: Any, g: Any) -> Any:
    if y.arg[0].name == 'slope' and len(y.src) == 3:
        s0, s1, s2 = y.src
        # call["slope", _](v, x, s) -> _, g * s, _
        return (None, g * s2, None)
    if y.arg[0].name == 'standardize' and len(y.src) == 3:
        s0, s1, s2 = y.src
        # call["standardize", axes](v, x, r) -> _, standardized(g, y, r, axes), _
        return (None, standardized(g, y, s2, y.arg[0].arguments), None)
    if y.arg[0].name == 'equal' and len(y.src) == 2:
        s0, s1 = y.src
        # call["equal", _](v, x) -> _, g
        return (None, g)
    if y.arg[0].name == 'first' and len(y.src) == 2:
        s0, s1 = y.src
        # call["first", axes](v, x) -> _, first(g, x, y, axes)
        return (None, first(g, s1, y, y.arg[0].arguments))
    if y.arg[0].name == 'chosen' and len(y.src) == 2:
        s0, s1 = y.src
        # call["chosen", _](v, x) -> g, where(False, g, 0)
        return (g, _WHERE(const(dtypes.bool_, False), g, const(g.dtype, 0)))
    if y.arg[0].name == 'beside' and len(y.src) == 2:
        s0, s1 = y.src
        # call["beside", _](v, x) -> g, nothing(x)
        return (g, nothing(s1))
    if y.arg[0].name == 'exp' and len(y.src) == 3:
        s0, s1, s2 = y.src
        # call["exp", _](v, x, p) -> _, g * y, _
        return (None, g * y, None)
    if y.arg[0].name == 'inverse' and len(y.src) == 3:
        s0, s1, s2 = y.src
        # call["inverse", c](v, x, e) -> _, -(g * y * share(y, x, e, c)), _
        return (None, -(g * y * share(y, s1, s2, y.arg[0].arguments)), None)
    if y.arg[0].name == 'share' and len(y.src) == 3:
        s0, s1, s2 = y.src
        # call["share", c](v, x, i) -> _, g * (i * y * {c}), _
        return (None, g * (s2 * y * y.arg[0].arguments), None)


def _gradient_cast(y: Any, g: Any) -> Any:
    s0, = y.src
    if s0.dtype.is_float:
        # cast(x:float) -> widest(g, x, y)
        return (widest(g, s0, y),)


def _gradient_reshape(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        s0, = y.src
        # reshape(x) -> reshaped(g, x)
        return (reshaped(g, s0),)


def _gradient_permute(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        # permute[axes](x) -> permuted(g, axes)
        return (permuted(g, y.arg),)


def _gradient_expand(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        s0, = y.src
        # expand(x) -> expanded(g, x, y)
        return (expanded(g, s0, y),)


def _gradient_pad(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        s0, = y.src
        # pad[pairs](x) -> padded(g, x, pairs)
        return (padded(g, s0, y.arg),)


def _gradient_shrink(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        s0, = y.src
        # shrink[pairs](x) -> shrunk(g, x, y, pairs)
        return (shrunk(g, s0, y, y.arg),)


def _gradient_flip(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        # flip[axes](x) -> flipped(g, axes)
        return (flipped(g, y.arg),)


def _gradient_contiguous(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        # contiguous(x) -> g
        return (g,)


def _gradient_update(y: Any, g: Any) -> Any:
    if len(y.src) == 2:
        s0, s1 = y.src
        # update[begins](x, v) -> around(g, y, v, begins), part(g, v, begins)
        return (around(g, y, s1, y.arg), part(g, s1, y.arg))


def _gradient_reduce_axis(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        s0, = y.src
        # reduce_axis(x) -> reduced(g, x, y)
        return (reduced(g, s0, y),)


def _gradient_gather(y: Any, g: Any) -> Any:
    if len(y.src) == 2:
        s0, s1 = y.src
        # gather[axis](x, i) -> gathered(g, x, i, axis), _
        return (gathered(g, s0, s1, y.arg), None)


def _gradient_scatter_add(y: Any, g: Any) -> Any:
    if len(y.src) == 2:
        s0, s1 = y.src
        # scatter_add(i, x) -> _, scattered(g, i, x, y)
        return (None, scattered(g, s0, s1, y))


GRADIENT: dict[Op, Callable[[Any, Any], Any]] = {Op.ADD: _gradient_add, Op.SUB: _gradient_sub, Op.MUL: _gradient_mul, Op.DIV: _gradient_div, Op.NEG: _gradient_neg, Op.MOD: _gradient_mod, Op.POW: _gradient_pow, Op.WHERE: _gradient_where, Op.MAX: _gradient_max, Op.MIN: _gradient_min, Op.ABS: _gradient_abs, Op.EXP: _gradient_exp, Op.EXP2: _gradient_exp2, Op.LOG: _gradient_log, Op.LOG2: _gradient_log2, Op.SIN: _gradient_sin, Op.COS: _gradient_cos, Op.TAN: _gradient_tan, Op.TANH: _gradient_tanh, Op.ERF: _gradient_erf, Op.SQRT: _gradient_sqrt, Op.RSQRT: _gradient_rsqrt, Op.RECIP: _gradient_recip, Op.CALL: _gradient_call, Op.CAST: _gradient_cast, Op.RESHAPE: _gradient_reshape, Op.PERMUTE: _gradient_permute, Op.EXPAND: _gradient_expand, Op.PAD: _gradient_pad, Op.SHRINK: _gradient_shrink, Op.FLIP: _gradient_flip, Op.CONTIGUOUS: _gradient_contiguous, Op.UPDATE: _gradient_update, Op.REDUCE_AXIS: _gradient_reduce_axis, Op.GATHER: _gradient_gather, Op.SCATTER_ADD: _gradient_scatter_add}
