"""Runs of a model for inputs of one signature: captured whole, or in pieces around the nodes that need the host."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anneal.errors import AnnealError, DTypeError, JitError, OutOfMemoryError
from anneal.onnx.execute import GraphRun, Values
from anneal.onnx.graph import Graph, ValueInfo
from anneal.onnx.loaded import ByName, LoadedModel, exact, roomy
from anneal.onnx.values import Feeds, HostStep, Map, Memo, NeedsHostError, Scope, Sizes, fits_device, leaves, uploaded
from anneal.runtime import emptied, filled, flat, modes
from anneal.tensor import Tensor, Variable, jit, no_grad, realize
from anneal.uop import Shape, Src, UOp
from anneal.uop.sizes import evaluator, mapped, product, symbolic_arg, unbound, variables_of

_SMALL = 16  # whole numbers that an input has whose values are part of what a plan is for: a shape, pads, a count
_KEPT = 16  # captures of one part
_SURPRISES = 32  # nodes of one graph that turn out to need the host after its first run
_SELDOM = 64  # captures of one part that are made, whether they are used again or not
_LEAST = 16  # the largest value, at least, of a size that was found


class _StillError(Exception):
    """A run has no result that is not fixed: there is nothing to capture."""


class UnsizedError(Exception):
    """A node cannot take a symbolic size, so one capture does not serve all; the text says which node, and why."""


class Captured:
    """A graph as a jit function, for inputs of one signature: traced in its first run, captured in the second, then
    replayed. Sizes among the shapes may be Variables: then one capture serves all their values.

    Args:
        model: whose graph it is.
        graph: the graph, or a part of one.
        feeds: its inputs by name. Tensors come with each run; small whole numbers on the host are part of what it is
            for.
        shapes: shapes of inputs in which sizes are Variables.
        fixed: further inputs, which follow from the file alone.
        key: what tells the graph's nodes from those of others, where results of nodes are kept.
        inner: results stay as they are: they go on to other nodes.
    """

    def __init__(
        self,
        model: LoadedModel,
        graph: Graph,
        feeds: Feeds,
        shapes: ByName | None = None,
        *,
        fixed: ByName | None = None,
        key: tuple[Any, ...] = (),
        inner: bool = False,
    ) -> None:
        self.model = model
        self.memo = Memo()
        self._graph = graph
        self._key = key
        self._inner = inner
        self._fixed = dict(fixed or {})
        self._tried = False  # whether what is fixed and has to be read was read
        self._still = False  # whether all results are fixed
        self._results: Any = None  # the results of a run, with places for tensors
        self._shapes: Values = []  # those of results with symbolic sizes, else None, by place
        given: Values = []
        self._taken: dict[int, Any] = {}  # by place
        symbolic = {name: shape for name, shape in (shapes or {}).items() if symbolic_arg(shape)}
        self._feeds: Feeds = {}
        for name, value in feeds.items():
            if name in symbolic:
                self._taken[len(given)] = symbolic[name]
            self._feeds[name] = emptied(value, given, is_given)
        self.variables = tuple({v.arg[0]: v for x in symbolic.values() for n in x for v in variables_of(n)}.values())
        self._served = 0  # runs with Variables
        for value in self._feeds.values():
            self.memo.fix([v for v in leaves(value) if isinstance(v, np.ndarray)])
        self._program = jit(self._traced)
        self.elements = sum(math.prod(v.shape) for x in feeds.values() for v in leaves(x))

    def run(self, given: Values) -> Values:
        """The results for tensors in the order in which `split` takes them from feeds.

        Raises NeedsHostError where a node needs values on the host, UnsizedError where a node cannot take a symbolic
        size, and JitError for a node that does what cannot be replayed.
        """
        values: dict[str, int] = {}
        for place, shape in self._taken.items():
            values.update((v.arg[0], n) for v, n in zip(shape, given[place].shape) if isinstance(v, UOp))
        sizes = tuple([v.bind(values[v.arg[0]]) for v in self.variables])
        rows = [roomy(t, self._now(n, sizes)) if n in self._taken else t for n, t in enumerate(given)]
        try:
            out = self._called(sizes, rows)
        except OutOfMemoryError:
            raise
        except (AnnealError, NeedsHostError) as e:
            if not self.variables or self._served > 1:
                raise
            if isinstance(e, NeedsHostError):
                with self.model.lock, no_grad():  # without Variables, too?
                    self.walked(self.model.start(Memo(), self.elements, reads="fixed"), given)
            raise UnsizedError(f"{e} needs values on the host" if isinstance(e, NeedsHostError) else str(e)) from e
        self._served += 1
        shapes = [None if s is None else evaluator(s)(values) for s in self._shapes]
        return self._joined([t if s is None else exact(t, s) for t, s in zip(out, shapes)], values)

    def again(self, arrays: Values) -> Values | None:
        """The results for arrays in place of tensors, where the last run was a replay for as many of those shapes; None
        where they have to be tensors."""
        out = None if self.variables else self._program.again(arrays)
        return None if out is None else self._joined(out, {})

    def close(self) -> None:
        """Give back the memory of captures."""
        self._program.reset()

    def walked(self, run: GraphRun, given: Any) -> Values:
        """The results of a run that goes through the nodes."""
        for value in given:
            if not isinstance(value, Tensor):
                run.loose[id(value)] = value
        feeds = {**filled(self._feeds, iter(given)), **self._fixed}
        with modes(made=None):  # a jit function need not compare it: what is fixed is made in one run, and kept
            return [self._given(run, r) for r in run.main(self._graph, feeds, self._key)]

    def _called(self, sizes: Src, rows: list[Tensor]) -> Any:
        try:
            return () if self._still else self._program(sizes, *rows)
        except _StillError:
            self._still = True
            return ()
        except NeedsHostError:
            if self._tried:
                raise
        with self.model.lock, no_grad():
            self._tried = True
            run = self.model.start(self.memo, self.elements, reads="fixed")
            self.walked(run, self._sized(sizes, rows))  # what it reads is fixed, and is known from now on
        return self._called(sizes, rows)

    def _sized(self, sizes: Src, tensors: Any) -> list[Tensor]:
        """The arguments of a run as the graph's inputs: those with symbolic sizes come as rows."""
        return [t.reshape(self._now(n, sizes)) if n in self._taken else t for n, t in enumerate(tensors)]

    def _now(self, place: int, sizes: Src) -> Shape:
        """The shape of an argument with the sizes of this run."""
        now = {v.arg[0]: n for v, n in zip(self.variables, sizes)}
        return tuple([now[d.arg[0]] if isinstance(d, UOp) else d for d in self._taken[place]])

    def _joined(self, tensors: Any, values: Mapping[str, int]) -> Values:
        return [_known(r, values) if self._inner else own(r) for r in filled(self._results, iter(tensors))]

    def _traced(self, sizes: Src, *tensors: Tensor) -> Any:
        """The tensors of one run that reads nothing, without the fixed ones."""
        known = len(self.memo.used)
        run = self.model.start(self.memo, self.elements, reads=False)
        with no_grad():
            results = self.walked(run, self._sized(sizes, tensors))
        if len(self.memo.used) > known:
            realize(list(self.memo.used.values()))
        out: list[Tensor] = []
        self._results = emptied(results, out, lambda v: isinstance(v, Tensor) and not run.is_fixed(v))
        if not out:
            raise _StillError
        shapes = [mapped(t.shape, lambda n: unbound(n, {})) if symbolic_arg(t.shape) else None for t in out]
        self._shapes = shapes
        return tuple([t if s is None else t.reshape(product(t.shape)) for t, s in zip(out, shapes)])

    def _given(self, run: GraphRun, result: Any) -> Any:
        """A result in the form that its reader wants: for the caller on the device, if that can hold it; for other
        nodes as it is.
        """
        if isinstance(result, list):
            return [self._given(run, r) for r in result]
        if self._inner or not (
            isinstance(result, Sizes) or (isinstance(result, np.ndarray) and fits_device(result.dtype))
        ):
            return result
        return run.lift(None, result)


