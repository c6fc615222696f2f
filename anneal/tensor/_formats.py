"""Files of tensors, mapped into memory and read without belief: safetensors, GGUF, NumPy's .npy and .npz."""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
import zipfile
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from anneal import files
from anneal.backend import Array
from anneal.doors import pairs
from anneal.errors import DataError
from anneal.frozen import frozen
from anneal.names import Tensor
from anneal.ops import made, wrap_array
from anneal.runtime import default_device, resolve_device

MAX_BYTES = 1 << 62

# -- mapped files of tensors ------------------------------------------------------------------------------------------
# A mapping from names to lazy tensors on one device.


@frozen
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
            with files.opened(self.path) as f:
                empty = not os.fstat(f.fileno()).st_size  # which cannot be mapped
                self._map = b"" if empty else mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as e:  # ValueError: it became shorter meanwhile
            raise DataError(f"{what}: cannot read {self.path}: {getattr(e, 'strerror', None) or e}") from e

    @abstractmethod
    def array(self, name: str) -> Array:
        """A tensor as the file holds it."""

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
    """A value of a header as text, shortened and safe to print: a header may contain anything."""
    text = ascii(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 120 else f"{text[:100]}... ({len(text)} characters)"


# -- safetensors files ------------------------------------------------------------------------------------------------
#
# The package of that name judges them. Here stand views of the mapped file, the tensor at fault, an error for a name
# given twice, and the writing, which in the package takes 5 s instead of 0.4 for 240 MB, of two copies.


# Room for 100,000 tensors; the format allows 100 MB, gigabytes as Python objects. NumPy 1 has 32 axes.
MAX_HEADER, MAX_AXES, _NOTES = 16 << 20, 32, "__metadata__"
DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, kind, kind))
    for name, kind in pairs("""
        BOOL=? U8=<u1 I8=<i1 U16=<u2 I16=<i2 U32=<u4 I32=<i4 U64=<u8 I64=<i8 F8_E4M3=float8_e4m3fn F8_E5M2=float8_e5m2
        F16=<f2 BF16=bfloat16 F32=<f4 F64=<f8
    """).items()
}


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
    (start, stop), itemsize = offsets, DTYPES[dtype].itemsize
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
    at, kinds = 0, {dtype: name for name, dtype in DTYPES.items()}
    header: dict[str, Any] = {_NOTES: dict(sorted(notes.items()))} if notes else {}
    for name in order:
        array = arrays[name]
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


# -- GGUF files: metadata by key, tensors by name, of floats, integers or blocks of quantised floats ------------------
#
#     "GGUF", version, counts | keys and values | names, shapes, types, offsets | tensors, each aligned
#
# Quantised tensors hold blocks of 32 numbers with a scale (and, some, a least value) in float16; they come out as
# float32. As with safetensors, nothing that the file says is believed before it is checked.


GGUF_AXES = 8  # writers use four
MAX_NAME = 1 << 16  # bytes
MAX_DEPTH = 4  # of arrays in arrays
_ALIGNMENT = 32
_BLOCK = 32


@frozen
class _Type:
    """The decoding of a tensor's bytes to numbers: `layout` of an element, or of a block, from whose integers something
    is taken off."""

    name: str
    layout: np.dtype[Any]
    less: int | None = None


def _numbers(less: int, blocks: Any) -> Array:
    """The 32 numbers of each block: integers, less some, by a scale `d`, and, of some types, with a least value `m`."""
    q, names = blocks["q"], blocks.dtype.names
    if q.shape[-1] < _BLOCK:  # of four bits: all low halves, then all high ones
        q = np.concatenate([q & 15, q >> 4], axis=-1)
    if "h" in names:  # a fifth bit of each
        bits = (blocks["h"][:, None] >> np.arange(_BLOCK, dtype=np.uint32)) & 1
        q = q | (bits << 4).astype(np.uint8)
    out: Array = (q.astype(np.float32) - less) * blocks["d"].astype(np.float32)[:, None]
    return out + blocks["m"].astype(np.float32)[:, None] if "m" in names else out


