"""The walks over a graph that take derivatives: what nodes' rules give is added up. There is no tape.

The derivatives are ordinary nodes beside the others, so the scheduler may fuse forward and backward work. A cotangent
of shape `()` stands for the same number everywhere: the seed of a loss stays a constant until its shape is needed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from anneal.backend import Storage
from anneal.errors import GradientError, ShapeError
from anneal.ops.nodes import detached, from_memory, reshape, spread, to_memory
from anneal.rewrite import substitute, value_of
from anneal.runtime import HostFunction, Rules, base_of, here, modes, sources_of, storage_of
from anneal.transforms.forward_rules import FORWARD
from anneal.transforms.gradient_rules import GRADIENT

from anneal.uop import (  # isort: skip
    ALU, MOVEMENT, REAL, DType, GraphFunction, Op, UOp, arena, const, covering, dtypes, of_rule, promote, toposort,
    unique, Nodes, Some, Src, Known, Shape,
)  # fmt: skip
from anneal.uop.sizes import product

# Ops through which a cotangent wider than the node passes unrounded: they move values.
_CARRIES = MOVEMENT | {Op.BUFFER, Op.CAST, Op.CONTIGUOUS, Op.GATHER}
# Float in, float out, and flat almost everywhere: their slope is zero rather than missing.
FLAT = frozenset((Op.IDIV, Op.FLOOR, Op.CEIL, Op.ROUND, Op.TRUNC, Op.SIGN))
STOPS = frozenset((Op.DETACH, Op.BITCAST))
covering("the list of gradients, gradient.upat,", {**GRADIENT, **dict.fromkeys(FLAT)}, REAL)

Path = list[tuple[UOp, Src]]  # nodes with what they were computed from


def stand_in(dtype: DType, shape: Shape, what: str = "example") -> UOp:
    """A node without values, unlike all others: of one of many examples, or what a file takes as input.

    Args:
        dtype: its dtype. shape: its shape.
    """
    return UOp(Op.PARAM, dtype, (), (-1, shape), tag=(what, unique()))


def whole(g: UOp | None, u: UOp) -> UOp:
    """A cotangent, or a tangent, of a node, in its shape and dtype: zeros where there is none."""
    return spread(const(u.dtype, 0) if g is None else g, u.shape).cast(u.dtype)


def added(several: Nodes) -> UOp:
    """The sum of some nodes."""
    return sum(several[1:], start=several[0])


# -- reverse mode -----------------------------------------------------------------------------------------------------


def gradient(seeds: Sequence[tuple[UOp, UOp]], targets: Nodes, through: Container[UOp] = ()) -> list[UOp | None]:
    """The cotangent of each of `targets`, given those of some nodes; nothing below a target is reached but `through`
    some of them.

    Args:
        seeds: float nodes, each with its cotangent, of its shape, or of shape `()` for the same number everywhere.
        targets: float nodes; one that none of those depends on (differentiably) gives None.
        through: what `base_of` gives for targets that may stand on the way to others.

    Returns:
        One node per target, with the target's shape and dtype.

    Raises:
        GradientError: an op on the way has no gradient rule.
    """
    nodes = list(map(base_of, targets))
    with backward_phase():
        roots, stop = [root for root, _ in seeds], {u for u in nodes if u not in through}
        order = _order(roots, stop)
        calls = {u: d.number for u, _ in order if (d := derivative_of(u)) and not d.captured}
        if calls:  # the latest is called first, as in torch
            order = _order([*sorted(calls, key=calls.__getitem__), *roots], stop)
        spent = [u for u, _ in order if u.op is Op.BUFFER and getattr(u.arg, "spent", False)]
        grads = pull_back(seeds, *paths(order, [*nodes, *spent], calls if here.every else ()))
        if not grads.keys().isdisjoint(spent):
            raise GradientError(
                "backward: it passes a result whose backward was taken before, or whose data was set, and its graph is "
                "gone: call that backward with retain_graph=True, or use detach() on the result where no gradient "
                "should flow through it"
            )
        a = arena()
        out: list[UOp | None] = []
        with a.untracked():
            for n, t in zip(nodes, targets, strict=True):
                g = grads.get(n)
                if g is not None:
                    a.derive(g)
                    g = whole(g if n is t or not g.shape else reshape(g, t.shape), t)
                out.append(g)
        return out


@contextmanager
def backward_phase() -> Iterator[None]:
    """Nodes made in the block say that they belong to the backward pass."""
    a = arena()
    phase, a.phase = a.phase, "backward"
    try:
        yield
    finally:
        a.phase = phase


def is_own(u: UOp) -> bool:
    """True if a node shows memory that no tensor shows, through which no gradient flows.

    Args:
        u: the node.
    """
    s = storage_of(u)
    return s is not None and s.made_by is None and s.owner() is None


def ended(g: UOp) -> UOp:
    """A gradient through which none flows: results made of it are constants for further derivatives.

    Args:
        g: the node of the gradient.
    """
    if g.op in (Op.DETACH, Op.CONST) or is_own(g):
        return g
    a = arena()
    with backward_phase(), a.untracked():
        a.derive(g)  # the new node gets the line of `g`
        return detached(g)


def paths(
    order: Iterable[tuple[UOp, Src]], targets: Iterable[UOp], calls: Container[UOp] = ()
) -> tuple[set[UOp], Path]:
    """The nodes of `order` (sources first) that depend on a target, or on one of some calls, through floats: only they
    are worth a cotangent."""
    reach = set(targets)
    path = []
    for u, sources in order:
        if u.dtype.is_float and u.op not in STOPS and (u in calls or not reach.isdisjoint(sources)):
            reach.add(u)
            path.append((u, sources))
    return reach, path


def pull_back(seeds: Iterable[tuple[UOp, UOp]], reach: set[UOp], path: Path) -> Known:
    """The cotangent of every node of `path`, given those of some (`seeds`: pairs of both); what `paths` found.

    What a node's rule makes bears the node's own line and module: those of the forward code whose gradient it is.
    """
    grads: Known = {}
    a = arena()
    with a.untracked():
        for root, seed in seeds:
            a.derive(root)
            grads[root] = _add(grads[root], seed) if root in grads else seed
        calls = _calls_on(path)
        apart: Known = {}  # nodes under those of hooks, and what the tensors with the hooks show
        for y, sources in reversed(path):
            g, call = grads.get(y), calls.get(y)
            if call is not None:
                a.derive(y)
                if g is not None:
                    call.given[y.arg[1]] = spread(g.cast(y.dtype), y.shape)
                if y is not call.first or call.given.count(None) == len(call.given):
                    continue
                made = call.rules.pull(y.arg[0], sources, call.given, [s in reach for s in sources])
                if here.creates and (known := derivative_of(y)) is not None and known.hooks is not None:
                    apart[y.src[0]] = _shown_over(y, known.hooks.owner())
            elif g is None:
                continue
            else:
                a.derive(y)
                adds = y.op in _CARRIES or (y.op is Op.REDUCE_AXIS and y.arg[0] is Op.ADD)
                wide = g if adds else g.cast(y.dtype)
                if y in apart and y.op not in (Op.BUFFER, Op.DIV):
                    # a slope made of the result is made of the tensor that shows it; that of a quotient, as in torch,
                    # of its operands
                    own = UOp(y.op, y.dtype, y.src, y.arg, ("apart", y.tag))
                    made = [c and substitute(c, {own: apart[y]}) for c in _contributions(own, wide, sources)]
                else:
                    made = _contributions(y, wide, sources)
            elementwise = y.op in ALU
            for s, c in zip(sources, made, strict=True):
                if c is None or s not in reach:
                    continue
                if elementwise and not s.shape and y.shape:
                    c = _sum(c, y)
                seen = grads.get(s)
                grads[s] = c if seen is None else _add(seen, c)
    return grads


def _shown_over(y: UOp, owner: Any) -> UOp:
    """The node that shows the value of `y`, a node of hooks: that of their tensor, unless it was changed since."""
    u: UOp = y if owner is None else owner.uop
    return u if y in (base := base_of(u), *sources_of(base)) else y


def _order(roots: Nodes, stop: set[UOp]) -> Path:
    """Every node that `roots` depend on, with its sources, sources first; nodes of `stop` are left out."""
    return [(u, sources_of(u)) for u in toposort(roots, stop.__contains__, sources_of)]


def _contributions(y: UOp, g: UOp, sources: Src) -> Some:
    if y.op is Op.BUFFER:
        return (from_memory(g, sources[0].shape) if g.shape else g,)
    rule = GRADIENT.get(y.op)
    out: Some | None = None if rule is None else rule(y, g)
    if out is not None:
        return out
    if y.op is Op.CALL:  # no rule has its name: its body does
        root = value_of(y)
        found = pull_back([(root, g)], *paths(_order([root], set(sources)), sources))
        return [found.pop(s, None) for s in sources]
    if y.op not in FLAT:
        raise GradientError(
            f"{y.op.name.lower()} has no gradient: use detach() on its input if none should flow through it"
        )
    return (const(g.dtype, 0),) * len(sources)


def _sum(c: UOp, y: UOp) -> UOp:
    """The whole sum of a contribution to a source of shape `()`, which every element of `y` read."""
    if not c.shape:
        n = product(y.shape)
        return c * (n.cast(c.dtype) if isinstance(n, UOp) else float(n))
    total = c.then(Op.REDUCE_AXIS, (Op.ADD, tuple(range(len(c.shape)))))
    return total.then(Op.RESHAPE, ())


def _add(a: UOp, b: UOp) -> UOp:
    """`a + b` in the wider of the two dtypes."""
    if a.dtype is not b.dtype:
        wide = promote(a.dtype, b.dtype)
        a, b = a.cast(wide), b.cast(wide)
    return a + b


# -- forward mode -----------------------------------------------------------------------------------------------------


def push_forward(order: Iterable[tuple[UOp, Src]], roots: Nodes, tangents: Known) -> None:
    """Add to `tangents` that of every node of `order` (sources first) on the way to `roots`; one not there is zero.

    Raises GradientError for an op without a rule.
    """
    _, path = paths(order, tangents)
    needed = set(roots)
    for y, sources in reversed(path):
        if y in needed:
            needed.update(sources)
    calls: dict[Any, Some] = {}  # the tangents of all results of a call, by function and sources
    for y, sources in path:
        if y not in needed or y.op in FLAT:
            continue
        if y.op in CALLS and (rules := rules_of(y)) is not None:
            function, number = y.arg
            if (function, sources) not in calls:
                calls[function, sources] = rules.push(function, sources, [tangents.get(s) for s in sources])
            given = [calls[function, sources][number]]
        else:
            given = [_contribution(y, place, tangents[s]) for place, s in enumerate(sources) if s in tangents]
        if made := [whole(t, y) for t in given if t is not None]:
            tangents[y] = added(made)


def _contribution(y: UOp, place: int, tangent: UOp) -> UOp | None:
    """The share of `y`'s tangent that comes from the source at `place`."""
    if y.op is Op.BUFFER:
        return to_memory(tangent, y.shape)
    if y.op in MOVEMENT:
        return UOp(y.op, tangent.dtype, (tangent,), y.arg)
    out: Some | None = FORWARD[y.op](y, tangent, place) if y.op in FORWARD else None
    if out is not None:
        return out[0]
    # the derivative is its own transpose; no rule of a call is by a source of another shape
    own = y.op in ALU or (y.op is Op.CALL and tangent.shape in ((), y.shape))
    each: Some | None = GRADIENT[y.op](y, tangent) if own and y.op in GRADIENT else None
    if each is not None:
        return each[place]
    if y.op is Op.CALL:
        return _of_body(y, place, tangent)
    raise no_tangent(y.op)


