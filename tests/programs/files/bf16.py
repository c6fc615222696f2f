"""Weights that are bfloat16 in the forward pass, with float32 masters and moments in bfloat16."""

from __future__ import annotations

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import STEPS, normal, start


def run() -> list[float]:
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    start(0, model.parameters())
    masters = [p.detach().clone() for p in model.parameters()]
    moments = [torch.zeros_like(p).bfloat16() for p in masters]
    x, y = torch.tensor(normal(1, 10, 5)), torch.tensor(normal(2, 10, 1))
    losses = []
    for _ in range(STEPS):
        with torch.no_grad():
            for p, master in zip(model.parameters(), masters, strict=True):
                p.copy_(master.to(torch.bfloat16))
        loss = F.mse_loss(model(x), y)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p, master, m in zip(model.parameters(), masters, moments, strict=True):
                assert p.grad is not None
                m.copy_(m.float() * 0.5 + p.grad.bfloat16().float())
                master -= 0.05 * m.float()
        losses.append(loss.item())
    assert moments[0].dtype == torch.bfloat16
    return losses
