"""host_call: a function of the host in the graph, eager and inside jit, on both devices."""

from __future__ import annotations

import gc
import inspect
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal.backend import get_device
from anneal.errors import DeviceError, DTypeError, GradientError, ShapeError, UserError
from anneal.rewrite import check
from anneal.runtime import HostCall, Launch, Step, observed, plan_of, storage_of, tracing
from anneal.schedule import graph
from anneal.tensor import Tensor, host_call, jit, no_grad, realize, vmap
from anneal.uop import SYMBOLIC

F32 = "float32"


def vector(*values: float, **options: Any) -> Tensor:
    return Tensor(np.array(values, np.float32), **options)


class Counted:
    """A function of the host that counts its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *arrays: Any) -> Any:
        self.calls += 1
        assert all(a.flags.writeable for a in arrays)
        return self.function(*arrays)


def test_it_is_called_between_kernels(device: str) -> None:
    double = Counted(lambda a: 2 * a)
    steps: list[Step] = []
    x = vector(1, 2, 3) + 1
    y = host_call(double, ((3,), F32), x) + x
    assert double.calls == 0, "nothing is computed before somebody looks"
    with observed(steps.append):
        assert y.tolist() == [6.0, 9.0, 12.0]
    assert double.calls == 1
    assert [type(s) for s in steps] == [Launch, HostCall, Launch]
    assert steps[1].kernels == 0
    check(graph([y.uop]), "tensor")


def test_chains_and_several_results(device: str) -> None:
    split = Counted(lambda a, b: [np.sort(a), np.argsort(b).astype(np.int32)])
    a, b = vector(3, 1, 2), vector(5, 4, 6)
    low, order = host_call(split, [((3,), F32), ((3,), "int32")], a * 2, b)
    back = host_call(lambda v, i: v[i], ((3,), F32), low, order)
    assert (back + low).tolist() == [6.0, 6.0, 12.0]
    assert split.calls == 1, "its results are computed together"
    assert order.tolist() == [1, 0, 2]
    assert Tensor(2.0).shape == ()
    assert host_call(lambda v: np.float32(v + 1), ((), F32), Tensor(2.0)).item() == 3


def test_a_chain_computes_what_its_calls_share_once(device: str) -> None:
    """Each call's part of a chain is one plan, however long the chain is: the parts before are in memory."""
    w = Tensor((np.eye(4) * 0.5).astype(np.float32), device=device)

    def chain(x: Tensor, length: int) -> Tensor:
        for _ in range(length):
            given = x @ w
            x = host_call(np.cos, ((4, 4), F32), given) * 0.5 + given.tanh()
        return x

    wanted = given = np.full((4, 4), 0.3, np.float32)
    for _ in range(12):
        given = wanted * np.float32(0.5)
        wanted = np.cos(given) * np.float32(0.5) + np.tanh(given)
    x = Tensor(np.full((4, 4), 0.3, np.float32), device=device)
    chain(x, 3).realize()
    steps: list[Step] = []
    with observed(steps.append):
        np.testing.assert_allclose(chain(x, 12).numpy(), wanted, rtol=1e-5)
    assert len({id(s.plan) for s in steps if isinstance(s, Launch)}) <= 4
    assert [type(s) for s in steps].count(HostCall) == 12
    captured = jit(lambda x: chain(x, 12))
    for _ in range(3):
        np.testing.assert_allclose(captured(x).numpy(), wanted, rtol=1e-5)


def test_results_have_memory_of_their_own(device: str) -> None:
    y = host_call(lambda a: a + 1, ((2, 2), F32), vector(1, 2, 3, 4).reshape(2, 2))
    flat, same = y.reshape(4), y * 1
    realize([y, flat, same])
    total = jit(lambda x: y.assign(y + x))
    for _ in range(4):
        total(vector(1, 1).realize())
    assert y.tolist() == [[6, 7], [8, 9]]
    assert flat.tolist() == [6, 7, 8, 9]  # a view
    assert same.tolist() == [[2, 3], [4, 5]]


def test_equal_calls_are_one_by_their_key(device: str) -> None:
    x = vector(1, 2)
    one, other = (host_call(lambda a: a + 1, ((2,), F32), x, key="add one") for _ in range(2))
    assert one.uop is other.uop
    third = host_call(lambda a: a + 1, ((2,), F32), x)
    assert third.uop is not one.uop


