"""Tensors in files: safetensors, GGUF, .npy and .npz. Nothing is unpickled, and a file is replaced whole or
not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from anneal import files
from anneal.backend import Array
from anneal.errors import DataError
from anneal.ops import said
from anneal.runtime import realize
from anneal.tensor._formats import Gguf, SafeTensors, read_npy, read_npz, safetensors_pieces, write_npz
from anneal.tensor._tensor import Tensor

__all__ = [
    "Gguf", "SafeTensors", "gguf_open", "load_npy", "load_npz", "safe_load", "safe_metadata", "safe_open", "safe_save",
    "save_npy", "save_npz", "save_text",
]  # fmt: skip

StrPath = str | os.PathLike[str]


# -- writing and reading whole files -----------------------------------------------------------------------------------


def _write(path: StrPath | IO[bytes], what: str, write: Callable[[IO[bytes]], Any]) -> None:
    if not isinstance(path, (str, bytes, os.PathLike)):
        if not hasattr(path, "write"):
            raise DataError(f"{what}: path is the name of a file, or one that is open, not {said(path)}")
        write(path)
        return
    try:
        files.replace(path, write)
    except OSError as e:
        raise DataError(f"{what}: cannot write {os.fspath(path)}: {e.strerror or e}") from e


def _check_readable(path: StrPath, what: str) -> Path:
    if not isinstance(path, (str, bytes, os.PathLike)) or hasattr(path, "uop"):
        raise DataError(f"{what}: path is the name of a file, not {said(path)}; what is saved comes first")
    try:
        files.opened(path).close()
    except FileNotFoundError:
        raise DataError(f"{what}: there is no file {os.fspath(path)}") from None
    except OSError as e:
        raise DataError(f"{what}: cannot read {os.fspath(path)}: {e.strerror or e}") from e
    return Path(path)


def _arrays(what: str, tensors: Mapping[str, Any]) -> dict[str, Array]:
    if not isinstance(tensors, Mapping):
        raise DataError(
            f"{what}: takes tensors by name, a dict, and then the path, not a {type(tensors).__name__} first"
        )
    lazy = [t for t in tensors.values() if isinstance(t, Tensor)]
    if lazy:
        realize(lazy)
    out = {}
    for name, t in tensors.items():
        if not isinstance(name, str):
            raise DataError(f"{what}: names are strings, not {name!r}")
        out[name] = np.asarray(t.numpy() if isinstance(t, Tensor) else t, order="C")
        if out[name].dtype.hasobject or out[name].dtype.names:
            raise DataError(f"{what}: {name!a} is no array of numbers")
    return out


def save_text(text: str, path: StrPath) -> None:
    """Save text to `path` as UTF-8. Raises DataError if the file cannot be written."""
    if not isinstance(text, str):
        raise DataError(f"save_text: takes a text, and then the path, not a {type(text).__name__} first")
    _write(path, "save_text", lambda f: f.write(text.encode()))


def _source(path: StrPath | IO[bytes], what: str) -> Path | bytes:
    """The path of a file that can be read, or what an open one has from its place on, where it stays."""
    if isinstance(path, (str, bytes, os.PathLike)):
        return _check_readable(path, what)
    if not hasattr(path, "read"):
        raise DataError(f"{what}: takes a path or an open file, not {said(path)}")
    at = path.tell()
    data = path.read()
    path.seek(at)
    if not isinstance(data, bytes):
        raise DataError(f"{what}: the file is open as text; open it with mode 'rb'")
    return data


# -- safetensors ------------------------------------------------------------------------------------------------------


def safe_save(tensors: Mapping[str, Any], path: StrPath | IO[bytes], metadata: Mapping[str, str] | None = None) -> None:
    """Save `tensors` (or arrays) by name to `path`, or an open file, in the safetensors format, with `metadata`,
    texts by name.

    Equal tensors and notes give equal bytes, in whatever order they come. A name is any text but `__metadata__`, which
    the format keeps for the notes; an empty one, too.

    Raises DataError if the file cannot be written, a name is no such text, something is no array of numbers, or the
    format has no such numbers.
    """
    pieces = safetensors_pieces(_arrays("safe_save", tensors), metadata or {})
    _write(path, "safe_save", lambda f: f.writelines(pieces))


def safe_open(path: StrPath, device: str | None = None) -> SafeTensors:
    """The tensors of the safetensors file `path` by name, lazy tensors on `device`, mapped into memory: a tensor's
    bytes are read when it is used.

    The file must stay as it is while its tensors are in use; one that is replaced whole, as `safe_save` does, may go.
    Raises as `SafeTensors`.
    """
    return SafeTensors(_check_readable(path, "safe_open"), device)


def safe_load(path: StrPath | IO[bytes], device: str | None = None) -> dict[str, Tensor]:
    """The tensors of the safetensors file `path`, or of an open one, by name, on `device`, read now.

    Raises DataError as `safe_open`.
    """
    file = SafeTensors(_source(path, "safe_load"), device)
    return {name: Tensor(t.numpy(), device) for name, t in file.items()}


def safe_metadata(path: StrPath | IO[bytes]) -> dict[str, str]:
    """The metadata of the safetensors file `path`, or of an open one; empty if it has none. Raises DataError as
    `safe_open`.
    """
    return SafeTensors(_source(path, "safe_metadata"), "cpu").metadata


# -- GGUF -------------------------------------------------------------------------------------------------------------


def gguf_open(path: StrPath, device: str | None = None) -> Gguf:
    """The tensors of the GGUF file `path` by name, lazy tensors on `device`, mapped into memory, and its `metadata`;
    quantised tensors come as float32.

    Types: F16, BF16, F32, F64, I8 to I64, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. The file must stay as it is while its tensors
    are in use. Raises as `Gguf`.
    """
    return Gguf(_check_readable(path, "gguf_open"), device)


# -- NumPy's formats ---------------------------------------------------------------------------------------------------


def save_npy(tensor: Any, path: StrPath) -> None:
    """Save one tensor to `path` as .npy. Raises DataError if that cannot be written, or the format lacks its dtype."""
    array = _numpys_own("save_npy", {"the tensor": tensor})["the tensor"]
    _write(path, "save_npy", lambda f: np.save(f, array, allow_pickle=False))


def _numpys_own(what: str, tensors: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays, if NumPy's formats can name their dtypes."""
    arrays = _arrays(what, tensors)
    for name, a in arrays.items():
        if a.dtype.kind == "V" or a.dtype.itemsize == 1 and a.dtype.kind == "f":
            raise DataError(
                f"{what}: NumPy's formats have no {a.dtype}, as {name} is; use safe_save, or .float() first"
            )
    return arrays


def load_npy(path: StrPath, device: str | None = None) -> Tensor:
    """The tensor of the .npy file `path`, on `device`. Raises DataError if it is missing, corrupt, or holds Python
    objects.
    """
    return Tensor(read_npy(_check_readable(path, "load_npy")), device)


def save_npz(tensors: Mapping[str, Any], path: StrPath) -> None:
    """Save tensors by name to `path` as .npz. Raises DataError if the file cannot be written, or the format lacks a
    dtype.
    """
    arrays = _numpys_own("save_npz", tensors)
    _write(path, "save_npz", lambda f: write_npz(f, arrays))


def load_npz(path: StrPath, device: str | None = None) -> dict[str, Tensor]:
    """The tensors of the .npz file `path` by name, on `device`. Raises DataError as `load_npy`."""
    found = read_npz(_check_readable(path, "load_npz"))
    return {name: Tensor(a, device) for name, a in found.items()}
