"""Programs that blend what is mostly used alone: state replaced under jit, averages with buffers, weights that take
others' places. For ours and torch's: `python -m tests.nn.blends_programs` writes `blends.json`, what torch's give.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.nn.kin_programs import numbers, room, start, wave

TABLE = Path(__file__).with_name("blends.json")
Compile = Callable[[Any], Any]


def _set_buffer(m: Any, net: Any, group: Any) -> None:
    net[1].running_mean = m.zeros(6)


def _register(m: Any, net: Any, group: Any) -> None:
    net[1].register_buffer("running_mean", m.ones(6))
    net[1].running_var.mul_(2)


def _zero(m: Any, net: Any, group: Any) -> None:
    net[1].running_mean.zero_()


def _zero_and_decay(m: Any, net: Any, group: Any) -> None:
    net[1].running_mean.zero_()
    group["weight_decay"] = 0.5


def _zero_and_set(m: Any, net: Any, group: Any) -> None:
    net[1].running_var.fill_(1)
    net[1].eps = 0.1


def _zero_and_freeze(m: Any, net: Any, group: Any) -> None:
    net[1].running_mean.zero_()
    net[0].weight.requires_grad_(False)
    net[0].weight.grad = None


def _data(m: Any, net: Any, group: Any) -> None:
    net[1].running_mean.data = m.ones(6)
    net[0].weight.data = net[0].weight.data * 2
    net[1].momentum = 0.5


def _parts(m: Any, net: Any, group: Any) -> None:
    with m.no_grad():
        net[1].running_mean[2:4].add_(1)
        net[0].weight.view(-1)[::3] = 0
    net[2] = m.nn.ReLU()


def _load(m: Any, net: Any, group: Any) -> None:
    net[1].load_state_dict(m.nn.BatchNorm1d(6).state_dict())
    net[1].eps = 0.1


CHANGES = (
    _set_buffer, _register, _zero, _zero_and_decay, _zero_and_set, _zero_and_freeze, _data, _parts, _load,
)  # fmt: skip


def changed(change: Callable[[Any, Any, Any], None], times: tuple[int, ...]) -> Callable[[Any, Compile], Any]:
    """A training in which something changes before some of the steps."""

    def run(m: Any, compiled: Compile) -> Any:
        nn = m.nn
        net = start(m, nn.Sequential(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)))
        optimizer = m.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        count, left = m.zeros(2), []

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (net(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            with m.no_grad():
                count[0] += 1
                count[1:].mul_(0.5).add_(loss.detach())
            return loss

        call = compiled(step)
        for i in range(8):
            if i in times:
                change(m, net, optimizer.param_groups[0])
                count.zero_()
            left += [call(wave(m, 5, 4, shift=i)).item(), *numbers([net[1].running_mean, net[1].running_var, count])]
        return [left, *net.parameters()]

    return run


def replaced(lazily: bool) -> Callable[[Any, Compile], Any]:
    """A buffer of a module of the program's own, replaced before a call."""

    def run(m: Any, compiled: Compile) -> Any:
        own = m.nn.Module()
        own.register_buffer("seen", m.zeros(3))

        def call(x: Any) -> Any:
            own.seen.add_(x)
            return own.seen * 2

        step, found = compiled(call), []
        for i in range(9):
            if i in (3, 6):
                own.seen = m.ones(3) * i if lazily else m.tensor([1.0, 2.0, 3.0])
            found += [numbers(step(wave(m, 3, shift=i))), numbers(own.seen)]
        return found

    return run


def held(where: str, change: str) -> Callable[[Any, Compile], Any]:
    """A training by an optimiser that the step finds in a dict or a list, whose state changes between steps."""

    def run(m: Any, compiled: Compile) -> Any:
        net = start(m, m.nn.Linear(2, 1))
        optimizer = m.optim.Adam(net.parameters(), lr=0.1)
        box: dict[str, Any] = {"o": optimizer, "several": [optimizer], "seen": m.zeros(2)}

        def of_dict(x: Any) -> Any:
            box["o"].zero_grad()
            loss = (net(x) ** 2).sum()
            loss.backward()
            box["o"].step()
            return loss

        def of_list(x: Any) -> Any:
            for o in box["several"]:
                o.zero_grad()
            loss = (net(x) ** 2).sum()
            loss.backward()
            for o in box["several"]:
                o.step()
            with m.no_grad():
                box["seen"].add_(1)
            return loss

        call, found = compiled(of_dict if where == "dict" else of_list), []
        for i in range(8):
            if i in (1, 4, 6):
                state = optimizer.state[net.weight]
                if change == "clear":
                    optimizer.state.clear()
                elif change == "replace":
                    state["exp_avg"] = m.zeros(1, 2)
                else:
                    state["exp_avg"].zero_()
                box["seen"] = m.zeros(2)
            found += [call(wave(m, 3, 2, shift=i)).item(), numbers(box["seen"])]
        return [found, *net.parameters()]

    return run


MEMBERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "append": lambda o, a, b: o.param_groups[0]["params"].append(b),
    "put": lambda o, a, b: o.param_groups[0]["params"].__setitem__(0, b),
    "set": lambda o, a, b: o.param_groups[0].update(params=[a, b]),
    "add a group": lambda o, a, b: o.add_param_group({"params": [b]}),
    "take state": lambda o, a, b: o.state.pop(a, None),
}


