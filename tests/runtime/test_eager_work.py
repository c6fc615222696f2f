"""The work of a step without jit, counted: what else is in the process, and numbers that change, add none to it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn, optim
from anneal.backend import get_device, register_device, registry
from anneal.runtime import cache_statistics, late, launch, observed, turns
from anneal.tensor import Tensor, functional as F, grad, host_call, jit, vmap
from anneal.uop import SYMBOLIC, Arena, dtypes
from benchmarks.calls import counted
from tests.backend.toy import COST_MODEL, NAME, ToyDevice

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


def another_device() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry.DEVICES, "known", dict(registry.DEVICES.known))
        register_device(NAME, ToyDevice, COST_MODEL)
        x = Tensor(np.ones(3, np.float32), device=NAME)
        assert (x * 2).sum().item() == 6
        registry.DEVICES.open.pop(NAME)
    return x


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
        an_observer, a_function_of_its_own, another_device,
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


def test_a_variable_in_the_process_adds_little_work_to_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SYMBOLIC, "seen", False)
    w = Tensor(np.full((20, 20), 0.1, np.float32), requires_grad=True)
    optimiser = optim.Adam([w])

    def turn(h: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        h = (h @ w + row).tanh()
        return h, h * 2

    def step(n: int) -> float:
        optimiser.zero_grad()
        loss = (an.scan(turn, an.zeros(20), Tensor(BATCHES[n % 8]))[1] ** 2).mean()
        loss.backward()
        optimiser.step()
        return loss.item()

    before = Work(warm(step), range(4))
    kept = a_variable()
    after = Work(warm(step), range(4))
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


def test_a_chain_of_calls_of_the_host_is_learned_once() -> None:
    """Each op would learn the graph of all calls before it again."""

    def nodes(length: int) -> int:
        w, x = Tensor(np.eye(3, dtype=np.float32), requires_grad=True), Tensor.ones(3, 3)

        def step(n: int) -> None:
            y = x
            for _ in range(length):
                y = host_call(np.cos, ((3, 3), "float32"), y @ w + n) + y
            y.sum().item()

        return Work(warm(step, 3), range(2)).nodes

    assert nodes(24) <= 2.5 * nodes(12)


def test_packed_sequences_of_one_longest_and_other_lengths_have_one_plan() -> None:
    """The rows of a packed sequence are as many as its lengths' sum, another number in each step."""
    layer, last = nn.LSTM(3, 4, batch_first=True, bidirectional=True), nn.Linear(8, 1)
    optimiser = optim.SGD([*layer.parameters(), *last.parameters()], 0.1)

    def step(n: int) -> float:
        lengths = [5, n % 5 + 1, n // 5 % 5 + 1]
        x = Tensor(BATCHES.reshape(-1)[n * 7 : n * 7 + 45].reshape(3, 5, 3))
        packed = nn.utils.rnn.pack_padded_sequence(x * 2, lengths, batch_first=True, enforce_sorted=False)
        found, ends = layer(packed)
        optimiser.zero_grad()
        loss = last(nn.utils.rnn.pad_packed_sequence(found, batch_first=True)[0]).sum() + ends[0].sum()
        loss.backward()
        optimiser.step()
        return loss.item()

    assert Work(warm(step, 6), range(6, 26)).plans <= 1  # that of three lengths of 5


def comparing(same: Callable[[Tensor, Tensor], bool]) -> Step:
    w = Tensor(np.ones((4, 4), np.float32), requires_grad=True)

    def step(n: int) -> None:
        x = y = Tensor(BATCHES[n % 8, :4, :4])
        for _ in range(4):
            y = (y @ w).tanh() + x
        assert not same(y, x)

    return step


@pytest.mark.parametrize("same", [an.allclose, an.equal, Tensor.allclose, lambda y, x: bool((y - x).abs().max() < 0.1)])
def test_ops_that_give_a_bool_make_no_calls_anew(same: Callable[[Tensor, Tensor], bool]) -> None:
    work = Work(warm(comparing(same), 8), range(8, 16))
    assert (work.plans, work.misses) == (0, 0)
    assert work.nodes <= 8


# -- what changes, and what is read, in each step ---------------------------------------------------------------------


def a_rate_of_the_optimiser(changes: bool = True) -> Step:
    model = nn.Linear(20, 5)
    optimiser = optim.Adam(model.parameters())

    def step(n: int) -> float:
        optimiser.zero_grad()
        if changes:
            optimiser.param_groups[0]["lr"] = 0.1 / (n + 1)
        loss = F.cross_entropy(model(Tensor(BATCHES[n % 8])), Tensor(LABELS))
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


def a_chance() -> Step:
    drop = nn.Dropout(0.5)
    step = perceptron(lambda loss, n: loss, drop)

    def changed(n: int) -> Any:
        drop.p = 0.1 + n / 100
        return step(n)

    return changed


TABLE = Tensor(np.linspace(0, 1, 64, dtype=np.float32)).realize()


@pytest.mark.parametrize(
    ("made", "like", "added"),  # calls of two steps, for new memory: a bound that does not grow with what a step does
    [
        (
            lambda: perceptron(lambda loss, n: loss * ((n + 1) / 1000)),
            lambda: perceptron(lambda loss, n: loss * 0.25),
            112,
        ),
        (lambda: perceptron(lambda loss, n: loss * (n + 1)), lambda: perceptron(lambda loss, n: loss * 2), 112),
        (lambda: perceptron(lambda loss, n: loss / (1 + n / 7)), lambda: perceptron(lambda loss, n: loss / 3), 112),
        (lambda: perceptron(lambda loss, n: loss * TABLE[n]), lambda: perceptron(lambda loss, n: loss * TABLE[5]), 138),
        (a_rate_of_the_optimiser, lambda: a_rate_of_the_optimiser(False), 112),
        (a_chance, lambda: perceptron(lambda loss, n: loss, nn.Dropout(0.5)), 196),
    ],
    ids=["factor", "whole factor", "temperature", "index", "rate", "chance"],
)
def test_a_step_with_a_number_that_changes_is_one_without(
    made: Callable[[], Step], like: Callable[[], Step], added: int
) -> None:
    fixed, step = Work(warm(like()), range(6, 10)), made()
    assert not Work(warm(step, 3), range(3, 6)).plans
    work = Work(step, range(6, 10))
    assert (work.plans, work.misses) == (0, fixed.misses)
    assert work.nodes <= fixed.nodes + 2 * 4
    assert work.calls <= fixed.calls + added


def test_a_leaf_of_numbers_that_follow_from_none_is_the_same_in_each_round() -> None:
    """Points at which a network is derived by its arguments, made of `linspace`, `eye` and their kin."""
    model, grid = nn.Linear(2, 3), Tensor.linspace(-1, 1, 16).reshape(8, 2)
    made = [
        lambda: grid.clone().detach().requires_grad_(),
        lambda: Tensor.linspace(0, 1, 16).reshape(8, 2).requires_grad_(),
        lambda: nn.Parameter(Tensor.eye(8)[:, :2]),
        lambda: Tensor.arange(16).float().reshape(8, 2).requires_grad_(),
    ]
    for make in made:

        def step(n: int, make: Callable[[], Tensor] = make) -> float:
            x = make()
            (model(x) ** 2).sum().backward()
            assert x.grad is not None
            return x.grad.sum().item()

        work = Work(warm(step), range(6, 10))
        assert (work.plans, work.misses) == (0, 0)


@pytest.mark.parametrize("reads", [True, False])
def test_a_parameter_that_is_made_of_itself_in_each_round_is_computed(reads: bool) -> None:
    """A codebook that follows its means (VQ-VAE): its graph, and the memory below it, grew with every round."""
    model, held = nn.Linear(3, 3), [nn.Parameter(Tensor(np.ones((4, 3), np.float32)))]
    expected = np.ones((4, 3), np.float32)

    def step(n: int) -> float:
        nonlocal expected
        x = Tensor(np.full((8, 3), n / 8, np.float32))
        loss = ((model(x) + (held[0].detach().sum(0) if reads else 0)) ** 2).mean()
        held[0] = nn.Parameter(held[0] * 0.9 + 0.1 * x[:4])
        expected = expected * 0.9 + np.float32(0.1) * n / 8
        loss.backward()
        return loss.item()

    Work(warm(step), range(6, 10))
    work = Work(step, range(10, 14))
    assert (work.plans, work.misses) == (0, 0)
    np.testing.assert_allclose(held[0].tolist(), expected, rtol=1e-5)


def test_a_dropout_of_nothing_is_a_part_of_its_models_call() -> None:
    plain = Work(warm(perceptron()), range(6, 10))
    drop = nn.Dropout(0.0)
    step = warm(perceptron(lambda loss, n: loss, drop))
    work = Work(step, range(6, 10))
    assert (work.plans, work.misses) == (0, 0)
    assert work.calls <= 1.03 * plain.calls
    drop.p = 1.0
    assert step(0) == pytest.approx(step(1), abs=0.01)  # of the last bias alone


def test_a_steps_calls_are_few_for_each_parameter() -> None:
    def calls(layers: int) -> int:
        more = [nn.Linear(16, 16) for _ in range(layers)]
        return Work(warm(perceptron(lambda loss, n: loss, *more)), range(6, 10)).calls

    assert calls(12) - calls(2) <= 2 * 20 * 18


def test_dropout_draws_without_making_nodes() -> None:
    late.forget()  # in another test the chance varies
    work = Work(warm(perceptron(lambda loss, n: loss, nn.Dropout(0.5))), range(4))
    assert (work.plans, work.misses) == (0, 0)
    assert work.nodes <= 2 * 5


def read(loss: Tensor, n: int) -> Tensor:
    loss.item()
    return loss


def test_a_loss_that_was_read_is_known_to_its_backward() -> None:
    work = Work(warm(perceptron(read)), range(4))
    assert (work.plans, work.misses) == (0, 0)
    assert work.nodes <= 2 * 6
    assert work.calls <= Work(warm(perceptron()), range(4)).calls + 2 * 204  # of another launch, and a look behind it


def test_values_behind_a_loss_that_was_read_get_their_gradients() -> None:
    w = Tensor(np.linspace(-1, 1, 6, dtype=np.float32), requires_grad=True)
    for n in range(6):
        y = (w * (n + 1)).tanh()
        loss = (y * y).sum()
        value = loss.item()
        later = loss * 3 + y.sum()
        later.backward()
        t = np.tanh(w.numpy() * (n + 1))
        assert w.grad is not None
        np.testing.assert_allclose(value, (t * t).sum(), rtol=1e-5)
        np.testing.assert_allclose(w.grad.numpy(), (6 * t + 1) * (1 - t * t) * (n + 1), rtol=1e-4, atol=1e-6)
        w.grad = None


def test_a_state_that_calls_of_the_host_go_into_is_computed_once() -> None:
    state, found = Tensor(np.ones(3, np.float32)), []

    def turn() -> None:
        nonlocal state
        state = host_call(np.cos, ((3,), "float32"), state * 0.5) + 1
        found.append((state * 2).sum().item())

    wanted, x = [], np.ones(3, np.float32)
    for _ in range(8):
        x = np.cos(x * np.float32(0.5)) + 1
        wanted.append(2 * x.sum())
    before = [cache_statistics()[1]]
    for _ in range(8):
        turn()
        before.append(cache_statistics()[1])
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert before[5] == before[-1]


def test_what_is_read_one_after_another_is_computed_together() -> None:
    """The first pointers back of a chain are read when the last one was, which took all of the chain."""
    table = Tensor(np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32))

    def chain() -> int:
        score, back = table[0], []
        for _ in range(7):
            score, pointer = (score.unsqueeze(1) + table).max(0)
            back.append(pointer)
        at = int(score.argmax())
        for pointer in reversed(back):
            at = int(pointer[at])
        return at

    before = cache_statistics()[1]
    first = chain()
    assert cache_statistics()[1] - before <= 4
    assert chain() == first


