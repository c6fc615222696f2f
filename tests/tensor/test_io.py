"""Files: what is saved comes back, other programs read it, and damaged files are told apart."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from anneal.errors import DataError
from anneal.tensor import Tensor, io

TENSORS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "half": np.array([1.5, -2], np.float16),
    "i": np.array([[1], [-7]], np.int32),
    "flags": np.array([True, False]),
    "scalar": np.array(3.0, np.float32),
}


def same(found: dict[str, Tensor]) -> None:
    assert set(found) == set(TENSORS)
    for name, want in TENSORS.items():
        assert found[name].numpy().dtype == want.dtype
        assert found[name].shape == want.shape
        np.testing.assert_array_equal(found[name].numpy(), want)


def test_safetensors_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    io.safe_save({n: Tensor(a) for n, a in TENSORS.items()}, path, {"made by": "a test"})
    same(io.safe_load(path))
    assert io.safe_metadata(path) == {"made by": "a test"}
    from safetensors.numpy import load_file

    np.testing.assert_array_equal(load_file(path)["w"], TENSORS["w"])


def test_lazy_tensors_are_computed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    io.safe_save({"x": Tensor([1.0, 2.0]) * 2}, path)
    assert io.safe_load(path)["x"].tolist() == [2, 4]


def test_bfloat16_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    path = tmp_path / "b.safetensors"
    x = torch.tensor([1.0, -2.5, 3e38], dtype=torch.bfloat16)
    save_file({"x": x}, path)
    found = io.safe_load(path)["x"]
    assert found.dtype.name == "bfloat16"
    np.testing.assert_array_equal(found.float().numpy(), x.float().numpy())


def test_numpys_formats_say_what_they_lack(tmp_path: Path) -> None:
    for dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        x = Tensor([1.0, 2.0], dtype=dtype)
        with pytest.raises(DataError, match=f"have no {dtype}, as x is; use safe_save"):
            io.save_npz({"x": x}, tmp_path / "x.npz")
        with pytest.raises(DataError, match=dtype):
            io.save_npy(x, tmp_path / "x.npy")


def test_numpy_round_trips(tmp_path: Path) -> None:
    io.save_npz({n: Tensor(a) for n, a in TENSORS.items()}, tmp_path / "all.npz")
    same(io.load_npz(tmp_path / "all.npz"))
    for name, a in TENSORS.items():
        io.save_npy(Tensor(a), tmp_path / f"{name}.npy")
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), a)
        np.testing.assert_array_equal(io.load_npy(tmp_path / f"{name}.npy").numpy(), a)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    io.save_npy(Tensor([1.0]), path)
    mode = path.stat().st_mode
    with pytest.raises(DataError, match="numbers"):
        io.save_npy(np.array([object()]), path)
    assert io.load_npy(path).tolist() == [1]
    io.save_npy(Tensor([2.0]), path)
    assert io.load_npy(path).tolist() == [2]
    assert path.stat().st_mode == mode
    assert os.listdir(tmp_path) == ["x.npy"]


LOADERS = [io.safe_load, io.load_npy, io.load_npz]


@pytest.mark.parametrize("load", LOADERS)
def test_missing_and_corrupt_files(load: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        load(tmp_path / "nowhere")
    with pytest.raises(DataError, match="not a file"):
        load(tmp_path)
    for content in (b"", b"\xff" * 40, b"PK\x03\x04 nothing", b"\x93NUMPY\x01\x00", b"{}"):
        path = tmp_path / "broken"
        path.write_bytes(content)
        with pytest.raises(DataError, match="broken"):
            load(path)


def test_a_file_cut_short(tmp_path: Path) -> None:
    for name, save, load in (
        ("a", io.safe_save, io.safe_load),
        ("b", io.save_npz, io.load_npz),
    ):
        path = tmp_path / name
        save({"x": Tensor(np.arange(1000, dtype=np.float32))}, path)
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(DataError):
            load(path)


def test_text_is_saved_whole(tmp_path: Path) -> None:
    for text in ("first, and longer", "é\n"):
        io.save_text(text, tmp_path / "note")
        assert (tmp_path / "note").read_bytes() == text.encode()
    with pytest.raises(DataError, match="cannot write"):
        io.save_text("", tmp_path / "no" / "note")
    assert os.listdir(tmp_path) == ["note"]


def test_pickles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.npy"
    np.save(path, np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(DataError, match="Python objects"):
        io.load_npy(path)


def test_the_wrong_numpy_format_is_named(tmp_path: Path) -> None:
    io.save_npy(Tensor([1.0]), tmp_path / "x.npy")
    with pytest.raises(DataError, match="use load_npy"):
        io.load_npz(tmp_path / "x.npy")
    io.save_npz({"x": Tensor([1.0])}, tmp_path / "x.npz")
    with pytest.raises(DataError, match="use load_npz"):
        io.load_npy(tmp_path / "x.npz")


def test_an_unwritable_place(tmp_path: Path) -> None:
    for save in (io.safe_save, io.save_npz):
        with pytest.raises(DataError, match="cannot write"):
            save({"x": Tensor([1.0])}, tmp_path / "no" / "such" / "folder")
    with pytest.raises(DataError, match="cannot write"):
        io.save_npy(Tensor([1.0]), tmp_path / "no" / "x.npy")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="cannot write"):
        io.save_npy(Tensor([1.0]), tmp_path / "folder")
    assert os.listdir(tmp_path) == ["folder"]