def _known(value: Any, values: Mapping[str, int]) -> Any:
    """A result with the numbers of this run in place of sizes."""
    if isinstance(value, list):
        return [_known(v, values) for v in value]
    if not isinstance(value, Sizes):
        return value
    flat = mapped(tuple(value.items.reshape(-1)), lambda n: unbound(n, {}))
    return np.array(evaluator(flat)(values), value.dtype).reshape(value.shape)


def own(value: Any) -> Any:
    """A result as tensors and arrays of the caller's own: in-place changes of them affect nothing else."""
    if isinstance(value, list):
        return [own(v) for v in value]
    if isinstance(value, Map):
        return dict(value.entries)
    if isinstance(value, Tensor) and not value.requires_grad:
        return Tensor._from_uop(value.uop, value.device)
    return value.copy() if isinstance(value, np.ndarray) else value


def is_given(value: Any) -> bool:
    """True if a value is passed to each run, rather than fixed in its plan."""
    small = isinstance(value, np.ndarray) and value.dtype.kind in "iub" and value.ndim <= 1 and value.size <= _SMALL
    return value is not None and not small


def _passed(feeds: Feeds) -> Values:
    """The values that are passed to each run."""
    return [v for v in flat(feeds) if is_given(v)]


def signature(feeds: Feeds, shapes: ByName | None = None) -> Any:
    """The key of a plan: shapes and dtypes, and the values of small whole numbers that are on the host.

    `shapes` are those of inputs with Variables in them.
    """
    return tuple([(name, _part(value, (shapes or {}).get(name))) for name, value in feeds.items()])


