"""Memory planning: temporaries whose lives do not overlap share one piece of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anneal.uop import DType

if TYPE_CHECKING:
    from anneal.schedule.plan import Call, Value

__all__ = ["assign_temporaries"]


def assign_temporaries(
    values: Sequence[Value], calls: Sequence[Call]
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, DType], ...]]:
    """Give every temporary a physical buffer: from its first writer to its last reader it is nobody else's.

    A buffer is handed on only to a value of the same size and dtype, and only after the call that read it last: a
    kernel never writes what it reads.
    """
    last: dict[int, int] = {}
    for n, call in enumerate(calls):
        for v in call.args:
            last[v] = n
    free: dict[tuple[int, DType], list[int]] = {}
    physical: list[tuple[int, DType]] = []
    place: dict[int, int] = {}
    for n, call in enumerate(calls):
        for v in call.args[: call.outputs]:
            value = values[v]
            if value.kind != "temp":
                continue
            key = (value.size, value.dtype)
            pool = free.get(key)
            if pool:
                place[v] = pool.pop()
            else:
                place[v] = len(physical)
                physical.append(key)
        for v in dict.fromkeys(call.args):
            if v in place and last[v] == n:
                free.setdefault((values[v].size, values[v].dtype), []).append(place[v])
    return tuple(place.items()), tuple(physical)