_D, _M, _H, _Q = ("d", "<f2"), ("m", "<f2"), ("h", "<u4"), ("q", "u1", (16,))
TYPES: dict[int, _Type] = {
    kind: _Type(name, np.dtype(layout), *less)
    for kind, name, layout, *less in (
        (0, "F32", "<f4"),
        (1, "F16", "<f2"),
        (2, "Q4_0", [_D, _Q], 8),
        (3, "Q4_1", [_D, _M, _Q], 0),
        (6, "Q5_0", [_D, _H, _Q], 16),
        (7, "Q5_1", [_D, _M, _H, _Q], 0),
        (8, "Q8_0", [_D, ("q", "i1", (32,))], 0),
        (24, "I8", "i1"),
        (25, "I16", "<i2"),
        (26, "I32", "<i4"),
        (27, "I64", "<i8"),
        (28, "F64", "<f8"),
        (30, "BF16", ml_dtypes.bfloat16),
    )
}
# Types of tensors that are not read; and GGUF's metadata types, of which 8 is a string, 9 an array.
_OTHER, _VALUES = (
    {int(kind): name for kind, name in pairs(text).items()}
    for text in (
        "9=Q8_1 10=Q2_K 11=Q3_K 12=Q4_K 13=Q5_K 14=Q6_K 15=Q8_K 20=IQ4_NL 23=IQ4_XS",
        "0=u1 1=i1 2=<u2 3=<i2 4=<u4 5=<i4 6=<f4 7=? 10=<u8 11=<i8 12=<f8",
    )
)
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
            raise _no_gguf(self.path, f"it has {len(self._map)} bytes, and 24 are the least")
        self.metadata, self.entries, self._types = _Reader(self.path, self._map).read()

    def array(self, name: str) -> Array:
        """The tensor called `name` as a read-only view of the file, or if it is quantised as new float32 numbers."""
        entry, kind = self.entries[name], self._types[name]
        if kind.less is None or 0 in entry.shape:
            return self.view(entry, kind.layout if kind.less is None else np.float32)
        count = math.prod(entry.shape) // _BLOCK
        found = np.frombuffer(self._map, kind.layout, count, entry.start)
        out = np.empty((count, _BLOCK), np.float32)
        for at in range(0, count, 1 << 16):  # in pieces: what they are computed through is short-lived and small
            out[at : at + (1 << 16)] = _numbers(kind.less, found[at : at + (1 << 16)])
        return out.reshape(entry.shape)


def _no_gguf(path: Path, what: str) -> DataError:
    return DataError(f"gguf_open: {path} is corrupt or no GGUF file: {what}")


class _Reader:
    """Reads a file from its begin, and takes no more memory than the file has bytes."""

    def __init__(self, path: Path, data: Any) -> None:
        self.path, self.data, self.at = path, data, 0
        self.where = "the header"

    def fault(self, what: str) -> DataError:
        return _no_gguf(self.path, f"{self.where}: {what}")

    def skip(self, count: int) -> int:
        """The offset of the next `count` bytes."""
        if count > len(self.data) - self.at:
            raise self.fault(f"it ends after {len(self.data)} bytes, and {count} more were to come: was it cut short?")
        at, self.at = self.at, self.at + count
        return at

    def number(self, form: str) -> Any:
        return struct.unpack_from(form, self.data, self.skip(struct.calcsize(form)))[0]

    def text(self, most: int | None = None) -> str:
        count = self.number("<Q")
        if most is not None and count > most:
            raise self.fault(f"a name of {count} bytes; anneal reads up to {most}")
        at = self.skip(count)
        raw: bytes = self.data[at : at + count]
        if most is None:
            return raw.decode(errors="replace")  # a tokeniser's pieces of characters are values, too
        try:
            return raw.decode()
        except UnicodeDecodeError as e:
            raise self.fault(f"the name {raw[:40]!a} is not UTF-8") from e

    def read(self) -> tuple[dict[str, Any], dict[str, MappedEntry], dict[str, _Type]]:
        magic = self.data[self.skip(4) : 4]
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
        metadata = {}
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
        entries = {}
        types = {}
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
            return np.frombuffer(self.data, dtype, 1, self.skip(dtype.itemsize))[0].item()
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise self.fault(f"type {kind} is none of a value's")
        if depth == MAX_DEPTH:
            raise self.fault(f"arrays in arrays, {depth} deep")
        inner, count = self.number("<I"), self.number("<Q")
        if inner in _VALUES:
            dtype = np.dtype(_VALUES[inner])
            at = self.skip(count * dtype.itemsize)
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
        if axes > GGUF_AXES:
            raise self.fault(f"{axes} axes; anneal reads up to {GGUF_AXES}")
        shape = tuple([self.number("<Q") for _ in range(axes)])[::-1]
        kind = self.number("<I")
        if kind not in TYPES:
            known = ", ".join(t.name for t in TYPES.values())
            raise self.fault(f"its type is {_OTHER.get(kind, kind)}, which anneal has not; known: {known}")
        return name, shape, TYPES[kind], self.number("<Q")

    def placed(self, shape: tuple[int, ...], kind: _Type, offset: int, base: int, alignment: int) -> MappedEntry:
        if math.prod(n for n in shape if n) * max(4, kind.layout.itemsize) > MAX_BYTES:
            raise self.fault(f"its shape {shape} is larger than any memory")
        if kind.less is not None and (not shape or shape[-1] % _BLOCK):
            raise self.fault(
                f"rows of {shape[-1] if shape else 1} are no whole blocks of {_BLOCK}, as {kind.name} has them"
            )
        nbytes = math.prod(shape) // (1 if kind.less is None else _BLOCK) * kind.layout.itemsize
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


# -- NumPy's files, .npy and .npz -------------------------------------------------------------------------------------
#
# NumPy reads the header, of bytes that are at hand; memory is taken here, for what is there only. NumPy's own reader of
# arrays takes it for as many elements as a header claims, unpacks archives of any size, and raises what the parsers
# underneath raise.


