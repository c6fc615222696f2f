"""GPT-2's vocab.json and merges.txt, read and checked.

Both files spell bytes as letters, so that a token is a word of visible characters in JSON and in a line of text: the
188 bytes whose latin-1 character is visible are that character, the other 68 are the characters from U+0100 on. A space
is Ġ.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anneal import files
from anneal.errors import DataError

__all__ = ["BYTE_OF_LETTER", "END_OF_TEXT", "Vocabulary", "read_text"]

END_OF_TEXT = "<|endoftext|>"

_PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(256) if byte not in _PRINTED]
BYTE_OF_LETTER = {chr(byte): byte for byte in _PRINTED} | {chr(256 + i): byte for i, byte in enumerate(_HIDDEN)}

# A checkpoint may have a few tokens that no merge makes, for padding, say; many mean that merges are missing.
UNMADE = 256

_SAME_FOLDER = "take vocab.json and merges.txt from the same checkpoint"
_FRESH = "fetch the file again"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a tokeniser needs of its two files, as ids.

    >>> letters = {letter: i for i, letter in enumerate(BYTE_OF_LETTER)}
    >>> v = Vocabulary.make(letters | {"he": 256, "<|endoftext|>": 257}, ["#version: 0.2", "h e"])
    >>> v.tokens[256], v.tokens[v.special["<|endoftext|>"]]
    (b'he', b'<|endoftext|>')
    """

    tokens: dict[int, bytes]  # id -> what it decodes to
    byte_ids: tuple[int, ...]  # byte -> id
    ranks: dict[tuple[int, int], int]  # a pair of ids -> the rank of its merge; the lowest goes first
    products: tuple[int, ...]  # rank -> id of the merged pair
    special: dict[str, int]  # text that is one token, whatever the merges say

    @classmethod
    def read(cls, vocab: str | Path, merges: str | Path, special: Iterable[str] = (END_OF_TEXT,)) -> Vocabulary:
        """Read a vocab.json and a merges.txt. DataError with the file, the line and the fix if they are not
        such files.
        """
        ids = _parse_json(read_text(vocab), str(vocab))
        return cls.make(ids, read_text(merges).split("\n"), special, names=(str(vocab), str(merges)))

    @classmethod
    def make(
        cls,
        ids: Mapping[str, int],
        merges: Iterable[str],
        special: Iterable[str] = (END_OF_TEXT,),
        names: tuple[str, str] = ("vocab.json", "merges.txt"),
    ) -> Vocabulary:
        """Check the content of the two files: token -> id, and the lines of merges. `names` is what errors
        call them.
        """
        vocab, listing = names
        specials = _find_specials(ids, special, vocab)
        missing = [letter for letter in BYTE_OF_LETTER if letter not in ids]
        if missing:
            raise DataError(
                f"{vocab} has no token for {len(missing)} of the 256 byte letters, the first {missing[0]!r} "
                f"(byte 0x{BYTE_OF_LETTER[missing[0]]:02x}): it is no byte-level vocabulary; {_SAME_FOLDER}"
            )
        tokens = _spell_tokens(ids, specials, vocab)
        ranks, products = _number_merges(ids, merges, vocab, listing)
        unmade = len(tokens) - len(BYTE_OF_LETTER) - len(specials) - len(set(products))
        if unmade > UNMADE:
            raise DataError(
                f"{listing} makes {len(set(products))} tokens, and {unmade} more of {vocab} are made by no merge: "
                f"the list is cut short, or another checkpoint's; {_SAME_FOLDER}"
            )
        return cls(
            tokens=tokens,
            byte_ids=tuple(ids[letter] for letter, _ in sorted(BYTE_OF_LETTER.items(), key=lambda item: item[1])),
            ranks=ranks,
            products=products,
            special=specials,
        )


def read_text(path: str | Path) -> str:
    """The text of a file as it is, line ends and all. DataError where there is none."""
    try:
        # Not read_text: it would take a lone carriage return for the end of a line.
        with files.opened(path) as f:
            return f.read().decode("utf-8")
    except FileNotFoundError:
        raise DataError(f"{path} is missing; put the checkpoint's file there, or fetch it") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}; {_FRESH}"
        ) from None


def _parse_json(text: str, name: str) -> dict[str, int]:
    """The object in vocab.json. JSON itself would let the last of two equal keys win in silence."""
    repeated: list[str] = []

    def note_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            repeated.append(Counter(key for key, _ in pairs).most_common(1)[0][0])
        return found

    try:
        ids = json.loads(text, object_pairs_hook=note_repeated)
    except json.JSONDecodeError as error:
        raise DataError(f"{name} line {error.lineno}, column {error.colno}: not JSON ({error.msg}); {_FRESH}") from None
    except (RecursionError, ValueError) as error:  # nested too deeply; a number of more digits than Python reads
        raise DataError(f"{name} is no vocabulary: {error}; {_FRESH}") from None
    if not isinstance(ids, dict):
        raise DataError(f"{name} holds a JSON {type(ids).__name__}, not an object of token: id; {_FRESH}")
    if repeated:
        raise DataError(f"{name} has the token {repeated[0]!r} twice; {_FRESH}")
    return ids


def _find_specials(ids: Mapping[str, int], special: Iterable[str], vocab: str) -> dict[str, int]:
    names = tuple(special)
    absent = [name for name in names if not name or name not in ids]
    if absent:
        raise DataError(
            f"{vocab} has no special token {absent[0]!r}; take the checkpoint's own file, "
            "or name the special tokens that it has (special=())"
        )
    return {name: ids[name] for name in names}


def _spell_tokens(ids: Mapping[str, int], specials: Mapping[str, int], vocab: str) -> dict[int, bytes]:
    """Id -> bytes, after checking that each id is a number of its own and each token is spelt in byte letters."""
    tokens: dict[int, bytes] = {}
    for token, number in ids.items():
        if type(number) is not int or number < 0:
            raise DataError(f"{vocab}: the id of {token!r} is {number!r}, not a whole number from 0; {_FRESH}")
        if number in tokens:
            other = next(name for name, id_ in ids.items() if id_ == number)
            raise DataError(f"{vocab}: {other!r} and {token!r} have the same id {number}; {_FRESH}")
        try:
            tokens[number] = token.encode() if token in specials else bytes(map(BYTE_OF_LETTER.__getitem__, token))
        except KeyError as error:
            raise DataError(
                f"{vocab}: token {token!r} (id {number}) has {error.args[0]!r}, which spells no byte; "
                "if it is a special token, name it in special=(...)"
            ) from None
    return tokens


def _number_merges(
    ids: Mapping[str, int], merges: Iterable[str], vocab: str, listing: str
) -> tuple[dict[tuple[int, int], int], tuple[int, ...]]:
    """Rank of each pair and id of each product, in the order of the lines."""
    ranks: dict[tuple[int, int], int] = {}
    products: list[int] = []
    for number, line in enumerate(merges, 1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        parts = line.split(" ")
        if len(parts) != 2 or not all(parts):
            raise DataError(f"{listing} line {number}: {line!r} is not two tokens with one space between; {_FRESH}")
        left, right = parts
        try:
            pair, product = (ids[left], ids[right]), ids[left + right]
        except KeyError as error:
            raise DataError(
                f"{listing} line {number}: {line!r} needs the token {error.args[0]!r}, which {vocab} lacks; "
                f"{_SAME_FOLDER}"
            ) from None
        if ranks.setdefault(pair, len(products)) != len(products):
            raise DataError(f"{listing} line {number}: {line!r} stands in an earlier line too; {_FRESH}")
        products.append(product)
    return ranks, tuple(products)
