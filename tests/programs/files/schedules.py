"""Warm-up and cosine, one cycle, and a plateau, one optimiser each."""

from __future__ import annotations

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from anneal.optim import lr_scheduler
from tests.programs.files._start import STEPS, normal, start


def run() -> list[float]:
    models = nn.ModuleList([nn.Linear(4, 1) for _ in range(3)])
    start(0, models.parameters())
    x, y = torch.tensor(normal(1, 12, 4)), torch.tensor(normal(2, 12, 1))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
    warm = lr_scheduler.SequentialLR(
        optimizers[0],
        [
            lr_scheduler.LinearLR(optimizers[0], start_factor=0.1, total_iters=5),
            lr_scheduler.CosineAnnealingLR(optimizers[0], T_max=15),
        ],
        milestones=[5],
    )
    cycle = lr_scheduler.OneCycleLR(optimizers[1], max_lr=0.3, total_steps=STEPS + 1)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizers[2], factor=0.5, patience=1)
    losses = []
    for _ in range(STEPS):
        total, last = 0.0, 0.0
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            loss = F.huber_loss(model(x), y)
            loss.backward()
            optimizer.step()
            last = loss.item()
            total += last
        warm.step()
        cycle.step()
        plateau.step(last)
        losses.append(total + sum(o.param_groups[0]["lr"] for o in optimizers))
    return losses
