"""Nodes that show memory, and the memory that a node shows: of symbolic size a part of it. Templates of nodes, and what
loops have shown of them."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from anneal.backend import Array, Storage, nothing
from anneal.frozen import frozen
from anneal.runtime.context import here
from anneal.runtime.handle import WHOLE, Handle, Handles, Ref
from anneal.uop import SYMBOLIC, DType, Line, Op, Shape, Src, UOp, arena, toposort, users_line
from anneal.uop.sizes import evaluator, mapped, symbolic_arg, unbound, widest


def storage_of(u: UOp) -> Storage | None:
    """The storage that `u` shows whole and in order, or None if it is lazy."""
    if u.tag == WHOLE:
        u = u.src[0]
    while u.op is Op.RESHAPE:
        u = u.src[0]
    return u.arg if u.op is Op.BUFFER else None


def memory_of(u: UOp) -> Storage:
    """The storage that a realized node shows.

    Args:
        u: the node.
    """
    found = storage_of(u)
    assert found is not None, u
    return found


def base_of(u: UOp) -> UOp:
    """The BUFFER that a node shows, since views of one are one leaf, however they reshape it; any other node itself.

    Args:
        u: the node.
    """
    return u.src[0] if u.op is Op.RESHAPE and u.src[0].op is Op.BUFFER else u


def shown(u: UOp) -> UOp:
    """The node that a node gives another shape.

    Args:
        u: the node.
    """
    while u.op is Op.RESHAPE:
        u = u.src[0]
    return u


def sources_of(u: UOp) -> Src:
    """The nodes from which the node `u` was computed; a realised tensor's buffer remembers its graph as `origin`."""
    if u.op is Op.BUFFER:
        origin = getattr(u.arg, "origin", None)
        return () if origin is None else (origin,)
    return u.src


def keep(u: UOp, leaf: UOp | None) -> None:
    """Keep a result of a call in memory for as long as a graph that reads it exists.

    Args:
        u: the result.
        leaf: the node of that memory; None if the result shows it itself.
    """
    rows = u.arg[0].for_reverse(u.src)  # they are there as long
    here.tensors.kept[u] = leaf, () if u in rows else rows


def with_lines(u: UOp, src: Src) -> UOp:
    """A node over other sources, with its own line: for `rebuild`.

    Args:
        u: the node.
        src: the sources.
    """
    return u if src == u.src else arena().again(u, src, u.arg)


def is_realized(u: UOp) -> bool:
    """True if the node `u` is the memory of a whole storage in order, so that nothing is left to compute."""
    return storage_of(u) is not None


def is_computed_late(t: Handle) -> bool:
    """True if a tensor is late and no view of memory.

    Args:
        t: the tensor.
    """
    late = t.late
    if late is None:
        return False
    u = late.template
    while u.op is Op.RESHAPE:
        u = u.src[0]
    return u.op is not Op.PARAM


def freeze(t: Handle) -> None:
    """Have no gradient flow from here on to what a tensor shows, whoever wants one of that later.

    Args:
        t: the tensor.
    """
    u, storage = t.uop, storage_of(t.uop)
    if u.tag != WHOLE:
        t.uop = UOp(Op.DETACH, u.dtype, (u,), None, WHOLE)
        if storage is None:
            t._alias = u
        elif t._wants:
            storage.leaf = ref(t)


def thaw(t: Handle) -> bool:
    """Have a leaf show the node that it had before it was frozen; False if it was not, or graphs have that node of
    another leaf.

    Args:
        t: the leaf.
    """
    u, storage = t.uop, storage_of(t.uop)
    if u.op is not Op.DETACH or u.tag != WHOLE:
        return False
    mine = t._alias is u.src[0] if storage is None else storage.leaf is not None and storage.leaf() is t
    if mine:
        t.uop, t._alias = u.src[0], t._alias if storage else None
    return mine


def has_twin(x: Handle) -> bool:
    """True if gradients of a leaf and of another tensor that shows the same memory cannot be told apart. One that
    wants none, and was not used, is frozen.

    Args:
        x: the leaf.
    """
    storage = storage_of(x.uop)
    if storage is None or x.uop.op is Op.DETACH:
        return storage is not None
    views = (x._base.root if x._base else x)._views or ()
    others: list[Any] = [storage.leaf and storage.leaf(), storage.owner(), *[r() for r in views]]
    base = base_of(x.uop)
    for other in others:
        if other is not None and other is not x and other.late is None and base_of(other.uop) is base:
            if other._wants or other._used:
                return True
            freeze(other)
    storage.leaf = ref(x)
    return False


def call_of(u: UOp) -> Any:
    """The captured call of which memory is a result, whose backward is its own (`flowing.py`); None of other memory.

    Args:
        u: the BUFFER.
    """
    made = u.arg.made_by
    if made.__class__ is not UOp or made.op is not Op.CALL or made.arg[0].name != "function":
        return None
    return made.src[-1].arg.derivative.captured