def no_tangent(op: Op) -> GradientError:
    """The error of forward mode for an op without a rule."""
    return GradientError(
        f"jvp: {op.name.lower()} has no derivative: use detach() on its input if none should flow through it"
    )


def _of_body(y: UOp, place: int, tangent: UOp) -> UOp | None:
    """The same of a call that no rule knows: of its body."""
    if not y.arg[0].results:
        return tangent if place == y.arg[1] else None
    if y.src[place] in y.src[:place]:
        return None
    known = {y.src[place]: tangent}
    root = value_of(y)
    push_forward([(u, u.src) for u in toposort(root, until=known.__contains__)], [root], known)
    return known.get(root)


def of_stand_ins(function: Callable[[], Some]) -> tuple[Some, list[UOp]]:
    """The results of a function of stand-ins, which have no values (a jit function inside is traced, not run), and all
    nodes that it made.

    Args:
        function: has the stand-ins; a user's rule may be below it.
    """
    mark = arena().watermark()
    with modes(depth=here.depth + 1):
        return function(), arena().since(mark)


def transposed(linear: Callable[[Some], Some], inputs: Nodes, given: Some) -> Some:
    """The transpose of a linear map from tangents of `inputs` to those of results, at the cotangents `given`; or of one
    from cotangents, at tangents.

    A map that is linear without showing it (by a call of the host, or a choice by what is 0) has a transpose which is
    the same for all that it is given, and is taken at 0. Raises GradientError where something that the map is made of
    has no gradient.
    """
    stands = [stand_in(x.dtype, x.shape) if x.dtype.is_float else None for x in inputs]
    made, new = of_stand_ins(lambda: linear(stands))
    zeros = {t: whole(None, t) for t in stands if t is not None}
    seeds = [(t, g) for t, g in zip(made, given, strict=True) if t is not None and g is not None]
    found = pull_back(seeds, *paths([(u, u.src) for u in new], zeros))
    return [
        None if t is None or t not in found else substitute(whole(found[t], x), zeros)
        for t, x in zip(stands, inputs, strict=True)
    ]


