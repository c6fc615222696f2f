"""Loops without jit that call the host: a round makes no node and no plan anew, and calls each function once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import anneal as an
from anneal import fft, linalg, nn, optim, settings
from anneal.backend import get_device
from anneal.errors import LinAlgError
from anneal.nn import functional as F
from anneal.runtime import HostFunction, cache_statistics, here, watched
from anneal.tensor import Tensor, host_call
from tests.runtime.test_eager_work import Work, warm

Step = Callable[[int], Any]
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((30, 4)).astype(np.float32)
SEEN = RNG.standard_normal((64, 2)).astype(np.float32)
SQUARE = (ROWS.T @ ROWS / 30 + np.eye(4)).astype(np.float32)

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "solve": lambda a: linalg.solve(a, a[0]),
    "inv": linalg.inv,
    "det": linalg.det,
    "slogdet": lambda a: linalg.slogdet(a).logabsdet,
    "cholesky": linalg.cholesky,
    "qr": lambda a: linalg.qr(a).R,
    "svd": lambda a: linalg.svd(a).S,
    "eigh": lambda a: linalg.eigh(a).eigenvalues,
    "pinv": linalg.pinv,
    "lstsq": lambda a: linalg.lstsq(a, a).solution,
    "matrix_exp": linalg.matrix_exp,
    "cond": linalg.cond,
    "nuclear norm": lambda a: linalg.matrix_norm(a, "nuc"),
    "rfft": fft.rfft,
    "irfft": lambda a: fft.irfft(fft.rfft(a)),
    "fft2": lambda a: fft.fft2(fft.pairs(a)),
    "gammainc": lambda a: an.special.gammainc(a.abs(), a.abs()),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("derived", [False, True], ids=["values", "gradients"])
def test_a_warm_call_makes_nothing_anew(name: str, derived: bool, device: str) -> None:
    f = CALLS[name]
    derived = derived and name != "gammainc"
    start = Tensor(SQUARE, requires_grad=derived)
    optimiser = optim.SGD([start], 1e-3) if derived else None

    def step(n: int) -> float:
        loss = f(start).square().sum()
        if optimiser:
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return cast(float, loss.item())

    work = Work(warm(step), range(8))
    assert (work.misses, work.nodes, work.plans) == (0, 0, 0)
    assert work.calls <= 4 * (900 if derived else 600)


# -- programs ---------------------------------------------------------------------------------------------------------


def _natural_gradient() -> Step:
    x, y, w = Tensor(ROWS), Tensor(ROWS[:, 0] > 0).float(), Tensor.zeros(4, requires_grad=True)

    def step(n: int) -> list[float]:
        p = (x @ w).sigmoid()
        loss = F.binary_cross_entropy(p, y)
        (g,) = an.autograd.grad(loss, w)
        with an.no_grad():
            fisher = x.T @ (x * (p * (1 - p)).unsqueeze(-1)) / 30 + 1e-3 * an.eye(4)
            w.sub_(0.5 * linalg.solve(fisher, g))
        return [loss.item(), w.sum().item()]

    return step


def _read_before() -> Step:
    """The loss, and what it is made of, is read before the backward and behind it."""
    a, b = Tensor(SQUARE, requires_grad=True), Tensor(ROWS[0])
    optimiser = optim.SGD([a], 0.01)

    def step(n: int) -> list[float]:
        optimiser.zero_grad()
        x = linalg.solve(a, b)
        loss = x.square().sum()
        read = [loss.item(), x.sum().item()]
        loss.backward()
        optimiser.step()
        return [*read, a.sum().item()]

    return step


def _filter(length: int = 6) -> Step:
    """The likelihood of a Kalman filter, and its gradient."""
    f, h = Tensor(np.eye(4, dtype=np.float32) * 0.9, requires_grad=True), Tensor(ROWS[:2])
    optimiser = optim.SGD([f], 1e-3)

    def step(n: int) -> float:
        optimiser.zero_grad()
        x, p, total = an.zeros(4), an.eye(4), Tensor(0.0)
        for z in SEEN[:length]:
            x, p = f @ x, f @ p @ f.T + 0.1 * an.eye(4)
            r, s = Tensor(z) - h @ x, h @ p @ h.T + 0.5 * an.eye(2)
            k = linalg.solve(s, h @ p).T
            x, p = x + k @ r, p - k @ h @ p
            total = total + r @ linalg.solve(s, r) + linalg.slogdet(s).logabsdet
        total.backward()
        optimiser.step()
        return cast(float, total.item())

    return step


def _online() -> Step:
    """A filter whose state goes on from round to round."""
    f, h = Tensor(np.eye(4, dtype=np.float32) * 0.9), Tensor(ROWS[:2])
    x, p = an.zeros(4), an.eye(4)

    def step(n: int) -> float:
        nonlocal x, p
        x, p = f @ x, f @ p @ f.T + 0.1 * an.eye(4)
        r, s = Tensor(SEEN[n]) - h @ x, h @ p @ h.T + 0.5 * an.eye(2)
        k = linalg.solve(s, h @ p).T
        x, p = x + k @ r, p - k @ h @ p
        return cast(float, (r @ linalg.solve(s, r)).item())

    return step


def _retracted() -> Step:
    """Descent among orthogonal matrices: a leaf is made of each round's result."""
    x, y = Tensor(ROWS), Tensor(ROWS[:, :2])
    w = linalg.qr(Tensor(SQUARE[:, :2])).Q.detach().requires_grad_(True)

    def step(n: int) -> float:
        nonlocal w
        loss = F.mse_loss(x @ w, y)
        (g,) = an.autograd.grad(loss, w)
        w = linalg.qr(w.detach() - 0.1 * g).Q.requires_grad_(True)
        return cast(float, loss.item())

    return step


