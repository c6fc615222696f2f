"""MeanFlow draws in one step.

    anneal train meanflow            python -m examples.meanflow

A flow carries noise (time 1) to pictures (time 0) along velocities v; following it takes many small steps. MeanFlow
(Geng et al., 2025) learns the mean velocity u between two times instead: one step from 1 to 0 is then all of the way.
The two agree if

    u(z, r, t) = v - (t - r) * d/dt u(z, r, t),      d/dt along the flow: z moves by v, t by 1, r by 0.

That total derivative is a Jacobian-vector product, so `jvp` carries it forward beside u itself, in one pass. The
network is dit's, with two times; it gives the picture at the end of the way, and u is the way there.
"""

from __future__ import annotations

import numpy as np

from anneal import nn
from anneal.tensor import Tensor, jit, jvp, manual_seed, no_grad
from anneal.training import CIFAR10, Training, decayed, grid, images, main

from . import dit

DOWNLOADS = CIFAR10  # if the user wants that
STEPS, BATCH, LR = 10_000, 128, 1e-3
APART = 0.5  # the share of examples whose two times differ; for the others u is v
ROWS = 4


class MeanFlow(Training):
    """The transformer in training."""

    def __init__(self, steps: int, batch: int, seed: int, lr: float) -> None:
        self.rng = np.random.default_rng(seed)
        self.images = images(seed, train=dit.POOL, test=64)
        self.data = self.images.about
        manual_seed(seed)
        model = dit.DiT(times=2)
        self.info = f"dit's transformer ({dit.DEPTH} blocks, width {dit.WIDTH}) with two times"
        optimizer = nn.AdamW(decayed(model.parameters(), 0.0), lr=lr, betas=(0.9, 0.95))
        schedule = nn.WarmupCosine(optimizer, lr, warmup=max(1, steps // 20), steps=steps, floor=0.02)
        super().__init__(model, optimizer, steps=steps, batch=batch, schedule=schedule, clip=1.0)

    def next_batch(self) -> tuple[Tensor, ...]:
        """Pictures, two times r <= t, and the classes."""
        rows = self.rng.integers(0, len(self.images.train), self.batch)
        pictures = self.images.train[rows]
        times = dit.times(self.rng, (2, self.batch), middle=-0.4)
        t, r = times.max(0), np.where(self.rng.random(self.batch) < APART, times.min(0), times.max(0))
        label = self.images.train_labels[rows]
        return Tensor(2 * pictures - 1), Tensor(r), Tensor(t), Tensor(label)

    def velocity(self, z: Tensor, r: Tensor, t: Tensor, label: Tensor) -> Tensor:
        """The mean velocity between r and t of what is at z at time t."""
        return dit.velocity(z, self.model(z, (t, t - r), label), t)

    def loss(self, pictures: Tensor, r: Tensor, t: Tensor, label: Tensor) -> Tensor:
        """How far u is from what the identity asks for; of the pictures of a batch those that are far count less."""
        noise, way = pictures.randn_like(), t.reshape(-1, 1, 1, 1)
        z, v = (1 - way) * pictures + way * noise, noise - pictures
        u, change = jvp(
            lambda z, r, t: self.velocity(z, r, t, label), (z, r, t), (v, Tensor.zeros_like(r), Tensor.ones_like(t))
        )
        target = (v - (t - r).reshape(-1, 1, 1, 1) * change).detach()
        far = (way * (u - target)).square().mean((1, 2, 3))  # of the pictures at the ends of the ways
        weight = 1 / (far.detach() + 1e-2)
        return (far * weight / weight.mean()).mean()

    @no_grad()
    def sample(self) -> str:
        """Drawings in one step, a class to a column."""
        count = ROWS * dit.CLASSES
        label = Tensor(np.tile(np.arange(dit.CLASSES, dtype=np.int32), ROWS))
        noise = Tensor(self.rng.standard_normal((count, 3, dit.SIZE, dit.SIZE), np.float32))
        start, end = Tensor(np.ones(count, np.float32)), Tensor(np.zeros(count, np.float32))
        x = noise - jit(self.velocity)(noise, end, start, label)
        self.picture = grid((x.numpy() + 1) / 2, columns=dit.CLASSES)
        return "drawn in one step, by column: " + ", ".join(self.images.classes)


def make(*, steps: int = STEPS, batch: int = BATCH, seed: int = 1, lr: float = LR) -> MeanFlow:
    return MeanFlow(steps, batch, seed, lr)


if __name__ == "__main__":
    main(make)
