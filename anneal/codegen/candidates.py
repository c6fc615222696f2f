"""The candidates of a search: sequences of opts one step away from a given one.

A step changes an amount, trades a factor of two between two opts, leaves an opt out, adds one of any kind in `KINDS` to
any axis, or lets two opts change places. Most steps fit; code generation refuses the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from anneal.codegen.fragments import SUBGROUP
from anneal.codegen.opts import KINDS, Axis, Opt
from anneal.codegen.target import Target

Opts = tuple[Opt, ...]

# Amounts worth trying; of a kind that is not listed, 1.
_AMOUNTS = {
    "FLAT": (32, 64, 128, 256, 512),
    "LOCAL": (2, 4, 8, 16, 32, 64, 128),
    "UPCAST": (2, 4, 8),
    "MERGE": (1, 2, 3),
    "GROUP": (2, 4, 8, 16, 32, 64, 128, 256),
    "UNROLL": (2, 4, 8, 16, 32),
    "VECTORIZE": (2, 4),
    "TILE": (1, 4, 8, 16, 32),
}
_FIRST = frozenset(("MERGE", "VECTORIZE", "FUSE_REDUCE"))  # before other splits of their axis
_WHOLE = frozenset(("FLAT",))  # on no axis in particular
_NEVER_ALONE = frozenset(("MATRIX",))  # only where the heuristic has chosen it
_MOST_REGISTERS = 128  # values that one thread keeps
_MOST_COPIES = 1024  # copies of a reduce's body in the text


def neighbours(axes: Sequence[Axis], opts: Opts, target: Target) -> Iterator[Opts]:
    """The sequences one step from `opts` that fit a workgroup and the text of a kernel."""
    seen = {opts}
    for found in _steps(axes, opts):
        if found not in seen and _fits(found, target):
            seen.add(found)
            yield found


def _steps(axes: Sequence[Axis], opts: Opts) -> Iterator[Opts]:
    numbers = range(len(opts))
    for i in numbers:
        yield from (_with(opts, {i: a}) for a in (opts[i].amount * 2, opts[i].amount // 2))
        yield opts[:i] + opts[i + 1 :]
        for j in numbers:
            if i != j and (opts[i].kind == opts[j].kind or opts[i].axis == opts[j].axis) and opts[j].amount > 1:
                yield _with(opts, {i: opts[i].amount * 2, j: opts[j].amount // 2})
            if i < j and opts[i].axis != opts[j].axis:
                swapped = list(opts)
                swapped[i], swapped[j] = opts[j], opts[i]
                yield tuple(swapped)
    taken = {(o.kind, o.axis) for o in opts}
    for kind in (k for k in KINDS if k not in _NEVER_ALONE):
        for n, axis in enumerate(axes[:1] if kind in _WHOLE else axes):
            if (kind, n) in taken or axis.extent is None:
                continue
            for amount in _AMOUNTS.get(kind, (1,)):
                if amount < 2 * axis.extent or kind in _WHOLE:
                    new = Opt(kind, n, amount)
                    yield (new, *opts) if kind in _FIRST else (*opts, new)


def _with(opts: Opts, amounts: dict[int, int]) -> Opts:
    return tuple([Opt(o.kind, o.axis, amounts.get(i, o.amount)) for i, o in enumerate(opts)])


def _product(opts: Opts, *kinds: str) -> int:
    return math.prod(o.amount for o in opts if o.kind in kinds)


def threads(opts: Opts) -> int:
    """Threads of a workgroup."""
    shared = max((o.amount for o in opts if o.kind == "GROUP"), default=1)
    return _product(opts, "FLAT", "LOCAL") * shared * (SUBGROUP if any(o.kind == "MATRIX" for o in opts) else 1)


def _fits(opts: Opts, target: Target) -> bool:
    registers = _product(opts, "UPCAST", "VECTORIZE")
    return (
        all(o.amount >= 1 for o in opts)
        and threads(opts) <= target.max_threads
        and registers <= _MOST_REGISTERS
        and registers * _product(opts, "UNROLL") <= _MOST_COPIES
    )


def work(axes: Sequence[Axis], opts: Opts) -> tuple[int, int]:
    """About how often the innermost body runs, in one thread and in all, as if every reduce were inside the others."""
    fused = {o.axis for o in opts if o.kind == "FUSE_REDUCE"}
    joined = {axes[n].extent for n in fused}
    serial = math.prod(a.extent or 1 for n, a in enumerate(axes) if n in fused or not (a.is_loop or a.extent in joined))
    outputs = math.prod(a.extent or 1 for n, a in enumerate(axes) if a.is_loop and n not in fused)
    shared = max((o.amount for o in opts if o.kind == "GROUP"), default=1)
    return serial * _product(opts, "UPCAST") // shared, serial * outputs
