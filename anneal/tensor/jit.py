"""jit: capture what a function runs, and replay it without tracing again.

    @jit
    def step(x, y):
        loss = model(x, y)
        loss.backward()
        optimizer.step(loss)
        return loss

The first call with given shapes runs as it stands (and lets optimisers make their state); the second is captured; later
ones copy the arguments into the captured inputs and relaunch the captured kernels. Tensors that the function reads and
assigns (parameters, moments) are updated in place. Nothing stale is replayed:

- another shape, dtype, device or structure of the arguments, or another value of an argument that is not a tensor, is
  captured on its own;
- a tensor that the function reads and somebody reassigned meanwhile is read anew;
- a lazy tensor that still needs a value about to be overwritten keeps a copy, and so does a result of an earlier call;
- a tensor that was lazy when the function read it and was assigned since makes it capture again;
- gradients taken inside stay inside: `.grad` is None afterwards, and adding to one from outside is an error;
- a tensor made from host data, a random number without a device counter, or a read-back inside the function is an
  error: its value would be frozen.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from anneal.backend import Device, Storage, get_device
from anneal.errors import UserError
from anneal.schedule import Plan, donate
from anneal.tensor import execution as _realize
from anneal.tensor._base import assignment_epoch, leaves
from anneal.uop import Op, UOp, arena, dtypes, toposort

if TYPE_CHECKING:
    from anneal.tensor._tensor import Tensor

__all__ = ["JitError", "capturing", "forbid_in_jit", "jit"]

P = ParamSpec("P")
R = TypeVar("R")


class JitError(UserError, RuntimeError):
    """Something inside a jit function would be frozen at its captured value."""


_active: list[_Recorder] = []


def capturing() -> bool:
    """Whether a jit function is running its Python right now."""
    return bool(_active)


def forbid_in_jit(what: str, fix: str) -> None:
    """Raise JitError if a jit function is running: `what` would freeze, `fix` says what to do instead."""
    if _active:
        raise JitError(f"{what} inside a jit function would be frozen at its first value; {fix}")


class _Recorder:
    """What one run of the function did."""

    def __init__(self) -> None:
        self.runs: list[tuple[Plan, list[Storage], list[Storage]]] = []
        self.realized: list[weakref.ref[Tensor]] = []
        self.assigned: list[weakref.ref[Tensor]] = []
        self.made: list[Storage] = []

    def saw(self, plan: Plan, inputs: list[Storage], outputs: list[Storage]) -> None:
        self.runs.append((plan, inputs, outputs))


@contextmanager
def _recording() -> Iterator[_Recorder]:
    r = _Recorder()
    _active.append(r)
    _realize.observers.append(r.saw)
    _realize.realized_watch.append(r.realized)
    _realize.assigned_watch.append(r.assigned)
    outer = Storage.made
    Storage.made = r.made
    try:
        yield r
    finally:
        Storage.made = outer
        _realize.assigned_watch.pop()
        _realize.realized_watch.pop()
        _realize.observers.pop()
        _active.pop()


def _flatten(value: Any, tensors: list[Tensor]) -> Any:
    """Collect the tensors of a nest of tuples, lists and dicts; returns its hashable structure."""
    from anneal.tensor._tensor import Tensor

    if isinstance(value, Tensor):
        tensors.append(value)
        return ("T", value.shape, value.dtype, value.device)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *[_flatten(v, tensors) for v in value])
    if isinstance(value, dict):
        return ("dict", *[(k, _flatten(v, tensors)) for k, v in value.items()])
    try:
        hash(value)
    except TypeError:
        raise JitError(
            f"a jit function takes tensors, hashable values and nests of them, not {type(value).__name__}; "
            "make a Tensor of an array first"
        ) from None
    return ("V", type(value), value)


def _rebuild(value: Any, fresh: Iterator[Tensor]) -> Any:
    from anneal.tensor._tensor import Tensor

    if isinstance(value, Tensor):
        return next(fresh)
    if isinstance(value, (list, tuple)):
        items = [_rebuild(v, fresh) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {k: _rebuild(v, fresh) for k, v in value.items()}
    return value


class _Held:
    """A tensor outside the function whose memory the captured kernels read or write."""

    __slots__ = ("leaf", "ref", "storage", "written")

    def __init__(self, tensor: Tensor, storage: Storage, written: bool) -> None:
        self.ref = weakref.ref(tensor)
        self.storage, self.written = storage, written
        self.leaf = tensor.uop


def _users(leaf: UOp) -> tuple[int, int]:
    flat = leaf
    while flat.op is Op.RESHAPE:
        flat = flat.src[0]
    return sys.getrefcount(leaf), sys.getrefcount(flat)


def _users_of_argument(leaf: UOp) -> tuple[int, int]:
    """`_users` as `_shared` sees it: the argument of a function is one more reference."""
    return _users(leaf)


@cache
def _calibration() -> dict[bool, tuple[int, int]]:
    """What `_users` says of a leaf that its arena and one other object hold; by whether it is reshaped."""
    out = {}
    for reshaped, shape in ((False, (1,)), (True, (1, 1))):
        holder = [_realize.buffer_leaf(Storage(1, dtypes.float32, "cpu"), shape)]
        out[reshaped] = _users_of_argument(holder[0])
    return out


def _shared(leaf: UOp, holders: int) -> bool:
    """Whether somebody beside `holders` known objects uses the leaf's node (a lazy graph, another tensor)."""
    base = _calibration()[leaf.op is Op.RESHAPE]
    counts = _users(leaf)
    extra = holders - 1
    if leaf.op is Op.RESHAPE:
        return counts[0] > base[0] + extra or counts[1] > base[1]
    return counts[0] > base[0] + extra


