"""Functions as values: computations that a node names, with the sources of a call in the places of their parameters."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from anneal.uop.node import Src, UOp
from anneal.uop.ops import Op


class GraphFunction:
    """A computation by name: `CALL(*src)` with (function, n) is its result number n for these sources.

    `results` are graphs over `parameters`, PARAMs numbered from 0: closed, so that a Function holds no memory, and
    equal however they were made. One without results of its own gives its sources as they are: it stands for its name,
    by which gradients, tangents and forms for many examples find the rule that the graph has not.

    Args:
        name: by which rules know it.
        arguments: what else the rules need: axes, a number.
        parameters: the PARAM nodes.
        results: the graphs over them.
    """

    __slots__ = ("_hash", "arguments", "name", "parameters", "results")

    def __init__(self, name: str, arguments: Any = (), parameters: Src = (), results: Src = ()) -> None:
        self.name, self.arguments, self.parameters, self.results = name, arguments, parameters, results
        self._hash = hash((name, arguments, parameters, results))

    def __eq__(self, other: object) -> bool:
        return other.__class__ is GraphFunction and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphFunction, (self.name, self.arguments, self.parameters, self.results)

    def __repr__(self) -> str:
        said = f" {self.arguments}" if self.arguments != () else ""
        return f"<{self.name}{said}{''.join([' ' + r.key.hex()[:8] for r in self.results])}>"


@lru_cache(maxsize=256)
def of_rule(name: str, arguments: Any = ()) -> GraphFunction:
    """The Function that returns its sources, and whose derivative a rule gives."""
    return GraphFunction(name, arguments)


def by_rule(name: str, value: UOp, *others: UOp, arguments: Any = ()) -> UOp:
    """The value with the derivative that the rule `name` has for it and `others`; see `gradient.upat`."""
    return UOp(Op.CALL, value.dtype, (value, *others), (of_rule(name, arguments), 0))
