"""The node and the arena that interns it."""

from __future__ import annotations

import itertools
import math
import os
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from anneal.errors import CompilerError
from anneal.uop.bounds import lossless
from anneal.uop.caches import references
from anneal.uop.dtype import DType, Number, dtypes, normalise_const
from anneal.uop.ops import ALU, COMPARE, LATER, SYMBOLIC, Op, Shape, ranks
from anneal.uop.provenance import Builder, Provenance, line_at, users_frame
from anneal.uop.varying import Varying

Bound = int | float | None
_INDEX = dtypes.int32
_BOOL = dtypes.bool_


class _Slots:
    """The storage of a node. A node is filled in as a `_Draft` (plain, fast stores) and then becomes a UOp."""

    op: Op
    dtype: DType
    src: Src
    arg: Any
    tag: Any
    shape: Shape  # of ints, and of nodes where a size is symbolic (sizes.py)
    vmin: Bound
    vmax: Bound
    ranges: int
    weak: bool
    provenance: Provenance
    _key: bytes | None
    __slots__ = ("__weakref__", *__annotations__)


class _Draft(_Slots):
    __slots__ = ()


def _operator(op: Op) -> tuple[Callable[[UOp, UOp | Number], UOp], Callable[[UOp, UOp | Number], UOp]]:
    """The methods that make nodes of `op`: one for the node as the left operand, one for it as the right."""

    def right(u: UOp, o: UOp | Number) -> UOp:
        return alu(op, (u, o if isinstance(o, UOp) else const(u.dtype, o)))

    def left(u: UOp, o: UOp | Number) -> UOp:
        return alu(op, (o if isinstance(o, UOp) else const(u.dtype, o), u))

    return right, left


