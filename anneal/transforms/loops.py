"""Loops and choices as functions of functions: `scan`, `fori_loop`, `while_loop` and `cond`, as `jax.lax` has them.

A body is called once, on what stands for the values of a turn, and becomes a closed graph; the number of turns makes
no difference to the time that compiling takes, nor to the number of kernels. What a body reads besides its arguments is
passed to it, and gets gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from anneal.errors import DTypeError, ShapeError, TransformError
from anneal.names import Tensor
from anneal.ops import cat, grad_enabled, is_tensor, made, stack, zeros
from anneal.runtime import UNSEEN, Fun, Loop, While, chosen, here, looped, mapped, modes
from anneal.transforms.loop_transforms import rows_for_reverse
from anneal.transforms.trace import PLAIN, Trace, as_tensor, flatten, like, named_leaves, paths_of, rebuild
from anneal.uop import Nodes, Op, UOp, arena, const, dtypes
from anneal.uop.sizes import Size, least, size, size_text

Tensors = Sequence["Tensor"]
# (what stands for a turn's number, for the tree of what is carried, for slices) -> what is carried on, and rows
Turn = Callable[["Tensor", Any, list["Tensor"]], tuple[Any, list["Tensor"]]]
Ends = tuple[list["Tensor"], list["Tensor"]]  # the leaves of the carry at a loop's end, and the rows


def scan(
    f: Fun,
    init: Any,
    xs: Any = None,
    length: Size | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """The last carry of a loop over the slices of `xs`, and the results of its iterations, stacked: `jax.lax.scan`.

    `carry, y = f(carry, x)` is one iteration. The carry keeps its structure, shapes and dtypes.

    Args:
        f: the body, which is called once, whatever the number of iterations. Other tensors that it reads are constants
            of the loop, and get gradients; random numbers differ between iterations.
        init: the first carry, a tree of tensors and numbers.
        xs: a tree of tensors, whose first axis is the loop's; None if `length` is given.
        length: the number of iterations; None: that of the slices of `xs`.
        reverse: whether the loop begins with the last slice. A result has the place of its slice either way.
        unroll: how many iterations are one iteration on the device; True: all, so that there is no loop.

    Raises:
        ShapeError: the slices differ in number, or from `length`; a carry changes its shape.
        DTypeError: a carry changes its dtype.
        TransformError: a carry changes its structure, or `f` gives no pair.

    >>> from anneal.tensor import Tensor
    >>> scan(lambda total, x: (total + x, total * 10), 0.0, Tensor([1.0, 2.0, 3.0]))
    (Tensor(6., dtype=float32), Tensor([ 0., 10., 30.], dtype=float32))
    """
    device = _device((init, xs))
    arrays = _tensors("scan", xs, "xs", device)
    count = _length(arrays, paths_of(xs, "xs"), length)
    kept: list[Any] = [None]  # the tree of the rows, with True at its leaves

    def turn(_: Tensor, carry: Any, parts: list[Tensor]) -> tuple[Any, list[Tensor]]:
        out = f(carry, rebuild(xs, iter(parts)))
        if not isinstance(out, tuple) or len(out) != 2:
            raise TransformError(f"scan: the body returns a pair (carry, y), not a {type(out).__name__}")
        kept[0] = mapped(out[1], lambda x: x is not None or None)
        return out[0], _tensors("scan", out[1], "y", device)

    ends, rows = _run(
        _First("scan", init, _tensors("scan", init, "init", device), turn, arrays, reverse), count, unroll
    )
    return rebuild(init, iter(ends)), rebuild(kept[0], iter(rows))


def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any, *, unroll: int | bool | None = None
) -> Any:
    """`val = body_fun(i, val)` for i from `lower` to `upper - 1`, from `init_val` on: `jax.lax.fori_loop`.

    With ints as bounds it is a `scan`, and has a reverse derivative; with tensors a `while_loop`, which has none.
    `unroll` is scan's.

    >>> from anneal.tensor import Tensor
    >>> fori_loop(1, 5, lambda i, x: x * i, Tensor(1.0))
    Tensor(24., dtype=float32)
    """
    if is_tensor(lower) or is_tensor(upper):
        if unroll not in (None, 1, False):
            raise TransformError("fori_loop: unroll is for bounds that are ints")
        ends = while_loop(
            lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1], body_fun(s[0], s[2])), (lower, upper, init_val)
        )
        return ends[2]
    count = _counted(lower, upper)

    def turn(number: Tensor, carry: Any, _: list[Tensor]) -> tuple[Any, list[Tensor]]:
        return body_fun(number if isinstance(lower, int) and not lower else number + lower, carry), []

    tensors = _tensors("fori_loop", init_val, "init_val", _device(init_val))
    ends, _ = _run(_First("fori_loop", init_val, tensors, turn), count, 1 if unroll is None else unroll)
    return rebuild(init_val, iter(ends))


def _counted(lower: Any, upper: Any) -> Size:
    """The number of turns between two bounds, none if the second is not the greater one."""
    if wrong := [x for x in (lower, upper) if isinstance(x, float)]:
        raise TransformError(f"fori_loop: the bounds are ints, not {wrong[0]}")
    if not isinstance(lower, UOp) and not isinstance(upper, UOp):
        return max(0, int(upper) - int(lower))
    count = size(upper - lower)
    return count if least(count) >= 0 else size(Op.MAX(count, const(dtypes.int32, 0)))


def computed_again(f: Callable[[], Any]) -> Any:
    """`f()` in the body of a loop, whose reverse computes again what is between what `f` reads and its results."""
    mark = arena().watermark()
    out = f()
    results = {t.uop for t in flatten(out) if is_tensor(t)}
    here.turns[-1].inside.update([u for u in arena().since(mark) if u not in results])
    return out


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """`val = body_fun(val)` for as long as `cond_fun(val)`, from `init_val` on: `jax.lax.while_loop`.

    The host reads the condition before each turn. It has `jvp`, and no reverse derivative: its turns are not counted
    before.

    >>> from anneal.tensor import Tensor
    >>> while_loop(lambda x: x < 100.0, lambda x: x * 3, Tensor(2.0))
    Tensor(162., dtype=float32)
    """
    device = _device(init_val)
    tensors = _tensors("while_loop", init_val, "init_val", device)
    if not tensors:
        raise TransformError("while_loop: init_val has no tensor or number, so that its condition would never change")

    def test(carry: Any) -> Tensor:
        t: Tensor = _given("while_loop", "the condition", cond_fun(carry), device)
        if t.shape != () or t.dtype is not dtypes.bool_:
            raise ShapeError(
                f"while_loop: cond_fun returns a boolean scalar, and gave {t.dtype.name} of shape {t.shape}"
            )
        return t

    turn: Turn = lambda _, carry, __: (body_fun(carry), [])
    ends, _ = _looped(_First("while_loop", init_val, tensors, turn, test=test), While.named("while_loop"))
    return rebuild(init_val, iter(ends))


def cond(pred: Any, true_fun: Fun, false_fun: Fun, *operands: Any) -> Any:
    """`true_fun(*operands)` where `pred` is true, else `false_fun(*operands)`: `jax.lax.cond`.

    Both functions are called once, to be traced, and return trees of the same structure, shapes and dtypes. The host
    reads `pred`, a single bool or number, and runs one of them. Under `vmap` with a `pred` for each example both run,
    and each example takes the result that its `pred` chooses.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([1.0, 2.0])
    >>> cond(x.sum() > 2, lambda x: x * 10, lambda x: x, x)
    Tensor([10., 20.], dtype=float32)
    """
    for name, f in (("true_fun", true_fun), ("false_fun", false_fun)):
        if not callable(f):
            raise TransformError(f"cond: {name} is a function of the operands, not {f!r}")
    device = _device((pred, operands))
    p = _given("cond", "the predicate", pred, device)
    if p.shape != ():
        raise ShapeError(f"cond: the predicate is a scalar, and has shape {p.shape}; vmap takes one for each example")
    tensors = _tensors("cond", operands, "operand ", device)
    trace = Trace("cond")
    stands = [trace.example(t, t.shape) for t in (p, *tensors)][1:]
    out = [trace.apart(f, trace.again(operands, stands), {}) for f in (true_fun, false_fun)]
    names = paths_of(out[0], "the result")
    ways = [
        [_given("cond", w, v, device) for w, v in zip(names, each, strict=True)]
        for each in (flatten(out[0]), _same("cond", out[0], out[1], "what false_fun gives", "what true_fun gives"))
    ]
    for name, a, b in zip(names, *ways, strict=True):
        _alike("cond", name, "true_fun gives", a, "false_fun gives", b)
    trace.check_escapes(often=True)
    here.tensors.host_calls = True
    nodes = chosen(
        "cond",
        (p if p.dtype is dtypes.bool_ else p != 0).uop,
        _nodes(stands, tensors),
        [[t.uop for t in way] for way in ways],
        trace.depends(),
    )
    wants = [a._wants or b._wants for a, b in zip(*ways, strict=True)]
    return rebuild(out[0], iter(_results(nodes, wants, [p, *tensors])))


# -- arguments --------------------------------------------------------------------------------------------------------


class _First(NamedTuple):
    """The beginning of a loop, a tree, and its leaves as tensors; its turn, the arrays whose slices turns are given,
    whether the last slice comes first, and what tells of a carry whether there is a turn, where no number does."""

    name: str
    tree: Any
    tensors: list[Any]
    turn: Turn
    arrays: Tensors = ()
    reverse: bool = False
    test: Callable[[Any], Tensor] | None = None


def _device(tree: Any) -> str | None:
    """The device of the first tensor among the leaves."""
    return next((v.device for v in flatten(tree) if is_tensor(v)), None)


def _tensors(name: str, tree: Any, what: str, device: str | None) -> list[Any]:
    """The leaves as tensors on the loop's device; `what` the tree is called in messages."""
    return [_given(name, where, v, device) for where, v in named_leaves(tree, what)]


