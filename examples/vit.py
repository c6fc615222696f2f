"""A vision transformer learns to name shapes.

    anneal train vit            python examples/vit.py

An image becomes a row of patches, each a vector; a class token stands before them, positions are learnt, and every
block lets all of them attend to all. The answer is read off the class token. The pictures are made here, from the seed:
ten shapes of any colour, size and turn on a ground that goes from one colour to another, so colour tells nothing.
"""

from __future__ import annotations

import numpy as np

from anneal import nn
from anneal.tensor import Tensor, functional as F, jit, manual_seed, no_grad
from anneal.training import Training, decayed, grid, main, shapes

STEPS, BATCH, LR = 1500, 128, 1e-3
SIZE, PATCH, WIDTH, DEPTH, HEADS = 32, 4, 128, 6, 4
POOL, UNSEEN = 8192, 1024  # pictures to learn from, and to test with
CLASSES = ["disc", "ring", "square", "frame", "triangle", "cross", "star", "bar", "moon", "pair"]


class Shapes(Training):
    """The transformer in training."""

    data = f"ten shapes, {POOL:,} pictures of {SIZE}x{SIZE} made from the seed, and flipped"

    def __init__(self, steps: int, batch: int, seed: int, lr: float) -> None:
        self.rng = np.random.default_rng(seed)
        self.pictures, self.labels = shapes(self.rng, POOL)
        self.unseen, self.answers = shapes(self.rng, UNSEEN)
        manual_seed(seed)
        model = nn.ViT(SIZE, PATCH, 3, len(CLASSES), WIDTH, DEPTH, HEADS)
        self.info = f"{(SIZE // PATCH) ** 2} patches of {PATCH}x{PATCH}, {DEPTH} blocks, {HEADS} heads, width {WIDTH}"
        optimizer = nn.AdamW(decayed(model.parameters(), 0.05), lr=lr)
        schedule = nn.WarmupCosine(optimizer, lr, warmup=max(1, steps // 20), steps=steps, floor=0.02)
        super().__init__(model, optimizer, steps=steps, batch=batch, schedule=schedule, clip=1.0)
        self.read = jit(lambda x: model(x).argmax(-1))

    def next_batch(self) -> tuple[Tensor, Tensor]:
        rows = self.rng.integers(0, POOL, self.batch)
        flip = self.rng.random(self.batch) < 0.5
        pictures = self.pictures[rows]
        pictures[flip] = pictures[flip, :, :, ::-1]
        return Tensor(pictures), Tensor(self.labels[rows])

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(2 * x - 1), y)

    @no_grad()
    def sample(self) -> str:
        """Accuracy on unseen pictures; sixteen of them with what the model takes them for, mistakes first."""
        self.model.eval()
        read = np.concatenate([self.read(2 * Tensor(p) - 1).numpy() for p in np.split(self.unseen, UNSEEN // 128)])
        self.model.train()
        right = read == self.answers
        shown = np.argsort(right, kind="stable")[:16]
        self.picture = grid(self.unseen[shown], columns=8)
        said = [
            CLASSES[r] if r == a else f"{CLASSES[r]} (a {CLASSES[a]})" for r, a in zip(read[shown], self.answers[shown])
        ]
        return f"accuracy on {UNSEEN} unseen pictures: {right.mean():.1%}\n" + ", ".join(said)


def make(*, steps: int = STEPS, batch: int = BATCH, seed: int = 1, lr: float = LR) -> Shapes:
    return Shapes(steps, batch, seed, lr)


if __name__ == "__main__":
    main(make)
