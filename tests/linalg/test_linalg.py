"""anneal.linalg: values beside NumPy's on both devices; derivatives beside differences, by every transform; errors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import anneal as an
from anneal import linalg as L
from anneal.backend.cpu import workers
from anneal.errors import DTypeError, GradientError, LinAlgError, ShapeError
from anneal.tensor import Tensor, grad, jit, jvp, vmap
from tests.tiers import thinned

Array = np.ndarray[Any, Any]
NL = np.linalg


class Case(NamedTuple):
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    shapes: Sequence[tuple[int, ...]]
    slopes: bool = True


def mt(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def sym(x: Any) -> Any:
    return (x + (x.mT if isinstance(x, Tensor) else mt(x))) * 0.5


def spd(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x @ x.mT + Tensor.eye(x.shape[-1], dtype=x.dtype)
    return x @ mt(x) + np.eye(x.shape[-1], dtype=x.dtype)


def each(f: Callable[..., Any], *xs: Array) -> Array:
    """f of each matrix of a batch."""
    lead = xs[0].shape[:-2]
    made = [np.asarray(f(*[x[i] for x in xs])) for i in np.ndindex(*lead)]
    return np.stack(made).reshape(*lead, *made[0].shape)


def signless(*factors: Any) -> Any:
    return tuple([abs(x) for x in factors])


def turned(values: Any, vectors: Any) -> Any:
    return values, abs(vectors)


def exponential(a: Array) -> Array:
    values, v = NL.eig(a.astype(np.float64))
    return ((v * np.exp(values)[..., None, :]) @ NL.inv(v)).real


def reflected(a: Array, tau: Array) -> Array:
    out = np.eye(a.shape[-2])
    for i in range(tau.shape[-1]):
        v = np.where(np.arange(a.shape[-2]) < i, 0, a[:, i])
        v[i] = 1
        out = out @ (np.eye(a.shape[-2]) - tau[i] * np.outer(v, v))
    return out[:, : a.shape[-1]]


CASES: dict[str, Case] = {
    "inv": Case(L.inv, NL.inv, [(2, 3, 3)]),
    "solve": Case(L.solve, NL.solve, [(2, 3, 3), (2, 3, 2)]),
    "solve, broadcast": Case(L.solve, lambda a, b: NL.solve(a, b[None]), [(2, 3, 3), (3, 2)]),
    "solve, vectors": Case(L.solve, lambda a, b: NL.solve(a, b[..., None])[..., 0], [(2, 3, 3), (2, 3)]),
    "solve, one vector": Case(L.solve, lambda a, b: NL.solve(a, b[:, None])[..., 0], [(2, 3, 3), (3,)]),
    "solve, right": Case(
        lambda a, b: L.solve(a, b, left=False), lambda a, b: b @ NL.inv(a), [(3, 3), (2, 2, 3)]
    ),
    "solve_triangular": Case(
        lambda a, b: L.solve_triangular(a, b, upper=True, unitriangular=True),
        lambda a, b: NL.solve(np.triu(a, 1) + np.eye(3), b),
        [(2, 3, 3), (2, 3, 2)],
    ),
    "solve_triangular, right": Case(
        lambda a, b: L.solve_triangular(a, b, upper=False, left=False),
        lambda a, b: b @ NL.inv(np.tril(a)),
        [(3, 3), (2, 3)],
    ),
    "solve_triangular, no vectors": Case(
        lambda a, b: L.solve_triangular(a, b, upper=True),
        lambda a, b: NL.solve(np.triu(a), np.broadcast_to(b, a.shape)),
        [(3, 3, 3), (3, 3)],
    ),
    "det": Case(L.det, NL.det, [(2, 3, 3)]),
    "slogdet": Case(lambda a: tuple(L.slogdet(a)), lambda a: tuple(NL.slogdet(a)), [(2, 3, 3)]),
    "cholesky": Case(lambda a: L.cholesky(spd(a)), lambda a: NL.cholesky(spd(a)), [(2, 3, 3)]),
    "cholesky, upper": Case(
        lambda a: L.cholesky(spd(a), upper=True), lambda a: mt(NL.cholesky(spd(a))), [(3, 3)]
    ),
    "qr": Case(lambda a: signless(*L.qr(a)), lambda a: signless(*NL.qr(a)), [(2, 4, 3)]),
    "qr, wide": Case(lambda a: signless(*L.qr(a)), lambda a: signless(*NL.qr(a)), [(3, 5)]),
    "qr, complete": Case(
        lambda a: signless(*L.qr(a, "complete")), lambda a: signless(*NL.qr(a, "complete")), [(3, 4)]
    ),
    "qr, r": Case(lambda a: abs(L.qr(a, "r").R), lambda a: abs(NL.qr(a, "r")), [(2, 4, 3)], False),
    "svd": Case(
        lambda a: signless(*L.svd(a, False)),
        lambda a: signless(*NL.svd(a, False)),
        [(2, 4, 3)],
    ),
    "svd, wide": Case(
        lambda a: signless(*L.svd(a, False)),
        lambda a: signless(*NL.svd(a, False)),
        [(2, 3)],
    ),
    "svdvals": Case(L.svdvals, lambda a: NL.svd(a, compute_uv=False), [(2, 3, 4)]),
    "eigh": Case(
        lambda a: turned(*L.eigh(sym(a))), lambda a: turned(*NL.eigh(sym(a))),
        [(2, 3, 3)],
    ),
    "eigvalsh": Case(lambda a: L.eigvalsh(sym(a), "U"), lambda a: NL.eigvalsh(sym(a), "U"), [(2, 3, 3)]),
    "pinv": Case(L.pinv, NL.pinv, [(2, 4, 3)]),
    "pinv, wide": Case(L.pinv, NL.pinv, [(2, 3)]),
    "pinv, hermitian": Case(lambda a: L.pinv(sym(a), hermitian=True), lambda a: NL.pinv(sym(a)), [(3, 3)]),
    "lstsq": Case(
        lambda a, b: tuple(L.lstsq(a, b, driver="gelsd"))[:2],
        lambda a, b: (each(lambda x, y: NL.lstsq(x, y)[0], a, b), each(lambda x, y: NL.lstsq(x, y)[1], a, b)),
        [(2, 4, 3), (2, 4, 2)],
    ),
    "matrix_norm, nuc": Case(
        lambda a: L.matrix_norm(a, "nuc"), lambda a: NL.norm(a, "nuc", (1, 2)), [(2, 4, 3)]
    ),
    "matrix_norm, 2": Case(
        lambda a: L.matrix_norm(a, 2, (0, 2), True), lambda a: NL.norm(a, 2, (0, 2), True), [(4, 2, 3)]
    ),
    "norm, -2": Case(lambda a: L.norm(a, -2), lambda a: NL.norm(a, -2), [(4, 3)]),
    "norm, of all": Case(L.norm, NL.norm, [(2, 3, 2)]),
    "norm, vectors": Case(lambda a: L.norm(a, 3.0, 1), lambda a: NL.norm(a, 3.0, 1), [(2, 3)]),
    "vector_norm": Case(
        lambda a: L.vector_norm(a, math.inf, (0, 1)), lambda a: abs(a).max((0, 1)), [(2, 3, 2)]
    ),
    "cond": Case(L.cond, NL.cond, [(2, 4, 3)]),
    "cond, 1": Case(lambda a: L.cond(a, 1), lambda a: NL.cond(a, 1), [(2, 3, 3)]),
    "multi_dot": Case(
        lambda *xs: L.multi_dot(xs), lambda *xs: NL.multi_dot(xs), [(2,), (2, 3), (3, 4), (4, 1)]
    ),
    "matrix_power": Case(lambda a: L.matrix_power(a, -3), lambda a: NL.matrix_power(a, -3), [(2, 3, 3)]),
    "matrix_exp": Case(lambda a: L.matrix_exp(a * 3), lambda a: exponential(a * 3), [(2, 3, 3)]),
    "householder_product": Case(
        L.householder_product, lambda a, t: np.stack([reflected(*x) for x in zip(a, t, strict=True)]),
        [(2, 4, 3), (2, 2)],
    ),
    "vander": Case(
        lambda a: L.vander(a, N=4), lambda a: a[..., None] ** np.arange(4), [(2, 3)]
    ),
    "tensorinv": Case(L.tensorinv, NL.tensorinv, [(2, 3, 6)]),
    "tensorsolve": Case(
        lambda a, b: L.tensorsolve(a, b, (0,)), lambda a, b: NL.tensorsolve(a, b, (0,)), [(6, 2, 3), (2, 3)]
    ),
    "cross": Case(L.cross, np.cross, [(2, 3), (1, 3)]),
    "diagonal": Case(lambda a: L.diagonal(a, offset=1), lambda a: np.diagonal(a, 1, -2, -1), [(2, 3, 3)]),
}  # fmt: skip
names = pytest.mark.parametrize("name", CASES)


def several(x: Any) -> list[Any]:
    return list(x) if isinstance(x, tuple) else [x]


def arrays(name: str) -> list[Array]:
    rng = np.random.default_rng(len(name))
    return [rng.standard_normal(s) + (2 * np.eye(*s[-2:]) if len(s) > 1 else 0) for s in CASES[name].shapes]


@names
def test_values_are_those_of_numpy(name: str, device: str) -> None:
    case, xs = CASES[name], arrays(name)
    expected = several(case.theirs(*xs))
    for kind, tolerance in (("float64", 1e-9), ("float32", 2e-4), ("bfloat16", 0.2)):
        if (kind == "float64") > (device == "cpu"):
            continue
        made = several(
            case.ours(*[Tensor(x.astype(np.float32)).cast(kind) if kind != "float64" else Tensor(x) for x in xs])
        )
        assert [m.dtype.name for m in made] == [kind] * len(made)
        for mine, theirs in zip(made, expected, strict=True):
            if kind == "bfloat16":
                assert mine.shape == np.shape(theirs)
            else:
                np.testing.assert_allclose(mine.numpy(), theirs, tolerance, tolerance, err_msg=kind)


def weighted(name: str) -> Callable[..., Tensor]:
    """A number of which all results are a part."""

    def f(*xs: Tensor) -> Tensor:
        total = Tensor(np.zeros(()))
        for n, y in enumerate(several(CASES[name].ours(*xs))):
            weights = np.random.default_rng(n).standard_normal(y.shape)
            total = total + (y * Tensor(weights)).sum()
        return total

    return f


@pytest.mark.parametrize("name", thinned([name for name, case in CASES.items() if case.slopes], test=4, ci=3))
def test_derivatives_are_those_of_differences(name: str) -> None:
    """The first and the second in one direction; forward mode and jit give the same, vmap of them that of each."""
    f, xs = weighted(name), arrays(name)
    rng = np.random.default_rng(7)
    ways, other = ([rng.standard_normal(x.shape) for x in xs] for _ in range(2))
    places = tuple(range(len(xs)))

    def along(*points: Tensor) -> Tensor:
        slopes = grad(f, argnums=places)(*points)
        return sum([(s * Tensor(w)).sum() for s, w in zip(slopes, ways, strict=True)], Tensor(np.zeros(())))

    def difference(g: Callable[..., Tensor], way: Sequence[Array], h: float = 1e-5) -> float:
        high, low = ([Tensor(x + h * s * w) for x, w in zip(xs, way, strict=True)] for s in (1, -1))
        return float((g(*high).item() - g(*low).item()) / (2 * h))

    points = [Tensor(x) for x in xs]
    first = along(*points).item()
    assert first == pytest.approx(difference(f, ways), rel=1e-5, abs=1e-5)
    again = grad(along, argnums=places)(*points)
    second = sum([(s * Tensor(w)).sum().item() for s, w in zip(again, other, strict=True)])
    assert second == pytest.approx(difference(along, other), rel=1e-5, abs=1e-5)
    assert jvp(f, tuple(points), tuple(Tensor(w) for w in ways))[1].item() == pytest.approx(first, rel=1e-8, abs=1e-8)
    captured = jit(along)
    assert [captured(*points).item() for _ in range(3)] == pytest.approx([first] * 3, rel=1e-10, abs=1e-10)
    both = vmap(along)(*[Tensor(np.stack([x, x + 0.1])) for x in xs]).numpy()
    assert both == pytest.approx([first, along(*[Tensor(x + 0.1) for x in xs]).item()], rel=1e-8, abs=1e-8)


def test_ranks_and_named_results() -> None:
    a = Tensor(np.array([[[1.0, 2], [2, 4]], [[1, 0], [0, 1]], [[0, 0], [0, 0]]]))
    assert L.matrix_rank(a).tolist() == [1, 2, 0]
    assert L.matrix_rank(a, hermitian=True).tolist() == [1, 2, 0]
    assert L.matrix_rank(a, 1.5).tolist() == [1, 0, 0]
    assert L.matrix_rank(a, atol=Tensor([9.0, 0.0, 0.0])).tolist() == [0, 2, 0]
    assert L.slogdet(a).logabsdet.tolist() == [-math.inf, 0, -math.inf]
    found = L.lstsq(a[0], Tensor(np.array([1.0, 2.0])))
    np.testing.assert_allclose(found.solution.numpy(), [0.2, 0.4])
    assert (found.rank.item(), found.residuals.shape, found.singular_values.shape) == (1, (0,), (0,))
    assert L.svd(a).U.shape == L.eigh(a).eigenvectors.shape == L.qr(a).Q.shape == (3, 2, 2)
    assert L.svd(Tensor.ones(2, 3)).Vh.shape == (3, 3)
    assert L.cond(a, "fro").tolist() == pytest.approx([math.inf, 2.0, math.inf])
    assert L.cond(a).tolist()[1:] == pytest.approx([1.0, math.inf])
    for made in (L.inv_ex(a[1]), L.cholesky_ex(a[1]), L.solve_ex(a[1], a[1])):
        assert (made[0].tolist(), made[1].item()) == ([[1, 0], [0, 1]], 0)


def test_matrices_of_full_rank_have_pseudo_inverses_without_singular_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Singular value decompositions, two each, took 30 times as long as torch's least squares."""
    asked, svd = [], NL.svd
    monkeypatch.setattr(NL, "svd", lambda a, *rest, **settings: (asked.append(a.shape), svd(a, *rest, **settings))[1])
    tall = np.random.default_rng(5).normal(size=(3, 9, 4)).astype(np.float32)
    for x in (tall, tall.swapaxes(1, 2), tall[:0], tall[:, :0], tall[..., :0]):
        found = L.pinv(Tensor(x)).numpy()
        assert not asked
        np.testing.assert_allclose(found, NL.pinv(x), rtol=1e-4, atol=1e-5)
        asked.clear()
    solved = L.lstsq(Tensor(tall), Tensor(tall[..., :1])).solution.numpy()
    np.testing.assert_allclose(solved[..., 0], [[1.0, 0, 0, 0]] * 3, atol=1e-5)
    assert not asked
    # beside these one of lower rank, one that may be, and bounds that leave a value out
    nearly = np.diag([1.0, 1e-7, 1.0, 1.0]).astype(np.float32)
    for x, atol in ((np.stack([tall[0, :4], np.ones((4, 4), np.float32)]), None), (nearly, None), (nearly, 1e-6)):
        want = NL.pinv(x, 1e-6)
        np.testing.assert_allclose(L.pinv(Tensor(x), atol=atol).numpy(), want, rtol=1e-3, atol=1e-5)
    assert len(asked) >= 3
    np.testing.assert_allclose(L.pinv(Tensor(nearly), atol=1e-8).numpy(), NL.inv(nearly), rtol=1e-4)


