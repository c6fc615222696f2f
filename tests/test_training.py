"""Training from end to end: devices agree, steps reuse plans, layers reuse kernels, memory stays flat."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

from anneal import nn, settings
from anneal.runtime import cache_statistics
from anneal.schedule import clear_cache
from anneal.tensor import Tensor, jit, manual_seed, realize, set_default_device
from anneal.training import load_example
from benchmarks import compile_time, ours
from benchmarks._harness import CONFIGS, Config, cold, resident_mib

TINY = Config(vocab=17, layers=2, heads=2, width=16, context=8, batch=4)


def make(config: Config) -> Any:
    manual_seed(3)
    return nn.GPT(
        vocab_size=config.vocab,
        block_size=config.context,
        n_layer=config.layers,
        n_head=config.heads,
        n_embd=config.width,
    )


def losses(device: str, steps: int, weights: dict[str, np.ndarray[Any, Any]]) -> list[float]:
    """The loss of each step from the same weights on the same batches."""
    set_default_device(device)
    try:
        model = make(TINY)
        model.load_state_dict({k: Tensor(v) for k, v in weights.items()})
        optimiser = nn.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1)
        step = jit(lambda x, y: ours.update(model, optimiser, x, y))
        random = np.random.default_rng(1)
        out = []
        for _ in range(steps):
            x, y = (
                Tensor(random.integers(0, TINY.vocab, (TINY.batch, TINY.context)).astype(np.int32)) for _ in range(2)
            )
            out.append(step(x, y).item())
        return out
    finally:
        set_default_device(None)


def test_twenty_steps_agree_between_cpu_and_webgpu(webgpu: str) -> None:
    weights = {k: v.numpy() for k, v in make(TINY).state_dict().items()}
    cpu = losses("cpu", 20, weights)
    gpu = losses(webgpu, 20, weights)
    np.testing.assert_allclose(gpu, cpu, rtol=1e-3)
    assert abs(cpu[0] - np.log(TINY.vocab)) < 0.3
    assert len(set(cpu)) == 20


def test_a_baby_step_is_at_most_130_kernels_and_layers_share_them() -> None:
    baby = compile_time.sample("anneal", "baby", None)
    assert baby["kernels"] <= 130
    deeper = compile_time.sample("anneal", "baby", 2 * CONFIGS["baby"].layers)
    assert deeper["distinct_kernels"] <= baby["distinct_kernels"] + 4
    assert deeper["kernels"] <= 2.2 * baby["kernels"]


def test_a_long_chain_is_timed_and_right() -> None:
    result = compile_time.chains([300], 1)
    (row,) = compile_time.rows(result)
    assert row["who"] == "anneal, a chain of 300 additions"
    assert row["median s"] > 0


def test_the_second_step_finds_the_plan_of_the_first() -> None:
    clear_cache()
    model, optimiser, x, y = ours.prepare(TINY)
    realize([*model.parameters(), x, y])
    ours.update(model, optimiser, x, y).item()
    hits, misses = cache_statistics()
    ours.update(model, optimiser, x, y).item()
    hits_after, misses_after = cache_statistics()
    assert misses_after == misses
    assert hits_after > hits


def test_a_replayed_step_copies_no_state() -> None:
    step = ours.Step(TINY, "cpu")
    for _ in range(3):
        step()
    with mock.patch.object(step.device, "copy", wraps=step.device.copy) as copies:
        step()
    # the loss of the step before, which is still held, is kept
    assert copies.call_count <= 1
    set_default_device(None)


def test_memory_is_flat() -> None:
    report = cold("benchmarks.memory", "--steps", "300", "--calls", "2000", "--json")
    results = report["results"]
    assert results["training"]["growth"] < 0.05, results
    assert results["realize"]["growth"] < 0.05, results
    # every call another program: the caches fill up to their bounds
    assert results["realize, new program each"]["after_mib"] < results["realize"]["after_mib"] + 40, results


def test_the_memory_benchmark_sees_growth() -> None:
    before = resident_mib()
    held = np.ones(8 << 20, np.float64)
    assert resident_mib() - before > 32
    assert held.size


@pytest.mark.parametrize("name", ["mlp", "conv", "nanogpt", "makemore-gru"])
def test_an_example_plans_two_steps_and_replays_the_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plans, made = list[int](), list[int]()
    with settings.override(device="cpu"):
        example = load_example(name)
        training = example.make(steps=10, batch=2, seed=1, lr=example.LR)
        monkeypatch.setattr("anneal.runtime.here.observers", [lambda step: plans.append(1)])
        for _ in range(5):
            before = len(plans)
            training.step().item()
            made.append(len(plans) - before)
    # loops of recurrent layers, forward and reverse, are steps between three launches
    assert made == [5, 5, 0, 0, 0] if name == "makemore-gru" else made == [1, 1, 0, 0, 0]
