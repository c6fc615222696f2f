"""Random index expressions keep their value through creation rules, bounds and `simplify`.

`python -m tests.rewrite.fuzz_index --count 100000 [--seed N]` prints the first expressions that do not; exit code 1.
The oracle is plain Python integers wrapped to 32 bits, evaluated on nodes that no rule has seen.
"""

from __future__ import annotations

import argparse
import operator
import random
import sys
import time
from collections.abc import Callable

from anneal.rewrite import simplify
from anneal.uop import DType, Op, UOp, const, dtypes, render, toposort

I32, U32, BOOL = dtypes.int32, dtypes.uint32, dtypes.bool_
MIN, MAX = I32.min, I32.max
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 28, 32, 60, 64, 65, 100, 128, 768, 1024)
CONSTANTS = (*range(-9, 10), 12, 16, 24, 32, 60, 63, 64, 65, 100, 127, 128, -16, -64, 768, 1024, 65536, 1 << 30)
Values = list[int]


def wrapped(dtype: DType, values: Values) -> Values:
    """The values as 32 bits store them."""
    if dtype is I32:
        return [((v + 0x80000000) & 0xFFFFFFFF) - 0x80000000 for v in values]
    return [v & 0xFFFFFFFF for v in values] if dtype is U32 else values


EVALUATE: dict[Op, Callable[..., int]] = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.IDIV: lambda a, b: a // b,
    Op.MOD: lambda a, b: a % b,
    Op.MAX: max,
    Op.MIN: min,
    Op.SHL: lambda a, b: a << b,
    Op.SHR: lambda a, b: a >> b,
    Op.NEG: operator.neg,
    Op.ABS: abs,
    Op.SIGN: lambda a: (a > 0) - (a < 0),
    Op.LT: lambda a, b: a < b,
    Op.EQ: lambda a, b: a == b,
    Op.NE: lambda a, b: a != b,
    Op.AND: lambda a, b: a & b,
    Op.OR: lambda a, b: a | b,
    Op.XOR: lambda a, b: a ^ b,
    Op.WHERE: lambda p, a, b: a if p else b,
    Op.CAST: int,
}


def leaf(rng: random.Random, leaves: list[UOp]) -> UOp:
    if len(leaves) < 2 or (len(leaves) < 5 and rng.random() < 0.4):
        n = len(leaves)
        kind = rng.random()
        if kind < 0.75:
            size = rng.choice(SIZES)
            new = UOp(Op.RANGE, I32, (const(I32, size),), (n, "loop"))
        else:
            lo, hi = sorted((rng.choice(CONSTANTS), rng.choice(CONSTANTS)))
            if kind > 0.95:
                lo, hi = MIN, MAX
            new = UOp(Op.VARIABLE, I32, (), (f"v{n}", lo, hi))
        leaves.append(new)
        return new
    return rng.choice(leaves)


def integer(rng: random.Random, depth: int, leaves: list[UOp]) -> UOp:
    """A random int32 expression of raw nodes."""
    if depth <= 0 or rng.random() < 0.08:
        return leaf(rng, leaves) if rng.random() < 0.85 else const(I32, rng.choice(CONSTANTS))
    kind = rng.random()
    a = integer(rng, depth - 1, leaves)
    if kind < 0.30:
        return UOp(rng.choice((Op.ADD, Op.ADD, Op.ADD, Op.SUB)), I32, sides(rng, a, integer(rng, depth - 1, leaves)))
    if kind < 0.45:
        return UOp(Op.MUL, I32, sides(rng, a, const(I32, rng.choice(CONSTANTS))))
    if kind < 0.70:
        c = rng.choice([c for c in CONSTANTS if c > 0] if rng.random() < 0.93 else [-1, -2, -3, -8])
        divisor = const(I32, c)
        if rng.random() < 0.04:
            divisor = UOp(Op.ADD, I32, (UOp(Op.RANGE, I32, (const(I32, 7),), (9, "loop")), const(I32, 1)))
            if divisor.src[0] not in leaves:
                leaves.append(divisor.src[0])
        return UOp(rng.choice((Op.IDIV, Op.MOD)), I32, (a, divisor))
    if kind < 0.76:
        return UOp(rng.choice((Op.MAX, Op.MIN)), I32, sides(rng, a, integer(rng, depth - 2, leaves)))
    if kind < 0.80:
        return UOp(rng.choice((Op.SHL, Op.SHR)), I32, (a, const(I32, rng.randrange(9))))
    if kind < 0.84:
        return UOp(
            rng.choice((Op.AND, Op.OR, Op.XOR)), I32, sides(rng, a, const(I32, rng.choice((0, -1, 1, 7, 8, 63))))
        )
    if kind < 0.88:
        return UOp(rng.choice((Op.NEG, Op.NEG, Op.ABS, Op.SIGN)), I32, (a,))
    if kind < 0.91:
        return UOp(Op.CAST, I32, (boolean(rng, depth - 1, leaves),))
    if kind < 0.96:
        return UOp(Op.WHERE, I32, (boolean(rng, depth - 1, leaves), a, integer(rng, depth - 1, leaves)))
    # quotient and remainder of one value, which should meet again, and near misses
    c = const(I32, rng.choice([c for c in CONSTANTS if c > 1]))
    k = const(I32, c.arg if rng.random() < 0.7 else rng.choice(CONSTANTS))
    q, r = UOp(Op.IDIV, I32, (a, c)), UOp(Op.MOD, I32, (a, c))
    if rng.random() < 0.4:
        q = UOp(Op.MOD, I32, (q, const(I32, rng.choice((2, 3, 4, 8, 60)))))
    return UOp(Op.ADD, I32, sides(rng, UOp(Op.MUL, I32, (q, k)), r))