class UOp(_Slots):
    """One immutable, interned node: `UOp(op, dtype, src, arg, tag)`.

    Within an arena two nodes with equal fields are the same object, so `is` means equal. Beside the fields it carries
    facts derived once: `shape` (tensor graph; `()` for kernel scalars), `vmin`/`vmax` (inclusive bounds of integers
    and bools, None for floats that are not constant), `ranges` (bit i set: it depends on the open RANGE with id i),
    `weak` (a BUFFER is below: the arena does not keep the node, so the memory goes with the last user).
    `provenance` (phase, code, line, module path, function) tells who first built it and is no part of its identity.

    >>> x = const(dtypes.int32, 3)
    >>> (x + 4) is const(dtypes.int32, 7)
    True
    """

    __slots__ = ()

    def __new__(cls, op: Op, dtype: DType, src: Src = (), arg: Any = None, tag: Any = None) -> UOp:
        key = (op, dtype, src, arg, tag) if op is not _CONST else _const_key(dtype, arg, tag)
        found = _current.nodes.get(key)
        if found is not None and (found.__class__ is UOp or (found := found()) is not None):
            return found
        return _current.add(key, op, dtype, src, arg, tag)

    # -- building -------------------------------------------------------------------------------------------------
    def const_like(self, value: Number) -> UOp:
        return const(self.dtype, value)

    __add__, __radd__ = _operator(Op.ADD)
    __sub__, __rsub__ = _operator(Op.SUB)
    __mul__, __rmul__ = _operator(Op.MUL)
    __truediv__ = _operator(Op.DIV)[0]
    __floordiv__ = _operator(Op.IDIV)[0]
    __mod__ = _operator(Op.MOD)[0]
    __and__ = _operator(Op.AND)[0]
    __or__ = _operator(Op.OR)[0]
    __xor__ = _operator(Op.XOR)[0]
    __lshift__ = _operator(Op.SHL)[0]
    __rshift__ = _operator(Op.SHR)[0]
    __lt__, __gt__ = _operator(Op.LT)
    eq = _operator(Op.EQ)[0]
    ne = _operator(Op.NE)[0]

    def __neg__(self) -> UOp:
        return alu(Op.NEG, (self,))

    def __ge__(self, o: UOp | Number) -> UOp:
        return alu(Op.NOT, (self < o,))

    def __le__(self, o: UOp | Number) -> UOp:
        return alu(Op.NOT, (self > o,))

    def where(self, a: UOp, b: UOp | Number) -> UOp:
        return alu(Op.WHERE, (self, a, b if isinstance(b, UOp) else const(a.dtype, b)))

    def cast(self, dtype: DType) -> UOp:
        if dtype is self.dtype:
            return self
        if self.dtype.is_float and dtype.is_int and dtype.bits < 32:
            return self.cast(_INDEX).cast(dtype)  # its low bits, as C and torch have it on most processors
        if self.op is _CONST:
            v = self.arg
            if not (dtype.is_int and isinstance(v, float)):
                return const(dtype, v)
            if math.isfinite(v):
                return const(dtype, max(int(dtype.min), min(int(dtype.max), int(v))))
        elif self.op is Op.CAST and lossless(self.src[0].dtype, self.dtype):
            # A float stops at the ends of an integer's range, where an integer wraps around.
            x = self.src[0]
            if not (x.dtype.is_int and self.dtype.is_float and dtype.is_int) or lossless(x.dtype, dtype):
                return x.cast(dtype)
        return UOp(Op.CAST, dtype, (self,))

    def replace(self, *, src: Src) -> UOp:
        """The same node over other sources; folds if it is elementwise."""
        if src == self.src:
            return self
        if self.op in _FOLDABLE:
            return alu(self.op, src, self.tag)
        if self.op is Op.CAST and self.tag is None:
            return src[0].cast(self.dtype)
        return UOp(self.op, self.dtype, src, self.arg, self.tag)

    # -- sizes ----------------------------------------------------------------------------------------------------
    def then(self, op: Op, arg: Any = None, tag: Any = None) -> UOp:
        """`op` of this node alone, in the same dtype."""
        return UOp(op, self.dtype, (self,), arg, tag)

    def bind(self, value: int) -> UOp:
        """This Variable with its value in one run. Raises ShapeError for a value outside its bounds."""
        return LATER.sizes.bind(self, value)  # type: ignore[no-any-return]

    def __bool__(self) -> bool:
        """A node is true, as any object is; a size, or a comparison of sizes, only if its bounds say so."""
        if self.op is _CONST:
            return bool(self.arg)
        if not SYMBOLIC.seen or (known := LATER.sizes.decided(self)) is None:
            return True
        return known  # type: ignore[no-any-return]

    # -- reading --------------------------------------------------------------------------------------------------
    @property
    def is_const(self) -> bool:
        return self.op is _CONST

    @property
    def slot(self) -> int:
        """The number of the memory that an op of a kernel, such as LOAD or STORE, reads or writes."""
        return int(self.src[0].arg[0])

    def varies_over(self, r: UOp) -> bool:
        """True if the node depends on the open RANGE `r`."""
        return bool(self.ranges >> r.arg[0] & 1)

    @property
    def size(self) -> int:
        """The number of elements; a `Count` where that is symbolic."""
        return LATER.sizes.count(self.shape) if SYMBOLIC.seen else math.prod(self.shape)

    @property
    def key(self) -> bytes:
        """Content hash of the whole graph below: the same in every process, blind to construction order."""
        if self._key is None:
            from hashlib import blake2b  # loads a library of some megabytes

            for u in toposort(self, until=lambda u: u._key is not None):
                h = blake2b(digest_size=16)
                symbolic = SYMBOLIC.seen and LATER.sizes.symbolic_arg(u.arg)
                arg = LATER.sizes.mapped(u.arg, lambda n: f"<{n.key.hex()}>") if symbolic else u.arg
                h.update(f"{u.op.name}|{u.dtype.name}|{arg!r}|{u.tag!r}|{len(u.src)}".encode())
                for s in u.src:
                    assert s._key is not None
                    h.update(s._key)
                object.__setattr__(u, "_key", h.digest())
        assert self._key is not None
        return self._key

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a UOp is immutable; cannot set {name!r}")

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        # one flat list, sources first: pickle would recurse into nested sources
        order = toposort(self)
        number = ranks(order)
        return from_rows, (tuple([(u.op, u.dtype, tuple([number[s] for s in u.src]), u.arg, u.tag) for u in order]),)

    def __format__(self, spec: str) -> str:
        """The text of a node in a message: the expression of a size; for any other node its `str`."""
        return format(repr(self) if SYMBOLIC.seen and LATER.sizes.is_symbolic(self) else str(self), spec)

    def __repr__(self) -> str:
        return LATER.text.short(self)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return LATER.text.render(self)  # type: ignore[no-any-return]


