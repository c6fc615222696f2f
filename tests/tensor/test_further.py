"""Further names of torch and the array API, against NumPy, and against torch where it is there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.errors import DTypeError, ShapeError
from anneal.tensor import Tensor, functional as F, jit
from tests.helpers import check_grad, check_values

both_devices = pytest.mark.usefixtures("device")
rng = np.random.default_rng(11)
A = rng.normal(size=(4, 6)).astype(np.float32)
B = rng.normal(size=(4, 6)).astype(np.float32)
V = np.array([3.0, -1.0, 0.5, 7.0], np.float32)
N = np.array([12, -7, 0, 9, 2**31 - 1, 36], np.int32)
M = np.array([18, 21, 5, -6, 7, -24], np.int32)
HOLED = np.where(A > 1, np.float32(np.nan), A)

CASES: dict[str, tuple[Callable[[], Tensor], Any]] = {
    "cov": (lambda: Tensor(A).cov(), np.cov(A)),
    "cov of a vector": (lambda: Tensor(V).cov(), np.cov(V)),
    "corrcoef": (lambda: Tensor(A).corrcoef(), np.corrcoef(A)),
    "histc": (lambda: Tensor(A).histc(5, -2, 2), np.histogram(A, 5, (-2, 2))[0].astype(np.float32)),
    "kthvalue": (lambda: Tensor(A).kthvalue(2, 0)[0], np.sort(A, 0)[1]),
    "msort": (lambda: Tensor(A).msort(), np.sort(A, 0)),
    "nanquantile": (lambda: Tensor(HOLED).nanquantile([0.2, 0.7], 1), np.nanquantile(HOLED, [0.2, 0.7], 1)),
    "dist": (lambda: Tensor(A).dist(Tensor(B), 1.0), np.abs(A - B).sum()),
    "trapezoid": (lambda: Tensor(A).trapezoid(dx=0.5), np.trapezoid(A, dx=0.5)),
    "trapezoid over places": (lambda: Tensor(A).trapezoid(Tensor(V).cumsum(0), dim=0), np.trapezoid(A, V.cumsum(), axis=0)),
    "vander": (lambda: Tensor(V).vander(3), np.vander(V, 3)),
    "vander, increasing": (lambda: Tensor(V).vander(increasing=True), np.vander(V, increasing=True)),
    "matrix_power": (lambda: Tensor(A[:, :4]).matrix_power(3), np.linalg.matrix_power(A[:, :4], 3)),
    "matrix_power 0": (lambda: Tensor(A[:, :4]).matrix_power(0), np.eye(4)),
    "fmax": (lambda: Tensor(HOLED).fmax(Tensor(B)), np.fmax(HOLED, B)),
    "fmin": (lambda: Tensor(HOLED).fmin(Tensor(B)), np.fmin(HOLED, B)),
    "logaddexp2": (lambda: Tensor(A).logaddexp2(Tensor(B)), np.logaddexp2(A, B)),
    "ldexp": (lambda: Tensor(V).ldexp(Tensor([2, 3, -1, 0])), np.ldexp(V, [2, 3, -1, 0])),
    "gcd": (lambda: Tensor(N).gcd(Tensor(M)), np.gcd(N, M)),
    "lcm": (lambda: Tensor(N[:4]).lcm(Tensor(M[:4])), np.lcm(N[:4], M[:4])),
    "nextafter": (lambda: Tensor(A).nextafter(Tensor(B)), np.nextafter(A, B)),
    "nextafter 0": (lambda: Tensor([0.0, -0.0, 1.0]).nextafter(Tensor([1.0, -1.0, 1.0])).bitcast("int32"), [1, 1 - 2**31, 0x3F800000]),
    "inner": (lambda: Tensor(A).inner(Tensor(B)), np.inner(A, B)),
    "addr": (lambda: Tensor(A).addr(Tensor(V), Tensor(B[0]), alpha=2), A + 2 * np.outer(V, B[0])),
    "addmv": (lambda: Tensor(V).addmv(Tensor(A), Tensor(B[0]), beta=0.5), 0.5 * V + A @ B[0]),
    "baddbmm": (lambda: Tensor(A).baddbmm(Tensor(A[:, :4])[None], Tensor(B)[None]), A + (A[:, :4] @ B)[None]),
    "select": (lambda: Tensor(A).select(1, -1), A[:, -1]),
    "sum_to_size": (lambda: Tensor(A).sum_to_size(4, 1), A.sum(1, keepdims=True)),
    "block_diag": (lambda: Tensor(N[:2]).block_diag(Tensor(M[:2]).reshape(2, 1)), [[12, -7, 0], [0, 0, 18], [0, 0, 21]]),
    "cumulative_sum": (lambda: Tensor(A).cumulative_sum(1, include_initial=True), np.pad(A.cumsum(1), ((0, 0), (1, 0)))),
    "renorm": (lambda: Tensor(A).renorm(2.0, 0, 1.0), A / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1)),
    "pairwise": (lambda: F.pairwise_distance(Tensor(A), Tensor(B), eps=0.0), np.linalg.norm(A - B, axis=1)),
    "dstack": (lambda: Tensor.dstack([Tensor(A), Tensor(B)]), np.dstack([A, B])),
    "hann": (lambda: Tensor.hann_window(8, periodic=False), np.hanning(8)),
    "blackman": (lambda: Tensor.blackman_window(8, periodic=False), np.blackman(8)),
    "hamming": (lambda: Tensor.hamming_window(8, periodic=False), np.hamming(8)),
}  # fmt: skip


@both_devices
@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str) -> None:
    ours, expected = CASES[name]
    check_values(ours(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_windows_have_the_dtype_that_is_asked_for(name: str, periodic: bool) -> None:
    """A window of float64 is computed in it, but for the Bessel function in kaiser's."""
    ours, theirs = getattr(an, f"{name}_window"), getattr(np, {"hann": "hanning"}.get(name, name))
    beta = {"beta": 5.0} if name == "kaiser" else {}
    for n in (1, 2, 5, 8):
        want = theirs(n + (periodic and n > 1), *beta.values())[:n]
        wide = ours(n, periodic, dtype=an.float64, **beta)
        assert wide.dtype == an.float64
        np.testing.assert_allclose(wide.numpy(), want, rtol=0, atol=1e-7 if beta else 1e-15)
        for dtype in (an.float16, an.bfloat16):
            narrow = ours(n, periodic, dtype=dtype, requires_grad=True, **beta)
            assert narrow.dtype == dtype
            assert narrow.requires_grad
            assert narrow.is_leaf
            np.testing.assert_array_equal(
                narrow.detach().float().numpy(), ours(n, periodic, **beta).to(dtype).float().numpy()
            )
    with pytest.raises(DTypeError, match=f"{name}_window: a window is made of floats, not int32"):
        ours(4, dtype=an.int32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_neighbours_and_parts_of_every_float_of_16_bits(dtype: str) -> None:
    codes = np.arange(65536, dtype=np.uint16).astype(np.int16)
    x = Tensor(codes).bitcast(dtype)
    values = x.numpy()
    for towards in (np.inf, -np.inf, 0.0):
        got = x.nextafter(Tensor.full((1,), towards, dtype=dtype))
        assert got.dtype is x.dtype
        with np.errstate(all="ignore"):
            want = np.nextafter(values, values.dtype.type(towards))
        np.testing.assert_array_equal(got.float().numpy(), want.astype(np.float32))
    finite = np.isfinite(x.float().numpy())
    for got, want in zip(x.frexp(), np.frexp(x.float().numpy()[finite]), strict=True):
        np.testing.assert_array_equal(got.float().numpy()[finite], want)


@both_devices
def test_frexp() -> None:
    x = np.array([3.0, -0.5, 0.0, 1e-30, -7e8, np.inf, 1.0], np.float32)
    mantissa, exponent = Tensor(x).frexp()
    want = np.frexp(x)
    check_values(mantissa, want[0], rtol=0)
    check_values(exponent, np.where(np.isfinite(x), want[1], 0))


def test_mode_and_parts() -> None:
    values, places = Tensor([[1, 3, 3, 1], [2, 2, 0, 5]]).mode()
    check_values(values, [1, 2])
    assert [[1, 3, 3, 1][i] for i in [places.tolist()[0]]] == [1]
    for a, b in zip(Tensor(A).tensor_split([1, 3, 9], 1), np.array_split(A, [1, 3, 9], 1), strict=True):
        check_values(a, b)
    for a, b in zip(Tensor(A).hsplit(4), np.array_split(A, 4, 1), strict=True):
        check_values(a, b)
    check_values(Tensor(A).slice_scatter(Tensor(B[1:3]), 0, 1, 3), np.concatenate([A[:1], B[1:3], A[3:]]))
    check_values(
        Tensor([1, 2, 3]).combinations(2, with_replacement=True), [[1, 1], [1, 2], [1, 3], [2, 2], [2, 3], [3, 3]]
    )
    assert Tensor(A).equal(Tensor(A))
    assert not Tensor(A).equal(Tensor(B))
    assert Tensor(N).new_zeros(2, 3).tolist() == [[0] * 3] * 2


def test_refusals() -> None:
    with pytest.raises(ShapeError, match=r"histc: takes at least 1 bin and min <= max"):
        Tensor(A).histc(5, 3, 1)
    with pytest.raises(ShapeError, match=r"kthvalue: k must be 1 to 6"):
        Tensor(A).kthvalue(7)
    with pytest.raises(DTypeError, match=r"gcd: takes integers"):
        Tensor(A).gcd(Tensor(B))
    with pytest.raises(DTypeError, match=r"matrix_power: there is no inverse"):
        Tensor(A[:, :4]).matrix_power(-1)
    with pytest.raises(ShapeError, match=r"fold: shape .* is not \(batch, channels\*4, 6\)"):
        F.fold(Tensor(np.zeros((1, 4, 5), np.float32)), (3, 4), 2)


@both_devices
def test_fold_is_the_adjoint_of_unfold() -> None:
    x = rng.normal(size=(2, 3, 7, 6)).astype(np.float32)
    settings: dict[str, Any] = {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (1, 0), "stride": (2, 1)}
    columns = F.unfold(Tensor(x), **settings)
    y = rng.normal(size=columns.shape).astype(np.float32)
    back = F.fold(Tensor(y), (7, 6), **settings)
    assert back.shape == x.shape
    np.testing.assert_allclose((columns.numpy() * y).sum(), (x * back.numpy()).sum(), rtol=1e-4)
    t = Tensor(x, requires_grad=True)
    (F.unfold(t, **settings) * Tensor(y)).sum().backward()
    assert t.grad is not None
    np.testing.assert_allclose(t.grad.numpy(), back.numpy(), rtol=1e-4, atol=1e-5)


def test_gradients() -> None:
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    check_grad(lambda x: x.cov(), a)
    check_grad(lambda x, y: x.dist(y), a, b)
    check_grad(lambda x: x.matrix_power(3), a[:, :3])
    check_grad(lambda x: x.trapezoid(), a)
    grid = rng.uniform(-0.9, 0.9, (1, 2, 3, 2))
    check_grad(lambda x, g: F.grid_sample(x, g), rng.normal(size=(1, 2, 4, 5)), grid)


def test_against_torch() -> None:
    torch = pytest.importorskip("torch")
    f = torch.nn.functional
    x, grid = rng.normal(size=(2, 4, 5, 6)).astype(np.float32), rng.uniform(-1.3, 1.3, (2, 3, 4, 2)).astype(np.float32)
    tx, tg = torch.tensor(x), torch.tensor(grid)
    for mode in ("bilinear", "nearest"):
        for padding in ("zeros", "border"):
            for corners in (True, False):
                want = f.grid_sample(tx, tg, mode, padding, corners).numpy()
                got = F.grid_sample(Tensor(x), Tensor(grid), mode, padding, corners).numpy()
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    theta = rng.normal(size=(2, 2, 3)).astype(np.float32)
    for corners in (True, False):
        want = f.affine_grid(torch.tensor(theta), (2, 4, 3, 5), corners).numpy()
        np.testing.assert_allclose(
            F.affine_grid(Tensor(theta), (2, 4, 3, 5), corners).numpy(), want, rtol=1e-4, atol=1e-5
        )
    w = rng.normal(size=(3, 6, 2)).astype(np.float32)
    pairs = {
        "channel_shuffle": (F.channel_shuffle(Tensor(x), 2), f.channel_shuffle(tx, 2)),
        "instance_norm": (F.instance_norm(Tensor(x)), f.instance_norm(tx)),
        "local_response_norm": (F.local_response_norm(Tensor(x), 3, 0.5), f.local_response_norm(tx, 3, 0.5)),
        "lp_pool2d": (F.lp_pool2d(Tensor(np.abs(x)), 3, 2), f.lp_pool2d(tx.abs(), 3, 2)),
        "pdist": (Tensor(A).pdist(), f.pdist(torch.tensor(A))),
        "bilinear": (
            F.bilinear(Tensor(A), Tensor(B[:, :2]), Tensor(w)),
            f.bilinear(torch.tensor(A), torch.tensor(B[:, :2]), torch.tensor(w)),
        ),
    }
    for name, (got, want) in pairs.items():
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)
    fold_input = rng.normal(size=(2, 8, 12)).astype(np.float32)
    want = f.fold(torch.tensor(fold_input), (4, 5), 2).numpy()
    np.testing.assert_allclose(F.fold(Tensor(fold_input), (4, 5), 2).numpy(), want, rtol=1e-5, atol=1e-5)


