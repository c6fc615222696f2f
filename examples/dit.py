"""A diffusion transformer draws what it is asked for.

    anneal train dit            python examples/dit.py

The transformer of vit, turned to drawing (Peebles and Xie, 2023). A picture is mixed with noise: at time 0 it is the
picture, at time 1 noise. Patches of the mixture go in, patches of the picture come out (Li and He, 2025: easier to
learn than the noise, of which a patch holds more than the network is wide), and the way from the one to the other is
the velocity to follow back from noise. What the network should know beside the mixture, the time and the class, steers
every block: adaLN-zero makes scales, shifts and gates of them, zero at first, so that each block begins as the
identity. Now and then the class is withheld in training; to draw, one can then go further in the direction that the
class makes (classifier-free guidance).

Pictures are CIFAR-10, or where it cannot be had, shapes.
"""

from __future__ import annotations

import numpy as np

from anneal import nn
from anneal.tensor import Tensor, functional as F, jit, manual_seed, no_grad
from anneal.training import CIFAR10, Training, decayed, grid, images, main, told

DOWNLOADS = CIFAR10  # if the user wants that
STEPS, BATCH, LR = 5000, 128, 1e-3
SIZE, PATCH, WIDTH, DEPTH, HEADS = 32, 4, 192, 6, 6
CLASSES, WITHHELD = 10, 0.1  # the class number CLASSES is "none"
POOL = 10_000  # shapes, where they stand in for CIFAR-10
DRAWS, GUIDANCE, ROWS = 50, 2.0, 4  # steps of a drawing, how far to go, drawings of each class


def times(rng: np.random.Generator, shape: tuple[int, ...], middle: float = 0.0) -> np.ndarray:
    """Times in 0..1, more in the middle than at the ends: a logistic function of normal numbers."""
    drawn: np.ndarray = 1 / (1 + np.exp(-middle - rng.standard_normal(shape, np.float32)))
    return drawn


def velocity(mixture: Tensor, picture: Tensor, t: Tensor) -> Tensor:
    """The way from a picture to its mixture at the times t (batch,), in the time it took; not quite so near to the
    picture.
    """
    return (mixture - picture) / t.maximum(0.05).reshape(-1, 1, 1, 1)


