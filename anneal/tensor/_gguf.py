"""GGUF files, mapped into memory: metadata by key, tensors by name, of floats, integers or blocks of quantised floats.

    "GGUF", version, counts | keys and values | names, shapes, types, offsets | tensors, each aligned

Quantised tensors hold blocks of 32 numbers with a scale (and, some, a least value) in float16; they come out as
float32. As with safetensors, nothing that the file says is believed before it is checked.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from anneal.errors import DataError
from anneal.tensor._safetensors import MAX_BYTES, Array, MappedEntry, MappedTensors

MAX_AXES = 8  # writers use four
MAX_NAME = 1 << 16  # bytes
MAX_DEPTH = 4  # of arrays in arrays
_ALIGNMENT = 32
_BLOCK = 32


@dataclass(frozen=True, slots=True)
class _Type:
    """The decoding of a tensor's bytes to numbers: `layout` of an element, or of a block if there is `numbers`."""

    name: str
    layout: np.dtype[Any]
    numbers: Callable[[Any], Array] | None = None

    @property
    def per_item(self) -> int:
        return 1 if self.numbers is None else _BLOCK


def _halves(blocks: Any) -> Any:
    """The 32 numbers of four bits in 16 bytes: all low halves, then all high ones."""
    q = blocks["q"]
    return np.concatenate([q & 15, q >> 4], axis=-1)


def _with_fifth(blocks: Any) -> Any:
    bits = (blocks["h"][:, None] >> np.arange(_BLOCK, dtype=np.uint32)) & 1
    return _halves(blocks) | (bits << 4).astype(np.uint8)


def _scaled(q: Any, blocks: Any, less: int) -> Any:
    return (q.astype(np.float32) - less) * blocks["d"].astype(np.float32)[:, None]


def _shifted(q: Any, blocks: Any) -> Any:
    return q.astype(np.float32) * blocks["d"].astype(np.float32)[:, None] + blocks["m"].astype(np.float32)[:, None]


def _block(*fields: tuple[Any, ...]) -> np.dtype[Any]:
    return np.dtype(list(fields))


_D, _M, _H, _Q = ("d", "<f2"), ("m", "<f2"), ("h", "<u4"), ("q", "u1", (16,))
TYPES: dict[int, _Type] = {
    0: _Type("F32", np.dtype("<f4")),
    1: _Type("F16", np.dtype("<f2")),
    2: _Type("Q4_0", _block(_D, _Q), lambda b: _scaled(_halves(b), b, 8)),
    3: _Type("Q4_1", _block(_D, _M, _Q), lambda b: _shifted(_halves(b), b)),
    6: _Type("Q5_0", _block(_D, _H, _Q), lambda b: _scaled(_with_fifth(b), b, 16)),
    7: _Type("Q5_1", _block(_D, _M, _H, _Q), lambda b: _shifted(_with_fifth(b), b)),
    8: _Type("Q8_0", _block(_D, ("q", "i1", (32,))), lambda b: _scaled(b["q"], b, 0)),
    24: _Type("I8", np.dtype("i1")),
    25: _Type("I16", np.dtype("<i2")),
    26: _Type("I32", np.dtype("<i4")),
    27: _Type("I64", np.dtype("<i8")),
    28: _Type("F64", np.dtype("<f8")),
    30: _Type("BF16", np.dtype(ml_dtypes.bfloat16)),
}
_OTHER = {9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 20: "IQ4_NL", 23: "IQ4_XS"}
# Of metadata: strings are 8, arrays 9.
_VALUES = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
_STRING, _ARRAY = 8, 9


class Gguf(MappedTensors):
    """The tensors of the GGUF file `path` by name, each a lazy tensor on one `device`, and `metadata` by key.

    Opening reads and checks all but the tensors. A tensor's bytes are read when it is used; those of quantised ones,
    which become float32, when it is asked for.

    Raises DataError, naming the file, the tensor or key and the fault, if the file is missing or no sound GGUF file,
    and DTypeError when a tensor is asked for that the device cannot hold.
    """

    def __init__(self, path: str | os.PathLike[str], device: str | None = None) -> None:
        super().__init__(path, device, "gguf_open")
        if len(self._map) < 24:
            raise _fault(self.path, f"it has {len(self._map)} bytes, and 24 are the least")
        self.metadata, self.entries, self._types = _Reader(self.path, self._map).read()

    def array(self, name: str) -> Array:
        """The tensor called `name` as a read-only view of the file, or if it is quantised as new float32 numbers."""
        entry, kind = self.entries[name], self._types[name]
        if kind.numbers is None or 0 in entry.shape:
            return self.view(entry, kind.layout if kind.numbers is None else np.float32)
        count = math.prod(entry.shape) // kind.per_item
        found = np.frombuffer(self._map, kind.layout, count, entry.start)
        out = np.empty((count, _BLOCK), np.float32)
        for at in range(0, count, 1 << 16):  # in pieces: what they are computed through is short-lived and small
            out[at : at + (1 << 16)] = kind.numbers(found[at : at + (1 << 16)])
        return out.reshape(entry.shape)


def _fault(path: Path, what: str) -> DataError:
    return DataError(f"gguf_open: {path} is corrupt or no GGUF file: {what}")


