"""Functions of a program that an optimiser calls around its steps and its states."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from anneal.errors import SettingError
from anneal.ops import said
from anneal.transforms import RemovableHandle

Hook = Callable[..., Any]


class StepHooks:
    """The hooks of `Optimizer`. A copy of an optimiser has none, as in torch."""

    _hooks: dict[str, dict[int, Hook]]

    def _hook(self, when: str, hook: Hook, prepend: bool = False) -> RemovableHandle:
        hooks = vars(self).setdefault("_hooks", {})
        return RemovableHandle(hooks.setdefault(when, {}), hook, prepend)

    def _hooks_of(self, when: str) -> list[Hook]:
        return [*vars(self).get("_hooks", {}).get(when, {}).values()]

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each `step`: None, or other arguments, a pair (args, kwargs) of
        which the first of args is the optimiser.

        The handle's `remove()` takes it away. In a jit function hooks run when a call is captured. A step raises
        SettingError for another result.

        >>> from anneal.optim import SGD
        >>> from anneal.tensor import Tensor
        >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.1)
        >>> handle = optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: print("step"))
        >>> optimizer.step()
        step
        """
        return self._hook_step("step_pre", hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each `step`."""
        return self._hook_step("step_post", hook)

    def _hook_step(self, when: str, hook: Hook) -> RemovableHandle:
        kind: Any = type(self)

        def step(*args: Any, **kwargs: Any) -> Any:
            args = self, *args
            for before in self._hooks_of("step_pre"):
                changed = before(self, args, kwargs)
                if changed is not None:
                    if not isinstance(changed, tuple) or len(changed) != 2:
                        raise SettingError(
                            f"{kind.__name__}: a hook before step gives None or (args, kwargs), not {said(changed)}"
                        )
                    args, kwargs = changed
            result = kind.step(*args, **kwargs)
            for after in self._hooks_of("step_post"):
                after(self, args, kwargs)
            return result

        vars(self)["step"] = step  # on the object: a step without hooks takes no time for them
        return self._hook(when, hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before each `state_dict`; `prepend` puts it before the others."""
        return self._hook("state_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state)` after each `state_dict`: it changes `state`, or gives another; `prepend` puts
        it before the others.
        """
        return self._hook("state_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state)` before each `load_state_dict`, of a copy of the dict that was given: it changes
        it, or gives another; `prepend` puts it before the others.
        """
        return self._hook("load_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after each `load_state_dict`; `prepend` puts it before the others."""
        return self._hook("load_post", hook, prepend)

    def _changed_by(self, when: str, state: Any) -> Any:
        """A state after the hooks that may change it."""
        hooks = self._hooks_of(when)
        state = copy(state) if hooks else state
        for hook in hooks:
            given = hook(self, state)
            state = state if given is None else given
        return state
