"""The backward pass of a captured call (`runtime/flowing.py`): it is replayed, once for each set of cotangents.

The gradient of the call's graph is taken when that is traced. What it reads of the forward pass are the residuals,
which the forward pass gives besides its results. A call's results remember a node with a derivative, which has the
call's memory: a gradient that comes there runs the backward pass on it. Where gradients of the gradient may be wanted,
and where somebody looks at graphs, the gradient is the graph of what the call read."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from anneal import runtime
from anneal.errors import JitError
from anneal.rewrite import over, rebuild, value_of
from anneal.runtime import Again, base_of, here, is_realized, memory_of, modes, over_memory, parameters_like
from anneal.schedule import BUILDING
from anneal.transforms.walks import Derivative, backward_phase, differentiated, number_of, paths, pull_back, whole
from anneal.uop import ALU, MOVEMENT, GraphFunction, Known, Nodes, Op, Some, Src, UOp, arena, const, toposort
from anneal.uop.sizes import Sizes

_STEPS = 8  # of a loop, which are known again
_NUMBERS = 4  # cotangents that are numbers have backward passes of their own, up to so many


class Backward:
    """The gradients of one captured function; the arguments are those of `captured_backward`."""

    strange = 0  # how many of the last steps, one after another, were new
    alone = False  # whether its gradients are computed by themselves alone

    def __init__(self, device: str, function: GraphFunction, flowing: Sequence[int], inputs: Sequence[int]) -> None:
        self.name, self.device = function.name.partition(" ")[0], device
        self.holes, self.inputs = function.parameters, list(inputs)
        self.results = results = [function.results[n] for n in flowing]
        self.cotangents = parameters_like(results, "cotangent")
        # placeholders of the results' values, since a result does not hold itself
        self.values = parameters_like(results, "result")
        order = toposort(results)
        functions = [u.arg.derivative for u in order if u.op is Op.BUFFER]
        if any(d.hooks is not None or d.name.startswith("a backward hook") for d in functions):
            raise JitError("a hook is called with a gradient inside")
        self._order = [(u, u.src) for u in order]
        self.steps: deque[Any] = deque(maxlen=_STEPS)  # the last steps of loops that took its gradients
        self._passes: dict[Any, tuple[Again, list[int], list[int]]] = {}
        self.history = runtime.CallHistory()
        made: list[Any] = []
        with modes(made=made):
            grads = [g for g in self.gradients(self.cotangents) if g is not None]
        if made:
            raise JitError(f"it makes data of the host ({made[0].where})")
        if functions and here.recordings:  # numbers that a function's backward computes with are compared, too
            runtime.note_constants(UOp(Op.SINK, grads[0].dtype, tuple(grads)), here.recordings[-1].constants)
        plain = _plain(grads)
        below = toposort([*plain, *results])
        self.alone = runtime.has_variables(below) or any(u.op is Op.HOST_CALL for u in below)
        self.calls_python = bool(functions)
        self.residuals = residuals(plain, self.cotangents)
        self.kept = parameters_like(self.residuals, "kept")

    def gradients(self, cotangents: Some) -> Some:
        """The gradients of the inputs, as graphs over the holes."""
        targets = [self.holes[n] for n in self.inputs]
        seeds = [(u, c) for u, c in zip(self.results, cotangents, strict=True) if c is not None]
        with backward_phase():
            grads = pull_back(seeds, *paths(self._order, targets))
            return [whole(grads[t], t) if t in grads else None for t in targets]

    def begin(self, leaves: Nodes, kept: Nodes, sizes: Sizes) -> list[UOp]:
        """The nodes that the results of a call are to remember; the call read `leaves`, keeps what it `kept`, and its
        Variables had these values."""
        here.tensors.derivatives = True
        call = PendingCall(self, leaves, kept, sizes)
        derivative = Derivative(self.name, call.pull)
        derivative.captured = call
        with arena().located():
            values = over_memory(self.values, {}, sizes) if sizes else self.values
            return differentiated(values, [leaves[n] for n in self.inputs], (), derivative.token(self.device))

    def known(self) -> list[Again]:
        """The backward passes so far."""
        return [again for again, *_ in self._passes.values()]

    def run(self, memory: Nodes, given: Some, sizes: Sizes, lazy: bool) -> Some:
        """The gradients of the inputs for these cotangents: in memory, or as graphs of it, if they are `lazy`."""
        here.effects += not lazy
        with BUILDING:
            again, wanted, there = self._pass_for(given)
            cotangents: list[Any] = [given[n] for n in wanted]
            if not lazy and not all(map(is_realized, cotangents)):
                tensors = [runtime.tensor_class()._from_uop(g, self.device) for g in cotangents]
                runtime.realize(tensors)
                cotangents = [t.uop for t in tensors]
            made = (again.graphs if lazy else again)([*memory, *cotangents], sizes)
            known = dict(zip(there, made, strict=True))
            return [known.get(n) for n in range(len(self.inputs))]

    def _pass_for(self, given: Some) -> tuple[Again, list[int], list[int]]:
        """The backward pass for cotangents like these, the numbers of those that it reads, and of the inputs whose
        gradients it gives."""
        numbers = [None if g is None else number_of(g) for g in given]
        there = [g is not None for g in given]
        if (*there, *numbers) not in self._passes and len(self._passes) >= _NUMBERS:
            numbers = [None] * len(given)
        # which results have a cotangent, and which cotangents are numbers
        key = (*there, *numbers)
        if key not in self._passes:
            with arena().untracked():
                each = list(zip(there, self.cotangents, numbers, strict=True))
                seeds = [None if not has else c if x is None else const(c.dtype, x) for has, c, x in each]
                wanted = [n for n, (has, _, x) in enumerate(each) if has and x is None]
                grads = self.gradients(seeds)
                found = [n for n, g in enumerate(grads) if g is not None]
                known = dict(zip(self.residuals, self.kept, strict=True))
                roots = tuple([rebuild(u, over, known) for u in _plain([g for g in grads if g is not None])])
                parameters = (*self.holes, *self.kept, *[self.cotangents[n] for n in wanted])
                function = GraphFunction(self.name, "backward", parameters, roots)
                self._passes[key] = Again(self.device, function), wanted, found
        return self._passes[key]


def captured_backward(device: str, function: GraphFunction, flowing: Sequence[int], inputs: Sequence[int]) -> Backward:
    """The backward pass of a captured call.

    Args:
        device: the name of the device.
        function: what the call computes of the memory that it reads.
        flowing: the numbers of the results that gradients flow through.
        inputs: the numbers of the parameters that they flow to.
    """
    with arena().untracked():
        return Backward(device, function, flowing, inputs)


class PendingCall:
    """The memory of one call whose backward may come.

    Args:
        backward: the backward pass.
        leaves: what the call read.
        kept: what it keeps.
        sizes: the values of its Variables.
    """

    _lazy = False

    def __init__(self, backward: Backward, leaves: Nodes, kept: Nodes, sizes: Sizes) -> None:
        self._backward, self._leaves, self._sizes = backward, list(leaves), dict(sizes)
        self._kept: list[UOp] | None = list(kept)
        self._begun = here.computations
        # whether its gradients are never computed together with what is made of them: of loops and Variables
        self.alone = backward.alone

    def inputs(self) -> list[UOp]:
        """The memory that gradients flow to; none once no gradient comes again."""
        return [] if self._kept is None else [self._leaves[n] for n in self._backward.inputs]

    def ways(self, calls: Sequence[PendingCall]) -> list[Any]:
        """The backward pass, and which results of which of some calls the inputs are."""
        origins = [(n, u.arg.made_by) for n, u in enumerate(self.inputs()) if u.arg.made_by is not None]
        return [self._backward, *[(n, u.arg, calls.index(u.src[-1].arg.derivative.captured)) for n, u in origins]]

    def joins(self, key: Any, graded: set[UOp]) -> bool:
        """True if gradients of the call's inputs are to be computed together with what is made of them, as those of a
        loop are that takes such steps again and again (the `key` tells them apart).

        By themselves they are computed where they are added to some that are not computed (those of `graded` memory),
        which would keep what several calls keep, and where such a step did not come lately.
        """
        b = self._backward
        self._check()
        inputs = self.inputs()
        if not inputs or any(u in graded for u in inputs):
            return False
        b.strange = 0 if key in b.steps else b.strange + 1
        b.steps.append(key)
        return b.strange <= _STEPS // 2

    def memory(self) -> list[UOp]:
        """The memory that the gradients are functions of, beside the cotangents."""
        return [*self._leaves, *map(base_of, self._kept or ())]

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Within the block gradients are graphs, and are computed together with what is made of them."""
        self._lazy = True
        try:
            yield
        finally:
            self._lazy = False

    def pull(self, inputs: Nodes, _: Any, __: Any, given: Some) -> Some:
        """The gradients of the call's inputs."""
        if self._kept is None:
            raise runtime.second_backward(self._backward.name)
        self._check()
        if here.hooks is not None:
            here.hooks.append(self)
        b = self._backward
        if not self._lazy:
            b.history.launched(False)
        if here.creates or here.recordings or here.depth or here.tracing:
            known = dict(zip(b.holes, self._leaves, strict=True))
            known.update({c: g for c, g in zip(b.cotangents, given, strict=True) if g is not None})
            grads = b.gradients([c if c in known else None for c in b.cotangents])
            made = iter(over_memory([g for g in grads if g is not None], known, self._sizes))
            return [None if g is None else next(made) for g in grads]
        return b.run([*self._leaves, *self._kept], given, self._sizes, self._lazy)

    def _check(self) -> None:
        """Raise GradientError where a leaf that the call read has other values since: its gradient would be missing."""
        leaves = self.inputs()
        owners = [(u.arg if u.op is Op.BUFFER else memory_of(u)).owner() for u in leaves]
        runtime.check_unchanged(self._backward.name, owners, leaves)

    def joined_for_good(self) -> None:
        """Note that the gradients are computed together with what is made of them, and that no backward comes again."""
        self._backward.history.launched(self._begun == here.computations)
        self.release()

    def release(self) -> None:
        """Note that no backward comes again."""
        self._kept, self._leaves = None, []


