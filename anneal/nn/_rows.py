"""Layers that are a function with settings: rows, of which classes are made."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, dataclass_transform

from anneal.doors import names_of
from anneal.nn import functional as F
from anneal.nn._module import Module
from anneal.ops import checked, init_of
from anneal.tensor import Tensor

_NAMES = {n.replace("_", ""): n for n in names_of("anneal.nn.functional") if not n.endswith("_")}


@dataclass_transform(eq_default=False)
class Row(Module):
    """Base of layers that are a function with settings.

    A class below is a row: it has the name of a function of `functional`, but for case and underscores, or says another
    one. Its annotated attributes are the settings, all of them, in the order in which `__init__` takes and keeps them
    and the function takes them after its tensors; where the function takes others, weights among them, `of` has their
    names. `__post_init__`, where there is one, looks at the settings.
    To type checkers a row is a dataclass.
    """

    _function: ClassVar[Callable[..., Tensor]]
    _settings: ClassVar[tuple[str, ...]] = ()
    _taken: ClassVar[Any] = staticmethod(lambda row: ())  # the values that the function takes

    def __init_subclass__(cls, function: Callable[..., Tensor] | None = None, of: str = "") -> None:
        if function is None and not hasattr(cls, "_function") and (name := _NAMES.get(cls.__name__.lower())):
            function = getattr(F, name)
        if function is not None:
            cls._function = staticmethod(function)
        kinds = vars(cls).get("__annotations__", {}).values()
        if any("ClassVar" not in kind for kind in kinds) and cls.__module__.startswith("anneal."):
            if "__init__" not in vars(cls):
                made = init_of(cls)
                cls._settings = (*made.row[0], *made.row[1])
                cls.__init__ = checked(made)  # type: ignore[method-assign]
                of = of or " ".join(cls._settings)
        if of:
            cls._taken = staticmethod(_values_of(of.split()))
        super().__init_subclass__()

    def __post_init__(self) -> None:
        """Check the settings."""

    def _of(self, *tensors: Any) -> Tensor:
        """The function of tensors and the settings."""
        return self._function(*tensors, *self._taken(self))


class Unary(Row):
    """A row whose function takes one tensor and gives one."""

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return self._function(x, *self._taken(self))


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The function that gives the attributes of these names."""
    return attrgetter(*names) if len(names) > 1 else lambda row: (getattr(row, names[0]),)
