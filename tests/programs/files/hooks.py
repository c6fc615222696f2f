"""Class activation maps by hooks, gradients that hooks clip, and what a layer between gave and got."""

from __future__ import annotations

from typing import Any

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import normal, start


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.features = nn.Sequential(nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
        self.head = nn.Linear(4, 2)
        self.slopes: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a = self.features(self.conv(x))
        if a.requires_grad:
            a.register_hook(lambda g: self.slopes.append(g))
        return self.head(a.mean(dim=(2, 3))), a


def run() -> list[float]:
    net = Net()
    start(0, net.parameters())
    for p in net.parameters():
        p.register_hook(lambda g: torch.clamp(g, -0.05, 0.05))
    sizes: list[float] = []

    def keep(module: Any, args: Any, result: torch.Tensor) -> None:
        sizes.append(float(result.shape[1]))

    handle = net.conv.register_forward_hook(keep)
    x, y = torch.tensor(normal(1, 4, 1, 6, 6)), torch.tensor([0, 1, 0, 1])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    losses = []
    for _ in range(10):
        logits, a = net(x)
        a.retain_grad()
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert a.grad is not None
        g = net.slopes.pop()
        cam = F.relu((g.mean(dim=(2, 3), keepdim=True) * a.detach()).sum(dim=1))
        losses.append(loss.item() + cam.mean().item() + 10 * (a.grad - g).abs().sum().item())
    handle.remove()
    assert len(sizes) == 10
    return losses
