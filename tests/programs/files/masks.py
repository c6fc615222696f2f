"""Causal attention by hand, lengths, and losses over chosen elements."""

from __future__ import annotations

import math

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import STEPS, normal, start


class Attention(nn.Module):
    mask: torch.Tensor

    def __init__(self, size: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, size)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (a.view(b, t, self.heads, c // self.heads).transpose(1, 2) for a in (q, k, v))
        weights = (q @ k.transpose(-2, -1)) / math.sqrt(c // self.heads)
        weights = weights.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        y = F.softmax(weights, dim=-1) @ v
        return self.out(y.transpose(1, 2).contiguous().view(b, t, c))


def run() -> list[float]:
    model = Attention(8, 2, 6)
    start(0, model.parameters())
    x, y = torch.tensor(normal(1, 3, 5, 8)), torch.tensor(normal(2, 3, 5, 8))
    lengths = torch.tensor([5, 3, 2])
    valid = torch.arange(5)[None, :] < lengths[:, None]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        out = model(x)
        loss = ((out - y) ** 2)[valid].mean()
        target = torch.where(y > 0, y, torch.zeros_like(y))
        target[~valid] = 0.0
        loss = loss + (out * valid.unsqueeze(-1) - target).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
