"""Optimisers against their formulas in plain NumPy, schedules, clipping, and what a step costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn, optim
from anneal.errors import DataError, GradientError, SettingError, UserError
from anneal.tensor import Tensor, jit, no_grad

Array = np.ndarray[Any, Any]


def sgd(
    g: Callable[[Array], Array], p: Array, lr: float, mom: float = 0, wd: float = 0, nesterov: bool = False
) -> Iterator[Array]:
    b = np.zeros_like(p)
    while True:
        d = g(p) + wd * p
        b = mom * b + d
        p = p - lr * ((d + mom * b) if nesterov else b)
        yield p


def adam(
    g: Callable[[Array], Array], p: Array, lr: float, b1: float, b2: float, eps: float, l2: float, wd: float
) -> Iterator[Array]:
    m, v, t = np.zeros_like(p), np.zeros_like(p), 0
    while True:
        t += 1
        d = g(p) + l2 * p
        p = p * (1 - lr * wd)
        m, v = b1 * m + (1 - b1) * d, b2 * v + (1 - b2) * d * d
        p = p - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        yield p


START = np.random.default_rng(0).standard_normal((3, 4))
GOAL = np.random.default_rng(1).standard_normal((3, 4))
AIM = np.linspace(0.1, 3, 12).reshape(3, 4)


def slope(p: Array) -> Array:
    return 2 * AIM * (p - GOAL)


GOAL_TENSOR, AIM_TENSOR = Tensor(GOAL), Tensor(AIM)


def loss_of(w: Tensor) -> Tensor:
    d = w - GOAL_TENSOR
    return (AIM_TENSOR * d * d).sum()


CASES: list[tuple[str, Callable[[list[Tensor]], nn.Optimizer], Iterator[Array]]] = [
    ("sgd", lambda p: nn.SGD(p, 0.05), sgd(slope, START, 0.05)),
    ("momentum", lambda p: nn.SGD(p, 0.05, 0.9), sgd(slope, START, 0.05, 0.9)),
    (
        "nesterov with decay",
        lambda p: nn.SGD(p, 0.05, 0.8, weight_decay=0.1, nesterov=True),
        sgd(slope, START, 0.05, 0.8, 0.1, True),
    ),
    ("adam", lambda p: nn.Adam(p, 0.1), adam(slope, START, 0.1, 0.9, 0.999, 1e-8, 0, 0)),
    (
        "adam with l2",
        lambda p: nn.Adam(p, 0.1, (0.8, 0.99), 1e-3, 0.2),
        adam(slope, START, 0.1, 0.8, 0.99, 1e-3, 0.2, 0),
    ),
    (
        "adamw",
        lambda p: nn.AdamW(p, 0.1, (0.9, 0.95), 1e-6, 0.3),
        adam(slope, START, 0.1, 0.9, 0.95, 1e-6, 0, 0.3),
    ),
]


@pytest.mark.parametrize(("name", "make", "formula"), CASES, ids=[n for n, _, _ in CASES])
def test_formulas(name: str, make: Callable[[list[Tensor]], nn.Optimizer], formula: Iterator[Array]) -> None:
    w = Tensor(START, requires_grad=True)
    optimizer = make([w])
    for _ in range(6):
        optimizer.zero_grad()
        loss_of(w).backward()
        optimizer.step()
        np.testing.assert_allclose(w.numpy(), next(formula), rtol=2e-6, atol=1e-7)
    assert w.dtype.name == "float64"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_narrow_parameters(dtype: str) -> None:
    w = Tensor(START, dtype=dtype, requires_grad=True)
    optimizer = nn.AdamW([w], 0.1)
    formula = adam(slope, START, 0.1, 0.9, 0.999, 1e-8, 0, 0.01)
    for _ in range(4):
        optimizer.zero_grad()
        loss_of(w.double()).backward()
        optimizer.step()
        want = next(formula)
    np.testing.assert_allclose(w.numpy(), want, **{"float32": {"rtol": 2e-4}, "float16": {"atol": 5e-3}}[dtype])
    assert w.dtype.name == dtype


def test_a_step_computes_the_loss_with_it() -> None:
    w = Tensor(START, dtype="float32", requires_grad=True)
    optimizer = nn.SGD([w], 0.1)
    loss = (w * w).sum()
    loss.backward()
    optimizer.step()
    assert loss.is_realized
    assert w.is_realized


def test_the_learning_rate_is_data() -> None:
    from anneal.runtime import cache_statistics

    w = Tensor(START, requires_grad=True)
    optimizer = nn.AdamW([w], 0.1)
    schedule = nn.WarmupCosine(optimizer, 0.2, warmup=2, steps=10, floor=0.1)
    counts = []
    for _ in range(5):
        schedule.step()
        optimizer.zero_grad()
        loss_of(w).backward()
        optimizer.step()
        counts.append(cache_statistics()[1])
    assert counts[1] == counts[-1]


def test_groups_have_settings_of_their_own() -> None:
    a, b = Tensor(START, requires_grad=True), Tensor(START, requires_grad=True)
    optimizer = nn.SGD([{"params": [a]}, {"params": [b], "lr": 0.2, "weight_decay": 0.5}], lr=0.01)
    (loss_of(a) + loss_of(b)).backward()
    optimizer.step()
    np.testing.assert_allclose(a.numpy(), next(sgd(slope, START, 0.01)), rtol=1e-6)
    np.testing.assert_allclose(b.numpy(), next(sgd(slope, START, 0.2, 0, 0.5)), rtol=1e-6)


def test_parameters_without_gradient_stay() -> None:
    a, b = Tensor(START, requires_grad=True), Tensor(START, requires_grad=True)
    optimizer = nn.Adam([a, b], 0.1)
    loss_of(a).backward()
    optimizer.step()
    np.testing.assert_array_equal(b.numpy(), START)


def test_a_replayed_step_follows_the_formula_and_the_schedule() -> None:
    w = Tensor(START, requires_grad=True)
    optimizer = nn.AdamW([w], 0.1, weight_decay=0.1)

    @jit
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(w)
        loss.backward()
        optimizer.step()
        return loss

    p, m, v = START, np.zeros_like(START), np.zeros_like(START)
    for t in range(1, 9):
        lr = nn.warmup_cosine(t, 0.1, 3, 9)
        optimizer.param_groups[0]["lr"] = lr
        loss = step()
        assert loss.item() == pytest.approx(float((AIM * (p - GOAL) ** 2).sum()), rel=1e-5)
        g = slope(p)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p = p * (1 - lr * 0.1) - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(w.numpy(), p, rtol=1e-5)


def test_clipping() -> None:
    a, b = Tensor([3.0], requires_grad=True), Tensor([[4.0]], requires_grad=True)
    (a * a / 2).sum().backward()
    (b * b / 2).sum().backward()
    assert nn.clip_grad_norm_([a, b], 10.0).item() == pytest.approx(5)
    assert a.grad is not None
    assert b.grad is not None
    assert a.grad.item() == pytest.approx(3)
    assert nn.clip_grad_norm_([a, b], 1.0).item() == pytest.approx(5)
    assert (a.grad.item(), b.grad.item()) == pytest.approx((0.6, 0.8), rel=1e-5)


def test_state_goes_from_one_optimiser_to_another() -> None:
    def run(optimizer: nn.Optimizer, w: Tensor, n: int) -> None:
        for _ in range(n):
            optimizer.zero_grad()
            loss_of(w).backward()
            optimizer.step()

    w = Tensor(START, requires_grad=True)
    first = nn.AdamW([w], 0.1)
    run(first, w, 3)
    other = Tensor(w.numpy(), requires_grad=True)
    second = nn.AdamW([other], 0.5)
    second.load_state_dict({k: v.numpy() for k, v in first.state_dict().items()})
    run(first, w, 2)
    run(second, other, 2)
    np.testing.assert_array_equal(w.numpy(), other.numpy())
    with pytest.raises(DataError, match=r"7\.exp_avg"):
        second.load_state_dict({"7.exp_avg": np.zeros(3)})
    with pytest.raises(DataError, match="shape"):
        second.load_state_dict({"0.exp_avg": np.zeros(3)})


def test_settings_are_loaded_with_the_state() -> None:
    def made(count: int, **settings: Any) -> nn.AdamW:
        return nn.AdamW([Tensor(START, requires_grad=True) for _ in range(count)], **settings)

    given = {"weight_decay": 0.3, "betas": (0.5, 0.6), "eps": 0.01}
    for nested in (False, True):
        state = made(1, **given).state_dict()
        if nested:
            assert state["param_groups"]
        second = made(1)
        second.load_state_dict(state)
        assert {name: second.param_groups[0][name] for name in given} == given
    for counts in ((1, 2), (2, 1)):  # ValueError in torch 2.14
        with pytest.raises(DataError, match="groups of"):
            made(counts[1]).load_state_dict(made(counts[0]).state_dict())


def test_schedules() -> None:
    w = Tensor([1.0], requires_grad=True)
    optimizer = nn.SGD([w], 0.5)
    schedule = nn.LambdaLR(optimizer, lambda i: 1 / (i + 1))
    rates = []
    for _ in range(3):
        rates += schedule.get_last_lr()
        schedule.step()
    assert rates == [0.5, 0.25, 0.5 / 3]
    rates = [nn.warmup_cosine(i, 2.0, 4, 10, 0.5) for i in range(12)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert rates[4] == 2.0
    assert rates[7] == pytest.approx(1.5)
    assert rates[10] == rates[11] == 1.0


def test_memory_does_not_grow_with_steps() -> None:
    from anneal.uop import Arena

    sizes = []
    with Arena() as arena:  # without the nodes that other tests left, which each sweep would walk
        w = Tensor(START, requires_grad=True)
        optimizer = nn.AdamW([w], 0.1)
        for _ in range(30):
            optimizer.zero_grad()
            loss_of(w).backward()
            optimizer.step()
            optimizer.zero_grad()
            arena.sweep()
            sizes.append(len(arena))
    assert sizes[-1] <= sizes[3] + 5


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.SGD([], 0.1), SettingError, "no parameters"),
        (lambda: nn.SGD([Tensor([1.0])], 0.1), GradientError, "requires_grad"),
        (lambda: nn.Adam([Tensor([1.0], requires_grad=True)], -1.0), SettingError, "lr"),
        (lambda: nn.Adam([Tensor([1.0], requires_grad=True)], betas=(0.9, 1.0)), SettingError, "betas"),
        (lambda: nn.SGD([Tensor([1.0], requires_grad=True)], nesterov=True), SettingError, "momentum"),
        (
            lambda: nn.SGD([{"params": [], "momentun": 3}], 0.1),
            SettingError,
            "unknown setting 'momentun'; did you mean",
        ),
        (lambda: nn.SGD([Tensor([1.0], requires_grad=True)] * 2, 0.1), GradientError, "twice"),
    ],
)
def test_wrong_settings(make: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_a_manual_step() -> None:
    w = Tensor([4.0], requires_grad=True)
    for _ in range(3):
        (w * w).sum().backward()
        with no_grad():
            assert w.grad is not None
            w.assign(w - 0.25 * w.grad).realize()
        w.grad = None
    assert w.item() == 0.5


# which of the four parameters have a gradient in a step
PATTERN = ((1, 1, 0, 1), (1, 0, 0, 1), (1, 1, 1, 1), (0, 1, 1, 1), (1, 1, 1, 0), (1, 1, 1, 1))


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_each_parameter_counts_its_own_steps(name: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    start = [rng.normal(size=s).astype(np.float32) for s in ((3,), (2, 2), (4,), (2,))]
    mine = [Tensor(a, requires_grad=True) for a in start]
    theirs = [torch.tensor(a, requires_grad=True) for a in start]
    ours = getattr(nn, name)(mine, lr=0.1, weight_decay=0.01)
    other = getattr(torch.optim, name)(theirs, lr=0.1, weight_decay=0.01)
    for k, row in enumerate(PATTERN):
        if k in (1, 4):  # the counts go along with the state
            state = {n: t.numpy() for n, t in ours.state_dict().items()}
            mine = [Tensor(t.numpy(), requires_grad=True) for t in mine]
            ours = getattr(nn, name)(mine, lr=0.5, weight_decay=0.01)
            ours.load_state_dict(state)
            assert {n: t.tolist() for n, t in ours.state_dict().items()} == {n: a.tolist() for n, a in state.items()}
        for t, u, has in zip(mine, theirs, row, strict=True):
            g = rng.normal(size=t.shape).astype(np.float32)
            t.grad, u.grad = (Tensor(g), torch.tensor(g)) if has else (None, None)
        ours.step()
        other.step()
        for t, u in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(t.numpy(), u.detach().numpy(), rtol=2e-5, atol=1e-6)


@pytest.mark.usefixtures("same_kernels")
def test_counts_of_their_own_inside_jit() -> None:
    def run(replayed: bool) -> list[Any]:
        used, idle = Tensor(START, requires_grad=True), Tensor(START, requires_grad=True)
        optimizer = nn.Adam([used, idle], 0.1)

        def step() -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(used)
            loss.backward()
            optimizer.step()
            return loss

        f = jit(step) if replayed else step
        for _ in range(5):
            f()
        optimizer.zero_grad()
        (loss_of(used) + loss_of(idle)).backward()
        optimizer.step()
        return [used.tolist(), idle.tolist()]

    assert run(True) == run(False)


def test_a_count_of_another_shape_is_refused() -> None:
    optimizer = nn.Adam([Tensor(START, requires_grad=True)], 0.1)
    with pytest.raises(DataError, match=r"0\.step has shape"):
        optimizer.load_state_dict({"0.step": np.zeros(3)})


def test_a_state_of_earlier_versions_goes_on() -> None:
    """It had 1 - beta**step in place of the step."""
    a, b = (Tensor([1.0, -2.0], requires_grad=True) for _ in range(2))
    old, new = nn.AdamW([a], 0.1), nn.AdamW([b], 0.1)
    for n in range(6):
        if n == 3:
            state = {name: t.numpy() for name, t in old.state_dict().items()}
            step = state.pop("group.0.step")
            state |= {f"group.0.correction{i + 1}": 1 - beta**step for i, beta in enumerate((0.9, 0.999))}
            b.assign(a)
            new.load_state_dict(state)
        for t, optimizer in ((a, old), (b, new)) if n >= 3 else ((a, old),):
            optimizer.zero_grad()
            (t * t * t).sum().backward()
            optimizer.step()
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_a_state_dict_is_read_and_changed_as_torchs() -> None:
    def trained(lr: float, saved: Any = None) -> tuple[Any, Any]:
        weight = Tensor([1.0, -2.0], requires_grad=True)
        optimizer = optim.Adam([weight], lr=lr)
        if saved is not None:
            optimizer.load_state_dict(saved)
        for _ in range(2):
            optimizer.zero_grad()
            (weight * weight).sum().backward()
            optimizer.step()
        return optimizer, weight

    first, weight = trained(0.1)
    saved = first.state_dict()
    assert saved["param_groups"][0]["lr"] == 0.1
    assert saved["param_groups"][0]["params"] == [0]
    assert set(saved["state"][0]) == {"exp_avg", "exp_avg_sq", "step"}
    assert weight in first.state
    assert first.state[weight]["exp_avg"].shape == (2,)
    saved["param_groups"][0]["lr"] = 0.25
    second, _ = trained(0.1, saved)
    assert second.param_groups[0]["lr"] == 0.25
    assert second.state_dict()["state"][0]["step"].item() == 4.0


def test_a_users_optimiser_keeps_its_state_by_parameter() -> None:
    class Momentum(optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        def step(self) -> None:  # type: ignore[override]
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if len(state) == 0:
                        state["step"], state["mean"] = 0, an.zeros_like(p)
                    state["step"] += 1
                    state["mean"].mul_(0.5).add_(p.grad)
                    p.data.add_(state["mean"], alpha=-group["lr"])

    weight = Tensor([1.0], requires_grad=True)
    optimizer = Momentum([weight], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (weight * weight).sum().backward()
        optimizer.step()
    assert optimizer.state[weight]["step"] == 2
    assert optimizer.state_dict()["state"][0]["step"] == 2  # in torch's form, a number as it is
    other = Momentum([weight], lr=0.1)
    other.load_state_dict(optimizer.state_dict())
    assert other.state[weight]["step"] == 2
    np.testing.assert_allclose(weight.numpy(), [1 - 0.2 - 0.1 * (1.0 + 1.6)], rtol=1e-6)


def test_an_optimiser_may_be_built_on_anothers_groups() -> None:
    class Outer(optim.Optimizer):
        def __init__(self, params: Any, rho: float, **options: Any) -> None:
            super().__init__(params, {"rho": rho, **options})
            self.base = optim.SGD(self.param_groups, **options)
            self.param_groups = self.base.param_groups

    weight = Tensor([1.0], requires_grad=True)
    outer = Outer([weight], rho=0.5, lr=0.1)
    assert outer.param_groups[0]["rho"] == 0.5
    (weight * weight).sum().backward()
    outer.base.step()
    np.testing.assert_allclose(weight.numpy(), [0.8], rtol=1e-6)


def test_keys_of_ones_own_stay_in_a_group() -> None:
    """As torch keeps them: a name, a factor of the rate; saved states have them."""
    a, b = nn.Parameter([1.0, 1.0]), nn.Parameter([1.0, 1.0])
    made = optim.SGD([{"params": [a], "lr_scale": 0.5, "name": "first"}, {"params": [b], "name": "second"}], lr=0.1)
    (a.sum() + b.sum()).backward()
    for group in made.param_groups:
        group["lr"] = 0.1 * group.get("lr_scale", 1.0)
    made.step()
    np.testing.assert_allclose([*a.tolist(), *b.tolist()], [0.95, 0.95, 0.9, 0.9], rtol=1e-6)
    assert [(g["name"], g.get("lr_scale")) for g in made.state_dict()["param_groups"]] == [
        ("first", 0.5),
        ("second", None),
    ]


def test_gradients_stay_as_they_are_where_their_norm_is_refused() -> None:
    p = nn.Parameter([1.0, 1.0])
    p.grad = Tensor([np.inf, 1.0])
    with pytest.raises(GradientError, match="norm"):
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    assert p.grad.tolist() == [np.inf, 1.0]


class Plain(optim.Optimizer):
    """A program's own, with what settings it likes."""

    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, settings)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad * 0.1)
                group["kept"] = Tensor([1.0, 2.0])


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"lr": None, "eps": (1e-30, 1e-3)},
        {"lr": Tensor(0.5), "betas": (0.9, 0.9, 0.9)},
        {"lr": -1.0, "momentum": None, "kept": Tensor([1.0, 2.0])},
    ],
    ids=["none", "adafactor's", "adan's", "signs"],
)
def test_an_optimiser_with_a_step_of_its_own_has_any_settings(own: dict[str, Any]) -> None:
    weight = nn.Parameter([1.0])
    made = Plain([weight], **own)
    for _ in range(2):
        made.zero_grad()
        (weight * weight).sum().backward()
        made.step()
        made.load_state_dict(made.state_dict())
    np.testing.assert_allclose(weight.tolist(), [0.64], rtol=1e-6)
    assert made.param_groups[0].get("lr") is own.get("lr")


def test_settings_of_ours_are_looked_at_as_before() -> None:
    for make in (optim.SGD, optim.Adam, optim.LBFGS):
        for lr in (None, -1.0, Tensor(0.5)):
            with pytest.raises(UserError, match="lr is a"):
                make([nn.Parameter([1.0])], lr=lr)  # type: ignore[arg-type]
