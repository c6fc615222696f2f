"""Reverse mode over the graph itself: one walk from the result to the targets, adding up what each node's rule gives.

There is no tape. The rules are algebra (`gradient.upat`); the cotangents they give are ordinary nodes beside the
forward ones, so the scheduler may fuse forward and backward work. A cotangent of shape `()` stands for the same number
everywhere: the seed of a scalar loss stays one constant until something needs its shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from anneal.errors import GradientError
from anneal.ops.nodes import from_memory, reshape, spread
from anneal.rewrite import value_of
from anneal.runtime import sources_of
from anneal.transforms.calls import Calls
from anneal.transforms.gradient_rules import GRADIENT
from anneal.uop import ALU, MOVEMENT, REAL, Arena, Op, UOp, arena, const, covering, promote
from anneal.uop.sizes import product

# Ops through which a cotangent wider than the node passes unrounded: they move values.
_CARRIES = MOVEMENT | {Op.BUFFER, Op.CAST, Op.CONTIGUOUS, Op.GATHER}
# Float in, float out, and flat almost everywhere: their slope is zero rather than missing.
FLAT = frozenset((Op.IDIV, Op.FLOOR, Op.CEIL, Op.ROUND, Op.TRUNC, Op.SIGN))
STOPS = frozenset((Op.DETACH, Op.BITCAST))
covering("the list of gradients, gradient.upat,", {**GRADIENT, **dict.fromkeys(FLAT)}, REAL)

Path = list[tuple[UOp, tuple[UOp, ...]]]  # nodes with what they were computed from


def gradient(seeds: Sequence[tuple[UOp, UOp]], targets: Sequence[UOp]) -> list[UOp | None]:
    """The cotangent of each of `targets`, given those of some nodes; nothing below a target is reached through it.

    Args:
        seeds: float nodes, each with its cotangent, of its shape, or of shape `()` for the same number everywhere.
        targets: float nodes; one that none of those depends on (differentiably) gives None.

    Returns:
        One node per target, with the target's shape and dtype.

    Raises:
        GradientError: an op on the way has no gradient rule.
    """
    # Views of one buffer are one leaf, however they reshape it.
    nodes = [t.src[0] if t.op is Op.RESHAPE and t.src[0].op is Op.BUFFER else t for t in targets]
    with backward_phase():
        grads = pull_back(seeds, *paths(_order([root for root, _ in seeds], set(nodes)), nodes))
        a = arena()
        out: list[UOp | None] = []
        with a.untracked():
            for n, t in zip(nodes, targets, strict=True):
                g = grads.get(n)
                if g is not None:
                    a.derive(g)
                    g = spread(g if n is t or not g.shape else reshape(g, t.shape), t.shape).cast(t.dtype)
                out.append(g)
        return out


@contextmanager
def backward_phase() -> Iterator[None]:
    """Nodes made in the block say that they belong to the backward pass."""
    a = arena()
    phase, a.phase = a.phase, "backward"
    try:
        yield
    finally:
        a.phase = phase


def paths(order: Iterable[tuple[UOp, tuple[UOp, ...]]], targets: Iterable[UOp]) -> tuple[set[UOp], Path]:
    """The nodes of `order` (sources first) that depend on a target through floats: only they are worth a cotangent."""
    reach = set(targets)
    path = []
    for u, sources in order:
        if u.dtype.is_float and u.op not in STOPS:
            for s in sources:
                if s in reach:
                    reach.add(u)
                    path.append((u, sources))
                    break
    return reach, path


def pull_back(seeds: Iterable[tuple[UOp, UOp]], reach: set[UOp], path: Path) -> dict[UOp, UOp]:
    """The cotangent of every node of `path`, given those of some (`seeds`: pairs of both); what `paths` found.

    What a node's rule makes bears the node's own line and module: those of the forward code whose gradient it is.
    """
    a = arena()
    with a.untracked():
        return _pulled_back(a, seeds, reach, path)


def _pulled_back(a: Arena, seeds: Iterable[tuple[UOp, UOp]], reach: set[UOp], path: Path) -> dict[UOp, UOp]:
    grads: dict[UOp, UOp] = {}
    for root, seed in seeds:
        a.derive(root)
        grads[root] = _add(grads[root], seed) if root in grads else seed
    calls = Calls(path)
    for y, sources in reversed(path):
        g = grads.get(y)
        if g is None and y not in calls.first:
            continue
        a.derive(y)
        if g is None or (calls.of and y in calls.of):
            made = calls.contributions(y, g)
        else:
            if g.dtype is not y.dtype and y.op not in _CARRIES and not (y.op is Op.REDUCE_AXIS and y.arg[0] is Op.ADD):
                g = g.cast(y.dtype)
            made = _contributions(y, g, sources)
        elementwise = y.op in ALU
        for s, c in zip(sources, made, strict=True):
            if c is None or s not in reach:
                continue
            if elementwise and not s.shape and y.shape:
                c = _sum(c, y)
            seen = grads.get(s)
            grads[s] = c if seen is None else _add(seen, c)
    return grads


def _order(roots: Sequence[UOp], stop: set[UOp]) -> Path:
    """Every node that `roots` depend on, with its sources, sources first; nodes of `stop` are left out."""
    out: Path = []
    seen = set(stop)
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        sources = sources_of(root)
        stack: list[tuple[UOp, tuple[UOp, ...], Iterator[UOp]]] = [(root, sources, iter(sources))]
        while stack:
            node, sources, rest = stack[-1]
            for child in rest:
                if child not in seen:
                    seen.add(child)
                    below = sources_of(child)
                    if below:
                        stack.append((child, below, iter(below)))
                        break
                    out.append((child, below))
            else:
                stack.pop()
                out.append((node, sources))
    return out


def _contributions(y: UOp, g: UOp, sources: tuple[UOp, ...]) -> tuple[UOp | None, ...]:
    if y.op is Op.BUFFER:
        return (from_memory(g, sources[0].shape) if g.shape else g,)
    rule = GRADIENT.get(y.op)
    out: tuple[UOp | None, ...] | None = None if rule is None else rule(y, g)
    if out is None and y.op is Op.CALL:  # no rule has its name: its body does
        root = value_of(y)
        found = pull_back([(root, g)], *paths(_order([root], set(sources)), sources))
        return tuple([found.pop(s, None) for s in sources])
    if out is None:
        if y.op not in FLAT:
            raise GradientError(
                f"{y.op.name.lower()} has no gradient: use detach() on its input if none should flow through it"
            )
        out = (const(g.dtype, 0),) * len(sources)
    return out


def _sum(c: UOp, y: UOp) -> UOp:
    """The whole sum of a contribution to a source of shape `()`, which every element of `y` read."""
    if not c.shape:
        n = product(y.shape)
        return c * (n.cast(c.dtype) if isinstance(n, UOp) else float(n))
    total = UOp(Op.REDUCE_AXIS, c.dtype, (c,), (Op.ADD, tuple(range(len(c.shape)))))
    return UOp(Op.RESHAPE, c.dtype, (total,), ())


def _add(a: UOp, b: UOp) -> UOp:
    """`a + b` in the wider of the two dtypes."""
    if a.dtype is not b.dtype:
        wide = promote(a.dtype, b.dtype)
        a, b = a.cast(wide), b.cast(wide)
    return a + b
