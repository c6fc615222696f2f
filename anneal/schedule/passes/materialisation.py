"""Materialisation: the nodes that get memory are chosen (`anneal/schedule/fusion/materialisation.py` decides)."""

from __future__ import annotations

from dataclasses import replace

from anneal.schedule.fusion import materialised_nodes
from anneal.schedule.records import Schedule
from anneal.uop import MOVEMENT, toposort

__all__ = ["run"]


def run(s: Schedule) -> Schedule:
    order = toposort((s.sink,))[:-1]
    cost_model = s.cost_model.fit_to(u for u in order if u.op not in MOVEMENT)
    return replace(
        s, order=order, cost_model=cost_model, materialised=materialised_nodes(order, s.sink.src, cost_model)
    )