Src = tuple[UOp, ...]
Ints = tuple[int, ...]  # axes, strides, sizes that are numbers
Nodes = Sequence[UOp]
Some = Sequence[UOp | None]
Known = dict[UOp, UOp]  # nodes, and what takes their places
Numbers = dict[UOp, int]  # nodes, and a number of each


def from_rows(rows: Sequence[tuple[Op, DType, Sequence[int], Any, Any]]) -> UOp:
    """The last of some nodes, whose sources are the numbers of those before."""
    made: list[UOp] = []
    for op, dtype, src, arg, tag in rows:
        made.append(UOp(op, dtype, tuple([made[i] for i in src]), arg, tag))
    return made[-1]


_BUFFER = Op.BUFFER
_CONST = Op.CONST
_RANGE = Op.RANGE
_SOLE = 2  # references to what one container has: that, and the argument of `references`
_ENDS_RANGES = frozenset((Op.REDUCE, Op.BUFFERIZE, Op.LANE))
_new = object.__new__


def unique() -> int:
    """A number that no earlier call returned: nodes with different numbers are different nodes."""
    return next(_current.marks)


def _const_key(dtype: DType, value: Number, tag: Any) -> tuple[Any, ...]:
    # 0.0 == -0.0 and nan != nan: float constants are interned by their bits.
    return (_CONST, dtype, struct.pack("d", value) if dtype.is_float else value, tag)


def const(dtype: DType, value: Any) -> UOp:
    """The constant `value` as `dtype` stores it; memory for one that varies."""
    if type(value) is Varying and (u := value.of.node(value.made, dtype)) is not None:
        return u  # type: ignore[no-any-return]
    return UOp(_CONST, dtype, (), normalise_const(dtype, value))


