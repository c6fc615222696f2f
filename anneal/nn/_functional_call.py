"""A module as a function of its parameters, for grad, jvp and vmap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ParamSpec, Protocol, TypeVar

from anneal.errors import DataError
from anneal.nn._module import Module
from anneal.tensor import Tensor

__all__ = ["functional_call"]


P = ParamSpec("P")
R = TypeVar("R")
_R_co = TypeVar("_R_co", covariant=True)


class _Called(Protocol[P, _R_co]):
    """A module by what a call of it takes and gives."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> _R_co: ...

    def _tensors(self) -> Iterator[tuple[str, Module, str, Tensor]]: ...


def functional_call(module: _Called[P, R], parameters: Mapping[str, Tensor], *args: P.args, **kwargs: P.kwargs) -> R:
    """`module(*args, **kwargs)` with the tensors of `parameters`, by name, in place of the module's own for this call.

    Names are those of `named_parameters` and `state_dict`; tensors that are not named stay. What a name replaces is
    replaced wherever the module shares it, unless another name there says otherwise.

    Raises DataError for a name that the module does not have, or a tensor of another shape.

    >>> from anneal.nn import Linear
    >>> from anneal.tensor import Tensor, grad
    >>> model = Linear(2, 1, bias=False)
    >>> params = {"weight": Tensor([[3.0, 4.0]])}
    >>> grad(lambda p: functional_call(model, p, Tensor([1.0, 10.0])).sum())(params)
    {'weight': Tensor([[ 1., 10.]], dtype=float32)}
    """
    places = {name: (m, own) for name, m, own, _ in module._tensors()}
    unknown = [n for n in parameters if n not in places]
    if unknown:
        raise DataError(
            f"functional_call: {type(module).__name__} has no {', '.join(unknown)}; its tensors are {', '.join(places)}"
        )
    shared: dict[int, Tensor] = {}
    for name, given in parameters.items():
        m, attribute = places[name]
        own = vars(m)[attribute]
        if given.shape != own.shape:
            raise DataError(f"functional_call: {name} has shape {given.shape}, the model's is {own.shape}")
        shared[id(own)] = given
    before = [(m, attribute, vars(m)[attribute]) for m, attribute in places.values()]
    try:
        for name, (m, attribute) in places.items():
            own = vars(m)[attribute]
            # Straight into the attributes: the module is as it was when the call ends, so no capture is out of date.
            vars(m)[attribute] = parameters[name] if name in parameters else shared.get(id(own), own)
        return module(*args, **kwargs)
    finally:
        for m, attribute, own in before:
            vars(m)[attribute] = own
