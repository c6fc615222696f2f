"""Gradients that were taken without create_graph are numbers to what is computed of them, computed or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anneal as an

X = np.array([0.5, 1.5])


def _slope(w: Any) -> Any:
    return 2 * (w @ X - 1) * X


@pytest.mark.parametrize("realized", [False, True])
@pytest.mark.parametrize("way", ["grad", "backward", "accumulated"])
def test_an_inner_step_is_of_first_order(way: str, realized: bool, device: str) -> None:
    x = an.tensor(X.astype(np.float32), device=device)
    w = an.tensor([1.0, 2.0], requires_grad=True, device=device)
    loss = ((w * x).sum() - 1) ** 2
    times = 1
    if way == "grad":
        (g,) = an.autograd.grad(loss, [w])
    else:
        loss.backward()
        if way == "accumulated":
            (((w * x).sum() - 1) ** 2).backward()
            times = 2
        g = w.grad
        w.grad = None
    if realized:
        g.realize()
    fast = w - 0.1 * g
    (((fast * x * x).sum() - 2) ** 2).backward()
    start = np.array([1.0, 2.0])
    there = start - 0.1 * times * _slope(start)
    np.testing.assert_allclose(w.grad.numpy(), 2 * (there @ X**2 - 2) * X**2, rtol=1e-5)
