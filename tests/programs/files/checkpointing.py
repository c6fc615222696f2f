"""Residual blocks that are computed again for their gradients."""

from __future__ import annotations

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from anneal.utils.checkpoint import checkpoint
from tests.programs.files._start import STEPS, normal, start


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.up = nn.Linear(size, 4 * size)
        self.down = nn.Linear(4 * size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(8) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def run() -> list[float]:
    model = Net()
    start(0, model.parameters(), 0.2)
    x, y = torch.tensor(normal(1, 6, 8)), torch.tensor(normal(2, 6, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
