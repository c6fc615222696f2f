"""Pictures to learn from: CIFAR-10 where it can be had, and shapes that are made here."""

from __future__ import annotations

import functools
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from anneal import settings
from anneal.assets import ASSETS, fetch, location, verify
from anneal.errors import DataError
from anneal.runtime import here

__all__ = ["CIFAR10", "Images", "cifar10", "downloads", "images", "shapes"]

Array = np.ndarray[Any, Any]
CIFAR10 = "cifar10/cifar-10-binary.tar.gz"
SIZE = 32  # of CIFAR-10's images, and of shapes


@dataclass(frozen=True)
class Images:
    """Pictures of classes: float32 (n, 3, 32, 32) in 0..1 and int32 labels, to learn from and to test with."""

    train: Array
    train_labels: Array
    test: Array
    test_labels: Array
    classes: tuple[str, ...]
    about: str  # what they are, and why, in one line


_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@functools.cache
def cifar10() -> Images:
    """CIFAR-10: 50,000 photographs and 10,000 to test, downloaded once (170 MB). DataError where it cannot be had."""
    asset = ASSETS[CIFAR10]
    if verify(asset) is None and not settings.current().offline:
        print(f"anneal: downloading CIFAR-10, {asset.bytes / 1e6:.0f} MB, once", file=sys.stderr)
    path = fetch(asset)
    parts: dict[str, bytes] = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = member.name.rsplit("/", 1)[-1]
            if name.endswith("_batch.bin") or name.startswith("data_batch_"):
                file = archive.extractfile(member)
                assert file is not None  # the archive has the pinned hash
                parts[name] = file.read()

    def read(names: list[str]) -> tuple[Array, Array]:
        # An image is a byte for its class and three planes of 32 rows, red, green and blue.
        rows = np.concatenate([np.frombuffer(parts[n], np.uint8).reshape(-1, 1 + 3 * SIZE * SIZE) for n in names])
        return rows[:, 1:].reshape(-1, 3, SIZE, SIZE).astype(np.float32) / 255, rows[:, 0].astype(np.int32)

    train, train_labels = read([f"data_batch_{i}.bin" for i in range(1, 6)])
    test, test_labels = read(["test_batch.bin"])
    about = "CIFAR-10 (Krizhevsky, 2009), 50,000 photographs of ten classes, 32x32"
    return Images(train, train_labels, test, test_labels, _CIFAR10, about)


# The shapes, by which points (u, v) of about -1..1 belong to them.
_SHAPES: dict[str, Callable[[Array, Array], Array]] = {
    "disc": lambda u, v: u * u + v * v < 1,
    "ring": lambda u, v: abs(u * u + v * v - 0.65) < 0.35,
    "square": lambda u, v: np.maximum(abs(u), abs(v)) < 0.85,
    "frame": lambda u, v: abs(np.maximum(abs(u), abs(v)) - 0.7) < 0.2,
    "triangle": lambda u, v: (v < 0.7) & (abs(u) * 1.7 - v < 0.9),
    "cross": lambda u, v: (np.minimum(abs(u), abs(v)) < 0.28) & (np.maximum(abs(u), abs(v)) < 1),
    "star": lambda u, v: np.hypot(u, v) < 0.7 + 0.35 * np.cos(5 * np.arctan2(u, -v)),
    "bar": lambda u, v: (abs(u) < 1) & (abs(v) < 0.3),
    "moon": lambda u, v: (u * u + v * v < 1) & ((u - 0.5) ** 2 + v * v > 0.7),
    "pair": lambda u, v: (abs(u) - 0.55) ** 2 + v * v < 0.18,
}


def shapes(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """`count` pictures of ten shapes, float32 (count, 3, 32, 32) in 0..1, and which shape is on each, int32 (count,).

    A shape of one colour on a ground that goes from one colour to another; place, size, turn and colours are random.

    Args:
        rng: NumPy's generator.

    >>> pictures, labels = shapes(np.random.default_rng(0), 4)
    >>> pictures.shape, labels.tolist()
    ((4, 3, 32, 32), [8, 6, 5, 2])
    """
    labels = rng.integers(0, len(_SHAPES), count).astype(np.int32)
    colour = rng.uniform(0, 1, (3, count, 3, 1, 1)).astype(np.float32)  # of the shape, and both ends of the ground
    colour[1:] = colour[1:] * 0.5 + np.where(colour[:1].mean(2, keepdims=True) < 0.5, 0.5, 0).astype(np.float32)
    radius, turn = rng.uniform(0.4, 0.75, count), rng.uniform(-0.4, 0.4, count)
    x, y = rng.uniform(-0.25, 0.25, (2, count))
    slope = rng.uniform(0, 2 * np.pi, count)
    fine = (np.arange(2 * SIZE, dtype=np.float32) + 0.5) / SIZE - 1  # four points to a pixel
    mask = np.empty((count, 1, SIZE, SIZE), np.float32)
    for number, inside in enumerate(_SHAPES.values()):
        mine = np.flatnonzero(labels == number)
        cos, sin = [(f(turn[mine]) / radius[mine]).astype(np.float32)[:, None, None] for f in (np.cos, np.sin)]
        dx = fine[None, None, :] - x[mine, None, None].astype(np.float32)
        dy = fine[None, :, None] - y[mine, None, None].astype(np.float32)
        hit = inside(dx * cos + dy * sin, dy * cos - dx * sin)
        mask[mine, 0] = hit.reshape(-1, SIZE, 2, SIZE, 2).mean((2, 4))
    coarse = np.linspace(-1, 1, SIZE, dtype=np.float32)
    way = np.cos(slope)[:, None, None] * coarse[None, None, :] + np.sin(slope)[:, None, None] * coarse[None, :, None]
    way = (way[:, None] / 2.8284 + 0.5).astype(np.float32)
    ground = colour[1] * way + colour[2] * (1 - way)
    return ground + (colour[0] - ground) * mask, labels


@functools.lru_cache(2)
def made(train: int, test: int, seed: int, why: str = "") -> Images:
    """Shapes as a data set; `why` says what they stand for, if anything."""
    rng = np.random.default_rng(seed)
    about = f"{train:,} pictures of ten shapes, 32x32, made here from the seed"
    return Images(*shapes(rng, train), *shapes(rng, test), tuple(_SHAPES), f"{why}{about}")


@contextmanager
def downloads(wanted: bool) -> Iterator[None]:
    """A block in which this thread's `images` may (or may not) download: 170 MB are fetched only for callers who ask
    for them.

    Args:
        wanted: whether downloads are allowed.
    """
    before, here.downloads = here.downloads, wanted
    try:
        yield
    finally:
        here.downloads = before


def images(seed: int, *, train: int = 10_000, test: int = 1_000) -> Images:
    """CIFAR-10 if it is on disk or may be downloaded (`downloads`); else as many shapes as asked for, and `about` says
    why.

    Args:
        seed: the number that random draws begin with.
        train: the number of images to learn from.
        test: the number of images to test with.
    """
    asset = ASSETS[CIFAR10]
    try:
        if here.downloads or settings.current().offline or verify(asset) is not None:
            return cifar10()
        reason = f"it is not at {location(asset)}; --download fetches it, {asset.bytes / 1e6:.0f} MB"
    except DataError as error:
        reason = "; ".join(str(error).splitlines())
    return made(train, test, seed, f"CIFAR-10 is not available ({reason}); instead ")
