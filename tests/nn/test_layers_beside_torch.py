"""Every layer and loss that torch has too: the same weights, values, gradients and states, on each device.

A row is a layer, made by the same call of both, and the shapes of what it takes; arrays stand for themselves. What
draws at random is compared in evaluation, and in tests of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import nn
from anneal.tensor import Tensor, manual_seed
from tests.helpers import optional

torch = optional("torch")
rng = np.random.default_rng(0)

Make = Callable[[Any], Any]
INTS = rng.integers(0, 5, (3, 4))
CLASSES = rng.integers(0, 4, 3)
LABELS = np.array([[3, 0, -1, 1], [1, 2, 3, 0], [-1, 2, 3, 0]])
MASK = np.triu(np.ones((4, 4), bool), 1)
PADDING = np.array([[False, False, False, True], [False, False, True, True], [False] * 4])

ACTIVATIONS = [
    *("ReLU", "ReLU6", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "SELU", "ELU", "CELU", "LeakyReLU", "Hardtanh"),
    *("Softplus", "Softshrink", "Hardshrink", "Tanhshrink", "Softsign", "Sigmoid", "LogSigmoid", "Tanh", "GELU", "GLU"),
    *("Identity", "PReLU"),
]
CASES: dict[str, tuple[Make, Any]] = {
    **{name: (lambda m, name=name: getattr(m, name)(), [(3, 4)]) for name in ACTIVATIONS},
    "PReLU of channels": (lambda m: m.PReLU(4, 0.1), [(3, 4, 2)]),
    "RReLU": (lambda m: m.RReLU().eval(), [(3, 4)]),
    "Threshold": (lambda m: m.Threshold(0.1, -2.0), [(3, 4)]),
    "Softmax": (lambda m: m.Softmax(1), [(3, 4)]),
    "Softmax, axis guessed": (lambda m: m.Softmax(), [(2, 3, 4)]),
    "Softmax2d": (lambda m: m.Softmax2d(), [(2, 3, 2, 2)]),
    "LogSoftmax": (lambda m: m.LogSoftmax(-1), [(3, 4)]),
    "Softmin": (lambda m: m.Softmin(0), [(3, 4)]),
    **{
        name: (lambda m, name=name: getattr(m, name)(0.5).eval(), [(2, 3, 4)])
        for name in ("Dropout", "Dropout1d", "Dropout2d", "AlphaDropout", "FeatureAlphaDropout")
    },
    **{f"ZeroPad{n}d": (lambda m, n=n: getattr(m, f"ZeroPad{n}d")(2), [(1, 2, *[3] * n)]) for n in (1, 2, 3)},
    **{
        f"ConstantPad{n}d": (lambda m, n=n: getattr(m, f"ConstantPad{n}d")(2, 1.5), [(1, 2, *[3] * n)])
        for n in (1, 2, 3)
    },
    **{
        f"{kind}Pad{n}d": (lambda m, n=n, kind=kind: getattr(m, f"{kind}Pad{n}d")([1, 2] * n), [(1, 2, *[3] * n)])
        for kind in ("Reflection", "Replication", "Circular")
        for n in (1, 2, 3)
    },
    "Flatten in part": (lambda m: m.Flatten(1, 2), [(2, 3, 4, 5)]),
    "Unflatten": (lambda m: m.Unflatten(1, (2, 3)), [(2, 6)]),
    "Unfold": (lambda m: m.Unfold((2, 3), dilation=1, padding=1, stride=2), [(2, 2, 5, 6)]),
    "Fold": (lambda m: m.Fold((4, 5), (2, 2), stride=(1, 3)), [(2, 12, 6)]),
    "PixelShuffle": (lambda m: m.PixelShuffle(2), [(1, 8, 3, 2)]),
    "PixelUnshuffle": (lambda m: m.PixelUnshuffle(2), [(1, 2, 6, 4)]),
    "ChannelShuffle": (lambda m: m.ChannelShuffle(3), [(1, 6, 2)]),
    "Upsample, recomputed": (
        lambda m: m.Upsample(scale_factor=1.5, mode="linear", recompute_scale_factor=True),
        [(1, 2, 5)],
    ),
    "UpsamplingNearest2d": (lambda m: m.UpsamplingNearest2d(scale_factor=2), [(1, 2, 3, 4)]),
    "UpsamplingBilinear2d": (lambda m: m.UpsamplingBilinear2d(size=(5, 6)), [(1, 2, 3, 4)]),
    **{
        f"AdaptiveAvgPool{n}d": (lambda m, n=n: getattr(m, f"AdaptiveAvgPool{n}d")(3), [(2, 2, *[5] * n)])
        for n in (1, 2, 3)
    },
    **{
        f"AdaptiveMaxPool{n}d": (lambda m, n=n: getattr(m, f"AdaptiveMaxPool{n}d")(3), [(2, 2, *[5] * n)])
        for n in (1, 2, 3)
    },
    **{
        f"AdaptiveMaxPool{n}d, places": (
            lambda m, n=n: getattr(m, f"AdaptiveMaxPool{n}d")(3, return_indices=True),
            [(2, 2, *[5] * n)],
        )
        for n in (1, 2, 3)
    },
    **{
        f"MaxPool{n}d, places": (
            lambda m, n=n: getattr(m, f"MaxPool{n}d")(3, 2, 1, 1, True, True),
            [(2, 2, *[6] * n)],
        )
        for n in (1, 2, 3)
    },
    "MaxPool2d, dilated": (lambda m: m.MaxPool2d(2, 1, 0, (2, 1), return_indices=True), [(2, 6, 5)]),
    **{
        f"LPPool{n}d": (lambda m, n=n: getattr(m, f"LPPool{n}d")(2, 2, ceil_mode=True), [(1, 2, *[5] * n)])
        for n in (1, 2, 3)
    },
    "AvgPool2d, divided": (lambda m: m.AvgPool2d(2, divisor_override=3), [(1, 2, 4, 4)]),
    "FractionalMaxPool2d": (
        lambda m: m.FractionalMaxPool2d(
            2, (3, 4), return_indices=True, _random_samples=_tensor(m, SAMPLES[..., :2].copy())
        ),
        [(2, 3, 6, 7)],
    ),
    "FractionalMaxPool3d": (
        lambda m: m.FractionalMaxPool3d(2, output_ratio=0.6, return_indices=True, _random_samples=_tensor(m, SAMPLES)),
        [(2, 3, 5, 6, 7)],
    ),
    **{
        f"Conv{n}d, {mode}": (
            lambda m, n=n, mode=mode: getattr(m, f"Conv{n}d")(2, 3, 3, padding=1, padding_mode=mode),
            [(2, 2, *[4] * n)],
        )
        for n in (1, 2)
        for mode in ("reflect", "replicate", "circular")
    },
    "Conv1d, same": (lambda m: m.Conv1d(2, 3, 4, padding="same", padding_mode="circular", dilation=2), [(1, 2, 9)]),
    **{
        f"InstanceNorm{n}d": (lambda m, n=n: getattr(m, f"InstanceNorm{n}d")(2, affine=True), [(2, 2, *[4] * n)])
        for n in (1, 2, 3)
    },
    "InstanceNorm1d, tracked": (lambda m: m.InstanceNorm1d(2, track_running_stats=True), [(3, 2, 4)]),
    "InstanceNorm2d, one": (lambda m: m.InstanceNorm2d(2), [(2, 3, 4)]),
    "LocalResponseNorm": (lambda m: m.LocalResponseNorm(3, 0.1, 0.5, 2.0), [(2, 5, 4)]),
    "RNNCell": (lambda m: m.RNNCell(4, 5), [(3, 4), (3, 5)]),
    "RNNCell, relu": (lambda m: m.RNNCell(4, 5, nonlinearity="relu"), [(3, 4)]),
    "GRUCell": (lambda m: m.GRUCell(4, 5), [(3, 4), (3, 5)]),
    "GRUCell, one": (lambda m: m.GRUCell(4, 5, bias=False), [(4,), (5,)]),
    "LSTMCell": (lambda m: m.LSTMCell(4, 5), [(3, 4), ((3, 5), (3, 5))]),
    "Bilinear": (lambda m: m.Bilinear(3, 4, 2), [(5, 3), (5, 4)]),
    "CosineSimilarity": (lambda m: m.CosineSimilarity(1), [(3, 4), (3, 4)]),
    "PairwiseDistance": (lambda m: m.PairwiseDistance(3, keepdim=True), [(3, 4), (3, 4)]),
    "Embedding": (lambda m: m.Embedding(5, 3, padding_idx=1), [INTS]),
    "EmbeddingBag": (lambda m: m.EmbeddingBag(5, 3), [INTS]),
    "EmbeddingBag, sums": (lambda m: m.EmbeddingBag(5, 3, mode="sum", padding_idx=2), [INTS, None, (3, 4)]),
    "EmbeddingBag, maxima": (lambda m: m.EmbeddingBag(5, 3, mode="max"), [INTS[0], np.array([0, 2])]),
    "EmbeddingBag, last": (
        lambda m: m.EmbeddingBag(5, 3, mode="mean", include_last_offset=True),
        [INTS.reshape(-1), np.array([0, 4, 4, 12])],
    ),
    "MultiheadAttention": (lambda m: m.MultiheadAttention(6, 2), [(4, 3, 6), (5, 3, 6), (5, 3, 6)]),
    "MultiheadAttention, padded": (
        lambda m: m.MultiheadAttention(6, 2, batch_first=True, bias=False),
        [(3, 4, 6), (3, 4, 6), (3, 4, 6), PADDING, True, MASK],
    ),
    "MultiheadAttention, other widths": (
        lambda m: m.MultiheadAttention(6, 3, kdim=4, vdim=5, add_bias_kv=True, add_zero_attn=True),
        [(4, 3, 6), (5, 3, 4), (5, 3, 5), None, True, None, False],
    ),
    "MultiheadAttention, one": (lambda m: m.MultiheadAttention(6, 2), [(4, 6), (5, 6), (5, 6), None, False]),
    "TransformerEncoderLayer": (lambda m: m.TransformerEncoderLayer(6, 2, 8, 0.0), [(4, 3, 6), MASK, PADDING]),
    "TransformerEncoderLayer, norms first": (
        lambda m: m.TransformerEncoderLayer(6, 2, 8, 0.0, "gelu", batch_first=True, norm_first=True),
        [(3, 4, 6), None, PADDING],
    ),
    "TransformerEncoder": (
        lambda m: m.TransformerEncoder(m.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True), 2, m.LayerNorm(6)),
        [(3, 4, 6), MASK],
    ),
    "TransformerDecoderLayer": (lambda m: m.TransformerDecoderLayer(6, 2, 8, 0.0), [(4, 3, 6), (5, 3, 6), MASK]),
    "TransformerDecoder": (
        lambda m: m.TransformerDecoder(m.TransformerDecoderLayer(6, 2, 8, 0.0, norm_first=True, batch_first=True), 2),
        [(3, 4, 6), (3, 5, 6), MASK],
    ),
    "Transformer": (lambda m: m.Transformer(6, 2, 1, 1, 8, 0.0), [(5, 3, 6), (4, 3, 6), None, MASK]),
    "MultiLabelMarginLoss": (lambda m: m.MultiLabelMarginLoss(), [(3, 4), LABELS]),
    "TripletMarginWithDistanceLoss": (
        lambda m: m.TripletMarginWithDistanceLoss(distance_function=lambda a, b: ((a - b) ** 2).sum(-1), swap=True),
        [(3, 4), (3, 4), (3, 4)],
    ),
    "NLLLoss2d": (lambda m: m.NLLLoss2d(), [(3, 4, 2, 2), rng.integers(0, 4, (3, 2, 2))]),
    "LinearCrossEntropyLoss": (lambda m: m.LinearCrossEntropyLoss(5, 4, bias=True), [(3, 5), CLASSES]),
    "AdaptiveLogSoftmaxWithLoss": (
        lambda m: m.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 6], 2.0, head_bias=True),
        [(5, 8), np.array([0, 2, 4, 7, 11])],
    ),
    "CTCLoss": (lambda m: _Ctc(m, m.CTCLoss(blank=1)), [(6, 3, 5), np.array([[2, 2, 3], [0, 4, 0], [3, 0, 0]])]),
}
SAMPLES = rng.random((2, 3, 3)).astype(np.float32)


def _tensor(m: Any, x: Any) -> Any:
    return Tensor(x) if m is nn else torch.tensor(x)


class _Ctc:
    """The loss of log-probabilities that are a softmax's, as torch's slopes suppose."""

    def __init__(self, m: Any, loss: Any) -> None:
        self.loss, self.torch = loss, m is not nn

    def __call__(self, x: Any, targets: Any) -> Any:
        lengths = [(6, 5, 4), (3, 2, 1)]
        return self.loss(x.log_softmax(-1), targets, *([torch.tensor(n) for n in lengths] if self.torch else lengths))

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        assert not state

    def named_parameters(self) -> Any:
        return iter(())


def given(shapes: Any, values: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Arguments of both, and the pairs of tensors that get gradients."""
    mine, theirs, pairs = [], [], []
    for s in shapes:
        if isinstance(s, tuple) and s and isinstance(s[0], tuple):
            a, b, p = given(s, values)
            mine.append(tuple(a))
            theirs.append(tuple(b))
            pairs += p
        elif isinstance(s, tuple):
            x = values.standard_normal(s).astype(np.float32)
            mine.append(Tensor(x, requires_grad=True))
            theirs.append(torch.tensor(x, requires_grad=True))
            pairs.append((mine[-1], theirs[-1]))
        elif isinstance(s, np.ndarray):
            mine.append(Tensor(s.astype(np.int32) if s.dtype.kind == "i" else s))
            theirs.append(torch.tensor(s))
        else:
            mine.append(s)
            theirs.append(s)
    return mine, theirs, pairs


