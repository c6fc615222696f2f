"""A small diffusion model draws digits.

    anneal train diffusion            python -m examples.diffusion

Denoising diffusion (Ho et al., 2020): a picture is mixed with noise, more of it at each of TIMES times, until nothing
of the picture is left. The network sees a mixture and the time and says which noise is in it. To draw, one starts with
noise alone and takes a little of what the network calls noise away, time after time. The digits are those of
examples/conv.py, made from the seed.
"""

from __future__ import annotations

import numpy as np

from anneal import nn
from anneal.tensor import Tensor, functional as F, jit, manual_seed, no_grad
from anneal.training import Training, decayed, grid, main, told

from .conv import SIZE, digits

STEPS, BATCH, LR = 3000, 128, 2e-3
TIMES, WIDTH = 200, 32
DRAWN = 32


def schedule(times: int) -> np.ndarray:
    """How much of the picture's variance is left at each time: Nichol and Dhariwal's cosine, from nearly 1 to
    nearly 0.
    """
    t = (np.arange(times + 1) / times + 0.008) / 1.008
    left = np.cos(t * np.pi / 2) ** 2
    steps = np.clip(left[1:] / left[:-1], 0.001, None)  # no step may take everything
    return np.cumprod(steps)


def waves(times: int, width: int) -> np.ndarray:
    """A vector for each time: cosines and sines of it, from slow to fast."""
    angles = np.outer(np.arange(times), np.exp(-np.log(1000) * np.arange(width // 2) / (width // 2)))
    return np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


class Residual(nn.Module):
    """Two convolutions that add to what enters; between them the time has its say."""

    def __init__(self, channels: int, out: int) -> None:
        self.norm1, self.first = nn.GroupNorm(4, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(4 * WIDTH, out)
        self.norm2, self.second = nn.GroupNorm(4, out), nn.Conv2d(out, out, 3, padding=1)
        self.past = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.first(self.norm1(x).silu()) + self.time(time).reshape(x.shape[0], -1, 1, 1)
        return self.past(x) + self.second(self.norm2(h).silu())


class UNet(nn.Module):
    """Down to a quarter of the size and up again; on the way up each level also sees what it was on the way down."""

    def __init__(self) -> None:
        w = WIDTH
        self._waves = Tensor(waves(TIMES, w))
        self.time = nn.Sequential(nn.Linear(w, 4 * w), nn.SiLU(), nn.Linear(4 * w, 4 * w), nn.SiLU())
        self.enter = nn.Conv2d(1, w, 3, padding=1)
        self.down1, self.half1 = Residual(w, w), nn.Conv2d(w, 2 * w, 3, stride=2, padding=1)
        self.down2, self.half2 = Residual(2 * w, 2 * w), nn.Conv2d(2 * w, 2 * w, 3, stride=2, padding=1)
        self.middle1, self.attend, self.middle2 = (
            Residual(2 * w, 2 * w),
            nn.SelfAttention(2 * w, 4),
            Residual(2 * w, 2 * w),
        )
        self.twice2, self.up2 = nn.ConvTranspose2d(2 * w, 2 * w, 2, stride=2), Residual(4 * w, 2 * w)
        self.twice1, self.up1 = nn.ConvTranspose2d(2 * w, w, 2, stride=2), Residual(2 * w, w)
        self.norm, self.leave = nn.GroupNorm(4, w), nn.Conv2d(w, 1, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """The noise in x (batch, 1, SIZE, SIZE) at the times t, int32 (batch,)."""
        time = self.time(self._waves[t])
        a = self.down1(self.enter(x), time)
        b = self.down2(self.half1(a), time)
        c = self.middle1(self.half2(b), time)
        pixels = c.flatten(2).transpose(1, 2)
        c = c + self.attend(pixels).transpose(1, 2).reshape(*c.shape)
        c = self.middle2(c, time)
        b = self.up2(Tensor.cat([self.twice2(c), b], dim=1), time)
        a = self.up1(Tensor.cat([self.twice1(b), a], dim=1), time)
        return self.leave(self.norm(a).silu())


class Denoiser(Training):
    """The network in training."""

    model: UNet
    data = f"dot-matrix digits, {SIZE}x{SIZE}, made by examples/conv.py from the seed"

    def __init__(self, steps: int, batch: int, seed: int, lr: float) -> None:
        self.rng = np.random.default_rng(seed)
        self.left = schedule(TIMES).astype(np.float32)
        manual_seed(seed)
        model = UNet()
        self.info = f"U-Net of three levels, {WIDTH} to {2 * WIDTH} channels, {TIMES} times"
        optimizer = nn.AdamW(decayed(model.parameters(), 0.01), lr=lr)
        rates = nn.WarmupCosine(optimizer, lr, warmup=max(1, steps // 20), steps=steps, floor=0.05)
        super().__init__(model, optimizer, steps=steps, batch=batch, schedule=rates, clip=1.0)

    def next_batch(self) -> tuple[Tensor, Tensor, Tensor]:
        """Mixtures, the noise in them, and their times."""
        pictures = 2 * digits(self.rng, self.batch)[0] - 1
        noise = self.rng.standard_normal(pictures.shape, np.float32)
        t = self.rng.integers(0, TIMES, self.batch)
        left = self.left[t, None, None, None]
        return Tensor(np.sqrt(left) * pictures + np.sqrt(1 - left) * noise), Tensor(noise), Tensor(t.astype(np.int32))

    def loss(self, mixture: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(self.model(mixture, t), noise)

    @no_grad()
    def sample(self) -> str:
        """New digits, from noise."""
        self.model.eval()

        @jit
        def before(x: Tensor, t: Tensor, numbers: Tensor, noise: Tensor) -> Tensor:
            """The picture one time earlier: its mean as the network sees it, and a little new noise."""
            scale, share, fresh = numbers[0], numbers[1], numbers[2]
            return scale * (x - share * self.model(x, t)) + fresh * noise

        x = Tensor(self.rng.standard_normal((DRAWN, 1, SIZE, SIZE), np.float32))
        for t in told(reversed(range(TIMES)), "drawing", TIMES):
            left, earlier = self.left[t], self.left[t - 1] if t else np.float32(1)
            step = left / earlier
            fresh = np.sqrt((1 - step) * (1 - earlier) / (1 - left))
            numbers = np.array([1 / np.sqrt(step), (1 - step) / np.sqrt(1 - left), fresh], np.float32)
            noise = self.rng.standard_normal(x.shape, np.float32)
            x = before(x, Tensor(np.full(DRAWN, t, np.int32)), Tensor(numbers), Tensor(noise))
        self.picture = grid((x.numpy() + 1) / 2)
        return f"{DRAWN} digits, drawn from noise in {TIMES} steps"


def make(*, steps: int = STEPS, batch: int = BATCH, seed: int = 1, lr: float = LR) -> Denoiser:
    return Denoiser(steps, batch, seed, lr)


if __name__ == "__main__":
    main(make)
