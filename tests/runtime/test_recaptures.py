"""Why a function was captured again: one line, as a value and with ANNEAL_DEBUG=2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import nn, optim, settings
from anneal.runtime import Jit, Recapture
from anneal.runtime.guards import Guards
from anneal.tensor import Tensor, jit, no_grad

FACTOR = 2.0


def vector(n: int = 2, **options: Any) -> Tensor:
    return Tensor(np.ones(n, np.float32), **options).realize()


def causes(f: Jit[..., Any]) -> list[str]:
    return [str(r.cause) for r in f.recaptures]


class Holder:
    def __init__(self) -> None:
        self.scale = 2.0


def by_cell() -> tuple[Any, Callable[[], Any], str]:
    scale = 2.0

    def change() -> None:
        nonlocal scale
        scale = 3.0

    return jit(lambda x: x * scale), change, "variable scale: 2.0 -> 3.0"


def by_global() -> tuple[Any, Callable[[], Any], str]:
    globals().update(FACTOR=2.0)
    return jit(lambda x: x * FACTOR), lambda: globals().update(FACTOR=4.5), "global FACTOR: 2.0 -> 4.5"


def by_attribute() -> tuple[Any, Callable[[], Any], str]:
    holder = Holder()
    return jit(lambda x: x * holder.scale), lambda: setattr(holder, "scale", 7), "Holder.scale: 2.0 -> 7"


def by_item() -> tuple[Any, Callable[[], Any], str]:
    scales = [1.0, 2.0]
    return jit(lambda x: x * scales[1]), lambda: scales.__setitem__(1, 5.0), "item 1 of a list: 2.0 -> 5.0"


def by_key() -> tuple[Any, Callable[[], Any], str]:
    options = {"a": 1.0, "b": 2.0}
    return jit(lambda x: x * options["b"]), lambda: options.update(b=5.0), "item 'b' of a dict: 2.0 -> 5.0"


def by_length() -> tuple[Any, Callable[[], Any], str]:
    scales = [1.0, 2.0]
    return jit(lambda x: x * len(scales)), lambda: scales.append(1.0), "length of a list: 2 -> 3"


def by_array() -> tuple[Any, Callable[[], Any], str]:
    table = np.array([1, 2])
    return (
        jit(lambda x: x * int(table[0])),
        lambda: table.__setitem__(0, 9),
        "elements of an array (2,) of int64: [1, 2] -> [9, 2]",
    )


def by_tensor() -> tuple[Any, Callable[[], Any], str]:
    holder = Holder()
    holder.scale = vector()  # type: ignore[assignment]
    return (
        jit(lambda x: x * holder.scale),
        lambda: setattr(holder, "scale", vector(1)),
        "Holder.scale: a tensor (2,) of float32 -> a tensor (1,) of float32",
    )


KINDS = [by_cell, by_global, by_attribute, by_item, by_key, by_length, by_array, by_tensor]


@pytest.mark.parametrize("kind", KINDS)
def test_a_guard_that_fails_is_named(kind: Callable[[], tuple[Any, Callable[[], Any], str]]) -> None:
    f, change, line = kind()
    x = vector()
    for _ in range(4):
        f(x)
    assert not f.recaptures, "first calls, captures and replays have no reason to give"
    change()
    for _ in range(4):
        f(x)
    assert causes(f) == [line]
    (recapture,) = f.recaptures
    assert isinstance(recapture, Recapture)
    assert "test_recaptures.py" in recapture.function
    assert str(recapture) == f"{recapture.function} is captured again: {line}"


def test_a_module_that_was_changed_is_named() -> None:
    model = nn.Linear(2, 2)
    f = jit(no_grad()(lambda x: model(x)))
    x = Tensor(np.ones((1, 2), np.float32)).realize()
    for _ in range(3):
        f(x)
    model.training = False
    f(x)
    (cause,) = causes(f)
    assert cause.startswith("guard generation (Linear.training was set): ")


def test_other_arguments_are_named() -> None:
    f = jit(lambda x, **options: x["a"] * options.get("scale", 1))
    f({"a": vector()})
    f({"a": vector(3)})
    f({"a": vector(3, dtype="float16")})
    f({"a": vector(3)}, scale=2)
    f({"a": vector(3)}, scale=3)
    assert causes(f) == [
        "arguments[0][0]['a']: float32 (2,) on cpu -> float32 (3,) on cpu",
        "arguments[0][0]['a']: float32 (3,) on cpu -> float16 (3,) on cpu",
        "arguments[0][0]['a']: float16 (3,) on cpu -> float32 (3,) on cpu",
        "arguments[1]['scale']: 2 -> 3",
    ]


def test_memory_that_is_passed_twice_is_named() -> None:
    f = jit(lambda x, y: x + y)
    x, y = vector(), vector()
    f(x, y)
    f(x, x)
    assert causes(f) == ["arguments that share memory: (0, 1) -> (0, 0)"]


def test_they_are_told_and_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    f = jit(lambda x, n: x * n)
    x = vector()
    with settings.override(debug=2):
        f(x, 1)
        f(x, 2)
    told = [line for line in capsys.readouterr().err.splitlines() if "captured again" in line]
    assert told == [f"anneal: {f.recaptures[0]}"]
    for n in range(3, 60):
        f(x, n)
    assert len(f.recaptures) == 32
    assert causes(f)[-1] == "arguments[0][1]: 58 -> 59"
    assert not capsys.readouterr().err


def test_a_reason_computes_nothing() -> None:
    holder = Holder()
    holder.scale = [vector() * 2]  # type: ignore[assignment]
    guards = Guards(lambda: holder.scale)
    assert guards.failure() is None
    assert guards.failure() is None
    lazy = vector() * 3
    holder.scale = [lazy]  # type: ignore[assignment]
    assert guards.failure()
    assert str(guards.failure()) == "Holder.scale: a list of 1 -> a list of 1"
    assert not lazy.is_realized


W = Tensor([1.0, 2.0], requires_grad=True)


def clipped() -> Tensor:
    W.grad = None
    (W * W).sum().backward()
    nn.utils.clip_grad_norm_([W], 1.0)
    return W.grad  # type: ignore[return-value]


BESIDE: dict[str, Callable[[], Tensor]] = {
    "a sum": lambda: (vector() * 2).add_(1),
    "an element": lambda: (vector() * 2).index_fill_(0, Tensor([1]), 3.0),
    "a constant": lambda: Tensor.zeros(3).fill_(2).add_(1),
    "a view": lambda: (vector(4) * 2).reshape(2, 2)[0].sub_(1),
    "a tensor of a new size each time": lambda: (vector(np.random.default_rng().integers(2, 100)) * 2).mul_(3),
    "assigned": lambda: (vector() * 2).assign(Tensor([5.0, 6.0])),
    "gradients that are clipped": clipped,
}


@pytest.mark.parametrize("beside", BESIDE)
def test_a_change_of_a_lazy_tensor_elsewhere_keeps_captures(beside: str) -> None:
    """The tensors that a function reads are guarded, down to the node of a lazy one."""
    state = vector()

    @jit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return state * 2

    for n in range(8):
        BESIDE[beside]().tolist()
        assert step(vector()).tolist() == [2.0 * (n + 2)] * 2
    assert not step.recaptures


@pytest.mark.parametrize("times", [1, 2], ids=["one backward", "several"])
def test_what_a_loop_changes_in_place_before_it_is_computed_recaptures_nothing(times: int) -> None:
    """Clipped gradients and running means: no capture that was made before them can have read what they were."""
    made = []
    for compiled in (False, True):
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        mean = Tensor(np.zeros((4, 3), np.float32))
        for n, p in enumerate(model.parameters()):
            p.data.copy_(Tensor(np.linspace(-1, 1, p.numel(), dtype=np.float32) + n).reshape(p.shape))
        optimiser = optim.SGD(model.parameters(), lr=0.1)
        net = jit(model) if compiled else model
        for step in range(9):
            optimiser.zero_grad()
            for _ in range(times):
                net(Tensor(np.full((2, 3), step / 9, np.float32))).pow(2).mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimiser.step()
            with no_grad():
                mean.mul_(0.9).add_(model[0].weight, alpha=0.1)
        made.append([*[p.numpy() for p in model.parameters()], mean.numpy()])
    assert not causes(net)
    assert "captured with its backward" in net.explain()
    for a, b in zip(*made, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_lazy_tensor_that_a_capture_has_read_is_changed_for_it_too() -> None:
    factor, x = Tensor(np.ones(2, np.float32)) * 2, vector()
    f = jit(lambda x: x * factor)
    assert [f(x).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3
    lazy = vector() + 1
    g = jit(lambda x: (x * lazy.detach()).sum())
    assert [g(x).item() for _ in range(3)] == [4.0] * 3
    for n in range(3):
        factor.add_(1)
        factor.mul_(2)
        lazy.add_(1)
        lazy.mul_(2)
        f(x)
        assert f(x).tolist() == [[6.0] * 2, [14.0] * 2, [30.0] * 2][n]
        assert g(x).item() == [12.0, 28.0, 60.0][n]
