"""Byte-level byte-pair encoding: text to GPT-2's token ids, and back.

Text is cut into words by a pattern; a word is a row of bytes, each of them a token; then neighbours that the list of
merges names are joined, the earliest in the list first, until none is left. Every text and every row of bytes has an
encoding. The ids are those of Hugging Face's `tokenizers`, which the tests compare.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from pathlib import Path

import regex

from anneal.errors import UserError

from .vocabulary import END_OF_TEXT, Vocabulary

__all__ = ["END_OF_TEXT", "Pair", "TextStream", "Tokenizer", "merge"]

# The pattern that GPT-2 was trained with: a word takes the space before it; of a run of spaces the last one goes to the
# word.
WORD = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")

# Python's name for bytes that are no UTF-8: each becomes a character of its own (U+DC80 to U+DCFF), neither letter nor
# space, and comes back as the same byte.
BYTES = "surrogateescape"

CACHED_WORDS, LONGEST_CACHED = 1 << 16, 64


class Tokenizer:
    """Encodes and decodes with one vocabulary.

    >>> from examples.gpt2.vocabulary import BYTE_OF_LETTER
    >>> ids = {letter: i for i, letter in enumerate(BYTE_OF_LETTER)} | {"he": 256, "<|endoftext|>": 257}
    >>> tokenizer = Tokenizer(Vocabulary.make(ids, ["h e"]))
    >>> tokenizer.encode("hehe!<|endoftext|>")
    [256, 256, 0, 257]
    >>> tokenizer.decode([256, 256, 0, 257])
    'hehe!<|endoftext|>'
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._words = _Words(vocabulary)
        names = sorted(vocabulary.special, key=len, reverse=True)  # of two that begin alike the longer one is meant
        self._special = regex.compile("(" + "|".join(map(regex.escape, names)) + ")") if names else None

    @classmethod
    def read(cls, vocab: str | Path, merges: str | Path) -> Tokenizer:
        """The tokeniser of a vocab.json and a merges.txt; DataError names the file, the line and the fix."""
        return cls(Vocabulary.read(vocab, merges))

    def __len__(self) -> int:
        """How many tokens there are."""
        return len(self.vocabulary.tokens)

    @property
    def end_of_text(self) -> int | None:
        """The id of <|endoftext|>, which stands between documents; None if the vocabulary has none."""
        return self.vocabulary.special.get(END_OF_TEXT)

    def encode(self, text: str | bytes, *, allow_special: bool = True) -> list[int]:
        """The token ids of a text, or of bytes, which need not be UTF-8.

        `<|endoftext|>` in the text becomes the one token that ends a document, as in Hugging Face's GPT-2 tokenisers.
        Pass `allow_special=False` for text that you did not write: then it is thirteen characters like any other.

        Lone surrogates are no text: UserError, but for U+DC80 to U+DCFF, by which Python's command line and file names
        carry bytes that are not UTF-8.
        """
        if isinstance(text, bytes):
            text = text.decode("utf-8", BYTES)
        words = self._words
        try:
            if not allow_special or self._special is None:
                return words.encode(text)
            ids: list[int] = []
            for i, part in enumerate(self._special.split(text)):
                if i % 2:  # what the group caught
                    ids.append(self.vocabulary.special[part])
                elif part:
                    ids += words.encode(part)
            return ids
        except UnicodeEncodeError as error:
            surrogate = error.object[error.start]
            raise UserError(
                f"the text has a lone surrogate U+{ord(surrogate):04X} at character {text.index(surrogate)}, which "
                "no UTF-8 "
                "can hold; encode it with errors='replace' first"
            ) from None

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids; bytes that are no UTF-8 become U+FFFD. UserError for an id that is no token.

        `decode(encode(text)) == text` for every text. A row of tokens may end inside a character: see `stream`.
        """
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of token ids; `decode_bytes(encode(data)) == data` for all bytes."""
        tokens = self.vocabulary.tokens
        try:
            return b"".join(map(tokens.__getitem__, ids))
        except KeyError as error:
            raise UserError(
                f"{error.args[0]} is no token id; the vocabulary has {len(tokens)} tokens, ids {min(tokens)} to "
                f"{max(tokens)}"
            ) from None

    def stream(self) -> TextStream:
        """A decoder that takes ids as they come and gives whole characters only."""
        return TextStream(self)


class TextStream:
    """Text from tokens, a few at a time; the pieces together are what `decode` gives for all ids at once.

    A character of several bytes may be spread over tokens: it comes out with the last of them.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, *ids: int) -> str:
        """What can be said for sure after these ids; may be empty."""
        return self._utf8.decode(self._tokenizer.decode_bytes(ids))

    def flush(self) -> str:
        """What is left at the end: U+FFFD if a character was begun, else nothing. The stream is then as new."""
        return self._utf8.decode(b"", final=True)


class _Words(dict[str, list[int]]):
    """Word -> ids, filled as words are met. Text repeats its words: of Tiny Shakespeare's 297,833 one in
    twenty is new.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._byte_ids = vocabulary.byte_ids
        ranks, products = vocabulary.ranks, vocabulary.products
        self._rank_of, self._product_of = ranks.get, lambda pair: products[ranks[pair]]

    def encode(self, text: str) -> list[int]:
        return list(chain.from_iterable(map(self.__getitem__, WORD.findall(text))))

    def __missing__(self, word: str) -> list[int]:
        byte_ids = self._byte_ids
        ids = merge([byte_ids[byte] for byte in word.encode("utf-8", BYTES)], self._rank_of, self._product_of)
        if len(word) <= LONGEST_CACHED:
            if len(self) >= CACHED_WORDS:
                self.clear()
            self[word] = ids
        return ids


Pair = tuple[int, int]


def merge(ids: list[int], rank_of: Callable[[Pair], int | None], product_of: Callable[[Pair], int]) -> list[int]:
    """Join neighbours by the rank of their pair, if it has one, the leftmost first among equals: the lowest goes first,
    and is replaced by its product. n ids take O(n log n), since a word may be a whole book.

    The tokens are a linked list over the places of `ids`; a heap holds the pairs that might be joined, as rank and
    place in one number, and one that has changed since is passed over when it comes up.
    """
    size = len(ids)
    heap = [rank * size + i for i, pair in enumerate(pairwise(ids)) if (rank := rank_of(pair)) is not None]
    if not heap:
        return ids
    heapify(heap)
    after, before = list(range(1, size + 1)), list(range(-1, size - 1))
    while heap:
        rank, i = divmod(heappop(heap), size)
        j = after[i]
        if j == size or rank_of((ids[i], ids[j])) != rank:
            continue
        ids[i], ids[j] = product_of((ids[i], ids[j])), -1  # -1: joined to what stands before it
        h, k = before[i], after[j]
        after[i] = k
        if k < size:
            before[k] = i
            if (new := rank_of((ids[i], ids[k]))) is not None:
                heappush(heap, new * size + i)
        if h >= 0 and (new := rank_of((ids[h], ids[i]))) is not None:
            heappush(heap, new * size + h)
    return [number for number in ids if number >= 0]