def member(kind: str, how: str) -> Callable[[Any, Compile], Any]:
    """A training whose optimiser gets another parameter, or loses the state of one, in the middle."""

    def run(m: Any, compiled: Compile) -> Any:
        a, b = m.nn.Parameter(m.ones(2)), m.nn.Parameter(m.ones(2) * 2)
        optimizer = getattr(m.optim, kind)([a], lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = ((a * x) ** 2).sum() + ((b * x) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        found: list[Any] = []
        for i in range(6):
            if i == 3:
                MEMBERS[how](optimizer, a, b)
            step(wave(m, 2, shift=i))
            found += [numbers(a), numbers(b)]
        return found

    return run


def averaged(make: Callable[[Any], dict[str, Any]], buffers: bool) -> Callable[[Any, Compile], Any]:
    def run(m: Any, compiled: Compile) -> Any:
        swa = room(m, "optim.swa_utils")
        net = start(m, m.nn.Sequential(m.nn.Linear(2, 3), m.nn.BatchNorm1d(3)))
        mean = swa.AveragedModel(net, use_buffers=buffers, **make(swa))
        found = []
        for i in range(5):
            net(wave(m, 4, 2, shift=i))
            mean.update_parameters(net)
            found += [mean.module[1].running_mean, mean.module[1].num_batches_tracked]
            found = numbers(found)
        return found

    return run


def assigned(m: Any, compiled: Compile) -> Any:
    nn = m.nn
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net[0].bias.requires_grad_(False)
    state = {name: m.ones_like(t) * 2 for name, t in net.state_dict().items()}
    state["0.weight"] = m.ones(2, 2, dtype=m.float64)
    own = state["1.weight"] = nn.Parameter(m.zeros(2))
    keys = net.load_state_dict(state, assign=True)
    shown = [[n, str(t.dtype)[-7:], t.requires_grad] for n, t in net.named_parameters()]
    tied = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)])
    tied[1].weight = tied[0].weight
    tied.load_state_dict({"0.weight": own.reshape(1, 2).expand(2, 2), "1.weight": m.ones(2, 2)}, assign=True)
    lists = nn.ParameterList([nn.Parameter(m.zeros(1)), nn.Parameter(m.zeros(1))])
    lists.load_state_dict({"1": m.ones(1)}, assign=True, strict=False)
    refused = []
    for given in ({"weight": m.ones(3)}, {"weight": m.ones(2, 2)}, {"bias": 1.0}):
        try:
            nn.Linear(2, 2).load_state_dict(given, assign=True)
        except Exception as error:
            refused.append(isinstance(error, RuntimeError))
    here = [net[1].weight is own, net[1].running_mean is state["1.running_mean"], len(list(tied.parameters()))]
    return [*keys, shown, here, list(lists), *net.state_dict().values(), refused[:2]]


def functions(m: Any, compiled: Compile) -> Any:
    func, x = m.func, wave(m, 5, 3)
    value, slope = func.linearize(lambda a, b: a.sin() * b, x[0], x[1])
    norm = m.nn.utils.get_total_norm
    return [
        value,
        slope(x[2], x[3]),
        func.vmap(lambda a: (a**2).sum(), chunk_size=2)(x),
        func.jacrev(lambda a: a**3, chunk_size=2)(x[0]),
        [norm([x, x[0] * 3], p) for p in (2.0, 1.0, float("inf"))],
        norm([]),
        norm(x[1]),
        [
            m.isin(m.tensor([1, 2, 3]), m.tensor(v), assume_unique=True, invert=i) * 1
            for v in ([3, 1], [2])
            for i in (False, True)
        ],
    ]


PROGRAMS: dict[str, Callable[[Any, Compile], Any]] = {
    **{f"{c.__name__.strip('_')} {t}": changed(c, t) for c in CHANGES for t in ((1,), (4,), (3, 4, 6))},
    **{f"replaced, {'lazy' if lazy else 'known'}": replaced(lazy) for lazy in (False, True)},
    **{
        f"{change} the state, in a {where}": held(where, change)
        for where in ("dict", "list")
        for change in ("clear", "replace", "zero")
    },
    **{
        f"{kind}: {how}": member(kind, how)
        for kind in ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "SGD", "ASGD")
        for how in MEMBERS
    },
    **{
        f"averages, {name}, {buffers}": averaged(make, buffers)
        for buffers in (False, True)
        for name, make in {
            "all": lambda swa: {},
            "one by one": lambda swa: {"avg_fn": swa.get_ema_avg_fn(0.5)},
            "own": lambda swa: {"avg_fn": lambda mean, new, n: 0.5 * mean + 0.5 * new},
        }.items()
    },
    "assigned": assigned,
    "functions": functions,
}


if __name__ == "__main__":
    import torch

    results = {name: numbers(run(torch, lambda step: step)) for name, run in PROGRAMS.items()}
    TABLE.write_text(json.dumps({"torch": torch.__version__, "results": results}).replace('], "', '],\n"') + "\n")
