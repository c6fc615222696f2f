"""Tensors of a module by name, and states of its own: how they are saved and loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anneal.errors import DataError, MissingMethodError
from anneal.nn._hooks import ModuleHooks, Moved, hook_on, hooks_of
from anneal.nn.parameter import Parameter
from anneal.ops import said
from anneal.runtime import Fun, here
from anneal.tensor import Tensor
from anneal.transforms import RemovableHandle


class LoadedKeys(NamedTuple):
    """The names that `load_state_dict` did not find in the state, and the names in the state that the module does not
    have.

    >>> from anneal import nn
    >>> nn.ReLU().load_state_dict({})
    <All keys matched successfully>
    """

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        return f"LoadedKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class Stateful(Moved):
    """The part of `Module` that saves and loads."""

    _hooks: ModuleHooks | None
    _unsaved: frozenset[str]
    if TYPE_CHECKING:

        def named_modules(self, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]: ...

    def get_extra_state(self) -> Any:
        """A value that a subclass saves besides its tensors: it stands in `state_dict` under "_extra_state"."""
        raise MissingMethodError(f"{type(self).__name__} defines no get_extra_state()")

    def set_extra_state(self, state: Any) -> None:
        """Take over a `state` that `get_extra_state` gave, when one is loaded."""
        raise MissingMethodError(f"{type(self).__name__} defines no set_extra_state(state)")

    def _owners(self, prefix: str, method: str = "_owners") -> list[tuple[Any, str, bool]]:
        """This module and those below, with the beginnings of their tensors' names, and whether the class of one below
        defines `method`: what is below such a module is left out.
        """
        found, own = list[tuple[Any, str, bool]](), None
        for path, m in self.named_modules(remove_duplicate=False):
            at = f"{prefix}{path}." if path else prefix
            if own is None or not at.startswith(own):
                own = at if m is not self and defines(m, method) else None
                found.append((m, at, own is not None))
        return found

    def state_dict(self, prefix: str = "", keep_vars: bool = False, *, destination: Any = None) -> dict[str, Tensor]:
        """The parameters and buffers by name, detached; a shared one under each of its names; and what
        `get_extra_state` gives, where a class defines it.

        `prefix` stands before the names; `keep_vars` gives the tensors themselves; they come into the dict
        `destination`, if there is one.

        >>> from anneal import nn
        >>> {name: t.shape for name, t in nn.Linear(3, 2).state_dict().items()}
        {'weight': (2, 3), 'bias': (2,)}
        """
        owners = self._owners(prefix, "state_dict")
        out = {} if destination is None else destination
        for m, at, own in owners:
            if own:
                m.state_dict(destination=out, prefix=at, keep_vars=keep_vars)
            else:
                _call_hooks(m, "saving", at, keep_vars)
                m._save_to_state_dict(out, at, keep_vars)
        for m, at, own in reversed(owners):
            if not own:
                _call_hooks(m, "saved", out, at, {})
        return out

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Put what this module itself saves into `destination`, with names that begin with `prefix`. Subclasses may
        save something else.
        """
        destination.update({prefix + name: t if keep_vars else t.detach() for name, t in self._saved().items()})
        if defines(self, "get_extra_state"):
            destination[f"{prefix}_extra_state"] = self.get_extra_state()

    def _saved(self) -> dict[str, Tensor]:
        mine = self._tensors(recurse=False)
        return {name: t for *_, name, t in mine if name not in self._unsaved and getattr(t, "persistent", True)}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> LoadedKeys:
        """Take the values of a `state_dict`: tensors or arrays by name, in torch's layout, also torch's tensors.

        Args:
            state_dict: as the method `state_dict`, `safe_load` or `safe_open` give it, or as torch's `state_dict` does.
            strict: every name must be there and no other.
            assign: tensors take the places of the module's, with their dtypes and devices: make optimisers afterwards.

        Returns:
            The missing and the unexpected names.

        Raises DataError listing missing names, unexpected names and shapes that differ; nothing is loaded then.

        >>> from anneal import nn
        >>> nn.Linear(3, 2).load_state_dict({"weight": np.ones((2, 3)), "scale": np.ones(2)}, strict=False)
        LoadedKeys(missing_keys=['bias'], unexpected_keys=['scale'])
        """
        if not isinstance(state_dict, Mapping):
            raise DataError(
                f"load_state_dict: takes a dict of tensors by name, as state_dict() gives, not {said(state_dict)}; "
                "load(path) reads a file"
            )
        versions = getattr(state_dict, "_metadata", {})  # of torch's
        state = dict(state_dict)  # each tensor of a file is asked for once, and hooks may rename them
        owners, missing, unexpected, wrong = self._owners(""), list[str](), list[str](), list[str]()
        taken = []
        silent: tuple[str, ...] = ()
        known = set[str]()
        for m, at, _ in owners:
            given = state, at, versions.get(at[:-1], {}), strict, missing, unexpected, wrong
            _call_hooks(m, "loading", *given)
            m._load_from_state_dict(*given)
            silent += () if "_taken" in vars(m) else (at,)
            taken += vars(m).pop("_taken", ())
            known |= {at + n for n in (*m._saved(), *["_extra_state"] * defines(m, "set_extra_state"))}
        places = {at: i for i, (_, at, _) in enumerate(owners)}
        others = [n for n in state if n not in known and not n.startswith(silent)]
        unexpected += sorted(others, key=lambda n: max([places.get(n[:i], 0) for i in range(len(n))], default=0))
        keys = LoadedKeys(missing, unexpected)
        after = [m for m, *_ in reversed(owners) if hooks_of(m, "loaded")]
        self._check_loaded(keys if strict and not after else LoadedKeys([], []), wrong)
        for m, name, value in taken:
            if name == "_extra_state":
                m.set_extra_state(value)
            else:
                _load(m, name, value, assign)
        if not (here.assigned or here.depth or here.tracing):
            # an average of weights, kept lazy, would grow with each that is loaded
            self.realize()
        for m in after:
            _call_hooks(m, "loaded", keys)
        if strict:
            self._check_loaded(keys, [])
        return keys

    def _check_loaded(self, keys: LoadedKeys, wrong: list[str]) -> None:
        """Raise DataError for names that do not fit and for what else is wrong."""
        faults = [f"{k}: {', '.join(names)}" for k, names in zip(("missing", "unexpected"), keys) if names]
        if faults or wrong:
            raise DataError(
                f"load_state_dict: {type(self).__name__} does not fit the state: {'; '.join([*faults, *wrong])}"
                + ("" if wrong else " (strict=False ignores missing and unexpected names)")
            )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Choose from `state_dict` what this module itself takes: it is loaded once all modules have chosen, unless
        `error_msgs` then has texts. Subclasses may change the arguments, or take nothing.

        Args:
            state_dict: tensors by names; those of this module begin with `prefix`.
            prefix: the module's path and a dot.
            local_metadata: what torch noted of this module.
            strict: as in `load_state_dict`.
            missing_keys: takes the names that are not there.
            unexpected_keys: takes names that are of no use.
            error_msgs: takes what is wrong.
        """
        taken = vars(self).setdefault("_taken", [])
        mine: dict[str, Any] = self._saved()
        if defines(self, "set_extra_state"):
            mine["_extra_state"] = None
        for name, t in mine.items():
            value = state_dict.get(key := prefix + name)
            shape = getattr(value, "shape", None)
            if key not in state_dict:
                missing_keys.append(key)
            elif t is None or shape == t.shape:
                taken.append((self, name, value))
            else:
                wrong = f"is {said(value)}" if shape is None else f"has shape {tuple(shape)}, the model's is {t.shape}"
                error_msgs.append(f"{key} {wrong}")

    def register_state_dict_pre_hook(self, hook: Fun) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before each `state_dict` of this module or of one above it."""
        return hook_on(self, "saving", hook)

    def register_state_dict_post_hook(self, hook: Fun) -> RemovableHandle:
        """Call `hook(module, state, prefix, {})` after each `state_dict`: it may change `state`, the dict.

        >>> from anneal import nn
        >>> layer = nn.Linear(3, 2)
        >>> handle = layer.register_state_dict_post_hook(lambda module, state, prefix, _: state.pop(prefix + "bias"))
        >>> list(layer.state_dict())
        ['weight']
        """
        return hook_on(self, "saved", hook)

    def register_load_state_dict_pre_hook(self, hook: Fun) -> RemovableHandle:
        """Call `hook(module, state, prefix, {}, strict, missing, unexpected, errors)` before each `load_state_dict`: it
        may change `state`, a copy of the dict that is loaded.

        >>> from anneal import nn
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> handle = layer.register_load_state_dict_pre_hook(
        ...     lambda module, state, prefix, *rest: state.update({prefix + "weight": state.pop(prefix + "w")})
        ... )
        >>> layer.load_state_dict({"w": np.ones((1, 1))})
        <All keys matched successfully>
        """
        return hook_on(self, "loading", hook)

    def register_load_state_dict_post_hook(self, hook: Fun) -> RemovableHandle:
        """Call `hook(module, keys)` after each `load_state_dict`: it may change the lists of missing and unexpected
        names, `keys`, before they are an error.
        """
        return hook_on(self, "loaded", hook)


def defines(module: Any, name: str) -> bool:
    return name in vars(module) or not str(getattr(type(module), name).__module__).startswith("anneal.nn.")


def _call_hooks(module: Any, when: str, *given: Any) -> None:
    for hook, _ in hooks_of(module, when):
        hook(module, *given)


def _load(m: Any, name: str, value: Tensor | npt.NDArray[Any], assign: bool) -> None:
    t = vars(m)[name]
    if not isinstance(value, (Tensor, np.ndarray)) and hasattr(value, "detach"):  # torch's, may require a gradient
        value = value.detach().cpu()
    if assign:
        value = value if isinstance(value, Tensor) else Tensor(value)
        if m._is_parameter(t):
            value = value if isinstance(value, Parameter) else Parameter(value.detach())
            value.requires_grad_(t.requires_grad)
        elif value.requires_grad and not isinstance(value, Parameter):
            value = value.detach()
        setattr(m, name, value)
    elif isinstance(value, Tensor) and value.device == t.device:
        t.assign(value.detach())
    else:  # cast on the host: the device may not have the dtype that a file has, such as int64
        values = value.numpy() if isinstance(value, Tensor) else value
        t.assign(Tensor(values, dtype=t.dtype, device=t.device))
