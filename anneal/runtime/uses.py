"""Uses: the calls that were made with each tensor that a gradient flows through, in order.

Two tensors of one expression are one node, and folding looks through nodes; so a graph does not say which tensor an op
was called with. To put a hook between a tensor and its uses, `transforms/hooks.py` repeats the calls with that tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, is_
from typing import Any, TypeVar
from weakref import ref

from anneal.errors import GradientError
from anneal.rewrite import rebuild
from anneal.runtime.context import here, modes
from anneal.runtime.handle import UNSEEN, Handle, Handles, Ref, emptied, filled, flat
from anneal.runtime.nodes import base_of, is_computed_late, is_realized, sources_of, storage_of, with_lines
from anneal.runtime.numbering import Log, Numbering, numbering_of
from anneal.uop import Nodes, Some, UOp, toposort

_ROUNDS = 2  # of a loop, one after another, after which its calls are late
_WAIT = 32  # calls that are launched, not late, after a late call that should have been launched
_MOST = 1 << 12  # such calls at most: after each more it is twice as many
TOGETHER = 4  # late calls since something was computed; each number of them has a plan of its own
_NODES, _GRADIENTS = attrgetter("uop"), attrgetter("_grad")

Run = Callable[..., Any]  # a call of an op, as it stands
Fun = Callable[..., Any]
F = TypeVar("F", bound=Fun)  # of a decorator
Args = tuple[Any, ...]
Options = dict[str, Any]


class Given:
    """The arguments that a call is remembered with, the tensors among them by their templates.

    Args:
        args: the call's arguments, and `options` by name.
        tensors: those in them, in order, with their `templates`.
        results: which results are new.
        changed: the numbers of the tensors that it gives other values.
    """

    def __init__(
        self, args: Any, options: Any, tensors: Handles, templates: Nodes, results: list[bool], changed: Any
    ) -> None:
        self.called_with = emptied((args, options))
        rows = zip(tensors, templates, strict=True)
        self.tensors = [(template, type(t), t._wants, t._device) for t, template in rows]
        self.results, self.changed, self.grad, self.autocast = results, changed, here.grad, here.autocast

    def made_again(self, log: Log, run: Run, given: Sequence[Handle | None]) -> list[Any]:
        """The new results, and the arguments that the call changes, of the same call with some other tensors."""
        tensors = [
            cls._from_uop(log.node(template), device, wants) if t is None else t
            for t, (template, cls, wants, device) in zip(given, self.tensors, strict=True)
        ]
        args, options = filled(self.called_with, iter(tensors))
        with modes(defers=False, became=None, grad=self.grad, autocast=self.autocast):
            results = flat(run(*args, **options))
        return [*[t for t, new in zip(results, self.results, strict=True) if new], *[tensors[i] for i in self.changed]]


class Unknown:
    """A call that is not remembered: only its results' nodes show where they stand in graphs.

    Args:
        n: the numbering of this thread.
        args: the tensors that the call gets, in nests.
    """

    def __init__(self, n: Numbering, args: Any) -> None:
        self.n, self.became = n, []  # type: ignore[var-annotated]  # tensors that the call gave other values
        self.tensors = [t for t in flat(args) if isinstance(t, Handle) and t._wants]
        self.nodes = [t.uop for t in self.tensors]
        self.used = [t._used or n.seen for t in self.tensors]

    def made_by(self, run: Run, args: Args, options: Options, ends: bool = True) -> Any:
        """The result of the call, which is noted with it if it `ends` here."""
        outer, here.became = here.became, self.became
        try:
            result = plainly(run, args, options)
        finally:
            here.became = outer
        if ends:
            self.end(result)
        return result

    def end(self, result: Any, noted: bool = True) -> None:
        """The call gave `result`; it is `noted` unless it is known otherwise."""
        for t, used in zip(self.tensors, self.used, strict=True):
            t._used = used
        for t in self.became:  # nothing has used their new values; some want a gradient only now
            t._used = 0
        if not noted:
            return
        made = [t for t in (*flat(result), *self.became) if isinstance(t, Handle) and t._wants]
        if made:
            _note(self.n, self.tensors, self.nodes, made)


def plainly(run: Run, args: Args, options: Options) -> Any:
    """Run a call without making its results late; calls inside it are part of it."""
    here.defers = False
    try:
        return run(*args, **options)
    finally:
        here.defers = True


def used_unseen(tensors: Handles) -> None:
    """Mark tensors as used by a call that no log has: a hook that is registered on them afterwards is an error."""
    for t in tensors:
        if t._wants and not t._leaf:
            t._used = UNSEEN


def note_call(tensors: Handles, nodes: Nodes, made: Handles, run: Run | None = None, args: Args = ()) -> None:
    """Note a call that is no op's: it took tensors that had these `nodes`, and gave the tensors `made`.

    Args:
        run: a function that makes it again, of `args`, in which the tensors are.
    """
    n = numbering_of()
    if n is None:
        used_unseen(tensors)
    elif run is None:
        _note(n, tensors, nodes, made)
    else:
        given = Given(args, {}, tensors, list(map(n.learn, nodes)), [True] * len(made), ())
        n.note((run, given, list(map(ref, tensors)), list(map(ref, made))))


def _note(n: Numbering, tensors: Handles, nodes: Nodes, made: Handles) -> None:
    given = list(map(n.learn, nodes)), n.all_of(made)
    n.note((None, given, list(map(ref, tensors)), list(map(ref, made))))


def made_of(tensors: Iterable[Ref], since: Log, place: int) -> set[int]:
    """The ids of the references to some tensors, and to those that known calls made of them.

    Args:
        tensors: references to the tensors.
        since: the first log with such calls.
        place: where they begin in it.
    """
    found = set(map(id, tensors))
    logs = []
    for log in reversed(here.logs):
        logs.append(log)
        if log is since:
            break
    for log in reversed(logs):
        for _, _, given, made in log[place if log is since else 0 :]:
            if not found.isdisjoint(map(id, given)):
                found.update(map(id, made))
    return found


class KnownCalls:
    """The calls that are known since a tensor got its values. It raises LookupError where they are not known.

    Args:
        x: the tensor.
    """

    def __init__(self, x: Handle) -> None:
        mine = ref(x)
        self._logs: list[Log] = []
        self._place = -1
        self.used = False  # whether there is a call with it
        for log in here.logs:
            for i, (_, _, refs, made) in enumerate(log):
                self.used |= [r for r in refs if r is mine] != []
                if [r for r in made if r is mine]:
                    self._logs, self._place, self.used = [], i + 1, False
            self._logs.append(log)
        if self._place < 0:
            raise LookupError
        self._mine = mine

    def begin_with(self, y: UOp, again: Callable[[Any], Handle]) -> list[Log]:
        """Put a first call before the others: it gives the tensor the node `y`, or that of the result of `again`.
        Returns the logs whose calls are to be made again."""
        self._logs[0].insert(self._place, (again, ref(y), [self._mine], [self._mine]))
        return self._logs if self.used else []


def make_again(logs: Iterable[Log]) -> None:
    """Repeat calls whose tensors have other nodes since: the tensors that still exist show the same values by the new
    nodes.

    Args:
        logs: the calls, in order.

    Raises GradientError where a call cannot be made again.
    """
    new: dict[int, Any] = {}
    done: dict[int, tuple[Any, Any]] = {}
    below = set()  # the memory that such nodes are over
    try:
        for log in logs:
            for run, given, refs, made in log:
                results = []
                tensors = [new.get(id(r)) for r in refs]
                if isinstance(given, ref):
                    x, u = refs[0](), given()
                    if tensors[0] is not None:
                        results = [run(tensors[0])]
                    elif x is not None and u is not None:
                        results = [type(x)._from_uop(u, x._device, True)]
                        below.add(storage_of(u.src[0]))
                elif any(t is not None for t in tensors):
                    known = isinstance(given, Given)
                    results = given.made_again(log, run, tensors) if known else _replaced(log, tensors, *given)
                for i, r in enumerate(made):
                    new.pop(id(r), None)
                    done.pop(id(r), None)
                    if results:
                        new[id(r)], done[id(r)] = results[i], (r, results[i])
    except LookupError:
        raise GradientError(
            "a hook, or retain_grad, comes after the tensor was used and something was computed: register it before"
        ) from None
    for r, t in done.values():
        old = r()
        if old is None or old._spent or not old._wants:
            continue
        storage = storage_of(old.uop)
        if storage is None or storage in below:
            old.late, old.uop = None, t.uop
        else:
            storage.origin = t.uop


def _replaced(log: Log, tensors: list[Any], given: Nodes, made: Nodes) -> list[Any]:
    """New results of a call that is not remembered, by their graphs."""
    known = {log.node(u): t.uop for t, u in zip(tensors, given, strict=True) if t is not None}
    like = next(t for t in tensors if t is not None)
    out = []
    for template in made:
        old = log.node(template)
        node = rebuild(old, with_lines, dict(known))
        if node is old:
            raise GradientError(
                "a hook, or retain_grad, comes after a use of the tensor that does not show in the graph: register it "
                "before the tensor is used"
            )
        out.append(like._from_uop(node, like._device, True))
    return out


# -- late calls of captured functions --------------------------------------------------------------------------------
# Late calls: captured calls (`flowing.py`) whose results are late tensors, computed with what is made of them.


class CallHistory:
    """The history of the calls of a captured function, which says whether the next one is late."""

    late = False  # whether the next call is late
    _whole, _wait = 0, _WAIT
    _computed = -1  # when the last call was counted

    def launched(self, whole: bool) -> None:
        """Note a call that was launched.

        Args:
            whole: whether nothing was computed between the call and its backward, and the backward is computed with
                what is made of it.
        """
        if not whole and self._whole >= 0:
            self._whole = 0
        elif self._whole < 0 or self._computed != here.computations:  # several calls of one round count once
            self._whole += 1
        self._computed = here.computations
        self.late = self._whole >= _ROUNDS

    def missed(self) -> None:
        """Note a late call that should have been launched."""
        if self.late:
            self._whole, self._wait, self.late = -self._wait, min(2 * self._wait, _MOST), False


class LateCall:
    """A late call, which this thread keeps until something is computed.

    Where a loop computes nothing between its calls of a captured function and their backwards, call, loss, backward and
    optimiser are one launch so. Where it does, a call has a launch of its own, which keeps what its backward reads. A
    leaf that changes between a late call and its backward is an error, too, and so is a second backward without
    `retain_graph`.

    Args:
        name: the function's, for messages.
        history: that of the function.
        leaves: what it read that wants gradients; what is no leaf may change.
        results: its results through which gradients flow.
        log: that of the calls with them.
    """

    def __init__(self, name: str, history: CallHistory, leaves: Handles, results: Handles, log: Log) -> None:
        self._name, self._history = name, history
        self._log, self._place = log, len(log)
        self._leaves, self._nodes = leaves, list(map(_NODES, leaves))
        self.results = list(map(ref, results))
        self.spent = False  # whether its backward was taken
        here.calls.append(self)

    def passed(self, result: Handle) -> bool:
        """True if the backward of a result passes this call.

        Raises GradientError where it does so a second time, or a leaf has other values since the call.

        Args:
            result: the result.
        """
        if id(ref(result)) not in made_of(self.results, self._log, self._place):
            return False
        if self.spent:
            raise second_backward(self._name)
        if not all(map(is_, map(_NODES, self._leaves), self._nodes)):
            check_unchanged(self._name, self._leaves, list(map(base_of, self._nodes)))
        there = set(map(_GRADIENTS, self._leaves)) - {None}
        if there and any(g.late or not is_realized(g.uop) for g in there if isinstance(g, Handle)):
            self._history.missed()  # gradients add up that wait: they would be one graph, which grows with each call
        return True

    def spend(self) -> None:
        """Note that no backward passes the call again."""
        self.spent = True
        for r in self.results:
            if (t := r()) is not None:
                t._spent = True

    def end(self) -> None:
        """End the call, since something is computed: what is made of its results later is not computed with them."""
        if not self.spent:
            self._history.missed()
            self._ended = here.computations, list(map(ref, self._leaves)), [ref(base_of(u)) for u in self._nodes]
            here.missed.append(self)
        self._leaves, self._nodes = (), []

    def check(self, result: Handle) -> bool:
        """True if a backward may still pass this call, which ended before one did.

        Raises GradientError where that of a result passes a leaf that has other values since the call.

        Args:
            result: the result.
        """
        at, leaves, nodes = self._ended
        if not any(r() is not None for r in self.results) and here.computations > at + _ROUNDS:
            return False
        check_unchanged(self._name, [r() for r in leaves], [node() for node in nodes], result)
        return True


def check_unchanged(name: str, leaves: Sequence[Handle | None], memory: Some, result: Handle | None = None) -> None:
    """Raise GradientError where a leaf that a captured call read, and that wants a gradient, shows other memory now: of
    a `result`, if that is below it.

    Args:
        name: the captured function's.
        leaves: those that are left, with the `memory` that they showed.
    """
    below: set[UOp] = set()
    for t, u in zip(leaves, memory, strict=True):
        if t is None or u is None or not (t._leaf and t._wants and (is_computed_late(t) or base_of(t.uop) is not u)):
            continue
        if result is not None and not below:
            below = set(toposort(result.uop, sources=sources_of))
        if result is None or u in below:
            raise GradientError(
                "backward: one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: a leaf of shape {t.uop.shape} that the call of {name} read has other values since"
            )


def second_backward(name: str) -> GradientError:
    """The error of a second backward through a call of the captured function `name`."""
    return GradientError(
        f"backward: passes the call of {name} a second time, and what it kept for its backward went with the first "
        "one: use backward(retain_graph=True) then"
    )


def passed_calls(result: Handle) -> list[LateCall]:
    """The late calls that the backward of a result passes.

    Raises GradientError as `LateCall.passed`.

    Args:
        result: the result.
    """
    if here.missed:
        kept = [call for call in here.missed if call.check(result)]
        here.missed.clear()
        here.missed.extend(kept)
    return [call for call in here.calls if call.passed(result)]
