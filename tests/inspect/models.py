"""A small model in training, and the plan of a step of it: no device is opened for it."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from anneal import nn
from anneal.runtime import tracing
from anneal.schedule import graph
from anneal.tensor import Tensor, functional as F
from anneal.uop import UOp

__all__ = ["ATTENTION", "FC", "LOSS", "Net", "line_of", "outputs", "step"]


class Net(nn.Module):
    def __init__(self) -> None:
        self.fc = nn.Linear(16, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc(x).gelu()
        scores = (h @ h.transpose(0, 1)).softmax(-1)
        return self.head(scores @ h)


def _update(model: Net, optimiser: nn.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    loss = F.cross_entropy(model(x), y)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss


def line_of(function: Any, text: str) -> int:
    """The number of the line of `function` that has `text`."""
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if text in line)


FC, ATTENTION, LOSS = (
    line_of(Net.forward, "self.fc"),
    line_of(Net.forward, "softmax"),
    line_of(_update, "cross_entropy"),
)


def outputs() -> list[UOp]:
    """The loss of a training step, and what the optimiser assigns."""
    model = Net()
    x = Tensor(np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32), device="cpu")
    with tracing() as noted:
        loss = _update(
            model, nn.AdamW(model.parameters(), lr=1e-3), x, Tensor(np.arange(64, dtype=np.int32) % 4, device="cpu")
        )
    return list(dict.fromkeys([loss.uop, *[t.uop for t in noted]]))


def step() -> UOp:
    """`SINK` over these outputs."""
    return graph(outputs())
