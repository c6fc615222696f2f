"""Settings of torch's libraries, none of which is here: they may be set, and change nothing.

`import anneal.backends.cudnn` finds a library under its name, as in torch.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType
from typing import Any

from anneal.backend import DEVICES
from anneal.doors import names_of
from anneal.runtime import set_float32_products

__all__ = names_of(__name__)


class Absent(ModuleType):
    """The settings of a library of torch's that is not there, as a module; `name` and `doc` are the module's."""

    enabled = False

    @staticmethod
    def is_available() -> bool:
        """False: there is none here."""
        return False

    is_built = is_available

    @staticmethod
    def version() -> None:
        """Gives None: there is no such library."""

    @staticmethod
    def flags(*settings: Any, **named: Any) -> nullcontext[None]:
        """A block in which settings are others, which change nothing."""
        return nullcontext()


class CPU(ModuleType):
    """The processor, as torch's programs ask for it, as a module; `name` and `doc` are its."""

    @staticmethod
    def get_cpu_capability() -> str:
        """ "DEFAULT": what instructions there are is the C compiler's and BLAS's affair."""
        return "DEFAULT"


class CuDNN(Absent):
    """cuDNN, which is not there; `name` and `doc` are the module's."""

    benchmark = allow_tf32 = False
    benchmark_limit: int | None = 10
    deterministic = True


class Products:
    """Products of matrices: they are in the dtype of their operands, but for `allow_tf32`, which is that of
    `set_float32_matmul_precision`: True is "high".
    """

    allow_fp16_accumulation = False
    allow_fp16_reduced_precision_reduction = allow_bf16_reduced_precision_reduction = False

    @property
    def allow_tf32(self) -> bool:
        """True if products of float32 may be less exact: unless `set_float32_matmul_precision` says "highest"."""
        return DEVICES.precision != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        set_float32_products("high" if value else "highest")


class CUDA(Absent):
    """CUDA, which is not there; `name` and `doc` are the module's."""

    matmul = Products()
    sdp_kernel = Absent.flags
    flash_sdp_enabled = mem_efficient_sdp_enabled = cudnn_sdp_enabled = Absent.is_available

    @staticmethod
    def math_sdp_enabled() -> bool:
        """True: attention is computed as its formula stands."""
        return True

    @staticmethod
    def enable_flash_sdp(enabled: bool) -> None:
        """Does nothing: the compiler chooses how attention is computed, `enabled` or not."""

    enable_math_sdp = enable_mem_efficient_sdp = enable_cudnn_sdp = enable_flash_sdp


cpu, cuda, cudnn = CPU(f"{__name__}.cpu"), CUDA(f"{__name__}.cuda"), CuDNN(f"{__name__}.cudnn")
mkldnn, mps, openmp = (Absent(f"{__name__}.{name}") for name in ("mkldnn", "mps", "openmp"))
sys.modules.update({library.__name__: library for library in (cpu, cuda, cudnn, mkldnn, mps, openmp)})
