"""Files of tokens: every layout gives the same batches, which depend on the seed and the step alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anneal.errors import DataError, SettingError
from anneal.training import TokenFiles, write_tokens

WINDOW, BATCH = 8, 6


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Three shards: llm.c's short and long layout, and NumPy's."""
    r = np.random.default_rng(0)
    made = [tmp_path / name for name in ("a.bin", "b.bin", "c.npy")]
    for path, count, most in zip(made, (1000, 401, 333), (50257, 128256, 300), strict=True):
        tokens = r.integers(0, most, count)
        tokens[0] = most - 1
        write_tokens(path, tokens)
    return made


def test_the_layout_is_that_of_llm_c(tmp_path: Path) -> None:
    write_tokens(tmp_path / "x.bin", [5, 50256])
    data = (tmp_path / "x.bin").read_bytes()
    assert np.frombuffer(data[:12], "<i4").tolist() == [20240520, 1, 2]
    assert (len(data), np.frombuffer(data[1024:], "<u2").tolist()) == (1028, [5, 50256])
    write_tokens(tmp_path / "x.bin", [5, 70000])
    data = (tmp_path / "x.bin").read_bytes()
    assert np.frombuffer(data[:12], "<i4").tolist() == [20240801, 7, 2]
    assert np.frombuffer(data[1024:], "<u4").tolist() == [5, 70000]


def test_a_pass_reads_each_window_once(paths: list[Path]) -> None:
    files = TokenFiles(paths, WINDOW, seed=1)
    assert (files.tokens, files.count) == (1734, 999 // 8 + 400 // 8 + 332 // 8)
    rows = [files.rows(n, 1)[0] for n in range(2 * files.count)]
    first, second = ([r.tobytes() for r in half] for half in (rows[: files.count], rows[files.count :]))
    assert len(set(first)) == files.count
    assert sorted(first) == sorted(second)
    assert first != second
    assert first != [TokenFiles(paths, WINDOW, seed=2).rows(n, 1).tobytes() for n in range(files.count)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_batches_are_the_same_for_any_number_of_processes_from_any_step_on(paths: list[Path], ranks: int) -> None:
    whole = TokenFiles(paths, WINDOW)
    parts = [TokenFiles(paths, WINDOW) for _ in range(ranks)]
    size = BATCH // ranks
    for step in (*range(35, 60), 3):  # a pass ends on the way
        made = [f.take(step, BATCH, r * size, (r + 1) * size) for r, f in enumerate(parts)]
        np.testing.assert_array_equal(np.concatenate(made), whole.rows(step, BATCH))


def test_mistakes(paths: list[Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the model knows 200: another vocabulary's"):
        [TokenFiles(paths, WINDOW, limit=200).rows(n, BATCH) for n in range(40)]
    with pytest.raises(SettingError, match="rows 4 to 9 are no part of a batch of 6"):
        TokenFiles(paths, WINDOW).rows(0, BATCH, 4, 9)
    with pytest.raises(DataError, match="too few for a row"):
        TokenFiles(paths, 5000)
    for name, data in (
        ("text.bin", b"no tokens at all" * 100),
        ("short.bin", b"x"),
        ("x.npy", b"no"),
        ("none.bin", None),
    ):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=name):
            TokenFiles([tmp_path / name], WINDOW)
    write_tokens(cut := tmp_path / "cut.bin", range(100))
    cut.write_bytes(cut.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"cut\.bin"):
        TokenFiles([cut], WINDOW)
