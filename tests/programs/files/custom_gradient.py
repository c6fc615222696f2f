"""Quantised weights by a straight-through estimator, and a layer that turns its gradient round."""

from __future__ import annotations

from typing import Any

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from anneal.autograd import Function
from tests.programs.files._start import STEPS, normal, start


class Round(Function):
    @staticmethod
    def forward(ctx: Any, w: torch.Tensor, levels: float) -> torch.Tensor:
        ctx.save_for_backward(w)
        return torch.round(w * levels) / levels

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (w,) = ctx.saved_tensors
        return grad * (w.abs() <= 1).to(grad.dtype), None


class Reverse(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, strength: float) -> torch.Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return -ctx.strength * grad, None


class Quantised(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight: torch.Tensor = Round.apply(self.weight, 8.0)
        return F.linear(x, weight, self.bias)


def run() -> list[float]:
    body, label, domain = Quantised(4, 6), nn.Linear(6, 3), nn.Linear(6, 2)
    model = nn.ModuleList([body, label, domain])
    start(0, model.parameters())
    x = torch.tensor(normal(1, 12, 4))
    y, d = torch.arange(12) % 3, torch.arange(12) % 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    losses = []
    for _ in range(STEPS):
        h = torch.tanh(body(x))
        turned: torch.Tensor = Reverse.apply(h, 0.3)
        loss = F.cross_entropy(label(h), y) + F.cross_entropy(domain(turned), d)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
