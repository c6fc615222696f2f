"""A multi-layer perceptron learns which arm of three spirals a point of the plane belongs to.

    anneal train mlp            python examples/mlp.py

The points are made here, from the seed.
"""

from __future__ import annotations

import numpy as np

from anneal import nn
from anneal.tensor import Tensor, functional as F, manual_seed, no_grad
from anneal.training import Training, main

STEPS, BATCH, LR = 500, 128, 5e-3
ARMS, POINTS, WIDTH = 3, 1500, 64


def spirals(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` noisy points on ARMS interleaved spirals: float32[count, 2] and the arm of each, int32[count]."""
    arm = rng.integers(0, ARMS, count)
    radius = rng.uniform(0.05, 1.0, count)
    angle = 2 * np.pi * arm / ARMS + 4.0 * radius + rng.normal(0, 0.12, count)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points.astype(np.float32), arm.astype(np.int32)


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, ARMS)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.first(x).relu()).relu())


class Spirals(Training):
    """The perceptron in training."""

    data = f"three spirals, {POINTS} points made by examples/mlp.py from the seed"
    unit = "points"
    info = f"2 -> {WIDTH} -> {WIDTH} -> {ARMS}, relu"

    def __init__(self, steps: int, batch: int, seed: int, lr: float) -> None:
        self.rng = np.random.default_rng(seed)
        self.points, self.arms = spirals(self.rng, POINTS)
        self.unseen = spirals(self.rng, 300)
        manual_seed(seed)
        model = Perceptron()
        super().__init__(model, nn.Adam(model.parameters(), lr=lr), steps=steps, batch=batch)

    def next_batch(self) -> tuple[Tensor, Tensor]:
        rows = self.rng.integers(0, POINTS, self.batch)
        return Tensor(self.points[rows]), Tensor(self.arms[rows])

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x), y)

    @no_grad()
    def sample(self) -> str:
        """Accuracy on unseen points, and the plane as the model divides it."""
        points, arms = self.unseen
        right = (self.model(Tensor(points)).argmax(-1).numpy() == arms).mean()
        y, x = np.meshgrid(np.linspace(1, -1, 16), np.linspace(-1, 1, 40), indexing="ij")
        plane = np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)
        arm = self.model(Tensor(plane)).argmax(-1).numpy().reshape(x.shape)
        picture = "\n".join("".join(".o#"[a] for a in row) for row in arm)
        return f"accuracy on 300 unseen points: {right:.1%}\n{picture}"


def make(*, steps: int = STEPS, batch: int = BATCH, seed: int = 1, lr: float = LR) -> Spirals:
    return Spirals(steps, batch, seed, lr)


if __name__ == "__main__":
    main(make)
