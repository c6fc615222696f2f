"""Functions with a derivative given by the user: JAX's custom_vjp and custom_jvp, and torch's `autograd.Function`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import compress, repeat
from typing import Any, Generic, NamedTuple, TypeVar

from anneal.errors import GradientError, MissingMethodError, ShapeError, TransformError
from anneal.names import Tensor
from anneal.ops import grad_enabled, is_tensor, no_grad, said, zeros
from anneal.ops.nodes import reduce_axis, reshape, spread
from anneal.runtime import Args, Fun, Late, Options, emptied, filled, here, is_hole, modes, note_call, numbering_of
from anneal.transforms.trace import P, R, flatten, leaf_nodes, like, rebuild
from anneal.transforms.walks import Derivative, differentiated, ended, transposed
from anneal.uop import Nodes, Op, Some, UOp


class _Made(NamedTuple):
    """The facts of a call that its derivative needs, without its tensors."""

    plain: Args  # the arguments that are not differentiated
    slots: Args  # the others, without their tensors
    shape: Any  # the result without its tensors
    kinds: list[bool]  # which tensors of the result are floats


class _Custom(Generic[P, R]):
    """A function with a custom derivative; some of its arguments are differentiated, the others are not."""

    _how: str  # the method that sets the derivative, for messages
    _rule: Any = None
    _pull: Any = None  # the derivative of a call that was made, as functions of tensors
    _push: Any = None

    def __init__(self, fun: Callable[P, R], nondiff_argnums: Sequence[int] = ()) -> None:
        functools.update_wrapper(self, fun)
        if not callable(fun) or not hasattr(nondiff_argnums, "__iter__"):
            raise TransformError(f"{type(self).__name__}: takes a function, and a list of numbers of its arguments")
        self.fun, self.nondiff = fun, tuple(nondiff_argnums)
        self.name = getattr(fun, "__name__", type(fun).__name__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        at = {n % len(args) for n in self.nondiff if -len(args) <= n < len(args)}
        given = tuple([a for n, a in enumerate(args) if n not in at])
        inputs = [x for x in flatten(given) if is_tensor(x)]
        if not any(map(wants_gradient, inputs)):
            return self.fun(*args, **kwargs)
        if self._rule is None:
            raise GradientError(f"{type(self).__name__}: {self.name} has no derivative yet: {self.name}.{self._how}")
        with no_grad():
            out, residuals = self._run(args, kwargs)
        leaves = flatten(out)
        for leaf in leaves:
            if not is_tensor(leaf):
                raise TransformError(f"{self.name}: returns a tree of tensors, and {type(leaf).__name__} is none")
        plain, kinds = tuple([a for n, a in enumerate(args) if n in at]), [y.dtype.is_float for y in leaves]
        call, floats = _Made(plain, emptied(given), emptied(out), kinds), list(compress(leaves, kinds))
        pull, push = [f and functools.partial(f, call) for f in (self._pull, self._push)]
        nodes = [t.late or t.uop for t in inputs]
        found = iter(attached(self.name, inputs, nodes, floats, pull, push, residuals) if floats else ())
        result: R = rebuild(out, iter([next(found) if is_float else y for y, is_float in zip(leaves, kinds)]))
        return result

    def _run(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The result, and what its derivative is to have."""
        return self.fun(*args, **kwargs), ()


