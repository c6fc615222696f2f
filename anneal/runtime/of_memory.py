"""Numbers of calls as memory of one element, and what an op makes of them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np

from anneal.backend import numpy_dtype
from anneal.runtime.context import here, modes
from anneal.runtime.handle import Handle, flat, mapped
from anneal.runtime.nodes import buffer_leaf, host_storage
from anneal.uop import DType, Questions, UOp, normalise_const, worth

_NUMBERS = frozenset(f"{kind}{none}" for kind in ("float", "Number", "Operand") for none in ("", " | None"))


def number(value: float, dtype: DType, device: str) -> UOp:
    """The node of memory that has one number, of shape ().

    Args:
        value: the number.
        dtype: the dtype that it is rounded to.
        device: the name of the device.
    """
    if value.__class__ is not float or dtype.name != "float32" or not abs(value) < 1e38:  # NumPy rounds alike
        value = normalise_const(dtype, value)
    return buffer_leaf(host_storage(np.array([value], numpy_dtype(dtype)), dtype, device), ())


class Placed(int):
    """The place of a number among those of a call that vary."""


@lru_cache(1 << 10)
def takes_whole(op: Any) -> frozenset[Any]:
    """The arguments of an op, by name and by place, of which whole numbers may vary: numbers of any kind, and what the
    op names in its `whole`."""
    op, first = inspect.unwrap(op), getattr(op, "first", 0)  # a change of a view has its place first
    names = enumerate(inspect.signature(op).parameters, first)
    kinds = op.__annotations__ | dict.fromkeys(getattr(op, "whole", ()), "Number")
    return frozenset(x for row in names for x in row if kinds.get(row[1]) in _NUMBERS)


class OfMemory(Questions):
    """A call of an op in which numbers vary: it asks the same of them each time, and makes memory of the same.

    It has what it `made` memory of: integers of 32 bits only where the op says so by its `whole`, since what is known
    of a constant is looked at beforehand.

    Args:
        op: the op.
        values: the numbers.
        device: where the memory is.
    """

    def __init__(self, op: Any, values: Sequence[Any], device: str) -> None:
        super().__init__(values)
        self.__name__, self.device, self.kinds = op.__name__, device, values
        self.least = 0 if hasattr(inspect.unwrap(op), "whole") else 33

    def node(self, made: Any, dtype: DType) -> UOp | None:
        """The node of a number, memory; None if it is to be a constant."""
        at = made, dtype
        if at not in self.made and (dtype.is_float or (dtype.is_int and dtype.bits >= self.least)):
            with modes(effects=0):
                self.made[at] = number(worth(made, self.values), dtype, self.device)
        return self.made.get(at)

    def memory(self, values: Sequence[Any], like: Any) -> list[Any]:
        """The memory, for these values of the numbers."""
        out = []  # by a loop: a list comprehension is a call
        for made, dtype in self.made:
            value = values[made[1]] if made[0] is None else worth(made, values)
            out.append(like._new_plain(number(value, dtype, self.device)))
        return out

    def given(self, x: Any) -> Any:
        """An argument, a `Varying` in place of a number."""
        return self.of((None, int(x)), self.kinds[x]) if x.__class__ is Placed else x

    def run(self, run: Any, *args: Any, **options: Any) -> Any:
        """The call, of the places of its numbers and of their memory behind its arguments."""
        again, last = copy(self), len(args) - len(self.made)
        again.values, again.made = (), dict(zip(self.made, [t.uop for t in args[last:]], strict=True))
        args, options = mapped((args[:last], options), again.given)
        return run(*args, **options)


def asked(op: Any, run: Any, changes: bool, values: Sequence[Any], args: Any, options: Any) -> OfMemory:
    """The questions of a call of an op, and what it makes memory of. Raises TypeError where it draws numbers, or has
    other effects; one that `changes` its argument may."""
    of = OfMemory(op, values, next(t._device for t in flat((args, options)) if isinstance(t, Handle)))
    # other tensors of the same values: one may be changed
    given = lambda x: type(x)._from_uop(x.uop, x._device, x._wants) if isinstance(x, Handle) else of.given(x)
    with modes(defers=False, became=None, checks=[], effects=here.effects if changes else None):
        args, options = mapped((args, options), given)
        run(*args, **options)
    of.made = dict.fromkeys(of.made)
    return of
