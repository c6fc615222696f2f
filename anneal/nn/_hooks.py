"""Functions that are called before and after a module's `forward`, and the handles that take them away again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anneal.runtime import here
from anneal.transforms import RemovableHandle

if TYPE_CHECKING:
    from anneal.nn._module import Module

__all__ = ["Hooks", "RemovableHandle", "called", "called_first", "hook_on"]


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
    return RemovableHandle(named, (hook, with_kwargs), prepend)


def called_first(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`called` for a module that no other calls: the paths of those below begin at it."""
    here.modules = {id(m): name for name, m in module.named_modules()}
    try:
        return called(module, args, kwargs)
    finally:
        here.modules = None


def called(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`module.forward` with its hooks: those before may give other arguments, those after another result."""
    hooks = module._hooks
    if hooks is None:
        return module.forward(*args, **kwargs)
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
