"""Gradients of programs that write into shared memory: beside torch's, and with calls remembered and without."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import settings
from anneal.errors import UserError
from anneal.tensor import Tensor, no_grad
from tests.fuzz import shared_gradients

WANTED = json.loads(shared_gradients.TABLE.read_text())


@pytest.mark.parametrize("tensor", shared_gradients.TENSORS)
def test_programs_give_torchs_gradients(tensor: str) -> None:
    wrong = []
    for name, wanted in WANTED["programs"].items():
        program: Any = tuple(name.split(", "))
        if program[0] == tensor and not _same(shared_gradients.run(an, program), wanted):
            wrong.append(name)
    assert not wrong


@pytest.mark.parametrize("program", shared_gradients.LEAVES)
def test_a_leaf_that_changes_has_the_gradient_of_older_graphs(program: str) -> None:
    for _ in range(3):
        assert shared_gradients.run_leaf(an, program) == WANTED["leaves"][program]


def _same(found: Any, wanted: Any) -> bool:
    return all(
        a[0] == b[0] and all(np.allclose(x, y) for x, y in zip(a[1:], b[1:], strict=True))
        for a, b in zip(found, wanted, strict=True)
    )


# -- random programs ---------------------------------------------------------------------------------------------------


class World:
    """The tensors of a program, all of shape (3, 3) or views of such; `k` is the index of its round."""

    def __init__(self, k: int) -> None:
        self.k = k
        values = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
        self.leaves = [Tensor(values, requires_grad=True), Tensor(values.T * 2, requires_grad=True)]
        self.names = [self.leaves[0] * 2, Tensor(values + 1)]
        self.read: list[Any] = []


Action = Callable[[World, random.Random], None]


def _compute(w: World, r: random.Random) -> None:
    x, y = r.choice(w.names), r.choice([*w.names, *w.leaves])
    w.names.append(x * 2 + y.sum() * 0.1)


def _view(w: World, r: random.Random) -> None:
    x = r.choice(w.names)
    views: list[Callable[[], Tensor]] = [lambda: x.T, lambda: x.reshape(-1), lambda: x.detach(), lambda: x.data]
    if x.shape and x.shape[0] > w.k:
        views += [lambda: x[w.k], lambda: x[w.k : w.k + 1], lambda: x[..., w.k % x.shape[-1]]]
    view = r.choice(views)
    if r.random() < 0.2:
        with no_grad():
            w.names.append(view())
    else:
        w.names.append(view())


def _write(w: World, r: random.Random) -> None:
    x, other = r.choice(w.names), r.choice([*w.names, *w.leaves])
    recorded, through = r.random() < 0.4, r.random() < 0.3
    write: Any = r.choice(
        [
            lambda x: x.zero_(),
            lambda x: x.add_(w.k + 1.0),
            lambda x: x.mul_(0.5),
            lambda x: x.clamp_(-1, 1),
            lambda x: x.copy_(other.mean()),
            lambda x: x.add_(other.sum()),
            lambda x: x.__setitem__(w.k, 2.0),
            lambda x: x.__setitem__(w.k, other.mean()),
            lambda x: x[w.k].mul_(3.0),
            lambda x: x.masked_fill_(x > 1, 0.5),
        ]
    )
    if recorded:
        write(x.data if through else x)
    else:
        with no_grad():
            write(x.data if through else x)


def _leaf(w: World, r: random.Random) -> None:
    leaf, through = r.choice(w.leaves), r.random() < 0.5
    with no_grad():
        (leaf.data if through else leaf).mul_(0.9)


def _read(w: World, r: random.Random) -> None:
    w.read.append(r.choice(w.names).numpy())


def _backward(w: World, r: random.Random) -> None:
    sum((x.sum() * (n + 1) for n, x in enumerate(w.names)), w.leaves[0].sum()).backward(retain_graph=True)


ACTIONS: list[Action] = [_compute, _view, _view, _write, _write, _write, _leaf, _read, _backward]


def outcome(seed: int, k: int) -> list[Any]:
    """The results of a program: the numbers it reads, the values, flags and gradients at its end, and its errors."""
    r = random.Random(seed)
    w = World(k)
    for _ in range(r.randint(4, 10)):
        action = r.choice(ACTIONS)
        own = random.Random(r.random())
        try:
            action(w, own)
        except (UserError, IndexError) as e:
            w.read.append(type(e).__name__)
    try:
        _backward(w, r)
    except UserError as e:
        w.read.append(type(e).__name__)
    grads = [None if t.grad is None else t.grad.numpy() for t in w.leaves]
    return [*w.read, *[t.requires_grad for t in w.names], *[t.numpy() for t in w.names], *grads]


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_programs_have_the_same_gradients_where_calls_are_remembered(first: int) -> None:
    for seed in range(first, first + 20):
        rounds = []
        for replay in (False, True):
            with settings.override(replay=replay):
                rounds.append([outcome(seed, k) for k in (1, 0, 1, 2)])
        for k, (a, b) in enumerate(zip(*rounds, strict=True)):
            assert len(a) == len(b), (seed, k)
            for n, (x, y) in enumerate(zip(a, b, strict=True)):
                same = x == y if isinstance(x, (str, bool)) or x is None else np.allclose(x, y, equal_nan=True)
                assert same, f"seed {seed}, round {k}: value {n} is {y}, and {x} without calls remembered"
