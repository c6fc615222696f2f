"""Parameters and buffers, under the path that torch has for them."""

from __future__ import annotations

from anneal.nn._parameter import Buffer, Parameter

__all__ = ["Buffer", "Parameter"]
