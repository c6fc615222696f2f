"""Memory between the steps of a capture with exchanges is written again only after its last reader."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from anneal.backend import Storage
from anneal.distributed import all_reduce
from anneal.runtime.recording import in_turn
from anneal.tensor import Tensor, jit
from anneal.uop import dtypes
from tests.distributed.threads import in_threads


@dataclass(frozen=True)
class Work:
    inputs: list[Storage]
    outputs: list[Storage]


def values(steps: list[Work], outside: list[Storage], kept: list[Storage]) -> list[int]:
    """What the kept memory has in the end, where each step writes what follows from all that it reads."""
    memory = {id(s): n for n, s in enumerate(outside)}
    for n, step in enumerate(steps):
        read = [memory[id(s)] for s in step.inputs]
        memory |= {id(s): hash((n, k, *read)) for k, s in enumerate(step.outputs)}
    return [memory[id(s)] for s in kept]


@pytest.mark.parametrize("seed", range(40))
def test_the_same_is_computed_in_less_memory(seed: int) -> None:
    chance = random.Random(seed)
    there = outside = [Storage(4, dtypes.float32, "cpu") for _ in range(2)]
    steps, made = [], list[Storage]()
    for _ in range(30):
        inputs = chance.sample([*there[-4:], *outside], 2)
        outputs = [Storage(chance.choice((4, 8)), dtypes.float32, "cpu") for _ in range(chance.choice((1, 2)))]
        if chance.random() < 0.1:
            outputs.append(chance.choice(outside))  # state, written in place
        steps.append(Work(inputs, outputs))
        made += [s for s in outputs if not any(s is o for o in outside)]
        there = [*there, *outputs]
    kept = [*outside, *chance.sample(made, 3)]
    less = in_turn(steps, {id(s) for s in kept})
    assert values(less, outside, kept) == values(steps, outside, kept)
    used = {id(s) for step in less for s in step.outputs}
    assert len(used) < len(made) / 2


def test_a_captured_chain_of_exchanges(device: str) -> None:
    def run(group: object) -> list[list[float]]:
        @jit
        def step(x: Tensor) -> Tensor:
            for _ in range(4):
                x = all_reduce(x * 0.5, group) + 1  # type: ignore[call-overload]
            return x

        return [step(Tensor(np.full(6, float(n), np.float32))).tolist() for n in range(5)]

    for found in in_threads(run, 2, device=device):
        assert found == [[n + 4.0] * 6 for n in range(5)]