def test_gumbel_softmax_draws() -> None:
    logits = Tensor(np.log(np.array([[0.7, 0.2, 0.1]], np.float32)).repeat(2000, 0), requires_grad=True)
    hard = F.gumbel_softmax(logits, hard=True)
    share = hard.numpy().mean(0)
    np.testing.assert_allclose(share, [0.7, 0.2, 0.1], atol=0.05)
    assert set(np.unique(hard.numpy().round(6))) == {0.0, 1.0}
    hard.sum().backward()
    assert logits.grad is not None
    assert math.isfinite(float(logits.grad.abs().sum().item()))


@pytest.mark.parametrize(
    ("corners", "row"),
    [
        (
            False,
            "-0x1.b6db6ep-1 -0x1.249248p-1 -0x1.249248p-2 -0x1.b6db6ep-26 0x1.249248p-2 0x1.249248p-1 0x1.b6db6ep-1",
        ),
        (True, "-0x1.0p+0 -0x1.555554p-1 -0x1.555554p-2 -0x1.0p-25 0x1.555554p-2 0x1.555554p-1 0x1.0p+0"),
    ],
)
def test_the_grid_of_the_identity_has_the_last_bits_of_torch(corners: bool, row: str) -> None:
    """It lies on the kinks of grid_sample, where a last bit chooses the slope. The rows are torch 2.13.0's."""
    grid = F.affine_grid(Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 7), corners)
    assert grid[0, 0, :, 0].tolist() == [float.fromhex(x) for x in row.split()]


