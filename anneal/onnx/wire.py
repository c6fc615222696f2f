"""Large tensors taken out of a file's bytes before protobuf reads them, which would copy each one twice.

A message of protobuf is a row of fields: a number for the field's place and kind, then its value; that of a message, of
text or of bytes has its length before it (https://protobuf.dev/programming-guides/encoding). Only fields that are long
are looked into, and only those that lead to `TensorProto.raw_data`; all others are passed over. The file is not to be
trusted: bytes that are no such row stay as they are, and protobuf says what is wrong with them.
"""

from __future__ import annotations

import os

__all__ = ["without_large"]

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
