"""Running the nodes of a graph, one after the other.

A value is a Tensor on the device, a NumPy array on the host, a list of values (a sequence) or None (an empty optional).
Some values are *fixed*: they follow from the file and from the shapes of the inputs alone. What a node makes of fixed
values is fixed too; it is computed once for a set of input shapes and kept in a `Memo`, arrays on the host and tensors
on the device. An array that is not fixed came from the device in the middle of a run: such a run is `dynamic`, and
nothing of it can be replayed without asking the host again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

import numpy as np

from anneal.errors import AnnealError, OnnxError
from anneal.onnx.graph import Function, Graph, Node
from anneal.onnx.registry import Implementation
from anneal.onnx.types import fits_device
from anneal.tensor import Tensor

__all__ = ["Call", "Memo", "Run"]


@dataclass(eq=False)
class Memo:
    """What is fixed for one set of input shapes: results of nodes, and arrays that are on the device as well."""

    results: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    lifted: dict[int, tuple[Any, Tensor]] = field(default_factory=dict)  # by the id of the array, which is kept
    fixed: dict[int, Any] = field(default_factory=dict)  # by id
    graphs: dict[Any, Graph] = field(default_factory=dict)  # bodies of functions, by the call's node

    def is_fixed(self, value: Any) -> bool:
        """Whether a value follows from the file and the shapes of the inputs."""
        if isinstance(value, list):
            return all(self.is_fixed(v) for v in value)
        return value is None or id(value) in self.fixed

    def fix(self, value: Any) -> None:
        """Remember that a value is fixed."""
        for v in value if isinstance(value, list) else [value]:
            if isinstance(v, list):
                self.fix(v)
            elif v is not None:
                self.fixed[id(v)] = v


class _Scope:
    """The values of one graph while it runs, inside those of the graph around it."""

    __slots__ = ("key", "outer", "values")

    def __init__(self, key: tuple[Any, ...], outer: _Scope | None) -> None:
        self.key = key
        self.outer = outer
        self.values: dict[str, Any] = {}

    def find(self, name: str) -> Any:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise KeyError(name)


class Run:
    """One run of a model: its device, and what is noted on the way."""

    def __init__(self, device: str, memo: Memo, constants: Memo, budget: int, *, training: bool = False) -> None:
        self.device = device
        self.memo = memo
        self.constants = constants  # arrays of the file that are on the device; shared by all runs of a model
        self.budget = budget  # nodes that may still run
        self.training = training
        self.dynamic: list[str] = []  # nodes that read the device in the middle of the run

    def main(self, graph: Graph, feeds: dict[str, Any]) -> list[Any]:
        """The outputs of the main graph."""
        scope = _Scope((), None)
        scope.values.update(feeds)
        return self.graph(graph, scope)

    def graph(self, graph: Graph, scope: _Scope) -> list[Any]:
        """The outputs of a graph whose inputs are in `scope`."""
        for name, value in graph.constants.items():
            if name not in scope.values:
                if value is None:
                    raise OnnxError(f"{graph.path}: the values of initialiser {name!r} were not read (structure_only)")
                self.memo.fix(value)
                scope.values[name] = value
        for n, node in enumerate(graph.nodes):
            self.node(n, node, scope)
        return [scope.find(v.name) for v in graph.outputs]

    def node(self, n: int, node: Node, scope: _Scope) -> None:
        """Run one node: its outputs are put into `scope`."""
        key = (*scope.key, n)
        results = self.memo.results.get(key)
        if results is None:
            self.budget -= 1
            if self.budget < 0:
                raise node.fault(
                    "the model runs more nodes than its budget allows", "raise `budget` of anneal.onnx.load"
                )
            call = Call(self, node, scope, key)
            results = call.outcome([scope.find(x) if x else None for x in node.inputs])
            if all(self.memo.is_fixed(r) for r in results):
                self.memo.results[key] = results
        for name, value in zip(node.outputs, results):
            if name:
                scope.values[name] = value

    def lift(self, node: Node, array: Any) -> Tensor:
        """An array as a Tensor on the device; a fixed one is moved there once."""
        for memo in (self.constants, self.memo):
            if id(array) in memo.lifted:
                return memo.lifted[id(array)][1]
        if not fits_device(array.dtype):
            raise node.fault(
                f"takes a value of {'strings' if array.dtype == object else array.dtype.name}, which no device holds"
            )
        t = Tensor(np.ascontiguousarray(array).reshape(array.shape), device=self.device)
        if self.memo.is_fixed(array):
            memo = self.constants if id(array) in self.constants.fixed else self.memo
            memo.lifted[id(array)] = array, t
            self.memo.fix(t)
        return t


class Call:
    """A node while it runs: what an operator's function gets first.

    `name`, `op`, `opset`, `version`, `attributes` are the node's; `outputs` is the number of its outputs, and
    `wants(n)` whether the n-th is used; `device` is where tensors are made.
    """

    def __init__(self, run: Run, node: Node, scope: _Scope, key: tuple[Any, ...]) -> None:
        self.run_of = run
        self.node = node
        self._scope = scope
        self._key = key
        self._turns = 0  # subgraphs that were run
        self._read = False  # whether a value that is not fixed was read on the host

    @property
    def name(self) -> str:
        """The node's name in the file."""
        return self.node.name

    @property
    def op(self) -> str:
        """The operator's name."""
        return self.node.op

    @property
    def opset(self) -> int:
        """The opset of the operator's domain that the model imports."""
        return self.node.opset

    @property
    def version(self) -> int:
        """The opset in which the operator was last changed, as far as the model's goes."""
        return self.node.version

    @property
    def attributes(self) -> dict[str, Any]:
        """All attributes by name, the schema's defaults among them."""
        return self.node.attributes

    @property
    def device(self) -> str:
        """Where tensors are made."""
        return self.run_of.device

    @property
    def training(self) -> bool:
        """Whether the model runs as a module that is being trained."""
        return self.run_of.training

    @property
    def outputs(self) -> int:
        """How many outputs the node has."""
        return len(self.node.outputs)

    def wants(self, n: int) -> bool:
        """Whether the node has an n-th output."""
        return n < len(self.node.outputs) and self.node.outputs[n] != ""

    def fail(self, message: str, fix: str = "") -> OnnxError:
        """The error that says what is wrong here: `raise node.fail("...")`."""
        return self.node.fault(message, fix)

    def host(self, value: Any) -> Any:
        """A value as a NumPy array on the host; a tensor is read from the device, in the middle of the run."""
        if isinstance(value, list):
            return [self.host(v) for v in value]
        if not self.run_of.memo.is_fixed(value):
            self._read = True
        if isinstance(value, Tensor):
            if self._read:
                self.run_of.dynamic.append(str(self.node))
            fixed = self.run_of.memo.is_fixed(value)
            value = value.detach().numpy()
            if fixed:
                self.run_of.memo.fix(value)
        return value

    def tensor(self, value: Any) -> Any:
        """A value as a Tensor on the device; None and the items of lists likewise."""
        if isinstance(value, list):
            return [self.tensor(v) for v in value]
        return value if value is None or isinstance(value, Tensor) else self.run_of.lift(self.node, value)

    def run(self, graph: Graph, *inputs: Any) -> list[Any]:
        """The outputs of a subgraph, an attribute of this node, for these inputs."""
        if len(inputs) != len(graph.inputs):
            raise self.fail(f"{graph.path} takes {len(graph.inputs)} inputs, but is run with {len(inputs)}")
        scope = _Scope((*self._key, self._turns, graph.path), self._scope)
        self._turns += 1
        for info, value in zip(graph.inputs, inputs):
            scope.values[info.name] = value
        return self.run_of.graph(graph, scope)

    def outcome(self, values: list[Any]) -> tuple[Any, ...]:
        """The node's results for the values of its inputs."""
        node, memo = self.node, self.run_of.memo
        if node.function is not None:
            return tuple(self.body(node.function, values))
        if node.implementation is None:
            raise self.fail("anneal does not know this operator")
        try:
            results = self.computed(node.implementation, values)
        except OnnxError:
            raise
        except (AnnealError, ArithmeticError, LookupError, TypeError, ValueError, NotImplementedError) as e:
            told = ", ".join([_brief(v) for v in values])
            raise self.fail(f"{e} (inputs: {told})") from e
        if not isinstance(results, tuple):
            results = (results,)
        results = tuple([np.asarray(r) if isinstance(r, np.generic) else r for r in results])
        pure = node.implementation.pure
        still = pure and all(memo.is_fixed(v) for v in values)
        # an array depends on what was read, and on shapes
        arrays = pure and not self._read and all(memo.is_fixed(v) for v in values if not isinstance(v, Tensor))
        if not node.implementation.raw or still:
            for r in results:
                if still or (arrays and isinstance(r, np.ndarray)):
                    memo.fix(r)
        elif arrays:
            for r in results:
                if isinstance(r, np.ndarray):
                    memo.fix(r)
        return results

    def body(self, function: Function, values: list[Any]) -> list[Any]:
        """What a function gives: its body runs with no view of the graph around it."""
        memo = self.run_of.constants
        graph = memo.graphs.get(self.node)
        if graph is None:
            graph = memo.graphs[self.node] = function.graph(self.node)
        if len(values) > len(graph.inputs):
            raise self.fail(f"is given {len(values)} inputs; {graph.path} takes {len(graph.inputs)}")
        scope = _Scope((*self._key, graph.path), None)
        for n, info in enumerate(graph.inputs):
            scope.values[info.name] = values[n] if n < len(values) else None
        return self.run_of.graph(graph, scope)

    def computed(self, of: Implementation, values: list[Any]) -> Any:
        """What the operator's function gives: each input as the function wants it."""
        while values and values[-1] is None:
            values = values[:-1]
        if not of.variadic and len(values) > len(of.inputs):
            raise self.fail(f"takes at most {len(of.inputs)} inputs, not {len(values)}")
        attributes = self.read_attributes(of)
        if of.raw:
            return of.function(self, *values, **attributes)
        wanted = [of.wants_value(n) for n in range(len(values))]
        given: list[Any] = [self.host(v) if w else v for v, w in zip(values, wanted)]
        others = [v for v, w in zip(given, wanted) if not w and v is not None]
        if of.on_host is not None and not any(isinstance(v, Tensor) for v in others):
            return of.on_host(self, *given, **attributes)
        if of.on_host is not None and any(isinstance(v, np.ndarray) and not fits_device(v.dtype) for v in others):
            return of.on_host(self, *[self.host(v) for v in given], **attributes)
        given = [v if w else self.tensor(v) for v, w in zip(given, wanted)]
        return of.function(self, *given, **attributes)

    def read_attributes(self, of: Implementation) -> dict[str, Any]:
        """The keyword arguments of the operator's function."""
        given = self.node.attributes
        out = {}
        for name, default in of.attributes.items():
            out[name] = given.get(name, None if default is Parameter.empty else default)
        return out


def _brief(value: Any) -> str:
    if isinstance(value, (Tensor, np.ndarray)):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    return "nothing" if value is None else type(value).__name__
