"""The rules of vmap: each op for many examples at once.

A batched node is the node of one example with the examples along a new first axis. `BATCHING` maps an op to
`(y, sources, batched, n) -> node`: `y` is the node of one example, `sources` its sources, those that `batched` marks
with `n` examples each. A source that is the same for every example stays as it is until an op needs it beside others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import wraps
from itertools import repeat
from typing import Any, Literal

from anneal.errors import ShapeError, TransformError
from anneal.ops import nodes
from anneal.rewrite import substitute
from anneal.runtime import Args, HostFunction, Options, Rules

from anneal.transforms.trace import (  # isort: skip
    P, R, Trace, TypedFunction, as_tensor, broadcast_prefix, flagged, named_leaves, paths_of, rebuild, results_of,
)  # fmt: skip
from anneal.transforms.walks import (  # isort: skip
    CALLS, Derivative, DerivativeRule, differentiated, of_stand_ins, parts_of, pull_function, pull_host, push_function,
    push_host, rules_of, stand_in, whole,
)  # fmt: skip
from anneal.uop import (  # isort: skip
    ALL, ALU, GraphFunction, Ints, Known, Nodes, Op, Some, UOp, arena, by_rule, const, covering, dtypes, toposort,
)  # fmt: skip
from anneal.uop.sizes import Size, most, product

Flags = Sequence[bool]
Flagged = list[tuple[UOp, bool]]  # nodes, each with whether it has an axis of examples
Rule = Callable[[UOp, Nodes, Flags, Size], UOp]


def repeated(u: UOp, n: Size) -> UOp:
    """`u` for each of `n` examples: a new first axis."""
    core = u.src[0] if u.op is Op.EXPAND else u
    return nodes.expand(nodes.reshape(core, (1, *core.shape)), (n, *u.shape))


def full(s: UOp, batched: bool, n: Size) -> UOp:
    """A source with its axis of examples, whether it has one or not."""
    return s if batched else repeated(s, n)


def swapped(u: UOp) -> UOp:
    """A node whose first two axes change places."""
    return nodes.permute(u, (1, 0, *range(2, len(u.shape))))


# -- elementwise ------------------------------------------------------------------------------------------------------


def _elementwise(y: UOp, sources: Nodes, batched: Flags, n: Size) -> UOp:
    """The same op. A source of shape () stands for all elements of its example."""
    shape = (n, *y.shape)
    wide = []
    for s, is_batched in zip(sources, batched, strict=True):
        if is_batched and s.shape != shape:
            s = nodes.expand(nodes.reshape(s, (n, *[1] * len(y.shape))), shape)
        wide.append(s if is_batched or not s.shape else repeated(s, n))
    return nodes.spread(y.replace(src=tuple(wide)), shape)


def drawn(y: UOp, n: Size) -> UOp:
    """Random words of their own for each example: the example's number, enciphered, takes the place of the first key.

    (A counter shifted by the example would meet the counters of other words of the same call.)
    """
    counter, seed, call = y.src
    number = nodes.iota(n).cast(dtypes.uint32)
    key = Op.THREEFRY(number, seed ^ 0x9E3779B9, call)
    return _elementwise(y, (counter, key, call), (False, True, False), n)


# -- movement ---------------------------------------------------------------------------------------------------------


def _moved(axes: Ints) -> Ints:
    """Axes, behind that of the examples."""
    return tuple([a + 1 for a in axes])


# The argument of a movement op for `n` examples, from that for one: the axis of examples is in front, and stays whole.
_MOVED: dict[Op, Callable[[UOp, Size], Any]] = {
    Op.RESHAPE: lambda y, n: (n, *y.shape),
    Op.EXPAND: lambda y, n: (n, *y.shape),
    Op.PERMUTE: lambda y, n: (0, *_moved(y.arg)),
    Op.FLIP: lambda y, n: _moved(y.arg),
    Op.PAD: lambda y, n: ((0, 0), *y.arg),
    Op.SHRINK: lambda y, n: ((0, n), *y.arg),
}


def _update(y: UOp, sources: Nodes, batched: Flags, n: Size) -> UOp:
    """A batch of updates: where the places differ each element is looked up in its example's part."""
    if any(batched[2:]):
        return _update_apart(y, [full(s, b, n) for s, b in zip(sources, batched, strict=True)], n)
    wide = [full(s, b, n) for s, b in zip(sources[:2], batched)]
    return UOp(y.op, y.dtype, (*wide, *sources[2:]), (0, *y.arg))


