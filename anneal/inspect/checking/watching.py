"""Programs under check: whatever they compute is computed once more, kernel by kernel, and compared."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from threading import get_ident
from typing import Any

from anneal.backend import get_device
from anneal.errors import UserError
from anneal.inspect.checking.blame import Built
from anneal.inspect.checking.gradients import check_gradients
from anneal.inspect.checking.launches import check_launch
from anneal.inspect.checking.programs import CheckLimits, Finding
from anneal.inspect.checking.records import Report
from anneal.rewrite import Event, tracing
from anneal.runtime import Handle, Launch, here, realize, watched
from anneal.tensor import Tensor
from anneal.uop import UOp


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
        self._built = Built()
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
            self.report.device = ", ".join([x for x in (self.report.device, device.name) if x])
        outer, here.watchers = here.watchers, []
        try:
            check_launch(sink, step, device, number, self.limits, self.report, self.found)
        finally:
            here.watchers = outer

    def look(self) -> None:
        """Look at the rules that fired so far while the graph was made."""
        for found in self._built.wrong(self.events):
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
        elif here.context.tensors.hooked:
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
        result = fn(*args, **kwargs)
        found = [t for t in _leaves(result) if isinstance(t, Handle)]
        if gradients:
            check_gradients(_number(found), {}, state.report)
        realize(found)
    if not state.report.launches and not state.report.gradients:
        raise UserError("check: the function computed nothing; return a tensor that is not computed yet")
    return state.report


def _number(found: list[Handle]) -> Any:
    if len(found) != 1 or found[0].uop.size != 1 or not found[0].uop.dtype.is_float:
        raise UserError("check: with gradients=True the function returns one float tensor of one element: a loss")
    return found[0]


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        for x in tree.values():
            yield from _leaves(x)
    elif isinstance(tree, (list, tuple)):
        for x in tree:
            yield from _leaves(x)
    else:
        yield tree
