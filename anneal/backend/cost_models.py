"""The target cost models of the devices that anneal brings along: planning for one asks for no hardware."""

from __future__ import annotations

from anneal.schedule import CostModel

# Rows stay in cache, and NumPy pays for every pass: keep what is computed rather than compute it again.
CPU = CostModel(max_buffers=16, row_fusion=8192, recompute_cost=8)

_CHAINED = 1 << 20  # scores of fewer bytes stay in cache, and kernels that read them are no slower


def gpu(max_buffers: int = 128, binding_bytes: int = 0) -> CostModel:
    """The cost model of an adapter with that many storage buffers; more than 128 would only slow the compiler."""
    return CostModel(
        max_buffers=min(max_buffers, 128),
        row_fusion=65536,
        repeated_rows=1 << 26,
        parallel=512,
        masks=True,
        concurrent=True,
        sort_by_counting=16384,
        binding_bytes=binding_bytes,
        chained_bytes=_CHAINED,
    )


GPU = gpu()  # where no adapter says its limits
