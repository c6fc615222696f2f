"""com.microsoft: words of texts, and numbers that stand for them, on the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import regex

from anneal.onnx.execute import Call
from anneal.onnx.ops._values import Array, Value
from anneal.onnx.ops.contrib import MICROSOFT
from anneal.onnx.ops.strings import PATIENCE
from anneal.onnx.registry import op

__all__: list[str] = []


@op("Tokenizer", domain=MICROSOFT, raw=True)
def tokenizer(
    node: Call,
    x: Value,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] | None = None,
    tokenexp: str | None = None,
) -> Array:
    """The words of each text, filled up to one length: what a pattern matches, what stands between separators (which
    are patterns), or, for the separator "", the single characters. `mark` puts two marks around them.
    """
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "OUS":
        raise node.fail("takes text")
    if (tokenexp is None) == (separators is None):
        raise node.fail("has separators or tokenexp, one of them")
    try:
        rows = [list(_words(t, separators, tokenexp, mincharnum)) for t in x.reshape(-1)]
    except regex.error as e:
        raise node.fail(f"its pattern is not valid: {e}") from e
    except TimeoutError:
        raise node.fail(f"its pattern takes more than {PATIENCE:g} s for a text", "simplify it") from None
    if mark:
        rows = [["\x02", *row, "\x03"] for row in rows]
    longest = max([len(row) for row in rows], default=0)
    node.room(len(rows), longest)
    out = np.full((len(rows), longest), pad_value, object)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out.reshape(*x.shape, longest)


def _words(text: str, separators: Sequence[str] | None, pattern: str | None, least: int) -> Iterator[str]:
    if pattern is not None:
        found = [m.group() for m in regex.finditer(pattern, text, timeout=PATIENCE)]
    elif list(separators or ()) == [""]:
        found = list(text)
    else:
        found = [text]
        for separator in separators or ():
            found = [part for t in found for part in _parts(t, separator)]
    return (word for word in found if word and len(word) >= least)


def _parts(text: str, separator: str) -> Iterator[str]:
    begin = 0
    for m in regex.finditer(separator, text, timeout=PATIENCE):
        yield text[begin : m.start()]
        begin = m.end()
    yield text[begin:]


@op("MurmurHash3", domain=MICROSOFT, raw=True)
def murmur_hash(node: Call, x: Value, *, positive: int = 1, seed: int = 0) -> Array:
    """MurmurHash3 of 32 bits of each element: of a text's UTF-8, of a number's bytes."""
    array = node.host(x, "its bytes are hashed on the host")
    texts = array.dtype.kind in "OUS"
    data = [str(v).encode() if texts else v.tobytes() for v in array.reshape(-1)]
    found = np.array([_murmur(d, seed % 2**32) for d in data], np.uint32).reshape(array.shape)
    return found if positive else found.view(np.int32)


def _murmur(data: bytes, h: int) -> int:
    """Austin Appleby's MurmurHash3_x86_32."""
    mask, whole = 2**32 - 1, len(data) // 4 * 4

    def mixed(k: int) -> int:
        k = k * 0xCC9E2D51 & mask
        return (k << 15 | k >> 17) * 0x1B873593 & mask

    for i in range(0, whole, 4):
        h ^= mixed(int.from_bytes(data[i : i + 4], "little"))
        h = (h << 13 | h >> 19) * 5 + 0xE6546B64 & mask
    if whole < len(data):
        h ^= mixed(int.from_bytes(data[whole:], "little"))
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    return h ^ h >> 16
