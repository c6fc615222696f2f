"""Loops without jit: values, errors and memory are the same whether or not a step is recognised as one that was run."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import nn, optim, settings
from anneal.backend import get_device
from anneal.errors import JitError, PositionError, ShapeError
from anneal.runtime import cache_statistics, emptied, filled
from anneal.runtime.late import _calls, _learn
from anneal.runtime.repeats import Run
from anneal.schedule import clear_cache
from anneal.tensor import Tensor, autograd, functional as F, grad, jit, manual_seed, no_grad, realize, vmap
from tests.fuzz.generate import program
from tests.tiers import on_devices

Loop = Callable[[], list[Any]]
STEPS = 5


def data(step: int, *shape: int) -> Any:
    return np.random.default_rng(step).standard_normal(shape).astype(np.float32)


def both(loop: Loop) -> None:
    """The loop gives the same values, bit for bit, with calls remembered and without."""
    found = []
    for replay in (False, True, True):
        manual_seed(0)
        with settings.override(replay=replay):
            found.append(loop())
    for mine in found[1:]:
        for n, (a, b) in enumerate(zip(found[0], mine, strict=True)):
            assert np.array_equal(a, b, equal_nan=True), f"value {n}: {b}, expected {a}"


def classifier() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def train(model: nn.Module, optimiser: optim.Optimizer, *shape: int) -> list[Any]:
    out = []
    for step in range(STEPS):
        x, y = Tensor(data(step, *shape)), Tensor(np.arange(shape[0]) % 3)
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
        out.append(loss.item())
    return out + [t.numpy() for t in model.parameters()]


def adam() -> list[Any]:
    model = classifier()
    return train(model, optim.Adam(model.parameters(), lr=0.01), 4, 6)


def momentum() -> list[Any]:
    model = classifier()
    return train(model, optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True), 4, 6)


def a_list_as_a_setting() -> list[Any]:
    model = classifier()
    return train(model, optim.AdamW(model.parameters(), lr=0.01, betas=[0.8, 0.9]), 4, 6)  # type: ignore[arg-type]


def convolutions_with_statistics() -> list[Any]:
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 3)
    )
    return train(model, optim.Adam(model.parameters()), 4, 1, 8, 8)


def dropout() -> list[Any]:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    return train(model, optim.Adam(model.parameters()), 4, 6)


def a_rate_that_falls() -> list[Any]:
    w = Tensor(data(0, 3), requires_grad=True)
    optimiser = optim.SGD([w], lr=0.5)
    for step in range(STEPS):
        optimiser.zero_grad()
        (w * w).sum().backward()
        optimiser.step()
        optimiser.param_groups[0]["lr"] = 0.5 / (step + 2)
    return [w.numpy()]


def gradients_that_add_up() -> list[Any]:
    w, out = Tensor(data(0, 3), requires_grad=True), []
    for step in range(STEPS):
        for part in range(3):
            (w * Tensor(data(part, 3))).exp().sum().backward()
        assert w.grad is not None
        out.append(w.grad.numpy())
        with no_grad():
            w -= w.grad * 0.1
        if step % 2:
            w.grad = None
    return [*out, w.numpy()]


def clipped_gradients() -> list[Any]:
    model = classifier()
    optimiser = optim.Adam(model.parameters())
    out = []
    for step in range(STEPS):
        optimiser.zero_grad()
        F.mse_loss(model(Tensor(data(step, 4, 6))), Tensor(data(step + 9, 4, 3))).backward()
        out.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1).item())
        optimiser.step()
    return out


def results_that_are_kept() -> list[Any]:
    """Lazy results of earlier steps, read when what they were computed from has long been changed."""
    w = Tensor(data(0, 4), requires_grad=True)
    optimiser = optim.SGD([w], lr=0.1)
    kept = []
    for step in range(STEPS):
        optimiser.zero_grad()
        y = w * Tensor(data(step, 4))
        kept += [y, y + 1, w.detach() * 2]
        (y * y).sum().backward()
        optimiser.step()
        kept.append(y - 1)
    return [t.numpy() for t in kept]


def a_pending_sum() -> list[Any]:
    total = Tensor([0.0])
    for step in range(STEPS):
        total = total + Tensor(data(step, 5)).sum()
    return [total.numpy()]


def shapes_dtypes_and_numbers_that_change() -> list[Any]:
    out = []
    for step in range(2 * STEPS):
        x = Tensor(data(step, 2 + step % 3, 4))
        if step % 2:
            x = x.cast("float16")
        y = x * (step % 4) + (-0.0 if step % 2 else 0.0)
        out += [y.numpy(), (1 / y).numpy(), x[1:, ::2].sum(0).numpy(), x[0, step % 4].numpy()]
    return out


def changes_in_place() -> list[Any]:
    out = []
    state = Tensor.zeros(4)
    for step in range(STEPS):
        x = Tensor(data(step, 4))
        view, before = x[:2], x * 1
        x += 1
        x[1] = 7.0
        state.assign(state + x)
        out += [x.numpy(), view.numpy(), before.numpy(), state.numpy()]
    return out


def shared_memory() -> list[Any]:
    """`x * y` of two tensors, of one tensor twice, and of two views of one memory."""
    out = []
    for step in range(3 * STEPS):
        x, y = Tensor(data(step, 4)).realize(), Tensor(data(step + 1, 4)).realize()
        pairs = [(x, y), (x, x), (x.reshape(2, 2), x.reshape(2, 2) + 0), (y, x)]
        a, b = pairs[step % 4]
        out.append((a * b - b).numpy())
        p, q = (a * 2), (a * 2)
        realize([p, q])
        out += [p.numpy(), q.numpy()]
    return out


def extremes_that_are_compared() -> list[Any]:
    out = []
    for step in range(STEPS):
        x = Tensor(data(step, 3, 5)).exp() * 1.1
        top = x.max(axis=1, keepdim=True)
        out += [(x == top).numpy(), x.argmax(1).numpy(), x.sort(axis=1)[0].numpy(), x.numpy()]
    return out


def values_that_decide() -> list[Any]:
    x, out = Tensor([1.0, -1.0]), []
    for step in range(STEPS):
        y = x * Tensor(data(step, 2))
        out.append((y * 2 if (y > 0).any() else y * 3).numpy())
        out.append(y[y.numpy() > 0].numpy())
    return out


def losses_read_before_backward() -> list[Any]:
    w, out = Tensor(data(0, 4), requires_grad=True), []
    for step in range(STEPS):
        loss = (w * Tensor(data(step, 4))).tanh().sum()
        out.append(loss.item())
        loss.backward()
        assert w.grad is not None
        out.append(w.grad.numpy())
        w.grad = None
    return out


def two_networks() -> list[Any]:
    maker, judge = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    first, second = optim.Adam(maker.parameters()), optim.Adam(judge.parameters())
    out = []
    for step in range(STEPS):
        made = maker(Tensor(data(step, 5, 3)))
        second.zero_grad()
        (judge(made.detach()).sum() - judge(Tensor(data(step + 50, 5, 4))).sum()).backward()
        second.step()
        first.zero_grad()
        loss = judge(made).sum()
        loss.backward()
        first.step()
        out.append(loss.item())
    return out


def jitted_beside_eager() -> list[Any]:
    w, out = Tensor(data(0, 4)), []

    @jit
    def step(x: Tensor) -> Tensor:
        w.assign(w + x)
        return w * 2

    for n in range(STEPS):
        lazy = w * 3
        out.append(step(Tensor(data(n, 4)) + 1).numpy())
        out += [lazy.numpy(), (w - 1).numpy()]
    return out


def every_optimiser() -> list[Any]:
    makers: list[Callable[[list[Tensor]], optim.Optimizer]] = [
        lambda p: optim.SGD(p, lr=0.01, momentum=0.9, dampening=0.1, maximize=True),
        lambda p: optim.Adam(p, amsgrad=True, weight_decay=0.1),
        optim.AdamW, optim.RMSprop, optim.Adagrad, optim.Adamax, optim.NAdam, optim.RAdam, optim.Adadelta, optim.Lion,
        optim.Muon,
    ]  # fmt: skip
    out = []
    for make in makers:
        w = Tensor(data(0, 4, 4), requires_grad=True)
        optimiser = make([w])
        schedule = optim.lr_scheduler.StepLR(optimiser, 2, 0.5)
        for step in range(4):
            optimiser.zero_grad()
            (w * Tensor(data(step, 4, 4))).tanh().sum().backward()
            optimiser.step()
            schedule.step()
            if step == 2:
                optimiser.param_groups[0]["weight_decay"] = 0.3
        out.append(w.numpy())
    return out


def momentum_that_is_scheduled() -> list[Any]:
    w = Tensor(data(0, 4), requires_grad=True)
    optimiser = optim.SGD([w], lr=0.1, momentum=0.9)
    schedule = optim.lr_scheduler.OneCycleLR(optimiser, 0.2, total_steps=8)
    for step in range(7):
        optimiser.zero_grad()
        (w * Tensor(data(step, 4))).tanh().sum().backward()
        optimiser.step()
        schedule.step()
    return [w.numpy()]


LOOPS = [
    every_optimiser, momentum_that_is_scheduled,
    adam, momentum, a_list_as_a_setting, convolutions_with_statistics, dropout, a_rate_that_falls, gradients_that_add_up,
    clipped_gradients, results_that_are_kept, a_pending_sum, shapes_dtypes_and_numbers_that_change, changes_in_place,
    shared_memory, extremes_that_are_compared, values_that_decide, losses_read_before_backward, two_networks,
    jitted_beside_eager,
]  # fmt: skip


@pytest.mark.parametrize(("device", "loop"), on_devices(LOOPS, test=2, ci=2), indirect=["device"])
def test_a_loop_gives_the_same_values(device: str, loop: Loop) -> None:
    both(loop)


def test_random_programs_run_again_with_other_values() -> None:
    for seed in range(40):
        p = program(seed)
        code = compile("\n".join(p.lines), f"<program {seed}>", "exec")

        def run(code: Any = code, p: Any = p) -> list[Any]:
            out: list[Any] = []
            for turn in range(3):
                scope: dict[str, Any] = {"np": np, "Tensor": Tensor, "F": F}
                for name, dtype, shape, values in p.leaves:
                    # what programs divide by, take roots of or index with keeps its sign and its range
                    array = np.roll(np.array(values, dtype), turn).reshape(shape)
                    scope[name] = Tensor(array, requires_grad=True if name in p.wants_grad else None)
                try:
                    exec(code, scope)
                    results = [scope[n] for n in p.outputs if scope[n] is not None]
                    realize(results)
                    out += [t.numpy() for t in results]
                except Exception as e:
                    out.append(np.array(str(e)))
            return out

        found = []
        for replay in (False, True):
            with settings.override(replay=replay):
                found.append(run())
        for a, b in zip(*found, strict=True):
            assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), f"program {seed}\n{p.source()}"


# -- that it is recognised --------------------------------------------------------------------------------------------


def test_a_step_that_was_run_makes_no_call_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    model = classifier()
    optimiser = optim.Adam(model.parameters())
    missed: list[Any] = []

    def learn(*args: Any) -> Any:
        missed.append(args[1][0])
        return _learn(*args)

    monkeypatch.setattr("anneal.runtime.late._learn", learn)

    def step(n: int) -> None:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(Tensor(data(n, 4, 6))), Tensor(np.arange(4) % 3))
        loss.backward()
        optimiser.step()
        loss.item()

    for n in range(3):
        step(n)
    known, plans = len(_calls), cache_statistics()[1]
    missed.clear()
    for n in range(4):
        step(n)
    assert not missed
    assert len(_calls) == known
    assert cache_statistics()[1] == plans


def test_other_lines_have_their_own_names(device: str) -> None:
    """Equal graphs of two lines are told apart in what a report says of them."""
    kept = []
    for n in range(3):
        kept.append((Tensor(data(n, 77)) * 3).realize())
        kept.append((Tensor(data(n, 77)) * 3).realize())
    lines = {t.uop.arg.line[1] for t in kept}
    assert len(lines) == 2


def test_clear_cache_forgets_calls() -> None:
    (Tensor([1.0]) * 2).numpy()
    assert _calls
    clear_cache()
    assert not _calls


def test_debug_says_what_a_loop_makes_anew(capsys: pytest.CaptureFixture[str]) -> None:
    with settings.override(debug=1):
        for n in range(20):
            Tensor(data(n, 3)).quantile(n / 20).numpy()
    lines = [line for line in capsys.readouterr().err.splitlines() if "@jit" in line]
    assert len(lines) == 1
    assert "quantile was not called with such arguments before" in lines[0]
    assert __file__ in lines[0]


# -- errors -----------------------------------------------------------------------------------------------------------


def test_an_index_out_of_range_is_the_same_error_in_a_known_call() -> None:
    table = Tensor(data(0, 4, 2))
    for n in range(6):
        if n < 5:
            F.embedding(Tensor(np.array([n % 4, 1])), table).numpy()
        else:
            with pytest.raises(PositionError, match="embedding: 9 is out of bounds"):
                F.embedding(Tensor(np.array([9, 1])), table)


def test_an_error_in_the_middle_leaves_a_loop_as_it_was() -> None:
    out = []
    for n in range(6):
        x = Tensor(data(n, 2, 3))
        y = x + 1
        with pytest.raises(ShapeError, match="matmul"):
            y @ x
        out.append(np.array_equal((y * 2).numpy(), (data(n, 2, 3) + 1) * 2))
    assert all(out)


# -- memory and threads -----------------------------------------------------------------------------------------------


def in_use() -> int:
    return get_device("cpu").memory().in_use


def test_results_that_are_dropped_leave_no_memory() -> None:
    before = in_use()
    for n in range(4):
        x = (Tensor(data(n, 5000)) * 3).realize()
        y = (x + 1) * 2
        del x
        assert in_use() > before
        del y
        assert in_use() == before


def test_a_kept_result_keeps_what_it_needs_and_no_more() -> None:
    before = in_use()
    kept = []
    for n in range(3):
        x, other = (Tensor(data(n, 1000)) * 1).realize(), (Tensor(data(n, 50_000)) * 1).realize()
        kept.append(x + 1)
        (other * 2).sum().item()
        del x, other
    assert in_use() - before < 20_000
    assert [np.array_equal(t.numpy(), data(n, 1000) + 1) for n, t in enumerate(kept)] == [True] * 3


def test_the_memory_of_a_loop_stays_flat() -> None:
    model = classifier()
    optimiser = optim.Adam(model.parameters())
    use = []
    for n in range(12):
        optimiser.zero_grad()
        out = model(Tensor(data(n, 4, 6)))
        loss = F.cross_entropy(out, Tensor(np.arange(4) % 3))
        loss.backward()
        optimiser.step()
        use.append(in_use())
    assert len(set(use[3:])) == 1


def test_threads_have_loops_of_their_own() -> None:
    shared = Tensor(data(7, 6))
    found: dict[int, list[bool]] = {}

    def loop(seed: int) -> None:
        for n in range(30):
            x = Tensor(data(seed * 100 + n, 6))
            expected = (data(seed * 100 + n, 6) * data(7, 6) + np.float32(1)) * (data(7, 6) - np.float32(2))
            y = (x * shared + 1) * (shared - 2)
            found.setdefault(seed, []).append(np.allclose(y.numpy(), expected, rtol=1e-6))

    threads = [threading.Thread(target=loop, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {n: [True] * 30 for n in range(3)}


def test_a_late_tensor_may_be_read_by_another_thread() -> None:
    got = []
    for n in range(4):
        x = Tensor(data(n, 6))
        y = (x + 1).exp()
        thread = threading.Thread(target=lambda y=y: got.append(y.numpy()))  # type: ignore[misc]
        thread.start()
        thread.join()
        assert np.allclose(got[-1], np.exp(data(n, 6) + 1), rtol=1e-6)


# -- jit: what is made of numbers, and arrays as arguments -----------------------------------------------------------


def test_a_node_that_another_thread_asks_for_meanwhile_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Tensor] = []
    again = Run.again

    def asking(*args: Any) -> Any:
        made = again(*args)
        for t in asked:
            assert t.uop is not None
        return made

    monkeypatch.setattr(Run, "again", asking)
    for n in range(4):
        x = Tensor(data(n, 3)) * 2
        asked[:] = [x] if n == 3 else []
        assert np.array_equal(x.numpy(), data(n, 3) * 2)


def test_what_is_made_of_the_same_numbers_is_a_constant(device: str) -> None:
    @jit
    def f(x: Tensor) -> Tensor:
        return x * Tensor([1.0, 2.0]) + Tensor(3.0) + Tensor(np.ones(2, np.float32))

    assert [f(Tensor([float(n), 1.0])).tolist() for n in range(5)] == [[n + 4.0, 6.0] for n in range(5)]


@pytest.mark.parametrize("make", [lambda n: Tensor([n]), lambda n: Tensor(n), lambda n: Tensor(np.array([n]))])
def test_what_is_made_of_other_numbers_is_an_error_with_its_line(make: Callable[[float], Tensor]) -> None:
    rng = np.random.default_rng(0)

    @jit
    def f(x: Tensor) -> Tensor:
        return x + make(float(sys.modules[__name__].NUMBERS.pop()))

    @jit
    def g(x: Tensor) -> Tensor:
        return x + make(rng.random())

    globals()["NUMBERS"] = [1, 2, 3]
    for h, said in ((f, "made from host data"), (g, "drew a random number")):
        h(Tensor([1.0]))
        with pytest.raises(JitError, match=rf"({said}|computes with).*{__file__}"):
            h(Tensor([1.0]))
            h(Tensor([1.0]))  # a third run confirms that a number differs


def test_arrays_are_tensors() -> None:
    @jit
    def f(x: Tensor, more: dict[str, Any]) -> Tensor:
        assert isinstance(x, Tensor)
        return x + more["y"][0]

    for n in range(5):
        assert f(np.full(3, n, np.float32), {"y": [np.ones(3, np.float32)]}).tolist() == [n + 1.0] * 3  # type: ignore[arg-type]
    assert len(f.captures) == 1


# -- graphs that do not grow ------------------------------------------------------------------------------------------


def recurrent_state() -> Callable[[int], None]:
    cell = nn.GRUCell(3, 4)
    optimiser = optim.SGD(cell.parameters(), lr=0.1)
    state = [Tensor(data(0, 2, 4))]

    def step(n: int) -> None:
        h = cell(Tensor(data(n, 2, 3)), state[0])
        state[0] = h.detach()
        optimiser.zero_grad()
        (h * h).sum().backward()
        optimiser.step()

    return step


def average_of_weights() -> Callable[[int], None]:
    model, average = nn.Linear(3, 2), nn.Linear(3, 2)
    optimiser = optim.SGD(model.parameters(), lr=0.1)

    def step(n: int) -> None:
        optimiser.zero_grad()
        model(Tensor(data(n, 4, 3))).sum().backward()
        optimiser.step()
        with no_grad():
            for p, q in zip(average.parameters(), model.parameters(), strict=True):
                p.mul_(0.9).add_(q, alpha=0.1)

    return step


def descent_by_hand() -> Callable[[int], None]:
    w = Tensor(data(0, 3), requires_grad=True)

    def step(n: int) -> None:
        loss = (w * Tensor(data(n, 4, 3))).tanh().sum()
        loss.backward()
        with no_grad():
            assert w.grad is not None
            w.sub_(w.grad * 0.1)
        w.grad = None
        loss.item()

    return step


def descent_by_functions() -> Callable[[int], None]:
    """What a loss of all parameters reads was made of tensors by transforms, outside which ops are late."""
    model = nn.Linear(3, 1)
    state = [{k: v.detach() for k, v in model.named_parameters()}]

    def loss_of(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return nn.functional_call(model, params, x).tanh().sum()

    def step(n: int) -> None:
        each = vmap(grad(loss_of), in_dims=(None, 0))(state[0], Tensor(data(n, 4, 3)))
        state[0] = {k: p - each[k].mean(0) * 0.1 for k, p in state[0].items()}
        loss_of(state[0], Tensor(data(n, 4, 3))).item()

    return step


def new_parameters() -> Callable[[int], None]:
    """A parameter, a buffer and a tensor that each round makes of results of the one before."""
    model = nn.Linear(3, 1)
    model.scale, state = nn.Buffer([1.0]), [Tensor([0.0])]

    def step(n: int) -> None:
        loss = (model(Tensor(data(n, 4, 3))) * model.scale + state[0]).tanh().sum()
        loss.backward()
        assert model.weight.grad is not None
        model.weight = nn.Parameter(model.weight.detach() - model.weight.grad * 0.1)
        model.scale = nn.Buffer(model.scale * 0.99)
        state[0] = Tensor(state[0] * 0.5 + 1.0)
        loss.item()

    return step


def penalty_on_slopes() -> Callable[[int], None]:
    """The gradient of a lazy leaf, as a critic's penalty has it."""
    critic = classifier()
    optimiser = optim.SGD(critic.parameters(), lr=0.1)

    def step(n: int) -> None:
        x = (Tensor(data(n, 4, 6)) * 0.5 + Tensor(data(n + 1, 4, 6))).requires_grad_()
        (slopes,) = autograd.grad(critic(x).sum(), [x], create_graph=True)
        optimiser.zero_grad()
        loss = ((slopes.norm(dim=1) - 1) ** 2).mean()
        loss.backward()
        optimiser.step()
        loss.item()

    return step


