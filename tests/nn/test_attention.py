"""Attention, rotary positions, SwiGLU and Llama by their formulas, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anneal import nn
from anneal.errors import ShapeError
from anneal.tensor import Tensor, manual_seed

Array = np.ndarray[Any, Any]


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def turned(x: Array, theta: float = 10000.0) -> Array:
    """Rotary positions as complex numbers: x (..., time, dim)."""
    time, dim = x.shape[-2:]
    z = x[..., 0::2] + 1j * x[..., 1::2]
    z = z * np.exp(1j * np.outer(np.arange(time), theta ** (-np.arange(0, dim, 2) / dim)))
    return np.stack([z.real, z.imag], -1).reshape(x.shape)


def attend(q: Array, k: Array, v: Array, causal: bool) -> Array:
    """(batch, heads, time, head) each; query heads share those of keys in a row."""
    k, v = [np.repeat(a, q.shape[1] // a.shape[1], 1) for a in (k, v)]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    return softmax(scores) @ v


def heads(x: Array, count: int) -> Array:
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def rms(x: Array, weight: Array, eps: float = 1e-5) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def llama(w: dict[str, Array], index: Array, n_heads: int, n_kv_heads: int) -> Array:
    """The logits of a Llama, in float64, from its formulas."""
    w = {k: np.asarray(v, np.float64) for k, v in w.items()}
    x = w["tok_embeddings.weight"][index]
    layers = len({k.split(".")[1] for k in w if k.startswith("layers.")})
    for i in range(layers):
        a, m = f"layers.{i}.attention", f"layers.{i}.feed_forward"
        h = rms(x, w[f"layers.{i}.attention_norm.weight"])
        q = turned(heads(h @ w[f"{a}.wq.weight"].T, n_heads))
        k = turned(heads(h @ w[f"{a}.wk.weight"].T, n_kv_heads))
        v = heads(h @ w[f"{a}.wv.weight"].T, n_kv_heads)
        x = x + attend(q, k, v, True).swapaxes(1, 2).reshape(x.shape) @ w[f"{a}.wo.weight"].T
        h = rms(x, w[f"layers.{i}.ffn_norm.weight"])
        x = x + (silu(h @ w[f"{m}.w1.weight"].T) * (h @ w[f"{m}.w3.weight"].T)) @ w[f"{m}.w2.weight"].T
    return rms(x, w["norm.weight"]) @ w["output.weight"].T


def spread(module: nn.Module) -> dict[str, Array]:
    """Give every parameter normal numbers; the state."""
    for p in module.parameters():
        p.assign(Tensor(np.random.default_rng(p.numel()).standard_normal(p.shape).astype(np.float32) * 0.4))
    return {k: v.numpy() for k, v in module.state_dict().items()}


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention(causal: bool, device: str) -> None:
    module = nn.SelfAttention(8, 2, is_causal=causal)
    w = spread(module)
    x = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
    q, k, v = [heads(a, 2) for a in np.split(x @ w["qkv.weight"].T + w["qkv.bias"], 3, -1)]
    want = attend(q, k, v, causal).swapaxes(1, 2).reshape(x.shape) @ w["proj.weight"].T + w["proj.bias"]
    np.testing.assert_allclose(module(Tensor(x)).numpy(), want, rtol=1e-4, atol=1e-4)
    with pytest.raises(ShapeError, match="3 heads do not divide a width of 8"):
        nn.SelfAttention(8, 3)


def test_rotary_positions(device: str) -> None:
    rotary = nn.RotaryEmbedding(6, 16)
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 6)).astype(np.float32)
    np.testing.assert_allclose(rotary(Tensor(x)).numpy(), turned(x), rtol=1e-5, atol=1e-5)
    later = rotary(Tensor(x[:, :, 4:7]), start=4).numpy()
    np.testing.assert_allclose(later, turned(x)[:, :, 4:7], rtol=1e-5, atol=1e-5)
    # The product of two turned vectors depends on their distance alone.
    same = Tensor(np.broadcast_to(x[:1, :1, :1], (1, 1, 9, 6)).copy())
    products = (rotary(same) @ rotary(same).transpose(-1, -2)).numpy()[0, 0]
    for d in range(9):
        np.testing.assert_allclose(np.diagonal(products, d), products[0, d], rtol=1e-4, atol=1e-4)
    with pytest.raises(ShapeError, match="positions 8 to 16 of 16"):
        rotary(Tensor(x), start=8)
    with pytest.raises(ShapeError, match="pairs, and 5 is odd"):
        nn.RotaryEmbedding(5, 4)


def test_a_rotary_table_moves_with_its_module(webgpu: str) -> None:
    module = nn.GroupedQueryAttention(8, 2, 1, rotary=nn.RotaryEmbedding(4, 8))
    x = np.random.default_rng(0).standard_normal((1, 3, 8)).astype(np.float32)
    before = module(Tensor(x)).numpy()
    assert set(module.state_dict()) == {"wq.weight", "wk.weight", "wv.weight", "wo.weight"}
    np.testing.assert_allclose(module.to(webgpu)(Tensor(x, device=webgpu)).numpy(), before, rtol=1e-4, atol=1e-5)


def test_grouped_query_attention(device: str) -> None:
    module = nn.GroupedQueryAttention(12, 6, 2)
    w = spread(module)
    x = np.random.default_rng(0).standard_normal((2, 5, 12)).astype(np.float32)
    q, k, v = [heads(x @ w[f"w{n}.weight"].T, c) for n, c in (("q", 6), ("k", 2), ("v", 2))]
    want = attend(q, k, v, True).swapaxes(1, 2).reshape(x.shape) @ w["wo.weight"].T
    np.testing.assert_allclose(module(Tensor(x)).numpy(), want, rtol=1e-4, atol=1e-4)
    with pytest.raises(ShapeError, match="shared evenly by 4"):
        nn.GroupedQueryAttention(12, 6, 4)


def test_swiglu(device: str) -> None:
    module = nn.SwiGLU(4, 6)
    w = spread(module)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    want = (silu(x @ w["w1.weight"].T) * (x @ w["w3.weight"].T)) @ w["w2.weight"].T
    np.testing.assert_allclose(module(Tensor(x)).numpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_llama(tied: bool, device: str) -> None:
    manual_seed(0)
    config = nn.LlamaConfig(vocab_size=11, dim=16, n_layers=2, n_heads=4, n_kv_heads=2, max_seq_len=8, tie_weights=tied)
    model = nn.Llama(config)
    assert (model.output.weight is model.tok_embeddings.weight) == tied
    w = spread(model)
    index = np.random.default_rng(0).integers(0, 11, (2, 6))
    got = model(Tensor(index, dtype="int32")).numpy()
    np.testing.assert_allclose(got, llama(w, index, 4, 2), rtol=1e-3, atol=1e-3)
    with pytest.raises(ShapeError, match="max_seq_len 8"):
        model(Tensor(np.zeros((1, 9), np.int32)))


def test_llama_starts_small() -> None:
    manual_seed(0)
    model = nn.Llama(nn.LlamaConfig(vocab_size=65, dim=64, n_layers=2, n_heads=4, max_seq_len=16))
    index = Tensor(np.random.default_rng(0).integers(0, 65, (4, 16)).astype(np.int32))
    assert model.loss(index, index.roll(-1, 1)).item() == pytest.approx(np.log(65), abs=0.1)
    assert model.layers[0].attention.wo.weight.numpy().std() == pytest.approx(0.01, rel=0.1)
    assert model.config.hidden == 192
