"""Layers against torch's own with the same weights, values and gradients, on each device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn
from anneal.backend import get_device
from anneal.errors import ShapeError
from anneal.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from anneal.runtime import cache_statistics
from anneal.tensor import Tensor, manual_seed, realize
from tests.helpers import optional

torch = optional("torch")

LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "BatchNorm1d": (lambda m: m.BatchNorm1d(3), (5, 3)),
    "BatchNorm1d of rows": (lambda m: m.BatchNorm1d(3, momentum=0.3), (4, 3, 5)),
    "BatchNorm2d": (lambda m: m.BatchNorm2d(3, eps=1e-3), (4, 3, 2, 2)),
    "BatchNorm3d, bare": (lambda m: m.BatchNorm3d(2, affine=False, track_running_stats=False), (2, 2, 2, 3, 2)),
    "GroupNorm": (lambda m: m.GroupNorm(2, 6), (3, 6, 4)),
    "GroupNorm, bare": (lambda m: m.GroupNorm(3, 6, affine=False), (3, 6)),
    "RMSNorm": (lambda m: m.RMSNorm(6, eps=1e-5), (3, 6)),
    "Conv1d": (lambda m: m.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2), (2, 4, 9)),
    "Conv3d": (lambda m: m.Conv3d(2, 3, (1, 2, 3), padding=(0, 1, 1)), (1, 2, 3, 3, 4)),
    "ConvTranspose1d": (lambda m: m.ConvTranspose1d(4, 6, 3, stride=2, groups=2), (2, 4, 5)),
    "ConvTranspose2d": (lambda m: m.ConvTranspose2d(3, 2, 4, stride=2, padding=1), (2, 3, 3, 4)),
    "ConvTranspose2d, uneven": (
        lambda m: m.ConvTranspose2d(3, 2, (3, 2), (2, 3), (1, 0), output_padding=1, bias=False),
        (1, 3, 3, 4),
    ),
    "ConvTranspose3d": (lambda m: m.ConvTranspose3d(2, 2, 2, stride=2), (1, 2, 2, 2, 3)),
    "AvgPool1d": (lambda m: m.AvgPool1d(3, 2, 1), (2, 3, 8)),
    "AvgPool2d": (lambda m: m.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 2, 6, 7)),
    "AvgPool3d": (lambda m: m.AvgPool3d(2), (1, 2, 4, 4, 5)),
    "MaxPool1d": (lambda m: m.MaxPool1d(3, 2), (2, 3, 9)),
    "MaxPool3d": (lambda m: m.MaxPool3d(2), (1, 2, 4, 4, 5)),
    "AdaptiveAvgPool1d": (lambda m: m.AdaptiveAvgPool1d(3), (2, 3, 8)),
    "AdaptiveAvgPool2d": (lambda m: m.AdaptiveAvgPool2d(1), (2, 3, 4, 5)),
    "Upsample": (lambda m: m.Upsample(scale_factor=2), (1, 2, 3, 4)),
    "Upsample, bilinear": (lambda m: m.Upsample((5, 6), mode="bilinear", align_corners=True), (1, 2, 3, 4)),
    "activations": (lambda m: m.Sequential(m.SiLU(), m.Tanh(), m.Identity(), m.Sigmoid()), (3, 4)),
}


def copied(make: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The layer in anneal and in torch, with the same weights, none of them special."""
    torch.manual_seed(0)
    theirs, ours = make(torch.nn), make(nn)
    state = {k: v + 0.1 if v.is_floating_point() else v for k, v in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    theirs.load_state_dict(state)
    ours.load_state_dict({k: v.numpy() for k, v in state.items()})
    return ours, theirs


def agree(ours: Any, theirs: Any, got: Tensor, want: Any, x: Tensor, tx: Any) -> None:
    """Values, and the gradients of x and of every parameter for some cotangent."""
    weight = np.random.default_rng(1).standard_normal(got.shape).astype(np.float32)
    (got * Tensor(weight)).sum().backward()
    (want * torch.tensor(weight)).sum().backward()
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), tx.grad.numpy(), rtol=1e-3, atol=1e-4)
    for (name, p), (other, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == other
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_torchs(name: str, device: str) -> None:
    make, shape = LAYERS[name]
    ours, theirs = copied(make)
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x, tx = Tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    agree(ours, theirs, ours(x), theirs(tx), x, tx)
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy(), rtol=1e-4, atol=1e-5)
    evaluated = ours.eval()(Tensor(array)).numpy()
    np.testing.assert_allclose(evaluated, theirs.eval()(tx).detach().numpy(), rtol=1e-4, atol=1e-5)


