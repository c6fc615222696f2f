"""Python's management of memory, as the compiler uses it: counts of references, which say whether somebody else has
an object, and the collector of cycles, put off while a graph is compiled.

Nodes hold no cycles, but the collector cannot know: with a hundred thousand of them it walks all again and again, for a
third of the time of a compilation.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

references: Final = sys.getrefcount  # to an object, the argument's own among them


class Users:
    """Objects that are held, each with the count of references to it when nobody else has it.

    Args:
        held: the objects; the list itself is a reference to each.
        alone: the counts, those of now if left out.
    """

    __slots__ = ("alone", "held")

    def __init__(self, held: list[Any], alone: Sequence[int] | None = None) -> None:
        self.held = held
        self.alone = list(map(references, held)) if alone is None else list(alone)

    def more(self) -> list[int] | None:
        """For each object, how many references more there are; None if nobody else has any of them.

        >>> a, b = object(), object()
        >>> users = Users([a, b])
        >>> users.more()
        >>> c = b
        >>> users.more()
        [0, 1]
        """
        counts = list(map(references, self.held))
        return None if counts == self.alone else [a - b for a, b in zip(counts, self.alone, strict=True)]


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
