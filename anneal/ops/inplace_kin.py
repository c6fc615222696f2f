"""Ops in place, of the ops that they are named after: `x.exp_()` gives `x` the values of `x.exp()` (`inplace.py`)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, cast

from anneal.errors import GradientError, ShapeError
from anneal.ops import (
    activations,
    angles,
    bessel,
    conjugates,
    diagonals,
    elementwise,
    functions,
    further,
    gamma,
    indexing,
    linalg,
    logic,
    movement,
    operators,
    placing,
    rounding,
    running,
    statistics,
    strided,
)
from anneal.ops.arguments import checked
from anneal.ops.inplace import changed, need_changeable
from anneal.runtime import forbid_in_capture, outdate_captures

if TYPE_CHECKING:
    from anneal.tensor import Tensor

__all__: list[str] = [
    "abs_",
    "absolute_",
    "acos_",
    "acosh_",
    "addbmm_",
    "addcdiv_",
    "addcmul_",
    "addmm_",
    "addmv_",
    "addr_",
    "arccos_",
    "arccosh_",
    "arcsin_",
    "arcsinh_",
    "arctan2_",
    "arctan_",
    "arctanh_",
    "asin_",
    "asinh_",
    "atan2_",
    "atan_",
    "atanh_",
    "baddbmm_",
    "bitwise_and_",
    "bitwise_left_shift_",
    "bitwise_not_",
    "bitwise_or_",
    "bitwise_right_shift_",
    "bitwise_xor_",
    "ceil_",
    "clamp_max_",
    "clamp_min_",
    "clip_",
    "copysign_",
    "cos_",
    "cosh_",
    "cumprod_",
    "cumsum_",
    "deg2rad_",
    "digamma_",
    "divide_",
    "eq_",
    "erf_",
    "erfc_",
    "erfinv_",
    "exp2_",
    "exp_",
    "expm1_",
    "float_power_",
    "floor_",
    "floor_divide_",
    "fmod_",
    "frac_",
    "gcd_",
    "ge_",
    "greater_",
    "greater_equal_",
    "gt_",
    "heaviside_",
    "hypot_",
    "i0_",
    "index_add_",
    "index_copy_",
    "index_fill_",
    "index_put_",
    "index_reduce_",
    "lcm_",
    "ldexp_",
    "le_",
    "less_",
    "less_equal_",
    "lgamma_",
    "log1p_",
    "log2_",
    "log10_",
    "log_",
    "logical_and_",
    "logical_not_",
    "logical_or_",
    "logical_xor_",
    "logit_",
    "lt_",
    "masked_fill_",
    "masked_scatter_",
    "multiply_",
    "nan_to_num_",
    "ne_",
    "neg_",
    "negative_",
    "nextafter_",
    "not_equal_",
    "pow_",
    "put_",
    "rad2deg_",
    "reciprocal_",
    "relu_",
    "remainder_",
    "renorm_",
    "round_",
    "rsqrt_",
    "scatter_",
    "scatter_add_",
    "scatter_reduce_",
    "sgn_",
    "sigmoid_",
    "sign_",
    "sin_",
    "sinc_",
    "sinh_",
    "sqrt_",
    "square_",
    "squeeze_",
    "subtract_",
    "swapaxes_",
    "swapdims_",
    "t_",
    "tan_",
    "tanh_",
    "transpose_",
    "tril_",
    "triu_",
    "true_divide_",
    "trunc_",
    "unsqueeze_",
    "xlogy_",
]

P = ParamSpec("P")


def _kin(op: Callable[Concatenate[Tensor, P], Tensor]) -> Callable[Concatenate[Tensor, P], Tensor]:
    """The op that gives its first tensor the result of `op`."""
    inner = inspect.unwrap(op)
    name = f"{op.__name__}_"

    @functools.wraps(inner)
    def change(x: Tensor, *args: P.args, **options: P.kwargs) -> Tensor:
        need_changeable(x, name)
        return changed(x, name, op(x, *args, **options))

    change.__module__ = __name__
    change.__doc__ = (
        f"`{op.__name__}` in place: the tensor takes the result's values, in its own dtype; errors as for `add_`."
    )
    return checked(cast("Callable[Concatenate[Tensor, P], Tensor]", change), name)


def _turned(op: Callable[Concatenate[Tensor, P], Tensor]) -> Callable[Concatenate[Tensor, P], Tensor]:
    """The op that gives its tensor the shape of `op`'s result."""
    inner = inspect.unwrap(op)
    name = f"{op.__name__}_"

    @functools.wraps(inner)
    def turn(x: Tensor, *args: P.args, **options: P.kwargs) -> Tensor:
        if x.is_leaf and x.requires_grad:
            raise GradientError(f"{name}: a leaf that requires a gradient keeps its shape; write y = x.{op.__name__}()")
        views = [v for r in x._views or () if (v := r()) is not None and v._base is not None and v._base.root is x]
        if views or (x._base is not None and x._is_part()):
            raise ShapeError(
                f"{name}: a tensor that is a view, or of which there are views, keeps its shape; write "
                f"x = x.{op.__name__}(...)"
            )
        forbid_in_capture(f"{name} of a tensor", f"write x = x.{op.__name__}(...)")
        outdate_captures("a tensor's shape was changed in place")
        new = op(x, *args, **options)
        if new is not x:
            u, new._base, x._views = new.uop, None, None
            x._take(u)
        return x

    turn.__module__ = __name__
    turn.__doc__ = (
        f"`{op.__name__}` in place: the tensor has that shape from now on. Raises ShapeError for a view and a tensor "
        "with views, GradientError for a leaf that requires a gradient."
    )
    return checked(cast("Callable[Concatenate[Tensor, P], Tensor]", turn), name)


