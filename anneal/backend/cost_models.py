"""The target cost models of the devices that anneal brings along: planning for one asks for no hardware."""

from __future__ import annotations

from anneal.schedule import CostModel

# Rows stay in cache, and NumPy pays for every pass: keep what is computed rather than compute it again. Values are
# stored as they are computed: two kernels that move whole vectors are worth more than one that does not.
CPU: CostModel = CostModel(max_buffers=16, row_fusion=8192, recompute_cost=8, reorders=False, serial=True)

# In float32 computing scores again takes longer than reading them (GPT-2's training step 188 ms, not 170, on an H100,
# for 11 GB, not 16): only those of more than 1 GiB. By subgroup matrices it is faster.
_CHAINED, _CHAINED_BY_MATRICES = (1 << 30) + 1, 1 << 20


def gpu(max_buffers: int = 128, binding_bytes: int = 0, buffer_bytes: int = 0, matrices: bool = False) -> CostModel:
    """The cost model of an adapter with that many storage buffers; more than 128 would only slow the compiler.

    `buffer_bytes` is the most that a buffer holds, and `binding_bytes` that a binding shows of it, 0 for no limit;
    `matrices`: it has subgroup matrices.
    """
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
        buffer_bytes=buffer_bytes,
        matrix_bytes=_CHAINED_BY_MATRICES if matrices else 0,
        matrices=matrices,
    )


GPU: CostModel = gpu()  # where no adapter says its limits
