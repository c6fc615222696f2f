"""Gradients of small batches that add up, clipped, with a warm-up, and a fit by L-BFGS afterwards."""

from __future__ import annotations

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from anneal.utils.data import DataLoader, TensorDataset
from tests.programs.files._start import normal, start


def run() -> list[float]:
    model = nn.Sequential(nn.Linear(4, 8), nn.ELU(), nn.Linear(8, 1))
    start(0, model.parameters())
    x = torch.tensor(normal(1, 32, 4))
    y = (x[:, :1] * x[:, 1:2]) + 0.1 * torch.tensor(normal(2, 32, 1))
    loader: DataLoader[tuple[torch.Tensor, ...]] = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    losses: list[float] = []
    for _ in range(3):
        for n, (a, b) in enumerate(loader):
            loss = F.l1_loss(model(a), b) / 2
            loss.backward()
            losses.append(loss.item())
            if n % 2 == 1:
                norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                losses.append(float(norm))
    line = nn.Linear(4, 1)
    start(3, line.parameters())
    lbfgs = torch.optim.LBFGS(line.parameters(), lr=0.5, max_iter=4)

    def closure() -> torch.Tensor:
        lbfgs.zero_grad()
        error = F.mse_loss(line(x), y)
        error.backward()
        return error

    for _ in range(3):
        losses.append(float(lbfgs.step(closure)))
    return losses
