"""CUDA, which is not there: its settings may be set, and change nothing."""

from __future__ import annotations

from anneal.backend import DEVICES
from anneal.backends.cudnn import flags as sdp_kernel, is_available
from anneal.runtime import set_float32_products

__all__ = [
    "cudnn_sdp_enabled", "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp",
    "flash_sdp_enabled", "is_available", "is_built", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled",
    "sdp_kernel",
]  # fmt: skip

is_built = flash_sdp_enabled = mem_efficient_sdp_enabled = cudnn_sdp_enabled = is_available


def math_sdp_enabled() -> bool:
    """True: attention is computed as its formula stands."""
    return True


def enable_flash_sdp(enabled: bool) -> None:
    """Does nothing: the compiler chooses how attention is computed, `enabled` or not."""


enable_math_sdp = enable_mem_efficient_sdp = enable_cudnn_sdp = enable_flash_sdp


class _Products(type):
    @property
    def allow_tf32(cls) -> bool:
        """True if products of float32 may be less exact: unless `set_float32_matmul_precision` says "highest"."""
        return DEVICES.precision != "highest"

    @allow_tf32.setter
    def allow_tf32(cls, value: bool) -> None:
        set_float32_products("high" if value else "highest")


class matmul(metaclass=_Products):
    """Products of matrices: they are in the dtype of their operands, but for `allow_tf32`, which is that of
    `set_float32_matmul_precision`: True is "high".
    """

    allow_fp16_accumulation = False
    allow_fp16_reduced_precision_reduction = allow_bf16_reduced_precision_reduction = False
