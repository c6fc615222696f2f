"""Hooks on all modules, by torch's names; its other names are those of `anneal.nn`.

They are for looking and debugging: a module's own hooks come after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anneal import nn
from anneal.nn._hooks import ALWAYS, hook_everywhere
from anneal.transforms import RemovableHandle

__all__ = [
    "register_module_forward_hook", "register_module_forward_pre_hook", "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]  # fmt: skip


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`Module.register_forward_pre_hook` of all modules.

    Args:
        hook: `hook(module, args)`.

    >>> with register_module_forward_pre_hook(lambda module, args: print(type(module).__name__)):
    ...     y = nn.Sequential(nn.ReLU())(nn.Parameter([1.0]))
    Sequential
    ReLU
    """
    return hook_everywhere("before", hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """`Module.register_forward_hook` of all modules.

    Args:
        hook: `hook(module, args, result)`.
        with_kwargs: whether it is `hook(module, args, kwargs, result)`.
        always_call: whether it is called after an error, too.
    """
    return hook_everywhere("after", hook, with_kwargs | ALWAYS * always_call)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`Module.register_full_backward_pre_hook` of all modules.

    Args:
        hook: `hook(module, grad_output)`.
    """
    return hook_everywhere("pulled_first", hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`Module.register_full_backward_hook` of all modules.

    Args:
        hook: `hook(module, grad_input, grad_output)`.
    """
    return hook_everywhere("pulled", hook)


def __getattr__(name: str) -> Any:
    return getattr(nn, name)
