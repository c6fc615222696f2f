"""Values and gradients of calls that are written once for torch and for `import anneal as an` (torch_rows.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.errors import DTypeError, ShapeError
from anneal.nn import functional
from anneal.tensor import Tensor, jit, set_default_device
from tests.helpers import optional
from tests.tensor.torch_rows import ARGUMENTS, DRAWS, DYNAMIC, MASKED, NAMES, SPECIAL, WHOLE, WINDOWS, A, Call
from tests.tiers import thinned

torch = optional("torch")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about its older names

CALLS = {**DYNAMIC, **ARGUMENTS, **SPECIAL, **MASKED, **NAMES, **WINDOWS}
ON_THE_HOST = {"norm", "determinants", "inverses", "cholesky", "triangles", "qr and svd", "copies", "casts"}
ON_WEBGPU = [name for name in CALLS if name not in ON_THE_HOST and name not in WINDOWS]


def flat(x: Any) -> list[Any]:
    return [z for y in x for z in flat(y)] if isinstance(x, (list, tuple)) else [x]


def numbers(x: Any) -> Any:
    return x.detach().numpy() if hasattr(x, "detach") else np.asarray(x)


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_are_torchs(name: str) -> None:
    check(CALLS[name])


@pytest.mark.parametrize("name", thinned(ON_WEBGPU, test=20, ci=5))
def test_they_are_on_webgpu(name: str, webgpu: str) -> None:
    set_default_device(webgpu)
    try:
        check(CALLS[name])
    finally:
        set_default_device(None)


def check(row: Call) -> None:
    wants = [row.slopes and np.asarray(a).dtype.kind == "f" for a in row.arrays]
    mine = [an.tensor(a, requires_grad=w) for a, w in zip(narrowed(row.arrays), wants, strict=True)]
    theirs = [torch.tensor(a, requires_grad=w) for a, w in zip(row.arrays, wants, strict=True)]
    ours, given = row.call(an, functional, *mine), row.call(torch, torch.nn.functional, *theirs)
    mine_flat, theirs_flat = flat(ours), flat(given)
    assert len(mine_flat) == len(theirs_flat)
    for a, b in zip(mine_flat, theirs_flat, strict=True):
        assert numbers(a).shape == numbers(b).shape
        size = np.abs(numbers(b)[np.isfinite(numbers(b))]).max(initial=0.0)
        np.testing.assert_allclose(numbers(a), numbers(b), rtol=2e-4, atol=2e-5 + 2e-6 * size)
    pairs = [(a, b) for a, b in zip(mine_flat, theirs_flat, strict=True) if getattr(b, "requires_grad", False)]
    if not pairs:
        return
    sum((a * a).sum() for a, _ in pairs).backward()
    sum((b * b).sum() for _, b in pairs).backward()
    for a, b in zip(mine, theirs, strict=True):
        if b.requires_grad:
            slope = np.zeros(b.shape, np.float32) if b.grad is None else b.grad.numpy()
            found = np.zeros(b.shape, np.float32) if a.grad is None else a.grad.numpy()
            np.testing.assert_allclose(found, slope, rtol=1e-3, atol=1e-4)


def narrowed(arrays: tuple[Any, ...]) -> list[Any]:
    return [np.asarray(a).astype(np.int32) if np.asarray(a).dtype == np.int64 else a for a in arrays]


# -- shapes that values decide, inside jit ----------------------------------------------------------------------------

X = np.array([0.0, 3.0, 0.0, 1.0, 3.0], np.float32)
INSIDE: dict[str, tuple[Any, list[Any]]] = {
    "nonzero": (lambda x: x.nonzero(size=4).squeeze(1), [1, 3, 4, -1]),
    "masked_select": (lambda x: x.masked_select(x > 0, size=4, fill_value=9), [3, 1, 3, 9]),
    "unique": (lambda x: x.unique(size=4), [0, 1, 3, 3]),
    "counts": (lambda x: x.unique(return_counts=True, size=4)[1], [2, 1, 2, 0]),
    "inverse": (lambda x: x.unique(return_inverse=True, size=3)[1], [0, 2, 0, 1, 2]),
    "unique_consecutive": (lambda x: x.sort().values.unique_consecutive(size=2), [0, 1]),
    "repeat_interleave": (lambda x: x.repeat_interleave(x.int(), output_size=7), [3, 3, 3, 1, 3, 3, 3]),
}


@pytest.mark.parametrize("name", INSIDE)
def test_sizes_that_are_said_work_inside_jit(name: str, device: str) -> None:
    function, expected = INSIDE[name]
    captured = jit(lambda x: function(x * 1))
    for _ in range(3):
        assert captured(Tensor(X)).tolist() == expected
        captured(Tensor(X[::-1].copy()))


def zeroed(x: Tensor) -> Tensor:
    y = x * 1
    y[y > 2] = 0
    return y


def test_a_mask_may_be_assigned_a_number_inside_jit(device: str) -> None:
    captured = jit(zeroed)
    for n in range(4):
        assert captured(Tensor([1.0 * n, 3.0])).tolist() == [n if n <= 2 else 0, 0]


REFUSED: dict[str, Any] = {
    r"nonzero: .*inside jit shapes are static: give size=": lambda x: x.nonzero(),
    "argwhere: .*give size=": lambda x: x.argwhere(),
    "masked_select: .*give size=": lambda x: x.masked_select(x > 0),
    "unique: .*give size=": lambda x: x.unique(),
    "unique_consecutive: .*give size=": lambda x: x.unique_consecutive(),
    "index: .*use where or masked_fill": lambda x: x[x > 0],
    "repeat_interleave: .*give output_size=": lambda x: x.repeat_interleave(x.int()),
    "tensor_split: .*give a list of ints": lambda x: x.tensor_split(x.int()[:2]),
    "bincount: .*give minlength=": lambda x: x.int().bincount(),
}


@pytest.mark.parametrize("said", REFUSED)
def test_without_a_size_jit_refuses(said: str) -> None:
    with pytest.raises(ShapeError, match=said):
        jit(REFUSED[said])(Tensor(X))


def test_a_loop_without_jit_looks_at_the_values_of_each_step() -> None:
    found = []
    for n in range(5):
        x = Tensor([1.0, 2.0, float(n)]) * 2
        found.append((x[x > 3].tolist(), x.unique().tolist()))
    assert found[0] == ([4.0], [0.0, 2.0, 4.0])
    assert found[4] == ([4.0, 8.0], [2.0, 4.0, 8.0])


# -- in place ---------------------------------------------------------------------------------------------------------

T = [[0.5, 0.25, 0.75], [0.125, 0.625, 0.375]]
CHANGES: dict[str, Any] = {
    "exp_": (), "sqrt_": (), "neg_": (), "relu_": (), "sigmoid_": (), "floor_": (), "round_": (), "tril_": (), "cumsum_": (1,),
    "pow_": (2,), "clip_": (0.2, 0.6), "eq_": (0.5,), "logical_not_": (), "atan2_": ("x",), "addcmul_": ("x", "x"),
    "masked_fill_": ("mask", 9.0), "scatter_": (1, "index", 7.0), "scatter_add_": (1, "index", "x"),
    "index_add_": (0, "rows", "x"), "index_fill_": (0, "rows", 3.0), "masked_scatter_": ("mask", "x"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_in_place_ops_change_the_tensor_and_its_gradient_is_torchs(name: str) -> None:
    kinds = {
        "mask": [[True, False, True], [False, True, False]],
        "index": [[2, 0, 1], [0, 1, 2]],
        "rows": [1, 0],
        "x": T,
    }
    results = []
    for lib in (an, torch):
        leaf = lib.tensor(T, requires_grad=name not in ("eq_", "logical_not_"))
        x = y = leaf * 1
        args = [lib.tensor(kinds[a]) if isinstance(a, str) else a for a in CHANGES[name]]
        assert getattr(x, name)(*args) is x
        (y * y).sum().backward() if leaf.requires_grad else None
        results.append((x.detach().numpy(), None if leaf.grad is None else leaf.grad.numpy()))
    for a, b in zip(*results, strict=True):
        if b is not None:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_numbers_drawn_into_a_tensor_have_their_distribution() -> None:
    an.manual_seed(0)
    mean = {"bernoulli_": 0.3, "exponential_": 0.5, "geometric_": 2.5, "normal_": 1.0, "uniform_": 1.0}
    for name, expected in mean.items():
        x = an.zeros(4000)
        assert getattr(x, name)(*DRAWS[name]) is x
        assert abs(x.mean().item() - expected) < 0.15, name
    assert abs(an.zeros(4000).cauchy_(1.0).median().item() - 1.0) < 0.15
    assert abs(an.zeros(4000).log_normal_(0.0, 1.0).log().mean().item()) < 0.15
    drawn = an.zeros(300, dtype="int32").random_(2, 5)
    assert set(drawn.tolist()) == {2, 3, 4}
    w = an.ones(2, requires_grad=True)
    with an.no_grad():
        w.uniform_(**{"from": 3.0, "to": 4.0})
    assert w.is_leaf
    assert min(w.tolist()) >= 3


WRONG: dict[str, Any] = {
    "exp_: the result is float32, which a tensor of int32": lambda: Tensor([1]).exp_(),
    "uniform_: from must not be above to": lambda: Tensor([1.0]).uniform_(2.0, 1.0),
    "normal_: draws floats": lambda: Tensor([1]).normal_(),
    "geometric_: p must lie between 0 and 1": lambda: Tensor([1.0]).geometric_(2.0),
    "bernoulli_: p lies in 0 to 1": lambda: Tensor([1.0]).bernoulli_(2.0),
    "nonzero: size must not be negative": lambda: Tensor([1.0]).nonzero(size=-1),
    "unique: size= is for all elements": lambda: Tensor(WHOLE).unique(dim=0, size=2),
    "masked_select: a mask is bool": lambda: Tensor(A).masked_select(Tensor(A)),
    "repeat_interleave: repeats are 3 integers": lambda: Tensor(A).repeat_interleave(Tensor([1, 2]), 0),
    "repeat_interleave: repeats are counts": lambda: Tensor(A).repeat_interleave(Tensor([1, 2, -1]), 0),
    "searchsorted: side is": lambda: Tensor([1.0]).searchsorted(Tensor([1.0]), side="up"),
    "quantile: q is a float": lambda: Tensor(A).quantile(Tensor([1])),
    "grid_sample: mode is one of": lambda: functional.grid_sample(an.ones(1, 1, 2, 2), an.ones(1, 1, 1, 2), "cubic"),
    "interpolate: antialias is for": lambda: functional.interpolate(an.ones(1, 1, 2, 2), 3, antialias=True),
    "linspace: an end is a number": lambda: an.linspace(Tensor([1.0, 2.0]), 2, 3),
    "a mask is bool, not float32": lambda: an.masked.sum(Tensor(A), mask=Tensor(A)),
    "sum: shapes .* do not broadcast": lambda: an.masked.sum(Tensor(A), mask=Tensor([True, False])),
    "kaiser: beta must not be negative": lambda: an.signal.windows.kaiser(3, beta=-1.0),
    "exponential: a symmetric window": lambda: an.signal.windows.exponential(3, center=1.0),
    "polygamma: n is 0 to 30": lambda: Tensor(A).polygamma(-1),
    "chebyshev_polynomial_t: the degree": lambda: an.special.chebyshev_polynomial_t(Tensor(A), "a"),
    "as_strided: sizes .* reach element": lambda: Tensor(A).as_strided((9,), (9,)),
    "index_reduce: an index of 2": lambda: Tensor(A).index_reduce(0, Tensor([0, 1]), Tensor(A), "mean"),
    "gradient: axis 0 .* needs 3 samples": lambda: an.gradient(Tensor([1.0, 2.0]), edge_order=2),
    "histogram: range is two numbers": lambda: Tensor(A).histogram(3, range=(2.0, 1.0)),
    "normal: takes": lambda: an.normal(1.0, 2.0),
    "pad: .* cuts more than": lambda: functional.pad(an.ones(1, 2, 3), (-4, 1), "circular"),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_wrong_is_said(said: str) -> None:
    with pytest.raises((ShapeError, DTypeError), match=said):
        WRONG[said]()


def test_facts_about_memory() -> None:
    x = an.zeros(2, 3, 4)
    assert x.stride() == torch.zeros(2, 3, 4).stride()
    assert x.stride(-2) == 4
    assert x.T.is_contiguous()
    assert round(an.tensor([1.26, 2.5]), 1).tolist() == an.tensor([1.26, 2.5]).round(1).tolist()
    assert round(an.tensor(2.5)).item() == 2.0
