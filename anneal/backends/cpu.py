"""The processor, as torch's programs ask for it."""

from __future__ import annotations

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """ "DEFAULT": what instructions there are is the C compiler's and BLAS's affair."""
    return "DEFAULT"
