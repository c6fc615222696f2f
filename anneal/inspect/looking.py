"""The answers for a viewer: about a graph and its plan, the rules of an op or a method, the tensors of a file."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anneal.codegen import Target, generate, opts_text
from anneal.doors import pairs
from anneal.errors import AnnealError, DataError
from anneal.frozen import Json, Texts, frozen
from anneal.inspect.derivations import KernelTexts, launch
from anneal.inspect.graphs import Node, PassGraph, graph_nodes, kernel_pass_graphs, nodes, pass_graphs, passes
from anneal.inspect.kernel_list import KernelCall, kernel_calls, lines_of, refusals
from anneal.rewrite import Event, Listed, explain
from anneal.schedule import CostModel, Plan, graph, nbytes, origins, plan_for
from anneal.tensor import Tensor
from anneal.training import suggest
from anneal.uop import MOVEMENT, Ints, Op, Src, UOp, toposort

Array = np.ndarray[Any, Any]


class Looked(KernelTexts):
    """Answers about `SINK(outputs...)`, planned for a device; `fired` are the rules that fired while it was made.

        graph()          the tensor graph, each node with the kernels that compute it
        passes(), of()   what each pass made of the graph, or of one kernel
        kernels()        the launches, why neighbours are two, memory over the launches
        kernel(N)        one launch: its text line by line, and how it is launched

    The studio asks this of a model; a recording keeps the answers for each plan that a program ran.

    Args:
        model: the name of the model.
        sink: the node `SINK(outputs...)`.
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
        target: the limits of the device that kernels are made for.
    """

    def __init__(
        self, model: str, sink: UOp, cost_model: CostModel, fired: Sequence[Event] = (), target: Target | None = None
    ) -> None:
        super().__init__(sink, cost_model, target)
        self.model, self.fired, self.plan = model, fired, plan_for(sink, cost_model, {})[0]
        self._passes: dict[int | None, list[PassGraph]] = {}

    def calls(self, text: Callable[[UOp], str] | None) -> list[KernelCall]:
        """The launches in order, with the text that `text` gives for a kernel (see `kernel_calls`)."""
        return kernel_calls(self.plan, self.origins, text)

    def graph(self) -> Json:
        """The nodes, the names of the launches, and the names of the passes."""
        return {
            "model": self.model,
            "nodes": graph_nodes(self.sink, self.plan, self.fired),
            "kernels": [{"name": k.name, "label": k.label, "phase": k.phase} for k in self.calls(_unread)],
            "passes": passes(),
        }

    def passes(self, kernel: int | None = None) -> list[Json]:
        """The passes, each with the number of nodes that it changed, of the whole graph, or of launch `kernel`."""
        return [{**plain(p), "nodes": len(p.nodes), "text": len(p.text)} for p in self.after(kernel)]

    def one_pass(self, name: str, kernel: int | None = None) -> PassGraph:
        """The graph after pass `name`; of launch `kernel`, if one is named. Raises UserError for an unknown pass."""
        graphs = self.after(kernel)
        found = next((p for p in graphs if p.info.name == name), None)
        if found is None:
            raise suggest("pass", name, [p.info.name for p in graphs])
        return found

    def after(self, kernel: int | None = None) -> list[PassGraph]:
        """The graphs after each pass, in order; of launch `kernel`, if one is named."""
        if kernel not in self._passes:
            of = () if kernel is None else (kernel, self.target)
            self._passes = {kernel: (kernel_pass_graphs if of else pass_graphs)(self.sink, self.cost_model, *of)}
        return self._passes[kernel]

    def kernels(self) -> Json:
        """The launches in order."""
        return {
            "model": self.model,
            "kernels": self.calls(_unread),
            "refusals": refusals(self.sink, self.cost_model),
            "memory": memory_plan(self.plan),
        }

    def kernel(self, number: int) -> Json:
        """Launch `number`. Raises UserError for one that the plan does not have."""
        call = launch(self.sink, self.cost_model, number)
        text, error = None, ""
        try:
            text = self.text(number)
        except AnnealError as e:  # a dtype that WGSL or C does not have
            error = str(e)
        return {"text": text, "error": error, "launch": launch_facts(call.kernel.sink, self.target)}

    @property
    def lines(self) -> set[tuple[str, int]]:
        """The lines that the nodes come from, each as a file and a number."""
        return {(x.file, x.line) for x in lines_of(self.origins)}


def _unread(_: UOp) -> str:
    """The text of a kernel for who does not read it."""
    return ""


def plain(value: Any) -> Any:
    """A record as JSON: the `default` function of `json.dumps`.

    Args:
        value: the record.
    """
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


# -- the memory of a plan over its launches, and the launch itself ----------------------------------------------------
# Threads, opts, bindings; and the launches in time, as a trace for ui.perfetto.dev.


@frozen
class Life:
    """A value of a plan: launches `first` to `last` need it, in piece `piece` of memory that temporaries share, or
    None where it has memory of its own.
    """

    buffer: str
    kind: str
    dtype: str
    bytes: int
    first: int
    last: int
    piece: int | None


@frozen
class MemoryPlan:
    """`lives` of the values that the plan makes; `live` has the bytes of temporaries and outputs that are needed while
    each launch runs. `given` are the bytes of its inputs, `temporary` those of the pieces that temporaries share.
    """

    lives: tuple[Life, ...]
    live: Ints
    given: int
    temporary: int


@frozen
class LaunchFacts:
    """A kernel's launch on a target: opts, workgroups (also as a grid), threads of each, and its bindings."""

    opts: str
    workgroups: int
    threads: int
    grid: tuple[int, int, int]
    bindings: Texts


