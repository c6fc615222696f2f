"""The driver: applies rule tables to a graph, iteratively, each node once per pass where the rules allow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anneal.errors import CompilerError
from anneal.uop import Op, UOp

__all__ = ["Match", "Recorder", "Table", "graph_rewrite"]

Match = Callable[[Any, Any], Any]  # (node, ctx) -> (node, rule text) | None
Table = Mapping[Op, Match]
Recorder = Callable[[UOp, UOp, str], None]  # (before, after, rule text)


def _merged(tables: Table | Sequence[Table]) -> dict[Op, tuple[Match, ...]]:
    each = (tables,) if isinstance(tables, Mapping) else tuple(tables)
    return {op: tuple(t[op] for t in each if op in t) for op in {op for t in each for op in t}}


def graph_rewrite(
    sink: UOp,
    tables: Table | Sequence[Table],
    ctx: Any = None,
    recorder: Recorder | None = None,
    *,
    bottom_up: bool = True,
    again: bool = True,
) -> UOp:
    """Rewrite every node below `sink` until no rule of `tables` matches; returns the new sink.

    Bottom-up (the default) a rule sees a node whose sources are already rewritten; top-down it sees the node first. The
    node that a rule returns is visited in its turn, unless `again` is False: then each node gets at most one rule. Where
    several tables match, the first one wins. `recorder(before, after, rule text)` is told of each rewrite. Raises
    CompilerError when a rule's result leads back to the node that it replaced.

    >>> from anneal.uop import Op, const, dtypes
    >>> x = UOp(Op.SPECIAL, dtypes.int32, (), ("x", 8))
    >>> table = {Op.XOR: lambda u, ctx: (u.src[0] + u.src[1], "x ^ y -> x + y")}
    >>> graph_rewrite(((x ^ 5) * 3) ^ x, table) is (x + 5) * 3 + x
    True
    """
    rules = _merged(tables)
    return (_bottom_up if bottom_up else _top_down)(sink, rules, ctx, recorder, again)


def _apply(u: UOp, rules: dict[Op, tuple[Match, ...]], ctx: Any) -> tuple[UOp, str] | None:
    matches = rules.get(u.op)
    if matches is None:
        return None
    for match in matches:
        found: tuple[UOp, str] | None = match(u, ctx)
        if found is not None and found[0] is not u:
            return found
    return None


def _settled(n: UOp, done: dict[UOp, UOp]) -> bool:
    """Whether every source of `n` is rewritten and stayed what it is."""
    return all(done.get(s) is s for s in n.src)


def _loop(rule: str, u: UOp) -> CompilerError:
    return CompilerError("a rule leads back to the node it replaced", rule=rule, node=u)


def _bottom_up(sink: UOp, rules: dict[Op, tuple[Match, ...]], ctx: Any, recorder: Recorder | None, again: bool) -> UOp:
    done: dict[UOp, UOp] = {}
    became: dict[UOp, UOp] = {}  # in progress: the node whose result this one takes
    stack = [sink]
    while stack:
        u = stack[-1]
        if u in done:
            stack.pop()
            continue
        nxt = became.get(u)
        if nxt is not None:
            if nxt not in done:
                raise _loop("(see the node)", u)
            done[u] = done[nxt]
            stack.pop()
            continue
        pending = [s for s in u.src if s not in done]
        if pending:
            if any(s in became for s in pending):
                raise _loop("(see the node)", u)
            stack.extend(reversed(pending))
            continue
        n = u.replace(src=tuple([done[s] for s in u.src])) if u.src else u
        text = ""
        if n is u or not again or (n not in done and _settled(n, done)):
            found = _apply(n, rules, ctx)
            if found is None:
                done[u] = done[n] = n
                stack.pop()
                continue
            before, (n, text) = n, found
            if recorder is not None:
                recorder(before, n, text)
            if not again:
                done[u] = n
                stack.pop()
                continue
        if n in done:
            done[u] = done[n]
            stack.pop()
            continue
        if n in became:
            raise _loop(text, u)
        became[u] = n
        stack.append(n)
    return done[sink]


def _top_down(sink: UOp, rules: dict[Op, tuple[Match, ...]], ctx: Any, recorder: Recorder | None, again: bool) -> UOp:
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
            while (found := _apply(n, rules, ctx)) is not None:
                if recorder is not None:
                    recorder(n, *found)
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
