"""Attributes of a module that are computed from its other tensors at each access (weights as direction and length,
pruned ones), and modules as functions of their parameters, for grad, jvp and vmap.

A module with such attributes gets its own class, below its class, with a property for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, ParamSpec, Protocol, TypeVar

from anneal.errors import DataError
from anneal.nn._module import Module
from anneal.tensor import Tensor

Compute = Callable[[Any], Any]


def computed(module: Module) -> dict[str, tuple[Compute, Compute | None]]:
    """The functions that compute attributes of `module`, by name, and those that set them."""
    found: dict[str, Any] = vars(module).get("_computed", {})
    return found


def before(module: Module) -> type:
    """The class of a module before attributes of it were computed."""
    return getattr(module, "_before", type(module))


def compute(module: Any, name: str, get: Callable[..., Any], put: Callable[..., Any] | None = None) -> None:
    """Make `module.name` compute `get(module, name)`; assignment calls `put(module, name, value)`."""
    vars(module).pop(name, None)
    vars(module)["_computed"] = computed(module) | {name: (get, put)}
    _reclass(module)


def keep(module: Any, name: str, value: Any) -> None:
    """Make `module.name` a plain attribute with `value` again."""
    vars(module)["_computed"] = {n: f for n, f in computed(module).items() if n != name}
    _reclass(module)
    setattr(module, name, value)


def _reclass(module: Any) -> None:
    kind, names = before(module), tuple(computed(module))
    module.__class__ = _class(kind, names) if names else kind


def _property(name: str) -> property:
    def get(module: Any) -> Any:
        return vars(module)["_computed"][name][0](module, name)

    def put(module: Any, value: Any) -> None:
        by = vars(module)["_computed"][name][1]
        if by is None:
            raise DataError(f"{before(module).__name__}.{name} is computed: set the tensors that it is computed of")
        by(module, name, value)

    return property(get, put)


@lru_cache(1 << 10)
def _class(kind: type, names: tuple[str, ...]) -> type:
    body: dict[str, Any] = {name: _property(name) for name in names}
    body |= {"__module__": kind.__module__, "__doc__": kind.__doc__, "_before": kind}
    body["__reduce__"] = lambda module: (_made, (kind, names), vars(module))
    return type(kind.__name__, (kind,), body)


def _made(kind: type, names: tuple[str, ...]) -> Any:
    return object.__new__(_class(kind, names))


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
    own_of = {name: vars(m)[attribute] for name, (m, attribute) in places.items()}
    new = [parameters[name] if name in parameters else shared.get(id(own), own) for name, own in own_of.items()]
    with replaced(list(places.values()), new):
        return module(*args, **kwargs)


@contextmanager
def replaced(places: Sequence[tuple[Module, str]], tensors: Sequence[Tensor]) -> Iterator[None]:
    """A block in which the attributes at some `places`, a module and a name each, are these tensors."""
    before = [vars(m)[name] for m, name in places]
    try:
        for (m, name), t in zip(places, tensors, strict=True):
            # Straight into the attributes: the module is as it was when the call ends, so no capture is out of date.
            vars(m)[name] = t
        yield
    finally:
        for (m, name), t in zip(places, before, strict=True):
            vars(m)[name] = t