def _given(name: str, where: str, value: Any, device: str | None) -> Any:
    """A leaf as a tensor on the loop's device."""
    t = made.tensor(value, device=device) if isinstance(value, PLAIN) and device else as_tensor(name, where, value)
    if device is not None and t.device != device:
        t._mixed(made.tensor(0, device=device), name)
    return t


def _same(name: str, tree: Any, other: Any, what: str, reference: str) -> list[Any]:
    """The leaves of `other`, which has the structure of `tree`. Raises TransformError where it has another."""
    found = like(name, tree, other, what, reference)
    if len(flatten(other)) != len(found) or any(isinstance(x, (dict, list, tuple)) or x is None for x in found):
        raise TransformError(f"{name}: {what} has nests where {reference} has none: both have one structure")
    return found


def _length(arrays: Tensors, names: Sequence[str], length: Size | None) -> Size:
    """The number of turns. Raises ShapeError where it is not one."""
    sizes: dict[Size, str] = {}
    for x, name in zip(arrays, names, strict=True):
        if not x.shape:
            raise ShapeError(f"scan: {name} has shape (), and no first axis along which the turns could go")
        sizes.setdefault(x.shape[0], f"{name} has {size_text(x.shape[0])} (shape {x.shape})")
    if len(sizes) > 1:
        raise ShapeError(f"scan: the slices differ in number: {', '.join(sizes.values())}")
    if length is None:
        if not sizes:
            raise ShapeError("scan: nothing says how many turns there are: give xs, or length")
        return next(iter(sizes))
    length = size(length)
    if sizes and length not in sizes:
        raise ShapeError(f"scan: length is {size_text(length)}, but {next(iter(sizes.values()))}")
    if least(length) < 0:
        raise ShapeError(f"scan: length is {size_text(length)}, and cannot be negative")
    return length