def test_replays_call_it_with_what_is_there_then(device: str) -> None:
    seen: list[list[float]] = []

    def note(a: Any) -> Any:
        seen.append(a.tolist())
        return a * 10

    w = vector(1, 1).realize()

    @jit
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = host_call(note, ((2,), F32), x + w)
        return y, y.sum() + x

    kept = []
    for i in range(6):
        if i == 4:
            w.assign(vector(5, 5))
        kept.append(f(vector(i, 2 * i)))
    added = [1, 1, 1, 1, 5, 5]
    assert seen == [[i + a, 2 * i + a] for i, a in enumerate(added)]
    for i, (y, total) in enumerate(kept):
        want = [10.0 * (i + added[i]), 10.0 * (2 * i + added[i])]
        assert y.tolist() == want, "a result of an earlier call stays as it was"
        assert total.tolist() == [sum(want) + i, sum(want) + 2 * i]


def test_state_goes_through_it(device: str) -> None:
    state, direct = vector(0, 0).realize(), vector(1, 2).realize()

    @jit
    def step(x: Tensor) -> Tensor:
        old = state + 0
        state.assign(host_call(lambda s, v: s + v, ((2,), F32), state, x))
        direct.assign(host_call(lambda s: 2 * s, ((2,), F32), direct))
        return old

    old = [step(vector(1, i)) for i in range(5)]
    assert [t.tolist() for t in old] == [[i, sum(range(i))] for i in range(5)]
    assert state.tolist() == [5, 10]
    assert direct.tolist() == [32, 64]


def test_a_tensor_it_reads_directly_may_be_assigned(device: str) -> None:
    w = vector(1, 2).realize()
    f = jit(lambda x: host_call(lambda a, b: a + b, ((2,), F32), w, x) * 1)
    got = []
    for i in range(6):
        if i in (3, 5):
            w.assign(vector(10 * i, 0) + 1)
        got.append(f(vector(i, i)).tolist())
    assert got == [[1, 2], [2, 3], [3, 4], [34, 4], [35, 5], [56, 6]]


def test_it_alone_can_be_a_function(device: str) -> None:
    f = jit(lambda x: host_call(lambda a: a + 1, ((2,), F32), x))
    assert [f(vector(i, 0)).tolist() for i in range(5)] == [[i + 1, 1] for i in range(5)]


def test_replays_hold_no_more_memory(device: str) -> None:
    f = jit(lambda x: host_call(lambda a: a + 1, ((5000,), F32), x + 1) * 2)
    x = Tensor(np.ones(5000, np.float32)).realize()
    held = []
    for _ in range(12):
        r = f(x)
        gc.collect()
        held.append(get_device(device).memory().in_use)
    assert r.numpy()[0] == 6
    assert set(held[4:]) == {held[4]}


def test_an_error_is_the_users_and_the_next_call_works(device: str) -> None:
    fail = False

    def checked(a: Any) -> Any:
        if fail:
            raise KeyError("planted")
        return a + 1

    f = jit(lambda x: host_call(checked, ((2,), F32), x * 2) * 3)
    for i in range(6):
        fail = i in (0, 3)
        if fail:
            with pytest.raises(KeyError, match="planted"):
                f(vector(i, 0))
        else:
            assert f(vector(i, 0)).tolist() == [3 * (2 * i + 1), 3]


