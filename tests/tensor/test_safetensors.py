"""Safetensors headers: what is sound is read, lazily and to the bit; whatever else is in a file is a DataError that
says what.
"""

from __future__ import annotations

import json
import struct
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from anneal.backend import get_device
from anneal.errors import DataError, DeviceError
from anneal.ops import as_dtype
from anneal.runtime import storage_of
from anneal.tensor import Tensor, io, upload
from anneal.tensor._formats import DTYPES

F4 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
NEXT = {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}


def packed(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    """A file's bytes; `header` is the JSON text's bytes, or what becomes it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def text(entry: str) -> bytes:
    return b'{"a":{%s}}' % entry.encode()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "hostile.safetensors"


HOSTILE = {
    "nothing": (b"", "header too small"),
    "seven bytes": (b"\0" * 7, "header too small"),
    "no header": (b"\0" * 8, "invalid JSON"),
    "a huge length": (packed({}, length=1 << 63), "header too large"),
    "the largest length": (packed({}, length=(1 << 64) - 1), "header too large"),
    "a length of one too many": (packed({}, length=3), "invalid header length"),
    "a header over our limit": (packed({}, b" " * (17 << 20), length=17 << 20), "up to"),
    "no JSON": (packed(b"{what}"), "invalid JSON.*key must be a string"),
    "an array": (packed(b"[]"), "invalid JSON.*sequence"),
    "bytes after the JSON": (packed(b"{}\0\0"), "invalid JSON.*trailing characters"),
    "no UTF-8": (packed(b'{"\xff":1}'), "invalid UTF-8.*from index 2"),
    "UTF-16": (packed('{"a":1}'.encode("utf-16")), "invalid UTF-8"),
    "half a character": (packed(b'{"\\ud800":%s}' % json.dumps(F4).encode(), b"1234"), "invalid JSON.*hex escape"),
    "deep nesting": (packed(b'{"a":' + b"[" * 200_000), "recursion limit"),
    "a thousand digits": (
        packed(text('"dtype":"F32","shape":[%s],"data_offsets":[0,4]' % ("9" * 9999))),
        "number out of range",
    ),
    "NaN": (packed(text('"dtype":"F32","shape":[NaN],"data_offsets":[0,4]'), b"1234"), "NaN"),
    "infinity": (packed(text('"dtype":"F32","shape":[1],"data_offsets":[0,1e999]'), b"1234"), "'a'.*data_offsets"),
    "a tensor twice": (packed(b'{"a":%s,"a":%s}' % ((json.dumps(F4).encode(),) * 2), b"1234"), "'a' twice"),
    "a field twice": (
        packed(text('"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]'), b"1234"),
        "duplicate field `dtype`",
    ),
    "a number for a tensor": (packed({"a": 4}), "'a'.*dtype is null"),
    "no dtype": (packed({"a": {"shape": [1], "data_offsets": [0, 4]}}, b"1234"), "'a'.*dtype is null"),
    "no shape": (packed({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, b"1234"), "'a'.*shape is null"),
    "no offsets": (packed({"a": {"dtype": "F32", "shape": [1]}}, b"1234"), "'a'.*data_offsets are null"),
    "an unknown dtype": (packed({"a": F4 | {"dtype": "f32"}}, b"1234"), "'a'.*f32.*known: BOOL"),
    "a dtype that anneal has not": (packed({"a": F4 | {"dtype": "F8_E8M0"}}, b"1234"), "'a'.*F8_E8M0.*anneal has not"),
    "a dtype that is a list": (packed({"a": F4 | {"dtype": ["F32"]}}, b"1234"), "'a'.*dtype"),
    "a negative size": (packed({"a": F4 | {"shape": [-1]}}, b"1234"), "'a'.*-1"),
    "a fractional size": (packed({"a": F4 | {"shape": [1.0]}}, b"1234"), "'a'.*1.0"),
    "a size that is true": (packed({"a": F4 | {"shape": [True]}}, b"1234"), "'a'.*true"),
    "a shape that is a number": (packed({"a": F4 | {"shape": 1}}, b"1234"), "'a'.*shape"),
    "too many axes": (packed({"a": F4 | {"shape": [1] * 33}}, b"1234"), "'a'.*32"),
    "an overflow": (packed({"a": F4 | {"shape": [1 << 32, 1 << 32]}}, b"1234"), "'a'.*larger than"),
    "an overflow to the right size": (packed({"a": F4 | {"shape": [(1 << 62) + 1]}}, b"1234"), "'a'.*larger than"),
    "an overflow times 0": (packed({"a": F4 | {"shape": [1 << 40, 1 << 40, 0], "data_offsets": [0, 0]}}), "larger"),
    "more elements than bytes": (packed({"a": F4 | {"shape": [2]}}, b"1234"), "'a'.*takes 8 bytes, and it has 4"),
    "fewer elements than bytes": (packed({"a": F4 | {"data_offsets": [0, 8]}}, b"12345678"), "takes 4 .* has 8"),
    "three offsets": (packed({"a": F4 | {"data_offsets": [0, 4, 4]}}, b"1234"), "'a'.*a start and an end"),
    "negative offsets": (packed({"a": F4 | {"data_offsets": [-4, 0]}}, b"1234"), "'a'.*-4"),
    "offsets in reverse": (packed({"a": F4 | {"data_offsets": [4, 0]}}, b"1234"), "'a'.*takes 4 bytes, and it has -4"),
    "bytes beyond the end": (packed({"a": F4}, b"123"), "'a'.*end at 4.*has 3: was it cut short"),
    "offsets near overflow": (packed({"a": F4 | {"data_offsets": [1 << 64, (1 << 64) + 4]}}, b"1234"), "'a'.*end at"),
    "an overlap": (packed({"a": F4, "b": F4}, b"1234"), "invalid offset for tensor `[ab]`"),
    "half an overlap": (
        packed({"a": F4, "b": F4 | {"data_offsets": [2, 6]}}, b"123456"),
        "invalid offset for tensor `b`",
    ),
    "a hole": (packed({"a": F4, "b": F4 | {"data_offsets": [8, 12]}}, b"1" * 12), "invalid offset for tensor `b`"),
    "a hole at the start": (packed({"a": NEXT}, b"1" * 8), "invalid offset for tensor `a`"),
    "bytes that nobody has": (packed({"a": F4}, b"12345"), "file not fully covered"),
    "metadata that is a list": (packed({"__metadata__": []}), "invalid JSON.*expected a map"),
    "metadata with a number": (packed({"__metadata__": {"a": 1}}), "invalid JSON.*expected a string"),
    "a terminal's commands in a name": (packed({"\x1b[31m\n": 1}), r"\\x1b\[31m\\n"),
    "a long name": (packed({"n" * 100_000: 1}), r"\(100002 characters\)"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_header_is_a_clear_error(what: str, place: Path) -> None:
    content, message = HOSTILE[what]
    place.write_bytes(content)
    for load in (io.safe_open, io.safe_load, io.safe_metadata):
        with pytest.raises(DataError, match=f"hostile.safetensors.*{message}") as caught:
            load(place)
        assert len(str(caught.value)) < 1000


def test_no_memory_is_taken_on_a_headers_word(place: Path) -> None:
    place.write_bytes(packed({"a": F4 | {"shape": [1 << 45], "data_offsets": [0, 1 << 47]}}, b"1234"))
    tracemalloc.start()
    with pytest.raises(DataError):
        io.safe_open(place)
    place.write_bytes(packed({}, length=1 << 40))
    with pytest.raises(DataError):
        io.safe_open(place)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


SOUND = {
    "empty": (packed({}), {}),
    "spaces after": (packed(b"{}   \n"), {}),
    "no metadata": (packed({"__metadata__": None}), {}),
    "in any order": (packed({"b": NEXT, "a": F4}, struct.pack("<2f", 1, 2)), {"a": [1], "b": [2]}),
    "a scalar": (packed({"a": F4 | {"shape": []}}, struct.pack("<f", 3)), {"a": 3}),
    "none between": (
        packed({"a": F4, "z": F4 | {"shape": [3, 0], "data_offsets": [4, 4]}, "b": NEXT}, struct.pack("<2f", 1, 2)),
        {"a": [1], "z": [[], [], []], "b": [2]},
    ),
    "at an odd place": (packed(b'{"a":%s} ' % json.dumps(F4).encode(), struct.pack("<f", 5)), {"a": [5]}),
    "a field more": (packed({"a": F4 | {"note": "hi"}}, struct.pack("<f", 5)), {"a": [5]}),
}


@pytest.mark.parametrize("what", SOUND)
def test_a_sound_header_is_read(what: str, place: Path, device: str) -> None:
    content, expected = SOUND[what]
    place.write_bytes(content)
    assert {name: t.tolist() for name, t in io.safe_open(place).items()} == expected
    assert {name: (t * 1).tolist() for name, t in io.safe_load(place).items()} == expected


def test_tensors_are_read_when_used(place: Path, device: str) -> None:
    rng = np.random.default_rng(1)
    arrays = {"a": rng.normal(size=(40, 30)).astype(np.float32), "i": np.arange(7, dtype=np.int32)}
    io.safe_save(arrays, place, {"made by": "a test"})
    file = io.safe_open(place)
    assert file.metadata == {"made by": "a test"}
    assert file.entries["a"].shape == (40, 30)
    a, i = file["a"], file["i"]
    storage = storage_of(a.uop)
    assert storage is not None
    assert storage.buffer is None
    assert storage.host is not None
    assert not storage.host.flags.owndata
    np.testing.assert_allclose((a * 2).numpy(), arrays["a"] * 2)
    assert storage.buffer is not None
    upload([i])
    file.release()
    place.unlink()  # what is mapped stays
    np.testing.assert_array_equal(i.numpy(), arrays["i"])
    np.testing.assert_array_equal(file["a"].T.numpy(), arrays["a"].T)


def test_what_is_read_cannot_reach_the_file(place: Path) -> None:
    io.safe_save({"a": np.zeros(3, np.float32)}, place)
    file = io.safe_open(place)
    a = file["a"]
    a.assign(a + 1).realize()
    a[0] = 5.0
    assert a.tolist() == [5, 1, 1]
    assert file["a"].tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        file.array("a")[0] = 1


@pytest.mark.parametrize("name", [n for n in DTYPES if n != "BOOL"])
def test_every_bit_of_every_dtype(place: Path, device: str, name: str) -> None:
    """Read from bytes, computed with lazily, written again: what comes out is what went in."""
    kind = DTYPES[name]
    if as_dtype(kind) not in get_device(device).limits.dtypes:
        pytest.skip(f"{device} has no {kind}")
    raw = np.random.default_rng(3).integers(0, 256, 30 * kind.itemsize, np.uint8).tobytes()
    place.write_bytes(packed({"x": {"dtype": name, "shape": [5, 6], "data_offsets": [0, len(raw)]}}, raw))
    for x in (io.safe_open(place)["x"], io.safe_load(place)["x"]):
        assert x.numpy().dtype == kind
        assert x.numpy().tobytes() == raw
    again = place.with_name("again.safetensors")
    io.safe_save({"x": io.safe_open(place)["x"]}, again)
    found = dict(deserialize(again.read_bytes()))["x"]  # type: ignore[no-untyped-call]
    assert (found["dtype"], found["shape"], bytes(found["data"])) == (name, [5, 6], raw)


def test_any_byte_but_0_is_true(place: Path, device: str) -> None:
    place.write_bytes(packed({"x": {"dtype": "BOOL", "shape": [4], "data_offsets": [0, 4]}}, b"\0\1\2\xff"))
    x = io.safe_open(place)["x"]
    assert x.cast("int32").tolist() == [0, 1, 1, 1]


def test_an_unknown_device_is_an_error_at_once(place: Path) -> None:
    io.safe_save({"a": np.zeros(3, np.float32)}, place)
    with pytest.raises(DeviceError, match="abacus"):
        io.safe_open(place, "abacus")


def test_an_unknown_tensor_is_a_key_error(place: Path) -> None:
    io.safe_save({"a": np.zeros(3, np.float32)}, place)
    file = io.safe_open(place)
    assert "b" not in file
    with pytest.raises(KeyError):
        file["b"]


def test_what_is_saved_is_what_the_package_reads(place: Path) -> None:
    io.safe_save({"x": Tensor([1.0, 2.0]) * 2, "t": np.arange(6.0).reshape(2, 3).T}, place)
    found = dict(deserialize(place.read_bytes()))  # type: ignore[no-untyped-call]
    assert found["x"]["data"] == np.array([2, 4], np.float32).tobytes()
    assert found["t"]["data"] == np.arange(6.0).reshape(2, 3).T.copy().tobytes()


# -- random files ------------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(st.integers(-2, 20), st.sampled_from([1 << 31, 1 << 32, (1 << 63) - 1, 1 << 64, 1.0, True, None]))
FIELDS = {
    "dtype": st.one_of(st.sampled_from([*DTYPES, "F4", "C64", "f32", ""]), NUMBERS),
    "shape": st.one_of(st.lists(NUMBERS, max_size=4), NUMBERS),
    "data_offsets": st.one_of(st.lists(NUMBERS, max_size=3), NUMBERS),
}


@st.composite
def sound(draw: st.DrawFn) -> bytes:
    """A file that the package itself writes."""
    kinds = st.sampled_from([d for d in DTYPES.values() if d.isbuiltin == 1])
    shapes = st.lists(st.integers(0, 3), max_size=3)
    names = draw(st.lists(st.text(max_size=5).filter(lambda n: n != "__metadata__"), max_size=4, unique=True))
    arrays = {n: np.frombuffer(draw(st.binary(min_size=27, max_size=27)) * 8, np.uint8) for n in names}
    made = {}
    for n, a in arrays.items():
        shape = draw(shapes)
        kind = np.dtype(draw(kinds))
        raw = a[: int(np.prod(shape)) * kind.itemsize]
        made[n] = (raw % 2 if kind == np.bool_ else raw).copy().view(kind).reshape(shape)
    return save(made)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A sound file in which a few bytes, or a few fields of the header, have become something else."""
    content = draw(sound())
    size = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    if header and draw(st.booleans()):
        for name in draw(st.lists(st.sampled_from(sorted(header)), max_size=2)):
            field = draw(st.sampled_from(sorted(FIELDS)))
            header[name][field] = draw(FIELDS[field])
        return packed(header, draw(st.sampled_from([body, body[:-1], body + b"\0", b""])))
    raw = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw[: draw(st.sampled_from([len(raw), len(raw) // 2]))])


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "random.safetensors"


@settings(deadline=None, derandomize=True)
@given(content=st.one_of(sound(), mutated(), st.binary(max_size=64), st.binary(max_size=64).map(packed)))
def test_a_file_is_read_as_the_package_reads_it_or_refused(scratch: Path, content: bytes) -> None:
    scratch.unlink(missing_ok=True)  # a file that is mapped is not written over
    scratch.write_bytes(content)
    try:
        expected = dict(deserialize(content))  # type: ignore[no-untyped-call]
    except SafetensorError:
        expected = None
    try:
        file = io.safe_open(scratch, "cpu")
    except DataError:
        return
    assert expected is not None, "what the package refuses is refused"
    assert set(file) == set(expected)
    for name, want in expected.items():
        assert file.entries[name].dtype == want["dtype"]
        assert list(file.entries[name].shape) == want["shape"]
        assert file.array(name).tobytes() == bytes(want["data"])
        assert file[name].shape == tuple(want["shape"])
    for name, t in io.safe_load(scratch, "cpu").items():
        if not t.shape:  # a scalar becomes a constant, and a nan one keeps no other bits
            np.testing.assert_array_equal(t.numpy(), file[name].numpy())
        elif file.entries[name].dtype != "BOOL":
            assert t.numpy().tobytes() == file.array(name).tobytes()


@settings(deadline=None, derandomize=True)
@given(content=sound())
def test_a_file_that_the_package_wrote_is_accepted(scratch: Path, content: bytes) -> None:
    scratch.unlink(missing_ok=True)
    scratch.write_bytes(content)
    io.safe_open(scratch, "cpu")