RECURRENT = {
    "RNN": lambda m: m.RNN(3, 4),
    "RNN, relu, two layers": lambda m: m.RNN(3, 4, 2, nonlinearity="relu", bias=False),
    "GRU": lambda m: m.GRU(3, 4, batch_first=True),
    "GRU, both ways": lambda m: m.GRU(3, 4, 2, bidirectional=True),
    "LSTM": lambda m: m.LSTM(3, 4),
    "LSTM, both ways, two layers": lambda m: m.LSTM(3, 4, 2, batch_first=True, bidirectional=True),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_are_torchs(name: str, device: str) -> None:
    if "ways" in name and get_device(device).describe().get("software"):
        pytest.skip("the same kernels as one way, many of them: slow on software adapters")
    ours, theirs = copied(RECURRENT[name])
    rng = np.random.default_rng(0)
    array = rng.standard_normal((2, 3, 3)).astype(np.float32)
    batch = 2 if ours.batch_first else 3
    states = rng.standard_normal((2, ours.num_layers * (1 + ours.bidirectional), batch, 4)).astype(np.float32)
    x, tx = Tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    pair = "LSTM" in name
    got, last = ours(x, (Tensor(states[0]), Tensor(states[1])) if pair else Tensor(states[0]))
    want, end = theirs(tx, (torch.tensor(states[0]), torch.tensor(states[1])) if pair else torch.tensor(states[0]))
    for a, b in zip(last, end, strict=True) if pair else [(last, end)]:
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)
    agree(ours, theirs, got, want, x, tx)


