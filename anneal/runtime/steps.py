"""Steps, the values that are executed: a realize is a launch, with calls of the host and exchanges before it.

A function of the host is a value, which a HOST_CALL node calls. An exchange between the participants of a group is
one; nothing here knows how values travel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from anneal.backend import Array, OpaqueBuffer, Reader, Storage, numpy_dtype
from anneal.errors import DTypeError, GroupError, ShapeError
from anneal.frozen import frozen
from anneal.schedule import Origin, Plan
from anneal.uop import DType, Nodes, Op, Recent, Shape, Some, Src, UOp
from anneal.uop.sizes import Size, Sizes, evaluator, is_symbolic, size_text, symbolic_arg, variables_of

Storages = Sequence[Storage]
Arrays = Sequence[Array]
Buffers = Sequence[OpaqueBuffer]
ArrayKinds = Sequence[tuple[Shape, DType]]  # of arrays: the shapes and dtypes
VmapMethod = Literal["sequential", "expand_dims", "broadcast_all"] | None
# (inputs, outputs, cotangents of the outputs) -> a cotangent for each input, or None for one that gets none
HostGradient = Callable[[Nodes, Nodes, Nodes], Some]


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """The calls of a plan, in order. They read `inputs` and write `outputs`; `values` are of the plan's Variables.

    `origins` tell where the nodes come from that it computes, by place (`anneal.schedule.origins`); a step that
    nobody observes has none.
    """

    plan: Plan
    inputs: Storages
    outputs: Storages
    values: Sizes = field(default_factory=dict)
    origins: Sequence[Origin] = ()

    @property
    def kernels(self) -> int:
        """The number of kernels that the launch starts."""
        return len(self.plan.calls)


def key_of(function: Callable[..., Any]) -> Hashable:
    """The key of a function without a given one: equal functions are one, and one that cannot be hashed is its own.

    >>> import numpy as np
    >>> key_of(np.sort) == key_of(np.sort), key_of(lambda a: a) == key_of(lambda a: a)
    (True, False)
    """
    try:
        hash(function)
    except TypeError:
        return "its own", id(function)  # who has the key has the function, too
    return function


class Rules(NamedTuple):
    """The derivatives of a kind of calls, and its form for many examples: functions of `transforms`."""

    # (function, sources, cotangents of the results, which sources need one) -> those of the sources; None is zero
    pull: Callable[[Any, Src, Some, Sequence[bool]], Some]
    # (function, sources, tangents of the sources) -> those of the results
    push: Callable[[Any, Src, Some], Some]
    # (function, sources, which of them have an axis of examples, how many, whether draws differ) -> the results, each
    # with whether it has one
    batch: Callable[[Any, Nodes, Sequence[bool], Size, bool], list[tuple[UOp, bool]]]


@frozen
class HostFunction:
    """`call(*arrays)` gives an array for each of `results`, a shape and a dtype. Functions of one key are the same one.

    A shape may have a Variable that no input has: the call finds its value, the size of the array that it gives.
    `name` is for messages. `gradient` and `vmap_method` say what its derivative and its batched form are, by `rules`
    that `transforms` gives.
    """

    rules: ClassVar[Rules]
    _said: ClassVar[str] = "host_call of {}"  # in messages
    key: Hashable
    results: tuple[tuple[Shape, DType], ...]
    call: Callable[..., Any] = field(compare=False, repr=False)
    name: str = field(default="function", compare=False)
    gradient: HostGradient | None = field(default=None, compare=False, repr=False)
    vmap_method: VmapMethod = "sequential"
    sizes: Src = ()  # the Variables whose values a call finds
    keyed: bool = field(default=False, compare=False)  # whether a program gave the key

    @property
    def pure(self) -> bool:
        """True if its results follow from its sources' values alone, and nothing else is done."""
        return self.keyed and not self.sizes

    @property
    def variables(self) -> Src:
        """The Variables whose values matter to a call, besides those of its arguments' shapes."""
        return self.sizes

    def nodes(self, src: Src) -> list[UOp]:
        """A call with these sources, as a node for each result.

        Args:
            src: the nodes of the arguments.
        """
        return [UOp(Op.HOST_CALL, dtype, src, (self, n)) for n, (_, dtype) in enumerate(self.results)]

    def for_reverse(self, src: Src) -> Nodes:
        """Nodes of the results that its reverse alone reads.

        Args:
            src: the sources.
        """
        return []

    def arrays(self, given: Arrays) -> list[Array]:
        """The results for these arrays. Raises ShapeError or DTypeError for one that is not as declared.

        Args:
            given: the arrays, in order.
        """
        return self.called(given, {})[0]

    def called(self, given: Arrays, values: Sizes) -> tuple[list[Array], dict[str, int]]:
        """The results for these arrays, and the values of Variables that they tell; `values` are those known before.

        Raises ShapeError or DTypeError for a result that is not as it was said to be.

        Args:
            given: the arrays, in order.
        """
        made = self._several(self.call(*given))
        found: dict[str, int] = {}
        own = {v.arg[0] for v in self.sizes}
        out = []
        for n, (array, (shape, dtype)) in enumerate(zip(made, self.results, strict=True)):
            if own and len(array.shape) == len(shape):
                self._find(n, array, shape, own, found)
            wanted = evaluator(shape)({**values, **found}) if symbolic_arg(shape) else shape
            if array.shape != wanted:
                raise ShapeError(f"{self.title}: result {n} has shape {array.shape}, not {wanted} as declared")
            if array.dtype != numpy_dtype(dtype):
                raise DTypeError(
                    f"{self.title}: result {n} is {array.dtype}, not {dtype.name} as declared: use .astype"
                )
            out.append(np.ascontiguousarray(array).reshape(wanted))
        return out, found

    @property
    def title(self) -> str:
        """The name of a call of it in messages."""
        return self._said.format(self.name)

    def _several(self, made: Any) -> list[Array]:
        """The function's results as arrays, as many as were said."""
        if made is None:
            raise DTypeError(f"{self.title}: the function gives nothing; it returns an array for each result")
        one = isinstance(made, (np.ndarray, np.generic)) or np.isscalar(made)
        try:
            arrays = [np.asarray(a) for a in ([made] if one else made)]
        except (TypeError, ValueError) as e:
            raise DTypeError(f"{self.title}: the function gives a {type(made).__name__}, not arrays: {e}") from e
        if len(arrays) != len(self.results):
            raise ShapeError(
                f"{self.title}: the function gives {len(arrays)} arrays, not {len(self.results)} as declared"
            )
        return arrays

    def _find(self, n: int, array: Array, shape: Shape, own: set[str], found: dict[str, int]) -> None:
        """Note the values of the call's own Variables that stand alone in the shape of result `n`."""
        for axis, (size, has) in enumerate(zip(shape, array.shape, strict=True)):
            if not isinstance(size, UOp) or size.op is not Op.VARIABLE or size.arg[0] not in own:
                continue
            name, low, high = size.arg
            if not low <= has <= high:
                raise ShapeError(
                    f"{self.title}: result {n} has {has} along axis {axis}, and Variable {name} runs from {low} to "
                    f"{high}; give it wider bounds"
                )
            if found.setdefault(name, has) != has:
                raise ShapeError(
                    f"{self.title}: result {n} has {has} along axis {axis}, where Variable {name} is {found[name]} by "
                    "another size"
                )

    def for_each(self, batched: tuple[bool, ...], n: int, gradient: HostGradient | None) -> HostFunction:
        """The function of `n` examples; arguments that are `batched` have an axis of them in front, the others not.

        `gradient` is the gradient of it. By "sequential" it calls this one for each; else once, and what is not batched
        gets an axis in front, of 1 by "expand_dims" and of `n` by "broadcast_all".
        """
        method = self.vmap_method

        def one_by_one(*arrays: Array) -> list[Array]:
            made = [self.arrays([a[i] if b else a for a, b in zip(arrays, batched, strict=True)]) for i in range(n)]
            return [np.stack(each) for each in zip(*made, strict=True)]

        size = n if method == "broadcast_all" else 1
        call: Any = one_by_one if method == "sequential" else _AtOnce(self.call, batched, size)
        return HostFunction(
            ("each", self.key, batched, n),
            tuple([((n, *shape), dtype) for shape, dtype in self.results]),
            call,
            f"{self.name}, for {n} examples",
            gradient,
            method,
            keyed=self.keyed,
        )


