"""The base of the examples, and what the command makes of their pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anneal import nn, training as models
from anneal.cli.commands import train as command
from anneal.errors import SettingError
from anneal.runtime import observed
from anneal.tensor import Tensor, manual_seed
from anneal.training import Training, decayed, main
from tests.cli.helpers import run
from tests.training.test_pictures import decoded


class Fit(Training):
    def next_batch(self) -> tuple[Tensor]:
        return (Tensor.ones(4, 2),)

    def loss(self, x: Tensor) -> Tensor:
        out: Tensor = (self.model(x) ** 2).mean()
        return out


def test_a_schedule_and_a_limit_of_the_norm_are_kept() -> None:
    model = nn.Linear(2, 1)
    optimizer = nn.SGD(model.parameters(), lr=1.0)
    schedule = nn.WarmupCosine(optimizer, 0.5, warmup=2, steps=10)
    fit = Fit(model, optimizer, steps=10, batch=4, tokens=3, schedule=schedule, clip=1e-3)
    before = model.weight.numpy()
    fit.step().item()
    assert fit.examples_per_step == 12
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert 0 < np.abs(model.weight.numpy() - before).max() <= 0.25e-3
    with pytest.raises(NotImplementedError, match="Training defines no loss"):
        Training(model, optimizer, steps=1, batch=1).loss()


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_watched_step_keeps_the_norm_and_computes_nothing_twice(clip: float | None) -> None:
    def run(watched: bool) -> tuple[list[int], list[list[float]], float]:
        manual_seed(3)
        model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
        training = Fit(model, nn.SGD(model.parameters(), lr=0.1), steps=3, batch=2, clip=clip)
        if watched:
            training.watch()
        kernels: list[int] = []
        with observed(lambda step: kernels.append(step.kernels)):
            for _ in range(3):
                training.step().item()
        norm = 0.0 if training.gradient_norm is None else training.gradient_norm.item()
        return kernels, [p.numpy().ravel().tolist() for p in model.parameters()], norm

    plain, weights, _ = run(False)
    kernels, same, norm = run(True)
    assert same == weights
    assert len(kernels) == len(plain)  # by itself the norm would plan every gradient once more
    assert kernels == plain if clip is not None else kernels[-1] <= plain[-1] + 5
    assert 0 < norm < 10


def test_only_matrices_decay() -> None:
    model = nn.Linear(2, 1)
    groups = decayed(model.parameters(), 0.1)
    assert [(g["params"][0] is p, g["weight_decay"]) for g, p in zip(groups, (model.weight, model.bias))] == [
        (True, 0.1),
        (True, 0.0),
    ]


def test_without_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(2, 1)
    main(lambda: Fit(model, nn.SGD(model.parameters(), lr=0.1), steps=3, batch=4), every=2)
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == ["step 1", "step 3", ""]


def test_a_picture_is_written_and_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Painter(Fit):
        unit, info, data = "rows", "one line", "ones"

        def sample(self) -> str:
            self.picture = np.random.default_rng(0).integers(0, 256, (33, 200, 3)).astype(np.uint8)
            return "noise"

    class Example:
        STEPS, BATCH, LR = 3, 4, 0.1

        @staticmethod
        def make(steps: int, batch: int, seed: int, lr: float) -> Painter:
            model = nn.Linear(2, 1)
            return Painter(model, nn.SGD(model.parameters(), lr=lr), steps=steps, batch=batch)

    monkeypatch.setattr(command, "load_example", lambda name: Example)
    monkeypatch.setitem(models.MODELS, "painter", "draws noise")
    monkeypatch.setattr(command, "DRAWING", ("painter",))
    monkeypatch.chdir(tmp_path)
    plain = run(capsys, "train", "painter", "--device", "cpu", "--plain")
    assert plain.code == 0
    assert not [*tmp_path.iterdir()], "a picture that nobody asked for"
    assert "picture shown only; --picture FILE.png keeps it" in plain.err
    said, *drawn = plain.out.split("sample:\n")[1].splitlines()
    assert said == "noise"
    assert len(drawn) == 5  # three by six pixels each: 80 columns in a pipe
    assert max(map(len, drawn)) <= 66
    other = run(capsys, "train", "painter", "--device", "cpu", "--json", "--picture", str(tmp_path / "other.png"))
    assert other.events[-1]["picture"] == str(tmp_path / "other.png")
    assert decoded((tmp_path / "other.png").read_bytes()).shape == (33, 200, 3)
    unasked = run(capsys, "train", "painter", "--device", "cpu", "--json", "--bundle")
    assert unasked.events[-1]["picture"] is None
    (kept,) = (tmp_path / "runs").rglob("picture.png")
    assert kept.read_bytes() == (tmp_path / "other.png").read_bytes()
    nowhere = run(capsys, "train", "painter", "--picture", str(tmp_path / "no" / "x.png"))
    assert nowhere.code == 4
    assert "does not exist" in nowhere.err


def test_models_that_draw_are_known_before_they_do() -> None:
    from anneal.training import DRAWING, MODELS, examples_folder

    assert set(DRAWING) == {
        name for name in MODELS
        if (path := examples_folder() / f"{name}.py").exists() and "self.picture = " in path.read_text(encoding="utf-8")
    }  # fmt: skip


def test_a_picture_of_a_model_that_draws_none_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    outcome = run(capsys, "train", "mlp", "--picture", str(tmp_path / "x.png"))
    assert (outcome.code, outcome.out) == (2, "")
    assert (
        outcome.err
        == "error: --picture is for what makes pictures (vit, resnet9, diffusion, dit, meanflow), and mlp makes none\n"
    )
    outcome = run(capsys, "train", "mlp", "--steps", "1", "--device", "cpu", "--download")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--download is for what learns from a download" in outcome.err


def test_a_precision_is_that_of_products_alone(capsys: pytest.CaptureFixture[str]) -> None:
    def losses(precision: str) -> list[float]:
        manual_seed(3)
        model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
        fit = Fit(model, nn.AdamW(model.parameters(), lr=0.05), steps=5, batch=4, clip=1.0)
        fit.compute_in(precision)
        found = [fit.step().item() for _ in range(5)]
        assert all(p.dtype.name == "float32" for p in model.parameters())
        return found

    wide = losses("float32")
    for precision in ("float16", "bfloat16"):
        narrow = losses(precision)
        assert narrow != wide
        np.testing.assert_allclose(narrow, wide, atol=0.02)
    with pytest.raises(SettingError, match="float32, float16 or bfloat16, not 'float8'"):
        losses("float8")
    said = run(capsys, "train", "mlp", "--steps", "3", "--batch", "8", "--precision", "bfloat16", "--plain")
    assert said.code == 0, said
