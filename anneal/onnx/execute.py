"""Running the nodes of a graph, one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from anneal.errors import AnnealError, DTypeError, JitError, OnnxError, OutOfMemoryError
from anneal.onnx import values as kinds
from anneal.onnx.graph import FileNode, Graph, wrong_types, wrong_value
from anneal.onnx.registry import Operator
from anneal.onnx.values import Feeds, HostStep, Items, Key, Map, Memo, NeedsHostError, Scope, Sizes, leaves, size_of
from anneal.progress import told
from anneal.runtime import here
from anneal.tensor import Tensor, realize
from anneal.uop import arena
from anneal.uop.sizes import Size, most, size_text

Values = list[Any]  # of inputs, results or the items of a sequence, in order
_AXES = 64  # NumPy's
_SEQUENCES = frozenset(["SequenceAt", "SequenceErase", "SequenceInsert", "SequenceLength"])  # which make no tensors
_HELD = 4  # how often all that one value may have may be held on the host, or given as outputs
_LENGTH = 1 << 10  # items of a sequence, whose copy counts as a node
_WORK = 1 << 9  # how often all that one value may have goes through the sums and products of a run


@dataclass(eq=False)
class GraphRun:
    """A run of a model: its device, and the notes made on the way.

    A value is a Tensor on the device, a NumPy array or a Map on the host, an array of sizes that Variables are in
    (`Sizes`), a list of values (a sequence) or None (an empty optional). Every value is one of three:

    - *fixed*: it follows from the file and from the shapes of the inputs. What a node makes of fixed values is fixed,
      too; it is computed once for a set of input shapes and kept in a `Memo`, arrays on the host and tensors on the
      device;
    - *plain*: a tensor whose values come with each run, and whose shape is fixed, or made of Variables; so are `Sizes`;
    - *loose*: it depends on values that were read on the host in the middle of a run, and so may its shape.

    A run with loose values is dynamic: nothing of it is replayed without asking the host again. `Run.steps` tells
    where.

    Args:
        device: where tensors are made.
        memo: what is fixed for the shapes of this run's inputs.
        constants: what is fixed for all runs of the model.
        budget: how many nodes it may execute, those of subgraphs counted each time.
        elements: how many one value may have.
        reads: whether values may be read from the device in the middle; NeedsHostError otherwise. "fixed": those that
            are fixed may.
        training: whether gradients flow: nothing that is a parameter is fixed then.
        watch: called with each node and its results.
    """

    device: str
    memo: Memo
    constants: Memo
    budget: int
    elements: int
    _: KW_ONLY
    reads: bool | str = True
    training: bool = False
    float64: str = "float32"
    watch: Any = None
    held: int = 0  # elements of arrays that nodes made on the host
    work: int = 0  # elements that sums and extremes go through so far
    keeps: bool = False  # whether what later nodes read is computed together with what the host reads
    parameters: dict[tuple[str, str], Tensor] = field(default_factory=dict)  # in place of initialisers, by graph, name
    loose: dict[int, Any] = field(default_factory=dict)
    nothing_is_loose: bool = False  # whether an empty optional or sequence may be empty because of what was read
    steps: list[HostStep] = field(default_factory=list)
    pieces: Any = None  # the ModelPlan that captures what is between the nodes that need the host

    def main(self, graph: Graph, feeds: Feeds, key: Key = ()) -> Values:
        """The outputs of the main graph, or of a part of a graph; `key` tells its nodes from those of others."""
        results = self.graph(Scope(graph, key, None, {**feeds}))
        self.hold(sum([size_of(v) for v in leaves(results)]))
        return results

    def graph(self, scope: Scope) -> Values:
        """The outputs of the graph of `scope`, which has its inputs."""
        graph = scope.graph
        self.start(scope)
        if self.pieces is None or not self.pieces.ran(self, scope):
            self.nodes(scope)
        return [scope.find(v.name) if v.name else None for v in graph.outputs]

    def hold(self, count: int) -> None:
        """Count elements that are held at the same time."""
        self.held += count
        if self.held > self.elements * _HELD:
            raise OnnxError(
                f"the run holds {self.held:,} elements of results at once; the file and the inputs justify "
                f"{self.elements * _HELD:,}; raise `elements` of anneal.onnx.load if that is right"
            )

    def start(self, scope: Scope) -> None:
        """Put the initialisers of its graph into `scope`."""
        graph = scope.graph
        for name, value in graph.constants.items():
            if name in scope.values:
                continue
            if value is None:
                raise OnnxError(
                    f"{graph.path}: the values of initialiser {name!r} were not read; load without structure_only"
                )
            trained = self.parameters.get((graph.path, name))
            if trained is None:
                self.constants.fix(value)
            scope.values[name] = value if trained is None else trained

    def nodes(self, scope: Scope) -> None:
        """Run the nodes of the graph of `scope`, one after the other."""
        graph = scope.graph
        for scope.at, node in enumerate(told(graph.nodes, "running nodes")):
            n = scope.at if graph.numbers is None else graph.numbers[scope.at]
            try:
                self.node(n, node, scope)
            except NeedsHostError as e:
                e.number = n
                raise

    def node(self, n: int, node: FileNode, scope: Scope) -> None:
        """Run one node: its outputs are put into `scope`."""
        key = (*scope.key, n)
        results = self.memo.results.get(key)
        if results is None and not self.parameters:
            results = self.constants.results.get(key)
        if results is None:
            self.spend(node)
            call = NodeCall(self, node, scope, key)
            trained = self.parameters.get((node.path, node.outputs[0])) if node.op == "Constant" else None
            if trained is not None:
                scope.values[node.outputs[0]] = trained
                return
            values = [scope.find(x) if x else None for x in node.inputs]
            nodes = arena().here
            before = nodes.path, here.node, here.wraps
            here.node, here.wraps = call, True
            label = node.name or f"{node.op}:{node.outputs[0] if node.outputs else ''}"
            nodes.path = f"{nodes.path}/{label}" if nodes.path else label  # kernels tell which nodes they come from
            try:
                results = call.outcome(values)
            finally:
                nodes.path, here.node, here.wraps = before
            if call.of_file:
                self.constants.results[key] = results
            elif all(map(self.is_fixed, results)):
                self.memo.results[key] = results
            if self.pieces is not None:
                self.pieces.note(scope.graph, n, call.needs_host)
        if self.watch is not None:
            self.watch(node, results)
        if len(results) < len(node.outputs) and any(node.outputs[len(results) :]):
            raise node.fault(f"gives {len(results)} outputs; {len(node.outputs)} are wanted")
        for name, value in zip(node.outputs, results):
            if name:
                scope.values[name] = value

    def spend(self, node: FileNode, count: int = 1) -> None:
        """Count so many nodes, or turns of a loop, against the budget."""
        self.budget -= count
        if self.budget < 0:
            raise node.fault(
                "the model runs more nodes than its budget allows", "raise `budget` of anneal.onnx.load if it should"
            )

    def add_work(self, node: FileNode, count: int) -> None:
        """Count elements that go through sums."""
        self.work += count
        if self.work > self.elements * _WORK:
            raise node.fault(
                f"takes the run to {self.work:,} elements that go through sums; the file and the inputs justify "
                f"{self.elements * _WORK:,}",
                "raise `elements` of anneal.onnx.load if that is right",
            )

    def is_fixed(self, value: Any) -> bool:
        """True if a value follows from the file and the shapes of the inputs."""
        if value is None or (isinstance(value, list) and not value):
            return not self.nothing_is_loose
        if isinstance(value, list):
            return value.fixed if isinstance(value, Items) else all(self.is_fixed(v) for v in value)
        return id(value) in self.memo.fixed or id(value) in self.constants.fixed

    def of_file(self, value: Any) -> bool:
        """True if a value is known to follow from the file alone, so that it is the same for all shapes. Of nothing,
        and of a sequence, it is not: an input may be empty in this run, and not in the next.
        """
        return not self.parameters and id(value) in self.constants.fixed

    def is_loose(self, value: Any) -> bool:
        """True if a value, or its shape, depends on values that the host read during the run."""
        if isinstance(value, list) and value:
            return value.loose if isinstance(value, Items) else any(self.is_loose(v) for v in value)
        return self.nothing_is_loose if value is None or isinstance(value, list) else id(value) in self.loose

    def loosen(self, value: Any) -> Any:
        """Note that a value depends on what was read; a fixed or plain value is copied first, so that the original
        stays so.
        """
        if value is None or (isinstance(value, list) and not value):
            self.nothing_is_loose = True
            return value
        if isinstance(value, list):
            return [self.loosen(v) for v in value]
        if id(value) in self.loose:
            return value
        own: Any
        if isinstance(value, Sizes):
            own = Sizes(value.items, value.dtype)
        else:
            own = value.reshape(*value.shape, 1).squeeze(-1) if isinstance(value, Tensor) else value.view()
        self.loose[id(own)] = own
        return own

    def lift(self, node: FileNode | None, array: Any) -> Tensor:
        """An array as a Tensor on the device; a fixed one is moved there once."""
        for memo in (self.constants, self.memo):
            if id(array) in memo.lifted:
                return memo.lifted[id(array)][1]
        if isinstance(array, Sizes):
            return kinds.tensor_of(array, self.device)
        try:
            t = kinds.device_array(array, self.device, self.float64, constant=id(array) in self.constants.fixed)
        except DTypeError as e:
            raise OnnxError(str(e)) if node is None else node.fault(str(e)) from None
        if self.is_fixed(array):
            memo = self.constants if id(array) in self.constants.fixed else self.memo
            memo.lifted[id(array)] = array, t
            memo.fix(t)
        elif self.is_loose(array):
            self.loose[id(t)] = t
        return t


class NodeCall:
    """A node while it runs; operators' functions have it as `node`.

    `op`, `opset`, `version`, `attributes` are the node's; `outputs` is the number of its outputs, and `wants(n)`
    whether the n-th is used; `device` is where tensors are made, `training` whether gradients flow.
    """

    def __init__(self, run: GraphRun, node: FileNode, scope: Scope, key: Key) -> None:
        self.of, self.device, self.training = run, run.device, run.training
        self.node, self.outputs = node, len(node.outputs)
        self.op, self.opset, self.version, self.attributes = node.op, node.opset, node.version, node.attributes
        self._scope = scope
        self._key = key
        self._turns = 0  # subgraphs that were run
        self._made = 0  # constants that were made
        self.of_file = False  # whether the results follow from the file alone
        self._tainted = False  # whether an input is loose
        self._alone = False  # whether it stands beside captures
        self._read = False  # whether a value that is not fixed was read on the host, here or in a subgraph

    def wants(self, n: int) -> bool:
        """True if the node has an n-th output."""
        return n < len(self.node.outputs) and self.node.outputs[n] != ""

    def fail(self, message: str, fix: str = "") -> OnnxError:
        """The error with this fault: `raise node.fail("...")`."""
        return self.node.fault(message, fix)

    def room(self, *shape: Any) -> None:
        """Raises OnnxError if a value of this shape, which the file asks for, is more than any model needs."""
        if len(shape) > _AXES:
            raise self.fail(f"asks for a value of {len(shape)} axes; {_AXES} are possible")
        size = math.prod([max(most(n), 1) for n in shape])
        if size > self.of.elements:
            raise self.fail(
                f"asks for {size} elements, of shape {[most(n) for n in shape]}; the file and the inputs justify "
                f"{self.of.elements}",
                "raise `elements` of anneal.onnx.load if that is right",
            )

    def broadcasts(self, *values: Any) -> None:
        """Raises OnnxError if what values broadcast to is more than any model needs; those that do not are refused
        where they are computed with.
        """
        try:
            shape = np.broadcast_shapes(*[v.shape for v in values])
        except (ValueError, TypeError):
            return
        self.room(*shape)

    def host(self, value: Any, reason: str = "its values decide a shape") -> Any:
        """A value as a NumPy array on the host; a tensor is read from the device, in the middle of the run."""
        run = self.of
        if isinstance(value, list):
            return [self.host(v, reason) for v in value]
        if not isinstance(value, Tensor):
            return value  # a loose one makes the results loose as any input does
        if id(value) in run.memo.read:
            return run.memo.read[id(value)][1]
        if not run.reads or (run.reads == "fixed" and not run.is_fixed(value)):
            raise NeedsHostError(str(self.node))
        if run.keeps:  # compute all waiting values now, as their graphs share nodes
            realize([value, *self._scope.waiting()])
        array = value.detach().numpy()
        if run.is_fixed(value):
            run.memo.read[id(value)] = value, array
            run.memo.fix(array)
        else:
            self._read = True
            run.loose[id(array)] = array
            run.steps.append(HostStep(str(self.node), reason))
        return array

    def tensor(self, value: Any) -> Any:
        """A value as a Tensor on the device; None and the items of lists likewise."""
        if isinstance(value, list):
            return [self.tensor(v) for v in value]
        return value if value is None or isinstance(value, Tensor) else self.of.lift(self.node, value)

    def operand(self, value: Any) -> Any:
        """A value as a tensor; one number that is known becomes part of the kernel, no memory that the kernel reads."""
        # Values of 64 bits are narrowed on their way to a device that has none.
        known = isinstance(value, np.ndarray) and value.size == 1 and value.dtype.itemsize < 8
        if known and kinds.fits_device(value.dtype):
            return Tensor.full(value.shape, value.item(), dtype=value.dtype.name, device=self.device)
        return self.tensor(value)

    def constant(self, array: Any, inputs: Sequence[Any] | None = None) -> Tensor:
        """An array that depends on shapes, attributes and fixed inputs alone as a Tensor, which is made once.

        What depends on a value that was read in the middle of the run is made anew in each. `array` may be a function
        that makes it; `inputs` are all that it depends on: where they are of the file, one serves all shapes.
        """
        key = (*self._key, "constant", self._made)
        self._made += 1
        run = self.of
        everywhere = inputs is not None and not run.parameters and all(v is None or run.of_file(v) for v in inputs)
        memo, loose = run.constants if everywhere else run.memo, not everywhere and (self._tainted or self._read)
        found = None if loose else memo.results.get(key)
        if found is None:
            made = array() if callable(array) else array
            found = (kinds.device_array(np.asarray(made), run.device, run.float64),)
            if not loose:
                memo.fix(found[0])
                memo.results[key] = found
        if not loose:
            run.memo.used[id(found[0])] = found[0]
        out: Tensor = found[0]
        return out

    def number(self, n: int) -> Any:
        """The number of a turn, an int64, or a bool, to be given to a subgraph: it is the same in all runs."""
        constants = self.of.constants
        found = constants.numbers.get((type(n), n))
        if found is None:
            found = constants.numbers[type(n), n] = np.asarray(n, np.bool_ if isinstance(n, bool) else np.int64)
            constants.fix(found)
        return found

    def follows(self, part: Any, whole: Any) -> None:
        """Note that `part`, which goes to a subgraph, is a piece of `whole`, and so fixed or loose as `whole` is."""
        run = self.of
        if run.is_loose(whole):
            run.loose[id(part)] = part
        elif run.is_fixed(whole):
            run.memo.fix(part)

    def sequence(self, items: Values, base: Values, *new: Any) -> Items:
        """A sequence of `items`, which are some of those of `base`, and the `new` ones."""
        run, out = self.of, Items(items)
        run.spend(self.node, len(items) // _LENGTH)
        before = base.size if isinstance(base, Items) else sum([size_of(v) for v in base])
        out.size = before + sum([size_of(v) for v in new])
        self.room(out.size)
        out.loose = run.is_loose(base) or any(run.is_loose(v) for v in new)
        out.fixed = run.is_fixed(base) and all(run.is_fixed(v) for v in new)
        out.fresh = [*(base.fresh if isinstance(base, Items) else base), *new]
        return out

    def element(self, code: int) -> np.dtype[Any]:
        """NumPy's dtype of an element type. Raises OnnxError for a type that there is not."""
        dtype = kinds.array_dtype(code)
        if dtype is None:
            raise self.fail(f"there is no element type {code}")
        return dtype

    def run(self, graph: Graph, *inputs: Any) -> Values:
        """The outputs of a subgraph, an attribute of this node, for these inputs."""
        if len(inputs) != len(graph.inputs):
            raise self.fail(f"{graph.path} takes {len(graph.inputs)} inputs, but is run with {len(inputs)}")
        feeds = {info.name: value for info, value in zip(graph.inputs, inputs)}
        scope = Scope(graph, (*self._key, self._turns, graph.path), self._scope, feeds)
        self._turns += 1
        self.of.spend(self.node)
        results = self.of.graph(scope)
        if self.of.is_loose(results):
            self._read = True
        return results

    def traced(self, turns: Size, loop: Callable[[], Any]) -> Any:
        """The results of `loop`, which runs subgraphs once, on what stands for the values of each of `turns`; None if
        that cannot be: values are wanted on the host in it, or a turn gives others than it takes.
        """
        run, key = self.of, (*self._key, loop.__qualname__)  # a Loop may be one of two kinds
        if run.watch is not None or key in run.memo.unrolled:  # who watches wants the values of each turn
            return None
        before, budget, work = (run.reads, run.pieces, self._key), run.budget, run.work
        run.reads, run.pieces, self._key = run.reads and "fixed", None, (*self._key, "loop")
        try:
            results = loop()
        except OutOfMemoryError:
            raise
        except (AnnealError, NeedsHostError):
            run.memo.unrolled.add(key)
            run.budget, run.work = budget, work
            return None
        finally:
            (run.reads, run.pieces, self._key), self._turns = before, 0
        run.spend(self.node, (most(turns) - 1) * (budget - run.budget) // 4)
        run.add_work(self.node, (most(turns) - 1) * (run.work - work))
        return results

    def again(self, name: str, values: Feeds) -> Any:
        """The value `name` of this graph if these were the values of others: the nodes between are run again."""
        graph = self._scope.graph
        scope = Scope(graph, (*self._key, "again"), self._scope, {**values})
        wanted, between = {name} - values.keys(), []
        for n in range(len(graph.nodes) - 1, -1, -1):
            node = graph.nodes[n]
            if wanted.intersection(node.outputs) and node is not self.node:
                between.append((n, node))
                wanted.update(x for x in node.inputs if x and x not in values)
        for n, node in reversed(between):
            self.of.node(n, node, scope)
        return scope.find(name)

    def outcome(self, values: Values) -> tuple[Any, ...]:
        """The node's results for the values of its inputs, each noted as fixed, plain or loose."""
        node, run = self.node, self.of
        if fault := wrong_value(node):
            raise self.fail(fault)
        if node.function is not None:
            return tuple(self.body(values))
        if node.implementation is None:
            raise self.fail("anneal does not have this operator")
        given = [v for v, name in zip(values, node.inputs) if name]
        self._tainted = any(map(run.is_loose, given))
        of = node.implementation
        results = self.results(of, values)
        moves = of.name in _SEQUENCES  # what it gives was looked at where it was made
        if moves and isinstance(results[0], Items) and not self._read and values[0]:
            if not any(run.is_loose(v) for n, v in enumerate(values) if v is not None and of.wants_value(n)):
                return results
        for r in leaves(list(results)):
            if not isinstance(r, Map):
                self.room(*r.shape)
            if isinstance(r, np.ndarray) and r.base is None and not any(r is v for v in values):
                run.hold(r.size)
        if not (moves or node.subgraphs()):  # nodes of a subgraph were measured one by one
            uops = [[v.uop for v in leaves(x) if isinstance(v, Tensor)] for x in (list(results), values)]
            run.add_work(node, kinds.work_of(*uops))
        if self._read or self._tainted:
            return tuple([run.loosen(r) for r in results])
        pure = of.pure
        still = pure and not node.subgraphs() and all(map(run.is_fixed, given))
        self.of_file = still and not run.parameters and all(map(run.of_file, given))
        memo = run.constants if self.of_file else run.memo
        for r in leaves(list(results)):
            on_host = isinstance(r, (np.ndarray, Map))
            if still or (pure and on_host):
                if not run.is_fixed(r):
                    memo.fix(r)
            elif on_host:
                run.loose[id(r)] = r
        if not still:
            for v in leaves(list(results) if moves else values):
                if isinstance(v, Tensor) and run.is_fixed(v):
                    run.memo.used[id(v)] = v
        return results

    def results(self, of: Operator, values: Values) -> tuple[Any, ...]:
        """The results of the operator's function, with errors that name the node."""
        try:
            with np.errstate(all="ignore"):
                results = self.computed(of, values)
        except (OnnxError, JitError, NeedsHostError):
            raise
        except Exception as e:  # whatever the file says, the answer names the node
            how = [f"{n}={a!r}" for n, a in self.attributes.items() if isinstance(a, (int, str))]
            told = ", ".join([*map(kinds.brief, values), *how])
            kind = "" if isinstance(e, (ValueError, TypeError)) else f"{type(e).__name__}: "
            raise self.fail(f"{kind}{e} (inputs: {told})") from e
        if not isinstance(results, tuple):
            results = (results,)
        return tuple([np.asarray(r) if isinstance(r, np.generic) else r for r in results[: self.outputs]])

    @property
    def needs_host(self) -> bool:
        """True if it cannot be captured: values were read on the host, or results differ from run to run."""
        of = self.node.implementation
        return self._read or self._alone or (of is not None and (not of.pure or of.name in _SEQUENCES))

    def apart(self, turns: Size) -> int:
        """The number of a loop's turns, noting that they run one by one. Raises OnnxError for a symbolic one, and
        NeedsHostError inside a capture: the node then stands beside it.
        """
        run = self.of
        if not isinstance(turns, int):
            raise self.fail(f"is no loop on the device, so its number of turns is plain, not {size_text(turns, False)}")
        if run.pieces is not None:
            self._alone = True
            run.steps.append(HostStep(str(self.node), f"its {turns} turns run one by one: no loop on the device"))
        elif run.reads is not True:
            raise NeedsHostError(str(self.node))
        return turns

    def body(self, values: Values) -> Values:
        """The results of a function: its body runs with no view of the graph around it."""
        node = self.node
        graph = node.body()
        if graph is None:
            assert node.function is not None
            graph = node.function.graph(node, [kinds.type_of(v) for v in values])
        if len(values) > len(graph.inputs):
            raise self.fail(f"is given {len(values)} inputs; {graph.path} takes {len(graph.inputs)}")
        feeds = {info.name: values[n] if n < len(values) else None for n, info in enumerate(graph.inputs)}
        scope = Scope(graph, (*self._key, graph.path), None, feeds)
        self.of.start(scope)
        self.of.nodes(scope)
        return [scope.find(v.name) if v.name else None for v in graph.outputs]

    def computed(self, of: Operator, values: Values) -> Any:
        """The results of the operator's function: it gets each input as the function wants it."""
        while values and values[-1] is None:
            values = values[:-1]
        if not of.variadic:
            if len(values) > len(of.inputs):
                raise self.fail(f"takes at most {len(of.inputs)} inputs, not {len(values)}")
            values = [*values, *[None] * (len(of.inputs) - len(values))]
        if any(isinstance(v, (list, Map)) for v in values) and not of.raw:
            raise self.fail("takes tensors, not a sequence or a map")
        dtypes = [None if v is None or isinstance(v, (list, Map)) else kinds.dtype_name(v) for v in values]
        if fault := wrong_types(self.node, dtypes, self.device != "cpu"):
            raise self.fail(fault)
        own = self.node.attributes
        attributes = {k: own.get(k, d) for k, d in of.attributes.items()}
        for n, name in enumerate(of.was, len(of.inputs) - len(of.was)):
            if (moved := attributes.pop(name)) is not None:
                values[n] = np.asarray(moved)
        if missing := [name for name, v in zip(of.inputs, values) if v is None and name in of.required]:
            raise self.fail(f"its input {missing[0]} is missing")
        if of.record is not None:
            name, kind = of.record
            attributes[name] = kind(*[attributes.pop(f) for f in kind._fields])  # type: ignore[attr-defined]
        return self._given(of, values, attributes)

    def _given(self, of: Operator, values: Values, attributes: dict[str, Any]) -> Any:
        wanted = [of.wants_value(n) for n in range(len(values))]
        given = [self.host(v) if w and not of.asks else v for v, w in zip(values, wanted)]
        data = [v for v, w in zip(given, wanted) if not w and v is not None]
        function = partial(of.function, **attributes)
        on_host = None if of.on_host is None else partial(of.on_host, **attributes)
        if any(isinstance(v, Sizes) for v in given):
            # on the host if it moves or computes sizes, else on the device, from the numbers of this run
            if not self.node.domain and not any(isinstance(v, (Tensor, list)) for v in data):
                if (found := kinds.on_sizes(self.op, on_host or function, given, data)) is not None:
                    return found
            as_it_is = of.raw and (of.sizes or not any(isinstance(v, Sizes) for v in data))
        else:
            as_it_is = of.raw
            if on_host is not None and not as_it_is:
                fit = kinds.fit_device(data)
                if not fit:
                    self.broadcasts(*data)
                if not any(isinstance(v, Tensor) for v in data) and (not fit or kinds.is_small(data, self.of.elements)):
                    return on_host(*given)
                if not fit:
                    return on_host(*[self.host(v, "no device holds elements of this type") for v in given])
        moved = [not w and (not as_it_is or n in of.tensors) for n, w in zip(of.inputs, wanted)]
        moved += moved[-1:] * (len(given) - len(moved))
        place = self.operand if of.numbers else self.tensor
        return function(*[place(v) if m else v for v, m in zip(given, moved)])


class _Running:
    """A proxy of the NodeCall that runs in this thread: `node.fail(...)` calls its method."""

    def __getattr__(self, name: str) -> Any:
        return getattr(here.node, name)


node: NodeCall = _Running()  # type: ignore[assignment]


def fail(message: str, fix: str = "") -> OnnxError:
    """The error with this fault of the node that runs: `raise fail("...")`."""
    return node.fail(message, fix)
