"""Recurrent layers, norms and convolutions by their formulas, in NumPy, where torch is not installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anneal import nn
from anneal.optim import SparseAdam
from anneal.tensor import Tensor

Array = np.ndarray[Any, Any]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def unrolled(kind: str, w: dict[str, Array], x: Array, n: int) -> Array:
    """The outputs of one layer, (time, batch, n), step by step."""
    h = c = np.zeros((x.shape[1], n))
    out = []
    for step in x:
        a = step @ w["weight_ih_l0"].T + w["bias_ih_l0"]
        b = h @ w["weight_hh_l0"].T + w["bias_hh_l0"]
        if kind == "RNN":
            h = np.tanh(a + b)
        elif kind == "GRU":
            (ar, az, an), (br, bz, bn) = np.split(a, 3, 1), np.split(b, 3, 1)
            z = sigmoid(az + bz)
            h = (1 - z) * np.tanh(an + sigmoid(ar + br) * bn) + z * h
        else:
            i, f, g, o = np.split(a + b, 4, 1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.stack(out)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent(kind: str, device: str) -> None:
    layer = getattr(nn, kind)(3, 4)
    w = {k: v.numpy().astype(np.float64) for k, v in layer.state_dict().items()}
    x = np.random.default_rng(0).standard_normal((3, 2, 3)).astype(np.float32)
    output, last = layer(Tensor(x))
    want = unrolled(kind, w, x, 4)
    np.testing.assert_allclose(output.numpy(), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose((last[0] if kind == "LSTM" else last).numpy()[0], want[-1], rtol=1e-4, atol=1e-5)


def test_norms(device: str) -> None:
    x = np.random.default_rng(0).standard_normal((4, 6, 5)).astype(np.float32) + 3

    def standard(x: Array, axes: tuple[int, ...]) -> Array:
        return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)

    close = {"rtol": 1e-3, "atol": 1e-4}
    np.testing.assert_allclose(
        nn.GroupNorm(2, 6)(Tensor(x)).numpy(), standard(x.reshape(4, 2, 15), (2,)).reshape(x.shape), **close
    )
    norm = nn.BatchNorm1d(6, momentum=0.5)
    np.testing.assert_allclose(norm(Tensor(x)).numpy(), standard(x, (0, 2)), **close)
    mean, var = 0.5 * x.mean((0, 2)), 0.5 + 0.5 * x.var((0, 2), ddof=1)
    want = (x - mean[:, None]) / np.sqrt(var[:, None] + 1e-5)
    np.testing.assert_allclose(norm.eval()(Tensor(x)).numpy(), want, **close)


def test_convolutions(device: str) -> None:
    rng = np.random.default_rng(0)
    x, image = rng.standard_normal((2, 3, 7)).astype(np.float32), rng.standard_normal((1, 2, 3, 3)).astype(np.float32)
    one = nn.Conv1d(3, 4, 3, stride=2)
    w = one.weight.numpy()
    want = np.stack([np.einsum("bik,oik->bo", x[:, :, 2 * j : 2 * j + 3], w) for j in range(3)], -1)
    np.testing.assert_allclose(one(Tensor(x)).numpy(), want + one.bias.numpy()[:, None], rtol=1e-4, atol=1e-5)
    up = nn.ConvTranspose2d(2, 3, 2, stride=2, bias=False)
    want = np.einsum("bihw,iokl->bohkwl", image, up.weight.numpy()).reshape(1, 3, 6, 6)
    np.testing.assert_allclose(up(Tensor(image)).numpy(), want, rtol=1e-4, atol=1e-5)


def test_sparse_adam_moves_the_rows_that_were_looked_up() -> None:
    """Beside torch 2.13's of sparse gradients."""
    w = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    optimizer = SparseAdam([w], lr=0.1)
    for rows in ([0, 1], [1], [2, 1], [0, 0]):
        optimizer.zero_grad()
        (nn.functional.embedding(Tensor(rows), w) ** 2).sum().backward()
        optimizer.step()
    torchs = [0.8237913847, 1.8242074251, 2.7003815174, 3.7002739906, 4.9361186028, 5.9361186028]
    assert w.reshape(-1).tolist() == pytest.approx(torchs, rel=1e-6)
