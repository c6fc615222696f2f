"""Materialisation: the nodes that get memory are chosen (`anneal/schedule/fusion/materialisation.py` decides)."""

from __future__ import annotations

from dataclasses import replace

from anneal.schedule.fusion import consumers_of, find_chains, materialised_nodes
from anneal.schedule.records import Schedule


def run(s: Schedule) -> Schedule:
    cost_model = s.cost_model.fit_to(s.order)
    consumers = consumers_of(s.order)
    materialised = materialised_nodes(s.order, s.sink.src, cost_model, consumers)
    chained = find_chains(s.order, s.sink.src, consumers, materialised, cost_model)
    return replace(s, consumers=consumers, cost_model=cost_model, materialised=materialised, chained=chained)