def _alike(name: str, where: str, first: str, a: Tensor, second: str, b: Tensor) -> None:
    """Raise ShapeError or DTypeError where two tensors that take turns are of two shapes or dtypes."""
    if a.shape != b.shape:
        raise ShapeError(f"{name}: {where} is of shape {a.shape} as {first}, and of shape {b.shape} as {second}")
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"{name}: {where} is {a.dtype.name} as {first}, and {b.dtype.name} as {second}: use .cast({a.dtype.name!r})"
        )


# -- the body ---------------------------------------------------------------------------------------------------------


def _traced(first: _First) -> tuple[Trace, Tensor, list[Any], list[Any], Tensors, list[Any]]:
    """A turn of the body: what stands for its number, for what is carried and for slices; what is carried on, and the
    rows. It is traced again where what is carried wants a gradient after a turn, and did not before, or where a Python
    number is carried on in a wider dtype.
    """
    name, tree, tensors, turn, arrays, _, test = first
    values = flatten(tree)
    wants = [t._wants and grad_enabled() for t in tensors]
    basis = tensors[0] if tensors else arrays[0] if arrays else made.tensor(0)
    while True:
        trace = Trace(name)
        number = trace.example(basis, (), dtypes.int32, False)
        carried = [trace.example(t, t.shape, None, w) for t, w in zip(tensors, wants, strict=True)]
        parts = [trace.example(x, x.shape[1:]) for x in arrays]
        with modes(turns=[*here.turns, trace]):
            tested = [] if test is None else [trace.apart(test, (trace.again(tree, carried),), {})]
            given = [trace.again(each, each) for each in ([number], parts)]
            out, rows = trace.apart(turn, (*given[0], trace.again(tree, carried), given[1]), {})
            rows = [*rows, *tested]
        after = _carry(first, out)
        wider = [
            k
            for k, (v, t, a) in enumerate(zip(values, tensors, after, strict=True))
            if type(v) in (int, float) and a.shape == () and a.dtype is not t.dtype and a.dtype.is_float
        ]
        for k in wider:
            tensors[k] = tensors[k].cast(after[k].dtype)
            values[k] = None
        again = [w or a._wants for w, a in zip(wants, after, strict=True)]
        if again == wants and not wider:
            break
        wants = again
    _check_carry(first, after)
    trace.check_escapes(often=True)
    here.tensors.host_calls = True
    return trace, number, carried, parts, after, rows


