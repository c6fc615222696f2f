"""Denoising diffusion on points: a noise schedule, an embedding of the time, and a sampling loop at the end."""

from __future__ import annotations

import math

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import STEPS, normal, start


def timestep_embedding(t: torch.Tensor, size: int) -> torch.Tensor:
    half = size // 2
    freqs = torch.exp(-math.log(10000) * torch.arange(0, half, dtype=torch.float32) / half)
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.into, self.mid, self.out = nn.Linear(2, 16), nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        h = F.silu(self.into(x) + self.time(timestep_embedding(t, 8)))
        return self.out(F.silu(self.mid(h)))


def run() -> list[float]:
    steps = 10
    betas = torch.linspace(1e-3, 0.2, steps)
    alphas = 1.0 - betas
    bars = torch.cumprod(alphas, dim=0)
    model = Denoiser()
    start(0, model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(STEPS):
        x0 = torch.tensor(normal(100 + step, 16, 2)) * 0.3 + 1.0
        t = (torch.arange(16) * 7 + step) % steps
        noise = torch.tensor(normal(200 + step, 16, 2))
        bar = bars[t].unsqueeze(-1)
        xt = bar.sqrt() * x0 + (1 - bar).sqrt() * noise
        loss = F.mse_loss(model(xt, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        x = torch.tensor(normal(300, 4, 2))
        for i in reversed(range(steps)):
            eps = model(x, torch.full((4,), i))
            x = (x - betas[i] / torch.sqrt(1 - bars[i]) * eps) / torch.sqrt(alphas[i])
            if i > 0:
                x = x + torch.sqrt(betas[i]) * torch.tensor(normal(400 + i, 4, 2))
    losses.append(x.abs().sum().item())
    return losses