class _AtOnce(NamedTuple):
    """A call for all examples; arguments that are not `batched` get an axis of so many."""

    call: Callable[..., Any]
    batched: tuple[bool, ...]
    size: int

    def __call__(self, *arrays: Array, behind: int = 0) -> Any:
        """The results; the axis of examples lies behind those of so many vmaps around this one."""
        given = zip(arrays, self.batched, strict=True)
        wide = [a if b else np.repeat(np.expand_dims(a, behind), self.size, behind) for a, b in given]
        return self.call(*wide, behind=behind + 1) if isinstance(self.call, _AtOnce) else self.call(*wide)


def found_sizes(name: str, results: ArrayKinds, inputs: Sequence[Shape]) -> Src:
    """The Variables of the results' shapes that a call finds: those without a value that no input has.

    Raises ShapeError for one that stands in an expression alone, from which it could not be told.

    Args:
        name: the name of the call in messages.
        inputs: the tensors that the call is given.
    """
    sizes = [size for shape, _ in results for size in shape if isinstance(size, UOp)]
    if not sizes:
        return ()
    for size in sizes:
        if not is_symbolic(size):
            raise ShapeError(f"{name}: a size of a result is an int or made of Variables, not {size!r}")
    known = {v.arg[0] for shape in inputs for size in shape for v in variables_of(size)}
    free = [v for size in sizes for v in variables_of(size) if v.op is Op.VARIABLE]
    new = {v.arg[0]: v for v in free if v.arg[0] not in known}
    alone = {size.arg[0] for size in sizes if size.op is Op.VARIABLE}
    for n in new:
        if n not in alone:
            raise ShapeError(
                f"{name}: Variable {n} is to be found by the call: a size is {n} alone, not only {size_text(sizes[0])}"
            )
    return tuple(new.values())