def digits(rng: random.Random, leaves: list[UOp]) -> tuple[UOp, list[int]]:
    """A position `i*(b*c) + j*c + k + offset` over ranges that fit their digits or just do not, and its strides."""
    total: UOp | None = None
    stride = 1
    strides = [1]
    for _ in range(rng.randrange(2, 4)):
        size = rng.choice((2, 3, 4, 5, 8, 12, 64))
        extent = max(1, size + rng.choice((0, 0, 0, 0, 1, 1, -1, 2)))
        x = UOp(Op.RANGE, I32, (const(I32, extent),), (len(leaves), "loop"))
        leaves.append(x)
        term = UOp(Op.MUL, I32, sides(rng, x, const(I32, stride if rng.random() < 0.9 else -stride)))
        total = term if total is None else UOp(Op.ADD, I32, sides(rng, total, term))
        stride *= size
        strides.append(stride)
    assert total is not None
    if rng.random() < 0.5:
        offset = rng.choice((-1, 1, 2, 3, -2, strides[1], strides[1] - 1, -strides[-1], strides[-1] - 1))
        total = UOp(Op.ADD, I32, sides(rng, total, const(I32, offset)))
    return total, strides


def structured(rng: random.Random, leaves: list[UOp]) -> UOp:
    """What a scheduler writes: positions in one shape taken apart by another, and gates on them."""
    a, strides = digits(rng, leaves)
    c = rng.choice(strides[1:]) + rng.choice((0, 0, 0, 0, 1, -1))
    if rng.random() < 0.3:
        bound = rng.choice(strides) * rng.randrange(1, 9) + rng.choice((0, 0, 1, -1, 2))
        return UOp(Op.LT, BOOL, sides(rng, a, const(I32, bound)))
    out = UOp(rng.choice((Op.IDIV, Op.MOD)), I32, (a, const(I32, max(1, c))))
    if rng.random() < 0.5:
        again = const(I32, max(1, rng.choice(strides) + rng.choice((0, 0, 0, 1, -1))))
        out = UOp(rng.choice((Op.IDIV, Op.MOD)), I32, (out, again))
    if rng.random() < 0.3:
        out = UOp(Op.ADD, I32, sides(rng, out, UOp(Op.MUL, I32, (integer(rng, 1, leaves), const(I32, c)))))
    if rng.random() < 0.3:
        return UOp(rng.choice((Op.LT, Op.EQ)), BOOL, sides(rng, out, const(I32, rng.randrange(-2, 70))))
    return out


def boolean(rng: random.Random, depth: int, leaves: list[UOp]) -> UOp:
    """A random bool expression of raw nodes."""
    kind = rng.random()
    if depth <= 0 or kind < 0.55:
        a = integer(rng, depth - 1, leaves)
        b = const(I32, rng.choice(CONSTANTS)) if rng.random() < 0.7 else integer(rng, depth - 1, leaves)
        return UOp(rng.choice((Op.LT, Op.LT, Op.LT, Op.EQ, Op.NE)), BOOL, sides(rng, a, b))
    if kind < 0.65:
        return UOp(Op.NOT, BOOL, (boolean(rng, depth - 1, leaves),))
    a, b = boolean(rng, depth - 1, leaves), boolean(rng, depth - 1, leaves)
    if kind < 0.95:
        return UOp(rng.choice((Op.AND, Op.AND, Op.OR, Op.XOR)), BOOL, (a, b))
    return UOp(Op.WHERE, BOOL, (boolean(rng, depth - 2, leaves), a, b))


def sides(rng: random.Random, a: UOp, b: UOp) -> tuple[UOp, UOp]:
    return (a, b) if rng.random() < 0.6 else (b, a)


