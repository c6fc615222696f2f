"""Bundled data is the data that was shipped, or an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from anneal.assets import load
from anneal.errors import DataError


def test_shakespeare_is_all_there() -> None:
    text = load("tinyshakespeare").decode("ascii")
    assert len(text) == 1_115_394
    assert len(set(text)) == 65


def test_names_are_all_there() -> None:
    names = load("names").decode("ascii").split()
    assert (len(names), names[0], max(map(len, names))) == (32_033, "emma", 15)
    assert set("".join(names)) == set("abcdefghijklmnopqrstuvwxyz")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(DataError, match="no bundled data is called 'marlowe'; there is: names, tinyshakespeare"):
        load("marlowe")


def test_a_missing_file_says_how_to_get_it_back(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is missing.*reinstall"):
        load("tinyshakespeare", tmp_path)


def test_one_changed_byte_is_noticed(tmp_path: Path) -> None:
    data = bytearray(load("tinyshakespeare"))
    data[1000] ^= 1
    (tmp_path / "tinyshakespeare.txt").write_bytes(data)
    with pytest.raises(DataError, match="is not the file that was shipped: SHA-256"):
        load("tinyshakespeare", tmp_path)
