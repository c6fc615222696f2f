"""Late calls: captured calls whose results are late tensors, so that they are computed with what is made of them.

A loop calls a captured function, takes the gradients of what it makes of the results, and computes all of that with an
optimiser's step. Where nothing is computed in between, round after round, the call need not be computed by itself: its
results have templates (`late.py`), as those of the same call without jit have, and the round is one launch. Where
something is computed between a call and its backward, the call is launched and keeps what its backward reads
(`flowing.py`).

A late call keeps the promises of one that is launched: a leaf that changes between the call and its backward is an
error, and so is a second backward of what it gave.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from operator import attrgetter, is_
from weakref import ref

from anneal.errors import GradientError
from anneal.runtime.context import here
from anneal.runtime.handle import Handle, Handles
from anneal.runtime.nodes import base_of, sources_of
from anneal.runtime.numbering import Log, is_computed_late
from anneal.runtime.uses import made_of
from anneal.uop import Nodes, UOp, toposort

_ROUNDS = 2  # calls, one after another, after which those of a loop are late
_WAIT = 32  # calls that are launched after one that should have been
_MOST = 1 << 12  # such calls at most: after each more it is twice as many
_CALLS = 64  # since something was computed: of more, the first ones are not followed
_NODES, _GRADIENTS = attrgetter("uop"), attrgetter("_grad")


class CallHistory:
    """What the calls of a captured function were like, which says whether the next one is late."""

    def __init__(self) -> None:
        self._whole, self._wait = 0, _WAIT

    @property
    def late(self) -> bool:
        """True if the next call is late."""
        return self._whole >= _ROUNDS

    def launched(self, whole: bool) -> None:
        """Note a call that was launched.

        Args:
            whole: whether nothing was computed between the call and its backward, and the backward is computed with
                what is made of it.
        """
        self._whole = self._whole + 1 if whole or self._whole < 0 else 0

    def missed(self) -> None:
        """Note a late call that should have been launched."""
        if self.late:
            self._whole, self._wait = -self._wait, min(2 * self._wait, _MOST)


class LateCall:
    """A late call.

    Args:
        name: the function's, for messages.
        history: that of the function.
        leaves: the leaves that it read and that want gradients.
        results: its results through which gradients flow.
        log: that of the calls with them.
    """

    __slots__ = ("_ended", "_history", "_leaves", "_log", "_name", "_nodes", "_results", "_spent")

    def __init__(self, name: str, history: CallHistory, leaves: Handles, results: Handles, log: Log) -> None:
        self._name, self._history, self._log = name, history, log
        self._leaves, self._nodes = leaves, list(map(_NODES, leaves))
        self._results = list(map(ref, results))
        self._spent = False  # whether its backward was taken

    def passed(self, result: Handle) -> bool:
        """Whether the backward of a result passes this call.

        Raises GradientError where it does so a second time, or a leaf has other values since the call.

        Args:
            result: the result.
        """
        if id(ref(result)) not in made_of(self._results, self._log):
            return False
        if self._spent:
            raise GradientError(
                f"backward: passes the call of {self._name} a second time, and what it kept for its backward went with "
                "the first one: use backward(retain_graph=True) then"
            )
        if not all(map(is_, map(_NODES, self._leaves), self._nodes)):
            for t, _ in _changed(self._leaves, self._nodes):
                raise self._error(t)
        if not all(map(is_, map(_GRADIENTS, self._leaves), repeat(None))):
            self._history.missed()  # gradients add up: they would be one graph, which grows with each call
        return True

    def spend(self) -> None:
        """No backward passes the call again."""
        self._spent = True
        for t in self._live():
            t._spent = True

    def _error(self, t: Handle) -> GradientError:
        return GradientError(
            "backward: one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: a leaf of shape {t.uop.shape} that the call of {self._name} read has other values since"
        )

    def _live(self) -> list[Handle]:
        return [t for r in self._results if (t := r()) is not None]

    def to_compute(self) -> list[Handle]:
        """The results that are to be computed with the rest: no backward passes them again, and who reads them later
        would compute them a second time."""
        return self._live() if self._spent else []

    def end(self) -> None:
        """Something is computed: what is made of the results later was not computed with them."""
        if not self._spent:
            self._history.missed()
            self._ended = here.computations, list(map(ref, self._leaves)), [ref(base_of(u)) for u in self._nodes]
            here.missed.append(self)
        self._leaves, self._nodes = (), []

    def check(self, result: Handle) -> bool:
        """Whether a backward may still pass this call, whose numbering ended before one did.

        Raises GradientError where that of a result passes a leaf that has other values since the call.

        Args:
            result: the result.
        """
        at, leaves, nodes = self._ended
        if not self._live() and here.computations > at + _ROUNDS:
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
    """The leaves that show other memory than these nodes, and that."""
    rows = [(t, base_of(u)) for t, u in zip(leaves, nodes, strict=True)]
    return [(t, u) for t, u in rows if is_computed_late(t) or base_of(t.uop) is not u]


def note(call: LateCall) -> None:
    """Keep what is known of a call until something is computed.

    Args:
        call: the call.
    """
    if len(here.calls) >= _CALLS:
        here.calls.pop(0).end()
    here.calls.append(call)


def passed_calls(result: Handle) -> list[LateCall]:
    """The late calls that the backward of a result passes.

    Raises GradientError as `LateCall.passed`.

    Args:
        result: the result.
    """
    if here.missed:
        here.missed = deque([call for call in here.missed if call.check(result)], here.missed.maxlen)
    return [call for call in here.calls if call.passed(result)]
