"""OpenMP, which is not there: the cpu device has threads of its own."""

from __future__ import annotations

from anneal.backends.cudnn import is_available

__all__ = ["is_available"]
