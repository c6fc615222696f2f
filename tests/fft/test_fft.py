"""anneal.fft: values beside NumPy's on both devices, pairs for complex numbers; derivatives; errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import fft as F
from anneal.errors import DTypeError, ShapeError
from anneal.tensor import Tensor, grad, jit, jvp, vmap

Array = np.ndarray[Any, Any]
TO_PAIRS = ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn")
FROM_REAL = ("rfft", "rfft2", "rfftn", "ihfft")
TO_REAL = ("irfft", "irfft2", "irfftn", "hfft")
ONE: list[dict[str, Any]] = [{}, {"n": 3}, {"n": 7, "dim": 0}, {"norm": "ortho", "dim": 1}, {"norm": "forward", "n": 6}]
MANY: list[dict[str, Any]] = [
    {},
    {"s": (3, 6)},
    {"dim": (2, 0), "s": (5, -1)},
    {"norm": "ortho", "dim": (0, 1)},
    {"norm": "forward"},
]
CASES = [
    (name, options) for name in (*TO_PAIRS, *FROM_REAL, *TO_REAL) for options in (ONE if name.endswith("fft") else MANY)
]
cases = pytest.mark.parametrize(
    ("name", "options"), CASES, ids=lambda x: x if isinstance(x, str) else "-".join(x) or "plain"
)


def split(z: Any) -> Array:
    return np.stack([z.real, z.imag], -1) if np.iscomplexobj(z) else np.asarray(z)


def given(name: str) -> Array:
    rng = np.random.default_rng(len(name))
    real = rng.standard_normal((3, 4, 5))
    return real if name in FROM_REAL else real + 1j * rng.standard_normal((3, 4, 5))


def as_numpy(name: str, options: dict[str, Any], x: Array) -> dict[str, Any]:
    names = {"dim": "axis" if not isinstance(options.get("dim"), tuple) else "axes"}
    out = {names.get(k, k): v for k, v in options.items()}
    if "s" in out:  # NumPy's -1 is newer than the oldest NumPy that we take
        axes = out.setdefault("axes", tuple(range(-len(out["s"]), 0)))
        out["s"] = tuple(x.shape[a] if n == -1 else n for n, a in zip(out["s"], axes, strict=True))
        if options["s"][-1] == -1 and name in TO_REAL:
            out["s"] = (*out["s"][:-1], 2 * (out["s"][-1] - 1))
    return out


@cases
def test_values_are_those_of_numpy(name: str, options: dict[str, Any], device: str) -> None:
    x = given(name)
    expected = split(getattr(np.fft, name)(x, **as_numpy(name, options, x)))
    made = getattr(F, name)(Tensor(split(x).astype(np.float32)), **options)
    assert made.dtype.name == "float32"
    np.testing.assert_allclose(made.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["hfft2", "hfftn", "ihfft2", "ihfftn"])
def test_hermitian_ones_of_several_axes_undo_each_other(name: str) -> None:
    real = Tensor(np.random.default_rng(0).standard_normal((3, 4)))
    back = getattr(F, name.lstrip("i"))(getattr(F, "i" + name.lstrip("i"))(real))
    np.testing.assert_allclose(back.numpy(), real.numpy(), atol=1e-12)


@cases
def test_derivatives(name: str, options: dict[str, Any]) -> None:
    """Each is linear: the transpose against the function, and the same by jvp, vmap and jit."""
    x, rng = split(given(name)), np.random.default_rng(3)
    way = rng.standard_normal(x.shape)

    def f(t: Tensor) -> Tensor:
        return getattr(F, name)(t, **options)  # type: ignore[no-any-return]

    weights = rng.standard_normal(f(Tensor(x)).shape)
    moved = f(Tensor(way)).numpy()
    slope = grad(lambda t: (f(t) * Tensor(weights)).sum())
    assert (slope(Tensor(x)).numpy() * way).sum() == pytest.approx((moved * weights).sum(), rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(jvp(f, (Tensor(x),), (Tensor(way),))[1].numpy(), moved, atol=1e-10)
    if not options:
        both = vmap(f)(Tensor(np.stack([x, way]))).numpy()
        np.testing.assert_allclose(both[1], moved, atol=1e-10)
        captured = jit(slope)
        np.testing.assert_allclose(
            [captured(Tensor(x)).numpy() for _ in range(3)], [slope(Tensor(x)).numpy()] * 3, atol=1e-12
        )
        again = grad(lambda t: (f(t) ** 2).sum())  # the second derivative is twice the transpose of the function
        twice = grad(lambda t: (again(t) * Tensor(way)).sum())(Tensor(x)).numpy()
        np.testing.assert_allclose(twice, again(Tensor(way)).numpy(), atol=1e-9)


def test_frequencies_and_shifts() -> None:
    for n in (4, 5):
        np.testing.assert_allclose(F.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5), rtol=1e-6)
        np.testing.assert_allclose(F.rfftfreq(n).numpy(), np.fft.rfftfreq(n), rtol=1e-6)
        x = np.arange(n * 3).reshape(n, 3)
        for axes in (None, 0, (1,)):
            assert (F.fftshift(Tensor(x), axes).numpy() == np.fft.fftshift(x, axes)).all()
            assert (F.ifftshift(Tensor(x), axes).numpy() == np.fft.ifftshift(x, axes)).all()
    assert F.rfft(Tensor([1, 2, 3])).dtype.name == "float32"
    assert F.rfft(Tensor([1.0, 2.0]).half()).dtype.name == "float16"
    assert F.pairs(Tensor([1, 2]), Tensor([3.0, 4.0])).tolist() == [[1, 3], [2, 4]]
    assert F.fft(Tensor(np.zeros((0, 3, 2), np.float32))).shape == (0, 3, 2)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda x: F.fft(x), ShapeError, r"fft\.fft: takes pairs .* not shape \(4, 3\); pairs\(x\) makes them"),
        (lambda x: F.rfft(x, n=0), ShapeError, r"fft\.rfft: a transform has at least 1 element, not 0"),
        (lambda x: F.rfft(x, norm="all"), ShapeError, r'fft\.rfft: norm is "backward"'),
        (lambda x: F.rfftn(x, dim=(0, 0)), ShapeError, r"fft\.rfftn: an axis is named twice"),
        (lambda x: F.rfftn(x, s=(1, 2, 3)), ShapeError, r"fft\.rfftn: s has 3 sizes"),
        (lambda x: F.rfft(x, dim=2), ShapeError, r"fft\.rfft: axis 2"),
        (lambda x: F.irfft(F.rfft(x, n=8) * F.rfft(x[0], n=8) / 2), DTypeError, r"fft\.irfft: a product of two transf"),
        (lambda x: F.ifft2(F.rfft2(x) * F.rfft2(x).detach()[:1]), DTypeError, r"fft\.ifft2: .*stack\(\[a \* c - b"),
        (lambda x: F.fftfreq(0), ShapeError, r"fft\.fftfreq: there are no frequencies of 0"),
        (lambda x: F.fftfreq(4, dtype="int32"), DTypeError, r"fft\.fftfreq: frequencies are floats"),
    ],
)
def test_mistakes_are_named(call: Callable[[Tensor], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call(Tensor(np.zeros((4, 3), np.float32)))
