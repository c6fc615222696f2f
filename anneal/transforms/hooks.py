"""Hooks on tensors: functions that see, or replace, a tensor's gradient when it is taken.

A leaf keeps its hooks, whatever memory it shows. Any other tensor gets a node of its own whose derivative calls them;
calls that were made with it before are made again."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from typing import Any

from anneal.errors import GradientError
from anneal.names import Tensor
from anneal.ops import checked, is_tensor, no_grad, said
from anneal.runtime import KnownCalls, here, make_again, outdate_captures, sources_of, storage_of
from anneal.transforms.custom import attached
from anneal.transforms.walks import derivative_of, ended
from anneal.uop import Op, UOp, arena, unique

_Hook = Callable[["Tensor"], Any]


class RemovableHandle:
    """The handle of a registered hook: `remove()` takes the hook away, and so does the end of a with-block.

    Args:
        hooks: the hooks that stand beside it, by number.
        hook: the function that is registered.
        prepend: whether it runs before the others.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([1.0], requires_grad=True)
    >>> with x.register_hook(lambda g: g * 10):
    ...     (x * 2).sum().backward()
    >>> (x * 2).sum().backward()
    >>> x.grad
    Tensor([22.], dtype=float32)
    """

    def __init__(self, hooks: dict[int, Any], hook: Any, prepend: bool = False) -> None:
        self._hooks, self._number = hooks, unique()
        others = list(hooks) if prepend else ()
        hooks[self._number] = hook
        for n in others:
            hooks[n] = hooks.pop(n)
        outdate_captures("a hook was registered")

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        if self._hooks.pop(self._number, None) is not None:
            outdate_captures("a hook was removed")

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()


class Hooks:
    """A tensor's hooks by their numbers: those that may replace its gradient, and those that come after them: of a leaf
    they get the tensor with its `.grad`, of any other tensor the gradient."""

    gone = False
    gave: Any = None  # what the gradient became that passed them last

    def __init__(self, owner: Tensor) -> None:
        self.owner = weakref.ref(owner)
        self.before: dict[int, _Hook] = {}
        self.after: dict[int, _Hook] = {}

    def release(self) -> None:
        """Forget the functions: they may hold the tensor, and its graph."""
        self.gone, self.gave = bool(self.before or self.after), None
        self.before.clear()
        self.after.clear()


class releasing:
    """A gradient that is taken in the block is, without `retain_graph`, the last that hooks of results, and calls that
    were captured, see; with `create_graph` it is differentiable. Functions of the user's on the way are called, `every`
    one or those above an input."""

    __slots__ = ("_creates", "_every", "_outer", "_retain")

    def __init__(self, retain_graph: bool, create_graph: bool, every: bool = False) -> None:
        self._retain, self._creates, self._every = retain_graph, create_graph, every

    def __enter__(self) -> None:
        self._outer = here.hooks, here.creates, here.grad, here.every
        here.every = self._every
        here.hooks, here.creates, here.grad = [], self._creates, here.grad or self._creates

    def __exit__(self, *_: object) -> None:
        called = here.hooks or []
        here.hooks, here.creates, here.grad, here.every = self._outer
        for hooks in [] if self._retain else called:
            hooks.release()


# -- registering ------------------------------------------------------------------------------------------------------


@checked
def register_hook(x: Tensor, hook: Any) -> RemovableHandle:
    """Call `hook(gradient)` each time that this tensor's gradient is taken; its result, if not None, replaces the
    gradient.

    The gradient is that of this tensor, added up over all its uses. Raises GradientError if it requires none.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> y = x * 3
    >>> handle = y.register_hook(lambda g: print("dy", g.tolist()))
    >>> (y * y).sum().backward()
    dy [6.0, 12.0]
    >>> x.grad
    Tensor([18., 36.], dtype=float32)
    """
    _check("register_hook", x, hook)
    hooks = _of_leaf(x) if x._leaf else _of_result(x)
    return RemovableHandle(hooks.before, hook)


@checked
def register_post_accumulate_grad_hook(x: Tensor, hook: Any) -> RemovableHandle:
    """Call `hook(tensor)` each time that `backward` has added to this leaf's `.grad`.

    Raises GradientError for a tensor that is no leaf, or requires no gradient.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([1.0], requires_grad=True)
    >>> handle = x.register_post_accumulate_grad_hook(lambda p: print("grad", p.grad.tolist()))
    >>> (x * 2).sum().backward()
    grad [2.0]
    """
    _check("register_post_accumulate_grad_hook", x, hook)
    if not x._leaf:
        raise GradientError("register_post_accumulate_grad_hook: only a leaf accumulates; use register_hook")
    return RemovableHandle(_of_leaf(x).after, hook)


@checked
def retain_grad(x: Tensor) -> None:
    """Have `backward` set `.grad` of this tensor, which is no leaf; leaves always get it.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> y = x * 3
    >>> y.retain_grad()
    >>> (y * y).sum().backward()
    >>> y.grad
    Tensor([ 6., 12.], dtype=float32)
    """
    _check("retain_grad", x, print)
    if x._leaf:
        return
    hooks = _of_result(x)
    if hooks.after:
        return

    def keep(g: Tensor) -> None:
        t = hooks.owner()
        now = None if t is None else hooks_of(t)
        if t is not None and now is hooks:
            t.grad = g.clone() if t.grad is None else t.grad + g
        elif t is not None and not (now and now.after):  # else it was called again
            raise GradientError("retain_grad: the tensor was changed in place since: call retain_grad() after that")

    RemovableHandle(hooks.after, keep)


def hooks_of(x: Tensor) -> Hooks | None:
    """The hooks of a tensor."""
    if x._leaf:
        return x._hooks if id(x) in here.tensors.hooked else None
    if x.late is not None and x.late.template.op is not Op.CONTIGUOUS:  # `Tensor._kept`
        return None
    storage = storage_of(x.uop)
    u = x.uop if storage is None else storage.origin
    while u is not None and u.op is Op.CONTIGUOUS:
        u = u.src[0]
    known = None if u is None else derivative_of(u)
    if known is None or known.hooks is None or known.hooks.owner() is not x:
        return None
    found: Hooks = known.hooks
    return found


def set_apart(tensors: Iterable[Tensor]) -> None:
    """Give each of some tensors that is no leaf a node that no other shows, if its uses are known: equal expressions
    are one node, and a reshaped node counts as its source.

    Args:
        tensors: the tensors.
    """
    apart: list[_Apart] = []
    for x in tensors:
        if not x.is_leaf:
            with suppress(GradientError):
                _of_result(x, apart)
    with suppress(GradientError):
        _used_apart(apart)


def retains_grad(x: Tensor, passed: bool = False) -> bool:
    """True if `backward` sets `.grad` of a tensor that is no leaf, by `retain_grad`.

    Args:
        x: the tensor. passed: whether it has to have done so.
    """
    hooks = None if x._leaf else hooks_of(x)
    return hooks is not None and bool(hooks.after) and (not passed or hooks in (here.hooks or ()))


def _check(name: str, x: Tensor, hook: Any) -> None:
    if not x._wants:
        raise GradientError(f"{name}: a tensor of shape {x.shape} requires no gradient, and none will come")
    if not callable(hook):
        raise GradientError(f"{name}: the hook is a function, not {said(hook)}")


def _of_leaf(x: Tensor) -> Hooks:
    table = here.tensors.hooked
    if id(x) not in table:
        x._hooks = Hooks(x)
        table[id(x)] = x
    hooks: Hooks = x._hooks
    return hooks


_Apart = tuple[Any, UOp, list[Any]]  # a tensor, the node that it had, and the logs of the calls that used it


def _of_result(x: Tensor, apart: list[_Apart] | None = None) -> Hooks:
    """The hooks of a tensor that is no leaf: a node above it calls them with its gradient, and what was computed from
    it before is computed from that node, now or with that of others in `apart`."""
    known = hooks_of(x)
    if known is not None:
        return known
    calls, mine = None, x._used in (0, here.seen)
    if mine:
        with suppress(LookupError):
            calls = KnownCalls(x)
    if not mine or (calls is None and _is_used(x)):
        raise GradientError(
            "a hook, or retain_grad, comes after a use of the tensor that cannot be told from those of others (inside "
            "jit or a transform, in another thread, or something was computed since): register it before the tensor "
            "is used"
        )
    hooks, before = Hooks(x), x.uop
    y = _above(x, hooks)
    x._show(y.uop)
    if calls is not None:
        weak = weakref.ref(hooks)
        logs = calls.begin_with(y.uop, lambda t: t if (own := weak()) is None else _above(t, own))
        if apart is None:
            _used_apart([(x, before, logs)])
        else:
            apart.append((x, before, logs))
    return hooks


def _used_apart(apart: list[_Apart]) -> None:
    """Compute what was computed from some tensors from the nodes that they have now."""
    logs: list[Any] = max([logs for _, _, logs in apart], key=len, default=[])
    try:
        make_again(logs)
    except GradientError:
        for x, before, _ in apart:
            x._show(before)
        raise


def _above(x: Tensor, hooks: Hooks) -> Tensor:
    """The same values, with a derivative that calls the hooks."""

    def pull(_: Any, __: Any, ___: Any, given: Any) -> list[Any]:
        if hooks.gone:
            raise GradientError(
                "backward: it reaches a tensor with a hook, or retain_grad, a second time, and the first backward "
                "released its hooks: call that one with retain_graph=True"
            )
        if here.hooks is not None:
            here.hooks.append(hooks)
        g = hooks.gave = _called(hooks.before, given[0])
        for keep in list(hooks.after.values()):
            keep(g)
        return [g]

    u = x.uop
    (y,) = attached("register_hook", [x], [u], [x], pull, notes=False)
    derivative = derivative_of(y.uop)
    assert derivative is not None
    derivative.hooks = hooks
    return y


def _is_used(x: Tensor) -> bool:
    """True if a graph has the node of a tensor, its own or another's."""
    storage = storage_of(x.uop)
    if x._used or (storage is not None and storage.place is not None):
        return True
    numbering = here.numbering()
    for r in [] if numbering is None else list(numbering.tensors):
        t = r()
        if t is not None and t.late is not None:
            t.uop  # noqa: B018  # its graph may have it
    base = x.uop
    mine = {base, *(sources_of(base) if not base.src else ())}
    return any(not mine.isdisjoint(sources_of(u)) for source in mine for u in arena().since(source) if u is not base)


