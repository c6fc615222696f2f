"""Arrays of symbolic size: the part that they take of the memory that holds them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anneal.backend import Array
from anneal.uop import SYMBOLIC
from anneal.uop.sizes import evaluator, mapped, symbolic_arg, unbound, widest


def bound_shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """The sizes of this run.

    Args:
        shape: a shape in which sizes may be Variables.
    """
    if not SYMBOLIC.seen:
        return shape
    values: dict[str, int] = {}
    return evaluator(mapped(shape, lambda u: unbound(u, values)))(values)


def needed(shape: tuple[Any, ...]) -> int:
    """The number of elements, from the first on, that hold an array of `shape` with its padded rows in memory."""
    if not (SYMBOLIC.seen and symbolic_arg(shape)):
        return math.prod(shape)
    end, stride = 1, 1
    for n, room in zip(reversed(bound_shape(shape)), reversed(widest(shape)), strict=True):
        if not n:
            return 0
        end += (n - 1) * stride
        stride *= room
    return end


def seen(memory: Array, shape: tuple[Any, ...]) -> Array:
    """The first elements of memory, `needed(shape)` or more, as the array of `shape`, without what pads its rows."""
    if not (SYMBOLIC.seen and symbolic_arg(shape)):
        return memory[: math.prod(shape)].reshape(shape)
    now = bound_shape(shape)
    steps, step = [], memory.itemsize
    for room in reversed(widest(shape)):
        steps.append(step)
        step *= room
    bits = memory.view(f"u{memory.itemsize}")  # not every dtype can be strided
    return np.lib.stride_tricks.as_strided(bits, now, steps[::-1]).copy().view(memory.dtype)


def laid_out(array: Array, shape: tuple[Any, ...]) -> Array:
    """`array` as memory for `shape` holds it: rows as long as the longest can be, zeros after their ends."""
    room = widest(shape)
    if array.shape == room:
        return array
    memory = np.zeros(room, array.dtype)
    memory[tuple([slice(n) for n in array.shape])] = array
    return memory
