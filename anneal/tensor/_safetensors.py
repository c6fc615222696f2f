"""Safetensors files, mapped into memory: eight bytes of length, a JSON header, and the tensors' bytes one after
another.

Files are read and written here, not by the safetensors package, because of what that one does not do: it names neither
the file nor, mostly, the tensor at fault; of two tensors of one name it silently keeps the last; through NumPy it hands
out copies only, and no bfloat16 or float8; and it writes notes in another order each time. The tests compare the two on
what they accept.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from anneal.errors import DataError
from anneal.files import opened
from anneal.runtime import default_device, resolve_device
from anneal.tensor._mapped import Array, MappedTensors

__all__ = ["Entry", "SafeTensors", "safetensors_writer"]

# A tensor takes 100 to 200 bytes of header, so this is room for 100,000 of them. The format allows 100 MB, which as
# Python objects would be gigabytes.
MAX_HEADER = 16 << 20
MAX_AXES = 32  # NumPy 1's limit
MAX_BYTES = 1 << 62

DTYPES: dict[str, Any] = {
    "BOOL": "?",
    "U8": "<u1",
    "I8": "<i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F16": "<f2",
    "BF16": ml_dtypes.bfloat16,
    "F32": "<f4",
    "F64": "<f8",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor as the header describes it: the format's name of its dtype, its shape, and its bytes' places in the
    file.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafeTensors(MappedTensors):
    """The tensors of the safetensors file `path`, or of its bytes, by name, each a lazy tensor on one `device`.

    Opening reads and checks the header. A tensor's bytes are read when it is used; those of bools, of which any byte
    but 0 is true, when it is asked for.

    Raises DataError, naming the file, the tensor and the fault, if the file is missing or no sound safetensors file,
    and DTypeError when a tensor is asked for that the device cannot hold.
    """

    def __init__(self, path: str | os.PathLike[str] | bytes, device: str | None = None) -> None:
        self.path = Path("of bytes" if isinstance(path, bytes) else path)
        self.device = default_device() if device is None else resolve_device(device)
        self.entries: dict[str, Entry]
        self.metadata: dict[str, str]
        self._map: Any
        if isinstance(path, bytes):
            self.entries, self.metadata = _Header(self.path, path[:8], len(path)).read(lambda n: path[8 : 8 + n])
            self._map = path
            return
        try:
            with opened(self.path) as f:
                size = os.fstat(f.fileno()).st_size
                self.entries, self.metadata = _Header(self.path, f.read(8), size).read(f.read)
                self._map = mmap.mmap(f.fileno(), size, access=mmap.ACCESS_READ)
        except DataError:
            raise
        except (OSError, ValueError) as e:  # ValueError: it became shorter meanwhile
            raise DataError(f"safe_open: cannot read {self.path}: {e}") from e

    def array(self, name: str) -> Array:
        """The tensor called `name` as a read-only view of the file."""
        entry = self.entries[name]
        if 0 in entry.shape:
            return np.empty(entry.shape, DTYPES[entry.dtype])
        count = math.prod(entry.shape)
        return np.frombuffer(self._map, DTYPES[entry.dtype], count, entry.start).reshape(entry.shape)

    def _numbers(self, name: str) -> Array:
        array = self.array(name)
        # a byte in a file may be neither 0 nor 1
        return array.view(np.uint8) != 0 if self.entries[name].dtype == "BOOL" else array

    def release(self) -> None:
        """Let the operating system drop the pages that were read; they come back from the file when used again."""
        if hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)


# -- writing -----------------------------------------------------------------------------------------------------------

_NOTES = "__metadata__"
_NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


def safetensors_writer(arrays: Mapping[str, Array], notes: Mapping[str, str]) -> Callable[[IO[bytes]], None]:
    """A function that writes the file; DataError now where something has no place in one.

    Tensors stand in the order of their element's size, so that each begins at a multiple of it, and then of their
    names.
    """
    if not all(isinstance(x, str) for note in notes.items() for x in note):
        raise DataError("safe_save: notes (metadata) are strings by strings")
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {_NOTES: dict(sorted(notes.items()))} if notes else {}
    at = 0
    for name in order:
        array = arrays[name]
        dtype = _NAMES.get(array.dtype.newbyteorder("<"))
        if name == _NOTES:
            raise DataError(f"safe_save: no tensor may be called {_NOTES}: the format keeps that name; choose another")
        if dtype is None:
            raise DataError(
                f"safe_save: {_shown(name)} is {array.dtype}, and safetensors files hold {', '.join(DTYPES)}; cast "
                "it first"
            )
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": (at, at + array.nbytes)}
        at += array.nbytes
    try:
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as e:
        raise DataError(
            f"safe_save: {_shown(e.object[max(0, e.start - 40) : e.start + 40])} has half a character, which is no "
            "text; choose another name"
        ) from None
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise DataError(
            f"safe_save: a header of {len(text)} bytes, for names and notes; anneal reads up to {MAX_HEADER}"
        )

    def write(f: IO[bytes]) -> None:
        f.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            array = arrays[name]
            plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            f.write(plain.reshape(-1).view(np.uint8).data)

    return write


# -- the header --------------------------------------------------------------------------------------------------------


class _Header:
    """Checks a header: nothing it says is believed before, and no more memory is taken than the file has bytes."""

    def __init__(self, path: Path, length: bytes, size: int) -> None:
        self.path = path
        if len(length) < 8:
            raise self.fault(f"it has {size} bytes, and 8 are the least")
        self.length = int.from_bytes(length, "little")
        if self.length > size - 8:
            raise self.fault(f"a header of {self.length} bytes is announced, and {size - 8} bytes follow")
        if self.length > MAX_HEADER:
            raise self.fault(f"a header of {self.length} bytes; anneal reads up to {MAX_HEADER}")
        self.base = 8 + self.length
        self.room = size - self.base

    def fault(self, what: str, tensor: str | None = None) -> DataError:
        where = "" if tensor is None else f"tensor {_shown(tensor)}: "
        return DataError(f"safe_open: {self.path} is corrupt or no safetensors file: {where}{what}")

    def read(self, read: Any) -> tuple[dict[str, Entry], dict[str, str]]:
        """The entries and the metadata of the header that `read` reads."""
        fields = self.parse(read(self.length))
        metadata = fields.pop(_NOTES, None)
        if metadata is None:
            metadata = {}
        if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
            raise self.fault("__metadata__ is no object of strings")
        entries = {name: self.entry(name, value) for name, value in fields.items()}
        self.check_cover(entries)
        return entries, metadata

    def parse(self, raw: bytes) -> dict[str, Any]:
        if not raw.startswith(b"{"):
            raise self.fault("the header is no JSON object")
        try:
            found = json.loads(raw.decode(), object_pairs_hook=self.unique, parse_constant=self.no_number)
        except UnicodeDecodeError as e:
            raise self.fault(f"the header is not UTF-8 at byte {e.start}") from e
        except RecursionError as e:
            raise self.fault("the header is nested too deeply") from e
        except DataError:
            raise
        except ValueError as e:  # no JSON, or an integer of thousands of digits
            raise self.fault(f"the header is no JSON: {e}") from e
        assert isinstance(found, dict)
        return found

    def unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise self.fault(f"the header has {_shown(name)} twice")
            if not name.isascii() and any("\ud800" <= c <= "\udfff" for c in name):
                raise self.fault(f"the header has a name that is no text: {_shown(name)}")
            found[name] = value
        return found

    def no_number(self, text: str) -> None:
        raise self.fault(f"the header is no JSON: {text}")

    def entry(self, name: str, value: Any) -> Entry:
        """The fields of one tensor, each of the right kind, its bytes inside the file and as many as its shape
        needs.
        """
        if not isinstance(value, dict):
            raise self.fault("it is no object", name)
        for field in ("dtype", "shape", "data_offsets"):
            if field not in value:
                raise self.fault(f"it has no {field}", name)
        dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise self.fault(f"its dtype is {_shown(dtype)}, which anneal has not; known: {', '.join(DTYPES)}", name)
        if not _counts(shape) or len(shape) > MAX_AXES:
            raise self.fault(f"its shape is {_shown(shape)}, not up to {MAX_AXES} sizes of at least 0", name)
        if not _counts(offsets) or len(offsets) != 2:
            raise self.fault(f"its data_offsets are {_shown(offsets)}, not a start and an end", name)
        start, stop = offsets
        if stop < start:
            raise self.fault(f"its bytes end at {_shown(stop)}, before they start at {_shown(start)}", name)
        if stop > self.room:
            raise self.fault(f"its bytes end at {_shown(stop)}, and the file has {self.room}: was it cut short?", name)
        itemsize = np.dtype(DTYPES[dtype]).itemsize
        if math.prod(n for n in shape if n) * itemsize > MAX_BYTES:
            raise self.fault(f"its shape {_shown(shape)} is larger than any memory", name)
        if math.prod(shape) * itemsize != stop - start:
            raise self.fault(
                f"{dtype} of shape {_shown(shape)} takes {math.prod(shape) * itemsize} bytes, and it has "
                f"{stop - start}",
                name,
            )
        return Entry(dtype, tuple(shape), self.base + start, self.base + stop)

    def check_cover(self, entries: Mapping[str, Entry]) -> None:
        """The format wants every byte to belong to exactly one tensor, so that nothing can hide in a file."""
        end, before = self.base, ""
        for name, e in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
            if e.start < end:
                raise self.fault(f"its bytes overlap those of {_shown(before)}", name)
            if e.start > end:
                raise self.fault(f"{e.start - end} bytes before its own belong to no tensor", name)
            end, before = e.stop, name
        if end != self.base + self.room:
            raise self.fault(f"{self.base + self.room - end} bytes at the end belong to no tensor")


def _counts(value: object) -> bool:
    # bool is an int in Python; JSON's true is no number
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _shown(value: object) -> str:
    """Its text, safe to print, and short: a header may say anything."""
    try:
        text = ascii(value) if isinstance(value, str) else json.dumps(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits
        text = "..."
    return text if len(text) <= 120 else f"{text[:100]}... ({len(text)} characters)"
