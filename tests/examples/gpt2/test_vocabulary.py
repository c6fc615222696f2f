"""What is wrong with a vocab.json or a merges.txt is said with the file, the line and what to do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from anneal.errors import DataError
from examples.gpt2 import Tokenizer, Vocabulary
from examples.gpt2.vocabulary import BYTE_OF_LETTER, UNMADE

LETTERS = {letter: i for i, letter in enumerate(BYTE_OF_LETTER)}
IDS = LETTERS | {"he": 256, "hel": 257, "<|endoftext|>": 258}
MERGES = "#version: 0.2\nh e\nhe l\n"


def write(folder: Path, vocab: str | bytes | dict[str, Any], merges: str | bytes = MERGES) -> tuple[Path, Path]:
    paths = folder / "vocab.json", folder / "merges.txt"
    for path, content in zip(paths, (json.dumps(vocab) if isinstance(vocab, dict) else vocab, merges)):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return paths


def test_the_two_files_are_read(tmp_path: Path) -> None:
    tokenizer = Tokenizer.read(*write(tmp_path, IDS))
    assert len(tokenizer) == 259
    assert tokenizer.encode("hello") == [257, LETTERS["l"], LETTERS["o"]]


@pytest.mark.parametrize("merges", ["h e\nhe l", MERGES.replace("\n", "\r\n"), "#version: 0.2\n\nh e\nhe l\n\n\n"])
def test_a_version_line_and_line_ends_are_free(tmp_path: Path, merges: str) -> None:
    assert Tokenizer.read(*write(tmp_path, IDS, merges)).encode("hel") == [257]


def test_every_byte_has_a_letter_that_shows() -> None:
    assert sorted(BYTE_OF_LETTER.values()) == list(range(256))
    assert all(letter.isprintable() and not letter.isspace() for letter in BYTE_OF_LETTER)
    assert [BYTE_OF_LETTER[letter] for letter in "aĠĊ"] == [*b"a \n"]


def test_ids_need_not_be_dense(tmp_path: Path) -> None:
    assert Tokenizer.read(*write(tmp_path, IDS | {"[pad]": 60_000})).decode([60_000]) == "[pad]"


WRONG_VOCAB: dict[str, tuple[str | bytes | dict[str, Any], str]] = {
    "not json": ('{"a": 0,\n "b" 1}', r"vocab\.json line 2, column 6: not JSON \(Expecting ':' delimiter\); fetch the file again"),
    "empty": ("", r"vocab\.json line 1, column 1: not JSON"),
    "cut": (json.dumps(IDS)[:900], r"vocab\.json line 1, column \d+: not JSON"),
    "html": ("<!doctype html>", r"vocab\.json line 1, column 1: not JSON"),
    "deep": ("[" * 100_000, r"vocab\.json is no vocabulary: maximum recursion"),
    "endless number": ('{"a": ' + "1" * 5000 + "}", r"vocab\.json is no vocabulary: Exceeds the limit"),
    "a list": ('["a"]', r"vocab\.json holds a JSON list, not an object of token: id"),
    "not utf-8": (b'{"\xff": 0}', r"vocab\.json is not UTF-8: byte 0xff at 2"),
    "token twice": ('{"a": 0, "b": 1, "a": 2}', r"vocab\.json has the token 'a' twice"),
    "id twice": (IDS | {"xy": 256}, r"vocab\.json: 'he' and 'xy' have the same id 256"),
    "negative id": (IDS | {"xy": -1}, r"vocab\.json: the id of 'xy' is -1, not a whole number from 0"),
    "id a fraction": (IDS | {"xy": 1.5}, r"the id of 'xy' is 1\.5, not a whole number"),
    "id a bool": (IDS | {"xy": True}, r"the id of 'xy' is True, not a whole number"),
    "id a text": (IDS | {"xy": "7"}, r"the id of 'xy' is '7', not a whole number"),
    "no special": ({k: v for k, v in IDS.items() if v < 258}, r"vocab\.json has no special token '<\|endoftext\|>'; .*special=\(\)"),
    "bytes missing": (
        {k: v for k, v in IDS.items() if k not in "Ġ!"},
        r"vocab\.json has no token for 2 of the 256 byte letters, the first '!' \(byte 0x21\)",
    ),
    "no byte letters": (IDS | {"▁the": 300}, r"token '▁the' \(id 300\) has '▁', which spells no byte; if it is a special token"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_VOCAB)
def test_a_wrong_vocabulary_is_an_error(tmp_path: Path, name: str) -> None:
    content, message = WRONG_VOCAB[name]
    with pytest.raises(DataError, match=message):
        Vocabulary.read(*write(tmp_path, content))


WRONG_MERGES: dict[str, tuple[str | bytes, str]] = {
    "one part": ("#version: 0.2\nh e\nhel\n", r"merges\.txt line 3: 'hel' is not two tokens with one space between"),
    "three parts": ("h e l\n", r"merges\.txt line 1: 'h e l' is not two tokens"),
    "an empty part": ("h e\n l\n", r"merges\.txt line 2: ' l' is not two tokens"),
    "part missing": ("h e\nhe xyz\n", r"merges\.txt line 2: 'he xyz' needs the token 'xyz', which .*vocab\.json lacks; take vocab\.json and"),
    "product missing": ("h e\nh l\n", r"merges\.txt line 2: 'h l' needs the token 'hl', which .*vocab\.json lacks"),
    "two lists": ("#version: 0.2\nh e\n#version: 0.2\n", r"merges\.txt line 3: '#version: 0\.2' needs the token '#version:', which"),
    "twice": ("#version: 0.2\nh e\nhe l\nh e\n", r"merges\.txt line 4: 'h e' stands in an earlier line too"),
    "not utf-8": (b"h e\n\xe4 b\n", r"merges\.txt is not UTF-8: byte 0xe4 at 4"),
    "the other file": (json.dumps(IDS), r"merges\.txt line 1: .* is not two tokens"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_MERGES)
def test_wrong_merges_are_an_error(tmp_path: Path, name: str) -> None:
    content, message = WRONG_MERGES[name]
    with pytest.raises(DataError, match=message):
        Vocabulary.read(*write(tmp_path, IDS, content))


def test_merges_that_were_cut_are_an_error(tmp_path: Path) -> None:
    pairs = [(a, b) for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmnopqrst"]
    ids = LETTERS | {a + b: 256 + i for i, (a, b) in enumerate(pairs)} | {"<|endoftext|>": 9999}
    lines = [f"{a} {b}" for a, b in pairs]
    assert len(Vocabulary.read(*write(tmp_path, ids, "\n".join(lines[: 400 - UNMADE]))).products) == 144
    with pytest.raises(
        DataError,
        match=r"merges\.txt makes 143 tokens, and 257 more of .*vocab\.json are made by no merge: the list is cut",
    ):
        Vocabulary.read(*write(tmp_path, ids, "\n".join(lines[: 399 - UNMADE])))


@pytest.mark.parametrize("missing", ["vocab.json", "merges.txt"])
def test_a_missing_file_is_an_error(tmp_path: Path, missing: str) -> None:
    paths = write(tmp_path, IDS)
    (tmp_path / missing).unlink()
    with pytest.raises(DataError, match=rf"{missing} is missing; put the checkpoint's file there"):
        Vocabulary.read(*paths)


def test_a_folder_or_a_locked_file_is_an_error(tmp_path: Path) -> None:
    _, merges = write(tmp_path, IDS)
    with pytest.raises(DataError, match=r"cannot be read"):
        Vocabulary.read(tmp_path, merges)
    if os.name == "posix" and os.geteuid() != 0:
        merges.chmod(0)
        with pytest.raises(DataError, match=r"merges\.txt cannot be read: Permission denied"):
            Vocabulary.read(tmp_path / "vocab.json", merges)