def _results(nodes: Nodes, wants: Sequence[bool], inputs: Tensors) -> list[Any]:
    """Nodes as tensors, through which gradients flow where they are wanted."""
    basis = inputs[0]
    for t in inputs:
        if t._wants:
            t._used = UNSEEN
    detached = not grad_enabled() and (any(wants) or any(t._wants for t in inputs))
    out = [basis._new_plain(u.then(Op.DETACH) if detached else u) for u in nodes]
    for t, wanted in zip(out, wants):
        if wanted and t.dtype.is_float and grad_enabled():
            t._wants, t._leaf = True, False
    return out


def _run(first: _First, count: Size, unroll: int | bool) -> Ends:
    """The carry of a loop at its end, and its rows; where a file is written that has no loops, all turns are one."""
    name = first.name
    if unroll is not False and unroll < 1:
        raise TransformError(f"{name}: unroll is a number of turns of at least 1, or a bool, not {unroll}")
    whole = unroll is True or bool(here.unrolls)
    like = Loop.named(name, count, first.reverse)
    if isinstance(count, UOp):
        if whole:
            what = "what is exported has no loops" if here.unrolls else "unroll=True asks for no loop"
            raise ShapeError(
                f"{name}: {size_text(count)} turns cannot be written out one by one, since their number is known only "
                f"in a run, and {what}: give a length that is an int"
            )
        return _looped(first, like)
    if 0 < here.unrolls < count:
        raise TransformError(
            f"{name}: its {count} turns would be written out one by one, since what is exported has no loops, and at "
            f"most {here.unrolls} are: export the body of the loop as a function, and call it once for each turn"
        )
    together = count if whole else max(1, int(unroll))
    return _looped(first, like) if together == 1 or count == 0 else _unrolled(first, count, together)


