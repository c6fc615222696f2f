"""Products of one vector with a matrix, and what is done to the vector in the same kernel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from anneal.runtime import plan_of
from anneal.tensor import Tensor, Variable, functional as F, jit
from anneal.uop import UOp

Array = npt.NDArray[np.float32]
RNG = np.random.default_rng(5)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def standardized(x: Array) -> Array:
    x = x - x.mean(-1, keepdims=True)
    out: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return out


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    out: Array = e / e.sum(-1, keepdims=True)
    return out


@pytest.mark.parametrize(("n", "k"), [(24, 32), (37, 65), (512, 96), (2100, 64), (1, 300), (130, 7)])
def test_norm_of_the_vector(device: str, n: int, k: int) -> None:
    x, w, b, g = normal(1, k), normal(n, k), normal(n), normal(k)
    got = F.linear(F.layer_norm(Tensor(x), k, Tensor(g), Tensor(g)), Tensor(w), Tensor(b)).gelu("tanh")
    y = (standardized(x) * g + g) @ w.T + b
    want = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    np.testing.assert_allclose(got.numpy(), want, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize(("n", "k"), [(24, 32), (37, 65), (520, 96), (2100, 64), (8, 1000), (130, 7)])
def test_matrix_read_down_its_columns(device: str, n: int, k: int) -> None:
    x, w, b = normal(1, k), normal(k, n), normal(n)
    np.testing.assert_allclose((Tensor(x) @ Tensor(w) + Tensor(b)).numpy(), x @ w + b, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize(("heads", "keys", "width"), [(2, 32, 16), (3, 77, 24), (12, 130, 64), (1, 1, 8), (2, 700, 5)])
def test_attention_of_one_query(device: str, heads: int, keys: int, width: int) -> None:
    q, k, v = normal(heads, 1, width), normal(heads, keys, width), normal(heads, keys, width)
    seen = np.arange(keys) < max(1, keys - 3)
    scores = np.where(seen, q @ k.swapaxes(1, 2) / np.sqrt(width), np.float32(-1e30))
    want = softmax(scores) @ v
    tensors = [Tensor(a) for a in (q, k, v)]
    mask = Tensor(seen).reshape(1, 1, keys)
    np.testing.assert_allclose(
        F.scaled_dot_product_attention(*tensors, attn_mask=mask).numpy(), want, rtol=2e-5, atol=2e-5
    )
    a, b, c = tensors
    by_hand = mask.where((a @ b.transpose(-1, -2)) * width**-0.5, -1e30).softmax(-1) @ c
    np.testing.assert_allclose(by_hand.numpy(), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("heads", "width"), [(2, 16), (3, 7), (4, 32)])
def test_pieces_of_a_product(device: str, heads: int, width: int) -> None:
    """Queries, keys and values of one token, each put in its own order."""
    n = heads * width
    x, w, b, g = normal(1, n), normal(3 * n, n), normal(3 * n), normal(n)
    rows = F.linear(F.layer_norm(Tensor(x), n, Tensor(g), Tensor(g)), Tensor(w), Tensor(b))
    q, k, v = rows.reshape(1, 3, heads, width).permute(1, 2, 0, 3)
    want = ((standardized(x) * g + g) @ w.T + b).reshape(3, heads, 1, width)
    for t, expected in zip((q * 2.0, k + 1.0, v.exp().log()), (want[0] * 2, want[1] + 1, want[2]), strict=True):
        np.testing.assert_allclose(t.numpy(), expected, rtol=1e-4, atol=1e-4)
    together = plan_of([q * 2.0, k + 1.0, v.abs()])
    assert len(together.calls) == 1


def test_pieces_that_overlap_stay_together(device: str) -> None:
    x, w = normal(1, 24), normal(30, 24)
    y = Tensor(x) @ Tensor(w).T
    a, b = y[:, :20] + 1.0, y[:, 5:] * 2.0
    assert len(plan_of([a, b]).calls) == 2
    np.testing.assert_allclose(a.numpy(), (x @ w.T)[:, :20] + 1, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(b.numpy(), (x @ w.T)[:, 5:] * 2, rtol=1e-4, atol=1e-4)


def test_keys_and_values_go_where_they_are_kept(device: str) -> None:
    """One token's product puts its keys and values into their places by itself, and its query meets all of them."""
    heads, width, length = 3, 8, 12
    n = heads * width
    w, g = normal(3 * n, n), normal(n)
    weight, gain = Tensor(w).realize(), Tensor(g).realize()
    keys, values = (Tensor.zeros(heads, length, width).contiguous().realize() for _ in range(2))
    pos = Variable("pos", 0, length - 1)

    @jit
    def read(x: Tensor, p: UOp) -> Tensor:
        rows = F.linear(F.layer_norm(x, n, gain, gain), weight)
        q, k, v = rows.reshape(1, 3, heads, width).permute(1, 2, 0, 3)
        keys[:, p : p + 1], values[:, p : p + 1] = k, v
        return F.scaled_dot_product_attention(q, keys[:, : p + 1], values[:, : p + 1])

    ks, vs = np.zeros((2, heads, length, width), np.float32)
    for i in (0, 1, 2, 3, 11, 2):
        x = normal(1, n)
        q, k, v = ((standardized(x) * g + g) @ w.T).reshape(3, heads, 1, width)
        ks[:, i : i + 1], vs[:, i : i + 1] = k, v
        want = softmax(q @ ks[:, : i + 1].swapaxes(1, 2) / np.sqrt(width)) @ vs[:, : i + 1]
        np.testing.assert_allclose(read(Tensor(x), pos.bind(i)).numpy(), want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(keys.numpy(), ks, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(values.numpy(), vs, rtol=1e-4, atol=1e-4)
    if device == "webgpu":
        (captured,) = read.captures.values()
        assert captured is not None
        assert [len(run.plan.calls) for run in captured.launches] == [3]
