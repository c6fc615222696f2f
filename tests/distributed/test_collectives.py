"""Exchanges between the participants of a group of threads, eager and inside jit, their gradients and their errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal.distributed import Group, GroupError, all_gather, all_reduce, broadcast
from anneal.errors import DTypeError, JitError, ShapeError, TransformError
from anneal.runtime import Collective, HostCall, Launch, Step, default_device, observed
from anneal.tensor import Tensor, jit, realize
from anneal.transforms import grad, jvp, vmap
from tests.distributed.threads import ThreadGroup, in_threads


def given(group: Group, *shape: int) -> Any:
    """A participant's values."""
    return np.random.default_rng(group.rank).normal(size=shape).astype(np.float32)


def together(f: Callable[[ThreadGroup], Any], size: int = 2, **options: Any) -> list[Any]:
    return in_threads(f, size, device=default_device(), **options)


# -- values -------------------------------------------------------------------------------------------------------


def test_the_sum_and_the_mean_are_the_same_bits_for_all(device: str) -> None:
    def f(group: ThreadGroup) -> list[Any]:
        x = Tensor(given(group, 3, 5))
        return [(all_reduce(x * 2, group, op) + 1).numpy() for op in ("sum", "mean")]  # type: ignore[call-overload]

    found = together(f, 3)
    whole = np.stack([np.random.default_rng(r).normal(size=(3, 5)).astype(np.float32) * 2 for r in range(3)])
    for sums, means in found:
        np.testing.assert_array_equal(sums, found[0][0])
        np.testing.assert_array_equal(means, found[0][1])
        np.testing.assert_allclose(sums, whole.sum(0) + 1, rtol=1e-6)
        np.testing.assert_allclose(means, whole.mean(0) + 1, rtol=1e-6)


def test_an_exchange_is_a_step_between_launches(device: str) -> None:
    def f(group: ThreadGroup) -> Any:
        steps: list[Step] = []
        x, y = Tensor(given(group, 4)), Tensor([group.rank], dtype="int32")
        with observed(steps.append):
            a, b = all_reduce([x * 2, y + 1], group)
            realize([a + 1, b])
        return [type(s) for s in steps], [s.group is group for s in steps if isinstance(s, Collective)], b.item()

    assert together(f) == [([Launch, Collective, Launch], [True], 3)] * 2
    assert issubclass(Collective, HostCall)


def test_gathered_and_handed_round(device: str) -> None:
    def f(group: ThreadGroup) -> Any:
        x = Tensor([[group.rank, 10]])
        return all_gather(x, group).tolist(), [broadcast(x + 0, group, root=r).tolist() for r in range(3)]

    assert together(f, 3) == [([[[r, 10]] for r in range(3)], [[[r, 10]] for r in range(3)])] * 3


def test_participants_may_have_a_device_each(webgpu: str) -> None:
    def f(group: ThreadGroup) -> Any:
        x = Tensor([1.0, group.rank], device=("cpu", webgpu)[group.rank])
        total = all_reduce(x * 2, group) + 1
        return total.device, total.tolist()

    assert in_threads(f, 2) == [("cpu", [5.0, 3.0]), (webgpu, [5.0, 3.0])]


def test_narrow_floats_are_added_in_float32() -> None:
    def f(group: ThreadGroup) -> Any:
        x = Tensor([1.0, 1 / 256], dtype="bfloat16" if group.size == 3 else "float16")
        return all_reduce(x, group).float().tolist()

    assert together(f, 3) == [[3.0, 3 / 256]] * 3
    assert together(f, 2) == [[2.0, 2 / 256]] * 2
    # one by one, 256 + 1 would stay 256 in bfloat16
    ones = together(lambda g: all_reduce(Tensor([[256.0, 1.0, 1.0, 2.0][g.rank]], dtype="bfloat16"), g).item(), 4)
    assert ones == [260.0] * 4


# -- jit and gradients --------------------------------------------------------------------------------------------


def test_replays_exchange(device: str) -> None:
    def f(group: ThreadGroup) -> Any:
        total = Tensor(np.zeros(2, np.float32)).realize()

        @jit
        def step(x: Tensor) -> tuple[Tensor, Tensor]:
            everybodys = all_reduce(x * 2, group)
            total.assign(total + everybodys)
            return everybodys.max(), total * 1

        return [
            [r.tolist() for r in step(Tensor([float(i), float(group.rank)]))]  # arguments differ, results do not
            for i in range(6)
        ]

    found = together(f)
    assert found[0] == found[1]
    sums = np.cumsum([[4.0 * i, 2.0] for i in range(6)], axis=0)
    assert found[0] == [[max(4.0 * i, 2.0), sums[i].tolist()] for i in range(6)]


