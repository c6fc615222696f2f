"""Ops: what is computed with tensors, as plain functions by family.

`exp(x)` is `x.exp()`: the class `Tensor` has most of them as its methods. A function's decorator declares its other
names; all of them are names of this package. `nodes` are the functions of nodes that they are made of, `made` makes
tensors where none is given, `operators` are Python's. Nothing here imports `Tensor`, except to say types.

A family is imported when one of its ops is first asked for; `anneal/names.py` says which family has it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anneal.doors import names_of, opened_later
from anneal.names import TURNED

if TYPE_CHECKING:
    from anneal.names import *
else:
    from anneal.ops.arguments import alias

    def _made(op: Any, name: str) -> Any:
        """The op with this name: an alias of another op, or its in-place form."""
        if name != f"{op.__name__}_":
            return alias(op, name)
        return import_module("anneal.ops.inplace").twin(op, name[:-1] in TURNED.split())

    __getattr__ = opened_later(__name__, make=_made)
    __all__ = names_of(__name__)
