"""Random tensor programs: lines of Python over the public Tensor API, made from a seed.

A program is data: leaves with their values and lines of source, so that a failing one can be printed, cut down and
pasted into a test. The generator keeps, for every variable, what it must know to stay where all devices agree:

- `exact`: a float whose value is a short dyadic fraction in every intermediate (so comparing, rounding or casting it
  means the same in any order of summation); `bits` bounds its fraction, `top` its magnitude;
- magnitudes are kept small enough that neither exp nor a product overflows, divisors stay away from zero.

Integers may wrap: that is part of what is compared. The programs of negative seeds also have dtypes of 8 and 16 bits
(narrow.py).
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_SIZE = 480
Shape = tuple[int, ...]
_NAME = re.compile(r"\bv\d+\b")


@dataclass(frozen=True)
class Var:
    """What the generator knows of one variable. `kind` is f, i (int32), u (uint32), b, or a letter of narrow.py."""

    name: str
    shape: Shape
    kind: str
    top: float = 1.0
    bits: int = 0
    exact: bool = True
    grad: bool = False

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def sharp(self) -> bool:
        """Whether comparing or rounding it gives the same answer on every device."""
        return self.kind != "f" or self.exact


@dataclass
class Program:
    """`leaves` are (name, dtype, shape, values); `lines` define more names; `outputs` are compared."""

    seed: int
    leaves: list[tuple[str, str, Shape, list[float]]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def source(self) -> str:
        """The program as Python that defines every name, given Tensor, F (functional), np."""
        made = [
            f"{n} = Tensor(np.array({v!r}, np.{d}).reshape({s}){', requires_grad=True' if n in self.wants_grad else ''})"
            for n, d, s, v in self.leaves
        ]
        return "\n".join([*made, *self.lines])

    @property
    def backward(self) -> str:
        """The line that computes gradients, or nothing."""
        return next((line for line in self.lines if line.endswith(".backward()")), "")

    @property
    def wants_grad(self) -> set[str]:
        return {line.split("=")[1].split(".")[0].strip() for line in self.lines if line.endswith(".grad")}

    def script(self, device: str) -> str:
        """A program of its own that shows the difference on `device`."""
        return "\n".join(
            [
                f"# program {self.seed}",
                "import numpy as np",
                "from tests.reference import evaluate",
                "from anneal.tensor import Tensor, functional as F, realize, set_default_device",
                "",
                f"set_default_device({device!r})",
                self.source(),
                f"outputs = [{', '.join(self.outputs)}]",
                "expected = evaluate([t.uop for t in outputs])",
                "realize(outputs)",
                "for name, t, e in zip(" + repr(self.outputs) + ", outputs, expected):",
                "    print(name, np.array_equal(t.numpy(), e), t.numpy(), e, sep='\\n')",
            ]
        )


class Builder:
    """Grows one program. Each operation reads `self.vars` and adds one variable, or gives up and adds none."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.program = Program(seed)
        self.vars: list[Var] = []
        self.used: set[str] = set()
        self.count = 0
        self.want_grad = self.random.random() < 0.25
        self.any = "fiub"  # the kinds that movement takes
        self.operations = _TABLE

    # -- making variables ---------------------------------------------------------------------------------------
    def name(self) -> str:
        self.count += 1
        return f"v{self.count - 1}"

    def emit(
        self, expression: str, shape: Shape, kind: str, top: float = 1.0, bits: int = 0, exact: bool = True
    ) -> Var:
        """Add a line; an inexact or overlong float is marked so."""
        v = Var(self.name(), tuple(shape), kind, top, bits, exact and top * 2.0**bits < 2**23)
        self.program.lines.append(f"{v.name} = {expression}")
        self.used.update(_NAME.findall(expression))
        self.vars.append(v)
        return v

    def leaf(self, shape: Shape, kind: str) -> Var:
        if kind not in "fiub":
            from tests.fuzz import narrow

            return narrow.leaf(self, shape, kind)
        r = self.random
        size = math.prod(shape)
        values: list[float]
        if kind == "f":
            values = [r.randint(-16, 16) / 4 for _ in range(size)]
            v = Var(self.name(), shape, kind, 4.0, 2)
        elif kind == "i":
            values = [r.randint(-20, 20) for _ in range(size)]
            v = Var(self.name(), shape, kind, 20)
        elif kind == "u":
            values = [r.randint(0, 40) for _ in range(size)]
            v = Var(self.name(), shape, kind, 40)
        else:
            values = [r.random() < 0.5 for _ in range(size)]
            v = Var(self.name(), shape, kind)
        dtype = {"f": "float32", "i": "int32", "u": "uint32", "b": "bool_"}[kind]
        self.program.leaves.append((v.name, dtype, shape, values))
        self.vars.append(v)
        return v

    def shape(self, ndim: int | None = None) -> Shape:
        r = self.random
        ndim = r.choice((1, 2, 2, 2, 3, 3, 4)) if ndim is None else ndim
        while True:
            s = tuple(
                r.choice((1, 2, 3, 4, 5, 7, 8) if ndim > 2 else (1, 2, 3, 4, 5, 6, 8, 9, 16, 17)) for _ in range(ndim)
            )
            if math.prod(s) <= MAX_SIZE // 2:
                return s

    def pick(self, kinds: str = "fiub", ok: Callable[[Var], bool] = lambda _: True) -> Var | None:
        """A variable: more often than not one that nothing has read yet, so that programs grow deep."""
        found = [v for v in self.vars if v.kind in kinds and ok(v)]
        if not found:
            return None
        fresh = [v for v in found if v.name not in self.used]
        return self.random.choice(fresh if fresh and self.random.random() < 0.6 else found)

    def need(self, kinds: str, ok: Callable[[Var], bool] = lambda _: True, scalar: bool = False) -> Var:
        """A variable (of shape () only if `scalar`), made if there is none."""
        found = self.pick(kinds, lambda v: (scalar or v.shape != ()) and ok(v))
        return found if found is not None else self.leaf(self.shape(), self.random.choice(kinds))

    def partner(self, a: Var, kinds: str) -> Var:
        """A variable that broadcasts with `a`."""
        fits = self.pick(kinds, lambda v: _broadcast(a.shape, v.shape) is not None)
        if fits is not None and self.random.random() < 0.75:
            return fits
        shape = list(a.shape)
        for i in range(len(shape)):
            if self.random.random() < 0.3:
                shape[i] = 1
        drop = self.random.randrange(len(shape) + 1) if self.random.random() < 0.3 else 0
        return self.leaf(tuple(shape[drop:]) or (1,), self.random.choice(kinds))

    def axes(self, v: Var) -> tuple[int, ...]:
        r = self.random
        n = r.randint(1, len(v.shape))
        return tuple(sorted(r.sample(range(len(v.shape)), n)))

    # -- the whole program --------------------------------------------------------------------------------------
    def build(self, length: int) -> Program:
        for _ in range(self.random.randint(1, 3)):
            self.leaf(self.shape(), self.random.choice("fffiiub" if not self.want_grad else "f"))
        tries = 0
        operations, weights = list(self.operations), list(self.operations.values())
        while len(self.program.lines) < length and tries < 10 * length:
            tries += 1
            self.random.choices(operations, weights)[0](self)
        p = self.program
        inputs = {n for n, *_ in p.leaves}
        made = [v.name for v in self.vars if v.name not in inputs]
        ends = [n for n in made if n not in self.used]
        extra = self.random.sample(made, min(len(made), self.random.randint(0, 2)))
        p.outputs = sorted({*p.outputs, *ends, *extra}, key=lambda n: int(n[1:]))
        if self.want_grad:
            self.gradients()
        return p

    def gradients(self) -> None:
        """A loss over the float outputs, and the gradients of some float leaves as further outputs."""
        p = self.program
        by_name = {v.name: v for v in self.vars}
        leaves = [n for n, d, _, _ in p.leaves if d == "float32"]
        reach = _descendants(p.lines, leaves, by_name)
        targets = [n for n in p.outputs if by_name[n].kind == "f" and n in reach and by_name[n].size]
        if not targets or not leaves:
            return
        terms = [
            f"({n} * {self.random.choice((1.0, 0.5, -2.0))}).{self.random.choice(('sum', 'mean'))}()" for n in targets
        ]
        p.lines.append(f"({' + '.join(terms)}).backward()")
        for n in leaves:
            if any(n in reach[t] for t in targets):
                g = self.name()
                p.lines.append(f"{g} = {n}.grad")
                p.outputs.append(g)


