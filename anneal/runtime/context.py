"""The state of running: what a thread has switched on, watches and records, and the context that it works in.

    here                      this thread's: here.context has counters, here.tensors is of all contexts
    with modes(grad=False):   the thread has other modes until the block ends
    with Context("cpu"): ...  the thread works in a context of its own until the block ends

No other module of running has state. Plans, programs and nodes that are equal are one in all contexts: the arena, the
scheduler and the devices remember them, and a device serves one thread at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary, ref

from anneal import settings
from anneal.backend import DEVICES, HOST, Place, get_device, nothing, set_precision
from anneal.errors import JitError
from anneal.runtime.handle import Handle, Handles, earlier_nodes
from anneal.uop import DType, Nodes, UOp

if TYPE_CHECKING:
    from anneal.runtime.steps import Launch, Step
    from anneal.schedule import Plan

Observer: TypeAlias = "Callable[[Step], None]"
Watcher: TypeAlias = "Callable[[UOp, Launch], None]"


class Tensors:
    """The live tensors. Contexts share them, since a tensor may be made in one and used in another."""

    def __init__(self) -> None:
        self.classes: dict[type, None] = {}  # classes of tensors; the first one is for tensors made of data
        self.classes_or_none: set[type] = {type(None)}  # these classes, and None's
        # those on which requires_grad was set, by id
        self.leaves: WeakValueDictionary[int, Handle] = WeakValueDictionary()
        # The guard generation: changes that no guard sees begin another, and a capture holds within one. Plain
        # attributes of modules that are set back to what they were bring the earlier one back (train and eval in turn).
        self.generation = 1  # 0 where `found_generation` finds it
        self.numbers = count(2)  # of further generations
        self.changes = 0  # so that who finds the generation knows of other threads' changes meanwhile
        # those attributes that are not as they were: as they were, and as they are
        self.plain: dict[tuple[int, str], tuple[ref[Any], Any, Any]] = {}
        # by those attributes, with the references that their keys have the numbers of
        self.generations: dict[frozenset[Any], tuple[int, list[ref[Any]]]] = {frozenset(): (1, [])}
        self.flags = 0  # counts the changes of `requires_grad` of tensors that are there: captures look at theirs then
        self.trees = (
            0  # counts attributes of modules that were set or deleted, but for those of plain values and tensors
        )
        # the paths below a module that is called first, and that count when they were found
        self.paths: WeakKeyDictionary[Any, tuple[int, dict[int, str]]] = WeakKeyDictionary()
        self.host_calls = False  # whether a graph may have a HOST_CALL
        self.derivatives = False  # whether a graph may have a derivative by a function of Python
        self.moved = False  # whether a gradient may come back from another device
        self.hooked: WeakValueDictionary[int, Handle] = WeakValueDictionary()  # leaves with hooks, by id
        self.outdated = ""  # the last of those changes, in words
        self.recordings: list[Any] = []  # the runs of jit functions that any thread records
        # Results of calls of the host that graphs go on reading, by their nodes: a value that is read in every round of
        # a loop is computed from the loop's beginning each time, and the calls in it are made once. Each holds the
        # nodes of what the reverse of its call reads, which nobody else has; memory of a result that a tensor shows is
        # that tensor's.
        self.kept: WeakKeyDictionary[UOp, tuple[UOp | None, Nodes]] = WeakKeyDictionary()

    def live_leaves(self) -> Handles:
        """The live tensors on which requires_grad was set."""
        # `valuerefs` is one step, whatever other threads add meanwhile
        return [t for r in self.leaves.valuerefs() if (t := r()) is not None and t._wants]

    def live_nodes(self) -> Nodes:
        """The nodes of the live leaves, and the earlier nodes of them that graphs still have."""
        leaves = self.live_leaves()
        nodes = [n for t in leaves for n in (t.uop, t._alias) if n is not None]
        return [*nodes, *[u for _, u in earlier_nodes(leaves)]]


class Context:
    """The state of one user of the runtime; a block of `with` works in it, in the thread that enters it.

    `device` is the default device ("cpu", "webgpu", "auto"); None leaves it to the setting. The thread
    begins with every mode at its default, and with nothing watched or recorded; afterwards it goes on as before.
    Several threads may be in one context. Raises DeviceError for an unknown name or when there is no such device.

    >>> from anneal.tensor import Tensor, no_grad, grad_enabled
    >>> with no_grad(), Context("cpu") as own:
    ...     y = (Tensor([1.0, 2.0]) * 3).tolist()
    ...     print(y, grad_enabled(), own.plans_found + own.plans_made)
    [3.0, 6.0] True 1
    """

    plans_found = plans_made = 0
    compile_seconds = 0.0

    def __init__(self, device: str | None = None) -> None:
        self.device = None if device is None else resolve_device(device)
        self.profiled: WeakSet[Plan] = WeakSet()  # whose kernels' times were told (ANNEAL_DEBUG=2)

    def __enter__(self) -> Context:
        outer = vars(here).copy()
        here.begin(self)
        here.outer = outer
        return self

    def __exit__(self, *_: object) -> None:
        vars(here).update(here.outer or {})


class _Here(threading.local):
    """A thread's own state in its context. A thread begins in the context of the process."""

    def __init__(self) -> None:
        self.begin(_PROCESS)

    def begin(self, context: Context) -> None:
        """Set everything to its initial state."""
        self.context: Context = context
        self.tensors: Tensors = _TENSORS  # those of all contexts
        self.seen: int = next(self.tensors.numbers)  # marks what its calls have used
        self.outer: dict[str, Any] | None = None  # the state to go back to when the context's block ends
        # modes
        self.grad = True  # False inside `no_grad`
        self.autocast: tuple[tuple[str, DType], ...] = ()  # kinds of devices, and the dtypes that ops cast to there
        self.wraps = False  # True where integers wrap around in every op, as ONNX has it
        self.warns = False  # True where integers that do not fit wrap around with a warning, as the array API needs it
        self.turns: list[Any] = []  # traces of bodies of loops, each with its turn's number first, the innermost last
        self.node: Any = None  # the node of an ONNX graph that runs (onnx/execute.py)
        self.names = False  # True where ops leave their names in the graph, as for a file
        self.unrolls = 0  # where a file is written that has no loops: so many turns at most are one graph
        self.depth = 0  # transforms (grad, jvp, vmap) whose function is running
        self.device = context.device  # of tensors that name none; None: the setting's
        self.devices: list[str | None] = []  # those outside the blocks of `with device(...)`, the innermost last
        self.skips_init = False  # True where parameters start as zeros, in `nn.init.skipped`
        self.blank_init = False  # True where they are memory that nobody has written, in `nn.init.blank`
        self.downloads = False  # whether data of examples may be downloaded, in `training.downloads`
        self.computed: dict[Any, Any] | None = None  # values of parametrized tensors, in `parametrize.cached`
        self.draws: Any = None  # the generator of calls that name none, where the thread has its own
        self.reads: Any = None  # of a thread that reads for a DataLoader: which it is, `utils.data.WorkerInfo`
        self.in_host_call = False  # while a function of the host runs, of which a device may wait for the results
        # what is told of the thread's work
        self.observers: list[Observer] = []  # called with every step that is executed
        self.meter: Any = None  # the Meter of runs of plans
        self.watchers: list[Watcher] = []  # called with every graph that is computed, and the launch that did it
        self.assigned: list[Any] = []  # lists that get every tensor that is assigned
        self.made: list[Any] | None = None  # gets every value that is made from host data (nodes.Made)
        # True where a realize computes nothing but what is asked for. While a graph is traced and a constant is read,
        # the graph would otherwise be computed too, if an earlier loop has taught the thread to compute such results
        # along
        self.alone = False
        self.tracing: list[list[Any]] = []  # while nothing runs: lists of what would have been realized
        self.recordings: list[Any] = []  # the runs of jit functions that are recorded, the innermost last
        self.modules: dict[int, str] | None = None  # paths of modules by id, from the one called first, while it runs
        self.unwrapped: set[int] = set()  # compiled modules, by id, whose own calls run
        # what late tensors are made with (late.py)
        self.defers = True  # False within an op: what it calls is part of it
        self.derives = False  # True in a user's function of a derivative, whose ops run at once
        self.numbering: Callable[[], Any] = nothing  # a weak reference to the one in force
        self.logs: deque[Any] = deque(maxlen=8)  # calls while it and those before were in force
        self.plain: deque[Any] = deque(maxlen=1 << 12)  # tensors with nodes that were late, or could not be, and lines
        self.open: list[Any] = []  # references to results with no template, which hold the numbering while they live
        self.computations = 0  # counts realizes that computed something
        self.calls: list[Any] = []  # late calls of captured functions since the last (`uses.py`)
        self.missed: deque[Any] = deque(maxlen=16)  # earlier late calls whose backward may still come
        self.effects = 0  # counts what an op may do beside giving a result that follows from its arguments
        self.became: list[Any] | None = None  # gets the tensors that an op gives other values
        self.checks: list[tuple[Any, ...]] | None = None  # gets the looks that an op takes at values the host has
        # what is computed along with the rest
        self.pending: dict[int, ref[Any]] = {}  # tensors that were assigned, by id: they may be lazy
        self.backwards: list[ref[Any]] = []  # results whose backward was taken
        self.after_backward: list[Callable[[], None]] = []  # what is called once, at the end of the pass
        self.hooks: list[Any] | None = None  # gets what a gradient's walk calls for the last time
        self.creates = self.every = False  # whether that is to be differentiable; and to call what no leaf is below
        self.answer: Any = None  # what calls functions of Python that it comes to with late tensors, or does not
        self.statistics: dict[int, ref[Any]] = {}  # running statistics that were assigned, by id


