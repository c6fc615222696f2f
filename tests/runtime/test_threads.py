"""Threads, and processes that are forked: values, gradients and modes are each one's own."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from anneal import nn
from anneal.backend import get_device
from anneal.tensor import Tensor, default_device, grad, jit, no_grad, set_default_device, vmap
from anneal.uop import arena

ROOT = Path(__file__).parents[2]
W = np.arange(16, dtype=np.float32).reshape(4, 4) / 16
CALLS = [pytest.param(60, id="60"), pytest.param(10_000, id="10000", marks=pytest.mark.deep)]


def wrong(kinds: list[Callable[[int], bool]], calls: int) -> list[str]:
    """What is not as it should be when each of `kinds` runs in a thread of its own, all of them together."""
    found: list[str] = []
    begin = threading.Barrier(len(kinds))

    def serve(number: int, check: Callable[[int], bool]) -> None:
        begin.wait()
        for n in range(calls):
            try:
                if not check(n * len(kinds) + number):
                    found.append(f"thread {number}, call {n}")
            except Exception as e:  # whatever it is, it is wrong
                found.append(f"thread {number}, call {n}: {e!r}")

    threads = [threading.Thread(target=serve, args=(n, k)) for n, k in enumerate(kinds)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return found


def function(device: str) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    w = Tensor(W, device=device)
    return lambda x: ((x @ w).exp2() + 1, (x * 2).sum())


def values(f: Callable[[Tensor], tuple[Tensor, Tensor]], device: str) -> Callable[[int], bool]:
    def check(n: int) -> bool:
        x = np.full((3, 4), n % 7 / 8, np.float32)
        y, total = f(Tensor(x, device=device))
        return np.allclose(y.numpy(), np.exp2(x @ W) + 1, rtol=1e-5) and total.item() == 2 * x.sum()

    return check


def gradients(device: str) -> Callable[[int], bool]:
    def check(n: int) -> bool:
        x = np.arange(4, dtype=np.float32) + n % 5
        leaf = Tensor(np.full(4, 2.0, np.float32), device=device, requires_grad=True)
        (leaf * Tensor(x, device=device)).sum().backward()
        return leaf.grad is not None and bool((leaf.grad.numpy() == x).all())

    return check


def switched_off(device: str) -> Callable[[int], bool]:
    def check(n: int) -> bool:
        with no_grad():
            return not (Tensor([float(n)], device=device, requires_grad=True) * 2).requires_grad

    return check


@pytest.mark.parametrize("calls", CALLS)
def test_one_jit_function_in_four_threads(device: str, calls: int) -> None:
    f = jit(function(device))
    assert not wrong([values(f, device)] * 4, calls)
    assert values(f, device)(3), "and it is right afterwards"


@pytest.mark.parametrize("calls", CALLS)
def test_four_threads_without_jit(device: str, calls: int) -> None:
    assert not wrong([values(function(device), device)] * 4, calls)


@pytest.mark.parametrize("calls", CALLS)
def test_modes_belong_to_a_thread(device: str, calls: int) -> None:
    assert not wrong([gradients(device), switched_off(device)] * 2, calls)


@pytest.mark.parametrize("calls", CALLS)
def test_all_kinds_at_once(device: str, calls: int) -> None:
    f = function(device)
    mapped = vmap(grad(lambda x: (x * x).sum()))

    def transformed(n: int) -> bool:
        x = np.full((2, 3), n, np.float32)
        return bool((mapped(Tensor(x, device=device)).numpy() == 2 * x).all())

    kinds = [values(jit(f), device), values(f, device), gradients(device), switched_off(device), transformed]
    assert not wrong(kinds, calls)


def test_training_in_one_thread_while_others_infer(device: str) -> None:
    """Each step's loss is what it is alone; a model that is read meanwhile has the weights of some step."""

    def losses(beside: int) -> list[float]:
        rng = np.random.default_rng(0)
        model = nn.Linear(8, 1, weight=Tensor(rng.standard_normal((1, 8)).astype(np.float32)))
        optimizer = nn.Adam(model.parameters(), lr=0.05)
        x = rng.standard_normal((16, 8)).astype(np.float32)
        y = x.sum(1, keepdims=True)
        stop, bad = threading.Event(), []

        @jit
        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step(loss)
            return loss

        def infer() -> None:
            while not stop.is_set():
                with no_grad():
                    if not np.isfinite(model(Tensor(x)).numpy()).all():
                        bad.append(1)

        readers = [threading.Thread(target=infer) for _ in range(beside)]
        for t in readers:
            t.start()
        out = [step(Tensor(x), Tensor(y)).item() for _ in range(20)]
        stop.set()
        for t in readers:
            t.join()
        assert not bad
        return [float(v) for v in out]

    # what the readers name no device for lives where the process says
    alone = losses(0)
    assert alone[-1] < alone[0]
    np.testing.assert_allclose(losses(2) if device == "cpu" else alone, alone, rtol=1e-5)