@pytest.mark.parametrize(
    "make",
    [recurrent_state, average_of_weights, descent_by_hand, descent_by_functions, new_parameters, penalty_on_slopes],
)
def test_what_a_loop_carries_on_does_not_grow(make: Callable[[], Callable[[int], None]]) -> None:
    step = make()
    for n in range(12):  # a module that was called often enough is known as a whole
        step(n)
    known, plans = len(_calls), cache_statistics()[1]
    for n in range(12, 17):
        step(n)
    assert (len(_calls), cache_statistics()[1]) == (known, plans)


@pytest.mark.parametrize("computed", [False, True])
def test_lazy_leaves_of_one_graph_have_their_own_gradients(computed: bool) -> None:
    """Also where those before are gone, and losses of them were left lazy by a realize."""
    c, w = Tensor([1.0, 2.0]), Tensor([3.0, 5.0], requires_grad=True)
    losses: list[Tensor] = []
    x = c
    for n in range(4):
        x = (c * 2 + 1).requires_grad_()
        losses.append((x * w * float(n + 1)).sum())
        if computed:
            (c + float(n)).tolist()
    for loss in losses:
        loss.backward()
    assert x.grad is not None
    assert w.grad is not None
    assert x.grad.tolist() == [12.0, 20.0]
    assert w.grad.tolist() == [30.0, 50.0]