_TENSORS = Tensors()
_PROCESS = Context()
here: _Here = _Here()


def cache_statistics() -> tuple[int, int]:
    """The counts of realizes in this context that found their plan, and of those that made one."""
    return here.context.plans_found, here.context.plans_made


def compile_seconds() -> float:
    """The seconds that this context has spent so far on making plans, or reading them from disk, and on compiling and
    binding their kernels. Pipelines that a driver makes meanwhile in other threads count as far as they were waited
    for.
    """
    return here.context.compile_seconds


def outdate_captures(why: str) -> None:
    """Make captured functions capture again: a value that they read has changed where no guard sees it.

    Args:
        why: the reason, as text.
    """
    tensors, begun = here.tensors, next(here.tensors.numbers)
    tensors.outdated = why
    tensors.changes += 1
    tensors.plain, tensors.generations, tensors.generation = {}, {frozenset(): (begun, [])}, begun


def same_plain(a: Any, b: Any) -> bool:
    """True if two bools, numbers or texts are of one type and the same; -0.0 and 0.0 are not.

    Args:
        a: the one.
        b: the other.
    """
    return type(a) is type(b) and bool(a == b) and (bool(a) or repr(a) == repr(b))


def note_plain(owner: object, name: str, before: Any, value: Any) -> None:
    """Note that an attribute of a module, which no guard may see, became another bool, number or text.

    Args:
        owner: the module, and the attribute's `name`.
        before: the value that it had, and the `value` that it has.
    """
    tensors, r = here.tensors, ref(owner)
    _, first, _ = tensors.plain.pop((id(r), name), (r, before, before))
    if first != value or not same_plain(first, value):  # a call less, as a rule
        tensors.plain[id(r), name] = r, first, value
    tensors.changes += 1
    tensors.outdated, tensors.generation = f"{type(owner).__name__}.{name} was set", 0


