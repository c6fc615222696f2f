"""Text to ids and back: equal to Hugging Face's `tokenizers`, exact for all bytes, fast, and never half a character."""

from __future__ import annotations

import base64
import dataclasses
import json
import random
import time
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import Tokenizer as Reference
from tokenizers.models import BPE

from anneal.assets import load
from anneal.errors import UserError
from examples.gpt2 import END_OF_TEXT, Tokenizer, Vocabulary, tokenizer as module
from examples.gpt2.vocabulary import BYTE_OF_LETTER
from tests.examples.gpt2.helpers import DATA, build, ours, reference
from tests.examples.gpt2.texts import TEXTS

TOKENIZER, PEER = ours(), reference()
GOLDEN = json.loads((DATA / "golden.json").read_text(encoding="utf-8"))

# `tokenizers` and `regex` know different versions of Unicode: letters that one of them lacks are words of another kind.
# What was assigned in Unicode 3.2, which Python keeps, all of them know.
ASSIGNED = [chr(i) for i in range(0x30000) if unicodedata.ucd_3_2_0.category(chr(i)) not in ("Cn", "Cs", "Co")]
CHARACTERS = st.sampled_from(" \n\t'sdtlmvere aA1.,") | st.characters(max_codepoint=0x2FF) | st.sampled_from(ASSIGNED)
PIECES = st.sampled_from([*TEXTS, END_OF_TEXT, "<|endoftext", "|>", "'ll", " \u3000 ", "\r\n"])
STRINGS = st.lists(st.text(CHARACTERS) | PIECES, max_size=6).map("".join)


def check_equal(tokenizer: Tokenizer, peer: Reference, text: str) -> None:
    """The same ids with special tokens and without, and the text back from both."""
    for allow_special in (True, False):
        peer.encode_special_tokens = not allow_special
        ids = tokenizer.encode(text, allow_special=allow_special)
        assert ids == peer.encode(text).ids
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("sample", GOLDEN, ids=range(len(GOLDEN)))
def test_ids_are_those_of_the_full_vocabulary(sample: dict[str, Any]) -> None:
    assert TOKENIZER.encode(sample["text"]) == sample["ids"]
    assert TOKENIZER.decode(sample["ids"]) == sample["text"]


def test_the_golden_texts_are_the_texts() -> None:
    assert tuple(sample["text"] for sample in GOLDEN) == TEXTS, "python -m tests.examples.gpt2.make_fixture writes them"


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_texts_equal_the_reference(text: str) -> None:
    check_equal(TOKENIZER, PEER, text)


@pytest.mark.slow
def test_tiny_shakespeare_equals_the_reference() -> None:
    check_equal(TOKENIZER, PEER, load("tinyshakespeare").decode())


@settings(max_examples=400, deadline=None, derandomize=True)
@given(text=STRINGS)
def test_any_text_equals_the_reference(text: str) -> None:
    check_equal(TOKENIZER, PEER, text)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_merges_equal_the_reference(data: st.DataObject) -> None:
    """Also lists that no training gives, where a merge stands before the merges of its parts."""
    tokens = ["a", "b", "c", "Ġ"]
    merges: dict[tuple[str, str], None] = {}
    for _ in range(data.draw(st.integers(1, 14))):
        left, right = (data.draw(st.sampled_from(tokens)) for _ in range(2))
        merges[left, right] = None
        if left + right not in tokens:
            tokens.append(left + right)
    order = data.draw(st.permutations(list(merges)))
    ids = {token: i for i, token in enumerate(dict.fromkeys([*BYTE_OF_LETTER, *tokens, END_OF_TEXT]))}
    mine = Tokenizer(Vocabulary.make(ids, [" ".join(pair) for pair in order]))
    peer = build(BPE(vocab=ids, merges=order), [END_OF_TEXT])
    for text in data.draw(st.lists(st.text("abc ", max_size=40), min_size=1, max_size=4)):
        check_equal(mine, peer, text)


# Bytes


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.binary(max_size=60) | st.text(CHARACTERS).map(str.encode))
def test_any_bytes_come_back(data: bytes) -> None:
    ids = TOKENIZER.encode(data)
    assert TOKENIZER.decode_bytes(ids) == data
    assert TOKENIZER.decode(ids) == data.decode("utf-8", "replace")


