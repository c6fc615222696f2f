"""Layers and losses take their tensors under torch's names, which `forward` of torch 2.13 has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anneal import nn
from anneal.nn import functional as F
from anneal.tensor import Tensor

# The sizes of inputs; "i" for whole numbers below 2, "p" for shares, "n" for a length.
LAYERS: dict[str, str] = {
    "Linear(2, 3)": "input 4,2",
    "Bilinear(2, 3, 4)": "input1 5,2 input2 5,3",
    "Identity()": "input 2",
    "Sequential()": "input 2",
    "Sequential(ReLU(), Linear(2, 3))": "input 4,2",
    "Embedding(5, 2)": "input i3",
    "EmbeddingBag(5, 2)": "input i2,3",
    "LazyLinear(3)": "input 1,2",
    "LazyConv1d(3, 1)": "input 1,2,3",
    "LazyBatchNorm1d()": "input 3,2",
    "LayerNorm(3)": "input 2,3",
    "RMSNorm(3)": "input 2,3",
    "GroupNorm(1, 2)": "input 1,2,3",
    "BatchNorm1d(2)": "input 3,2",
    "InstanceNorm1d(2)": "input 1,2,3",
    "LocalResponseNorm(2)": "input 1,2,3",
    "CrossMapLRN2d(2)": "input 1,2,3,3",
    "Conv1d(2, 3, 1)": "input 1,2,4",
    "Conv2d(2, 3, 1)": "input 1,2,4,4",
    "ConvTranspose1d(2, 3, 1)": "input 1,2,4",
    "MaxPool1d(2)": "input 1,2,4",
    "AvgPool1d(2)": "input 1,2,4",
    "LPPool1d(2, 2)": "input 1,2,4",
    "AdaptiveAvgPool1d(2)": "input 1,2,4",
    "AdaptiveMaxPool1d(2)": "input 1,2,4",
    "FractionalMaxPool2d(2, 2)": "input 1,2,4,4",
    "MaxUnpool1d(2)": "input 1,1,2 indices i1,1,2",
    "Flatten()": "input 2,3",
    "Unflatten(1, (1, 3))": "input 2,3",
    "Unfold(2)": "input 1,1,3,3",
    "Fold((3, 3), 2)": "input 1,4,4",
    "PixelShuffle(2)": "input 1,4,2,2",
    "PixelUnshuffle(2)": "input 1,1,2,2",
    "ChannelShuffle(2)": "input 1,4,2,2",
    "Upsample(None, 2)": "input 1,1,3",
    "UpsamplingNearest2d(None, 2)": "input 1,1,3,3",
    "UpsamplingBilinear2d(None, 2)": "input 1,1,3,3",
    "ZeroPad1d(1)": "input 1,1,3",
    "ConstantPad1d(1, 2.0)": "input 1,1,3",
    "ReflectionPad1d(1)": "input 1,1,3",
    "ReplicationPad1d(1)": "input 1,1,3",
    "CircularPad1d(1)": "input 1,1,3",
    "RNN(2, 3)": "input 4,1,2 hx 1,1,3",
    "GRU(2, 3)": "input 4,1,2 hx 1,1,3",
    "LSTM(2, 3)": "input 4,1,2",
    "RNNCell(2, 3)": "input 4,2 hx 4,3",
    "GRUCell(2, 3)": "input 4,2 hx 4,3",
    "LSTMCell(2, 3)": "input 4,2",
    "Dropout(0.0)": "input 2",
    "Dropout1d(0.0)": "input 1,2,3",
    "AlphaDropout(0.0)": "input 2",
    "FeatureAlphaDropout(0.0)": "input 1,2,3",
    "CosineSimilarity()": "x1 2,3 x2 2,3",
    "PairwiseDistance()": "x1 2,3 x2 2,3",
    "MultiheadAttention(4, 1)": "query 2,1,4 key 2,1,4 value 2,1,4",
    "TransformerEncoderLayer(4, 1, 8)": "src 2,1,4",
    "TransformerDecoderLayer(4, 1, 8)": "tgt 2,1,4 memory 2,1,4",
    "Transformer(4, 1, 1, 1, 8)": "src 2,1,4 tgt 2,1,4",
    "MSELoss()": "input 2 target 2",
    "L1Loss()": "input 2 target 2",
    "SmoothL1Loss()": "input 2 target 2",
    "HuberLoss()": "input 2 target 2",
    "CrossEntropyLoss()": "input 2,3 target i2",
    "NLLLoss()": "input 2,3 target i2",
    "KLDivLoss()": "input 2 target 2",
    "BCELoss()": "input p2 target p2",
    "BCEWithLogitsLoss()": "input 2 target 2",
    "PoissonNLLLoss()": "log_input 2 target 2",
    "GaussianNLLLoss()": "input 2 target 2 var p2",
    "HingeEmbeddingLoss()": "input 2 target 2",
    "SoftMarginLoss()": "input 2 target 2",
    "MultiLabelSoftMarginLoss()": "input 2,3 target 2,3",
    "MultiMarginLoss()": "input 2,3 target i2",
    "MultiLabelMarginLoss()": "input 2,3 target i2,3",
    "MarginRankingLoss()": "input1 2 input2 2 target 2",
    "CosineEmbeddingLoss()": "input1 2,3 input2 2,3 target 2",
    "TripletMarginLoss()": "anchor 2,3 positive 2,3 negative 2,3",
    "TripletMarginWithDistanceLoss()": "anchor 2,3 positive 2,3 negative 2,3",
    "AdaptiveLogSoftmaxWithLoss(4, 6, [2])": "input_ 3,4 target_ i3",
    "CTCLoss(2)": "log_probs 4,1,3 targets i1,2 input_lengths n4 target_lengths n2",
    "Softmin(0)": "input 3",
    "Softmax(0)": "input 3",
    "LogSoftmax(0)": "input 3",
    "Softmax2d()": "input 1,2,2,2",
    "Threshold(0.0, 1.0)": "input 3",
    **{
        f"{name}()": "input 4"
        for name in (  # noqa: SIM905
            "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish PReLU ReLU ReLU6 "
            "RReLU SELU SiLU Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink"
        ).split()
    },
}


def made(told: str) -> dict[str, Any]:
    rng, words, found = np.random.default_rng(0), told.split(), {}
    for name, sizes in zip(words[::2], words[1::2], strict=True):
        kind = sizes[0] if sizes[0].isalpha() else ""
        shape = [int(n) for n in sizes.removeprefix(kind).split(",")]
        if kind == "i":
            values: Any = np.arange(np.prod(shape)).reshape(shape) % 2
        elif kind == "n":
            values = np.array(shape)
        else:
            values = rng.uniform(0.1, 0.9, shape) if kind else rng.standard_normal(shape)
        found[name] = Tensor(values.astype(np.int32 if kind in ("i", "n") else np.float32))
    return found


@pytest.mark.parametrize("told", LAYERS)
def test_a_layer_takes_torchs_names(told: str) -> None:
    layer = eval(told, {**vars(nn), **{name: getattr(nn, name) for name in nn.__all__}})
    layer.eval()
    inputs = made(LAYERS[told])
    found = [layer(**inputs), layer(*inputs.values())]
    first, second = [y[0] if isinstance(y, tuple) else y for y in found]
    np.testing.assert_array_equal(first.numpy(), second.numpy())


def test_functions_take_torchs_names() -> None:
    a, b = Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0]])
    assert F.bilinear(input1=a, input2=b, weight=Tensor.ones(1, 2, 2)).tolist() == [[21.0]]
    assert F.one_hot(tensor=Tensor([1]), num_classes=2).tolist() == [[0, 1]]
    assert F.embedding(input=Tensor([0]), weight=a).tolist() == [[1.0, 2.0]]
    assert F.pad(input=a, pad=(1, 0)).tolist() == [[0.0, 1.0, 2.0]]
    assert F.linear(input=a, weight=b).tolist() == [[11.0]]
