"""train --checkpoint: training that goes on from a checkpoint computes what would have followed, to the last bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal import nn, settings
from anneal.errors import DataError
from anneal.tensor import Tensor, manual_seed
from anneal.tensor.io import safe_load
from anneal.training import Checkpoint, Training, load_example
from tests.cli.helpers import run
from tests.distributed.ranks import run as run_ranks


def flags(model: str, steps: int, folder: Path, **more: str) -> list[str]:
    fixed = {"steps": str(steps), "batch": "8", "checkpoint": str(folder), "checkpoint-every": "2", "seed": "3"}
    given = [x for k, v in {**fixed, **more}.items() for x in (f"--{k}", v)]
    return ["train", model, "--device", "cpu", "--plain", *given]


class Dropping(Training):
    """A model that draws on the device, with losses scaled for float16."""

    def __init__(self) -> None:
        manual_seed(1)
        self.rng = np.random.default_rng(1)
        model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.BatchNorm1d(16), nn.Linear(16, 1))
        super().__init__(model, nn.Adam(model.parameters(), lr=0.01), steps=6, batch=8)
        self.compute_in("float16")

    def next_batch(self) -> tuple[Tensor]:
        return (Tensor(self.rng.normal(size=(8, 4)).astype(np.float32)),)

    def loss(self, x: Tensor) -> Tensor:
        return (self.model(x) ** 2).mean()


def made(model: str) -> Training:
    if model == "dropping":
        return Dropping()
    found: Any = load_example(model)
    training: Training = found.make(steps=6, batch=8, seed=1, lr=0.01)
    return training


@pytest.mark.parametrize("model", ["nanogpt", "dynmlp", "makemore-gru", "conv", "dropping"])
def test_it_goes_on_to_the_last_bit(model: str, tmp_path: Path) -> None:
    with settings.override(device="cpu"):
        whole = made(model)
        want = [whole.step().item() for _ in range(8)]
        first = made(model)
        losses = [first.step().item() for _ in range(3)]
        Checkpoint(first, tmp_path, batch=8).save(3)
        losses += [first.step().item() for _ in range(2)]  # of a process that is killed: they are lost
        second = made(model)
        assert Checkpoint(second, tmp_path, batch=8).resume() == 3
        losses[3:] = [second.step().item() for _ in range(5)]
        assert losses == want
        for (name, a), b in zip(whole.model.state_dict().items(), second.model.state_dict().values(), strict=True):
            assert a.numpy().tobytes() == b.numpy().tobytes(), name


def test_any_number_of_processes_goes_on_from_it(tmp_path: Path) -> None:
    """From one to two and back; twice the same is the same to the last bit."""
    found = []
    kept = {"ANNEAL_CACHE": "1", "ANNEAL_CACHE_DIR": str(tmp_path / "cache")}  # plans and kernels, as users keep them
    for n, ranks in enumerate(((1, 1, 1), (2, 1, 2), (2, 1, 2))):
        folder = tmp_path / str(n)
        for steps, count in zip((2, 4, 6), ranks, strict=True):
            ended = run_ranks(count, *flags("mlp", steps, folder), env=kept)
            assert ended.code == 0, ended.err
        found.append(safe_load(folder / "training.safetensors"))
    for name, t in found[0].items():
        np.testing.assert_allclose(found[1][name].numpy(), t.numpy(), rtol=1e-2, atol=1e-4, err_msg=name)
        assert found[1][name].numpy().tobytes() == found[2][name].numpy().tobytes()


def test_a_run_of_several_processes_is_one_bundle(tmp_path: Path) -> None:
    ended = run_ranks(2, *flags("mlp", 33, tmp_path / "c"), "--bundle", cwd=tmp_path)
    assert ended.code == 0, ended.err
    (bundle,) = (tmp_path / "runs").iterdir()
    table = (bundle / "ranks.csv").read_text().splitlines()
    assert (table[0], len(table), len(table[4].split(","))) == ("step,rank 0 ms,rank 1 ms", 34, 3)
    events = [json.loads(line) for line in (bundle / "events.jsonl").read_text().splitlines()]
    told = [(e["event"], e.get("step"), [sorted(r) for r in e["ranks"]]) for e in events if "ranks" in e]
    each = [["median_ms", "sent_bytes", "waiting"]] * 2
    assert told == [("ranks", 32, each), ("done", None, each)]


def test_mistakes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capsys, *flags("mlp", 2, tmp_path)).code == 0
    for arguments, told in (
        (flags("mlp", 2, tmp_path, batch="4"), "was made with --batch 8, and this is 4"),
        (flags("mlp", 2, tmp_path, lr="0.5"), "was made with --lr"),
        (flags("conv", 2, tmp_path, lr="0.005"), "is of another model"),
    ):
        outcome = run(capsys, *arguments)
        assert outcome.code == 4, outcome
        assert told in outcome.err, outcome.err
    place = tmp_path / "training.safetensors"
    place.write_bytes(place.read_bytes()[:100])
    assert run(capsys, *flags("mlp", 2, tmp_path)).code == 4


def test_a_sharded_model_goes_on_with_any_number_of_processes(tmp_path: Path) -> None:
    """Each process writes its parts; what is read is the same for any number of them."""

    def trained(ranks: int, folder: str, last: int, kept: int) -> Any:
        ended = run_ranks(ranks, "tests/distributed/sharded.py", str(tmp_path / folder), str(last), str(kept))
        assert ended.code == 0, ended.err
        (line,) = [s for s in ended.out.splitlines() if s.startswith("FOUND ")]
        return json.loads(line.removeprefix("FOUND "))

    want, _ = trained(1, "whole", 6, 0)
    two, digest = trained(2, "two", 6, 2)  # the third step and on are lost
    assert sorted(p.name for p in (tmp_path / "two").iterdir()) == [
        "training.2.1-of-2.safetensors", "training.2.2-of-2.safetensors", "training.json"
    ]  # fmt: skip
    assert trained(2, "two", 6, 2) == [two[2:], digest], "bit by bit what would have followed"
    found = [trained(ranks, "two", last, last)[0] for ranks, last in ((4, 4), (1, 5), (2, 6))]
    np.testing.assert_allclose([*two[:2], *found[0], *found[1], *found[2]], want, rtol=1e-5)
    with pytest.raises(DataError, match=r"training\.json is of a model that is sharded, unlike this one"):
        Checkpoint(made("nanogpt"), tmp_path / "two", batch=4).resume()
