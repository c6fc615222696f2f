"""A model's training step as a graph: built as the training loop builds it, with nothing executed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from anneal import settings
from anneal.cli._models import Training, load_example
from anneal.uop import UOp, toposort

__all__ = ["Trace", "trace", "trace_step"]


@dataclass(frozen=True, slots=True)
class Trace:
    """The graph of a step: its loss, its outputs (the loss and what the optimiser assigns) and all nodes, sources first."""

    model: str
    loss: UOp
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


def trace(model: str, batch: int | None = None, device: str = "cpu") -> Trace:
    """Build example `model` and one training step of it; its weights are made, the step is not run.

    On the cpu unless a device is named: a graph needs memory for the weights, and no GPU.
    """
    with settings.override(device=device):
        example = load_example(model)
        training = example.make(steps=example.STEPS, batch=batch or example.BATCH, seed=1, lr=example.LR)
        return trace_step(model, training)


def trace_step(model: str, training: Training) -> Trace:
    """One more step of a training run, not run. Afterwards its tensors wait for values that nobody computes."""
    from anneal.runtime import tracing

    given = training.next_batch()
    with tracing() as noted:
        loss = training.update(*given)
    outputs = list(dict.fromkeys([loss.uop, *[t.uop for t in noted]]))
    return Trace(model, loss.uop, outputs, toposort(outputs))


def _phase(u: UOp) -> str:
    return "forward" if u.provenance[0] == "forward" else "backward"