def test_small_matrices_are_one_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """BLAS's threads wait for each other in turns of the processor: where others ran, QR of 200 rows took 0.5 s."""
    now, seen, cholesky = [5], [], NL.cholesky
    monkeypatch.setattr(workers, "blas", lambda: workers.Blas(lambda: now[-1], now.append))
    monkeypatch.setattr(NL, "cholesky", lambda a: (seen.append(now[-1]), cholesky(a))[1])
    for n in (200, 400):
        L.cholesky(Tensor.eye(n)).realize()
    assert (seen, now[-1]) == ([1, 5], 5)


@pytest.mark.parametrize("n", [1, 2, 5, 40])
@pytest.mark.parametrize("kind", ["regular", "small", "singular"])
def test_cofactors_are_those_of_singular_values(n: int, kind: str) -> None:
    """Of regular matrices they are the inverse's, which takes a tenth of the time."""
    a = np.random.default_rng(n).normal(size=(2, n, n)) / (300 if kind == "small" else math.sqrt(n))
    if kind == "singular":
        a[1, 0] = a[1, -1] * (n > 1)
    u, s, v = NL.svd(a)
    others = np.where(np.eye(n, dtype=bool), 1, s[..., None, :]).prod(-1)
    want = (NL.det(u) * NL.det(v))[..., None, None] * ((u * others[..., None, :]) @ v)
    got = grad(lambda x: L.det(x).sum())(Tensor(a)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11 * np.abs(want).max())