def points(rng: random.Random, leaves: list[UOp], count: int = 24) -> dict[UOp, Values]:
    """Values for every leaf: the corners of its bounds, near them, zero, and random ones."""
    out: dict[UOp, Values] = {}
    for x in leaves:
        lo, hi = int(x.vmin or 0), int(x.vmax or 0)
        special = [v for v in (lo, hi, lo + 1, hi - 1, 0, 1, -1) if lo <= v <= hi]
        out[x] = [rng.choice(special) if rng.random() < 0.5 else rng.randint(lo, hi) for _ in range(count)]
    return out


def evaluate(root: UOp, at: dict[UOp, Values], memo: dict[UOp, Values]) -> Values:
    """The value of `root` at every point; checks the bounds of every node on the way."""
    count = len(next(iter(at.values()))) if at else 1
    for u in toposort((root,), until=memo.__contains__):
        if u.op is Op.CONST:
            values = [u.arg] * count
        elif u in at:
            values = at[u]
        elif u.op is Op.NOT:
            values = (
                [not v for v in memo[u.src[0]]] if u.dtype is BOOL else wrapped(u.dtype, [~v for v in memo[u.src[0]]])
            )
        else:
            values = wrapped(u.dtype, list(map(EVALUATE[u.op], *(memo[s] for s in u.src))))
            lo, hi = u.vmin, u.vmax
            assert lo is not None
            assert hi is not None
            for v in values:
                if not lo <= v <= hi:
                    raise AssertionError(f"{v} is outside the bounds {lo}..{hi} of\n{render(u)}")
        memo[u] = values
    return memo[root]


def unsigned(root: UOp, leaves: list[UOp]) -> UOp:
    """The same expression over uint32: constants wrap, leaves that could be negative start at zero."""
    new: dict[UOp, UOp] = {}
    for u in toposort((root,)):
        if u.dtype is BOOL:
            new[u] = UOp(u.op, BOOL, tuple(new[s] for s in u.src), u.arg)
        elif u.op is Op.CONST:
            new[u] = const(U32, u.arg)
        elif u.op in (Op.RANGE, Op.VARIABLE):
            hi = max(0, int(u.vmax or 0))
            lo = min(hi, max(0, int(u.vmin or 0)))
            new[u] = UOp(Op.VARIABLE, U32, (), (f"u{leaves.index(u)}", lo, hi if hi < MAX else 2 * MAX + 1))
        else:
            new[u] = UOp(u.op, U32, tuple(new[s] for s in u.src), u.arg)
    leaves[:] = [new[x] for x in leaves if x in new]
    return new[root]


def fold(root: UOp) -> UOp:
    """The expression built again through the creation rules."""
    new: dict[UOp, UOp] = {}
    for u in toposort((root,)):
        new[u] = _fold(u, new)
    return new[root]


def _fold(u: UOp, new: dict[UOp, UOp]) -> UOp:
    from anneal.uop import ALU, alu

    src = tuple(new[s] for s in u.src)
    if u.op is Op.CAST:
        return src[0].cast(u.dtype)
    return alu(u.op, src) if u.op in ALU else u


def check(seed: int) -> None:
    """One random expression; raises AssertionError with the expression if a value changes."""
    rng = random.Random(seed)
    leaves: list[UOp] = []
    kind = rng.random()
    if kind < 0.35:
        root = structured(rng, leaves)
    else:
        root = (integer if kind < 0.8 else boolean)(rng, rng.randrange(2, 6), leaves)
    if rng.random() < 0.15:
        root = unsigned(root, leaves)
    at = points(rng, leaves)
    memo: dict[UOp, Values] = {}
    wanted = evaluate(root, at, memo)
    folded = fold(root)
    simple = simplify(folded)
    for name, got in (("creation", folded), ("simplify", simple), ("simplify of raw", simplify(root))):
        values = evaluate(got, at, memo)
        if values != wanted:
            i = next(i for i, (a, b) in enumerate(zip(values, wanted, strict=True)) if a != b)
            where = {x.arg[0]: v[i] for x, v in at.items()}
            raise AssertionError(
                f"{name}: {wanted[i]} became {values[i]} at {where}\n{render(root)}\n-- became\n{render(got)}"
            )


def failures(count: int, seed: int = 0, stop: int = 5) -> list[tuple[int, str]]:
    """(seed, message) of the first `stop` expressions out of `count` that are not kept."""
    out: list[tuple[int, str]] = []
    for i in range(count):
        try:
            check(seed * 10_000_019 + i)
        except AssertionError as e:
            out.append((seed * 10_000_019 + i, str(e)))
            if len(out) >= stop:
                break
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    start = time.perf_counter()
    bad = failures(args.count, args.seed)
    for seed, message in bad:
        print(f"seed {seed}: {message}\n", file=sys.stderr)
    print(f"{args.count} expressions, {len(bad)} changed, {time.perf_counter() - start:.1f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
