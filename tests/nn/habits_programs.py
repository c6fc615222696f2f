"""Programs of what programs of torch do around their models: devices, settings, files, scaled losses, buffers. For ours
and torch's: `python -m tests.nn.habits_programs` writes `habits.json`, what torch's give.
"""

from __future__ import annotations

import copy
import io
import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.nn.kin_programs import numbers, room, start, wave

TABLE = Path(__file__).with_name("habits.json")


def devices(m: Any) -> Any:
    cpu, x = m.device("cpu"), m.zeros(2, 3)
    gpu = m.device("cuda" if m.cuda.is_available() else "cpu")
    with m.device("cpu"):
        made = m.ones(2, device=cpu)
    return [
        *[[d.type, d.index, str(d), f"{d}"] for d in (cpu, m.device("cuda:1"), m.device("cuda", 0), m.device(cpu))],
        [m.device(type="cpu") == cpu, x.device == gpu, cpu != m.device("cuda"), {cpu: 1}[x.device], made.device.type],
        [isinstance(x.device, m.device), isinstance(cpu, m.device), isinstance("cpu", m.device)],
        [
            x.to(cpu, non_blocking=True).device.type,
            x.to(gpu, m.float32).device.type,
            str(pickle.loads(pickle.dumps(cpu))),
        ],
        [m.cuda.device_count(), m.cuda.is_initialized(), m.cuda.manual_seed_all(1), m.cuda.memory_allocated()],
    ]


def dtypes(m: Any) -> Any:
    names = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2".split()  # noqa: SIM905
    kinds = [(d.is_floating_point, d.is_complex, d.is_signed, d.itemsize) for d in [getattr(m, n) for n in names]]
    ints = [(i.bits, i.min, i.max) for i in [m.iinfo(getattr(m, n)) for n in names[1:6]]]
    floats = [m.finfo(getattr(m, n)) for n in names[6:10]]
    return [
        kinds,
        ints,
        [(f.bits, f.eps, f.max, f.tiny, f.smallest_normal, f.resolution) for f in floats],
        m.finfo().bits,
    ]


def layouts(m: Any) -> Any:
    x, last = wave(m, 1, 2, 2, 3), m.channels_last
    net = m.nn.Conv2d(2, 1, 1).to(memory_format=last).to(m.device("cpu"), m.float32, True)
    same = [x.to(memory_format=last), x.contiguous(memory_format=last), x.clone(memory_format=m.preserve_format)]
    kin = [getattr(m, f"{f}_like")(x, memory_format=m.contiguous_format).shape for f in ("empty", "zeros", "rand")]
    facts = [x.is_sparse, x.is_quantized, x.is_complex(), x.layout == m.strided, x.is_contiguous(), x.is_pinned()]
    pinned = m.tensor([1.0], pin_memory=False).sum()
    return [
        same,
        [list(s) for s in kin],
        facts,
        list(net(x).shape),
        x.share_memory_().sum(),
        net.share_memory() is net,
        pinned,
    ]


def settings(m: Any) -> Any:
    b = m.backends
    b.cudnn.benchmark, b.cudnn.deterministic, b.cudnn.allow_tf32 = True, True, True
    b.cuda.matmul.allow_tf32 = False
    b.cuda.enable_flash_sdp(True)
    with room(m, "backends.cudnn").flags(enabled=False):
        pass
    return [
        b.cudnn.benchmark,
        b.mps.is_available(),
        b.cuda.is_built(),
        b.cudnn.is_available(),
        b.cuda.matmul.allow_tf32,
    ]


def files(m: Any) -> Any:
    state, held = {"w": wave(m, 2, 3), "n": [1, (2.5, None), "x"], 3: {"k": True}}, io.BytesIO()
    m.save(state, held, pickle_protocol=4)
    found = []
    for where in (None, "cpu", m.device("cpu"), {"cuda:0": "cpu"}, lambda storage, place: storage):
        held.seek(0)
        found.append([*m.load(held, map_location=where, weights_only=False).values()])
    return [[[w, n, k["k"]] for w, n, k in found], list(state)]


