"""A model's training step as a graph: built as the training loop builds it, with nothing executed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from anneal.cli._models import Training, load_example
from anneal.uop import UOp, toposort

__all__ = ["Trace", "trace_model", "trace_training"]


@dataclass(frozen=True, slots=True)
class Trace:
    """The graph of a step: its outputs (the loss first, then what the optimiser assigns) and all nodes, sources first."""

    model: str
    loss: Any
    assigned: list[Any]
    outputs: list[UOp]
    nodes: list[UOp]

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """Nodes by op, then by phase."""
        table: dict[str, Counter[str]] = {}
        for u in self.nodes:
            table.setdefault(u.op.name, Counter())[_phase(u)] += 1
        return table

    @property
    def forward(self) -> int:
        """Nodes of the forward pass."""
        return sum(_phase(u) == "forward" for u in self.nodes)

    @property
    def backward(self) -> int:
        """Nodes of the backward pass and the optimiser."""
        return len(self.nodes) - self.forward


def trace_model(model: str, batch: int | None = None) -> Trace:
    """Build example `model` and one training step of it."""
    example = load_example(model)
    training = example.make(steps=example.STEPS, batch=batch or example.BATCH, seed=1, lr=example.LR)
    return trace_training(model, training)


def trace_training(model: str, training: Training) -> Trace:
    """One training step of `training`, left lazy. The training is used up: its state now stands one step ahead."""
    from anneal.tensor import realize

    realize(*training.model.parameters(), *training.optimizer.state_tensors())
    loss = training.update(*training.next_batch())
    assigned = [*training.model.parameters(), *training.optimizer.state_tensors()]
    outputs = list(dict.fromkeys([loss.uop, *[t.uop for t in assigned]]))
    return Trace(model, loss, assigned, outputs, toposort(outputs))


def _phase(u: UOp) -> str:
    return "forward" if u.provenance[0] == "forward" else "backward"
