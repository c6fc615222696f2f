"""gpt2 sample: what it prints, what it measures, how it ends, and what it says of mistakes."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from anneal import nn, settings
from anneal.assets import ASSETS
from anneal.tensor import Tensor, manual_seed, no_grad
from examples.gpt2 import Decoder, Sampling, Tokenizer, write_checkpoint
from examples.gpt2.vocabulary import BYTE_OF_LETTER
from tests.cli.helpers import run, run_process

CONTEXT = 48


def make(folder: Path, bias: float = 0.0, spread: float = 12.0) -> Path:
    """A checkpoint over bytes and <|endoftext|>; weights are spread further than at first, `bias` is a taste for the
    end.
    """
    manual_seed(4)
    model = nn.GPT(vocab_size=257, block_size=CONTEXT, n_layer=2, n_head=2, n_embd=16)
    with no_grad():
        for p in model.parameters():
            p.assign(p * spread if p.ndim > 1 else p)
        if bias:
            model.wte.weight[256] = model.wte.weight[256] * 0 + bias
            model.ln_f.bias.assign(model.ln_f.bias + 1)
    write_checkpoint(model, folder)
    ids = BYTE_OF_LETTER | {"<|endoftext|>": 256}
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("bytes"))


def sample(capsys: pytest.CaptureFixture[str], folder: Path, *flags: str, prompt: str = "Hello"):  # type: ignore[no-untyped-def]
    return run(capsys, "gpt2", "sample", prompt, "--device", "cpu", "--model-dir", str(folder), *flags)


def test_what_the_tutorial_shows(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    outcome = sample(capsys, folder, "--max-tokens=10", "--greedy")
    assert outcome.code == 0
    device, prompt, mode, line, end = outcome.err.splitlines()
    assert device == "device: cpu"
    assert prompt == "prompt: Hello"
    assert mode == "mode: greedy · max-tokens: 10 · temperature: 1.00 · top-k: 40"
    assert line == "---"
    assert end.startswith("10 tokens, the first after ")
    model, tokenizer = read(folder)
    given = tokenizer.encode("Hello")
    found = Decoder(model, Sampling(greedy=True)).generate(given, 10)
    assert outcome.out == "Hello" + tokenizer.decode(found) + "\n"


def read(folder: Path) -> tuple[nn.GPT, Tokenizer]:
    from examples.gpt2 import read_checkpoint

    return read_checkpoint(folder), Tokenizer.read(folder / "vocab.json", folder / "merges.txt")


def test_json_tells_what_was_measured(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    outcome = sample(capsys, folder, "--max-tokens", "20", "--seed", "7", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    report = json.loads(outcome.out)
    assert report["prompt_tokens"] == list(b"Hello")
    assert len(report["tokens"]) == 20
    assert report["text"] == bytes(report["tokens"]).decode("utf-8", "replace")
    assert report["stop"] == "max-tokens"
    assert (report["device"], report["adapter"], report["context"]) == ("cpu", None, CONTEXT)
    assert report["plans"] == {"prefill": 1, "decode": 1}
    seconds = report["seconds"]
    assert all(seconds[name] > 0 for name in ("load", "compile", "prefill", "first_token", "per_token"))
    assert report["memory"]["host_peak_bytes"] > 1 << 20
    assert report["memory"]["grown_while_decoding"] == 0
    again = json.loads(sample(capsys, folder, "--max-tokens", "20", "--seed", "7", "--json").out)
    other = json.loads(sample(capsys, folder, "--max-tokens", "20", "--seed", "8", "--json").out)
    assert again["tokens"] == report["tokens"] != other["tokens"]


def test_a_stream_tells_each_token_with_its_chance(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    report = json.loads(sample(capsys, folder, "--max-tokens", "6", "--seed", "7", "--json").out)
    first, *tokens, last = sample(capsys, folder, "--max-tokens", "6", "--seed", "7", "--stream").events
    assert (first["event"], first["prompt"], last["event"]) == ("prompt", "Hello", "done")
    assert [t["id"] for t in tokens] == report["tokens"]  # who watches changes nothing
    assert "".join([t["text"] for t in tokens]) in last["text"] == report["text"]
    model, tokenizer = read(folder)
    for n, token in enumerate(tokens):
        said = [*tokenizer.encode("Hello"), *report["tokens"][:n]]
        logits = model(Tensor([said])).numpy()[0, -1].astype(np.float64)
        chances = np.exp(logits - logits.max())
        chances /= chances.sum()
        assert token["chance"] == pytest.approx(chances[token["id"]], rel=1e-3)
        assert [c["id"] for c in token["likely"]] == np.argsort(-chances)[:8].tolist()
        assert [c["chance"] for c in token["likely"]] == pytest.approx(np.sort(chances)[:-9:-1], rel=1e-3)


def test_the_context_ends_it(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    outcome = sample(capsys, folder, "--max-tokens", "1000")
    assert outcome.code == 0
    assert f"the model's context ended here: {CONTEXT} tokens" in outcome.err
    assert f"{CONTEXT + 1 - 5} tokens" in outcome.err


def test_the_text_ends_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    outcome = sample(capsys, make(tmp_path, bias=50.0), "--greedy")
    assert outcome.code == 0
    assert outcome.out == "Hello\n"
    assert "the text ended here: <|endoftext|>" in outcome.err
    report = json.loads(sample(capsys, tmp_path, "--greedy", "--json").out)
    assert (report["tokens"], report["stop"]) == ([], "end of text")


def test_an_empty_prompt_begins_a_text(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    report = json.loads(sample(capsys, folder, "--max-tokens", "3", "--json", prompt="").out)
    assert report["prompt_tokens"] == [256]


def test_half_a_character_waits(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    outcome = sample(capsys, folder, "--max-tokens", "40", "--temperature", "9", "--top-k", "0", prompt="é")
    assert outcome.out.startswith("é")
    assert outcome.code == 0


def test_ctrl_c_keeps_what_was_said(folder: Path, tmp_path: Path) -> None:
    big = tmp_path / "big"
    manual_seed(1)
    model = nn.GPT(vocab_size=257, block_size=4096, n_layer=2, n_head=2, n_embd=64)
    table = model.wte.weight.numpy()
    table[256] = 0.0  # <|endoftext|> is never among the 40 most likely: the text goes on until it is stopped
    model.wte.weight.assign(table)
    write_checkpoint(model, big)
    for name in ("vocab.json", "merges.txt"):
        (big / name).write_bytes((folder / name).read_bytes())
    arguments = ["gpt2", "sample", "Hello", "--device", "cpu", "--model-dir", str(big), "--max-tokens", "4000"]
    with subprocess.Popen(
        [sys.executable, "-c", "from anneal.cli import main; main()", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert os.read(child.stdout.fileno(), 5) == b"Hello"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert out.endswith(b"\n")
    assert b"stopping after this token" in err
    assert b"Traceback" not in err


# -- files and mistakes ------------------------------------------------------------------------------------------------


def test_the_cache_is_the_default_checkpoint(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anneal import assets

    place = tmp_path / "assets" / "gpt2"
    place.mkdir(parents=True)
    pins = {}
    for name in ("model.safetensors", "vocab.json", "merges.txt"):
        content = (folder / name).read_bytes()
        (place / name).write_bytes(content)
        asset = ASSETS[f"gpt2/{name}"]
        pins[asset.name] = type(asset)(asset.name, asset.url, hashlib.sha256(content).hexdigest(), len(content), "")
    (place / "config.json").write_bytes((folder / "config.json").read_bytes())
    monkeypatch.setattr(assets, "ASSETS", pins)
    with settings.override(cache_dir=str(tmp_path), offline=True):
        outcome = run(capsys, "gpt2", "sample", "Hello", "--device", "cpu", "--max-tokens", "2")
    assert outcome.code == 0
    assert [line.split(" (")[0] for line in outcome.err.splitlines()[:3]] == [f"fetch {n.split('/')[1]}" for n in pins]
    assert outcome.err.splitlines()[2].endswith(" B) cached")


def test_offline_without_the_checkpoint() -> None:
    outcome = run_process("gpt2", "sample", "x", "--device", "cpu", ANNEAL_OFFLINE="1", ANNEAL_CACHE_DIR="/nowhere")
    assert outcome.code == 4
    assert outcome.err.startswith(
        "error: /nowhere/assets/gpt2/model.safetensors is missing, and ANNEAL_OFFLINE forbids"
    )
    assert "Traceback" not in outcome.err


def test_mistakes(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    def check(code: int, text: str, place: Path, *flags: str, prompt: str = "Hello") -> None:
        outcome = sample(capsys, place, *flags, prompt=prompt)
        assert (outcome.code, outcome.out) == (code, ""), outcome
        assert text in outcome.err
        assert "Traceback" not in outcome.err

    check(
        2, "--temperature 0 is not a number above 0; --greedy takes the most likely one", folder, "--temperature", "0"
    )
    check(2, "--top-k", folder, "--top-k", "-1")
    check(2, "--max-tokens", folder, "--max-tokens", "0")
    check(
        2,
        f"the prompt has {CONTEXT + 1} tokens, and this model's context {CONTEXT}",
        folder,
        prompt="x" * (CONTEXT + 1),
    )
    check(4, "nowhere is no folder", tmp_path / "nowhere")
    check(4, "has no model.safetensors", tmp_path)
    for name in ("model.safetensors", "config.json", "vocab.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    check(4, "has vocab.json and no merges.txt", tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\nh e\n")
    check(4, "merges.txt", tmp_path)
    (tmp_path / "merges.txt").write_bytes((folder / "merges.txt").read_bytes())
    (tmp_path / "vocab.json").write_text(json.dumps(BYTE_OF_LETTER | {"<|endoftext|>": 257}), encoding="utf-8")
    check(4, "has tokens up to 257, and the model knows 257", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    check(4, "corrupt or not a safetensors file", tmp_path)
