"""Checkpoints in Hugging Face's layout: the logits are transformers', the variants load alike, and faults come all at
once.
"""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from anneal import nn
from anneal.backend import Storage
from anneal.errors import DataError, UserError
from anneal.runtime import storage_of
from anneal.tensor import Tensor, manual_seed, no_grad
from examples.gpt2 import read_checkpoint, write_checkpoint
from tests.examples.gpt2.helpers import DATA

TINY = DATA / "tiny"
Arrays = dict[str, Any]

with np.load(TINY / "expected.npz") as _file:
    EXPECTED: Arrays = dict(_file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "tiny"))


def change(folder: Path, edit: Callable[[Arrays], object]) -> None:
    """Write the folder's tensors anew after `edit`."""
    path = folder / "model.safetensors"
    arrays = load_file(path)
    edit(arrays)
    path.unlink()
    save_file({name: np.ascontiguousarray(a) for name, a in arrays.items()}, path)


def configure(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def check_logits(model: nn.GPT) -> None:
    with no_grad():
        logits = model(Tensor(EXPECTED["tokens"])).numpy()
    assert np.abs(logits - EXPECTED["logits"]).max() <= 2e-5


def test_the_logits_are_those_of_transformers(device: str) -> None:
    model = read_checkpoint(TINY)
    assert not model.training
    assert model.config == nn.GPTConfig(vocab_size=96, block_size=32, n_layer=2, n_head=4, n_embd=32)
    check_logits(model)


def test_a_greedy_continuation_is_that_of_transformers() -> None:
    model, want = read_checkpoint(TINY), EXPECTED["greedy"]
    with no_grad():
        choice = model(Tensor(want)).numpy().argmax(-1)
    np.testing.assert_array_equal(choice[0, 7:-1], want[0, 8:])


def bare(arrays: Arrays) -> None:
    """As in OpenAI's own file: no prefix, and masks in every block."""
    for name in list(arrays):
        arrays[name.removeprefix("transformer.")] = arrays.pop(name)
    for i in range(2):
        arrays[f"h.{i}.attn.bias"] = np.tril(np.ones((1, 1, 32, 32), np.float32))
        arrays[f"h.{i}.attn.masked_bias"] = np.float32(-1e4)


def headed(arrays: Arrays) -> None:
    arrays["lm_head.weight"] = arrays["transformer.wte.weight"]


def widened(arrays: Arrays) -> None:
    arrays.update({name: a.astype(np.float64) for name, a in arrays.items()})


@pytest.mark.parametrize("edit", [bare, headed, widened])
@pytest.mark.parametrize("config", [True, False])
def test_the_variants_load_alike(edit: Callable[[Arrays], None], config: bool, folder: Path) -> None:
    change(folder, edit)
    if not config:
        configure(folder, tie_word_embeddings=None)
    model = read_checkpoint(folder)
    assert model.lm_head.weight is model.wte.weight
    check_logits(model)


def test_a_head_of_its_own(folder: Path) -> None:
    def untie(arrays: Arrays) -> None:
        arrays["lm_head.weight"] = -arrays["transformer.wte.weight"]

    change(folder, untie)
    check_logits(read_checkpoint(folder))  # config.json says tied
    for tie in (False, None):
        configure(folder, tie_word_embeddings=tie)
        model = read_checkpoint(folder)
        with no_grad():
            logits = model(Tensor(EXPECTED["tokens"])).numpy()
        assert np.abs(logits + EXPECTED["logits"]).max() <= 2e-5


def test_without_a_configuration_the_tensors_tell_the_sizes(tmp_path: Path) -> None:
    manual_seed(1)
    model = nn.GPT(vocab_size=11, block_size=8, n_layer=1, n_head=2, n_embd=128)
    write_checkpoint(model, tmp_path / "made")
    (tmp_path / "made" / "config.json").unlink()
    assert read_checkpoint(tmp_path / "made").config == model.config


def test_without_a_configuration_an_odd_width_needs_one(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(DataError, match=r"does not tell n_head: it needs a config\.json"):
        read_checkpoint(folder)


def test_half_precision_becomes_float32(folder: Path) -> None:
    change(folder, lambda arrays: arrays.update({name: a.astype(np.float16) for name, a in arrays.items()}))
    model = read_checkpoint(folder)
    assert {p.dtype.name for p in model.parameters()} == {"float32"}
    half = load_file(folder / "model.safetensors")["transformer.wpe.weight"]
    np.testing.assert_array_equal(model.wpe.weight.numpy(), half.astype(np.float32))


def test_loading_reads_no_random_number_and_leaves_nothing_on_the_host() -> None:
    model = read_checkpoint(TINY)
    for p in model.parameters():
        storage = storage_of(p.uop)
        assert storage is not None
        assert storage.host is None
        assert p.requires_grad


def test_what_was_read_is_there_once() -> None:
    others = [s for s in gc.get_objects() if type(s) is Storage]  # of other tests
    model = read_checkpoint(TINY)
    mine = {id(storage_of(p.uop)) for p in model.parameters()}
    shapes = {p.numel() for p in model.parameters() if p.ndim == 2}
    twice = [
        s
        for s in gc.get_objects()
        if type(s) is Storage and s.size in shapes and s.buffer is not None and id(s) not in mine
        if not any(s is other for other in others)
    ]
    assert not twice


# -- faults ------------------------------------------------------------------------------------------------------------


def test_all_faults_are_in_one_error(folder: Path) -> None:
    def damage(arrays: Arrays) -> None:
        del arrays["transformer.h.0.ln_1.weight"], arrays["transformer.ln_f.bias"]
        arrays["transformer.h.1.attn.rotary"] = np.zeros(3, np.float32)
        name = "transformer.h.1.attn.c_attn.weight"
        arrays[name] = arrays[name].T
        arrays["transformer.wpe.weight"] = arrays["transformer.wpe.weight"].astype(np.int32)

    change(folder, damage)
    with pytest.raises(DataError) as caught:
        read_checkpoint(folder)
    message = str(caught.value)
    for part in (
        "model.safetensors",
        "2 blocks, width 32, vocabulary 96 and context 32",
        "missing: h.0.ln_1.weight, ln_f.bias;",
        "unexpected: h.1.attn.rotary;",
        "misshapen: h.1.attn.c_attn.weight has (96, 32), not (32, 96);",
        "no floats: wpe.weight has I32",
    ):
        assert part in message


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"n_layer": 3}, "2 blocks.*says 3"),
        ({"n_layer": 10**12}, "2 blocks"),
        ({"n_layer": 1}, "unexpected: h.1.attn.c_attn.bias, h.1"),
        ({"vocab_size": 10**12}, "misshapen: wte.weight"),
        ({"n_positions": 64}, r"misshapen: wpe.weight has \(32, 32\), not \(64, 32\)"),
        ({"n_embd": 0}, "n_embd is 0"),
        ({"n_embd": None}, "n_embd is None"),
        ({"n_head": "4"}, "n_head is '4'"),
        ({"n_head": 3}, "3 heads do not divide"),
        ({"n_inner": 64}, "n_inner is 64"),
        ({"model_type": "llama"}, "model_type is 'llama'"),
        ({"activation_function": "relu"}, "activation_function is 'relu'"),
        ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon is 1e-06"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
    ],
)
def test_a_configuration_of_another_model(settings: dict[str, Any], message: str, folder: Path) -> None:
    configure(folder, **settings)
    with pytest.raises(DataError, match=message):
        read_checkpoint(folder)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_a_damaged_configuration(content: bytes, folder: Path) -> None:
    (folder / "config.json").write_bytes(content)
    with pytest.raises(DataError, match=r"config\.json .*JSON"):
        read_checkpoint(folder)


