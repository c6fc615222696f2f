"""GPT-2's own files, where they are: `pytest --gpt2 FOLDER`, or in the cache that `anneal gpt2` fills."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Reference

from anneal.assets import load
from examples.gpt2 import END_OF_TEXT, Tokenizer
from tests.examples.gpt2.helpers import DATA, ours, reference
from tests.examples.gpt2.test_tokenizer import LONG, check_equal
from tests.examples.gpt2.texts import TEXTS

SHA256 = {
    "vocab.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "merges.txt": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest) -> tuple[Tokenizer, Reference]:
    folder = Path(request.config.getoption("--gpt2"))
    for name, sha256 in SHA256.items():
        path = folder / name
        if not path.is_file():
            pytest.skip(f"GPT-2's {name} is not in {folder}: --gpt2 FOLDER")
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256, f"{path} is not GPT-2's"
    return ours(folder), reference(folder)


def test_every_token_is_known(pair: tuple[Tokenizer, Reference]) -> None:
    assert (len(pair[0]), pair[0].end_of_text) == (50_257, 50_256)
    for number in range(50_257):
        text = pair[0].decode([number])
        assert text == pair[1].decode([number], skip_special_tokens=False)
        if "\ufffd" not in text:
            check_equal(*pair, text)


def test_tiny_shakespeare_equals_the_reference(pair: tuple[Tokenizer, Reference]) -> None:
    text = load("tinyshakespeare").decode()
    check_equal(*pair, text)
    assert len(pair[0].encode(text)) == 338_025


def test_texts_equal_the_reference(pair: tuple[Tokenizer, Reference]) -> None:
    for text in (*TEXTS, *LONG.values(), END_OF_TEXT.join(TEXTS)):
        check_equal(*pair, text)


def test_the_golden_ids_are_those_of_the_full_files(pair: tuple[Tokenizer, Reference]) -> None:
    for sample in json.loads((DATA / "golden.json").read_text(encoding="utf-8")):
        assert pair[0].encode(sample["text"]) == sample["ids"]
