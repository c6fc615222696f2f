"""Numbers that are not known while something is made with them."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Sequence
from typing import Any

_QUESTIONS, _OPERATORS = "lt le gt ge eq ne index bool int float", "add sub mul truediv floordiv mod pow neg pos abs"


class Varying:
    """A number of Python whose value is no part of what is made with it. Arithmetic gives another one, `const` makes
    memory of it, and who wants to know it asks: comparisons do, and what takes plain numbers alone.

    It says that it is of the class of the number; `type(x)` tells it from one.

    Args:
        of: what answers the questions (`ask`), and makes the nodes (`node`).
        made: a function and its operands, of which tuples are such again; (None, n) is number n.
        kind: the class of the number.
    """

    __slots__ = ("kind", "made", "of")
    __class__ = property(lambda self: self.kind)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, of: Any, made: Any, kind: type) -> None:
        self.of, self.made, self.kind = of, made, kind


def worth(made: Any, values: Sequence[Any]) -> Any:
    """The number that a `Varying` is made of, or the answer to a question, for these values of the numbers."""
    function, *given = made
    if function is None:
        return values[given[0]]
    return function(*[worth(x, values) if x.__class__ is tuple else x for x in given])


class Questions:
    """Numbers that vary, with the answers to the questions that were asked of them, `asked`.

    Args:
        values: the numbers, by what (None, n) names them by.
    """

    def __init__(self, values: Any) -> None:
        self.values, self.asked, self.made = values, dict[Any, Any](), dict[Any, Any]()

    def ask(self, question: Any) -> Any:
        """The answer to a question."""
        if question not in self.asked:
            self.asked[question] = worth(question, self.values)
        return self.asked[question]

    def hold(self, values: Any) -> bool:
        """True if the answers are the same for other values."""
        return all(repr(worth(q, values)) == repr(answer) for q, answer in self.asked.items())

    def of(self, made: Any, value: Any) -> Any:
        """A `Varying` in place of a number, or of each of a tuple."""
        if value.__class__ is tuple:
            return tuple([self.of((operator.getitem, made, i), x) for i, x in enumerate(value)])
        return Varying(self, made, value.__class__)


def _method(function: Callable[..., Any], asks: bool, step: int = 1) -> Any:
    """A method of `Varying`: a question, or an operator; with a step of -1 the one of the second operand."""

    def method(*given: Any) -> Any:
        if not {type(x) for x in given} <= {Varying, int, float, bool}:
            return NotImplemented
        row, of = given[::step], given[0].of
        made = (function, *[x.made if type(x) is Varying else x for x in row])
        return of.ask(made) if asks else Varying(of, made, type(function(*[x.__class__(1) for x in row])))

    return method


for _name in f"{_QUESTIONS} {_OPERATORS}".split():
    _of, _asks = (vars(operator) | vars(builtins))[_name], _name in _QUESTIONS.split()
    setattr(Varying, f"__{_name}__", _method(_of, _asks))
    setattr(Varying, f"__r{_name}__", _method(_of, _asks, -1))