def memory_plan(plan: Plan) -> MemoryPlan:
    """The lives of a plan's values.

    >>> from anneal.backend import planned_cost_model
    >>> from anneal.schedule import graph, plan_for
    >>> from anneal.tensor import Tensor
    >>> plan, _, _ = plan_for(graph([(Tensor([1.0, 2.0]) + 1.0).uop]), planned_cost_model("cpu"))
    >>> memory_plan(plan).lives
    (Life(buffer='v1', kind='output', dtype='float32', bytes=8, first=0, last=0, piece=None),)
    """
    used = defaultdict(list)
    for n, call in enumerate(plan.calls):
        for v in call.args:
            used[v].append(n)
    pieces, count = dict(plan.memory), len(plan.calls)
    lives = [
        Life(
            f"v{v}", x.kind, x.dtype.name, nbytes(x), used[v][0], count - 1 if x.kind == "output" else used[v][-1],
            pieces.get(v),
        )
        for v, x in enumerate(plan.values)
        if x.kind != "input" and v in used
    ]  # fmt: skip
    live = [sum(x.bytes for x in lives if x.first <= n <= x.last) for n in range(count)]
    given = sum(nbytes(value) for value in plan.values if value.kind == "input")
    temporary = sum(-(-size * dtype.device_itemsize // 4) * 4 for size, dtype in plan.temporaries)
    return MemoryPlan(tuple(lives), tuple(live), given, temporary)


def launch_facts(kernel: UOp, target: Target | None = None) -> LaunchFacts | None:
    """The launch of a kernel graph; None for one that has no WGSL, since only the cpu has its dtypes.

    Args:
        target: the limits of the device that kernels are made for.
    """
    try:
        made = generate(kernel, target or Target(f16=True))
    except AnnealError:
        return None
    bindings = [
        f"{p.slot}: {p.node.dtype.name}{list(p.node.arg[1])} {'written' if p.written else 'read'}" for p in made.params
    ]
    return LaunchFacts(opts_text(made.opts), made.launch.workgroups, made.launch.threads, made.grid, tuple(bindings))


def chrome_trace(title: str, launches: Iterable[Mapping[str, Any]], device: str = "", live: Sequence[int] = ()) -> Json:
    """The launches one after the other, each as long as it takes alone, in a lane for each phase.

    Args:
        title: the name of the process in the trace.
        launches: in order; each has `seconds`, `name`, `label`, `phase`, and what else is known of it (`flops`,
            `bytes`, `gflops`, `gbs`, `opts`, `fused`, `lines`, as `anneal kernels --time --json` has them).
        device: what they ran on.
        live: the bytes that are needed while each launch runs, for a curve beneath.

    Returns:
        The trace-event format's JSON object: times in microseconds.

    >>> found = chrome_trace("mlp", [{"seconds": 2e-6, "name": "k", "label": "fc: linear", "phase": "forward"}])
    >>> [(e["name"], e["ts"], e["dur"]) for e in found["traceEvents"] if e["ph"] == "X"]
    [('fc: linear', 0.0, 2.0)]
    """
    events = []

    def add(name: str, kind: str, lane: int, args: Json, **more: Any) -> None:
        events.append({"name": name, "ph": kind, "pid": 1, "tid": lane, "args": args, **more})

    add("process_name", "M", 0, {"name": " on ".join(x for x in (title, device) if x)})
    lanes: dict[str, int] = {}
    at = 0.0
    for n, each in enumerate(launches):
        phase = str(each["phase"])
        if phase not in lanes:
            lanes[phase] = len(lanes) + 1
            add("thread_name", "M", lanes[phase], {"name": phase})
        took, names = float(each["seconds"]) * 1e6, ("name", "flops", "bytes", "gflops", "gbs", "opts")
        args = {"launch": n, **{k: each[k] for k in names if k in each}, "fused": " + ".join(each.get("fused", ()))}
        args["lines"] = ", ".join(f"{x['file']}:{x['line']}" for x in each.get("lines", ()))
        add(each.get("label") or each["name"], "X", lanes[phase], args, cat=phase, ts=at, dur=took)
        if n < len(live):
            add("bytes", "C", 0, {"temporaries and results": live[n]}, ts=at)
        at += took
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def plan_trace(title: str, answer: Mapping[str, Any]) -> Json:
    """`chrome_trace`, called `title`, of a plan, by its `answer` to `Looked.kernels` with the times beside it."""
    times = answer["times"]
    launches = [{**k, **t} for k, t in zip(answer["kernels"], times["kernels"], strict=True)]
    return chrome_trace(title, launches, times["device"], answer["memory"]["live"])


# -- rules of an op, or of a method of Tensor --------------------------------------------------------------------------


PACKAGE = Path(__file__).resolve().parents[1]
# The purpose of each kind of tables, in the order in which a program meets them.
KINDS = {
    "fold": "forward, when the node is made",
    "rewrite": "forward, in a compiler pass",
    "gradient": "gradient: what y with cotangent g gives each source",
    "forward": "tangent: what the tangent g of each source adds to that of y",
}


@frozen
class OpRules:
    """The rules that concern `op`, in the order of KINDS; within a kind, those that start with it come first."""

    op: str
    meaning: str
    rules: tuple[Listed, ...]


def op_rules(op: str) -> OpRules:
    """The rules of the op called `op`, and its line in ops.py. Raises UserError for a name that is no op."""
    return OpRules(op, _meaning(op), tuple(sorted(explain(op), key=lambda r: [*KINDS].index(r.kind))))


def tensor_methods() -> list[str]:
    """Public methods of Tensor that make a tensor."""
    return sorted(n for n in dir(Tensor) if not n.startswith("_") and callable(getattr(Tensor, n)))


@frozen
class RuleExample:
    """A call of a Tensor method, and the nodes of the graph that it builds, sources first."""

    source: str
    nodes: Src

    @property
    def ops(self) -> list[str]:
        """The names of the ops, movement and leaves left out."""
        silent = MOVEMENT | {Op.CONTIGUOUS}
        return list(dict.fromkeys(u.op.name for u in self.nodes if u.src and u.op not in silent))


# Arguments of most methods, for those whose docstring has no example: x is (2, 2), index whole numbers of that shape.
_CALLS = ("", "x", "0", "0, index", "x, x", "index[0]", "2", "(2,)", "x > 0", "x > 0, x", "[x, x]")


def example_of(method: str) -> RuleExample | None:
    """A call of a Tensor method: the first of its docstring that gives a tensor, or one for small arguments; None if
    no such call does.

    >>> example_of("relu").ops
    ['MAX']
    """
    function = getattr(Tensor, method)
    told = [e.source.strip() for e in doctest.DocTestParser().get_examples(function.__doc__ or "")]
    known = {**vars(sys.modules[function.__module__]), "Tensor": Tensor}
    given = {"x": Tensor([[0.1, 0.2], [0.3, 0.4]]), "index": Tensor([[0, 1], [1, 0]])}
    return _first(method, told, known) or _first(method, [f"x.{method}({a})" for a in _CALLS], given)


def _first(method: str, lines: Iterable[str], names: Json) -> RuleExample | None:
    """The first line that calls the method and gives tensors; those before it may name what it uses."""
    for line in lines:
        try:
            code = compile(line, f"<{method}>", "eval")
        except SyntaxError:
            exec(line, names)
            continue
        try:
            result = eval(code, names)
        except (TypeError, ValueError, IndexError, AttributeError, RuntimeError):
            continue
        found = result if isinstance(result, (tuple, list)) else (result,)
        outputs = [t.uop for t in found if isinstance(t, Tensor)]
        if outputs and method in line:
            return RuleExample(line, tuple(toposort(outputs)))
    return None


def _meaning(op: str) -> str:
    """The comment at the op's row of ops.py, which says what the op is."""
    text = (PACKAGE / "uop" / "ops.py").read_text(encoding="utf-8")
    found = re.search(rf"^    {op} = ((?:.+\n)*?)(?=    [A-Z]\w* = |\n)", text, re.MULTILINE)
    return " ".join(re.findall(r"(?:^|\s)# (?!fmt:)(.*)", found[1]) if found else ()) or "elementwise"


ROOT = PACKAGE.parent
# Methods that build an op whose name they do not have.
METHODS = pairs("""
    REDUCE_AXIS=sum IDIV=floor_divide RECIP=reciprocal CMPLT=lt LT=lt EQ=eq MAX=maximum MIN=minimum WHERE=relu
    SCATTER_ADD=scatter_add EXPAND=softmax SHRINK=tril PAD=cumsum CONTRACT=matmul CAST=int ARGSORT=argsort IOTA=tril
""")


@frozen
class Batching:
    """The function that batches an op (vmap): its first line, its place as "file:line", its text."""

    about: str
    place: str
    text: str


@frozen
class Worked:
    """A call of a Tensor method: the `nodes` of its graph, what each pass makes of it, its kernels as WGSL."""

    call: str
    nodes: tuple[Node, ...]
    passes: tuple[PassGraph, ...]
    kernels: Texts


def batching(op: str) -> Batching | None:
    """The rule by which `vmap` batches the op called `op`; None where there is none.

    >>> batching("FLIP").place.startswith("anneal/transforms/batching.py:")
    True
    """
    from anneal.transforms import BATCHING

    rule = BATCHING.get(getattr(Op, op))
    if rule is None:
        return None
    text, line = inspect.getsourcelines(rule)
    file = Path(inspect.getsourcefile(rule) or "").resolve()
    return Batching((rule.__doc__ or "").split("\n")[0], f"{file.relative_to(ROOT).as_posix()}:{line}", "".join(text))


def worked(name: str, cost_model: CostModel) -> Worked | None:
    """An example of the op, or the Tensor method, called `name`; None where no method builds it of small arguments.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).

    >>> from anneal.backend import planned_cost_model
    >>> worked("EXP", planned_cost_model("cpu")).call
    'Tensor([0, 1]).exp().round(4)'
    """
    methods = tensor_methods()
    for method in dict.fromkeys((METHODS.get(name.upper(), name.lower()), name.lower())):
        example = example_of(method) if method in methods else None
        if example is None or (hasattr(Op, name) and name not in [u.op.name for u in example.nodes]):
            continue
        read = {s for u in example.nodes for s in u.src}
        sink = graph([u for u in example.nodes if u not in read])
        texts = dict.fromkeys(k.text for k in kernel_calls(plan_for(sink, cost_model)[0], origins(sink)))
        return Worked(
            example.source, tuple(nodes(list(example.nodes))), tuple(pass_graphs(sink, cost_model)), tuple(texts)
        )
    return None


# -- a file of weights or arrays: safetensors, npy, npz, gguf ----------------------------------------------------------


BINS = 24
MOST = 256 << 20  # bytes of a file whose values are read for statistics
PIECE = 1 << 20  # elements at a time
SHOWN = 8  # values at the beginning


@frozen
class TensorStatistics:
    """The statistics of the finite values: least, greatest, mean, standard deviation, and the counts in equal bins
    between the least and the greatest; None if there are none. `zeros` and `not_finite` count; `first` are values as
    text.
    """

    least: float | None
    greatest: float | None
    mean: float | None
    std: float | None
    zeros: int
    not_finite: int
    bins: Ints
    first: Texts


@frozen
class TensorEntry:
    """A tensor of a file; `statistics` is None where its values were not read."""

    name: str
    dtype: str
    shape: Ints
    bytes: int
    statistics: TensorStatistics | None = None


@frozen
class TensorFile:
    """The contents of a file: its kind, its tensors, and the notes that it carries."""

    kind: str
    tensors: tuple[TensorEntry, ...]
    notes: tuple[tuple[str, str], ...]


def tensor_file(path: Path, most: int = MOST) -> TensorFile:
    """The tensors of a .safetensors, .npy, .npz or .gguf file, with statistics of the first `most` bytes of values.

    Raises DataError for a file that is broken or no such.

    Args:
        path: the path of the file.
    """
    kind = path.suffix.lstrip(".")
    if kind in ("npy", "npz"):
        return _arrays(path, kind, most)
    if kind in ("safetensors", "gguf"):
        return _mapped(path, kind, most)
    raise DataError(f"{path.name}: this is no .safetensors, .npy, .npz or .gguf file")


def statistics_of(array: Array) -> TensorStatistics | None:
    """The statistics of an array of numbers; None for one of something else.

    >>> import numpy as np
    >>> found = statistics_of(np.array([0.0, 1.0, 3.0, np.nan]))
    >>> found.least, found.greatest, found.zeros, found.not_finite, sum(found.bins)
    (0.0, 3.0, 1, 1, 3)
    """
    if array.dtype.kind in "OSUVMm" and not _wide(array):
        return None
    with np.errstate(over="ignore"):  # a sum that is infinite is told as none
        return _statistics(array.ravel())


def _statistics(flat: Array) -> TensorStatistics:
    least, greatest, total, count, zeros = math.inf, -math.inf, 0.0, 0, 0
    for good in _pieces(flat):
        zeros, count, total = zeros + int((good == 0).sum()), count + good.size, total + good.sum()
        least, greatest = float(good.min(initial=least)), float(good.max(initial=greatest))
    wrong, first = flat.size - count, tuple(str(v) for v in flat[:SHOWN].tolist())
    if not count:
        return TensorStatistics(None, None, None, None, zeros, wrong, (), first)
    mean, squares, bins = total / count, 0.0, np.zeros(BINS, np.int64)
    span = greatest - least
    for good in _pieces(flat):
        squares += float(((good - mean) ** 2).sum())
        places = (good - least) / span * BINS if 0 < span < math.inf else np.zeros(good.size)
        bins += np.bincount(np.minimum(places.astype(np.int64), BINS - 1), minlength=BINS)
    middle, std = [float(x) if math.isfinite(x) else None for x in (mean, math.sqrt(squares / count))]
    return TensorStatistics(least, greatest, middle, std, zeros, wrong, tuple(bins.tolist()), first)


def _wide(array: Array) -> bool:
    """True if the dtype is a float that NumPy does not have itself, such as bfloat16."""
    return array.dtype.kind == "V" and array.dtype.names is None and "float" in array.dtype.name


def _pieces(flat: Array) -> Iterator[Array]:
    """The finite values as float64, some at a time; magnitudes of complex ones."""
    for at in range(0, flat.size, PIECE):
        x = flat[at : at + PIECE]
        x = (np.abs(x) if x.dtype.kind == "c" else x).astype(float)
        yield x[np.isfinite(x)]


def _mapped(path: Path, kind: str, most: int) -> TensorFile:
    from anneal.tensor import io

    file = io.safe_open(path, "cpu") if kind == "safetensors" else io.gguf_open(path, "cpu")
    found = []
    for name, e in file.entries.items():
        size = e.stop - e.start
        most -= size
        read = statistics_of(file[name].numpy()) if most >= 0 else None
        found.append(TensorEntry(name, e.dtype, tuple(e.shape), size, read))
    notes = io.safe_metadata(path) if kind == "safetensors" else file.metadata
    return TensorFile(kind, tuple(found), tuple((k, str(v)[:200]) for k, v in notes.items()))


def _arrays(path: Path, kind: str, most: int) -> TensorFile:
    found = []
    try:
        loaded = np.load(path, allow_pickle=False, mmap_mode="r" if kind == "npy" else None)
        for name, a in [(path.stem, loaded)] if kind == "npy" else loaded.items():
            most -= a.nbytes
            found.append(TensorEntry(name, a.dtype.name, a.shape, a.nbytes, statistics_of(a) if most >= 0 else None))
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise DataError(f"{path.name}: is no .{kind} file of numbers: {error}") from None
    return TensorFile(kind, tuple(found), ())
