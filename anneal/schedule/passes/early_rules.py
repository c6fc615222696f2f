"""Generated from anneal/schedule/passes/early.upat by `python -m anneal.rewrite.generate`; edit that file, not this one."""
# fmt: off
# mypy: allow-untyped-defs
import math
from typing import Any

from anneal.uop import Op, UOp
from anneal.schedule.passes.early_helpers import composed, has_products, is_identity, is_view, materialised
from anneal.schedule.passes.early_helpers import reduced_wide, summed_apart
from anneal.rewrite import value_of

_ADD = Op.ADD

def _early_reshape(u):
    s0, = u.src
    if s0.op is Op.RESHAPE:
        s0_0, = s0.src
        # reshape[s](reshape(x)) -> reshape[s](x)
        return s0_0.then(Op.RESHAPE, u.arg), 'reshape[s](reshape(x)) -> reshape[s](x)'
    if s0.shape == u.arg:
        # reshape[s](x) -> x if x.shape == s
        return s0, 'reshape[s](x) -> x if x.shape == s'


def _early_permute(u):
    s0, = u.src
    if s0.op is Op.PERMUTE:
        s0_0, = s0.src
        # permute[p](permute[q](x)) -> permute[composed(p, q)](x)
        return s0_0.then(Op.PERMUTE, composed(u.arg, s0.arg)), 'permute[p](permute[q](x)) -> permute[composed(p, q)](x)'
    if is_identity(u.arg):
        # permute[p](x) -> x if is_identity(p)
        return s0, 'permute[p](x) -> x if is_identity(p)'


def _early_reduce_axis(u):
    if u.arg[0] is _ADD:
        s0, = u.src
        if s0.dtype.is_float and s0.dtype.is_narrow:
            # reduce_axis[add, a](x:float) -> reduced_wide(u, x) if x.dtype.is_narrow
            r = reduced_wide(u, s0)
            if r is not None and r is not u:
                return r, 'reduce_axis[add, a](x:float) -> reduced_wide(u, x) if x.dtype.is_narrow'
    if u.arg[0] is Op.MUL:
        s0, = u.src
        if s0.dtype.is_float and s0.dtype.is_narrow:
            # reduce_axis[mul, a](x:float) -> reduced_wide(u, x) if x.dtype.is_narrow
            r = reduced_wide(u, s0)
            if r is not None and r is not u:
                return r, 'reduce_axis[mul, a](x:float) -> reduced_wide(u, x) if x.dtype.is_narrow'
    if u.arg[0] is _ADD:
        s0, = u.src
        if s0.op is Op.NEG:
            s0_0, = s0.src
            # reduce_axis[add, a](-x) -> -reduce_axis[add, a](x)
            return -s0_0.then(Op.REDUCE_AXIS, (_ADD, u.arg[1])), 'reduce_axis[add, a](-x) -> -reduce_axis[add, a](x)'
        if s0.op is Op.MUL:
            s0_0, s0_1 = s0.src
            if s0_1.op is Op.CONST and s0_0.dtype.is_float and s0_0.shape == u.src[0].shape and math.isfinite(s0_1.arg):
                # reduce_axis[add, a](x:float * c) -> reduce_axis[add, a](x) * c if x.shape == u.src[0].shape and math.isfinite(v(c))
                return s0_0.then(Op.REDUCE_AXIS, (_ADD, u.arg[1])) * s0_1, 'reduce_axis[add, a](x:float * c) -> reduce_axis[add, a](x) * c if x.shape == u.src[0].shape and math.isfinite(v(c))'
        if s0.op is _ADD:
            s0_0, s0_1 = s0.src
            if has_products(u.src[0]):
                # reduce_axis[add, a](x + y) -> summed_apart(u) if has_products(u.src[0])
                return summed_apart(u), 'reduce_axis[add, a](x + y) -> summed_apart(u) if has_products(u.src[0])'


def _early_argsort(u):
    if len(u.src) == 1:
        s0, = u.src
        if not is_view(s0):
            # argsort(x) -> argsort(materialised(x)) if not is_view(x)
            return UOp(Op.ARGSORT, u.dtype, (materialised(s0),), None), 'argsort(x) -> argsort(materialised(x)) if not is_view(x)'


EARLY: dict[Op, Any] = {
    Op.DETACH: lambda u: (u.src[0], 'detach(x) -> x'),  # detach(x) -> x
    Op.CALL: lambda u: (value_of(u), 'call() -> value_of(u)'),  # call() -> value_of(u)
    Op.RESHAPE: _early_reshape,
    Op.PERMUTE: _early_permute,
    Op.EXPAND: lambda u: (u.src[0], 'expand[s](x) -> x if x.shape == s') if u.src[0].shape == u.arg else None,  # expand[s](x) -> x if x.shape == s
    Op.CONTIGUOUS: lambda u: (u.src[0], 'contiguous(x) -> x if is_view(x) and u.tag is None') if is_view(u.src[0]) and u.tag is None else None,  # contiguous(x) -> x if is_view(x) and u.tag is None
    Op.REDUCE_AXIS: _early_reduce_axis,
    Op.ARGSORT: _early_argsort,
}
