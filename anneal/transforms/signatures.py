"""The signatures of transformed functions, for type checkers alone.

A function with annotations keeps its parameters and its result. What a lambda or a function without annotations takes
stays open, and no checker complains: an argument to differentiate is therefore bound by Any, not by Tensor.
"""

from __future__ import annotations

from typing import Any, ParamSpec, Protocol, TypeVar, TypeVarTuple

__all__ = ["A", "Aux", "B", "C", "Function", "P", "R", "Ts"]

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound=Any)  # the trees that are differentiated: the first argument, the second, the third
B = TypeVar("B", bound=Any)
C = TypeVar("C", bound=Any)
Aux = TypeVar("Aux")
Ts = TypeVarTuple("Ts")
_R_co = TypeVar("_R_co", covariant=True)


class Function(Protocol[P, _R_co]):
    """A function of parameters `P`. (mypy refuses calls of a `Callable` that was made of a lambda as untyped.)"""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> _R_co: ...
