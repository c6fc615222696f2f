"""The memory of a loop's results is written anew by later rounds, and by nobody else's leave (`runtime/launch.py`)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from anneal import nn, optim, settings
from anneal.backend import get_device
from anneal.nn import functional as F
from anneal.runtime import here, launch
from anneal.schedule import clear_cache
from anneal.tensor import Tensor, jit, no_grad, realize

STEPS = 9
Array = npt.NDArray[Any]


def data(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def trained(watch: Callable[[int, nn.Linear, optim.Adam, Tensor, list[Any]], None]) -> list[Any]:
    """What `watch` puts into a list in each step of a loop, and the weights at the end."""
    model = nn.Linear(3, 2)
    model.weight.assign(Tensor(data(1, 2, 3)))
    model.bias.assign(Tensor(data(2, 2)))
    optimiser, found = optim.Adam(model.parameters(), lr=0.1), []
    for step in range(STEPS):
        optimiser.zero_grad()
        loss = F.mse_loss(model(Tensor(data(step, 4, 3))), Tensor(data(step + 50, 4, 2)))
        loss.backward()
        optimiser.step()
        watch(step, model, optimiser, loss, found)
    return [x.numpy() if isinstance(x, Tensor) else x for x in found] + [model.weight.numpy(), model.bias.numpy()]


KEPT: list[Any] = []


def losses(step: int, model: nn.Linear, optimiser: optim.Adam, loss: Tensor, found: list[Any]) -> None:
    found.append(loss)


def copies(step: int, model: nn.Linear, optimiser: optim.Adam, loss: Tensor, found: list[Any]) -> None:
    found += [model.weight.detach(), model.weight.clone(), model.weight.reshape(6)]


def lazy_graphs(step: int, model: nn.Linear, optimiser: optim.Adam, loss: Tensor, found: list[Any]) -> None:
    found.append(model.weight * 2 + loss)


def moments(step: int, model: nn.Linear, optimiser: optim.Adam, loss: Tensor, found: list[Any]) -> None:
    found += [Tensor(t) for state in optimiser.state.values() for t in state.values()]


def state_dicts(step: int, model: nn.Linear, optimiser: optim.Adam, loss: Tensor, found: list[Any]) -> None:
    found += model.state_dict().values()


def loaded_again(step: int, model: nn.Linear, optimiser: optim.Adam, loss: Tensor, found: list[Any]) -> None:
    if step == 3:
        KEPT[:] = [{k: Tensor(t) for k, t in model.state_dict().items()}]
    if step == 6:
        model.load_state_dict(KEPT[0])
    found.append(loss.item())


def sums(step: int, model: nn.Linear, optimiser: optim.Adam, loss: Tensor, found: list[Any]) -> None:
    found.append(loss if not found else found[-1] + loss)


def averages(step: int, model: nn.Linear, optimiser: optim.Adam, loss: Tensor, found: list[Any]) -> None:
    if not found:
        found += [Tensor(model.weight.numpy()), Tensor(np.zeros(()), dtype="float32")]
    with no_grad():
        found[0].mul_(0.9).add_(model.weight, alpha=0.1)
        found[1] = found[1] + loss.detach()
    if step % 3 == 2:
        realize(found[:2])


def gradients(step: int, model: nn.Linear, optimiser: optim.Adam, loss: Tensor, found: list[Any]) -> None:
    found += [model.weight.grad, model.bias.grad]


def swapped(step: int, model: nn.Linear, optimiser: optim.Adam, loss: Tensor, found: list[Any]) -> None:
    if step % 2:
        with no_grad():
            model.weight.copy_(model.weight.flip(0))
            model.bias.data = model.bias.data * 0.5
    found.append(loss)


WATCHES = [
    losses, copies, lazy_graphs, moments, state_dicts, loaded_again, sums, averages, gradients, swapped,
]  # fmt: skip


@pytest.mark.parametrize("watch", WATCHES)
def test_what_is_kept_keeps_its_values(device: str, watch: Any) -> None:
    found = []
    for replay in (False, True):
        with settings.override(replay=replay):
            found.append(trained(watch))
    assert len(found[0]) == len(found[1])
    # what a loop carries on is a kernel of its own there, and a GPU fuses multiply and add as it likes
    near = 0.0 if device == "cpu" else 1e-6
    assert [n for n, (a, b) in enumerate(zip(*found, strict=True)) if not np.allclose(a, b, rtol=near, atol=0)] == []


def buffers_of(watch: Any) -> list[int]:
    """The memory of the weight after each step, by id."""
    ids: list[int] = []

    def noting(step: int, model: nn.Linear, optimiser: optim.Adam, loss: Tensor, found: list[Any]) -> None:
        ids.append(id(model.weight.uop.src[0].arg.buffer))
        watch(step, model, optimiser, loss, found)

    trained(noting)
    return ids


@pytest.mark.parametrize("watch", [losses, lambda *args: None])
def test_two_rounds_take_turns(device: str, watch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss that is kept gets memory of its own: the parameters' is not left to it."""
    made: list[launch.Round] = []
    round_of = launch.Round

    def counted(*args: Any) -> launch.Round:
        made.append(round_of(*args))
        return made[-1]

    clear_cache()
    monkeypatch.setattr(launch, "Round", counted)
    ids = buffers_of(watch)
    assert ids[-4:-2] == ids[-2:]
    assert len(made) == 2


