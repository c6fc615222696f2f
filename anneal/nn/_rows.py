"""Layers that are a function with settings: rows, of which classes are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, dataclass_transform

from anneal.nn._module import Module
from anneal.ops import checked
from anneal.tensor import Tensor


@dataclass_transform(eq_default=False)
class Row(Module):
    """Base of layers that are a function with settings.

    A class below is a row: it names the function, and its annotated attributes are the settings, all of them, in the
    order in which `__init__` takes and keeps them and the function takes them after its tensors. `__post_init__`, where
    there is one, looks at the settings. To type checkers a row is a dataclass.
    """

    _function: ClassVar[Callable[..., Any]]
    _settings: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, function: Callable[..., Any] | None = None, kw_only: bool = False) -> None:
        if function is not None:
            cls._function = staticmethod(function)
        ours = cls.__module__.startswith("anneal.")
        if ours and "__annotations__" in vars(cls) and "__init__" not in vars(cls):
            dataclass(eq=False, repr=False, match_args=False, kw_only=kw_only)(cls)
            cls._settings = tuple([f.name for f in fields(cls)])  # type: ignore[arg-type]  # it was made one just now
            made: Any = cls.__init__
            made.__code__ = made.__code__.replace(co_filename=__file__)  # errors leave its frame out as one of ours
            cls.__init__ = checked(made)  # type: ignore[method-assign]
            # A layer keeps its settings itself, and is no dataclass to others, who would take it apart.
            for name in (*cls._settings, "__dataclass_fields__", "__dataclass_params__"):
                if name in vars(cls):
                    delattr(cls, name)
        super().__init_subclass__()

    def _of(self, *tensors: Any) -> Any:
        """The function of tensors and the settings."""
        return self._function(*tensors, *[getattr(self, name) for name in self._settings])


class Unary(Row):
    """A row whose function takes one tensor and gives one."""

    @checked
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self._of(x)
        return out
