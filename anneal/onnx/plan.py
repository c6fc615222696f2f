"""Runs of a model for inputs of one signature: captured whole, or in pieces around the nodes that need the host."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anneal.errors import DTypeError, JitError, OutOfMemoryError
from anneal.onnx.captured import Captured, UnsizedError, is_given, own, signature, split
from anneal.onnx.execute import GraphRun
from anneal.onnx.graph import FileNode, Graph, ValueInfo
from anneal.onnx.loaded import LoadedModel
from anneal.onnx.values import HostStep, Memo, NeedsHostError, Scope, fits_device, leaves, uploaded
from anneal.tensor import Tensor, Variable, no_grad, realize
from anneal.uop import UOp


class ModelPlan:
    """A plan that runs a model for inputs of one signature; `shapes` has a shape for each input, in which sizes are
    Variables.

    Which nodes need the host is noted in the first run, node by node. Then the others are divided into parts: a part
    has all nodes that can run before the next one that needs the host. Each part is captured for the shapes of what
    goes in (`Captured`), and a bounded number of captures is kept. So is each branch of an If and each body of a Loop,
    which are graphs too: a turn is a replay. A size that differs from run to run, as that of what NonZero finds,
    becomes a Variable when it first does, so that the part's kernels serve all sizes up to the next power of two.

    Tensors are the arguments of a jit function; small whole numbers that decide shapes are fixed, and so are results
    that follow from them alone. Where values are needed on the host in the middle (`steps` tells where), what is
    between those nodes is captured in pieces; so it is from the first run on where an input is an array that is not
    fixed.
    """

    def __init__(self, model: LoadedModel, feeds: dict[str, Any], shapes: Mapping[str, Any] | None = None) -> None:
        self.model = model
        self.captured = Captured(model, model.program.graph, feeds, shapes)
        self.memo = self.captured.memo
        self.steps: tuple[HostStep, ...] = ()
        given: list[Any] = []
        split(feeds, given, is_given)
        self.dynamic = not all(isinstance(v, Tensor) for v in given)
        self._pieces = Pieces(model, shapes or {}, self.captured.elements)
        self._host = tuple(
            [
                HostStep(f"input {name!r}", "its values are needed on the host")
                for name, value in feeds.items()
                if any(is_given(v) and not isinstance(v, Tensor) for v in leaves(value))
            ]
        )

    def run(self, feeds: dict[str, Any]) -> list[Any]:
        """The results for inputs of this plan's signature."""
        given: list[Any] = []
        split(feeds, given, is_given)
        return self._within(self._run, given)  # type: ignore[no-any-return]

    def again(self, arrays: list[Any]) -> list[Any] | None:
        """The results for arrays that are as the inputs of the last run; None where `run` has to be asked."""
        return None if self.dynamic else self._within(self.captured.again, arrays)

    @staticmethod
    def _within(run: Callable[[list[Any]], Any], given: list[Any]) -> Any:
        try:
            return run(given)
        except (MemoryError, SystemError) as e:  # NumPy's functions of C forget the error where they get no memory
            if isinstance(e, OutOfMemoryError):
                raise
            raise OutOfMemoryError(f"a run of the model takes more memory than there is: {e}") from None

    def close(self) -> None:
        """Give back the memory of captures."""
        self.captured.close()
        self._pieces.close()

    def _run(self, given: list[Any]) -> list[Any]:
        if not self.dynamic:
            try:
                return self.captured.run(given)
            except NeedsHostError:
                self.dynamic = True
            except JitError as e:  # an operator does what cannot be replayed: it draws numbers, say
                self.dynamic = True
                self._host = (HostStep("the whole model", f"its runs cannot be replayed: {e}"),)
        with self.model.lock:
            return self._in_pieces(given)

    def _in_pieces(self, given: list[Any]) -> list[Any]:
        """A run in pieces, with values read between them."""
        # what is fixed for these inputs is not, where their sizes are Variables
        run = self.model.start(Memo() if self.captured.variables else self.memo, self.captured.elements)
        run.pieces = self._pieces
        run.keeps = True
        with no_grad():
            results = self.captured.walked(run, given)
            realize([t for t in leaves(results) if isinstance(t, Tensor)])
        self.steps = self._host + tuple(dict.fromkeys(run.steps)) or self.steps
        return [own(r) for r in results]

    def lazy(self, feeds: dict[str, Any], parameters: Any = None, watch: Any = None) -> list[Any]:
        """The results of one run, which are yet to be computed; `parameters` stand in place of initialisers."""
        given: list[Any] = []
        split(feeds, given, is_given)
        known = len(self.memo.used)
        run = self.model.start(self.memo, self.captured.elements, training=parameters is not None, watch=watch)
        run.parameters = parameters or {}
        run.keeps = watch is not None  # who watches takes values, not graphs
        results = self.captured.walked(run, given)
        if len(self.memo.used) > known:
            realize(list(self.memo.used.values()))
        return [own(r) for r in results]


