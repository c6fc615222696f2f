"""Safetensors files: the package of that name judges them. Here stand views of the mapped file, the tensor at fault, an
error for a name given twice, and the writing, which in the package takes 5 s instead of 0.4 for 240 MB, of two copies.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from anneal.errors import DataError
from anneal.files import opened
from anneal.names import Tensor
from anneal.ops import made, wrap_array
from anneal.runtime import default_device, resolve_device

# -- mapped files of tensors ------------------------------------------------------------------------------------------
# A mapping from names to lazy tensors on one device.


Array = np.ndarray[Any, Any]
MAX_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class MappedEntry:
    """A tensor as its file describes it: the name of its dtype, its shape, and its bytes' places in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class MappedTensors(Mapping[str, "Tensor"]):
    """The tensors of a file by name. A subclass reads `entries` and `metadata`, and has `array`."""

    entries: Mapping[str, MappedEntry]

    def __init__(self, path: str | os.PathLike[str] | bytes, device: str | None, what: str) -> None:
        self.path = Path("of bytes" if isinstance(path, bytes) else path)
        self.device = default_device() if device is None else resolve_device(device)
        self._map: Any = path
        if isinstance(path, bytes):
            return
        try:
            with opened(self.path) as f:
                empty = not os.fstat(f.fileno()).st_size  # which cannot be mapped
                self._map = b"" if empty else mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as e:  # ValueError: it became shorter meanwhile
            raise DataError(f"{what}: cannot read {self.path}: {getattr(e, 'strerror', None) or e}") from e

    def array(self, name: str) -> Array:
        """A tensor as the file holds it."""
        raise NotImplementedError(f"{type(self).__name__} defines no array()")

    def view(self, entry: MappedEntry, dtype: Any) -> Array:
        """A tensor's bytes in the file, read only, as numbers of `dtype`."""
        if 0 in entry.shape:
            return np.empty(entry.shape, dtype)
        return np.frombuffer(self._map, dtype, math.prod(entry.shape), entry.start).reshape(entry.shape)

    def release(self) -> None:
        """Let the operating system drop the pages that were read; they come back from the file when used again."""
        if hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def _numbers(self, name: str) -> Array:
        """`array`, as the tensor has it."""
        array = self.array(name)
        return array.view(np.uint8) != 0 if array.dtype == np.bool_ else array  # a byte may be neither 0 nor 1

    def __getitem__(self, name: str) -> Tensor:
        t = made.fresh(wrap_array(self._numbers(name), self.device), self.device)
        t._own()
        return t

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, {len(self)} tensors)"


