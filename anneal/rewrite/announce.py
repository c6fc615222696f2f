"""Every rewrite as a line on stderr, under ANNEAL_DEBUG=6."""

from __future__ import annotations

import sys

from anneal import settings
from anneal.rewrite.driver import Recorder
from anneal.uop import UOp

__all__ = ["announcer"]


def announcer() -> Recorder | None:
    """A recorder that prints, or None below that debug level."""
    return _announce if settings.current().debug >= 6 else None


def _announce(before: UOp, after: UOp, rule: str) -> None:
    print(f"anneal: {before!r} -> {after!r}   by {rule}", file=sys.stderr)
