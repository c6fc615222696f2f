"""What several commands ask of their options: a device that can be had, a file that can be written."""

from __future__ import annotations

import os
from pathlib import Path

from anneal.errors import DataError, SettingError

__all__ = ["check_writable", "choose_device"]


def choose_device(device: str | None, adapter: str | None) -> dict[str, object]:
    """Changes of the settings for --device and --adapter; naming an adapter chooses webgpu."""
    if adapter is not None:
        if device == "cpu":
            raise SettingError("--adapter chooses a WebGPU adapter, but --device is cpu; leave one of them out")
        if not adapter.strip():
            raise SettingError("--adapter needs a name, or part of one; `anneal doctor` lists the adapters")
        return {"device": "webgpu", "adapter": adapter}
    return {} if device is None else {"device": device}


def check_writable(path: Path) -> None:
    """DataError unless a file can be made at `path`: better now than after the training."""
    folder = path.parent
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file, such as {path / 'model.safetensors'}")
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist; make it first: mkdir -p {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise DataError(f"{path} cannot be written: no permission; choose another folder")