def test_a_loop_is_bound_to_the_memory_of_two_rounds_and_no_more() -> None:
    xs = Tensor(np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4))
    bound: list[object] = []
    prepare = turns._BoundLoop._prepare

    def preparing(self: Any) -> None:
        bound.append(self)
        prepare(self)

    def turn(n: int) -> float:
        last, rows = an.scan(lambda c, x: (c * 0.5 + x, c.sum()), Tensor.zeros(4) + n, xs)
        return float((last.sum() + rows.sum()).item())

    wanted = [turn(n) for n in range(8)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns._BoundLoop, "_prepare", preparing)
        assert [turn(n) for n in range(8)] == wanted
        assert len(bound) <= turns._KEPT
        get_device("cpu").end_idle()  # memory is short: what is kept is given back, and made again
        assert [turn(n) for n in range(8)] == wanted


SIZES = range(43, 63)  # the memory of no two steps is of one size


def sized() -> Step:
    """A step of training with a batch of `size` examples."""
    model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 5))
    optimiser = optim.Adam(model.parameters())
    rows = np.random.default_rng(0).standard_normal((63, 20)).astype(np.float32)

    def step(size: int) -> float:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(Tensor(rows[:size])), Tensor(np.arange(size) % 5))
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


def test_sizes_that_come_again_are_bound_to_memory_once() -> None:
    """20 sizes, then again: the memory that the first turn of a size was bound to is that of its second."""
    step, device, bound = sized(), get_device("cpu"), []
    prepare = device.prepare

    def preparing(*args: Any) -> Any:
        bound.append(args)
        return prepare(*args)

    def turns(sizes: Sequence[int]) -> int:
        """The calls of a turn of all sizes."""
        return counted(lambda: [step(size) for size in sizes]).calls

    fixed = [turns([30] * len(SIZES)) for _ in range(2)][-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "prepare", preparing)
        turns(SIZES)
        used, first = device._in_use, len(bound)
        again, plans = turns(SIZES), cache_statistics()[1]
    assert first == len(SIZES)
    assert len(bound) - first <= 2  # the first size read what was there before
    assert again <= 1.3 * fixed
    turns(SIZES)
    assert cache_statistics()[1] == plans
    assert device._in_use <= used


def test_new_memory_ends_what_was_kept_longest_and_no_more() -> None:
    """Else sizes that come again after another program are bound anew: each new one would end what others kept."""
    device, pieces = get_device("cpu"), [(8 << 20, dtypes.float32)]
    device.end_idle()
    kept = [launch.Scratch(device) for _ in range(3)]
    for scratch in kept:
        scratch.take(pieces)
        scratch.done(pieces)
    device.free_all([device.alloc(1_234_567, dtypes.float32)])
    assert [s.nbytes for s in kept] == [0, 32 << 20, 32 << 20]
