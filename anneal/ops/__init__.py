"""Ops: what is computed with tensors, as plain functions by family.

`exp(x)` is `x.exp()`: the class `Tensor` has most of them as its methods. A family's file names its ops in `__all__`,
and all of them are names of this room. `nodes` are the functions of nodes that they are made of, `made` makes tensors
where none is given, `operators` are Python's. Nothing here imports `Tensor`, except to say types.

A family is imported when one of its ops is first asked for; `homes.py` says which family has it.
"""

from typing import TYPE_CHECKING

from anneal.doors import opened_later
from anneal.ops.arguments import (
    Integer,
    alias,
    bound_int,
    checked,
    deferred,
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
from anneal.ops.homes import FAMILIES as FAMILIES

__all__ = [
    "FAMILIES",
    "HELD",
    "MODES",
    "Array",
    "DTypeLike",
    "Generator",
    "Integer",
    "MinMax",
    "Shape",
    "ValuesIndices",
    "alias",
    "array_of",
    "as_dtype",
    "axes_of",
    "axis_of",
    "bound_int",
    "broadcast_shapes",
    "called_on_host",
    "changed",
    "check_device_dtype",
    "checked",
    "default_generator",
    "deferred",
    "explain_class",
    "grad_enabled",
    "host_generator",
    "host_normal",
    "host_uniform",
    "in_place",
    "in_single",
    "int_args",
    "is_bool",
    "is_tensor",
    "made",
    "need_changeable",
    "need_tensor",
    "no_grad",
    "nodes",
    "one_of",
    "operators",
    "per_axis",
    "said",
    "several",
    "take_running_updates",
    "whole",
    "wrap_array",
]

if TYPE_CHECKING:
    from anneal.ops import (
        activations,
        angles,
        attention,
        bessel,
        conjugates,
        convolution,
        copies,
        creation,
        diagonals,
        distances,
        dynamic,
        elementwise,
        extremes,
        functions,
        further,
        gamma,
        images,
        indexing,
        inplace,
        inplace_kin,
        inplace_random,
        joining,
        layers,
        linalg,
        logic,
        losses,
        made,
        movement,
        nodes,
        normalisation,
        operators,
        placing,
        polynomials,
        pooling,
        random,
        reduce,
        resize,
        rounding,
        running,
        sorting,
        statistics,
        strided,
        subscripts,
        tails,
        windows,
        zetas,
    )
    from anneal.ops.families import *
    from anneal.ops.glossary import explain_class
    from anneal.ops.host import called_on_host
    from anneal.ops.inplace import changed, in_place, need_changeable
    from anneal.ops.normalisation import take_running_updates
    from anneal.ops.pairs import MinMax, ValuesIndices
    from anneal.ops.precision import in_single
    from anneal.ops.random import Generator, default_generator, host_generator, host_normal, host_uniform
    from anneal.ops.resize import MODES
    from anneal.ops.windows import per_axis

    __all__ += activations.__all__
    __all__ += angles.__all__
    __all__ += attention.__all__
    __all__ += bessel.__all__
    __all__ += convolution.__all__
    __all__ += copies.__all__
    __all__ += creation.__all__
    __all__ += diagonals.__all__
    __all__ += distances.__all__
    __all__ += dynamic.__all__
    __all__ += elementwise.__all__
    __all__ += extremes.__all__
    __all__ += functions.__all__
    __all__ += further.__all__
    __all__ += gamma.__all__
    __all__ += images.__all__
    __all__ += indexing.__all__
    __all__ += inplace.__all__
    __all__ += inplace_kin.__all__
    __all__ += inplace_random.__all__
    __all__ += joining.__all__
    __all__ += layers.__all__
    __all__ += linalg.__all__
    __all__ += logic.__all__
    __all__ += losses.__all__
    __all__ += movement.__all__
    __all__ += normalisation.__all__
    __all__ += tails.__all__
    __all__ += placing.__all__
    __all__ += polynomials.__all__
    __all__ += pooling.__all__
    __all__ += random.__all__
    __all__ += conjugates.__all__
    __all__ += reduce.__all__
    __all__ += resize.__all__
    __all__ += rounding.__all__
    __all__ += running.__all__
    __all__ += sorting.__all__
    __all__ += statistics.__all__
    __all__ += strided.__all__
    __all__ += subscripts.__all__
    __all__ += windows.__all__
    __all__ += zetas.__all__
else:
    _HELP = {  # what stands in the families' files beside their ops
        "anneal.ops.glossary": ("explain_class",),
        "anneal.ops.host": ("called_on_host",),
        "anneal.ops.inplace": ("changed", "in_place", "need_changeable"),
        "anneal.ops.normalisation": ("take_running_updates",),
        "anneal.ops.pairs": ("MinMax", "ValuesIndices"),
        "anneal.ops.precision": ("in_single",),
        "anneal.ops.random": ("Generator", "default_generator", "host_generator", "host_normal", "host_uniform"),
        "anneal.ops.resize": ("MODES",),
        "anneal.ops.windows": ("per_axis",),
    }
    __all__ += [name for names in FAMILIES.values() for name in names]
    __getattr__ = opened_later(__name__, {**FAMILIES, **_HELP}, (*FAMILIES, "families", "made", "nodes", "operators"))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *FAMILIES})


def _read_first() -> None:
    """Never called: mypy reads the families before this file, whose imports above it would put last."""
    from anneal.ops import families, made, operators  # noqa: F401
