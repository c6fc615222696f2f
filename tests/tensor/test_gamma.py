"""lgamma, digamma and logcumsumexp: values to the last digits, at the poles and far out."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import anneal as an
from anneal.tensor import Tensor, grad

DIGAMMA = {  # to 60 digits, rounded
    0.001: -1000.5755719318103,
    0.3: -3.502524222200133,
    1.0: -0.5772156649015329,
    2.5: 0.7031566406452432,
    7.9: 2.002238487563571,
    30.5: 3.401243668961661,
    -0.5: 0.03648997397857652,
    -3.25: 4.46627587235028,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lgamma(dtype: type) -> None:
    near = 10.0 ** -np.arange(1, 7)
    x = np.concatenate(
        [np.linspace(0.01, 12, 500), 10.0 ** np.arange(-30, 31), 1 + near, 1 - near, 2 + near, 2 - near]
    ).astype(dtype)
    want = np.array([math.lgamma(v) for v in x.tolist()])
    got = Tensor(x).lgamma().numpy().astype(np.float64)
    # Python's own loses digits near its zeros at 1 and 2: it can only be the judge of float32 there
    unit = np.spacing(np.maximum(np.abs(want), 1.0 if dtype is np.float64 else 0.0).astype(dtype))
    assert np.max(np.abs(got - want) / np.maximum(unit, np.finfo(dtype).tiny)) < 8
    x = -np.linspace(0.013, 20.3, 500).astype(dtype)
    want = np.array([math.lgamma(v) for v in x.tolist()])
    np.testing.assert_allclose(
        Tensor(x).lgamma().numpy(), want, rtol=8 * np.finfo(dtype).eps, atol=8 * np.finfo(dtype).eps
    )
    ends = Tensor(np.array([0, -1, -7, math.inf, -math.inf, math.nan], dtype)).lgamma().tolist()
    assert ends[:5] == [math.inf] * 5
    assert math.isnan(ends[5])


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 2e-6), (np.float64, 2e-15)])
def test_digamma(dtype: type, rtol: float) -> None:
    x = np.array(list(DIGAMMA), dtype)
    slack = (
        16 * np.finfo(dtype).eps
    )  # at -3.25 and the like a change of the last bit of x is more than that of the value
    np.testing.assert_allclose(Tensor(x).digamma().numpy(), list(DIGAMMA.values()), rtol=rtol + slack, atol=slack)
    ends = Tensor(np.array([0.0, -0.0, math.inf, -1, -7, -math.inf, math.nan], dtype)).digamma().tolist()
    assert ends[:3] == [-math.inf, math.inf, math.inf]
    assert all(map(math.isnan, ends[3:]))


def test_derivatives_of_lgamma_are_polygamma_functions() -> None:
    def slope(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        of = grad(f)
        return lambda x: of(x).sum()

    f: Callable[[Tensor], Tensor] = lambda x: x.lgamma().sum()
    one = Tensor([1.0, 1.0], dtype="float64")
    apery = 1.2020569031595943
    for want in (-0.5772156649015329, math.pi**2 / 6, -2 * apery, math.pi**4 / 15):
        f = slope(f)
        assert f(one).item() / 2 == pytest.approx(want, rel=1e-13)


def test_integers_and_halves() -> None:
    np.testing.assert_allclose(Tensor([5, 6]).lgamma().exp().numpy(), [24, 120], rtol=1e-6)
    assert Tensor([3.0], dtype="float16").digamma().dtype.name == "float16"


@pytest.mark.parametrize("n", [1, 5, 32, 33, 100, 1500])
def test_logcumsumexp(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((2, n)) * 30
    x[:, : n // 3] -= 800  # gone beside the largest, and yet there before it
    for dim, a in ((1, x), (0, x.T)):
        want = np.logaddexp.accumulate(a, axis=dim)
        np.testing.assert_allclose(Tensor(a, dtype="float64").logcumsumexp(dim).numpy(), want, rtol=1e-12)
        np.testing.assert_allclose(Tensor(a.astype(np.float32)).logcumsumexp(dim).numpy(), want, rtol=1e-5, atol=1e-5)


def test_logcumsumexp_at_the_ends() -> None:
    inf = math.inf
    rows = [[-inf, -inf, 1.0, 2.0], [1.0, inf, 2.0, -inf], [-inf, 0.0, math.nan, 1.0]]
    with np.errstate(invalid="ignore"):
        want = np.logaddexp.accumulate(rows, axis=1)
    np.testing.assert_allclose(Tensor(rows).logcumsumexp(1).numpy(), want, rtol=1e-6)
    slope = grad(lambda x: x.logcumsumexp(0).sum())(Tensor([1.0, 2.0, 3.0]))
    p = np.exp(np.subtract.outer([1.0, 2.0, 3.0], np.logaddexp.accumulate([1.0, 2.0, 3.0])))
    np.testing.assert_allclose(slope.numpy(), np.triu(p).sum(1), rtol=1e-6)


def test_zeta_of_large_x_is_what_its_terms_are() -> None:
    """torch's values: 1 for q = 1, 0 above, inf where one of the terms is of a number within 1."""
    x = an.tensor([[200.0], [1e4], [1e5], [1e20], [math.inf]], requires_grad=True)
    found = an.special.zeta(x, an.tensor([-2.5, -0.5, 0.25, 0.5, 1.0, 3.0, 1e5]))
    assert found.tolist() == [[math.inf] * 4 + [1.0, 0.0, 0.0]] * 5
    near = an.special.zeta(an.tensor([127.0, 128.0, 129.0, 1e4, 1e4]), an.tensor([1.0, 1.0, 1.0, 0.999, 1.0000001]))
    assert near.tolist() == pytest.approx([1.0, 1.0, 1.0, 22134.0957, 0.99880862], rel=2e-4)


def test_incomplete_gamma_functions_of_large_numbers() -> None:
    """Values of 12 digits; the steps of the series grow with the number, to more than any program waits for."""
    a, inf = [1e7, 53132781592.22524, 7.01270985582463e17, 1e30, 1.7e308], math.inf
    x = [1e7 - 5000, 53131740894.09978, 7.012709803096316e17, 1e30 * (1 - 2.0**-40), 1.7e308]
    low = [0.056905070739, 3.16763443963e-6, 1.52195886774e-10, 0.0, 0.5]
    found = an.special.gammainc(an.tensor(a, dtype="float64"), an.tensor(x, dtype="float64"))
    np.testing.assert_allclose(found.numpy(), low, rtol=1e-9)
    upper = an.special.gammaincc(an.tensor([*a, 1e9], dtype="float64"), an.tensor([*x, inf], dtype="float64"))
    np.testing.assert_allclose(upper.numpy(), [*(1 - np.array(low)), 0.0], rtol=1e-9)
