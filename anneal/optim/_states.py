"""The state of an optimiser: tensors by parameter and by name, the checks of its settings, and hooks around both."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import accumulate
from typing import Any

import numpy as np

from anneal.backend import numpy_dtype
from anneal.errors import DataError, DeviceError, SettingError
from anneal.ops import array_of as values_of, said, wrap_array
from anneal.ops.nodes import reshape
from anneal.runtime import Context, Inside, Numbering, Together, here, modes, number, outdate_captures
from anneal.tensor import Tensor
from anneal.transforms import RemovableHandle
from anneal.uop import DType, Questions, UOp, dtypes, worth


def follow(state: Mapping[Any, dict[str, Any]], group: Any) -> None:
    """Move the settings and the `state` of a `group` to the device that its parameters moved to.

    Raises DeviceError for parameters on several, JitError where a state would move in a captured call.
    """
    devices = {t._device for t in group["params"]}
    if len(devices) > 1:
        raise DeviceError(
            f"a group's parameters are on {' and '.join(map(repr, sorted(devices)))}: give those of each device a group"
        )
    (device,) = devices
    moved = {}
    outdate_captures("an optimiser's parameters moved to another device")
    for held in [state.get(x, {}) for x in (group, *group["params"])]:
        for name, s in held.items():
            if isinstance(s, Tensor) and s._device != device:
                if s not in moved:
                    with Context():  # a jit function does not record this: its replays start from the state as it is
                        moved[s] = kept_state(s.detach().numpy(), device)
                held[name] = moved[s]
    group._changing.device, group._changing.made = device, {}
    group.rate = kept_state(np.array([rate_of(group)], state_dtype(group.rate)), device)


def rate_of(settings: Mapping[str, Any]) -> float:
    """The learning rate among settings; 0 where an optimiser of a program's own has none that is a number."""
    lr = settings.get("lr")
    return lr if isinstance(lr, (int, float)) else 0.0


def same(old: Any, new: Any) -> bool:
    """True if two values of a setting are equal: tensors and arrays only if they are one object."""
    return old is new or not any(isinstance(v, (Tensor, np.ndarray)) for v in (old, new)) and bool(old == new)


def array_of(value: Any) -> Any:
    """A tensor of ours or of torch's, a number, or a list of such, as an array."""
    if isinstance(value, (list, tuple)):
        return np.array([array_of(v) for v in value])
    torchs = hasattr(value, "detach") and not isinstance(value, Tensor)
    return values_of(value.detach().cpu(), None) if torchs else np.asarray(value)


class Saved(dict[str, Any]):
    """A `state_dict`: tensors by name, and, where they are asked for, torch's "state" and "param_groups"."""

    def __init__(self, groups: Sequence[Mapping[str, Any]], counts: Sequence[int]) -> None:
        rows = zip(groups, counts, accumulate(counts), strict=True)
        self.groups = [{**g, "params": [*range(end - count, end)]} for g, count, end in rows]
        plain = [{name: v for name, v in g.items() if _is_plain(v)} for g in self.groups]
        # the settings as JSON, whose bytes are a tensor: files of tensors keep them
        super().__init__({_SETTINGS: Tensor(np.frombuffer(json.dumps(plain).encode(), np.uint8).copy(), device="cpu")})
        self.nested: dict[str, Any] | None = None
        self.states: Callable[[], dict[int, dict[str, Any]]] | None = None  # gives the parameters' states

    def __missing__(self, key: str) -> Any:
        if key not in ("state", "param_groups"):
            raise KeyError(key)
        if self.nested is None:
            states = {}
            for n, g in enumerate(self.groups):
                shared = {k: v for k, v in self._under(f"group.{n}.").items() if k != "lr"}
                for i in g["params"]:
                    if (own := self._under(f"{i}.")).keys() - {"step"}:  # Adam counts steps without a gradient
                        states[i] = shared | own
            self.nested = {"state": states if self.states is None else self.states(), "param_groups": self.groups}
        return self.nested[key]

    def _under(self, prefix: str) -> dict[str, Any]:
        found = {name.removeprefix(prefix): t for name, t in self.items() if name.startswith(prefix)}
        if isinstance(count := found.get("step"), Tensor):  # torch's has the shape ()
            found["step"] = count.reshape(())
        return found


