"""A critic with a penalty on the norm of its gradients, then one by weights of norm 1 (power iteration by hand)."""

from __future__ import annotations

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import STEPS, normal, start


class Spectral(nn.Module):
    u: torch.Tensor

    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.linear = nn.Linear(a, b)
        self.register_buffer("u", F.normalize(torch.ones(b), dim=0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = self.linear.weight
        with torch.no_grad():
            v = F.normalize(w.t() @ self.u, dim=0)
            self.u.copy_(F.normalize(w @ v, dim=0))
        sigma = torch.dot(self.u.clone(), w @ v)
        return F.linear(x, w / sigma, self.linear.bias)


def run() -> list[float]:
    critic = nn.Sequential(nn.Linear(2, 12), nn.LeakyReLU(0.2), nn.Linear(12, 1))
    bounded = nn.Sequential(Spectral(2, 8), nn.ReLU(), Spectral(8, 1))
    start(0, [*critic.parameters(), *bounded.parameters()])
    optimizer = torch.optim.Adam([*critic.parameters(), *bounded.parameters()], lr=0.01, betas=(0.0, 0.9))
    losses = []
    for step in range(STEPS):
        real, fake = torch.tensor(normal(10 + step, 8, 2)) + 1, torch.tensor(normal(50 + step, 8, 2))
        mix = torch.tensor(normal(90 + step, 8, 1)).sigmoid()
        between = (mix * real + (1 - mix) * fake).requires_grad_(True)
        scores = critic(between)
        grads = torch.autograd.grad(
            outputs=scores, inputs=between, grad_outputs=torch.ones_like(scores), create_graph=True, retain_graph=True
        )[0]
        penalty = ((grads.view(8, -1).norm(2, dim=1) - 1) ** 2).mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        loss = loss + F.relu(1 - bounded(real)).mean() + F.relu(1 + bounded(fake)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