def _plain(roots: Nodes) -> list[UOp]:
    """Graphs without what only gradients need."""
    known: Known = {}

    def visit(u: UOp, src: Src) -> UOp:
        if u.op is Op.CALL:
            return value_of(UOp(Op.CALL, u.dtype, src, u.arg))
        return src[0] if u.op is Op.DETACH else over(u, src)

    return [rebuild(u, visit, known) for u in roots]


# -- residuals --------------------------------------------------------------------------------------------------------
# Residuals: the values of a forward pass that are kept for its backward pass, as few bytes of them as will do.
# What the backward pass reads is computed again from what it reads in turn, down to values in memory, to values that
# are dear (sums, gathers, random bits) and to values that are kept. The cheapest set to keep is a minimal cut of that
# graph. Of two cuts of one size the later is taken, which leaves less to compute again.

_CHEAP = (ALU | MOVEMENT) - {Op.THREEFRY}  # computed again
_VIEWS = MOVEMENT - {Op.SHRINK}  # no smaller than what they show, which is kept in their place
_INFINITE = 1 << 62

Gate = tuple[UOp, bool]  # the side of a node on which its sources are, or that of its readers


def residuals(gradients: Nodes, cotangents: Nodes) -> list[UOp]:
    """The nodes to keep for these gradients, which are functions of memory (PARAM nodes) and of the cotangents."""
    late = set(cotangents)
    read: dict[UOp, None] = {}
    for u in toposort(gradients):
        if u not in late and not late.isdisjoint(u.src):
            late.add(u)
    for u in late:
        read.update(dict.fromkeys([s for s in u.src if s not in late]))
    below: list[UOp] = []
    there: set[UOp] = set()  # memory, and what is a function of no memory
    fixed: set[UOp] = set()
    for u in toposort(list(read)):
        if u.op is Op.PARAM:
            there.add(u)
        elif fixed.issuperset(u.src):
            fixed.add(u)
        else:
            below.append(u)
    return _Cut(below, read, there | fixed).nodes() if below else []