def _update_apart(y: UOp, sources: Nodes, n: Size) -> UOp:
    """A batch of updates that differ in their places: each example's part goes to its own place."""
    whole, part, *starts = sources
    following, ndim = iter(starts), len(whole.shape)
    inside: UOp | None = None
    for axis, (b, m, size) in enumerate(zip(y.arg, y.src[1].shape, y.shape, strict=True), 1):
        looked_up = nodes.is_looked_up(b)
        if m == size and not looked_up:
            continue
        begin = next(following) if looked_up else b
        if b is None:
            begin = nodes.kept_within(begin, m, size)
        at = nodes.broadcast(nodes.iota(size, axis, ndim), (n, *[size if a == axis else 1 for a in range(1, ndim)]))
        if isinstance(begin, UOp) and begin.shape:
            begin = nodes.broadcast(nodes.reshape(begin, (n, *[1] * (ndim - 1))), at.shape)
        at = at - begin
        within = (at >= 0) & (at < m)
        place = within.where(at, const(dtypes.int32, 0))
        shape = tuple([size if a == axis else k for a, k in enumerate(part.shape)])
        part = UOp(Op.GATHER, y.dtype, (part, nodes.broadcast(place, shape)), axis)
        inside = nodes.meet(Op.AND, inside, within)
    assert inside is not None
    return nodes.broadcast(inside, whole.shape).where(part, whole)


# -- indexed reads and writes -----------------------------------------------------------------------------------------


def _gather(y: UOp, sources: Nodes, batched: Flags, n: Size) -> UOp:
    """A batch of gathers: if only the index differs, examples are more positions; else each reads its own part."""
    (x, index), axis = sources, y.arg
    if batched[0]:
        return UOp(Op.GATHER, y.dtype, (x, full(index, batched[1], n)), axis + 1)
    rest = [a for a in range(len(x.shape)) if a != axis]
    # An index that repeats along an axis (rows of a table) is laid out before it repeats, so that its gradient sees it.
    core = index.src[0] if index.op is Op.EXPAND and index.src[0].shape[0] == n else index
    order = (0, axis + 1, *[a + 1 for a in rest])
    core = nodes.permute(core, order)
    _, count, *sizes = [index.shape[a] for a in order]
    rows = nodes.reshape(core, (n * core.shape[1], *core.shape[2:]))
    if core.shape[1] != count:  # it repeats along the axis itself
        rows = nodes.expand(core, (n, count, *core.shape[2:]))
        rows = nodes.reshape(rows, (n * count, *core.shape[2:]))
    rows = nodes.expand(rows, (rows.shape[0], *sizes))
    read = UOp(Op.GATHER, y.dtype, (nodes.permute(x, (axis, *rest)), rows), 0)
    return nodes.permute(nodes.reshape(read, (n, count, *sizes)), [order.index(a) for a in range(len(order))])


def _scatter_add(y: UOp, sources: Nodes, batched: Flags, n: Size) -> UOp:
    """A batch of scatters: if only the values differ, examples are more columns; else more rows, one below another."""
    index, value = sources
    rows, width = y.arg[0], y.shape[1:]
    if not batched[0]:
        flat = nodes.reshape(swapped(value), (index.shape[0], n * product(width)))
        total = UOp(Op.SCATTER_ADD, y.dtype, (index, flat), (rows,))
        return swapped(nodes.reshape(total, (rows, n, *width)))
    value = full(value, batched[1], n)
    if most(n * rows) >= 1 << 31:
        raise TransformError(
            f"vmap: {n} examples of {rows} rows to add to are more rows than an index of 32 bits reaches"
        )
    first = nodes.expand(nodes.reshape(nodes.iota(n) * rows, (n, 1)), index.shape)
    below = ((index >= 0) & (index < rows)).where(index + first, -1)
    m = n * index.shape[1]
    flat = nodes.reshape(value, (m, *width))
    total = UOp(Op.SCATTER_ADD, y.dtype, (nodes.reshape(below, (m,)), flat), (n * rows,))
    return nodes.reshape(total, (n, rows, *width))


# -- calls -----------------------------------------------------------------------------------------------------------


# The names whose rules fit many examples: their arguments are axes, or the same for all. Another is opened.
_AXES = frozenset(("first", "standardize"))
_ALIKE = frozenset(
    ("slope", "equal", "chosen", "beside", "exp", "inverse", "products", "running", "share", "sorted", "sums")
)