def buffer_leaf(storage: Storage, shape: Shape) -> UOp:
    """The leaf that shows `storage` as an array of `shape`."""
    flat = UOp(Op.BUFFER, storage.dtype, (), storage)
    if SYMBOLIC.seen and symbolic_arg(shape):
        largest = buffer_leaf(storage, widest(shape))
        return UOp(Op.SHRINK, storage.dtype, (largest,), tuple([(0, n) for n in shape]), WHOLE)
    return flat if shape == flat.shape else UOp(Op.RESHAPE, storage.dtype, (flat,), shape)


def bound_shape(shape: Shape) -> tuple[int, ...]:
    """The sizes of this run.

    Args:
        shape: a shape in which sizes may be Variables.
    """
    if not SYMBOLIC.seen:
        return shape
    values: dict[str, int] = {}
    return evaluator(mapped(shape, lambda u: unbound(u, values)))(values)


def needed(shape: Shape) -> int:
    """The number of elements, from the first on, that hold an array of `shape` with its padded rows in memory."""
    if not (SYMBOLIC.seen and symbolic_arg(shape)):
        return math.prod(shape)
    end, stride = 1, 1
    for n, room in zip(reversed(bound_shape(shape)), reversed(widest(shape)), strict=True):
        if not n:
            return 0
        end += (n - 1) * stride
        stride *= room
    return end


def seen(memory: Array, shape: Shape) -> Array:
    """The first elements of memory, `needed(shape)` or more, as an array of `shape`, without its rows' padding."""
    if not (SYMBOLIC.seen and symbolic_arg(shape)):
        return memory[: math.prod(shape)].reshape(shape)
    now = bound_shape(shape)
    steps, step = [], memory.itemsize
    for room in reversed(widest(shape)):
        steps.append(step)
        step *= room
    bits = memory.view(f"u{memory.itemsize}")  # not every dtype can be strided
    return np.lib.stride_tricks.as_strided(bits, now, steps[::-1]).copy().view(memory.dtype)


def laid_out(array: Array, shape: Shape) -> Array:
    """`array` as memory for `shape` holds it: rows as long as the longest can be, zeros after their ends."""
    room = widest(shape)
    if array.shape == room:
        return array
    memory = np.zeros(room, array.dtype)
    memory[tuple([slice(n) for n in array.shape])] = array
    return memory


def host_storage(values: Array, dtype: DType, device: str, *, constant: bool = False) -> Storage:
    """The storage of flat `values`, uploaded when first used. A recording notes it: its values may be frozen.

    Args:
        dtype: the dtype of the elements.
        device: the name of the device.
        constant: whether the values are the same in every run, as weights of a file are; they are not noted.
    """
    here.effects += 1
    storage = Storage(values.size, dtype, device, host=values)
    if here.made is not None and not constant:
        note_made(storage, memoryview(values.view("uint8").data), dtype)
    return storage


def note_made(storage: Storage | None, content: bytes | memoryview, dtype: DType) -> None:
    """Tell the recording of a value made from host data: in `storage`, or a constant.

    Args:
        content: the value.
        dtype: the dtype of the elements.
    """
    if here.made is not None:
        from hashlib import blake2b

        digest = blake2b(content, digest_size=16).digest()
        here.made.append(Made(storage, (dtype.name, len(content), digest), users_line(2)))


@frozen
class Made:
    """A value that a jit function made from host data at the user's `line`."""

    storage: Storage | None
    content: tuple[str, int, bytes]
    line: tuple[CodeType | None, int]

    @property
    def where(self) -> str:
        """The line in words."""
        code, line = self.line
        return "no line of yours" if code is None else f"{code.co_filename}:{line}"


_MOVES = frozenset((Op.SHRINK, Op.PAD, Op.FLIP, Op.PERMUTE, Op.IOTA, Op.UPDATE, Op.GATHER))
Constants = dict[Any, list[str]]  # by line and op, the numbers in the nodes made there


def note_constants(root: UOp, found: Constants) -> None:
    """Add the numbers that Python gave the nodes of a graph to those that were `found`.

    Args:
        root: the graph.
    """
    for u in toposort(root):
        if u.op is Op.BIND or u.op is Op.CONST:
            continue
        numbers = [repr(s.arg) for s in u.src if s.op is Op.CONST]
        if u.op in _MOVES and not symbolic_arg(u.arg):
            numbers.append(repr(u.arg))
        if numbers:
            at = u.src[0] if u.op is Op.SINK else u
            found.setdefault((at.provenance[1:3], u.op), []).extend(numbers)