def _descendants(lines: list[str], leaves: list[str], by_name: dict[str, Var]) -> dict[str, set[str]]:
    """For every name, the float leaves that a gradient can reach from it."""
    reach: dict[str, set[str]] = {n: {n} for n in leaves}
    for line in lines:
        name, _, rest = line.partition(" = ")
        if name not in by_name or by_name[name].kind != "f" or ".detach()" in rest:
            continue
        got: set[str] = set()
        for other in _NAME.findall(rest):
            got |= reach.get(other, set())
        if got and not any(w in rest for w in (".floor()", ".ceil()", ".round()", ".trunc()", ".sign()")):
            reach[name] = got
    return reach


def _broadcast(a: Shape, b: Shape) -> Shape | None:
    out = []
    n = max(len(a), len(b))
    for x, y in zip((1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b):
        if x != y and 1 not in (x, y):
            return None
        out.append(y if x == 1 else x)
    return tuple(out) if math.prod(out) <= MAX_SIZE else None


# -- operations: each takes the builder and adds a line ----------------------------------------------------------------


def unary_float(b: Builder) -> None:
    v = b.need("f", scalar=True)
    n, t = v.name, v.top
    choices: list[tuple[str, float]] = [
        (f"{n}.tanh()", 1.0),
        (f"{n}.sigmoid()", 1.0),
        (f"{n}.erf()", 1.0),
        (f"({n}.abs() + 0.25).sqrt()", math.sqrt(t + 1)),
        (f"({n}.abs() + 0.5).rsqrt()", 1.5),
        (f"({n}.abs() + 0.5).log()", max(1.0, math.log(t + 1))),
        (f"({n}.abs() + 0.75).reciprocal()", 1.5),
        (f"{n}.gelu()", t),
        (f"{n}.gelu(approximate='tanh')", t),
        (f"{n}.silu()", t),
        (f"{n}.softplus()", t + 1),
        (f"({n}.abs() + 0.5) ** 1.5", (t + 1) ** 1.5),
        (f"{n}.atan()", 2.0),
        (f"({n}.tanh() * 0.75).asin()", 2.0),
        (f"({n}.tanh() * 0.75).atanh()", 1.0),
        (f"{n}.asinh()", max(1.0, math.log(2 * t + 1))),
        (f"({n}.abs() + 1.5).acosh()", max(1.0, math.log(2 * t + 3))),
    ]
    if t <= 6:
        choices += [(f"{n}.exp()", math.exp(t)), (f"{n}.exp2()", 2**t)]
    if t <= 60:
        choices += [(f"{n}.sin()", 1.0), (f"{n}.cos()", 1.0)]
    expression, top = b.random.choice(choices)
    if top < 1e6:
        b.emit(expression, v.shape, "f", top, exact=False)


def exact_float(b: Builder) -> None:
    """Unary ops that keep short fractions short."""
    v = b.need("f", scalar=True)
    n, t, bits = v.name, v.top, v.bits
    choices: list[tuple[str, float, int]] = [(f"-{n}", t, bits), (f"{n}.abs()", t, bits), (f"{n}.relu()", t, bits)]
    choices += [(f"{n} * 0.5", t, bits + 1), (f"{n} - 1.5", t + 1.5, max(bits, 1)), (f"2 - {n}", t + 2, bits)]
    choices += [(f"{n}.clip(-1.5, 2.0)", 2.0, max(bits, 1)), (f"{n}.square()", t * t, 2 * bits)]
    if v.sharp:
        choices += [(f"{n}.{f}()", t + 1, 0) for f in ("floor", "ceil", "round", "trunc", "sign")]
    expression, top, frac = b.random.choice(choices)
    if top < 1e6:
        b.emit(expression, v.shape, "f", top, frac, v.exact)


def unary_int(b: Builder) -> None:
    v = b.need("iu", scalar=True)
    r, n = b.random, v.name
    c = r.choice((1, 2, 3, 5, 7, 8, 16))
    signed = v.kind == "i"
    # only short values are divided by something negative: INT_MIN // -1 has no answer
    d = r.choice((c, -c)) if signed and v.top < 2**30 else c
    choices = [
        (f"{n} % {d}", c),
        (f"{n} // {d}", v.top + 1),
        (f"{n} * {c}", v.top * c),
        (f"{n} + {c}", v.top + c),
        (f"{n} & {c * 3}", c * 3),
        (f"{n} | {c}", v.top * 2 + c),
        (f"{n} ^ {c}", v.top * 2 + c),
        (f"{n} << {r.randint(0, 5)}", v.top * 32),
        (f"{n} >> {r.randint(0, 5)}", v.top + 1),
        (f"~{n}", v.top + 1 if signed else 2.0**32),
        (f"{n}.clip(2, 9)", 9),
        (f"({n} + {c}) // {c + 1} * {c} + {n} % {c + 1}", v.top * c + 2 * c),
    ]
    if signed:
        choices += [(f"-{n}", v.top), (f"{n}.abs()", v.top), (f"{c} - {n}", v.top + c), (f"{n} - {c}", v.top + c)]
        choices += [(f"{n}.sign()", 1)]
    expression, top = r.choice(choices)
    b.emit(expression, v.shape, v.kind, min(float(top), 2.0**32))


def unary_bool(b: Builder) -> None:
    v = b.need("b", scalar=True)
    b.emit(f"~{v.name}", v.shape, "b")


def binary(b: Builder) -> None:
    a = b.need("fffiiub", scalar=True)
    c = b.partner(a, a.kind)
    if b.random.random() < 0.5:
        a, c = c, a
    shape = _broadcast(a.shape, c.shape)
    if shape is None:
        return
    x, y, r = a.name, c.name, b.random
    if a.kind == "b":
        b.emit(f"{x} {r.choice('&|^')} {y}", shape, "b")
        return
    if a.kind == "f":
        exact, bits = a.exact and c.exact, max(a.bits, c.bits)
        choices = [
            (f"{x} + {y}", a.top + c.top, bits, exact),
            (f"{x} - {y}", a.top + c.top, bits, exact),
            (f"{x} * {y}", a.top * c.top, a.bits + c.bits, exact),
            (f"{x} * {y} + {x}", a.top * c.top + a.top, a.bits + c.bits, exact),
            (f"{x}.maximum({y})", max(a.top, c.top), bits, exact),
            (f"{x}.minimum({y})", max(a.top, c.top), bits, exact),
            (f"{x} / ({y}.abs() + 0.5)", 2 * a.top, 0, False),
            (f"{x}.atan2({y}.abs() + 0.5)", 2.0, 0, False),
        ]
        expression, top, frac, ex = r.choice(choices)
        if top < 1e6:
            b.emit(expression, shape, "f", top, frac, ex)
        return
    ops = [(f"{x} {o} {y}", a.top + c.top) for o in ("+", "-", "&", "|", "^")]
    ops = [(e, t * 2) for e, t in ops]
    ops += [(f"{x} * {y}", a.top * c.top), (f"{x}.maximum({y})", a.top + c.top), (f"{x}.minimum({y})", a.top + c.top)]
    ops += [(f"{x} >> ({y} & 7)", a.top + 1), (f"{x} << ({y} & 3)", a.top * 8)]
    if a.top < 2**30:
        ops += [(f"{x} // ({y} | 1)", a.top + 1), (f"{x} % ({y} | 1)", c.top * 2 + 1)]
    expression, top = r.choice(ops)
    if a.kind == "u" and (" - " in expression):
        top = 2.0**32
    b.emit(expression, shape, a.kind, min(float(top), 2.0**32))


def compare(b: Builder) -> None:
    a = b.need("fi", lambda v: v.sharp, scalar=True)
    c = b.partner(a, a.kind)
    shape = _broadcast(a.shape, c.shape)
    if shape is None or not c.sharp:
        return
    other = c.name if b.random.random() < 0.8 else "1"
    b.emit(
        f"{a.name} {b.random.choice(('<', '<=', '>', '>=', '==', '!='))} {other}",
        shape if other == c.name else a.shape,
        "b",
    )


def where(b: Builder) -> None:
    a = b.need(b.any, scalar=True)
    c = b.partner(a, a.kind)
    shape = _broadcast(a.shape, c.shape)
    if shape is None:
        return
    probe = Var("", shape, "b")
    cond = b.partner(probe, "b")
    full = _broadcast(shape, cond.shape)
    if full is None:
        return
    b.emit(
        f"{cond.name}.where({a.name}, {c.name})",
        full,
        a.kind,
        max(a.top, c.top),
        max(a.bits, c.bits),
        a.exact and c.exact,
    )


def cast(b: Builder) -> None:
    v = b.need("fiub", lambda v: v.sharp, scalar=True)
    to = b.random.choice([k for k in "fib" if k != v.kind])
    dtype = {"f": "float32", "i": "int32", "b": "bool"}[to]
    if (to == "f" and v.top >= 2**23) or (to == "i" and v.top >= 2**30):
        return
    b.emit(f"{v.name}.cast({dtype!r})", v.shape, to, v.top)


def mixed(b: Builder) -> None:
    """Promotion: an integer or bool with a float, a bool with an integer."""
    a = b.need("ib", lambda v: v.top < 2**12, scalar=True)
    c = b.partner(a, "f" if a.kind == "i" else "fi")
    shape = _broadcast(a.shape, c.shape)
    if shape is None or c.top * a.top > 1e6:
        return
    b.emit(f"{a.name} * {c.name}", shape, c.kind, a.top * c.top, c.bits, c.exact)


def reduce(b: Builder) -> None:
    v = b.need("fffiiub")
    r = b.random
    axes = b.axes(v)
    keep = r.random() < 0.4
    n = math.prod(v.shape[i] for i in axes)
    shape = tuple((1 if i in axes else s) for i, s in enumerate(v.shape) if keep or i not in axes)
    named: object = axes if len(axes) > 1 else axes[0] - (len(v.shape) if r.random() < 0.5 else 0)
    how = f"(axis={named}, keepdim={keep})"
    if v.kind == "b":
        f = r.choice(("any", "all", "sum"))
        b.emit(f"{v.name}.{f}{how}", shape, "i" if f == "sum" else "b", n)
    elif v.kind != "f":
        f = r.choice(("sum", "max", "min") if v.kind == "u" else ("sum", "sum", "max", "min", "prod"))
        top = {"sum": v.top * n, "prod": 2.0**32}.get(f, v.top)
        b.emit(f"{v.name}.{f}{how}", shape, v.kind, min(top, 2.0**32))
    else:
        f = r.choice(("sum", "sum", "mean", "max", "min", "var", "logsumexp", "prod"))
        if f in ("sum", "max", "min"):
            b.emit(f"{v.name}.{f}{how}", shape, "f", v.top * (n if f == "sum" else 1), v.bits, v.exact)
        elif f == "mean":
            b.emit(f"{v.name}.mean{how}", shape, "f", v.top, v.bits + int(math.log2(n)), v.exact and n & (n - 1) == 0)
        elif f == "prod":
            if n * math.log(max(v.top, 1.0)) < 9:
                b.emit(f"{v.name}.prod{how}", shape, "f", max(1.0, v.top**n), 0, False)
        elif f == "logsumexp":
            b.emit(f"{v.name}.logsumexp{how}", shape, "f", v.top + 6, 0, False)
        elif n > 1 and v.top < 1e3:
            b.emit(f"{v.name}.var{how}", shape, "f", 2 * v.top * v.top, 0, False)


def arg_reduce(b: Builder) -> None:
    v = b.need("fi", lambda v: v.sharp)
    axis = b.random.randrange(len(v.shape))
    shape = v.shape[:axis] + v.shape[axis + 1 :]
    b.emit(f"{v.name}.{b.random.choice(('argmax', 'argmin'))}(axis={axis})", shape, "i", v.shape[axis])


def running(b: Builder) -> None:
    v = b.need("fi", lambda v: v.top < 1e4)
    axis = b.random.randrange(len(v.shape))
    if v.sharp and b.random.random() < 0.4:
        b.emit(
            f"{v.name}.{b.random.choice(('cummax', 'cummin'))}(axis={axis})", v.shape, v.kind, v.top, v.bits, v.exact
        )
        return
    b.emit(f"{v.name}.cumsum(axis={axis})", v.shape, v.kind, v.top * v.shape[axis], v.bits, v.exact)


def middle(b: Builder) -> None:
    """What sorting finds: the middle one of some axes."""
    v = b.need("fi", lambda v: v.sharp)
    axes = b.axes(v)
    shape = tuple(n for i, n in enumerate(v.shape) if i not in axes)
    b.emit(f"{v.name}.median(axis={axes})", shape, v.kind, v.top, v.bits, v.exact)


def row_pattern(b: Builder) -> None:
    """Softmax, layer norm and their hand-written forms: reductions fused with what follows them."""
    v = b.need("f", lambda v: v.top < 1e3)
    n, r = v.name, b.random
    axis = r.choice((-1, -1, 0))
    choices = [
        (f"{n}.softmax(axis={axis})", 1.0),
        (f"{n}.log_softmax(axis={axis})", 2 * v.top + 8),
        (f"({n} - {n}.max(axis={axis}, keepdim=True)).exp()", 1.0),
        (
            f"({n} - {n}.mean(axis={axis}, keepdim=True)) * ({n}.var(axis={axis}, keepdim=True, correction=0) + 0.5).rsqrt()",
            30.0,
        ),
        (f"F.layer_norm({n} * 0.5 + 1, {v.shape[-1:]}, eps=0.25)", 30.0),
        (f"{n} / ({n}.square().mean(axis={axis}, keepdim=True) + 0.5).sqrt()", 30.0),
        (
            f"{n} * ({n}.abs().sum(axis={axis}, keepdim=True) + 1).reciprocal() + {n}.sum(axis={axis}, keepdim=True)",
            v.top * 20,
        ),
    ]
    expression, top = r.choice(choices)
    b.emit(expression, v.shape, "f", top, 0, False)


def same(b: Builder, v: Var, expression: str, shape: Shape) -> None:
    """A movement: the values stay what they were."""
    if 0 < math.prod(shape) <= MAX_SIZE:
        b.emit(expression, shape, v.kind, v.top, v.bits, v.exact)


def reshape(b: Builder) -> None:
    v = b.need(b.any)
    factors: list[int] = []
    n = v.size
    for p in (2, 3, 5, 7, 11, 13, 17):
        while n % p == 0:
            factors.append(p)
            n //= p
    if n > 1:
        factors.append(n)
    b.random.shuffle(factors)
    shape = [1] * b.random.randint(1, 4)
    for f in factors:
        shape[b.random.randrange(len(shape))] *= f
    said = list(shape)
    if b.random.random() < 0.3:
        said[b.random.randrange(len(said))] = -1
    same(b, v, f"{v.name}.reshape({', '.join(map(str, said))})", tuple(shape))


def permute(b: Builder) -> None:
    v = b.need(b.any, lambda v: len(v.shape) > 1)
    if len(v.shape) < 2:
        return
    order = list(range(len(v.shape)))
    b.random.shuffle(order)
    same(b, v, f"{v.name}.permute({', '.join(map(str, order))})", tuple(v.shape[i] for i in order))


def expand(b: Builder) -> None:
    v = b.need(b.any)
    axis = b.random.randint(0, len(v.shape))
    n = b.random.randint(2, 5)
    shape = (*v.shape[:axis], n, *v.shape[axis:])
    same(b, v, f"{v.name}.unsqueeze({axis}).expand({', '.join(map(str, shape))})", shape)


def pad(b: Builder) -> None:
    v = b.need(b.any)
    pairs = [(b.random.choice((0, 0, 1, 2, 3)), b.random.choice((0, 0, 1, 2))) for _ in v.shape]
    shape = tuple(s + x + y for s, (x, y) in zip(v.shape, pairs))
    flat = [n for p in reversed(pairs) for n in p]
    value = ", value=2" if v.kind in "fi" and b.random.random() < 0.3 else ""
    if 0 < math.prod(shape) <= MAX_SIZE:
        b.emit(f"{v.name}.pad({tuple(flat)}{value})", shape, v.kind, max(v.top, 2), v.bits, v.exact)


def flip(b: Builder) -> None:
    v = b.need(b.any)
    axes = b.axes(v)
    same(b, v, f"{v.name}.flip({axes if len(axes) > 1 else axes[0]})", v.shape)


def slicing(b: Builder) -> None:
    """Basic indexing: steps, negative bounds, integers, None, ellipsis."""
    v = b.need(b.any)
    r = b.random
    parts, shape = [], []
    for n in v.shape:
        how = r.random()
        if how < 0.15:
            parts.append(str(r.randrange(-n, n)))
        elif how < 0.3:
            parts.append(":")
            shape.append(n)
        else:
            start, stop = sorted(r.sample(range(n + 1), 2))
            step = r.choice((1, 1, 1, 2, 3, -1, -2))
            if step > 0:
                said = f"{start if r.random() < 0.5 else start - n}:{stop if stop < n and r.random() < 0.7 else ''}"
                if said.endswith(":"):
                    stop = n
                size = len(range(start, stop, step))
            else:
                said = f"{stop - 1}:{start - 1 if start else ''}"
                size = len(range(stop - 1, start - 1, step))
            parts.append(said + (f":{step}" if step != 1 else ""))
            shape.append(size)
        if r.random() < 0.1:
            parts.append("None")
            shape.append(1)
    if len(shape) == 0 or math.prod(shape) == 0:
        return
    same(b, v, f"{v.name}[{', '.join(parts)}]", tuple(shape))


def cat(b: Builder) -> None:
    a = b.need(b.any)
    axis = b.random.randrange(len(a.shape))
    fits = [
        v
        for v in b.vars
        if v.kind == a.kind
        and len(v.shape) == len(a.shape)
        and all(i == axis or x == y for i, (x, y) in enumerate(zip(a.shape, v.shape)))
    ]
    others = [b.random.choice(fits) for _ in range(b.random.randint(1, 2))]
    if b.random.random() < 0.3 and all(v.shape == a.shape for v in others):
        parts = [a, *others]
        shape = (*a.shape[:axis], len(parts), *a.shape[axis:])
        how = "stack"
    else:
        parts = [a, *others]
        shape = (*a.shape[:axis], sum(v.shape[axis] for v in parts), *a.shape[axis + 1 :])
        how = "cat"
    if math.prod(shape) <= MAX_SIZE:
        top, bits = max(v.top for v in parts), max(v.bits for v in parts)
        names = ", ".join(v.name for v in parts)
        b.emit(f"Tensor.{how}([{names}], {axis})", shape, a.kind, top, bits, all(v.exact for v in parts))


def shuffle(b: Builder) -> None:
    """roll, repeat, chunk, tril, triu, transpose, squeeze."""
    v = b.need(b.any)
    r, n = b.random, v.name
    axis = r.randrange(len(v.shape))
    choices: list[tuple[str, Shape]] = [(f"{n}.roll({r.randint(-3, 3)}, {axis})", v.shape)]
    times = [r.choice((1, 1, 2, 3)) for _ in v.shape]
    choices.append((f"{n}.repeat({', '.join(map(str, times))})", tuple(s * t for s, t in zip(v.shape, times))))
    if v.shape[axis] % 2 == 0:
        half = (*v.shape[:axis], v.shape[axis] // 2, *v.shape[axis + 1 :])
        choices.append((f"{n}.chunk(2, {axis})[{r.randrange(2)}]", half))
    if len(v.shape) > 1:
        k = r.randint(-2, 2)
        choices += [(f"{n}.tril({k})", v.shape), (f"{n}.triu({k})", v.shape)]
        choices.append((f"{n}.transpose(-1, -2)", (*v.shape[:-2], v.shape[-1], v.shape[-2])))
    if 1 in v.shape and len(v.shape) > 1:
        i = v.shape.index(1)
        choices.append((f"{n}.squeeze({i})", v.shape[:i] + v.shape[i + 1 :]))
    same(b, v, *r.choice(choices))


def gather(b: Builder) -> None:
    v = b.need(b.any)
    r = b.random
    if r.random() < 0.5:
        axis = r.randrange(len(v.shape))
        n = v.shape[axis]
        index = b.leaf(tuple(r.randint(1, s) if i != axis else r.randint(1, 6) for i, s in enumerate(v.shape)), "i")
        same(b, v, f"{v.name}.gather({axis}, {index.name}.abs() % {n})", index.shape)
        return
    index = b.leaf(b.shape(r.randint(1, 2)), "i")
    shape = index.shape + v.shape[1:]
    if math.prod(shape) <= MAX_SIZE:
        same(b, v, f"{v.name}[{index.name} % {v.shape[0]}]", shape)


def one_hot(b: Builder) -> None:
    v = b.leaf(b.shape(b.random.randint(1, 2)), "i")
    n = b.random.randint(2, 9)
    if v.size * n <= MAX_SIZE:
        b.emit(f"({v.name} % {n}).one_hot({n}).cast('int32')", (*v.shape, n), "i", 1)


def matmul(b: Builder) -> None:
    a = b.need("ffffi", lambda v: v.top < 300)
    if a.top >= 300:
        return
    r = b.random
    k = a.shape[-1]
    other = b.pick(a.kind, lambda v: len(v.shape) >= 2 and v.shape[-2] == k and v.top < 300 and len(v.shape) == 2)
    if other is None or r.random() < 0.4:
        batch = a.shape[:-2] if len(a.shape) > 2 and r.random() < 0.4 else ()
        shape = (*batch, k, r.choice((1, 2, 3, 5, 8)))
        if math.prod(shape) > MAX_SIZE:
            return
        other = b.leaf(shape, a.kind)
    out = (*a.shape[:-1], other.shape[-1])
    if math.prod(out) > MAX_SIZE:
        return
    b.emit(f"{a.name} @ {other.name}", out, a.kind, a.top * other.top * k, a.bits + other.bits, a.exact and other.exact)


def einsum(b: Builder) -> None:
    a = b.need("f", lambda v: len(v.shape) == 3 and v.top < 100)
    if len(a.shape) != 3 or a.top >= 100:
        a = b.leaf(b.shape(3), "f")
    x, y, z = a.shape
    other, spec, out = b.random.choice(
        (((x, z), "ijk,ik->ij", (x, y)), ((y, 2), "ijk,jl->lki", (2, z, x)), ((x, y), "ijk,ij->k", (z,)))
    )
    c = b.leaf(other, "f")
    n = x * y * z
    b.emit(f"Tensor.einsum({spec!r}, {a.name}, {c.name})", out, "f", a.top * c.top * n, a.bits + c.bits, a.exact)


def convolution(b: Builder) -> None:
    r = b.random
    groups, cin, cout = r.choice(((1, 1, 2), (1, 2, 3), (2, 2, 2)))
    h, w, k, s, p, d = r.randint(3, 6), r.randint(3, 6), r.randint(1, 3), r.choice((1, 1, 2)), r.choice((0, 1)), 1
    oh, ow = (h + 2 * p - d * (k - 1) - 1) // s + 1, (w + 2 * p - d * (k - 1) - 1) // s + 1
    x = b.leaf((r.randint(1, 2), cin, h, w), "f")
    weight = b.leaf((cout, cin // groups, k, k), "f")
    b.emit(
        f"F.conv2d({x.name}, {weight.name}, stride={s}, padding={p}, groups={groups})",
        (x.shape[0], cout, oh, ow),
        "f",
        16.0 * cin * k * k,
        4,
    )


def pool(b: Builder) -> None:
    v = b.need("f", lambda v: len(v.shape) == 4 and min(v.shape[2:]) >= 2)
    if len(v.shape) != 4 or min(v.shape[2:]) < 2:
        v = b.leaf((1, 2, b.random.randint(2, 7), b.random.randint(2, 7)), "f")
    k, s = 2, b.random.choice((1, 2))
    shape = (*v.shape[:2], *((n - k) // s + 1 for n in v.shape[2:]))
    f = b.random.choice(("max_pool2d", "avg_pool2d"))
    b.emit(f"F.{f}({v.name}, {k}, stride={s})", shape, "f", v.top, v.bits + 2, v.exact)


def assign(b: Builder) -> None:
    """A leaf that is overwritten by something that reads it."""
    if b.want_grad:
        return
    v = b.leaf(b.shape(), b.random.choice("fi"))
    c = b.partner(v, v.kind)
    if _broadcast(v.shape, c.shape) != v.shape:
        return
    old = b.emit(f"{v.name} * 2", v.shape, v.kind, v.top * 2, v.bits, v.exact)
    line = f"{v.name}.assign({v.name} + {c.name})"
    b.vars.remove(v)
    b.emit(line, v.shape, v.kind, v.top + c.top, max(v.bits, c.bits), v.exact and c.exact)
    b.program.outputs.append(old.name)


def fence(b: Builder) -> None:
    """contiguous and detach: identities that the scheduler must respect or see through."""
    v = b.need(b.any, scalar=True)
    same(b, v, f"{v.name}.{b.random.choice(('contiguous', 'detach'))}()", v.shape)


def create(b: Builder) -> None:
    r = b.random
    n = r.randint(2, 24)
    which = r.randrange(4)
    if which == 0:
        start, step = r.randint(-5, 5), r.choice((1, 2, 3))
        b.emit(f"Tensor.arange({start}, {start + n * step}, {step})", (n,), "i", abs(start) + n * step)
    elif which == 1:
        b.emit(f"Tensor.full(({n}, 2), {r.randint(-3, 3)}.5)", (n, 2), "f", 4, 1)
    elif which == 2:
        m = r.randint(2, 6)
        b.emit(f"Tensor.eye({m})", (m, m), "f", 1)
    else:
        b.emit(f"Tensor.ones({n}).cumsum(axis=0)", (n,), "f", n)


_TABLE: dict[Callable[[Builder], None], float] = {
    unary_float: 6,
    exact_float: 4,
    unary_int: 6,
    unary_bool: 1,
    binary: 12,
    compare: 3,
    where: 3,
    cast: 3,
    mixed: 2,
    reduce: 10,
    arg_reduce: 1.5,
    middle: 1,
    running: 1.5,
    row_pattern: 4,
    reshape: 6,
    permute: 5,
    expand: 4,
    pad: 5,
    flip: 3,
    slicing: 5,
    cat: 3,
    shuffle: 4,
    gather: 3,
    one_hot: 1,
    matmul: 4,
    einsum: 1,
    convolution: 0.7,
    pool: 0.7,
    assign: 1,
    fence: 2,
    create: 1,
}


def program(seed: int) -> Program:
    """The program of `seed`: the same on every machine."""
    b = Builder(seed)
    if seed < 0:
        from tests.fuzz import narrow

        b.any += "".join(narrow.KINDS)
        b.operations = {**_TABLE, **narrow.TABLE}
    return b.build(b.random.randint(3, 14))
