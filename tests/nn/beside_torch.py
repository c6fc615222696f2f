"""The same function ours and torch's: values and gradients of float64 arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anneal.tensor import Tensor
from tests.helpers import optional
from tests.reference import evaluate

rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape)


def check(ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> None:
    """Values and all gradients of float64 arguments agree with torch's."""
    torch = optional("torch")

    a = [Tensor(x.astype(np.int32) if x.dtype == np.int64 else x, requires_grad=x.dtype == np.float64) for x in arrays]
    t = [torch.tensor(x, requires_grad=x.dtype == np.float64) for x in arrays]
    y, z = ours(*a), theirs(*t)
    assert y.shape == tuple(z.shape)
    weight = rng.standard_normal(y.shape)
    y.backward(Tensor(weight, dtype="float64"))
    z.backward(torch.tensor(weight).reshape(z.shape))
    wanting = [(i, x) for i, x in enumerate(a) if x.grad is not None]
    got = evaluate([y.uop, *[x.grad.uop for _, x in wanting]])
    np.testing.assert_allclose(got[0], z.detach().numpy(), rtol=1e-9, atol=1e-11)
    assert [i for i, x in enumerate(t) if x.grad is not None] == [i for i, _ in wanting]
    for (i, _), g in zip(wanting, got[1:], strict=True):
        np.testing.assert_allclose(g, t[i].grad.numpy(), rtol=1e-8, atol=1e-10, err_msg=f"gradient of argument {i}")
