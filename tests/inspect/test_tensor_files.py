"""Files of tensors: each value is counted once, whatever the dtype, and statistics are those of NumPy."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from anneal.inspect import statistics_of, tensor_file
from anneal.tensor import io

RNG = np.random.default_rng(0)
NORMAL = RNG.normal(size=(70, 30))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int8", "int64", "uint8", "bool"])
def test_statistics_are_numpys(dtype: str) -> None:
    x = (NORMAL * 3).astype(getattr(ml_dtypes, dtype, dtype))
    wide = x.astype(np.float64)
    s = statistics_of(x)
    assert s is not None
    assert (s.least, s.greatest) == (wide.min(), wide.max())
    assert s.mean == pytest.approx(wide.mean(), rel=1e-12, abs=1e-12)
    assert s.std == pytest.approx(wide.std(), rel=1e-12)
    assert s.zeros == (wide == 0).sum()
    assert s.bins == tuple(np.histogram(wide, 24)[0]) if dtype == "float64" else sum(s.bins) == x.size


def test_what_is_not_finite_or_not_there() -> None:
    wild = statistics_of(np.array([np.nan, np.inf, -np.inf, 2.0]))
    assert wild is not None
    assert (wild.not_finite, wild.least, wild.greatest, sum(wild.bins)) == (3, 2.0, 2.0, 1)
    for x in (np.zeros(0), np.array([np.nan])):
        none = statistics_of(x)
        assert none is not None
        assert (none.least, none.mean, none.bins) == (None, None, ())
    huge = statistics_of(np.array([-1.7e308, 1.7e308]))
    assert huge is not None
    assert sum(huge.bins) == 2
    assert statistics_of(np.array(["a"])) is None
    one = statistics_of(np.array(3.0))
    assert one is not None
    assert one.first == ("3.0",)


def test_files_have_them_up_to_a_limit(tmp_path: Path) -> None:
    arrays = {"a": NORMAL.astype(np.float32), "b": np.arange(6, dtype=np.int64)}
    io.safe_save(arrays, tmp_path / "w.safetensors")
    np.savez(tmp_path / "w.npz", **arrays)
    for name in ("w.safetensors", "w.npz"):
        for entry in tensor_file(tmp_path / name).tensors:
            assert entry.statistics == statistics_of(arrays[entry.name])
        assert [t.statistics is None for t in tensor_file(tmp_path / name, most=8400).tensors] == [False, True]
