"""oneDNN, which is not there: its settings may be set, and change nothing."""

from __future__ import annotations

from anneal.backends.cudnn import flags, is_available

__all__ = ["enabled", "flags", "is_available"]

enabled = False
