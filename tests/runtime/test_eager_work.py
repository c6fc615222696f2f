"""The work of a step without jit, counted: what else is in the process, and numbers that change, add none to it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn, optim
from anneal.runtime import cache_statistics, late, observed
from anneal.tensor import Tensor, grad, host_call, jit, vmap
from anneal.tensor import functional as F
from anneal.uop import Arena

Step = Callable[[int], Any]
BATCHES = np.random.default_rng(0).standard_normal((8, 8, 20)).astype(np.float32)
LABELS = np.arange(8) % 5


def perceptron(change: Callable[[Tensor, int], Tensor] = lambda loss, n: loss, *more: nn.Module) -> Step:
    """A step of training, whose loss `change` has."""
    model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), *more, nn.Linear(16, 5))
    optimiser = optim.Adam(model.parameters())

    def step(n: int) -> float:
        optimiser.zero_grad()
        loss = change(F.cross_entropy(model(Tensor(BATCHES[n % 8])), Tensor(LABELS)), n)
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


class Work:
    """What some turns of a step did: plans and nodes made, calls of ops made, calls of Python functions."""

    def __init__(self, step: Step, turns: range) -> None:
        self.plans = self.nodes = self.misses = self.calls = 0
        before = cache_statistics()[1]
        add, learn = Arena.add, late._learn

        def adding(*args: Any) -> Any:
            self.nodes += 1
            return add(*args)

        def learning(*args: Any) -> Any:
            self.misses += 1
            return learn(*args)

        def called(frame: Any, event: str, arg: Any) -> None:
            self.calls += event == "call"

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Arena, "add", adding)
            patch.setattr(late, "_learn", learning)
            for n in turns[::2]:
                step(n)
        outer = sys.getprofile()
        sys.setprofile(called)
        try:
            for n in turns[1::2]:
                step(n)
        finally:
            sys.setprofile(outer)
        self.plans = cache_statistics()[1] - before


def warm(step: Step, turns: int = 6) -> Step:
    for n in range(turns):
        step(n)
    return step


def a_variable() -> Any:
    n = an.Variable("n", 1, 8)
    x = Tensor(np.arange(8.0))[: n.bind(3)]
    assert (x * 2).sum().item() == 6
    return x


def a_host_call() -> Any:
    x = host_call(np.cos, ((3,), "float32"), Tensor.ones(3))
    assert x.numpy().shape == (3,)
    return x


def a_jit_function() -> Any:
    w = Tensor.ones(3)
    f = jit(lambda x: x * w)
    for _ in range(3):
        f(Tensor.ones(3)).numpy()
    return f


def a_hook() -> Any:
    w = Tensor([1.0, 2.0], requires_grad=True)
    w.register_hook(lambda g: g * 2)
    (w * w).sum().backward()
    return w


def a_thread() -> Any:
    thread = threading.Thread(target=lambda: (Tensor(np.ones(3, np.float32)) * 2).numpy())
    thread.start()
    thread.join()


def a_map() -> Any:
    return vmap(lambda x: x * 2)(Tensor.ones(3, 2)).numpy()


def a_gradient() -> Any:
    return grad(lambda x: (x * x).sum())(Tensor([1.0, 2.0])).numpy()


def a_checkpoint() -> Any:
    x = Tensor.ones(3, requires_grad=True)
    an.utils.checkpoint.checkpoint(lambda x: x.exp() * 2, x).sum().backward()
    return x


def an_inference() -> Any:
    with an.inference_mode():
        return (Tensor.ones(3) * 2).numpy()


def an_observer() -> Any:
    with observed(lambda step: None):
        return (Tensor.ones(3) * 2).numpy()


def a_function_of_its_own() -> Any:
    class Square(an.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return 2 * ctx.saved_tensors[0] * g

    x = Tensor([1.0, 2.0], requires_grad=True)
    Square.apply(x).sum().backward()
    return x


@pytest.mark.parametrize(
    "there",
    [
        a_variable, a_host_call, a_jit_function, a_hook, a_thread, a_map, a_gradient, a_checkpoint, an_inference,
        an_observer, a_function_of_its_own,
    ],
)  # fmt: skip
def test_what_else_is_in_the_process_adds_no_work_to_a_step(there: Callable[[], Any]) -> None:
    step = warm(perceptron())
    before = Work(step, range(4))
    kept = there()
    warm(step)
    after = Work(step, range(4))
    assert (after.plans, after.misses) == (0, 0)
    assert after.nodes <= before.nodes
    assert after.calls <= 1.1 * before.calls
    del kept


def test_ops_of_variables_and_of_host_calls_run_as_they_stand_beside_others() -> None:
    n = an.Variable("n", 1, 8)
    data = Tensor(np.arange(8.0, dtype=np.float32)).realize()
    w = Tensor(np.ones(8, np.float32), requires_grad=True)
    for turn in range(6):
        size = turn % 4 + 1
        part = (data * 2)[: n.bind(size)]
        called = host_call(np.negative, ((8,), "float32"), data + turn)
        y = (w * data).sum() + (part + 1).sum() + called.sum()
        y.backward()
        rest = (data + turn) * 3
        assert y.item() == 28 + sum(2 * k + 1 for k in range(size)) - 28 - 8 * turn
        assert rest.tolist() == [3.0 * (k + turn) for k in range(8)]
        assert w.grad is not None
        assert w.grad.tolist() == data.tolist()
        w.grad = None
