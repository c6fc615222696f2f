"""Programs as tutorials write them: no step makes a plan once each batch was seen, and hardly any makes nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anneal
from anneal import nn, optim
from anneal.nn import functional as F
from anneal.runtime import late
from anneal.tensor import Tensor
from benchmarks.eager_models import BATCHES, Library
from benchmarks.tutorials import CASES
from tests.runtime.test_eager_work import Work

# The most nodes of a step. Translation throws dice: its steps have sixteen structures.
# The LSTM of the language model is two loops, a step each between launches.
NODES = {
    "makemore_bigram": 10, "makemore_mlp": 40, "makemore_batchnorm": 20, "language_model": 30, "reinforce": 120,
    "lora": 20, "vae": 40, "dqn": 250, "dcgan": 20, "diffusion": 30, "nanogpt": 40, "resnet": 20, "gumbel_codes": 60,
}  # fmt: skip


SLOW = ("language_model", "reinforce", "dcgan", "nanogpt", "resnet")  # some seconds each


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.ci] if n in SLOW else []) for n in NODES])
def test_a_step_of_a_tutorial_is_found_again(name: str) -> None:
    anneal.manual_seed(0)
    program = CASES[name](Library("anneal", nn, F, optim))

    def step(turn: int) -> Any:
        return program.step(*[Tensor(a) for a in program.batches[turn % BATCHES]]).item()

    for turn in range((12 if name == "dqn" else 3) * BATCHES):  # its memory is filled first
        step(turn)
    work = Work(step, range(2 * BATCHES))
    assert work.plans == 0
    assert work.nodes <= NODES[name] * BATCHES


def test_every_program_of_the_table_is_counted_or_excused() -> None:
    assert CASES.keys() - NODES.keys() == {"translation"}


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_gradients_clipped_late_are_those_clipped_at_once(limit: float) -> None:
    xs = np.random.default_rng(0).standard_normal((4, 5, 3)).astype(np.float32)
    found = []
    for _ in range(4):
        w = Tensor(np.ones((3, 2), np.float32), requires_grad=True)
        norms = []
        for x in xs:
            w.grad = None
            (Tensor(x) @ w).square().sum().backward()
            held = w.grad
            norms.append(nn.utils.clip_grad_norm_([w], limit).item())
            assert w.grad is held  # in place, as torch does it
            g = 2 * x.T @ (x @ w.numpy())
            np.testing.assert_allclose(norms[-1], np.linalg.norm(g), rtol=1e-5)
            np.testing.assert_allclose(held.numpy(), g * min(1, limit / (np.linalg.norm(g) + 1e-6)), rtol=1e-5)
        found.append(norms)
    assert found[0] == found[-1]


def test_data_changes_late_as_at_once() -> None:
    late.forget()
    w = Tensor([1.0, 2.0], requires_grad=True)
    other = w.detach()
    wanted = np.array([1.0, 2.0], np.float32)
    for turn in range(6):
        (w * w).sum().backward()
        assert w.grad is not None
        w.data += -0.1 * (turn + 1) * w.grad
        wanted = wanted - np.float32(0.1 * (turn + 1)) * 2 * wanted
        w.data.mul_(0.5)
        wanted = wanted / 2
        assert w.requires_grad
        assert w.is_leaf
        np.testing.assert_allclose(w.tolist(), wanted, rtol=1e-5)
        assert other.tolist() == w.tolist()
        w.grad = None
    z = Tensor([1.0, 2.0])
    w.data = z  # another tensor's values, shared from now on
    z += 1
    assert w.tolist() == [2.0, 3.0]
