"""Graphs as values: the nodes of a training step, and what each pass made of them; the models that are looked at."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from anneal import codegen, progress, schedule, settings
from anneal.codegen import Target
from anneal.errors import UserError
from anneal.frozen import Texts, frozen
from anneal.inspect.derivations import FiredRule, compiling, launch, made_by
from anneal.inspect.kernel_list import Line, lines_of
from anneal.rewrite import Event, Pass
from anneal.schedule import CostModel, Plan, Schedule, live_nodes, parametrise
from anneal.training import Trainable, load_example
from anneal.uop import Ints, Nodes, Op, UOp, ranks, toposort

if TYPE_CHECKING:
    import numpy as np

    from anneal.onnx import ValueInfo


@frozen
class StepGraph:
    """The graph of a step: what its forward pass gives (the loss; the outputs of a model that is only run), its outputs
    (the loss and what the optimiser assigns) and nodes, sources first.
    """

    model: str
    results: list[UOp]
    outputs: list[UOp]
    nodes: list[UOp]

    def of(self, step: bool) -> list[UOp]:
        """The outputs of the whole step, or of its forward pass alone."""
        return self.outputs if step else self.results

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """Nodes by op, then by phase."""
        table: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for u in self.nodes:
            table[u.op.name][_phase(u)] += 1
        return table

    @property
    def forward(self) -> int:
        """Nodes of the forward pass."""
        return sum(_phase(u) == "forward" for u in self.nodes)

    @property
    def backward(self) -> int:
        """Nodes of the backward pass and the optimiser."""
        return len(self.nodes) - self.forward


@frozen
class NodeFacts:
    """The facts about a node itself: `id` is its place in a list, `src` are the ids of its sources. A symbolic size is
    in `shape` as the text of its expression.
    """

    id: int
    op: str
    dtype: str
    shape: tuple[int | str, ...]
    arg: str | None
    src: Ints

    @classmethod
    def of(cls, u: UOp, numbers: Mapping[UOp, int], most: int | None = None, **more: Any) -> Self:
        """The facts about `u`, whose argument is told with at most so many characters, and `more`."""
        return cls(
            id=numbers[u],
            op=u.op.name,
            dtype=u.dtype.name,
            shape=tuple(n if isinstance(n, int) else repr(n) for n in u.shape),
            arg=None if u.arg is None else repr(u.arg)[:most],
            src=tuple(numbers[s] for s in u.src if s in numbers),
            **more,
        )


@frozen
class Node(NodeFacts):
    """A node. `source` is the user's "file:line"; for a node that no line of the user's made it is the module that was
    called, such as the node of an ONNX file.
    """

    phase: str
    source: str

    def __str__(self) -> str:
        arg = "" if self.arg is None else f" {self.arg}"
        sources = ", ".join(f"%{s}" for s in self.src)
        shape = f"[{', '.join(map(str, self.shape))}]"
        source = f" {self.source}" if self.source else ""
        return f"%{self.id} = {self.op}{arg} {self.dtype}{shape} ({sources})  # {self.phase}{source}"


def step_graph(model: str, training: Trainable) -> StepGraph:
    """The graph of one more training step, which is not run. Afterwards the model's tensors wait for values that nobody
    computes.

    Args:
        model: the training run.
    """
    from anneal.runtime import tracing

    given = training.next_batch()
    with tracing() as noted:
        loss = training.update(*given)
    outputs = list(dict.fromkeys([loss.uop, *[t.uop for t in noted]]))
    return StepGraph(model, [loss.uop], outputs, toposort(outputs))


def nodes(order: Nodes, limit: int = 0) -> list[Node]:
    """The nodes of `order` (sources first), or the first `limit`, as records."""
    numbers = ranks(order)
    found = []
    for u in order if limit == 0 else order[:limit]:
        phase, code, line, path, _ = u.provenance
        source = path if code is None else f"{code.co_filename.rsplit('/', 1)[-1]}:{line}"
        found.append(Node.of(u, numbers, phase=phase, source=source))
    return found


def _phase(u: UOp) -> str:
    return "forward" if u.provenance[0] == "forward" else "backward"


def traced_model(model: str, batch: int | None = None, device: str = "cpu") -> StepGraph:
    """Build example `model` and one training step of it, which is not run; its parameters are memory that nobody
    writes.

    Of an ONNX file it is a run. On the cpu unless a device is named: a graph needs no GPU.

    Args:
        batch: the size of a batch; None: the example's default.
    """
    from anneal.nn import init

    with settings.override(device=device), progress.work(f"tracing {model}"):
        if model.endswith(".onnx"):
            return traced_run(Path(model), batch)
        example = load_example(model)
        make = partial(example.make, steps=example.STEPS, seed=1, lr=example.LR)
        with init.blank():  # some read files to learn, and none to be looked at
            return step_graph(model, getattr(example, "outline", make)(batch=batch or example.BATCH))


def traced_run(file: Path, batch: int | None) -> StepGraph:
    """The graph of a run of a model, which is not run; symbolic sizes are 1, those of a first axis `batch`."""
    import numpy as np

    from anneal.onnx import load
    from anneal.tensor import Tensor, tree_leaves

    model = load(file)
    first = {v.shape[0] for v in model.inputs if v.shape}
    sizes = {d: batch for d in first if isinstance(d, str)} if batch else {}
    generator = np.random.default_rng(0)
    results = model.trace({v.name: random_input(v, sizes, generator) for v in model.inputs})
    outputs = [t.uop for t in tree_leaves(results) if isinstance(t, Tensor)]
    return StepGraph(str(file), outputs, outputs, toposort(outputs))


def random_input(info: ValueInfo, sizes: dict[str, int], generator: np.random.Generator) -> Any:
    """Random values for an input: normal floats, 0 and 1 for whole numbers.

    `sizes` has those that the file leaves open, by name or as INPUT.AXIS; the others are 1.

    Args:
        info: the description of the input.
        generator: the source of random numbers.
    """
    if info.kind != "tensor" or info.dtype == "string" or not info.dtype:
        raise UserError(f"input {info}: random values are for tensors of numbers; give it as NAME=FILE.npy")
    shape = [
        d if isinstance(d, int) else sizes.get(f"{info.name}.{i}", sizes.get(d or "", 1))
        for i, d in enumerate(info.shape or ())
    ]
    name = info.dtype
    if name.startswith(("float", "bfloat", "complex")):
        import ml_dtypes

        return generator.standard_normal(shape).astype(getattr(ml_dtypes, name, None) or name)
    return generator.integers(0, 2, shape).astype(name)


# -- the state after a pass as values, nodes or lines of text, for the scheduler's passes and a kernel's --------------


PIPELINES = (schedule.PASSES, codegen.PASSES)
_LONGEST = 400  # characters of an argument


@frozen
class PassInfo:
    """A pass: its pipeline, its name, the reason for it, and the stage whose table the graphs that it makes obey."""

    pipeline: str
    name: str
    reason: str
    stage: str | None


@frozen
class Part:
    """A result of a pass: a graph, with its text and its nodes, sources first; or text without nodes."""

    text: str
    nodes: tuple[Node, ...]


@frozen
class PassState:
    """The graph after the pass `info`, in parts; of launch `kernel`, if it is a pass of the code generator."""

    info: PassInfo
    kernel: int | None
    parts: tuple[Part, ...]


def passes() -> tuple[PassInfo, ...]:
    """The scheduler's passes, which have the whole graph, then the code generator's, which have a kernel, in order."""
    return tuple(_info(line, p) for line in PIPELINES for p in line)


def after_pass(
    sink: UOp, cost_model: CostModel, until: str, kernel: int | None = None, target: Target | None = None
) -> PassState:
    """The graph that the passes up to `until` make of `sink` (`SINK(outputs...)`), or of launch `kernel` of its plan.

    Raises UserError for a name that is no pass, with the names of all; for a pass of the code generator without a
    kernel, and for one of the scheduler with a kernel.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
        target: the limits of the device that kernels are made for.
    """
    info = {p.name: p for p in passes()}.get(until)
    if info is None:
        scheduler, generator = (", ".join(line.names) for line in PIPELINES)
        raise UserError(
            f"there is no pass called {until!r}. Of the whole graph: {scheduler}. Of one kernel (--kernel N): "
            f"{generator}"
        )
    whole = info.pipeline == schedule.PASSES.name
    if whole and kernel is not None:
        raise UserError(f"{until} is a pass of the whole graph, before there are kernels; leave --kernel out")
    if not whole and kernel is None:
        raise UserError(f"{until} is a pass of the code generator, which has one kernel at a time: add --kernel N")
    ends = []  # what the passes made of the graph, or of each part of the kernel

    def note(p: Pass[Any], state: Any) -> None:
        if p.name == until:
            ends.append(list(p.view(state)))

    with compiling():
        if kernel is None:
            schedule.PASSES.run(Schedule(parametrise(sink)[0], cost_model), until, note)
        else:
            for b in codegen.bodies_of(launch(sink, cost_model, kernel).kernel.sink, target):
                codegen.run_passes(b.kernel, target, b.opts, until, note)
    parts = []
    for n, views in enumerate(ends):
        if len(ends) > 1:
            parts.append(Part(f"// ==== part {n} of {len(ends)}, for workgroups of its own", ()))
        parts += [Part(str(x), tuple(nodes(toposort(x))) if isinstance(x, UOp) else ()) for x in views]
    return PassState(info, kernel, tuple(parts))


def _info(pipeline: Any, p: Pass[Any]) -> PassInfo:
    return PassInfo(pipeline.name, p.name, p.reason, p.stage)


@frozen
class GraphNode(NodeFacts):
    """One node of the tensor graph. `id` is its place, by which the calls of a plan name it.

    `phase` is "forward", "backward" or "update", `module` the path of the module that was called, `function` the
    function of anneal. `low` and `high` are the bounds of a whole number. `kernels` are the launches that compute it,
    and `rule` is the one that made it, if one did.
    """

    phase: str
    module: str
    function: str
    line: Line | None
    low: int | None
    high: int | None
    rule: FiredRule | None
    kernels: Ints


@frozen
class PassNode(NodeFacts):
    """One node after a pass. `place` is the node of the tensor graph that it stands for, None for one that stands for
    none; `changed`: the pass made it, rather than that something below it changed.
    """

    place: int | None
    changed: bool


@frozen
class PassGraph:
    """The result of a pass: nodes, sources first, or lines of text, or both. `changed` counts the nodes (or the lines)
    that it made, `removed` those that the pass took away.
    """

    info: PassInfo
    nodes: tuple[PassNode, ...]
    text: Texts
    changed: int
    removed: int


def graph_nodes(sink: UOp, plan: Plan | None = None, fired: Iterable[Event] = ()) -> tuple[GraphNode, ...]:
    """The nodes of `SINK(outputs...)` by place. `plan` is the graph's; `fired` the rules that fired while it was made.

    Args:
        sink: the node `SINK(outputs...)`.

    >>> from anneal.schedule import graph
    >>> from anneal.tensor import Tensor
    >>> found = graph_nodes(graph([(Tensor([1.0, 2.0]) + 1.0).uop]))
    >>> [(n.id, n.op, n.src) for n in found]
    [(0, 'BUFFER', ()), (1, 'CONST', ()), (2, 'ADD', (0, 1)), (3, 'SINK', (2,))]
    """
    order = live_nodes(sink)
    numbers = ranks(order)
    made = made_by(fired)
    kernels = defaultdict(list)
    for n, call in enumerate(plan.calls if plan is not None else ()):
        for at in call.places:
            kernels[at].append(n)
    found = []
    for n, u in enumerate(order):
        phase, _, _, module, function = u.provenance
        whole = u.vmin if isinstance(u.vmin, int) and not isinstance(u.vmin, bool) else None
        found.append(
            GraphNode.of(
                u, numbers, _LONGEST, phase=phase, module=module or "",
                function="" if function is None else function.co_name.strip("_"),
                line=next(iter(lines_of([u])), None), low=whole,
                high=u.vmax if whole is not None and isinstance(u.vmax, int) else None,
                rule=made.get(u), kernels=tuple(kernels[n]),
            )
        )  # fmt: skip
    return tuple(found)


def _kind(u: UOp) -> tuple[Any, ...]:
    """The facts that a node is, over whatever sources."""
    return u.op, u.dtype, repr(u.arg)[:_LONGEST], len(u.src)


def pass_graphs(sink: UOp, cost_model: CostModel) -> list[PassGraph]:
    """The results of the scheduler's passes for `SINK(outputs...)`, in order.

    Args:
        sink: the node `SINK(outputs...)`.
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
    """
    with compiling():
        program = parametrise(sink)[0]
        order = toposort(program)
        seen = _Seen(schedule.PASSES, order, places=ranks(order))
        schedule.PASSES.run(Schedule(program, cost_model), hook=seen)
    return seen.graphs


def kernel_pass_graphs(sink: UOp, cost_model: CostModel, kernel: int, target: Target | None = None) -> list[PassGraph]:
    """The results of the code generator's passes for launch `kernel` of the plan of `sink`, the first part of it.

    Raises UserError for a launch that there is not.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
        target: the limits of the device that kernels are made for.
    """
    target = target or Target()
    with compiling():
        body = codegen.bodies_of(launch(sink, cost_model, kernel).kernel.sink, target)[0]
        seen = _Seen(codegen.PASSES, toposort(body.kernel))
        codegen.run_passes(body.kernel, target, body.opts, hook=seen)
    return seen.graphs


@dataclass(slots=True)
class _Seen:
    """A hook of a pipeline's passes: the `graphs` so far, and the nodes, the lines and the places of nodes now."""

    pipeline: Any
    order: Nodes
    text: Texts = ()
    places: Mapping[UOp, int] = field(default_factory=dict)
    graphs: list[PassGraph] = field(default_factory=list)

    def __call__(self, p: Pass[Any], state: Any) -> None:
        views = list(p.view(state))
        graphs = [x for x in views if isinstance(x, UOp)]
        text = tuple(line for x in views if isinstance(x, str) for line in x.rstrip("\n").split("\n"))
        places = getattr(state, "places", {})
        nodes: tuple[PassNode, ...] = ()
        if graphs:
            order = toposort(tuple(dict.fromkeys(graphs)))
            numbers, kept = ranks(order), {places[u] for u in order if u in places}
            made = self._changed(order, places)
            nodes = tuple(PassNode.of(u, numbers, _LONGEST, place=places.get(u), changed=u in made) for u in order)
            changed = len(made)
            removed = sum(u not in numbers and self.places.get(u) not in kept for u in self.order)
            self.order, self.places = order, dict(places)
        else:
            changed, removed = (sum(t not in b for t in a) for a, b in ((text, {*self.text}), (self.text, {*text})))
        self.text = text
        self.graphs.append(PassGraph(_info(self.pipeline, p), nodes, text, changed, removed))

    def _changed(self, order: Iterable[UOp], places: Mapping[UOp, int]) -> set[UOp]:
        """Nodes that a pass made, except copies of earlier nodes over other sources."""
        before, there = self.places, set(self.order)
        of_place = {before.get(u): u for u in reversed(self.order)}
        # of a kernel: by what the node is, over whatever sources
        shapes = {_kind(u) for u in self.order if not before}
        found = set()
        for u in order:
            if u in there or u.op in (Op.SINK, Op.CONST, Op.PARAM) or _kind(u) in shapes:
                continue
            old = of_place.get(places[u]) if u in places else None
            if old is None or _kind(old) != _kind(u) or [*map(places.get, u.src)] != [*map(before.get, old.src)]:
                found.add(u)
        return found