def shown(value: object) -> str:
    """Its text, safe to print, and short: a header may say anything."""
    text = ascii(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 120 else f"{text[:100]}... ({len(text)} characters)"


# -- safetensors files ------------------------------------------------------------------------------------------------


# Room for 100,000 tensors; the format allows 100 MB, gigabytes as Python objects. NumPy 1 has 32 axes.
MAX_HEADER, MAX_AXES, _NOTES = 16 << 20, 32, "__metadata__"
DTYPES: dict[str, Any] = {
    "BOOL": "?", "U8": "<u1", "I8": "<i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2, "F16": "<f2",
    "BF16": ml_dtypes.bfloat16, "F32": "<f4", "F64": "<f8",
}  # fmt: skip


class SafeTensors(MappedTensors):
    """The tensors of the safetensors file `path`, or of its bytes, by name, each a lazy tensor on one `device`.

    Opening reads and checks the header. A tensor's bytes are read when it is used; those of bools, of which any byte
    but 0 is true, when it is asked for. Raises DataError, naming the file, the tensor and the fault, if the file is
    missing or no sound safetensors file, and DTypeError when a tensor is asked for that the device cannot hold.
    """

    def __init__(self, path: str | os.PathLike[str] | bytes, device: str | None = None) -> None:
        super().__init__(path, device, "safe_open")
        try:
            self.entries, self.metadata = _read(self._map, path)
        except ValueError as e:
            raise DataError(f"safe_open: {self.path} is corrupt or not a safetensors file: {e}") from e

    def array(self, name: str) -> Array:
        """The tensor called `name` as a read-only view of the file."""
        return self.view(self.entries[name], DTYPES[self.entries[name].dtype])


def _read(data: Any, path: str | os.PathLike[str] | bytes) -> tuple[dict[str, MappedEntry], dict[str, str]]:
    """The entries and the notes of a file that the package accepts; ValueError with its fault."""
    from safetensors import SafetensorError, deserialize, safe_open

    base, refusal = 8 + int.from_bytes(data[:8], "little"), ""
    if 8 + MAX_HEADER < base <= len(data):
        raise ValueError(f"a header of {base - 8} bytes; anneal reads up to {MAX_HEADER}")
    try:
        deserialize(path) if isinstance(path, bytes) else safe_open(path, "numpy")  # type: ignore[no-untyped-call]
    except (SafetensorError, OSError) as e:
        refusal = shown(str(e).removeprefix("Error while deserializing header: "))
    try:
        fields = dict(json.loads(data[8:base].decode(), object_pairs_hook=_unique))
    except (TypeError, ValueError, RecursionError) as e:
        raise ValueError(refusal or str(e)) from e
    entries = {n: _entry(f"tensor {shown(n)}:", v, base, len(data)) for n, v in fields.items() if n != _NOTES}
    if refusal:
        raise ValueError(refusal)
    return entries, fields.get(_NOTES) or {}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError(f"the header has {shown(Counter(n for n, _ in pairs).most_common(1)[0][0])} twice")
    return found


def _entry(tensor: str, value: Any, base: int, size: int) -> MappedEntry:
    """The entry of a tensor; ValueError with what the package tells without its name, or what anneal cannot hold."""
    fields: Any = value if isinstance(value, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{tensor} its dtype is {shown(dtype)}, which anneal has not; known: {', '.join(DTYPES)}")
    counts = [isinstance(v, list) and all(type(n) is int and n >= 0 for n in v) for v in (shape, offsets)]
    if not counts[0] or len(shape) > MAX_AXES:
        raise ValueError(f"{tensor} its shape is {shown(shape)}, not up to {MAX_AXES} sizes of at least 0")
    if not counts[1] or len(offsets) != 2:
        raise ValueError(f"{tensor} its data_offsets are {shown(offsets)}, not a start and an end")
    (start, stop), itemsize = offsets, np.dtype(DTYPES[dtype]).itemsize
    if stop > size - base:
        raise ValueError(f"{tensor} its bytes end at {shown(stop)}, and the file has {size - base}: was it cut short?")
    if math.prod(n for n in shape if n) * itemsize > MAX_BYTES:
        raise ValueError(f"{tensor} its shape {shown(shape)} is larger than any memory")
    if (takes := math.prod(shape) * itemsize) != stop - start:
        raise ValueError(f"{tensor} {dtype} of shape {shown(shape)} takes {takes} bytes, and it has {stop - start}")
    return MappedEntry(dtype, tuple(shape), base + start, base + stop)


def safetensors_pieces(arrays: Mapping[str, Array], notes: Mapping[str, str]) -> list[Any]:
    """The file's bytes, a tensor at a time, in order of size and name; DataError where something has no place in it."""
    if not all(isinstance(x, str) for note in notes.items() for x in note):
        raise DataError("safe_save: notes (metadata) are strings by strings")
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    at, kinds = 0, {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    header: dict[str, Any] = {_NOTES: dict(sorted(notes.items()))} if notes else {}
    for name, array in [(name, arrays[name]) for name in order]:
        if name == _NOTES:
            raise DataError(f"safe_save: no tensor may be called {_NOTES}: the format keeps that name; choose another")
        if (kind := kinds.get(array.dtype.newbyteorder("<"))) is None:
            fault = f"{shown(name)} is {array.dtype}, and safetensors files hold {', '.join(DTYPES)}; cast it first"
            raise DataError(f"safe_save: {fault}")
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": (at, at := at + array.nbytes)}
    try:
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as e:
        part = shown(e.object[max(0, e.start - 40) : e.start + 40])
        raise DataError(f"safe_save: {part} has half a character, which is no text; choose another name") from None
    text += b" " * (-len(text) % 8)
    if (size := len(text)) > MAX_HEADER:
        raise DataError(f"safe_save: a header of {size} bytes, for names and notes; anneal reads up to {MAX_HEADER}")
    little = [np.asarray(arrays[n], arrays[n].dtype.newbyteorder("<"), order="C").reshape(-1) for n in order]
    return [size.to_bytes(8, "little") + text, *(array.view(np.uint8).data for array in little)]
