"""Integer index expressions as affine forms.

An affine form is `sum(coefficient * atom) + constant` over int32 atoms. Rebuilding an index from its form puts the
terms that change least often first and the constant last, so that the linear program can lift the former out of loops
and share the sum between registers that differ in the constant alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from anneal.uop import Op, UOp, const, dtypes

_I32 = dtypes.int32
_LINEAR = frozenset((Op.ADD, Op.SUB, Op.NEG, Op.MUL))
_INT_MIN, _INT_MAX = _I32.min, _I32.max

Form = tuple[dict[UOp, int], int]


def is_linear(u: UOp) -> bool:
    """True if `u` is an int32 node that an affine form looks through."""
    if u.dtype is not _I32 or u.op not in _LINEAR:
        return False
    return u.op is not Op.MUL or u.src[1].op is Op.CONST or u.src[0].op is Op.CONST


def form(u: UOp) -> Form:
    """The terms and the constant of `u`.

    >>> i = UOp(Op.RANGE, dtypes.int32, (const(dtypes.int32, 8),), (0, "loop"))
    >>> terms, c = form((i * 4 + 3) * 2)
    >>> terms[i], c
    (8, 6)
    """
    terms: dict[UOp, int] = {}
    constant = 0
    stack: list[tuple[UOp, int]] = [(u, 1)]
    while stack:
        n, k = stack.pop()
        op = n.op
        if op is Op.CONST:
            constant += k * int(n.arg)
        elif op not in _LINEAR or n.dtype is not _I32:
            terms[n] = terms.get(n, 0) + k
        elif op is Op.ADD:
            stack.append((n.src[1], k))
            stack.append((n.src[0], k))
        elif op is Op.SUB:
            stack.append((n.src[1], -k))
            stack.append((n.src[0], k))
        elif op is Op.NEG:
            stack.append((n.src[0], -k))
        elif n.src[1].op is Op.CONST:
            stack.append((n.src[0], k * int(n.src[1].arg)))
        elif n.src[0].op is Op.CONST:
            stack.append((n.src[1], k * int(n.src[0].arg)))
        else:
            terms[n] = terms.get(n, 0) + k
    terms = {t: k for t, k in terms.items() if k}
    if any(t.op is Op.MOD for t in terms):
        terms, extra = _join_quotients(terms)
        constant += extra
    return terms, constant


def _join_quotients(terms: dict[UOp, int]) -> Form:
    """`(x // c) * c*k + (x % c) * k` is `x * k`; likewise with x = y // s, whose quotient reads `y // (s*c)`."""
    work = [t for t in terms if t.op is Op.MOD and t.src[1].op is Op.CONST]
    while work:
        rest = work.pop()
        k = terms.get(rest)
        if k is None:
            continue
        x, c = rest.src[0], int(rest.src[1].arg)
        for t in terms:
            if t.op is not Op.IDIV or t.src[1].op is not Op.CONST or terms[t] != k * c:
                continue
            y, d = t.src[0], int(t.src[1].arg)
            if not (
                y is x
                and d == c
                or x.op is Op.IDIV
                and x.src[0] is y
                and x.src[1].op is Op.CONST
                and d == int(x.src[1].arg) * c
            ):
                continue
            del terms[t], terms[rest]
            terms[x] = terms.get(x, 0) + k
            if x.op is Op.MOD or is_linear(x):
                # The joined value may itself be a sum or a remainder.
                return form(_rebuild(terms.items(), 0))
            work += [t for t in terms if t.op is Op.MOD and t.src[1].op is Op.CONST]
            break
    return terms, 0


def _rebuild(terms: Iterable[tuple[UOp, int]], constant: int) -> UOp:
    out: UOp | None = None
    for t, k in terms:
        piece = t if k == 1 else t * k
        out = piece if out is None else out + piece
    if out is None:
        return const(_I32, constant)
    return out + constant if constant else out


def unform(terms: Mapping[UOp, int], constant: int) -> UOp:
    """The expression of an affine form."""
    return _rebuild(terms.items(), constant)


def _bounded(u: UOp) -> bool:
    # Interval arithmetic falls back to the dtype's whole range when a value might wrap.
    return u.vmin is not None and u.vmax is not None and u.vmin > _INT_MIN and u.vmax < _INT_MAX


def _serial_last(serial: int) -> Callable[[tuple[UOp, int]], tuple[int, int]]:
    def key(term: tuple[UOp, int]) -> tuple[int, int]:
        return (term[0].ranges & serial).bit_length(), -abs(term[1])

    return key


def normalise(u: UOp, serial: int = 0) -> UOp:
    """`u` rebuilt from its affine form; divisions and remainders by constants lose what divides evenly.

    `serial` masks the ids of ranges that become loops: terms that depend on them come last.
    """
    if u.dtype is not _I32 or u.op is Op.CONST:
        return u
    if u.op in (Op.IDIV, Op.MOD) and u.src[1].op is Op.CONST and int(u.src[1].arg) > 0 and _bounded(u.src[0]):
        c = int(u.src[1].arg)
        terms, constant = form(u.src[0])
        whole = {t: k // c for t, k in terms.items() if k % c == 0}
        rest = {t: k for t, k in terms.items() if k % c}
        key = _serial_last(serial)
        left = _rebuild(sorted(rest.items(), key=key), constant % c)
        if u.op is Op.MOD:
            return left % c if _bounded(left) else u
        inner = left // c
        if inner.op is not Op.CONST:
            whole[inner] = 1
        outer = _rebuild(sorted(whole.items(), key=key), constant // c)
        return outer if _bounded(left) and _bounded(outer) else u
    if not is_linear(u):
        return u
    terms, constant = form(u)
    return _rebuild(sorted(terms.items(), key=_serial_last(serial)), constant)
