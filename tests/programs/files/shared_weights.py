"""Tied embeddings, and a state by torch's names."""

from __future__ import annotations

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import STEPS, normal


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 9, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embed(ids).mean(dim=1)))


def run() -> list[float]:
    model = Tied()
    table = torch.tensor(normal(0, 9, 6))
    state = {"embed.weight": table, "head.weight": table, "norm.weight": torch.ones(6), "norm.bias": torch.zeros(6)}
    model.load_state_dict(state)
    assert len(list(model.parameters())) == 3
    assert len(model.state_dict()) == 4
    ids = (torch.arange(20).reshape(5, 4) * 7) % 9
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), ids[:, 0])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert model.head.weight is model.embed.weight
    return losses