def changed_constant(before: Constants, now: Constants) -> str | None:
    """The line where two runs computed with different numbers, in words: the line, the number before and now. A line on
    which one of them made more nodes is left out: values that are made once are made in the first run.
    """
    for (line, op), new in now.items():
        old = before.get((line, op), [])
        if len(old) == len(new) and old != new:
            gone, come = Counter(old) - Counter(new), Counter(new) - Counter(old)
            if come:
                where = "" if line[0] is None else f" at {line[0].co_filename}:{line[1]}"
                return f"{next(iter(come))}{where}, where the run before had {next(iter(gone))}"
    return None


def differing(before: Sequence[Made], now: Sequence[Made]) -> list[Made]:
    """The nodes of `now` that the run before did not make of the same values.

    Line by line the last ones are compared: what is made once, a moment of an optimiser, is made in the first run. What
    anneal's own layers make has the line that calls them, which may be another each time.
    """
    values = {m.content for m in before}
    lines: dict[Any, tuple[list[Made], list[Made]]] = {}
    for n, run in enumerate((before, now)):
        for m in run:
            lines.setdefault(m.line, ([], []))[n].append(m)
    found = []
    for old, new in lines.values():
        if len(old) < len(new):
            found += [m for m in new if old or m.content not in values]
        else:
            last = old[len(old) - len(new) :]
            found += [b for a, b in zip(last, new, strict=True) if a.content != b.content]
    return found


def note_become(t: Handle) -> None:
    """Note that a tensor is about to show other values.

    Args:
        t: the tensor.
    """
    here.effects += 1
    if here.became is not None:
        here.became.append(t)


def forget_become(t: Handle) -> None:
    """Forget a tensor whose values changed: it is internal, and no other code has it.

    Args:
        t: the tensor.
    """
    if here.became is not None:
        here.effects -= sum([x is t for x in here.became])
        here.became[:] = [x for x in here.became if x is not t]


class _Assigned(Ref):
    """A tensor that was assigned, with the numbering that knows its graph. The record keeps the numbering alive;
    otherwise a loop that assigns part after part would number the growing graph anew in each round.
    """

    numbering: Any


def note_assigned(t: Handle) -> None:
    """Note that a tensor was assigned, for the jit functions and transforms that run, or else for the next realize.

    Args:
        t: the tensor.
    """
    if not here.assigned:
        r = here.pending[id(t)] = _Assigned(t, lambda r: setattr(r, "numbering", None))
        if t.late is None and t.uop.weak and not is_realized(t.uop):
            r.numbering = here.numbering()
    for watch in here.assigned:
        watch.append(ref(t))


def owner_of(t: Handle) -> Handle | None:
    """The tensor by which jit finds the memory of the realized tensor `t`: the one that its storage notes, and `t` from
    now on where that is gone or shows other memory. None for what is no memory of its own."""
    s = storage_of(t.uop)
    if s is None:
        return None
    owner = s.owner()
    if owner is None or owner.late or storage_of(owner.uop) is not s:
        owner, s.owner = t, ref(t)
    return owner


def shown_below(t: Handle) -> Handles:
    """The other tensors that show the memory which the graph of `t` reads. Storages whose tensor shows other memory by
    now note none: jit would read that in their place."""
    found = []
    for s in [u.arg for u in toposort(t.uop) if u.op is Op.BUFFER]:
        owner = s.owner()
        if owner is None or owner is t or owner._is_part():
            continue
        if owner.late is None and storage_of(owner.uop) is s:
            found.append(owner)
        else:
            s.owner = nothing
    return found


def own(t: Handle) -> None:
    """Note in the storage of a realized tensor that `t` shows it; jit finds its state that way."""
    s = storage_of(t.uop)
    if s is not None and s.owner() is not t:
        s.owner = ref(t)


# -- templates: graphs with numbers in place of memory (`numbering.py`), and what loops show of them ------------------

_MAX_MASKS = 3 << 14  # templates of the calls that are remembered, and as many of older ones
_GROWN = 3  # realizes, or lazy leaves, by which a graph has grown, after which it is computed along
MAX_LINES = 1 << 12  # of code that begins a numbering, or carries results on
HOLE = "hole"
# bits of masks: that a lazy tensor that became a leaf is below, that a loop is, and that of the number 0
LEAF, CALLS, FIRST = 2, 4, 8
_OPEN = frozenset((Op.VARIABLE, Op.BIND, Op.HOST_CALL, Op.PARAM))


