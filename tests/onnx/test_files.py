"""What is no file is refused before it is read: it may have no end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anneal.onnx
from anneal.cli._flags import Reporting
from anneal.cli.commands.onnx import _read
from anneal.cli.commands.record import replay
from anneal.errors import AnnealError
from anneal.tensor import io
from tests.cli.helpers import run

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are POSIX's")

READERS: dict[str, Callable[[str], Any]] = {
    "onnx": anneal.onnx.load,
    "repro": lambda path: replay(Reporting(), Path(path)),
    "feed": _read,
    "npy": io.load_npy,
    "npz": io.load_npz,
    "safetensors": io.safe_load,
    "gguf": io.gguf_open,
}
COMMANDS = [("onnx", "info"), ("onnx", "check"), ("onnx", "run"), ("graph",), ("kernels",), ("check", "--replay")]


def special(folder: Path, end: str) -> list[str]:
    """A device without an end, a pipe that nobody writes to, a link to the first, and a folder."""
    os.mkfifo(folder / f"pipe{end}")
    (folder / f"zero{end}").symlink_to("/dev/zero")
    (folder / f"folder{end}").mkdir()
    return ["/dev/zero", *[str(folder / f"{name}{end}") for name in ("pipe", "zero", "folder")]]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", READERS)
def test_a_reader_refuses_what_is_no_file(kind: str, tmp_path: Path) -> None:
    for path in special(tmp_path, f".{kind}"):
        with pytest.raises(AnnealError, match=r"is a (device|pipe|folder)"):
            READERS[kind](path)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_refuses_what_is_no_file(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in [*special(tmp_path, ".onnx"), str(tmp_path / "missing.onnx")]:
        begun = time.process_time()
        outcome = run(capsys, *command, path)
        assert outcome.code in (2, 4)
        assert not outcome.out
        assert time.process_time() - begun < 20
