"""The parts of the node that are written in nodes themselves, and whether a size may be a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Symbolic:
    """A flag: the process has made a VARIABLE. Before, every size is an int and need not be looked at."""

    def __init__(self) -> None:
        self.seen = False


SYMBOLIC = _Symbolic()


class _Later:
    """Functions of nodes that the node asks of files written in nodes; `complete.py` fills them in when the room is
    entered.
    """

    bind: Callable[[Any, int], Any]
    count: Callable[[tuple[Any, ...]], int]
    decided: Callable[[Any], bool | None]
    is_symbolic: Callable[[Any], bool]
    mapped: Callable[[Any, Callable[[Any], Any]], Any]
    render: Callable[[Any], str]
    short: Callable[[Any], str]
    sizes: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    symbolic_arg: Callable[[Any], bool]


LATER = _Later()
