"""`Tensor.backward()`, as in PyTorch (`transforms` has JAX's functions over functions): a door to the pass in
`walks.py`, which writes the adjoint nodes into the result's graph by the rules of `gradient.upat`. Nothing is computed
until a gradient is realised."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from anneal import runtime
from anneal.errors import GradientError, ShapeError
from anneal.names import Tensor
from anneal.ops import checked, is_tensor
from anneal.ops.nodes import reshape, spread
from anneal.runtime import Inside, Late, Numbering, base_of, call_of, has_leaf, here, is_realized, shown, storage_of
from anneal.schedule import BUILDING
from anneal.transforms.hooks import after_accumulation, hooked, releasing, retains_grad, set_apart
from anneal.transforms.trace import leaf_nodes, leaves
from anneal.transforms.walks import STOPS, added, backward_phase, ended, gradient as gradient_of, is_own, number_of
from anneal.uop import Nodes, Op, Some, Src, UOp, const, toposort

if TYPE_CHECKING:
    from anneal.transforms.captured import PendingCall

Live = list[tuple[Tensor, Src]]  # leaves with their nodes
Seen = list[tuple[Tensor, UOp, UOp]]  # leaves, each with a node and its template
_KEPT = 64
_BUFFER, _RESHAPE = Op.BUFFER, Op.RESHAPE
_TOGETHER = 4  # captured calls whose gradients are computed together


def regraded(t: Tensor, u: UOp) -> Tensor:
    """The gradient of `t`, whose values become those of `u` in place, as in torch; a new tensor where there is none, or
    where a gradient flows through it.
    """
    g = t.grad if t.is_leaf else t._grad  # reading `grad` of a tensor that is no leaf warns
    if g is None or g._wants:
        return t._new_plain(u)
    g._become(u)
    return g


def zero_gradient(t: Tensor) -> None:
    """Set the gradient of `t` to zeros if there is one. One that stays inside a jit function is not read for that."""
    old: Any = t._grad
    if old is not None:
        inside = isinstance(old, Inside)
        g = t if inside else old
        zeros = spread(const(g.dtype, 0), g.shape)
        t.grad = t._new_plain(zeros) if inside else regraded(t, zeros)


@checked
def backward(
    result: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the gradient of `result` to the `.grad` of every leaf it depends on.

    The gradients are lazy: they are computed when realised, best together with the loss and the optimiser's update.

    Args:
        result: a float tensor, of one element unless `gradient` is given.
        gradient: what to multiply the result with before summing; same shape. Default 1.
        retain_graph: allow a later backward from the same tensor; None is `create_graph`.
        create_graph: whether gradients flow through what is added to `.grad`.
        inputs: the tensors whose `.grad` is added to, and no other's; None for every leaf.

    Raises:
        GradientError: no leaf is reached, the result has several elements and no `gradient`,
            or this tensor's backward has been taken already.
        ShapeError: `gradient` has another shape.

    >>> from anneal.tensor import Tensor
    >>> w = Tensor([1.0, 2.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> w.grad
    Tensor([2., 4.], dtype=float32)
    """
    backward_of([result], [gradient], retain_graph, create_graph, inputs)