def _batch_function(function: GraphFunction, sources: Nodes, batched: Flags, n: Size, different: bool) -> Flagged:
    """A call with a derivative by functions of Python, for `n` examples. Raises TransformError for a number that is
    symbolic.
    """
    src = tuple(sources)
    derivative, inputs, outputs, saved = parts_of(function, src)
    count = len(outputs)
    if not isinstance(n, int):
        raise TransformError(f"vmap: {derivative.name} is for a number of examples, and {n} of them are no number")
    values = [full(s, b, n) for s, b in zip(src[:count], batched)]
    each = _of_each(derivative, tuple(batched[count:-1]), n)
    return [(u, True) for u in differentiated(values, inputs, saved, each.token(src[-1].arg.device))]


def _of_each(d: Derivative, flags: tuple[bool, ...], n: int) -> Derivative:
    """The derivative of a call for `n` examples, from that for one; `flags` say which inputs, and which saved values,
    have an axis of examples."""

    every = repeat(True)

    def mapped(rule: DerivativeRule, xs: Nodes, ys: Nodes, saved: Nodes, wide: Some) -> list[tuple[UOp, bool] | None]:
        """The results, for all examples, of a rule for one, each with whether it has an axis of examples."""
        of_all: Any = xs, ys, saved, wide
        stands = [
            [stand_in(u.dtype, u.shape[1:]) if u is not None and has else u for u, has in zip(several, flagged)]
            for several, flagged in zip(of_all, (flags, every, flags[len(xs) :], every))
        ]
        made, young = of_stand_ins(lambda: rule(*stands))
        fronts = {s: u for pair in zip(stands, of_all) for s, u in zip(*pair) if s is not u}
        found = iter(rewritten([c for c in made if c is not None], fronts, n, young=set(young)))
        return [None if c is None else next(found) for c in made]

    def pull(xs: Nodes, ys: Nodes, saved: Nodes, given: Some) -> Some:
        wide = [whole(g, y) for y, g in zip(ys, given, strict=True)]
        out = []
        for found, has, x in zip(mapped(d.pull, xs, ys, saved, wide), flags, xs):
            u = None if found is None else full(*found, n)
            # where all examples share the input, their cotangents add up
            out.append(u if u is None or has else nodes.reshape(nodes.reduce_axis(u, Op.ADD, (0,)), x.shape))
        return out

    def push(xs: Nodes, ys: Nodes, saved: Nodes, given: Some) -> Some:
        wide = [None if t is None else full(t, f, n) for t, f in zip(given, flags)]
        assert d.push is not None
        return [None if f is None else full(*f, n) for f in mapped(d.push, xs, ys, saved, wide)]

    return Derivative(d.name, pull, None if d.push is None else push)


def _call(y: UOp, sources: Nodes, batched: Flags, n: Size) -> UOp:
    function, number = y.arg
    if function.results:
        fronts, same = [
            {p: s for p, s, has in zip(function.parameters, sources, batched, strict=True) if has is wanted}
            for wanted in (True, False)
        ]
        ((made, has),) = rewritten([function.results[number]], fronts, n)
        return full(substitute(made, same), has, n)
    if function.name not in _AXES | _ALIKE:
        return full(sources[number], batched[number], n)
    # the value's own shape is the node's
    wide = [s if b or (k and not s.shape) else repeated(s, n) for k, (s, b) in enumerate(zip(sources, batched))]
    arguments = _moved(function.arguments) if function.name in _AXES else function.arguments
    return by_rule(function.name, *wide, arguments=arguments)


def _batch_host(function: HostFunction, sources: Nodes, batched: Flags, n: Size, different: bool) -> Flagged:
    """A call of the host for `n` examples, as its function's `vmap_method` says. Raises TransformError for one that
    cannot be made.
    """
    if not isinstance(n, int):
        raise TransformError(f"vmap: {function.title} is for a number of examples, and {n} of them are no number")
    if function.vmap_method is None:
        raise TransformError(
            f"vmap: {function.title} has no rule for many examples at once; keep it outside the function"
        )
    if function.sizes:
        name = function.sizes[0].arg[0]
        raise TransformError(f"vmap: {function.title} finds Variable {name}, which differs between examples")
    flags, gradient = tuple(batched), function.gradient
    if gradient is not None:
        one: Any = gradient
        each = _of_each(Derivative(function.name, lambda xs, ys, _, given: one(xs, ys, given)), flags, n)
        gradient = lambda xs, ys, given: each.pull(xs, ys, (), given)
    return [(u, True) for u in function.for_each(flags, n, gradient).nodes(tuple(sources))]


