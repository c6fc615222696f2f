"""GGUF files: numbers as the blocks say, and whatever is wrong with a file an error that names the place."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal.errors import DataError
from anneal.tensor import io

rng = np.random.default_rng(3)


def text(s: str | bytes) -> bytes:
    raw = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(key: str, kind: int, raw: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + raw


def info(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    axes = b"".join(struct.pack("<Q", n) for n in shape[::-1])
    return text(name) + struct.pack("<I", len(shape)) + axes + struct.pack("<IQ", kind, offset)


def build(
    tensors: list[tuple[str, tuple[int, ...], int, bytes]] = [],  # noqa: B006
    values: list[bytes] = [],  # noqa: B006
    alignment: int = 32,
    **changed: Any,
) -> bytes:
    """A file of (name, shape, type, bytes); `changed` replaces the header's fields."""
    infos, data = b"", b""
    for name, shape, kind, raw in tensors:
        infos += info(name, shape, kind, changed.get("offset", len(data)))
        data += raw + b"\0" * (-len(raw) % alignment)
    head = changed.get("magic", b"GGUF") + struct.pack(
        "<IQQ", changed.get("version", 3), changed.get("count", len(tensors)), changed.get("keys", len(values))
    )
    head += b"".join(values) + infos
    return head + b"\0" * (-len(head) % alignment) + data


def opened(path: Path, raw: bytes) -> io.Gguf:
    path.write_bytes(raw)
    return io.gguf_open(path, "cpu")


