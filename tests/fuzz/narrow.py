"""Operations of the program fuzzer on dtypes of 8 and 16 bits.

Integers wrap, and a float made of short fractions is rounded after every op, so each value is the same on every device
to the bit. No gradient passes: what it would be rounded from differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.fuzz.generate import MAX_SIZE, Builder, Var, _broadcast

# letter -> (dtype, the largest value that the generator lets a float reach; of integers their range)
FLOATS = {"g": ("bfloat16", 1e5), "d": ("float8_e4m3fn", 200.0), "e": ("float8_e5m2", 2e4)}
INTEGERS = {"c": ("int8", 2.0**7), "n": ("uint8", 2.0**8), "s": ("int16", 2.0**15), "t": ("uint16", 2.0**16)}
KINDS = {**FLOATS, **INTEGERS}
F, I = "".join(FLOATS), "".join(INTEGERS)


def _put(b: Builder, expression: str, shape: tuple[int, ...], kind: str, top: float, bits: int) -> None:
    """Add a line, unless a float might overflow, or float32 itself would round it."""
    if kind in FLOATS:
        top *= 1.125  # rounded up
        if top > FLOATS[kind][1] or top * 2.0**bits > 2**22:
            return
    b.emit(expression, shape, kind, min(top, KINDS[kind][1]), bits)


def leaf(b: Builder, shape: tuple[int, ...], kind: str) -> Var:
    base = b.leaf(shape, "f" if kind in FLOATS else "i")
    top = base.top if kind in FLOATS else KINDS[kind][1]
    return b.emit(f"{base.name}.cast({KINDS[kind][0]!r})", shape, kind, top, base.bits)


def to_narrow(b: Builder) -> None:
    v = b.need("fi" + F + I, lambda v: v.sharp, scalar=True)
    kind = b.random.choice([k for k in KINDS if k != v.kind])
    if v.kind == "f" and (not v.exact or v.top >= 2**22):
        return
    if kind in FLOATS and v.top * 2.0**v.bits > 2**22:
        return
    name = f"{v.name}.detach()" if b.want_grad else v.name
    after = b.random.choice(("", "", ".contiguous()"))
    top = v.top if kind in FLOATS else KINDS[kind][1]
    _put(b, f"{name}.cast({KINDS[kind][0]!r}){after}", v.shape, kind, top, v.bits if kind in FLOATS else 0)


def from_narrow(b: Builder) -> None:
    v = b.need(F + I, scalar=True)
    to = b.random.choice("fib")
    dtype = {"f": "float32", "i": "int32", "b": "bool"}[to]
    b.emit(f"{v.name}.cast({dtype!r})", v.shape, to, v.top, v.bits if to == "f" else 0)


def unary(b: Builder) -> None:
    v = b.need(F + I, scalar=True)
    r, n = b.random, v.name
    if v.kind in FLOATS:
        choices = [(f"-{n}", v.top, v.bits), (f"{n}.abs()", v.top, v.bits), (f"{n}.relu()", v.top, v.bits)]
        choices += [(f"{n} * 0.5", v.top, v.bits + 1), (f"{n} + 1.5", v.top + 1.5, max(1, v.bits))]
        choices += [(f"{n} * 3", v.top * 3, v.bits), (f"{n}.clip(-1.5, 2.0)", 2.0, max(1, v.bits))]
        choices += [(f"{n}.floor()", v.top + 1, 0), (f"{n}.sign()", 1, 0), (f"{n}.square()", v.top**2, 2 * v.bits)]
        choices += [(f"{n} * 5 - {n}", v.top * 6, v.bits)]
        expression, top, bits = r.choice(choices)
        _put(b, expression, v.shape, v.kind, top, bits)
        return
    c = r.choice((1, 2, 3, 5, 7, 8, 16))
    choices2 = [f"{n} % {c}", f"{n} // {c}", f"{n} * {c}", f"{n} + {c}", f"{n} & {c * 3}", f"{n} ^ {c}", f"~{n}"]
    choices2 += [f"{n} << {r.randint(0, 7)}", f"{n} >> {r.randint(0, 7)}", f"{n}.clip(2, 9)", f"{n} * {n} + {c}"]
    choices2 += [f"-{n}", f"{n}.abs()", f"({n} + {c}) // {c + 1} * {c}", f"{c} - {n}", f"({n} * 7 + {c}) % 11"]
    _put(b, r.choice(choices2), v.shape, v.kind, KINDS[v.kind][1], 0)


def binary(b: Builder) -> None:
    a = b.need(F + I, scalar=True)
    c = b.partner(a, a.kind)
    shape = _broadcast(a.shape, c.shape)
    if shape is None:
        return
    x, y, r = a.name, c.name, b.random
    if r.random() < 0.15:
        b.emit(f"{x} {r.choice(('<', '<=', '==', '!='))} {y}", shape, "b")
        return
    bits = max(a.bits, c.bits)
    choices = [(f"{x} + {y}", a.top + c.top, bits), (f"{x} - {y}", a.top + c.top, bits)]
    choices += [
        (f"{x} * {y}", a.top * c.top, a.bits + c.bits),
        (f"{x} * {y} + {x}", a.top * (c.top + 1), a.bits + c.bits),
    ]
    choices += [(f"{x}.{f}({y})", max(a.top, c.top), bits) for f in ("maximum", "minimum")]
    if a.kind in INTEGERS:
        signs = [f"{x} {o} {y}" for o in ("&", "|", "^")] + [f"{x} >> ({y} & 7)", f"{x} << ({y} & 7)"]
        choices += [(e, 0.0, 0) for e in (*signs, f"{x} // ({y} | 1)", f"{x} % ({y} | 1)")]
    expression, top, bits = r.choice(choices)
    _put(b, expression, shape, a.kind, top if a.kind in FLOATS else KINDS[a.kind][1], bits)


def promoted(b: Builder) -> None:
    """Two dtypes meet: another narrow one, float32, or bool."""
    a = b.need(F, scalar=True)
    c = b.partner(a, b.random.choice([k for k in (*FLOATS, "b") if k != a.kind]))
    shape = _broadcast(a.shape, c.shape)
    top, bits = a.top * c.top, a.bits + c.bits
    if shape is None:
        return
    if c.kind == "b":
        _put(b, f"{a.name} * {c.name}", shape, a.kind, a.top, a.bits)
    elif {a.kind, c.kind} == {"d", "e"}:  # of one width: float32
        b.emit(f"{a.name} * {c.name}", shape, "f", top, bits)
    else:
        _put(b, f"{a.name} * {c.name}", shape, "g", top, bits)


def reduce(b: Builder) -> None:
    v = b.need(F + I)
    axes = b.axes(v)
    keep = b.random.random() < 0.4
    n = math.prod(v.shape[i] for i in axes)
    shape = tuple((1 if i in axes else s) for i, s in enumerate(v.shape) if keep or i not in axes)
    how = f"(axis={axes if len(axes) > 1 else axes[0]}, keepdim={keep})"
    f = b.random.choice(("sum", "sum", "max", "min"))
    if f != "sum":
        b.emit(f"{v.name}.{f}{how}", shape, v.kind, v.top, v.bits)
    elif v.kind in FLOATS:
        _put(b, f"{v.name}.sum{how}", shape, v.kind, v.top * n, v.bits)
    elif b.random.random() < 0.5:
        b.emit(f"{v.name}.sum{how}", shape, "i", v.top * n)
    else:
        b.emit(f"{v.name}.sum{how[:-1]}, dtype={KINDS[v.kind][0]!r})", shape, v.kind, KINDS[v.kind][1])


def matmul(b: Builder) -> None:
    a = b.need(F + I)
    k = a.shape[-1]
    other = leaf(b, (k, b.random.choice((1, 2, 3, 4, 8))), a.kind)
    out = (*a.shape[:-1], other.shape[-1])
    if math.prod(out) <= MAX_SIZE:
        top = a.top * other.top * k if a.kind in FLOATS else KINDS[a.kind][1]
        _put(b, f"{a.name} @ {other.name}", out, a.kind, top, a.bits + other.bits)


TABLE: dict[Callable[[Builder], None], float] = {
    to_narrow: 40,
    from_narrow: 10,
    unary: 30,
    binary: 35,
    promoted: 8,
    reduce: 20,
    matmul: 10,
}