class Average:
    """Buffers with an underscore, as a vector quantiser has them."""

    def __new__(cls, m: Any) -> Any:
        net = m.nn.Module()
        net.register_buffer("_ema", wave(m, 2))
        net.register_buffer("_kept", wave(m, 3), persistent=False)
        net.register_buffer("_later", None)
        net.register_parameter("_w", m.nn.Parameter(wave(m, 2, 1)))
        return net


def underscores(m: Any) -> Any:
    net, other = Average(m), Average(m)
    before = sorted(net.state_dict())
    net._later = wave(m, 1)
    net._ema = net._ema * 2
    facts = [
        before,
        sorted(net.state_dict()),
        sorted(n for n, _ in net.named_buffers()),
        [n for n, _ in net.named_parameters()],
    ]
    missing = other.load_state_dict(net.state_dict(), strict=False)
    return [facts, other._ema, missing.missing_keys, missing.unexpected_keys]


def scaled(bad: tuple[int, ...], clip: bool, **options: Any) -> Callable[[Any], Any]:
    """Steps with a scaled loss, of which the `bad` ones have an infinite gradient."""

    def run(m: Any) -> Any:
        amp = room(m, "amp")
        net = start(m, m.nn.Linear(3, 2))
        optimiser = m.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        scaler, out = amp.GradScaler("cpu", init_scale=8.0, growth_interval=2, **options), []
        for n in range(6):
            optimiser.zero_grad()
            with amp.autocast("cpu", enabled=False):
                loss = net(wave(m, 4, 3, shift=n) * (float("inf") if n in bad else 1.0)).pow(2).mean()
            scaler.scale(loss).backward()
            if clip:
                scaler.unscale_(optimiser)
                m.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(optimiser)
            scaler.update()
            out.append([scaler.get_scale(), net.weight])
        again = amp.GradScaler("cpu", **options)
        again.load_state_dict(scaler.state_dict())
        return [[s, numbers(w)] for s, w in out] + [sorted(again.state_dict().items()), scaler.is_enabled()]

    return run