def _part(value: Any, shape: Any = None) -> Any:
    if isinstance(value, list):
        return tuple([_part(v) for v in value])
    if value is None:
        return None
    if isinstance(value, Tensor):
        return value.shape if shape is None else shape, value.dtype
    return value.dtype.name, value.shape, None if is_given(value) else value.tobytes()


class ModelPlan:
    """A plan that runs a model for inputs of one signature; `shapes` has a shape for each input, in which sizes are
    Variables.

    Which nodes need the host is noted in the first run, node by node. Then the others are divided into parts: a part
    has all nodes that can run before the next one that needs the host. Each part is captured for the shapes of what
    goes in (`Captured`), and a bounded number of captures is kept. So is each branch of an If and each body of a Loop,
    which are graphs too: a turn is a replay. A size that differs from run to run, as that of what NonZero finds,
    becomes a Variable when it first does, so that the part's kernels serve all sizes up to a power of two.

    Tensors are the arguments of a jit function; small whole numbers that decide shapes are fixed, and so are results
    that follow from them alone. Where values are needed on the host in the middle (`steps` tells where), what is
    between those nodes is captured in pieces; so it is from the first run on where an input is an array that is not
    fixed.
    """

    def __init__(self, model: LoadedModel, feeds: Feeds, shapes: ByName | None = None) -> None:
        self.model = model
        self.captured = Captured(model, model.program.graph, feeds, shapes)
        self.memo = self.captured.memo
        self.steps: tuple[HostStep, ...] = ()
        self._shapes = shapes or {}
        self._graphs: dict[Graph, _Divided] = {}  # graphs that run in pieces
        on_host = [name for name, value in feeds.items() for v in _passed({name: value}) if not isinstance(v, Tensor)]
        self.dynamic = bool(on_host)
        why = "its values are needed on the host"
        self._host = tuple([HostStep(f"input {name!r}", why) for name in dict.fromkeys(on_host)])

    def run(self, feeds: Feeds) -> Values:
        """The results for inputs of this plan's signature."""
        return self._within(self._run, _passed(feeds))  # type: ignore[no-any-return]

    def again(self, arrays: Values) -> Values | None:
        """The results for arrays that are as the inputs of the last run; None where `run` has to be asked."""
        return None if self.dynamic else self._within(self.captured.again, arrays)

    @staticmethod
    def _within(run: Callable[[Values], Any], given: Values) -> Any:
        try:
            return run(given)
        except (MemoryError, SystemError) as e:  # NumPy's functions of C forget the error where they get no memory
            if isinstance(e, OutOfMemoryError):
                raise
            raise OutOfMemoryError(f"a run of the model takes more memory than there is: {e}") from None

    def close(self) -> None:
        """Give back the memory of captures."""
        self.captured.close()
        for divided in self._graphs.values():
            divided.close()

    def _run(self, given: Values) -> Values:
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

    def _in_pieces(self, given: Values) -> Values:
        """A run in pieces, with values read between them."""
        # what is fixed for these inputs is not, where their sizes are Variables
        run = self.model.start(Memo() if self.captured.variables else self.memo, self.captured.elements)
        run.pieces = self
        run.keeps = True
        with no_grad():
            results = self.captured.walked(run, given)
            realize([t for t in leaves(results) if isinstance(t, Tensor)])
        self.steps = self._host + tuple(dict.fromkeys(run.steps)) or self.steps
        return [own(r) for r in results]

    def ran(self, run: GraphRun, scope: Scope) -> bool:
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

    def lazy(self, feeds: Feeds, parameters: Any = None, watch: Any = None) -> Values:
        """The results of one run, which are yet to be computed; `parameters` stand in place of initialisers."""
        known = len(self.memo.used)
        run = self.model.start(self.memo, self.captured.elements, training=parameters is not None, watch=watch)
        run.parameters = parameters or {}
        run.keeps = watch is not None  # who watches takes values, not graphs
        with modes(alone=True):
            results = self.captured.walked(run, _passed(feeds))
            if len(self.memo.used) > known:
                realize(list(self.memo.used.values()))
        return [own(r) for r in results]


