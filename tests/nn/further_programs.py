"""Programs with names of torch that few programs need: hooks of steps and states, extra state, lists of axes. For ours
and torch's: `python -m tests.nn.further_programs` writes `further.json`, what torch's give.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.nn.kin_programs import numbers, start, wave

TABLE = Path(__file__).with_name("further.json")


def _fitted(m: Any, kind: str, **settings: Any) -> tuple[Any, Any, Callable[[], Any]]:
    """An optimiser of one parameter, and a function that makes its gradient and gives the loss."""
    p = m.nn.Parameter(wave(m, 3))
    optimizer = getattr(m.optim, kind)([p], lr=0.1, **settings)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    return p, optimizer, closure


def steps_hooked(m: Any) -> Any:
    p, optimizer, closure = _fitted(m, "SGD", momentum=0.9)
    log: list[Any] = []
    handle = optimizer.register_step_pre_hook(lambda o, args, kw: log.append(["before", args[0] is o, len(args), kw]))
    optimizer.register_step_post_hook(lambda o, args, kw: log.append(["after", o is optimizer, len(args), kw]))
    closure()
    optimizer.step()
    loss = optimizer.step(closure)
    handle.remove()
    closure()
    optimizer.step()
    optimizer.register_step_pre_hook(lambda o, args, kw: ((*args, closure), kw))
    given = optimizer.step()  # the hook gives the closure
    other = copy.deepcopy(optimizer)  # without hooks
    other.param_groups[0]["params"][0].grad = m.ones(3)
    other.step()
    return [log, loss, given, p, other.param_groups[0]["params"][0]]


def states_hooked(m: Any) -> Any:
    p, optimizer, closure = _fitted(m, "Adam")
    log: list[Any] = []

    def saved(o: Any, state: Any) -> None:
        state["note"] = 1

    def loading(o: Any, state: Any) -> Any:
        log.append(["loading", state.pop("note"), state.pop("more")])
        return state

    optimizer.register_state_dict_pre_hook(lambda o: log.append("saving"))
    optimizer.register_state_dict_post_hook(saved)
    optimizer.register_state_dict_post_hook(lambda o, s: {**s, "more": [k for k in s if k == "note"]}, prepend=True)
    optimizer.register_load_state_dict_pre_hook(loading)
    optimizer.register_load_state_dict_post_hook(lambda o: log.append("loaded"))
    closure()
    optimizer.step()
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    closure()
    optimizer.step()
    return [log, state["note"], state["more"], p]


def groups_put_in(m: Any) -> Any:
    p, optimizer, closure = _fitted(m, "SGD")
    q = m.nn.Parameter(m.ones(2))
    optimizer.param_groups.append({**optimizer.param_groups[0], "params": [q], "lr": 0.5})
    for _ in range(3):
        closure()
        (q * q).sum().backward()
        optimizer.step()
    optimizer.zero_grad()
    return [p, q, q.grad is None, len(optimizer.param_groups)]


def extra_state(m: Any) -> Any:
    class Words(m.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = m.nn.Parameter(m.ones(2))
            self.words = {"a": 1}

        def get_extra_state(self) -> Any:
            return self.words

        def set_extra_state(self, state: Any) -> None:
            self.words = state

    net = m.nn.Sequential(Words(), m.nn.ReLU())
    state = net.state_dict()
    found = [sorted(state), state["0._extra_state"]]
    state["0._extra_state"] = {"b": 2}
    net.load_state_dict(state)
    found += [net[0].words]
    del state["0._extra_state"]
    return [*found, *net.load_state_dict(state, strict=False), *m.nn.ReLU().load_state_dict({"_extra_state": 1}, False)]


def modules_hooked(m: Any) -> Any:
    layer, log = m.nn.Linear(2, 2), list[Any]()

    def saved(module: Any, state: Any, prefix: str, _: Any) -> None:
        del state[prefix + "weight"]

    def loading(module: Any, state: Any, prefix: str, *rest: Any) -> None:
        log.append([prefix, len(rest)])
        state[prefix + "bias"] = state.pop(prefix + "b")

    def loaded(module: Any, keys: Any) -> None:
        log.append(list(keys.missing_keys))
        keys.missing_keys.clear()

    layer.register_state_dict_pre_hook(lambda module, prefix, keep: log.append([prefix, keep]))
    layer.register_state_dict_post_hook(saved)
    net = m.nn.Sequential(layer, m.nn.ReLU())
    state = net.state_dict(prefix="net.", keep_vars=True)
    layer.register_load_state_dict_pre_hook(loading)
    layer.register_load_state_dict_post_hook(loaded)
    keys = net.load_state_dict({"0.b": m.ones(2)})
    return [sorted(state), log, list(keys.missing_keys), list(keys.unexpected_keys), layer.bias]


def states_overridden(m: Any) -> Any:
    class Older(m.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = m.nn.Parameter(m.zeros(2))

        def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any, **named: Any) -> None:
            if prefix + "gamma" in state_dict:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "gamma")
            super()._load_from_state_dict(state_dict, prefix, *rest, **named)

        def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "half"] = destination[prefix + "weight"] / 2

    net = m.nn.ModuleDict({"a": Older()})
    given = {"a.gamma": m.ones(2)}
    keys = net.load_state_dict(given)
    return [list(keys.missing_keys), list(given), net["a"].weight, sorted(net.state_dict()), net.state_dict()["a.half"]]


def methods_of_parts(m: Any) -> Any:
    """Methods that a class defines are called by the module above it, and what they leave out is left out."""

    class Part(m.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.calls = m.nn.Parameter(m.ones(2)), list[Any]()
            self.below = m.nn.Linear(1, 1, bias=False)

    class Saves(Part):
        def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
            super().state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)
            destination[prefix + "more"] = m.zeros(1)
            destination.pop(prefix + "weight")

    class Packs(Part):
        def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
            destination[prefix + "packed"] = self.weight.detach() * 2

        def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
            with m.no_grad():
                self.weight.copy_(state_dict[prefix + "packed"] / 2)

    class Chooses(Part):
        def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
            super()._load_from_state_dict({prefix + "weight": state_dict[prefix + "weight"] + 5}, prefix, *rest)

    class Moves(Part):
        def _apply(self, fn: Any, recurse: bool = True) -> Any:
            self.calls.append(recurse)
            super()._apply(fn)
            self.table = [fn(m.ones(1))]
            return self

    def net(part: type[Part]) -> Any:
        return m.nn.Sequential(m.nn.Sequential(part()), m.nn.ReLU())

    saved = [list(net(part).state_dict()) for part in (Saves, Packs, Chooses)]
    packed, chosen, moved = net(Packs), net(Chooses), net(Moves)
    part = packed[0][0]
    keys = packed.load_state_dict({"0.0.packed": m.ones(2) * 6, "0.0.below.weight": m.ones(1, 1) * 3})
    chosen.load_state_dict({"0.0.weight": m.ones(2), "0.0.below.weight": m.ones(1, 1)})
    moved.to("cpu").double()._apply(lambda t: t + 1)
    last = moved[0][0]
    return [
        *[saved, list(keys.missing_keys), list(keys.unexpected_keys), part.weight, part.below.weight],
        [chosen[0][0].weight, last.calls, last.weight, last.table[0], last.weight.dtype == m.float64],
    ]


def doubled(module: Any, args: Any, result: Any) -> Any:
    return result * 2


def copies(m: Any) -> Any:
    """Copies and pickles of modules with hooks, shared and frozen parameters, and tensors that are not saved."""
    nn, x = m.nn, wave(m, 3, 2)

    def net() -> Any:
        last = nn.Linear(2, 2, bias=False)
        model = start(m, nn.Sequential(last, nn.BatchNorm1d(2), last, nn.ParameterList([nn.Parameter(m.ones(1))])))
        model.register_buffer("table", m.ones(2), persistent=False)
        model.register_buffer("none", None)
        model.register_parameter("gone", None)
        model[1].weight.requires_grad_(False)
        model[0].register_forward_hook(doubled)
        model[1](x)
        return model.eval()

    def facts(model: Any) -> list[Any]:
        names = [[n for n, _ in model.named_parameters()], [n for n, _ in model.named_buffers()], [*model.state_dict()]]
        out = model[2](model[1](model[0](x))) * model[3][0]
        out.sum().backward()
        grads = [p.grad for p in model.parameters()]
        ties = [model[0] is model[2], model.training, model[1].weight.requires_grad, model.none, model.gone]
        return [names, out.detach(), grads, ties, model[1].running_mean, model[1].num_batches_tracked]

    normed = nn.utils.parametrizations.weight_norm(start(m, nn.Linear(2, 3)))
    other = copy.deepcopy(normed)
    with m.no_grad():
        other.parametrizations.weight.original0.mul_(2)
    found = [normed(x).detach(), other(x).detach(), sorted(other.state_dict())]
    nn.utils.parametrize.remove_parametrizations(other, "weight")
    model = net()
    both = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    return [
        *map(facts, (model, *both)),
        found,
        other(x).detach(),
        sorted(other.state_dict()),
        sorted(normed.state_dict()),
    ]


def members(m: Any) -> Any:
    net = m.nn.Sequential(m.nn.Linear(2, 3), m.nn.ReLU())
    net.register_buffer("scale", m.ones(1))
    found = [list(net._modules), list(net[0]._parameters), list(net._buffers), len(net._parameters)]
    for name, module in net._modules.items():
        if isinstance(module, m.nn.ReLU):
            net._modules[name] = m.nn.Tanh()
    net[0]._parameters["bias"] = m.nn.Parameter(m.ones(3))
    net._buffers["scale"] = m.ones(2)
    out = start(m, net)(wave(m, 2, 2))
    del net._modules["1"]
    return [*found, out, net.scale, len(net), net._buffers.get("none"), "weight" in net[0]._parameters]


def axes_listed(m: Any) -> Any:
    x, y = wave(m, 2, 3), wave(m, 3, 4)
    return [
        m.einsum(x, [0, 1], y, [1, 2], [0, 2]),
        m.einsum(x, (30, 1), y, (1, 5)),  # the result's axes are in the order of numbers
        m.einsum(x, [..., 1], y, [1, 2], [..., 2]),
        m.einsum(x, [1, 0]),
        m.einsum(x, [0, 1], []),
        m.einsum(x, [0, 1], y, [2, 3], [0]),
        m.einsum("ij,jk", [x, y]),
    ]


def modes(m: Any) -> Any:
    a, b = m.tensor([0.5, 0.2, 3.0, 2.0, 0.5]), m.tensor([0.5, 0.9, 0.5, 3.0, 2.0])
    return [m.distributions.Beta(a, b).mode, m.distributions.Beta(0.5, 0.5).mode]


def streams(m: Any) -> Any:
    found = []
    for g in (m.Generator(device="cpu"), m.Generator("cpu"), m.Generator(m.device("cpu"))):
        seeded = g.manual_seed(4) is g
        state = g.get_state()
        first = m.rand(2, generator=g).tolist()
        g.set_state(state)
        found.append([seeded, g.device.type, g.initial_seed(), first == m.rand(2, generator=g).tolist()])
    return found


def marks(m: Any) -> Any:
    jit = m.jit

    class Net(m.nn.Module):  # type: ignore[misc,name-defined]
        scale: jit.Final[int]

        def __init__(self) -> None:
            super().__init__()
            self.scale = 2

        @jit.ignore  # type: ignore[untyped-decorator]
        def no_weight_decay(self) -> set[str]:
            return {"pos_embed"}

        @jit.unused  # type: ignore[untyped-decorator]
        def unused(self) -> int:
            return 3

        @jit.ignore(drop=False)  # type: ignore[untyped-decorator]
        def named(self) -> int:
            return 4

        @jit.export  # type: ignore[untyped-decorator]
        def exported(self, x: m.Tensor) -> m.Tensor:
            return x

        def forward(self, x: m.Tensor) -> m.Tensor:
            return x if jit.is_scripting() or jit.is_tracing() else x * self.scale

    net = Net()
    return [list(net.no_weight_decay()), net.unused(), net.named(), net(m.ones(2)), jit.annotate(int, 5)]


def bases(m: Any) -> Any:
    modules, nn = m.nn.modules, m.nn
    kinds = [
        modules.batchnorm._BatchNorm,
        modules.instancenorm._InstanceNorm,
        modules.conv._ConvNd,
        nn.RNNBase,
        nn.RNNCellBase,
    ]
    layers = [
        nn.BatchNorm2d(2),
        nn.SyncBatchNorm(2),
        nn.InstanceNorm1d(2),
        nn.Conv2d(2, 2, 1),
        nn.ConvTranspose1d(2, 2, 1),
    ]
    layers += [nn.LSTM(2, 2), nn.GRUCell(2, 2), nn.LayerNorm(2)]

    class Weighted(modules.loss._WeightedLoss):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, y: Any) -> Any:
            return nn.functional.cross_entropy(x, y, self.weight, reduction=self.reduction)

    loss = Weighted(m.ones(3), reduction="sum")
    fans = [nn.init._calculate_fan_in_and_fan_out(x.weight) for x in (nn.Linear(4, 3), nn.Conv2d(2, 4, 3))]
    return [
        [[isinstance(x, kind) for kind in kinds] for x in layers],
        [isinstance(loss, modules.loss._Loss), loss(wave(m, 2, 3), m.tensor([0, 2])), list(loss.state_dict())],
        [list(pair) for pair in fans],
    ]


def older_schedule(m: Any) -> Any:
    class Warmup(m.optim.lr_scheduler._LRScheduler):  # type: ignore[misc,name-defined]
        def get_lr(self) -> list[float]:
            assert self._get_lr_called_within_step
            assert self._step_count == self.last_epoch + 1
            return [lr * min(1.0, self._step_count / 4) for lr in self.base_lrs]

    _, optimizer, _ = _fitted(m, "SGD")
    schedule, rates = Warmup(optimizer), []
    for _ in range(5):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


def lazy_layers(m: Any) -> Any:
    nn = m.nn
    net = nn.Sequential(nn.LazyConv2d(4, 3, padding=1), nn.LazyBatchNorm2d(), nn.ReLU(), nn.LazyConv2d(6, 3, groups=2))
    net += nn.Sequential(
        nn.LazyConvTranspose2d(2, 2), nn.LazyInstanceNorm2d(affine=True), nn.Flatten(), nn.LazyLinear(5)
    )
    kinds = [type(layer).__name__ for layer in net]
    optimizer = m.optim.SGD(net.parameters(), lr=0.1)
    x = wave(m, 2, 3, 6, 6)
    shape = net(x).shape
    start(m, net)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [
        kinds,
        [type(layer).__name__ for layer in net],
        list(shape),
        losses,
        [list(p.shape) for p in net.parameters()],
    ]


def parallel(m: Any) -> Any:
    net = m.nn.DataParallel(start(m, m.nn.Linear(3, 2)))
    sampler = m.utils.data.distributed.DistributedSampler
    parts = [
        [*sampler(range(n), 3, r, shuffle=False, drop_last=d)] for n, d in ((7, False), (7, True)) for r in range(3)
    ]
    whole = [sampler(range(9), 3, r, seed=1) for r in range(3)]
    orders = []
    for epoch in (0, 1):
        for s in whole:
            s.set_epoch(epoch)
        orders.append([n for s in whole for n in s])
    loader = m.utils.data.DataLoader(m.arange(6), batch_size=2, sampler=sampler(range(6), 2, 1, shuffle=False))
    return [
        [net(wave(m, 2, 3)), list(net.state_dict()), isinstance(net.module, m.nn.Linear)],
        [parts, [sorted(order) for order in orders], orders[0] == orders[1], [len(s) for s in whole]],
        [batch.tolist() for batch in loader],
    ]


def close(m: Any) -> Any:
    x = m.tensor([1.0, 2.0])
    pairs: list[Any] = [
        (x, x + 1e-6),
        (x, x + 1e-4),
        (x, x.double()),
        (x, m.tensor([[1.0, 2.0]])),
        ([x, 1], [x, 1]),
        ({"a": x}, {"a": x + 1}),
        ([x], [x, x]),
        (1.0, 1.0 + 1e-9),
        (m.tensor([1, 2]), m.tensor([1, 3])),
        (m.tensor([math.nan]), m.tensor([math.nan])),
    ]
    found = []
    for a, b in pairs:
        for options in ({}, {"rtol": 0.0, "atol": 1e-3}, {"check_dtype": False}, {"equal_nan": True}):
            try:
                m.testing.assert_close(a, b, **options)
                found.append(True)
            except AssertionError:
                found.append(False)
    return found


def facts(m: Any) -> Any:
    x = wave(m, 1, 1, 3, 2)
    hidden = x.new(2, 3).zero_()
    return [
        [hidden, x.new(x.size()).shape[2], x.new([1, 2]), m.tensor([-1.5]).fix(), x[0, 0, 0].ger(m.ones(2))],
        [m.is_autocast_cpu_enabled(), str(m.get_autocast_gpu_dtype())[-7:], m.version.cuda],
        [m.accelerator.is_available(), m.accelerator.current_accelerator(), m.accelerator.device_count()],
    ]


def stateless_calls(m: Any) -> Any:
    """Functional calls: buffers that the call itself binds or changes stay, ties, missing names."""

    class Counting(m.nn.Module):  # type: ignore[misc]
        def __init__(self, in_place: bool) -> None:
            super().__init__()
            self.first, self.second = m.nn.Linear(2, 2, bias=False), m.nn.Linear(2, 2, bias=False)
            self.second.weight = self.first.weight
            self.register_buffer("seen", m.ones(2))
            self.in_place = in_place

        def forward(self, x: Any) -> Any:
            if self.in_place:
                self.seen += 1
            else:
                self.seen = self.seen + 1
            return self.second(self.first(x)) * self.seen

    found, call, x = [], m.func.functional_call, wave(m, 1, 2)
    for in_place in (False, True):
        net, given = start(m, Counting(in_place)), {"first.weight": m.eye(2)}
        mine = m.zeros(2)
        found += [call(net, given, x), net.seen.clone(), call(net, {**given, "seen": mine}, x), net.seen.clone(), mine]
        found += [call(net, given, (x,), tie_weights=False), net.seen.clone(), net.second.weight is net.first.weight]
        for ties, more in [(True, {}), (False, {}), (True, {"seen": mine}), (False, {"seen": mine})]:
            try:
                found.append(call(net, {**given, **more}, x, tie_weights=ties, strict=True))
            except Exception:
                found.append("refused")
    return found


def parts(m: Any) -> Any:
    nn, table = m.nn, wave(m, 4, 3)
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    named = nn.Sequential(OrderedDict(up=nn.Linear(2, 3), act=nn.ReLU(), down=nn.Linear(3, 1)))
    shown = [list(part.state_dict()) for part in (net[1:], net[:2], net[::2], named[1:], named[-1:], net[3:])]
    bag = nn.EmbeddingBag.from_pretrained(table, mode="sum", padding_idx=1)
    rows = nn.Embedding.from_pretrained(table, False, 1, max_norm=1.0, scale_grad_by_freq=True)
    (rows(m.tensor([0, 1, 2, 2])) * wave(m, 4, 3)).sum().backward()
    return [
        shown,
        named[1:](wave(m, 2, 3)).shape,
        [bag(m.tensor([[0, 1, 3]])), bag.weight.requires_grad, rows.weight.requires_grad],
        [rows.weight.grad, rows.weight],
    ]


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "steps hooked": steps_hooked,
    "states hooked": states_hooked,
    "groups put in": groups_put_in,
    "extra state": extra_state,
    "modules hooked": modules_hooked,
    "states overridden": states_overridden,
    "methods of parts": methods_of_parts,
    "copies": copies,
    "members": members,
    "axes listed": axes_listed,
    "modes": modes,
    "streams": streams,
    "marks": marks,
    "bases": bases,
    "older schedule": older_schedule,
    "lazy layers": lazy_layers,
    "parallel": parallel,
    "close": close,
    "facts": facts,
    "stateless calls": stateless_calls,
    "parts": parts,
}


if __name__ == "__main__":
    import torch

    results = {name: numbers(run(torch)) for name, run in PROGRAMS.items()}
    TABLE.write_text(json.dumps({"torch": torch.__version__, "results": results}).replace('], "', '],\n"') + "\n")