class _Cut:
    """The minimal cut between dear nodes and those that are `read`; what is `there` is no part of the graph. `room` is
    what more may flow, from gate to gate."""

    def __init__(self, below: Nodes, read: dict[UOp, None], there: set[UOp]) -> None:
        self.below, self.read = below, read
        self.room: dict[Gate, dict[Gate, int]] = defaultdict(dict)
        for u in below:
            self._add((u, False), (u, True), _INFINITE if u.op in _VIEWS else int(u.size) * u.dtype.itemsize)
            for s in u.src if u.op in _CHEAP else ():
                if s not in there:
                    self._add((s, True), (u, False), _INFINITE)

    def _add(self, a: Gate, b: Gate, room: int) -> None:
        self.room[a][b] = room
        self.room[b].setdefault(a, 0)

    def nodes(self) -> list[UOp]:
        """The nodes of the cut, sources first."""
        for u in self.below:
            if u.op not in _CHEAP:
                while self._push((u, False)):
                    pass
        reach: set[Gate] = {(u, True) for u in self.below if u in self.read}
        rest = deque(reach)
        while rest:
            b = rest.popleft()
            for a in self.room[b]:
                if a not in reach and self.room[a][b] > 0:
                    reach.add(a)
                    rest.append(a)
        cut = [u for u in self.below if (u, True) in reach and (u, False) not in reach]
        return [u for u in cut if self.room[u, True][u, False] > 0]  # else it is computed of memory alone

    def _push(self, start: Gate) -> bool:
        """Push as much flow as possible along one path, from a gate to a node that is read. Returns whether there was a
        path.
        """
        back: dict[Gate, Gate | None] = {start: None}
        rest = deque([start])
        while rest:
            a = rest.popleft()
            if a[1] and a[0] in self.read:
                way = [a]
                while (before := back[way[-1]]) is not None:
                    way.append(before)
                steps = list(zip(way[1:], way))
                most = min([self.room[x][y] for x, y in steps])
                for x, y in steps:
                    self.room[x][y] -= most
                    self.room[y][x] += most
                return True
            for b, room in self.room[a].items():
                if room > 0 and b not in back:
                    back[b] = a
                    rest.append(b)
        return False
