"""Tensors of a module that are computed from others: `register_parametrization(layer, "weight", Symmetric())`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anneal.errors import DataError, DTypeError, ShapeError
from anneal.nn._computed import before, compute, keep
from anneal.nn._containers import ModuleDict, ModuleList
from anneal.nn._module import Module
from anneal.nn.parameter import Buffer, Parameter
from anneal.ops import said
from anneal.runtime import here, modes
from anneal.tensor import Tensor, no_grad

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "type_before_parametrizations",
]  # fmt: skip


@contextmanager
def cached() -> Iterator[None]:
    """A block in which a parametrized tensor is computed once, at its first access.

    >>> from anneal.nn.utils import parametrizations
    >>> from anneal import nn
    >>> layer = parametrizations.weight_norm(nn.Linear(2, 2))
    >>> with cached():
    ...     layer.weight is layer.weight
    True
    """
    with modes(computed={} if here.computed is None else here.computed):
        yield


# The tensors that train stand in `layer.parametrizations.weight`, as `original` (or `original0`, `original1`), with
# torch's names; `layer.weight` is computed when it is asked for.


class ParametrizationList(ModuleList[Module]):
    """The modules that compute a tensor, one after another, and the tensors that they start from.

    Args:
        modules: the modules. original: the tensor, of which the first's `right_inverse` makes what it begins with.
        unsafe: whether shapes and dtypes may change.

    Raises DTypeError for a `right_inverse` that gives no tensors.
    """

    def __init__(self, modules: Any, original: Tensor, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        with no_grad():
            begin = self._inverse(original)
        self.is_tensor = isinstance(begin, Tensor)
        parts = [begin] if isinstance(begin, Tensor) else list(begin)
        self.ntensors = len(parts)
        for name, part in zip(self._originals(), parts, strict=True):
            if not isinstance(part, Tensor):
                raise DTypeError(f"register_parametrization: right_inverse gives tensors, not {said(part)}")
            trains = isinstance(original, Parameter) and part.dtype.is_float
            if part is original:
                setattr(self, name, part)
            else:
                kept = part.detach().clone()
                setattr(self, name, Parameter(kept, original.requires_grad) if trains else Buffer(kept))

    def _originals(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{n}" for n in range(self.ntensors)]

    def _inverse(self, value: Any) -> Any:
        for module in reversed(list(self)):
            if hasattr(module, "right_inverse"):
                value = module.right_inverse(value)
        return value

    def right_inverse(self, value: Tensor) -> None:
        """Give what it begins with the values of which `value` is computed. Raises DataError where a module says not
        of what, by a `right_inverse`.
        """
        for module in self:
            if not hasattr(module, "right_inverse"):
                raise DataError(
                    f"a parametrized tensor is set: {type(module).__name__} defines no right_inverse(value)"
                )
        with no_grad():
            begin = self._inverse(value)
            for name, part in zip(self._originals(), [begin] if self.is_tensor else begin, strict=True):
                getattr(self, name).copy_(part)

    def forward(self) -> Any:
        """The computed tensor."""
        modules = iter(self)
        value = next(modules)(*[getattr(self, name) for name in self._originals()])
        for module in modules:
            value = module(value)
        return value


def _get(module: Any, name: str) -> Any:
    known, key = here.computed, (id(module), name)
    if known is None:
        return module.parametrizations[name]()
    if key not in known:
        known[key] = module.parametrizations[name]()
    return known[key]


def _put(module: Any, name: str, value: Tensor) -> None:
    module.parametrizations[name].right_inverse(value)


def type_before_parametrizations(module: Module) -> type:
    """The class of `module` before tensors of it were parametrized.

    >>> from anneal import nn
    >>> type_before_parametrizations(nn.ReLU()).__name__
    'ReLU'
    """
    return before(module)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """True if `tensor_name`, or without it any tensor of `module`, is parametrized."""
    found = vars(module).get("parametrizations")
    return found is not None and (bool(len(found)) if tensor_name is None else tensor_name in found)


def register_parametrization(module: Any, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Any:
    """Make a tensor of `module` computed from one that trains; returns the module.

    Args:
        tensor_name: the name of the parameter or the buffer; registered again, modules follow one another.
        parametrization: a module that makes the tensor; its `right_inverse`, if there is one, says of what.
        unsafe: whether the tensor may have another shape or dtype then.

    Raises DataError for a name of no tensor, ShapeError or DTypeError for another shape or dtype.

    >>> from anneal import nn
    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    >>> (layer.weight == layer.weight.T).all().item(), [name for name, _ in layer.named_parameters()]
    (True, ['bias', 'parametrizations.weight.original'])
    """
    if is_parametrized(module, tensor_name):
        several = module.parametrizations[tensor_name]
        old = getattr(module, tensor_name)
        several.append(parametrization)
    else:
        old = vars(module).get(tensor_name)
        if not isinstance(old, Tensor):
            raise DataError(f"register_parametrization: {type(module).__name__} has no tensor {tensor_name!r}")
        parametrization.train(module.training)
        several = ParametrizationList([parametrization], old, unsafe)
        if not is_parametrized(module):
            module.parametrizations = ModuleDict()
        module.parametrizations[tensor_name] = several
        compute(module, tensor_name, _get, _put)
    if not unsafe:
        with no_grad():
            after = several()
        if after.shape != old.shape or after.dtype is not old.dtype:
            error = ShapeError if after.shape != old.shape else DTypeError
            raise error(
                f"register_parametrization: {tensor_name!r} was {old.shape} of {old.dtype.name}, and would be "
                f"{after.shape} of {after.dtype.name}; give unsafe=True if that is intended"
            )
    return module


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make a tensor of `module` an ordinary one again; returns the module.

    Args:
        tensor_name: its name. leave_parametrized: whether it has the values that were computed, or those of which.

    Raises DataError for a tensor that is not parametrized, or for several originals that are to be left.
    """
    if not is_parametrized(module, tensor_name):
        raise DataError(f"remove_parametrizations: {tensor_name!r} of {type(module).__name__} is not parametrized")
    several = module.parametrizations[tensor_name]
    kept = getattr(several, several._originals()[0])
    if leave_parametrized:
        with no_grad():
            values = several()
        trains = isinstance(kept, Parameter)
        if several.is_tensor and values.shape == kept.shape:
            with no_grad():
                kept.copy_(values)  # the optimiser goes on with the same tensor
        else:
            kept = Parameter(values.detach(), kept.requires_grad) if trains else values.detach()
    elif not several.is_tensor:
        raise DataError("remove_parametrizations: there are several originals: give leave_parametrized=True")
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        del module.parametrizations
    keep(module, tensor_name, kept)
    return module
