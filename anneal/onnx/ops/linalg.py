"""Products of matrices, and determinants."""

from __future__ import annotations

from typing import Any

import numpy as np

from anneal.onnx.execute import NodeCall
from anneal.onnx.ops._values import Value, is_float
from anneal.onnx.registry import op
from anneal.tensor import Tensor, host_call


@op("MatMul")
def matmul(node: NodeCall, a: Tensor, b: Tensor) -> Tensor:
    """The matrix product as NumPy's; integers since version 9."""
    return a.matmul(b)


@op("Gemm")
def gemm(
    node: NodeCall,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float,
    beta: float,
    broadcast: int = 1,
    transA: int,
    transB: int,
) -> Tensor:
    """alpha * A @ B + beta * C; C broadcasts (before version 7 if `broadcast` is 1), and is optional since 11."""
    out = (a.T if transA else a) @ (b.T if transB else b)
    out = _scaled(out, alpha)
    return out if c is None or beta == 0 else out + _scaled(c, beta)


def _scaled(x: Tensor, by: float) -> Tensor:
    return x if by == 1 else x * by if is_float(x) else (x * by).cast(x.dtype)


@op("Einsum")
def einsum(node: NodeCall, *xs: Tensor, equation: str) -> Tensor:
    """Products and sums by named axes."""
    return Tensor.einsum(equation.replace(" ", ""), *xs)


@op("Det", raw=True)
def det(node: NodeCall, x: Value) -> Value:
    """The determinants of square matrices, the last two axes, by LAPACK on the host."""
    if isinstance(x, np.ndarray) or not x.shape[0]:
        return np.asarray(np.linalg.det(node.host(x)), node.host(x).dtype)
    dtype = np.dtype(x.dtype.name)

    def computed(values: Any) -> Any:
        return np.linalg.det(values).astype(dtype)

    found = host_call(computed, (x.shape[:-2], x.dtype), x, key=("onnx Det", x.dtype.name))
    return found