def flat(x: Any) -> list[Any]:
    return [z for y in x for z in flat(y)] if isinstance(x, (tuple, list)) else [x]


@pytest.mark.filterwarnings("ignore")  # torch's own, of forms that it will change
@pytest.mark.parametrize("name", CASES)
def test_a_layer_is_torchs(name: str, device: str) -> None:
    make, shapes = CASES[name]
    if device != "cpu" and name not in ON_A_GPU:
        pytest.skip("made of what other rows have")
    torch.manual_seed(0)
    theirs, ours = make(torch.nn), make(nn)
    state = {k: v + 0.1 if v.is_floating_point() and k[0] != "_" else v for k, v in theirs.state_dict().items()}
    theirs.load_state_dict(state)
    ours.load_state_dict({k: v for k, v in state.items() if not k.startswith("_")})
    mine, others, pairs = given(shapes, np.random.default_rng(1))
    got, want = flat(ours(*mine)), flat(theirs(*others))
    assert len(got) == len(want)
    total, sum_ = None, None
    weights = np.random.default_rng(2)
    for a, b in zip(got, want, strict=True):
        if b is None:
            assert a is None
            continue
        assert a.shape == tuple(b.shape)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)
        if b.requires_grad:
            w = weights.standard_normal(a.shape).astype(np.float32)
            total = (a * Tensor(w)).sum() if total is None else total + (a * Tensor(w)).sum()
            sum_ = (b * torch.tensor(w)).sum() if sum_ is None else sum_ + (b * torch.tensor(w)).sum()
    assert total is not None
    assert sum_ is not None
    total.backward()
    sum_.backward()
    slopes = [
        *pairs,
        *zip([p for _, p in ours.named_parameters()], [p for _, p in theirs.named_parameters()], strict=True),
    ]
    for a, b in slopes:
        assert (a.grad is None) == (b.grad is None)
        if b.grad is not None:
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-3, atol=1e-4)
    for key, value in theirs.state_dict().items():
        if key.startswith("_"):
            continue  # the places of a random pool: no state of ours
        np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy(), rtol=1e-4, atol=1e-5)


