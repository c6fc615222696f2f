"""Tensors as a user of torch or NumPy handles them: making, shaping, indexing, computing, reading."""

from __future__ import annotations

from typing import assert_type

import numpy as np

from anneal.tensor import DType, Tensor, dtypes, functional as F, manual_seed, no_grad

manual_seed(1)
x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
noise = Tensor.randn(2, 3)
assert_type(Tensor.zeros(2, 3, dtype="float32"), Tensor)
assert_type(Tensor.arange(6).reshape(2, 3), Tensor)
assert_type(Tensor(np.ones((2, 3), np.float32), requires_grad=True), Tensor)

# Shapes are tuples, and the size of an axis is a number.
rows, columns = x.shape
assert_type(x.size(0), int)
assert_type(x.size(0) // 2 + x.ndim + x.numel(), int)
assert_type(x.dtype, DType)
assert_type(x.reshape(x.size(0), -1).transpose(0, 1).unsqueeze(0), Tensor)
assert_type(x.T.permute(1, 0).expand(2, 3).contiguous(), Tensor)
assert_type(Tensor.cat([x, noise], dim=0), Tensor)
assert_type(Tensor.stack([x, x]).squeeze(), Tensor)
first, second = x.split(1)
assert_type(first, Tensor)
for row in x:
    assert_type(row, Tensor)

# Arithmetic, from both sides, and comparisons.
assert_type(2 * x + x / 3 - x**2, Tensor)
assert_type(1 - x, Tensor)
assert_type(x @ x.T, Tensor)
assert_type(-x.abs(), Tensor)
assert_type((x > 2) & (x < 5), Tensor)
assert_type(x == 1, Tensor)
assert_type((x > 2).where(x, 0.0), Tensor)

# Indexing, by numbers, slices, None and tensors.
assert_type(x[0], Tensor)
assert_type(x[:, 1:], Tensor)
assert_type(x[..., None], Tensor)
assert_type(x[Tensor([1, 0])], Tensor)
x[0] = 7.0

# Reductions, functions, casts, devices.
assert_type(x.sum(dim=1, keepdim=True), Tensor)
assert_type(x.mean((0, 1)), Tensor)
assert_type(x.var(0, correction=0).sqrt(), Tensor)
assert_type(x.softmax(-1).log(), Tensor)
assert_type(x.argmax(1), Tensor)
assert_type(x.to("cpu").to(dtypes.float64).float(), Tensor)
assert_type(x.to(device="cpu", dtype="float16").half(), Tensor)
assert_type(F.cross_entropy(x, Tensor([0, 2]), label_smoothing=0.1), Tensor)
assert_type(F.layer_norm(x, 3), Tensor)
assert_type(F.scaled_dot_product_attention(x, x, x), Tensor)
values, mean = x.var_mean(1)
assert_type(mean, Tensor)

# Gradients and values.
w = Tensor([1.0, 2.0], requires_grad=True)
loss = (w * w).sum()
loss.backward()
if w.grad is not None:
    assert_type(w.grad, Tensor)
with no_grad():
    w.assign(w - 0.1 * (w.grad if w.grad is not None else w))
total = 0.0
total += loss.item()
assert_type(float(loss), float)
assert_type(x.detach().realize(), Tensor)
assert_type(x.requires_grad, bool)
print(x.numpy().shape, x.tolist(), f"{loss:.3f}", total, rows, columns)
