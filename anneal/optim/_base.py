"""Optimisers with torch's formulas."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from anneal.errors import DataError, GradientError, MissingMethodError, SettingError, ShapeError
from anneal.ops import Explained, said, take_running_updates
from anneal.ops.nodes import broadcast, reshape
from anneal.optim import _states
from anneal.optim._states import Saved, StepHooks, UpdateInputs
from anneal.runtime import Numbering, composite, here, number, numbering_of, outdate_captures, realize, realize_new
from anneal.tensor import Tensor, no_grad
from anneal.transforms import take_results, zero_gradient
from anneal.uop import DType, Op, UOp, Varying, arena, dtypes

# The argument `params`: tensors, or groups of tensors with their own settings.
Parameters = Iterable[Tensor | Mapping[str, Any]]
R = TypeVar("R")
# A function applied to the gradients before the update.
Reduce = Callable[[list[Tensor]], Iterable[Tensor]]
_F32 = dtypes.float32
_New = tuple[list[Tensor], list[UOp], list[Any]]  # tensors, the templates of their new values, and the lines of those
_VIEWS = (Op.BUFFER, Op.RESHAPE)  # views of memory: nothing is computed


def with_gradients(closure: Callable[[], R]) -> R:
    """The result of a closure, which records gradients under `no_grad` too, as in torch."""
    from anneal.tensor.autograd import enable_grad

    return enable_grad(closure)()


@contextmanager
def update_phase() -> Iterator[None]:
    """Nodes made within the block belong to the optimiser."""
    a = arena()
    before, a.phase = a.phase, "update"
    try:
        yield
    finally:
        a.phase = before


class _Items(dict[str, Any]):
    """A dict of which every method that sets or removes an item calls `__setitem__` or `__delitem__`."""

    update, setdefault, pop = MutableMapping.update, MutableMapping.setdefault, MutableMapping.pop
    __hash__ = object.__hash__  # type: ignore[assignment]  # by what it is: the state is by group

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]  # of dict's two forms
        self.update(other)
        return self


class ParameterGroup(_Items):
    """Parameters with their settings, as torch's dicts; setting "lr" changes the value on the device.

    The other settings are constants of the compiled update. Numbers that are changed are compiled anew once: from then
    on they are on the device, too.

    >>> from anneal.optim import SGD
    >>> group = SGD([Tensor([1.0], requires_grad=True)], lr=0.5).param_groups[0]
    >>> group["lr"] = group["lr"] / 2
    >>> group["lr"], group.rate
    (0.25, Tensor([0.25], dtype=float32))
    """

    def __init__(self, settings: Mapping[str, Any], device: str) -> None:
        super().__init__(settings)
        params = settings.get("params", ())
        kind = np.float64 if any(t.dtype is dtypes.float64 for t in params) else np.float32
        self.rate = Tensor(np.array([_states.rate_of(settings)], kind), device=device)
        self._changing = _states.Changing(self.rate.device)  # settings beside lr that change

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self), self.rate.device), vars(self)

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, key: Literal["params"], /) -> list[Tensor]: ...
        @overload
        def __getitem__(self, key: Literal["lr"], /) -> float: ...
        @overload
        def __getitem__(self, key: str, /) -> Any: ...
        def __getitem__(self, key: str, /) -> Any: ...

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "lr" and (key in self._changing.values or not _states.same(self.get(key), value)):
            if not self._changing.takes(key, value):
                outdate_captures(f"an optimiser's {key!r} was set")
        super().__setitem__(key, value)
        if key == "lr":
            rate = value if value.__class__ is float else _states.rate_of(self)
            self.rate._assign(reshape(number(rate, self.rate.uop.dtype, self.rate.device), (1,)))

    def __delitem__(self, key: str, /) -> None:
        outdate_captures(f"an optimiser's {key!r} was deleted")
        self._changing.takes(key, None)
        super().__delitem__(key)

    @contextmanager
    def varying(self) -> Iterator[None]:
        """A block in which the settings that change are memory, `Varying`."""
        of = self._changing
        plain = {key: self[key] for key in of.values}
        dict.update(self, {key: of.of((None, key), value) for key, value in of.values.items()})
        try:
            yield
        finally:
            dict.update(self, plain)

    def share(self, key: str, n: int = 0) -> tuple[Any, Any, Any]:
        """The setting `key`, of "betas" number `n`, a share b: b, 1 - b and log(b), the logarithm of 0 being a finite
        number.
        """
        b = self[key][n] if key == "betas" else self[key]
        if not b > 0:
            return b, 1 - b, -1e30
        return b, 1 - b, Varying(self._changing, (math.log, b.made), float) if type(b) is Varying else math.log(b)

    def constants(self) -> list[tuple[str, type, Any]]:
        """The settings that are constants of an update, with their types, and what it asks of the others."""
        others = {"params", "lr", *self._changing.values}
        settings = [(name, type(value), value) for name, value in self.items() if name not in others]
        return [*settings, ("asked", tuple, tuple([(q, repr(answer)) for q, answer in self._changing.asked.items()]))]

    @property
    def rate_node(self) -> UOp:
        """The learning rate as a node of shape ()."""
        return reshape(self.rate.uop, ())


class Optimizer(StepHooks, Explained):
    """Base of the optimisers.

    `step()` writes the update into the graph of the gradients and computes everything at once: losses, parameters,
    moments. Per parameter the update is one elementwise expression, so it fuses with the gradient that feeds it. What
    changes from step to step (learning rates, the corrections for the first steps) is data, so every step runs the same
    kernels.

    A parameter of 16 or 8 bits has a float32 copy in the state, "master", to which updates too small for it add up; the
    parameter is that copy, rounded.

    Args:
        params: tensors that require gradients, or dicts `{"params": tensors, "lr": ..., ...}` with settings of their
            own.
        defaults: the settings of parameters that set none.

    Raises SettingError for no parameters, an unknown or wrong setting; GradientError for a tensor that is no leaf with
    requires_grad or appears twice.

    >>> from anneal.optim import AdamW
    >>> a, b = Tensor([1.0], requires_grad=True), Tensor([1.0], requires_grad=True)
    >>> optimizer = AdamW([{"params": [a], "weight_decay": 0.1}, {"params": [b]}], lr=0.01)
    >>> [(g["lr"], g["weight_decay"]) for g in optimizer.param_groups]
    [(0.01, 0.1), (0.01, 0.01)]
    """

    _layout: UpdateInputs | None = None  # of the last step

    def __init__(self, params: Parameters, defaults: dict[str, Any]) -> None:
        name = type(self).__name__
        if isinstance(params, Tensor):
            raise SettingError(f"{name}: params is a list of tensors, not one: write [tensor]")
        if not isinstance(params, Iterable):
            write = "; write model.parameters()" if hasattr(params, "parameters") else ""
            raise SettingError(f"{name}: params is a list of tensors, or of dicts with them, not {said(params)}{write}")
        given: list[Any] = list(params)
        if not given:
            used = " (an iterator gives its items once: make a list of it)" if isinstance(params, Iterator) else ""
            raise SettingError(f"{name}: no parameters given{used}")
        self.defaults = defaults
        self.param_groups: list[ParameterGroup] = []
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)  # of parameters, and of groups
        self.found_inf: Tensor | None = None  # by GradScaler: whether the step is to change nothing
        for g in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(g)

    @property
    def params(self) -> list[Tensor]:
        """The parameters of all groups; a dict that a program put among them becomes a group."""
        for n, group in enumerate(self.param_groups):
            if not isinstance(group, ParameterGroup):
                missing = [key for key in ("params", *self.defaults) if key not in group]
                if missing:
                    raise SettingError(
                        f"{type(self).__name__}: group {n} has no {missing[0]!r}: add_param_group() gives a group the "
                        "defaults, append() does not"
                    )
                self.param_groups[n] = ParameterGroup(group, group["params"][0].device)
                outdate_captures("an optimiser got further parameters")
        return [t for group in self.param_groups for t in group["params"]]

    def __getstate__(self) -> dict[str, Any]:
        return {n: v for n, v in vars(self).items() if n not in ("_hooks", "_layout", "step")}

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            settings = sorted((k, v) for k, v in group.items() if k != "params")
            lines += [""] * (i > 0) + [f"Parameter Group {i}", *[f"    {k}: {v}" for k, v in settings]]
        return "\n".join([*lines, ")"])

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Train further parameters: `param_group` is `{"params": tensors, "lr": ..., ...}`; absent settings are the
        defaults.

        Errors as for the class.

        >>> from anneal.optim import AdamW
        >>> a, b = Tensor([1.0], requires_grad=True), Tensor([1.0], requires_grad=True)
        >>> optimizer = AdamW([a], lr=0.01)
        >>> optimizer.add_param_group({"params": [b], "lr": 0.5})
        >>> [g["lr"] for g in optimizer.param_groups]
        [0.01, 0.5]
        """
        name = type(self).__name__
        if not isinstance(param_group, Mapping) or "params" not in param_group:
            raise SettingError(f'{name}: a group is a dict with "params", its tensors, not {said(param_group)}')
        own = [k for k in param_group if k != "params" and k not in self.defaults]
        if own and not isinstance(param_group, ParameterGroup):  # another optimiser's groups keep its settings
            from difflib import get_close_matches

            for key in own:  # such as a name, or a factor of the rate; a key much like a setting's name is a mistake
                if near := get_close_matches(str(key), self.defaults, 1, 0.8):
                    raise SettingError(
                        f"{name}: unknown setting {key!r}; did you mean {near[0]!r}? known: {', '.join(self.defaults)}"
                    )
        group = {**self.defaults, **param_group}
        among = group["params"]
        if not hasattr(among, "__iter__"):
            raise SettingError(f"{name}: params is a list of tensors, not {said(among)}")
        tensors = [among] if isinstance(among, Tensor) else [t[1] if isinstance(t, tuple) else t for t in among]
        group["params"] = tensors  # tuples come from model.named_parameters()
        seen = set(self.params)
        for t in tensors:
            frozen = isinstance(t, Tensor) and type(t) is not Tensor  # a Parameter: it may train later
            if not isinstance(t, Tensor) or not t.is_leaf or not (t.requires_grad or frozen):
                raise GradientError(f"{name}: a parameter must be a tensor made with requires_grad=True, not {t!r}")
            if t in seen:
                raise GradientError(f"{name}: a parameter of shape {t.shape} is given twice")
            seen.add(t)
        if type(self)._update is not Optimizer._update or type(self).step is Optimizer.step:
            _states.check_settings(name, group)  # a step of a program's own gives settings what meaning it likes
        if tensors:
            if self.param_groups:
                outdate_captures("an optimiser got further parameters")
            self.param_groups.append(ParameterGroup(group, tensors[0].device))
        # A parameter that is still lazy is computed now: its first update must not depend on how it was made.
        realize(tensors)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set every gradient to None, or with `set_to_none=False` to zeros if it is there."""
        noted = bool(here.recordings)
        for t in self.params:
            if not set_to_none:
                zero_gradient(t)
            elif noted:
                t.grad = None
            else:
                t._grad = None

    @overload
    def step(self, *results: Tensor, reduce: Reduce | None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], R] | None = None) -> R: ...
    def step(self, *results: Any, closure: Any = None, reduce: Reduce | None = None) -> Any:
        """Update every parameter that has a gradient, and compute. A `closure` is called first, also under `no_grad`
        with gradients, and its loss returned: it forgets the gradients, computes the loss and calls backward().

        Besides the parameters this computes `results`, the tensors whose backward() led here, and running statistics
        of batch norm: one call for the whole step.

        `reduce` makes of the gradients, a list of tensors in the order of `params`, those that the update takes: data
        parallel training gives `lambda gradients: all_reduce(gradients, group, "mean")`. `.grad` has them afterwards.

        Raises GradientError where `reduce` gives another number of gradients, ShapeError where one is of another shape.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> from anneal.optim import SGD
        >>> optimizer = SGD([w], lr=0.1)
        >>> (w * w).sum().backward(); optimizer.step(reduce=lambda gradients: [g / 2 for g in gradients]); w
        Tensor([0.9], dtype=float32, requires_grad=True)
        """
        if len(results) == 1 and not isinstance(results[0], Tensor):
            closure, results = results[0], ()
            if closure is not None and not callable(closure):
                raise SettingError(f"{type(self).__name__}: step takes a closure, or tensors, not {said(closure)}")
        if closure is not None:
            loss = with_gradients(closure)
            self._apply([loss] if isinstance(loss, Tensor) else [])
            return loss
        if reduce is None:
            self._apply(results)
            return None
        there = self.gradients()
        given = [g for g in there if g is not None]
        made = list(reduce(given))
        if len(made) != len(given):
            raise GradientError(
                f"{type(self).__name__}: reduce gives {len(made)} gradients for {len(given)}: one for each that it "
                "takes"
            )
        reduced = iter(made)
        self.apply([None if g is None else next(reduced) for g in there], *results)
        return None

    def gradients(self) -> list[Tensor | None]:
        """The gradients of `params` in their order, None for a parameter that has none."""
        return [t.grad for t in self.params]

    def apply(self, gradients: Sequence[Tensor | None], *results: Tensor) -> None:
        """The second half of `step`, with these gradients in place of the parameters' own; `.grad` has them afterwards.

        `gradients` has one for each of `params`, in their order: what `gradients()` gave, or what became of it. A
        parameter with None stays as it is. Raises GradientError for another number of gradients, or for something that
        is no tensor, ShapeError for one of another shape than its parameter's.

        Args:
            results: tensors that are computed together with the update.

        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> from anneal.optim import SGD
        >>> optimizer = SGD([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.apply([g.sign() for g in optimizer.gradients()]); w
        Tensor([0.9, 1.9], dtype=float32, requires_grad=True)
        """
        name, gradients = type(self).__name__, list(gradients)
        if len(gradients) != len(self.params):
            raise GradientError(
                f"{name}: {len(gradients)} gradients for {len(self.params)} parameters: give one for each"
            )
        for n, (t, g) in enumerate(zip(self.params, gradients, strict=True)):
            if g is not None and not isinstance(g, Tensor):
                raise GradientError(f"{name}: gradient {n} is a tensor, or None, not {type(g).__name__}")
            if g is not None and g.shape != t.shape:
                raise ShapeError(f"{name}: gradient {n} has shape {g.shape}, and its parameter {t.shape}")
        for t, g in zip(self.params, gradients, strict=True):
            t.grad = g
        self._apply(results)

    def _apply(self, results: Sequence[Tensor]) -> None:
        """Update the parameters by their gradients, and compute."""
        params = self.params  # a dict that a program put among the groups is a group now
        for group in self.param_groups:
            if {t._device for t in group["params"]} != {group.rate._device}:
                _states.follow(self.state, group)
        # tensors whose memory a parameter shares change too
        linked = [t for t in params if t._base is not None]
        parts = any(t._is_part() for t in linked)
        # This package's own updates follow from gradients, parameters, state and settings alone; a subclass may read
        # anything.
        numbering = numbering_of() if type(self).__module__.startswith("anneal.optim.") and not parts else None
        found = None if numbering is None else self._known(numbering, params)
        # No gradient flows through the results, so memory must not keep the graph of the step.
        with no_grad():
            if numbering is not None and isinstance(found, tuple):
                realize_new([*results, *take_results(), *take_running_updates()], numbering, *found)
                return
            nodes = found if isinstance(found, dict) else self._updated()
            for t, u in nodes.items():
                t._become(u)
            realize([*results, *take_results(), *take_running_updates(), *nodes])

    def _updated(self) -> dict[Tensor, UOp]:
        """The new nodes of parameters and state."""
        done: dict[Tensor, UOp] = {}
        with update_phase():
            for group in self.param_groups:
                active = [t for t in group["params"] if t.grad is not None]
                if active:
                    with group.varying():
                        self._update(group, active, done)
            if self.found_inf is not None:
                for t, u in done.items():
                    failed = broadcast(reshape(self.found_inf.to(t.device).uop, ()), u.shape)
                    done[t] = failed.where(t.uop, u)
        return done

    def _known(self, numbering: Numbering, params: list[Tensor]) -> _New | dict[Tensor, UOp] | None:
        """Parameters and state, with the templates and lines of their new values; the values' nodes where these do not
        follow from gradients, parameters, state and settings as they are; None if that is unknown."""
        inputs: list[Tensor] = []
        key = [
            type(self),
            *[(n, v) for n, v in vars(self).items() if isinstance(v, (bool, int, float, str))],
        ]
        settings = [group.constants() for group in self.param_groups]  # an update may ask more of them
        for group, constants in zip(self.param_groups, settings, strict=True):
            key += (*constants, len(group["params"]))
            inputs += (group.rate, *group._changing.made.values())
        if self.found_inf is not None:
            inputs.append(self.found_inf)
        layout = self._layout
        if layout is None or not layout.holds(self.param_groups, params, self.state):
            layout = self._layout = UpdateInputs(self.param_groups, params, self.state)
        found_gradients = layout.gradients(params)
        given = [g for g in found_gradients if g is not None]
        missing = [g is None for g in found_gradients] if len(given) < len(params) else ()
        key += (layout.names, *missing, len(inputs))
        templates = [*numbering.all_of(inputs), *layout.templates(numbering), *numbering.all_of(given)]
        inputs = [*inputs, *params, *layout.states.tensors, *given]
        whole = tuple(key)
        try:
            hash(whole)
        except TypeError:  # a setting that is a list, say
            return None
        made = {}

        def compute() -> tuple[list[UOp], tuple[list[int], list[Any]]] | None:
            places = {t: n for n, t in enumerate(inputs)}
            made.update(self._updated())
            known = [
                t for t, u in made.items() if t in places and t._device == inputs[0]._device and u.op not in _VIEWS
            ]
            if len(known) < len(made) or settings != [group.constants() for group in self.param_groups]:
                return None
            nodes = list(made.values())
            return nodes, ([places[t] for t in made], [u.provenance[1:3] for u in nodes])

        found = composite(numbering, whole, templates, compute)
        if found is None:
            return made
        places, lines = found[1]
        return [inputs[n] for n in places], found[0], lines  # type: ignore[return-value]  # compute() gives no None

    def _update(self, group: ParameterGroup, params: list[Tensor], done: dict[Tensor, UOp]) -> None:
        """Put the new nodes of parameters and state into `done`."""
        raise MissingMethodError(
            f"{type(self).__name__} computes no update: define step() in the class, or derive from SGD, Adam, ..."
        )

    def _operands(self, t: Tensor, maximize: bool = False) -> tuple[UOp, UOp, DType]:
        """Parameter and gradient in the dtype the update is computed in; the gradient turned round to maximise."""
        assert t.grad is not None
        wide = dtypes.float64 if t.uop.dtype is dtypes.float64 else _F32
        p, g = t.uop.cast(wide), t.grad.uop.cast(wide)
        if maximize:
            g = -g
        if t.uop.dtype.is_narrow:
            # If the parameter is not its rounded copy, it was set from outside, and replaces the copy.
            master = self._state(t, "master").uop
            p = master.cast(t.uop.dtype).eq(t.uop).where(master, p)
        return p, g, wide

    def _put(self, t: Tensor, new: UOp, done: dict[Tensor, UOp]) -> None:
        """The parameter's new value, rounded to its dtype."""
        if t.uop.dtype.is_narrow:
            done[self._state(t, "master")] = new
        done[t] = new.cast(t.uop.dtype)

    def _shape_of(self, t: Tensor, name: str) -> tuple[int, ...]:
        """The shape of a state of `t`."""
        return t.shape

    def _state(self, t: Tensor, name: str, start: float = 0.0) -> Tensor:
        """A state tensor of `t`, `start` everywhere at first."""
        mine = self.state[t]
        s = mine.get(name)
        if s is None:
            shape = self._shape_of(t, name)
            # a copy of zeros would be written: the system gives memory when it is first used
            kind = _states.state_dtype(t)
            values = np.full(shape or (1,), start, kind) if start else np.zeros(shape or (1,), kind)
            s = mine[name] = _states.kept_state(values, t.device)
            if not shape:
                s.uop = reshape(s.uop, ())
        return s

    def state_dict(self) -> dict[str, Tensor]:
        """The state by name: `"0.exp_avg"` is that of the first parameter; learning rates are `"group.0.lr"`, and
        `"settings"` has those of all groups as JSON, in bytes. Torch's `["state"]` and `["param_groups"]` can be read,
        and changed before it is loaded.
        """
        for hook in self._hooks_of("state_pre"):
            hook(self)
        out = Saved(self.param_groups, self._counts())
        for head, owner in self._owners().items():
            if isinstance(owner, ParameterGroup):
                out[f"{head}lr"] = owner.rate
            out |= {head + n: s for n, s in self.state.get(owner, {}).items()}
        out |= self._memory()
        return self._changed_by("state_post", out)  # type: ignore[no-any-return]

    def _owners(self) -> dict[str, Any]:
        """The parameters and groups, by what the names of their state begin with."""
        groups = {f"group.{i}.": g for i, g in enumerate(self.param_groups)}
        return {f"{i}.": t for i, t in enumerate(self.params)} | groups

    def _memory(self) -> dict[str, Tensor]:
        """The part of `state_dict` besides the state of parameters and groups."""
        return {}

    def _counts(self) -> list[int]:
        """The parameters of each group."""
        return [len(g["params"]) for g in self.param_groups]

    def load_state_dict(self, state_dict: Mapping[str, Tensor | npt.ArrayLike]) -> None:
        """Take over the `state_dict` of an optimiser over the same parameters, made here or in torch. Of the
        state that was here nothing is left.

        Raises DataError for a name or shape that does not fit.
        """
        self._load(self._flat(self._changed_by("load_pre", state_dict)))
        for hook in self._hooks_of("load_post"):
            hook(self)

    def _load(self, flat: Mapping[str, Any]) -> None:
        """Take over a flat state."""
        owners = self._owners()
        for key, value in flat.items():
            at = key.find(".", 6 * key.startswith("group.")) + 1  # of the state's own name
            name, owner, array = key[at:], owners.get(key[:at]), _states.array_of(value)
            if owner is None:
                raise DataError(f"load_state_dict: {key!r} belongs to no parameter of this {type(self).__name__}")
            if isinstance(owner, ParameterGroup):
                if name != "lr":
                    self._group_state(owner, name).assign(Tensor(array, device=owner.rate.device))
                elif np.float32(_states.rate_of(owner)) != (
                    rate := np.float32(array.reshape(-1)[0])
                ):  # settings tell more
                    owner["lr"] = float(rate)
            elif not type(self).__module__.startswith("anneal."):  # a user's own step keeps any state, as in torch
                mine = self.state[owner]
                tensor = array.ndim or isinstance(mine.get(name), Tensor)
                mine[name] = Tensor(array, device=owner.device) if tensor else array.item()
            elif array.shape != (shape := self._shape_of(owner, name)):
                raise DataError(f"load_state_dict: {key} has shape {array.shape}, not {shape} as its parameter has")
            else:
                self._state(owner, name).assign(Tensor(array, device=owner.device))
        for head, owner in owners.items():
            held = self.state.get(owner, {})
            for gone in [name for name in held if head + name not in flat]:
                outdate_captures(f"an optimiser's state {gone!r} was taken away")
                del held[gone]

    def _flat(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """A state as `state_dict` gives it; torch's has a dict for each parameter, and settings for each group."""
        state = _states.take_settings(type(self).__name__, self.param_groups, self._counts(), state)
        if "state" not in state or "param_groups" not in state:
            return state
        order = {n: i for i, n in enumerate([n for g in state["param_groups"] for n in g["params"]])}
        flat: dict[str, Any] = {}
        for n, found in state["state"].items():
            for name, value in found.items():
                if value is not None:
                    flat |= self._from_torch(order[int(n)], name, _states.array_of(value))
        return flat

    def _from_torch(self, i: int, name: str, array: Any) -> dict[str, Any]:
        """Parameter i's state under torch's name, as this class keeps it."""
        return {f"{i}.{name}": array}

    def _group_state(self, group: ParameterGroup, name: str) -> Tensor:
        mine = self.state[group]
        if name not in mine:
            mine[name] = _states.kept_state(np.zeros(1, np.float32), group.rate.device)
        kept: Tensor = mine[name]
        return kept
