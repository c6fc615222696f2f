"""A small convolutional net learns to read digits.

    anneal train conv            python examples/conv.py

The images are made here, from the seed: a 5x7 dot-matrix font, moved about, of varying brightness, in noise.
"""

from __future__ import annotations

import numpy as np

from anneal import nn
from anneal.tensor import Tensor, functional as F, manual_seed, no_grad
from anneal.training import Training, main

STEPS, BATCH, LR = 300, 64, 5e-3
SIZE = 16

# The ten digits, seven rows of five dots each, as in character displays.
FONT = """
.###. ..#.. .###. .###. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ..##. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# ..#.. #...# ....#
.###. .###. ##### .###. ...#. .###. .###. ..#.. .###. .###.
"""
GLYPHS = np.array([[list(cell) for cell in row.split()] for row in FONT.split("\n") if row]) == "#"  # [7, 10, 5]


def digits(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` images float32[count, 1, SIZE, SIZE] in about 0..1, and the digit on each, int32[count]."""
    label = rng.integers(0, 10, count)
    images = rng.normal(0, 0.15, (count, 1, SIZE, SIZE))
    for image, digit in zip(images[:, 0], label):
        glyph = GLYPHS[:, digit].astype(float)
        if rng.random() < 0.5:  # half of them twice as high
            glyph = glyph.repeat(2, axis=0)
        height, width = glyph.shape
        top, left = rng.integers(0, SIZE - height + 1), rng.integers(0, SIZE - width + 1)
        image[top : top + height, left : left + width] += glyph * rng.uniform(0.6, 1.2)
    return images.astype(np.float32), label.astype(np.int32)


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 12, 3, padding=1)
        self.second = nn.Conv2d(12, 24, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.last = nn.Linear(24 * (SIZE // 4) ** 2, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.first(x).relu())
        x = self.pool(self.second(x).relu())
        return self.last(x.reshape(x.shape[0], -1))


class Digits(Training):
    """The net in training."""

    data = f"dot-matrix digits, {SIZE}x{SIZE}, made by examples/conv.py from the seed"
    unit = "images"
    info = f"{SIZE}x{SIZE} images, two 3x3 convolutions with pooling, 10 classes"

    def __init__(self, steps: int, batch: int, seed: int, lr: float) -> None:
        self.rng = np.random.default_rng(seed)
        manual_seed(seed)
        model = ConvNet()
        super().__init__(model, nn.Adam(model.parameters(), lr=lr), steps=steps, batch=batch)

    def next_batch(self) -> tuple[Tensor, Tensor]:
        images, labels = digits(self.rng, self.batch)
        return Tensor(images), Tensor(labels)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x), y)

    @no_grad()
    def sample(self) -> str:
        """Accuracy on new images, and four of them with what the net reads."""
        images, labels = digits(self.rng, 256)
        read = self.model(Tensor(images)).argmax(-1).numpy()
        shade = " .:*#"
        levels = np.clip(images[:4, 0] * (len(shade) - 1), 0, len(shade) - 1).round().astype(int)
        rows = ["   ".join("".join(shade[v] for v in image[r]) for image in levels) for r in range(SIZE)]
        said = "   ".join(f"read as {a}".ljust(SIZE) for a in read[:4])
        return "\n".join([f"accuracy on 256 new images: {(read == labels).mean():.1%}", *rows, said])


def make(*, steps: int = STEPS, batch: int = BATCH, seed: int = 1, lr: float = LR) -> Digits:
    return Digits(steps, batch, seed, lr)


if __name__ == "__main__":
    main(make)
