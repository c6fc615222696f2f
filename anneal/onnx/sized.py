"""Operators on symbolic sizes: on the host as expressions, or on the device from the numbers of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from anneal.onnx.registry import Implementation
from anneal.onnx.sizes import ARITHMETIC, MOVING, Sizes, host_value, objects
from anneal.tensor import Tensor

if TYPE_CHECKING:
    from anneal.onnx.execute import Call

__all__ = ["sized"]


def sized(call: Call, of: Implementation, given: list[Any], wanted: list[bool], attributes: dict[str, Any]) -> Any:
    """The results of the operator where symbolic sizes are among its inputs: on the host if it moves or computes
    such, else on the device, from the numbers of this run.
    """
    data = [v for v, w in zip(given, wanted) if not w and v is not None]
    name, on_host = call.op if not call.node.domain else "", not any(isinstance(v, (Tensor, list)) for v in data)
    if on_host and any(isinstance(v, Sizes) for v in data):
        dtype = next(v.dtype for v in data if isinstance(v, Sizes))
        if name in ARITHMETIC:
            function, truth = ARITHMETIC[name]
            return host_value(function(*[objects(v) for v in data]), np.bool_ if truth else dtype)
        if name in MOVING and (name in ("Concat", "Where") or not any(isinstance(v, Sizes) for v in given[1:])):
            moved = (of.on_host or of.function)(call, *[objects(v) for v in given], **attributes)
            return tuple([host_value(r, dtype) for r in (moved if isinstance(moved, tuple) else (moved,))])
    if of.raw and (of.takes_sizes or not any(isinstance(v, Sizes) for v in data)):
        return of.function(call, *given, **attributes)
    given = [v if w else call.tensor(v) for v, w in zip(given, wanted)]
    return of.function(call, *given, **attributes)
