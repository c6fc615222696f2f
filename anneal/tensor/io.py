"""Tensors in files: safetensors, .npy and .npz. Nothing is unpickled, and a file is replaced whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from anneal.errors import DataError
from anneal.tensor._base import TensorBase
from anneal.tensor.execution import realize

if TYPE_CHECKING:
    from anneal.tensor._tensor import Tensor

__all__ = ["load_npy", "load_npz", "safe_load", "safe_metadata", "safe_save", "save_npy", "save_npz"]

StrPath = str | os.PathLike[str]
Array = np.ndarray[Any, Any]


# -- writing and reading whole files -------------------------------------------------------------------------------------


def _write(path: StrPath, what: str, write: Callable[[IO[bytes]], Any]) -> None:
    """Write beside `path` and move into place, so that a reader never sees half a file."""
    target = Path(path)
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as f:
            temporary = f.name
            write(f)
            f.flush()
            os.fsync(f.fileno())
        _share(temporary, target)
        os.replace(temporary, target)
    except OSError as e:
        _forget(temporary)
        raise DataError(f"{what}: cannot write {target}: {e.strerror or e}") from e
    except BaseException:
        _forget(temporary)
        raise


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


# -- safetensors ------------------------------------------------------------------------------------------------------


def safe_save(tensors: Mapping[str, Any], path: StrPath, metadata: Mapping[str, str] | None = None) -> None:
    """Save tensors (or arrays) by name in the safetensors format.

    Raises DataError if the file cannot be written or something is no array of numbers.
    """
    from safetensors.numpy import save

    blob = save(_arrays("safe_save", tensors), metadata=dict(metadata) if metadata else None)
    _write(path, "safe_save", lambda f: f.write(blob))


def safe_load(path: StrPath, device: str | None = None) -> dict[str, Tensor]:
    """Every tensor of a safetensors file by name. bfloat16 becomes float32, which holds it exactly.

    Raises DataError if the file is missing, no safetensors file, cut short, or has a dtype that anneal has not.
    """
    from safetensors import SafetensorError, deserialize

    p = _check_readable(path, "safe_load")
    try:
        entries = deserialize(p.read_bytes())  # type: ignore[no-untyped-call]
    except SafetensorError as e:
        raise DataError(f"safe_load: {p} is corrupt or no safetensors file: {e}") from e
    except OSError as e:
        raise DataError(f"safe_load: cannot read {p}: {e.strerror or e}") from e
    out = {}
    for name, entry in entries:
        shape, data = tuple(entry["shape"]), entry["data"]
        if entry["dtype"] == "BF16":
            array = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            kind = _SAFE_DTYPES.get(entry["dtype"])
            if kind is None:
                known = ", ".join([*_SAFE_DTYPES, "BF16"])
                raise DataError(
                    f"safe_load: {p}: {name} has dtype {entry['dtype']}, which anneal has not; known: {known}"
                )
            array = np.frombuffer(data, kind)
        out[name] = _tensor(array.reshape(shape), device)
    return out


def safe_metadata(path: StrPath) -> dict[str, str]:
    """The metadata of a safetensors file; empty if it has none. Raises DataError as `safe_load`."""
    from safetensors import SafetensorError, safe_open

    p = _check_readable(path, "safe_metadata")
    try:
        with safe_open(str(p), framework="numpy") as f:
            return dict(f.metadata() or {})
    except SafetensorError as e:
        raise DataError(f"safe_metadata: {p} is corrupt or no safetensors file: {e}") from e


_SAFE_DTYPES = {
    "BOOL": "?",
    "U8": "<u1",
    "I8": "<i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}


# -- NumPy's formats ----------------------------------------------------------------------------------------------------


def save_npy(tensor: Any, path: StrPath) -> None:
    """Save one tensor as .npy. Raises DataError if the file cannot be written."""
    array = _arrays("save_npy", {"the tensor": tensor})["the tensor"]
    _write(path, "save_npy", lambda f: np.save(f, array, allow_pickle=False))


def load_npy(path: StrPath, device: str | None = None) -> Tensor:
    """The tensor of a .npy file. Raises DataError if it is missing, corrupt, or holds Python objects."""
    return _tensor(_load_numpy(path, "load_npy", None), device)


def save_npz(tensors: Mapping[str, Any], path: StrPath) -> None:
    """Save tensors by name as .npz. Raises DataError if the file cannot be written."""
    arrays = _arrays("save_npz", tensors)
    _write(path, "save_npz", lambda f: np.savez(f, **arrays))  # type: ignore[arg-type]


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