def test_grids_and_means_of_pixels_have_the_precision_of_float64() -> None:
    """Their places and weights are the host's, which rounded them to float32."""
    grid = F.affine_grid(Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], dtype="float64"), (1, 1, 1, 4), None)
    np.testing.assert_allclose(grid[0, 0, :, 0].numpy(), [-0.75, -0.25, 0.25, 0.75], rtol=1e-15)
    x = rng.normal(size=(1, 1, 1, 7))
    weights = np.maximum(0.0, 1 - np.abs(np.arange(7) + 0.5 - 7 / 3 * (np.arange(3) + 0.5)[:, None]) / (7 / 3))
    small = F.interpolate(Tensor(x), (1, 3), mode="bilinear", antialias=True).numpy()
    np.testing.assert_allclose(small[0, 0, 0], (weights / weights.sum(1, keepdims=True)) @ x[0, 0, 0], rtol=1e-12)


def test_bags_of_nothing_are_zeros() -> None:
    table, none = Tensor(A, requires_grad=True), Tensor([], dtype="int32")
    for mode in ("max", "sum", "mean"):
        several = an.nn.functional.embedding_bag(none, table, Tensor([0, 0]), mode=mode)
        assert (
            several.tolist()
            == an.nn.functional.embedding_bag(none.reshape(2, 0), table, mode=mode).tolist()
            == [[0.0] * 6] * 2
        )