class _Ref(weakref.ref[UOp]):
    """The entry of a weak node in an arena: under `key`, until the node goes."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


class Arena(Builder):
    """Interns nodes. One default arena serves the process and all of its threads; `with Arena():` isolates.

    A node below which there is a BUFFER is held weakly: it goes, and memory with it, when its last user does. Of the
    others those that nothing outside the arena reaches are dropped in bulk by `sweep`, which `add` calls whenever the
    arena has grown by half since the last one: they are most nodes of a compiler, and a weak reference would cost as
    much as the node.
    """

    __slots__ = ("_dead", "_limit", "_lock", "_saved", "covered", "live", "marks", "nodes")
    _FLOOR: ClassVar[int] = 32_768  # nodes below which a sweep is not worth its time

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[tuple[Any, ...], Any] = {}  # nodes, and a `_Ref` of each weak one
        self.marks = itertools.count()  # marks that make nodes unique, also in nested arenas
        self.live = 0  # nodes left by the last sweep
        self._limit = self._FLOOR
        self._saved: list[Arena] = []
        self.covered = 0  # the number of other arenas in force in its place
        # Finding a node takes no lock. Nobody waits for another while holding this one: finalisers run at any time.
        self._lock = threading.RLock()
        self._dead: deque[_Ref] = deque()  # of nodes that went while another thread held the lock

    def derive(self, u: UOp) -> None:
        """Untracked nodes that this thread makes from now on bear the line, path and function of `u`, in the phase in
        force: they are its gradient, say."""
        here = self.here
        here.origin = (here.phase, *u.provenance[1:])

    def inherit(self, u: UOp) -> None:
        """Untracked nodes that this thread makes from now on bear the provenance of `u`, whose place they take."""
        self.here.origin = u.provenance

    def again(self, u: UOp, src: Src, arg: Any) -> UOp:
        """A node like `u`, with its provenance, of other sources and another argument; not for constants."""
        return self.add((u.op, u.dtype, src, arg, u.tag), u.op, u.dtype, src, arg, u.tag, u.provenance)

    def add(
        self,
        key: tuple[Any, ...],
        op: Op,
        dtype: DType,
        src: Src,
        arg: Any,
        tag: Any,
        origin: Provenance | None = None,
    ) -> UOp:
        # One function of 90 lines: it runs for every node, and a call for each of its parts would cost a tenth of it.
        d = _new(_Draft)
        d.op = op
        d.dtype = dtype
        d.src = src
        d.arg = arg
        d.tag = tag
        d._key = None
        ranges = 0
        shape = ()
        vmin = None
        vmax = None
        weak = op is _BUFFER
        if op in ALU:
            for s in src:
                ranges |= s.ranges
                if s.weak:
                    weak = True
                if s.shape:
                    if shape and s.shape != shape:
                        raise CompilerError(f"{op.name} of shapes {[x.shape for x in src]}", node=src)
                    shape = s.shape
            if not dtype.is_float:
                interval = op.bounds
                vmin, vmax = interval(dtype, src) if interval is not None else (dtype.min, dtype.max)
        else:
            for s in src:
                ranges |= s.ranges
                if s.weak:
                    weak = True
            if (rule := op.shape) is not None:
                shape = rule(src, arg)
            if (bound := op.bounds) is not None:
                vmin, vmax = bound(dtype, src, arg)
            elif not dtype.is_float:
                vmin, vmax = dtype.min, dtype.max
            if op is _RANGE:
                ranges |= 1 << arg[0]
            elif op in _ENDS_RANGES:
                for r in src[1:]:
                    ranges &= ~(1 << r.arg[0])
        d.ranges = ranges
        d.shape = shape
        d.vmin = vmin
        d.vmax = vmax
        d.weak = weak
        here = self.here
        if origin is not None:
            d.provenance = origin
        elif here.track:
            f, kind, function = users_frame()
            d.provenance = (here.phase, *line_at(f, kind), here.path, function)
        else:
            d.provenance = here.origin
        d.__class__ = UOp  # type: ignore[assignment]
        u: UOp = d  # type: ignore[assignment]
        nodes = self.nodes
        with self._lock:
            if weak:
                ref = _Ref(u, self._gone)
                ref.key = key
                found = nodes.setdefault(key, ref)
                if found is not ref:
                    other: UOp | None = found()
                    if other is not None:
                        return other  # another thread was faster
                    nodes[key] = ref
                if self._dead:
                    self._bury()
            else:
                u = nodes.setdefault(key, u)
            if len(nodes) > self._limit:
                self.sweep()
        return u

    def fresh(self, op: Op, src: UOp, name: str) -> UOp:
        """`op` of a node as an unused node: its tag is the first of (name, 0), (name, 1), ... whose node is not
        there, so that a loop makes the same graph in each round. Of a node that is not weak it is one never used: those
        that are unused stay until the next sweep."""
        with self._lock:
            numbers = itertools.count() if src.weak else self.marks
            return src.then(op, tag=next((name, n) for n in numbers if self._is_free(op, src, (name, n))))

    def own(self, op: Op, src: UOp, name: str) -> UOp:
        """`op` of a node, `fresh` if the plain one is there already, and may be in use."""
        with self._lock:
            return src.then(op) if self._is_free(op, src, None) else self.fresh(op, src, name)

    def _is_free(self, op: Op, src: UOp, tag: Any) -> bool:
        """True if there is no such node."""
        found = self.nodes.get((op, src.dtype, (src,), None, tag))
        return found is None or (found.__class__ is not UOp and found() is None)

    def _gone(self, ref: _Ref) -> None:
        """Free the place of a weak node that was dropped. Runs in whichever thread drops the last reference."""
        self._dead.append(ref)
        if self._lock.acquire(blocking=False):
            try:
                self._bury()
            finally:
                self._lock.release()

    def _bury(self) -> None:
        dead, nodes = self._dead, self.nodes
        while dead:
            try:
                ref = dead.pop()
            except IndexError:  # dropping a node may drop others, which call this too
                return
            if nodes.get(ref.key) is ref:
                del nodes[ref.key]

    def sweep(self) -> int:
        """Drop every node that only the arena holds; returns how many went.

        Sources are created before the nodes that use them, so one walk from the newest to the oldest frees whole
        graphs: a node whose users are all gone has only the arena's own reference left.
        """
        with self._lock:
            self._bury()
            nodes = self.nodes
            before = len(nodes)
            keys = list(nodes)
            while keys:
                key = keys.pop()
                if nodes.get(key).__class__ is UOp and references(nodes[key]) == _SOLE:
                    last = [nodes.pop(key)]
                    if references(last[0]) > _SOLE:  # another thread found it just before: it takes no lock to look
                        nodes[key] = last[0]
                    del last
                del key
            self.live = len(nodes)
            self._limit = max(self._FLOOR, self.live + self.live // 2)
            return before - self.live

    def watermark(self) -> UOp:
        """A node like no other: `since` tells what was made after it, for as long as it is kept."""
        return UOp(_CONST, _INDEX, (), 0, ("mark", next(self.marks)))

    def since(self, node: UOp) -> list[UOp]:
        """The nodes made after `node` that are still here, in the order they were made: sources come before users.

        What is older than a node does not depend on it, so a walk over what does can stop there.
        """
        later: Callable[[Any], bool] = lambda u: u is not node
        if node.weak:
            later = lambda u: (u() if u.__class__ is _Ref else u) is not node
        with self._lock:
            refs: list[Any] = []
            values = reversed(self.nodes.values())
            while True:
                try:
                    refs.extend(itertools.takewhile(later, values))
                    break
                except RuntimeError:  # a collection of cycles let nodes go meanwhile
                    refs.clear()
                    values = reversed(self.nodes.values())
        refs.reverse()
        return [u for r in refs if (u := r if r.__class__ is UOp else r()) is not None]

    def buffers(self) -> Nodes:
        """The BUFFER nodes in use, in the order they were made."""
        with self._lock:
            held = list(self.nodes.values())
        nodes = [r() for r in held if r.__class__ is _Ref]
        return [u for u in nodes if u is not None and u.op is _BUFFER]

    def __len__(self) -> int:
        return len(self.nodes)

    def __enter__(self) -> Arena:
        global _current
        self._saved.append(_current)
        _current.covered += 1
        self.marks = _current.marks
        _current = self
        return self

    def __exit__(self, *exc: object) -> None:
        global _current
        _current = self._saved.pop()
        _current.covered -= 1


_current = Arena()
_PROCESS = _current
if hasattr(os, "register_at_fork"):  # another thread may be at a node when this one forks
    os.register_at_fork(
        before=_PROCESS._lock.acquire, after_in_parent=_PROCESS._lock.release, after_in_child=_PROCESS._lock.release
    )


def arena() -> Arena:
    """The arena in force."""
    return _current


# -- elementwise constructor with folding -----------------------------------------------------------------------------

_FOLDABLE = ALU - {Op.CAST, Op.BITCAST}
_Fold = Callable[[DType, Any], Any]
# op -> (fold rule, dtype if the op fixes it, else the source that gives it)
_ALU_FACTS: dict[Op, tuple[_Fold | None, DType | None, int]] = {}


def fold_by(rules: Mapping[Op, _Fold]) -> None:
    """Make `alu` fold by these rules."""
    _ALU_FACTS.update({op: (rules.get(op), _BOOL if op in COMPARE else None, int(op is Op.WHERE)) for op in ALU})


def alu(op: Op, src: Src, tag: Any = None) -> UOp:
    """The elementwise node `op(*src)`, folded by the creation rules. The dtype follows from the op."""
    rule, dtype, typed = _ALU_FACTS[op]
    if dtype is None:
        dtype = src[typed].dtype
    if rule is not None:
        folded: UOp | None = rule(dtype, src)
        if folded is not None:
            return folded
    key = (op, dtype, src, None, tag)
    u = _current.nodes.get(key)
    if u is None or (u.__class__ is not UOp and (u := u()) is None):
        u = _current.add(key, op, dtype, src, None, tag)
    if u.vmin is not None and u.vmin == u.vmax and not u.shape:
        return const(dtype, u.vmin)
    return u


Op.make = alu


def toposort(
    roots: UOp | Iterable[UOp],
    until: Callable[[UOp], bool] | None = None,
    sources: Callable[[UOp], Src] | None = None,
) -> list[UOp]:
    """The nodes below one or several `roots`, sources first, in an order that depends on the structure alone.

    `until` stops the walk: nodes for which it is true are left out, and what is below them is not visited. `sources`
    gives the nodes below one, where those are not all of its own.
    """
    out: list[UOp] = []
    seen = set()
    stack: list[UOp | None] = [roots] if isinstance(roots, UOp) else list(roots)
    stack.reverse()
    while stack:
        node = stack.pop()
        if node is None:  # the mark above a node whose sources are all out
            out.append(stack.pop())  # type: ignore[arg-type]
        elif node not in seen:
            seen.add(node)
            if until is not None and until(node):
                continue
            src = node.src if sources is None else sources(node)
            if src:
                stack += (node, None, *src[::-1])
            else:
                out.append(node)
    return out


def of_op(nodes: Iterable[UOp], op: Op) -> list[UOp]:
    """The nodes of one op."""
    return [u for u in nodes if u.op is op]