# -- calling ----------------------------------------------------------------------------------------------------------


def _called(hooks: dict[int, _Hook], g: Tensor) -> Tensor:
    for hook in list(hooks.values()):
        found = hook(g)
        if found is not None:
            if not is_tensor(found) or found.shape != g.shape:
                raise GradientError(
                    f"register_hook: the hook returns a gradient of shape {g.shape} or None, not {said(found)}"
                )
            g = found
    return g


def hooked(x: Tensor, g: UOp, adds: bool = False) -> UOp:
    """The gradient `g` of the tensor x after its hooks. If it passed them on its way, `autograd.grad` gives what it was
    before, and what `adds` to `.grad` is what it became, as in torch."""
    hooks = hooks_of(x)
    if hooks is None or not hooks.before:
        return g
    if hooks in (here.hooks or ()):
        return hooks.gave.uop if adds else g
    here.effects += 1
    given = x._new_plain(g if here.creates else ended(g))
    given._wants, given._leaf = here.creates, not here.creates
    with nullcontext() if here.creates else no_grad():
        return _called(hooks.before, given).uop.cast(g.dtype)


def after_accumulation(x: Tensor) -> None:
    """Call the hooks that wait for a leaf's `.grad`."""
    if id(x) in here.tensors.hooked:
        for hook in list(x._hooks.after.values()):
            here.effects += 1
            with no_grad():
                hook(x)