_SETTINGS = "settings"


def _settings_in(given: Any) -> list[dict[str, Any]]:
    """The groups whose settings are noted in a state."""
    try:
        groups: list[dict[str, Any]] = json.loads(array_of(given).astype(np.uint8).tobytes())
        _ = [len(g["params"]) for g in groups]
    except (LookupError, TypeError, ValueError) as e:
        raise DataError(f"load_state_dict: {_SETTINGS!r} is no settings of an optimiser's groups ({e})") from None
    return groups


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(v) for v in value)
    return value is None or isinstance(value, (bool, int, float, str))


def take_settings(
    what: str, mine: Sequence[dict[str, Any]], counts: Sequence[int], state: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Give the groups `mine`, of so many parameters, the settings of a state; what else the state has."""
    if not isinstance(state, Mapping):
        raise DataError(f"load_state_dict: takes what state_dict() gave, not {said(state)}")
    if isinstance(state, Saved) and state.nested is not None:
        state = state.nested  # the caller may have changed it
    given = state.groups if isinstance(state, Saved) else state.get("param_groups")
    if _SETTINGS in state and "state" not in state:
        given = _settings_in(state[_SETTINGS]) if given is None else given
        state = {n: v for n, v in state.items() if n != _SETTINGS}
    if given is None:
        if not state:
            raise DataError("load_state_dict: the state is empty: an optimiser's has its learning rates at least")
        return state
    theirs = [len(g["params"]) for g in given]
    if theirs != list(counts):
        raise DataError(
            f"load_state_dict: the state is of groups of {theirs} parameters, and this {what} has {list(counts)}"
        )
    for group, new in zip(mine, given, strict=True):
        for name, value in new.items():
            if isinstance(value, list) and not isinstance(group.get(name), list):
                value = tuple(value)  # as JSON has it
            if name not in _NO_SETTINGS and (name not in group or not same(group[name], value)):
                group[name] = value
    return state


# torch's last four are ignored
_NO_SETTINGS = "__class__", "self", "params", "foreach", "capturable", "differentiable", "fused"


def settings_among(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among the arguments of an optimiser's `__init__`."""
    return {
        n: tuple(v) if n == "betas" else v.item() if isinstance(v, np.generic) else v
        for n, v in given.items()
        if n not in _NO_SETTINGS
    }


def check_settings(name: str, group: Mapping[str, Any]) -> None:
    """Raise SettingError for a setting of a group that no optimiser takes."""
    if isinstance(group["lr"], Tensor):
        raise SettingError(f"{name}: lr is a number, which is data on the device already, not a tensor")
    for key, value in group.items():
        wanted = ""
        if key == "betas":
            if len(value) != 2 or not all(isinstance(b, (int, float)) and 0 <= b < 1 for b in value):
                wanted = "two numbers in [0, 1)"
        elif key in ("lr", "eps", "weight_decay", "momentum"):
            numbers = [n for n in value if n is not None] if isinstance(value, tuple) else [value]
            if not all(isinstance(n, (int, float)) and n >= 0 and math.isfinite(n) for n in numbers):
                wanted = "a finite number that is not negative"
        if wanted:
            raise SettingError(f"{name}: {key} is {wanted}, not {value!r}")


def kept_state(values: np.ndarray[Any, Any], device: str) -> Tensor:
    """A state that begins with these values: jit does not compute it anew in each run, since it persists."""
    with modes(made=None):
        return Tensor(wrap_array(values, device), device=device)


class Changing(Questions):
    """Settings of a group that change, and the tensors of what an update makes of them.

    Args:
        device: where the tensors are.
    """

    def __init__(self, device: str) -> None:
        super().__init__({})
        self.device = device

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"asked": {}, "made": {}}

    def takes(self, key: str, value: Any) -> bool:
        """True if the update of another value of a setting is the one that there was: its tensors have other values. A
        setting that is no number, and no row of numbers, does not vary."""
        row = value if isinstance(value, (tuple, list)) else (value,)
        numbers = tuple([x.item() if isinstance(x, np.generic) else x for x in row])
        known = self.values.pop(key, None) is not None
        if varies := all(x.__class__ in (int, float) for x in numbers):
            self.values[key] = numbers if row is value else numbers[0]
        try:
            held = known and varies and self.hold(self.values)
            new = [worth(made, self.values) for made, _ in self.made if held]
        except (ArithmeticError, ValueError):  # the update itself raises it
            held = False
        if not held:
            self.asked, self.made, new = {}, {}, []
        for ((_, dtype), t), x in zip(self.made.items(), new, strict=True):
            t._assign(reshape(number(x, dtype, t.device), (1,)))
        return held

    def node(self, made: Any, dtype: DType) -> UOp | None:
        """The node of a number that is made of settings; None if it is no float."""
        if not dtype.is_float:
            return None
        if (made, dtype) not in self.made:
            value = np.array([worth(made, self.values)], numpy_dtype(dtype))
            self.made[made, dtype] = kept_state(value, self.device)
        return reshape(self.made[made, dtype].uop, ())


