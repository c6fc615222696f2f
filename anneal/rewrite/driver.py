"""The engine: applies tables of rules to nodes, iteratively, until no rule matches.

`rewritten` applies a table at one node, `graph_rewrite` at every node of a graph. The caller of `graph_rewrite` may say
what a node is made of: `simplify` takes a sum apart into its terms.

    >>> from anneal.uop import Op, const, dtypes
    >>> x = UOp(Op.SPECIAL, dtypes.int32, (), ("x", 8))
    >>> table = {Op.XOR: lambda u, ctx: (u.src[0] + u.src[1], "x ^ y -> x + y")}
    >>> graph_rewrite(((x ^ 5) * 3) ^ x, table) is (x + 5) * 3 + x
    True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anneal.errors import CompilerError
from anneal.uop import Op, UOp

Match = Callable[[Any, Any], Any]  # (node, ctx) -> (node, rule text) | None
Table = Mapping[Op, Match]
_LONG = 10_000  # rewrites of one node after which its rules go round in circles


def rewritten(u: UOp, table: Table, ctx: Any = None) -> UOp:
    """The node that the rules make of `u` itself, one after another until none matches; nodes below are as they are.

    Raises CompilerError for rules that do not end.
    """
    for _ in range(_LONG):
        if (match := table.get(u.op)) is None or (found := match(u, ctx)) is None or found[0] is u:
            return u
        u, rule = found
    raise _loop(rule, u)


def _sources(u: UOp) -> tuple[UOp, ...]:
    return u.src


def _over_done(u: UOp, done: Mapping[UOp, UOp]) -> UOp:
    return u.replace(src=tuple([done[s] for s in u.src])) if u.src else u


def _loop(rule: str, u: UOp) -> CompilerError:
    return CompilerError("a rule leads back to the node it replaced", rule=rule, node=u)


def graph_rewrite(
    root: UOp,
    table: Table,
    done: dict[UOp, UOp] | None = None,
    *,
    parts: Callable[[UOp], Sequence[UOp] | None] = _sources,
    remake: Callable[[UOp, dict[UOp, UOp]], UOp] = _over_done,
    steps: int = 0,
    ctx: Any = None,
) -> UOp:
    """The node that the rules make of `root` and of all below it, until none matches; sources come before their users,
    and the node that a rule returns is visited in its turn. `parts(u)` are the nodes to rewrite before `u` (None: `u`
    stays), `remake(u, done)` is `u` made of what they became. `done` keeps the results. Rules that lead back to a node
    raise CompilerError; with `steps`, they end there, as does a node that was rewritten so often."""
    done = {} if done is None else done
    # One function of 70 lines: its cases share one stack, each ends in `continue`, and none is a step of its own.
    became: dict[UOp, UOp] = {}  # in progress: the node whose result this one takes
    count: dict[UOp, int] = {}
    stack = [root]
    while stack:
        u = stack[-1]
        if u in done:
            stack.pop()
            continue
        below = parts(u)
        if below is None:
            done[u] = u
            stack.pop()
            continue
        nxt = became.get(u)
        if nxt is not None:
            if not steps and nxt not in done:
                raise _loop("(see the node)", u)
            done[u] = done.get(nxt, nxt)
            stack.pop()
            continue
        n = u
        pending = [s for s in below if s not in done]
        if not pending:
            n = remake(u, done)
        elif not any(s in became for s in pending):
            stack.extend(pending)
            continue
        elif not steps:
            raise _loop("(see the node)", u)
        text = ""
        if n is u:
            match = table.get(u.op)
            found = match(u, ctx) if match is not None else None
            if found is None or found[0] is u:
                done[u] = u
                stack.pop()
                continue
            n, text = found
        if n in done:
            done[u] = done[n]
            stack.pop()
            continue
        if steps:
            so_far = count[n] = count.get(u, 0) + 1
            if so_far > steps or n in became:
                done[u] = n
                stack.pop()
                continue
        elif n in became:
            raise _loop(text, u)
        became[u] = n
        stack.append(n)
    return done[root]