class _UnfitError(Exception):
    """A value cannot be the argument of a capture: text."""


class _Divided:
    """A graph, divided at the nodes that need the host."""

    def __init__(self, plan: ModelPlan, graph: Graph, shapes: ByName, main: bool) -> None:
        self.model = plan.model
        self.elements = plan.captured.elements
        self.graph = graph
        self.shapes = shapes
        self.main = main
        self.complete = False
        self._host: set[int] = set()
        self._surprises = 0
        self._stages: _Stages | None = None

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

    def _divide(self) -> _Stages:
        """Stages: a part, and the nodes behind it that need the host."""
        nodes = self.graph.nodes
        stage: dict[str, int] = {}  # of values
        parts: dict[int, list[int]] = {}
        hosts: dict[int, list[int]] = {}
        everywhere = {n for n, node in enumerate(nodes) if node.op == "Constant" and not node.domain}
        for n, node in enumerate(nodes):
            at = max([stage.get(x, 0) for x in node.reads()], default=0)
            if n not in everywhere:
                (hosts if n in self._host else parts).setdefault(at, []).append(n)
            stage.update(dict.fromkeys(node.outputs, at + (n in self._host)))
        outside = {x for at in hosts.values() for n in at for x in nodes[n].reads()}
        outside |= {v.name for v in self.graph.outputs}
        constants = [n for n in sorted(everywhere) if outside.intersection(nodes[n].outputs)]
        out: _Stages = [(None, constants)]
        for at in range(max([*parts, *hosts], default=-1) + 1):
            mine = parts.get(at, [])
            others = {x for k, part in parts.items() if k != at for n in part for x in nodes[n].reads()}
            wanted = {x for n in mine for x in nodes[n].reads()}
            also = [n for n in everywhere if wanted.intersection(nodes[n].outputs)]
            part = _Part(self, sorted([*mine, *also]), outside | others) if mine else None
            out.append((part, hosts.get(at, [])))
        return out


