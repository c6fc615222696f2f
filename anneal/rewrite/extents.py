"""Index expressions beside symbolic sizes: division by a size, and comparisons that hold for every value of the
variables.

An expression is a polynomial over ranges and variables. A range of extent n goes up to n - 1, so the largest value of
`i*n + j` is a polynomial too, and `(i*n + j) // n` is i because j never reaches n, whatever n is.
"""

from __future__ import annotations

from anneal.uop import Op, UOp, const, dtypes
from anneal.uop.sizes import Poly, is_symbolic, least, plus, poly, poly_node, poly_quotient, size

_BOOL = dtypes.bool_


def quotient(x: UOp, y: UOp) -> UOp | None:
    """`x // y` for a symbolic size y: what is a multiple of it leaves the quotient."""
    found = _split(x, y)
    if found is None:
        return None
    whole, rest, inside = found
    if inside:
        return poly_node(whole)
    return poly_node(whole) + poly_node(rest) // y if whole else None


def leftover(x: UOp, y: UOp) -> UOp | None:
    """`x % y` for a symbolic size y: what is a multiple of it goes."""
    found = _split(x, y)
    if found is None:
        return None
    whole, rest, inside = found
    if inside:
        return poly_node(rest)
    return poly_node(rest) % y if whole else None


def _split(x: UOp, y: UOp) -> tuple[Poly, Poly, bool] | None:
    """(q, r, whether 0 <= r < y) with x == q * y + r."""
    if y.op is Op.CONST or not is_symbolic(y) or x.dtype is not dtypes.int32 or least(y) <= 0:
        return None
    found = poly_quotient(poly(x), poly(y))
    if found is None:
        return None
    whole, rest = found
    low, high = _extreme(rest, False), _extreme(rest, True)
    inside = low is not None and high is not None and _at_least(low, 0) and _at_least(plus(poly(y), high, -1), 1)
    return whole, rest, inside


def ordered_by_sizes(x: UOp, y: UOp) -> UOp | None:
    """`x < y` where that is the same for all ranges and variables."""
    difference = plus(poly(x), poly(y), -1)
    if not any(a.op is Op.VARIABLE for m in difference for a in m):
        return None
    high = _extreme(difference, True)
    if high is not None and _at_least({m: -k for m, k in high.items()}, 1):
        return const(_BOOL, True)
    low = _extreme(difference, False)
    return const(_BOOL, False) if low is not None and _at_least(low, 0) else None


def _at_least(p: Poly, bound: int) -> bool:
    return least(size(poly_node(p))) >= bound


def _extreme(p: Poly, largest: bool) -> Poly | None:
    """The largest or smallest value of a polynomial over its ranges, as a polynomial over variables."""
    total: UOp | int = 0
    for m, k in p.items():
        sizes = [a for a in m if a.op is Op.VARIABLE or not a.ranges and is_symbolic(a)]
        others = [a for a in m if a not in sizes]
        if len(others) > 1 or any(a.vmin is None or a.vmin < 0 for a in sizes):
            return None
        term: UOp | int = k
        for a in sizes:
            term = a * term
        if others:
            bound = _bound(others[0], (k > 0) is largest)
            if bound is None:
                return None
            term = bound * term
        total = total + term
    return poly(total) if isinstance(total, UOp) else {(): total} if total else {}


def _bound(a: UOp, largest: bool) -> UOp | int | None:
    """The last or first value of an atom."""
    if a.op is Op.RANGE:
        extent = a.src[0]
        if not largest:
            return 0
        return int(extent.arg) - 1 if extent.is_const else extent - 1 if is_symbolic(extent) else None
    found = a.vmax if largest else a.vmin
    return None if found is None or abs(found) >= 1 << 30 else int(found)
