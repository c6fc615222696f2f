"""Ops: what is computed with tensors, as plain functions, and `nodes`, the functions of nodes that they are made of."""

from anneal.ops import made
from anneal.ops.arguments import (
    Integer,
    bound_int,
    check_methods,
    checked,
    is_bool,
    is_tensor,
    need_tensor,
    said,
    several,
    whole,
)
from anneal.ops.axes import Shape, axes_of, axis_of, broadcast_shapes, int_args, one_of
from anneal.ops.data import HELD, Array, DTypeLike, array_of, as_dtype, check_device_dtype, wrap_array
from anneal.ops.grad_mode import grad_enabled, no_grad
from anneal.ops.host import called_on_host
from anneal.ops.precision import in_single

__all__ = [
    "HELD",
    "Array",
    "DTypeLike",
    "Integer",
    "Shape",
    "array_of",
    "as_dtype",
    "axes_of",
    "axis_of",
    "bound_int",
    "broadcast_shapes",
    "called_on_host",
    "check_device_dtype",
    "check_methods",
    "checked",
    "grad_enabled",
    "in_single",
    "int_args",
    "is_bool",
    "is_tensor",
    "made",
    "need_tensor",
    "no_grad",
    "one_of",
    "said",
    "several",
    "whole",
    "wrap_array",
]
