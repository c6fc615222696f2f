"""Lists and dicts of modules and parameters."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Generic, Self, SupportsIndex, TypeVar, overload

from anneal.errors import DTypeError, PositionError
from anneal.nn._module import Module
from anneal.nn.parameter import Parameter
from anneal.ops import checked, said
from anneal.tensor import Tensor

M = TypeVar("M", bound=Callable[..., Any])
T = TypeVar("T")


class _Row(Module, Generic[T]):
    """Attributes "0", "1", ... as a list, and modules that were added by other names, in the order they came."""

    @checked
    def __init__(self, values: Iterable[T] | None = None) -> None:
        items = {str(n): self._checked(v) for n, v in enumerate(values or ())}
        self._names: tuple[str, ...] = tuple(items)  # at once: what a jit function makes is not changed in its capture
        for name, v in items.items():
            setattr(self, name, v)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, Module) and name not in self._names:
            self._names = (*self._names, name)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._names = tuple([n for n in self._names if n != name])

    def _checked(self, value: T) -> T:
        """The value as it is stored. Raises DTypeError for a value that the container does not take."""
        return _module(self, value)

    def _at(self, i: SupportsIndex) -> int:
        try:
            i = operator.index(i)
        except TypeError:
            raise DTypeError(f"{type(self).__name__}: a place is an integer, not {said(i)}") from None
        at = i + len(self) if i < 0 else i
        if not 0 <= at < len(self):
            raise PositionError(f"{type(self).__name__}: there is no place {i} in a row of {len(self)}")
        return at

    def _put(self, values: list[T]) -> None:
        for name in self._names:
            delattr(self, name)
        for v in values:
            self.append(v)

    def append(self, value: T) -> Self:
        """Add one item at the end; returns the container."""
        name = str(len(self))
        setattr(self, name, self._checked(value))
        if name not in self._names:  # a function, or a parameter
            self._names = (*self._names, name)
        return self

    def extend(self, values: Iterable[T]) -> Self:
        """Add several items at the end; returns the container."""
        for v in list(values):
            self.append(v)
        return self

    def insert(self, index: int, value: T) -> Self:
        """Add one item before a place; returns the container."""
        values = list(self)
        values.insert(index, value)
        self._put(values)
        return self

    def pop(self, index: int = -1) -> T:
        """Take one out and return it. Raises PositionError for a place that is not there."""
        value = self[index]
        del self[index]
        return value

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[T]:
        return iter([getattr(self, name) for name in self._names])

    def __contains__(self, value: object) -> bool:
        return any(value is v for v in self)

    @overload
    def __getitem__(self, i: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, i: slice) -> Self: ...
    def __getitem__(self, i: SupportsIndex | slice) -> T | Self:
        if isinstance(i, slice):
            return self._of(list(self)[i], self._names[i])
        value: T = getattr(self, self._names[self._at(i)])
        return value

    def __setitem__(self, i: SupportsIndex, value: T) -> None:
        setattr(self, self._names[self._at(i)], self._checked(value))

    def __delitem__(self, i: SupportsIndex | slice) -> None:
        values = list(self)
        del values[i if isinstance(i, slice) else self._at(i)]
        self._put(values)

    def __add__(self, other: Iterable[T]) -> Self:
        return self._of([*self, *other])

    def __iadd__(self, other: Iterable[T]) -> Self:
        return self.extend(other)

    def _of(self, values: list[T], names: Sequence[str] = ()) -> Self:
        return type(self)(values)


class ModuleList(_Row[M]):
    """A list of modules, named "0", "1", ...; to type checkers its items are of the class that they have in common.

    It is a list: slices, `append`, `extend`, `insert`, `pop`, and places that are set and deleted.

    >>> from anneal.nn import Linear
    >>> layers = ModuleList([Linear(2, 3), Linear(3, 1)])
    >>> len(layers), layers[-1].weight.shape, [name for name, _ in layers.named_parameters()]
    (2, (1, 3), ['0.weight', '0.bias', '1.weight', '1.bias'])
    """

    def __init__(self, modules: Iterable[M] | None = None) -> None:
        super().__init__(modules)

    def _rows_shown(self) -> list[str]:
        rows, at = [], 0
        for text, same in groupby([repr(m) for m in self]):
            n = len(list(same))
            rows.append(f"({at}): {text}" if n == 1 else f"({at}-{at + n - 1}): {n} x {text}")
            at += n
        return rows


class Sequential(_Row[Callable[[Tensor], Tensor]]):
    """Modules applied one after the other; each may also be a function of a tensor. One dict gives them names.

    It is a list, as `ModuleList` is.

    >>> from anneal.nn import Linear, ReLU
    >>> Sequential(Linear(2, 3), Tensor.relu, Linear(3, 1))(Tensor.ones(5, 2)).shape
    (5, 1)
    >>> Sequential({"up": Linear(2, 3), "act": ReLU()}).up.weight.shape
    (3, 2)
    """

    @overload
    def __init__(self, *modules: Callable[[Tensor], Tensor]) -> None: ...
    @overload
    def __init__(self, modules: Mapping[str, Callable[[Tensor], Tensor]], /) -> None: ...
    def __init__(self, *modules: Any) -> None:
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            self._names = tuple(modules[0])
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            super().__init__(modules)

    def _of(self, values: list[Callable[[Tensor], Tensor]], names: Sequence[str] = ()) -> Self:
        return type(self)(dict(zip(names, values))) if names else type(self)(*values)  # a part's states keep names

    # Unchecked: whatever the first module takes may go in.
    def forward(self, x: Tensor = None, *, input: Any = None) -> Tensor:  # type: ignore[assignment]
        x = x if input is None else input
        for m in self:
            x = m(x)
        return x


class ParameterList(_Row[Tensor]):
    """A list of parameters, named "0", "1", ...; other tensors become parameters. It has the methods of `ModuleList`.

    >>> weights = ParameterList([Tensor.ones(2), Tensor.zeros(3)])
    >>> [(name, p.shape) for name, p in weights.named_parameters()], weights[0].tolist()
    ([('0', (2,)), ('1', (3,))], [1.0, 1.0])
    """

    def __init__(self, values: Iterable[Tensor] | None = None) -> None:
        super().__init__(values)

    def _checked(self, value: Tensor) -> Tensor:
        return _parameter(value)

    def _rows_shown(self) -> list[str]:
        return [f"  ({i}): {_kind(value)}" for i, value in enumerate(self)]


def _kind(value: Any) -> str:
    """A line for a parameter in a printed row: its dtype and sizes."""
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    return f"Parameter containing: [{value.dtype.name} of size {'x'.join(map(str, value.shape))}]"


def _parameter(value: Any) -> Tensor:
    """A tensor as a parameter; anything else as it is, as torch keeps it."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _module(row: Module, value: T) -> T:
    if value is not None and not callable(value) or isinstance(value, type) and issubclass(value, Module):
        raise DTypeError(f"{type(row).__name__}: holds modules, not {said(value)}; ParameterList holds parameters")
    return value


