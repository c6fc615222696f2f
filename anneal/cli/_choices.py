"""Checks of options that several commands have: a device that can be had, a file that can be written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anneal import files, settings
from anneal.errors import DataError, SettingError, UserError
from anneal.training import check_model, suggest

if TYPE_CHECKING:
    from anneal.backend import AnyDevice


def choose_device(device: str | None, adapter: str | None) -> dict[str, object]:
    """Changes of the settings for --device and --adapter; naming an adapter chooses webgpu."""
    if adapter is not None:
        if device == "cpu":
            raise SettingError("--adapter chooses a WebGPU adapter, but --device is cpu; leave one of them out")
        if not adapter.strip():
            raise SettingError("--adapter needs a name, or part of one; `anneal doctor` lists the adapters")
        return {"device": "webgpu", "adapter": adapter}
    return {} if device is None else {"device": str(device)}


def on_device(device: str | None, adapter: str | None) -> AbstractContextManager[object]:
    """The block runs with the settings of --device and --adapter."""
    return settings.override(**choose_device(device, adapter))


@contextmanager
def opened(device: str | None, adapter: str | None) -> Iterator[AnyDevice]:
    """The block runs on the device of --device and --adapter, which is opened."""
    from anneal.backend import get_device

    with on_device(device, adapter):
        found = get_device(settings.current().device)
        with settings.override(device=found.name):
            yield found


def check_traceable(name: str, step: bool = False) -> None:
    """UserError, with a suggestion, for what has no graph: neither an example nor an ONNX file; or, with `step`, no
    training step.
    """
    if not name.endswith(".onnx"):
        check_model(name)
    elif step:
        raise UserError("an ONNX file is run, not trained; leave --step out")


def may_download(example: object, flag: bool) -> bool:
    """True if an example's data may be downloaded: a flag says so, or the person at the terminal does."""
    name = getattr(example, "DOWNLOADS", None)
    if flag or name is None or settings.current().offline:
        return flag
    from anneal.assets import ASSETS, location, verify

    asset = ASSETS[name]
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        if verify(asset) is not None:
            return False
        sys.stderr.write(f"{asset.about}: download {asset.bytes / 1e6:.0f} MB to {location(asset)}? [y/N] ")
        sys.stderr.flush()
    except DataError:  # said where the file is asked for
        return False
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def refuse_option(context: Any, text: str | None) -> None:
    """UserError, with the nearest option, for an argument that looks like one: where a script may have options of its
    own, nobody else refuses it.
    """
    if text is not None and text.startswith("-") and text != "-":
        known = [o for p in context.command.params for o in p.opts if o.startswith("--")]
        raise suggest("option", text, [*known, *context.help_option_names])


def check_recording(path: Path | None) -> None:
    """UserError or DataError unless --record can put a recording there."""
    if path is not None:
        if path.suffix != ".zip":
            raise UserError(f"--record writes a .zip file, not {path.name}")
        check_writable(path)


def check_writable(path: Path) -> None:
    """DataError unless a file can be put at `path`: better now than after the training."""
    try:
        files.check_replaceable(path)
    except OSError as error:
        raise unwritable(path, error) from None


def write_file(path: Path, data: bytes) -> None:
    """Put a file at `path`, whole or not at all; DataError where that cannot be done."""
    try:
        files.replace(path, lambda f: f.write(data))
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> DataError:
    """The error for a file that cannot be written, with what to do."""
    advice = "choose another file"
    if os.path.isdir(path):
        advice = f"name a file in it: {path / 'NAME'}"
    elif isinstance(error, FileNotFoundError) and not os.path.exists(path.parent):
        return DataError(
            f"{path} cannot be written: {path.parent} does not exist; make it first: mkdir -p {path.parent}"
        )
    return DataError(f"{path} cannot be written: {error.strerror or error}; {advice}")