def state_dtype(t: Tensor) -> type[np.floating[Any]]:
    """The dtype in which the state of a parameter is kept."""
    return np.float64 if t.uop.dtype is dtypes.float64 else np.float32


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

        vars(self)["step"] = step  # on the object: steps of optimisers without hooks cost nothing more
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
        """The state after the hooks that may change it."""
        hooks = self._hooks_of(when)
        state = copy(state) if hooks else state
        for hook in hooks:
            given = hook(self, state)
            state = state if given is None else given
        return state


# -- values that an update reads besides settings ---------------------------------------------------------------------


class UpdateInputs:
    """The dicts of an optimiser's state, and what is read together; valid until a dict is added or removed.

    Args:
        groups: the groups.
        params: the parameters of all of them.
        state: the state, by groups and parameters.
    """

    def __init__(self, groups: Sequence[Any], params: Sequence[Tensor], state: Mapping[Any, dict[str, Any]]) -> None:
        self._owners = [*groups, *params]
        self._held = list(map(state.get, self._owners))
        self._there = [held for held in self._held if held is not None]
        self.names = tuple(map(tuple, self._there)), tuple([held is None for held in self._held])
        self.params, self.states = Together(params), Together(self._values())

    def _values(self) -> list[Tensor]:
        """The tensors of the state, in order."""
        return [t for held in self._there for t in held.values()]

    def holds(self, groups: Sequence[Any], params: Sequence[Tensor], state: Mapping[Any, dict[str, Any]]) -> bool:
        """True if a new one would be equal; then it has the state's tensors of now.

        Args:
            groups: as for the class, and so are `params` and `state`.
        """
        owners = [*groups, *params]
        if (
            len(owners) != len(self._owners)
            or [x for x, old in zip(owners, self._owners) if x is not old]
            or [x for x, held in zip(owners, self._held) if state.get(x) is not held]
            or tuple(map(tuple, self._there)) != self.names[0]
        ):
            return False
        values = self._values()
        if [t for t, old in zip(values, self.states.tensors, strict=True) if t is not old]:
            self.states = Together(values)
        return True

    def templates(self, n: Numbering) -> list[UOp]:
        """The templates of the parameters, and of the state.

        Args:
            n: the numbering.
        """
        found: list[UOp] = []  # a generator would be resumed for each of them
        for group in self.params, self.states:
            found += group.templates(n) if len(group.tensors) > Together.few else n.all_of(group.tensors)
        return found

    @staticmethod
    def gradients(params: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of parameters.

        Args:
            params: the parameters.
        """
        found = [t._grad for t in params]
        return [t.grad for t in params] if here.recordings or Inside in map(type, found) else found