def test_a_gpu_unrolls_the_first_length_of_a_layer_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unrolled sequence is compiled for a second or more, which other lengths had to wait for, too."""
    looped: list[int] = []

    def scan(f: Any, init: Any, xs: Any, **settings: Any) -> Any:
        looped.append(xs[0].shape[0])
        return an.scan(f, init, xs, **settings)

    monkeypatch.setattr("anneal.nn._recurrent._LOOPED", 3)
    monkeypatch.setattr("anneal.nn._recurrent._LOOPED_GPU", 6)
    monkeypatch.setattr("anneal.nn._recurrent.scan", scan)
    layer, lengths = nn.GRU(2, 3), (2, 4, 4, 5, 2, 4, 6)
    x = np.random.default_rng(0).standard_normal((6, 1, 2)).astype(np.float32)
    found = {
        device: [layer.to(device)(Tensor(x[:n], device=device))[0].numpy() for n in lengths]
        for device in ("webgpu", "cpu")
    }
    assert looped == [5, 6, 4, 5, 6]  # what it did before is known
    for a, b in zip(found["webgpu"], found["cpu"], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["RNN, relu, two layers", "GRU, both ways", "LSTM, both ways, two layers"])
def test_a_long_sequence_is_a_loop_of_the_same_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = RECURRENT[name](nn)
    x = Tensor(np.random.default_rng(0).standard_normal((2, 6, 3)).astype(np.float32))
    lengths = [6, 4] if layer.batch_first else [2, 2, 2, 1, 1, 1]
    results = []
    for least in (1000, 1):
        monkeypatch.setattr("anneal.nn._recurrent._LOOPED", least)
        for packed in (False, True):
            layer.zero_grad()
            output, last = layer(pack_padded_sequence(x, lengths, layer.batch_first) if packed else x)
            output = pad_packed_sequence(output, layer.batch_first)[0] if packed else output
            ends = last if isinstance(last, tuple) else (last,)
            ((output**2).sum() + sum(e.sin().sum() for e in ends)).backward()
            results.append([output, *ends, *[p.grad for p in layer.parameters()]])
    for unrolled, looped in zip(results[:2], results[2:], strict=True):
        for a, b in zip(unrolled, looped, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-4, 1e-5)


def test_a_packed_sequence_has_the_values_that_it_shows(device: str) -> None:
    """A layer reads `data`, and the padded tensor that it was packed from while that is unchanged, without padding."""
    layer = nn.GRU(2, 3).to(device)
    x = Tensor(np.arange(12.0, dtype=np.float32).reshape(3, 2, 2) / 10, device=device)
    x[2, 1] = float("nan")

    def ends(packed: Any) -> Any:
        layer.zero_grad()
        output, last = layer(packed)
        (output.data.sum() + last.sum()).backward()
        assert layer.weight_ih_l0.grad is not None
        assert layer.weight_ih_l0.grad.isfinite().all().item()
        return last.tolist()

    given = x.clone()
    packed = pack_padded_sequence(given, [3, 2])
    given.zero_()
    wanted = ends(packed)
    assert wanted == ends(pack_padded_sequence(x, [3, 2]))
    assert pad_packed_sequence(packed)[0].tolist() == [*x[:2].tolist(), [x[2, 0].tolist(), [0.0, 0.0]]]
    assert packed.data.tolist() == [*x[0].tolist(), *x[1].tolist(), x[2, 0].tolist()]
    np.testing.assert_allclose(ends(packed), wanted, rtol=1e-6)
    for realized in (True, False):
        packed = pack_padded_sequence(x, [3, 2])
        if realized:
            packed.data.realize()
        packed.data.mul_(2)
        np.testing.assert_allclose(ends(packed), ends(pack_padded_sequence(x * 2, [3, 2])), rtol=1e-6)
        longer, lengths = pad_packed_sequence(packed, total_length=4, padding_value=7.0)
        assert (longer[3].tolist(), longer[2, 1].tolist(), lengths.tolist()) == ([[7.0] * 2] * 2, [7.0] * 2, [3, 2])
    longer, _ = pad_packed_sequence(pack_padded_sequence(x, [2, 1]), total_length=3)
    assert longer.tolist() == [x[0].tolist(), [x[1, 0].tolist(), [0.0] * 2], [[0.0] * 2] * 2]


def test_the_plans_of_a_long_sequence_are_those_of_a_longer_one() -> None:
    def plans(time: int) -> int:
        before = sum(cache_statistics())
        layer, x = nn.LSTM(2, 3), Tensor(np.zeros((time, 1, 2), np.float32))
        layer(x)[0].sum().backward()
        realize([p.grad for p in layer.parameters()])
        return sum(cache_statistics()) - before

    assert plans(256) == plans(300)


def test_a_sequence_without_batch_and_without_state() -> None:
    ours, theirs = copied(RECURRENT["LSTM"])
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    got, (h, c) = ours(Tensor(x))
    want, (th, tc) = theirs(torch.tensor(x))
    for a, b in ((got, want), (h, th), (c, tc)):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeError, match=r"LSTM: x has shape \(time, batch, 3\)"):
        ours(Tensor(x.T))
    with pytest.raises(ShapeError, match=r"a state has shape \(1, 2, 4\), not \(1, 3, 4\)"):
        nn.GRU(3, 4)(Tensor.zeros(5, 2, 3), Tensor.zeros(1, 3, 4))


STARTS: dict[str, Callable[[Any], Any]] = {
    "Conv1d": lambda m: m.Conv1d(8, 64, 5),
    "ConvTranspose2d": lambda m: m.ConvTranspose2d(8, 64, 3, groups=2),
    "GroupNorm": lambda m: m.GroupNorm(2, 8),
    "BatchNorm1d": lambda m: m.BatchNorm1d(8),
    "RNN": lambda m: m.RNN(20, 30, 2),
    "LSTM": lambda m: m.LSTM(20, 30),
}


@pytest.mark.parametrize("name", STARTS)
def test_layers_start_as_torchs_do(name: str) -> None:
    manual_seed(0)
    torch.manual_seed(0)
    ours, theirs = STARTS[name](nn).state_dict(), STARTS[name](torch.nn).state_dict()
    for key, want in theirs.items():
        got, want = ours[key].numpy(), want.numpy()
        assert got.shape == want.shape
        assert np.abs(got).max() == pytest.approx(np.abs(want).max(), rel=0.15), key
        if got.size > 200:
            assert got.std() == pytest.approx(want.std(), rel=0.1), key


def test_vision_transformer_is_torchs(device: str) -> None:
    """timm's names over torch's encoder layer, which computes the same block."""
    manual_seed(0)
    ours = nn.ViT(8, 4, num_classes=5, embed_dim=8, depth=2, num_heads=2, mlp_ratio=2)
    for p in ours.parameters():
        p.assign(Tensor(np.random.default_rng(p.numel()).standard_normal(p.shape).astype(np.float32) * 0.3))
    w = {k: torch.tensor(v.numpy()) for k, v in ours.state_dict().items()}
    image = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    x = torch.nn.functional.conv2d(torch.tensor(image), w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], 4)
    x = torch.cat([w["cls_token"].expand(2, 1, 8), x.flatten(2).transpose(1, 2)], 1) + w["pos_embed"]
    names = {
        "self_attn.in_proj_weight": "attn.qkv.weight",
        "self_attn.in_proj_bias": "attn.qkv.bias",
        "self_attn.out_proj.weight": "attn.proj.weight",
        "self_attn.out_proj.bias": "attn.proj.bias",
        **{f"linear{i}.{k}": f"mlp.fc{i}.{k}" for i in (1, 2) for k in ("weight", "bias")},
        **{f"norm{i}.{k}": f"norm{i}.{k}" for i in (1, 2) for k in ("weight", "bias")},
    }
    for depth in range(2):
        layer = torch.nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, activation="gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
        )
        layer.load_state_dict({k: w[f"blocks.{depth}.{v}"] for k, v in names.items()})
        x = layer(x)
    x = torch.nn.functional.layer_norm(x, (8,), w["norm.weight"], w["norm.bias"], 1e-6)
    want = torch.nn.functional.linear(x[:, 0], w["head.weight"], w["head.bias"])
    np.testing.assert_allclose(ours(Tensor(image)).numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-4)


def test_batch_norm_with_the_mean_of_all_batches() -> None:
    ours, theirs = nn.BatchNorm1d(3, momentum=None), torch.nn.BatchNorm1d(3, momentum=None)
    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=(5, 3)).astype(np.float32)
        ours(Tensor(x))
        theirs(torch.tensor(x))
    assert ours.running_mean is not None
    assert ours.running_var is not None
    np.testing.assert_allclose(ours.running_mean.numpy(), theirs.running_mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(ours.running_var.numpy(), theirs.running_var.numpy(), rtol=1e-5)


def test_batch_norm_of_an_empty_batch_tells_nothing() -> None:
    layer = nn.BatchNorm1d(3)
    y = layer(Tensor(np.zeros((0, 3), np.float32)))
    y.sum().backward()
    assert y.shape == (0, 3)
    assert layer.bias is not None
    assert layer.bias.grad is not None
    assert layer.bias.grad.tolist() == [0.0] * 3
    assert layer.running_var is not None
    assert layer.running_var.tolist() == [1.0] * 3


def test_the_padding_row_of_an_embedding_is_zero_and_stays_so() -> None:
    layer = nn.Embedding(5, 3, padding_idx=-1)
    assert layer.padding_idx == nn.EmbeddingBag(5, 3, padding_idx=-1).padding_idx == 4  # as `ids != padding_idx` asks
    assert layer.weight.numpy()[4].tolist() == [0.0] * 3
    assert layer.weight.numpy()[:4].all()
    layer(Tensor([4, 1])).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.numpy().sum(1).tolist() == [0.0, 3.0, 0.0, 0.0, 0.0]
    with pytest.raises(ShapeError, match="padding_idx 5"):
        nn.Embedding(5, 3, padding_idx=5)