class _Reader:
    """Reads a file from its begin, and takes no more memory than the file has bytes."""

    def __init__(self, path: Path, data: Any) -> None:
        self.path, self.data, self.at = path, data, 0
        self.where = "the header"

    def fault(self, what: str) -> DataError:
        return _fault(self.path, f"{self.where}: {what}")

    def take(self, count: int) -> int:
        """The offset of the next `count` bytes."""
        if count > len(self.data) - self.at:
            raise self.fault(f"it ends after {len(self.data)} bytes, and {count} more were to come: was it cut short?")
        at, self.at = self.at, self.at + count
        return at

    def number(self, form: str) -> Any:
        return struct.unpack_from(form, self.data, self.take(struct.calcsize(form)))[0]

    def text(self, most: int | None = None) -> str:
        count = self.number("<Q")
        if most is not None and count > most:
            raise self.fault(f"a name of {count} bytes; anneal reads up to {most}")
        at = self.take(count)
        raw: bytes = self.data[at : at + count]
        if most is None:
            return raw.decode(errors="replace")  # a tokeniser's pieces of characters are values, too
        try:
            return raw.decode()
        except UnicodeDecodeError as e:
            raise self.fault(f"the name {raw[:40]!a} is not UTF-8") from e

    def read(self) -> tuple[dict[str, Any], dict[str, MappedEntry], dict[str, _Type]]:
        magic = self.data[self.take(4) : 4]
        if magic != b"GGUF":
            raise self.fault(f"it begins with {magic!r}, not with GGUF")
        version = self.number("<I")
        if version & 0xFFFF == 0 and version:
            raise self.fault("its numbers have the other byte order; write it anew on a little-endian machine")
        if version not in (2, 3):
            raise self.fault(f"version {version}; anneal reads 2 and 3")
        tensors, values = self.number("<Q"), self.number("<Q")
        # The least that a tensor (name, axes, type, offset) and a value (key, type, a byte) take.
        for what, count, least in (("tensors", tensors, 24), ("values", values, 13)):
            if count > (len(self.data) - self.at) // least:
                raise self.fault(f"{count} {what} are announced, and {len(self.data)} bytes are too few for them")
        metadata: dict[str, Any] = {}
        for n in range(values):
            self.where = f"value {n}"
            key = self.text(MAX_NAME)
            self.where = f"value {key!a}"
            if key in metadata:
                raise self.fault("it is there twice")
            metadata[key] = self.value(self.number("<I"), 0)
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        self.where = "general.alignment"
        if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
            raise self.fault(f"{alignment!a} is no power of two up to 2**20")
        found = [self.tensor(n) for n in range(tensors)]
        base = -(-self.at // alignment) * alignment
        entries: dict[str, MappedEntry] = {}
        types: dict[str, _Type] = {}
        for name, shape, kind, offset in found:
            self.where = f"tensor {name!a}"
            if name in entries:
                raise self.fault("it is there twice")
            entries[name], types[name] = self.placed(shape, kind, offset, base, alignment), kind
        self.check_apart(entries)
        return metadata, entries, types

    def value(self, kind: int, depth: int) -> Any:
        if kind in _VALUES:
            dtype = np.dtype(_VALUES[kind])
            return np.frombuffer(self.data, dtype, 1, self.take(dtype.itemsize))[0].item()
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise self.fault(f"type {kind} is none of a value's")
        if depth == MAX_DEPTH:
            raise self.fault(f"arrays in arrays, {depth} deep")
        inner, count = self.number("<I"), self.number("<Q")
        if inner in _VALUES:
            dtype = np.dtype(_VALUES[inner])
            at = self.take(count * dtype.itemsize)
            return np.frombuffer(self.data, dtype, count, at).tolist()
        least = 8 if inner == _STRING else 12
        if count > (len(self.data) - self.at) // least:
            raise self.fault(f"{count} elements are announced, and {len(self.data) - self.at} bytes follow")
        return [self.value(inner, depth + 1) for _ in range(count)]

    def tensor(self, n: int) -> tuple[str, tuple[int, ...], _Type, int]:
        self.where = f"tensor {n}"
        name = self.text(MAX_NAME)
        self.where = f"tensor {name!a}"
        axes = self.number("<I")
        if axes > MAX_AXES:
            raise self.fault(f"{axes} axes; anneal reads up to {MAX_AXES}")
        shape = tuple([self.number("<Q") for _ in range(axes)])[::-1]
        kind = self.number("<I")
        if kind not in TYPES:
            known = ", ".join(t.name for t in TYPES.values())
            raise self.fault(f"its type is {_OTHER.get(kind, kind)}, which anneal has not; known: {known}")
        return name, shape, TYPES[kind], self.number("<Q")

    def placed(self, shape: tuple[int, ...], kind: _Type, offset: int, base: int, alignment: int) -> MappedEntry:
        if math.prod(n for n in shape if n) * max(4, kind.layout.itemsize) > MAX_BYTES:
            raise self.fault(f"its shape {shape} is larger than any memory")
        if kind.numbers is not None and (not shape or shape[-1] % _BLOCK):
            raise self.fault(
                f"rows of {shape[-1] if shape else 1} are no whole blocks of {_BLOCK}, as {kind.name} has them"
            )
        nbytes = math.prod(shape) // kind.per_item * kind.layout.itemsize
        if offset % alignment:
            raise self.fault(f"its offset {offset} is no multiple of the alignment, {alignment}")
        if base + offset + nbytes > len(self.data):
            raise self.fault(
                f"{kind.name} of shape {shape} ends at byte {base + offset + nbytes}, and the file has "
                f"{len(self.data)}: was it cut short?"
            )
        return MappedEntry(kind.name, shape, base + offset, base + offset + nbytes)

    def check_apart(self, entries: Mapping[str, MappedEntry]) -> None:
        end, before = 0, ""
        for name, e in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
            self.where = f"tensor {name!a}"
            if e.start < end:
                raise self.fault(f"its bytes overlap those of {before!a}")
            end, before = (e.stop, name) if e.stop > e.start else (end, before)