ON_A_GPU = {"MaxPool2d, places", "LSTMCell", "MultiheadAttention, padded", "CTCLoss", "EmbeddingBag", "Conv2d, reflect"}


def test_every_layer_of_torch_is_here_or_says_why() -> None:
    layers = {
        name
        for name, value in vars(torch.nn).items()
        if isinstance(value, type) and issubclass(value, torch.nn.Module) and not name.startswith("_")
    }
    absent = {name for name in layers - set(nn.__all__) if not name.startswith("Lazy")}
    assert absent == {"Container", "DataParallel", "RNNBase", "RNNCellBase"}


@pytest.mark.parametrize("n", [1, 2, 3])
def test_unpooling_undoes_pooling(n: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, *[7] * n)).astype(np.float32)
    a, b = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    results = []
    for m, t in ((nn, a), (torch.nn, b)):
        values, places = getattr(m, f"MaxPool{n}d")(2, return_indices=True)(t)
        y = getattr(m, f"MaxUnpool{n}d")(2)(values, places, output_size=x.shape)
        (y * y).sum().backward()
        results.append((y, t.grad))
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "RReLU"]
)
def test_what_is_drawn_has_torchs_shares(name: str) -> None:
    manual_seed(0)
    torch.manual_seed(0)
    n = int(name[-2]) if name[-1] == "d" else 1
    x = np.ones((40, 50, *[2] * n), np.float32)
    x = -x if name == "RReLU" else x
    options = () if name == "RReLU" else (0.3,)
    got = getattr(nn, name)(*options)(Tensor(x)).numpy()
    want = getattr(torch.nn, name)(*options)(torch.tensor(x)).numpy()
    assert got.mean() == pytest.approx(want.mean(), abs=0.05)
    assert got.std() == pytest.approx(want.std(), rel=0.05)
    whole = got.reshape(40, 50, -1)
    if name not in ("AlphaDropout", "RReLU"):
        assert (whole == whole[:, :, :1]).all()


IN_PLACE = ["ReLU", "ReLU6", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "SELU", "ELU", "CELU", "LeakyReLU", "Hardtanh"]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_the_argument_shows_the_result(name: str) -> None:
    array = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    x = Tensor(array, requires_grad=True)
    y = x * 2
    z = getattr(nn, name)(inplace=True)(y)
    assert z is y
    (y * y).sum().backward()
    t = torch.tensor(array, requires_grad=True)
    u = t * 2
    getattr(torch.nn, name)(inplace=True)(u)
    (u * u).sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), u.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-4, atol=1e-5)
