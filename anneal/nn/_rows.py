"""Layers that are a function with settings: rows, of which classes are made."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, ClassVar, dataclass_transform

from anneal.nn._module import Module
from anneal.ops import checked
from anneal.tensor import Tensor


def _keeping(cls: type, annotations: dict[str, str], kw_only: bool) -> Callable[..., None]:
    """An `__init__` that takes settings and keeps them under their names, as that of a dataclass.

    `dataclass` itself takes four times as long, and marks a class for programs that would take layers apart. Defaults
    leave the class: a layer keeps its settings itself.
    """
    names = list(annotations)
    lines = [f"def __init__(self, {'*, ' * kw_only}{', '.join(names)}):", *[f"self.{n} = {n}" for n in names]]
    code = compile("\n    ".join([*lines, "self.__post_init__()"]), __file__, "exec").co_consts[0]
    made: Any = FunctionType(code, {"__name__": cls.__module__}, "__init__")
    defaults = {n: vars(cls)[n] for n in names if n in vars(cls)}
    for name in defaults:
        delattr(cls, name)
    made.__defaults__, made.__kwdefaults__ = (None, defaults) if kw_only else (tuple(defaults.values()), None)
    made.__annotations__, made.__qualname__ = {**annotations, "return": "None"}, f"{cls.__qualname__}.__init__"
    return checked(made)  # type: ignore[no-any-return]


@dataclass_transform(eq_default=False)
class Row(Module):
    """Base of layers that are a function with settings.

    A class below is a row: it names the function, and its annotated attributes are the settings, all of them, in the
    order in which `__init__` takes and keeps them and the function takes them after its tensors. `__post_init__`, where
    there is one, looks at the settings. To type checkers a row is a dataclass.
    """

    _function: ClassVar[Callable[..., Tensor]]
    _settings: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, function: Callable[..., Tensor] | None = None, kw_only: bool = False) -> None:
        if function is not None:
            cls._function = staticmethod(function)
        settings = {n: kind for n, kind in vars(cls).get("__annotations__", {}).items() if "ClassVar" not in kind}
        if settings and "__init__" not in vars(cls) and cls.__module__.startswith("anneal."):
            cls._settings = tuple(settings)
            cls.__init__ = _keeping(cls, settings, kw_only)  # type: ignore[method-assign]
        super().__init_subclass__()

    def __post_init__(self) -> None:
        """Look at the settings."""

    def _of(self, *tensors: Any) -> Tensor:
        """The function of tensors and the settings."""
        return self._function(*tensors, *[getattr(self, name) for name in self._settings])


class Unary(Row):
    """A row whose function takes one tensor and gives one."""

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return self._of(x)
