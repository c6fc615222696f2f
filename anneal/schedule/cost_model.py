"""The target's cost model: the limits and prices by which a device's kernels are chosen, and what an op costs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

from anneal.uop import ALU, MOVEMENT, UOp
from anneal.uop.sizes import any_symbolic

COST = {op: op.cost for op in ALU}  # what computing an op again costs, in units of one multiplication
GATHER_COST = 40  # an indirect read: worth keeping where several kernels want it
REDUCE_COST = 1000
MASK_COST = 4  # what indices alone decide is computed again up to this price: it says what need not be computed


@dataclass(frozen=True)
class CostModel:
    """The target's cost model: limits and prices of the fusion decisions.

    `max_buffers` is the device's storage buffers per kernel. Only a horizontally fused kernel may take more than
    `member_buffers`: one body with many more runs out of registers.
    """

    max_buffers: int = 8
    recompute_cost: int = 30  # elementwise work wanted by several kernels is recomputed up to this price
    recompute_loads: int = 3  # ... and up to this many full-size loads
    epilogue_steps: int = 48  # how far ahead a reduce's value may fork before it must meet itself again
    row_fusion: int = 0  # reduces over at most this many trailing elements are fused into their consumer's loop
    expand_cost: int = 1  # work below a repeating EXPAND is recomputed up to this price
    repeated_rows: int = 0  # ... and rows that a matrix-vector product repeats, up to this many elements in all
    parallel: int = 0  # workgroups that fill the device: long reduces for fewer are done in two stages; 0 is never
    keeps_functions: bool = True  # a product stores what others make of it rather than itself
    reorders: bool = True  # a value that is seen in another order of axes alone is stored in that order
    masks: bool = False  # kernels are told what an index alone decides, and leave it out
    concurrent: bool = False  # calls that do not need each other run side by side, on memory without a size or dtype
    sort_by_counting: int = 0  # rows longer than this are sorted by radix, not by counting; 0: none
    # One kernel adds rows where an index says, one after another, keeps each value of a reduction on its way, or sorts
    # rows; else a sort brings rows together, what runs along an axis does so in blocks, and rows are counted.
    serial: bool = False
    kernel_steps: int = (
        1024  # elementwise ops that follow each other in one kernel: a long chain is cut, at equal pieces
    )
    keeps_inputs: bool = False  # no output takes the memory of an input, so that none waits for an input's readers
    chained_bytes: int = 0  # scores of this size and more are computed again for each reader (chains.py); 0: none
    buffer_bytes: int = 0  # the most that one buffer holds; 0 is no limit
    matrix_bytes: int = 0  # ... and of this, if they are products of float16 by subgroup matrices
    matrices: bool = False  # products of float16 numbers with float32 sums are what the device does best
    float32_products: str = "highest"  # as `set_float32_matmul_precision` has it: of what products of float32 are made
    binding_bytes: int = 0  # the most that one binding shows: larger values count as several buffers; 0 is no limit

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(vars(self).values()))

    def __hash__(self) -> int:  # each launch of a loop looks its plan up by it
        return self._hash

    @property
    def member_buffers(self) -> int:
        """The most buffers of one member of a horizontally fused kernel."""
        return min(self.max_buffers, 32)

    def bindings(self, values: Collection[UOp]) -> int:
        """The storage bindings that `values` take in a kernel."""
        if not self.binding_bytes:
            return len(values)
        return sum([max(1, -(-memory_bytes(u) // self.binding_bytes)) for u in values])

    def fit_to(self, order: Collection[UOp]) -> CostModel:
        """The same cost model for a graph of these nodes: without a limit that none of its values reaches, and with a
        binding set aside for the values of Variables where there are any."""
        if not self.binding_bytes:
            return self
        variables = any_symbolic(order)
        large = any(u.op not in MOVEMENT and memory_bytes(u) > self.binding_bytes for u in order)
        return replace(
            self,
            binding_bytes=self.binding_bytes if large else 0,
            max_buffers=self.max_buffers - variables,
        )


def memory_bytes(u: UOp) -> int:
    """The bytes that `u` takes on a device, once it is materialised."""
    return u.size * u.dtype.device_itemsize
