"""Views: what a pass has made, as graphs and lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anneal.uop import UOp

if TYPE_CHECKING:
    from anneal.schedule.records import Schedule


def sink(s: Schedule) -> Iterator[UOp | str]:
    yield s.sink


def materialised(s: Schedule) -> Iterator[UOp | str]:
    for u, reason in s.materialised.items():
        yield f"{u!r}: {reason.value}"


def groups(s: Schedule) -> Iterator[UOp | str]:
    for g in s.groups:
        yield ", ".join(map(repr, g.roots)) + (" (again)" if g.again else "")


def cuts(s: Schedule) -> Iterator[UOp | str]:
    for _, inputs, group, _ in s.cuts:
        yield f"{len(group.roots)} stores, {len(inputs)} inputs"


def kernels(s: Schedule) -> Iterator[UOp | str]:
    for kernel in dict.fromkeys(s.kernels):
        yield f"-- {kernel.name}"
        yield kernel.sink


def calls(s: Schedule) -> Iterator[UOp | str]:
    if s.plan is None:
        return
    for c in s.plan.calls:
        yield f"{c.kernel.name} {c.args[: c.outputs]} <- {c.args[c.outputs :]} ({c.phase})"
    yield f"{len(s.plan.memory)} temporaries in {len(s.plan.temporaries)} buffers"