class _Learned:
    """Facts that all threads have found about templates, and about the lines of loops."""

    def __init__(self) -> None:
        self.forget_masks()
        self.carried: set[Line] = set()  # lines whose late results went on into later rounds of a loop
        # nodes that a realize left lazy, through which gradients flow: the line that made each, which realize it was,
        # and out of how many such of that line, from earlier ones, it was made
        self.left: WeakKeyDictionary[UOp, tuple[Line, int, int]] = WeakKeyDictionary()
        self.detached: set[Line] = set()  # lines from whose values alone a loop goes on
        self.growing: set[Line] = set()  # lines that make each result out of more and more earlier ones
        # graphs that a realize left lazy, and their lines
        self.outlived: deque[tuple[ref[UOp], Line]] = deque(maxlen=256)

    def forget_masks(self) -> None:
        """Forget the numbers in templates: they keep the templates, and are found again."""
        # by template, as bits; another thread may be in the middle of the old ones
        self.masks: dict[UOp, int] = {}
        self.most_masks = _MAX_MASKS  # or twice a template that is larger: it would be numbered anew at every call

    def carry(self, lines: Iterable[Line]) -> None:
        """Note lines whose results went on into a later round."""
        if len(self.carried) >= MAX_LINES:
            self.forget_lines()
        self.carried.update(lines)

    def forget_lines(self) -> None:
        """Forget what lines have shown."""
        for found in self.carried, self.detached, self.growing, self.outlived:
            found.clear()

    def leave(self, u: UOp, line: Line) -> None:
        """Note the node of a tensor through which gradients flow, and which a realize left lazy.

        Args:
            line: the line that made it.
        """
        now = here.computations
        if line in self.detached or line in self.growing:  # it is known
            self.left[u] = line, now, 1
            return

        def depth(v: UOp) -> int:
            at, then, n = self.left.get(v, (None, now, 0))
            return n if at == line and then != now else 0

        self.left.pop(u, None)
        self.left[u] = line, now, self.grown(u, line, depth)

    def grown(self, root: UOp, line: Line, depth: Callable[[UOp], int]) -> int:
        """The number of tensors that realizes left lazy, and made one of another, up to one that a line made.

        Args:
            root: its graph.
            line: the line. It is noted where the graph grows, or goes on from values of such a tensor alone.
            depth: that number for each node in the graph, 0 for others.
        """
        found = {v for v in toposort(root) if depth(v)}
        n = 1 + max(map(depth, found), default=0)
        if found and not found.issubset(toposort(root, lambda v: v.op is Op.DETACH)):
            self.detach(line)
        elif n > _GROWN:
            self.growing.add(line)
            self.carry((line,))
        return n

    def detach(self, line: Line) -> None:
        """Note that a loop goes on from the values of what a line makes."""
        self.carry((line,))
        self.detached.add(line)
        self.growing.discard(line)


LEARNED = _Learned()


def is_lazy_leaf(u: UOp) -> bool:
    """True for the node of a leaf that was lazy when it became one.

    Args:
        u: the node.
    """
    return u.op is Op.CONTIGUOUS and bool(u.tag) and u.tag[0] == "leaf"


def is_chain(root: UOp) -> bool:
    """True for a graph of lazy leaves, each made of the one before: that of a loop would grow with each round.

    Args:
        root: the graph.
    """
    depth: dict[UOp, int] = {}
    for u in toposort(root):
        depth[u] = max(map(depth.__getitem__, u.src), default=0) + is_lazy_leaf(u)
    return depth[root] > _GROWN


def mask_of(template: UOp) -> int:
    """The numbers in a template, as bits from `FIRST` on; below are what `is_open` looks at, `LEAF` and `CALLS`."""
    found = LEARNED.masks.get(template)
    if found is None:
        if len(LEARNED.masks) >= 2 * LEARNED.most_masks:  # no call was remembered meanwhile
            LEARNED.forget_masks()
        masks = LEARNED.masks
        before = len(masks)
        for u in toposort(template, until=masks.__contains__):
            if u.op is Op.PARAM and u.tag and u.tag[0] == HOLE:
                mask = FIRST << u.arg[0]
            elif is_lazy_leaf(u):
                mask = LEAF
            elif u.op is Op.HOST_CALL and u.arg[0].pure:
                mask = CALLS
            else:
                mask = int(u.op in _OPEN or (SYMBOLIC.seen and symbolic_arg(u.arg)))
            for s in u.src:
                mask |= masks[s]
            masks[u] = mask
        LEARNED.most_masks = max(LEARNED.most_masks, 2 * (len(masks) - before))
        found = masks[template]
    return found


def is_open(template: UOp) -> bool:
    """True if a graph has sizes that are Variables, calls of the host but for loops, or an argument of a traced
    function.

    Args:
        template: the graph.
    """
    return bool(mask_of(template) & 1)


def has_leaf(template: UOp) -> bool:
    """True if a template has a lazy tensor that became a leaf.

    Args:
        template: the template.
    """
    return bool(mask_of(template) & LEAF)


def has_calls(template: UOp) -> bool:
    """True if a template has loops or choices.

    Args:
        template: the template.
    """
    return bool(mask_of(template) & CALLS)