# so many at most: of plain attributes that were set, and of generations that may come back
_PLAIN, _GENERATIONS = 1 << 12, 64


def found_generation() -> int:
    """The generation, by the plain attributes that are not as they were."""
    tensors = here.tensors
    changes, known, plain = tensors.changes, tensors.generations, list(tensors.plain.items())
    if len(plain) > _PLAIN or len(known) > _GENERATIONS:
        outdate_captures(tensors.outdated)
        return tensors.generation
    key = frozenset([(*at, type(x), x or repr(x)) for at, (_, _, x) in plain])  # -0.0 equals 0.0
    if key not in known:
        known[key] = next(tensors.numbers), [r for _, (r, _, _) in plain]
    found, _ = known[key]
    tensors.generation = found
    if changes != tensors.changes:
        tensors.generation = 0
    return found


def set_float32_products(precision: str) -> None:
    """Have products of float32 computed in a precision ("highest", "high", "medium") on open devices and those to come.

    Raises SettingError for another word.
    """
    if DEVICES.precision != precision:
        set_precision(precision)
        outdate_captures("the precision of products was set")


def capturing() -> bool:
    """True while a jit function runs its Python in this thread."""
    return bool(here.recordings)


def forbid_in_jit(what: str, fix: str) -> None:
    """Raise JitError if a jit function is running: `what` would freeze, `fix` says what to do instead."""
    if here.recordings:
        raise JitError(f"{what} inside a jit function would be frozen at its first value; {fix}")


def forbid_in_capture(what: str, fix: str) -> None:
    """Raise JitError if a run is being captured: replays would not do `what`, `fix` says what to do instead.

    The first call of a jit function is no such run: what is made there once and kept is seen by the second.
    """
    if here.recordings and here.recordings[-1].kept:
        raise JitError(f"{what} inside a jit function would not be done again by its replays; {fix}")


@contextmanager
def modes(**values: Any) -> Iterator[None]:
    """A block in which modes of this thread have other values.

    >>> with modes(grad=False):
    ...     here.grad
    False
    >>> here.grad
    True
    """
    state = vars(here)
    before = {name: state[name] for name in values}
    state.update(values)
    try:
        yield
    finally:
        state.update(before)


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Call `observer` with every step that this thread executes inside the block, replays excepted."""
    with modes(observers=[*here.observers, observer]):
        yield


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` with every graph that this thread computes inside the block (`SINK(outputs...)`) and the launch
    that has just computed it. Nothing is replayed meanwhile: jit functions run as at their first call.
    """
    with modes(watchers=[*here.watchers, watcher]):
        yield


# -- the default device -------------------------------------------------------------------------------------------


def set_default_device(device: str | None) -> None:
    """Make `device` ("cpu", "webgpu" or "auto") the device of tensors that name none in this thread; None goes back to
    the setting.

    Raises DeviceError for an unknown name or when there is no such device.

    >>> set_default_device("cpu")
    >>> set_default_device(None)
    """
    here.device = None if device is None else resolve_device(device)


def default_device() -> str:
    """The device of tensors by default: the last `set_default_device`, else ANNEAL_DEVICE, else "cpu".

    >>> default_device()
    'cpu'
    """
    if here.device is None:
        wanted = settings.current().device
        return HOST if wanted == "auto" else resolve_device(wanted)
    return here.device


def resolve_device(device: str) -> str:
    """The device that a name stands for, opened: a missing adapter is an error at this call, not at the first result.

    Raises DeviceError for an unknown name or when there is no such device.
    """
    if device == HOST:
        return HOST
    name = get_device(device).name
    return device if device.__class__ is Place and device == name else Place(name)