NPY_HEADER = 10_000  # bytes; NumPy's limit too
# An archive's arrays may take so many times its own bytes, or so many bytes if that is more: deflate reaches 1,000
# times.
MAX_RATIO, SMALL = 100, 256 << 20
_MAGIC = b"\x93NUMPY"
# Header readers by .npy version. Version 3 differs from 2 only in names of record fields, which tensors lack.
_HEADERS = dict(enumerate([np.lib.format.read_array_header_1_0, *[np.lib.format.read_array_header_2_0] * 2], 1))
_DTYPES = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})


def read_npy(path: Path) -> Array:
    """The array of a .npy file. DataError names the file and the fault."""
    with _opened("load_npy", "load_npz", b"PK", path) as (f, size, fault):
        return _array(f, size, fault)


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of a .npz file by name. DataError names the file, the array and the fault."""
    with _opened("load_npz", "load_npy", _MAGIC, path) as (f, size, fault), zipfile.ZipFile(f) as archive:
        members, room = archive.infolist(), max(SMALL, MAX_RATIO * size)
        total = sum(m.file_size for m in members)
        if total > room:
            raise fault(
                f"its arrays unpack to {total} bytes, and anneal unpacks up to {room} of such a file; if you know it, "
                "give what numpy.load finds to Tensor"
            )
        found: dict[str, Array] = {}
        for m in members:
            name = m.filename.removesuffix(".npy")
            if name == m.filename or name in found:
                raise fault(f"{m.filename!a} is no array, or there twice")
            if m.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise fault(f"{name!a} is packed in a way that NumPy does not use")
            if m.compress_size > size:
                raise fault(f"{name!a} takes {m.compress_size} bytes of a file of {size}")
            with archive.open(m) as member:
                # all of it is read: at the end the checksum is compared
                found[name] = _array(member, m.file_size, fault, f"{name!a}: ")
        return found


@contextmanager
def _opened(
    what: str, other: str, its: bytes, path: Path
) -> Iterator[tuple[IO[bytes], int, Callable[[str], DataError]]]:
    """A file, its size, and a function that makes an error of a fault; `its` are the first bytes of files that `other`
    reads.
    """

    def fault(why: str) -> DataError:
        return DataError(f"{what}: {path} is corrupt, holds Python objects, or is no NumPy file: {why}")

    try:
        with files.opened(path) as f:
            if f.read(len(its)) == its:
                raise fault(f"it has the other NumPy format; use {other}")
            size = f.seek(0, 2)
            f.seek(0)
            yield f, size, fault
    except DataError:
        raise
    except OSError as e:
        raise DataError(f"{what}: cannot read {path}: {e.strerror or e}") from e
    except Exception as e:  # what the parsers of archives, of what is packed, and of headers raise is not of one kind
        raise fault(str(e) or type(e).__name__) from e


def write_npz(f: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """An archive of .npy files, as numpy.savez writes it, whose own arguments take some of the names."""
    with zipfile.ZipFile(f, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            # made by name, a member has a fixed time: equal arrays give equal bytes
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _array(f: IO[bytes], size: int, told: Callable[[str], DataError], where: str = "") -> Array:
    """The array that `f` has, of which `size` bytes are said to be there."""

    def fault(why: str) -> DataError:
        return told(where + why)

    head = f.read(NPY_HEADER + 12)
    reader = BytesIO(head)
    version, _ = np.lib.format.read_magic(reader)
    if version not in _HEADERS:
        raise fault(f"version {version}; anneal reads 1 to 3")
    shape, by_columns, dtype = _HEADERS[version](reader, NPY_HEADER)
    if dtype.str[1:] not in _DTYPES:
        raise fault(f"its dtype is {str(dtype)[:40]!a}, and tensors have {', '.join(sorted(_DTYPES))}")
    if len(shape) > MAX_AXES or any(type(n) is not int or n < 0 for n in shape):
        raise fault(f"its shape is not a tuple of up to {MAX_AXES} sizes")
    if math.prod([n for n in shape if n]) * dtype.itemsize > MAX_BYTES:
        raise fault("its shape is larger than any memory")
    nbytes, at = math.prod(shape) * dtype.itemsize, reader.tell()
    if nbytes > size - at:
        raise fault(f"{dtype} of shape {shape} takes {nbytes} bytes, and {size - at} follow: was it cut short?")
    if where and nbytes < size - at:
        raise fault("more follows than its shape asks for")
    data = head[at : at + nbytes] + f.read(max(0, at + nbytes - len(head)))
    if len(data) < nbytes:
        raise fault(f"it ends after {len(data)} of {nbytes} bytes")
    flat = np.frombuffer(data, dtype)
    if dtype.kind == "b":
        flat = flat.view(np.uint8) != 0  # a byte in a file may be neither 0 nor 1
    elif not dtype.isnative:
        flat = flat.astype(dtype.newbyteorder("="))
    return flat.reshape(shape, order="F" if by_columns else "C")
