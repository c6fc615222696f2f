"""Module: a tree of layers that finds its own parameters."""

from __future__ import annotations

import inspect
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

from anneal.errors import DataError, DTypeError, MissingMethodError
from anneal.nn._hooks import HasForward, Hooked, ModuleHooks, called, called_first, setting, settings_shown
from anneal.nn._state import Stateful, defines
from anneal.nn._whole_calls import whole_call
from anneal.nn.parameter import Buffer, Parameter
from anneal.ops import DTypeLike, Explained, locate, said, shorten
from anneal.runtime import forbid_in_capture, here, note_plain, outdate_captures, same_plain
from anneal.tensor import Tensor, no_grad
from anneal.transforms import zero_gradient
from anneal.uop import arena

P = ParamSpec("P")
R = TypeVar("R")
_PLAIN = (bool, int, float, str)
_NO_TENSOR = (*_PLAIN, list, tuple, dict)
_NO_MODULE = (Tensor, *_PLAIN)


class _Tensors(list[Tensor]):
    """A list that `next` also takes from, for `next(model.parameters())` of programs that know an iterator there."""

    _taken = 0

    def __next__(self) -> Tensor:
        if self._taken >= len(self):
            raise StopIteration
        self._taken += 1
        return self[self._taken - 1]


class _Members(UserDict[str, Any]):
    """Attributes of one kind by name, as programs of torch ask for them: what is set here is set in the module."""

    def __init__(self, module: Module, found: dict[str, Any]) -> None:
        self.module, self.data = module, found

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self.module, name, value)
        self.data[name] = value

    def __delitem__(self, name: str) -> None:
        delattr(self.module, name)
        del self.data[name]