def test_one_jit_function_takes_the_group_as_an_argument(device: str) -> None:
    step = jit(lambda x, group: all_reduce(x + 1, group).sum())
    found = together(lambda group: [step(Tensor([float(i), float(group.rank)]), group).item() for i in range(5)])
    assert found == [[2.0 * i + 5 for i in range(5)]] * 2


def test_gradients_come_from_all_participants(device: str) -> None:
    def f(group: ThreadGroup) -> Any:
        mine = group.rank + 1.0
        out = []
        for exchanged in (
            lambda x: all_reduce(x, group),
            lambda x: all_reduce(x, group, "mean"),
            lambda x: broadcast(x, group, root=1),
            lambda x: all_gather(x, group)[0] * 2 + all_gather(x, group)[1] * 5,
        ):
            x = Tensor([mine, 2.0], requires_grad=True)
            (exchanged(x * 3) * mine).sum().backward()
            assert x.grad is not None
            out.append(x.grad.tolist())
        second = grad(lambda v: (grad(lambda u: (all_reduce(u, group) ** 3).sum())(v) * v).sum())
        out.append(second(Tensor([mine])).tolist())
        _, along = jvp(lambda u: all_reduce(u * 2, group, "mean"), (Tensor([1.0]),), (Tensor([mine]),))
        out.append(along.tolist())
        return out

    first, other = together(f)
    # the loss is the sum of all participants': 1 and 2 times what was exchanged
    assert first[:4] == [[9.0, 9.0], [4.5, 4.5], [0.0, 0.0], [18.0, 18.0]]
    assert other[:4] == [[9.0, 9.0], [4.5, 4.5], [9.0, 9.0], [45.0, 45.0]]
    # s = a + b; each takes sum_q 3 s^2 = 6 s^2 times its own value; the derivative sums 12 s v_q over q, plus 6 s^2
    assert first[4] == other[4] == [12 * 3 * 3 + 6 * 9]
    assert first[5] == other[5] == [3.0], "tangents are averaged as values are"


def test_captured_steps_take_gradients_in_threads(device: str) -> None:
    """Participants capture at the same time, each with leaves of its own."""

    def f(group: ThreadGroup) -> Any:
        w = Tensor([1.0, 2.0], requires_grad=True)

        @jit
        def step(x: Tensor) -> Tensor:
            w.zero_grad()
            loss = (w * x).sum()
            total = all_reduce(loss.detach(), group).realize()  # waits while the other captures its own
            loss.backward()
            assert w.grad is not None
            w.assign(w.detach() - 0.1 * all_reduce(w.grad, group, "mean"))
            return total

        losses = [step(Tensor([1.0, float(group.rank)])).item() for _ in range(5)]
        with pytest.raises(JitError, match="was taken inside a jit function"):
            _ = w.grad
        return losses, w.tolist()

    found = together(f)
    assert found[0] == found[1]
    np.testing.assert_allclose(found[0][0], [4 - 0.25 * i for i in range(5)], rtol=1e-6)
    np.testing.assert_allclose(found[0][1], [0.5, 1.75], rtol=1e-6)


# -- errors -------------------------------------------------------------------------------------------------------


def caught(f: Callable[[], Any]) -> tuple[str, str]:
    try:
        f()
    except Exception as e:
        return type(e).__name__, str(e)
    return "", ""


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        (
            lambda g: all_reduce(Tensor(np.ones(3 + g.rank, np.float32)), g).realize(),
            "ShapeError",
            "all_reduce (sum): array 0 is (3,) for participant 0, and (4,) for participant 1",
        ),
        (
            lambda g: broadcast(Tensor([1, 2], dtype=("int32", "float32")[g.rank]), g).realize(),
            "DTypeError",
            "broadcast from 0: array 0 is int32 for participant 0, and float32 for participant 1",
        ),
        (
            lambda g: all_reduce(Tensor([1.0, 2.0]), g, ("sum", "mean")[g.rank]).realize(),
            "GroupError",
            "all_reduce (sum): participant 0 makes all_reduce (sum), and participant 1 makes all_reduce (mean)",
        ),
        (
            lambda g: realize(all_reduce([Tensor([1.0, 2.0]), Tensor([3.0, 4.0])][: 1 + g.rank], g)),
            "GroupError",
            "all_reduce (sum): participant 0 gives 1 arrays, and participant 1 2",
        ),
    ],
)
def test_participants_that_differ_are_named_to_all(program: Any, error: str, message: str) -> None:
    def f(group: ThreadGroup) -> Any:
        return caught(lambda: program(group)), all_reduce(Tensor([1.0, 1.0]), group).tolist()

    assert together(f) == [((error, message), [2.0, 2.0])] * 2, "and the next exchange takes place"


