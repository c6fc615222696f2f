"""Random loops give the same values, bit for bit, with calls remembered (ANNEAL_REPLAY) and without.

A program is a list of actions drawn by its seed; a loop takes them in each round on other data. Actions compute, change
tensors in place, keep results, views and lazy graphs over rounds, raise in the middle, train, freeze, load, toggle
modes and read Python's state. The values that are compared are those at the end and those that were read on the way.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import nn, optim, settings
from anneal.errors import UserError
from anneal.nn import functional as F
from anneal.tensor import Tensor, jit, manual_seed, no_grad

ROUNDS = 7


class World:
    """What the actions of one program share, in one run of it."""

    def __init__(self) -> None:
        self.round, self.scale = 0, 1.0
        self.x = Tensor(np.zeros((4, 3), np.float32))
        self.state = Tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))
        self.count = Tensor(0)
        self.kept: list[Tensor] = []
        self.read: list[Any] = []
        self.model: Any = nn.Sequential(
            nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.25), nn.Linear(4, 3)
        )
        rng = np.random.default_rng(5)
        for p in self.model.parameters():
            p.assign(Tensor(rng.standard_normal(p.shape, np.float32)))
        self.first = self.model.state_dict()
        first: Any = self.model[0]
        self.average = Tensor(first.weight.numpy(), requires_grad=True)
        self.optimiser = optim.Adam(self.model.parameters(), lr=0.05)
        self.hand = Tensor(rng.standard_normal(3, np.float32), requires_grad=True)
        # without dropout, so that a call of it is remembered as one
        self.whole: Any = nn.Sequential(
            nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
        )
        self.recurrent: Any = nn.LSTM(3, 2)
        for p in (*self.whole.parameters(), *self.recurrent.parameters()):
            p.assign(Tensor(rng.standard_normal(p.shape, np.float32)))
        self.doubled = jit(lambda: self.state * 2 + self.hand.detach())

    def batch(self) -> None:
        self.round += 1
        self.x = Tensor(np.random.default_rng(self.round).standard_normal((4, 3), np.float32))


def elementwise(w: World) -> None:
    w.x = (w.x * 1.5 + w.state).tanh() - w.x.mean(0)


def views(w: World) -> None:
    w.kept += [w.state[1:3], w.state.T.reshape(2, 6), w.x[:, ::2]]


def in_place(w: World) -> None:
    before = w.state
    w.state.mul_(0.9).add_(w.x, alpha=0.1)
    w.state += 0.5
    assert before is w.state


def in_place_on_a_result(w: World) -> None:
    y = w.x * w.hand
    z = y
    y += y.relu()
    y.clamp_(-2, 2)
    w.kept.append(z.detach())


def part_assigned(w: World) -> None:
    w.state[w.round % 4] = w.x[0]
    w.state[:, 1] *= 0.5


def counted(w: World) -> None:
    w.count += 1
    w.kept.append(w.x * w.count)


def python_state(w: World) -> None:
    w.scale = w.scale * 1.25 if w.round % 3 == 0 else w.scale
    w.kept.append(w.x * w.scale)


def a_branch(w: World) -> None:
    w.kept.append(w.x.exp() if (w.x.sum() > 0).item() else w.x.abs())


def read(w: World) -> None:
    w.read += [w.state.sum().item(), w.x.numpy()]


def raised(w: World) -> None:
    y = w.x + 1
    with pytest.raises(UserError):
        y @ w.x
    w.state.add_(y, alpha=0.01)


def raised_in_a_step(w: World) -> None:
    with contextlib.suppress(UserError):
        w.optimiser.zero_grad()
        F.mse_loss(w.model(w.x), w.x).backward()
        if w.round % 2:
            w.x.reshape(5, 5)
        w.optimiser.step()


def trained(w: World) -> None:
    w.optimiser.zero_grad()
    loss = F.mse_loss(w.model(w.x), w.state.detach())
    loss.backward()
    optim.clip_grad_norm_(list(w.model.parameters()), 1.0)
    w.optimiser.step()
    w.kept.append(loss.detach() if w.round % 2 else loss)


def accumulated(w: World) -> None:
    w.optimiser.zero_grad()
    for n in range(2):
        (F.mse_loss(w.model(w.x + n), w.x) / 2).backward()
    w.optimiser.step()


def decayed(w: World) -> None:
    """Parameters are late when the next gradients are taken, and dropout has asked for their nodes by then."""
    with no_grad():
        for p in w.model.parameters():
            p.mul_(0.9)


def by_hand(w: World) -> None:
    loss = ((w.x * w.hand).tanh() ** 2).mean()
    loss.backward()
    with no_grad():
        assert w.hand.grad is not None
        w.hand -= 0.1 * w.hand.grad
    w.hand.grad = None
    w.read.append(loss.item())


def by_hand_and_used(w: World) -> None:
    """The leaf is used while it is lazy, and computed before the gradient is taken."""
    with no_grad():
        w.hand.mul_(0.9)
    loss = (w.x * w.hand).sum()
    w.read.append(w.state.sum().item())
    loss.backward()
    assert w.hand.grad is not None
    w.kept.append(w.hand.grad.detach())
    w.hand.grad = None


def averaged(w: World) -> None:
    with no_grad():
        w.average.mul_(0.8).add_(w.model[0].weight, alpha=0.2)


def carried(w: World) -> None:
    w.state = (w.state.detach() * 0.5 + w.x).tanh()


def other_shape(w: World) -> None:
    y = w.x[: 1 + w.round % 3]
    w.kept.append((y * 2).sum(0) / y.shape[0])


def other_dtype(w: World) -> None:
    kind = ("float32", "float16", "int32")[w.round % 3]
    w.kept.append((w.x * 10).cast(kind) + 1)


def rate_changed(w: World) -> None:
    w.optimiser.param_groups[0]["lr"] *= 0.9


def setting_changed(w: World) -> None:
    w.optimiser.param_groups[0]["weight_decay"] = 0.01 * (w.round // 3)


def frozen(w: World) -> None:
    w.model[0].requires_grad_(w.round % 2 == 0)


def evaluated(w: World) -> None:
    w.model.eval()
    with no_grad():
        w.read.append(w.model(w.x).numpy())
    w.model.train()


def loaded(w: World) -> None:
    if w.round == 4:
        w.model.load_state_dict(w.first)


def hooked(w: World) -> None:
    if w.round in (2, 5):
        by = float(w.round)
        w.model[0].register_forward_hook(lambda module, args, result: result * by)


def whole(w: World) -> None:
    loss = F.mse_loss(w.whole(w.x), w.x.detach())
    loss.backward()
    with no_grad():
        for p in w.whole.parameters():
            if p.grad is not None:
                p -= 0.1 * p.grad
            p.grad = None
    w.kept.append(loss.detach())


def whole_evaluated(w: World) -> None:
    w.whole.eval()
    w.kept.append(w.whole(w.x).detach())
    w.whole.train(w.round % 3 > 0)


def operated(w: World) -> None:
    """Another attribute, child, hook or method of a tree that was called as one."""
    inner: Any = w.whole[3]
    turn = w.round % 7
    if turn == 1:
        inner[1].eps = 0.1 * w.round
    elif turn == 2:
        w.whole.append(nn.Softplus())
    elif turn == 3:
        inner[0] = nn.Linear(4, 3, weight=Tensor(np.full((3, 4), 0.1 * w.round, np.float32)))
    elif turn == 4:
        by = float(w.round)
        handle = w.whole[2].register_forward_hook(lambda module, args, result: result * by)
        w.kept.append(w.whole(w.x).detach())
        handle.remove()
    elif turn == 5:
        inner[1].forward = lambda x: x * 0.25
    elif turn == 6:
        vars(inner[1]).pop("forward", None)
        inner.append(Twice())
    w.kept.append(w.whole(w.x).detach())


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def flattened(w: World) -> None:
    """A module that gives a view: what changes it changes the base."""
    nn.Flatten(0)(w.x).mul_(0.5)
    nn.Identity()(w.state).add_(0.1)


def recurrent(w: World) -> None:
    out, (h, c) = w.recurrent(w.x.reshape(2, 2, 3))
    again, _ = w.recurrent(w.x.reshape(2, 2, 3), (h, c))
    w.kept += [out.detach(), again.detach(), c.detach()]


def jitted(w: World) -> None:
    w.kept.append(w.doubled() + 1)


def random_numbers(w: World) -> None:
    w.x = w.x + Tensor.randn(4, 3) * 0.1


def forgotten(w: World) -> None:
    del w.kept[: len(w.kept) // 2]


def in_a_thread(w: World) -> None:
    y = w.x + w.state
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append((y * 2).numpy()))
    thread.start()
    thread.join()
    w.read += found


def deferred_sum(w: World) -> None:
    w.kept.append(w.x.sum(0) if not w.kept else w.kept[-1].sum() + w.x.sum(0))


ACTIONS: list[Callable[[World], None]] = [
    elementwise, views, in_place, in_place_on_a_result, part_assigned, counted, python_state, a_branch, read, raised,
    raised_in_a_step, decayed, trained, trained, accumulated, by_hand, by_hand_and_used, averaged, carried, other_shape,
    other_dtype, rate_changed, setting_changed, frozen, evaluated, loaded, hooked, jitted, random_numbers, forgotten,
    in_a_thread, deferred_sum, whole, whole_evaluated, operated, flattened, recurrent,
]  # fmt: skip


def outcome(actions: list[Callable[[World], None]]) -> list[Any]:
    manual_seed(3)
    w = World()
    for _ in range(ROUNDS):
        w.batch()
        for action in actions:
            try:
                action(w)
            except UserError as e:
                w.read.append(np.array(type(e).__name__))
    found = [t.numpy() for t in (*w.kept, w.state, w.count, w.average, w.hand, *w.model.state_dict().values())]
    return w.read + found


@pytest.mark.parametrize("seed", range(16))
def test_a_random_loop_gives_the_same_values(seed: int) -> None:
    draw = random.Random(seed)
    actions = [draw.choice(ACTIONS) for _ in range(draw.randint(2, 7))]
    found = []
    for replay in (False, True):
        with settings.override(replay=replay):
            found.append(outcome(actions))
    names = [a.__name__ for a in actions]
    assert len(found[0]) == len(found[1]), names
    wrong = [n for n, (a, b) in enumerate(zip(*found, strict=True)) if not np.array_equal(a, b, equal_nan=_is_float(a))]
    assert not wrong, f"seed {seed}: values {wrong} of {names}"


def _is_float(x: Any) -> bool:
    return np.asarray(x).dtype.kind == "f"


@pytest.mark.parametrize(
    "actions",
    [
        (decayed, accumulated),
        (decayed, trained),
        (trained, decayed, evaluated),
        (jitted, loaded, accumulated, part_assigned, in_place, a_branch, raised),
        (whole, operated, flattened, whole_evaluated, recurrent),
    ],
)
def test_a_loop_gives_the_same_values_when_it_is_run_again(actions: Any) -> None:
    """What one run remembers, the next one of the same program meets."""
    found = []
    for replay in (False, True, True):
        with settings.override(replay=replay):
            found.append(outcome(list(actions)))
    for again in found[1:]:
        assert all(np.array_equal(a, b, equal_nan=_is_float(a)) for a, b in zip(found[0], again, strict=True))
