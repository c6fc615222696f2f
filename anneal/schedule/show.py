"""What a pass has made, as text on stderr, under ANNEAL_DEBUG=5."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from anneal.rewrite import check

if TYPE_CHECKING:
    from anneal.schedule.plan import Schedule

__all__ = ["show"]


def show(name: str, s: Schedule) -> None:
    """Print the part of the schedule that the pass called `name` has filled, and hold it to its stage's table."""
    lines: list[str] = []
    if name in ("early-rewrites", "split-reduces"):
        check(s.sink, "tensor")
        lines = str(s.sink).splitlines()
    elif name == "realize-map":
        lines = [repr(u) for u in s.real]
    elif name == "kernel-groups":
        lines = [", ".join(map(repr, g.roots)) for g in s.groups]
    elif name == "kernel-split":
        lines = [f"{len(group.roots)} stores, {len(inputs)} inputs" for _, inputs, group in s.cuts]
    elif name == "range-propagation":
        for kernel in dict.fromkeys(s.kernels):
            check(kernel.sink, "kernel")
            lines += [f"-- {kernel.name}", *str(kernel.sink).splitlines()]
    elif s.plan is not None:
        lines = [f"{c.kernel.name} {c.args[: c.outputs]} <- {c.args[c.outputs :]} ({c.phase})" for c in s.plan.calls]
        lines.append(f"{len(s.plan.memory)} temporaries in {len(s.plan.temporaries)} buffers")
    print("\n".join([f"anneal: after {name}", *[f"  {line}" for line in lines]]), file=sys.stderr)