Derivative.rules = Rules(pull_function, push_function, _batch_function)
HostFunction.rules = Rules(pull_host, push_host, _batch_host)

BATCHING: dict[Op, Rule] = {
    **dict.fromkeys(ALU, _elementwise),
    **dict.fromkeys(_MOVED, lambda y, sources, _, n: getattr(nodes, y.op.name.lower())(sources[0], _MOVED[y.op](y, n))),
    Op.UPDATE: _update,
    **dict.fromkeys((Op.CONTIGUOUS, Op.DETACH), lambda y, sources, *_: y.replace(src=tuple(sources))),
    Op.REDUCE_AXIS: lambda y, sources, *_: nodes.reduce_axis(sources[0], y.arg[0], _moved(y.arg[1])),
    Op.GATHER: _gather,
    Op.SCATTER_ADD: _scatter_add,
    Op.ARGSORT: lambda y, sources, *_: nodes.sorted_places(sources[0]),
    Op.CALL: _call,
}
_OTHERS = (Op.SCAN, Op.SEGMENT_SUM, Op.SINK, Op.HOST_CALL)  # made by the scheduler; `Rules` have functions of the host
covering(
    "the table of vmap",
    BATCHING,
    (o for o in ALL.values() if "tensor" in o.stages and o.arity != 0 and o not in _OTHERS),
)


def rewritten(
    roots: Nodes, fronts: Known, n: Size, different: bool = False, young: Collection[UOp] | None = None
) -> Flagged:
    """For each of `roots` the node of all examples, and whether it has an axis of examples. `fronts` has all examples
    for each stand-in. `different`: random words are another for each example. `young`: the nodes that may depend on a
    stand-in, where not all do.
    """
    new = dict(fronts)
    calls: dict[Any, Flagged] = {}  # calls of all examples, by function and sources
    same: Known = {}  # results of such calls that are the same for all examples, and nodes over them
    a = arena()
    with a.untracked():
        for y in toposort(roots, until=lambda u: u in fronts or (young is not None and u not in young)):
            a.inherit(y)
            flags = [s in new for s in y.src]
            sources = [new[s] if s in new else same.get(s, s) for s in y.src]
            rules = rules_of(y) if y.op in CALLS else None
            if rules is not None and (any(flags) or (different and getattr(y.arg[0], "draws", False))):
                f, number = y.arg
                if (f, y.src) not in calls:
                    calls[f, y.src] = rules.batch(f, sources, flags, n, different)
                made, has = calls[f, y.src][number]
                (new if has else same)[y] = made
            elif any(flags):
                new[y] = BATCHING[y.op](y, sources, flags, n)
            elif different and y.op is Op.THREEFRY:
                new[y] = drawn(y, n)
            elif any(s in same for s in y.src):
                same[y] = y.replace(src=tuple(sources))
    return [(new[u] if u in new else same.get(u, u), u in new) for u in roots]


# -- vmap -------------------------------------------------------------------------------------------------------------
# A function of one example becomes one of many, by rewriting each node it made into that of all examples.


def vmap(
    f: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    axis_size: int | None = None,
    randomness: Literal["different", "same", "error"] = "different",
    in_dims: Any = ...,
    out_dims: Any = ...,
    chunk_size: int | None = None,
) -> TypedFunction[P, R]:
    """The function that applies `f` to every example of its arguments at once, as a loop would one by one.

    Args:
        f: from trees of tensors to a tree of tensors. Inside, a tensor has the shape of one example and no values.
        in_axes: the axis of each argument that the examples lie along, None where all share the argument: one int, or a
            tuple with an int, None or tree of them for each positional argument. Keyword arguments use axis 0.
        out_axes: where the examples go in the result: an int, or a tree of them; None for what is the same for all.
        axis_size: the number of examples; needed only if no argument says it.
        randomness: whether random numbers drawn inside are "different" for every example or the "same", or an "error".
        in_dims, out_dims: torch's names for `in_axes` and `out_axes`.
        chunk_size: ignored: all examples are computed at once.

    Raises TransformError for axes that do not fit the arguments, ShapeError for sizes that differ or an axis that is
    not there.

    >>> from anneal.tensor import Tensor
    >>> dot = vmap(lambda a, b: (a * b).sum(), in_axes=(0, None))
    >>> dot(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([10.0, 1.0]))
    Tensor([12., 34.], dtype=float32)
    """
    in_axes = in_axes if in_dims is ... else in_dims
    out_axes = out_axes if out_dims is ... else out_dims
    if randomness not in ("different", "same", "error"):
        raise TransformError(f'vmap: randomness is "different", "same" or "error", not {randomness!r}')

    @wraps(f)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        trace = Trace("vmap")
        (given, named), fronts, n, stands = _examples(trace, (args, kwargs), in_axes, axis_size)
        out = trace.apart(f, given, named)
        changed = [(t, whole, at) for t, whole, at in stands if t.uop not in fronts]  # in place, and so is the whole
        results, names = results_of("vmap", out), paths_of(out, "the result")
        places = broadcast_prefix("vmap", out_axes, out, "out_axes", "the result")
        wanted = [t.uop for t in (*results, *[t for t, _, _ in changed])]
        made = set(trace.made())
        if randomness == "error" and any(u.op is Op.THREEFRY for u in made):
            raise TransformError('vmap: the function draws random numbers, and randomness is "error"')
        many = rewritten(wanted, fronts, n, randomness == "different", made)
        trace.check_escapes()
        for (t, of_all, at), (u, differs) in zip(changed, many[len(results) :], strict=True):
            of_all.copy_(t._new_plain(_placed(u, differs, at, "an argument", n)))
        placed = [_placed(u, differs, at, name, n) for (u, differs), at, name in zip(many, places, names)]
        return rebuild(out, iter(flagged([t._new_plain(u) for t, u in zip(results, placed, strict=True)])))

    return mapped