def _copy_of(device: Device, storage: Storage) -> Any:
    """A new buffer with the contents of `storage`."""
    fresh = device.alloc(storage.size, storage.dtype)
    device.copy(storage.ensure(), fresh, storage.size, storage.dtype)
    return fresh


class _Captured:
    """One captured run, ready to be replayed."""

    def __init__(self, record: _Recorder, arguments: list[Storage], result: Any, results: list[Tensor]) -> None:
        internal = {id(s) for _, _, outputs in record.runs for s in outputs}
        given = {id(s): n for n, s in enumerate(arguments)}
        made = {id(s) for s in record.made if s not in arguments}
        outside: dict[int, Storage] = {}
        for _, inputs, _ in record.runs:
            for s in inputs:
                if id(s) not in internal and id(s) not in given:
                    outside[id(s)] = s
                    if id(s) in made:
                        raise JitError(
                            "a tensor made from host data inside a jit function would be frozen at its first value; "
                            "make it outside the function, or pass it as an argument"
                        )
        self.device = get_device(results[0].device if results else _device_of(record))
        # state: tensors that outlive the call and now show an output of it; `before` is what they showed at its start
        now: dict[int, Tensor] = {}
        for ref in record.realized:
            t = ref()
            shown = _realize.storage_of(t.uop) if t is not None else None
            if t is not None and shown is not None and id(shown) in internal and not any(t is r for r in results):
                now[id(shown)] = t
        self.kept = list(outside.values())  # constants without an owner must outlive the captures
        self.held: list[_Held] = []
        pairs: dict[int, Storage] = {}  # id of the storage read at the start -> storage that carries the state on
        for s in outside.values():
            owner = s.owner() if s.owner is not None else None
            if owner is None:
                continue
            current = _realize.storage_of(owner.uop)
            if current is s:
                self.held.append(_Held(owner, s, written=False))
            elif current is not None and id(current) in now:
                pairs[id(s)] = current
        for t in now.values():
            shown = _realize.storage_of(t.uop)
            assert shown is not None
            self.held.append(_Held(t, shown, written=True))
        self.epoch = assignment_epoch()
        self.arguments = arguments
        self.result = result
        self.result_tensors = [weakref.ref(r) for r in results]
        self.result_storages = [_realize.storage_of(r.uop) for r in results]
        self.result_shapes = [r.shape for r in results]
        self.result_leaves = [r.uop for r in results]
        # bind: state is read from and written to the storage that carries it
        self.runs: list[_realize.Execution] = []
        self.copies: list[tuple[Storage, Storage]] = []
        carried = {id(v): k for k, v in pairs.items()}
        last_reader = {id(s): n for n, (_, inputs, _) in enumerate(record.runs) for s in inputs}
        for n, (plan, inputs, outputs) in enumerate(record.runs):
            wanted: dict[int, int] = {}
            for value, s in zip(plan.outputs, outputs, strict=True):
                source = carried.get(id(s))
                if source is not None and last_reader[source] == n:
                    wanted[value] = max(i for i, x in enumerate(inputs) if id(x) == source)
            done: dict[int, int] = {}
            if wanted:
                plan, done = donate(plan, wanted)
            bound_in = [pairs.get(id(s), s) for s in inputs]
            bound_out = list(outputs)
            for k, (value, s) in enumerate(zip(plan.outputs, outputs, strict=True)):
                source = carried.get(id(s))
                if source is not None and value not in done and (source in last_reader and last_reader[source] >= n):
                    aside = Storage(s.size, s.dtype, s.device)
                    bound_out[k] = aside
                    self.copies.append((s, aside))
            self.runs.append(_realize.Execution(plan, self.device, bound_in, bound_out))

    def replay(self, arguments: list[Storage]) -> Any:
        from anneal.tensor._tensor import Tensor

        device = self.device
        for mine, theirs in zip(self.arguments, arguments, strict=True):
            if mine is not theirs:
                self._load(mine, theirs)
        self._protect()
        self._keep_results()
        for run in self.runs:
            run.run()
        for state, aside in self.copies:
            device.copy(aside.ensure(), state.ensure(), state.size, state.dtype)
        fresh = []
        for leaf in self.result_leaves:
            fresh.append(Tensor._from_uop(leaf, device.name))
        self.result_tensors = [weakref.ref(t) for t in fresh]
        return _rebuild(self.result, iter(fresh))

    def _load(self, mine: Storage, theirs: Storage) -> None:
        if theirs.host is not None:
            self.device.upload(mine.ensure(), theirs.host)
        else:
            self.device.copy(theirs.ensure(), mine.ensure(), mine.size, mine.dtype)

    def _protect(self) -> None:
        """Read reassigned tensors anew; give lazy readers of what is about to be overwritten a copy of it."""
        swept = False
        for h in self.held:
            t = h.ref()
            if t is None:
                continue
            if t.uop is not h.leaf:
                t.realize()
                s = _realize.storage_of(t.uop)
                assert s is not None
                if s is not h.storage:
                    self._load(h.storage, s)
                if h.written:
                    t.uop = h.leaf
            if not h.written:
                continue
            if _shared(h.leaf, 2):  # the tensor and `h` hold it
                if not swept:
                    arena().sweep()
                    swept = True
                if _shared(h.leaf, 2):
                    self._detach(h, t)

    def _detach(self, h: _Held, t: Tensor) -> None:
        old, buffer = h.storage, h.storage.buffer
        fresh = Storage(old.size, old.dtype, old.device)
        fresh.buffer = buffer
        old.buffer = _copy_of(self.device, old)
        h.storage = fresh
        h.leaf = t.uop = _realize.buffer_leaf(fresh, t.shape)
        fresh.owner = weakref.ref(t)

    def _keep_results(self) -> None:
        for k, ref in enumerate(self.result_tensors):
            if ref() is None and not _shared(self.result_leaves[k], 1):
                continue
            old = self.result_storages[k]
            assert old is not None
            fresh = Storage(old.size, old.dtype, old.device)
            fresh.buffer = old.buffer
            old.buffer = _copy_of(self.device, old)
            self.result_storages[k] = fresh
            self.result_leaves[k] = _realize.buffer_leaf(fresh, self.result_shapes[k])


