"""Values with their indices, and values alone: which form gives what."""

from __future__ import annotations

from typing import assert_type

from anneal.tensor import MinMax, Tensor, ValuesIndices, grad, jit, vmap

x = Tensor([[1.0, 5.0, 2.0], [7.0, 3.0, 4.0]])


def predict(logits: Tensor) -> Tensor:
    _, best = logits.max(1)
    return best


def confident(logits: Tensor, least: float = 0.5) -> tuple[Tensor, Tensor]:
    top = logits.softmax(-1).max(dim=-1)
    return top.values > least, top.indices


# torch's form: an axis by position, or as dim.
assert_type(x.max(dim=1), ValuesIndices)
assert_type(x.max(1), ValuesIndices)
assert_type(x.min(1, keepdim=True).values, Tensor)
assert_type(x.median(dim=1).indices, Tensor)
assert_type(x.nanmedian(-1), ValuesIndices)
assert_type(x.cummax(0), ValuesIndices)
assert_type(x.cummin(dim=0).values, Tensor)
assert_type(predict(x), Tensor)
assert_type(confident(x), tuple[Tensor, Tensor])

# Values alone: of all, along an axis or several, of two tensors.
assert_type(x.max(), Tensor)
assert_type(x.max(axis=1), Tensor)
assert_type(x.min(axis=(0, 1), keepdim=True), Tensor)
assert_type(x.max(x * 2), Tensor)
assert_type(x.median(), Tensor)
assert_type(x.nanmedian(axis=0), Tensor)
assert_type(x.cummin(axis=0), Tensor)
assert_type(x - x.max(axis=1, keepdim=True), Tensor)

# Always pairs.
assert_type(x.sort(descending=True), ValuesIndices)
assert_type(x.topk(2).indices, Tensor)
assert_type(x.kthvalue(1).values, Tensor)
assert_type(x.mode(), ValuesIndices)
assert_type(x.aminmax(dim=1), MinMax)
low, high = x.aminmax()
assert_type(high - low, Tensor)


def largest(x: Tensor) -> ValuesIndices:
    return x.max(dim=-1)


def total(pair: ValuesIndices) -> Tensor:
    return (pair.values * pair.values).sum()


assert_type(jit(largest)(x), ValuesIndices)
assert_type(vmap(largest)(x).indices, Tensor)
assert_type(grad(total)(ValuesIndices(x[0], x[1])), ValuesIndices)
