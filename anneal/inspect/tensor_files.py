"""The tensors of a file of weights or arrays: safetensors, npy, npz, gguf; values are not read, but for a few."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anneal.errors import DataError

__all__ = ["TensorEntry", "TensorFile", "tensor_file"]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class TensorFile:
    """What is in a file: its kind, its tensors, and the notes that it carries."""

    kind: str
    tensors: tuple[TensorEntry, ...]
    notes: tuple[tuple[str, str], ...]


def tensor_file(path: Path) -> TensorFile:
    """The tensors of a .safetensors, .npy, .npz or .gguf file. Raises DataError for one that is broken or no such."""
    kind = path.suffix.lstrip(".")
    if kind == "safetensors":
        return _safetensors(path)
    if kind in ("npy", "npz"):
        return _arrays(path, kind)
    if kind == "gguf":
        return _gguf(path)
    raise DataError(f"{path.name}: this is no .safetensors, .npy, .npz or .gguf file")


def _safetensors(path: Path) -> TensorFile:
    from anneal.tensor import io

    file = io.safe_open(path)
    found = [TensorEntry(n, e.dtype, tuple(e.shape), e.stop - e.start) for n, e in file.entries.items()]
    return TensorFile("safetensors", tuple(found), tuple(io.safe_metadata(path).items()))


def _arrays(path: Path, kind: str) -> TensorFile:
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False, mmap_mode="r" if kind == "npy" else None)
        arrays = {path.stem: loaded} if kind == "npy" else {n: loaded[n] for n in loaded.files}
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise DataError(f"{path.name}: is no .{kind} file of numbers: {error}") from None
    found = [TensorEntry(n, a.dtype.name, a.shape, a.nbytes) for n, a in arrays.items()]
    return TensorFile(kind, tuple(found), ())


def _gguf(path: Path) -> TensorFile:
    from anneal.tensor import io

    file = io.gguf_open(path)
    found = [TensorEntry(n, e.dtype, tuple(e.shape), e.stop - e.start) for n, e in file.entries.items()]
    return TensorFile("gguf", tuple(found), tuple((k, str(v)[:200]) for k, v in file.metadata.items()))
