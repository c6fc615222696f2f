"""Text, and numbers counted as words: on the host, where text is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import regex

from anneal.onnx.execute import Call
from anneal.onnx.ops._values import Array, Value
from anneal.onnx.registry import op

__all__: list[str] = []

PATIENCE = 1.0  # seconds that a pattern may take for one text; the file says the pattern


def _text(node: Call, x: Any) -> Array:
    """A value that is text."""
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "OUS":
        raise node.fail("takes text, not numbers")
    return x


def characters(texts: Array) -> int:
    """The number of characters of all texts together."""
    return sum(map(len, texts.reshape(-1).tolist()))


@op("StringConcat", raw=True)
def string_concat(node: Call, x: Value, y: Value) -> Array:
    """The texts of two arrays, concatenated pair by pair."""
    one, two = _text(node, x), _text(node, y)
    node.broadcasts(one, two)
    count = max(one.size, two.size)
    node.room(sum([characters(t) * (count // max(t.size, 1)) for t in (one, two)]))
    return np.asarray(one + two, object)


@op("StringSplit", raw=True)
def string_split(node: Call, x: Value, *, delimiter: str | None = None, maxsplit: int | None = None) -> Any:
    """The parts of each text, filled up with "" to one length, and how many there are."""
    texts = _text(node, x)
    most = -1 if maxsplit is None else maxsplit
    parts = [t.split(delimiter or None, most) for t in texts.reshape(-1)]
    longest = max([len(p) for p in parts], default=0)
    node.room(len(parts), longest)
    out = np.full((len(parts), longest), "", object)
    for row, p in zip(out, parts, strict=True):
        row[: len(p)] = p
    counts = np.array([len(p) for p in parts], np.int64)
    return out.reshape(*texts.shape, longest), counts.reshape(texts.shape)


@op("StringNormalizer", raw=True)
def string_normalizer(
    node: Call,
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
def regex_full_match(node: Call, x: Value, *, pattern: str) -> Array:
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
    node: Call,
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


def _columns(node: Call, starts: Sequence[int], indexes: Sequence[int], pool: list[Any]) -> dict[tuple[Any, ...], int]:
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
