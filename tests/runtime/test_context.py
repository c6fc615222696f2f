"""Contexts: the state of running is one object, and two of them work side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import nn
from anneal.errors import DeviceError
from anneal.runtime import Context, Launch, cache_statistics, compile_seconds, here, observed
from anneal.tensor import Tensor, default_device, grad_enabled, jit, no_grad, realize, set_default_device


def at_once(*functions: Callable[[], Any]) -> list[Any]:
    """The results of functions that run in a thread each, begun together."""
    begin = threading.Barrier(len(functions))
    out: list[Any] = [None] * len(functions)

    def serve(n: int) -> None:
        begin.wait()
        try:
            out[n] = functions[n]()
        except BaseException as e:
            out[n] = e

    threads = [threading.Thread(target=serve, args=(n,)) for n in range(len(functions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for result in out:
        if isinstance(result, BaseException):
            raise result
    return out


def train(device: str, rate: float) -> tuple[str, list[float], int, tuple[int, int]]:
    """A model trained under jit in a context of its own: its device, losses, launches of this thread and plans."""
    with Context(device) as context:
        seen: list[Launch] = []
        rng = np.random.default_rng(0)
        weight = Tensor(rng.standard_normal((1, 4)).astype(np.float32), requires_grad=True)
        model = nn.Linear(4, 1, weight=weight)
        optimizer = nn.SGD(model.parameters(), lr=rate)
        x = rng.standard_normal((8, 4)).astype(np.float32)
        y = x.sum(1, keepdims=True)

        @jit
        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step(loss)
            return loss

        with observed(seen.append):
            losses = [float(step(Tensor(x), Tensor(y)).item()) for _ in range(12)]
        return model.weight.device, losses, len(seen), (context.plans_found, context.plans_made)


def test_two_contexts_train_in_two_threads_on_one_device(device: str) -> None:
    alone = [train(device, 0.05), train(device, 0.1)]
    before = cache_statistics()
    together = at_once(lambda: train(device, 0.05), lambda: train(device, 0.1))
    assert cache_statistics() == before, "the process's own context counts nothing of theirs"
    for (_, want, launches, _), (where, got, seen, plans) in zip(alone, together, strict=True):
        assert where == device
        np.testing.assert_allclose(got, want, rtol=1e-6)
        assert got[-1] < got[0]
        assert seen == launches > 0, "each is told of its own steps"
        assert sum(plans) == seen
    assert together[0][1][-1] != together[1][1][-1]


def test_two_contexts_work_on_a_device_each(webgpu: str) -> None:
    (one, on_cpu, *_), (other, on_gpu, *_) = at_once(lambda: train("cpu", 0.05), lambda: train(webgpu, 0.05))
    assert (one, other) == ("cpu", "webgpu")
    np.testing.assert_allclose(on_cpu, on_gpu, rtol=1e-4)


def test_modes_watchers_and_recordings_begin_anew_and_come_back() -> None:
    told: list[Launch] = []
    found: list[Any] = []

    def inside(x: Tensor) -> Tensor:
        with Context() as own:
            found.append((own, grad_enabled(), default_device(), bool(here.recordings)))
            realize([Tensor([4.0]) * 7])  # is not part of what is captured, nor is it observed
        return x * 2

    f = jit(inside)
    set_default_device("cpu")
    with no_grad(), observed(told.append):
        outer = here.context
        for i in range(4):
            assert f(Tensor([float(i)])).item() == 2 * i
        assert here.context is outer
        assert not grad_enabled()
        assert here.device == "cpu"
    set_default_device(None)
    assert len(told) == 2, "the first call and the one that is captured"
    assert [(grad, recorded) for _, grad, _, recorded in found] == [(True, False)] * 2
    assert [own.plans_found + own.plans_made for own, *_ in found] == [1, 1]


def test_a_context_is_left_by_an_error_too_and_may_be_entered_again() -> None:
    own, outer = Context("cpu"), here.context
    with pytest.raises(ZeroDivisionError), own:
        _ = 1 / 0
    assert here.context is outer
    with own:
        with Context() as inner:
            assert here.context is inner
            assert here.device is None
        assert here.context is own
        assert default_device() == "cpu"
        (Tensor([1.0]) * 3).realize()
        assert compile_seconds() == own.compile_seconds > 0
    with pytest.raises(DeviceError, match="unknown device 'gpu7'"):
        Context("gpu7")


def test_a_thread_begins_in_the_context_of_the_process() -> None:
    outer = here.context
    with Context("cpu") as own:
        (inside,) = at_once(lambda: here.context)
        assert inside is outer is not own


def test_tensors_pass_from_one_context_to_another() -> None:
    """A leaf of one gets its gradient in the other, and a change there outdates what was captured here."""
    model = nn.Linear(2, 1, weight=Tensor([[1.0, 2.0]], requires_grad=True), bias=False)
    f = jit(lambda x: model(x).sum())
    x = Tensor([[1.0, 1.0]], device="cpu")
    assert [f(x).item() for _ in range(3)] == [3.0] * 3
    with Context("cpu"):
        model(x).sum().backward()
        assert model.weight.grad is not None
        assert model.weight.grad.tolist() == [[1.0, 1.0]]
        model.weight = Tensor([[5.0, 5.0]], requires_grad=True)
    assert [f(x).item() for _ in range(3)] == [10.0] * 3


def test_a_model_that_is_about_to_be_loaded_is_one_threads() -> None:
    made = threading.Event()

    def skips() -> bool:
        with nn.init.skipped():
            made.wait()
            return not np.any(nn.Linear(2, 2).weight.numpy())

    def does_not() -> bool:
        weight = nn.Linear(2, 2).weight.numpy()
        made.set()
        return bool(np.any(weight))

    assert at_once(skips, does_not) == [True, True]