@pytest.mark.parametrize(
    "data", [b"\xff", b"caf\xc3", b"\x80 \xe2\x82 a", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xff\xfe\x00a"]
)
def test_bytes_that_are_no_utf8_keep_their_neighbours(data: bytes) -> None:
    around = b"Hello " + data + b" world"
    ids = TOKENIZER.encode(around)
    assert TOKENIZER.decode_bytes(ids) == around
    assert (ids[0], ids[-1]) == (TOKENIZER.encode("Hello")[0], TOKENIZER.encode(" world")[-1])


@settings(deadline=None, derandomize=True)
@given(text=STRINGS)
def test_bytes_of_a_text_encode_like_the_text(text: str) -> None:
    assert TOKENIZER.encode(text.encode()) == TOKENIZER.encode(text)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(ids=st.lists(st.sampled_from(sorted(TOKENIZER.vocabulary.tokens)), max_size=30))
def test_any_ids_decode_like_the_reference(ids: list[int]) -> None:
    assert TOKENIZER.decode(ids) == PEER.decode(ids, skip_special_tokens=False)


def test_arrays_of_ids_decode() -> None:
    assert TOKENIZER.decode(np.array([15496, 11, 995], np.int32)) == "Hello, world"


def test_bytes_of_a_command_line_are_bytes() -> None:
    assert TOKENIZER.decode_bytes(TOKENIZER.encode(b"caf\xe9".decode("utf-8", "surrogateescape"))) == b"caf\xe9"


def test_a_lone_surrogate_is_an_error_that_says_where() -> None:
    with pytest.raises(UserError, match=r"lone surrogate U\+D83D at character 5.*errors='replace'"):
        TOKENIZER.encode("text \ud83d!")


@pytest.mark.parametrize("number", [50_257, -1, 50_000])
def test_an_id_that_is_no_token_is_an_error(number: int) -> None:
    with pytest.raises(UserError, match=rf"^{number} is no token id; the vocabulary has 2425 tokens, ids 0 to 50256$"):
        TOKENIZER.decode([15496, number])


# Special tokens


def test_end_of_text_is_one_token_unless_told_otherwise() -> None:
    assert TOKENIZER.end_of_text == 50_256
    assert TOKENIZER.encode(END_OF_TEXT) == [50_256]
    spelt = TOKENIZER.encode(END_OF_TEXT, allow_special=False)
    assert 50_256 not in spelt
    assert TOKENIZER.decode(spelt) == END_OF_TEXT


def test_of_special_tokens_that_begin_alike_the_longer_is_meant() -> None:
    ids = {token: i for i, token in enumerate([*BYTE_OF_LETTER, "<a>", "<a><b>", ".*"])}
    special = ("<a>", ".*", "<a><b>")
    mine, peer = Tokenizer(Vocabulary.make(ids, [], special)), build(BPE(vocab=ids, merges=[]), special)
    assert mine.end_of_text is None
    assert mine.encode("<a><b>") == [257]
    for text in ("<a><b>", "<a> <b>", "x.*y", "<a><a><b>.*", "<a", ""):
        check_equal(mine, peer, text)


def test_a_vocabulary_may_have_no_special_tokens() -> None:
    ids = {letter: i for i, letter in enumerate(BYTE_OF_LETTER)}
    assert Tokenizer(Vocabulary.make(ids, [], special=())).encode("a<|b") == [ids[x] for x in "a<|b"]


# Streams


def test_a_character_comes_with_its_last_token() -> None:
    ids, stream = TOKENIZER.encode("a😀b"), TOKENIZER.stream()
    assert [stream.feed(i) for i in ids] == ["a", "", "😀", "b"]
    assert stream.flush() == ""


def test_a_character_that_was_begun_ends_as_a_replacement() -> None:
    ids, stream = TOKENIZER.encode("😀"), TOKENIZER.stream()
    assert [stream.feed(*ids[:-1]), stream.flush(), stream.flush()] == ["", "\ufffd", ""]
    assert stream.feed(*ids) == "😀"


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=STRINGS)
def test_a_stream_says_each_character_as_soon_as_it_is_whole(text: str) -> None:
    ids, stream, said = TOKENIZER.encode(text), TOKENIZER.stream(), ""
    for i, number in enumerate(ids):
        said += stream.feed(number)
        assert said == TOKENIZER.decode_bytes(ids[: i + 1]).decode("utf-8", "ignore")
    assert (said, stream.flush()) == (text, "")


@settings(max_examples=300, deadline=None, derandomize=True)
@given(pieces=st.lists(st.lists(st.sampled_from(sorted(TOKENIZER.vocabulary.tokens)[:256]), max_size=5), max_size=8))
def test_a_stream_of_any_ids_is_what_decode_gives(pieces: list[list[int]]) -> None:
    stream = TOKENIZER.stream()
    said = "".join(stream.feed(*piece) for piece in pieces) + stream.flush()
    assert said == TOKENIZER.decode([number for piece in pieces for number in piece])


# Speed


def test_tiny_shakespeare_takes_less_than_a_second_for_a_megabyte() -> None:
    text = load("tinyshakespeare").decode()

    def seconds() -> float:
        tokenizer = ours()  # with no word in its cache
        start = time.process_time()
        tokenizer.encode(text)
        return time.process_time() - start

    assert len(text) / min(seconds() for _ in range(3)) >= 1e6


LONG = {
    "one letter": "a" * 100_000,
    "two letters": "Ab" * 50_000,
    "letters": "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=100_000)),
    "base64": base64.b64encode(random.Random(2).randbytes(75_000)).decode(),
    "signs": "=" * 100_000,
    "digits": "31415926" * 12_500,
    "spaces": " " * 100_000 + "x",
    "ideographs": "中" * 33_333,
    "quotes": "'" * 100_000,
}


@pytest.mark.parametrize("name", LONG)
def test_long_words_equal_the_reference(name: str) -> None:
    check_equal(TOKENIZER, PEER, LONG[name])


class Counting(dict[tuple[int, int], int]):
    """A table of ranks that counts how often it is asked."""

    asked = 0

    def get(self, *args: Any) -> Any:
        self.asked += 1
        return super().get(*args)


@pytest.mark.parametrize("name", ["one letter", "letters", "signs", "ideographs"])
def test_a_word_four_times_as_long_is_four_times_the_work(name: str) -> None:
    asked = []
    for length in (8_000, 32_000):
        ranks = Counting(TOKENIZER.vocabulary.ranks)
        start = time.process_time()
        Tokenizer(dataclasses.replace(TOKENIZER.vocabulary, ranks=ranks)).encode(LONG[name][:length])
        assert time.process_time() - start < 10
        asked.append(ranks.asked)
    assert asked[1] < 4.1 * asked[0]


def test_words_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_WORDS", 100)
    tokenizer, text = ours(), " ".join(map(str, range(1000))) + " " + "x" * 1000
    check_equal(tokenizer, PEER, text)
    assert len(tokenizer._words) <= 100
    assert max(map(len, tokenizer._words)) <= module.LONGEST_CACHED
