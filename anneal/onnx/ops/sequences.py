"""Sequences, which are lists, optionals, which are a value or None, and text, which is on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import regex

from anneal.onnx.execute import NodeCall
from anneal.onnx.ops._values import Array, Value
from anneal.onnx.registry import op
from anneal.onnx.values import size_of
from anneal.tensor import Tensor


def _sequence(node: NodeCall, x: Any) -> list[Any]:
    if not isinstance(x, list):
        raise node.fail("takes a sequence, not a tensor")
    return x


def _position(node: NodeCall, position: Any, count: int, *, end: bool = False) -> int:
    """A position in a sequence, from its end if it is negative."""
    if position.size != 1:
        raise node.fail(f"its position has {position.size} elements, not one")
    at = int(position.item())
    if not -count <= at < count + end:
        raise node.fail(f"position {at} is outside a sequence of {count}")
    return at + count if at < 0 else at


@op("SequenceConstruct", since=11, raw=True, sizes=True)
def sequence_construct(node: NodeCall, *items: Any) -> Any:
    """The inputs as a sequence."""
    return list(items)


@op("SequenceEmpty", since=11, raw=True)
def sequence_empty(node: NodeCall, *, dtype: int = 1) -> Any:
    """A sequence of nothing."""
    return []


@op("SequenceLength", since=11, raw=True, sizes=True)
def sequence_length(node: NodeCall, x: Any) -> Any:
    """The number of items."""
    return np.asarray(len(_sequence(node, x)), np.int64)


@op("SequenceAt", since=11, raw=True, sizes=True, values=("position",))
def sequence_at(node: NodeCall, x: Any, position: Any) -> Any:
    """The item at a position."""
    return _sequence(node, x)[_position(node, position, len(x))]


@op("SequenceErase", since=11, raw=True, sizes=True, values=("position",))
def sequence_erase(node: NodeCall, x: Any, position: Any = None) -> Any:
    """The sequence without one item, the last unless it is named."""
    items = _sequence(node, x)
    if not items:
        raise node.fail("its sequence is empty")
    at = len(items) - 1 if position is None else _position(node, position, len(items))
    return node.sequence(items[:at] + items[at + 1 :], items)


@op("SequenceInsert", since=11, raw=True, sizes=True, values=("position",))
def sequence_insert(node: NodeCall, x: Any, value: Any, position: Any = None) -> Any:
    """The items and one more, at the end unless a place is named."""
    items = _sequence(node, x)
    at = len(items) if position is None else _position(node, position, len(items), end=True)
    return node.sequence([*items[:at], value, *items[at:]], items, value)


@op("ConcatFromSequence", since=11, raw=True)
def concat_from_sequence(node: NodeCall, x: Any, *, axis: int, new_axis: int = 0) -> Any:
    """The items one after the other along an axis, or stacked along a new one."""
    items = _sequence(node, x)
    if not items:
        raise node.fail("its sequence is empty, so the result has no shape")
    node.room(sum([size_of(i) for i in items]))
    if any(isinstance(i, Tensor) for i in items):
        tensors = [node.tensor(i) for i in items]
        return Tensor.stack(tensors, axis) if new_axis else Tensor.cat(tensors, axis)
    return np.stack(items, axis) if new_axis else np.concatenate(items, axis)


@op("SplitToSequence", since=11, raw=True, values=("split",))
def split_to_sequence(node: NodeCall, x: Any, split: Any = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    """Pieces along an axis: of one size, of given sizes, or single slices, which may lose the axis."""
    if not -x.ndim <= axis < x.ndim:
        raise node.fail(f"splits axis {axis} of an input of shape {list(x.shape)}")
    axis %= x.ndim
    size = int(x.shape[axis])
    if split is None:
        sizes = [1] * size
    elif split.ndim == 0:
        step = int(split)
        if step <= 0:
            raise node.fail(f"splits into pieces of {step}")
        sizes = [min(step, size - at) for at in range(0, size, step)]
    else:
        sizes = [int(s) for s in split]
    node.room(len(sizes))
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise node.fail(f"splits {size} elements into pieces of {sizes}")
    out = []
    at = 0
    for s in sizes:
        piece = x[(*[slice(None)] * axis, slice(at, at + s))]
        if split is None and not keepdims:
            piece = piece.reshape(*x.shape[:axis], *x.shape[axis + 1 :])
        out.append(piece)
        at += s
    return out


@op("Optional", since=15, raw=True, sizes=True)
def optional(node: NodeCall, x: Any = None, *, type: Any = None) -> Any:
    """The input as an optional: itself, or None."""
    return x


@op("OptionalHasElement", since=15, raw=True, sizes=True)
def optional_has_element(node: NodeCall, x: Any = None) -> Any:
    """True if there is a value."""
    return np.asarray(x is not None)


@op("OptionalGetElement", since=15, raw=True, sizes=True)
def optional_get_element(node: NodeCall, x: Any = None) -> Any:
    """The value that there is."""
    if x is None:
        raise node.fail("its optional is empty", "ask OptionalHasElement first")
    return x


PATIENCE = 1.0  # seconds that a pattern may take for one text; the file says the pattern


def _text(node: NodeCall, x: Any) -> Array:
    """A value that is text."""
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "OUS":
        raise node.fail("takes text, not numbers")
    return x


def characters(texts: Array) -> int:
    """The number of characters of all texts together."""
    return sum(map(len, texts.reshape(-1).tolist()))


@op("StringConcat", raw=True)
def string_concat(node: NodeCall, x: Value, y: Value) -> Array:
    """The texts of two arrays, concatenated pair by pair."""
    one, two = _text(node, x), _text(node, y)
    node.broadcasts(one, two)
    count = max(one.size, two.size)
    node.room(sum([characters(t) * (count // max(t.size, 1)) for t in (one, two)]))
    return np.asarray(one + two, object)


@op("StringSplit", raw=True)
def string_split(node: NodeCall, x: Value, *, delimiter: str | None = None, maxsplit: int | None = None) -> Any:
    """The parts of each text, filled up with "" to one length, and how many there are."""
    texts = _text(node, x)
    most = -1 if maxsplit is None else maxsplit
    parts = [t.split(delimiter or None, most) for t in texts.reshape(-1)]
    counts = np.array([len(p) for p in parts], np.int64)
    return filled(node, parts, "", texts.shape), counts.reshape(texts.shape)


def filled(node: NodeCall, rows: list[list[str]], blank: str, shape: tuple[int, ...]) -> Array:
    """Rows of texts, one for each text of an array of this shape, filled up to one length."""
    longest = max([len(row) for row in rows], default=0)
    node.room(len(rows), longest)
    out = np.full((len(rows), longest), blank, object)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out.reshape(*shape, longest)


@op("StringNormalizer", raw=True)
def string_normalizer(
    node: NodeCall,
    x: Value,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Sequence[str] | None = None,
) -> Array:
    """Texts without the stop words, in another case, whatever the locale; an empty text if none is left."""
    texts = _text(node, x)
    if texts.ndim not in (1, 2) or (texts.ndim == 2 and texts.shape[0] != 1):
        raise node.fail(f"takes texts of shape [n] or [1, n], not {list(texts.shape)}")
    changes: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}
    change = changes.get(case_change_action)
    if change is None:
        raise node.fail(f"case_change_action is LOWER, UPPER or NONE, not {case_change_action!r}")
    gone = set(stopwords or ()) if is_case_sensitive else {w.lower() for w in stopwords or ()}
    kept = [t for t in texts.reshape(-1) if (t if is_case_sensitive else t.lower()) not in gone]
    out = np.array([change(t) for t in kept] or [""], object)
    return out.reshape(1, -1) if texts.ndim == 2 else out


@op("RegexFullMatch", raw=True)
def regex_full_match(node: NodeCall, x: Value, *, pattern: str) -> Array:
    """True for each text that a pattern matches as a whole."""
    texts = _text(node, x)
    try:
        compiled = regex.compile(pattern)
        found = [compiled.fullmatch(t, timeout=PATIENCE) is not None for t in texts.reshape(-1)]
    except regex.error as e:
        raise node.fail(f"the pattern {pattern!r} is not valid: {e}") from e
    except TimeoutError:
        raise node.fail(f"the pattern {pattern!r} takes more than {PATIENCE:g} s for a text", "simplify it") from None
    return np.array(found, bool).reshape(texts.shape)


@op("TfIdfVectorizer", raw=True)
def tf_idf_vectorizer(
    node: NodeCall,
    x: Value,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> Array:
    """The count of each listed sequence of words (TF), weighted (TFIDF), or 1 if it occurs (IDF)."""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise node.fail(f"mode is TF, IDF or TFIDF, not {mode!r}")
    column = _columns(node, ngram_counts, ngram_indexes, list(pool_strings or pool_int64s or ()))
    width = max(ngram_indexes, default=-1) + 1
    node.room(*x.shape[:-1], width)
    words = node.host(x)
    rows = words.reshape(-1, words.shape[-1] if words.ndim else 1)
    out = np.zeros((len(rows), width), np.float32)
    for row, line in zip(out, rows.tolist(), strict=True):
        for gram, count in _grams(line, min_gram_length, max_gram_length, max_skip_count).items():
            if gram in column:
                row[column[gram]] += count
    if mode == "IDF":
        out = (out > 0).astype(np.float32)
    if mode != "TF" and weights:
        by = np.ones(width, np.float32)
        by[list(ngram_indexes)] = weights
        out = out * by
    return out.reshape(*words.shape[:-1], width)


def _columns(
    node: NodeCall, starts: Sequence[int], indexes: Sequence[int], pool: list[Any]
) -> dict[tuple[Any, ...], int]:
    """The column of each sequence of words; the pool has all of one word first, then all of two, and so on."""
    grams: list[tuple[Any, ...]] = []
    for n, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        grams += [tuple(pool[i : i + n]) for i in range(begin, end - n + 1, n)]
    if len(grams) != len(indexes):
        raise node.fail(f"ngram_indexes names {len(indexes)} columns for {len(grams)} sequences")
    return dict(zip(grams, indexes, strict=True))


def _grams(line: list[Any], least: int, most: int, skips: int) -> Counter[tuple[Any, ...]]:
    """Sequences of `least` to `most` words that stand 1 to skips + 1 apart; single words once."""
    found: Counter[tuple[Any, ...]] = Counter()
    for n in range(least, most + 1):
        for step in range(1, 2 if n == 1 else skips + 2):
            reach = step * (n - 1) + 1
            found.update([tuple(line[i : i + reach : step]) for i in range(len(line) - reach + 1)])
    return found
