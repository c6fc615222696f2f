"""Functions of several ops, of narrow floats: the result of the same numbers in float32, rounded once.

The numbers are such that sums and products in between leave float16.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.nn import functional as F
from anneal.tensor import Tensor

X = Tensor((np.random.default_rng(0).random((12, 16)) * 700 + 100).astype("float32"))
IMAGE, VOLUME, SQUARE = X.reshape(1, 1, 12, 16), X.reshape(1, 3, 4, 16), X[:, :12]
RISING = X.sort(1).values / 2**10
SMALL = X / 2**10
CTC = Tensor([[1, 2, 1, 2]] * 3), [16] * 3, [4] * 3
# the function, and its arguments in float32
FUNCTIONS: dict[str, tuple[Callable[..., Any], *tuple[Any, ...]]] = {
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 16) * 9, X),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (12, 16)), IMAGE),
    "avg_pool2d of borders": (lambda x: F.avg_pool2d(x, 8, 3, 2, count_include_pad=False), IMAGE * 5),
    "avg_pool2d by a divisor": (lambda x: F.avg_pool2d(x, (12, 16), divisor_override=100), IMAGE),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, (2, 4, 16)), VOLUME * 5),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 3), X * 20),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (5, 3)), IMAGE * 20),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 5)), VOLUME * 20),
    "lp_pool1d": (lambda x: F.lp_pool1d(x, 2, 8), X),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2, (12, 16)), IMAGE),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic"), IMAGE),
    "bilinear": (lambda x: F.interpolate(x, (7, 33), mode="bilinear"), IMAGE),
    "area": (lambda x: F.interpolate(x, (7, 5), mode="area"), IMAGE * 20),
    "grid_sample": (lambda x, grid: F.grid_sample(x, grid, "bicubic"), IMAGE, SMALL[:, :2].reshape(1, 3, 4, 2)),
    "ctc_loss": (lambda x: F.ctc_loss(x, *CTC), -X.reshape(16, 3, 4) / 100),
    "linear_cross_entropy": (lambda x, w: F.linear_cross_entropy(x, w, Tensor([0, 1, 2] * 4)), X, SMALL[:3]),
    "addmm": (lambda x, a, b: x.addmm(a, b, alpha=2**-9), SQUARE, X, X.T),
    "baddbmm": (lambda x, a, b: x.baddbmm(a, b, beta=0.5, alpha=2**-9), SQUARE[None], X[None], X.T[None]),
    "addbmm": (lambda x, a, b: x.addbmm(a, b, beta=2, alpha=2**-9), SQUARE, X[None], X.T[None]),
    "addmv": (lambda x, a, b: x.addmv(a, b, alpha=2**-9), X[:, 0], X, X[0]),
    "addr": (lambda x, a, b: x.addr(a, b, alpha=2**-9), X, X[:, 0], X[0]),
    "addcmul": (lambda x, a: x.addcmul(a, a, value=2**-9), X, X),
    "addcdiv": (lambda x, a, b: x.addcdiv(a, b, value=2**-12), X, X, RISING / 2**8),
    "lerp": (lambda x, y: x.lerp(y, 0.3), X * 60, X * -70),
    "cov": (lambda x, w: x.cov(aweights=w), SMALL, SMALL[0] / 2**12),
    "corrcoef": (lambda x: x.corrcoef(), X),
    "renorm": (lambda x: x.renorm(2.0, 0, 100.0), X),
    "trapezoid": (lambda y, x: y.trapezoid(x), X, RISING),
    "cumulative_trapezoid": (lambda y, x: y.cumulative_trapezoid(x), X, RISING),
    "gradient": (lambda x: an.gradient(x, spacing=1 / 3, edge_order=2)[1], X),
    "quantile": (lambda x: x.quantile(0.3, 1), X),
    "nanquantile": (lambda x: x.nanquantile(0.3, 1), X),
    "histogram": (lambda x: x.histogram(5, weight=x, density=True).hist, X),
    "native_layer_norm": (lambda x, w: an.native_layer_norm(x, (16,), w, w, 1e-5)[0], X, SMALL[0]),
    "native_group_norm": (lambda x, w: an.native_group_norm(x, w, w, 1, 12, 16, 2, 1e-5)[0], X[None], SMALL[:, 0]),
    "spherical_bessel_j0": (an.special.spherical_bessel_j0, X / 100),
    **{
        name: (partial(getattr(an.special, name), n=6), SMALL * 3)
        for name in ("chebyshev_polynomial_v", "legendre_polynomial_p", "shifted_chebyshev_polynomial_w")
    },
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_several_ops_are_rounded_once(name: str) -> None:
    function, *given = FUNCTIONS[name]
    values, slopes = [], []
    for kind in ("float16", "float32"):
        leaf, *others = [x.half().cast(kind).detach() for x in given]
        leaf.requires_grad_()
        y = function(leaf, *others)
        assert y.dtype.name == kind
        if y.requires_grad:
            y.float().sum().backward()
            slopes.append(leaf.grad.half().float().numpy())
        values.append(y.detach().half().float().numpy())
    got, want = values
    assert np.isfinite(want).any()
    np.testing.assert_allclose(got, want, rtol=2.0**-10)
    if slopes:  # the cotangent passes the result's rounding, and so on to the leaf
        size = np.abs(slopes[1][np.isfinite(slopes[1])]).max()
        np.testing.assert_allclose(slopes[0], slopes[1], rtol=0.01, atol=0.01 * size)