class _Named(Module, Generic[T]):
    """Attributes by names that need not be identifiers, as a dict."""

    def __init__(self, values: Mapping[str, T] | Iterable[tuple[str, T]] | None = None) -> None:
        items = self._ordered(values or ())
        self._names: tuple[str, ...] = tuple([name for name, _ in items])  # at once, as those of a row
        for name in self._names:
            self._check(name)
        self.update(items)

    def _ordered(self, values: Any) -> list[tuple[str, T]]:
        """The items of what is given, in the order in which they are set."""
        try:
            return [*dict(values).items()]
        except (TypeError, ValueError):
            raise DTypeError(f"{type(self).__name__}: takes a dict, or pairs, not {said(values)}") from None

    def _checked(self, value: T) -> T:
        return _module(self, value)

    def _check(self, name: Any) -> None:
        """Raise DTypeError for a name that an item cannot have."""
        if not isinstance(name, str) or not name or "." in name or name.startswith("_") or hasattr(type(self), name):
            raise DTypeError(
                f"{type(self).__name__}: a name is a text without dots that does not begin with an underscore and is "
                f"no method, not {said(name)}"
            )

    def update(self, values: Mapping[str, T] | Iterable[tuple[str, T]]) -> None:
        """Set several items by name."""
        for name, value in self._ordered(values):
            self[name] = value

    def keys(self) -> list[str]:
        """The names of the items."""
        return list(self._names)

    def values(self) -> list[T]:
        """The items, without their names."""
        return [self[name] for name in self._names]

    def items(self) -> list[tuple[str, T]]:
        """The names with the items."""
        return [(name, self[name]) for name in self._names]

    def get(self, name: str, default: T | None = None) -> T | None:
        """The item of a name, or `default`."""
        return self[name] if name in self._names else default

    def setdefault(self, name: str, default: T) -> T:
        """The item of a name, set to `default` first if there is none."""
        if name not in self._names:
            self[name] = default
        return self[name]

    def popitem(self) -> tuple[str, T]:
        """Remove the last item, and return its name and it. Raises KeyError if there is none."""
        if not self._names:
            raise KeyError(f"{type(self).__name__} is empty")
        name = self._names[-1]
        return name, self.pop(name)

    def copy(self) -> Self:
        """A new container with the same items."""
        return type(self)(self.items())

    def pop(self, name: str) -> T:
        """Take one out and return it. Raises KeyError for a name that is not there."""
        value = self[name]
        del self[name]
        return value

    def clear(self) -> None:
        """Remove all items."""
        for name in self._names:
            del self[name]

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        value: T = vars(self)[name]
        return value

    def __setitem__(self, name: str, value: T) -> None:
        value = self._checked(value)
        if name not in self._names:
            self._check(name)
            self._names = (*self._names, name)
        setattr(self, name, value)

    def __delitem__(self, name: str) -> None:
        if name not in self._names:
            raise KeyError(name)
        self._names = tuple([n for n in self._names if n != name])
        delattr(self, name)


class ModuleDict(_Named[M]):
    """A dict of modules; its names are part of the parameters' names.

    >>> from anneal.nn import Linear, ReLU
    >>> layers = ModuleDict({"up": Linear(2, 3), "act": ReLU()})
    >>> layers["up"].weight.shape, list(layers), [name for name, _ in layers.named_parameters()]
    ((3, 2), ['up', 'act'], ['up.weight', 'up.bias'])
    """


class ParameterDict(_Named[Tensor]):
    """A dict of parameters; other tensors become parameters. Those of a plain dict come in the order of their names, as
    in torch.

    >>> weights = ParameterDict({"scale": Tensor.ones(2)})
    >>> weights["shift"] = Tensor.zeros(2)
    >>> [name for name, _ in weights.named_parameters()]
    ['scale', 'shift']
    """

    def _checked(self, value: Tensor) -> Tensor:
        return _parameter(value)

    def _ordered(self, values: Any) -> list[tuple[str, Tensor]]:
        items = super()._ordered(values)
        return sorted(items, key=lambda item: item[0]) if type(values) is dict else items

    def _rows_shown(self) -> list[str]:
        return [f"  ({name}): {_kind(value)}" for name, value in self.items()]