_KEPT = 16  # captures of one part
_SURPRISES = 32  # nodes of one graph that turn out to need the host after its first run
_SELDOM = 64  # captures of one part that are made, whether they are used again or not
_LEAST = 16  # the largest value, at least, of a size that was found


class _UnfitError(Exception):
    """A value cannot be the argument of a capture: text, nothing at all."""


class Pieces:
    """The graphs of a model that run in pieces: one object for each plan. `shapes` are those of the model's inputs,
    which have so many `elements`.
    """

    def __init__(self, model: LoadedModel, shapes: Mapping[str, Any], elements: int) -> None:
        self.model = model
        self.elements = elements
        self._shapes = shapes
        self._graphs: dict[Graph, _Divided] = {}

    def run(self, run: GraphRun, scope: Scope) -> bool:
        """Run the nodes of a graph in pieces; False, if it has not run before, or cannot be divided."""
        divided = self._graphs.get(scope.graph)
        return divided is not None and divided.complete and divided.run(run, scope)

    def note(self, graph: Graph, number: int, needs_host: bool) -> None:
        """Note of a node that has run whether it needed the host."""
        divided = self._graphs.get(graph)
        if divided is None:
            main = graph is self.model.program.graph
            divided = self._graphs[graph] = _Divided(self, graph, self._shapes if main else {}, main)
        divided.note(number, needs_host)

    def close(self) -> None:
        """Give back the memory of captures."""
        for divided in self._graphs.values():
            divided.close()


class _Divided:
    """A graph, divided at the nodes that need the host."""

    def __init__(self, pieces: Pieces, graph: Graph, shapes: Mapping[str, Any], main: bool) -> None:
        self.model = pieces.model
        self.elements = pieces.elements
        self.graph = graph
        self.shapes = shapes
        self.main = main
        self.complete = False
        self._host: set[int] = set()
        self._surprises = 0
        self._stages: list[tuple[_Part | None, list[int]]] | None = None

    def note(self, number: int, needs_host: bool) -> None:
        """Note of a node whether it needs the host; the last one completes the picture."""
        if needs_host and not self.complete:
            self._host.add(number)
        self.complete = self.complete or number == len(self.graph.nodes) - 1

    def close(self) -> None:
        """Give back the memory of captures."""
        for part, _ in self._stages or ():
            if part is not None:
                part.close()
        self._stages = None

    def run(self, run: GraphRun, scope: Scope) -> bool:
        """Run the nodes; False if too many need the host after all."""
        before, steps = dict(scope.values), len(run.steps)
        while self._surprises <= _SURPRISES:
            if self._stages is None:
                self._stages = self._divide()
            try:
                for part, numbers in self._stages:
                    if part is not None:
                        part.run(run, scope)
                    for n in numbers:
                        run.node(n, self.graph.nodes[n], scope)
            except NeedsHostError as e:
                self.close()
                self._host.add(e.number)
                self._surprises += 1
                scope.values = dict(before)
                del run.steps[steps:]
            else:
                return True
        return False

    def _divide(self) -> list[tuple[_Part | None, list[int]]]:
        """Stages: a part, and the nodes behind it that need the host."""
        nodes = self.graph.nodes
        stage: dict[str, int] = {}  # of values
        parts: dict[int, list[int]] = {}
        hosts: dict[int, list[int]] = {}
        everywhere = {n for n, node in enumerate(nodes) if node.op == "Constant" and not node.domain}
        for n, node in enumerate(nodes):
            at = max([stage.get(x, 0) for x in _reads(node)], default=0)
            if n not in everywhere:
                (hosts if n in self._host else parts).setdefault(at, []).append(n)
            stage.update(dict.fromkeys(node.outputs, at + (n in self._host)))
        outside = {x for at in hosts.values() for n in at for x in _reads(nodes[n])}
        outside |= {v.name for v in self.graph.outputs}
        constants = [n for n in sorted(everywhere) if outside.intersection(nodes[n].outputs)]
        out: list[tuple[_Part | None, list[int]]] = [(None, constants)]
        for at in range(max([*parts, *hosts], default=-1) + 1):
            mine = parts.get(at, [])
            others = {x for k, part in parts.items() if k != at for n in part for x in _reads(nodes[n])}
            part = (
                _Part(self, sorted({*mine, *self._constants_of(mine, everywhere)}), outside | others) if mine else None
            )
            out.append((part, hosts.get(at, [])))
        return out

    def _constants_of(self, numbers: list[int], everywhere: set[int]) -> set[int]:
        wanted = {x for n in numbers for x in _reads(self.graph.nodes[n])}
        return {n for n in everywhere if wanted.intersection(self.graph.nodes[n].outputs)}