# -- calls of several results -----------------------------------------------------------------------------------------
# Functions of the host, loops and choices, and calls with derivatives by functions of Python have rules of their own,
# `Rules`: each is asked once for all results of a call.


CALLS = frozenset((Op.HOST_CALL, Op.CALL))
# (inputs, results, saved, cotangents of results) -> those of inputs; or tangents of inputs -> those of results
DerivativeRule = Callable[[Nodes, Nodes, Nodes, Some], Some]


class Derivative:
    """The derivative of one call by functions of Python; `name` is for messages.

    A result is a CALL of a Function by the name "function", whose arguments are how many values and how many inputs
    there are, over (*values, *inputs, *saved, token). The token is memory that is never read: it has the Derivative,
    and what numbers memory numbers calls with it.
    """

    rules: ClassVar[Rules]

    def __init__(self, name: str, pull: DerivativeRule, push: DerivativeRule | None = None) -> None:
        self.name, self.pull, self.push, self.number = name, pull, push, unique()
        self.captured: Any = None  # of a captured call, whose results are in memory: that (`captured.py`)
        self.hooks: Any = None  # of a tensor with hooks: they
        self.late: Any = None  # `pull` of the records of late tensors, which gives tensors, if there is one

    def token(self, device: str) -> UOp:
        """A node that stands for this call."""
        storage = Storage(1, dtypes.int32, device)
        storage.derivative = self
        return UOp(Op.BUFFER, dtypes.int32, (), storage)


