"""The rules that fired, as values: every rule of every generated table, with its line in its file and the user's line.

A table is a dict from op to function. With a listener, the functions in the tables are others, which do the same
and report it; otherwise none of this is on any path, so a trace costs nothing when it is off. Results that were kept
from before (`simplify`'s memo, plans, kernels) need no rules again, and are not in the trace.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from anneal import settings
from anneal.rewrite.walk import HERE
from anneal.uop import Op, UOp, fold_by

Result = UOp | tuple[UOp | None, ...]
Listener = Callable[["Event"], None]


@dataclass(frozen=True, slots=True)
class Event:
    """A rule that fired.

    `after` is a node, or for rules of derivatives one contribution for each source. `pass_name` is empty outside of
    passes.
    """

    pass_name: str
    table: str
    rule: str  # its text
    place: str  # file:line of the rule
    before: UOp
    after: Result

    @property
    def user(self) -> str:
        """file:line of the user's code that `before` comes from; empty where that was not noted."""
        code, line = self.before.provenance[1:3]
        return "" if code is None else f"{code.co_filename}:{line}"

    def __str__(self) -> str:
        step = f"{self.pass_name}: " if self.pass_name else ""
        user = f" for {self.user}" if self.user else ""
        return f"{step}{self.before!r} -> {self.after!r}   by {self.rule}   at {self.place}{user}"


class _Listeners(list[Listener]):
    """The listeners to the rules that fire, in all threads."""

    plain: Sequence[tuple[str, dict[Op, Any], dict[Op, Any]]] = ()  # (kind, table, its own functions) where others are


_lock = threading.RLock()
_LISTENERS = _Listeners()
listening = _LISTENERS.__len__  # above 0 if some thread listens to the rules that fire


@contextmanager
def tracing() -> Iterator[list[Event]]:
    """The rules that fire in this thread within the block.

    >>> from anneal.uop import const, dtypes
    >>> x = UOp(Op.SPECIAL, dtypes.int32, (), ("x", 8))
    >>> with tracing() as events:
    ...     _ = x * 1
    >>> [(e.table, e.rule, e.after is x) for e in events]
    [('fold', 'x * 1 -> x', True)]
    """
    events: list[Event] = []
    mine = threading.get_ident()

    def note(event: Event) -> None:
        if threading.get_ident() == mine:
            events.append(event)

    _listen(note)
    try:
        yield events
    finally:
        _stop(note)


def _listen(f: Listener) -> None:
    with _lock:
        if not _LISTENERS:
            _replace_functions()
        _LISTENERS.append(f)


def _stop(f: Listener) -> None:
    with _lock:
        _LISTENERS.remove(f)
        if not _LISTENERS:
            _put_back()


def _replace_functions() -> None:
    _LISTENERS.plain = [(kind, functions, dict(functions)) for kind, functions, _ in _telling()]
    for kind, functions, telling in _telling():
        functions.update(telling)
        if kind == "fold":
            fold_by(functions)


@cache
def _telling() -> list[tuple[str, dict[Op, Any], dict[Op, Any]]]:
    """Kind, table, and the functions that do the same and tell of it: generated once for a process."""
    # with the generator, which a program does not need
    from anneal.rewrite.generate import PACKAGE, generate, targets
    from anneal.rewrite.upat import parse

    found = []
    for source, target in targets():
        file = source.relative_to(PACKAGE.parent).as_posix()
        text = source.read_text(encoding="utf-8")
        module = importlib.import_module(".".join(target.relative_to(PACKAGE.parent).with_suffix("").parts))
        naming: dict[str, Any] = {"__name__": f"{module.__name__}.named"}
        exec(generate(text, file, named=True), naming)
        for table in parse(text, file).tables:
            functions: dict[Op, Any] = getattr(module, table.name.upper())
            places = {rule.text: f"{file}:{rule.line}" for rule in table.rules}
            telling = {
                op: _TELLING[table.kind](op, match, table.name, places)
                for op, match in naming[table.name.upper()].items()
            }
            found.append((table.kind, functions, telling))
    return found


def _put_back() -> None:
    for kind, functions, plain in _LISTENERS.plain:
        functions.update(plain)
        if kind == "fold":
            fold_by(functions)
    _LISTENERS.plain = ()


def _tell(table: str, rule: str, places: Mapping[str, str], before: UOp, after: Result) -> None:
    if HERE.telling:  # a rule that fired for what a listener does
        return
    HERE.telling = True
    try:
        event = Event(HERE.pass_name, table, rule, places[rule], before, after)
        for f in tuple(_LISTENERS):
            f(event)
    finally:
        HERE.telling = False


def _rewrite(_: Op, match: Any, table: str, places: Mapping[str, str]) -> Any:
    def telling(u: UOp, ctx: Any) -> Any:
        found = match(u, ctx)
        if found is not None and found[0] is not u:
            _tell(table, found[1], places, u, found[0])
        return found

    return telling


def _fold(op: Op, match: Any, table: str, places: Mapping[str, str]) -> Any:
    def telling(dtype: Any, src: Any) -> Any:
        found = match(dtype, src)
        if found is None:
            return None
        _tell(table, found[1], places, UOp(op, dtype, src), found[0])
        return found[0]

    return telling


def _derivative(_: Op, match: Any, table: str, places: Mapping[str, str]) -> Any:
    def telling(y: UOp, *rest: Any) -> Any:
        found = match(y, *rest)
        if found is None:
            return None
        _tell(table, found[1], places, y, found[0])
        return found[0]

    return telling


_TELLING = {"rewrite": _rewrite, "fold": _fold, "gradient": _derivative, "forward": _derivative}


# -- ANNEAL_DEBUG=6 ---------------------------------------------------------------------------------------------------


def _print(event: Event) -> None:
    print(f"anneal: {event}", file=sys.stderr)


def _follow(s: settings.Settings) -> None:
    loud = s.debug >= 6
    if loud != (_print in _LISTENERS):
        (_listen if loud else _stop)(_print)


settings.watch(_follow)
