"""Tensors in files: safetensors, GGUF, .npy and .npz. Nothing is unpickled, and a file is replaced whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from anneal.errors import DataError
from anneal.tensor._base import TensorBase
from anneal.tensor._gguf import Gguf
from anneal.tensor._safetensors import SafeTensors
from anneal.tensor.execution import realize

if TYPE_CHECKING:
    from anneal.tensor._tensor import Tensor

__all__ = [
    "Gguf",
    "SafeTensors",
    "gguf_open",
    "load_npy",
    "load_npz",
    "safe_load",
    "safe_metadata",
    "safe_open",
    "safe_save",
    "save_npy",
    "save_npz",
    "save_text",
]

StrPath = str | os.PathLike[str]
Array = np.ndarray[Any, Any]


# -- writing and reading whole files -------------------------------------------------------------------------------------


def _write(path: StrPath, what: str, write: Callable[[str], Any]) -> None:
    """Let `write` make a file beside `path` and move it into place, so that a reader never sees half a file."""
    target = Path(path)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        os.close(handle)
        write(temporary)
        with open(temporary, "rb+") as f:
            os.fsync(f.fileno())
        _share(temporary, target)
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as e:
        _forget(temporary)
        raise DataError(f"{what}: cannot write {target}: {e.strerror or e}") from e
    except BaseException:
        _forget(temporary)
        raise


def _sync_folder(folder: Path) -> None:
    """Have the rename on disk too, where a folder can be opened for that."""
    if hasattr(os, "O_DIRECTORY"):
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _to_file(place: str, write: Callable[[IO[bytes]], Any]) -> None:
    # by hand: NumPy appends its suffix to a name that lacks it
    with open(place, "wb") as f:
        write(f)


def _share(temporary: str, target: Path) -> None:
    """Give the new file the rights of the one it replaces, or those of any new file."""
    try:
        mode = target.stat().st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    os.chmod(temporary, mode)


def _forget(temporary: str) -> None:
    if temporary and os.path.exists(temporary):
        os.unlink(temporary)


def _check_readable(path: StrPath, what: str) -> Path:
    p = Path(path)
    if not p.exists():
        raise DataError(f"{what}: there is no file {p}")
    if not p.is_file():
        raise DataError(f"{what}: {p} is not a file")
    return p


def _arrays(what: str, tensors: Mapping[str, Any]) -> dict[str, Array]:
    lazy = [t for t in tensors.values() if isinstance(t, TensorBase)]
    if lazy:
        realize(lazy)  # type: ignore[arg-type]
    out = {}
    for name, t in tensors.items():
        if not isinstance(name, str):
            raise DataError(f"{what}: names are strings, not {name!r}")
        out[name] = np.asarray(t.numpy() if isinstance(t, TensorBase) else t, order="C")
        if out[name].dtype.hasobject:
            raise DataError(f"{what}: {name} is no array of numbers")
    return out


def _tensor(array: Array, device: str | None) -> Tensor:
    from anneal.tensor._tensor import Tensor

    return Tensor(array, device=device)


def save_text(text: str, path: StrPath) -> None:
    """Save text as UTF-8. Raises DataError if the file cannot be written."""
    _write(path, "save_text", lambda place: _to_file(place, lambda f: f.write(text.encode())))


# -- safetensors ------------------------------------------------------------------------------------------------------


def safe_save(tensors: Mapping[str, Any], path: StrPath, metadata: Mapping[str, str] | None = None) -> None:
    """Save tensors (or arrays) by name in the safetensors format.

    Raises DataError if the file cannot be written or something is no array of numbers.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    arrays, notes = _arrays("safe_save", tensors), dict(metadata) if metadata else None
    try:
        _write(path, "safe_save", lambda place: save_file(arrays, place, notes))
    except SafetensorError as e:
        raise DataError(f"safe_save: cannot write {path}: {e}") from e


def safe_open(path: StrPath, device: str | None = None) -> SafeTensors:
    """The tensors of a safetensors file by name, mapped into memory: a tensor's bytes are read when it is used.

    The file must stay as it is while its tensors are in use; one that is replaced whole, as `safe_save` does, may go.
    Raises as `SafeTensors`.
    """
    return SafeTensors(_check_readable(path, "safe_open"), device)


def safe_load(path: StrPath, device: str | None = None) -> dict[str, Tensor]:
    """Every tensor of a safetensors file by name, read now.

    Raises DataError as `safe_open`.
    """
    file = SafeTensors(_check_readable(path, "safe_load"), device)
    return {name: _tensor(t.numpy(), device) for name, t in file.items()}


def safe_metadata(path: StrPath) -> dict[str, str]:
    """The metadata of a safetensors file; empty if it has none. Raises DataError as `safe_open`."""
    return SafeTensors(_check_readable(path, "safe_metadata"), "cpu").metadata


# -- GGUF -------------------------------------------------------------------------------------------------------------


def gguf_open(path: StrPath, device: str | None = None) -> Gguf:
    """The tensors of a GGUF file by name, mapped into memory, and its `metadata`; quantised tensors come as float32.

    Types: F16, BF16, F32, F64, I8 to I64, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. The file must stay as it is while its tensors are
    in use. Raises as `Gguf`.
    """
    return Gguf(_check_readable(path, "gguf_open"), device)


# -- NumPy's formats ----------------------------------------------------------------------------------------------------


def save_npy(tensor: Any, path: StrPath) -> None:
    """Save one tensor as .npy. Raises DataError if the file cannot be written, or the format lacks the dtype."""
    array = _numpys_own("save_npy", {"the tensor": tensor})["the tensor"]
    _write(path, "save_npy", lambda place: _to_file(place, lambda f: np.save(f, array, allow_pickle=False)))


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
    """The tensor of a .npy file. Raises DataError if it is missing, corrupt, or holds Python objects."""
    return _tensor(_load_numpy(path, "load_npy", None), device)


def save_npz(tensors: Mapping[str, Any], path: StrPath) -> None:
    """Save tensors by name as .npz. Raises DataError if the file cannot be written, or the format lacks a dtype."""
    arrays = _numpys_own("save_npz", tensors)
    _write(path, "save_npz", lambda place: _to_file(place, lambda f: np.savez(f, **arrays)))  # type: ignore[arg-type]


def load_npz(path: StrPath, device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a .npz file by name. Raises DataError as `load_npy`."""
    found = _load_numpy(path, "load_npz", dict)
    return {name: _tensor(a, device) for name, a in found.items()}


def _load_numpy(path: StrPath, what: str, kind: type | None) -> Any:
    import zipfile
    import zlib

    p = _check_readable(path, what)
    try:
        with p.open("rb") as f:
            found: Any = np.load(f, allow_pickle=False)
            if isinstance(found, np.lib.npyio.NpzFile):
                found = {name: found[name] for name in found.files}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError) as e:
        raise DataError(f"{what}: {p} is corrupt, holds Python objects, or is no NumPy file: {e}") from e
    except OSError as e:
        raise DataError(f"{what}: cannot read {p}: {e.strerror or e}") from e
    if isinstance(found, dict) != (kind is dict):
        other = "load_npz" if isinstance(found, dict) else "load_npy"
        raise DataError(f"{what}: {p} has the other NumPy format; use {other}")
    return found
