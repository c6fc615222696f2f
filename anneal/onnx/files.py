"""A model file: parsed, with the values of its tensors. Nothing is read outside the model's folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from anneal.errors import OnnxError
from anneal.files import opened
from anneal.onnx.schemas import text_of
from anneal.onnx.types import PACKED_BITS, array_dtype, element_name

_FIELDS = {  # where a TensorProto that has no raw_data keeps the elements of a type
    **dict.fromkeys((1, 14), "float_data"),
    **dict.fromkeys((11, 15), "double_data"),
    7: "int64_data",
    **dict.fromkeys((12, 13), "uint64_data"),
    8: "string_data",
}


def parsed(
    source: str | os.PathLike[str] | bytes, *, whole: bool = False
) -> tuple[Any, Path | None, dict[bytes, memoryview]]:
    """The ModelProto of a file or of its bytes, the folder that external data may come from, and large elements.

    Large ones are tokens in the ModelProto, see `without_large`; none are if it is to be `whole`.

    Raises OnnxError for a file that is missing or is no ONNX model.
    """
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    folder = None
    if isinstance(source, (bytes, bytearray, memoryview)):
        data, what = bytes(source), "these bytes"
    else:
        path = Path(source)
        what = str(path)
        try:
            with opened(path) as f:
                data = f.read()
        except OSError as e:
            raise OnnxError(f"{what} cannot be read: {e.strerror or e}") from None
        folder = path.resolve().parent
    proto = ModelProto()
    small, large = (data, {}) if whole else without_large(data)
    try:
        proto.ParseFromString(small)
    except DecodeError as e:
        raise OnnxError(
            f"{what}: is no ONNX model ({e}); a text file or another format must be converted first"
        ) from None
    if not proto.HasField("graph"):
        raise OnnxError(f"{what}: has no graph, so it is no ONNX model")
    return proto, folder, large


def reader_of(
    folder: Path | None, large: dict[bytes, memoryview], *, structure_only: bool = False
) -> Callable[[Any, str], Any]:
    """A function `(TensorProto, where) -> array`; with `structure_only` large tensors and missing ones are None.

    `folder` and `large` are what `parsed` gave.
    """

    def read(tensor: Any, where: str) -> Any:
        external = tensor.data_location == 1
        if structure_only and (external or _elements(tensor, where) > 1024):
            return None
        if external:
            return _array(tensor, where, _external(tensor, where, folder))
        raw = tensor.raw_data if tensor.HasField("raw_data") else None
        return _array(tensor, where, None if raw is None else np.frombuffer(large.get(raw, raw), np.uint8))

    return read


def _elements(tensor: Any, where: str) -> int:
    size = 1
    for d in tensor.dims:
        if d < 0:
            raise OnnxError(f"{where}: has a negative size in its shape {tuple(tensor.dims)}")
        size *= d
    return size


def _array(tensor: Any, where: str, raw: Any) -> np.ndarray[Any, Any]:
    """The elements of a TensorProto; `raw` are the bytes that it has as such, here or in another file."""
    code = tensor.data_type
    dtype = array_dtype(code)
    if dtype is None:
        raise OnnxError(f"{where}: has elements of {element_name(code)}, which ONNX does not have")
    size, shape = _elements(tensor, where), tuple(tensor.dims)
    if len(shape) > 64:
        raise OnnxError(f"{where}: has {len(shape)} axes; at most 64 are possible")
    if dtype.kind == "O":
        _check(where, len(tensor.string_data), size, shape)
        out = np.empty(size, object)
        out[:] = [s.decode("utf-8", "surrogateescape") for s in tensor.string_data]
        return out.reshape(shape)
    bits = PACKED_BITS.get(code, dtype.itemsize * 8)
    if raw is not None:
        _check(where, len(raw), -(-size * bits // 8), shape, "bytes")
        if code not in PACKED_BITS:
            return raw.view(dtype).reshape(shape) if size else np.empty(shape, dtype)
    else:
        count = len(getattr(tensor, _FIELDS.get(code, "int32_data")))
        each = 2 if code in (14, 15) else 1
        _check(where, count, size * each if code not in PACKED_BITS else -(-size * bits // 8), shape)
    return _packed(tensor, where, raw)


def _packed(tensor: Any, where: str, raw: Any) -> np.ndarray[Any, Any]:
    """Elements that the onnx package knows how to unpack; their number has been checked."""
    from onnx import TensorProto, numpy_helper

    try:
        if raw is not None:
            tensor = TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=raw.tobytes())
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError, AttributeError) as e:
        raise OnnxError(f"{where}: its elements do not make an array: {e}") from None


def _check(where: str, have: int, want: int, shape: tuple[int, ...], unit: str = "elements") -> None:
    if have != want:
        raise OnnxError(f"{where}: has {have} {unit}, but its shape {shape} needs {want}")


def _external(tensor: Any, where: str, folder: Path | None) -> Any:
    """The bytes that a tensor has in another file, which lies in the model's folder or below."""
    said = {text_of(e.key): text_of(e.value) for e in tensor.external_data}
    location = said.get("location", "")
    if folder is None:
        raise OnnxError(f"{where}: its values are in the file {location!r}; load the model by its path, not from bytes")
    try:
        path = Path(os.path.realpath(folder / location))
    except (OSError, ValueError) as e:
        raise OnnxError(f"{where}: its values are in {location!r}, which is no path: {e}") from None
    if not location or os.path.isabs(location) or not path.is_relative_to(folder):
        raise OnnxError(
            f"{where}: its values are in {location!r}, which is outside the model's folder; move the file there"
        )
    try:
        offset, length = int(said.get("offset") or 0), int(said.get("length") or -1)
    except ValueError:
        raise OnnxError(f"{where}: its offset or length in {location!r} is no number") from None
    if not path.is_file():
        raise OnnxError(f"{where}: its values are in {location!r}, which is missing from the model's folder")
    have = path.stat().st_size
    if length < 0:
        length = have - offset
    if offset < 0 or length < 0 or offset + length > have:
        raise OnnxError(f"{where}: asks for bytes {offset} to {offset + length} of {location!r}, which has {have}")
    if not length:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r", offset, (length,))


