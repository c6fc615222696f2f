"""A perceptron learns from batches of any size, with kernels that are compiled once.

    anneal train dynmlp --batch=200            python -m examples.dynmlp

The size of a batch is a Variable: a number that is bound when a step runs, not when it is compiled. One set of kernels
serves every batch from 1 to MOST, so the batch may grow while the model learns, from a tenth of --batch to all of it,
which quiets the gradient as a falling learning rate would (Smith et al., 2018). `kernels` in the last lines counts what
one step launches; the sample says for how many sizes it was compiled.
"""

from __future__ import annotations

import numpy as np

from anneal import nn
from anneal.errors import SettingError
from anneal.tensor import Tensor, Variable, functional as F, manual_seed, no_grad
from anneal.training import Training, main

from .mlp import ARMS, POINTS, spirals

STEPS, BATCH, LR = 500, 200, 5e-3
MOST = 1024  # what the kernels are made for
WIDTH = 64


class Growing(Training):
    """The perceptron in training."""

    data = f"three spirals, {POINTS} points made by examples/mlp.py from the seed"
    unit = "points"

    def __init__(self, steps: int, batch: int, seed: int, lr: float) -> None:
        if batch > MOST:
            raise SettingError(f"--batch {batch} is more than the {MOST} examples that dynmlp's kernels are made for")
        self.rng = np.random.default_rng(seed)
        points, arms = spirals(self.rng, POINTS)
        self.unseen = spirals(self.rng, 300)
        manual_seed(seed)
        # The data stay on the device; a step is given which rows to take, and how many of them count.
        self.points, self.arms = Tensor(points).realize(), Tensor(arms).realize()
        model = nn.Sequential(
            nn.Linear(2, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, ARMS)
        )
        super().__init__(model, nn.Adam(model.parameters(), lr=lr), steps=steps, batch=batch)
        self.size = Variable("batch", 1, MOST)
        self.done, self.sizes = 0, set[int]()
        self.info = f"2 -> {WIDTH} -> {WIDTH} -> {ARMS}, relu, batches of any size up to {MOST}"

    def next_batch(self) -> tuple[Tensor, object]:
        """MOST rows, and the size that says how many of them are the batch."""
        size = max(1, round(self.batch * min(1.0, 0.1 + 0.9 * self.done / self.steps)))
        self.done += 1
        self.sizes.add(size)
        return Tensor(self.rng.integers(0, POINTS, MOST).astype(np.int32)), self.size.bind(size)

    def loss(self, rows: Tensor, size: object) -> Tensor:
        taken = rows[:size]
        return F.cross_entropy(self.model(self.points[taken]), self.arms[taken], ignore_index=None)

    @no_grad()
    def sample(self) -> str:
        """Accuracy on unseen points, and what the sizes cost."""
        points, arms = self.unseen
        right = (self.model(Tensor(points)).argmax(-1).numpy() == arms).mean()
        sizes = f"batches of {len(self.sizes)} sizes, from {min(self.sizes)} to {max(self.sizes)}"
        captures = len(self.train_step.captures)
        return f"accuracy on 300 unseen points: {right:.1%}\n{sizes}, by kernels captured {captures} time(s)"


def make(*, steps: int = STEPS, batch: int = BATCH, seed: int = 1, lr: float = LR) -> Growing:
    return Growing(steps, batch, seed, lr)


if __name__ == "__main__":
    main(make)
