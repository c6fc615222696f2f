"""The node and the arena that interns it."""

from __future__ import annotations

import hashlib
import math
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any, ClassVar

from anneal.errors import CompilerError
from anneal.uop.dtype import DType, Number, dtypes, normalise_const
from anneal.uop.ops import ALU, COMPARE, Op

__all__ = ["Arena", "UOp", "arena", "const", "toposort"]

Bound = int | float | None
Provenance = tuple[str, CodeType | None, int]

_INDEX = dtypes.int32
_BOOL = dtypes.bool_
_COMMUTES = frozenset((Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR))


class UOp:
    """One immutable, interned node: `UOp(op, dtype, src, arg, tag)`.

    Within an arena two nodes with equal fields are the same object, so `is` means equal. Beside the fields it carries
    facts derived once: `shape` (tensor graph; `()` for kernel scalars), `vmin`/`vmax` (inclusive bounds of integers
    and bools, None for floats that are not constant), `ranges` (bit i set: it depends on the open RANGE with id i).
    `provenance` (phase, code, line) tells who first built it and is no part of its identity.

    >>> x = const(dtypes.int32, 3)
    >>> (x + 4) is const(dtypes.int32, 7)
    True
    """

    __slots__ = ("_key", "arg", "dtype", "op", "provenance", "ranges", "shape", "src", "tag", "vmax", "vmin")
    op: Op
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    tag: Any
    shape: tuple[int, ...]
    vmin: Bound
    vmax: Bound
    ranges: int
    provenance: Provenance
    _key: bytes | None

    def __new__(cls, op: Op, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None, tag: Any = None) -> UOp:
        key = (op, dtype, src, arg, tag) if op is not _CONST else _const_key(dtype, arg, tag)
        found = _current.nodes.get(key)
        if found is not None:
            return found
        return _current.add(key, op, dtype, src, arg, tag)

    # -- building -------------------------------------------------------------------------------------------------
    def alu(self, op: Op, *others: UOp) -> UOp:
        """Apply an elementwise op; folds what it can at once (see `anneal/uop/fold.upat`)."""
        return alu(op, (self, *others))

    def const_like(self, value: Number) -> UOp:
        return const(self.dtype, value)

    def _lift(self, other: UOp | Number) -> UOp:
        return other if isinstance(other, UOp) else const(self.dtype, other)

    def __add__(self, o: UOp | Number) -> UOp:
        return alu(Op.ADD, (self, self._lift(o)))

    def __radd__(self, o: Number) -> UOp:
        return alu(Op.ADD, (self._lift(o), self))

    def __sub__(self, o: UOp | Number) -> UOp:
        return alu(Op.SUB, (self, self._lift(o)))

    def __rsub__(self, o: Number) -> UOp:
        return alu(Op.SUB, (self._lift(o), self))

    def __mul__(self, o: UOp | Number) -> UOp:
        return alu(Op.MUL, (self, self._lift(o)))

    def __rmul__(self, o: Number) -> UOp:
        return alu(Op.MUL, (self._lift(o), self))

    def __truediv__(self, o: UOp | Number) -> UOp:
        return alu(Op.DIV, (self, self._lift(o)))

    def __floordiv__(self, o: UOp | Number) -> UOp:
        return alu(Op.IDIV, (self, self._lift(o)))

    def __mod__(self, o: UOp | Number) -> UOp:
        return alu(Op.MOD, (self, self._lift(o)))

    def __and__(self, o: UOp | Number) -> UOp:
        return alu(Op.AND, (self, self._lift(o)))

    def __or__(self, o: UOp | Number) -> UOp:
        return alu(Op.OR, (self, self._lift(o)))

    def __xor__(self, o: UOp | Number) -> UOp:
        return alu(Op.XOR, (self, self._lift(o)))

    def __lshift__(self, o: UOp | Number) -> UOp:
        return alu(Op.SHL, (self, self._lift(o)))

    def __rshift__(self, o: UOp | Number) -> UOp:
        return alu(Op.SHR, (self, self._lift(o)))

    def __neg__(self) -> UOp:
        return alu(Op.NEG, (self,))

    def __lt__(self, o: UOp | Number) -> UOp:
        return alu(Op.LT, (self, self._lift(o)))

    def __gt__(self, o: UOp | Number) -> UOp:
        return alu(Op.LT, (self._lift(o), self))

    def __ge__(self, o: UOp | Number) -> UOp:
        return alu(Op.NOT, (alu(Op.LT, (self, self._lift(o))),))

    def __le__(self, o: UOp | Number) -> UOp:
        return alu(Op.NOT, (alu(Op.LT, (self._lift(o), self)),))

    def eq(self, o: UOp | Number) -> UOp:
        return alu(Op.EQ, (self, self._lift(o)))

    def ne(self, o: UOp | Number) -> UOp:
        return alu(Op.NE, (self, self._lift(o)))

    def where(self, a: UOp, b: UOp | Number) -> UOp:
        return alu(Op.WHERE, (self, a, a._lift(b)))

    def cast(self, dtype: DType) -> UOp:
        if dtype is self.dtype:
            return self
        if self.op is _CONST:
            v = self.arg
            if not (dtype.is_int and isinstance(v, float) and not math.isfinite(v)):
                return const(dtype, v)
        return UOp(Op.CAST, dtype, (self,))

    def replace(self, *, src: tuple[UOp, ...]) -> UOp:
        """The same node over other sources; folds if it is elementwise."""
        if src == self.src:
            return self
        if self.op in _FOLDABLE:
            return alu(self.op, src, self.tag)
        if self.op is Op.CAST:
            return src[0].cast(self.dtype)
        return UOp(self.op, self.dtype, src, self.arg, self.tag)

    # -- reading --------------------------------------------------------------------------------------------------
    @property
    def is_const(self) -> bool:
        return self.op is _CONST

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def key(self) -> bytes:
        """Content hash of the whole graph below: the same in every process, blind to construction order."""
        if self._key is None:
            for u in toposort((self,), until=_has_key):
                h = hashlib.blake2b(digest_size=16)
                h.update(f"{u.op.name}|{u.dtype.name}|{u.arg!r}|{u.tag!r}|{len(u.src)}".encode())
                for s in u.src:
                    assert s._key is not None
                    h.update(s._key)
                object.__setattr__(u, "_key", h.digest())
        assert self._key is not None
        return self._key

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a UOp is immutable; cannot set {name!r}")

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return UOp, (self.op, self.dtype, self.src, self.arg, self.tag)

    def __repr__(self) -> str:
        from anneal.uop.printer import short

        return short(self)

    def __str__(self) -> str:
        from anneal.uop.printer import render

        return render(self)