def derivative_of(y: UOp) -> Derivative | None:
    """The Derivative of the result `y`, None for any other node."""
    if y.op is not Op.CALL or y.arg[0].name != "function":
        return None
    found: Derivative = y.src[-1].arg.derivative
    return found


def differentiated(values: Nodes, inputs: Nodes, saved: Nodes, token: UOp) -> list[UOp]:
    """The results of a call with these values."""
    return _results(of_rule("function", (len(values), len(inputs))), (*values, *inputs, *saved, token))


def _results(function: GraphFunction, src: Src) -> list[UOp]:
    return [UOp(Op.CALL, v.dtype, src, (function, n)) for n, v in enumerate(src[: function.arguments[0]])]


def rules_of(y: UOp) -> Rules | None:
    """The rules of the call that made a result, None for any other node."""
    made_by = y.arg[0] if y.op is Op.HOST_CALL else derivative_of(y)
    return None if made_by is None else made_by.rules


class _Call(NamedTuple):
    """A call on the path of the reverse walk: its rules, the result that is first on the path, and the cotangents of
    all results that have come. They are whole when the walk comes to the first, which brings those of the sources."""

    rules: Rules
    first: UOp
    given: list[UOp | None]


def _calls_on(path: Path) -> dict[UOp, _Call]:
    """The results of calls on a path, each with its call; what the call was made of is before all of them."""
    calls: dict[Any, _Call] = {}  # by what is equal for all results of one
    found: dict[UOp, _Call] = {}
    if here.tensors.host_calls or here.tensors.derivatives:
        for y, _ in path:
            if y.op in CALLS and (rules := rules_of(y)) is not None:
                function = y.arg[0]
                results = function.arguments[0] if y.op is Op.CALL else len(function.results)
                found[y] = calls.setdefault((function, y.src), _Call(rules, y, [None] * results))
    return found