@dataclass(frozen=True, slots=True, eq=False)
class HostCall:
    """A function of the host: it reads `inputs`, arrays of these `shapes`, and writes `outputs`, one for each result.

    `values` are of the Variables in the shapes; `found` are of those whose values the call told.
    """

    function: HostFunction
    inputs: Storages
    shapes: Sequence[Shape]
    outputs: Storages
    values: Sizes = field(default_factory=dict)
    found: Sizes = field(default_factory=dict)

    kernels = 0  # it starts none


# -- exchanges ---------------------------------------------------------------------------------------------------------


Reduction = Literal["sum", "mean", "max"]
# Waits for the results of an exchange. Given memory, it may write them there; it returns the arrays that have them.
Wait = Callable[..., Arrays]
# Starts an exchange of arrays; memory for its results that is known by then comes second, and is empty otherwise. The
# third says that it is waited for at once.
Begin = Callable[[Arrays, Arrays, bool], Wait]


class Group(ABC):
    """A participant's view of a group of `size`: it is number `rank`, counted from 0.

    Each participant is a thread, or a process, that runs the same program and holds a `Group` of its own. An
    implementation overrides `exchange`, and what it does better than by it.

    Every participant makes the same exchanges in the same order. Each returns once all have come to it, with the same
    bits for all; where one does not come, or comes with something else, every one that waits gets an error.
    """

    size: int
    rank: int
    coming: deque[UnderWay]  # exchanges that wait for arrays from a device
    made: Recent[Any, Exchange]  # exchanges by name and results, of one that copies
    # True if a started exchange no longer reads the arrays that it was given, and writes results into given memory.
    copies = False

    def leave(self) -> None:  # noqa: B027  # not all have something to do
        """Take no further part."""

    @abstractmethod
    def exchange(self, what: str, arrays: Arrays) -> list[Arrays]:
        """The arrays of every participant in the order of their numbers. `what` says the exchange in words.

        Raises GroupError where a participant does not come in time or comes for another exchange, ShapeError or
        DTypeError where the arrays of one are of another shape or dtype than those of the others.
        """

    def all_reduce(self, arrays: Arrays, op: Reduction) -> list[Array]:
        """The sum over the participants of each of several arrays, or the mean or the largest, as `op` says; float16
        and bfloat16 add in float32.
        """
        return list(self.begin_all_reduce(arrays, op, now=True)())

    def begin_all_reduce(self, arrays: Arrays, op: Reduction, into: Arrays = (), now: bool = False) -> Wait:
        """Start `all_reduce` of `arrays` by `op`; what is returned waits for its results. Here it has them at once.

        `into` is memory for the results, which they may be written to; `now` says that it is waited for at once.
        """
        made = self._reduced(self.exchange(f"all_reduce ({op})", arrays), op)
        return lambda into=(): made

    def reduce_scatter(self, arrays: Arrays, op: Reduction) -> list[Array]:
        """This participant's part, along the first axis, of what `all_reduce` of `arrays` by `op` gives."""
        return list(self.begin_reduce_scatter(arrays, op)())

    def begin_reduce_scatter(self, arrays: Arrays, op: Reduction, into: Arrays = (), now: bool = False) -> Wait:
        """Start `reduce_scatter` of `arrays` by `op`; what is returned waits for its results, `now` if that is so.
        `into` may take them."""
        given = self.exchange(f"reduce_scatter ({op})", arrays)
        made = self._reduced([[np.split(a, self.size)[self.rank] for a in each] for each in given], op)
        return lambda into=(): made

    def all_gather(self, arrays: Arrays) -> list[Array]:
        """The arrays of all participants along a new first axis, for each of several arrays."""
        return list(self.begin_all_gather(arrays, now=True)())

    def begin_all_gather(self, arrays: Arrays, into: Arrays = (), now: bool = False) -> Wait:
        """Start `all_gather` of `arrays`; what is returned waits for its results, `now` if that is so. `into` may take
        them."""
        made = [np.stack(each) for each in zip(*self.exchange("all_gather", arrays), strict=True)]
        return lambda into=(): made

    def broadcast(self, arrays: Arrays, root: int, into: Arrays = ()) -> list[Array]:
        """The arrays that participant `root` gives. `into` may take them."""
        return list(self.exchange(f"broadcast from {root}", arrays)[root])

    def reduce(self, arrays: Arrays, root: int) -> list[Array]:
        """The sums of `arrays` over the participants at `root`, zeros at the others."""
        given = self.exchange(f"reduce to {root}", arrays)
        return self._reduced(given, "sum") if self.rank == root else [np.zeros_like(a) for a in arrays]

    def send(self, array: Array, to: int) -> None:
        """Give an array to participant `to`, who calls `receive`."""
        raise GroupError(f"send: a {type(self).__name__} has no messages from one participant to another")

    def receive(self, like: Array, source: int, into: Arrays = ()) -> Array:
        """The array, of the shape and dtype of `like`, that participant `source` sends. `into` may take it."""
        raise GroupError(f"recv: a {type(self).__name__} has no messages from one participant to another")

    def barrier(self) -> None:
        """Wait until all participants have come here."""
        self.exchange("barrier", [])

    def begin_coming(self) -> None:
        """Start the exchanges that wait for a device: another one that is made now comes after them everywhere."""
        while self.coming:
            self.coming.popleft().begin()

    def check_rank(self, name: str, rank: int) -> None:
        """Raise GroupError, with the op's `name`, unless `rank` is a participant's number."""
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < self.size:
            raise GroupError(f"{name}: root is a participant, a number from 0 to {self.size - 1}, not {rank!r}")

    def _reduced(self, given: Sequence[Arrays], op: Reduction) -> list[Array]:
        """Sums in the order of the participants' numbers, so that they are the same bits everywhere."""
        return [reduced(each, op, self.size) for each in zip(*given, strict=True)]


