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


NAMES = [
    "",
    "x",
    "a b",
    "a\nb",
    "\0",
    "\x7f\x1b[2J",
    '"',
    "\\\\",
    "é",
    "e\u0301",
    "\U0001f600",
    "\ufeff",
    "\u2028",
    "a" * 100_000,
    "__metadata",
    "../x",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:10]))
def test_any_text_is_a_name(name: str, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    path = tmp_path / "x"
    io.safe_save({name: np.ones(2, np.float32), "other": np.zeros(3, np.int8)}, path, {name: name})
    assert set(load_file(path)) == {name, "other"}
    assert set(io.safe_load(path)) == {name, "other"}
    assert io.safe_metadata(path) == {name: name}
    io.save_npz({"file": np.ones(2, np.float32)}, path)  # a name that is an argument of numpy.savez
    assert list(io.load_npz(path)) == ["file"]


@pytest.mark.parametrize("name", ["__metadata__", "a\ud800", "\udcff", 3, None, b"x", ("a",)], ids=ascii)
def test_what_is_no_name_is_refused(name: object, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(DataError, match="safe_save"):
        io.safe_save({name: np.ones(2, np.float32)}, tmp_path / "x")  # type: ignore[dict-item]
    if name != "__metadata__":
        with pytest.raises(DataError, match="safe_save"):
            io.safe_save({}, tmp_path / "x", {name: "x"})  # type: ignore[dict-item]
        with pytest.raises(DataError, match="safe_save"):
            io.safe_save({}, tmp_path / "x", {"x": name})  # type: ignore[dict-item]
    assert (tmp_path / "x").read_bytes() == b"old"


def test_equal_tensors_give_equal_bytes(tmp_path: Path) -> None:
    notes = {str(n): "x" for n in range(20)}
    io.safe_save(TENSORS, tmp_path / "a", notes)
    io.safe_save(dict(reversed(TENSORS.items())), tmp_path / "b", dict(reversed(notes.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    for save in (io.save_npz, lambda t, p: io.save_npy(t["w"], p)):
        save(TENSORS, tmp_path / "a")
        save(TENSORS, tmp_path / "b")
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_every_layout_and_dtype_is_written(tmp_path: Path) -> None:
    import ml_dtypes
    from safetensors.numpy import load_file

    base = np.arange(24).reshape(2, 3, 4)
    arrays = {
        str(np.dtype(d)): base.astype(d)
        for d in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "?")
    }
    arrays |= {
        "swapped": base.astype(">i4"),
        "turned": base.astype("f4").T,
        "cut": base.astype("f4")[:, ::2, 1:],
        "none": base[:0],
    }
    io.safe_save(arrays, tmp_path / "x")
    for found in (load_file(tmp_path / "x"), {n: t.numpy() for n, t in io.safe_open(tmp_path / "x", "cpu").items()}):
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
    narrow = {
        str(d): base.astype(np.float32).astype(d)
        for d in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
    }
    io.safe_save(narrow, tmp_path / "x")
    for name, array in narrow.items():
        np.testing.assert_array_equal(io.safe_load(tmp_path / "x")[name].numpy(), array)
    for wrong in (np.array([1j]), np.array(["x"]), np.array([("a", 1)], "U1,i4"), np.array(["2020"], "M8[D]")):
        with pytest.raises(DataError, match="safe_save"):
            io.safe_save({"x": wrong}, tmp_path / "x")


def npy(
    descr: str = "'<f4'", order: str = "False", shape: str = "(2, 3)", data: bytes = bytes(24), more: str = ""
) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, {more}}}".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


CLAIMS = {
    "elements": npy(shape="(10**18,)".replace("10**18", str(10**18))),
    "an axis": npy(shape=f"({2**63}, 0)"),
    "digits": npy(shape="(" + "9" * 4000 + ",)"),
    "negative": npy(shape="(-1, 3)"),
    "true": npy(shape="(True,)"),
    "a list": npy(shape="[2, 3]"),
    "axes": npy(shape="(" + "1, " * 33 + ")"),
    "too few": npy(data=bytes(23)),
    "objects": npy(descr="'|O'"),
    "records": npy(descr="[('a', '<f4')]"),
    "text": npy(descr="'<U5'"),
    "times": npy(descr="'<M8[D]'"),
    "complex": npy(descr="'<c8'"),
    "long double": npy(descr="'<f16'"),
    "subarrays": npy(descr="('<f4', (1000000000,))"),
    "order": npy(order="1"),
    "another field": npy(more="'x': 1"),
    "deep": npy(shape="(" * 3000 + ")" * 3000),
    "code": npy(shape="(print('ran'),)"),
    "version": b"\x93NUMPY\x09\x00" + bytes(100),
    "header": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(100),
    "magic": b"\x93NUMPY",
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_a_numpy_file_claims_is_not_believed(claim: str, tmp_path: Path) -> None:
    import tracemalloc
    import zipfile

    (tmp_path / "x.npy").write_bytes(CLAIMS[claim])
    for way in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / f"{way}.npz", "w", way) as archive:
            archive.writestr("x.npy", CLAIMS[claim])
    for load, name in ((io.load_npy, "x.npy"), (io.load_npz, "0.npz"), (io.load_npz, "8.npz")):
        tracemalloc.start()
        try:
            with pytest.raises(DataError, match=name):
                load(tmp_path / name)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    import tracemalloc
    import zipfile

    from anneal.tensor import _formats

    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        member.write(npy(shape=f"({80 << 20},)", data=b""))
        for _ in range(320):
            member.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="unpack to 335544"):
            io.load_npz(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    # what is small, or packs by less, is read: zeros pack a thousandfold
    np.savez_compressed(path, zeros=np.zeros(1 << 20, np.float32))
    assert path.stat().st_size * _formats.MAX_RATIO < 4 << 20
    assert io.load_npz(path)["zeros"].shape == (1 << 20,)


def test_what_numpy_writes_is_read(tmp_path: Path) -> None:
    base = np.arange(24).reshape(2, 3, 4)
    for dtype in ("?", "u1", "i1", "<i2", ">i2", "<i4", ">i4", "<i8", "<f2", "<f4", ">f4", "<f8"):
        for array in (base.astype(dtype), base.astype(dtype).T, base[:0].astype(dtype), np.array(3, dtype)):
            np.save(tmp_path / "x.npy", array)
            found = io.load_npy(tmp_path / "x.npy", "cpu")
            assert found.shape == array.shape
            np.testing.assert_array_equal(found.numpy(), array)
            for save in (np.savez, np.savez_compressed):
                save(tmp_path / "x.npz", a=array, b=base)
                np.testing.assert_array_equal(io.load_npz(tmp_path / "x.npz", "cpu")["a"].numpy(), array)
    for version in ((1, 0), (2, 0), (3, 0)):
        with (tmp_path / "x.npy").open("wb") as f:
            np.lib.format.write_array(f, base, version)
        np.testing.assert_array_equal(io.load_npy(tmp_path / "x.npy", "cpu").numpy(), base)
