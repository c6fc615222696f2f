"""The engine: applies tables of rules to nodes, iteratively, until no rule matches.

`rewritten` applies a table at one node, `settled` at everything that a node is made of, with what "made of" means left
to the caller; `graph_rewrite` is that for whole graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anneal.errors import CompilerError
from anneal.rewrite.walk import over, rebuild
from anneal.uop import Op, UOp

__all__ = ["Match", "Table", "graph_rewrite", "rewritten", "settled"]

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


def graph_rewrite(
    root: UOp,
    tables: Table | Sequence[Table],
    ctx: Any = None,
    *,
    bottom_up: bool = True,
    again: bool = True,
) -> UOp:
    """Rewrite every node below `root` until no rule of `tables` matches; returns the new root.

    Bottom-up (the default) a rule sees a node whose sources are already rewritten; top-down it sees the node first. The
    node that a rule returns is visited in its turn, unless `again` is False: then each node gets at most one rule.
    Where several tables match, the first one wins. Raises CompilerError when a rule's result leads back to the node
    that it replaced.

    >>> from anneal.uop import Op, const, dtypes
    >>> x = UOp(Op.SPECIAL, dtypes.int32, (), ("x", 8))
    >>> table = {Op.XOR: lambda u, ctx: (u.src[0] + u.src[1], "x ^ y -> x + y")}
    >>> graph_rewrite(((x ^ 5) * 3) ^ x, table) is (x + 5) * 3 + x
    True
    """
    table = tables if isinstance(tables, Mapping) else _merged(tables)
    if not bottom_up:
        return _top_down(root, table, ctx, again)
    if again:
        return settled(root, table, {}, ctx=ctx)

    def once(u: UOp, src: tuple[UOp, ...]) -> UOp:
        n = over(u, src)
        return n if (match := table.get(n.op)) is None or (found := match(n, ctx)) is None else found[0]

    return rebuild(root, once)


def _merged(tables: Sequence[Table]) -> Table:
    def first(matches: Sequence[Match]) -> Match:
        def match(u: UOp, ctx: Any) -> Any:
            for m in matches:
                if (found := m(u, ctx)) is not None and found[0] is not u:
                    return found
            return None

        return match

    return {op: first([t[op] for t in tables if op in t]) for op in {op for t in tables for op in t}}


def _sources(u: UOp) -> tuple[UOp, ...]:
    return u.src


def _over_done(u: UOp, done: Mapping[UOp, UOp]) -> UOp:
    return u.replace(src=tuple([done[s] for s in u.src])) if u.src else u


def _loop(rule: str, u: UOp) -> CompilerError:
    return CompilerError("a rule leads back to the node it replaced", rule=rule, node=u)


def settled(
    root: UOp,
    table: Table,
    done: dict[UOp, UOp],
    *,
    parts: Callable[[UOp], Sequence[UOp] | None] = _sources,
    remake: Callable[[UOp, dict[UOp, UOp]], UOp] = _over_done,
    steps: int = 0,
    ctx: Any = None,
) -> UOp:
    """The node that the rules make of `root` and all below, each part before the whole; a result is visited as well.

    `parts(u)` are the nodes to rewrite before `u` (None: `u` stays as it is), and `remake(u, done)` is `u` made of what
    they became. `done` keeps the results, for the next call too. Rules that lead back to a node they replaced raise
    CompilerError; with `steps`, they end there instead, as does a node that was rewritten so often.
    """
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


def _top_down(sink: UOp, table: Table, ctx: Any, again: bool) -> UOp:
    head: dict[UOp, UOp] = {}  # node -> what the rules make of it, before its sources are looked at
    done: dict[UOp, UOp] = {}
    stack = [sink]
    while stack:
        u = stack[-1]
        if u in done:
            stack.pop()
            continue
        n = head.get(u)
        if n is None:
            n = u
            seen = {u}
            while (match := table.get(n.op)) is not None and (found := match(n, ctx)) is not None and found[0] is not n:
                n = found[0]
                if n in seen:
                    raise _loop(found[1], u)
                seen.add(n)
                if not again:
                    break
            head[u] = n
        pending = [s for s in n.src if s not in done]
        opened = [s for s in pending if s in head]
        if opened and again:
            raise _loop("(see the node)", u)
        if len(pending) > len(opened):
            stack.extend(reversed([s for s in pending if s not in head]))
            continue
        # a result that holds the very node it replaces keeps it as it is
        done[u] = n.replace(src=tuple([done.get(s, s) for s in n.src])) if n.src else n
        stack.pop()
    return done[sink]
