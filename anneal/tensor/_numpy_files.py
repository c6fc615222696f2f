"""NumPy's files, .npy and .npz, read without belief: a header is parsed here, and memory taken for what is there only.

NumPy's own reader takes memory for as many elements as a header claims, unpacks archives of any size, and raises what
the parsers underneath raise.
"""

from __future__ import annotations

import ast
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from anneal import files
from anneal.errors import DataError

Array = np.ndarray[Any, Any]

MAX_HEADER = 10_000  # bytes; NumPy's limit too
MAX_AXES = 32
# An archive's arrays may take so many times its own bytes, or so many bytes if that is more: deflate reaches 1,000
# times.
MAX_RATIO, SMALL = 100, 256 << 20
_MAGIC = b"\x93NUMPY"
_LENGTH = {1: "<H", 2: "<I", 3: "<I"}  # by version: how the header's length is written
_DTYPES = frozenset({"b1", "?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
_FIELDS = {"descr", "fortran_order", "shape"}
# What zipfile and zlib raise for files that are none; RuntimeError: a password, NotImplementedError: a method.
_ZIP_ERRORS = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, ValueError, KeyError, IndexError,
    OverflowError, RuntimeError,
)  # fmt: skip


def read_npy(path: Path) -> Array:
    """The array of a .npy file. DataError names the file and the fault."""
    try:
        with files.opened(path) as f:
            if f.read(4)[:2] == b"PK":
                raise _fault("load_npy", path, "it has the other NumPy format; use load_npz")
            f.seek(0, 2)
            size = f.tell()
            f.seek(0)
            return _array(f, size, "load_npy", path)
    except OSError as e:
        raise DataError(f"load_npy: cannot read {path}: {e.strerror or e}") from e


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of a .npz file by name. DataError names the file, the array and the fault."""
    try:
        with files.opened(path) as f:
            if f.read(6) == _MAGIC:
                raise _fault("load_npz", path, "it has the other NumPy format; use load_npy")
            size = f.seek(0, 2)
            room = max(SMALL, MAX_RATIO * size)
            f.seek(0)
            with zipfile.ZipFile(f) as archive:
                members = archive.infolist()
                total = sum(m.file_size for m in members)
                if total > room:
                    raise _fault(
                        "load_npz", path,
                        f"its arrays unpack to {total} bytes, and anneal unpacks up to {room} of such a file; if you "
                        "know it, give what numpy.load finds to Tensor",
                    )  # fmt: skip
                found: dict[str, Array] = {}
                for m in members:
                    name = m.filename.removesuffix(".npy")
                    if name == m.filename or name in found:
                        raise _fault("load_npz", path, f"{m.filename!a} is no array, or there twice")
                    if m.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                        raise _fault("load_npz", path, f"{name!a} is packed in a way that NumPy does not use")
                    if m.compress_size > size:
                        raise _fault("load_npz", path, f"{name!a} takes {m.compress_size} bytes of a file of {size}")
                    with archive.open(m) as member:
                        found[name] = _array(member, m.file_size, "load_npz", path, f"{name!a}: ")
                        if member.read(1):  # at the end the checksum is compared
                            raise _fault("load_npz", path, f"{name!a}: more follows than its shape asks for")
                return found
    except DataError:
        raise
    except _ZIP_ERRORS as e:
        raise _fault("load_npz", path, str(e) or type(e).__name__) from e
    except OSError as e:
        raise DataError(f"load_npz: cannot read {path}: {e.strerror or e}") from e


def write_npz(f: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """An archive of .npy files, as numpy.savez writes it, whose own arguments take some of the names."""
    with zipfile.ZipFile(f, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            # made by name, a member has a fixed time: equal arrays give equal bytes
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _fault(what: str, path: Path, why: str) -> DataError:
    return DataError(f"{what}: {path} is corrupt, holds Python objects, or is no NumPy file: {why}")


def _array(f: IO[bytes], size: int, what: str, path: Path, where: str = "") -> Array:
    """The array that `f` has, of which `size` bytes are said to be there."""

    def fault(why: str) -> DataError:
        return _fault(what, path, where + why)

    start = f.read(8)
    if len(start) < 8 or start[:6] != _MAGIC or start[6] not in _LENGTH:
        raise fault(f"it begins with {start!r}")
    form = _LENGTH[start[6]]
    raw = f.read(struct.calcsize(form))
    if len(raw) < struct.calcsize(form):
        raise fault("it ends in its header")
    (length,) = struct.unpack(form, raw)
    if length > MAX_HEADER:
        raise fault(f"a header of {length} bytes; anneal reads up to {MAX_HEADER}")
    text = f.read(length)
    if len(text) < length:
        raise fault("it ends in its header")
    dtype, shape, by_columns = _header(text, fault)
    nbytes = math.prod(shape) * dtype.itemsize
    left = size - 8 - len(raw) - length
    if nbytes > left:
        raise fault(f"{dtype} of shape {shape} takes {nbytes} bytes, and {left} follow: was it cut short?")
    data = f.read(nbytes)
    if len(data) < nbytes:
        raise fault(f"it ends after {len(data)} of {nbytes} bytes")
    flat: Array = np.frombuffer(data, dtype)
    if dtype.kind == "b":
        flat = flat.view(np.uint8) != 0  # a byte in a file may be neither 0 nor 1
    elif not dtype.isnative:
        flat = flat.astype(dtype.newbyteorder("="))
    return flat.reshape(shape, order="F" if by_columns else "C")


def _header(text: bytes, fault: Any) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    try:
        found = ast.literal_eval(text.decode("utf-8").strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # MemoryError: nested too deeply
        raise fault("its header is no Python literal") from None
    if not isinstance(found, dict) or set(found) != _FIELDS:
        raise fault(f"its header is no dictionary of {', '.join(sorted(_FIELDS))}")
    descr, by_columns, shape = found["descr"], found["fortran_order"], found["shape"]
    if not isinstance(descr, str) or descr[:1] not in "<>|=" or descr[1:] not in _DTYPES:
        raise fault(f"its dtype is {str(descr)[:40]!a}, and tensors have {', '.join(sorted(_DTYPES - {'?'}))}")
    if type(by_columns) is not bool:
        raise fault("fortran_order is neither True nor False")
    if not isinstance(shape, tuple) or len(shape) > MAX_AXES or any(type(n) is not int or n < 0 for n in shape):
        raise fault(f"its shape is not a tuple of up to {MAX_AXES} sizes")
    dtype = np.dtype(descr)
    if math.prod([n for n in shape if n]) * dtype.itemsize > 1 << 62:
        raise fault("its shape is larger than any memory")
    return dtype, shape, by_columns
