"""Hooks on tensors: functions that see, or replace, a tensor's gradient when it is taken.

A leaf keeps its hooks, whatever memory it shows. Any other tensor gets a node of its own whose derivative calls them;
what was computed from it before is led there too.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anneal.errors import GradientError
from anneal.ops import checked, is_tensor, no_grad, said
from anneal.runtime import here, outdate_captures, sources_of
from anneal.transforms.calls import derivative_of
from anneal.transforms.derivatives import attached
from anneal.transforms.leaves import leaf_nodes, leaves
from anneal.uop import UOp, arena

if TYPE_CHECKING:
    from anneal.tensor import Tensor

__all__ = [
    "RemovableHandle",
    "after_accumulation",
    "hooked",
    "register_hook",
    "register_post_accumulate_grad_hook",
    "releasing",
    "retain_grad",
]

_NUMBERS = itertools.count()
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
        self._hooks, self._number = hooks, next(_NUMBERS)
        others = dict(hooks) if prepend else {}
        if prepend:
            hooks.clear()
        hooks[self._number] = hook
        hooks.update(others)
        outdate_captures("a hook was registered")

    def remove(self) -> None:
        """Take the hook away; a second time nothing happens."""
        if self._hooks.pop(self._number, None) is not None:
            outdate_captures("a hook was removed")

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()


class Hooks:
    """A tensor's hooks by their numbers: those that may replace its gradient, and those that come after them: of a leaf
    they get the tensor with its `.grad`, of any other tensor the gradient."""

    __slots__ = ("after", "before", "gone")

    def __init__(self) -> None:
        self.before: dict[int, _Hook] = {}
        self.after: dict[int, _Hook] = {}
        self.gone = False

    def release(self) -> None:
        """Forget the functions: they may hold the tensor, and its graph."""
        self.gone = bool(self.before or self.after)
        self.before.clear()
        self.after.clear()


@contextmanager
def releasing(retain_graph: bool) -> Iterator[None]:
    """A gradient that is taken in the block is, without `retain_graph`, the last that hooks of results see."""
    outer, here.hooks = here.hooks, []
    try:
        yield
    finally:
        called, here.hooks = here.hooks, outer
        for hooks in [] if retain_graph else called:
            hooks.release()


# -- registering ------------------------------------------------------------------------------------------------------


@checked
def register_hook(x: Tensor, hook: Any) -> RemovableHandle:
    """Call `hook(gradient)` each time that this tensor's gradient is taken; its result, if not None, replaces the
    gradient.

    The gradient is that of this tensor, added up over all its uses. Raises GradientError for a tensor that wants none.

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
    if x.is_leaf:
        return RemovableHandle(_of_leaf(x).before, hook)
    return RemovableHandle(_of_result(x).before, hook)


@checked
def register_post_accumulate_grad_hook(x: Tensor, hook: Any) -> RemovableHandle:
    """Call `hook(tensor)` each time that `backward` has added to this leaf's `.grad`.

    Raises GradientError for a tensor that is no leaf, or wants no gradient.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([1.0], requires_grad=True)
    >>> handle = x.register_post_accumulate_grad_hook(lambda p: print("grad", p.grad.tolist()))
    >>> (x * 2).sum().backward()
    grad [2.0]
    """
    _check("register_post_accumulate_grad_hook", x, hook)
    if not x.is_leaf:
        raise GradientError("register_post_accumulate_grad_hook: only a leaf accumulates; use register_hook")
    return RemovableHandle(_of_leaf(x).after, hook)


@checked
def retain_grad(x: Tensor) -> None:
    """Have `backward` set `.grad` of this tensor, which is no leaf; of a leaf it does so anyway.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> y = x * 3
    >>> y.retain_grad()
    >>> (y * y).sum().backward()
    >>> y.grad
    Tensor([ 6., 12.], dtype=float32)
    """
    _check("retain_grad", x, print)
    if x.is_leaf:
        return
    ref = weakref.ref(x)

    def keep(g: Tensor) -> None:
        t = ref()
        if t is not None:
            t.grad = t._new_plain(g.uop if t.grad is None else t.grad.uop + g.uop)

    RemovableHandle(_of_result(x).after, keep)


def _check(name: str, x: Tensor, hook: Any) -> None:
    if not x.requires_grad:
        raise GradientError(f"{name}: a tensor of shape {x.shape} requires no gradient, and none will come")
    if not callable(hook):
        raise GradientError(f"{name}: the hook is a function, not {said(hook)}")


def _of_leaf(x: Tensor) -> Hooks:
    table = here.context.tensors.hooked
    if id(x) not in table:
        x._hooks = Hooks()
        table[id(x)] = x
    hooks: Hooks = x._hooks
    return hooks


def _of_result(x: Tensor) -> Hooks:
    """The hooks of a tensor that is no leaf: a node above it calls them with its gradient."""
    numbering = here.numbering()
    for r in [] if numbering is None else list(numbering.tensors):
        t = r()
        if t is not None and t.late is not None:
            t.uop  # noqa: B018  # it may be computed from x, and gets its node now, for `_users` to find
    base = x.uop
    known = derivative_of(base)
    if known is not None and known.hooks is not None:
        found: Hooks = known.hooks
        return found
    users = _users(base)
    hooks = Hooks()

    def pull(_: Any, __: Any, ___: Any, given: Any) -> list[Any]:
        if hooks.gone:
            raise GradientError(
                "backward: a tensor with a hook, or retain_grad, is passed a second time, and its hooks went with "
                "the first "
                "one: use backward(retain_graph=True) then"
            )
        if here.hooks is not None:
            here.hooks.append(hooks)
        g = _called(hooks.before, given[0])
        for keep in list(hooks.after.values()):
            keep(g)
        return [g]

    (y,) = attached("register_hook", [x], [base], [x], [], pull)
    above = y.uop
    derivative = derivative_of(above)
    assert derivative is not None
    derivative.hooks = hooks
    for u, source in users:
        here.context.tensors.routed.setdefault(u, {})[source] = above
    x._become(above)
    return hooks


def _users(base: UOp) -> list[tuple[UOp, UOp]]:
    """The nodes made from a tensor so far, each with the node that it has for it: the tensor's, or the graph before
    the tensor was computed. None where the node is a leaf's, whose users they may be."""
    mine = (base, *sources_of(base)) if not base.src else (base,)
    of_leaves = {n for t in leaves() for n in leaf_nodes(t)}
    out = []
    for source in mine:
        if source not in of_leaves:
            out += [(u, source) for u in arena().since(source) if any(s is source for s in sources_of(u))]
    return [(u, s) for u, s in out if u is not base]


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


def hooked(x: Tensor, g: UOp) -> UOp:
    """The gradient `g` of the tensor x after its hooks."""
    if x.is_leaf:
        hooks: Hooks | None = x._hooks if id(x) in here.context.tensors.hooked else None
    else:
        derivative = derivative_of(x.uop) if here.context.tensors.derivatives else None
        hooks = None if derivative is None else derivative.hooks
    if hooks is None or not hooks.before:
        return g
    here.effects += 1
    return _called(hooks.before, x._new_plain(g)).uop.cast(g.dtype)


def after_accumulation(x: Tensor) -> None:
    """Call what waits for a leaf's `.grad`."""
    if id(x) in here.context.tensors.hooked:
        hooks: Hooks = x._hooks
        for hook in list(hooks.after.values()):
            here.effects += 1
            with no_grad():
                hook(x)