def backward_of(
    results: list[Tensor], gradients: Sequence[Any], retain_graph: bool | None, create_graph: bool, inputs: Any
) -> None:
    """`backward` of several results at once: a function of the user's, or a hook, on the way from several is called
    once.

    Args:
        results: the tensors. gradients: what to multiply each with.
        retain_graph, create_graph, inputs: as for `backward`.
    """
    retain = create_graph if retain_graph is None else retain_graph
    seeds = list(map(seed, results, gradients))
    for t in results:
        _check(t)
    # one thread at a time: gradients of one leaf from several threads add up, and no capture records another thread's
    # work
    effects, first, far = here.effects, results[0], here.tensors.moved or len(results) > 1  # several devices
    with BUILDING, releasing(retain, create_graph, inputs is None):
        passed: list[Any] = []
        for t in results:
            passed += runtime.passed_calls(t)
        live = [t for t in (leaves() if inputs is None else _list(inputs)) if far or t._device == first._device]
        numbering = None if create_graph or not all([t._leaf for t in live]) else runtime.numbering_of()  # noqa: C419
        reached = None if numbering is None else _known(numbering, results, seeds, live, retain)
        if not reached and (reached is None or here.effects == effects):
            pairs = [(t.uop, c.uop) for t, c in zip(results, seeds)]
            reached = _added(first if create_graph else None, pairs, _nodes_of(live, results))
    if not reached and here.effects == effects and (inputs is None or not live):
        raise GradientError(
            f"backward: no gradient flows from {_text(first)} to a leaf: every path passes detach(), an integer or a "
            f"comparison, or the leaf was freed since"
        )
    _call_after()
    if not retain:
        for call in passed:
            call.spend()
        for result in results:
            if here.recordings:
                here.recordings[-1].note_passed(result)
            result._spent = not result._leaf
            # a list of losses must not keep every step's graph and parameters alive
            if result._spent and result.late is None and (memory := storage_of(result.uop)) is not None:
                memory.made_by, memory.spent = None, True
            here.backwards.append(weakref.ref(result))
        del here.backwards[:-_KEPT]


def _call_after() -> None:
    """Call, once each, what leaves' hooks have put behind this pass."""
    waiting, here.after_backward = here.after_backward, []
    for call in waiting:
        call()


def _nodes_of(leaves: list[Tensor], results: list[Tensor], below: Any = None) -> Live:
    """The leaves that graphs may have, with their nodes; of earlier ones that are memory those that may be `below` the
    results. Raises GradientError for two leaves of one node."""
    own = [
        (t, (t.uop,) if t._alias is None else leaf_nodes(t))
        for t in leaves
        # no graph reads the present value of a late leaf that no op was called with
        if t.late is None or t.late.is_used() or id(t) in map(id, results)
    ]
    changed = runtime.earlier_nodes(leaves, below)
    several = [n for _, group in own for n in group]
    if not changed and len(set(several)) == len(several):
        return own
    owners: dict[UOp, Tensor] = {}
    for t, group in own:
        for n in group:
            if owners.setdefault(n, t) is not t:
                raise GradientError(
                    "backward: two leaves show the same value of another tensor and cannot be told apart; "
                    "make one of them a copy, as in Tensor(x.numpy(), requires_grad=True)"
                )
    live = {id(t): (t, group) for t, group in own}
    for t, n in changed:
        if owners.setdefault(n, t) is t:  # the node may be another leaf's by now
            live[id(t)] = t, (*live.get(id(t), (t, ()))[1], n)
    return list(live.values())


def _list(inputs: Tensor | Sequence[Tensor]) -> list[Tensor]:
    several = [inputs] if is_tensor(inputs) else list(inputs)
    for t in several:
        if not t.requires_grad:
            raise GradientError(f"backward: an input of shape {t.shape} requires no gradient")
    set_apart(several)
    return several


def _added(through: Tensor | None, seeds: Sequence[tuple[UOp, UOp]], live: Live) -> bool:
    """Add the gradients to those of the leaves, given the cotangents of some nodes; whether there is one. Those of a
    result that gradients are to flow `through` want gradients themselves."""
    made = [(t, g) for (t, _), g in zip(live, of_several(seeds, live)) if g is not None]
    # gradients of captured calls are in memory: they are added at once, not when all of them are there
    sums = [t._grad for t, g in made if is_own(g) and t._grad is not None and not isinstance(t._grad, Inside)]
    if any(not is_realized(g.uop) for g in sums):
        runtime.realize(sums)
    for t, g in made:
        if retains_grad(t, True):
            continue
        g = hooked(t, g, True)
        if isinstance(t._grad, Inside) and (not here.recordings or t._grad.value is None):
            t._grad = Inside()  # the sum stays there, too
            for recording in here.recordings[-1:]:
                recording.note_grad(t, t._grad)
            continue
        before = t.grad if t.is_leaf else t._grad
        total = g if before is None else before.uop + g
        t.grad = regraded(t, ended(total)) if through is None else t._new(total, through)
        after_accumulation(t)
    return bool(made)