def test_threads_call_it_at_once(device: str) -> None:
    f = jit(lambda x: host_call(lambda a: a * 2, ((2,), F32), x + 1))
    bad: list[Any] = []

    def serve(n: int) -> None:
        for i in range(15):
            got = f(vector(n, i, device=device)).tolist()
            if got != [2 * (n + 1), 2 * (i + 1)]:
                bad.append((n, i, got))

    threads = [threading.Thread(target=serve, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


def test_many_examples_are_called_one_by_one(device: str) -> None:
    total = Counted(lambda a, w: a[::-1] + w.sum(dtype=np.float32))
    w = vector(1, 2)
    x = Tensor(np.arange(6, dtype=np.float32).reshape(3, 2))
    y = vmap(lambda r: host_call(total, ((2,), F32), r, w))(x)
    assert y.tolist() == [[4, 3], [6, 5], [8, 7]]
    assert total.calls == 3


def test_what_is_computed_after_it_keeps_its_line() -> None:
    y = host_call(lambda a: a + 1, ((2,), F32), vector(1, 2) * 3)
    z = y * 2
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    realize([y, z])
    lines = [s.line[1] for t in (y, z) if (s := storage_of(t.uop)) is not None and s.line is not None]
    assert lines == [line - 1, line]


def test_nothing_runs_while_a_graph_is_traced() -> None:
    never = Counted(lambda a: a)
    with tracing() as noted:
        host_call(never, ((1,), F32), vector(1)).realize()
    assert len(noted) == 1
    assert never.calls == 0
    with pytest.raises(UserError, match="the host is called between plans"):
        plan_of(noted)


def test_no_gradient_flows_through_it() -> None:
    x = vector(1, 2, requires_grad=True)
    y = host_call(lambda a: a * 2, ((2,), F32), x)
    with pytest.raises(GradientError, match="host_call has no gradient"):
        y.sum().backward()
    (host_call(lambda a: a * 2, ((2,), F32), x.detach()) * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 4]
    with no_grad():
        assert not host_call(lambda a: a, ((2,), F32), x).requires_grad


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: host_call(np.sort, ((2,), F32)), ShapeError, "at least one tensor"),
        (lambda x: host_call(np.sort, ((2,), F32), [1.0]), DTypeError, "takes tensors, not list"),
        (lambda x: host_call(np.sort, ((0,), F32), x), ShapeError, "sizes of at least 1"),
        (lambda x: host_call(np.sort, ((2,), F32), Tensor.zeros(0)), ShapeError, "sizes are at least 1"),
        (lambda x: host_call(np.sort, (2, F32), x), ShapeError, r"a pair of shape and dtype.*not \(2, 'float32'\)"),
        (lambda x: host_call(np.sort, ((2,), F32), x, key=[1]), DTypeError, "key must be hashable"),
        (lambda x: host_call(np.sort, ((2,), F32), x, vmap_method="loop"), DTypeError, "not 'loop'"),  # type: ignore[arg-type]
        (
            lambda x: host_call(lambda a: None, ((2,), F32), x).realize(),
            DTypeError,
            "lambda>: the function gives nothing",
        ),
        (
            lambda x: host_call(lambda a: 3j * a, ((2,), F32), x, key="turn").realize(),
            DTypeError,
            "host_call of turn: ",
        ),
        (lambda x: host_call(lambda a: [[1, 2], [3]], ((2,), F32), x).realize(), ShapeError, "gives 2 arrays, not 1"),
        (lambda x: host_call(lambda a: [[[1, 2], [3]]], ((2,), F32), x).realize(), DTypeError, "a list, not arrays"),
        (lambda x: host_call(np.sort, ((3,), F32), x).realize(), ShapeError, r"has shape \(2,\), not \(3,\)"),
        (lambda x: host_call(np.argsort, ((2,), F32), x).realize(), DTypeError, "result 0 is int64, not float32"),
        (lambda x: host_call(list, [((), F32)] * 3, x)[0].realize(), ShapeError, "gives 2 arrays, not 3"),
        (
            lambda x: host_call(lambda a: (x * 3).numpy(), ((2,), F32), x).realize(),
            UserError,
            "must not compute tensors",
        ),
        (
            lambda x: host_call(lambda a: jit(lambda t: t * 3)(x).numpy(), ((2,), F32), x).realize(),
            UserError,
            "must not compute tensors",
        ),
    ],
)
def test_what_cannot_be_is_said(call: Callable[[Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(vector(1, 2))
    assert (vector(1, 2) * 2).tolist() == [2, 4]


def test_inputs_are_on_one_device(webgpu: str) -> None:
    with pytest.raises(DeviceError, match="one tensor is on"):
        host_call(np.add, ((1,), F32), vector(1, device="cpu"), vector(1, device=webgpu))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("seen", [False, True], ids=["no variable", "a variable in the process"])
def test_a_loop_that_reads_makes_each_call_once(
    device: str, grad: bool, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read is computed from the loop's beginning, where the rounds before are lazy: their calls are not made
    again, and what a tensor shows is memory of its own."""
    monkeypatch.setattr(SYMBOLIC, "seen", seen)
    calls = []

    def halved(a: Any) -> Any:
        calls.append(a)
        return a / 2

    def gradient(_: Any, __: Any, given: Any) -> Any:
        return [given[0] / 2]

    start = Tensor([8.0, 4.0], device=device, requires_grad=grad)
    x, read, middle = start, [], []
    for _ in range(6):
        h = host_call(halved, ((2,), "float32"), x, gradient=gradient)
        x = h + 1
        middle.append(h)
        read.append((x * 3).sum().item())
    assert len(calls) == 6
    assert read == [24.0, 18.0, 15.0, 13.5, 12.75, 12.375]
    shown = [h.tolist() for h in middle]  # results of calls that were kept for others
    middle[0] += 100
    assert middle[0].tolist() == [104.0, 102.0]
    assert shown[1] == middle[1].tolist() == [2.5, 1.5]
    assert len(calls) == 6
    if grad:
        x.sum().backward()
        assert start.grad is not None
        assert start.grad.tolist() == [1 / 64, 1 / 64]
    assert len(calls) == 6
