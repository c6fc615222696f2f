"""Numberings: memory by the order of its use, and graphs with numbers in place of memory (`late.py` says what for)."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, count
from typing import Any
from weakref import ref

from anneal import rewrite, settings
from anneal.backend import nothing
from anneal.rewrite import rebuild
from anneal.runtime.context import here
from anneal.runtime.handle import UNSEEN, Handle, Ref

from anneal.runtime.nodes import (  # isort: skip
    FIRST, HOLE, LEAF, LEARNED, MAX_LINES, call_of, has_leaf, is_realized, keep, mask_of, shown,
)  # fmt: skip
from anneal.uop import Known, Line, Op, Recent, Src, UOp, arena, by_rule, line_of

_ROUNDS = 8  # of a loop, after which it is told that it makes calls anew
_LET_GO = 64 << 20  # bytes of memory that is held for a numbering before a look at who needs it
_ONES = bytes.maketrans(b"01", b"\0\1")  # of the text of a number: its ones
_PARAM, _BUFFER, _CONTIGUOUS, _RESHAPE, _DETACH = Op.PARAM, Op.BUFFER, Op.CONTIGUOUS, Op.RESHAPE, Op.DETACH

_moved: Recent[tuple[Any, ...], Any] = Recent(1 << 13)  # templates in other numberings, and over what is kept
_holes: Recent[Any, UOp] = Recent(1 << 13)  # templates of memory, and of views of it
_tags: Recent[Any, tuple[Any, ...]] = Recent(MAX_LINES)  # of the templates of numberings that begin in one place
_rounds: Recent[Any, int] = Recent(MAX_LINES)  # by the places where numberings begin: how many made calls anew in turn
EXPANDING = threading.RLock()  # a late tensor may be asked for its node by any thread


def forget_templates() -> None:
    """Forget what is known of templates."""
    _moved.clear()
    _holes.clear()
    LEARNED.forget_masks()
    _tags.clear()
    LEARNED.forget_lines()


_Call = tuple[Any, Any, Sequence[Any], Sequence[Any]]


class Log(list[_Call]):
    """The calls, of tensors that a gradient flows through, that were made while a numbering was in force (`uses.py`),
    and the numbering's leaves. It holds no tensor and no memory.

    A call is its function, what that was given, references to its tensors and to its new ones. None may stand for a
    leaf, which no call makes. A tensor has one reference, which is there as long as the entry: its id tells tensors
    apart.
    """

    def __init__(self) -> None:
        super().__init__()
        self.leaves: list[ref[UOp] | None] = []  # leaves that calls may have read

    def node(self, template: UOp) -> UOp:
        """The node of a template. Raises LookupError where its memory went."""
        return _filled(template, self._leaf, {}) if mask_of(template) else template

    def _leaf(self, hole: UOp) -> UOp:
        r = self.leaves[hole.arg[0]]
        leaf: UOp | None = r and r()
        if leaf is None:
            raise LookupError(hole)
        return leaf


class Numbering:
    """The memory that a thread's ops read since the last realize, numbered by first use.

    `leaves` are the BUFFERs by number; `known` gives a node's template, `nodes` a template's node. Its late tensors
    hold it, and after the next realize it holds the memory that they need and no other.

    Args:
        home: the place in the program at which templates begin.
    """

    def __init__(self, home: Any) -> None:
        tag = _tags[home]
        if tag is None:
            tag = _tags[home] = (HOLE, home)
        self.tag, self.seen = tag, here.seen
        self.leaves: list[UOp | None] = []
        self.known: Known = {}
        self.nodes: Known = {}
        self.tensors: list[Ref] = []
        self.parts: list[Ref] = []  # views of memory that earlier rounds made
        self.log: Log | None = None  # from the first call on of a tensor that a gradient flows through
        # calls that were made, their seconds, and the first one's reason
        self.misses, self.spent, self.why = 0, 0.0, ""
        self.retired = False
        self.used: set[UOp] = set()  # templates of late tensors that ops were called with
        self.nbytes, self.limit = 0, _LET_GO  # of the leaves; beyond the limit those that nobody needs go
        self.passed: list[UOp] = []  # leaves through whose memory a gradient goes on, to what that was computed from
        self.behind: list[Late] = []  # records of numberings before that are used here
        self.depths: dict[UOp, int] = {}  # templates that came from numberings before, and from how many
        # tensors, what they had, and new ones that are computed in their place
        self.apart: list[tuple[Handle, UOp | Late, Handle]] = []
        self.lates: list[ref[Late]] = []  # records that are used as origins (`Late.as_origin`)
        self.calls: list[Any] = []  # the histories of captured functions with late calls (`uses.py`)
        self.kept: Known = {}  # results of calls, by their templates, as leaves

    def missed(self, begun: float, why: str) -> None:
        """Count a call that was made anew, with the reason.

        Args:
            begun: the time at which the call began, in seconds of `time.perf_counter`.
            why: the reason, as text.
        """
        self.misses += 1
        self.spent += time.perf_counter() - begun
        self.why = self.why or why

    def note(self, call: _Call) -> Log:
        """Add a call of tensors that a gradient flows through to the log. Returns the log.

        Args:
            call: as `uses.py` reads it.
        """
        log = self.log
        if log is None:
            log = self.log = Log()
            here.logs.append(log)
        if len(log.leaves) < len(self.leaves):
            log.leaves += [u if u is None else ref(u) for u in self.leaves[len(log.leaves) :]]
        log.append(call)
        return log

    def template(self, u: UOp) -> UOp:
        """The template of the node `u`."""
        found = self.known.get(u)
        if found is not None:
            return found
        flat = u.src[0] if u.op is _RESHAPE else u
        if flat.op is not _BUFFER:
            if flat.op is not _DETACH or flat is not u:
                return self.learn(u) if u.weak else u
            frozen = self.template(u.src[0]), u.tag  # as a rule
            found = self.known[u] = _holes[frozen] = _holes[frozen] or UOp(_DETACH, u.dtype, frozen[:1], None, u.tag)
            return found
        storage = flat.arg
        hole = self.known.get(flat)
        if hole is None:
            n = len(self.leaves)
            # a loop gives the same number to the same memory every second time
            place = storage.place
            if place is not None and place[0] == n and place[1] is self.tag:
                hole = place[2]
            else:
                key = self.tag, n, flat.dtype, flat.shape, storage.device
                hole = _holes[key]
                if hole is None:
                    hole = _holes[key] = UOp(_PARAM, flat.dtype, (), (n, flat.shape), (*self.tag, storage.device))
                storage.place = n, self.tag, hole, hole, flat.shape
                LEARNED.masks[hole] = FIRST << n
            if storage.made_by is not None:
                self.passed.append(flat)
            self.leaves.append(flat)
            self.nbytes += storage.size * storage.dtype.itemsize
            self.known[flat] = hole
        if u is flat:
            return hole
        place = storage.place
        if place[2] is hole and place[4] == u.shape:
            found = place[3]
        else:
            known = hole, u.arg, u.tag
            found = _holes[known]
            if found is None:
                found = _holes[known] = UOp(_RESHAPE, u.dtype, (hole,), u.arg, u.tag)
            if place[2] is hole:
                storage.place = (*place[:3], found, u.shape)
        self.known[u] = found
        return found

    def templates(self, nodes: Iterable[UOp]) -> list[UOp]:
        """The templates of nodes, in order, as `template` gives them: at once those of memory that the last round but
        one had in the same order.

        Args:
            nodes: the nodes.
        """
        known, leaves, tag, out = self.known, self.leaves, self.tag, []
        for u in nodes:
            found = known.get(u)
            if found is None:
                flat = u.src[0] if u.op is _RESHAPE else u
                storage: Any = flat.arg if flat.op is _BUFFER and flat not in known else None
                place = None if storage is None else storage.place
                if (
                    place is not None
                    and (place[0] == len(leaves) and place[1] is tag and place[4] == u.shape)
                    and storage.made_by is None
                ):
                    found = place[2] if u is flat else place[3]
                    known[flat] = place[2]
                    known[u] = found
                    leaves.append(flat)
                    self.nbytes += storage.size * storage.dtype.itemsize
                else:
                    found = self.template(u)
            out.append(found)
        return out

    def of(self, t: Handle) -> UOp:
        """The template of the tensor `t`."""
        late: Late | None = t.late
        if late and late.numbering is self:
            return late.template
        link = t._base
        part: UOp | None = link.recipe.part(self, t, link.root) if link and not t._wants else None
        if part is not None:
            return part
        if late:
            moved = self.moved(late)
            if moved is not None:
                if late.numbering.retired and not t._wants:
                    self.behind.append(late)
                return moved
        return self.template(t.uop)

    def read(self, tensors: Iterable[Handle]) -> list[UOp] | None:
        """The templates of tensors that an op is called with; None if one of them is open (`is_open`)."""
        out, seen = [], self.seen
        for t in tensors:
            late = t.late
            if late and late.numbering is self:
                template = late.template
                self.used.add(template)
            else:
                plain = late is None and (t._base is None or t._wants)
                template = self.template(t.uop) if plain else self.of(t)
                if t._used != seen:
                    t._used = UNSEEN if t._used else seen
                mask = LEARNED.masks.get(template)
                if (mask_of(template) if mask is None else mask) & 1:
                    return None
            if late and t._leaf and t._wants and template.op is _CONTIGUOUS:  # its node is told from others
                LEARNED.masks[template] = mask_of(template) | LEAF
            out.append(template)
        return out

    def all_of(self, tensors: Iterable[Handle]) -> list[UOp]:
        """The templates of several tensors."""
        return [
            (self.template(t.uop) if late is None else late.template if late.numbering is self else self.of(t))
            for t in tensors
            for late in (t.late,)
        ]

    def learn(self, u: UOp) -> UOp:
        """The template of the node `u`."""
        if not u.weak:
            return u
        return _filled(u, self.template, self.known, _BUFFER)

    def moved(self, late: Late, goes_on: bool = True) -> UOp | None:
        """The template here of a tensor whose record `late` is of another numbering; None where another thread has
        computed the tensor meanwhile. With `goes_on` a loop may go on from it."""
        old, template = late.numbering, late.template
        old.used.add(template)
        mask = mask_of(template)
        if goes_on and old.retired and mask >= FIRST:
            # a loop that goes on from it would go on from the graph of all rounds before
            LEARNED.carry((late.line,))
            old.asked()
        found = self._taken(old, template)
        if found is None:
            return None
        for call, leaf in old.kept.items():
            if not mask_of(call) & ~mask and (mine := self._taken(old, call)):
                self.kept[mine] = leaf
        if goes_on and old.retired:
            depths = old.depths if late.line not in LEARNED.detached else {}
            self.depths[found] = LEARNED.grown(template, late.line, lambda v: depths.get(v, 0)) if depths else 1
        return found

    def _taken(self, old: Numbering, template: UOp) -> UOp | None:
        """The template here of a template there; None where its memory went."""
        numbers = numbers_of(template)
        with EXPANDING:
            leaves = [u for n in numbers if (u := old.leaves[n]) is not None]
        if len(leaves) < len(numbers):
            return None
        mine = [self.template(u) for u in leaves]
        key = (template, *mine)
        found = _moved[key]
        if found is None:
            new = dict(zip(numbers, mine, strict=True))
            found = _moved[key] = _filled(template, lambda v: new[v.arg[0]], {})
        return found

    def keep(self, call: UOp, leaf: UOp) -> None:
        """Keep a result of a call in memory, for the tensors that are late here.

        Args:
            call: the template.
            leaf: the node of that memory.
        """
        self.kept[call] = leaf
        if u := self.nodes.get(call):
            keep(u, leaf)

    def over_kept(self, templates: Sequence[UOp]) -> list[UOp]:
        """Templates that are to be computed, with memory in place of what is kept of calls.

        Args:
            templates: the templates.
        """
        known = {call: self.template(leaf) for call, leaf in self.kept.items()}
        key = (len(templates), *templates, *known, *known.values())
        found = _moved[key]
        if found is None:
            made = [_filled(u, self.template, known, _BUFFER) for u in templates]
            # what shows memory would have that of others
            found = _moved[key] = [
                u if u is v or shown(u).op is not _PARAM else u.then(Op.CONTIGUOUS) for u, v in zip(made, templates)
            ]
        return found

    def node(self, template: UOp) -> UOp:
        """The node of a template, as the op would have made it. Raises LookupError where its memory was let go."""
        with EXPANDING:
            found = self.nodes.get(template)
            if found is None:
                if not (mask := mask_of(template)):
                    return template
                if self.retired and not all(map(self.leaves.__getitem__, _bits(mask // FIRST))):
                    raise LookupError(template)  # at once: leaves have many such records
                found = _filled(template, self._leaf, self.nodes)
                for call, leaf in self.kept.items():
                    self.keep(call, leaf)
            # one that was made as a part of another's graph was not seen yet
            self.known[found] = template
            return found

    def _leaf(self, hole: UOp) -> UOp:
        leaf: UOp | None = self.leaves[hole.arg[0]]
        if leaf is None:
            raise LookupError(hole)
        return leaf

    def origins(self, root: UOp) -> list[UOp]:
        """The templates of memory below a template through which gradients go on, each followed by that of its graph.

        Args:
            root: the template.
        """
        out, below, rest, n = [], mask_of(root), list(self.passed), len(self.passed)
        while found := [u for u in rest if mask_of(self.known[u]) & below]:
            rest = [u for u in rest if not mask_of(self.known[u]) & below]
            for u in found:
                made = u.arg.made_by if call_of(u) is None else None
                template = self.moved(made, False) if made.__class__ is Late else None
                if template is None and made is not None and (origin := u.arg.origin) is not None:
                    template = self.learn(origin)
                if template is not None:
                    out += [self.known[u], template]
                    below |= mask_of(template)
            rest += self.passed[n:]  # those that graphs have shown
            n = len(self.passed)
        return out

    def retire(self, ends: bool = True) -> None:
        """Keep only the memory that late tensors need. If it `ends`, it takes no more nodes.

        Late tensors that want gradients get their nodes where a template might become the graph of a later leaf: the
        node of a lazy leaf is another's once it is unused (`Arena.fresh`).
        """
        with EXPANDING:
            needed, live = 0, []
            for r in self.parts:  # they keep no numbering, and are read from their roots again
                if (t := r()) is not None and t.late and t.late.numbering is self:
                    t.late = None
            for r in self.tensors:
                t = r()
                if t is not None and (late := t.late) and late.numbering is self:
                    mask = LEARNED.masks.get(late.template)
                    mask = mask_of(late.template) if mask is None else mask
                    if mask & LEAF and t._wants:
                        LEARNED.leave(late.node_of(t), late.line)
                    else:
                        needed |= mask
                        live.append(r)
            self.retired = ends
            for origin in self.lates:
                if found := origin():
                    needed |= mask_of(found.template)
            leaves, self.leaves = self.leaves, [None] * len(self.leaves)
            for n in _bits(needed // FIRST):
                self.leaves[n] = leaves[n]
            self.known, self.nodes, self.tensors = {}, {}, live

    def asked(self) -> None:
        """Note that a late tensor is used after the numbering ended: captured calls would be computed a second time."""
        for history in self.calls:
            history.missed()

    def let_go(self) -> None:
        """Release all memory that no late tensor needs."""
        with EXPANDING:
            self.retire(False)
            self.nbytes = 0
            for n, u in enumerate(self.leaves):
                if u is not None:
                    template = UOp(_PARAM, u.dtype, (), (n, u.shape), (*self.tag, u.arg.device))
                    self.known[u], self.nodes[template] = template, u
                    self.nbytes += u.arg.size * u.dtype.itemsize
            self.limit = max(_LET_GO, 2 * self.nbytes)


def _filled(template: UOp, fill: Callable[[UOp], UOp], known: Known, op: Op = _PARAM) -> UOp:
    """A template with other nodes in place of its numbers, or of nodes of another op; `known` as for `rebuild`."""
    again = arena().again

    def visit(v: UOp, src: Src) -> UOp:
        if v.op is op:
            return fill(v)
        return v if src == v.src else again(v, src, v.arg)

    return rebuild(template, visit, known)


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Late:
    """The record that a late tensor has in place of a node: its `numbering`, its `template`, and the `line` of the
    user's code that called the op.
    """

    numbering: Numbering
    template: UOp
    line: Line

    def __call__(self) -> UOp:
        """The node of the template."""
        return self.numbering.node(self.template)

    def as_origin(self) -> Late | UOp:
        """The record as a graph of memory; the node where that may be another's later (`retire`)."""
        if has_leaf(self.template):
            return self()
        self.numbering.lates.append(ref(self))
        return self

    def tensor(self, cls: Any, device: str, wants: bool = False) -> Any:
        """A tensor with this record: of class `cls`, on a `device`; whether it `wants` a gradient."""
        t = cls._late(self, device, wants)
        self.numbering.tensors.append(ref(t))
        return t

    def is_used(self) -> bool:
        """True if an op was called with such a tensor: graphs may have its node."""
        return self.template in self.numbering.used

    def node_of(self, t: Handle) -> UOp:
        """The node of the tensor `t`, whose record this is; the tensor keeps it.

        Args:
            t: the tensor.
        """
        with EXPANDING:
            try:
                if t.late is not self:
                    return t.uop  # another thread was faster
                u: UOp = self.numbering.node(self.template)
            except LookupError:
                if t.late is self:
                    raise
                return t.uop  # another thread has computed it
            t.uop, t.late = u, None
            if self.template in self.numbering.used:
                t._used = t._used or self.numbering.seen
            if self.numbering.retired:
                if t._wants and not t._spent:
                    LEARNED.leave(u, self.line)
                LEARNED.carry((self.line,))
                self.numbering.asked()
            else:
                here.plain.append((ref(t), self.line))
            return u


