"""Late tensors: results of ops whose nodes are not made, because the same ops were called before.

A loop without jit calls the same ops, on other memory, again and again. A `Numbering` gives each memory that is read
a number in the order of first use; a node with numbers in place of memory is its *template*. Templates are interned
like all nodes, so a call is known by its function, its plain arguments and the templates of its tensors, and the memo
says of which template its result is: nothing is checked, folded or made again. Such a result is *late*: it has a
numbering and a template, and gets its node when somebody asks for it. What realizes late tensors is known by their
templates too: the plan, and which number each of its inputs has (`execution.py`).

Every miss runs as it stands, and is remembered if its result follows from its arguments alone. A function that
assigned, computed, read values, drew random numbers or made data (`here.effects`) is not remembered, nor is one whose
result reads memory that none of its arguments reads.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Protocol
from weakref import ref

import numpy as np

from anneal.backend import Place
from anneal.runtime.context import here, outdate_captures
from anneal.runtime.handle import SEEN, Handle
from anneal.runtime.nodes import is_realized
from anneal.runtime.numbering import (
    LEAF,
    Late,
    Numbering,
    at_once,
    forget_masks,
    forget_templates,
    is_computed_late,
    is_open,
    mask_of,
    numbering_of,
    templates_are_many,
)
from anneal.runtime.numbers import varying
from anneal.runtime.uses import Given, Unknown
from anneal.schedule import WITH_PLANS
from anneal.uop import KINDS, MOVEMENT, WITH_CODES, DType, Op, Recent, UOp, Weighed, arena, kind_of, line_at, toposort

__all__ = ["PLAIN", "become_late", "call", "composite", "forget", "keep_run", "known_run", "register", "tensor_class"]

_MAX_CALLS = 1 << 14  # remembered, and as many older ones
_MAX_MISSES = 1 << 14  # of one numbering: what goes on for so long is no loop
_VIEWS = (Op.PARAM, Op.RESHAPE)  # templates of memory, and of views of it
_NEW = "was not called with such arguments before"
_VIEW = "gives a view of an argument"
PLAIN = frozenset(
    (bool, int, str, type(None), DType, Place, type(Ellipsis))
)  # classes whose values a key has as they are

_ARENA = arena()  # another one is in force only where ops run at once

# what a call gave: `_Entry`s; of composites lists of templates
_calls: Recent[Any, Any] = Recent(_MAX_CALLS, forget_masks)
_runs: Weighed[Any, Any] = Weighed(256, 1 << 17)  # launches that late tensors asked for, by their templates
_classes: dict[type, None] = {}  # of tensors, the first of which is made of data


def register(cls: type) -> None:
    """`cls` is a class of tensors."""
    _classes[cls] = None


def tensor_class() -> Any:
    """The class that tensors are made by, of data."""
    return next(iter(_classes))


def known_run(key: Any) -> Any:
    """The launch that was kept under `key`, or None."""
    return _runs.find(key)


def keep_run(key: Any, run: Any, templates: Sequence[UOp]) -> None:
    """Keep a launch like those that will come, of these templates."""
    _runs.keep(key, run, len(toposort(templates)))


def forget() -> None:
    """Forget all calls and launches."""
    _calls.clear()
    _runs.clear()
    forget_templates()


WITH_PLANS.append(forget)
WITH_CODES.append(forget)


# -- calls ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Entry:
    """The result of a call: tensors of these templates, by the classmethod that makes them, or one of its arguments."""

    one: tuple[Any, ...] | None  # the result of a call that gives a new tensor, and changes nothing
    results: list[tuple[Any, ...]]  # (class, template, requires_grad), or (number of an argument,)
    many: Any  # None for one result; else what makes the nest of tuples and lists of them
    line: tuple[CodeType | None, int]
    # arguments that have another node since, their numbers and templates: of the same values (`Tensor._kept`), or of
    # others, and then with their flags as after an in-place op
    changed: list[tuple[int, UOp, tuple[bool, bool, bool] | None]]
    checks: list[tuple[Any, ...]]  # looks at values that the host has: (function, template, further arguments)
    given: Given | None  # what it was called with, if a gradient may flow through it
    steps: list[Any] | None  # of views of the first argument: the way to each result (`View.step`)


def _make_room() -> None:
    """Forget old calls if templates are many: of large ones fewer calls are remembered."""
    if templates_are_many():
        _calls.turn()


def _append(key: list[Any], tensors: list[Handle], n: Numbering, x: Any) -> bool:
    """Add an argument to the key; False for one of which nothing can be said."""
    cls = x.__class__
    if cls in _classes:
        tensors.append(x)
        late = x.late
        if late is not None and late.numbering is n:
            template = late.template
            n.used.add(template)
        else:
            template = n.of(x)
            if not x._used:
                x._used = SEEN
            if is_open(template):
                return False
        key += (template, x._wants, cls, x._device)
        return True
    if cls in PLAIN:
        key += (cls, x)
        return True
    if cls is float:
        key += (float, x if x else repr(x))  # -0.0 equals 0.0
        return bool(x == x)
    if cls is tuple or cls is list:
        key += (cls, len(x))
        return all(_append(key, tensors, n, y) for y in x)
    if cls is slice:
        key.append(cls)
        return all(_append(key, tensors, n, y) for y in (x.start, x.stop, x.step))
    if isinstance(x, np.generic):
        key += (cls, x.item() or repr(x))
        return bool(x == x)
    return False


def _place() -> tuple[FrameType, int, int]:
    """The user's frame, as nodes would find it (`Arena.add`), or the outermost that was looked at where there is none;
    the id of its code, and of the op that it called."""
    f = sys._getframe(3)
    named = 0
    code = id(f.f_code)
    while f.f_back is not None:
        kind = KINDS.get(code)
        if kind is None:
            kind = kind_of(f)
        if kind != 1:
            if kind != 2:
                return f, code, named
            named = code
        f = f.f_back
        code = id(f.f_code)
    if code not in KINDS:
        kind_of(f)  # codes that have a kind stay, and so do their ids
    return f, code, named


class _Named(Protocol):
    """A function that calls are known by, or something that stands for one."""

    __name__: str


def call(
    function: _Named,
    args: tuple[Any, ...],
    options: dict[str, Any],
    run: Callable[..., Any],
    changes: bool = False,
    refused: Callable[[], None] | None = None,
) -> Any:
    """`run(*args, **options)`, or late tensors with the same values.

    `function` is what it is known by, and is a function of its arguments alone; `run` may look at them first. With
    `changes` it gives its first argument other values. `refused` is called where a call of many ops is not remembered.
    """
    state = vars(here)  # of this thread: it is looked for once
    if at_once(state):
        return _plainly(run, args, options) if refused is None else run(*args, **options)
    f, code, named = _place()
    n = state["numbering"]()
    if n is None or n.nbytes > n.limit:
        n = numbering_of((code, f.f_lasti), state)
        if n is None:
            return _plainly(run, args, options) if refused is None else run(*args, **options)
    at = _ARENA._here
    key: list[Any] = [function, code, f.f_lasti, named, at.phase, at.path, state["grad"], state["wraps"], *options]
    tensors: list[Handle] = []
    ok = True
    for x in (*args, *options.values()) if options else args:
        if not _append(key, tensors, n, x):
            ok = False
            break
    if not ok and tensors:
        return _missed(n, function, run, args, options, line_at(f))
    if not tensors:
        return _plainly(run, args, options)
    if changes and tensors[0]._base is not None and tensors[0]._is_part():
        root = tensors[0]._detached_from()
        if root is None or tensors[0] is not args[0]:
            return _unknown(n, run, args, options)  # another tensor changes too
        _ungraded(state, function, (root, *args[1:]), options, run)
        return args[0]
    if changes:
        key += (tensors[0]._leaf, tensors[0]._spent)
    whole = tuple(key)
    entry = _calls[whole]
    if entry is None and (inputs := getattr(function, "inputs", None)) is not None:
        place = (function, code, f.f_lasti, named, at.path, *[(u.shape, u.dtype) for u in [t._looks for t in tensors]])
        again: Callable[..., Any] = lambda args, options: call(function, args, options, run, changes, refused)
        done = inputs(varying(n, place, whole, _calls), again, args, options)
        if done is not None:
            return done[0]
    if entry is None or (entry.checks and not _hold(n, entry)) or (entry.changed and not _alone(entry, tensors)):
        begun = time.perf_counter()
        result, why = _learn(n, whole, tensors, run, args, options, line_at(f), refused is not None)
        n.missed(begun, f"{function.__name__} {why}")
        if refused is not None and why is not _NEW:
            refused()
            if why is _VIEW:  # who knows of views is the ops that make them
                return run(*args, **options)
        return result
    return _given(n, entry, tensors, run)


def _ungraded(
    state: dict[str, Any], function: _Named, args: tuple[Any, ...], options: dict[str, Any], run: Callable[..., Any]
) -> None:
    """An in-place op under no_grad: what one of `x.data` is to `x`."""
    state["grad"], before = False, state["grad"]
    try:
        call(function, args, options, run, True)
    finally:
        state["grad"] = before


def _alone(entry: _Entry, tensors: list[Handle]) -> bool:
    """True if no tensor that the call changes is a view of another, which would change too."""
    return all(flags is None or not tensors[i]._is_part() for i, _, flags in entry.changed)


def _given(n: Numbering, entry: _Entry, tensors: list[Handle], run: Callable[..., Any]) -> Any:
    """The results of a known call, late; arguments that it changes are changed."""
    device = tensors[0]._device
    if entry.one is not None:
        cls, template, wants = entry.one
        t = cls._late(Late(n, template, entry.line), device, wants)
        r = ref(t)
        n.tensors.append(r)
        if entry.given is not None:
            if len(tensors) == 1:
                x = tensors[0]
                (n.log or n.begin_log()).append((run, entry.given, None if x._leaf else ref(x), r))
            else:
                refs = [None if x._leaf else ref(x) for x in tensors]
                (n.log or n.begin_log()).append((run, entry.given, *refs, r))
        if entry.steps is not None:
            t._part_of(tensors[0], entry.steps[0])
        return t
    out = []
    for made in entry.results:
        if len(made) == 1:
            out.append(tensors[made[0]])
            continue
        cls, template, wants = made
        t = cls._late(Late(n, template, entry.line), device, wants)
        n.tensors.append(ref(t))
        out.append(t)
    if entry.given is not None:
        new = [t for t, made in zip(out, entry.results, strict=True) if len(made) > 1]
        new += [tensors[i] for i, _, flags in entry.changed if flags is not None]
        refs = [None if x._leaf else ref(x) for x in tensors]
        (n.log or n.begin_log()).append((run, entry.given, *refs, *map(ref, new)))
    if entry.steps is not None:
        for t, step in zip(out, entry.steps, strict=True):
            if step is not None:
                t._part_of(tensors[0], step)
    for i, template, flags in entry.changed:
        t = tensors[i]
        if flags is not None:
            if is_computed_late(t) or not is_realized(t.uop):
                outdate_captures("a lazy tensor was assigned")
            here.context.tensors.flags += t._wants is not flags[0]
            t._wants, t._leaf, t._spent = flags
            here.pending[id(t)] = ref(t)
        become_late(t, Late(n, template, entry.line))
        if flags is not None and t._views is not None:
            t._outdate_views()
    return out[0] if entry.many is None else entry.many(iter(out))


def _plainly(run: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The call as it stands; what it calls is part of it."""
    here.defers = False
    try:
        return run(*args, **options)
    finally:
        here.defers = True


