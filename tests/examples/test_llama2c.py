"""llama2.c's files: a tiny random model written in its format, against the same formulas in NumPy."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal.cli._models import load_module
from anneal.errors import DataError, UserError
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
    from anneal.tensor import Tensor

    model = example.read_model(tmp_path / "model.bin")
    assert (model.output.weight is model.tok_embeddings.weight) == tied
    story = example.Story(model)
    tokens = np.random.default_rng(1).integers(0, len(PIECES), LENGTH)
    got = [story.read(*[Tensor(np.array([n], np.int32)) for n in pair]).numpy() for pair in zip(tokens, range(LENGTH))]
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
        assert "CIFAR-10 cannot be had" in outcome.out
        assert "accuracy on 8 test pictures" in outcome.out
        assert (tmp_path / "seen.png").read_bytes()[:4] == b"\x89PNG"
        assert "a network that has learnt nothing" in run(capsys, *given).out