def of_several(seeds: Sequence[tuple[UOp, UOp]], live: Live) -> list[UOp | None]:
    """The gradient of each of some tensors, which may stand on the way to each other.

    Args:
        seeds: as for `gradient`. live: the tensors, with their nodes.
    """
    nodes = [n for _, group in live for n in group]
    through = {base_of(n) for t, group in live for n in group if not t._leaf} if len(nodes) > 1 else ()
    found = iter(gradient_of(seeds, nodes, through))
    several = [[g for g in [next(found) for _ in group] if g is not None] for _, group in live]
    return [added(gs) if gs else None for gs in several]


def taken(results: list[Tensor], seeds: list[Tensor], leaves: list[Tensor]) -> list[Tensor | None] | None:
    """The gradients of leaves, where they follow from templates; None where they do not. Nothing is added.

    Args:
        results: what they are gradients of. seeds: the cotangents of these.
        leaves: tensors; for one with hooks, or that is no leaf, the answer is None.
    """
    numbering = runtime.numbering_of()
    if numbering is None or [t for t in leaves if not t._leaf or id(t) in here.tensors.hooked]:
        return None
    found: Any = _known(numbering, results, seeds, leaves, True, 0)
    return None if found is None else [found.get(id(t)) for t in leaves]


def _known(
    numbering: Numbering, results: list[Tensor], seeds: list[Tensor], leaves: list[Tensor], retain: bool, adds: Any = 1
) -> Any:
    """`_added` where the gradients' nodes follow from templates; None where they do not, and nothing was added.

    The gradients of a captured call do, with what it keeps. Of several calls the cotangents of the results do, which
    are computed then, with the result itself.
    """
    result, both = results[0], numbering.all_of([*results, *seeds])
    roots, holes, origins = both[: len(results)], list[UOp](), list[UOp]()
    for root in roots:
        origins += numbering.origins(root)
    known = numbering.known
    calls: dict[UOp, PendingCall] = {}
    joined: list[PendingCall] = []
    if numbering.passed:
        calls = _calls_below(numbering, roots, origins)
        joined = _joined(calls, (*both, *origins), leaves)
        holes = numbering.templates([u for call in joined for u in call.memory()])
    seen = _in_memory(numbering, leaves) or _seen(numbering, (*roots, *origins), _nodes_of(leaves, results, known))
    hooks = here.tensors.hooked
    if (
        (hooks and any(id(t) in hooks and (calls or t._hooks.before) for t, _, _ in seen))
        or Inside in [type(t._grad) for t, _, _ in seen]
        or len({id(t) for t, _, _ in seen}) < len(seen)
        or (calls and not (adds and (joined or _calls_no_python(numbering.leaves))))
    ):
        return None
    ends, ways = [] if joined else list(calls), []
    inputs = [*both, *holes, *[u for _, _, u in seen], *map(known.__getitem__, ends), *origins]
    if joined:
        ways = [(known[u], u.arg.origin.arg, joined.index(call)) for u, call in calls.items()]
        ways += [way for call in joined for way in call.ways(joined)]
    key = (backward, adds, here.every, len(roots), len(origins), *ways, *[n.shape for _, n, _ in seen])
    made: list[UOp | None] = []

    def compute() -> tuple[list[UOp | None], list[Any]]:
        with ExitStack() as stack:
            for call in joined:
                stack.enter_context(call.joined())
            us = map(numbering.node, both) if here.numbering() is numbering else [t.uop for t in (*results, *seeds)]
            nodes: list[Any] = list(us)
            grads = gradient_of(list(zip(nodes, nodes[len(results) :])), [*[n for _, n, _ in seen], *ends])
        before = [t._grad if adds else None for t, _, _ in seen]
        nodes = [None if g is None else ended(g if old is None else old.uop + g) for g, old in zip(grads, before)]
        # cotangents in the shape in which they are computed
        made[:] = [*nodes, *[None if g is None else shown(g) for g in grads[len(seen) :]]]
        return made, [None if u is None else u.provenance[1:3] for u in made]

    found = _in_parts(numbering, key, inputs, compute, seen if adds else [])
    if not adds and found is None:
        return {id(t): t._new_plain(u) for (t, _, _), u in zip(seen, made) if u is not None}
    if not adds:
        rows = [(t, u, line) for (t, _, _), u, line in zip(seen, *found) if u is not None]
        return {id(t): Late(numbering, u, line).tensor(t._made, t._device) for t, u, line in rows}
    given = _computed(made, seen, result) if found is None else _given(numbering, seen, found[0], found[1], result)
    for call in [] if retain else joined:
        call.joined_for_good()
    reached = (made if found is None else found[0])[: len(seen)].count(None) < len(seen)
    return _through(results, ends, given, _nodes_of(leaves, results), retain) or reached if ends else reached


