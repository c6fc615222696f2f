"""A computation that is run again and again, on other memory and with other values of Variables each time: what it
launched, and the loops between its launches, are noted when it first runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anneal.backend import get_device
from anneal.rewrite import over, rebuild
from anneal.runtime.bodies import has_variables, sized
from anneal.runtime.context import here
from anneal.runtime.execution import launched
from anneal.runtime.nodes import buffer_leaf, memory_of, storage_of
from anneal.runtime.repeats import StepsAgain
from anneal.schedule import Plans
from anneal.uop import GraphFunction, Known, Nodes, Op, UOp, toposort
from anneal.uop.sizes import Sizes, bound_sizes, bound_to


def over_memory(roots: Nodes, known: Known, values: Sizes) -> list[UOp]:
    """Graphs over other nodes, with the values that Variables have now.

    Args:
        roots: the graphs.
        known: the nodes, by those that they take the place of; what others become is added.
        values: of the Variables.
    """
    return list(sized(roots, bound_to(values), known)) if values else [rebuild(u, over, known) for u in roots]


class Again:
    """A Function that is computed again and again, on other memory, and with other values of Variables, each time: on
    one device, as one launch, or several with loops between them.

    Args:
        device: the name of the device.
        function: the computation.
    """

    def __init__(self, device: str, function: GraphFunction) -> None:
        self.device, self.function = device, function
        there = set(function.parameters)
        # what shows a parameter, or has none below, is not computed
        results = list(enumerate(function.results))
        self._computed = [n for n, u in results if shown(u) not in there and not there.isdisjoint(toposort((u,)))]
        self._shown = [n for n, _ in results if n not in self._computed]
        order = toposort(function.results)
        self._symbolic = has_variables(order)
        self._calls = any(u.op is Op.HOST_CALL for u in order)
        self._steps: dict[Any, StepsAgain] = {}  # by which of the leaves are one memory

    @property
    def plans(self) -> Plans:
        """The plans that were made, each with where the nodes come from that it computes."""
        return [found for steps in self._steps.values() for found in steps.plans]

    def forget_calls(self) -> bool:
        """`Round.forget_calls` of all that it wrote."""
        return all([run.forget_calls() for steps in self._steps.values() for run in steps.steps])  # noqa: C419

    def __call__(self, leaves: Nodes, values: Sizes) -> list[UOp]:
        """The nodes of the results, in memory where they are computed; memory of former ones is written anew once
        nobody has them.

        Args:
            leaves: memory, in place of the parameters.
            values: of Variables.
        """
        out = list(self.function.results)
        for numbers, made in (
            (self._shown, self.graphs(leaves, values, self._shown) if self._shown else ()),
            (self._computed, self._run(leaves, values) if self._computed else ()),
        ):
            for n, u in zip(numbers, made, strict=True):
                out[n] = u
        return out

    def graphs(self, leaves: Nodes, values: Sizes, numbers: Sequence[int] | None = None) -> list[UOp]:
        """The results, or those with these numbers, as graphs of memory.

        Args:
            leaves: memory, in place of the parameters.
            values: of Variables.
        """
        f = self.function
        roots = f.results if numbers is None else [f.results[n] for n in numbers]
        return over_memory(roots, dict(zip(f.parameters, leaves, strict=True)), values if self._symbolic else {})

    def _run(self, leaves: Nodes, values: Sizes) -> list[UOp]:
        memory: list[Any] = list(map(storage_of, leaves))
        first: dict[int, int] = {}
        pattern = tuple([first.setdefault(id(s), n) for n, s in enumerate(memory)])  # two may be one memory
        steps, meter = self._steps.get(pattern), here.meter
        if steps is None or here.watchers or (meter and not all(meter.knows(p) for p, _ in steps.plans)):
            wanted: dict[UOp, None] = {}
            for n, u in enumerate(self.graphs(leaves, values, self._computed)):
                wanted[u if u not in wanted else u.then(Op.CONTIGUOUS, tag=n)] = None
            steps = StepsAgain(memory, first, launched, tells=True)
            made = steps.computed(list(wanted), self.device, self._calls)
            if steps.complete:
                self._steps[pattern] = steps
            return made
        here.context.plans_found += len(steps.plans)
        written = steps.again(get_device(self.device), memory, True, values)
        made = [written[n] for n in steps.results]
        if not (self._calls or self._symbolic):
            return made
        shapes = [bound_sizes(self.function.results[n].shape, values) for n in self._computed]
        return [u if u.shape == s else buffer_leaf(memory_of(u), s) for u, s in zip(made, shapes, strict=True)]


def shown(u: UOp) -> UOp:
    """The node that a node gives another shape.

    Args:
        u: the node.
    """
    while u.op is Op.RESHAPE:
        u = u.src[0]
    return u