def test_equal_values_have_gradients_where_nothing_depends_on_their_vectors() -> None:
    eye = Tensor(np.eye(3))
    for f in (lambda x: L.svd(x).S.sum(), lambda x: L.svdvals(x).sum(), lambda x: L.eigh(x).eigenvalues.sum()):
        np.testing.assert_allclose(grad(f)(eye).numpy(), np.eye(3), atol=1e-12)
    singular = Tensor(np.array([[1.0, 2], [2, 4]]))
    np.testing.assert_allclose(grad(L.det)(singular).numpy(), [[4, -2], [-2, 1]], atol=1e-12)


def test_a_matrix_that_is_refused_is_named() -> None:
    batch = Tensor(np.stack([np.eye(2), np.zeros((2, 2))]))
    for f, said in (
        (L.inv, r"linalg\.inv: matrix 1 of the batch is singular"),
        (lambda x: L.solve(x[1], Tensor(np.ones(2))), r"linalg\.solve: the matrix is singular"),
        (lambda x: L.cholesky(x.expand(2, 2, 2, 2)), r"linalg\.cholesky: matrix \(0, 1\) .* not positive definite"),
        (lambda x: L.svd(x / 0), r"linalg\.svd: matrix 0 .* nan and inf"),
        (jit(lambda x: L.inv(x) + 1), r"linalg\.inv: matrix 1"),
        (vmap(L.inv), r"linalg\.inv: matrix 1"),
        (grad(lambda x: L.slogdet(x).logabsdet.sum()), r"linalg\.inv: matrix 1"),
    ):
        with pytest.raises(LinAlgError, match=said), np.errstate(all="ignore"):
            f(batch).numpy() if not isinstance(made := f(batch), tuple) else made[0].numpy()


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda x: L.inv(x), ShapeError, r"linalg\.inv: takes square matrices, not shape \(2, 3\)"),
        (lambda x: L.svd(x[0]), ShapeError, r"linalg\.svd: takes matrices, the last two axes"),
        (lambda x: L.det(x.int()), DTypeError, r"linalg\.det: takes floats, not int32; use \.float\(\)"),
        (lambda x: L.solve(x[:, :2], x.double()), DTypeError, r"linalg\.solve: takes tensors of one dtype"),
        (lambda x: L.solve(x[:, :2], x.mT), ShapeError, r"linalg\.solve: A X = B .* axis -2 of B must have 2"),
        (lambda x: L.qr(x, "full"), ShapeError, r'linalg\.qr: mode is "reduced"'),
        (lambda x: L.eigh(x[:, :2], "X"), ShapeError, r'linalg\.eigh: UPLO is "L" or "U"'),
        (lambda x: L.lstsq(x, x, driver="best"), ShapeError, r"linalg\.lstsq: driver"),
        (lambda x: L.matrix_norm(x, 3), ShapeError, "matrix_norm: ord is"),
        (lambda x: L.multi_dot([x, x]), ShapeError, r"linalg\.multi_dot: shapes"),
        (lambda x: L.inv([[1.0]]), DTypeError, r"linalg\.inv: A is a tensor"),
        (lambda x: grad(lambda y: L.qr(y, "complete").Q.sum())(x.mT), GradientError, "has no gradient"),
    ],
)
def test_mistakes_are_named(call: Callable[[Tensor], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call(Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)))


