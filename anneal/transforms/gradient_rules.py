"""Generated from anneal/transforms/gradient.upat by `python -m anneal.rewrite.generate`; edit that file, not this one."""
# fmt: off

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from anneal.uop import Op, alu, const, dtypes
from anneal.ops.nodes import share
from anneal.transforms.adjoints import around, expanded, first, flipped, gathered, max_left, max_right, nothing, padded, part
from anneal.transforms.adjoints import permuted, power_base
from anneal.transforms.adjoints import power_exponent, reduced, reshaped, scattered, shrunk, side, standardized, widest

_CONST = Op.CONST
_NEG = Op.NEG
_EXP = Op.EXP
_SIN = Op.SIN
_COS = Op.COS
_ADD = Op.ADD
_SUB = Op.SUB
_MUL = Op.MUL
_DIV = Op.DIV
_IDIV = Op.IDIV
_EQ = Op.EQ
_WHERE = Op.WHERE
RULES: tuple[tuple[str, str, str, str, int], ...] = (
    ('gradient', 'a + b -> g, g', 'ADD', 'Sums and products. A constant factor needs no slope of its own.', 12),
    ('gradient', 'a - b -> g, -g', 'SUB', 'Sums and products. A constant factor needs no slope of its own.', 13),
    ('gradient', 'x * c -> g * c, _', 'MUL', 'Sums and products. A constant factor needs no slope of its own.', 14),
    ('gradient', 'a * a -> g * (a * 2), _', 'MUL', 'Sums and products. A constant factor needs no slope of its own.', 15),
    ('gradient', 'a * b -> g * b, g * a', 'MUL', 'Sums and products. A constant factor needs no slope of its own.', 16),
    ('gradient', 'x / c -> g / c, _', 'DIV', 'Sums and products. A constant factor needs no slope of its own.', 17),
    ('gradient', 'a / b -> g / b, -(g / b * y)', 'DIV', 'Sums and products. A constant factor needs no slope of its own.', 18),
    ('gradient', '-x -> -g', 'NEG', 'Sums and products. A constant factor needs no slope of its own.', 19),
    ('gradient', 'a:float % c -> g, _', 'MOD', 'Sums and products. A constant factor needs no slope of its own.', 20),
    ('gradient', 'a:float % b -> g, -(g * (a // b))', 'MOD', 'Sums and products. A constant factor needs no slope of its own.', 21),
    ('gradient', 'x ** c -> power_base(g, x, c), _', 'POW', 'Powers: 0**0 is 1 with slope 0, and the exponent has no slope where the base is 0 and it is not below 0.', 24),
    ('gradient', 'x ** n -> power_base(g, x, n), power_exponent(g, x, n, y)', 'POW', 'Powers: 0**0 is 1 with slope 0, and the exponent has no slope where the base is 0 and it is not below 0.', 25),
    ('gradient', 'where(p, x, c) -> _, where(p, g, 0), _', 'WHERE', "Choices. At a tie max and min give each side half; against a constant (relu) a tie gives nothing, and nan all: as torch's relu.", 29),
    ('gradient', 'where(p, c, x) -> _, _, where(p, 0, g)', 'WHERE', "Choices. At a tie max and min give each side half; against a constant (relu) a tie gives nothing, and nan all: as torch's relu.", 30),
    ('gradient', 'where(p, a, b) -> _, where(p, g, 0), where(p, 0, g)', 'WHERE', "Choices. At a tie max and min give each side half; against a constant (relu) a tie gives nothing, and nan all: as torch's relu.", 31),
    ('gradient', 'max(x, c) -> where(y == c, 0, g), _', 'MAX', "Choices. At a tie max and min give each side half; against a constant (relu) a tie gives nothing, and nan all: as torch's relu.", 32),
    ('gradient', 'min(x, c) -> where(y == c, 0, g), _', 'MIN', "Choices. At a tie max and min give each side half; against a constant (relu) a tie gives nothing, and nan all: as torch's relu.", 33),
    ('gradient', 'max(a, b) -> max_left(g, a, b), max_right(g, a, b)', 'MAX', "Choices. At a tie max and min give each side half; against a constant (relu) a tie gives nothing, and nan all: as torch's relu.", 34),
    ('gradient', 'min(a, b) -> max_left(g, b, a), max_right(g, b, a)', 'MIN', "Choices. At a tie max and min give each side half; against a constant (relu) a tie gives nothing, and nan all: as torch's relu.", 35),
    ('gradient', 'abs(x) -> g * side(x)', 'ABS', "Choices. At a tie max and min give each side half; against a constant (relu) a tie gives nothing, and nan all: as torch's relu.", 36),
    ('gradient', 'exp(x) -> g * y', 'EXP', 'Functions of one number, in terms of the result y where that is cheaper.', 39),
    ('gradient', 'exp2(x) -> g * y * {math.log(2)}', 'EXP2', 'Functions of one number, in terms of the result y where that is cheaper.', 40),
    ('gradient', 'log(x) -> g / x', 'LOG', 'Functions of one number, in terms of the result y where that is cheaper.', 41),
    ('gradient', 'log2(x) -> g / (x * {math.log(2)})', 'LOG2', 'Functions of one number, in terms of the result y where that is cheaper.', 42),
    ('gradient', 'sin(x) -> g * cos(x)', 'SIN', 'Functions of one number, in terms of the result y where that is cheaper.', 43),
    ('gradient', 'cos(x) -> -(g * sin(x))', 'COS', 'Functions of one number, in terms of the result y where that is cheaper.', 44),
    ('gradient', 'tan(x) -> g * (y * y + 1)', 'TAN', 'Functions of one number, in terms of the result y where that is cheaper.', 45),
    ('gradient', 'tanh(x) -> g * (1 - y * y)', 'TANH', 'Functions of one number, in terms of the result y where that is cheaper.', 46),
    ('gradient', 'erf(x) -> g * exp(-(x * x)) * {2 / math.sqrt(math.pi)}', 'ERF', 'Functions of one number, in terms of the result y where that is cheaper.', 47),
    ('gradient', 'sqrt(x) -> g / (y * 2)', 'SQRT', 'Functions of one number, in terms of the result y where that is cheaper.', 48),
    ('gradient', 'rsqrt(x) -> g * (y * y * y * -0.5)', 'RSQRT', 'Functions of one number, in terms of the result y where that is cheaper.', 49),
    ('gradient', 'recip(x) -> -(g * y * y)', 'RECIP', 'Functions of one number, in terms of the result y where that is cheaper.', 50),
    ('gradient', 'call["slope", _](v, x, s) -> _, g * s, _', 'CALL', 'Calls by name: of functions whose derivative takes fewer steps than their graph. The value itself passes nothing on; "slope" is an elementwise function with its derivative beside it, "standardize" is (x - mean) * r over some axes, "equal" is computed in fewer steps than what it equals, which has the right derivatives, "first" is the largest along axes, of which the first has the gradient, "chosen" is one of two operands, beside the one that a constant condition left out, "beside" stands beside what it does not depend on but was asked for, and "exp" is an exponential that is 0 where a condition on indices holds. "inverse" is 1 / (e + c) with e = exp(x): its slope by the quotient would be 0 times infinity, and "share", e / (e + c), is the other half of it: both stay in their bounds.', 59),
    ('gradient', 'call["standardize", axes](v, x, r) -> _, standardized(g, y, r, axes), _', 'CALL', 'Calls by name: of functions whose derivative takes fewer steps than their graph. The value itself passes nothing on; "slope" is an elementwise function with its derivative beside it, "standardize" is (x - mean) * r over some axes, "equal" is computed in fewer steps than what it equals, which has the right derivatives, "first" is the largest along axes, of which the first has the gradient, "chosen" is one of two operands, beside the one that a constant condition left out, "beside" stands beside what it does not depend on but was asked for, and "exp" is an exponential that is 0 where a condition on indices holds. "inverse" is 1 / (e + c) with e = exp(x): its slope by the quotient would be 0 times infinity, and "share", e / (e + c), is the other half of it: both stay in their bounds.', 60),
    ('gradient', 'call["equal", _](v, x) -> _, g', 'CALL', 'Calls by name: of functions whose derivative takes fewer steps than their graph. The value itself passes nothing on; "slope" is an elementwise function with its derivative beside it, "standardize" is (x - mean) * r over some axes, "equal" is computed in fewer steps than what it equals, which has the right derivatives, "first" is the largest along axes, of which the first has the gradient, "chosen" is one of two operands, beside the one that a constant condition left out, "beside" stands beside what it does not depend on but was asked for, and "exp" is an exponential that is 0 where a condition on indices holds. "inverse" is 1 / (e + c) with e = exp(x): its slope by the quotient would be 0 times infinity, and "share", e / (e + c), is the other half of it: both stay in their bounds.', 61),
    ('gradient', 'call["first", axes](v, x) -> _, first(g, x, y, axes)', 'CALL', 'Calls by name: of functions whose derivative takes fewer steps than their graph. The value itself passes nothing on; "slope" is an elementwise function with its derivative beside it, "standardize" is (x - mean) * r over some axes, "equal" is computed in fewer steps than what it equals, which has the right derivatives, "first" is the largest along axes, of which the first has the gradient, "chosen" is one of two operands, beside the one that a constant condition left out, "beside" stands beside what it does not depend on but was asked for, and "exp" is an exponential that is 0 where a condition on indices holds. "inverse" is 1 / (e + c) with e = exp(x): its slope by the quotient would be 0 times infinity, and "share", e / (e + c), is the other half of it: both stay in their bounds.', 62),
    ('gradient', 'call["chosen", _](v, x) -> g, where(False, g, 0)', 'CALL', 'Calls by name: of functions whose derivative takes fewer steps than their graph. The value itself passes nothing on; "slope" is an elementwise function with its derivative beside it, "standardize" is (x - mean) * r over some axes, "equal" is computed in fewer steps than what it equals, which has the right derivatives, "first" is the largest along axes, of which the first has the gradient, "chosen" is one of two operands, beside the one that a constant condition left out, "beside" stands beside what it does not depend on but was asked for, and "exp" is an exponential that is 0 where a condition on indices holds. "inverse" is 1 / (e + c) with e = exp(x): its slope by the quotient would be 0 times infinity, and "share", e / (e + c), is the other half of it: both stay in their bounds.', 63),
    ('gradient', 'call["beside", _](v, x) -> g, nothing(x)', 'CALL', 'Calls by name: of functions whose derivative takes fewer steps than their graph. The value itself passes nothing on; "slope" is an elementwise function with its derivative beside it, "standardize" is (x - mean) * r over some axes, "equal" is computed in fewer steps than what it equals, which has the right derivatives, "first" is the largest along axes, of which the first has the gradient, "chosen" is one of two operands, beside the one that a constant condition left out, "beside" stands beside what it does not depend on but was asked for, and "exp" is an exponential that is 0 where a condition on indices holds. "inverse" is 1 / (e + c) with e = exp(x): its slope by the quotient would be 0 times infinity, and "share", e / (e + c), is the other half of it: both stay in their bounds.', 64),
    ('gradient', 'call["exp", _](v, x, p) -> _, g * y, _', 'CALL', 'Calls by name: of functions whose derivative takes fewer steps than their graph. The value itself passes nothing on; "slope" is an elementwise function with its derivative beside it, "standardize" is (x - mean) * r over some axes, "equal" is computed in fewer steps than what it equals, which has the right derivatives, "first" is the largest along axes, of which the first has the gradient, "chosen" is one of two operands, beside the one that a constant condition left out, "beside" stands beside what it does not depend on but was asked for, and "exp" is an exponential that is 0 where a condition on indices holds. "inverse" is 1 / (e + c) with e = exp(x): its slope by the quotient would be 0 times infinity, and "share", e / (e + c), is the other half of it: both stay in their bounds.', 65),
    ('gradient', 'call["inverse", c](v, x, e) -> _, -(g * y * share(y, x, e, c)), _', 'CALL', 'Calls by name: of functions whose derivative takes fewer steps than their graph. The value itself passes nothing on; "slope" is an elementwise function with its derivative beside it, "standardize" is (x - mean) * r over some axes, "equal" is computed in fewer steps than what it equals, which has the right derivatives, "first" is the largest along axes, of which the first has the gradient, "chosen" is one of two operands, beside the one that a constant condition left out, "beside" stands beside what it does not depend on but was asked for, and "exp" is an exponential that is 0 where a condition on indices holds. "inverse" is 1 / (e + c) with e = exp(x): its slope by the quotient would be 0 times infinity, and "share", e / (e + c), is the other half of it: both stay in their bounds.', 66),
    ('gradient', 'call["share", c](v, x, i) -> _, g * (i * y * {c}), _', 'CALL', 'Calls by name: of functions whose derivative takes fewer steps than their graph. The value itself passes nothing on; "slope" is an elementwise function with its derivative beside it, "standardize" is (x - mean) * r over some axes, "equal" is computed in fewer steps than what it equals, which has the right derivatives, "first" is the largest along axes, of which the first has the gradient, "chosen" is one of two operands, beside the one that a constant condition left out, "beside" stands beside what it does not depend on but was asked for, and "exp" is an exponential that is 0 where a condition on indices holds. "inverse" is 1 / (e + c) with e = exp(x): its slope by the quotient would be 0 times infinity, and "share", e / (e + c), is the other half of it: both stay in their bounds.', 67),
    ('gradient', 'cast(x:float) -> widest(g, x, y)', 'CAST', "A cast's cotangent keeps the wider of the two types: it is rounded once, where it is used.", 70),
    ('gradient', 'reshape(x) -> reshaped(g, x)', 'RESHAPE', 'Movement: the opposite movement. Repeated elements are summed; cut-off ones were zero.', 73),
    ('gradient', 'permute[axes](x) -> permuted(g, axes)', 'PERMUTE', 'Movement: the opposite movement. Repeated elements are summed; cut-off ones were zero.', 74),
    ('gradient', 'expand(x) -> expanded(g, x, y)', 'EXPAND', 'Movement: the opposite movement. Repeated elements are summed; cut-off ones were zero.', 75),
    ('gradient', 'pad[pairs](x) -> padded(g, x, pairs)', 'PAD', 'Movement: the opposite movement. Repeated elements are summed; cut-off ones were zero.', 76),
    ('gradient', 'shrink[pairs](x) -> shrunk(g, x, y, pairs)', 'SHRINK', 'Movement: the opposite movement. Repeated elements are summed; cut-off ones were zero.', 77),
    ('gradient', 'flip[axes](x) -> flipped(g, axes)', 'FLIP', 'Movement: the opposite movement. Repeated elements are summed; cut-off ones were zero.', 78),
    ('gradient', 'contiguous(x) -> g', 'CONTIGUOUS', 'Movement: the opposite movement. Repeated elements are summed; cut-off ones were zero.', 79),
    ('gradient', 'update[begins](x, v) -> around(g, y, v, begins), part(g, v, begins)', 'UPDATE', 'An update passes on what lies around the part that it replaces, and to the part what replaces it.', 82),
    ('gradient', 'reduce_axis(x) -> reduced(g, x, y)', 'REDUCE_AXIS', 'Reductions: a sum repeats g, max and min share it evenly among ties, a product takes the product of the others.', 85),
    ('gradient', 'gather[axis](x, i) -> gathered(g, x, i, axis), _', 'GATHER', "Indexed reads and writes are each other's adjoints.", 88),
    ('gradient', 'scatter_add(i, x) -> _, scattered(g, i, x, y)', 'SCATTER_ADD', "Indexed reads and writes are each other's adjoints.", 89),
)

