"""A mixture density network, and a normalising flow of affine couplings."""

from __future__ import annotations

import math

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import STEPS, normal, start


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(1, 12)
        self.pi, self.mu, self.sigma = nn.Linear(12, 3), nn.Linear(12, 3), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.body(x))
        sigma = F.softplus(self.sigma(h)) + 1e-3
        z = (y - self.mu(h)) / sigma
        log_prob = F.log_softmax(self.pi(h), dim=1) - torch.log(sigma) - 0.5 * z**2 - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(log_prob, dim=1).mean()


class Coupling(nn.Module):
    mask: torch.Tensor

    def __init__(self, turn: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.1), nn.Linear(8, 4))
        self.register_buffer("mask", torch.tensor([1.0, 0.0]) if turn else torch.tensor([0.0, 1.0]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = x * self.mask
        s, t = self.net(kept).chunk(2, dim=1)
        s = torch.tanh(s) * (1 - self.mask)
        return kept + (1 - self.mask) * (x * torch.exp(s) + t), s.sum(dim=1)


def run() -> list[float]:
    mixture, flow = Mixture(), nn.ModuleList([Coupling(i % 2) for i in range(4)])
    start(0, [*mixture.parameters(), *flow.parameters()])
    x = torch.tensor(normal(1, 20, 1))
    y = torch.sin(3 * x) + 0.1 * torch.tensor(normal(2, 20, 1))
    points = torch.cat([x, y], dim=1)
    optimizer = torch.optim.Adam([*mixture.parameters(), *flow.parameters()], lr=0.01)
    losses = []
    for _ in range(STEPS):
        z, log_det = points, torch.zeros(20)
        for layer in flow:
            z, more = layer(z)
            log_det = log_det + more
        loss = (0.5 * (z**2).sum(1) + math.log(2 * math.pi) - log_det).mean() + mixture(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