def _calls_no_python(leaves: Sequence[UOp | None]) -> bool:
    """False if a function of Python has a derivative there: before a captured call whose gradients are taken by
    themselves it would be called for parts of a sum."""
    return all(u is None or (d := u.arg.derivative) is None or d.captured for u in leaves)


def _in_parts(numbering: Numbering, key: Any, inputs: list[UOp], compute: Callable[[], Any], seen: Seen) -> Any:
    """The answer of `composite`, in parts; None where one does not follow, or a function computed something: `compute`
    has run then.

    A part ends where a function of Python is called, with late tensors, and the next one follows from it and from what
    the function gave. The last one has gradients, added to those that are there by then.
    """
    answers: dict[UOp, list[Any]] = {}  # what functions gave, by the tokens of their calls
    noted: list[Any] = []  # parts that a walk has shown

    def answer(token: Any, below: Nodes, given: Some) -> Some | None:
        if token not in answers:
            nodes = [*below, *[g if g is None else ended(g) for g in given]]
            templates = [u if u is None else numbering.learn(u) for u in nodes]
            if here.numbering() is not numbering or any(map(runtime.is_open, filter(None, templates))):
                return None
            noted.append((nodes, numbering.known[token]))
            effects = here.effects
            answers[token] = token.arg.derivative.late(numbering, templates)
            here.effects = effects  # those of the function are no part's
        return [c if c is None else c.uop for c in answers[token]]

    def part() -> Any:
        if not noted:
            with runtime.modes(answer=answer):
                noted.append(compute())
        return noted.pop(0)

    while True:
        before = [t._grad for t, _, _ in seen]
        graded = numbering.all_of([g for g in before if g is not None])
        found = runtime.composite(numbering, (*key, *[g is None for g in before]), [*inputs, *graded], part)
        if found is None or found[1].__class__ is list:
            here.effects += len(answers)  # functions were called, though no leaf may have a gradient
            return found
        templates, hole = found
        token: Any = numbering.leaves[hole.arg[0]]
        if token not in answers:
            with backward_phase():
                answers[token] = token.arg.derivative.late(numbering, templates)
        if here.numbering() is not numbering:
            part()
            return None
        key = (*key, hole)
        inputs = [*inputs, *[hole if c is None else numbering.of(c) for c in answers[token]]]


