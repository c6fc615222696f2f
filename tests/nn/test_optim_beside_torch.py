"""Optimisers, schedules, clipping and their states: the same program on ours and on torch's, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from anneal import nn, optim
from anneal.errors import DataError, SettingError
from anneal.runtime import cache_statistics
from anneal.tensor import Tensor, jit
from tests.helpers import optional
from tests.nn.optim_programs import GOAL, OPTIMISERS, SCHEDULES, START, Make

torch = optional("torch")


def program(
    m: Any, make: Make, dtype: str = "float64", steps: int = 8, schedule: Any = None
) -> Iterator[tuple[list[np.ndarray[Any, Any]], Any]]:
    """Parameters after each step of a fit, and the optimiser."""
    if m is torch:
        params = [torch.nn.Parameter(torch.tensor(x, dtype=getattr(torch, dtype))) for x in START]
        goals: list[Any] = [torch.tensor(x, dtype=getattr(torch, dtype)) for x in GOAL]
        optimizer = make(torch.optim, params)
    else:
        params = [nn.Parameter(x, dtype=dtype) for x in START]
        goals = [Tensor(x, dtype=dtype) for x in GOAL]
        optimizer = make(optim, params)
    for i in range(steps):
        optimizer.zero_grad()
        parts = [((p - g) ** 2).sum() * (1 + i % 3) for p, g in zip(params, goals, strict=True)]
        (parts[0] + parts[1] + parts[2]).backward()
        if i == 4:
            params[1].grad = None  # it has none in this step
        optimizer.step()
        yield [p.detach().numpy() for p in params], optimizer


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_is_torchs(name: str) -> None:
    make = OPTIMISERS[name]
    for n, ((mine, _), (theirs, _)) in enumerate(zip(program(nn, make), program(torch, make), strict=True)):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7, err_msg=f"step {n}")


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_goes_on_from_its_own_state_and_from_torchs(name: str) -> None:
    make = OPTIMISERS[name]
    for source in (nn, torch):
        run = program(source, make)
        values, optimizer = next(itertools.islice(run, 3, None))
        state = optimizer.state_dict()
        params = [nn.Parameter(x) for x in values]
        other = make(optim, params)
        other.load_state_dict(state)
        goals = [Tensor(x) for x in GOAL]
        ((params[0] - goals[0]) ** 2).sum().backward()
        ((params[2] - goals[2]) ** 2).sum().backward()
        for p in params:
            if p.grad is not None:
                p.grad = p.grad * 2  # step 4's weight
        other.step()
        for a, b in zip(params, next(run)[0], strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["RMSprop", "NAdam", "Adafactor", "Rprop", "SGD, dampened", "Adam, amsgrad"])
def test_steps_replay_under_jit(name: str) -> None:
    def fit(wrap: Any) -> list[list[float]]:
        params = [nn.Parameter(x, dtype="float32") for x in START]
        goals = [Tensor(x, dtype="float32").realize() for x in GOAL]
        optimizer = OPTIMISERS[name](optim, params)

        def step() -> Tensor:
            optimizer.zero_grad()
            loss = sum([((p - g) ** 2).sum() for p, g in zip(params, goals, strict=True)], start=Tensor(0.0))
            loss.backward()
            optimizer.step(loss)
            return loss

        call = wrap(step)
        return [call().item() for _ in range(6)] + [p.tolist() for p in params]

    plain, fast = fit(lambda f: f), fit(jit)
    for a, b in zip(plain, fast, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_takes_torchs_way(search: str | None) -> None:
    results = []
    for m in (nn, torch):
        x = np.array([-1.2, 1.0, 0.5])
        w: Any = nn.Parameter(x) if m is nn else torch.nn.Parameter(torch.tensor(x))
        module: Any = optim if m is nn else torch.optim
        optimizer = module.LBFGS(
            [w], lr=0.1 if search is None else 1.0, max_iter=6, history_size=3, line_search_fn=search
        )

        def closure(w: Any = w, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = (100 * (w[1:] - w[:-1] ** 2) ** 2).sum() + ((1 - w[:-1]) ** 2).sum()
            loss.backward()
            return loss

        results.append([(float(optimizer.step(closure).item()), w.detach().numpy().tolist()) for _ in range(5)])
    for (a, x), (b, y) in zip(*results, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
        np.testing.assert_allclose(x, y, rtol=1e-4)


def test_muon_is_torchs_as_far_as_bfloat16_goes() -> None:
    results = []
    for m in (nn, torch):
        w: Any = (
            nn.Parameter(START[0], dtype="float32") if m is nn else torch.nn.Parameter(torch.tensor(START[0]).float())
        )
        optimizer = (optim if m is nn else torch.optim).Muon([w], 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (w * w * w).sum().backward()
            optimizer.step()
        results.append(w.detach().numpy())
    np.testing.assert_allclose(*results, atol=5e-3)
    with pytest.raises(SettingError, match="trains matrices"):
        optim.Muon([nn.Parameter([1.0])])


def test_lion_follows_its_formula() -> None:
    w = nn.Parameter(START[0])
    p, m = START[0].copy(), np.zeros_like(START[0])
    optimizer = optim.Lion([w], 0.1, (0.8, 0.9), 0.1)
    for _ in range(4):
        optimizer.zero_grad()
        (w**3).sum().backward()
        optimizer.step()
        g = 3 * p * p
        p = p * (1 - 0.01) - 0.1 * np.sign(0.8 * m + 0.2 * g)
        m = 0.9 * m + 0.1 * g
        np.testing.assert_allclose(w.numpy(), p, rtol=1e-6)


def scheduled(m: Any, make: Make, steps: int = 11, resume: int | None = None) -> list[Any]:
    """Rates and momenta of each step; with `resume` a new schedule takes over from the state of the old there."""
    rates = []

    def both() -> tuple[Any, Any]:
        groups = (
            [nn.Parameter([1.0]), nn.Parameter([2.0])] if m is nn else [torch.nn.Parameter(torch.ones(1)) for _ in "ab"]
        )
        module: Any = optim if m is nn else torch.optim
        o = module.SGD([{"params": [groups[0]], "lr": 0.2}, {"params": [groups[1]]}], lr=0.1, momentum=0.9)
        return o, make(module.lr_scheduler, o)

    o, s = both()
    for i in range(steps):
        if i == resume:
            before, state = [{"lr": g["lr"], "momentum": g["momentum"]} for g in o.param_groups], s.state_dict()
            o, s = both()
            s.load_state_dict(state)
            for g, old in zip(o.param_groups, before, strict=True):
                for key, value in old.items():
                    g[key] = value
        rates.append([[g["lr"], g["momentum"]] for g in o.param_groups] + [s.get_last_lr()])
        o.step()
        s.step()
    return rates


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_torchs(name: str) -> None:
    mine, theirs = scheduled(nn, SCHEDULES[name]), scheduled(torch, SCHEDULES[name])
    for a, b in zip(mine, theirs, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_goes_on_from_its_state(name: str) -> None:
    for a, b in zip(scheduled(nn, SCHEDULES[name], resume=4), scheduled(nn, SCHEDULES[name]), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("kind", ["rel", "abs"])
def test_a_plateau_is_torchs(mode: str, kind: str) -> None:
    measures = [3.0, 2.9, 2.9, 2.91, 2.8, 2.9, 2.9, 2.9, 2.9, 2.9, 2.9, 1.0, 1.0, 1.0, 1.0, 1.0]
    rates = []
    for m in (optim, torch.optim):
        w: Any = nn.Parameter([1.0]) if m is optim else torch.nn.Parameter(torch.ones(1))
        o = m.SGD([w], lr=0.5)
        s = m.lr_scheduler.ReduceLROnPlateau(o, mode, 0.5, 2, 1e-2, kind, 1, 0.05)
        rates.append([(s.step(x), o.param_groups[0]["lr"])[1] for x in measures])
    assert rates[0] == pytest.approx(rates[1])
    assert len(set(rates[0])) > 2


def test_a_plateau_lowers_the_rates_of_groups_that_came_later() -> None:
    o = optim.SGD([nn.Parameter([1.0])], lr=0.5)
    schedule = optim.lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=0, min_lr=0.1)
    listed = optim.lr_scheduler.ReduceLROnPlateau(o, patience=0, min_lr=[0.1])
    schedule.step(1.0)
    listed.step(1.0)
    o.add_param_group({"params": [nn.Parameter([2.0])], "lr": 0.3})
    rates = [(schedule.step(1.0), schedule.get_last_lr())[1] for _ in range(4)]
    assert rates == [[0.25, 0.15], [0.125, 0.1], [0.1, 0.1], [0.1, 0.1]]  # torch's
    assert schedule.min_lrs == [0.1, 0.1]
    with pytest.raises(SettingError, match="min_lrs: 1 numbers for 2 groups"):  # torch's asks for them, too
        listed.step(1.0)
    listed.min_lrs = [0.05, 0.1]
    listed.step(1.0)
    assert listed.get_last_lr() == [0.05, 0.1]


def test_a_cycle_of_momenta_runs_the_same_kernels() -> None:
    w = nn.Parameter(START[0])
    optimizer = optim.AdamW([w], 0.1)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8)
    counts = []
    for _ in range(6):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
        schedule.step()
        counts.append(cache_statistics()[1])
    assert counts[1] == counts[-1]


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_clipping_is_torchs(p: float) -> None:
    given = [np.random.default_rng(i).standard_normal((3, 2)).astype(np.float32) for i in range(2)]
    mine, theirs = [nn.Parameter(x) for x in given], [torch.nn.Parameter(torch.tensor(x)) for x in given]
    for m, t in zip(mine, theirs, strict=True):
        (m * m).sum().backward()
        (t * t).sum().backward()
    a = nn.utils.clip_grad_norm_(mine, 0.7, norm_type=p)
    b = torch.nn.utils.clip_grad_norm_(theirs, 0.7, norm_type=p)
    assert a.item() == pytest.approx(b.item(), rel=1e-5)
    nn.utils.clip_grad_value_(mine, 0.1)
    torch.nn.utils.clip_grad_value_(theirs, 0.1)
    for m, t in zip(mine, theirs, strict=True):
        assert m.grad is not None
        np.testing.assert_allclose(m.grad.numpy(), t.grad.numpy(), rtol=1e-4)


def test_a_frozen_parameter_may_stand_among_those_that_train() -> None:
    model = nn.Linear(2, 1)
    model.bias.requires_grad_(False)  # type: ignore[union-attr]
    optimizer = optim.Adam(model.parameters(), 0.1)
    before = model.bias.tolist()  # type: ignore[union-attr]
    model(Tensor([[1.0, 2.0]])).sum().backward()
    optimizer.step()
    assert model.bias.tolist() == before  # type: ignore[union-attr]


def test_a_closure_is_called_first() -> None:
    w = nn.Parameter([2.0])
    optimizer = optim.SGD([w], 0.25)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4.0
    assert w.tolist() == [1.0]


WRONG: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "one tensor": (SettingError, r"write \[tensor\]", lambda: optim.Adam(nn.Parameter([1.0]))),
    "a rate that is a tensor": (SettingError, "lr is a number", lambda: optim.Adam([nn.Parameter([1.0])], Tensor(0.1))),  # type: ignore[arg-type]
    "no closure": (SettingError, "takes a closure", lambda: optim.LBFGS([nn.Parameter([1.0])]).step()),
    "no measure": (
        SettingError,
        "the metric",
        lambda: optim.lr_scheduler.ReduceLROnPlateau(optim.SGD([nn.Parameter([1.0])])).step(),
    ),
    "no optimiser": (SettingError, "is an optimiser", lambda: optim.lr_scheduler.StepLR(nn.ReLU(), 1)),  # type: ignore[arg-type]
    "a schedule without momentum": (
        SettingError,
        "cycle_momentum=False",
        lambda: optim.lr_scheduler.OneCycleLR(optim.Adagrad([nn.Parameter([1.0])]), 0.1, 5),
    ),
    "a state of others": (
        DataError,
        r"groups of \[2\] parameters",
        lambda: optim.SGD([nn.Parameter([1.0])]).load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]}),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case: str) -> None:
    kind, text, call = WRONG[case]
    with pytest.raises(kind, match=text):
        call()
