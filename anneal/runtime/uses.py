"""Uses: the calls that were made with each tensor that a gradient flows through, in order.

Two tensors of one expression are one node, and folding looks through nodes; so a graph does not say which tensor an op
was called with. Who puts something between a tensor and its uses (`transforms/hooks.py`) has the calls with it made
again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import ref

from anneal.errors import GradientError
from anneal.rewrite import rebuild
from anneal.runtime.context import here
from anneal.runtime.handle import SEEN, UNSEEN, Handle, Handles, Ref
from anneal.runtime.nests import emptied, filled, flat
from anneal.runtime.nodes import storage_of
from anneal.runtime.numbering import Log, Numbering, numbering_of
from anneal.uop import Nodes, UOp, arena

Run = Callable[..., Any]  # a call of an op, as it stands
Fun = Callable[..., Any]
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
        self, args: Any, options: Any, tensors: list[Handle], templates: list[UOp], results: list[bool], changed: Any
    ) -> None:
        self.args, self.options = emptied(args), {k: emptied(v) for k, v in options.items()}
        rows = zip(tensors, templates, strict=True)
        self.tensors = [(template, type(t), t._wants, t._device) for t, template in rows]
        self.results, self.changed, self.grad, self.autocast = results, changed, here.grad, here.autocast

    def made_again(self, log: Log, run: Run, given: Sequence[Handle | None]) -> list[Any]:
        """The new results, and the arguments that the call changes, of the same call with some other tensors."""
        tensors = [
            _stand_in(cls, log.node(template), wants, device) if t is None else t
            for t, (template, cls, wants, device) in zip(given, self.tensors, strict=True)
        ]
        found = iter(tensors)
        args = filled(self.args, found)
        options = {k: filled(v, found) for k, v in self.options.items()}
        here.grad, here.autocast = self.grad, self.autocast
        results = flat(run(*args, **options))
        return [*[t for t, new in zip(results, self.results, strict=True) if new], *[tensors[i] for i in self.changed]]


class Unknown:
    """A call that is not remembered: where its results stand in graphs is known by their nodes alone.

    Args:
        n: the numbering of this thread.
        args: the tensors that the call gets, in nests.
    """

    def __init__(self, n: Numbering, args: Any) -> None:
        self.n, self.became = n, []  # type: ignore[var-annotated]  # tensors that the call gave other values
        self.tensors = [t for t in flat(args) if isinstance(t, Handle) and t._wants]
        self.nodes = [t.uop for t in self.tensors]
        self.used = [t._used or SEEN for t in self.tensors]

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
        if not noted:
            return
        made = [t for t in (*flat(result), *self.became) if isinstance(t, Handle) and t._wants]
        if made:
            _note(self.n, self.tensors, self.nodes, made)


def plainly(run: Run, args: Args, options: Options) -> Any:
    """A call as it stands; what it calls is part of it."""
    here.defers = False
    try:
        return run(*args, **options)
    finally:
        here.defers = True


def note_call(tensors: Handles, nodes: Nodes, made: Handles) -> None:
    """A call that is no op's, of tensors that had these `nodes`, gave the tensors `made`."""
    n = numbering_of()
    if n is None:
        for t in tensors:
            t._used = UNSEEN
    else:
        _note(n, tensors, nodes, made)


def _note(n: Numbering, tensors: Handles, nodes: Nodes, made: Handles) -> None:
    given = list(map(n.learn, nodes)), [n.learn(t.uop) for t in made]
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
                self.used |= any(r is mine for r in refs)
                if any(r is mine for r in made):
                    self._logs, self._place, self.used = [], i + 1, False
            self._logs.append(log)
        if self._place < 0:
            raise LookupError
        self._mine = mine

    def begin_with(self, y: UOp, again: Callable[[Any], Handle]) -> None:
        """The first of them is one that gives the tensor another node, `y` or that of what `again` makes of it."""
        self._logs[0].insert(self._place, (again, ref(y), [self._mine], [self._mine]))
        if self.used:
            _made_again(self._logs)


def _made_again(logs: Iterable[Log]) -> None:
    """Make calls again, where what they were made with has another node since: tensors that live show the same values
    by the new nodes.

    Raises GradientError where a call cannot be made again.
    """
    new: dict[int, Any] = {}
    done: dict[int, tuple[Any, Any]] = {}
    grad, defers, became, autocast = here.grad, here.defers, here.became, here.autocast
    here.defers, here.became = False, None
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
                        results = [_stand_in(type(x), u, True, x._device)]
                elif tensors.count(None) < len(tensors):
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
    finally:
        here.grad, here.defers, here.became, here.autocast = grad, defers, became, autocast
    for r, t in done.values():
        old = r()
        if old is None or old._spent or not old._wants:
            continue
        storage = storage_of(old.uop)
        if storage is None:
            old.late, old.uop = None, t.uop
        else:
            storage.origin = t.uop


def _replaced(log: Log, tensors: list[Any], given: list[UOp], made: list[UOp]) -> list[Any]:
    """New results of a call that is not remembered, by their graphs."""
    known = {log.node(u): t.uop for t, u in zip(tensors, given, strict=True) if t is not None}
    like = next(t for t in tensors if t is not None)
    again = arena().again
    out = []
    for template in made:
        old = log.node(template)
        node = rebuild(old, lambda v, src: v if src == v.src else again(v, src, v.arg), dict(known))
        if node is old:
            raise GradientError(
                "a hook, or retain_grad, comes after a use of the tensor that does not show in the graph: register it "
                "before the tensor is used"
            )
        out.append(_stand_in(type(like), node, True, like._device))
    return out


def _stand_in(cls: type[Handle], u: UOp, wants: bool, device: str) -> Handle:
    t = cls._from_uop(u, device)
    t._wants, t._leaf = wants, not wants
    return t
