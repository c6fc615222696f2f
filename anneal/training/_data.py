"""Pictures to learn from, CIFAR-10 and shapes that are made here, and to look at, in files and on a terminal."""

from __future__ import annotations

import functools
import struct
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from anneal import files, settings
from anneal.assets import ASSETS, fetch, location, verify
from anneal.errors import DataError, SettingError, ShapeError
from anneal.runtime import here, modes

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
    parts = {}
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
    with modes(downloads=wanted):
        yield


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


if TYPE_CHECKING:
    from rich.text import Text


Pixels = np.ndarray[Any, np.dtype[np.uint8]]
_SHADES = " .:-=+*#%@"


def grid(images: np.ndarray[Any, Any], columns: int = 8, gap: int = 1) -> Pixels:
    """A picture, uint8 (h, w, 3), of images (n, channels, h, w) in 0..1 with one or three channels, row by row.

    Args:
        columns: the number of images in a row; None: a square.
        gap: the pixels between two images.

    >>> grid(np.zeros((5, 1, 4, 4)), columns=3).shape
    (9, 14, 3)
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ShapeError(f"grid: images have shape (n, 1 or 3, h, w), not {images.shape}")
    n, _, h, w = images.shape
    columns = max(1, min(columns, n))
    rows = -(-n // columns)
    sheet = np.full((rows * (h + gap) - gap, columns * (w + gap) - gap, 3), 255, np.uint8)
    pixels = (np.nan_to_num(images).clip(0, 1) * 255).round().astype(np.uint8).transpose(0, 2, 3, 1)
    for i, image in enumerate(pixels):
        top, left = i // columns * (h + gap), i % columns * (w + gap)
        sheet[top : top + h, left : left + w] = image
    return sheet


def png(picture: Pixels) -> bytes:
    """The picture, uint8 (h, w, 3), as a PNG file.

    >>> png(np.zeros((2, 2, 3), np.uint8))[:4]
    b'\\x89PNG'
    """
    h, w, _ = picture.shape

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    # Each row begins with the number of its filter; 0 is none.
    rows = np.concatenate([np.zeros((h, 1), np.uint8), np.ascontiguousarray(picture).reshape(h, 3 * w)], axis=1)
    head = struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)
    body = zlib.compress(rows.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def _shrunk(picture: Pixels, width: int) -> Pixels:
    """The picture at most `width` wide, each pixel the mean of a square."""
    k = -(-picture.shape[1] // max(1, width))
    if k == 1:
        return picture
    h, w = picture.shape[0] // k * k, picture.shape[1] // k * k
    means: Pixels = picture[:h, :w].reshape(h // k, k, w // k, k, 3).mean((1, 3)).round().astype(np.uint8)
    return means


def half_blocks(picture: Pixels, width: int) -> Text:
    """The picture in characters whose upper and lower halves are two pixels, at most `width` of them in a line."""
    from rich.style import Style
    from rich.text import Text

    small = _shrunk(picture, width)
    if len(small) % 2:
        small = np.concatenate([small, np.full((1, small.shape[1], 3), 255, np.uint8)])
    text = Text(no_wrap=True)
    for upper, lower in zip(small[::2].tolist(), small[1::2].tolist()):
        for (r, g, b), (x, y, z) in zip(upper, lower):
            text.append("\u2580", Style(color=f"#{r:02x}{g:02x}{b:02x}", bgcolor=f"#{x:02x}{y:02x}{z:02x}"))
        text.append("\n")
    text.right_crop(1)
    return text


def shades(picture: Pixels, width: int) -> str:
    """The picture in characters from blank (black) to @ (white), at most `width` of them in a line.

    >>> print(shades(np.array([[[0] * 3, [255] * 3]] * 2, np.uint8), 2))
     @
    """
    small = _shrunk(picture, width)
    light = small[: len(small) // 2 * 2] @ np.array([0.299, 0.587, 0.114])
    light = light.reshape(len(light) // 2, 2, -1).mean(1)  # a character is about twice as high as wide
    levels = (light / 255 * (len(_SHADES) - 1)).round().astype(int)
    return "\n".join(["".join([_SHADES[v] for v in row]).rstrip() for row in levels])


# -- files of tokens --------------------------------------------------------------------------------------------------
# Memory mapped, and cut into batches that follow from a seed and the number of the step alone.


Tokens = npt.NDArray[Any]
_HEADER = 256  # int32 words: magic, version, tokens
_SHORT, _LONG = (20240520, 1, np.dtype("<u2")), (20240801, 7, np.dtype("<u4"))  # llm.c's, of GPT-2 and of Llama 3


def write_tokens(path: Path, tokens: Sequence[int] | Tokens) -> None:
    """Write a file of tokens: in llm.c's layout, or as an array of NumPy's if the name ends with .npy.

    Args:
        path: the file. tokens: numbers from 0 on; those below 65536 take 16 bits each.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_tokens(Path(folder) / "a.bin", [1, 2, 3])
    ...     TokenFiles([Path(folder) / "a.bin"], 2).rows(0, 1).tolist()
    [[1, 2, 3]]
    """
    given = np.asarray(tokens)
    magic, version, dtype = _SHORT if given.max(initial=0) < 1 << 16 else _LONG
    header = np.zeros(_HEADER, "<i4")
    header[:3] = (magic, version, len(given))
    if path.suffix == ".npy":
        files.replace(path, lambda f: np.save(f, given.astype(dtype)))
    else:
        files.replace(path, lambda f: f.write(header.tobytes() + given.astype(dtype).tobytes()))


def _mapped(path: Path) -> Tokens:
    """The tokens of a file. Raises DataError for a file of another kind."""
    try:
        if path.suffix == ".npy":
            made: Tokens = np.load(path, mmap_mode="r")
            if made.ndim != 1 or made.dtype.kind not in "iu":
                raise DataError(f"{path} has {made.dtype.name}{list(made.shape)}; tokens are integers in a row")
            return made
        header = np.fromfile(path, "<i4", _HEADER)
        found = [d for magic, version, d in (_SHORT, _LONG) if header[:2].tolist() == [magic, version]]
        if not found or len(header) < _HEADER:
            raise DataError(
                f"{path} is no file of tokens: neither llm.c's .bin nor .npy; `anneal data tokenize` makes one"
            )
        return np.memmap(path, found[0], "r", offset=4 * _HEADER, shape=(int(header[2]),))
    except (OSError, ValueError) as e:
        raise DataError(f"{path} cannot be read as tokens: {e}") from e


class TokenFiles:
    """Windows of the tokens of some files, each once in a pass over all of them, in an order that a seed gives.

    A batch follows from the seed and its step: training goes on at any step, and any number of processes that take
    parts of a batch read, together, the same.

    Args:
        paths: the files, of llm.c's layout or .npy. window: the tokens of a row, without the one that follows.
        seed: of the order. limit: the tokens that a model knows; None: any.

    Raises DataError for other files, or fewer tokens than a row has.
    """

    def __init__(self, paths: Sequence[Path], window: int, seed: int = 0, limit: int | None = None) -> None:
        self.window, self.seed, self.limit = window, seed, limit
        self._files = [_mapped(p) for p in paths]
        self.tokens = sum([len(a) for a in self._files])
        self._begins = np.cumsum([0, *[max(0, len(a) - 1) // window for a in self._files]])
        self.count = int(self._begins[-1])  # windows
        if not self.count:
            raise DataError(f"{len(paths)} files have {self.tokens} tokens, too few for a row of {window} and the next")
        self._orders: dict[int, Tokens] = {}
        self._reader = ThreadPoolExecutor(1, "anneal-tokens")
        self._next: tuple[tuple[int, ...], Future[Tokens]] | None = None

    def rows(self, step: int, batch: int, begin: int = 0, end: int | None = None) -> Tokens:
        """Rows `begin` to `end` of the batch of a step, int32[rows, window + 1]. Raises DataError for an unknown token.

        Args:
            step: the number of the step, from 0 on. batch: the rows of all processes.
        """
        if not 0 <= begin < (end := batch if end is None else end) <= batch:
            raise SettingError(f"rows {begin} to {end} are no part of a batch of {batch}")
        out = np.empty((end - begin, self.window + 1), np.int32)
        for n, row in enumerate(out, step * batch + begin):
            number = self._order(n // self.count)[n % self.count]
            file = int(np.searchsorted(self._begins, number, "right")) - 1
            at = int(number - self._begins[file]) * self.window
            row[:] = self._files[file][at : at + self.window + 1]
        if self.limit is not None and out.max() >= self.limit:
            raise DataError(
                f"token {out.max()} is in the files, and the model knows {self.limit}: another vocabulary's"
            )
        return out

    def take(self, step: int, batch: int, begin: int = 0, end: int | None = None) -> Tokens:
        """`rows`, and those of the next step are read meanwhile.

        Args:
            step, batch, begin, end: as for `rows`.
        """
        key = (step, batch, begin, batch if end is None else end)
        found = self._next[1].result() if self._next is not None and self._next[0] == key else self.rows(*key)
        following = (step + 1, *key[1:])
        self._next = following, self._reader.submit(self.rows, *following)
        return found

    def _order(self, turn: int) -> Tokens:
        """The order of the windows in a pass over all."""
        if turn not in self._orders:
            kind = np.int32 if self.count < 1 << 31 else np.int64
            made = np.random.default_rng((self.seed, turn)).permutation(np.arange(self.count, dtype=kind))
            self._orders = {**dict(list(self._orders.items())[-1:]), turn: made}
        return self._orders[turn]