@pytest.mark.parametrize("count", [0, 1, 2, 3, 60, 400])
def test_pairs_are_found_without_a_list_of_the_host(count: int) -> None:
    points = np.random.default_rng(count).normal(size=(count, 2)).astype(np.float32)
    first, second = np.triu_indices(count, 1)
    want = np.sqrt(((points[first] - points[second]).astype(np.float64) ** 2).sum(-1))
    np.testing.assert_allclose(F.pdist(Tensor(points)).numpy(), want, rtol=1e-5, atol=1e-6)
    assert jit(lambda x: F.pdist(x))(Tensor(points)).shape == want.shape


def test_a_bag_is_of_its_own_rows_alone() -> None:
    """Each was a sum of all rows, most of them times 0: 100 times as long, and nan where any row was."""
    table = Tensor([[1.0, 2.0], [3.0, -4.0], [math.nan, math.nan]], requires_grad=True)
    flat, starts = Tensor([1, 0, 1, 2, 0, 1]), Tensor([1, 3, 4, 4])
    bag = an.nn.functional.embedding_bag
    for mode, want in {"sum": [4.0, -2.0], "mean": [2.0, -1.0], "max": [3.0, 2.0]}.items():
        several = bag(flat, table, starts, mode=mode, include_last_offset=True)  # before, and behind, no bag
        assert several[::2].tolist() == [want, [0.0, 0.0]]
        assert several[1].isnan().all().item()
        without = bag(Tensor([[2, 0, 1]]), table, mode=mode, padding_idx=2)
        assert without.tolist() == bag(flat[3:], table, Tensor([0]), mode=mode, padding_idx=2).tolist() == [want]
    (slopes,) = an.autograd.grad(bag(flat, table, starts, mode="sum").sum(), [table])
    assert slopes.tolist() == [[2.0, 2.0], [2.0, 2.0], [1.0, 1.0]]