def parts_of(function: GraphFunction, src: Src) -> tuple[Derivative, Nodes, Nodes, Nodes]:
    """The derivative of a call, with its inputs, all results and the saved values."""
    values, inputs = function.arguments
    last = values + inputs
    return src[-1].arg.derivative, src[values:last], _results(function, src), src[last:-1]


def pull_function(function: GraphFunction, src: Src, given: Some, wants: Any = None) -> Some:
    """The cotangents of what a call with a derivative by functions reads."""
    derivative, inputs, outputs, saved = parts_of(function, src)
    made = derivative.late and here.answer and here.answer(src[-1], [*inputs, *outputs, *saved], given)
    if not made:
        here.effects += derivative.captured is None  # the function is to be called each time
        made = derivative.pull(inputs, outputs, saved, given)
    return [*[None] * len(outputs), *made, *[None] * (len(src) - len(outputs) - len(made))]


def push_function(function: GraphFunction, src: Src, given: Some) -> Some:
    """The tangents of its results: its own, or by the transpose of its gradient."""
    derivative, inputs, outputs, saved = parts_of(function, src)
    tangents = given[len(outputs) :][: len(inputs)]
    if all(t is None for t in tangents):
        return [None] * len(outputs)
    if derivative.push is not None:
        return derivative.push(inputs, outputs, saved, tangents)
    return transposed(lambda cotangents: derivative.pull(inputs, outputs, saved, cotangents), outputs, tangents)


def pull_host(function: HostFunction, src: Src, given: Some, wants: Any = None) -> Some:
    """The cotangents of what a function of the host reads."""
    if function.gradient is None:
        raise GradientError(
            f"host_call has no gradient for {function.name}: pass gradient=, or use detach() on its input if none "
            "should flow through it"
        )
    outputs = function.nodes(src)
    made = function.gradient(src, outputs, [whole(g, u) for g, u in zip(given, outputs, strict=True)])
    if len(made) != len(src):
        raise GradientError(
            f"the gradient of {function.title} gives {len(made)} cotangents for {len(src)} inputs: one for each, "
            "None where there is none"
        )
    for n, (c, x) in enumerate(zip(made, src, strict=True)):
        if c is not None and c.shape != x.shape:
            raise ShapeError(
                f"the gradient of {function.title} gives input {n}, of shape {x.shape}, a cotangent of shape {c.shape}"
            )
    return [None if c is None or not x.dtype.is_float else c for c, x in zip(made, src, strict=True)]


def push_host(function: HostFunction, src: Src, given: Some) -> Some:
    """The tangents of its results, by the transpose of its gradient."""
    if function.gradient is None:
        raise no_tangent(Op.HOST_CALL)
    return transposed(lambda cotangents: pull_host(function, src, cotangents), function.nodes(src), given)


def number_of(u: UOp) -> Any:
    """The number that every element of a node is; None where that is not plain."""
    while u.op is Op.RESHAPE or u.op is Op.EXPAND or u.op is Op.CAST:
        u = u.src[0]
    return u.arg if u.op is Op.CONST else None
