"""A list of passes as a value: what runs, can be stopped in, printed and checked is the same list.

The scheduler's passes and the code generator's are two Pipelines. A pass maps a state (a record, or a graph) to the
next one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from anneal import settings
from anneal.errors import CompilerError, UserError
from anneal.progress import told
from anneal.rewrite.legality import check
from anneal.rewrite.walk import HERE
from anneal.uop import UOp

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
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
            for p in told(self.passes, f"passes of {self.name}", len(self.passes)):
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
