"""Skip-grams with negative samples, and a factorisation of ratings with biases."""

from __future__ import annotations

import numpy as np

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import STEPS, start


class SkipGram(nn.Module):
    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.inside = nn.Embedding(words, size)
        self.outside = nn.Embedding(words, size)

    def forward(self, centre: torch.Tensor, context: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
        v, u = self.inside(centre), self.outside(context)
        good = F.logsigmoid((v * u).sum(1))
        bad = F.logsigmoid(-torch.bmm(self.outside(negative), v.unsqueeze(2)).squeeze(2)).sum(1)
        return -(good + bad).mean()


class Factors(nn.Module):
    def __init__(self, users: int, items: int) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, 4), nn.Embedding(items, 4)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        product = (self.users(user) * self.items(item)).sum(dim=1)
        return product + self.user_bias(user).squeeze() + self.item_bias(item).squeeze()


def run() -> list[float]:
    rng = np.random.default_rng(0)
    words, ratings = SkipGram(20, 6), Factors(8, 10)
    start(0, [*words.parameters(), *ratings.parameters()])
    first = torch.optim.SGD(words.parameters(), lr=0.5)
    second = torch.optim.Adagrad(ratings.parameters(), lr=0.1)
    losses = []
    for _ in range(STEPS):
        centre, context, negative = (torch.tensor(rng.integers(0, 20, n)) for n in ((12,), (12,), (12, 4)))
        first.zero_grad()
        loss = words(centre, context, negative)
        loss.backward()
        first.step()
        user, item = torch.tensor(rng.integers(0, 8, 12)), torch.tensor(rng.integers(0, 10, 12))
        stars = torch.tensor(rng.integers(1, 6, 12).astype(np.float32))
        second.zero_grad()
        error = F.mse_loss(ratings(user, item), stars)
        error.backward()
        second.step()
        losses.append(loss.item() + error.item())
    return losses
