"""Pictures: laid out, written as PNG files that are what was drawn, and drawn on terminals."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest

from anneal.errors import ShapeError
from anneal.training import grid, half_blocks, png, shades

rng = np.random.default_rng(0)


def decoded(data: bytes) -> np.ndarray[Any, Any]:
    """The pixels of an eight-bit RGB file without filters, its checksums checked."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + body),)
        chunks[kind] = body
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    w, h, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, colour, rest) == (8, 2, [0, 0, 0])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(h, 1 + 3 * w)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(h, w, 3)


def test_a_png_holds_the_pixels() -> None:
    picture = rng.integers(0, 256, (5, 7, 3)).astype(np.uint8)
    np.testing.assert_array_equal(decoded(png(picture)), picture)
    np.testing.assert_array_equal(decoded(png(picture[::-1, ::2])), picture[::-1, ::2])


def test_a_grid_is_row_by_row() -> None:
    images = rng.uniform(0, 1, (5, 3, 4, 6))
    sheet = grid(images, columns=3, gap=2)
    assert sheet.shape == (4 + 2 + 4, 6 + 2 + 6 + 2 + 6, 3)
    want = (images[4].transpose(1, 2, 0) * 255).round()
    np.testing.assert_array_equal(sheet[6:10, 8:14], want)
    assert (sheet[4:6] == 255).all()
    assert (sheet[6:, 16:] == 255).all()
    grey = grid(np.array([[[[-1.0, 2.0, float("nan")]]]]))
    assert grey.tolist() == [[[0] * 3, [255] * 3, [0] * 3]]
    with pytest.raises(ShapeError, match=r"1 or 3, h, w\), not \(2, 3\)"):
        grid(np.zeros((2, 3)))


def test_half_blocks_carry_two_pixels_each() -> None:
    picture = np.zeros((4, 3, 3), np.uint8)
    picture[0, 0] = (255, 0, 0)
    picture[1, 0] = (0, 0, 255)
    text = half_blocks(picture, 80)
    assert text.plain == "\u2580\u2580\u2580\n\u2580\u2580\u2580"
    first = text.spans[0].style
    assert str(first) == "#ff0000 on #0000ff"
    assert half_blocks(rng.integers(0, 256, (64, 200, 3)).astype(np.uint8), 80).plain.splitlines()[0] == "\u2580" * 66


def test_shades_show_light_and_dark() -> None:
    picture = np.repeat(np.array([[0, 255], [255, 0]], np.uint8).repeat(2, 0)[..., None], 3, -1)
    assert shades(picture, 10) == " @\n@"
    assert shades(picture, 1) == "+"  # two by two pixels, their mean


def test_a_terminal_gets_colour_and_a_pipe_gets_shades(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from anneal.cli._output import show

    picture = rng.integers(0, 256, (8, 300, 3)).astype(np.uint8)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    show(picture)
    piped = capsys.readouterr().out
    assert "\x1b" not in piped
    assert max(map(len, piped.splitlines())) <= 100
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    show(picture)
    drawn = capsys.readouterr().out
    assert "\x1b[38;" in drawn
    assert drawn.count("\u2580") == 100  # three by three pixels to a half
    monkeypatch.setenv("NO_COLOR", "1")
    show(picture)
    assert "\u2580" not in capsys.readouterr().out