def _reads(node: FileNode) -> set[str]:
    """The names of the values that a node, or a subgraph of it, reads."""
    return {x for x in node.inputs if x} | {x for g in node.subgraphs() for x in g.free}


class _Part:
    """Nodes that run on the device alone; `wanted` are names that others read."""

    def __init__(self, of: _Divided, numbers: list[int], wanted: set[str]) -> None:
        graph = of.graph
        self.of = of
        nodes = [graph.nodes[n] for n in numbers]
        made = {x for node in nodes for x in node.outputs if x}
        read = {x for node in nodes for x in _reads(node)}
        constants = {x: v for x, v in graph.constants.items() if x in read}
        self._inputs = sorted(read - made - constants.keys())
        self._outputs = sorted(made & wanted)
        self._own = {v.name for v in graph.inputs}
        self._key: tuple[Any, ...] = () if of.main else (graph,)  # objects: no other has their place later
        self.graph = Graph(
            graph.name,
            graph.path,
            [ValueInfo(x) for x in self._inputs],
            [ValueInfo(x) for x in self._outputs],
            constants,
            nodes,
            numbers=numbers,
        )
        self._kept: OrderedDict[Any, Captured] = OrderedDict()
        self._found = _Found()
        self._made = self._found_again = 0
        self._unsized = ""  # why there are no Variables
        self._alone = ""  # why it is not captured

    def close(self) -> None:
        """Give back the memory of captures."""
        for captured in self._kept.values():
            captured.close()
        self._kept.clear()

    def run(self, run: GraphRun, scope: Scope) -> None:
        """Run the nodes: what others read is put into `scope`."""
        feeds, fixed = {}, {}
        results = None
        try:
            for name in self._inputs:
                value = scope.find(name)
                if name not in self._own and _is_constant(run, value):
                    fixed[name] = value
                else:
                    feeds[name] = self._placed(name, value, run)
            if not self._alone:
                results = self._captured(feeds, fixed)
        except _UnfitError:
            pass
        except JitError as e:
            self._alone = str(e)
        for why in (self._unsized and f"a capture for each size, because {self._unsized}", self._alone):
            if why:
                run.steps.append(HostStep(f"{len(self.graph.nodes)} nodes of {self.graph.path}", why))
        if results is not None:
            run.spend(self.graph.nodes[0], 1 + len(self.graph.nodes) // 4)
        if results is None:
            for n, node in zip(self.graph.numbers or (), self.graph.nodes):
                run.node(n, node, scope)
            return
        for name, value in zip(self._outputs, results):
            scope.values[name] = value
            if not run.of_file(value):
                _loosen(run, value)

    def _captured(self, feeds: dict[str, Any], fixed: dict[str, Any]) -> list[Any]:
        """The results of the capture for such inputs."""
        given: list[Any] = []
        split(feeds, given, is_given)
        ids = tuple([id(v) for v in fixed.values()])
        shapes = {} if self._unsized else self._shapes(feeds)
        key = signature(feeds, shapes), ids
        captured = self._kept.pop(key, None)
        self._found_again += captured is not None
        if captured is None:
            self._made += 1
            if self._made > _SELDOM and self._found_again < 2 * self._made:
                raise JitError("what goes in is seldom of the same shapes")
            own = (*self._key, *ids) if self._key else ()  # a graph inside another may see other constants in each turn
            captured = Captured(self.of.model, self.graph, feeds, shapes, fixed=fixed, key=own, inner=True)
            captured.elements = self.of.elements  # what is found in the middle of a run justifies nothing
        self._kept[key] = captured
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)[1].close()
        try:
            return captured.run(given)
        except UnsizedError as e:
            self._unsized = str(e)
        return self._captured(feeds, fixed)

    def _shapes(self, feeds: dict[str, Any]) -> dict[str, Any]:
        """The shapes of tensors with Variables for the sizes that differ from run to run."""
        model, tensors = self.of.model, {x: v for x, v in feeds.items() if isinstance(v, Tensor)}
        declared = {x: self.of.shapes[x] for x in tensors if x in self.of.shapes}
        found = {(x, i): n for x, v in tensors.items() if x not in model.known for i, n in enumerate(v.shape)}
        sizes = self._found.sizes(found) if found else {}
        shapes = {x: tuple([sizes[x, i] for i in range(v.ndim)]) for x, v in tensors.items() if (x, 0) in found}
        return {**declared, **shapes}

    def _placed(self, name: str, value: Any, run: GraphRun) -> Any:
        """A value as an argument: on the host if it is small and decides shapes, else on the device."""
        if isinstance(value, list):
            return [self._placed(name, v, run) for v in value]
        if isinstance(value, Tensor):
            if 0 in value.shape:
                raise _UnfitError
            return value
        if value is None:
            return value
        if not is_given(value) and name in self.of.model.deciding:
            return value.copy()  # the number of a turn follows from the file, but is another in each
        if not fits_device(value.dtype) or not value.size:
            raise _UnfitError
        try:
            return uploaded(value, run.device, run.float64)
        except DTypeError:
            raise _UnfitError from None