LARGE = 1 << 16  # bytes

_TENSOR: dict[int, object] = {9: None}  # raw_data
_ATTRIBUTE: dict[int, object] = {5: _TENSOR}
_NODE: dict[int, object] = {5: _ATTRIBUTE}
_GRAPH: dict[int, object] = {1: _NODE, 5: _TENSOR}
_ATTRIBUTE[6] = _GRAPH
_MODEL: dict[int, object] = {7: _GRAPH}
_NESTING = 64  # messages inside messages
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _NotARowError(Exception):
    """Bytes are no row of fields."""


def without_large(data: bytes) -> tuple[bytes, dict[bytes, memoryview]]:
    """The bytes of a ModelProto with a token in place of each large `raw_data`, and what each token stands for.

    Tokens are of 24 random bytes, so no file holds one.
    """
    found: dict[bytes, memoryview] = {}
    if len(data) < LARGE:
        return data, found
    try:
        pieces = _message(memoryview(data), _MODEL, found, 0)
    except _NotARowError:
        return data, {}
    return (b"".join(pieces), found) if found else (data, found)


def _message(data: memoryview, fields: dict[int, object], found: dict[bytes, memoryview], depth: int) -> list[bytes]:
    """The pieces of a message anew; `fields` are those to look into, by their numbers."""
    if depth > _NESTING:
        raise _NotARowError
    out: list[bytes] = []
    at = kept = 0  # where the next field begins, and up to where the message is in `out`
    end = len(data)
    while at < end:
        tag, begin = _varint(data, at)
        kind = tag & 7
        if kind == _BYTES:
            length, begin = _varint(data, begin)
            next_at = begin + length
            if length >= LARGE and next_at <= end and tag >> 3 in fields:
                inner = fields[tag >> 3]
                if isinstance(inner, dict):
                    value = _message(data[begin:next_at], inner, found, depth + 1)
                else:
                    token = os.urandom(24)
                    found[token] = data[begin:next_at]
                    value = [token]
                out += [bytes(data[kept:at]), _as_varint(tag), _as_varint(sum(map(len, value))), *value]
                kept = next_at
        elif kind == _VARINT:
            next_at = _varint(data, begin)[1]
        elif kind in (_FIXED64, _FIXED32):
            next_at = begin + (8 if kind == _FIXED64 else 4)
        else:
            raise _NotARowError
        if next_at > end:
            raise _NotARowError
        at = next_at
    out.append(bytes(data[kept:]))
    return out


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the low ones first, and where it ends."""
    n = shift = 0
    while shift < 64:
        if at >= len(data):
            raise _NotARowError
        byte = data[at]
        at += 1
        n |= (byte & 127) << shift
        if byte < 128:
            return n, at
        shift += 7
    raise _NotARowError


def _as_varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)