squeeze_, unsqueeze_, t_ = _turned(movement.squeeze), _turned(movement.unsqueeze), _turned(movement.t)
transpose_ = _turned(movement.transpose)
swapaxes_, swapdims_ = _turned(movement.swapaxes), _turned(movement.swapdims)
abs_ = _kin(operators.abs)
absolute_ = _kin(rounding.absolute)
acos_ = _kin(angles.acos)
acosh_ = _kin(angles.acosh)
addbmm_ = _kin(linalg.addbmm)
addcdiv_ = _kin(elementwise.addcdiv)
addcmul_ = _kin(elementwise.addcmul)
addmm_ = _kin(linalg.addmm)
addmv_ = _kin(linalg.addmv)
addr_ = _kin(linalg.addr)
arccos_ = _kin(angles.arccos)
arccosh_ = _kin(angles.arccosh)
arcsin_ = _kin(angles.arcsin)
arcsinh_ = _kin(angles.arcsinh)
arctan_ = _kin(angles.arctan)
arctan2_ = _kin(angles.arctan2)
arctanh_ = _kin(angles.arctanh)
asin_ = _kin(angles.asin)
asinh_ = _kin(angles.asinh)
atan_ = _kin(angles.atan)
atan2_ = _kin(angles.atan2)
atanh_ = _kin(angles.atanh)
baddbmm_ = _kin(linalg.baddbmm)
bitwise_and_ = _kin(logic.bitwise_and)
bitwise_left_shift_ = _kin(logic.bitwise_left_shift)
bitwise_not_ = _kin(logic.bitwise_not)
bitwise_or_ = _kin(logic.bitwise_or)
bitwise_right_shift_ = _kin(logic.bitwise_right_shift)
bitwise_xor_ = _kin(logic.bitwise_xor)
ceil_ = _kin(rounding.ceil)
clamp_max_ = _kin(further.clamp_max)
clamp_min_ = _kin(further.clamp_min)
clip_ = _kin(elementwise.clip)
copysign_ = _kin(functions.copysign)
cos_ = _kin(angles.cos)
cosh_ = _kin(angles.cosh)
cumprod_ = _kin(running.cumprod)
cumsum_ = _kin(running.cumsum)
deg2rad_ = _kin(angles.deg2rad)
digamma_ = _kin(gamma.digamma)
divide_ = _kin(elementwise.divide)
eq_ = _kin(logic.eq)
erf_ = _kin(functions.erf)
erfc_ = _kin(functions.erfc)
erfinv_ = _kin(functions.erfinv)
exp_ = _kin(functions.exp)
exp2_ = _kin(functions.exp2)
expm1_ = _kin(functions.expm1)
float_power_ = _kin(further.float_power)
floor_ = _kin(rounding.floor)
floor_divide_ = _kin(elementwise.floor_divide)
fmod_ = _kin(elementwise.fmod)
frac_ = _kin(rounding.frac)
gcd_ = _kin(further.gcd)
ge_ = _kin(logic.ge)
greater_ = _kin(logic.greater)
greater_equal_ = _kin(logic.greater_equal)
gt_ = _kin(logic.gt)
heaviside_ = _kin(functions.heaviside)
hypot_ = _kin(angles.hypot)
index_add_ = _kin(indexing.index_add)
index_copy_ = _kin(placing.index_copy)
index_fill_ = _kin(placing.index_fill)
index_put_ = _kin(placing.index_put)
lcm_ = _kin(further.lcm)
ldexp_ = _kin(further.ldexp)
le_ = _kin(logic.le)
less_ = _kin(logic.less)
less_equal_ = _kin(logic.less_equal)
lgamma_ = _kin(gamma.lgamma)
log_ = _kin(functions.log)
log10_ = _kin(functions.log10)
log1p_ = _kin(functions.log1p)
log2_ = _kin(functions.log2)
logical_and_ = _kin(logic.logical_and)
logical_not_ = _kin(logic.logical_not)
logical_or_ = _kin(logic.logical_or)
logical_xor_ = _kin(logic.logical_xor)
logit_ = _kin(functions.logit)
lt_ = _kin(logic.lt)
masked_fill_ = _kin(indexing.masked_fill)
masked_scatter_ = _kin(placing.masked_scatter)
multiply_ = _kin(elementwise.multiply)
nan_to_num_ = _kin(rounding.nan_to_num)
ne_ = _kin(logic.ne)
neg_ = _kin(operators.neg)
negative_ = _kin(rounding.negative)
nextafter_ = _kin(further.nextafter)
not_equal_ = _kin(logic.not_equal)
pow_ = _kin(elementwise.pow)
rad2deg_ = _kin(angles.rad2deg)
reciprocal_ = _kin(functions.reciprocal)
relu_ = _kin(activations.relu)
remainder_ = _kin(elementwise.remainder)
renorm_ = _kin(statistics.renorm)
round_ = _kin(rounding.round)
rsqrt_ = _kin(functions.rsqrt)
scatter_ = _kin(indexing.scatter)
scatter_add_ = _kin(indexing.scatter_add)
scatter_reduce_ = _kin(placing.scatter_reduce)
sigmoid_ = _kin(activations.sigmoid)
sign_ = _kin(rounding.sign)
sin_ = _kin(angles.sin)
sinc_ = _kin(angles.sinc)
sinh_ = _kin(angles.sinh)
sqrt_ = _kin(functions.sqrt)
square_ = _kin(functions.square)
subtract_ = _kin(elementwise.subtract)
tan_ = _kin(angles.tan)
tanh_ = _kin(angles.tanh)
tril_ = _kin(diagonals.tril)
triu_ = _kin(diagonals.triu)
true_divide_ = _kin(elementwise.true_divide)
trunc_ = _kin(rounding.trunc)
xlogy_ = _kin(functions.xlogy)
i0_ = _kin(bessel.i0)
index_reduce_ = _kin(strided.index_reduce)
put_ = _kin(strided.put)
sgn_ = _kin(conjugates.sgn)