def reduced(parts: Arrays, op: Reduction, size: int) -> Array:
    """A new array: the sum of `parts` in their order, the mean over a group of `size`, or the largest, by `op`."""
    dtype = parts[0].dtype
    if op == "max":
        largest: Array = np.maximum.reduce(parts)
        return largest
    wide = np.dtype(np.float32) if dtype.itemsize <= 2 and dtype.kind not in "iub" else dtype
    total = parts[0].astype(wide)
    for a in parts[1:]:
        total += a.astype(wide, copy=False)
    if op == "mean":
        total /= wide.type(size)
    return total.astype(dtype, copy=False)


class UnderWay:
    """An exchange between its start and its end. Arrays that are still on their way from a device are waited for at the
    end, in the order in which the exchanges were started; `coming` are those of the group."""

    _reader: Reader | None = None
    _wait: Wait | None = None

    def __init__(self, begin: Begin, coming: deque[UnderWay]) -> None:
        self._begin, self._coming = begin, coming

    def start(self, *arrays: Array) -> list[Array]:
        """Start the exchange with arrays that are on the host."""
        self._wait = self._begin(arrays, (), False)
        return []

    def later(self, reader: Reader) -> None:
        """Start the exchange as soon as a device has copied the arrays to the host."""
        self._reader, self._wait = reader, None
        self._coming.append(self)

    def begin(self, into: Arrays = ()) -> None:
        """Wait for the exchange's arrays from the device, and start it."""
        assert self._reader
        self._wait, self._reader = self._reader(lambda arrays: self._begin(arrays, into, False)), None

    def finish(self, into: Arrays = ()) -> Arrays:
        """Wait for the results, which may be written `into` memory."""
        while self._wait is None:
            first = self._coming.popleft()
            first.begin(into if first is self else ())
        wait, self._wait = self._wait, None
        return wait(into)