def _unknown(n: Numbering, run: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The call as it stands, of which no more is known than that it was made."""
    use = Unknown(n, (args, options))
    outer, here.became = here.became, []
    try:
        result = _plainly(run, args, options)
        use.became = here.became
    finally:
        here.became = outer
    use.end(result)
    return result


def _missed(
    n: Numbering,
    function: _Named,
    run: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    line: tuple[CodeType | None, int],
) -> Any:
    """A call of something that has no template."""
    begun = time.perf_counter()
    try:
        result = _unknown(n, run, args, options)
    finally:
        n.missed(begun, f"{function.__name__} takes no tensor or number, or one with a host_call or a Variable below")
    new = [t for t in (result if isinstance(result, tuple) else (result,)) if isinstance(t, Handle)]
    here.plain.extend([(ref(t), line) for t in new if not t._wants])
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
    n: Numbering,
    key: tuple[Any, ...],
    tensors: list[Handle],
    run: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    line: tuple[CodeType | None, int],
    of_many: bool,
) -> tuple[Any, str]:
    """The call as it stands, remembered if it may be, and why it was to be made: because it is `_NEW` if it is
    remembered. With `of_many` it is one of many ops."""
    use = Unknown(n, tensors)
    result, why = _tried(n, key, tensors, run, args, options, line, of_many, use)
    use.end(result, why is not _NEW and why is not _VIEW)
    return result, why


def _tried(
    n: Numbering,
    key: tuple[Any, ...],
    tensors: list[Handle],
    run: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    line: tuple[CodeType | None, int],
    of_many: bool,
    use: Unknown,
) -> tuple[Any, str]:
    effects = here.effects
    given = [t.uop for t in tensors]
    outer, here.checks, here.became = here.checks, [], []
    try:
        result = _plainly(run, args, options)
        checks, use.became = here.checks, here.became
    finally:
        here.checks, here.became = outer, None
    became = use.became
    # what it does beside giving a result is to give arguments other values, if it does anything
    in_place = {i for i, t in enumerate(tensors) if any(t is x for x in became)}
    if here.effects != effects + len(became) or len(in_place) < len(became) or here.numbering() is not n:
        return result, "reads values, draws numbers or changes a tensor"
    if n.misses > _MAX_MISSES:
        return result, "comes after too many others"
    results: list[Any] = []
    many = _nest(result, results)
    sources = 0
    for u in given:
        sources |= mask_of(n.learn(u))
    found = _described(n, results, tensors, given, sources, of_many)
    if isinstance(found, str):
        return result, found
    changed = _changed(n, tensors, given, in_place, sources)
    if changed is None:
        return result, "reads memory that is no argument of it"
    looks = [(look, n.learn(u), further) for look, u, further in checks]
    steps = [
        None if (link := each._base) is None or len(made) == 1 else link.step for each, made in zip(results, found)
    ]
    new = [(t, made[1]) for t, made in zip(results, found, strict=True) if len(made) > 1]
    new += [(tensors[i], template) for i, template, flags in changed if flags is not None]
    said = None
    if any(t._wants for t, _ in new):
        mine = [i for i, _, flags in changed if flags is not None]
        said = Given(args, options, tensors, [n.learn(u) for u in given], [len(made) > 1 for made in found], mine)
        (n.log or n.begin_log()).append((run, said, *map(ref, tensors), *[ref(t) for t, _ in new]))
    _make_room()
    one = found[0] if many is None and len(found[0]) > 1 and not changed else None
    _calls[key] = _Entry(one, found, many, line, changed, looks, said, steps if any(steps) else None)
    for t, template in new:
        n.nodes[template] = t.uop
        become_late(t, Late(n, template, line))
    return result, _NEW


def _described(
    n: Numbering, results: list[Any], tensors: list[Handle], given: list[UOp], sources: int, of_many: bool
) -> list[tuple[Any, ...]] | str:
    """The results of a call as in `_Entry`, or the reason why it is not remembered."""
    found: list[tuple[Any, ...]] = []
    for each in results:
        same = [i for i, x in enumerate(tensors) if x is each]
        if same:
            found.append((same[0],))
            continue
        if not _is_new(each):
            return "returns something other than new tensors"
        if of_many and _viewed(each.uop) in map(_viewed, given):
            return _VIEW
        template = n.learn(each.uop)
        if mask_of(template) & ~(sources | LEAF) or each._device != tensors[0]._device:
            return "reads memory that is no argument of it"
        found.append((type(each), template, each._wants))
    return found


def _changed(
    n: Numbering, tensors: list[Handle], given: list[UOp], in_place: set[int], sources: int
) -> list[tuple[int, UOp, tuple[bool, bool, bool] | None]] | None:
    """The arguments that a call gave other nodes, as in `_Entry`; None where those read memory that no argument does,
    or show memory, since who else shows it counts there."""
    changed: list[tuple[int, UOp, tuple[bool, bool, bool] | None]] = []
    for i, (t, u) in enumerate(zip(tensors, given, strict=True)):
        if t.uop is not u or i in in_place:
            template = n.learn(t.uop)
            if mask_of(template) & ~(sources | LEAF) or (i in in_place and template.op in _VIEWS):
                return None
            if i in in_place and t._wants and t._leaf and not mask_of(template) & mask_of(n.learn(u)) & ~LEAF:
                return None  # another leaf that takes these values would have this node too
            changed.append((i, template, (t._wants, t._leaf, t._spent) if i in in_place else None))
    return changed


def _is_new(x: Any) -> bool:
    """True if the argument is a tensor as an op gives it."""
    return isinstance(x, Handle) and x.late is None and x._is_plain()


def _viewed(u: UOp) -> UOp:
    """The node below the movements of a node: its values are those that a view shows."""
    while u.op in MOVEMENT:
        u = u.src[0]
    return u


def _nest(result: Any, items: list[Any]) -> Callable[[Iterator[Any]], Any] | None:
    """The function that builds such a result from its items, which it adds to a list; None for an item itself."""
    if not isinstance(result, (tuple, list)):
        items.append(result)
        return None
    parts = [_nest(x, items) for x in result]
    kind = type(result)
    named = hasattr(kind, "_fields")

    def make(items: Iterator[Any]) -> Any:
        inner = [next(items) if part is None else part(items) for part in parts]
        return kind(*inner) if named else kind(inner)

    return make


def become_late(t: Handle, late: Late) -> None:
    """Give a tensor a template in place of its node.

    Args:
        t: the tensor.
        late: the record that takes the place of its node.
    """
    here.effects += 1
    t.late, t._alias = late, None
    try:
        del t.uop
    except AttributeError:  # it was late before
        pass
    late.numbering.tensors.append(ref(t))


# -- what is no op ----------------------------------------------------------------------------------------------------


Computed = tuple[Sequence[UOp | None], Any]  # nodes, and what else is to be known of them


def composite(
    n: Numbering, key: tuple[Any, ...], inputs: Sequence[UOp], compute: Callable[[], Computed | None]
) -> tuple[list[UOp | None], Any] | None:
    """The templates of the nodes that `compute()` gives, which follow from `key` and templates alone, or what it gave
    before; None where they read other memory, or `compute` gave None: it has run then, and had its effects.

    Args:
        n: the numbering of this thread.
        inputs: the templates of the arguments.
    """
    whole = (*key, *inputs)
    known: tuple[list[UOp | None], Any] | None = _calls[whole]
    if known is not None:
        return known
    effects = here.effects
    begun = time.perf_counter()
    computed = _plainly(compute, (), {})
    n.missed(begun, "backward or an optimiser's step was not called on such a graph before")
    if computed is None or here.effects != effects or here.numbering() is not n or any(map(is_open, inputs)):
        return None
    nodes, extra = computed
    sources = 0
    for u in inputs:
        sources |= mask_of(u)
    found: list[UOp | None] = []
    for v in nodes:
        template = None if v is None else n.learn(v)
        if template is not None:
            if mask_of(template) & ~(sources | LEAF):
                return None
            n.nodes.setdefault(template, v)
        found.append(template)
    _make_room()
    _calls[whole] = found, extra
    return found, extra