def _is_constant(run: GraphRun, value: Any) -> bool:
    """True if a value follows from the file, and is not the number of a turn."""
    if value is None or isinstance(value, list) or not run.of_file(value):
        return False
    scalar = isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "ib"
    return not scalar or run.constants.numbers.get((type(n := value.item()), n)) is not value


def _loosen(run: GraphRun, value: Any) -> None:
    """Note that a value that comes from a capture may be another in the next run."""
    if isinstance(value, list):
        for v in value:
            _loosen(run, v)
    elif value is None:
        run.nothing_is_loose = True
    else:
        run.loose[id(value)] = value


class _Found:
    """Sizes that differ from run to run: those that were equal in all runs so far are one Variable."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, int], int] = {}
        self._last: dict[int, int] = {}  # the value of each group
        self._moving: set[int] = set()  # groups whose value has differed
        self._count = 0

    def sizes(self, found: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], Any]:
        """A Variable for each size that has differed, the number for the others."""
        parts: dict[tuple[int, int], list[tuple[str, int]]] = {}
        for place, n in found.items():
            parts.setdefault((self._groups.get(place, -1), n), []).append(place)
        taken: set[int] = set()
        for (group, n), places in parts.items():
            moving = group in self._moving or (group >= 0 and self._last[group] != n)
            own = group
            if group < 0 or group in taken:  # new, or another part of the group keeps the number
                own, self._count = self._count, self._count + 1
            taken.add(own)
            if moving:
                self._moving.add(own)
            self._groups.update(dict.fromkeys(places, own))
        for (_, n), places in parts.items():
            self._last[self._groups[places[0]]] = n
        return {place: self._size(self._groups[place], n) for place, n in found.items()}

    def _size(self, group: int, n: int) -> Any:
        if group not in self._moving:
            return n
        largest: UOp = Variable(f"found{group}", 1, max(_LEAST, 1 << (n - 1).bit_length()))
        return largest