def off(m: Any) -> Any:
    """What torch leaves out without CUDA, with a warning."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with m.autocast("cuda"):
            x = wave(m, 2, 2) @ wave(m, 2, 2)
        with m.autocast("cpu", dtype=m.float32):
            y = wave(m, 2, 2) @ wave(m, 2, 2)
        scaler = m.amp.GradScaler("cuda")

        @m.autocast("cpu", enabled=False)
        def double(x: Any) -> Any:
            return x * 2

    return [x, y, double(x), scaler.is_enabled(), scaler.get_scale(), scaler.scale(x), scaler.state_dict(), len(said)]


def pruned(m: Any) -> Any:
    prune = room(m, "nn.utils.prune")
    net = start(m, m.nn.Sequential(m.nn.Linear(4, 6), m.nn.ReLU(), m.nn.Linear(6, 5)))
    first, last = net[0], net[2]
    out = [prune.is_pruned(net)]
    prune.l1_unstructured(first, "weight", amount=0.3)
    out += [
        first.weight,
        sorted(first.state_dict()),
        sorted(n for n, _ in first.named_parameters()),
        prune.is_pruned(net),
    ]
    prune.l1_unstructured(first, "weight", 4)
    prune.ln_structured(first, name="weight", amount=0.34, n=2, dim=0)
    prune.custom_from_mask(last, "bias", mask=m.tensor([1.0, 0.0, 1.0, 1.0, 0.0]))
    out += [first.weight_mask, last.bias, net(wave(m, 2, 4))]
    prune.global_unstructured([(first, "weight"), (last, "weight")], pruning_method=prune.L1Unstructured, amount=0.2)
    net(wave(m, 2, 4)).pow(2).sum().backward()
    out += [first.weight_orig.grad, last.weight_mask]
    m.optim.SGD(net.parameters(), lr=0.1).step()
    net(wave(m, 2, 4))
    for layer, name in ((first, "weight"), (last, "weight"), (last, "bias")):
        prune.remove(layer, name)
    rest = prune.random_unstructured(m.nn.Linear(5, 4), "weight", 0.5).weight_mask.sum()
    rows = prune.random_structured(m.nn.Linear(5, 4), "weight", 1, dim=0).weight_mask.sum()
    return [*out, first.weight, sorted(net.state_dict()), prune.is_pruned(net), rest, rows]


def parametrized(m: Any) -> Any:
    parametrize = room(m, "nn.utils.parametrize")

    class Symmetric(m.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, x: Any) -> Any:
            return x.triu()

    class Twice(m.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

        def right_inverse(self, x: Any) -> Any:
            return x / 2

    layer = start(m, m.nn.Linear(3, 3))
    parametrize.register_parametrization(layer, "weight", Symmetric())
    out = [layer.weight, sorted(layer.state_dict()), parametrize.is_parametrized(layer, "weight")]
    parametrize.register_parametrization(layer, "weight", Twice())
    layer(wave(m, 2, 3)).pow(2).sum().backward()
    out += [layer.weight, layer.parametrizations.weight.original.grad]
    layer.weight = wave(m, 3, 3)
    with parametrize.cached():
        out += [layer.weight is layer.weight, len(list(layer.parameters())), isinstance(layer, m.nn.Linear)]
    m.optim.SGD(layer.parameters(), lr=0.1).step()
    twin = copy.deepcopy(layer)
    out.append(twin.weight)
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    return [*out, layer.weight, parametrize.is_parametrized(layer), type(layer) is m.nn.Linear]


def normed(m: Any) -> Any:
    utils, new = m.nn.utils, room(m, "nn.utils.parametrizations")
    out: list[Any] = []
    for make in (utils.weight_norm, new.weight_norm):
        for layer in (m.nn.Linear(3, 4), m.nn.Conv1d(2, 3, 2)):
            net = make(start(m, layer))
            x = wave(m, 2, 3) if layer.bias.shape[0] == 4 else wave(m, 2, 2, 5)
            before = net.weight.sum()
            optimiser = m.optim.SGD(net.parameters(), lr=0.1)
            net(x).pow(2).sum().backward()
            optimiser.step()
            out += [before, net(x), [p.grad for _, p in sorted(net.named_parameters())], sorted(net.state_dict())]
            if make is utils.weight_norm:
                utils.remove_weight_norm(net)
                out += [net.weight, sorted(net.state_dict())]
    for make in (utils.spectral_norm, new.spectral_norm):
        for layer in (m.nn.Linear(3, 4), m.nn.ConvTranspose1d(2, 3, 2)):
            net = make(start(m, layer), n_power_iterations=40)
            x = wave(m, 2, 3) if layer.bias.shape[0] == 4 else wave(m, 2, 2, 5)
            net(x).pow(2).sum().backward()
            out += [
                net(x),
                net.eval()(x),
                [p.grad for _, p in sorted(net.named_parameters())],
                sorted(net.state_dict()),
            ]
    return [
        *out,
        utils.remove_spectral_norm(utils.spectral_norm(start(m, m.nn.Linear(2, 2)), n_power_iterations=40)).bias,
    ]


def fused(m: Any) -> Any:
    x = wave(m, 2, 2, 4, 4)
    conv, bn = start(m, m.nn.Conv2d(2, 3, 2)), start(m, m.nn.BatchNorm2d(3))
    bn(conv(x))
    return [
        room(m, "nn.utils").fuse_conv_bn_eval(conv.eval(), bn.eval())(x),
        m.nn.utils.skip_init(m.nn.Linear, 2, 3).bias.shape[0],
    ]


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "devices": devices,
    "dtypes": dtypes,
    "layouts": layouts,
    "settings": settings,
    "files": files,
    "underscores": underscores,
    "scaled": scaled((), False),
    "scaled, two left out": scaled((1, 4), True),
    "scaled, clipped": scaled((), True, growth_factor=4.0),
    "not scaled": scaled((), False, enabled=False),
    "off": off,
    "pruned": pruned,
    "parametrized": parametrized,
    "normed": normed,
    "fused": fused,
}


if __name__ == "__main__":
    import torch

    results = {name: numbers(run(torch)) for name, run in PROGRAMS.items()}
    TABLE.write_text(json.dumps({"torch": torch.__version__, "results": results}).replace('], "', '],\n"') + "\n")