def test_a_missing_or_damaged_file(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere has no model\.safetensors"):
        read_checkpoint(tmp_path / "nowhere")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="cut short"):
        read_checkpoint(folder)


def test_another_model(folder: Path) -> None:
    change(folder, lambda arrays: [arrays.pop(name) for name in list(arrays) if "wte" in name])
    with pytest.raises(DataError, match=r"missing: wte\.weight$"):
        read_checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(DataError, match=r"does not tell n_embd.* or is no GPT-2"):
        read_checkpoint(folder)


def test_names_with_and_without_the_prefix(folder: Path) -> None:
    change(folder, lambda arrays: arrays.update({"ln_f.bias": arrays["transformer.ln_f.bias"]}))
    with pytest.raises(DataError, match=r"both ln_f.bias and transformer.ln_f.bias"):
        read_checkpoint(folder)


# -- writing -----------------------------------------------------------------------------------------------------------


def test_what_is_written_is_the_file_that_transformers_wrote(tmp_path: Path, device: str) -> None:
    write_checkpoint(read_checkpoint(TINY), tmp_path / "again")
    want, found = (load_file(f / "model.safetensors") for f in (TINY, tmp_path / "again"))
    assert set(found) == set(want)
    for name, a in want.items():
        np.testing.assert_array_equal(found[name], a)
    theirs, ours = (json.loads((f / "config.json").read_text()) for f in (TINY, tmp_path / "again"))
    dropout = {"attn_pdrop", "embd_pdrop", "resid_pdrop"}
    assert {k: v for k, v in ours.items() if k not in dropout} == {k: theirs[k] for k in ours if k not in dropout}


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_comes_back(tied: bool, tmp_path: Path) -> None:
    manual_seed(3)
    model = nn.GPT(vocab_size=13, block_size=8, n_layer=2, n_head=2, n_embd=16, tie_weights=tied).eval()
    for _ in range(2):  # the second time over the first, and frozen
        write_checkpoint(model, tmp_path / "made")
        model.requires_grad_(False)
    model.requires_grad_()
    again = read_checkpoint(tmp_path / "made")
    assert again.config == model.config
    for (name, p), (same, q) in zip(model.named_parameters(), again.named_parameters(), strict=True):
        assert name == same
        np.testing.assert_array_equal(p.numpy(), q.numpy())


def test_what_cannot_be_written(tmp_path: Path) -> None:
    model = nn.GPT(vocab_size=13, block_size=8, n_layer=1, n_head=2, n_embd=16, bias=False)
    with pytest.raises(UserError, match="biases"):
        write_checkpoint(model, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot make the folder"):
        write_checkpoint(read_checkpoint(TINY), tmp_path / "file")
