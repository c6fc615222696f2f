"""cuDNN, which is not there: its settings may be set, and change nothing."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

__all__ = ["allow_tf32", "benchmark", "benchmark_limit", "deterministic", "enabled", "flags", "is_available", "version"]

benchmark = enabled = allow_tf32 = False
benchmark_limit: int | None = 10
deterministic = True


def is_available() -> bool:
    """False: there is none here."""
    return False


def version() -> None:
    """Gives None: there is no cuDNN."""


def flags(*settings: Any, **named: Any) -> nullcontext[None]:
    """A block in which settings are others, which change nothing."""
    return nullcontext()