class _Part:
    """Nodes that run on the device alone; `wanted` are names that others read."""

    def __init__(self, of: _Divided, numbers: list[int], wanted: set[str]) -> None:
        graph = of.graph
        self.of = of
        nodes = [graph.nodes[n] for n in numbers]
        made = {x for node in nodes for x in node.outputs if x}
        read = {x for node in nodes for x in node.reads()}
        constants = {x: v for x, v in graph.constants.items() if x in read}
        self._inputs = sorted(read - made - constants.keys())
        self._outputs = sorted(made & wanted)
        self._own = {v.name for v in graph.inputs}
        self._key = () if of.main else (graph,)  # objects: no other has their place later
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
        feeds, fixed, results = {}, {}, None
        try:
            for name in self._inputs:
                value = scope.find(name)
                if name not in self._own and _is_constant(run, value):
                    fixed[name] = value
                else:
                    feeds[name] = self._placed(name, value, run)
            results = None if self._alone else self._captured(feeds, fixed)
        except _UnfitError:
            pass
        except JitError as e:
            self._alone = str(e)
        for why in (self._unsized and f"a capture for each size, because {self._unsized}", self._alone):
            if why:
                run.steps.append(HostStep(f"{len(self.graph.nodes)} nodes of {self.graph.path}", why))
        if results is None:
            for n, node in zip(self.graph.numbers or (), self.graph.nodes):
                run.node(n, node, scope)
            return
        run.spend(self.graph.nodes[0], 1 + len(self.graph.nodes) // 4)
        for name, value in zip(self._outputs, results):
            scope.values[name] = value
            if not run.of_file(value):
                _loosen(run, value)

    def _captured(self, feeds: Feeds, fixed: Feeds) -> Values:
        """The results of the capture for such inputs."""
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
            return captured.run(_passed(feeds))
        except UnsizedError as e:
            self._unsized = str(e)
        return self._captured(feeds, fixed)

    def _shapes(self, feeds: Feeds) -> Feeds:
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
        if value is None or isinstance(value, Tensor):
            return value
        if not is_given(value) and name in self.of.model.deciding:
            return value.copy()  # the number of a turn follows from the file, but is another in each
        if not fits_device(value.dtype):
            raise _UnfitError
        try:
            return uploaded(value, run.device, run.float64)
        except DTypeError:
            raise _UnfitError from None


def _is_constant(run: GraphRun, value: Any) -> bool:
    """True if a value follows from the file, and is not the number of a turn."""
    if not run.of_file(value):
        return False
    scalar = isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "ib"
    return not scalar or run.constants.numbers.get((type(n := value.item()), n)) is not value


def _loosen(run: GraphRun, value: Any) -> None:
    """Note that a value that comes from a capture may be another in the next run."""
    if isinstance(value, list) and value:
        for v in value:
            _loosen(run, v)
    elif isinstance(value, list | None):
        run.nothing_is_loose = True
    else:
        run.loose[id(value)] = value


_Stages = list[tuple[_Part | None, list[int]]]  # a part that is captured, if it is one, and its nodes by number
_Place = tuple[str, int]  # an input and an axis


class _Found:
    """Sizes that differ from run to run: those that were equal in all runs so far are one Variable."""

    def __init__(self) -> None:
        self._groups: dict[_Place, int] = {}
        self._last: dict[int, int] = {}  # the value of each group
        self._most: dict[int, int] = {}  # the bound of each: it grows with what was found, so that captures are few
        self._moving: set[int] = set()  # groups whose value has differed
        self._count = 0

    def sizes(self, found: Mapping[_Place, int]) -> dict[_Place, Any]:
        """A Variable for each size that has differed, the number for the others."""
        parts: dict[tuple[int, int], list[_Place]] = {}
        for place, n in found.items():
            parts.setdefault((self._groups.get(place, -1), n), []).append(place)
        taken = set()
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
            self._last[group := self._groups[places[0]]] = n
            self._most[group] = max(self._most.get(group, _LEAST), 1 << (n - 1).bit_length())
        return {
            place: n
            if (group := self._groups[place]) not in self._moving or not n
            else Variable(f"found{group}", 1, self._most[group])
            for place, n in found.items()
        }