def numbers_of(template: UOp) -> list[int]:
    """The numbers in a template, rising."""
    return _bits(mask_of(template) // FIRST)


def _bits(mask: int) -> list[int]:
    """The positions of the ones in a number of many bits, rising. They are found in its text, which is faster."""
    return list(compress(count(), f"{mask:b}"[::-1].encode().translate(_ONES)))


def lazy_node(t: Handle | None) -> UOp | None:
    """The node of a tensor that is lazy."""
    if t is None or t.late or not t.uop.weak or is_realized(t.uop):
        return None
    return t.uop


# -- whose turn it is -------------------------------------------------------------------------------------------------


def at_once(state: dict[str, Any]) -> bool:
    """True if the ops of the thread with this `state` (`vars(here)`) are to run immediately."""
    return bool(
        not state["defers"]
        or state["derives"]
        or state["recordings"]
        or state["assigned"]
        or state["observers"]
        or state["depth"]
        or state["tracing"]
        or state["in_host_call"]
        or _ARENA.covered
        or rewrite.listening()
    )


def numbering_of(home: Any = None, state: dict[str, Any] | None = None) -> Numbering | None:
    """This thread's numbering; None if ops are not to be remembered. `home` is where one begins: programs that begin
    elsewhere have other templates, whose nodes bear their own lines. `state` is the thread's, where it was found that
    they are late.
    """
    if state is None:
        state = vars(here)
        if at_once(state):
            return None
    n: Numbering | None = state["numbering"]()
    if n is None:
        if not settings.current().replay:
            return None
        n = Numbering(home)
        here.numbering = ref(n)
    elif n.nbytes > n.limit:
        n.let_go()
    return n


_ARENA = arena()


def reset(n: Numbering | None) -> None:
    """Begin a new numbering, since something was computed."""
    noted = [(t, u, line) for r, line in tuple(here.plain) if (u := lazy_node(t := r())) is not None]
    LEARNED.outlived.extend([(ref(u), line) for t, u, line in noted if t._leaf])
    if left := [line for t, _, line in noted if t._wants and t._leaf]:  # nothing may ever read it
        LEARNED.carry(left)
    for t, u, line in noted:
        if not (t._leaf or t._spent):
            LEARNED.leave(u, line)
    here.plain.clear()
    here.open.clear()
    here.computations += 1
    if n and n.apart:
        for t, before, values in n.apart:
            if is_realized(values.uop) and (t.late or t.uop) is before:
                _goes_on(n, t, values.uop)
        n.apart = []
    ended, here.calls = here.calls, []
    for call in ended:
        call.end()
    if n:
        if here.numbering() is n:
            here.numbering = nothing
        n.retire()
        if settings.current().debug and n.tag[1]:
            _tell(n)
    if here.meter:
        here.meter.between()


def _goes_on(n: Numbering, t: Handle, leaf: UOp) -> None:
    """Have the values of a lazy tensor read from a leaf, and its gradient flow through the graph that it had."""
    if late := t.late:
        t.late = Late(n, by_rule("equal", n.template(leaf), late.template), late.line)
    else:
        t.uop = by_rule("equal", leaf, t.uop)


def _tell(n: Numbering) -> None:
    """ANNEAL_DEBUG=1: one line for a loop whose rounds go on making calls anew."""
    home = n.tag[1]
    rounds = _rounds[home] or 0
    if rounds < 0:
        return  # it was told
    _rounds[home] = rounds = rounds + 1 if n.misses else 0
    if rounds == _ROUNDS:
        _rounds[home] = -1
        code, lasti = home
        print(
            f"anneal: a loop without jit makes {n.misses} calls anew in each round ({n.spent * 1e3:.1f} ms, which @jit "
            f"would save), because {n.why} ({line_of(code, lasti)})",
            file=sys.stderr,
        )
