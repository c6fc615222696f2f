"""`simplify`: the index algebra run to its fixpoint on one integer or bool expression."""

from __future__ import annotations

from anneal.rewrite.sums import Sum, fences, linear
from anneal.rewrite.symbolic_rules import SYMBOLIC
from anneal.rewrite.walk import graph_rewrite, substitute
from anneal.uop import ALU, Known, Op, Src, UOp, dtypes

_MEMO: Known = {}
_MEMO_LIMIT = 1 << 13
_STEPS = 64  # rewrites of one node before it is left as it is


def simplify(u: UOp, given: UOp | None = None) -> UOp:
    """An equal expression in normal form; loads and other non-elementwise nodes inside are left as they stand.

    `given` is a predicate (a bool expression): outside of it the value does not matter, so its bounds are used.
    Raises nothing; an expression that has no simpler form comes back as it is.

    >>> from anneal.uop import const
    >>> i = UOp(Op.RANGE, dtypes.int32, (const(dtypes.int32, 12),), (0, "loop"))
    >>> j = UOp(Op.RANGE, dtypes.int32, (const(dtypes.int32, 64),), (1, "loop"))
    >>> simplify((i * 64 + j) // 32) is i * 2 + j // 32
    True
    >>> simplify((j // 8) * 8 + j % 8) is j
    True
    """
    if given is not None:
        return _under(u, given)
    found = _MEMO.get(u)
    if found is not None:
        return found
    if len(_MEMO) > _MEMO_LIMIT:
        _MEMO.clear()
    return graph_rewrite(u, SYMBOLIC, _MEMO, parts=_parts, remake=_remade, steps=_STEPS)


def forget() -> None:
    """Forget what expressions became, so that their rules fire again: for a trace that is to be whole."""
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


def _under(u: UOp, predicate: UOp) -> UOp:
    """Simplify where `predicate` holds: values it fences get names with those bounds, and their own nodes back
    afterwards.
    """
    u = simplify(u)
    named = {
        x: UOp(Op.VARIABLE, dtypes.int32, (), (f"given{i}", lo, hi))
        for i, (x, (lo, hi)) in enumerate(fences(simplify(predicate)).items())
        if x.dtype is dtypes.int32 and not linear(x) and lo < hi
    }
    if not named:
        return u
    inside = substitute(u, named)
    return u if inside is u else simplify(substitute(simplify(inside), {v: k for k, v in named.items()}))