def _examples(
    trace: Trace, given: tuple[Args, Options], in_axes: Any, axis_size: int | None
) -> tuple[Any, Known, Size, list[tuple[Any, Any, int]]]:
    """The arguments with stand-ins for one example, for each stand-in all examples along a first axis, their number,
    and the stand-ins, each with what it stands for and the axis of its examples.
    """
    args, kwargs = given
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if isinstance(axes, tuple) and len(axes) != len(args):
        raise TransformError(
            f"vmap: in_axes has {len(axes)} entries, but the call has {len(args)} positional arguments; give one for "
            "each"
        )
    where = [*named_leaves(args, "argument "), *named_leaves(kwargs, "argument ")]
    along = [
        *broadcast_prefix("vmap", axes, args, "in_axes", "the arguments"),
        *broadcast_prefix("vmap", 0, kwargs, "in_axes", "the arguments"),
    ]
    sizes: dict[Size, str] = {} if axis_size is None else {axis_size: f"axis_size is {axis_size}"}
    inner: list[Any] = []
    fronts: Known = {}
    stands = []
    for (name, value), at in zip(where, along, strict=True):
        if at is None:
            inner.append(value)
            continue
        t = as_tensor("vmap", name, value)
        axis = _axis("in_axes", name, at, t.shape)
        sizes.setdefault(t.shape[axis], f"{name} has {t.shape[axis]} (axis {axis} of shape {t.shape})")
        stand_in = trace.example(t, t.shape[:axis] + t.shape[axis + 1 :])
        fronts[stand_in.uop] = nodes.permute(t.uop, [axis, *[a for a in range(t.ndim) if a != axis]])
        inner.append(stand_in)
        stands.append((stand_in, t, axis))
    if len(sizes) > 1:
        raise ShapeError(
            f"vmap: the arguments differ in the number of examples: {', '.join(sizes.values())}; in_axes says which "
            "axis counts them, None that an argument is shared"
        )
    if not sizes:
        raise TransformError(
            "vmap: no argument has an axis of examples: give one an axis in in_axes, or pass axis_size"
        )
    return rebuild(given, iter(inner)), fronts, next(iter(sizes)), stands


def _axis(what: str, name: str, at: Any, shape: Ints) -> int:
    if isinstance(at, bool) or not isinstance(at, int):
        raise TransformError(f"vmap: {what} has ints and None as leaves, not {at!r}")
    if not -len(shape) <= at < len(shape):
        raise ShapeError(
            f"vmap: {what} names axis {at} of {name}, which has shape {shape}; "
            + (f"its axes are {-len(shape)} to {len(shape) - 1}" if shape else "use None for what all examples share")
        )
    return at % len(shape)


def _placed(u: UOp, is_batched: bool, at: Any, name: str, n: Size) -> UOp:
    """A result with the axis of examples where out_axes wants it."""
    if at is None:
        if is_batched:
            raise TransformError(f"vmap: out_axes is None for {name}, which differs between examples; give it an axis")
        return u
    u = full(u, is_batched, n)
    axis = _axis("out_axes", name, at, u.shape)
    return nodes.permute(u, [*range(1, axis + 1), 0, *range(axis + 1, len(u.shape))])