def test_a_capture_that_read_a_round_reads_the_present_values(device: str) -> None:
    w = Tensor(data(0, 4), requires_grad=True)
    optimiser = optim.SGD([w], lr=0.1)
    double = jit(lambda: w.detach() * 2)
    for step in range(8):
        optimiser.zero_grad()
        (w * Tensor(data(step, 4))).tanh().sum().backward()
        optimiser.step()
        assert np.array_equal(double().numpy(), w.numpy() * 2)


def test_a_capture_may_update_what_a_loop_made(device: str) -> None:
    w = Tensor(data(0, 4))
    expected = data(0, 4)

    @jit
    def doubled() -> None:
        w.assign(w * 2)

    for step in range(12):
        w.assign(w + Tensor(data(step, 4)))
        w.realize()
        expected = expected + data(step, 4)
        if step % 3 == 0:
            doubled()
            expected = expected * 2
        assert np.allclose(w.numpy(), expected, rtol=1e-5)


def test_memory_that_nobody_uses_is_not_in_use() -> None:
    def in_use() -> int:
        return get_device("cpu").memory().in_use

    before = in_use()
    trained(losses)
    assert in_use() == before


def test_a_round_is_let_go_before_memory_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing of the kind is in the pool, memory that waits for a round that may never come is taken."""
    device = get_device("cpu")
    gc.collect()
    device.empty_cache()
    before = set(device._look_at_idle())
    size = (
        1000 + device._in_use // 4
    )  # what waits is taken where it is much beside what is used, by tests before this one
    for n in range(5):
        (Tensor(data(n, size)) * 3).realize()
    waiting = set(device._look_at_idle()) - before
    assert waiting
    monkeypatch.setattr(device.pool, "budget", 0)
    (Tensor(data(0, size + 6777)) * 3).realize()
    assert not waiting & set(device._look_at_idle())


def test_a_loop_that_begins_with_a_constant_goes_on_from_memory() -> None:
    """t-SNE's search writes into parts of `ones(n)` and reads another value: what is assigned has no memory below, and
    its graph would be longer in each round, with a plan of its own."""
    sizes = []
    for count in (20, 60):
        beta = Tensor.ones(4, device="cpu")
        x = Tensor([1.0, 2.0, 3.0], device="cpu")
        before = here.context.plans_made
        for n in range(count):
            beta[1] = beta[1] * 1.25 if n % 2 else beta[1] / 1.25
            assert (x * beta[1]).sum().item() == pytest.approx(6.0 if n % 2 else 4.8, rel=1e-4)
        sizes.append(here.context.plans_made - before)
    assert sizes[1] <= sizes[0] <= 16


def test_results_larger_than_what_a_device_keeps_are_written_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that the device forgets while it is being written goes once it was."""
    monkeypatch.setattr(get_device("cpu").pool, "budget", 1)
    w = Tensor(np.ones((64, 64), np.float32), requires_grad=True)
    optimiser = optim.SGD([w], lr=0.1)
    for turn in range(8):
        optimiser.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        optimiser.step()
        np.testing.assert_allclose(loss.item(), 4096 * 0.64**turn, rtol=1e-5)


def test_a_loop_keeps_the_temporaries_of_its_step_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporaries of a large model exceed the pool of freed memory; allocating them in each step took half of it."""
    device: Any = get_device("cpu")
    monkeypatch.setattr(device.pool, "budget", 900_000)  # less than the temporaries
    first, last = (Tensor(np.full((256, 256), 0.01, np.float32), requires_grad=True) for _ in range(2))
    optimiser = optim.SGD([first, last], lr=1e-3)
    made = []
    take = launch.Scratch.take
    monkeypatch.setattr(launch.Scratch, "take", lambda x, kinds: x.own or made.append(kinds) or take(x, kinds))

    def step() -> None:
        x = Tensor(np.ones((256, 256), np.float32))
        optimiser.zero_grad()
        loss = (((x @ first).relu() @ last).softmax(-1) ** 2).sum()
        loss.backward()
        optimiser.step()
        loss.item()

    for _ in range(6):
        step()
    made.clear()
    for _ in range(6):
        step()
    assert not made
