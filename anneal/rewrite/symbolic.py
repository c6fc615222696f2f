"""`simplify`: the index algebra run to its fixpoint on one integer or bool expression."""

from __future__ import annotations

from anneal.rewrite.sums import Sum, linear
from anneal.rewrite.symbolic_rules import SYMBOLIC
from anneal.rewrite.walk import graph_rewrite
from anneal.uop import ALU, Known, Src, UOp

_MEMO: Known = {}
_MEMO_LIMIT = 1 << 13
_STEPS = 64  # rewrites of one node before it is left as it is


def simplify(u: UOp) -> UOp:
    """An equal expression in normal form; loads and other non-elementwise nodes inside are left as they stand.

    Raises nothing; an expression that has no simpler form comes back as it is.

    >>> from anneal.uop import Op, const, dtypes
    >>> i = UOp(Op.RANGE, dtypes.int32, (const(dtypes.int32, 12),), (0, "loop"))
    >>> j = UOp(Op.RANGE, dtypes.int32, (const(dtypes.int32, 64),), (1, "loop"))
    >>> simplify((i * 64 + j) // 32) is i * 2 + j // 32
    True
    >>> simplify((j // 8) * 8 + j % 8) is j
    True
    """
    found = _MEMO.get(u)
    if found is not None:
        return found
    if len(_MEMO) > _MEMO_LIMIT:
        _MEMO.clear()
    return graph_rewrite(u, SYMBOLIC, _MEMO, parts=_parts, remake=_remade, steps=_STEPS)


def forget() -> None:
    """Forget the results of `simplify`, so that its rules fire again: a trace is then complete."""
    _MEMO.clear()


def _parts(u: UOp) -> Src | None:
    """The nodes to simplify before `u`: its sources, or for a sum its terms (so that long sums stay linear)."""
    if u.op not in ALU or u.dtype.is_float or u.shape:
        return None
    return tuple(Sum.of(u).terms) if linear(u) else u.src


def _remade(u: UOp, done: Known) -> UOp:
    if not linear(u):
        return u.replace(src=tuple([done[s] for s in u.src]))
    s = Sum.of(u)
    if all(done[t] is t for t in s.terms):
        return u
    return Sum.combine(s.dtype, [(done[t], k) for t, k in s.terms.items()], s.constant).node()
