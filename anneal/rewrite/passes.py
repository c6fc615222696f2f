"""Pipelines, which are lists of passes, and rules as values: the rules that fired, and all rules of the `.upat` files.

What runs, can be stopped in, printed and checked is the same list: the scheduler's passes and the code generator's are
two Pipelines. A pass maps a state (a record, or a graph) to the next one.

A table of rules is a dict from op to function. With a listener, the functions in the tables are others, which do the
same and report it; otherwise none of this is on any path, so a trace costs nothing when it is off. Results that were
kept from before (`simplify`'s memo, plans, kernels) need no rules again, and are not in the trace.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from anneal import settings
from anneal.errors import CompilerError, UserError
from anneal.frozen import frozen
from anneal.progress import told
from anneal.rewrite.legality import check
from anneal.rewrite.walk import HERE
from anneal.uop import ALL, Op, UOp, fold_by

if TYPE_CHECKING:
    from anneal.rewrite.upat import Table

S = TypeVar("S")


@frozen
class Pass(Generic[S]):
    """One step of a pipeline.

    `view` tells of a state what this pass has made: graphs, and lines of text. `stage` names the table of
    `anneal/rewrite/legality.py` that these graphs obey. `reason` is one line for SPEC and for listings.
    """

    name: str
    run: Callable[[S], S]
    view: Callable[[S], Iterable[UOp | str]]
    reason: str
    stage: str | None = None


Hook = Callable[[Pass[S], S], None]  # called with each pass and the state that it made


class Pipeline(Generic[S]):
    """Passes in their order, each name once; iterating gives them.

    >>> from anneal.rewrite.passes import Pass, Pipeline
    >>> text = lambda n: [str(n)]
    >>> steps = Pipeline("example", [Pass("double", lambda n: n * 2, text, ""), Pass("negate", lambda n: -n, text, "")])
    >>> steps.run(4), steps.run(4, until="double")
    (-8, 8)
    >>> steps.run(4, hook=lambda p, n: print(p.name, n))
    double 8
    negate -8
    -8
    """

    __slots__ = ("name", "passes")

    def __init__(self, name: str, passes: Iterable[Pass[S]]) -> None:
        self.name = name
        self.passes: tuple[Pass[S], ...] = tuple(passes)
        if len({p.name for p in self.passes}) < len(self.passes):
            raise CompilerError(f"two passes of one name in the pipeline {name}: {', '.join(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple([p.name for p in self.passes])

    def __iter__(self) -> Iterator[Pass[S]]:
        return iter(self.passes)

    def run(self, value: S, until: str | None = None, hook: Hook[S] | None = None) -> S:
        """The state after all passes, or after the one called `until`; `hook` is called after each pass.

        With ANNEAL_DEBUG=5 every pass is shown too. Raises UserError for an `until` that is no pass, with the names of
        all.
        """
        if until is not None and until not in self.names:
            raise UserError(f"no pass {until!r} in the pipeline {self.name}; passes: {', '.join(self.names)}")
        loud = settings.current().debug >= 5
        outer = HERE.pass_name
        try:
            for p in told(self.passes, f"passes of {self.name}"):
                HERE.pass_name = p.name
                value = p.run(value)
                if loud:
                    show(p, value)
                if hook is not None:
                    hook(p, value)
                if p.name == until:
                    break
        finally:
            HERE.pass_name = outer
        return value


def show(p: Pass[S], state: S) -> None:
    """Print on stderr what `p` has made, and hold its graphs to the table of its stage."""
    verify(p, state)
    lines = [line for part in p.view(state) for line in str(part).splitlines()]
    print("\n".join([f"anneal: after {p.name}", *[f"  {line}" for line in lines]]), file=sys.stderr)


def verify(p: Pass[S], state: S) -> None:
    """Hold the graphs that `p` has made to the table of its stage. Raises CompilerError."""
    if p.stage is not None:
        for part in p.view(state):
            if isinstance(part, UOp):
                check(part, p.stage)


Result = UOp | tuple[UOp | None, ...]
Listener = Callable[["Event"], None]


@frozen
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


# a kind, its table, and the functions that this has from now on
Replacement = tuple[str, dict[Op, Any], dict[Op, Any]]


class _Listeners(list[Listener]):
    """The listeners to the rules that fire, in all threads."""

    plain: Sequence[Replacement] = ()  # (kind, table, its own functions) where others are


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
            _LISTENERS.plain = [(kind, functions, dict(functions)) for kind, functions, _ in _telling()]
            _use(_telling())
        _LISTENERS.append(f)


def _stop(f: Listener) -> None:
    with _lock:
        _LISTENERS.remove(f)
        if not _LISTENERS:
            _use(_LISTENERS.plain)
            _LISTENERS.plain = ()


def _use(tables: Sequence[Replacement]) -> None:
    """Replace the functions in tables: each row is a kind, a table, and the functions that it has from now on."""
    for kind, functions, others in tables:
        functions.update(others)
        if kind == "fold":
            fold_by(functions)


@cache
def _telling() -> list[Replacement]:
    """Kind, table, and functions that match the same and report it to the listeners: generated once for a process."""
    # imports the generator, which most programs do not need
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
            functions = getattr(module, table.name.upper())
            places = {rule.text: f"{file}:{rule.line}" for rule in table.rules}
            telling = {op: _and_tell(op, match, table, places) for op, match in naming[table.name.upper()].items()}
            found.append((table.kind, functions, telling))
    return found


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


def _and_tell(op: Op, match: Any, table: Table, places: Mapping[str, str]) -> Any:
    """A match function that reports each match: a rewrite or a derivative, which takes a node, or a fold, which takes a
    dtype and sources.
    """

    def telling(first: Any, *rest: Any) -> Any:
        found = match(first, *rest)
        if found is not None and found[0] is not None and found[0] is not first:
            before = first if isinstance(first, UOp) else UOp(op, first, *rest)
            _tell(table.name, found[1], places, before, found[0])
        return found if found is None or table.kind == "rewrite" else found[0]

    return telling


# -- ANNEAL_DEBUG=6 ---------------------------------------------------------------------------------------------------


def _print(event: Event) -> None:
    print(f"anneal: {event}", file=sys.stderr)


def _follow(s: settings.Settings) -> None:
    loud = s.debug >= 6
    if loud != (_print in _LISTENERS):
        (_listen if loud else _stop)(_print)


settings.watch(_follow)


@frozen
class Listed:
    """One rule with its place. `op` is what its pattern starts with, `mentions` every op in the pattern."""

    op: str
    mentions: frozenset[str]
    kind: str
    table: str
    text: str
    comment: str
    file: str
    line: int


@cache
def rules() -> tuple[Listed, ...]:
    """Every rule of the package, in the order of files and lines."""
    from anneal.rewrite.generate import PACKAGE, targets
    from anneal.rewrite.upat import mentioned, parse

    found = []
    for source, _ in targets():
        name = source.relative_to(PACKAGE.parent).as_posix()
        for t in parse(source.read_text(encoding="utf-8"), name).tables:
            for rule in t.rules:
                ops = [op.name for op in mentioned(rule, name)]
                row = Listed(ops[0], frozenset(ops), t.kind, t.name, rule.text, rule.comment, name, rule.line)
                found.append(row)
    return tuple(found)


def explain(op_name: str) -> list[Listed]:
    """The rules that concern an op: first those whose pattern starts with it, then those that only mention it.

    Raises UserError for a name that is no op, with the names that look like it.

    >>> [r.text for r in explain("exp") if r.kind == "gradient"]
    ['exp(x) -> g * y']
    """
    name = op_name.upper()
    if name not in ALL:
        import difflib

        near = difflib.get_close_matches(name, ALL, n=4) or sorted(ALL)
        raise UserError(f"unknown op {op_name!r}; known: {', '.join(near)}")
    return [r for r in rules() if r.op == name] + [r for r in rules() if r.op != name and name in r.mentions]