def _in_memory(numbering: Numbering, leaves: list[Tensor]) -> Seen | None:
    """`_seen` of leaves whose nodes are memory; None where nodes that they had before may be below."""
    for t in leaves:
        if t.late is not None or t._alias is not None:
            return None
    nodes = [t.uop for t in leaves]
    flats = [n.src[0] if n.op is _RESHAPE else n for n in nodes]
    if len(set(nodes)) < len(nodes) or [n for n in flats if n.op is not _BUFFER]:
        return None
    if any(u is None or u.arg.noted for u in set(numbering.leaves).difference(flats)) or runtime.lazily_earlier(leaves):
        return None
    templates = map(numbering.known.get, flats)
    return [row for row in zip(leaves, nodes, templates, strict=True) if row[2] is not None]  # type: ignore[misc]


def _seen(numbering: Numbering, roots: Nodes, live: Live) -> Seen:
    """The leaves that may be below templates, each with a node and its template."""
    known, found, earlier = numbering.known, [], []
    for t, group in live:
        for n in group:
            base = n.src[0] if n.op is _RESHAPE and n.src[0].op is _BUFFER else n  # `base_of`
            if n is t._alias or (t.late is None and n is t.uop):
                # memory that the numbering has not seen is not below; a lazy leaf may be there as a part of a graph
                if base in known or (base.op is not _BUFFER and (base.tag is None or any(map(has_leaf, roots)))):
                    found.append((t, n, known[base] if base in known else numbering.learn(n)))
            # of a leaf that is changed and not used there are no two nodes below, and a loop has one key
            elif base in known or not any(u.op is _BUFFER and u not in known for u in toposort(n)):
                earlier.append((t, n, known[base] if base in known else numbering.learn(n)))
    if earlier:
        ends = {u for _, _, u in found}
        below = {
            *toposort(roots, sources=lambda u: () if u in ends or u.op in STOPS or runtime.is_lazy_leaf(u) else u.src)
        }
        found += [row for row in earlier if row[2] in below]
    return found


def _joined(calls: dict[UOp, PendingCall], key: Any, live: list[Tensor]) -> list[PendingCall]:
    """The captured calls below a result, where their gradients are to be computed with what is made of them; none where
    they are computed by themselves, as those of many calls are, or where gradients go on through other memory."""
    found: dict[int, PendingCall] = {}
    rest = list(calls.values())
    while rest:
        call = rest.pop()
        if id(call) not in found:
            found[id(call)] = call
            if call.alone:
                return []
            passed = [call_of(u) for u in call.inputs() if u.arg.made_by is not None]
            if len(found) > _TOGETHER or None in passed:
                return []
            rest += passed
    graded = {base_of(n) for t in live if found and _is_pending(t._grad) for n in leaf_nodes(t)}
    several = list(found.values())
    return several if all([call.joins((key, n), graded) for n, call in enumerate(several)]) else []  # noqa: C419


def _is_pending(grad: Any) -> bool:
    """True for a gradient that is not computed yet, and keeps the memory of its captured calls."""
    return grad is not None and (isinstance(grad, Inside) or grad.late is not None or not is_realized(grad.uop))


def _computed(made: Some, seen: Seen, result: Tensor) -> list[Tensor | None]:
    """`_given` for nodes that are computed now, so that the hooks and functions in their graphs are not called a second
    time.
    """
    for (t, _, _), u in zip(seen, made):
        if u is not None:
            t.grad = regraded(t, u)
            after_accumulation(t)
    return [None if u is None else result._made._from_uop(u, result._device) for u in made[len(seen) :]]


def _given(
    numbering: Numbering, seen: Seen, templates: Sequence[Any], lines: Sequence[Any], result: Tensor
) -> list[Tensor | None]:
    """Give the leaves their gradients, late; the others of the templates are the cotangents that are returned."""
    rows = [None if u is None else Late(numbering, u, line) for u, line in zip(templates, lines, strict=True)]
    hooked = bool(here.tensors.hooked)  # where there is no hook, none adds one
    for (t, _, _), late in zip(seen, rows):
        if late is not None:
            grad = t._grad
            if grad is None or grad._wants or grad._is_part():
                t._grad = late.tensor(t._made, t._device)
            else:
                runtime.become_late(grad, late)
                if grad._views is not None:
                    grad._outdate_views()
            if hooked:
                after_accumulation(t)
    return [None if late is None else late.tensor(result._made, result._device) for late in rows[len(seen) :]]


