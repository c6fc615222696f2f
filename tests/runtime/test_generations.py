"""Plain attributes of modules that are set, and set back: captures of then are replayed again, and no others."""

from __future__ import annotations

import gc
import random
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import Tensor, nn, optim

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


class Affine(nn.Module):
    """A module whose results follow from its plain attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift, self.word, self.negated = 1.0, 0, "a", False

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.scale + self.shift
        y = y if self.word == "a" else y.abs()
        return -y if self.negated and self.training else y


def wanted(m: Affine) -> Any:
    y = X * np.float32(m.scale) + m.shift
    y = y if m.word == "a" else abs(y)
    return -y if m.negated and m.training else y


VALUES: dict[str, list[Any]] = {
    "scale": [1.0, 2.0, 0.5], "shift": [0, 1], "word": ["a", "b"], "negated": [False, True], "training": [True, False],
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_settings_gives_what_python_gives(seed: int) -> None:
    rng = random.Random(seed)
    models = [Affine(), Affine()]
    calls = [an.jit(nn.Sequential(nn.Identity(), m)) for m in models]
    x = Tensor(X)
    for _ in range(60):
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            name = rng.choice([*VALUES])
            setattr(rng.choice(models), name, rng.choice(VALUES[name]))
        if rng.random() < 0.1:  # modules that come and go, whose numbers others may get
            other = Affine().eval()
            other.scale = 3.0
            np.testing.assert_allclose(an.jit(other)(x).numpy(), wanted(other), rtol=1e-6)
            del other
            gc.collect()
        if rng.random() < 0.05:
            rng.choice(models).extra = nn.Linear(1, 1)
        for m, f in zip(models, calls, strict=True):
            np.testing.assert_allclose(f(x).numpy(), wanted(m), rtol=1e-6)


def test_values_that_take_turns_give_their_own_results() -> None:
    m, x = Affine(), Tensor(X)
    f = an.jit(nn.Sequential(nn.Identity(), m))
    for name, values in VALUES.items():
        for value in [*values, *values[::-1], *values]:
            setattr(m, name, value)
            for _ in range(3):
                np.testing.assert_allclose(f(x).numpy(), wanted(m), rtol=1e-6)
    m.scale = True  # equal to 1.0, and of another type
    np.testing.assert_allclose(f(x).numpy(), wanted(m), rtol=1e-6)


def test_train_and_eval_in_turn_capture_nothing_again() -> None:
    an.manual_seed(0)
    model, other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), nn.Dropout(0.5)
    optimiser = optim.SGD(model.parameters(), lr=0.1)
    x = Tensor(X)

    @an.jit
    def step(x: Tensor) -> Tensor:
        optimiser.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimiser.step()
        return loss

    @an.jit
    @an.no_grad()
    def evaluated(x: Tensor) -> Tensor:
        return model(x).sum()

    counts, losses, values = [], [], []
    for _ in range(12):
        model.train()
        other.eval()
        losses.append(step(x).item())
        model.eval()
        other.train()
        values.append(evaluated(x).item())
        counts.append(len(step.recaptures) + len(evaluated.recaptures))
        with an.no_grad():
            assert values[-1] == pytest.approx(model(x).sum().item(), rel=1e-5)
    assert counts[-1] == counts[5]
    assert losses[-1] < losses[0]


def test_settings_without_end_are_forgotten() -> None:
    m, x = Affine(), Tensor(X)
    f = an.jit(m)
    for n in range(80):
        m.scale = 1.0 + n
        np.testing.assert_allclose(f(x).numpy(), wanted(m), rtol=1e-6)
    tensors = an.runtime.here.tensors
    assert len(tensors.generations) <= 65
    assert len(tensors.plain) <= 4096


def test_a_change_that_no_value_undoes_captures_again() -> None:
    m, x = Affine(), Tensor(X)
    f = an.jit(m)
    for _ in range(4):
        f(x)
    before = len(f.recaptures)
    m.negated = True
    m.negated = False
    f(x)
    assert len(f.recaptures) == before
    handle = m.register_forward_hook(lambda module, args, result: result + 1)
    np.testing.assert_allclose(f(x).numpy(), wanted(m) + 1, rtol=1e-6)
    handle.remove()
    np.testing.assert_allclose(f(x).numpy(), wanted(m), rtol=1e-6)
    assert len(f.recaptures) > before
