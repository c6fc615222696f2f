"""The rule that made a node of the tensor graph: a fold while it was written, or a rule of derivatives."""

from __future__ import annotations

from collections.abc import Iterable

from anneal.inspect.derivations import FiredRule
from anneal.rewrite import Event
from anneal.uop import Op, UOp


def made_by(fired: Iterable[Event]) -> dict[UOp, FiredRule]:
    """The nodes that rules made, in the order in which these fired.

    A fold makes the node that it gives. A rule of derivatives makes what stands between its contributions and what it
    was given: the op's node, the sources of that, and the cotangent, which is a contribution of an earlier event or the
    sum of several. Nodes of the forward pass are made by no such rule.

    >>> from anneal.rewrite import tracing
    >>> from anneal.tensor import Tensor
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> with tracing() as events:
    ...     x.tanh().sum().backward()
    >>> any(rule.rule.endswith("-> g * (1 - y * y)") for rule in made_by(events).values())
    True
    """
    made: dict[UOp, FiredRule] = {}
    given: dict[UOp, set[UOp]] = {}  # what was contributed to the cotangent of a node so far
    for e in fired:
        rule = FiredRule(e.rule, e.table, e.place, e.pass_name)
        if isinstance(e.after, UOp):
            if e.after not in e.before.src:  # `x * 1 -> x` made no x
                made[e.after] = rule
            continue
        known = {e.before, *e.before.src}
        cotangents = given.get(e.before, set())
        for source, result in zip(e.before.src, e.after, strict=False):
            if isinstance(result, UOp):
                for u in _between(result, known, cotangents):
                    made.setdefault(u, rule)
                given.setdefault(source, set()).add(result)
    return made


def _between(result: UOp, known: set[UOp], cotangents: set[UOp]) -> Iterable[UOp]:
    """The nodes of the backward pass from `result` down to those that are known, or are sums of the cotangents."""
    seen, left = set(known), [result]
    while left:
        u = left.pop()
        if u in seen or u.provenance[0] != "backward" or _is_sum(u, cotangents):
            continue
        seen.add(u)
        left += u.src
        yield u


def _is_sum(u: UOp, terms: set[UOp]) -> bool:
    """True if a node is one of the terms, or a sum of them."""
    left = [u]
    while left:
        u = left.pop()
        if u in terms:
            continue
        if u.op is not Op.ADD or not terms:
            return False
        left += u.src
    return True