def _spectral() -> Step:
    an.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 16))
    optimiser = optim.Adam(model.parameters(), 0.01)
    x, y = Tensor(ROWS), Tensor(np.tile(ROWS, 4))

    def step(n: int) -> float:
        optimiser.zero_grad()
        made = model(x)
        loss = F.mse_loss(made, y) + (fft.rfft(made) - fft.rfft(y)).abs().mean()
        loss.backward()
        optimiser.step()
        return cast(float, loss.item())

    return step


def _normal() -> Step:
    mean, scale = Tensor.zeros(4, requires_grad=True), Tensor(0.1 * np.eye(4, dtype=np.float32), requires_grad=True)
    optimiser, x = optim.Adam([mean, scale], 0.01), Tensor(ROWS)

    def step(n: int) -> float:
        optimiser.zero_grad()
        normal = an.distributions.MultivariateNormal(mean, scale_tril=scale.tril() + an.eye(4))
        loss = -normal.log_prob(x).mean()
        loss.backward()
        optimiser.step()
        return cast(float, loss.item())

    return step


# by program: the calls of the host in a round, and nodes that may be made in it
PROGRAMS: dict[str, tuple[Callable[[], Step], int, int]] = {
    "natural gradient": (_natural_gradient, 1, 160),
    "read before the backward": (_read_before, 2, 16),
    "a filter": (_filter, 35, 40),
    "an online filter": (_online, 2, 16),
    "a retraction": (_retracted, 1, 150),
    "a spectral loss": (_spectral, 3, 0),
    "a normal distribution": (_normal, 2, 0),
}


class Called(Counter[str]):
    """The functions of the host that are called in a block, by name."""

    def __enter__(self) -> Called:
        self._patch = pytest.MonkeyPatch()
        called = HostFunction.called

        def counted(function: HostFunction, *args: Any) -> Any:
            self[function.name] += 1
            return called(function, *args)

        self._patch.setattr(HostFunction, "called", counted)
        return self

    def __exit__(self, *error: object) -> None:
        self._patch.undo()


@pytest.mark.parametrize("name", PROGRAMS)
def test_rounds_call_each_function_once(name: str) -> None:
    program, times, nodes = PROGRAMS[name]
    step = warm(program())
    with Called() as called:
        for n in range(6, 10):
            step(n)
    assert called.total() == 4 * times, called
    work = Work(step, range(10, 18))
    assert (work.misses, work.plans) == (0, 0)
    assert work.nodes <= 4 * nodes


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_calls_at_once(name: str, device: str) -> None:
    with settings.override(replay=False):
        wanted = list(map(PROGRAMS[name][0](), range(8)))
    np.testing.assert_allclose(list(map(PROGRAMS[name][0](), range(8))), wanted, rtol=2e-4, atol=2e-4)


def test_waves_read_what_those_before_computed() -> None:
    """Kernels of a chain of calls grow with its length: none computes again what an earlier launch had."""

    def kernels(length: int) -> int:
        found: list[int] = []
        with watched(lambda sink, step: found.append(step.kernels)):
            _filter(length)(0)
        return sum(found)

    one, two, four = kernels(4), kernels(8), kernels(16)
    assert four - two <= 2.2 * (two - one)


def test_many_launches_stay_bound() -> None:
    """A round of 80 launches with 1,000 kernels binds none of them to memory again."""
    step, device, bound = warm(_filter(40), 8), get_device("cpu"), list[int]()
    with pytest.MonkeyPatch.context() as patch:
        prepare = device.prepare

        def prepared(calls: Any, values: Any = None) -> Any:
            bound.append(len(calls))
            return prepare(calls, values)

        patch.setattr(device, "prepare", prepared)
        for n in range(8, 12):
            step(n)
    assert bound == []


def test_a_call_with_a_key_is_known_and_one_without_is_made() -> None:
    made: list[Any] = []

    def halved(a: Any) -> Any:
        made.append(a)
        return a / 2

    def step(key: Any) -> Step:
        x = Tensor([2.0, 4.0])
        return lambda n: (host_call(halved, ((2,), "float32"), x, key=key) * 2 + 1).sum().item()

    before = Work(warm(step(None)), range(8))
    after = Work(warm(step("half")), range(8))
    assert after.nodes < before.nodes
    assert after.calls < before.calls / 2
    assert len(made) == 2 * (6 + 8)