class Module(Hooked, Stateful, Explained):
    """Base of layers and models: subclasses set tensors and modules as attributes and define `forward`.

    A `Parameter`, or a leaf with `requires_grad`, is a parameter; any other tensor is a buffer (saved, not trained),
    except one that a forward call stored. Lists, tuples and dicts of modules are searched too. A plain tensor whose
    name starts with an underscore is private unless it is registered: it moves with its module, but is neither saved
    nor listed. Names are torch's: `"h.0.ln_1.weight"`. To type checkers a call has the parameters and the result of the
    class's `forward`.

    >>> from anneal.nn import Parameter
    >>> class Twice(Module):
    ...     def __init__(self):
    ...         self.scale = Parameter([2.0])
    ...     def forward(self, x):
    ...         return x * self.scale
    >>> twice = Twice()
    >>> twice(Tensor([3.0])), [name for name, _ in twice.named_parameters()]
    (Tensor([6.], dtype=float32, requires_grad=True), ['scale'])
    """

    training: bool = True
    _draws: ClassVar[bool] = False  # whether a call of it in training draws random numbers
    _hooks: ModuleHooks | None = None
    _compiled: Any = None  # the jit function of its calls
    _unsaved: frozenset[str] = frozenset()  # buffers that are no part of the state
    _left: frozenset[str] = frozenset()  # names of tensors that calls left there: neither found nor saved
    _registered: frozenset[str] = frozenset()  # names that are found and saved, also with an underscore

    def __setattr__(self, name: str, value: Any) -> None:
        before = vars(self).get(name, getattr(type(self), name, value))
        if isinstance(before, Parameter) and type(value) is Tensor and not value.requires_grad:
            raise DTypeError(
                f"{type(self).__name__}.{name} is a parameter: set an nn.Parameter there, or copy_() in no_grad()"
            )
        if isinstance(value, _NO_TENSOR) and (isinstance(before, (Parameter, Module)) or name in self._registered):
            kind = "a module" if isinstance(before, Module) else "a parameter or a buffer"
            raise DTypeError(
                f"{type(self).__name__}.{name} is {kind}: {said(value)} cannot take its place; delete it first"
            )
        if isinstance(before, Module) and isinstance(value, Tensor):
            raise DTypeError(f"{type(self).__name__}.{name} is a module: no tensor can take its place; delete it first")
        if before is not value and not (isinstance(value, _PLAIN) and before == value and same_plain(before, value)):
            forbid_in_capture(
                f"{type(self).__name__}.{name} set", "set it outside, or assign() to a tensor that stands there"
            )
            if isinstance(value, _PLAIN) and isinstance(before, _PLAIN):
                note_plain(self, name, before, value)
            else:
                outdate_captures(f"{type(self).__name__}.{name} was set")
        if here.modules is not None and type(value) is Tensor and name not in self._registered:
            if not isinstance(vars(self).get(name), Tensor):
                vars(self)["_left"] = self._left | {name}
        here.tensors.trees += not (isinstance(value, _NO_MODULE) and isinstance(before, _NO_MODULE))
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        forbid_in_capture(f"{type(self).__name__}.{name} taken away", "delete it outside")
        if name in self._registered:
            vars(self)["_registered"] = self._registered - {name}
        outdate_captures(f"{type(self).__name__}.{name} was deleted")
        here.tensors.trees += 1
        super().__delattr__(name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's computation: subclasses define it, with arguments and a result of their own."""
        raise MissingMethodError(
            f"{type(self).__name__} defines no forward(): define it in the class; the modules of a list are called one "
            "by one"
        )

    def __call__(self: HasForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """`forward` with its hooks, whose nodes note this module's path from the module that was called first."""
        names = here.modules
        module: Any = self
        compiled = module._compiled
        if compiled is not None and compiled.function is self and id(self) not in here.unwrapped:
            return compiled(*args, **kwargs)  # type: ignore[no-any-return]
        if names is None:
            try:
                return whole_call(module, called_first, args, kwargs)  # type: ignore[no-any-return]
            except Exception as error:
                locate(error, "", type(self).__name__)
                shorten(error)
                raise
        nodes = arena().here
        before = nodes.path
        name = names.get(id(self))
        if name is None:  # not an attribute of a module that is being called: its class names it
            name = f"{before}.{type(self).__name__}" if before else type(self).__name__
            for below, m in module.named_modules(name):
                names.setdefault(id(m), below)
        nodes.path = name
        try:
            return whole_call(module, called, args, kwargs)  # type: ignore[no-any-return]
        except Exception as error:
            locate(error, name)
            shorten(error)
            raise
        finally:
            nodes.path = before

    def compile(self, **options: Any) -> None:
        """Capture this module's calls, as `jit` would; `options` are those of `an.compile`.

        >>> from anneal import nn
        >>> layer = nn.ReLU()
        >>> layer.compile(mode="reduce-overhead")
        >>> [layer(Tensor([x])).item() for x in (-1.0, 2.0, 3.0)]
        [0.0, 2.0, 3.0]
        """
        from anneal.runtime import Jit, compile as compiled

        if not isinstance(compiled(len, **options), Jit):
            vars(self).pop("_compiled", None)
        elif self._compiled is None or self._compiled.function is not self:  # a copy still has the original's
            vars(self)["_compiled"] = Jit(self, self._run_itself)

    def _run_itself(self, *args: Any, **kwargs: Any) -> Any:
        """The call of a compiled module, as it stands."""
        here.unwrapped.add(id(self))
        try:
            return self(*args, **kwargs)
        finally:
            here.unwrapped.discard(id(self))

    # -- the tree -------------------------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly below, with their names, in the order they were set; a module with two names once.

        >>> from anneal import nn
        >>> [name for name, _ in nn.Sequential(nn.Linear(2, 3), nn.ReLU()).named_children()]
        ['0', '1']
        """
        seen = set()
        for name, module in self._below():
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def _below(self) -> Iterator[tuple[str, Module]]:
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif name.startswith("_") or isinstance(value, Tensor):
                continue
            elif isinstance(inner := getattr(value, "__wrapped__", None), Module):  # under jit
                yield name, inner
            elif isinstance(value, (list, tuple)):
                for i, v in enumerate(value):
                    if isinstance(v, Module):
                        yield f"{name}.{i}", v
            elif isinstance(value, dict):
                for k, v in value.items():
                    if isinstance(v, Module):
                        yield f"{name}.{k}", v

    def named_modules(self, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """This module (with the name `prefix`) and every module below, parents first; a shared one once, or without
        `remove_duplicate` under each of its names.

        >>> from anneal import nn
        >>> [name for name, _ in nn.Sequential(nn.Sequential(nn.ReLU())).named_modules()]
        ['', '0', '0.0']
        """
        seen = set()
        stack: list[tuple[str, Module, tuple[int, ...]]] = [(prefix, self, ())]
        while stack:
            name, module, above = stack.pop()
            if id(module) in seen or id(module) in above:
                continue
            if remove_duplicate:
                seen.add(id(module))
            else:
                above = (*above, id(module))
            yield name, module
            below = [(f"{name}.{n}" if name else n, m, above) for n, m in module._below()]
            stack.extend(reversed(below))

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and every module below; without `remove_duplicate`, a shared one each time."""
        for _, m in self.named_modules(remove_duplicate=remove_duplicate):
            yield m

    def children(self) -> Iterator[Module]:
        """The modules directly below."""
        for _, m in self.named_children():
            yield m

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` with every module below, children first, then with this one; returns this one.

        >>> from anneal import nn
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU()).apply(lambda m: print(type(m).__name__))
        Linear
        ReLU
        Sequential
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def get_submodule(self, target: str) -> Module:
        """The module that `target` names, "" for this one. Raises DataError if there is none.

        >>> from anneal import nn
        >>> nn.Sequential(nn.Sequential(nn.ReLU())).get_submodule("0.0")
        ReLU()
        """
        found = self
        for n, part in enumerate(target.split(".") if target else ()):
            below = dict(found._below())
            if part not in below:
                at = ".".join(target.split(".")[:n])
                raise DataError(
                    f"get_submodule: {type(self).__name__} has no {target!r}: below {at or 'it'!r} are "
                    f"{', '.join(below) or 'no modules'}"
                )
            found = below[part]
        return found

    def get_parameter(self, target: str) -> Tensor:
        """The parameter that `target` names. Raises DataError if there is none."""
        return _named(self, "parameter", target, dict(self.named_parameters(remove_duplicate=False)))

    def get_buffer(self, target: str) -> Tensor:
        """The buffer that `target` names. Raises DataError if there is none."""
        return _named(self, "buffer", target, dict(self.named_buffers("", True, False)))

    def _is_parameter(self, value: Tensor) -> bool:
        """True if a tensor of this module itself is a parameter, frozen or not."""
        if isinstance(value, Parameter) or (value.requires_grad and value.is_leaf):
            return True
        return any(value is t for t in vars(self).get("_frozen", ()))

    def _tensors(self, private: bool = False, recurse: bool = True) -> Iterator[tuple[str, Module, str, Tensor]]:
        """The tensors with their full names, modules and names there; with `private` also those that are not saved; a
        shared one under each name.
        """
        for prefix, module in self.named_modules(remove_duplicate=False) if recurse else [("", self)]:
            # a tensor that a forward call stored, such as a loss, is neither trained nor saved
            mine = [
                (name, t)
                for name, t in vars(module).items()
                if isinstance(t, Parameter) or (isinstance(t, Tensor) and (not t.requires_grad or t.is_leaf))
            ]
            buffers = [name for name, value in mine if not module._is_parameter(value)]
            for name, value in sorted(mine, key=lambda pair: pair[0] in buffers) if buffers else mine:
                if name in module._left and not (private or isinstance(value, (Parameter, Buffer))):
                    continue
                known = private or not name.startswith("_") or isinstance(value, (Parameter, Buffer))
                if known or name in module._registered:
                    yield f"{prefix}.{name}" if prefix else name, module, name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The parameters, frozen ones too, with their names; a shared one once, under its first name.

        `prefix` stands before the names; `recurse=False` looks at this module alone.

        Args:
            remove_duplicate: whether a tensor that has several names comes once.

        >>> from anneal import nn
        >>> [name for name, _ in nn.Sequential(nn.Linear(2, 3), nn.ReLU()).named_parameters()]
        ['0.weight', '0.bias']
        """
        return self._named(True, prefix, recurse, remove_duplicate)

    def _named(self, trains: bool, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Tensor]]:
        """The parameters, or the buffers, with their names."""
        seen = set()
        for name, module, _, t in self._tensors(recurse=recurse):
            if module._is_parameter(t) is trains and t not in seen:
                if remove_duplicate:
                    seen.add(t)
                yield f"{prefix}.{name}" if prefix else name, t

    def parameters(self, recurse: bool = True) -> list[Tensor]:
        """The parameters, frozen ones too, a shared one once; without `recurse`, of this module alone.
        `next(model.parameters())` is the first.

        >>> from anneal import nn
        >>> next(nn.Linear(2, 3).parameters()).shape
        (3, 2)
        """
        return _Tensors([t for _, t in self.named_parameters(recurse=recurse)])

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers, with their names; `prefix`, `recurse`, `remove_duplicate` are as for `named_parameters`.

        >>> from anneal import nn
        >>> [name for name, _ in nn.BatchNorm1d(2).named_buffers()]
        ['running_mean', 'running_var', 'num_batches_tracked']
        """
        return self._named(False, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> list[Tensor]:
        """The buffers: tensors that do not train; without `recurse`, of this module alone."""
        return _Tensors([t for _, t in self.named_buffers(recurse=recurse)])

    @property
    def _modules(self) -> _Members:
        return _Members(self, dict(self._below()))

    @property
    def _parameters(self) -> _Members:
        return _Members(self, dict(self.named_parameters("", False, False)))

    @property
    def _buffers(self) -> _Members:
        return _Members(self, dict(self.named_buffers("", False, False)))

    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """Set the attribute `name` to the parameter `param`, which trains, or to None. Raises DTypeError for anything
        else, DataError for a wrong name.

        >>> from anneal import nn
        >>> net = nn.Module()
        >>> net.register_parameter("scale", nn.Parameter([2.0])); net.scale.tolist()
        [2.0]
        """
        _check_name(self, "register_parameter", name)
        if param is not None and not (isinstance(param, Tensor) and self._is_parameter(param)):
            raise DTypeError(
                f"register_parameter: {name!r} is an nn.Parameter or None, not {said(param)}; use register_buffer for "
                "a tensor that does not train"
            )
        self._register(name)
        setattr(self, name, param)

    def _register(self, name: str) -> None:
        vars(self)["_registered"] = self._registered | {name}

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Set an attribute that does not train: a tensor, or None. One that is not `persistent` is in no state_dict.

        Raises DTypeError for anything else, DataError for a wrong name.

        >>> from anneal import nn
        >>> net = nn.Module()
        >>> net.register_buffer("mask", Tensor.ones(2), persistent=False)
        >>> [name for name, _ in net.named_buffers()], list(net.state_dict())
        (['mask'], [])
        """
        _check_name(self, "register_buffer", name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise DTypeError(f"register_buffer: {name!r} is a tensor or None, not {said(tensor)}")
        self._register(name)
        vars(self)["_unsaved"] = self._unsaved - {name} if persistent else self._unsaved | {name}
        setattr(self, name, tensor)

    def add_module(self, name: str, module: Module | None) -> None:
        """Set an attribute that is a module, or None. Raises DTypeError for anything else, DataError for a wrong name.

        >>> from anneal import nn
        >>> net = nn.Sequential()
        >>> net.register_module("0", nn.ReLU())
        """
        _check_name(self, "add_module", name)
        if module is not None and not isinstance(module, Module):
            raise DTypeError(f"add_module: {name!r} is a module or None, not {said(module)}")
        setattr(self, name, module)

    register_module = add_module

    def num_parameters(self) -> int:
        """The number of elements of all parameters, frozen ones among them.

        >>> from anneal import nn
        >>> nn.Linear(3, 2).num_parameters()
        8
        """
        return sum(t.numel() for t in self.parameters())

    # -- modes ----------------------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Switch this module and those below to training (dropout, batch statistics), or with a false `mode` to
        evaluation; returns the module.

        >>> from anneal import nn
        >>> nn.Dropout(0.5).train(False)(Tensor([1.0]))
        Tensor([1.], dtype=float32)
        """
        for m, _, own in self._owners("", "train"):
            if own:  # such as one that stays in evaluation
                m.train(mode)
            else:
                m.training = mode
        return self

    def eval(self) -> Self:
        """Switch to evaluation: `train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze every parameter (`requires_grad` is False), or let it train again: it stays a parameter; returns the
        module.

        >>> from anneal import nn
        >>> frozen = nn.Linear(2, 1).requires_grad_(False)
        >>> [p.requires_grad for p in frozen.parameters()], len(frozen.state_dict())
        ([False, False], 2)
        """
        for m in self.modules():
            mine = [v for v in vars(m).values() if isinstance(v, Tensor) and m._is_parameter(v)]
            plain = [v for v in mine if not isinstance(v, Parameter)]
            if plain:  # the class of a plain tensor does not tell that it is a parameter
                vars(m)["_frozen"] = [] if requires_grad else plain
            for t in mine:
                t.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set every parameter's gradient to None, or with `set_to_none=False` to zeros if it is there."""
        for t in self.parameters():
            if set_to_none:
                t.grad = None
            else:
                zero_gradient(t)

    # -- printing -------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """The arguments that a printed module shows."""
        return settings_shown(self)

    def _get_name(self) -> str:
        name = type(self).__name__
        return f"Parametrized{name}" if "parametrizations" in vars(self) else name

    def _rows_shown(self) -> list[str]:
        """The lines of a printed module between its brackets, but for its settings."""
        return [f"({name}): {child!r}" for name, child in self._below()]

    def __repr__(self) -> str:
        settings, rows = self.extra_repr(), self._rows_shown()
        if not rows and "\n" not in settings:
            return f"{self._get_name()}({settings})"
        lines = [*settings.split("\n"), *rows] if settings else rows
        return "\n".join([f"{self._get_name()}(", *["  " + line.replace("\n", "\n  ") for line in lines], ")"])


class Resettable(Module):
    """Base of layers that can initialise their parameters again."""

    def reset_parameters(self) -> None:
        """Begin anew: parameters and running statistics have the values that a new layer of these settings has.

        A subclass that defines this has it called when it is made, as in torch.

        >>> from anneal import nn
        >>> norm = nn.LayerNorm(2)
        >>> norm.weight.assign(5.0).tolist(), norm.reset_parameters(), norm.weight.tolist()
        ([5.0, 5.0], None, [1.0, 1.0])
        """
        kind = next(c for c in type(self).__mro__ if c.__module__.startswith("anneal.nn."))
        settings = {
            name: None if name in ("device", "dtype", "weight", "_weight") else setting(self, name, parameter.default)
            for name, parameter in inspect.signature(kind).parameters.items()
        }
        for name, t in vars(kind(**settings)).items():
            if isinstance(t, Tensor):
                with no_grad():
                    vars(self)[name].copy_(t.to(device=vars(self)[name].device))

    def _place(self, device: str | None, dtype: DTypeLike | None) -> None:
        if defines(self, "reset_parameters"):
            self.reset_parameters()
        super()._place(device, dtype)


def _check_name(module: Module, what: str, name: str) -> None:
    """Raise DataError for a name that no attribute may have."""
    if not isinstance(name, str) or not name or "." in name:
        raise DataError(f"{what}: a name is a text without dots, not {said(name)}")
    if hasattr(type(module), name):
        raise DataError(f"{what}: {type(module).__name__} has an attribute {name!r} of its class")


def _named(module: Module, what: str, target: str, found: Mapping[str, Tensor]) -> Tensor:
    if target not in found:
        raise DataError(
            f"get_{what}: {type(module).__name__} has no {what} {target!r}; it has {', '.join(found) or 'none'}"
        )
    return found[target]
