"""The pictures of the studio: the tool that takes them has all that the documents show, and takes them."""

from __future__ import annotations

import re
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.docs.test_documents import DOCUMENTS, ROOT, read
from tools import pictures

FOLDER = ROOT / "docs" / "studio"


def test_every_picture_is_taken_and_shown() -> None:
    names = {f"{name}.png" for name in pictures.PICTURES} | {pictures.PAGE}
    assert {path.name for path in FOLDER.iterdir()} == names
    shown = {found for name in DOCUMENTS for found in re.findall(r"\bstudio/([\w-]+\.(?:png|html))\)", read(name))}
    assert shown == names


def test_pictures_are_light() -> None:
    assert {path.name: size for path in FOLDER.glob("*.png") if (size := path.stat().st_size) > 100_000} == {}


def _decoded(png: bytes) -> np.ndarray:
    """The red, green and blue of a picture with a palette, whose rows have no filter."""
    chunks, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        chunks[png[at + 4 : at + 8]] = png[at + 8 : at + 8 + length]
        at += length + 12
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)[rows[:, 1:]]


def test_a_picture_of_few_colours_is_kept_whole_and_one_of_many_nearly() -> None:
    few = np.zeros((4, 6, 4), np.uint8)
    few[..., 3] = 255
    few[1, 2:5, :3] = (200, 30, 7)
    assert (_decoded(pictures.small(6, 4, few.tobytes())) == few[..., :3]).all()
    many = np.full((20, 20, 4), 255, np.uint8)
    many[..., 0] = np.arange(400).reshape(20, 20) // 2
    many[..., 1] = np.arange(400).reshape(20, 20) % 2
    found = _decoded(pictures.small(20, 20, many.tobytes()))
    assert np.abs(found.astype(int) - many[..., :3]).max() <= 2


@pytest.mark.ci
def test_pictures_are_taken(tmp_path: Path) -> None:
    pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[test]'")
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        pytest.skip("needs a chromium, which .ci/run installs")
    pictures.main(["pass", "wgsl", "--output", str(tmp_path)])
    for name in ("pass", "wgsl"):
        assert _decoded((tmp_path / f"{name}.png").read_bytes()).shape == (800, 1280, 3)
    with pytest.raises(SystemExit):
        pictures.main(["nowhere"])