def test_whoever_does_not_come_is_waited_for_a_while() -> None:
    def f(group: ThreadGroup) -> Any:
        if group.rank == 1:
            time.sleep(0.5)
            return caught(lambda: all_reduce(Tensor([1.0]), group).realize())
        begun = time.monotonic()
        found = caught(lambda: all_reduce(Tensor([1.0]), group).realize())
        assert time.monotonic() - begun < 30
        return found

    late = "participant 1 of 3 did not come within 0.1 s"
    found = together(
        lambda g: f(g) if g.rank < 2 else caught(lambda: all_reduce(Tensor([1.0]), g).realize()), 3, timeout=0.1
    )
    assert found[0] == found[1] == found[2] == ("GroupError", f"all_reduce (sum): {late}")


@pytest.mark.parametrize("captured", [False, True])
def test_a_participant_that_dies_ends_the_wait(captured: bool) -> None:
    told: list[tuple[str, str]] = []

    def f(group: ThreadGroup) -> Any:
        function = lambda x: all_reduce(x * 2, group)
        step = jit(function) if captured else function
        for i in range(6):
            if group.rank == 1 and i == 4:
                raise ZeroDivisionError("planted")
            found = caught(lambda: step(Tensor([1.0])).realize())
            if found[0]:
                told.append(found)
                return

    begun = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="planted"):
        together(f, timeout=300)
    assert told == [("GroupError", "all_reduce (sum): participant 1 of 2 has ended: ZeroDivisionError: planted")]
    assert time.monotonic() - begun < 100
    assert (Tensor([1.0]) + 1).item() == 2, "no lock is held"


def test_one_capture_is_not_replayed_twice_at_once() -> None:
    first, second = ThreadGroup.of(2, timeout=60)
    step = jit(lambda x: all_reduce(x * 2, first).sum())
    entered = threading.Event()

    def other() -> None:
        for _ in range(2):
            all_reduce(Tensor([0.0]), second).realize()
        entered.wait()

    t = threading.Thread(target=other)
    t.start()
    for _ in range(2):
        assert step(Tensor([1.0])).item() == 2
    waiting = threading.Thread(target=lambda: step(Tensor([3.0])))
    waiting.start()
    while not first._table._put:
        time.sleep(0.01)
    with pytest.raises(JitError, match="is replayed by another thread"):
        step(Tensor([5.0]))
    entered.set()
    t.join()
    all_reduce(Tensor([0.0]), second).realize()
    waiting.join()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, g: all_reduce(x, 1), GroupError, "all_reduce: takes a group, this participant's view"),
        (lambda x, g: all_reduce(x, g, "least"), GroupError, "all_reduce: op is"),
        (lambda x, g: all_reduce(x.int(), g, "mean"), DTypeError, "the mean of int32 is none"),
        (lambda x, g: all_reduce(x > 1, g), DTypeError, "the sum of bool is none"),
        (lambda x, g: all_reduce([], g), ShapeError, "takes at least one tensor"),
        (lambda x, g: all_gather([1.0], g), DTypeError, "all_gather: takes a tensor, or a list of them, not 1.0"),
        (lambda x, g: broadcast(x, g, root=1), GroupError, "root is a participant, a number from 0 to 0, not 1"),
        (lambda x, g: vmap(lambda y: all_reduce(y, g))(x), TransformError, "has no rule for many examples at once"),
        (lambda x, g: ThreadGroup.of(0), GroupError, "takes at least one participant"),
    ],
)
def test_what_cannot_be_is_said(call: Any, error: type[Exception], message: str) -> None:
    (alone,) = ThreadGroup.of(1)
    with pytest.raises(error, match=message):
        call(Tensor([[1.0, 2.0]]), alone)
    assert all_reduce(Tensor([1.0, 2.0]), alone).tolist() == [1.0, 2.0]