@pytest.mark.parametrize("made", [lambda: Tensor(2.0, requires_grad=True), lambda: Tensor.ones(1, requires_grad=True)])
def test_a_leaf_that_reads_no_memory_gets_its_gradient(made: Callable[[], Tensor]) -> None:
    for _ in range(4):
        x, y = Tensor([1.0, 2.0], requires_grad=True), made()
        parts = Tensor.atleast_1d(x, y)
        ((x * x).sum() + (y.reshape(-1) ** 2).sum() + (parts[1] ** 2).sum()).backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2.0, 4.0]
        assert y.grad is not None
        assert y.grad.sum().item() == 4 * y.sum().item()


def test_several_results_end_with_their_names() -> None:
    """No circle of references holds what a remembered call gave: its memory is free for the next round at once."""

    def halves(x: Tensor) -> tuple[Tensor, Tensor, dict[str, slice]]:
        return x * 2, x + 1, {"rows": slice(0, 2)}

    gc.disable()
    try:
        taken: list[Any] = []
        for nest in (emptied((Tensor([1.0]), [Tensor([2.0])]), taken), filled(emptied([Tensor([3.0])]), iter(taken))):
            del nest
        ends = [weakref.ref(t) for t in taken]
        taken.clear()
        assert [end() for end in ends] == [None, None]
        lstm, kept = nn.LSTM(3, 4), []
        for step in range(8):
            x = Tensor(data(step, 5, 2, 3))
            out, (h, _) = lstm(x)
            a, b, _ = halves(out)
            (a.sum() + b.sum() + h.sum()).item()
            kept.append([weakref.ref(t) for t in (out, h, a, b)])
            del out, h, a, b, _
        assert [ref() for refs in kept[:-1] for ref in refs] == [None] * 4 * (len(kept) - 1)
    finally:
        gc.enable()


NEW_LEAVES: dict[str, Callable[[], Tensor]] = {
    "zeros": lambda: Tensor.zeros(4, requires_grad=True),
    "ones": lambda: Tensor.ones(4).requires_grad_(),
    "a number": lambda: Tensor(0.9, requires_grad=True),
    "a parameter": lambda: nn.Parameter(Tensor.full((2, 4), 0.5)),
    "like another": lambda: Tensor([1.0, 2.0]).zeros_like().requires_grad_(),
}


@pytest.mark.parametrize("name", NEW_LEAVES)
def test_a_constant_leaf_of_each_round_is_known(name: str) -> None:
    """As the perturbation of an attack is: no plan is made after the first rounds, and its gradient is its own."""
    known: list[tuple[int, int]] = []
    for _ in range(8):
        leaf = NEW_LEAVES[name]()
        ((leaf * 2 + 1) ** 2).sum().backward()
        assert leaf.grad is not None
        np.testing.assert_allclose(leaf.grad.numpy(), 8 * leaf.detach().numpy() + 4, rtol=1e-6)
        known.append((len(_calls), cache_statistics()[1]))
    assert len(set(known[4:])) == 1, "calls and plans"