@frozen
class Exchange(HostFunction):
    """A function of the host that waits for the other participants of `group`: it is called with no lock held.

    One with `begin` may be started before kernels that do not need its results, and waited for after them.
    """

    group: Any = field(default=None, compare=False)  # a Group; the key has it
    begin: Begin | None = field(default=None, compare=False, repr=False)
    under_way: UnderWay | None = field(default=None, compare=False, repr=False)  # of the half that starts
    ending: UnderWay | None = field(default=None, compare=False, repr=False)  # of the half that waits
    # by device: the memory of results that one after another has
    kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def halves(self) -> tuple[Exchange, Exchange]:
        """The exchange as two: one takes the arrays and starts it, the other waits for the results."""
        assert self.begin
        both = UnderWay(self.begin, self.group.coming)
        return replace(self, results=(), call=both.start, under_way=both), replace(self, call=both.finish, ending=both)

    def over(self, given: Arrays, into: Arrays) -> None:
        """Make it, or this half of it, over memory that the host sees, of a group that `copies`: of what is `given`,
        with the results written `into` theirs."""
        if self.under_way:
            self.under_way.start(*given)
            return
        assert self.begin
        made = self.ending.finish(into) if self.ending else self.begin(given, into, True)(into)
        for a, b in zip(made, into, strict=True):
            if a is not b:
                b[...] = a

    _said = "{}"


class Collective(HostCall):
    """An exchange between the participants of a group, of which every one makes the same."""

    function: Exchange

    @property
    def group(self) -> Group:
        """This participant's view of the group."""
        group: Group = self.function.group
        return group


Step = Launch | HostCall