def test_gradients_of_several_threads_add_up(device: str) -> None:
    leaf = Tensor(np.zeros(4, np.float32), device=device, requires_grad=True)

    def add(n: int) -> None:
        (leaf * float(n)).sum().backward()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, range(40)))
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [sum(range(40))] * 4


def test_random_numbers_of_several_threads_differ(device: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        drawn = list(threads.map(lambda n: tuple(Tensor.rand(4, device=device).tolist()), range(40)))
    assert len(set(drawn)) == 40


def test_equal_nodes_that_threads_make_at_once_are_one() -> None:
    x = Tensor(np.ones(3, np.float32), device="cpu")
    for k in range(20):
        with ThreadPoolExecutor(4) as threads:
            made = list(threads.map(lambda n, k=k: (x ** (k + 2)).uop, range(4)))  # type: ignore[misc]
        assert len(set(map(id, made))) == 1
    stop = threading.Event()

    def sweep() -> None:
        while not stop.is_set():
            arena().sweep()

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    assert not wrong([values(function("cpu"), "cpu")] * 2, 30)
    stop.set()
    sweeper.join()


def test_the_default_device_belongs_to_a_thread() -> None:
    def chosen() -> str:
        set_default_device("cpu")
        return default_device()

    set_default_device("cpu")
    try:
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(chosen).result() == "cpu"
        assert default_device() == "cpu"
    finally:
        set_default_device(None)


OPENING = """
import os, threading
from anneal.backend import get_device
os.environ.pop("XDG_RUNTIME_DIR", None)
found = []
begin = threading.Barrier(8)
def open_it():
    begin.wait()
    found.append(get_device("webgpu"))
threads = [threading.Thread(target=open_it) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
assert len(found) == 8 and len(set(map(id, found))) == 1, found
assert "XDG_RUNTIME_DIR" not in os.environ
"""


def test_threads_that_open_a_device_get_the_same(webgpu: str) -> None:
    accepted = {**os.environ, "ANNEAL_REQUIRE_WEBGPU": "1"}  # a software adapter will do, as for the fixture
    command = [sys.executable, "-c", OPENING]
    run = subprocess.run(command, cwd=ROOT, env=accepted, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def _double(n: int) -> list[float]:
    return (Tensor(np.full(3, n, np.float32), device="cpu") * 2).tolist()  # type: ignore[no-any-return]


def _on_webgpu(n: int) -> str:
    try:
        return str((Tensor([float(n)], device="webgpu") * 2).tolist())
    except Exception as e:
        return f"{type(e).__name__}: {e}"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_computes_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _double(1) == [2.0] * 3
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_double, range(6)) == [[2.0 * n] * 3 for n in range(6)]
    assert _double(2) == [4.0] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_says_that_it_has_no_gpu(webgpu: str) -> None:
    assert _on_webgpu(3) == "[6.0]"
    with multiprocessing.get_context("fork").Pool(1) as pool:
        said = pool.apply(_on_webgpu, (3,))
        assert said.startswith("DeviceError: device 'webgpu' was opened before this process was forked")
        assert 'get_context("spawn")' in said
        assert pool.apply(_double, (4,)) == [8.0] * 3, "the cpu still serves it"
    assert get_device("webgpu") is not None
    assert _on_webgpu(4) == "[8.0]"