A = rng.normal(size=(3, 5)).astype(np.float32)
PLAIN = [
    ("a.weight", (3, 5), 0, A.tobytes()),
    ("half", (5, 3), 1, A.astype(np.float16).tobytes()),
    ("ints", (4,), 26, np.arange(4, dtype=np.int32).tobytes()),
    ("nothing", (0, 2), 0, b""),
    ("scalar", (), 0, np.float32(2.5).tobytes()),
]
VALUES = [
    value("general.architecture", 8, text("llama")),
    value("n", 4, struct.pack("<I", 7)),
    value("eps", 6, struct.pack("<f", 0.5)),
    value("yes", 7, b"\1"),
    value("tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text(b"\xff")),
    value("scores", 9, struct.pack("<IQ", 6, 2) + struct.pack("<ff", 1, 2)),
]


@pytest.mark.parametrize("kind", [0, 8, 28])
def test_nothing_of_a_huge_shape_is_refused(kind: int, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="larger than any memory"):
        opened(tmp_path / "x", build([("x", (0, 1 << 61), kind, b"")]))
    with pytest.raises(DataError, match="larger than any memory"):
        io.safe_open(hollow(tmp_path, (0, 1 << 61)), "cpu")
    assert opened(tmp_path / "x", build([("x", (0, 1 << 40), kind, b"")]))["x"].shape == (0, 1 << 40)


def hollow(folder: Path, shape: tuple[int, ...]) -> Path:
    """A safetensors file of one tensor without elements."""
    header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": (0, 0)}}).encode()
    (folder / "y").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder / "y"


def test_floats_integers_and_metadata(tmp_path: Path) -> None:
    file = opened(tmp_path / "x.gguf", build(PLAIN, VALUES))
    assert list(file) == ["a.weight", "half", "ints", "nothing", "scalar"]
    np.testing.assert_array_equal(file["a.weight"].numpy(), A)
    np.testing.assert_array_equal(file["half"].numpy(), A.astype(np.float16).reshape(5, 3))
    assert file["ints"].tolist() == [0, 1, 2, 3]
    assert file["nothing"].shape == (0, 2)
    assert file["scalar"].item() == 2.5
    assert file.metadata == {
        "general.architecture": "llama", "n": 7, "eps": 0.5, "yes": True, "tokens": ["a", "\ufffd"], "scores": [1.0, 2.0],
    }  # fmt: skip
    assert "5 tensors" in repr(file)
    assert file.entries["half"].dtype == "F16"


def _by_hand(kind: int, raw: bytes) -> list[float]:
    """One block's numbers, from its bytes, one by one."""
    d = float(np.frombuffer(raw, np.float16, 1)[0])
    if kind == 8:
        return [d * struct.unpack_from("<b", raw, 2 + i)[0] for i in range(32)]
    has_least, has_fifth = kind in (3, 7), kind in (6, 7)
    at = 4 if has_least else 2
    m = float(np.frombuffer(raw, np.float16, 1, 2)[0]) if has_least else 0.0
    fifth = struct.unpack_from("<I", raw, at)[0] if has_fifth else 0
    at += 4 if has_fifth else 0
    out = []
    for i in range(32):
        q = raw[at + i % 16] >> (4 if i >= 16 else 0) & 15
        q |= (fifth >> i & 1) << 4
        out.append(d * q + m if has_least else d * (q - (16 if has_fifth else 8)))
    return out


@pytest.mark.parametrize(("kind", "nbytes"), [(2, 18), (3, 20), (6, 22), (7, 24), (8, 34)])
def test_blocks(tmp_path: Path, kind: int, nbytes: int) -> None:
    raw = bytearray(rng.integers(0, 256, 6 * nbytes, dtype=np.uint8).tobytes())
    for b in range(6):  # scales that are numbers
        scales = rng.normal(size=2).astype(np.float16).tobytes()
        raw[b * nbytes : b * nbytes + (4 if kind in (3, 7) else 2)] = scales[: 4 if kind in (3, 7) else 2]
    got = opened(tmp_path / "q.gguf", build([("w", (3, 64), kind, bytes(raw))]))["w"]
    want = [x for b in range(6) for x in _by_hand(kind, bytes(raw[b * nbytes : (b + 1) * nbytes]))]
    assert got.dtype.name == "float32"
    np.testing.assert_allclose(got.numpy().reshape(-1), want, rtol=1e-6, atol=1e-6)


def test_bfloat16_and_another_alignment(tmp_path: Path) -> None:
    bits = (A.view(np.uint32) >> 16).astype(np.uint16)
    values = [value("general.alignment", 4, struct.pack("<I", 64))]
    file = opened(tmp_path / "b.gguf", build([("w", (3, 5), 30, bits.tobytes()), *PLAIN], values, 64))
    np.testing.assert_array_equal(file["w"].float().numpy(), (bits.astype(np.uint32) << 16).view(np.float32))
    np.testing.assert_array_equal(file["a.weight"].numpy(), A)


def test_on_webgpu(tmp_path: Path, webgpu: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(build(PLAIN))
    np.testing.assert_array_equal((io.gguf_open(path, webgpu)["a.weight"] + 1).numpy(), A + 1)


def test_against_the_gguf_package(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_array("tokenizer.ggml.tokens", ["a", "bc"])
    x = rng.normal(size=(6, 96)).astype(np.float32)
    kinds = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
    want = {"plain": x, "half": x.astype(np.float16)}
    for name, array in want.items():
        writer.add_tensor(name, array)
    for kind in kinds:
        number = gguf.GGMLQuantizationType[kind]
        q = gguf.quants.quantize(x, number)
        writer.add_tensor(kind, q, raw_dtype=number)
        want[kind] = gguf.quants.dequantize(q, number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = io.gguf_open(path, "cpu")
    assert file.metadata["llama.block_count"] == 2
    assert file.metadata["tokenizer.ggml.tokens"] == ["a", "bc"]
    for name, array in want.items():
        np.testing.assert_allclose(file[name].numpy(), array, rtol=1e-6, atol=1e-7, err_msg=name)


HUGE = struct.pack("<Q", 2**63)
HOSTILE = {
    "nothing": (b"", r"it has 0 bytes, and 24 are the least"),
    "another format": (build(PLAIN, magic=b"GGML"), r"begins with b'GGML', not with GGUF"),
    "an old version": (build(PLAIN, version=1), r"version 1; anneal reads 2 and 3"),
    "big-endian": (build(PLAIN, version=3 << 24), r"the other byte order"),
    "tensors without end": (build(PLAIN, count=2**60), r"1152921504606846976 tensors are announced"),
    "values without end": (build(PLAIN, keys=2**60), r"1152921504606846976 values are announced"),
    "a name without end": (build(values=[HUGE + b"x" * 40]), r"value 0: a name of 9223372036854775808 bytes"),
    "a text without end": (build(values=[value("k", 8, HUGE + b"x" * 40)]), r"value 'k': it ends after"),
    "an array without end": (build(values=[value("k", 9, struct.pack("<I", 8) + HUGE)]), r"elements are announced"),
    "bytes without end": (build(values=[value("k", 9, struct.pack("<I", 0) + HUGE)]), r"value 'k': it ends after"),
    "arrays in arrays": (
        build(values=[value("k", 9, struct.pack("<IQ", 9, 1) * 6 + b"\0" * 40)]), r"arrays in arrays, 4 deep"),
    "no such value": (build(values=[value("k", 77, b"\0" * 9)]), r"value 'k': type 77 is none"),
    "a key twice": (build(values=[value("k", 0, b"\1"), value("k", 0, b"\1")]), r"value 'k': it is there twice"),
    "a key that is no text": (build(values=[text(b"\xff\xfe") + struct.pack("<IB", 0, 1)]), r"is not UTF-8"),
    "no alignment": (build(values=[value("general.alignment", 4, struct.pack("<I", 48))]), r"48 is no power of two"),
    "a tensor twice": (build([PLAIN[0], PLAIN[0]]), r"tensor 'a.weight': it is there twice"),
    "overlapping": (build([PLAIN[0], PLAIN[1]], offset=0), r"tensor .* its bytes overlap those of"),
    "out of range": (build([PLAIN[0]], offset=32), r"ends at byte .*was it cut short"),
    "crooked": (build([PLAIN[0]], offset=4), r"offset 4 is no multiple of the alignment, 32"),
    "far away": (build([PLAIN[0]], offset=2**63), r"tensor 'a.weight'"),
    "large": (build([("w", (2**40, 2**40), 0, b"")]), r"larger than any memory"),
    "too many axes": (build([("w", (1,) * 9, 0, b"\0" * 4)]), r"9 axes; anneal reads up to 8"),
    "half a block": (build([("w", (2, 40), 8, b"\0" * 100)]), r"rows of 40 are no whole blocks of 32, as Q8_0"),
    "an unknown type": (build([("w", (256,), 14, b"\0" * 210)]), r"its type is Q6_K, which anneal has not; known: F32"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(tmp_path: Path, name: str) -> None:
    raw, message = HOSTILE[name]
    with pytest.raises(DataError, match=message) as e:
        opened(tmp_path / "bad.gguf", raw)
    assert "bad.gguf" in str(e.value)


def test_every_cut_is_told(tmp_path: Path) -> None:
    whole = build(PLAIN[:2], VALUES)
    end = len(whole) - 2  # beside the padding at the end
    for n in range(0, end, 3):
        with pytest.raises(DataError):
            opened(tmp_path / "cut.gguf", whole[:n])


def test_flipped_bytes_are_told_or_harmless(tmp_path: Path) -> None:
    whole = build(PLAIN, VALUES)
    head = whole.index(b"scalar") + 40
    for n in range(200):
        raw = bytearray(whole)
        raw[rng.integers(0, head)] = rng.integers(0, 256)
        try:
            file = opened(tmp_path / f"{n % 2}.gguf", bytes(raw))
        except DataError:
            continue
        for t in file.values():
            assert math.prod(t.shape) * t.dtype.itemsize <= len(raw)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        io.gguf_open(tmp_path / "none.gguf")