def _calls_below(numbering: Numbering, roots: Nodes, origins: Nodes) -> dict[UOp, PendingCall]:
    """The memory below templates that is a result of a captured call, with the call; what a gradient goes on through
    has the graphs of `origins`."""
    graphs = dict(zip(origins[::2], origins[1::2], strict=True))
    found: dict[UOp, PendingCall] = {}
    seen: set[UOp] = set()
    rest = [*roots]
    while rest:
        for u in map(numbering.leaves.__getitem__, runtime.numbers_of(rest.pop())):
            if u is not None and u not in seen:
                seen.add(u)
                if (call := call_of(u)) is not None:
                    found[u] = call
                elif (graph := graphs.get(numbering.known[u])) is not None:
                    rest.append(graph)
    return found


def _through(results: list[Tensor], calls: Nodes, given: list[Tensor | None], live: Live, retain: bool) -> bool:
    """Add the gradients that go through captured calls, given the cotangents of their results; whether there is one."""
    there = [(u, c) for u, c in zip(calls, given, strict=True) if c is not None]
    lazy = [c for _, c in there if number_of(c._looks) is None and (c.late is not None or not is_realized(c.uop))]
    if lazy:
        if not retain:
            for result in results:
                result._spent = True  # it needs no graph any more
            lazy += results
        runtime.realize(lazy)
    return _added(None, [(u, reshape(c.uop, u.shape) if c.shape else c.uop) for u, c in there], live)


def _check(result: Tensor) -> None:
    """Raise GradientError where no gradient of `result` can be taken, or where it was taken before."""
    if result._spent:
        raise GradientError(
            "backward: called a second time on the same result, which would add every gradient twice; "
            "use backward(retain_graph=True) the first time if that is meant, or compute the result again"
        )
    if not result._wants:
        raise GradientError(
            f"backward: {_text(result)} depends on no tensor with requires_grad=True; set it on the tensors whose "
            "gradient you want before computing with them (a result made inside no_grad() or after detach() has no "
            "gradient either)"
        )
    if here.in_host_call:
        raise GradientError(
            "backward: called inside a function of host_call, which gets arrays and computes no tensors"
        )


def take_results() -> list[Tensor]:
    """The live tensors whose backward was taken since the last call: an optimiser computes them with its step."""
    out = [t for r in here.backwards if (t := r()) is not None]
    here.backwards.clear()
    return out


def _text(t: Tensor) -> str:
    return f"the result (shape {t.shape}, {t.dtype.name})"


def seed(result: Tensor, cotangent: Tensor | None, name: str = "backward(gradient=...)") -> Tensor:
    """The cotangent of a result, which is 1 where none is given.

    Args:
        result: the result. cotangent: what was given. name: of that, for messages.
    """
    u = result._looks
    if not u.dtype.is_float:
        raise GradientError(
            f"backward: only floats have gradients, and {_text(result)} is not one; use .float() before"
        )
    if cotangent is None:
        if u.shape and u.size != 1:
            raise GradientError(
                f"backward: {_text(result)} has {u.size} elements; reduce it to one number (.sum(), .mean()) "
                f"or pass {name} of the same shape"
            )
        return result._new_plain(UOp(Op.CONST, u.dtype, (), 1.0))  # as every float dtype stores it
    c = result._lift(cotangent, "backward")
    if c.shape != u.shape:
        raise ShapeError(f"backward: gradient has shape {c.shape}, but the result has {u.shape}; they must be equal")
    return c if c.dtype is u.dtype else c.cast(u.dtype)
