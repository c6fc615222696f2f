"""Module: a tree of layers that finds its own parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ParamSpec, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from anneal.backend import device_names
from anneal.errors import DataError, DTypeError
from anneal.ops import DTypeLike, as_dtype
from anneal.runtime import forbid_in_capture, here, outdate_captures, realize
from anneal.tensor import Tensor
from anneal.uop import Op, UOp, arena, dtypes

__all__ = ["Module"]

P = ParamSpec("P")
R = TypeVar("R")
_R_co = TypeVar("_R_co", covariant=True)
_PLAIN = (bool, int, float, str)


class _Forward(Protocol[P, _R_co]):
    """A module by its class's own `forward`, whose parameters and result are those of a call."""

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> _R_co: ...

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]: ...


class Module:
    """Base of layers and models: subclasses set tensors and modules as attributes and define `forward`.

    A tensor attribute with `requires_grad` (a `Parameter`, or a plain tensor) is a parameter, any other a buffer
    (saved, not trained); lists, tuples and dicts of modules are walked too. Attributes whose name starts with an
    underscore are private: neither saved nor found, though a module's own private tensors move with it. Names are
    torch's: `"h.0.ln_1.weight"`. To type checkers a call has the parameters and the result of the class's `forward`.

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

    def __setattr__(self, name: str, value: Any) -> None:
        before = vars(self).get(name, getattr(type(self), name, value))
        if before is not value and not (isinstance(value, _PLAIN) and type(before) is type(value) and before == value):
            forbid_in_capture(
                f"{type(self).__name__}.{name} set", "set it outside, or assign() to a tensor that stands there"
            )
            outdate_captures(f"{type(self).__name__}.{name} was set")
        super().__setattr__(name, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's computation; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward()")

    def __call__(self: _Forward[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """`forward`, whose nodes note this module's path from the module that was called first."""
        names = here.modules
        if names is None:
            here.modules = {id(m): name for name, m in self.named_modules()}
            try:
                return self.forward(*args, **kwargs)
            finally:
                here.modules = None
        nodes = arena()
        before = nodes.path
        name = names.get(id(self))
        if name is None:  # no attribute of a module that is being called: it goes by its class
            name = f"{before}.{type(self).__name__}" if before else type(self).__name__
            for below, m in self.named_modules(name):
                names.setdefault(id(m), below)
        nodes.path = name
        try:
            return self.forward(*args, **kwargs)
        finally:
            nodes.path = before

    # -- the tree -------------------------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly below, with their names, in the order they were set.

        >>> from anneal import nn
        >>> [name for name, _ in nn.Sequential(nn.Linear(2, 3), nn.ReLU()).named_children()]
        ['0', '1']
        """
        for name, value in vars(self).items():
            if name.startswith("_"):
                continue
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, (list, tuple)):
                for i, v in enumerate(value):
                    if isinstance(v, Module):
                        yield f"{name}.{i}", v
            elif isinstance(value, dict):
                for k, v in value.items():
                    if isinstance(v, Module):
                        yield f"{name}.{k}", v

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module (with the name `prefix`) and every module below, parents first; a shared one once.

        >>> from anneal import nn
        >>> [name for name, _ in nn.Sequential(nn.Sequential(nn.ReLU())).named_modules()]
        ['', '0', '0.0']
        """
        seen: set[int] = set()
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield name, module
            below = [(f"{name}.{n}" if name else n, m) for n, m in module.named_children()]
            stack.extend(reversed(below))

    def modules(self) -> Iterator[Module]:
        """This module and every module below."""
        for _, m in self.named_modules():
            yield m

    def _tensors(self, private: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Every tensor with its name, with `private` also those that are not saved; a shared one under each name."""
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor) and (private or not name.startswith("_")):
                    yield f"{prefix}.{name}" if prefix else name, value

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors that train, with their names; a shared one once, under its first name.

        >>> from anneal import nn
        >>> [name for name, _ in nn.Sequential(nn.Linear(2, 3), nn.ReLU()).named_parameters()]
        ['0.weight', '0.bias']
        """
        seen: set[int] = set()
        for name, t in self._tensors():
            if t.requires_grad and id(t) not in seen:
                seen.add(id(t))
                yield name, t

    def parameters(self) -> list[Tensor]:
        """The tensors that train, a shared one once."""
        return [t for _, t in self.named_parameters()]

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors that are saved and do not train, with their names.

        >>> from anneal import nn
        >>> [name for name, _ in nn.BatchNorm1d(2).named_buffers()]
        ['running_mean', 'running_var', 'num_batches_tracked']
        """
        for name, t in self._tensors():
            if not t.requires_grad:
                yield name, t

    def num_parameters(self) -> int:
        """How many numbers train.

        >>> from anneal import nn
        >>> nn.Linear(3, 2).num_parameters()
        8
        """
        return sum(t.numel() for t in self.parameters())

    # -- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """Every parameter and buffer by name, detached; a shared one under each of its names.

        >>> from anneal import nn
        >>> {name: t.shape for name, t in nn.Linear(3, 2).state_dict().items()}
        {'weight': (2, 3), 'bias': (2,)}
        """
        return {name: t.detach() for name, t in self._tensors()}

    def load_state_dict(
        self, state: Mapping[str, Tensor | npt.NDArray[Any]], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Take the values of `state`: tensors or arrays by name, in torch's layout.

        Args:
            state: as `state_dict`, `safe_load` or `safe_open` give it.
            strict: every name must be there and no other.

        Returns:
            The missing and the unexpected names.

        Raises DataError listing missing names, unexpected names and shapes that differ; nothing is loaded then.

        >>> from anneal import nn
        >>> nn.Linear(3, 2).load_state_dict({"weight": np.ones((2, 3)), "scale": np.ones(2)}, strict=False)
        (['bias'], ['scale'])
        """
        mine = dict(self._tensors())
        state = dict(state)  # each tensor of a file is asked for once
        missing = [n for n in mine if n not in state]
        unexpected = [n for n in state if n not in mine]
        wrong = [
            f"{n} has shape {tuple(state[n].shape)}, the model's is {t.shape}"
            for n, t in mine.items()
            if n in state and tuple(state[n].shape) != t.shape
        ]
        faults = []
        if strict and missing:
            faults.append(f"missing: {', '.join(missing)}")
        if strict and unexpected:
            faults.append(f"unexpected: {', '.join(unexpected)}")
        if faults or wrong:
            raise DataError(
                f"load_state_dict: {type(self).__name__} does not fit the state: {'; '.join([*faults, *wrong])}"
                + ("" if wrong or not faults else " (strict=False ignores missing and unexpected names)")
            )
        for name, t in mine.items():
            if name in state:
                _load(t, state[name])
        return missing, unexpected

    # -- modes ----------------------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Switch this module and those below to training (dropout, batch statistics) or, with False, to evaluation;
        returns it.

        >>> from anneal import nn
        >>> nn.Dropout(0.5).train(False)(Tensor([1.0]))
        Tensor([1.], dtype=float32)
        """
        for m in self.modules():
            m.training = mode
        return self

    def eval(self) -> Self:
        """`train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze every parameter (False): it counts as a buffer until `requires_grad_(True)` lets it train again.

        >>> from anneal import nn
        >>> frozen = nn.Linear(2, 1).requires_grad_(False)
        >>> frozen.parameters(), len(frozen.requires_grad_().parameters())
        ([], 2)
        """
        for m in self.modules():
            mine = [v for v in vars(m).values() if isinstance(v, Tensor)]
            frozen: list[Tensor] = vars(m).setdefault("_frozen", [])
            if requires_grad:
                for t in frozen:
                    t.requires_grad_()
                frozen.clear()
            else:
                frozen += [t for t in mine if t.requires_grad]
                for t in mine:
                    t.requires_grad_(False)
        return self

    def zero_grad(self) -> None:
        """Forget every parameter's gradient."""
        for t in self.parameters():
            t.grad = None

    def to(self, *args: DTypeLike, device: str | None = None, dtype: DTypeLike | None = None) -> Self:
        """Move every tensor to a device, those of floats to a dtype, or both, in place: the tensors stay the same
        objects; returns the module.

        Raises DTypeError for a dtype that is no float, DeviceError for a device that is not there.

        >>> from anneal import nn
        >>> nn.Linear(2, 1).to("bfloat16").weight.dtype
        dtypes.bfloat16
        """
        for a in args:
            if isinstance(a, str) and a in device_names():
                device = a
            else:
                dtype = a
        kind = None if dtype is None else as_dtype(dtype)
        if kind is not None and not kind.is_float:
            raise DTypeError(f"{type(self).__name__}.to: a module's dtype is a float, not {kind.name}")
        changed = []
        for _, t in self._tensors(private=True):
            own = kind if kind is not None and t.dtype.is_float else t.dtype
            if own is not t.dtype or device not in (None, t.device):
                new = t.detach().to(device=device).cast(own)
                t.device, t.grad = new.device, None
                t._assign(UOp(Op.CONTIGUOUS, own, (new.uop,)))
                changed.append(t)
        if changed:
            outdate_captures("a module moved to another device or dtype")
            realize(changed)
        return self

    def half(self) -> Self:
        """`.to("float16")`."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """`.to("bfloat16")`: half the memory; an optimiser keeps a float32 copy of what it trains."""
        return self.to(dtypes.bfloat16)

    def double(self) -> Self:
        """`.to("float64")`."""
        return self.to(dtypes.float64)

    def float(self) -> Self:
        """`.to("float32")`."""
        return self.to(dtypes.float32)

    def realize(self) -> Self:
        """Compute every tensor now, together; returns the module."""
        realize([t for _, t in self._tensors()])
        return self

    # -- printing -------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """The arguments that a printed module shows."""
        return ""

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}({self.extra_repr()}"]
        children = list(self.named_children())
        for name, child in children:
            lines.append(f"  ({name}): " + repr(child).replace("\n", "\n  "))
        return "\n".join([*lines, ")"]) if children else lines[0] + ")"


def _load(t: Tensor, value: Tensor | npt.NDArray[Any]) -> None:
    if isinstance(value, Tensor) and value.device == t.device:
        t.assign(value.detach())
        return
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    # Cast on the host: the device may not have the dtype that a file has, such as int64.
    t.assign(Tensor(array, dtype=t.dtype, device=t.device))
