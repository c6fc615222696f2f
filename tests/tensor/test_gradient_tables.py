"""Tables over every op that has a gradient: against torch at ordinary, equal and zero values, and over nothing.

Each row is run by `backward()` and by `grad()`, which have to agree: what a leaf of the graph does not move has zeros,
in both and in torch. Every axis of every argument is empty once. What is a decision of this project's stands in `OURS`,
with the reason.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from anneal.errors import DTypeError, ShapeError
from anneal.tensor import Tensor, functional as F, grad
from tests.tensor.gradient_ops import CASES, WITHOUT, Case, arrays, missing, names
from tests.tiers import thinned

Array = np.ndarray[Any, Any]
REFUSED = (RuntimeError, IndexError, ValueError, TypeError)  # torch's refusals

PLACE = "of equal elements another place is chosen"
ZERO = "0 * log(0) is 0, and so is its gradient"
NAN = "torch gives nan, though no value is left to have one"
OURS = {
    **{(n, v): "as torch from 2.14 on: half each" for n in ("fmax", "fmin") for v in ("zero", "equal")},
    **{(n, v): PLACE for n in ("mode", "kthvalue") for v in ("zero", "equal")},
    ("xlogy", "zero"): ZERO,
    ("kl_div", "zero"): ZERO,
    ("floor_divide", "zero"): "torch's remainder of 0 by 0; the quotient's slope is 0 everywhere",
    ("conv1d", "empty"): "no channels in: torch takes no channels out either, whatever the weight has",
    ("conv2d", "empty"): "as conv1d",
    ("conv3d", "empty"): "as conv1d",
    ("group_norm", "empty"): NAN,
    ("multi_margin_loss", "empty"): "torch reads memory that it did not write",
    ("trapezoid", "empty"): "torch makes a result of its own, without a graph",
    ("norm", "order"): "torch's norm of order 0 has no graph; here its gradient is 0, as of other step functions",
}


def _weighted(y: Any, as_tensor: Callable[[Array], Any]) -> Any:
    """A sum in which every element counts differently."""
    n = int(np.prod(y.shape))
    return (y * as_tensor(np.cos(np.arange(n)).reshape(tuple(y.shape)).astype(np.float32))).sum()


def _torch(case: Case, data: list[Array]) -> tuple[Array, list[Array | None]]:
    torch = pytest.importorskip("torch")
    xs = [torch.tensor(a, requires_grad=True) for a in data]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = (case.torch or case.f)(torch, torch.nn.functional, *xs)
        if y.requires_grad:
            _weighted(y, torch.tensor).backward()
    return y.detach().numpy(), [None if x.grad is None else x.grad.numpy() for x in xs]


def _ours(case: Case, data: list[Array]) -> tuple[Array, list[Array | None]]:
    xs = [Tensor(a, requires_grad=True) for a in data]
    y = case.f(Tensor, F, *xs)
    _weighted(y, Tensor).backward()
    found = [None if x.grad is None else x.grad.numpy() for x in xs]

    def f(*given: Tensor) -> Tensor:
        return _weighted(case.f(Tensor, F, *given), Tensor)  # type: ignore[no-any-return]

    again = grad(f, tuple(range(len(data))))(*[Tensor(a) for a in data])
    for a, g, x in zip(data, again, found, strict=True):
        assert g.shape == a.shape
        np.testing.assert_allclose(
            np.zeros_like(a) if x is None else x, g.numpy(), rtol=1e-6, err_msg="backward and grad"
        )
    return y.numpy(), found


def _compare(case: Case, data: list[Array], values: str) -> None:
    value, grads = _ours(case, data)
    name = case.names.split()[0]
    try:
        if name == "pdist" and values == "empty":
            raise RuntimeError("torch's backward of it ends the process")
        want, theirs = _torch(case, data)
    except REFUSED:
        return  # torch refuses: that ours does something of the right shape is held above
    if (name, values) in OURS:
        return
    np.testing.assert_allclose(value, want, rtol=1e-4, atol=1e-5, err_msg="value")
    for i, (g, w) in enumerate(zip(grads, theirs, strict=True)):
        assert (g is None) == (w is None) or name == "norm", f"argument {i}: {g} beside torch's {w}"
        if g is not None and w is not None:
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4, err_msg=f"gradient of argument {i}")


def test_every_op_has_a_case() -> None:
    assert not missing(), "give a case in gradient_ops.py, or a reason why there is none"


def test_the_tables_name_what_there_is() -> None:
    there = names()
    assert not {n for c in CASES for n in c.names.split() if n not in there}
    assert not {n for some in WITHOUT.values() for n in some.split() if n not in there}


EVERY = [pytest.param(c, v, id=f"{c.id} {v}") for c in CASES for v in ("ordinary", "zero", "equal")]


@pytest.mark.parametrize(("case", "values"), thinned(EVERY, test=25, ci=5))
def test_against_torch(case: Case, values: str) -> None:
    _compare(case, arrays(case, values), values)


EMPTY = [pytest.param(c, x, id=f"{c.id} {x}") for c in CASES for x in sorted(set(c.shapes) - {",", "i"})]


@pytest.mark.parametrize(("case", "axis"), thinned(EMPTY, test=25, ci=5))
def test_over_nothing(case: Case, axis: str) -> None:
    """Either as torch, or refused by name and reason; torch's refusals need not be ours."""
    data = arrays(case, empty=axis)
    try:
        _compare(case, data, "empty")
    except (ShapeError, DTypeError):
        with pytest.raises(REFUSED):
            _torch(case, data)