def places() -> np.ndarray:
    """Where each patch is, float32 (1, patches, WIDTH): waves over its row and over its column. As large as what is in
    the patches, so that attention tells neighbours apart from the first step on; places that must be learnt take far
    longer."""
    n = SIZE // PATCH
    angles = np.arange(n)[:, None] * np.exp(-np.linspace(0, np.log(100), WIDTH // 4))
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    rows, columns = np.repeat(waves, n, axis=0), np.tile(waves, (n, 1))
    return np.concatenate([rows, columns], axis=1)[None].astype(np.float32)


class Waves(nn.Module):
    """A number in 0..1 as a vector: cosines and sines of it, from slow to fast, and two layers."""

    def __init__(self) -> None:
        self._rates = Tensor(np.exp(np.linspace(0, np.log(100), WIDTH // 2)).astype(np.float32))
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, t: Tensor) -> Tensor:
        angles = t.reshape(-1, 1) * self._rates
        return self.second(self.first(Tensor.cat([angles.cos(), angles.sin()], dim=-1)).silu())


def zero(n_in: int, n_out: int) -> nn.Linear:
    """A layer that gives zeros until it has learnt."""
    layer = nn.Linear(n_in, n_out)
    layer.weight, layer.bias = nn.init.constant((n_out, n_in), 0.0), nn.init.constant((n_out,), 0.0)
    return layer


def steered(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class DiTBlock(nn.Module):
    """A transformer block whose norms are scaled and shifted, and whose results are gated, by the condition."""

    def __init__(self) -> None:
        self.norm1, self.norm2 = [nn.LayerNorm(WIDTH, eps=1e-6, elementwise_affine=False) for _ in range(2)]
        self.attn = nn.SelfAttention(WIDTH, HEADS)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.steer = zero(WIDTH, 6 * WIDTH)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        s = self.steer(condition.silu()).chunk(6, dim=-1)
        x = x + s[2].unsqueeze(1) * self.attn(steered(self.norm1(x), s[0], s[1]))
        h = self.fc1(steered(self.norm2(x), s[3], s[4])).gelu("tanh")
        return x + s[5].unsqueeze(1) * self.fc2(h)


class DiT(nn.Module):
    """Mixtures (batch, 3, SIZE, SIZE), `times` (batch,) each and classes to pictures as they may be behind the
    mixtures.
    """

    def __init__(self, times: int = 1) -> None:
        self.patch = nn.PatchEmbed(SIZE, PATCH, 3, WIDTH)
        self._places = Tensor(places())
        self.time = [Waves() for _ in range(times)]
        self.label = nn.Embedding(CLASSES + 1, WIDTH, weight=nn.init.normal((CLASSES + 1, WIDTH), 0.02))
        self.blocks = [DiTBlock() for _ in range(DEPTH)]
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6, elementwise_affine=False)
        self.steer = zero(WIDTH, 2 * WIDTH)
        self.out = zero(WIDTH, 3 * PATCH**2)

    def forward(self, x: Tensor, times: tuple[Tensor, ...], label: Tensor) -> Tensor:
        condition = self.label(label)
        for waves, t in zip(self.time, times):
            condition = condition + waves(t)
        x = self.patch(x) + self._places
        for block in self.blocks:
            x = block(x, condition)
        shift, scale = self.steer(condition.silu()).chunk(2, dim=-1)
        x = self.out(steered(self.norm(x), shift, scale))
        n = SIZE // PATCH
        return x.reshape(-1, n, n, 3, PATCH, PATCH).permute(0, 3, 1, 4, 2, 5).reshape(-1, 3, SIZE, SIZE)


class Drawing(Training):
    """The transformer in training."""

    def __init__(self, steps: int, batch: int, seed: int, lr: float) -> None:
        self.rng = np.random.default_rng(seed)
        self.images = images(seed, train=POOL, test=64)
        self.data = self.images.about
        manual_seed(seed)
        model = DiT()
        self.info = f"{(SIZE // PATCH) ** 2} patches of {PATCH}x{PATCH}, {DEPTH} blocks, {HEADS} heads, width {WIDTH}"
        optimizer = nn.AdamW(decayed(model.parameters(), 0.01), lr=lr, betas=(0.9, 0.99))
        schedule = nn.WarmupCosine(optimizer, lr, warmup=max(1, steps // 20), steps=steps, floor=0.02)
        super().__init__(model, optimizer, steps=steps, batch=batch, schedule=schedule, clip=1.0)

    def next_batch(self) -> tuple[Tensor, ...]:
        """Pictures, times, and classes, some withheld."""
        rows = self.rng.integers(0, len(self.images.train), self.batch)
        pictures = 2 * self.images.train[rows] - 1
        label = np.where(self.rng.random(self.batch) < WITHHELD, CLASSES, self.images.train_labels[rows])
        return Tensor(pictures), Tensor(times(self.rng, (self.batch,))), Tensor(label.astype(np.int32))

    def loss(self, pictures: Tensor, t: Tensor, label: Tensor) -> Tensor:
        """How far the velocity that is seen is from the one that it should be."""
        way = t.reshape(-1, 1, 1, 1)
        mixture = (1 - way) * pictures + way * pictures.randn_like()
        return F.mse_loss(velocity(mixture, self.model(mixture, (t,), label), t), velocity(mixture, pictures, t))

    @no_grad()
    def sample(self) -> str:
        """ROWS drawings of each class, a class to a column."""
        count = ROWS * CLASSES
        label = np.tile(np.arange(CLASSES, dtype=np.int32), ROWS)
        both = Tensor(np.concatenate([label, np.full(count, CLASSES, np.int32)]))

        @jit
        def earlier(x: Tensor, t: Tensor) -> Tensor:
            """The mixture a little earlier than t."""
            twice = Tensor.cat([x, x], dim=0)
            asked, plain = velocity(twice, self.model(twice, (t,), both), t).chunk(2, dim=0)
            return x - (plain + GUIDANCE * (asked - plain)) / DRAWS

        x = Tensor(self.rng.standard_normal((count, 3, SIZE, SIZE), np.float32))
        for step in told(range(DRAWS), "drawing", DRAWS):
            x = earlier(x, Tensor(np.full(2 * count, 1 - step / DRAWS, np.float32)))
        self.picture = grid((x.numpy() + 1) / 2, columns=CLASSES)
        return f"drawn in {DRAWS} steps, guidance {GUIDANCE}, by column: " + ", ".join(self.images.classes)


def make(*, steps: int = STEPS, batch: int = BATCH, seed: int = 1, lr: float = LR) -> Drawing:
    return Drawing(steps, batch, seed, lr)


if __name__ == "__main__":
    main(make)