def _looped(first: _First, like: Loop) -> Ends:
    """The carry of a loop like another at its end, as tensors, and its rows."""
    trace, number, carried, parts, after, rows = _traced(first)
    if first.test is None and like.length == 0:
        return first.tensors, [zeros(0, *r.shape, dtype=r.dtype, device=r.device) for r in rows]
    wants = [t._wants for t in (*carried, *rows)]
    ends, out = looped(
        like,
        number.uop,
        [],
        _nodes(carried, first.tensors, after),
        _nodes(parts, first.arrays),
        [t.uop for t in rows],
        trace.depends(),
        rows_for_reverse if any(wants) and first.test is None else None,
        trace.inside,
    )
    results = _results([*ends, *out], wants, [*first.tensors, *first.arrays] or [made.tensor(0)])
    return results[: len(ends)], results[len(ends) :]


def _nodes(*several: Tensors) -> list[Any]:
    """Rows of the nodes of tensors that belong together."""
    return list(zip(*[[t.uop for t in each] for each in several], strict=True))


def _unrolled(first: _First, count: int, together: int) -> Ends:
    """The same, where `together` turns are one turn of the loop; those left over are the last to run."""
    name, tree, carry, turn, arrays, reverse, _ = first
    times, rest = divmod(count, together)
    if times == 1:
        times, rest = 0, count
    whole = times * together
    begin, left = (rest, 0) if reverse else (0, whole)

    def turns(number: Any, several: int, state: Any, parts: list[Any]) -> tuple[Any, list[Any]]:
        rows: dict[int, list[Any]] = {}
        for k in list(range(several))[:: -1 if reverse else 1]:
            state, rows[k] = turn(number + k, state, [p[k].clone() for p in parts])
            # what the next turn may change in place, and rows that show the same are not
            ends = _carry(first, state)
            _check_carry(first, ends)
            state = rebuild(tree, iter([t.clone() for t in ends]))
        return state, [stack(list(each)) for each in zip(*[rows[k] for k in range(several)])]

    pieces = []
    if times:
        chunks = [x[begin : begin + whole].reshape(times, together, *x.shape[1:]) for x in arrays]
        each = first._replace(turn=lambda number, *of: turns(number * together + begin, together, *of), arrays=chunks)
        carry, rows = _looped(each, Loop.named(name, times, reverse))
        pieces = [[r.reshape(whole, *r.shape[2:]) for r in rows]]
    if rest:
        basis = (carry or arrays or [made.tensor(0)])[0]
        given = rebuild(tree, iter([t.clone() for t in carry])), [x[left : left + rest] for x in arrays]
        state, rows = turns(made.tensor(left, device=basis.device), rest, *given)
        carry, pieces = flatten(state), [rows, *pieces] if reverse else [*pieces, rows]
    return list(carry), [cat(list(each)) if len(each) > 1 else each[0] for each in zip(*pieces)]


def _carry(first: _First, state: Any) -> list[Any]:
    """The leaves of a carry that the body gives, as tensors. Raises TransformError for another structure."""
    ends = _same(first.name, first.tree, state, "the carry that the body gives", "the carry that it takes")
    each = zip(paths_of(first.tree, "the carry"), ends, strict=True)
    return [_given(first.name, where, v, first.tensors[0].device) for where, v in each]


def _check_carry(first: _First, after: Tensors) -> None:
    """Raise ShapeError or DTypeError where a carry is of another shape or dtype after a turn."""
    for where, t, a in zip(paths_of(first.tree, "the carry"), first.tensors, after, strict=True):
        _alike(first.name, where, "the body takes it", t, "the body gives it", a)
