"""llama2.c's files: a tiny random model written in its format, against the same formulas in NumPy."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal.errors import DataError, UserError
from anneal.training import load_module
from tests.cli.helpers import run
from tests.nn.test_attention import llama

DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, LENGTH = 16, 24, 2, 4, 2, 12
PIECES = ["<unk>", "<s>", "</s>", *[f"<0x{b:02X}>" for b in range(256)], " ", "a", "b", " a", "ab", " ab", "é"]
SCORES = [0.0] * 259 + [-1.0, -2.0, -3.0, -5.0, -4.0, -6.0, -7.0]


def write(folder: Path, tied: bool = True) -> dict[str, np.ndarray[Any, Any]]:
    """model.bin and tokenizer.bin as llama2.c has them; the weights by nn.Llama's names."""
    rng = np.random.default_rng(0)
    count, head = len(PIECES), DIM // HEADS
    keys = head * KV_HEADS
    order = [
        ("tok_embeddings", (count, DIM)), ("attention_norm", (LAYERS, DIM)), ("attention.wq", (LAYERS, DIM, DIM)),
        ("attention.wk", (LAYERS, keys, DIM)), ("attention.wv", (LAYERS, keys, DIM)),
        ("attention.wo", (LAYERS, DIM, DIM)), ("ffn_norm", (LAYERS, DIM)), ("feed_forward.w1", (LAYERS, HIDDEN, DIM)),
        ("feed_forward.w2", (LAYERS, DIM, HIDDEN)), ("feed_forward.w3", (LAYERS, HIDDEN, DIM)), ("norm", (DIM,)),
        ("freq_cis_real", (LENGTH, head // 2)), ("freq_cis_imag", (LENGTH, head // 2)),
    ]  # fmt: skip
    order += [] if tied else [("output", (count, DIM))]
    blob = struct.pack("<7i", DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, count if tied else -count, LENGTH)
    state = {}
    for name, shape in order:
        values = (rng.standard_normal(shape) * 0.5).astype(np.float32)
        blob += values.tobytes()
        if name in ("tok_embeddings", "norm", "output"):
            state[f"{name}.weight"] = values
        elif not name.startswith("freq"):
            state |= {f"layers.{i}.{name}.weight": values[i] for i in range(LAYERS)}
    state.setdefault("output.weight", state["tok_embeddings.weight"])
    (folder / "model.bin").write_bytes(blob)
    words = struct.pack("<i", max(len(p.encode()) for p in PIECES))
    for piece, score in zip(PIECES, SCORES):
        words += struct.pack("<fi", score, len(piece.encode())) + piece.encode()
    (folder / "tokenizer.bin").write_bytes(words)
    return state


@pytest.mark.parametrize("tied", [True, False])
def test_logits_step_by_step(tied: bool, device: str, tmp_path: Path) -> None:
    state = write(tmp_path, tied)
    example = load_module("llama2c")
    model = example.read_model(tmp_path / "model.bin")
    assert (model.output.weight is model.tok_embeddings.weight) == tied
    story = example.Story(model)
    tokens = np.random.default_rng(1).integers(0, len(PIECES), LENGTH)
    got = [story.read(int(token), place).numpy() for place, token in enumerate(tokens)]
    np.testing.assert_allclose(got, llama(state, tokens[None], HEADS, KV_HEADS)[0], rtol=2e-3, atol=2e-3)


def test_the_command_takes_the_likeliest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    state = write(tmp_path)
    outcome = run(
        capsys, "run", "llama2c", str(tmp_path / "model.bin"), "ab", "--temperature", "0", "--device", "cpu", "--json"
    )
    assert outcome.code == 0
    import json

    report = json.loads(outcome.out)
    ids = [1, PIECES.index(" ab")]
    while len(ids) <= LENGTH:
        token = int(llama(state, np.array([ids]), HEADS, KV_HEADS)[0, -1].argmax())
        if token in (1, 2):
            break
        ids.append(token)
    assert report["tokens"] == ids[1:]
    assert report["text"].startswith("ab")
    plain = run(
        capsys,
        "run",
        "llama2c",
        str(tmp_path / "model.bin"),
        "ab",
        "--max-tokens",
        "3",
        "--seed",
        "4",
        "--device",
        "cpu",
    )
    assert plain.code == 0
    assert plain.out.startswith("ab")
    assert "tokens/s" in plain.err


def test_text_and_tokens(tmp_path: Path) -> None:
    write(tmp_path)
    words = load_module("llama2c").Words.read(tmp_path / "tokenizer.bin", len(PIECES))
    number = PIECES.index
    assert words.encode("") == [1]
    # of " a", "ab" and " ab" the pair of the highest score is joined first: a with b, then the blank with that
    assert words.encode("ab") == [1, number(" ab")]
    assert words.encode("é€") == [1, number(" "), number("é"), *[3 + b for b in "€".encode()]]
    text = words.encode("ba é€")
    assert b"".join(words.piece(t, b) for b, t in zip(text, text[1:])).decode() == "ba é€"


def test_pairs_are_joined_as_by_looking_at_all_of_them() -> None:
    example = load_module("llama2c")
    rng = np.random.default_rng(5)
    for _ in range(40):
        letters = ["a", "b", "c", " "]
        pieces = ["<unk>", "<s>", "</s>", *letters]
        while len(pieces) < 40:
            pieces.append("".join(rng.choice(pieces[3:], 2)))
        scores = [float(s) for s in rng.integers(-6, 3, len(pieces))]  # many of them equal
        scores[10], scores[11], scores[12] = float("nan"), -1e11, float("inf")
        words = example.Words([p.encode() for p in pieces], scores)
        text = "".join(rng.choice(letters, 60))
        ids = [1, *[words.number[c.encode()] for c in f" {text}"]]
        while True:
            best = (-1e10, -1, -1)
            for i in range(len(ids) - 1):
                joined = words.number.get(words.pieces[ids[i]] + words.pieces[ids[i + 1]])
                if joined is not None and scores[joined] > best[0]:
                    best = (scores[joined], i, joined)
            if best[1] < 0:
                break
            ids[best[1] : best[1] + 2] = [best[2]]
        assert words.encode(text) == ids


def test_a_long_prompt_is_not_quadratic(tmp_path: Path) -> None:
    import time

    write(tmp_path)
    words = load_module("llama2c").Words.read(tmp_path / "tokenizer.bin", len(PIECES))
    begun = time.process_time()
    found = words.encode("ab" * 100_000)
    assert time.process_time() - begun < 20  # 1 s; by looking at every pair each time, hours
    assert len(found) == 100_001


@pytest.mark.parametrize("count", [0, 1, 2, 3, 258])
def test_a_short_vocabulary(count: int, tmp_path: Path) -> None:
    write(tmp_path)
    example = load_module("llama2c")
    if count <= 2:
        with pytest.raises(DataError, match=f"the model knows {count} tokens"):
            example.Words.read(tmp_path / "tokenizer.bin", count)
        return
    words = example.Words.read(tmp_path / "tokenizer.bin", count)
    assert words.encode("") == [1]
    with pytest.raises(UserError, match=f"has the byte 0x(ff|20), for which this tokeniser of {count} tokens has none"):
        words.encode("\udcff")


def test_any_bytes_are_a_prompt_and_no_byte_commands_the_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    write(tmp_path)
    example = load_module("llama2c")
    said = [PIECES.index(f"<0x{b:02X}>") for b in b"\x1b[2J\x9b\xe2\x82\xac\x07\n\xe2\x82"]
    monkeypatch.setattr(example.Story, "tell", lambda self, given, most, sampling: iter([*given[1:], *said]))
    words = example.Words.read(tmp_path / "tokenizer.bin", len(PIECES))
    assert words.encode("a\udcff\udc80") == [1, PIECES.index(" a"), 3 + 0xFF, 3 + 0x80]
    given = ("run", "llama2c", str(tmp_path / "model.bin"), "a\udcff", "--device", "cpu")
    outcome = run(capsys, *given)
    assert outcome.code == 0, outcome.err
    assert outcome.out == "a\ufffd\ufffd[2J\ufffd€\ufffd\n\ufffd\n"
    report = json.loads(run(capsys, *given, "--json").out)
    assert report["text"] == "a\ufffd\x1b[2J\ufffd€\x07\n\ufffd"
    assert report["prompt"] == "a\ufffd"


def test_a_piece_that_only_looks_like_a_byte() -> None:
    pieces = [b"", b"<s>", b"</s>", b"<0xZZ>", b"<0x 1>", b"<0x+1>", b"<0x0A>"]
    words = load_module("llama2c").Words(pieces, [0.0] * len(pieces))
    assert [words.piece(n, 0) for n in range(3, 7)] == [*pieces[3:6], b"\n"]


def test_sampling_takes_no_unlikely_token() -> None:
    example = load_module("llama2c")
    sampling = example.Sampling(temperature=0.7, top_p=0.5, seed=3)
    logits = np.log(np.array([0.3, 0.4, 0.2, 0.1], np.float32))
    assert {sampling.choose(logits) for _ in range(200)} == {0, 1}
    with pytest.raises(UserError, match="top_p"):
        example.Sampling(top_p=0.0)


def test_wrong_files_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    example = load_module("llama2c")
    path = tmp_path / "model.bin"
    whole = path.read_bytes()
    for data, fault in (
        (whole[:20], "20 bytes: no llama2.c checkpoint"),
        (whole[:-4], "asks for"),
        (b"ak42" + whole[4:], "first format"),
        (struct.pack("<7i", 0, 1, 1, 1, 1, 1, 1) + whole[28:], "first format"),
    ):
        path.write_bytes(data)
        with pytest.raises(DataError, match=fault):
            example.read_model(path)
    with pytest.raises(DataError, match="ends after 266 of the model's 267 tokens"):
        example.Words.read(tmp_path / "tokenizer.bin", 267)
    outcome = run(capsys, "run", "llama2c", str(tmp_path / "none.bin"), "--device", "cpu")
    assert outcome.code == 4
    assert "none.bin cannot be read" in outcome.err
    path.write_bytes(whole)
    (tmp_path / "tokenizer.bin").unlink()
    outcome = run(capsys, "run", "llama2c", str(path), "--device", "cpu")
    assert outcome.code == 4
    assert "tokenizer.bin cannot be read" in outcome.err


def test_resnet9_names_pictures(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anneal import settings
    from anneal.tensor.io import safe_save
    from tests.examples.helpers import small

    with settings.override(offline=True, cache_dir=str(tmp_path)):
        training = small("resnet9", monkeypatch)
        safe_save(training.model.state_dict(), tmp_path / "w.safetensors")
        given = ("run", "resnet9", "--count", "8", "--device", "cpu", "--picture", str(tmp_path / "seen.png"))
        outcome = run(capsys, *given, "--weights", str(tmp_path / "w.safetensors"))
        assert outcome.code == 0, outcome.err
        assert "CIFAR-10 is not available" in outcome.out
        assert "accuracy on 8 test pictures" in outcome.out
        assert (tmp_path / "seen.png").read_bytes()[:4] == b"\x89PNG"
        assert "a network that has learnt nothing" in run(capsys, *given).out


def test_weights_of_another_network_are_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from anneal.tensor.io import safe_save

    for tensors, said in (
        ({"w": np.ones(3)}, "it lacks 49 tensors ('prep.0.weight', "),
        ({"w": np.ones(3)}, "it has besides 1 tensors ('w')"),
        ({"prep.0.weight": np.ones(())}, "it has in another shape 1 tensors ('prep.0.weight (), not (64, 3, 3, 3)')"),
        ({"prep.0.weight": np.ones((1 << 20, 0, 3, 3))}, "not (1048576, 3, 3, 3)"),
    ):
        safe_save(tensors, tmp_path / "w")
        outcome = run(capsys, "run", "resnet9", "--weights", str(tmp_path / "w"), "--picture", str(tmp_path / "x.png"))
        assert (outcome.code, outcome.out) == (4, "")
        assert said in outcome.err
        assert "strict" not in outcome.err
        assert f"{tmp_path / 'w'} is no ResNet-9" in outcome.err


def test_a_download_is_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    from anneal import settings
    from anneal.cli._flags import may_download
    from anneal.training import CIFAR10

    class Example:
        DOWNLOADS = CIFAR10

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with settings.override(cache_dir=str(tmp_path), offline=False):
        assert not may_download(Example, False)  # in a pipe nobody can be asked
        assert may_download(Example, True)
        for answer, wanted in (("y", True), (" Yes ", True), ("n", False), ("", False), ("what?", False)):
            monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
            monkeypatch.setattr(sys, "stderr", Terminal())
            assert may_download(Example, False) is wanted
            assert "download 170 MB to" in sys.stderr.getvalue()  # type: ignore[attr-defined]
        assert not may_download(object(), False)
        with settings.override(offline=True):
            assert not may_download(Example, False)
