"""Python's collector of cycles, put off while a graph is compiled.

Nodes hold no cycles, but the collector cannot know: with a hundred thousand of them it walks all again and again, for a
third of the time of a compilation.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]


@contextmanager
def uncollected() -> Iterator[None]:
    """A block in which cycles are not collected, unless collection is switched on."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
