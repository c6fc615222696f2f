"""Attributes of layers that are set after they were made: the next call follows them as torch's does, or says no.

`attributes.json` has torch's results; `python -m tests.nn.test_module_attributes` writes it. A result is its shape and
a sum of its elements with weights of their own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anneal

TABLE = Path(__file__).with_name("attributes.json")
STRINGS = {
    "reduction": "sum",
    "mode": "linear",
    "padding_mode": "circular",
    "approximate": "tanh",
}
PLAIN = ("ReLU", "ReLU6", "SiLU", "Mish", "Hardswish", "SELU", "ELU", "CELU", "LeakyReLU", "Hardtanh", "Softplus")
MORE = ("Softshrink", "Hardshrink", "GELU", "GLU", "PReLU", "RReLU", "Softmin", "Softmax", "LogSoftmax", "Hardsigmoid")
PAIRS = (
    "L1Loss",
    "MSELoss",
    "SmoothL1Loss",
    "HuberLoss",
    "BCELoss",
    "BCEWithLogitsLoss",
    "KLDivLoss",
    "PoissonNLLLoss",
)
# Arguments of a layer and what it is called with: shapes, or arrays.
Row = tuple[tuple[Any, ...], tuple[Any, ...]]
CLASSES = np.array([2, 0, 1])
SIGNS = np.array([1.0, -1.0, 1.0], np.float32)
ROWS: dict[str, Row] = {
    **dict.fromkeys((*PLAIN, *MORE, "Identity"), ((), ((3, 4),))),
    "Threshold": ((0.1, -2.0), ((3, 4),)),
    **dict.fromkeys((*PAIRS, "SoftMarginLoss", "MultiLabelSoftMarginLoss"), ((), ((3, 4), (3, 4)))),
    "CrossEntropyLoss": ((), ((3, 4), CLASSES)),
    "NLLLoss": ((), ((3, 4), CLASSES)),
    "MultiMarginLoss": ((), ((3, 4), CLASSES)),
    "HingeEmbeddingLoss": ((), ((3,), SIGNS)),
    "CosineEmbeddingLoss": ((), ((3, 4), (3, 4), SIGNS)),
    "MarginRankingLoss": ((), ((3,), (3,), SIGNS)),
    "TripletMarginLoss": ((), ((3, 4), (3, 4), (3, 4))),
    "GaussianNLLLoss": ((), ((3,), (3,), np.array([0.5, 1e-3, 1.0], np.float32))),
    "Linear": ((4, 2), ((3, 4),)),
    "Bilinear": ((4, 3, 2), ((3, 4), (3, 3))),
    "Embedding": ((5, 3, 1), (CLASSES,)),
    "CosineSimilarity": ((), ((3, 4), (3, 4))),
    "PairwiseDistance": ((), ((3, 4), (3, 4))),
    "Conv1d": ((2, 4, 3), ((1, 2, 9),)),
    "Conv2d": ((2, 4, 3), ((1, 2, 7, 7),)),
    "ConvTranspose1d": ((2, 4, 3, 2), ((1, 2, 5),)),
    "BatchNorm1d": ((4,), ((3, 4),)),
    "BatchNorm2d": ((2,), ((2, 2, 3, 3),)),
    "InstanceNorm1d": ((2, 1e-5, 0.1, True, True), ((2, 2, 5),)),
    "LayerNorm": ((4,), ((3, 4),)),
    "RMSNorm": ((4,), ((3, 4),)),
    "GroupNorm": ((2, 4), ((2, 4, 3),)),
    "LocalResponseNorm": ((2,), ((1, 4, 3),)),
    "MaxPool1d": ((2,), ((1, 2, 7),)),
    "MaxPool2d": ((2,), ((1, 2, 7, 7),)),
    "AvgPool1d": ((3,), ((1, 2, 7),)),
    "AvgPool2d": ((3,), ((1, 2, 7, 7),)),
    "LPPool1d": ((2.0, 3), ((1, 2, 7),)),
    "AdaptiveAvgPool1d": ((3,), ((1, 2, 7),)),
    "AdaptiveMaxPool1d": ((3,), ((1, 2, 7),)),
    "Dropout": ((), ((3, 4),)),
    "Dropout1d": ((), ((3, 4),)),
    "AlphaDropout": ((), ((3, 4),)),
    "Flatten": ((), ((2, 3, 4, 2),)),
    "Unflatten": ((1, (2, 2)), ((3, 4),)),
    "ChannelShuffle": ((2,), ((1, 4, 3),)),
    "PixelShuffle": ((2,), ((1, 36, 2, 2),)),
    "PixelUnshuffle": ((2,), ((1, 1, 6, 6),)),
    "Upsample": ((None, 2.0), ((1, 2, 5),)),
    "Unfold": ((2,), ((1, 2, 4, 5),)),
    "ConstantPad1d": ((2, 1.5), ((1, 2, 3),)),
    "ReflectionPad1d": ((1,), ((1, 2, 4),)),
    "RNN": ((3, 4, 2), ((5, 2, 3),)),
    "GRU": ((3, 4), ((5, 2, 3),)),
    "LSTM": ((3, 4), ((5, 2, 3),)),
    "RNNCell": ((3, 4), ((2, 3),)),
    "GRUCell": ((3, 4), ((2, 3),)),
    "LSTMCell": ((3, 4), ((2, 3),)),
    "MultiheadAttention": ((4, 2), ((3, 2, 4), (3, 2, 4), (3, 2, 4))),
    "TransformerEncoderLayer": ((4, 2, 8, 0.0), ((3, 2, 4),)),
}


def given(m: Any, shape: Any, n: int) -> Any:
    if not isinstance(shape, tuple):
        return m.tensor(shape)
    x = np.sin(np.arange(math.prod(shape)) * 1.7 + n) * 0.45 + 0.5  # in (0, 1): also probabilities
    return m.tensor(x.reshape(shape).astype(np.float32))


def layer(m: Any, name: str) -> Any:
    made = getattr(m.nn, name)(*ROWS[name][0])
    with m.no_grad():
        for n, (_, p) in enumerate(sorted(made.named_parameters())):
            p.copy_(m.tensor((np.cos(np.arange(p.numel()) + n) * 0.5).reshape(tuple(p.shape)).astype(np.float32)))
    return made.eval() if name == "RReLU" or "Dropout" in name else made


def values(name: str, attribute: str, old: Any) -> Iterator[tuple[str, Any]]:
    """Values that an attribute is given, with their names in the table."""
    if name in ("RNN", "GRU", "LSTM") and attribute == "bias":
        return  # torch then takes the biases for weights
    if isinstance(old, bool):
        yield str(not old), not old
    elif "Dropout" in name or attribute == "dropout":
        yield from (("0", 0.0), ("1", 1.0)) if attribute == "p" else ()  # all else is drawn
    elif isinstance(old, int):
        yield from ((str(v), v) for v in (old + 1, old * 2) if v != old)
    elif isinstance(old, float):
        yield from ((str(v), v) for v in (old + 0.5, old * 2) if v != old)
    elif isinstance(old, str):
        if attribute in STRINGS:
            yield STRINGS[attribute], STRINGS[attribute]
    elif isinstance(old, tuple) and old and isinstance(old[0], int):
        yield str(old[0] + 1), tuple([v + 1 for v in old])


def outcome(m: Any, name: str, attribute: str, value: Any) -> Any:
    """The result of a call after an attribute was set; "tensor" doubles the one that stands there."""
    torchs = m.__name__ == "torch"
    made = layer(m, name)
    if value == "tensor":
        old = getattr(made, attribute)
        value = m.nn.Parameter(old.detach() * 2) if old.requires_grad else old * 2 + 1
    elif not torchs and not hasattr(made, attribute):
        return "missing"
    try:
        setattr(made, attribute, value)
        if attribute == "p":
            made.train()
        inputs = [given(m, shape, n) for n, shape in enumerate(ROWS[name][1])]
        made(*inputs)
        result = made(*inputs)
    except Exception:
        return None
    while isinstance(result, tuple):
        result = result[0]
    x = result.detach().numpy().astype(np.float64)
    return [list(x.shape), float(f"{(x.ravel() * np.sin(np.arange(x.size) + 1)).sum():.6g}")]


LOADED: dict[str, dict[str, Any]] = json.loads(TABLE.read_text())["results"] if TABLE.exists() else {}


@pytest.mark.parametrize("name", LOADED)
def test_what_is_set_counts_as_torchs(name: str) -> None:
    for row, torchs in LOADED[name].items():
        attribute, _, text = row.partition("=")
        mine = outcome(anneal, name, attribute, _read(name, attribute, text))
        if torchs is None or mine is None:
            continue  # refused: there is no number to be wrong about
        if mine == "missing":
            assert torchs == next(iter(LOADED[name].values())), row  # it changes nothing in torch
            continue
        assert mine[0] == torchs[0], row
        assert mine[1] == pytest.approx(torchs[1], rel=1e-4, abs=1e-5), row


def _read(name: str, attribute: str, text: str) -> Any:
    return text if text in ("tensor", *STRINGS.values()) else eval(text, {})


READ = {
    "Conv1d(2, 4, 3, dilation=2)": "stride=(1,) padding=(0,) dilation=(2,) output_padding=(0,) transposed=False",
    "Conv2d(2, 4, 3, padding=1)": "stride=(1, 1) padding=(1, 1) dilation=(1, 1) output_padding=(0, 0) groups=1",
    "Conv2d(2, 4, (3, 5), padding='same')": "kernel_size=(3, 5) padding='same' stride=(1, 1)",
    "ConvTranspose1d(2, 4, 3, 2)": "stride=(2,) padding=(0,) output_padding=(0,) transposed=True padding_mode='zeros'",
    "ConvTranspose2d(2, 2, 3, groups=2)": "dilation=(1, 1) output_padding=(0, 0) groups=2",
    "LazyConv1d(3, 3)": "stride=(1,) dilation=(1,) transposed=False",
    "BatchNorm1d(3)": "affine=True track_running_stats=True",
    "BatchNorm2d(3, affine=False, track_running_stats=False)": "affine=False track_running_stats=False",
    "InstanceNorm1d(3)": "affine=False track_running_stats=False",
    "LayerNorm((3, 4), elementwise_affine=False)": "elementwise_affine=False normalized_shape=(3, 4)",
    "RMSNorm(3)": "elementwise_affine=True",
    "GroupNorm(2, 4)": "affine=True",
    "MultiheadAttention(4, 2)": "head_dim=2",
}


@pytest.mark.parametrize("made", READ)
def test_attributes_have_torchs_values(made: str) -> None:
    layer = eval(f"nn.{made}", {"nn": anneal.nn})
    wanted = eval(f"dict({READ[made].replace(' ', ', ').replace(',,', ',')})")
    assert {name: getattr(layer, name) for name in wanted} == wanted


@pytest.mark.parametrize("kind", ["BatchNorm1d", "SyncBatchNorm"])
def test_a_norm_that_stops_tracking_keeps_its_statistics(kind: str) -> None:
    """As a model whose loss is taken twice does around the second time."""
    norm, x = getattr(anneal.nn, kind)(2), anneal.tensor([[1.0, 2.0], [3.0, 8.0]])
    norm(x)
    kept = [norm.running_mean.tolist(), norm.running_var.tolist(), norm.num_batches_tracked.item()]
    norm.track_running_stats = False
    np.testing.assert_allclose(norm(x * 3).tolist(), [[-1, -1], [1, 1]], atol=1e-4)
    assert [norm.running_mean.tolist(), norm.running_var.tolist(), norm.num_batches_tracked.item()] == kept
    norm.eval()
    np.testing.assert_allclose(norm(x)[0, 0].item(), (1 - kept[0][0]) / (kept[1][0] + 1e-5) ** 0.5, rtol=1e-5)
    norm.train()
    norm.track_running_stats = True
    norm(x)
    assert norm.num_batches_tracked.item() == 2


if __name__ == "__main__":
    import torch

    results: dict[str, dict[str, Any]] = {}
    for name in ROWS:
        made, mine = layer(torch, name), results.setdefault(name, {})
        plain = {k: v for k, v in vars(made).items() if not k.startswith("_")}
        mine[f"training={made.training}"] = outcome(torch, name, "training", made.training)
        for attribute, old in plain.items():
            for _, value in values(name, attribute, old) if "Dropout" not in name or attribute != "training" else ():
                mine[f"{attribute}={value if isinstance(value, str) else repr(value)}"] = outcome(
                    torch, name, attribute, value
                )
        for attribute, tensor in {**made._parameters, **made._buffers}.items():
            if tensor is not None and tensor.is_floating_point():
                mine[f"{attribute}=tensor"] = outcome(torch, name, attribute, "tensor")
                mine[f"{attribute}=None"] = outcome(torch, name, attribute, None)
    text = json.dumps({"torch": torch.__version__, "results": results}, indent=0)
    TABLE.write_text(text.replace("[\n", "[").replace("\n]", "]").replace(",\n", ", ").replace("}, ", "},\n") + "\n")


def test_a_result_that_a_call_leaves_is_neither_parameter_nor_saved() -> None:
    """A loss that a layer keeps for later (the style transfer of the tutorials): the module freezes and is saved."""

    class Keeps(anneal.nn.Module):
        def __init__(self) -> None:
            self.layer = anneal.nn.Linear(2, 2)

        def forward(self, x: anneal.Tensor) -> anneal.Tensor:
            y = self.layer(x)
            self.loss = (y * y).sum()
            return y

    model = Keeps()
    model(anneal.Tensor([[1.0, 2.0]]))
    assert [name for name, _ in model.named_parameters()] == ["layer.weight", "layer.bias"]
    assert list(model.state_dict()) == ["layer.weight", "layer.bias"]
    assert not any(p.requires_grad for p in model.requires_grad_(False).parameters())