@pytest.mark.parametrize("device", ["webgpu"], indirect=True)
def test_nothing_on_a_gpu(device: str) -> None:
    some = [
        c for c in CASES
        if c.names.split()[0] in ("gather", "index_select", "scatter_add", "scatter", "pad", "shrink", "embedding", "linear", "softmax")
    ]  # fmt: skip
    for case in some:
        for axis in ("", *sorted(set(case.shapes) - {",", "i"})):
            with suppress(ShapeError):
                _ours(case, arrays(case, empty=axis))


def test_the_bias_of_a_layer_on_an_empty_batch() -> None:
    w, b = Tensor([[1.0] * 3] * 2, requires_grad=True), Tensor([1.0, 2.0], requires_grad=True)
    F.linear(Tensor.zeros(0, 3), w, b).sum().backward()
    assert (w.grad.tolist(), b.grad.tolist()) == ([[0.0] * 3] * 2, [0.0] * 2)  # type: ignore[union-attr]


def test_nextafter_has_torchs_slope() -> None:
    values = [1.0, 2.0, 1.0, 0.0, math.inf, 1.0, math.nan], [2.0, 1.0, 1.0, 0.0, 1.0, math.inf, 1.0]
    x, y = (Tensor(v, requires_grad=True) for v in values)
    x.nextafter(y).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    assert y.grad is not None
    assert y.grad.tolist() == [0.0] * 7
    assert grad(lambda t: t.nextafter(Tensor([2.0])).sum())(Tensor([1.0])).tolist() == [1.0]


def test_a_leaf_beside_the_graph_has_no_gradient() -> None:
    x, y = Tensor([1.0], requires_grad=True), Tensor([1.0], requires_grad=True)
    (x * 2.0).sum().backward()
    assert (x.grad is not None, y.grad) == (True, None)


@pytest.mark.parametrize("op", ["addmm", "addmv", "addr", "baddbmm", "addbmm"])
def test_what_counts_for_nothing_may_be_nan(op: str) -> None:
    for case in CASES:
        if case.names == op and len(case.shapes.split(",")) == 3:
            data = arrays(case)
            data[0][:] = np.nan
            if op != "addmm" or not np.isnan(case.f(Tensor, F, *map(Tensor, data)).numpy()).any():
                value, grads = _ours(case, data)
                assert np.isfinite(value).all()
                np.testing.assert_array_equal(grads[0], np.zeros_like(data[0]))
                break
    else:
        raise AssertionError(f"{op} with beta=0 gave nan")


def test_similarity_of_what_broadcasts_along_its_axis() -> None:
    got = F.cosine_similarity(Tensor([[1.0]]), Tensor([[1.0, 2.0, 2.0]])).item()
    assert got == pytest.approx(5 / (3 * 3**0.5), rel=1e-6)
