"""Copies and pickles of what a training consists of: they go on as the originals would."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import distributions, nn, optim
from anneal.distributions import constraints
from anneal.optim import lr_scheduler, swa_utils
from anneal.tensor import Tensor
from tests.nn.optim_programs import OPTIMISERS

COPIES: dict[str, Callable[[Any], Any]] = {"deepcopy": copy.deepcopy, "pickle": lambda x: pickle.loads(pickle.dumps(x))}
both = pytest.mark.parametrize("how", COPIES)


def batch(n: int) -> Tensor:
    return Tensor(np.random.default_rng(n).standard_normal((4, 3), np.float32))


def trained(how: Callable[[Any], Any], make: Callable[[Any, Any], Any], schedule: Any = None, jit: bool = False) -> Any:
    """The losses after a training was copied in the middle, and the parameters at the end."""
    an.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.BatchNorm1d(2), nn.Linear(2, 1))
    groups = [{"params": model[0].parameters()}, {"params": [*model[2].parameters(), *model[3].parameters()]}]
    optimizer = make(optim, groups)
    plan = None if schedule is None else schedule(optimizer)
    losses = []
    for half in range(2):

        def step(x: Tensor, model: Any = model, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss

        call = an.jit(step) if jit else step
        for n in range(4):
            losses.append(call(batch(4 * half + n)).item())
            if plan is not None:
                plan.step()
        model, optimizer, plan = how((model, optimizer, plan))
    return losses, [p.tolist() for p in model.parameters()], [g["lr"] for g in optimizer.param_groups]


@both
@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_copied_optimiser_goes_on_with_its_state(name: str, how: str) -> None:
    assert trained(COPIES[how], OPTIMISERS[name]) == trained(lambda x: x, OPTIMISERS[name])


@both
@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: lr_scheduler.StepLR(o, 3, 0.5),
        lambda o: lr_scheduler.OneCycleLR(o, 0.2, total_steps=9),
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.CosineAnnealingLR(o, 5)], [3]
        ),
    ],
)
def test_a_copied_schedule_sets_the_copied_optimiser(schedule: Any, how: str) -> None:
    make = OPTIMISERS["Adam"]
    assert trained(COPIES[how], make, schedule) == trained(lambda x: x, make, schedule)
    got, expected = trained(COPIES[how], make, schedule, True), trained(lambda x: x, make, schedule)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-4, atol=1e-6)


@both
def test_a_copied_optimiser_without_its_model_has_parameters_of_its_own(how: str) -> None:
    w = nn.Parameter([1.0, 2.0])
    optimizer = optim.Adam([w], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
    other = COPIES[how](optimizer)
    (v,) = other.param_groups[0]["params"]
    assert v is not w
    assert other.params == [v]
    assert other.state[v]["exp_avg"].tolist() == optimizer.state[w]["exp_avg"].tolist()
    other.param_groups[0]["lr"] = 0.5
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0].rate.item()) == (0.1, pytest.approx(0.1))
    before = w.tolist()
    (v * v).sum().backward()
    other.step()
    assert w.tolist() == before
    assert v.tolist() != before


@both
def test_a_copied_generator_draws_what_the_original_draws(how: str) -> None:
    generator = an.Generator().manual_seed(3)
    an.rand(2, generator=generator)
    other = COPIES[how](generator)
    for _ in range(2):
        assert an.rand(2, generator=generator).tolist() == an.rand(2, generator=other).tolist()


@an.jit
def doubled(x: Tensor) -> Tensor:
    return x * 2


class Scaled(nn.Module):
    """A layer with a captured method, and a captured function that holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        self.call = an.jit(self.plain)

    @an.jit
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y

    def plain(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y * 10


@pytest.mark.parametrize("how", [*COPIES, "copy"])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_copy_of_what_is_captured_computes_with_its_own(how: str, compiled: bool) -> None:
    x, model = an.ones(1, 1), Scaled()
    if compiled:
        model.compile()
    with an.no_grad():
        model.layer.weight.fill_(2.0)
    for _ in range(3):
        assert (model(x).item(), model.call(x).item(), doubled(x).item()) == (2.0, 20.0, 2.0)
    other = {**COPIES, "copy": copy.copy}[how](model)
    other.layer = nn.Linear(1, 1, bias=False)
    with an.no_grad():
        other.layer.weight.fill_(5.0)
    for _ in range(3):
        assert (other(x).item(), model(x).item(), model.call(x).item()) == (5.0, 2.0, 20.0)
        if how != "copy":  # `self.plain` is of the original, as in any copy of an object
            assert other.call(x).item() == 50.0
    other.compile()
    assert [other(x).item() for _ in range(3)] == [5.0] * 3
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    call = pickle.loads(pickle.dumps(model.call))
    assert [call(x).item() for _ in range(3)] == [20.0] * 3


KEPT: dict[str, Callable[[], Any]] = {
    "average": lambda: swa_utils.AveragedModel(nn.Linear(2, 1)),
    "decayed": lambda: swa_utils.AveragedModel(nn.Linear(2, 1), avg_fn=swa_utils.get_ema_avg_fn(0.5)),
    "averages": lambda: swa_utils.AveragedModel(nn.Linear(2, 1), multi_avg_fn=swa_utils.get_swa_multi_avg_fn()),
    "scaler": lambda: an.amp.GradScaler("cpu"),
    "independent": lambda: distributions.Independent(distributions.Normal(an.zeros(2), 1.0), 1),
    "normal": lambda: distributions.MultivariateNormal(an.zeros(2), an.eye(2)),
    "loader": lambda: an.utils.data.DataLoader(an.utils.data.TensorDataset(an.arange(3)), 2, shuffle=True),
}


@both
@pytest.mark.parametrize("name", KEPT)
def test_what_a_training_keeps_can_be_copied(name: str, how: str) -> None:
    original = KEPT[name]()
    other = COPIES[how](original)
    assert type(other) is type(original)
    if isinstance(original, swa_utils.AveragedModel):
        for model in (original, other):
            for value in (1.0, 4.0):
                model.update_parameters(
                    nn.Linear(2, 1).requires_grad_(False).apply(lambda m, v=value: m.weight.fill_(v))
                )
        assert other.module.weight.tolist() == original.module.weight.tolist()


@pytest.mark.parametrize("name", constraints.__all__)
def test_a_constraint_is_pickled_as_itself(name: str) -> None:
    found = getattr(constraints, name)
    if isinstance(found, constraints.Constraint):
        for how in COPIES.values():
            other = how(found)
            assert type(other) is type(found)
            assert repr(other) == repr(found)


def test_what_was_computed_is_not_copied() -> None:
    """Gradients would not flow from the copy to the leaves, silently."""
    w = an.ones(2, requires_grad=True)
    layer = nn.Linear(2, 2)
    layer.last = w * 2
    for x in (w * 2, {"a": [w * 2]}, layer):
        with pytest.raises(RuntimeError, match=r"copy x\.detach\(\)"):
            copy.deepcopy(x)
    with an.no_grad():
        kept = w * 2
    assert [copy.deepcopy(x).tolist() for x in (kept, (w * 2).detach())] == [[2, 2]] * 2
    assert copy.deepcopy(w).requires_grad
