"""Places: the nodes of the user's graph that a kernel computes.

A place is the number of a node in the parametrised graph, sources first. A call of a plan holds the places of what it
computes, also on disk; the graph that a program has at hand gives their lines and modules (`live_nodes`), so these are
never out of date.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from anneal.rewrite import rebuilt
from anneal.uop import SYMBOLIC, Op, Provenance, UOp, arena, toposort

Places = dict[UOp, int]


def carried(places: Places, sink: UOp, change: Callable[[], UOp]) -> UOp:
    """The sink that `change` makes of `sink`; `places` also gets the nodes that now stand in the place of others.

    Where `places` is empty, `sink` is the program, which `change` walks first: in the order of places.
    """
    with rebuilt() as walks:
        new = change()
    if not places:
        places.update(zip(next(walk for walk in walks if sink in walk), itertools.count()))
    for walk in walks:
        for u, v in walk.items():
            if v is not u and v not in places and (at := places.get(u)) is not None:
                places[v] = at
    for u, v in zip(sink.src, new.src):  # a copy, for an output that was a leaf or another one's equal
        places.setdefault(v, places[u])
    return new


def complete(places: Places, roots: Iterable[UOp], order: Sequence[UOp]) -> None:
    """Give each of `roots` a place: that of a node that is made of it, if a pass made it for that one."""
    if all(r in places for r in roots):
        return
    for u in reversed(order):
        at = places.get(u)
        if at is not None:
            for s in u.src:
                if s not in places:
                    places[s] = at


def places_of(roots: Sequence[UOp], order: Iterable[UOp], places: Mapping[UOp, int]) -> tuple[int, ...]:
    """The places of the roots of a kernel, one each, and then of the other nodes that it computes."""
    first = [places[r] for r in roots]
    rest = {at for u in order if u.src and (at := places.get(u)) is not None}
    return (*first, *sorted(rest.difference(first)))


class Origin(NamedTuple):
    """The origin of a node of the user's graph. `grounded`: it is computed from memory, not from constants alone."""

    op: Op
    grounded: bool
    provenance: Provenance


def live_order(sink: UOp, parametrise: Callable[[UOp], object]) -> list[UOp]:
    """The nodes below `sink` by place."""
    if not SYMBOLIC.seen:
        return toposort((sink,))  # parameters for buffers change no order
    with arena().untracked(), rebuilt() as walks:
        program = parametrise(sink)
    origin: dict[UOp, UOp] = {}
    for walk in walks:
        for u, v in walk.items():
            origin.setdefault(v, origin.get(u, u))
    assert isinstance(program, UOp)
    return [origin.get(u, u) for u in toposort((program,))]
