"""Every model that `anneal train` knows learns, shows something, and takes the same steps on both devices."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from anneal import settings
from anneal.backend import get_device
from anneal.errors import SettingError
from anneal.tensor import set_default_device
from anneal.training import MODELS, load_example
from tests.examples.helpers import SMALL, small

# A software adapter takes most of a second for each kernel it has not seen; a GPU takes them all.
LIGHT = ("mlp", "dynmlp", "conv", "makemore-bigram", "makemore-mlp")


# A C compiler takes three times as long for the kernels of these as their steps take in NumPy: the deep tier waits.
MANY_KERNELS = ("resnet9", "diffusion", "dit", "meanflow", "makemore-rnn", "makemore-gru")
LEARNING = [
    *[pytest.param(name, "numpy" if name in MANY_KERNELS else "", id=name) for name in SMALL],
    *[pytest.param(name, "", id=f"{name} in C", marks=pytest.mark.deep) for name in MANY_KERNELS],
]


@pytest.mark.parametrize(("name", "kernels"), LEARNING)
def test_a_model_learns(name: str, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with settings.override(cpu=kernels) if kernels else nullcontext():
        training = small(name, monkeypatch)
        losses = np.array([training.step().item() for _ in range(SMALL[name][1])])
        start, end = losses[:3].mean(), losses[-5:].mean()
        assert end < SMALL[name][4] * start, (start, end)
        assert len(training.sample()) > 20
        picture = getattr(training, "picture", None)
        assert picture is None or (picture.dtype == np.uint8 and picture.ndim == 3 and picture.std() > 1)
        assert training.data
        assert training.info


@pytest.mark.parametrize("name", SMALL)
def test_the_first_steps_agree_between_cpu_and_webgpu(name: str, webgpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name not in LIGHT and get_device(webgpu).describe()["software"]:
        pytest.skip("a software adapter compiles this model for a minute")

    def losses(device: str) -> list[float]:
        set_default_device(device)
        try:
            training = small(name, monkeypatch, steps=40)
            return [training.step().item() for _ in range(5)]
        finally:
            set_default_device(None)

    cpu = losses("cpu")
    assert len(set(cpu)) == 5
    np.testing.assert_allclose(losses(webgpu), cpu, rtol=1e-3)


def test_batches_of_every_size_run_what_was_captured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[int] = []
    monkeypatch.setattr("anneal.runtime.here.observers", [lambda step: plans.append(1)])
    training = small("dynmlp", monkeypatch)
    for _ in range(3):
        training.step().item()
    plans.clear()
    for _ in range(40):
        training.step().item()
    assert len(training.sizes) > 15
    assert len(training.train_step.captures) == 1
    assert not plans
    with pytest.raises(SettingError, match="--batch 2000 is more than the 1024"):
        load_example("dynmlp").make(batch=2000)


def test_every_model_has_a_small_form() -> None:
    assert set(SMALL) | {"gpt2"} == set(MODELS)  # which has tests of its own
