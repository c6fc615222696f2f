"""Pictures to look at: many small ones in one, as a PNG file, in colour on a terminal, and as text."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from anneal.errors import ShapeError

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["grid", "half_blocks", "png", "shades"]

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
