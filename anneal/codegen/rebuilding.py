"""Kernel graphs rebuilt over new sources, with the indices of memory accesses in normal form (`affine.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from anneal.codegen.affine import normalise
from anneal.rewrite import rebuild, tell
from anneal.uop import Op, UOp, dtypes, toposort

_I32 = dtypes.int32


def with_sources(u: UOp, src: tuple[UOp, ...], serial: int = 0) -> UOp:
    """`u` over `src`, with the index of a memory access and the numerator of a division in normal form.

    `serial` masks the ids of ranges that become loops.
    """
    op = u.op
    if op is Op.LOAD or op is Op.STORE:
        src = (src[0], normalise(src[1], serial), *src[2:])
        return u if src == u.src else UOp(op, u.dtype, src, u.arg, u.tag)
    if src == u.src:
        return u
    out = u.replace(src=src)
    if out.dtype is _I32 and out.op in (Op.IDIV, Op.MOD):
        out = normalise(out, serial)
    return out


class Substitution:
    """Replaces nodes in one graph after another; what these share is rewritten once, and indices are normalised.

    Only nodes whose `ranges` meet `mask` are visited: the others cannot hold what is replaced.
    """

    __slots__ = ("_mask", "_new", "_serial")

    def __init__(self, table: Mapping[UOp, UOp], mask: int, serial: int = 0) -> None:
        self._new: dict[UOp, UOp] = dict(table)
        self._mask, self._serial = mask, serial

    def __call__(self, root: UOp) -> UOp:
        new, mask, serial = self._new, self._mask, self._serial

        def untouched(u: UOp) -> bool:
            return u in new or not u.ranges & mask and u.op not in _VISITED

        for u in toposort((root,), until=untouched):
            if u not in new:
                new[u] = with_sources(u, tuple([new.get(s, s) for s in u.src]), serial)
        tell(lambda: (new,))
        return new.get(root, root)


_VISITED = frozenset((Op.SINK, Op.STORE, Op.REDUCE))  # their `ranges` do not tell what is below


def substituted(sink: UOp, table: Mapping[UOp, UOp]) -> UOp:
    """The whole graph with the nodes in `table` replaced, also below reduces; indices are normalised on the way."""
    return rebuild(sink, with_sources, dict(table))
