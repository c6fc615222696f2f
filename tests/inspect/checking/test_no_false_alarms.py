"""Nothing is found where nothing is wrong: every example in training, and random programs of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anneal import settings
from anneal.inspect import under_check
from anneal.tensor import realize
from anneal.training import MODELS, load_example
from tests.fuzz.generate import program
from tests.fuzz.programs import build
from tests.tiers import thinned

_QUICK = ("mlp", "makemore-bigram")
_LONGER = ("conv", "makemore-mlp", "makemore-rnn")  # the others take 10 s and more on a software adapter
_OFFLINE = [name for name in MODELS if name != "gpt2"]  # whose weights are downloaded


def _marks(name: str) -> Any:
    return () if name in _QUICK else pytest.mark.ci if name in _LONGER else pytest.mark.deep


@pytest.mark.parametrize("name", [pytest.param(n, marks=_marks(n)) for n in _OFFLINE])
def test_an_example_in_training(name: str, device: str) -> None:
    with settings.override(device=device):
        example = load_example(name)
        training: Any = example.make(steps=2, batch=2, seed=1, lr=example.LR)
        with under_check() as state:
            training.update(*training.next_batch()).item()
    report = state.report
    assert report.ok, str(report)
    # what is left are partial results, which are no value of the graph as it was written
    assert report.tensor_elements > 0.3 * report.elements


@pytest.mark.parametrize("first", thinned(range(1, 401, 10), test=20, ci=20))
def test_random_programs(first: int, device: str) -> None:
    for seed in range(first, first + 10):
        built = build(program(seed), device)
        with under_check() as state:
            realize(list(built.values()))
        assert state.report.ok, f"program {seed}: {state.report}"


def test_sums_of_equal_numbers_and_of_numbers_that_cancel(device: str) -> None:
    """The roundings of equal terms point one way; where terms cancel, what is left is small beside what was added."""
    from anneal.tensor import Tensor

    rng = np.random.default_rng(0)
    tenths = Tensor(np.full((7, 3000), 0.1, np.float32), device=device)
    x = rng.normal(size=(64, 512)).astype(np.float32)
    apart = Tensor(np.concatenate([x, -x * (1 + 1e-6)], 1).astype(np.float32), device=device)
    big = Tensor((x + 1e4).astype(np.float32), device=device)
    with under_check() as state:
        realize([tenths.sum(1), tenths.sum(), tenths.cumsum(1), apart.sum(1), big.var(1), big - big.mean()])
    assert state.report.ok, str(state.report)