def test_kept_results_share_no_memory_with_tensors(device: str) -> None:
    """A tensor with the values of a kept result is changed in place: the backward reads the result as it was."""
    grads: list[Any] = []
    a = Tensor(SQUARE, requires_grad=True)
    for _ in range(5):
        a.grad = None
        y = linalg.inv(a)
        loss = y.square().sum()
        loss.item()
        x = y.detach() * 1
        assert x.sum().isfinite().item()
        with an.no_grad():
            x.mul_(100.0)
            y.detach().numpy()
        loss.backward()
        assert a.grad is not None
        grads.append(a.grad.numpy())
    np.testing.assert_allclose(grads, [grads[0]] * 5, rtol=1e-5)


def test_nothing_is_kept_of_rounds_before() -> None:
    step = warm(_read_before(), 8)
    before = len(here.tensors.kept), cache_statistics()
    for n in range(20):
        step(n)
    assert len(here.tensors.kept) <= before[0]
    assert cache_statistics()[1] == before[1][1]


def test_a_matrix_that_is_refused_ends_its_round_alone() -> None:
    a, right = Tensor(SQUARE), Tensor(ROWS[0])
    wanted = np.linalg.solve(SQUARE, ROWS[0]).sum()

    def step(n: int) -> float:
        x = linalg.solve(a * (n != 7), right)
        return cast(float, x.sum().item())

    for n in range(12):
        if n == 7:
            with pytest.raises(LinAlgError, match=r"linalg.solve: the matrix is singular"):
                step(n)
        else:
            assert abs(step(n) - wanted) < 1e-4


@pytest.mark.parametrize("changes", [False, True], ids=["nothing", "a parameter"])
def test_a_step_of_an_optimizer_raises_no_error_of_what_it_computes_along(changes: bool) -> None:
    a, w = Tensor(SQUARE), Tensor(ROWS[0], requires_grad=True)
    optimiser, made, refused = optim.SGD([w], 0.1), an.eye(4), []
    for n in range(10):
        before, made = made, linalg.inv(a * (n != 6))
        if changes:
            w.square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()
        try:
            before.sum().item()
        except LinAlgError:
            refused.append(n)
    assert refused == [7]
    np.testing.assert_allclose(w.detach().numpy(), ROWS[0] * (0.8**10 if changes else 1), rtol=1e-5)


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("how", ["read", "stepped"])
def test_a_lazy_leaf_that_is_computed_under_no_grad_keeps_its_graphs(how: str, replay: bool) -> None:
    """The leaf keeps the gradients of graphs made before a step computes it along, as the loop goes on from it."""
    optimiser = optim.SGD([Tensor([1.0], requires_grad=True)], 0.1)
    with settings.override(replay=replay):
        w = Tensor(SQUARE)
        for _ in range(8):
            w = (w * 1).detach().requires_grad_(True)
            loss = w.square().sum()
            if how == "read":
                with an.no_grad():
                    w.numpy()
            else:
                optimiser.step()
            loss.backward()
            assert w.grad is not None
            np.testing.assert_allclose(w.grad.numpy(), 2 * SQUARE, rtol=1e-5)
            optimiser.step()


SHAPES: dict[str, Callable[[Tensor], Any]] = {
    "vectors": lambda x: linalg.solve(x, x[:, 0]),
    "one axis": lambda x: linalg.inv(x).reshape(-1),
    "an axis more": lambda x: linalg.inv(x).unsqueeze(1),
    "two shapes": lambda x: ((y := linalg.inv(x)).reshape(8, 4), y.flatten(), y, y.mT),
    "parts": lambda x: linalg.svd(x)[:2],
    "a view of a view": lambda x: linalg.cholesky(x @ x.mT + 2 * an.eye(4)).mT.reshape(4, 8),
    "a loop": lambda x: an.scan(lambda c, t: (c + t, c * t), x[0], x)[1].reshape(-1),
}


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "a gradient may come"])
@pytest.mark.parametrize("name", SHAPES)
def test_results_that_are_read_as_they_are_have_their_shapes(name: str, grad: bool, device: str) -> None:
    f, x = SHAPES[name], Tensor(np.stack([SQUARE, 2 * SQUARE]), requires_grad=grad)
    with settings.override(replay=False):
        wanted = [t.numpy() for t in an.tree_leaves(f(x))]
    for n in range(8):
        made = an.tree_leaves(f(x))
        if n % 2:
            an.realize(made)  # together
        for t, array in zip(made, wanted, strict=True):
            assert t.numpy().shape == t.shape == array.shape
            np.testing.assert_allclose(t.numpy(), array, rtol=1e-5)
