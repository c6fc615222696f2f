"""Tensors that are read together in each round of a loop: their templates at once (`numbering.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import ref

from anneal.runtime.handle import UNSEEN
from anneal.runtime.numbering import Numbering
from anneal.uop import Nodes, Op, Recent, UOp

_PLACES = 16  # where a group of tensors is read, of which the numbers are kept
_TURNS = 4  # memories that it shows in turn: a launch leaves its results in one of a few


class Together:
    """Tensors that a loop reads in one order in each of its rounds: a module's, or an optimiser's. Those in memory get
    their templates at once where they had them before. No memory is kept: nodes are known by weak references.

    Args:
        tensors: the tensors.
    """

    few = 16  # tensors, which are read one by one

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = tensors
        # by the tag and the first number: the nodes, the memory, the memory's templates, those of the nodes, the size
        self._rows: Recent[Any, list[tuple[Any, Any, Nodes, Nodes, int]]] = Recent(_PLACES)

    def joined(self, n: Numbering, templates: list[UOp], key: list[Any], tensors: list[Any]) -> list[UOp] | None:
        """The templates of a call's arguments, with those of the tensors, as `read` gives them, behind.

        Args:
            n: the numbering.
            templates: those of the other arguments.
            key: the call's, to which is added what the tensors are like.
            tensors: the other arguments, to which the tensors are added.
        """
        mine = self.read(n)
        if mine is None:
            return None
        tensors += self.tensors
        key += [(type(t), t._wants, t._device) for t in self.tensors]
        return templates + mine

    def read(self, n: Numbering) -> list[UOp] | None:
        """As `Numbering.read` of the tensors.

        Args:
            n: the numbering.
        """
        tensors = self.tensors
        if [t for t in tensors if t.late is not None or t._base is not None]:
            return n.read(tensors)
        for t in tensors:
            if t._used != n.seen:
                t._used = UNSEEN if t._used else n.seen
        return self.templates(n)

    def templates(self, n: Numbering) -> list[UOp]:
        """The templates of the tensors.

        Args:
            n: the numbering.
        """
        if [t for t in self.tensors if t.late is not None]:
            return n.all_of(self.tensors)
        nodes = [t.uop for t in self.tensors]
        found: list[Any] = list(map(n.known.get, nodes))
        if None not in found:
            return found
        first = len(n.leaves)
        rows = self._rows[n.tag, first] or []
        for there, memory, holes, templates, nbytes in rows:
            if [r() for r in there] != nodes:
                continue
            flats: list[Any] = [r() for r in memory]
            # none of it has a number yet, and no gradient goes on through it
            if n.known.keys().isdisjoint(flats) and not [u for u in flats if u.arg.made_by is not None]:
                n.known.update(zip(flats, holes, strict=True))
                n.known.update(zip(nodes, templates, strict=True))
                n.leaves += flats
                n.nbytes += nbytes
                return list(templates)
        before = n.nbytes
        found = n.templates(nodes)
        flats = n.leaves[first:]
        if [
            *dict.fromkeys([u.src[0] if u.op is Op.RESHAPE else u for u in nodes])
        ] == flats:  # memory that was not known
            new = list(map(ref, nodes)), list(map(ref, flats)), [n.known[u] for u in flats], found, n.nbytes - before
            self._rows[n.tag, first] = [new, *rows[: _TURNS - 1]]
        return list(found)
