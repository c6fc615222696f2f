"""Generated from anneal/transforms/gradient.upat by `python -m anneal.rewrite.generate`; edit that file, not this one."""
# fmt: off
# mypy: allow-untyped-defs
import math
from typing import Any

from anneal.uop import Op, const, dtypes
from anneal.ops.nodes import share
from anneal.transforms.adjoints import around, begins, expanded, factors, first, flipped, following, gathered, max_left
from anneal.transforms.adjoints import nothing, part, part_at, permuted, placed, power_base, power_exponent, reduced
from anneal.transforms.adjoints import reshaped, scattered, side, standardized, updated, widest

_CONST = Op.CONST
_WHERE = Op.WHERE

def _gradient_mul(y, g):
    s0, s1 = y.src
    if s1.op is _CONST:
        # x * c -> g * c, _
        return g * s1, None
    if s1 is s0:
        # a * a -> g * (a * 2), _
        return g * (s0 * 2), None
    # a * b -> g * b, g * a
    return g * s1, g * s0


def _gradient_div(y, g):
    s0, s1 = y.src
    if s1.op is _CONST:
        # x / c -> g / c, _
        return g / s1, None
    # a / b -> g / b, -(g / b * y)
    return g / s1, -(g / s1 * y)


def _gradient_mod(y, g):
    s0, s1 = y.src
    if s1.op is _CONST and s0.dtype.is_float:
        # a:float % c -> g, _
        return g, None
    if s0.dtype.is_float:
        # a:float % b -> g, -(g * (a // b))
        return g, -(g * (s0 // s1))


def _gradient_pow(y, g):
    s0, s1 = y.src
    if s1.op is _CONST:
        # x ** c -> power_base(g, x, c), _
        return power_base(g, s0, s1), None
    # x ** n -> power_base(g, x, n), power_exponent(g, x, n, y)
    return power_base(g, s0, s1), power_exponent(g, s0, s1, y)


def _gradient_where(y, g):
    s0, s1, s2 = y.src
    if s2.op is _CONST:
        # where(p, x, c) -> _, where(p, g, 0), _
        return None, _WHERE(s0, g, const(g.dtype, 0)), None
    if s1.op is _CONST:
        # where(p, c, x) -> _, _, where(p, 0, g)
        return None, None, _WHERE(s0, const(g.dtype, 0), g)
    # where(p, a, b) -> _, where(p, g, 0), where(p, 0, g)
    return None, _WHERE(s0, g, const(g.dtype, 0)), _WHERE(s0, const(g.dtype, 0), g)


def _gradient_max(y, g):
    s0, s1 = y.src
    if s1.op is _CONST:
        # max(x, c) -> where(y == c, 0, g), _
        return _WHERE(Op.EQ(y, s1), const(g.dtype, 0), g), None
    # max(a, b) -> max_left(g, a, b), max_left(g, b, a)
    return max_left(g, s0, s1), max_left(g, s1, s0)


def _gradient_min(y, g):
    s0, s1 = y.src
    if s1.op is _CONST:
        # min(x, c) -> where(y == c, 0, g), _
        return _WHERE(Op.EQ(y, s1), const(g.dtype, 0), g), None
    # min(a, b) -> max_left(g, b, a), max_left(g, a, b)
    return max_left(g, s1, s0), max_left(g, s0, s1)


def _gradient_call(y, g):
    y_function = y.arg[0]
    if y_function.name == 'slope':
        s0, s1, s2 = y.src
        # call["slope", _](v, x, s) -> _, g * s, _
        return None, g * s2, None
    if y_function.name == 'standardize':
        s0, s1, s2 = y.src
        # call["standardize", axes](v, x, r) -> _, standardized(g, y, r, axes), _
        return None, standardized(g, y, s2, y_function.arguments), None
    if y_function.name == 'equal':
        s0, s1 = y.src
        # call["equal", _](v, x) -> _, g
        return None, g
    if y_function.name == 'first':
        s0, s1 = y.src
        # call["first", axes](v, x) -> _, first(g, x, y, axes)
        return None, first(g, s1, y, y_function.arguments)
    if y_function.name == 'chosen':
        s0, s1 = y.src
        # call["chosen", _](v, x) -> g, where(False, g, 0)
        return g, _WHERE(const(dtypes.bool_, False), g, const(g.dtype, 0))
    if y_function.name == 'beside':
        s0, s1 = y.src
        # call["beside", _](v, x) -> g, nothing(x)
        return g, nothing(s1)
    if y_function.name == 'running':
        s0, s1 = y.src
        # call["running", _](v, x) -> g, _
        return g, None
    if y_function.name == 'sums':
        s0, s1 = y.src
        # call["sums", how](v, x) -> _, following(g, x, how)
        return None, following(g, s1, y_function.arguments)
    if y_function.name == 'products':
        s0, s1 = y.src
        # call["products", how](v, x) -> _, factors(g, x, y, how)
        return None, factors(g, s1, y, y_function.arguments)
    if y_function.name == 'exp':
        s0, s1, s2 = y.src
        # call["exp", _](v, x, p) -> _, g * y, _
        return None, g * y, None
    if y_function.name == 'inverse':
        s0, s1, s2 = y.src
        # call["inverse", c](v, x, e) -> _, -(g * y * share(y, x, e, c)), _
        return None, -(g * y * share(y, s1, s2, y_function.arguments)), None
    if y_function.name == 'share':
        s0, s1, s2 = y.src
        # call["share", c](v, x, i) -> _, g * (i * y * {c}), _
        return None, g * (s2 * y * y_function.arguments), None


def _gradient_update(y, g):
    if len(y.src) == 2:
        s0, s1 = y.src
        # update[begins](x, v) -> around(g, y, v, begins), part(g, v, begins)
        return around(g, y, s1, y.arg), part(g, s1, y.arg)
    if len(y.src) == 3:
        s0, s1, s2 = y.src
        # update(x, v, i) -> updated(g, y, nothing(v)), part_at(g, y), _
        return updated(g, y, nothing(s1)), part_at(g, y), None
    if len(y.src) == 4:
        s0, s1, s2, s3 = y.src
        # update(x, v, i, j) -> updated(g, y, nothing(v)), part_at(g, y), _, _
        return updated(g, y, nothing(s1)), part_at(g, y), None, None


GRADIENT: dict[Op, Any] = {
    Op.ADD: lambda y, g: (g, g),  # a + b -> g, g
    Op.SUB: lambda y, g: (g, -g),  # a - b -> g, -g
    Op.MUL: _gradient_mul,
    Op.DIV: _gradient_div,
    Op.NEG: lambda y, g: (-g,),  # -x -> -g
    Op.MOD: _gradient_mod,
    Op.POW: _gradient_pow,
    Op.WHERE: _gradient_where,
    Op.MAX: _gradient_max,
    Op.MIN: _gradient_min,
    Op.ABS: lambda y, g: (g * side(y.src[0]),),  # abs(x) -> g * side(x)
    Op.EXP: lambda y, g: (g * y,),  # exp(x) -> g * y
    Op.EXP2: lambda y, g: (g * y * math.log(2),),  # exp2(x) -> g * y * {math.log(2)}
    Op.LOG: lambda y, g: (g / y.src[0],),  # log(x) -> g / x
    Op.LOG2: lambda y, g: (g / (y.src[0] * math.log(2)),),  # log2(x) -> g / (x * {math.log(2)})
    Op.SIN: lambda y, g: (g * Op.COS(y.src[0]),),  # sin(x) -> g * cos(x)
    Op.COS: lambda y, g: (-(g * Op.SIN(y.src[0])),),  # cos(x) -> -(g * sin(x))
    Op.TAN: lambda y, g: (g * (y * y + 1),),  # tan(x) -> g * (y * y + 1)
    Op.TANH: lambda y, g: (g * (const(y.dtype, 1) - y * y),),  # tanh(x) -> g * (1 - y * y)
    Op.ERF: lambda y, g: (g * Op.EXP(-(y.src[0] * y.src[0])) * (2 / math.sqrt(math.pi)),),  # erf(x) -> g * exp(-(x * x)) * {2 / math.sqrt(math.pi)}
    Op.SQRT: lambda y, g: (g / (y * 2),),  # sqrt(x) -> g / (y * 2)
    Op.RSQRT: lambda y, g: (g * (y * y * y * -0.5),),  # rsqrt(x) -> g * (y * y * y * -0.5)
    Op.RECIP: lambda y, g: (-(g * y * y),),  # recip(x) -> -(g * y * y)
    Op.CALL: _gradient_call,
    Op.CAST: lambda y, g: (widest(g, y.src[0], y),) if y.src[0].dtype.is_float else None,  # cast(x:float) -> widest(g, x, y)
    Op.RESHAPE: lambda y, g: (reshaped(g, y.src[0]),),  # reshape(x) -> reshaped(g, x)
    Op.PERMUTE: lambda y, g: (permuted(g, y.arg),),  # permute[axes](x) -> permuted(g, axes)
    Op.EXPAND: lambda y, g: (expanded(g, y.src[0], y),),  # expand(x) -> expanded(g, x, y)
    Op.PAD: lambda y, g: (part(g, y.src[0], begins(y.arg)),),  # pad[pairs](x) -> part(g, x, begins(pairs))
    Op.SHRINK: lambda y, g: (placed(g, y.src[0], y, begins(y.arg)),),  # shrink[pairs](x) -> placed(g, x, y, begins(pairs))
    Op.FLIP: lambda y, g: (flipped(g, y.arg),),  # flip[axes](x) -> flipped(g, axes)
    Op.CONTIGUOUS: lambda y, g: (g,),  # contiguous(x) -> g
    Op.UPDATE: _gradient_update,
    Op.REDUCE_AXIS: lambda y, g: (reduced(g, y.src[0], y),),  # reduce_axis(x) -> reduced(g, x, y)
    Op.GATHER: lambda y, g: (gathered(g, y.src[0], y.src[1], y.arg), None),  # gather[axis](x, i) -> gathered(g, x, i, axis), _
    Op.SCATTER_ADD: lambda y, g: (None, scattered(g, y.src[0], y.src[1], y)) if len(y.src) == 2 else None,  # scatter_add(i, x) -> _, scattered(g, i, x, y)
}
