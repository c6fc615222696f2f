"""Late calls: captured calls (`flowing.py`) whose results are late tensors, computed with what is made of them."""

from __future__ import annotations

from operator import attrgetter, is_
from weakref import ref

from anneal.errors import GradientError
from anneal.runtime.context import here
from anneal.runtime.handle import Handle, Handles
from anneal.runtime.late import is_computed_late
from anneal.runtime.nodes import base_of, is_realized, sources_of
from anneal.runtime.numbering import Log
from anneal.runtime.uses import made_of
from anneal.uop import Nodes, UOp, toposort

_ROUNDS = 2  # of a loop, one after another, after which its calls are late
_WAIT = 32  # calls that are launched after one that should have been
_MOST = 1 << 12  # such calls at most: after each more it is twice as many
TOGETHER = 4  # late calls since something was computed: more would be another plan for each number of them
_NODES, _GRADIENTS = attrgetter("uop"), attrgetter("_grad")


class CallHistory:
    """The history of the calls of a captured function, which says whether the next one is late."""

    def __init__(self) -> None:
        self._whole, self._wait = 0, _WAIT
        self.late = False  # whether the next call is late
        self._computed = -1  # when the last call was counted

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
            raise GradientError(
                f"backward: passes the call of {self._name} a second time, and what it kept for its backward went with "
                "the first one: use backward(retain_graph=True) then"
            )
        if not all(map(is_, map(_NODES, self._leaves), self._nodes)):
            for t, _ in _changed(self._leaves, self._nodes):
                raise self._error(t)
        there = set(map(_GRADIENTS, self._leaves)) - {None}
        if there and any(g.late or not is_realized(g.uop) for g in there if isinstance(g, Handle)):
            self._history.missed()  # gradients add up that wait: they would be one graph, which grows with each call
        return True

    def spend(self) -> None:
        """No backward passes the call again."""
        self.spent = True
        for r in self.results:
            if (t := r()) is not None:
                t._spent = True

    def _error(self, t: Handle) -> GradientError:
        return GradientError(
            "backward: one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: a leaf of shape {t.uop.shape} that the call of {self._name} read has other values since"
        )

    def end(self) -> None:
        """Something is computed: what is made of the results later was not computed with them."""
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
        there = [(t, u) for r, node in zip(leaves, nodes) if (t := r()) is not None and (u := node()) is not None]
        changed = _changed([t for t, _ in there], [u for _, u in there])
        if changed:
            below = set(toposort((result.uop,), sources=sources_of))
            for t, u in changed:
                if u in below:
                    raise self._error(t)
        return True


def _changed(leaves: Handles, nodes: Nodes) -> list[tuple[Handle, UOp]]:
    """The leaves that want gradients and show other memory than these nodes, each with its node's."""
    rows = [(t, base_of(u)) for t, u in zip(leaves, nodes, strict=True) if t._leaf and t._wants]
    return [(t, u) for t, u in rows if is_computed_late(t) or base_of(t.uop) is not u]


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