class custom_vjp(_Custom[P, R]):
    """The function `fun` with a reverse derivative of its own: `f.defvjp(fwd, bwd)`, as in JAX.

    `fwd(*args)` gives the result and residuals, a tree of tensors and plain values; `bwd(residuals, cotangent)` gives a
    tuple with a cotangent for each argument, None for zero. Arguments of `nondiff_argnums` are passed on as they are:
    `bwd(*nondiff, residuals, cotangent)`. Each gradient that is taken calls `bwd`; jit replays what it made. It works
    in `backward`, in every transform, and with derivatives of derivatives; forward mode is the transpose.

    Raises GradientError where a gradient is wanted before `defvjp`, or `bwd` gives another number of cotangents.

    >>> from anneal.tensor import Tensor, grad
    >>> @custom_vjp
    ... def clipped(x):  # whose gradient is clipped, too
    ...     return x * 3
    >>> clipped.defvjp(lambda x: (x * 3, None), lambda _, g: ((g * 3).clamp(-1, 1),))
    >>> grad(lambda x: clipped(x).sum())(Tensor([1.0, 2.0]))
    Tensor([1., 1.], dtype=float32)
    """

    _how = "defvjp(fwd, bwd)"

    def defvjp(self, fwd: Fun, bwd: Fun) -> None:
        """Set `fwd`, the forward function with residuals, and `bwd`, which maps residuals and a cotangent to
        cotangents.
        """
        self._rule = fwd, bwd

    def _run(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        both = self._rule[0](*args, **kwargs)
        if not isinstance(both, (tuple, list)) or len(both) != 2:
            raise TransformError(
                f"{self.name}: fwd gives a pair, the result and the residuals, not {type(both).__name__}"
            )
        return both[0], both[1]

    def _pull(self, call: _Made, _: Any, outputs: Tensors, residuals: Any, cotangents: Sequence[Any]) -> list[Any]:
        found = iter([y.zeros_like() if g is None else g for y, g in zip(outputs, cotangents, strict=True)])
        whole = filled(call.shape, iter([next(found) if is_float else None for is_float in call.kinds]))
        several = _several(self._rule[1](*call.plain, residuals, whole))
        if len(several) != len(call.slots):
            raise GradientError(
                f"custom_vjp: bwd of {self.name} gives {len(several)} cotangents for {len(call.slots)} arguments: a "
                "tuple with one for each, None for zero"
            )
        return _of_tensors(self.name, call.slots, several)


class custom_jvp(_Custom[P, R]):
    """The function `fun` with a forward derivative of its own: `f.defjvp(rule)`, or `f.defjvps(*rules)`, as in JAX.

    `rule(primals, tangents)` gives the result and its tangent, which is linear in the tangents: reverse mode transposes
    it. Arguments of `nondiff_argnums` come first: `rule(*nondiff, primals, tangents)`. A rule of `defjvps` is of one
    argument, `rule(tangent, result, *primals)`, or None where nothing flows.

    Raises GradientError where a gradient is wanted before `defjvp`.

    >>> from anneal.tensor import Tensor, grad
    >>> @custom_jvp
    ... def cube(x):
    ...     return x * x * x
    >>> cube.defjvps(lambda t, ans, x: 3 * ans / x * t)
    >>> grad(lambda x: cube(x).sum())(Tensor([2.0]))
    Tensor([12.], dtype=float32)
    """

    _how = "defjvp(rule)"

    def defjvp(self, rule: Fun) -> None:
        """Set `rule`, which maps primals and tangents to the result and its tangent."""
        self._rule = rule

    def defjvps(self, *rules: Fun | None) -> None:
        """Set `rules`, one for each argument, whose tangents add up; None where nothing flows."""

        def of_all(primals: Args, tangents: Args) -> tuple[Any, Any]:
            out = self.fun(*primals)  # type: ignore[call-arg]
            parts = [r(t, out, *primals) for r, t in zip(rules, tangents, strict=True) if r is not None]
            total: Any = 0.0 * out  # type: ignore[operator]
            for p in parts:
                total = total + p
            return out, total

        self._rule = of_all

    def _push(self, call: _Made, xs: Tensors, _: Any, __: Any, tangents: Sequence[Any]) -> list[Any]:
        each = [x.zeros_like() if t is None else t for x, t in zip(xs, tangents, strict=True)]
        _, tangent = self._rule(*call.plain, filled(call.slots, iter(xs)), filled(call.slots, iter(each)))
        parts = like("custom_jvp", call.shape, tangent, f"the tangent of {self.name}", "the result")
        return [p for p, is_float in zip(parts, call.kinds, strict=True) if is_float]


def _several(made: Any) -> list[Any]:
    """The results of a function that gives one or several."""
    return list(made) if isinstance(made, (tuple, list)) else [made]


def _of_tensors(name: str, given: Args, made: Sequence[Any]) -> list[Any]:
    """The cotangents of the tensors among the arguments."""
    out: list[Any] = []
    for n, (a, c) in enumerate(zip(given, made, strict=True)):
        leaves = flatten(a)
        parts = (
            [None] * len(leaves)
            if c is None
            else like("custom_vjp", a, c, f"the cotangent {n} of {name}", "the argument")
        )
        out += [p for p, x in zip(parts, leaves, strict=True) if is_hole(x)]
    return out


# -- `autograd.Function` ----------------------------------------------------------------------------------------------
# Torch's class for an op with a derivative of its own.


F = TypeVar("F", bound=Fun)


class FunctionCtx:
    """The context that `forward` fills for `backward`: saved tensors, and any attribute that it sets;
    `needs_input_grad` has a bool for each argument.
    """

    _saved: Args = ()
    _saved_forward: Args = ()
    _zeros = True

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._plain: set[int] = set()
        self._dirty: set[int] = set()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors, or None, for `ctx.saved_tensors` in `backward`."""
        for t in tensors:
            if t is not None and not is_tensor(t):
                raise GradientError(f"save_for_backward: takes tensors and None, not {type(t).__name__}: set ctx.x = x")
        self._saved = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep `tensors`, or None, for `ctx.saved_tensors` in `jvp`."""
        self._saved_forward = tensors

    @property
    def saved_tensors(self) -> Args:
        """The tensors that `save_for_backward`, or for `jvp` `save_for_forward`, kept."""
        return self._saved or self._saved_forward

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Declare that no gradient flows through `tensors`, results of `forward`."""
        self._plain |= {id(t) for t in tensors}

    def mark_dirty(self, *tensors: Any) -> None:
        """Declare that `forward` changed `tensors`, which are among its arguments, in place; it returns them."""
        self._dirty |= {id(t) for t in tensors}

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether a result that nothing depends on has a cotangent of zeros, which is the default, or (for a false
        `value`) None.
        """
        self._zeros = bool(value)

    def _taken(self) -> Options:
        """Take the attributes that hold tensors away, and return them."""
        found = {name: value for name, value in vars(self).items() if any(map(is_tensor, flatten(value)))}
        for name in found:
            delattr(self, name)
        return found

    def _with(self, state: Options, f: Fun, given: Sequence[Any]) -> list[Any]:
        """The results of a function of this context and `given`; meanwhile the context has these attributes."""
        vars(self).update(state)
        try:
            return _several(f(self, *given))
        finally:
            for name in state:
                delattr(self, name)


class Function:
    """Base of ops with a derivative of their own: `forward(ctx, *args)`, `backward(ctx, *grads)`, called by `apply`.

    As in torch: both are static methods; `ctx` keeps what `save_for_backward` is given, and attributes; `backward`
    gives a gradient for each argument, None for none. With `setup_context(ctx, inputs, output)` `forward` takes no ctx.
    A `jvp(ctx, *tangents)` is forward mode's; without one that is the transpose of `backward`. Each gradient that is
    taken calls `backward`, also in a loop that anneal recognises; a jit function calls both while it is captured, and
    replays what they made. What `backward` is made of has derivatives itself, and `vmap` maps both.

    >>> from anneal.tensor import Tensor
    >>> class Straight(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x.round()
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         return g
    >>> x = Tensor([0.2, 1.7], requires_grad=True)
    >>> (Straight.apply(x) * 3).sum().backward()
    >>> x.grad
    Tensor([3., 3.], dtype=float32)
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The value: `forward(ctx, *args)`, or with a `setup_context` `forward(*args)`."""
        raise MissingMethodError("a Function defines forward(ctx, *args), a static method: define it in the class")

    @staticmethod
    def setup_context(ctx: Any, inputs: Args, output: Any) -> Any:
        """Keep in `ctx` the values of `inputs` and of `output` that `backward` needs."""
        raise MissingMethodError("this Function defines no setup_context, a static method: define it in the class")

    @staticmethod
    def backward(*args: Any, **kwargs: Any) -> Any:
        """The gradients of the arguments, one for each, given those of the results: `backward(ctx, *grads)`."""
        raise MissingMethodError("this Function defines no backward, a static method: define it in the class")

    @staticmethod
    def jvp(*args: Any, **kwargs: Any) -> Any:
        """The tangents of the results, given those of the arguments: `jvp(ctx, *tangents)`."""
        raise MissingMethodError("this Function defines no jvp, a static method: define it in the class")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """The results for these arguments; gradients flow to the tensors among them.

        Raises GradientError where `backward` gives what does not fit, or there is neither it nor `jvp`.
        """
        if kwargs:
            raise GradientError(f"{cls.__name__}.apply: takes positional arguments alone, not {', '.join(kwargs)}")
        ctx = FunctionCtx(tuple([wants_gradient(a) for a in args]))
        wants = any(ctx.needs_input_grad)
        # before `forward` may change one in place, or compute it
        nodes = [a.late.as_origin() if a.late else a.uop for a in args if is_tensor(a)] if wants else []
        with no_grad():
            if cls.setup_context is Function.setup_context:
                out = cls.forward(ctx, *args)
            else:
                out = cls.forward(*args)
                cls.setup_context(ctx, args, out)
        return _results(cls, ctx, args, nodes, out) if wants else out


def _results(cls: type[Function], ctx: FunctionCtx, args: Args, nodes: list[Any], out: Any) -> Any:
    """The results with their derivative, by functions which hold no tensor: `ctx` gets back what it has of them."""
    several, count, places = _several(out), len(args), [n for n, a in enumerate(args) if is_tensor(a)]
    at = [n for n, y in enumerate(several) if is_tensor(y) and y.dtype.is_float and id(y) not in ctx._plain]
    if not at:
        return out
    if cls.backward is Function.backward and cls.jvp is Function.jvp:
        raise GradientError(f"{cls.__name__}: a gradient is wanted, and the class defines neither backward nor jvp")
    others = [(y.shape, y.dtype, y.device) if is_tensor(y) and n not in at else None for n, y in enumerate(several)]

    def pull(_: Any, outputs: Tensors, state: Options, given: Sequence[Any]) -> list[Any]:
        fills = ctx._zeros
        found = [zeros(*y[0], dtype=y[1], device=y[2]) if fills and y is not None else None for y in others]
        for n, y, g in zip(at, outputs, given, strict=True):
            found[n] = y.zeros_like() if g is None and fills else g
        grads = ctx._with(state, cls.backward, found)
        if len(grads) < count or any(g is not None for g in grads[count:]):
            raise GradientError(
                f"{cls.__name__}.backward gives {len(grads)} gradients for {count} arguments of forward: one for each, "
                "None where there is none"
            )
        return [grads[n] if ctx.needs_input_grad[n] else None for n in places]

    def push(_: Any, __: Any, state: Options, given: Sequence[Any]) -> list[Any]:
        tangents: list[Any] = [None] * count
        for n, t in zip(places, given, strict=True):
            tangents[n] = t
        made = ctx._with(state, cls.jvp, tangents)
        return [made[n] for n in at]

    made = attached(
        cls.__name__,
        [args[n] for n in places],
        nodes,
        [several[n] for n in at],
        None if cls.backward is Function.backward else pull,
        None if cls.jvp is Function.jvp else push,
        ctx._taken(),
        again=_changed if ctx._dirty else None,
    )
    results = list(several)
    for n, y in zip(at, made, strict=True):
        if id(several[n]) in ctx._dirty:  # the argument itself is the result
            several[n]._become(y.uop)
            several[n]._wants, several[n]._leaf, several[n]._spent = True, False, False
        else:
            results[n] = y
    return type(out)(results) if isinstance(out, (tuple, list)) else results[0]


def _changed(*_: Any) -> Any:
    raise GradientError("a call that changed its argument is not made again")


def once_differentiable(backward: F) -> F:
    """A `backward` of which no derivative is taken: its results are values, and asking for theirs is an error."""

    @functools.wraps(backward)
    def once(ctx: Any, *grads: Any) -> Any:
        inputs = list(filter(wants_gradient, grads))
        nodes = [g.uop for g in inputs]
        with no_grad():
            several = _several(backward(ctx, *grads))
        at = [n for n, c in enumerate(several) if is_tensor(c)]
        if inputs and at:

            def refused(*_: Any) -> Any:
                raise GradientError("a function marked with @once_differentiable was to be differentiated twice")

            found = attached("once_differentiable", inputs, nodes, [several[n] for n in at], refused)
            for n, c in zip(at, found, strict=True):
                several[n] = c
        return tuple(several)

    return once  # type: ignore[return-value]


# -- derivatives by functions of tensors ------------------------------------------------------------------------------
# Results with a derivative by functions of tensors: what `Function`, `custom_vjp`, `custom_jvp` and hooks are made of.
#
# The functions get tensors that stand for what the graph has by then in the places of the call's inputs, results and
# saved values, so a transform may rewrite the graph before the derivative is taken.


Tensors = Sequence["Tensor"]
# (inputs, results, state, cotangents of results) -> one of each input; or tangents of inputs -> one of each result;
# None is zero
OfTensors = Callable[[Tensors, Tensors, Any, Sequence[Any]], Sequence[Any]]


def wants_gradient(x: Any) -> bool:
    """True if a gradient is to flow to `x`."""
    return is_tensor(x) and x.requires_grad and grad_enabled()


def attached(
    name: str,
    inputs: Tensors,
    nodes: Sequence[UOp | Late],
    results: Tensors,
    pull: OfTensors | None,
    push: OfTensors | None = None,
    state: Any = (),
    notes: bool = True,
    again: Any = None,
) -> list[Tensor]:
    """Tensors with the values of `results`, whose derivative by `inputs` is `pull` and `push`, or follows from one.

    `name` is for messages, `nodes` are those that the inputs had when the call began, or their records; with `notes`
    the inputs count as used. The tensors in `state` are saved, and come back to the functions in it: an input or a
    result among them is that of the call. `again` makes the call a second time, if its nodes do not show how.
    """
    several, kept, places = _saved(inputs, results, state)
    far = results[0].device
    first, last = len(inputs), len(inputs) + len(results)
    wants, devices = [x.requires_grad for x in several], [x.device for x in several]
    wants[first:last] = [True] * len(results)

    # a leaf of the user's gets its gradient itself, where a graph in the state is differentiated
    own = [x if k >= last and x.requires_grad and x.is_leaf else None for k, x in enumerate(several)]
    tensor = functools.partial(_tensor, type(inputs[0]))

    def call(f: OfTensors, rows: Nodes, given: Some, ends: bool, n: Any = None) -> list[Any]:
        there = list(map(tensor, rows, devices, wants, repeat(n), own))
        back = filled(kept, map(there.__getitem__, places))
        # their own derivatives are those of the nodes; to the function they are values, and constants in the last one
        what, like = ("gradient", there[:first]) if f is pull else ("tangent", there[first:last])
        values = [tensor(g, far if f is pull else devices[0], not ends, n) for g in given]
        with modes(grad=not ends, defers=True, derives=n is None, answer=None):
            made = f(there[:first], there[first:last], back, values)
        fits = [_fitting(f"{name}: the {what}", k, c, x) for k, (c, x) in enumerate(zip(made, like, strict=True))]
        return fits if n is not None else [c if c is None else c.uop for c in fits]

    def pulled(i: Nodes, o: Nodes, s: Nodes, given: Some) -> Some:
        if pull is None:
            return transposed(lambda t: pushed(i, o, s, t), i, given)
        ends = here.hooks is not None and not (here.creates or here.derives)
        wide = [None if g is None else spread(g, u.shape) for g, u in zip(given, o, strict=True)]
        return call(pull, [*i, *o, *s], [ended(g) if ends and g is not None else g for g in wide], ends)

    pushed: Any = push and (lambda i, o, s, given: call(push, [*i, *o, *s], given, False))  # type: ignore[list-item]
    here.tensors.derivatives = True
    derivative = Derivative(name, pulled, pushed)
    derivative.late = pull and (lambda n, rows: call(pull, rows, rows[len(wants) :], True, n))  # type: ignore[misc]
    token = derivative.token(far)
    n: Any = numbering_of() if notes and [x.late or x.uop for x in inputs] == nodes else None
    known = n and n.read(several)
    if known:
        token = n.template(token)
    else:
        n, known = None, [*[u() if u.__class__ is Late else u for u in nodes], *[t.uop for t in several[first:]]]
    made = [tensor(u, far, True, n) for u in differentiated(known[first:last], known[:first], known[last:], token)]
    if notes:
        note_call(list(compress(inputs, wants)), list(compress(known[:first], wants)), made, again)
    return made


def _tensor(kind: Any, u: UOp | None, device: str, wanted: bool, n: Any = None, own: Any = None) -> Any:
    """A tensor of that kind for a node, or for a template of numbering `n`; `own` if this is its value yet."""
    if own is not None:
        nodes: Any = (own.late.template,) if own.late else leaf_nodes(own)
        if u in (nodes if n is None or own.late else map(n.known.get, nodes)):
            return own
    if u is None:
        return u
    if n is not None:
        return Late(n, u, u.provenance[1:3]).tensor(kind, device, wanted)
    return kind._from_uop(u, device, wanted)


def _saved(inputs: Tensors, results: Tensors, state: Any) -> tuple[list[Tensor], Any, list[int]]:
    """The inputs, the results, and the other tensors in `state`; that without its tensors, and which those are."""
    saved: list[Tensor] = []
    kept = emptied(state, saved)
    several = [*inputs, *results]
    several += [x for x in saved if id(x) not in {*map(id, several)}]
    own = {id(t): n for n, t in reversed(list(enumerate(several)))}
    return several, kept, [own[id(x)] for x in saved]


def _fitting(what: str, n: int, c: Any, x: Tensor) -> Any:
    """A cotangent or tangent as the node it belongs to wants it; what was broadcast is summed. Errors name the place.

    Raises GradientError for what is no tensor, ShapeError for another shape.
    """
    if c is None or not x.dtype.is_float:
        return None
    if not is_tensor(c):
        raise GradientError(f"{what} of input {n} is a tensor or None, not {said(c)}")
    if c.shape != x.shape:
        u = c.uop
        extra = len(u.shape) - len(x.shape)
        fits = extra >= 0 and all(b in (1, a) for a, b in zip(u.shape[extra:], x.shape))
        if not fits:
            raise ShapeError(f"{what} {n} has shape {u.shape}, and its value {x.shape}")
        wide = [i for i in range(len(u.shape)) if i < extra or x.shape[i - extra] != u.shape[i]]
        c = c._new_plain(reshape(reduce_axis(u, Op.ADD, tuple(wide)), x.shape))
    return c if c.dtype is x.dtype else c.cast(x.dtype)
