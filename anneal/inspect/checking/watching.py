"""Programs under check: whatever they compute is computed once more, kernel by kernel, and compared."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import wraps
from threading import get_ident
from typing import Any

import numpy as np

from anneal.backend import get_device
from anneal.errors import AnnealError, GradientError, UserError
from anneal.inspect.checking.blame import CheckLimits, wrong_rules
from anneal.inspect.checking.bounds import Array
from anneal.inspect.checking.launches import check_launch
from anneal.inspect.checking.records import Finding, GradientCheck, Report
from anneal.inspect.checking.tensor_values import TensorValues, TooLarge
from anneal.inspect.kernel_list import lines_of
from anneal.progress import told
from anneal.rewrite import Event, substitute, tracing
from anneal.runtime import Handle, Launch, here, modes, realize, storage_of, watched
from anneal.tensor import Tensor, tree_leaves, vjp
from anneal.uop import Nodes, Op, UOp, toposort


class Checking:
    """A check under way: the `report` so far, and the findings that can be shown again.

    Args:
        limits: the limits of the work.
        times: the number of runs of a plan that are checked.
    """

    def __init__(self, limits: CheckLimits, times: int) -> None:
        self.report = Report()
        self.found: list[Finding] = []
        self.limits, self.times = limits, times
        self.events: list[Event] = []
        self._met: Counter[tuple[str, str]] = Counter()  # rules that were looked at
        self._seen: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def __call__(self, sink: UOp, step: Launch) -> None:
        self.look()
        number = self.report.launches
        self.report.launches += 1
        seen = self._seen[step.plan] = self._seen.get(step.plan, 0) + 1
        if seen > self.times:
            self.report.say(f"plans that run again and again were checked the first {self.times} times")
            return
        device = get_device(step.outputs[0].device)
        if device.name not in self.report.device.split(", "):
            self.report.device = ", ".join(x for x in (self.report.device, device.name) if x)
        with modes(watchers=[]):
            check_launch(sink, step, device, number, self.limits, self.report, self.found)

    def look(self) -> None:
        """Look at the rules that fired so far while the graph was made."""
        for found in wrong_rules(self.events, self._met):
            if found.rule not in [s.rule for s in self.report.rules]:
                self.report.rules.append(found)


@contextmanager
def under_check(limits: CheckLimits | None = None, times: int = 2, gradients: bool = False) -> Iterator[Checking]:
    """Check what this thread computes inside the block; each plan the first `times` times that it runs.

    Args:
        limits: the limits of the work.
        gradients: hold the gradients of each `backward()` against differences too, the first `times` times that its
            line runs.
    """
    state = Checking(limits or CheckLimits(), times)
    with tracing() as state.events, watched(state), _backwards(state) if gradients else nullcontext():
        yield state
        state.look()


@contextmanager
def _backwards(state: Checking) -> Iterator[None]:
    """Calls of `backward` by this thread check the gradients of what they are called on before they add any."""
    right, thread, report = Tensor.backward, get_ident(), state.report
    seen: Counter[Any] = Counter()
    busy = False

    @wraps(right)
    def backward(self: Tensor, *args: Any, **kwargs: Any) -> None:
        nonlocal busy
        if get_ident() == thread and not busy:
            busy = True
            try:
                look(self)
            finally:
                busy = False
        right(self, *args, **kwargs)

    def look(loss: Tensor) -> None:
        line = loss.uop.provenance[1:3]
        seen[line] += 1
        if seen[line] > state.times:
            report.say(f"gradients of a line that runs again and again were checked the first {state.times} times")
        elif loss.uop.size != 1 or not loss.uop.dtype.is_float:
            report.say("gradients of a backward() that does not begin at one float were not checked")
        elif here.tensors.hooked:
            report.say("gradients were not checked where tensors have hooks: they would be called twice")
        else:
            try:
                check_gradients(loss, {}, report)
            except UserError:  # a loss in memory already, or one that depends on no leaf: backward says which
                report.say("gradients of a result that was computed before its backward() were not checked")

    setattr(Tensor, "backward", backward)  # noqa: B010
    try:
        yield
    finally:
        setattr(Tensor, "backward", right)  # noqa: B010


def check(
    fn: Callable[..., Any],
    *args: Any,
    gradients: bool = False,
    limits: CheckLimits | None = None,
    **kwargs: Any,
) -> Report:
    """Call `fn` and check every kernel that it runs, and those that its results take.

    Each kernel runs by itself on the values that it read, and is held against its own graph and against the graph as it
    was written, both in float64 with a running error bound. Functions under `jit` run as at their first call.

    Args:
        fn: a function; tensors that it captures count as well as its arguments.
        args, kwargs: what it is called with.
        gradients: hold the gradient of its result, a float of one element, against differences in float64, for every
            leaf that requires one.
        limits: how much work to do; what is beyond is drawn by chance, or left out, and the report says so.

    Returns:
        A Report: `ok`, `first` (the first difference), `kernels`, `not_finite`, and as text what the command prints.

    Raises:
        UserError: `fn` is no function, or nothing was computed; what `fn` raises is raised.

    >>> from anneal.tensor import Tensor
    >>> report = check(lambda x: x.exp().sum(), Tensor([1.0, 2.0], device="cpu"))
    >>> report.ok, report.first, [k.tensor_elements for k in report.kernels]
    (True, None, [1])
    """
    if not callable(fn):
        raise UserError(f"check takes a function and its arguments, not {type(fn).__name__}")
    with under_check(limits) as state:
        found = [t for t in tree_leaves(fn(*args, **kwargs)) if isinstance(t, Handle)]
        if gradients:
            loss: Any = found[0] if len(found) == 1 else None
            if loss is None or loss.uop.size != 1 or not loss.uop.dtype.is_float:
                raise UserError(
                    "check: with gradients=True the function returns one float tensor of one element: a loss"
                )
            check_gradients(loss, {}, state.report)
        realize(found)
    if not state.report.launches and not state.report.gradients:
        raise UserError("check: the function computed nothing; return a tensor that is not computed yet")
    return state.report


# -- gradients beside central differences, both of the graph as it was written, in float64 ----------------------------
# Each leaf is moved along one random direction of signs, so that every element counts. Where that differs, the
# derivative of every node on the way is held against differences of the node alone, and the first rule that is wrong is
# named. What the device makes of the gradient's graph is the business of the check of its kernels.


_MOST = 1 << 28  # elements in all arrays of one evaluation
_STEP = 1e-5
_NODE = 1 << 18  # elements of a node whose own derivative is checked


def check_gradients(loss: Tensor, names: Mapping[int, str], report: Report, seed: int = 0) -> None:
    """Add to `report` the gradients of `loss`, of one element and not computed yet, by every leaf that requires one.

    `names` are those of leaves, by the id of the tensor. Raises UserError where nothing requires a gradient.

    Args:
        seed: the number that random draws begin with.
    """
    order = toposort(loss.uop)
    live = [t for t in here.tensors.live_leaves() if isinstance(t, Tensor)]
    known = set(order)
    lazy = {t.uop: t for t in live if storage_of(t.uop) is None and t.uop in known}
    for u in order:  # a leaf that a function made for itself, and let go of
        if u.op is Op.CONTIGUOUS and u.tag is not None and u not in lazy:
            lazy[u] = t = Tensor._from_uop(u, loss.device)
            t._wants = True
            here.tensors.leaves[id(t)] = t
            live.append(t)
    if lazy:  # what leaves hold has to be in memory to be moved
        realize(list(lazy.values()))
        loss = loss._new(substitute(loss.uop, {u: t.uop for u, t in lazy.items()}))
        order = toposort(loss.uop)
    below = {u.arg for u in order if u.op is Op.BUFFER}
    leaves = [t for t in live if storage_of(t.uop) in below]
    if not leaves:
        raise UserError("check: no tensor below the result requires a gradient, so there is none to check")
    before = [t._grad for t in leaves]
    try:
        for t in leaves:
            t._grad = None
        loss.backward(retain_graph=True)
        grads = [t._grad for t in leaves]
    finally:
        for t, g in zip(leaves, before, strict=True):
            t._grad = g
    held = _contents((loss.uop, *[g.uop for g in grads if g is not None]))
    rng = np.random.default_rng(seed)
    wrong = False
    try:
        for n, (t, g) in enumerate(told(zip(leaves, grads, strict=True), "checking gradients", len(leaves))):
            if g is None:
                continue
            name = names.get(id(t), f"leaf {n}, {t.dtype.name}{list(t.shape)}")
            one = _one(loss.uop, t, _value(g.uop, held), held, rng, name)
            report.gradients.append(one)
            wrong |= not one.ok
        if wrong:
            _name_rules(loss, held, report, rng)
    except TooLarge as e:
        report.say(f"gradients were not checked further: an evaluation in float64 takes {e}")


def _value(u: UOp, held: Mapping[Any, Array]) -> Array:
    """The value of a node in float64 without bounds, over leaves with these contents."""
    return np.asarray(TensorValues(held, _MOST, plain=True).value(u).value, float)


def _contents(roots: Iterable[UOp]) -> dict[Any, Array]:
    """The contents of the leaves below, floats as float64."""
    held = {}
    for u in toposort(tuple(roots)):
        if u.op is Op.BUFFER and u.arg not in held:
            s = u.arg
            content = s.host if s.host is not None else get_device(s.device).download(s.ensure(), s.size, s.dtype)
            held[s] = content.ravel().astype(float) if u.dtype.is_float else content.ravel()
    return held


def _checked(
    f: Any, scale: float, got: float, sizes: Iterable[float], name: str, u: Any, blame: str = "", lines: Any = ()
) -> GradientCheck:
    """A derivative at 0 of `f`, a function of one number, beside central differences with two steps; it is that of `u`,
    and rounding lets it differ by a part of the largest of `sizes`, too.

    The bound has the difference between both steps, that between both sides (a kink, where no rule is wrong), and the
    rounding of `f`.
    """
    h = _STEP * scale
    at = {k: f(k * h) for k in (-2, -1, 0, 1, 2)}
    near, far = (at[1] - at[-1]) / (2 * h), (at[2] - at[-2]) / (4 * h)
    ahead, behind = (at[1] - at[0]) / h, (at[0] - at[-1]) / h
    value = (4 * near - far) / 3
    rounding = 64 * 2.0**-52 * max(map(abs, at.values())) / h
    bend = abs(ahead - behind)
    # of a smooth function both sides differ by the step times its second derivative, by far less than its slope
    kink = bend if bend > 1e-3 * max(abs(ahead), abs(behind)) else 0.0
    bound = 2 * abs(near - far) + rounding + kink + 1e-6 * max(abs(got), abs(value), *sizes)
    right = bool(abs(got - value) <= bound)
    return GradientCheck(name, tuple(u.shape), (), got, value, bound, right, blame, lines)


def _one(
    root: UOp, t: Tensor, gradient: Array, held: Mapping[Any, Array], rng: np.random.Generator, name: str
) -> GradientCheck:
    storage = storage_of(t.uop)
    content = held[storage]
    signs = rng.choice([-1.0, 1.0], content.size)

    def moved(by: float) -> float:
        return float(_value(root, {**held, storage: content + by * signs}).ravel()[0])

    scale = max(float(np.sqrt(np.mean(content**2))), 1e-3) / max(1.0, content.size**0.5) ** 0.5
    size = float(np.abs(gradient).sum()) / max(1.0, content.size**0.5)
    return _checked(moved, scale, float((gradient.ravel() * signs).sum()), (size,), name, t)


# -- one node at a time -----------------------------------------------------------------------------------------------


def _name_rules(loss: Tensor, held: Mapping[Any, Array], report: Report, rng: np.random.Generator) -> None:
    """Put before the gradients the first rule of a derivative that is wrong by itself."""
    seen = set()
    for u in told(toposort(loss.uop), "looking for the wrong derivative"):
        sources = _sources(u)
        if not sources or not u.dtype.is_float or u.op in (Op.DETACH, Op.BUFFER, Op.HOST_CALL):
            continue
        kind = (u.op, repr(u.arg), u.dtype, tuple((s.is_const and s.arg, s.dtype) for s in u.src), len(sources))
        if kind in seen or u.size > _NODE or any(s.size > _NODE for s in sources):
            continue
        seen.add(kind)
        try:
            found = _node(u, sources, held, rng)
        except (AnnealError, GradientError, TooLarge):
            continue
        if not found.ok:
            report.gradients.insert(next(n for n, g in enumerate(report.gradients) if not g.ok), found)
            return


def _sources(u: UOp) -> list[UOp]:
    """The float sources of `u` that its derivative is taken by; for a custom derivative the inputs that are not
    computed from other inputs.
    """
    if u.op is not Op.CALL or u.arg[0].results:
        found = u.src
    elif u.arg[0].name in ("beside", "chosen"):  # they say of an input that nothing depends on it
        found = u.src[:1]
    else:
        inputs = dict.fromkeys(u.src[u.arg[0].arguments[0] if u.arg[0].name == "function" else 1 :])
        found = tuple(s for s in inputs if not any(t is not s and t in inputs for t in toposort(s)))
    return [s for s in dict.fromkeys(found) if s.dtype.is_float and not s.is_const]


def _node(u: UOp, sources: Nodes, held: Mapping[Any, Array], rng: np.random.Generator) -> GradientCheck:
    """The derivative of `u` by its sources, along one direction, where they have the values that they have here."""
    device = "cpu"
    with modes(watchers=[]):
        stand_ins = [Tensor.zeros(*s.shape, dtype=s.dtype, device=device).contiguous() for s in sources]
        realize(stand_ins)

        def again(*xs: Tensor) -> Tensor:
            return Tensor._from_uop(substitute(u, {s: x.uop for s, x in zip(sources, xs, strict=True)}), device)

        with tracing() as events:
            result, pull = vjp(again, *stand_ins)
            cotangent = Tensor.zeros(*u.shape, dtype=u.dtype, device=device).contiguous()
            realize([cotangent])
            pulled = pull(cotangent)
    content = {**held, **_contents([u, *[t.uop for t in (*stand_ins, cotangent)]])}
    point = [_value(s, held) for s in sources]
    for t, x in zip(stand_ins, point, strict=True):
        content[storage_of(t.uop)] = x.ravel()
    weights = rng.normal(size=u.size)
    content[storage_of(cotangent.uop)] = weights
    ways = [rng.normal(size=x.size) for x in point]

    def moved(by: float) -> float:
        there = dict(content)
        for t, x, d in zip(stand_ins, point, ways, strict=True):
            there[storage_of(t.uop)] = x.ravel() + by * d
        return float((_value(result.uop, there).ravel() * weights).sum())

    parts = [float((_value(g.uop, content).ravel() * d).sum()) for g, d in zip(pulled, ways, strict=True)]
    rule = next((e for e in events if e.table == "gradient"), None)
    name = f"{u.op.name} {u.dtype.name}[{', '.join(map(str, u.shape))}] by its sources"
    blame = f"rule: {rule.rule}   [{rule.place}]" if rule is not None else ""
    return _checked(moved, 1.0, sum(parts), map(abs, parts), name, u, blame, lines_of([u]))
