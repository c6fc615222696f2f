"""A training as a user of torch writes it: optimisers, schedules, jit of a function and of a method."""

from __future__ import annotations

import math
from typing import assert_type

import numpy as np

from anneal import nn
from anneal.tensor import Tensor, functional as F, io, jit, manual_seed, no_grad


class Classifier(nn.Module):
    def __init__(self, classes: int) -> None:
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        return self.head(x.mean(axis=(2, 3)))


def batches(rng: np.random.Generator, count: int) -> list[tuple[Tensor, Tensor]]:
    return [(Tensor(rng.random((4, 1, 8, 8), np.float32)), Tensor(rng.integers(0, 3, 4))) for _ in range(count)]


def train(epochs: int = 1) -> float:
    manual_seed(0)
    model = Classifier(3)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = nn.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others}], lr=1e-3, betas=(0.9, 0.99))
    schedule = nn.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(step / 10)))
    loss_function = nn.CrossEntropyLoss()

    @jit
    def step(x: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        logits = model(x)
        loss = loss_function(logits, y) + smoothing * F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        assert_type(nn.clip_grad_norm_(model.parameters(), 1.0), Tensor)
        optimizer.step()
        return loss

    total = 0.0
    for _ in range(epochs):
        for x, y in batches(np.random.default_rng(0), 3):
            loss = step(x, y, smoothing=0.1)
            assert_type(loss, Tensor)
            total += float(loss)
            schedule.step()
            assert_type(schedule.get_last_lr(), list[float])
    group = optimizer.param_groups[0]
    assert_type(group["lr"], float)
    assert_type(group["params"], list[Tensor])
    group["lr"] = group["lr"] / 2
    assert_type(optimizer.state_dict(), dict[str, Tensor])
    optimizer.load_state_dict(optimizer.state_dict())
    return total


class Trainer:
    def __init__(self, model: Classifier) -> None:
        self.model = model
        self.optimizer = nn.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.schedule = nn.WarmupCosine(self.optimizer, 0.1, warmup=1, steps=10)

    @jit
    def step(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.model(x)
        loss = F.cross_entropy(logits, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss, logits.argmax(-1)

    @no_grad()
    def accuracy(self, x: Tensor, y: Tensor) -> float:
        self.model.eval()
        right = self.model(x).argmax(-1).eq(y)
        assert_type(right, Tensor)
        return float(right.float().mean())

    def save(self, path: str) -> None:
        io.safe_save(self.model.state_dict(), path)
        self.model.load_state_dict(io.safe_load(path))


trainer = Trainer(Classifier(3))
x, y = batches(np.random.default_rng(1), 1)[0]
assert_type(trainer.step(x, y), tuple[Tensor, Tensor])
assert_type(trainer.schedule.step(), float)
assert_type(trainer.accuracy(x, y), float)
trainer.step.reset()
train()