def _device_of(record: _Recorder) -> str:
    for _, inputs, outputs in record.runs:
        for s in (*outputs, *inputs):
            return s.device
    raise JitError("a jit function ran nothing: it must realize or return at least one tensor")


class Jit(Generic[P, R]):
    """A function with its captures; see the module's docstring."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.captures: dict[Any, _Captured | None] = {}
        self.read: dict[Any, list[weakref.ref[Tensor]]] = {}  # after the first call: the tensors that it read
        update_wrapper(self, function)

    def __get__(self, instance: object, owner: type | None = None) -> Jit[..., R]:
        """Bind to an instance: each instance has captures of its own."""
        if instance is None:
            return self
        name = f"__jit_{self.function.__name__}"
        bound = instance.__dict__.get(name)
        if bound is None:
            bound = instance.__dict__[name] = Jit(self.function.__get__(instance, owner))
        return bound

    def reset(self) -> None:
        """Forget every capture."""
        self.captures.clear()
        self.read.clear()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if _active:
            return self.function(*args, **kwargs)  # a jit inside a jit is part of the outer one
        tensors: list[Tensor] = []
        key = _flatten((args, kwargs), tensors)
        for t in tensors:
            if t.requires_grad:
                raise JitError("an argument of a jit function may not require a gradient; read the parameter inside it")
        if tensors:
            _realize.realize(tensors)
        storages = [s for t in tensors if (s := _realize.storage_of(t.uop)) is not None]
        key = (key, tuple([storages.index(s) for s in storages]))  # the same tensor passed twice is another program
        captured = self.captures.get(key)
        if captured is not None and captured.epoch == assignment_epoch():
            return captured.replay(storages)  # type: ignore[no-any-return]
        # what the function reads is computed first: a pending assignment is no part of the function
        _realize.realize([live for r in self.read.pop(key, ()) if (live := r()) is not None])
        before = {id(t): t.grad for t in leaves() if t.grad is not None}
        _realize.realize(list(before.values()))
        with _recording() as record:
            result = self.function(*args, **kwargs)
            results: list[Tensor] = []
            _flatten(result, results)
            if results:
                _realize.realize(results)
            _settle(record)
        used = {id(s) for _, inputs, _ in record.runs for s in inputs}
        for leaf in leaves():
            old = before.get(id(leaf))
            if leaf.grad is not None and leaf.grad is not old:
                shown = None if old is None else _realize.storage_of(old.uop)
                if shown is not None and (id(shown) in used or any(u.arg is shown for u in toposort((leaf.grad.uop,)))):
                    raise JitError(
                        f"a jit function added to the gradient of a tensor of shape {leaf.shape} from outside; take the "
                        "gradient and use it inside one function, and start with zero_grad()"
                    )
                leaf.grad = None  # it would not follow the replays
        if key not in self.captures:
            self.captures[key] = None
            self.read[key] = _owners(record)
            return result
        # the captured inputs are copies, so that the caller's own tensors are never overwritten
        own = []
        for s in storages:
            copy = Storage(s.size, s.dtype, s.device)
            copy.buffer = _copy_of(get_device(s.device), s)
            own.append(copy)
        swap = {id(s): c for s, c in zip(storages, own, strict=True)}
        record.runs = [(p, [swap.get(id(s), s) for s in i], o) for p, i, o in record.runs]
        self.captures[key] = _Captured(record, own, result, results)
        return result


def _settle(record: _Recorder) -> None:
    """Compute what the function assigned and left lazy, so that the update is part of the call."""
    pending = [t for r in record.assigned if (t := r()) is not None]
    _realize.realize(list({id(t): t for t in pending}.values()))


def _owners(record: _Recorder) -> list[weakref.ref[Tensor]]:
    """The tensors whose memory the function read."""
    found = {id(s): s.owner for _, inputs, _ in record.runs for s in inputs if s.owner is not None}
    return list(found.values())


def jit(function: Callable[P, R]) -> Jit[P, R]:
    """Wrap `function` so that later calls replay the kernels of its second call.

    Arguments: tensors, hashable values, and nests of them. Results: tensors and nests of them.
    Raises JitError where a value would be frozen (see the module's docstring).

    >>> from anneal.tensor import Tensor
    >>> @jit
    ... def twice(x):
    ...     return x * 2
    >>> [twice(Tensor([float(i)])).item() for i in range(4)]
    [0.0, 2.0, 4.0, 6.0]
    """
    return Jit(function)