def _gradient_add(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    # a + b -> g, g
    return (g, g)
    return None


def _gradient_sub(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    # a - b -> g, -g
    return (g, alu(_NEG, (g,)))
    return None


def _gradient_mul(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    if s1.op is _CONST:
        # x * c -> g * c, _
        return (alu(_MUL, (g, s1)), None)
    if s1 is s0:
        # a * a -> g * (a * 2), _
        return (alu(_MUL, (g, alu(_MUL, (s0, const(s0.dtype, 2))))), None)
    # a * b -> g * b, g * a
    return (alu(_MUL, (g, s1)), alu(_MUL, (g, s0)))
    return None


def _gradient_div(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    if s1.op is _CONST:
        # x / c -> g / c, _
        return (alu(_DIV, (g, s1)), None)
    # a / b -> g / b, -(g / b * y)
    return (alu(_DIV, (g, s1)), alu(_NEG, (alu(_MUL, (alu(_DIV, (g, s1)), y)),)))
    return None


def _gradient_neg(y: Any, g: Any) -> Any:
    s0, = y.src
    # -x -> -g
    return (alu(_NEG, (g,)),)
    return None


def _gradient_mod(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    if s1.op is _CONST and s0.dtype.is_float:
        # a:float % c -> g, _
        return (g, None)
    if s0.dtype.is_float:
        # a:float % b -> g, -(g * (a // b))
        return (g, alu(_NEG, (alu(_MUL, (g, alu(_IDIV, (s0, s1)))),)))
    return None


def _gradient_pow(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    if s1.op is _CONST:
        # x ** c -> power_base(g, x, c), _
        return (power_base(g, s0, s1), None)
    # x ** n -> power_base(g, x, n), power_exponent(g, x, n, y)
    return (power_base(g, s0, s1), power_exponent(g, s0, s1, y))
    return None


def _gradient_where(y: Any, g: Any) -> Any:
    s0, s1, s2 = y.src
    if s2.op is _CONST:
        # where(p, x, c) -> _, where(p, g, 0), _
        return (None, alu(_WHERE, (s0, g, const(g.dtype, 0))), None)
    if s1.op is _CONST:
        # where(p, c, x) -> _, _, where(p, 0, g)
        return (None, None, alu(_WHERE, (s0, const(g.dtype, 0), g)))
    # where(p, a, b) -> _, where(p, g, 0), where(p, 0, g)
    return (None, alu(_WHERE, (s0, g, const(g.dtype, 0))), alu(_WHERE, (s0, const(g.dtype, 0), g)))
    return None


def _gradient_max(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    if s1.op is _CONST:
        # max(x, c) -> where(y == c, 0, g), _
        return (alu(_WHERE, (alu(_EQ, (y, s1)), const(g.dtype, 0), g)), None)
    # max(a, b) -> max_left(g, a, b), max_right(g, a, b)
    return (max_left(g, s0, s1), max_right(g, s0, s1))
    return None


def _gradient_min(y: Any, g: Any) -> Any:
    s0, s1 = y.src
    if s1.op is _CONST:
        # min(x, c) -> where(y == c, 0, g), _
        return (alu(_WHERE, (alu(_EQ, (y, s1)), const(g.dtype, 0), g)), None)
    # min(a, b) -> max_left(g, b, a), max_right(g, b, a)
    return (max_left(g, s1, s0), max_right(g, s1, s0))
    return None


def _gradient_abs(y: Any, g: Any) -> Any:
    s0, = y.src
    # abs(x) -> g * side(x)
    return (alu(_MUL, (g, side(s0))),)
    return None


def _gradient_exp(y: Any, g: Any) -> Any:
    s0, = y.src
    # exp(x) -> g * y
    return (alu(_MUL, (g, y)),)
    return None


def _gradient_exp2(y: Any, g: Any) -> Any:
    s0, = y.src
    # exp2(x) -> g * y * {math.log(2)}
    return (alu(_MUL, (alu(_MUL, (g, y)), const(g.dtype, math.log(2)))),)
    return None


def _gradient_log(y: Any, g: Any) -> Any:
    s0, = y.src
    # log(x) -> g / x
    return (alu(_DIV, (g, s0)),)
    return None


def _gradient_log2(y: Any, g: Any) -> Any:
    s0, = y.src
    # log2(x) -> g / (x * {math.log(2)})
    return (alu(_DIV, (g, alu(_MUL, (s0, const(s0.dtype, math.log(2)))))),)
    return None


def _gradient_sin(y: Any, g: Any) -> Any:
    s0, = y.src
    # sin(x) -> g * cos(x)
    return (alu(_MUL, (g, alu(_COS, (s0,)))),)
    return None


def _gradient_cos(y: Any, g: Any) -> Any:
    s0, = y.src
    # cos(x) -> -(g * sin(x))
    return (alu(_NEG, (alu(_MUL, (g, alu(_SIN, (s0,)))),)),)
    return None


def _gradient_tan(y: Any, g: Any) -> Any:
    s0, = y.src
    # tan(x) -> g * (y * y + 1)
    return (alu(_MUL, (g, alu(_ADD, (alu(_MUL, (y, y)), const(y.dtype, 1))))),)
    return None


def _gradient_tanh(y: Any, g: Any) -> Any:
    s0, = y.src
    # tanh(x) -> g * (1 - y * y)
    return (alu(_MUL, (g, alu(_SUB, (const(y.dtype, 1), alu(_MUL, (y, y)))))),)
    return None


def _gradient_erf(y: Any, g: Any) -> Any:
    s0, = y.src
    # erf(x) -> g * exp(-(x * x)) * {2 / math.sqrt(math.pi)}
    return (alu(_MUL, (alu(_MUL, (g, alu(_EXP, (alu(_NEG, (alu(_MUL, (s0, s0)),)),)))), const(g.dtype, 2 / math.sqrt(math.pi)))),)
    return None


def _gradient_sqrt(y: Any, g: Any) -> Any:
    s0, = y.src
    # sqrt(x) -> g / (y * 2)
    return (alu(_DIV, (g, alu(_MUL, (y, const(y.dtype, 2))))),)
    return None


def _gradient_rsqrt(y: Any, g: Any) -> Any:
    s0, = y.src
    # rsqrt(x) -> g * (y * y * y * -0.5)
    return (alu(_MUL, (g, alu(_MUL, (alu(_MUL, (alu(_MUL, (y, y)), y)), const(y.dtype, -0.5))))),)
    return None


def _gradient_recip(y: Any, g: Any) -> Any:
    s0, = y.src
    # recip(x) -> -(g * y * y)
    return (alu(_NEG, (alu(_MUL, (alu(_MUL, (g, y)), y)),)),)
    return None


def _gradient_call(y: Any, g: Any) -> Any:
    if y.arg[0].name == 'slope' and len(y.src) == 3:
        s0, s1, s2 = y.src
        # call["slope", _](v, x, s) -> _, g * s, _
        return (None, alu(_MUL, (g, s2)), None)
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
        return (g, alu(_WHERE, (const(dtypes.bool_, False), g, const(g.dtype, 0))))
    if y.arg[0].name == 'beside' and len(y.src) == 2:
        s0, s1 = y.src
        # call["beside", _](v, x) -> g, nothing(x)
        return (g, nothing(s1))
    if y.arg[0].name == 'exp' and len(y.src) == 3:
        s0, s1, s2 = y.src
        # call["exp", _](v, x, p) -> _, g * y, _
        return (None, alu(_MUL, (g, y)), None)
    if y.arg[0].name == 'inverse' and len(y.src) == 3:
        s0, s1, s2 = y.src
        # call["inverse", c](v, x, e) -> _, -(g * y * share(y, x, e, c)), _
        return (None, alu(_NEG, (alu(_MUL, (alu(_MUL, (g, y)), share(y, s1, s2, y.arg[0].arguments))),)), None)
    if y.arg[0].name == 'share' and len(y.src) == 3:
        s0, s1, s2 = y.src
        # call["share", c](v, x, i) -> _, g * (i * y * {c}), _
        return (None, alu(_MUL, (g, alu(_MUL, (alu(_MUL, (s2, y)), const(s2.dtype, y.arg[0].arguments))))), None)
    return None


def _gradient_cast(y: Any, g: Any) -> Any:
    s0, = y.src
    if s0.dtype.is_float:
        # cast(x:float) -> widest(g, x, y)
        return (widest(g, s0, y),)
    return None


def _gradient_reshape(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        s0, = y.src
        # reshape(x) -> reshaped(g, x)
        return (reshaped(g, s0),)
    return None


def _gradient_permute(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        s0, = y.src
        # permute[axes](x) -> permuted(g, axes)
        return (permuted(g, y.arg),)
    return None


def _gradient_expand(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        s0, = y.src
        # expand(x) -> expanded(g, x, y)
        return (expanded(g, s0, y),)
    return None


def _gradient_pad(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        s0, = y.src
        # pad[pairs](x) -> padded(g, x, pairs)
        return (padded(g, s0, y.arg),)
    return None


def _gradient_shrink(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        s0, = y.src
        # shrink[pairs](x) -> shrunk(g, x, y, pairs)
        return (shrunk(g, s0, y, y.arg),)
    return None


def _gradient_flip(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        s0, = y.src
        # flip[axes](x) -> flipped(g, axes)
        return (flipped(g, y.arg),)
    return None


def _gradient_contiguous(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        s0, = y.src
        # contiguous(x) -> g
        return (g,)
    return None


def _gradient_update(y: Any, g: Any) -> Any:
    if len(y.src) == 2:
        s0, s1 = y.src
        # update[begins](x, v) -> around(g, y, v, begins), part(g, v, begins)
        return (around(g, y, s1, y.arg), part(g, s1, y.arg))
    return None


def _gradient_reduce_axis(y: Any, g: Any) -> Any:
    if len(y.src) == 1:
        s0, = y.src
        # reduce_axis(x) -> reduced(g, x, y)
        return (reduced(g, s0, y),)
    return None


def _gradient_gather(y: Any, g: Any) -> Any:
    if len(y.src) == 2:
        s0, s1 = y.src
        # gather[axis](x, i) -> gathered(g, x, i, axis), _
        return (gathered(g, s0, s1, y.arg), None)
    return None


def _gradient_scatter_add(y: Any, g: Any) -> Any:
    if len(y.src) == 2:
        s0, s1 = y.src
        # scatter_add(i, x) -> _, scattered(g, i, x, y)
        return (None, scattered(g, s0, s1, y))
    return None


GRADIENT: dict[Op, Callable[[Any, Any], Any]] = {Op.ADD: _gradient_add, Op.SUB: _gradient_sub, Op.MUL: _gradient_mul, Op.DIV: _gradient_div, Op.NEG: _gradient_neg, Op.MOD: _gradient_mod, Op.POW: _gradient_pow, Op.WHERE: _gradient_where, Op.MAX: _gradient_max, Op.MIN: _gradient_min, Op.ABS: _gradient_abs, Op.EXP: _gradient_exp, Op.EXP2: _gradient_exp2, Op.LOG: _gradient_log, Op.LOG2: _gradient_log2, Op.SIN: _gradient_sin, Op.COS: _gradient_cos, Op.TAN: _gradient_tan, Op.TANH: _gradient_tanh, Op.ERF: _gradient_erf, Op.SQRT: _gradient_sqrt, Op.RSQRT: _gradient_rsqrt, Op.RECIP: _gradient_recip, Op.CALL: _gradient_call, Op.CAST: _gradient_cast, Op.RESHAPE: _gradient_reshape, Op.PERMUTE: _gradient_permute, Op.EXPAND: _gradient_expand, Op.PAD: _gradient_pad, Op.SHRINK: _gradient_shrink, Op.FLIP: _gradient_flip, Op.CONTIGUOUS: _gradient_contiguous, Op.UPDATE: _gradient_update, Op.REDUCE_AXIS: _gradient_reduce_axis, Op.GATHER: _gradient_gather, Op.SCATTER_ADD: _gradient_scatter_add}
