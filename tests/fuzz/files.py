"""Damaged and crafted files of every kind that anneal reads, under a limit of memory and of time.

    python -m tests.fuzz.files 0 60000 npy npz          # which mutations, of which kinds (all, if none is named)

A kind has sound files, and a way to read one: what it gives is of no interest, but what it raises must be one of
anneal's own errors. A mutation is a function of the kind and its number alone, so a failure is found again. The process
may take ROOM bytes more than it has when it begins, and a reading SECONDS.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io as streams
import json
import random
import re
import resource
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from anneal import nn, settings
from anneal.assets import Asset, _files, location, verify
from anneal.backend.webgpu import declarations
from anneal.cache import store
from anneal.codegen import decode_kernel, decode_opts, encode_kernel, encode_opts, generate
from anneal.errors import AnnealError
from anneal.schedule import CostModel, graph, plan as plans, plan_for
from anneal.tensor import Tensor, io
from anneal.training import load_module
from examples.gpt2 import Tokenizer, write_checkpoint
from examples.gpt2.vocabulary import BYTE_OF_LETTER
from tests.examples.test_llama2c import write as write_llama
from tests.tensor.test_gguf import PLAIN, VALUES, build

ROOM = 768 << 20
SECONDS = 5.0

EXTREMES = (
    0,
    1,
    2,
    127,
    128,
    255,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**48,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
NUMERALS = ("-1", "0", "1e400", "9" * 30, "9" * 5000, "1.5", "null", "true", "[]", "{}", '""', "NaN", "-0", "0x10")
PIECES = (
    b"\0",
    b"\xff",
    b"\n",
    b"\r",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"[" * 3000,
    b",",
    b"PK\3\4",
    b"<0x1B>",
    "\ud7ff".encode(),
)


def mutated(sound: bytes, r: random.Random) -> bytes:
    """The file with one to four faults."""
    data = bytearray(sound)
    for _ in range(r.choice((1, 1, 1, 2, 4))):
        n = len(data)
        # the begin of a file is where it says what it is
        at = r.randrange(min(n, r.choice((16, 128, 1 << 30))) or 1)
        what = r.randrange(10)
        if what == 0 and n:
            data[at] ^= 1 << r.randrange(8)
        elif what == 1 and n:
            data[at] = r.randrange(256)
        elif what == 2:
            size = r.choice((1, 2, 4, 8))
            data[at : at + size] = (r.choice(EXTREMES) % (1 << 8 * size)).to_bytes(size, r.choice(("little", "big")))
        elif what == 3:
            del data[at:]
        elif what == 4:
            del data[at : at + r.choice((1, 2, 8, 100))]
        elif what == 5:
            data[at:at] = data[at : at + r.choice((1, 4, 64))]
        elif what == 6:
            data[at:at] = r.choice(PIECES)
        elif what == 7:
            data += r.randbytes(r.choice((1, 8, 1000)))
        elif what == 8 and n:
            other = r.randrange(n)
            data[at : at + 8], data[other : other + 8] = data[other : other + 8], data[at : at + 8]
        else:  # a number that is written out
            found = list(re.finditer(rb"-?\d+", bytes(data[:4096])))
            if found:
                m = r.choice(found)
                data[m.start() : m.end()] = r.choice(NUMERALS).encode()
    return bytes(data)


def mutated_value(value: Any, r: random.Random) -> Any:
    """JSON with one place of it replaced, left out, repeated or exchanged."""
    odd = (
        None,
        True,
        -1,
        0,
        1,
        2**31,
        10**30,
        1.5,
        "",
        "x",
        "cpu",
        [],
        {},
        [[]],
        {"op": "ADD"},
        {"bits": "00"},
        {"type": 0},
    )
    places: list[tuple[Any, Any]] = []

    def walk(v: Any) -> None:
        for k in v if isinstance(v, dict) else range(len(v)) if isinstance(v, list) else ():
            places.append((v, k))
            walk(v[k])

    copy = json.loads(json.dumps([value]))
    walk(copy)
    for _ in range(r.choice((1, 1, 2, 3))):
        holder, key = r.choice(places)
        what = r.randrange(5)
        try:
            if what == 0:
                del holder[key]
            elif what == 1 and isinstance(holder, list):
                holder.insert(key, holder[key])
            elif what == 2:
                other, place = r.choice(places)
                holder[key] = json.loads(json.dumps(other[place]))
            else:
                holder[key] = r.choice(odd)
        except (LookupError, ValueError):  # an earlier one took the place away
            pass
    return copy[0] if copy else None


@dataclass
class Kind:
    """`make` writes sound files into a folder and names one; `read` reads the mutated one, whose name it is given."""

    name: str
    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    mutate: Callable[[bytes, random.Random], bytes] = mutated
    sound: bytes = b""
    path: Path = field(default_factory=Path)


TENSORS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "i": np.array([[1], [-7]], np.int32),
    "b": np.array([True]),
}


def _tensors(folder: Path, save: Callable[[Path], Any]) -> Path:
    save(folder / "file")
    return folder / "file"


def _all(found: Any) -> list[Any]:
    return [t.numpy() for t in found.values()]


def _npz_inside(data: bytes, r: random.Random) -> bytes:
    """A sound archive of damaged arrays: checksums that agree hide nothing."""
    if r.random() < 0.3:
        return mutated(data, r)
    out = streams.BytesIO()
    with zipfile.ZipFile(streams.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for m in old.infolist():
            inside = old.read(m)
            name = r.choice((m.filename, m.filename, m.filename, "x", "../x.npy", "x.npy"))
            way = r.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
            if name not in new.namelist():
                new.writestr(name, mutated(inside, r) if r.random() < 0.7 else inside, way)
    return mutated(out.getvalue(), r) if r.random() < 0.2 else out.getvalue()


def _gpt2(folder: Path) -> Path:
    if not (folder / "model.safetensors").exists():
        write_checkpoint(nn.GPT(vocab_size=257, block_size=4, n_layer=1, n_head=2, n_embd=8), folder)
        ids = BYTE_OF_LETTER | {"he": 257, "<|endoftext|>": 256, "llo": 258, "lo": 259}
        (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
        (folder / "merges.txt").write_text("#version: 0.2\nh e\nl o\nl lo\n", encoding="utf-8")
    return folder


def _config(path: Path) -> None:
    checkpoint = load_module("gpt2.checkpoint")
    found = checkpoint._read_config(path)
    file = io.safe_open(path.with_name("model.safetensors"), "cpu")
    names = checkpoint._names(file)
    checkpoint._check(checkpoint._sizes(found, file, names), file, names)


def _tokens(path: Path) -> None:
    tokenizer = Tokenizer.read(path.with_name("vocab.json"), path.with_name("merges.txt"))
    assert tokenizer.decode(tokenizer.encode("hello \x00é")) == "hello \x00é"


def _words(path: Path) -> None:
    words = load_module("llama2c").Words.read(path, 266)
    for text in ("", "ab ba", "é\udc80\x1b"):
        given = words.encode(text)
        for before, token in zip(given, given[1:]):
            words.piece(token, before)
    for token in range(266):
        words.piece(token, 1)


def _llama(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        write_llama(folder)
        return folder / name

    return make


def _optimizer() -> Any:
    return nn.AdamW([Tensor(np.ones((2, 3), np.float32), requires_grad=True)], lr=0.1)


def _training(folder: Path) -> Path:
    random_state = np.random.default_rng(1).bit_generator.state
    notes = {"step": 3, "random": random_state, "batch": 4, "seed": 1, "lr": 0.1}
    io.safe_save(_optimizer().state_dict(), folder / "training-3.safetensors", {"training": json.dumps(notes)})
    io.safe_save({}, folder / "model.safetensors", {"training": "training-3.safetensors"})
    return folder / "training-3.safetensors"


def _resume(path: Path) -> None:
    training = SimpleNamespace(
        rng=np.random.default_rng(0), settings={"batch": 4, "seed": 1, "lr": 0.1}, optimizer=_optimizer(), done=0
    )
    load_module("gpt2.train").FineTuning._resume(training, path.parent, SimpleNamespace(count=0))


KEY = bytes(range(16))
MISS = object()


def _crafted(data: bytes, r: random.Random) -> bytes:
    """An entry whose hash is right: damaged data, or data that nobody would write."""
    if r.random() < 0.2:
        return mutated(data, r)
    label = b"crafted"
    text = json.dumps(mutated_value(json.loads(data), r)).encode() if r.random() < 0.8 else mutated(data, r)
    packed = zlib.compress(text, 1)
    rest = (
        KEY
        + b"v" * 16
        + len(label).to_bytes(2, "little")
        + label
        + (mutated(packed, r) if r.random() < 0.1 else packed)
    )
    return b"anneal\x00\x01" + hashlib.blake2b(rest, digest_size=16).digest() + rest


def _entry(value: Callable[[], Any]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "things" / KEY.hex()
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value()))
        return path

    return make


def _load(decode: Callable[[Any], Any]) -> Callable[[Path], Any]:
    def read(path: Path) -> Any:
        with settings.override(cache=True, cache_dir=str(path.parent.parent)):
            found = store.load("things", KEY, decode)
            return MISS if found is None else found

    return read


def _plan() -> Any:
    x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    plan, _, _ = plan_for(graph([((x @ x.T).softmax(-1).gelu() * x.sum(1)).uop]), CostModel())
    return plan


def _sinks(path: Path) -> Any:
    plan = _load(plans.decode_plan)(path)
    if plan is MISS:
        return MISS
    for kernel in plan.kernels:
        _ = kernel.sink
    return plan


def _declarations() -> Any:
    text = "typedef struct { int a; float b[4]; } S; typedef S *P; S f(P x, unsigned long y); enum E { A, B };"
    return declarations.encode(declarations.parsed(text))


DATA = b"by hand"
ASSET = Asset("folder/file", "http://127.0.0.1:9/file", hashlib.sha256(DATA).hexdigest(), len(DATA), "")


def _stamped(folder: Path) -> Path:
    with settings.override(cache_dir=str(folder), offline=True):
        path = location(ASSET)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(DATA)
        assert verify(ASSET) == path
        return Path(f"{path}.verified")


def _verify(path: Path) -> None:
    with settings.override(cache_dir=str(path.parents[2]), offline=True):
        assert verify(ASSET) == path.with_name("file")


KINDS = {
    k.name: k
    for k in (
        Kind("safetensors", lambda f: _tensors(f, lambda p: io.safe_save(TENSORS, p, {"a": "b"})), lambda p: _all(io.safe_load(p))),
        Kind("npy", lambda f: _tensors(f, lambda p: io.save_npy(TENSORS["w"], p)), lambda p: io.load_npy(p).numpy()),
        Kind("npz", lambda f: _tensors(f, lambda p: io.save_npz(TENSORS, p)), lambda p: _all(io.load_npz(p)), _npz_inside),
        Kind("gguf", lambda f: _tensors(f, lambda p: p.write_bytes(build(PLAIN, VALUES))), lambda p: _all(io.gguf_open(p, "cpu"))),
        Kind("tokenizer.bin", _llama("tokenizer.bin"), _words),
        Kind("model.bin", _llama("model.bin"), lambda p: load_module("llama2c").read_model(p)),
        Kind("vocab.json", lambda f: _gpt2(f) / "vocab.json", _tokens),
        Kind("merges.txt", lambda f: _gpt2(f) / "merges.txt", _tokens),
        Kind("config.json", lambda f: _gpt2(f) / "config.json", _config),
        Kind("training", _training, _resume),
        Kind("plans", _entry(lambda: plans.encode_plan(_plan())), _sinks, _crafted),
        Kind("kernels", _entry(lambda: [encode_kernel(generate(k.sink)) for k in _plan().kernels]),
             _load(lambda found: [decode_kernel(k) for k in found]), _crafted),
        Kind("beam", _entry(lambda: encode_opts(generate(_plan().kernels[0].sink).opts)), _load(decode_opts), _crafted),
        Kind("declarations", _entry(_declarations), _load(declarations.decode), _crafted),
        Kind("verified", _stamped, _verify),
    )
}  # fmt: skip
if importlib.util.find_spec("onnx"):
    from tests.onnx import hostile

    # Not of one file: each mutation is of one of many small models.
    KINDS["onnx"] = Kind("onnx", hostile.make, hostile.read, lambda data, r: hostile.mutated_model(data, r, mutated))


def failures(kind: Kind, folder: Path, first: int, count: int) -> tuple[list[str], int]:
    """What the mutations of a kind raised that is none of anneal's errors, or took too long; and how many were read."""
    out, good = [], 0
    path = kind.make(folder)
    sound = path.read_bytes()
    for n in range(first, first + count):
        path.write_bytes(kind.mutate(sound, random.Random(f"{kind.name} {n}")))
        begun = time.perf_counter()
        try:
            good += kind.read(path) is not MISS
        except AnnealError:
            pass
        except Exception as e:
            out.append(f"{kind.name} {n}: {type(e).__name__}: {str(e)[:200]}")
        if (seconds := time.perf_counter() - begun) > SECONDS:
            out.append(f"{kind.name} {n}: {seconds:.1f} s")
    path.write_bytes(sound)
    return out, good


def limit_memory() -> None:
    """Let this process take ROOM bytes more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        most = pages * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(first: int, count: int, names: list[str]) -> int:
    limit_memory()
    _files.TICK = 0.0  # type: ignore[attr-defined]
    failed = 0
    for name in names or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            found, good = failures(KINDS[name], Path(folder), first, count)
        failed += len(found)
        print(f"{name}: {count} mutations, {good} read, {len(found)} failed", *found[:20], sep="\n  ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
