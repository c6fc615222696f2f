"""Results with a derivative by functions of tensors: what `Function`, `custom_vjp`, `custom_jvp` and hooks are made of.

The functions get tensors that stand for what the graph has by then in the places of the call's inputs, results and
saved values, so a transform may rewrite the graph before the derivative is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from anneal.errors import GradientError, ShapeError
from anneal.names import Tensor
from anneal.ops import grad_enabled, is_tensor, said
from anneal.ops.nodes import reduce_axis, reshape, spread
from anneal.runtime import here, note_call
from anneal.transforms.calls import Derivative, Nodes, Some, differentiated
from anneal.transforms.pullback import paths, pull_back
from anneal.transforms.trace import stand_in
from anneal.uop import Op, UOp, arena

Tensors = Sequence["Tensor"]
# (inputs, results, saved, cotangents of results, None for zero) -> a cotangent of each input, None for zero
PullTensors = Callable[[Tensors, Tensors, Tensors, Sequence[Any]], Sequence[Any]]
# (inputs, results, saved, tangents of inputs, None for zero) -> a tangent of each result, None for zero
PushTensors = Callable[[Tensors, Tensors, Tensors, Sequence[Any]], Sequence[Any]]


def wants_gradient(x: Any) -> bool:
    """True if a gradient is to flow to `x`."""
    return is_tensor(x) and x.requires_grad and grad_enabled()


def attached(
    name: str,
    inputs: Tensors,
    nodes: Nodes,
    results: Tensors,
    saved: Tensors,
    pull: PullTensors | None,
    push: PushTensors | None = None,
    notes: bool = True,
) -> list[Tensor]:
    """Tensors with the values of `results`, whose derivative by `inputs` is `pull` and `push`, or follows from one.

    `name` is for messages, `nodes` are those that the inputs had when the call began; with `notes` the inputs count as
    used. What is saved comes back to the functions: an input or a result among it is that of the call.
    """
    kind, device = type(inputs[0]), inputs[0].device
    others: list[Tensor] = []
    kinds = [_kind(x, inputs, results, others) for x in saved]
    wants = [x.requires_grad for x in inputs]
    flags = [x.requires_grad for x in others]

    def tensors(u: Nodes, wanted: Sequence[bool]) -> list[Tensor]:
        made = [kind._from_uop(n, device) for n in u]
        for t, w in zip(made, wanted, strict=True):
            t._wants, t._leaf = w, not w
        return made

    def call(f: PullTensors | PushTensors, i: Nodes, o: Nodes, s: Nodes, given: Some) -> Sequence[Any]:
        xs, ys, rest = tensors(i, wants), tensors(o, [True] * len(o)), tensors(s, flags)
        place = {"input": xs, "result": ys, "other": rest}
        back = [place[where][n] for where, n in kinds]
        # their own derivatives are those of the nodes; to the function they are plain values
        values = [None if g is None else tensors([g], [True])[0] for g in given]
        with _by_the_way():
            return f(xs, ys, back, values)

    def pulled(i: Nodes, o: Nodes, s: Nodes, given: Some) -> Some:
        if pull is None:
            return _transposed(lambda t: pushed(i, o, s, t), i, given)
        made = call(pull, i, o, s, [None if g is None else spread(g, u.shape) for g, u in zip(given, o, strict=True)])
        return [_fitting(f"{name}: the gradient", n, c, u) for n, (c, u) in enumerate(zip(made, i, strict=True))]

    def pushed(i: Nodes, o: Nodes, s: Nodes, given: Some) -> Some:
        assert push is not None
        made = call(push, i, o, s, given)
        return [_fitting(f"{name}: the tangent", n, c, u) for n, (c, u) in enumerate(zip(made, o, strict=True))]

    here.context.tensors.derivatives = True
    values = [y.uop for y in results]
    token = Derivative(name, pulled, None if push is None else pushed).token(device)
    made = tensors(differentiated(values, nodes, [x.uop for x in others], token), [True] * len(values))
    if notes:
        wanted = [(x, u) for x, u in zip(inputs, nodes, strict=True) if x.requires_grad]
        note_call([x for x, _ in wanted], [u for _, u in wanted], made)
    return made


def _kind(x: Tensor, inputs: Tensors, results: Tensors, others: list[Tensor]) -> tuple[str, int]:
    """The origin of a saved tensor, and its number there; one from elsewhere is added to `others`."""
    for where, several in (("input", inputs), ("result", results)):
        for n, t in enumerate(several):
            if t is x:
                return where, n
    others.append(x)
    return "other", len(others) - 1


@contextmanager
def _by_the_way() -> Iterator[None]:
    """A block for a user's function that runs while a gradient is taken: differentiable, and not remembered as a
    call.
    """
    grad, defers = here.grad, here.defers
    here.grad, here.defers = True, False
    try:
        yield
    finally:
        here.grad, here.defers = grad, defers


def _fitting(what: str, n: int, c: Any, x: UOp) -> UOp | None:
    """A cotangent or tangent as the node it belongs to wants it; what was broadcast is summed. Errors name the place.

    Raises GradientError for what is no tensor, ShapeError for another shape.
    """
    if c is None or not x.dtype.is_float:
        return None
    if not is_tensor(c):
        raise GradientError(f"{what} of input {n} is a tensor or None, not {said(c)}")
    u: UOp = c.uop
    if u.shape != x.shape:
        extra = len(u.shape) - len(x.shape)
        fits = extra >= 0 and all(b in (1, a) for a, b in zip(u.shape[extra:], x.shape))
        if not fits:
            raise ShapeError(f"{what} {n} has shape {u.shape}, and its value {x.shape}")
        wide = [i for i in range(len(u.shape)) if i < extra or x.shape[i - extra] != u.shape[i]]
        u = reshape(reduce_axis(u, Op.ADD, tuple(wide)), x.shape)
    return u.cast(x.dtype)


def _transposed(linear: Callable[[Some], Some], inputs: Nodes, given: Some) -> Some:
    """The transpose of a linear map from tangents of the inputs to those of the results, at the cotangents `given`."""
    mark = arena().watermark()
    tangents = [stand_in(x.dtype, x.shape) if x.dtype.is_float else None for x in inputs]
    made = linear(tangents)
    stand_ins = [t for t in tangents if t is not None]
    order = [(u, u.src) for u in arena().since(mark)]
    seeds = [(t, g) for t, g in zip(made, given, strict=True) if t is not None and g is not None]
    found = pull_back(seeds, *paths(order, stand_ins))
    out: list[UOp | None] = []
    for t, x in zip(tangents, inputs, strict=True):
        g = None if t is None else found.get(t)
        out.append(None if g is None else spread(g, x.shape).cast(x.dtype))
    return out
