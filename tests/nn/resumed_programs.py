"""Programs of schedules and optimisers that go on, for ours and torch's, with `last_epoch` or from a state:
`python -m tests.nn.resumed_programs` writes `resumed.json`, what torch's give, and the states that they leave.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.nn.kin_programs import numbers
from tests.nn.optim_programs import GOAL, OPTIMISERS, SCHEDULES, START

TABLE = Path(__file__).with_name("resumed.json")
BROKEN_OFF = range(7)  # after so many steps


class Powers:
    """A factor that is an object: its attributes are a part of the state."""

    def __init__(self, base: float) -> None:
        self.base = base

    def __call__(self, n: float) -> float:
        return float(self.base**n)


# Each takes `last_epoch`.
GOING_ON: dict[str, Callable[..., Any]] = {
    "LambdaLR": lambda s, o, **k: s.LambdaLR(o, [lambda n: 0.9**n, Powers(0.8)], **k),
    "MultiplicativeLR": lambda s, o, **k: s.MultiplicativeLR(o, [lambda n: 0.9, lambda n: 0.8], **k),
    "StepLR": lambda s, o, **k: s.StepLR(o, 3, 0.5, **k),
    "MultiStepLR": lambda s, o, **k: s.MultiStepLR(o, [2, 5, 5], 0.5, **k),
    "ConstantLR": lambda s, o, **k: s.ConstantLR(o, 0.3, 4, **k),
    "LinearLR": lambda s, o, **k: s.LinearLR(o, 0.2, 0.9, 6, **k),
    "ExponentialLR": lambda s, o, **k: s.ExponentialLR(o, 0.8, **k),
    "PolynomialLR": lambda s, o, **k: s.PolynomialLR(o, 7, 1.5, **k),
    "CosineAnnealingLR": lambda s, o, **k: s.CosineAnnealingLR(o, 4, 0.01, **k),
    "CosineAnnealingWarmRestarts": lambda s, o, **k: s.CosineAnnealingWarmRestarts(o, 2, 2, 0.01, **k),
    "OneCycleLR": lambda s, o, **k: s.OneCycleLR(o, 0.5, total_steps=12, **k),
    "OneCycleLR, three phases": lambda s, o, **k: s.OneCycleLR(
        o, [0.5, 0.3], epochs=3, steps_per_epoch=4, three_phase=True, anneal_strategy="linear", **k
    ),
    "CyclicLR": lambda s, o, **k: s.CyclicLR(o, [0.01, 0.02], 0.5, 3, 2, "triangular2", **k),
    "CyclicLR, a height": lambda s, o, **k: s.CyclicLR(o, 0.01, 0.5, 2, scale_fn=Powers(0.7), **k),
    "SequentialLR": lambda s, o, **k: s.SequentialLR(o, [s.LinearLR(o, 0.1), s.ExponentialLR(o, 0.5)], [3], **k),
    "SequentialLR, from 0": lambda s, o, **k: s.SequentialLR(
        o, [s.LinearLR(o, 0.1), s.ExponentialLR(o, 0.5)], [0], **k
    ),
}
LEAVING: dict[str, Callable[..., Any]] = {
    **GOING_ON,
    **{name: make for name, make in SCHEDULES.items() if "Chained" in name or " of a " in name},
    "SequentialLR of a chain": lambda s, o: s.SequentialLR(
        o, [s.ChainedScheduler([s.ExponentialLR(o, 0.9), s.PolynomialLR(o, 9)]), s.PolynomialLR(o, 10)], [5]
    ),
    "ReduceLROnPlateau": lambda s, o: s.ReduceLROnPlateau(o, "max", 0.5, 0, cooldown=1, min_lr=[0.1, 0.01]),
}


def made(m: Any, kind: str) -> Any:
    first, second = ([m.nn.Parameter(m.ones(1))] for _ in "ab")
    settings = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(m.optim, kind)([{"params": first, "lr": 0.2}, {"params": second}], lr=0.1, **settings)


def stepped(optimizer: Any, schedule: Any, steps: int) -> list[Any]:
    """Rates and momenta before each step."""
    rates = []
    for _ in range(steps):
        groups = optimizer.param_groups
        rates.append(
            [[g["lr"], g["momentum"] if "momentum" in g else g["betas"][0]] for g in groups] + [schedule.get_last_lr()]
        )
        optimizer.step()
        schedule.step(*[1.0] * type(schedule).__name__.endswith("Plateau"))
    return rates


def going_on(m: Any, make: Callable[..., Any], kind: str, steps: int) -> list[Any]:
    """The rates of a second schedule, that is given the step of the first."""
    optimizer = made(m, kind)
    first = make(m.optim.lr_scheduler, optimizer)
    stepped(optimizer, first, steps)
    return stepped(optimizer, make(m.optim.lr_scheduler, optimizer, last_epoch=first.last_epoch), 4)


def left(m: Any, make: Callable[..., Any], state: Any = None) -> tuple[Any, list[Any]]:
    """The state after four steps, or another that is loaded then, and the rates of the next four."""
    optimizer = made(m, "SGD")
    schedule = make(m.optim.lr_scheduler, optimizer)
    if state is None:
        stepped(optimizer, schedule, 4)
        state = json.loads(json.dumps([schedule.state_dict(), _settings(optimizer)]))
    else:
        for group, settings in zip(optimizer.param_groups, state[1], strict=True):
            group.update(settings)
        count = {int(n): times for n, times in state[0].get("milestones", {}).items()}  # JSON has texts
        schedule.load_state_dict(state[0] | ({"milestones": count} if count else {}))
    return state, stepped(optimizer, schedule, 4)


STEPPING = OPTIMISERS | {"SGD, with momentum": lambda m, p: m.SGD(p, 0.1, 0.9), "Muon": lambda m, p: m.Muon(p, 0.1)}


def kept(m: Any, name: str, torchs: Any = None) -> list[Any]:
    """The parameters after four steps, the second of which has no gradient for one of them, the state then, and the
    parameters after three steps more; or these alone, from torch's.
    """
    params, after = [], []
    for x in START[: 1 if name == "Muon" else None] if torchs is None else torchs[0]:
        params.append(m.nn.Parameter(m.tensor(np.array(x), dtype=m.float32)))
    optimizer = STEPPING[name](m.optim, [{"params": params[:2]}, *[{"params": params[2:]}] * (len(params) > 2)])

    def step(n: int) -> None:
        optimizer.zero_grad()
        losses = [((p - m.tensor(g, dtype=m.float32)) ** 2).sum() for p, g in zip(params, GOAL, strict=False)]
        sum(losses[1:], losses[0]).backward()
        if n == 1:
            params[-1].grad = None
        optimizer.step()

    if torchs is None:
        for n in range(4):
            step(n)
        state = optimizer.state_dict()
        states = {str(i): {k: numbers(v) for k, v in of.items()} for i, of in state["state"].items()}
        after = [numbers(params), {"state": states, "param_groups": state["param_groups"]}]
    else:
        states = {
            int(i): {k: v if v is None else m.tensor(np.array(v), dtype=m.float32) for k, v in of.items()}
            for i, of in torchs[1]["state"].items()
        }
        optimizer.load_state_dict(torchs[1] | {"state": states})
    for _ in range(3):
        step(0)
    return [*after, numbers(params)]


def _settings(optimizer: Any) -> list[Any]:
    return [{name: value for name, value in g.items() if name != "params"} for g in optimizer.param_groups]


if __name__ == "__main__":
    import torch

    warnings.simplefilter("ignore")
    found = {
        "torch": torch.__version__,
        "going on": {
            f"{name}, {kind}": [going_on(torch, make, kind, n) for n in BROKEN_OFF]
            for name, make in GOING_ON.items()
            for kind in ("SGD", "AdamW")
        },
        "kept": {name: kept(torch, name) for name in STEPPING},
        "left": {name: left(torch, make) for name, make in LEAVING.items()},
    }
    rounded = json.loads(json.dumps(found), parse_float=lambda x: float(f"{float(x):.10g}"))
    TABLE.write_text(json.dumps(rounded, indent=0).replace(",\n", ", ") + "\n")
