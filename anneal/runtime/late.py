"""Late tensors: results of ops whose nodes are not made, because the same ops were called before."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from operator import attrgetter
from typing import Any
from weakref import ref

import numpy as np

from anneal.backend import Place
from anneal.runtime.context import default_device, here, modes, resolve_device
from anneal.runtime.handle import Handle, Handles, emptied, filled, flat, mapped
from anneal.runtime.nodes import CALLS, LEAF, LEARNED, is_open, is_realized, mask_of
from anneal.runtime.numbering import Late, Numbering, at_once, forget_templates, numbering_of
from anneal.runtime.of_memory import OfMemory, Placed, asked, number, takes_whole
from anneal.runtime.together import Together
from anneal.runtime.uses import Args, Given, Options, Run, Unknown, plainly, used_unseen
from anneal.schedule import WITH_PLANS

from anneal.uop import (  # isort: skip
    CODES, MOVEMENT, DType, Line, Nodes, Recent, UOp, Weighed, arena, const, line_at, users_frame,
)  # fmt: skip

_MAX_CALLS = 1 << 14  # remembered, and as many older ones
_MAX_MISSES = 1 << 14  # of one numbering: more misses in a row are no loop
_KIND = attrgetter("shape", "dtype")
_FACTS = LEAF | CALLS  # bits of a mask that tell no number
_NEW = "was not called with such arguments before"
_VIEW = "gives a view of an argument"
_READS = "reads memory that is no argument of it"
_MOST = 1 << 10  # values at one place of the program, after which the place is judged anew
_KINDS = 8  # of answers of one call
_ORDERS = 8  # rounds in which the same numbers came in another order
PLAIN = frozenset(
    (bool, int, str, type(None), DType, Place, type(Ellipsis), Placed)
)  # classes whose values a key has as they are

_ARENA = arena()  # where another arena is in force, ops are not late

# what a call gave: `_Entry`s; of composites lists of templates
_calls: Recent[Any, Any] = Recent(_MAX_CALLS, LEARNED.forget_masks)
# launches that late tensors asked for, by their templates, which weigh as much as they have nodes
RUNS: Weighed[Any, Any] = Weighed(256, 1 << 17)
_CLASSES: dict[type, None] = here.tensors.classes


def register(cls: type) -> None:
    """`cls` is a class of tensors."""
    here.tensors.classes[cls] = None
    here.tensors.classes_or_none.add(cls)


def tensor_class() -> Any:
    """The class of tensors that are made of data."""
    return next(iter(_CLASSES))


def forget() -> None:
    """Forget all calls and launches."""
    _calls.clear()
    RUNS.clear()
    forget_templates()


WITH_PLANS.append(forget)
CODES.also.append(forget)


# -- calls ------------------------------------------------------------------------------------------------------------
# A loop without jit calls the same ops, on other memory, again and again. A `Numbering` gives each memory that is read
# a number in the order of first use; a node with numbers in place of memory is its *template*. Templates are interned
# like all nodes, so a call is known by its function, its plain arguments and the templates of its tensors, and the memo
# says of which template its result is: nothing is checked, folded or made again. Such a result is *late*: it has a
# numbering and a template, and gets its node when somebody asks for it. What realizes late tensors is known by their
# templates too: the plan, and which number each of its inputs has (`execution.py`).
# Every miss runs as it stands, and is remembered if its result follows from its arguments alone. A function that
# assigned, computed, read values, drew random numbers or made data (`here.effects`) is not remembered, nor is one whose
# result reads memory that none of its arguments reads.


Row = tuple[Any, ...]
# an argument by its number, its template, and its flags where it has other values
Change = tuple[int, UOp, tuple[bool, bool, bool] | None]


@dataclass(slots=True)
class _Entry:
    """The result of a call: tensors of these templates, by the class that makes them, or some of its arguments."""

    results: list[Row]  # (number of an argument or None, class, template, requires_grad)
    many: Any  # None for one result; else the nest of them, emptied
    line: Line
    # arguments that have another node since, their numbers and templates: of the same values (`Tensor._kept`), or of
    # others, and then with their flags as after an in-place op
    changed: list[Change]
    checks: list[Row]  # looks at values that the host has: (function, template, further arguments)
    given: Given | None  # what it was called with, if a gradient may flow through it
    steps: list[Any] | None  # of views of the first argument: the way to each result (`View.step`)


def _flattened(args: Sequence[Any], key: list[Any], tensors: list[Handle]) -> bool:
    """Add arguments to the key, and the tensors in them to a list; False where nothing can be said of one."""
    for x in args:
        cls = x.__class__
        if cls in _CLASSES:
            tensors.append(x)
            key += (cls, x._wants, x._device)
        elif cls in PLAIN:
            key += (cls, x)
        elif cls is tuple or cls is list:
            key += (cls, len(x))
            if not _flattened(x, key, tensors):
                return False
        elif cls is slice:
            key.append(cls)
            if not _flattened((x.start, x.stop, x.step), key, tensors):
                return False
        elif cls is float or isinstance(x, np.generic):
            if x != x:
                return False
            key += (cls, (x if cls is float else x.item()) if x else repr(x))  # -0.0 equals 0.0
        else:
            return False
    return True


def call(
    function: Any, args: Args, options: Options, run: Run, changes: bool = False, together: Together | None = None
) -> Any:
    """`run(*args, **options)`, or late tensors with the same values.

    `function` is what it is known by, and is a function of its arguments alone, or stands for one: for a call of many
    ops one with `refuse`, which is called where the call is not remembered. `run` may look at the arguments first. With
    `changes` it gives its first argument other values. Tensors that are read `together` are the last argument.
    """
    state = vars(here)  # of this thread: it is looked for once
    if at_once(state):
        return _as_it_stands(function, run, args, options)
    f, kind, named = users_frame(2)
    code = id(f.f_code)
    n = state["numbering"]()
    if n is None or n.nbytes > n.limit:
        n = numbering_of((code, f.f_lasti), state)
        if n is None:
            return _as_it_stands(function, run, args, options)
    at = _ARENA.here
    modes = state["grad"], state["wraps"], state["autocast"]
    key = [function, code, f.f_lasti, id(named), at.phase, at.path, *modes, *options]
    tensors: list[Handle] = []
    given = args if together is None else args[:-1]
    known = _flattened((*given, *options.values()) if options else given, key, tensors)
    if not tensors and together is None:
        return plainly(run, args, options)
    if changes and tensors[0]._base and tensors[0]._is_part():
        return _changed_by_root(n, function, args, options, run, tensors)
    templates = n.read(tensors) if known else None
    if together is not None and templates is not None:
        templates = together.joined(n, templates, key, tensors)
    if templates is None:
        return _missed(n, function, run, args, options, line_at(f, kind))
    if changes:
        key += (tensors[0]._leaf, tensors[0]._spent)
    key += templates
    whole = tuple(key)
    entry = _calls[whole]
    if entry is None:
        place = (function, code, f.f_lasti, named, at.path, *map(_KIND, templates))
        inputs = getattr(function, "inputs", None) or partial(_of_memory, function, run, changes, whole, templates)
        again = lambda args, options: call(function, args, options, run, changes)
        if done := inputs(partial(varies_at, place, whole), again, args, options):
            return done[0]
    # a tensor that the call changes may be a view of another, which would change too
    others = entry and entry.changed and any(flags and tensors[i]._is_part() for i, _, flags in entry.changed)
    if entry is None or others or (entry.checks and not _hold(n, entry)):
        begun, refuse = time.perf_counter(), getattr(function, "refuse", None)
        result, why = _learn(n, whole, tensors, run, args, options, line_at(f, kind), refuse is not None)
        n.missed(begun, f"{function.__name__} {why}")
        if refuse and why is not _NEW:
            refuse()
            if why is _VIEW:  # who knows of views is the ops that make them
                return run(*args, **options)
        return result
    return _given(n, entry, tensors, run)


def _changed_by_root(n: Numbering, function: Any, args: Args, options: Options, run: Run, tensors: Handles) -> Any:
    """A call that gives a view other values."""
    root = tensors[0]._detached_from()
    if root is None or tensors[0] is not args[0] or (here.grad and any(t._wants for t in tensors)):
        return Unknown(n, (args, options)).made_by(run, args, options)  # another tensor changes too
    with modes(grad=False):
        call(function, (root, *args[1:]), options, run, True)  # what one of `x.data` is to `x`
    return args[0]


def home() -> Any:
    """The place in the program where a numbering begins; nothing where one is in force."""
    if here.numbering() is not None:
        return None
    f, _, _ = users_frame(2)
    return id(f.f_code), f.f_lasti


def _as_it_stands(function: Any, run: Run, args: Args, options: Options) -> Any:
    """The call, where nothing is late. The ops of a call of many see to their views themselves."""
    if here.depth or here.recordings:  # no log has the call
        used_unseen([t for t in flat((args, options)) if isinstance(t, Handle)])
    return run(*args, **options) if hasattr(function, "refuse") else plainly(run, args, options)


def _given(n: Numbering, entry: _Entry, tensors: Handles, run: Run) -> Any:
    """The results of a known call, late; arguments that it changes are changed."""
    device, line = tensors[0]._device, entry.line
    out, new = [], []
    for place, cls, template, wants in entry.results:
        if place is not None:
            out.append(tensors[place])
            continue
        t = cls._late(Late(n, template, line), device, wants)
        out.append(t)
        new.append(ref(t))
    n.tensors += new
    if entry.given:
        if entry.changed:
            new += [ref(tensors[i]) for i, _, flags in entry.changed if flags]
        refs = [None if x._leaf else ref(x) for x in tensors]
        n.note((run, entry.given, refs, new))
    if entry.steps:
        for t, step in zip(out, entry.steps, strict=True):
            if step is not None:
                t._part_of(tensors[0], step)
    for i, template, flags in entry.changed:
        t = tensors[i]
        if flags:
            here.tensors.flags += t._wants is not flags[0]
            t._wants, t._leaf, t._spent = flags
            here.pending[id(t)] = ref(t)
        become_late(t, Late(n, template, line))
        if flags and t._views:
            t._outdate_views()
    return out[0] if entry.many is None else filled(entry.many, iter(out))


def _missed(n: Numbering, function: Any, run: Run, args: Args, options: Options, line: Line) -> Any:
    """A call of something that has no template."""
    begun = time.perf_counter()
    try:
        result = Unknown(n, (args, options)).made_by(run, args, options)
    finally:
        n.missed(begun, f"{function.__name__} takes no tensor or number, or one with a host_call or a Variable below")
    new = [t for t in (result if isinstance(result, tuple) else (result,)) if isinstance(t, Handle)]
    here.plain.extend([(ref(t), line) for t in new if not t._wants])
    # such results do not hold the numbering, and a new one would learn the graph below them again, at each call
    here.open += [ref(t, lambda _: n) for t in new]
    return result


def _hold(n: Numbering, entry: _Entry) -> bool:
    """True if the values that the host has pass the checks that the call makes of them."""
    try:
        for look, template, further in entry.checks:
            look(further[0], n.node(template), *further[1:])
    except Exception:  # the call itself raises it again, in its own words
        return False
    return True


def _learn(
    n: Numbering, key: Row, tensors: Handles, run: Run, args: Args, options: Options, line: Line, of_many: bool
) -> tuple[Any, str]:
    """The call as it stands, remembered if it may be, and why it was to be made: because it is `_NEW` if it is
    remembered. With `of_many` it is one of many ops."""
    use, effects, given = Unknown(n, tensors), here.effects, [t.uop for t in tensors]
    checks: list[Any] = []
    with modes(checks=checks):
        result = use.made_by(run, args, options, False)
    results, many = flat(result), None if isinstance(result, Handle) else emptied(result)
    # its only effects are the changes of its arguments
    in_place = {i for i, t in enumerate(tensors) if any(t is x for x in use.became)}
    pure = here.effects == effects + len(use.became) and len(in_place) == len(use.became) and here.numbering() is n
    found: Any = "reads values, draws numbers or changes a tensor"
    if pure:
        sources = _FACTS
        for u in given:
            sources |= mask_of(n.learn(u))
        found = _described(n, results, tensors, given, sources, of_many)
    changed = None if isinstance(found, str) else _changed(n, tensors, given, in_place, sources)
    use.end(result, changed is None and found is not _VIEW)
    if changed is None:
        return result, found if isinstance(found, str) else _READS
    looks = [(look, n.learn(u), further) for look, u, further in checks]
    links = [None if made[0] is not None else each._base for each, made in zip(results, found, strict=True)]
    steps = [None if link is None else link.step for link in links]
    new = [(t, made[2]) for t, made in zip(results, found, strict=True) if made[0] is None]
    new += [(tensors[i], template) for i, template, flags in changed if flags]
    said = None
    if any(t._wants for t, _ in new):
        mine = [i for i, _, flags in changed if flags]
        said = Given(args, options, tensors, [n.learn(u) for u in given], [made[0] is None for made in found], mine)
        n.note((run, said, list(map(ref, tensors)), [ref(t) for t, _ in new]))
    _keep(key, _Entry(found, many, line, changed, looks, said, steps if any(steps) else None))
    for t, template in new:
        n.nodes[template] = t.uop
        become_late(t, Late(n, template, line))
    return result, _NEW


def _keep(key: Row, entry: Any) -> None:
    """Remember a call. Where templates are many, older calls are forgotten: of large ones fewer are remembered."""
    if len(LEARNED.masks) >= LEARNED.most_masks:
        _calls.turn()
    _calls[key] = entry


def _described(
    n: Numbering, results: list[Any], tensors: Handles, given: Nodes, sources: int, of_many: bool
) -> list[Row] | str:
    """The results of a call as in `_Entry`, or the reason why it is not remembered."""
    if n.misses > _MAX_MISSES:
        return "comes after too many others"
    found: list[Row] = []
    for each in results:
        same = [i for i, x in enumerate(tensors) if x is each]
        if same and of_many and each.uop is given[same[0]]:
            return _VIEW  # an argument that is as it was: the op knows whether that is to be its result
        if same:
            found.append((same[0], None, None, None))
            continue
        if not (isinstance(each, Handle) and each.late is None and each._is_plain()):
            return "returns something other than new tensors"
        if of_many and _viewed(each.uop) in map(_viewed, given):
            return _VIEW
        template = n.learn(each.uop)
        if mask_of(template) & ~sources or each._device != tensors[0]._device:
            return _READS
        found.append((None, type(each), template, each._wants))
    return found


def _changed(n: Numbering, tensors: Handles, given: Nodes, in_place: set[int], sources: int) -> list[Change] | None:
    """The arguments that a call gave other nodes, as in `_Entry`; None where those read memory that no argument does,
    or show memory, since who else shows it counts there."""
    changed = []
    for i, (t, u) in enumerate(zip(tensors, given, strict=True)):
        if t.uop is not u or i in in_place:
            template = n.learn(t.uop)
            if mask_of(template) & ~sources or (i in in_place and is_realized(t.uop)):
                return None
            if i in in_place and t._wants and t._leaf and not mask_of(template) & mask_of(n.learn(u)) & ~_FACTS:
                return None  # another leaf that takes these values would have this node too
            changed.append((i, template, (t._wants, t._leaf, t._spent) if i in in_place else None))
    return changed


def _viewed(u: UOp) -> UOp:
    """The node below the movements of a node: its values are those that a view shows."""
    while u.op in MOVEMENT:
        u = u.src[0]
    return u


def become_late(t: Handle, late: Late) -> None:
    """Give a tensor a template in place of its node.

    Args:
        t: the tensor.
        late: the record that takes the place of its node.
    """
    here.effects += 1
    if t._leaf and t._wants:
        t._note_earlier()
        t._used = 0
    t.late, t._alias = late, None
    try:
        del t.uop
    except AttributeError:  # it was late before
        pass
    late.numbering.tensors.append(ref(t))


# -- what is no op ----------------------------------------------------------------------------------------------------


Computed = tuple[Sequence[UOp | None], Any]  # nodes, and what else is to be known of them


def composite(
    n: Numbering, key: Row, inputs: Nodes, compute: Callable[[], Computed | None]
) -> tuple[list[UOp | None], Any] | None:
    """The templates of the nodes that `compute()` gives, which follow from `key` and templates alone, or what it gave
    before; None where they read other memory, or `compute` gave None: it has run then, and had its effects.

    Args:
        n: the numbering of this thread.
        inputs: the templates of the arguments.
    """
    whole = (here.autocast, *key, *inputs)
    known: tuple[list[UOp | None], Any] | None = _calls[whole]
    if known:
        return known
    effects = here.effects
    begun = time.perf_counter()
    computed = plainly(compute, (), {})
    n.missed(begun, "a captured call, backward or an optimiser's step was not made on such a graph before")
    if computed is None or here.effects != effects or here.numbering() is not n or any(map(is_open, inputs)):
        return None
    nodes, extra = computed
    sources = _FACTS
    for u in inputs:
        sources |= mask_of(u)
    found = [None if v is None else n.learn(v) for v in nodes]
    if any(u is not None and mask_of(u) & ~sources for u in found):
        return None
    for template, node in zip(found, nodes, strict=True):
        if template is not None and node is not None:
            n.nodes.setdefault(template, node)
    _keep(whole, (found, extra))
    return found, extra


# -- numbers that vary ------------------------------------------------------------------------------------------------
# What Python gives an op anew in each round of a loop is an input of the plan, and no part of it. A number in a call is
# a constant at first, and folds. If a call at the same place, of tensors of the same shapes, has a number that no
# earlier round had, or known ones in ever other orders, the numbers of that place vary: from now on each is memory of
# one element, so that the call has one template whatever they are. An op says which of its arguments may be that: by
# its `inputs` (`ops/inputs.py`).

Varies = Callable[[Any, Any], bool]  # whether what stands at a place of a call varies, which is this now


class _Site:
    """A place in a program that gives a number: the values of the round that runs and of those before."""

    def __init__(self) -> None:
        self.begin()

    def begin(self, varies: bool = False) -> None:
        """Nothing is known of it, but for whether it varies."""
        self.last = -1  # the round that runs, by how much was computed before
        self.now: set[Any] = set()
        self.seen: set[Any] = set()
        self.rounds = 0  # in which a call here was made anew
        self.calls: list[Any] = []  # the keys of calls that are remembered with values as constants
        self.varies = varies

    def meets(self, value: Any, key: Any) -> bool:
        """True if the numbers here begin to vary; `value` is the one of the call that has this key."""
        if len(self.calls) > _MOST:
            self.begin()
        if self.last != here.computations:
            self.seen |= self.now
            self.now, self.last = set(), here.computations
            self.rounds += 1
        if (self.seen and value not in self.seen) or (key and self.rounds > _ORDERS and len(self.seen) > 1):
            for call in self.calls:
                _calls.pop(call, None)
                _calls.older.pop(call, None)
            self.begin(True)
            return True
        self.now.add(value)
        self.calls.append(key)
        return False


def varies_at(place: Row, key: Any, slot: Any, value: Any) -> bool:
    """True if what stands at a place of a call varies.

    Args:
        place: where the call stands, and what its tensors are like; `slot` is the place in the call.
        key: what the call is known by with its numbers as constants; None if it is looked at in each round.
        value: what stands there now.
    """
    at = (_Site, slot, *place)
    site = _calls[at]
    if site is None:
        site = _calls[at] = _Site()
    return site.varies or bool(site.meets((value.__class__, value), key))


def made_number(value: Any, dtype: DType, device: str | None, slot: str = "") -> UOp:
    """The node of a number that a program makes a tensor of, of shape (): a constant, or memory if it varies.

    Args:
        value: the number.
        dtype: that of the tensor.
        device: its device; None is the default one.
        slot: which of the numbers of a call it is.
    """
    u = const(dtype, value)
    # a sum of larger integers of 32 bits is int64 if it is known not to fit those
    least = 52 if dtype.is_float or dtype.bits > 32 else 15
    if at_once(vars(here)) or dtype.kind == "bool" or not abs(u.arg) < 1 << least:
        return u
    f, _, named = users_frame(2)
    place = id(f.f_code), f.f_lasti, named, _ARENA.here.path, dtype
    if not varies_at(place, None, (made_number, slot), u.arg):
        return u
    return number(value, dtype, default_device() if device is None else resolve_device(device))


# An op that says nothing of its numbers is run once with a `Varying` for each that varies: what it makes memory of then
# is an input of its calls, and what it asks is a part of what they are known by. One that only asks is run with the
# numbers themselves.


def _of_memory(
    op: Any, run: Run, changes: bool, whole: Row, templates: Nodes, varies: Varies, _: Any, args: Args, options: Options
) -> tuple[Any] | None:
    """The result with memory for numbers that vary; None where none does, or where the op would only ask for them."""
    if isinstance(op, OfMemory) or hasattr(op, "refuse"):
        return None
    values = []
    tensors: list[Any] = []
    slots, named = count(), takes_whole(op)

    def placed(x: Any, takes: bool) -> Any:
        if x.__class__ is tuple or x.__class__ is list:
            return mapped(x, partial(placed, takes=takes))
        integer = takes and x.__class__ is not bool and isinstance(x, (int, np.integer))
        if not (integer or isinstance(x, (float, np.floating))) or not varies(next(slots), x):
            return x
        values.append(int(x) if integer else float(x))
        return Placed(len(values) - 1)

    given = []  # by a loop: a list comprehension is a call
    for n, x in enumerate(args):
        given.append(x if isinstance(x, Handle) else placed(x, n in named))
    options = {name: placed(x, name in named) for name, x in options.items()} if options else options
    key = [OfMemory, *whole[: 9 + len(options)], *map(type, values)]
    if not values or not _flattened((*given, *options.values()), key, tensors):
        return None
    at = (*key, *templates)
    kinds = _calls[at] or ()
    try:
        for each in kinds:
            if not each.asked or each.hold(values):
                break
        else:
            if len(kinds) == _KINDS:
                return None
            each = asked(op, run, changes, values, given, options)
            _calls[at] = (*kinds, each)
        memory = each.memory(values, tensors[0])
    except Exception:  # the call itself raises it again, in its own words
        return None
    return (call(each, (*given, *memory), options, partial(each.run, run), changes),) if memory else None
