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
    """Within the block cycles are not collected, unless somebody switches that on."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