def test_nothing_at_all_has_results(device: str) -> None:
    none = Tensor(np.zeros((0, 2, 2), np.float32))
    assert L.inv(none).shape == L.svd(none).U.shape == (0, 2, 2)
    assert L.det(Tensor(np.zeros((2, 0, 0), np.float32))).tolist() == [1, 1]
    assert L.matrix_rank(Tensor(np.zeros((2, 0, 3), np.float32))).tolist() == [0, 0]
    assert L.solve(none, Tensor(np.zeros((2, 0), np.float32))).shape == (0, 2, 0)
    low, pivots = L.lu_factor(Tensor(np.zeros((2, 3, 0), np.float32)))
    assert (low.shape, pivots.shape, L.lu(low).P.tolist()) == ((2, 3, 0), (2, 0), [np.eye(3).tolist()] * 2)


def test_older_names_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 3, 3))
    even = x @ mt(x) + np.eye(3)
    for name, *args in (
        ("inverse", x), ("det", x), ("slogdet", x), ("logdet", even), ("pinverse", x[:, :2]), ("matrix_exp", x),
        ("cholesky_solve", x, np.tril(x)), ("cholesky_inverse", np.tril(x[0])), ("triangular_solve", x, even),
        ("chain_matmul", x[0], x[1], x[0]),
    ):  # fmt: skip
        ours = getattr(an, name)(*[Tensor(a) for a in args])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that they are old
            theirs = getattr(torch, name)(*[torch.tensor(a) for a in args])
        for mine, other in zip(several(ours), several(theirs), strict=True):
            np.testing.assert_allclose(mine.numpy(), other.numpy(), 1e-9, 1e-9, err_msg=name)
    u, s, v = an.svd(Tensor(x[:, :2]))
    np.testing.assert_allclose((u * s.unsqueeze(-2) @ v.mT).numpy(), x[:, :2], atol=1e-12)
    assert (v.shape, an.qr(Tensor(x[0][:, :2]), some=False).Q.shape) == ((2, 3, 2), (3, 3))
