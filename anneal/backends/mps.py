"""Metal, which is there by WebGPU alone."""

from __future__ import annotations

from anneal.backends.cudnn import is_available

__all__ = ["is_available", "is_built"]

is_built = is_available
