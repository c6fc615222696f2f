"""Programs of optimisers and schedules, for ours and torch's; `python -m tests.nn.optim_programs` writes `optim.json`,
the losses that torch's take.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TABLE = Path(__file__).with_name("optim.json")
START = [np.random.default_rng(i).standard_normal(s) for i, s in enumerate([(3, 4), (4,), ()])]
GOAL = [np.random.default_rng(9 + i).standard_normal(s.shape) for i, s in enumerate(START)]
Make = Callable[[Any, Any], Any]
After = Callable[[int, float], object]  # what happens after a step: its number, its loss
Start = Callable[[Any, Any, list[Any]], After]

OPTIMISERS: dict[str, Make] = {
    "SGD": lambda m, p: m.SGD(p, 0.1),
    "SGD, dampened": lambda m, p: m.SGD(p, 0.1, 0.9, 0.3, 0.01, maximize=False),
    "SGD, nesterov": lambda m, p: m.SGD(p, 0.05, momentum=0.8, nesterov=True, weight_decay=0.1),
    "SGD, climbing": lambda m, p: m.SGD(p, 0.01, maximize=True),
    "Adam": lambda m, p: m.Adam(p, 0.1),
    "Adam, amsgrad": lambda m, p: m.Adam(p, 0.1, (0.5, 0.8), 1e-6, 0.1, True),
    "Adam, climbing, decoupled": lambda m, p: m.Adam(
        p, 0.02, maximize=True, decoupled_weight_decay=True, weight_decay=0.1
    ),
    "AdamW": lambda m, p: m.AdamW(p, 0.1, weight_decay=0.2, amsgrad=True),
    "RMSprop": lambda m, p: m.RMSprop(p, 0.05),
    "RMSprop, centered": lambda m, p: m.RMSprop(p, 0.05, 0.8, 1e-6, 0.1, 0.7, True),
    "Adagrad": lambda m, p: m.Adagrad(p, 0.2),
    "Adagrad, decayed": lambda m, p: m.Adagrad(p, 0.2, 0.1, 0.1, 0.3, 1e-6),
    "Adadelta": lambda m, p: m.Adadelta(p, 0.5, 0.8, weight_decay=0.1),
    "Adamax": lambda m, p: m.Adamax(p, 0.1, weight_decay=0.1),
    "NAdam": lambda m, p: m.NAdam(p, 0.1, weight_decay=0.1),
    "NAdam, decoupled": lambda m, p: m.NAdam(
        p, 0.1, momentum_decay=0.01, weight_decay=0.1, decoupled_weight_decay=True
    ),
    "RAdam": lambda m, p: m.RAdam(p, 0.1, (0.8, 0.9), weight_decay=0.1),
    "RAdam, decoupled": lambda m, p: m.RAdam(p, 0.1, weight_decay=0.1, decoupled_weight_decay=True),
    "Rprop": lambda m, p: m.Rprop(p, 0.05),
    "ASGD": lambda m, p: m.ASGD(p, 0.05, 1e-2, t0=3, weight_decay=0.1),
    "Adafactor": lambda m, p: m.Adafactor(p, 0.1, weight_decay=0.1),
}

SCHEDULES: dict[str, Make] = {
    "LambdaLR": lambda s, o: s.LambdaLR(o, lambda n: 0.9**n),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, [lambda n: 0.9, lambda n: 0.8]),
    "StepLR": lambda s, o: s.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [2, 5, 5], 0.5),
    "ConstantLR": lambda s, o: s.ConstantLR(o, 0.3, 4),
    "LinearLR": lambda s, o: s.LinearLR(o, 0.2, 0.9, 6),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.8),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, 7, 1.5),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 4, 0.01),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, 2, 0.01),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, 0.5, total_steps=12),
    "OneCycleLR, three phases": lambda s, o: s.OneCycleLR(
        o, [0.5, 0.3], epochs=3, steps_per_epoch=4, three_phase=True, anneal_strategy="linear"
    ),
    "CyclicLR": lambda s, o: s.CyclicLR(o, 0.01, 0.5, 3, 2, "triangular2"),
    "CyclicLR, powers": lambda s, o: s.CyclicLR(o, 0.01, 0.5, 2, mode="exp_range", gamma=0.9),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=3), s.CosineAnnealingLR(o, 5), s.ExponentialLR(o, 0.5)], [3, 8]
    ),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)]),
    "SequentialLR of a ChainedScheduler": lambda s, o: s.SequentialLR(
        o, [s.ChainedScheduler([s.ConstantLR(o, 0.5, 4), s.StepLR(o, 2)]), s.PolynomialLR(o, 10)], [5]
    ),
    "SequentialLR of a SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.SequentialLR(o, [s.ConstantLR(o, 0.5, 4), s.StepLR(o, 2)], [3]), s.ExponentialLR(o, 0.9)], [6]
    ),
}

STEPS = 9
# Settings that change in the middle, and the values that they take.
CHANGED: dict[str, Any] = {
    "lr": 0.03,
    "betas": (0.6, 0.7),
    "momentum": 0.5,
    "dampening": 0.2,
    "weight_decay": 0.3,
    "eps": 0.1,
    "nesterov": True,
    "maximize": True,
    "amsgrad": False,
    "centered": False,
    "alpha": 0.6,
    "rho": 0.5,
    "lr_decay": 0.5,
    "lambd": 0.1,
    "t0": 2,
    "momentum_decay": 0.2,
    "decoupled_weight_decay": True,
    "etas": (0.3, 1.5),
    "step_sizes": (1e-3, 0.02),
    "beta2_decay": -0.3,
    "d": 0.5,
}


def _scheduled(make: Make) -> Start:
    def start(m: Any, optimizer: Any, params: list[Any]) -> After:
        schedule = make(m.optim.lr_scheduler, optimizer)
        plateau = hasattr(schedule, "is_better") or hasattr(schedule, "_is_better")
        return lambda n, loss: schedule.step(loss) if plateau else schedule.step()

    return start


def _set(name: str, value: Any) -> Start:
    """The setting changes after four steps, and back after seven."""

    def start(m: Any, optimizer: Any, params: list[Any]) -> After:
        before = optimizer.param_groups[0][name]

        def after(n: int, loss: float) -> None:
            for group in optimizer.param_groups if n in (3, 6) else ():
                group[name] = value if n == 3 else before

        return after

    return start


def _frozen(m: Any, optimizer: Any, params: list[Any]) -> After:
    def after(n: int, loss: float) -> None:
        if n in (3, 6):
            params[0].requires_grad = n == 6

    return after


CHANGES: dict[str, Start] = {
    **{name: _scheduled(make) for name, make in SCHEDULES.items()},
    "ReduceLROnPlateau": _scheduled(lambda s, o: s.ReduceLROnPlateau(o, factor=0.5, patience=0, threshold=0.5)),
    **{name: _set(name, value) for name, value in CHANGED.items()},
    "frozen": _frozen,
}


def unchanged(m: Any, optimizer: Any, params: list[Any]) -> After:
    """Nothing changes."""
    return lambda n, loss: None


def fit(m: Any, make: Make, start: Start, wrap: Any = lambda f: f, kind: Any = np.float32) -> list[float]:
    """The losses of a fit of two groups, in which something changes between the steps."""
    params = [m.nn.Parameter(m.tensor(x.astype(kind))) for x in START]
    goals = [m.tensor(x.astype(kind)) for x in GOAL]
    optimizer = make(m.optim, [{"params": params[:2]}, {"params": params[2:]}])
    after = start(m, optimizer, params)

    def step() -> Any:
        optimizer.zero_grad()
        parts = [((p - g) ** 2).sum() for p, g in zip(params, goals, strict=True)]
        loss = parts[0] + parts[1] * 2 + parts[2]
        loss.backward()
        optimizer.step()
        return loss

    call, losses = wrap(step), []
    for n in range(STEPS):
        losses.append(float(call().item()))
        after(n, losses[-1])
    return losses


def lbfgs(m: Any, values: list[Any], steps: int, state: Any = None) -> tuple[list[Any], Any]:
    """The parameters after so many steps of L-BFGS in float64 from a state, and its state then. Tensors are lists."""
    params = [m.nn.Parameter(m.tensor(np.array(x, np.float64))) for x in values]
    optimizer = m.optim.LBFGS(params, lr=0.5, max_iter=3, history_size=4)
    if state is not None:
        optimizer.load_state_dict(state)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (params[0] ** 4).sum() + ((params[1] - params[0].sum()) ** 2).sum()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    kept = optimizer.state_dict()
    states = {
        str(n): {k: [listed(x) for x in v] if isinstance(v, list) else listed(v) for k, v in found.items()}
        for n, found in kept["state"].items()
    }
    return [listed(p) for p in params], {"state": states, "param_groups": kept["param_groups"]}


SEARCHES = {"short": {"max_iter": 2, "history_size": 3}, "few calls": {"max_iter": 4, "max_eval": 4}}


def searches(m: Any, settings: Any) -> list[list[float]]:
    """Losses of L-BFGS that searches along lines, over batches that change, and how often each step computes one."""
    x, y, *weights = [
        np.random.default_rng(i).standard_normal(s) for i, s in enumerate([(20, 4), (20, 1), (4, 6), (6, 1)])
    ]
    first, second = params = [m.nn.Parameter(m.tensor(w * 0.7)) for w in weights]
    optimizer = m.optim.LBFGS(params, lr=0.1, line_search_fn="strong_wolfe", **settings)
    out = []
    for n in range(12):
        part, calls = slice(n % 4 * 5, n % 4 * 5 + 5), []

        def closure() -> Any:
            optimizer.zero_grad()
            loss = ((m.tanh(m.tensor(x[part]) @ first) @ second - m.tensor(y[part])) ** 2).mean()  # noqa: B023
            loss.backward()
            calls.append(loss)  # noqa: B023
            return loss

        out.append([float(f"{float(optimizer.step(closure)):.6g}"), len(calls)])
    return out


def listed(x: Any) -> Any:
    """A tensor as lists; what is none as it is."""
    return x.detach().tolist() if hasattr(x, "detach") else x


LBFGS_START = [[1.5, -2.0], [[0.3]]]

if __name__ == "__main__":
    import torch

    table: dict[str, Any] = {}
    for name, make in OPTIMISERS.items():
        for change, start in CHANGES.items():
            try:
                losses = fit(torch, make, start)
            except (KeyError, ValueError, TypeError) as e:  # a setting that it lacks, or that torch cannot change
                print(name, change, repr(e), file=sys.stderr)
                continue
            table[f"{name}: {change}"] = [float(f"{loss:.7g}") for loss in losses]
    wide = {name: fit(torch, make, unchanged, kind=np.float64) for name, make in OPTIMISERS.items()}
    values, state = lbfgs(torch, LBFGS_START, 2)
    history = {"values": values, "state": state, "after": lbfgs(torch, LBFGS_START, 5)[0]}
    found = {"torch": torch.__version__, "losses": table, "float64": wide, "lbfgs": history}
    found["searches"] = {name: searches(torch, settings) for name, settings in SEARCHES.items()}
    TABLE.write_text(json.dumps(found, indent=0).replace(",\n", ", ") + "\n")