def test_a_slice_of_zeros_keeps_its_slope_in_float16() -> None:
    """Its length, 0, plus what keeps a quotient finite, has a reciprocal beyond float16."""
    x = Tensor([[0.0, 0.0], [3.0, 4.0]], dtype="float16", requires_grad=True)
    x.renorm(2.0, 0, 0.5)[0].sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_a_window_of_nothing_but_minus_infinity_names_an_element_of_its_own() -> None:
    """The border is as low, and comes first."""
    x = Tensor.full((1, 2, 4), -math.inf)
    low, places = an.nn.functional.max_pool2d(x, (1, 2), 2, (0, 1), return_indices=True)
    assert (low.flatten().tolist(), places.flatten().tolist()) == ([-math.inf] * 3, [0, 1, 3])
    places = an.nn.functional.max_pool1d(x, 3, 1, 1, return_indices=True)[1]
    assert places[0].tolist() == [[0, 0, 1, 2]] * 2


def test_the_mean_of_no_losses_is_nan() -> None:
    none, labels = Tensor.zeros(0, 3), Tensor.zeros(0, dtype="int32")
    several = [F.cross_entropy(none, none), F.cross_entropy(none, labels), F.kl_div(none, none, reduction="batchmean")]
    assert [math.isnan(loss.item()) for loss in several] == [True] * 3


def test_none_is_no_number_for_nan() -> None:
    assert Tensor([math.nan, 1.0]).nan_to_num(None).tolist() == [0.0, 1.0]


def test_none_is_no_value_of_a_border() -> None:
    assert F.pad(Tensor([1.0]), (1, 0), "constant", None).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("corners", [False, True])
def test_the_grid_of_the_identity_of_a_volume_reads_the_volume(corners: bool) -> None:
    x = Tensor(rng.normal(size=(2, 1, 2, 3, 4)).astype(np.float32))
    theta = Tensor(np.eye(3, 4, dtype=np.float32)[None].repeat(2, 0))
    grid = F.affine_grid(theta, x.shape, corners)
    assert grid.shape == (2, 2, 3, 4, 3)
    np.testing.assert_allclose(F.grid_sample(x, grid, align_corners=corners).numpy(), x.numpy(), atol=1e-5)
    with pytest.raises(ShapeError, match=r"\(n, 3, 4\)"):
        F.affine_grid(theta, (2, 1, 3, 4))