def _has_key(u: UOp) -> bool:
    return u._key is not None


_CONST = Op.CONST
_set = object.__setattr__
_new = object.__new__
_slots: dict[str, Any] = {n: UOp.__dict__[n].__set__ for n in UOp.__slots__}
_set_op, _set_dtype, _set_src, _set_arg, _set_tag = (_slots[n] for n in ("op", "dtype", "src", "arg", "tag"))
_set_shape, _set_vmin, _set_vmax = _slots["shape"], _slots["vmin"], _slots["vmax"]
_set_ranges, _set_prov, _set_key = _slots["ranges"], _slots["provenance"], _slots["_key"]


def _const_key(dtype: DType, value: Number, tag: Any) -> tuple[Any, ...]:
    # 0.0 == -0.0 and nan != nan: float constants are interned by their bits.
    return (_CONST, dtype, struct.pack("d", value) if dtype.is_float else value, tag)


def const(dtype: DType, value: Number) -> UOp:
    """The constant `value` as `dtype` stores it."""
    return UOp(_CONST, dtype, (), normalise_const(dtype, value))


class Arena:
    """Interns nodes. One default arena serves the process; `with Arena():` isolates.

    Nodes that nothing outside the arena reaches are dropped in bulk by `sweep`, which `add` calls whenever the arena
    has doubled since the last one.
    """

    __slots__ = ("_limit", "_saved", "nodes", "phase", "track")
    _BASELINE: ClassVar[int] = 0

    def __init__(self) -> None:
        self.nodes: dict[tuple[Any, ...], UOp] = {}
        self.phase = "forward"
        self.track = True
        self._limit = 200_000
        self._saved: list[Arena] = []

    def add(self, key: tuple[Any, ...], op: Op, dtype: DType, src: tuple[UOp, ...], arg: Any, tag: Any) -> UOp:
        u = _new(UOp)
        _set_op(u, op)
        _set_dtype(u, dtype)
        _set_src(u, src)
        _set_arg(u, arg)
        _set_tag(u, tag)
        _set_key(u, None)
        ranges = 0
        shape: tuple[int, ...] = ()
        for s in src:
            ranges |= s.ranges
        vmin: Bound = None
        vmax: Bound = None
        if op in ALU:
            for s in src:
                if s.shape:
                    if shape and s.shape != shape:
                        raise CompilerError(f"{op.name} of shapes {[x.shape for x in src]}", node=src)
                    shape = s.shape
            if dtype.kind != "float":
                vmin, vmax = _alu_bounds(op, dtype, src)
        else:
            rule = _SHAPES.get(op)
            if rule is not None:
                shape = rule(src, arg)
            bound = _BOUNDS.get(op)
            if bound is not None:
                vmin, vmax = bound(dtype, src, arg)
            elif dtype.kind != "float":
                vmin, vmax = dtype.min, dtype.max
            if op is Op.RANGE:
                ranges |= 1 << arg[0]
            elif op is Op.REDUCE or op is Op.BUFFERIZE:
                for r in src[1:]:
                    ranges &= ~(1 << r.arg[0])
        _set_ranges(u, ranges)
        _set_shape(u, shape)
        _set_vmin(u, vmin)
        _set_vmax(u, vmax)
        if self.track:
            f = sys._getframe(2)
            while f.f_back is not None and f.f_globals.get("__name__", "").startswith("anneal."):
                f = f.f_back
            _set_prov(u, (self.phase, f.f_code, f.f_lineno))
        else:
            _set_prov(u, (self.phase, None, 0))
        nodes = self.nodes
        nodes[key] = u
        if len(nodes) > self._limit:
            self.sweep()
        return u

    def sweep(self) -> int:
        """Drop every node that only the arena holds; returns how many went.

        Sources are created before the nodes that use them, so one walk from the newest to the oldest frees whole
        graphs: a node whose users are all gone has only the arena's own reference left.
        """
        nodes = self.nodes
        refs = sys.getrefcount
        before = len(nodes)
        keys = list(nodes)
        u = None
        while keys:
            key = keys.pop()
            u = nodes[key]
            # the dict's reference, `u` and getrefcount's argument; a fourth means somebody uses it
            if refs(u) <= 3:
                del nodes[key]
            del key
        self._limit = max(200_000, 2 * len(nodes))
        return before - len(nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __enter__(self) -> Arena:
        global _current
        self._saved.append(_current)
        _current = self
        return self

    def __exit__(self, *exc: object) -> None:
        global _current
        _current = self._saved.pop()


_current = Arena()


def arena() -> Arena:
    """The arena in force."""
    return _current


# -- derived facts --------------------------------------------------------------------------------------------------


def _keep(src: tuple[UOp, ...], _arg: Any) -> tuple[int, ...]:
    return src[0].shape


_SHAPES: dict[Op, Callable[[tuple[UOp, ...], Any], tuple[int, ...]]] = {
    Op.BUFFER: lambda _, arg: (arg.size,),
    Op.PARAM: lambda _, arg: arg[1],
    Op.IOTA: lambda _, arg: arg,
    Op.RESHAPE: lambda _, arg: arg,
    Op.EXPAND: lambda _, arg: arg,
    Op.PERMUTE: lambda src, arg: tuple([src[0].shape[i] for i in arg]),
    Op.PAD: lambda src, arg: tuple([b + s + a for s, (b, a) in zip(src[0].shape, arg, strict=True)]),
    Op.SHRINK: lambda _, arg: tuple([e - b for b, e in arg]),
    Op.FLIP: _keep,
    Op.REDUCE_AXIS: lambda src, arg: tuple([1 if i in arg[1] else s for i, s in enumerate(src[0].shape)]),
    Op.GATHER: lambda src, _: src[1].shape,
    Op.SCATTER_ADD: lambda src, arg: (arg[0], *src[1].shape[1:]),
    Op.ARGSORT: _keep,
    Op.SEGMENT_SUM: lambda src, _: (src[2].shape[0] - 1, *src[0].shape[1:]),
    Op.CONTIGUOUS: _keep,
    Op.DETACH: _keep,
}

_BOUNDS: dict[Op, Callable[[DType, tuple[UOp, ...], Any], tuple[Bound, Bound]]] = {
    Op.CONST: lambda _, __, arg: (arg, arg),
    Op.VARIABLE: lambda _, __, arg: (arg[1], arg[2]),
    Op.IOTA: lambda _, __, arg: (0, max(0, arg[0] - 1)),
    Op.RANGE: lambda _, src, __: (0, max(0, (src[0].vmax or 1) - 1)),
    Op.SPECIAL: lambda _, __, arg: (0, arg[1] - 1),
}
for _op in (Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SHRINK, Op.FLIP, Op.CONTIGUOUS, Op.DETACH):
    _BOUNDS[_op] = lambda _, src, __: (src[0].vmin, src[0].vmax)


def _corners(a: UOp, b: UOp, f: Callable[[int, int], int]) -> tuple[int, int]:
    v = [f(x, y) for x in (a.vmin, a.vmax) for y in (b.vmin, b.vmax)]  # type: ignore[arg-type]
    return min(v), max(v)


def _alu_bounds(op: Op, dtype: DType, src: tuple[UOp, ...]) -> tuple[Bound, Bound]:
    """Interval arithmetic over inclusive integer bounds; the dtype's whole range where nothing better is known."""
    lo: Bound = dtype.min
    hi: Bound = dtype.max
    a = src[0]
    if op in COMPARE:
        b = src[1]
        if a.vmin is None or b.vmin is None:
            return False, True
        assert a.vmax is not None and b.vmax is not None
        if op is Op.LT:
            return a.vmax < b.vmin, not a.vmin >= b.vmax
        apart = a.vmax < b.vmin or b.vmax < a.vmin
        same = a.vmin == a.vmax == b.vmin == b.vmax
        return (same, not apart) if op is Op.EQ else (apart, not same)
    if op is Op.WHERE:
        b, c = src[1], src[2]
        if b.vmin is None or c.vmin is None:
            return lo, hi
        return min(b.vmin, c.vmin), max(b.vmax, c.vmax)  # type: ignore[type-var]
    if any(s.vmin is None for s in src) or a.dtype.kind == "float":
        return lo, hi
    if op is Op.CAST:
        lo2, hi2 = a.vmin, a.vmax
        if dtype.kind == "bool":
            return bool(lo2 and lo2 > 0 or hi2 and hi2 < 0), bool(lo2 or hi2)
        return (int(lo2), int(hi2)) if dtype.min <= lo2 and hi2 <= dtype.max else (lo, hi)  # type: ignore[operator, arg-type]
    if dtype.kind == "bool":
        if len(src) == 2:
            b = src[1]
            if op in (Op.AND, Op.MUL, Op.MIN):
                return a.vmin and b.vmin, a.vmax and b.vmax
            if op in (Op.OR, Op.ADD, Op.MAX):
                return a.vmin or b.vmin, a.vmax or b.vmax
        if op is Op.NOT:
            return not a.vmax, not a.vmin
        return False, True
    if len(src) == 2:
        b = src[1]
        got: tuple[Any, Any] | None = None
        if op is Op.ADD:
            got = a.vmin + b.vmin, a.vmax + b.vmax  # type: ignore[operator]
        elif op is Op.SUB:
            got = a.vmin - b.vmax, a.vmax - b.vmin  # type: ignore[operator]
        elif op is Op.MUL:
            got = _corners(a, b, lambda x, y: x * y)
        elif op is Op.MAX:
            got = max(a.vmin, b.vmin), max(a.vmax, b.vmax)  # type: ignore[type-var]
        elif op is Op.MIN:
            got = min(a.vmin, b.vmin), min(a.vmax, b.vmax)  # type: ignore[type-var]
        elif op is Op.IDIV and (b.vmin > 0 or b.vmax < 0):  # type: ignore[operator]
            got = _corners(a, b, lambda x, y: x // y)
        elif op is Op.MOD and b.vmin == b.vmax and b.vmin > 0:  # type: ignore[operator]
            c = b.vmin
            if a.vmin // c == a.vmax // c:  # type: ignore[operator]
                got = a.vmin % c, a.vmax % c  # type: ignore[operator]
            else:
                got = 0, c - 1  # type: ignore[operator]
        elif op is Op.AND and (a.vmin >= 0 or b.vmin >= 0):  # type: ignore[operator]
            tops = [s.vmax for s in (a, b) if s.vmin >= 0]  # type: ignore[operator]
            got = 0, min(tops)  # type: ignore[type-var]
        elif op is Op.SHL and b.vmin == b.vmax and 0 <= b.vmin < 64:  # type: ignore[operator]
            got = a.vmin << b.vmin, a.vmax << b.vmin  # type: ignore[operator]
        elif op is Op.SHR and b.vmin == b.vmax and 0 <= b.vmin < 64:  # type: ignore[operator]
            got = a.vmin >> b.vmin, a.vmax >> b.vmin  # type: ignore[operator]
        if got is not None and dtype.min <= got[0] and got[1] <= dtype.max:
            return got
        return lo, hi
    if op is Op.NEG and dtype.kind == "int" and a.vmin > dtype.min:  # type: ignore[operator]
        return -a.vmax, -a.vmin  # type: ignore[operator]
    return lo, hi


# -- elementwise constructor with folding -----------------------------------------------------------------------------

from anneal.uop.fold import FOLD  # noqa: E402  (needs UOp and const)

_FOLDABLE = ALU - {Op.CAST, Op.BITCAST}


def alu(op: Op, src: tuple[UOp, ...], tag: Any = None) -> UOp:
    """The elementwise node `op(*src)`, folded by the creation rules. The dtype follows from the op."""
    if op in COMPARE:
        dtype = _BOOL
    elif op is Op.WHERE:
        dtype = src[1].dtype
    else:
        dtype = src[0].dtype
    rule = FOLD.get(op)
    if rule is not None:
        folded = rule(dtype, src)
        if folded is not None:
            return folded
    u = UOp(op, dtype, src, None, tag)
    if u.vmin == u.vmax and u.vmin is not None and not u.shape:
        return const(dtype, u.vmin)
    return u


def toposort(roots: Iterable[UOp], until: Callable[[UOp], bool] | None = None) -> list[UOp]:
    """Every node below `roots`, sources first, in an order that depends on structure alone.

    `until` stops the walk: nodes for which it is true are left out, and what is below them is not visited.
    """
    out: list[UOp] = []
    seen: set[UOp] = set()
    stack: list[tuple[UOp, Iterator[UOp]]] = []
    for root in roots:
        if root in seen or (until is not None and until(root)):
            continue
        seen.add(root)
        stack.append((root, iter(root.src)))
        while stack:
            node, children = stack[-1]
            for child in children:
                if child not in seen:
                    seen.add(child)
                    if until is not None and until(child):
                        continue
                    if child.src:
                        stack.append((child, iter(child.src)))
                        break
                    out.append(child)
            else:
                stack.pop()
                out.append(node)
    return out
