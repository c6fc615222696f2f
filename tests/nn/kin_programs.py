"""Programs of what stands beside layers and optimisers, for ours and torch's: `python -m tests.nn.kin_programs` writes
`kin.json`, what torch's give.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

TABLE = Path(__file__).with_name("kin.json")


def room(m: Any, name: str) -> Any:
    return import_module(f"{m.__name__}.{name}")


def wave(m: Any, *shape: int, shift: float = 0.0) -> Any:
    x = np.sin(np.arange(np.prod(shape, dtype=int)) * 1.3 + shift)
    return m.tensor(x.reshape(shape).astype(np.float32))


def start(m: Any, module: Any) -> Any:
    with m.no_grad():
        for n, (_, p) in enumerate(sorted(module.named_parameters())):
            p.copy_(wave(m, *p.shape, shift=n) * 0.5)
    return module


def numbers(found: Any) -> Any:
    """Tensors as lists of numbers of seven digits; what holds them as lists."""
    if hasattr(found, "detach"):
        return np.vectorize(lambda v: float(f"{v:.6g}"), otypes=[float])(found.detach().numpy()).tolist()
    return [numbers(x) for x in found] if isinstance(found, (list, tuple)) else found


def packed(kind: str, sides: int, layers: int, first: bool, lengths: list[int], hx: bool) -> Callable[[Any], Any]:
    def run(m: Any) -> Any:
        rnn = room(m, "nn.utils.rnn")
        made = start(m, getattr(m.nn, kind)(2, 3, layers, batch_first=first, bidirectional=sides == 2))
        x = wave(m, *((len(lengths), 4) if first else (4, len(lengths))), 2).requires_grad_()
        ordered = lengths == sorted(lengths, reverse=True)
        given = rnn.pack_padded_sequence(x, m.tensor(lengths), first, enforce_sorted=ordered)
        state = wave(m, layers * sides, len(lengths), 3) if hx else None
        state = (state, state * 0.5) if hx and kind == "LSTM" else state
        out, end = made(given, state)
        y, sizes = rnn.pad_packed_sequence(out, True, -1.0, 5)
        ends = list(end) if isinstance(end, tuple) else [end]
        (y.sum() + (ends[-1] ** 2).sum()).backward()
        return [out.data, out.batch_sizes, y, sizes, *ends, x.grad, next(iter(made.parameters())).grad]

    return run


def sequences(m: Any) -> Any:
    rnn = room(m, "nn.utils.rnn")
    rows = [wave(m, n, 2, shift=n) for n in (2, 4, 1)]
    pack = rnn.pack_sequence(rows, enforce_sorted=False)
    sides = [rnn.pad_sequence(rows, b, 9.0, padding_side=s) for b in (False, True) for s in ("right", "left")]
    back = rnn.unpad_sequence(rnn.pad_sequence(rows, True), m.tensor([2, 4, 1]), batch_first=True)
    return [
        pack.data,
        pack.batch_sizes,
        pack.sorted_indices,
        pack.unsorted_indices,
        *sides,
        *back,
        *rnn.unpack_sequence(pack),
    ]


def averaged(**options: Any) -> Callable[[Any], Any]:
    def run(m: Any) -> Any:
        swa = room(m, "optim.swa_utils")
        chosen = {name: getattr(swa, function)(*given) for name, (function, *given) in options.items()}
        model = start(m, m.nn.Sequential(m.nn.Linear(2, 3), m.nn.BatchNorm1d(3), m.nn.Linear(3, 1)))
        mean = swa.AveragedModel(model, **chosen)
        optimizer = m.optim.SGD(model.parameters(), 0.1)
        schedule = swa.SWALR(optimizer, 0.3, 3)
        rates = []
        for n in range(6):
            optimizer.zero_grad()
            (model(wave(m, 4, 2, shift=n)) ** 2).mean().backward()
            optimizer.step()
            mean.update_parameters(model)
            rates.append(optimizer.param_groups[0]["lr"])
            schedule.step()
        swa.update_bn([(wave(m, 4, 2, shift=n), None) for n in range(3)], mean)
        names = sorted(mean.state_dict())
        return [rates, names, [mean.state_dict()[name] for name in names], mean.eval()(wave(m, 3, 2))]

    return run


def statistics(m: Any) -> Any:
    norm = m.nn.BatchNorm1d(2)
    norm(wave(m, 3, 2))
    seen = [norm.running_mean.clone(), norm.num_batches_tracked.clone()]
    norm.reset_running_stats()
    seen += [norm.running_mean.clone(), norm.running_var.clone(), norm.num_batches_tracked.clone()]
    with m.no_grad():
        norm.weight.fill_(3.0)
    norm.reset_parameters()
    return [*seen, norm.weight, norm.bias]


def own_reset(m: Any) -> Any:
    class Mine(m.nn.Linear):  # type: ignore[misc, name-defined]
        def reset_parameters(self) -> None:
            with m.no_grad():
                self.weight.fill_(0.5)
                self.bias.fill_(-1.0)

    return [*Mine(2, 1).parameters()]


def containers(m: Any) -> Any:
    row = m.nn.ModuleList([m.nn.ReLU(), None, m.nn.Tanh()])
    values = m.nn.ParameterList([m.ones(1), 3, "a"])
    named = m.nn.ParameterDict({"a": m.ones(1)})
    other = named.copy()
    other.setdefault("b", m.nn.Parameter(m.zeros(2)))
    last, _ = other.popitem()
    kinds = [type(row[m.tensor(2)]).__name__, type(row[m.tensor([0])]).__name__, type(row[-2]).__name__]
    return [kinds, values[1], values[2], list(named.keys()), last, len(other), [type(v).__name__ for v in values]]


def group_added(m: Any) -> Any:
    a, b = (m.nn.Parameter(wave(m, 3, shift=n)) for n in range(2))
    optimizer = m.optim.Adam([a], lr=0.1)
    for n in range(4):
        if n == 2:
            optimizer.add_param_group({"params": b, "lr": 0.01, "betas": (0.5, 0.9)})
        optimizer.zero_grad()
        ((a * b) ** 2).sum().backward()
        optimizer.step()
    return [a, b, [g["lr"] for g in optimizer.param_groups]]


def feeding(m: Any) -> Any:
    data = room(m, "utils.data")
    rows = data.TensorDataset(wave(m, 5, 2), m.arange(5))
    stacked = data.StackDataset(x=[1.0, 2.0], y=[3, 4])
    whole = data.ConcatDataset([rows, rows])
    loaders = [
        data.DataLoader(rows, 2),
        data.DataLoader(rows, batch_size=2, drop_last=True),
        data.DataLoader(whole, batch_sampler=data.BatchSampler(range(9, 2, -1), 3, False)),
        data.DataLoader([(np.float32(1.5), [1, 2])], batch_size=None),
        data.DataLoader(data.Subset(rows, [4, 0]), 2, sampler=data.SequentialSampler(range(2))),
    ]
    more = [
        data.default_collate([{"a": 1, "b": (1.5, "x")}, {"a": 2, "b": (2.5, "y")}])["b"],
        len(whole),
        len(loaders[0]),
    ]
    weighted = list(data.WeightedRandomSampler([0.0, 0.0, 1.0], 3))
    subset = sorted(data.SubsetRandomSampler([3, 1]))
    parts = [len(p) for p in data.random_split(range(10), [0.75, 0.25])]
    return [[[*batch] for batch in loader] for loader in loaders] + [more, weighted, subset, parts, stacked[1]["y"]]


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    **{
        f"{kind} {sides} {layers} {lengths} {hx}": packed(kind, sides, layers, sides == 2, lengths, hx)
        for kind in ("RNN", "GRU", "LSTM")
        for sides, layers in ((1, 1), (2, 2))
        for lengths, hx in (([4, 2, 2, 1], False), ([2, 4, 1], True))
    },
    "sequences": sequences,
    "mean of all": averaged(),
    "moving mean": averaged(multi_avg_fn=("get_ema_multi_avg_fn", 0.7)),
    "moving mean, one by one": averaged(avg_fn=("get_ema_avg_fn", 0.7)),
    "mean of all, several": averaged(multi_avg_fn=("get_swa_multi_avg_fn",)),
    "statistics": statistics,
    "own reset": own_reset,
    "containers": containers,
    "a group added": group_added,
    "feeding": feeding,
}


if __name__ == "__main__":
    import torch

    results = {name: numbers(run(torch)) for name, run in PROGRAMS.items()}
    TABLE.write_text(json.dumps({"torch": torch.__version__, "results": results}).replace('], "', '],\n"') + "\n")
