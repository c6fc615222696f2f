"""The records of a plan: arrays, instructions, and the phases that the planner puts them in.

A plan is a list of phases:

    Pad      copy a predicated load into a zero-bordered array, of which the predicated reads are plain strided views
    Loop     elementwise work and small reduces, block by block so that temporaries stay in cache
    Product  one sum of products by BLAS
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anneal.backend.cpu.ops import Build
from anneal.uop import UOp

Block = dict[int, tuple[int, int]]  # which values of each dim, from the first to before the last


class PlanValue:
    """An array of the plan. `kind`:

    const   a scalar; `ref` is a 0-d array
    fixed   known while compiling; `ref` is the array, one axis per dim
    param   a strided view of kernel argument `ref`, from element `offset`
    full    scratch that lives for the whole kernel, `size` elements; a strided view of it
    temp    scratch of one block, in a register that is reused once nobody needs it
    bits    another value's memory under another dtype; `ref` is that value
    """

    __slots__ = ("dtype", "kind", "mask", "offset", "ref", "register", "size", "strides")

    def __init__(self, kind: str, dtype: np.dtype[Any], mask: int, ref: Any = None) -> None:
        self.kind, self.dtype, self.mask, self.ref = kind, dtype, mask, ref
        self.strides: dict[int, int] = {}
        self.offset = 0
        self.size = 0
        self.register = -1

    @property
    def root(self) -> PlanValue:
        """The value that owns the memory."""
        v = self
        while v.kind == "bits":
            v = v.ref
        return v


@dataclass(slots=True)
class Instr:
    """One primitive: `build(inputs, output)` gives the calls. `fold`, for a reduce accumulated over blocks, combines
    a block's result with what is there, over the reduced dims `over`. `passes` is how often it goes over its output."""

    name: str
    build: Build
    ins: list[PlanValue]
    out: PlanValue
    inplace: bool = True
    fold: Callable[..., Any] | None = None
    over: int = 0
    passes: int = 1


@dataclass(slots=True)
class BlockLoop:
    """Instructions run once for every block; `whole` are dims that must not be cut."""

    instrs: list[Instr]
    mask: int
    whole: int


@dataclass(slots=True)
class Pad:
    """out[...] = 0, then out's interior = source."""

    out: PlanValue
    interior: PlanValue
    source: PlanValue
    extents: dict[int, int]


@dataclass(slots=True)
class Product:
    """c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]; each a list of dims in array order."""

    a: PlanValue
    b: PlanValue
    c: PlanValue
    batch: list[int]
    m: list[int]
    n: list[int]
    k: list[int]


@dataclass(slots=True)
class CpuPlan:
    """`order` lists the dims outermost first: the axes of every array. `extent` is indexed by dim."""

    order: list[int]
    extent: list[int]
    phases: list[BlockLoop | Pad | Product]
    fulls: list[PlanValue] = field(default_factory=list)
    limits: dict[int, UOp] = field(default_factory=dict)  # dims of which a run takes the first values
    points: dict[int, UOp] = field(default_factory=dict)  # dims of which it takes one, a variable's


def bits(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out


def mask_of(dims: Iterable[int]) -> int:
    m = 0
    for s in dims:
        m |= 1 << s
    return m
