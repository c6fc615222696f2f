"""Wrong arguments that had an error of Python's own: each is an error of anneal's that names the argument."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import anneal as an
from anneal import func
from anneal.errors import AnnealError
from anneal.rewrite.legality import check
from tests.tensor.argument_rows import T, cases, made

X = an.ones(2)


def without_a_pair() -> Any:
    f = an.custom_vjp(lambda x: x * x)
    f.defvjp(lambda x: x * x, lambda r, g: (g,))
    return an.grad(f)(an.tensor(2.0))


def turns(unroll: Any) -> Any:
    return an.scan(lambda c, x: (c, x), an.ones(()), an.ones(3), unroll=unroll)


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "add of three": (lambda: an.add(X, X, X, reduction=None), "alpha|reduction"),  # type: ignore[call-arg, arg-type]
    "fft's sizes": (lambda: an.fft.rfft2(an.ones(2, 2), 3), "rfft2: s is a size for each axis"),
    "no shape": (lambda: an.broadcast_shapes(None, (2,)), "a shape is a tuple of ints or an int, not None"),
    "no layout": (lambda: an.empty_permuted((2,), -1), "a layout names each of 1 axes"),  # type: ignore[arg-type]
    "no tensor": (lambda: X.realize(2.5), "realize: takes tensors to compute together, not 2.5"),  # type: ignore[arg-type]
    "no degree": (lambda: an.special.chebyshev_polynomial_t(X, float("nan")), "finite number"),
    "an argument's name": (lambda: an.grad(lambda x: x.sum(), argnums="x")(X), "number of an argument"),  # type: ignore[arg-type]
    "jacrev": (lambda: func.jacrev(lambda x: x.sum(), argnums="x")(X), "number of an argument"),  # type: ignore[arg-type]
    "no pair": (without_a_pair, "fwd gives a pair"),
    "no function": (lambda: an.cond(True, 1, 2), "true_fun is a function"),  # type: ignore[arg-type]
    "no second function": (lambda: an.cond(True, lambda: X, 2), "false_fun is a function"),  # type: ignore[arg-type]
    "no turns": (lambda: turns(0), "scan: unroll"),
    "fewer than none": (lambda: turns(-1), "scan: unroll"),
    "loops unrolled by 0": (lambda: an.fori_loop(0, 3, lambda i, c: c, X, unroll=0), "fori_loop: unroll"),
    "a chance of 3": (lambda: X.bernoulli(3), "bernoulli: p lies in 0 to 1, not 3"),
    "a share of 2": (lambda: an.quantile(X, an.tensor([2.0])).tolist(), "quantile: q lies in 0 to 1"),
    "a share below 0": (lambda: an.nanquantile(X, an.tensor(-0.5), interpolation="higher").item(), "q lies in 0 to 1"),
    "distances of order -1": (lambda: an.cdist(an.ones(2, 3), an.ones(2, 3), p=-1), "cdist: the order of a distance"),
    "pairs of order -1": (lambda: an.pdist(an.ones(2, 3), -1), "pdist: the order of a distance"),
    "slices of a vector": (lambda: an.renorm(X, 1.0, 0, 1.0), "renorm: takes slices"),
    "norms of order 0": (lambda: an.renorm(an.ones(2, 2), 0.0, 0, 1.0), "renorm: takes slices"),
    "vjp of a number": (lambda: an.vjp(2.0, X), "takes a function, .* not 2.0"),  # type: ignore[arg-type]
    "a rule of no function": (lambda: an.custom_vjp(3), "custom_vjp: takes a function"),  # type: ignore[arg-type]
    "one argument's number": (lambda: an.custom_vjp(abs, 3), "custom_vjp: takes a function"),  # type: ignore[arg-type]
    "a way of sampling": (lambda: an.grid_sampler_2d(X, X, 5, 0, True), "grid_sampler: mode"),
    "no channels": (lambda: an.fake_quantize_per_channel_affine(X, X, X, 5, 0, 3), "axis 5 does not exist"),
    "pivots of no rows": (
        lambda: an.lu_unpack(an.eye(3), an.tensor([5, 5, 5])).P.tolist(),
        "pivots are numbers of rows",
    ),
    "a triangle of no axes": (lambda: an.cholesky_inverse(an.ones(())), "takes matrices"),
    "backward of numbers": (lambda: an.autograd.backward((1, 2)), "autograd.backward: takes tensors"),  # type: ignore[arg-type]
    "backward of a number": (lambda: an.autograd.backward(2), "takes a tensor or several, not 2"),  # type: ignore[arg-type]
    "bounds of floats": (lambda: an.fori_loop(0.0, 3.0, lambda i, c: c, X), "the bounds are ints, not 0.0"),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_wrong_argument_is_named(what: str) -> None:
    call, words = CALLS[what]
    with pytest.raises(AnnealError, match=words):
        call()


def test_a_number_behind_a_tensor_is_the_chance() -> None:
    assert an.bernoulli(an.zeros(2, 3), 1).tolist() == [[1.0] * 3] * 2
    assert an.zeros(2, dtype=an.int64).bernoulli(1.0).tolist() == [1, 1]
    assert an.quantile(an.tensor([1.0, 3.0]), an.tensor([0.0, 1.0])).tolist() == [1.0, 3.0]


def test_transforms_of_integers_are_those_of_floats() -> None:
    for transform, whole in (
        (an.distributions.SigmoidTransform().inv, [0, 1]),
        (an.distributions.CorrCholeskyTransform(), [1]),
        (an.distributions.StickBreakingTransform().inv, [0, 1, 0]),
    ):
        assert transform(an.tensor(whole)).tolist() == transform(an.tensor(whole).float()).tolist()


def test_attention_of_several_dtypes_is_that_of_the_widest() -> None:
    """One dtype in each op of the graph, which C insists on: the kernels were NumPy's from then on."""
    for kinds in (("float32", "float32", "float64"), ("float32", "float64", "float32"), ("float64", "int8", "float32")):
        q, k, v = [an.arange(6.0).reshape(2, 3).to(kind) for kind in kinds]
        mixed = an.nn.functional.scaled_dot_product_attention(q, k, v)
        check(mixed.uop, "tensor")
        wide = an.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
        assert mixed.flatten().tolist() == pytest.approx(wide.flatten().tolist())


def test_ops_of_several_dtypes_make_graphs_of_one() -> None:
    met = 0
    for case in cases().values():
        if sum(isinstance(a, T) for a in case.row.args) < 2:
            continue
        for kinds in (("float32", "float64", "int32"), ("int8", "float32", "float64")):
            turn = itertools.cycle(kinds)
            given = [T(a.shape, next(turn)) if isinstance(a, T) else a for a in case.row.args]
            try:
                out = case.call(*made(given, "cpu"), **made(dict(case.row.options), "cpu"))
            except AnnealError:
                continue
            for t in out if isinstance(out, (list, tuple)) else [out]:
                if isinstance(t, an.Tensor):
                    check(t.uop, "tensor")
                    met += 1
    assert met > 100, met
