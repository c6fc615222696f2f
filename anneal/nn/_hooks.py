"""Functions that are called before and after a module's `forward`, and the handles that take them away again."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anneal.runtime import outdate_captures

if TYPE_CHECKING:
    from anneal.nn._module import Module

__all__ = ["Hooks", "RemovableHandle", "called", "hook_on"]

_NUMBERS = itertools.count()


class RemovableHandle:
    """What a hook's registration gives: `remove()` takes the hook away, and so does the end of a with-block.

    >>> from anneal import nn
    >>> from anneal.tensor import Tensor
    >>> layer = nn.Identity()
    >>> with layer.register_forward_hook(lambda module, args, result: result + 1):
    ...     print(layer(Tensor([1.0])).tolist())
    [2.0]
    >>> layer(Tensor([1.0])).tolist()
    [1.0]
    """

    def __init__(self, hooks: dict[int, Any], number: int) -> None:
        self._hooks, self._number = hooks, number

    def remove(self) -> None:
        """Take the hook away; a second time nothing happens."""
        if self._hooks.pop(self._number, None) is not None:
            outdate_captures("a module's hook was removed")

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()


class Hooks:
    """The hooks of one module by their numbers: the function, and whether it takes the keyword arguments too."""

    def __init__(self) -> None:
        self.before: dict[int, tuple[Callable[..., Any], bool]] = {}
        self.after: dict[int, tuple[Callable[..., Any], bool]] = {}


def hook_on(module: Module, when: str, hook: Callable[..., Any], prepend: bool, with_kwargs: bool) -> RemovableHandle:
    """Put a hook on a module: `when` is "before" or "after"."""
    hooks = module._hooks
    if hooks is None:
        hooks = vars(module)["_hooks"] = Hooks()
    named: dict[int, tuple[Callable[..., Any], bool]] = getattr(hooks, when)
    number = next(_NUMBERS)
    others = dict(named) if prepend else {}
    if prepend:
        named.clear()
    named[number] = (hook, with_kwargs)
    named.update(others)
    outdate_captures("a module got a hook")
    return RemovableHandle(named, number)


def called(module: Module, hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`module.forward` with its hooks: those before may give other arguments, those after another result."""
    for hook, whole in list(hooks.before.values()):
        if whole:
            changed = hook(module, args, kwargs)
            if changed is not None:
                args, kwargs = changed
        else:
            changed = hook(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    result = module.forward(*args, **kwargs)
    for hook, whole in list(hooks.after.values()):
        changed = hook(module, args, kwargs, result) if whole else hook(module, args, result)
        if changed is not None:
            result = changed
    return result
