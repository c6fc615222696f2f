"""Calls written once for torch and for `import anneal as an`: `call(M, F, *tensors)` with M the library, F its
`nn.functional`; tables of test_torch_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

rng = np.random.default_rng(5)


def f(*shape: int) -> Any:
    """Floats of a shape, the same every time."""
    return rng.normal(size=shape).astype(np.float32)


class Call(NamedTuple):
    """`arrays` are the tensors; floats among them want gradients if `slopes`."""

    call: Callable[..., Any]
    arrays: tuple[Any, ...]
    slopes: bool = True


A, B, V = f(3, 4), f(3, 4), f(4)
WHOLE = np.array([[3, 0, 1, 0], [0, 2, 2, 1], [1, 0, 0, 0]], np.int64)
MASK = A > 0
NAN = np.where(A > 1, np.float32(np.nan), A)


def into(x: Any, index: Any, value: Any) -> Any:
    """x with `value` at an index, assigned to a copy."""
    y = x.clone()
    y[index] = value
    return y


DYNAMIC: dict[str, Call] = {
    "nonzero": Call(lambda M, F, x: x.nonzero(), (WHOLE,)),
    "nonzero as_tuple": Call(lambda M, F, x: x.nonzero(as_tuple=True), (WHOLE,)),
    "nonzero of nan": Call(lambda M, F, x: x.nonzero(), (NAN,), False),
    "nonzero of nothing": Call(lambda M, F, x: x.nonzero(), (WHOLE[:0],)),
    "nonzero_static": Call(lambda M, F, x: M.nonzero_static(x, size=9), (WHOLE,)),
    "nonzero_static, fewer": Call(lambda M, F, x: M.nonzero_static(x, size=2), (WHOLE,)),
    "argwhere": Call(lambda M, F, x: M.argwhere(x), (WHOLE,)),
    "masked_select": Call(lambda M, F, x, m: x.masked_select(m), (A, MASK)),
    "masked_select, broadcast": Call(lambda M, F, x, m: x.masked_select(m), (A, MASK[0])),
    "mask": Call(lambda M, F, x, m: x[m], (A, MASK)),
    "mask of rows": Call(lambda M, F, x, m: x[m], (A, MASK[:, 0])),
    "mask and more": Call(lambda M, F, x, m: x[1:, m], (A, MASK[0])),
    "mask = number": Call(lambda M, F, x, m: into(x, m, 2.5), (A, MASK)),
    "mask = tensor": Call(lambda M, F, x, m, y: into(x, m, y.exp()[m]), (A, MASK, B)),
    "rows = row": Call(lambda M, F, x, m, v: into(x, m, v), (A, MASK[:, 0], V)),
    "columns = number": Call(lambda M, F, x, m: into(x, (slice(None), m), 1.0), (A, MASK[0])),
    "bool list": Call(lambda M, F, x: x[[True, False, True]], (A,)),
    "index_put of a mask": Call(lambda M, F, x, m, v: x.index_put((m,), v, True), (A, MASK[:, 1], V)),
    "unique": Call(lambda M, F, x: x.unique(return_inverse=True, return_counts=True), (WHOLE,)),
    "unique of rows": Call(lambda M, F, x: x.unique(dim=0), (WHOLE[[0, 2, 0, 1]],)),
    "unique of nan": Call(lambda M, F, x: x.unique(), (NAN,), False),
    "unique_consecutive": Call(
        lambda M, F, x: x.unique_consecutive(return_inverse=True, return_counts=True), (np.sort(WHOLE, 1),)
    ),
    "unique_consecutive of columns": Call(lambda M, F, x: x.unique_consecutive(dim=1), (WHOLE[:, [0, 0, 1, 2, 2]],)),
    "repeat_interleave": Call(lambda M, F, x, n: x.repeat_interleave(n, 1), (A, WHOLE[1])),
    "repeat_interleave, counted": Call(lambda M, F, x, n: x.repeat_interleave(n, 1, output_size=5), (A, WHOLE[1])),
    "tensor_split": Call(lambda M, F, x, n: x.tensor_split(n.cpu(), 1), (A, np.array([1, 3]))),
    "bincount": Call(lambda M, F, x: x.bincount(), (WHOLE[0],)),
    "bincount, weighted": Call(lambda M, F, x, w: x.bincount(w, 6), (WHOLE[0], V), False),
    "masked_scatter": Call(lambda M, F, x, m, y: x.masked_scatter(m, y), (V, MASK, B)),
}  # fmt: skip

IMAGE, VOLUME = f(1, 2, 5, 6), f(1, 2, 3, 4, 5)
PLACES = rng.uniform(-1.4, 1.4, (1, 3, 4, 2)).astype(np.float32)
PLACES_3 = rng.uniform(-1.4, 1.4, (1, 2, 2, 3, 3)).astype(np.float32)


def sampled(mode: str, padding_mode: str, align_corners: bool, volume: bool = False) -> Call:
    arrays = (VOLUME, PLACES_3) if volume else (IMAGE, PLACES)
    return Call(lambda M, F, x, g: F.grid_sample(x, g, mode, padding_mode, align_corners), arrays)


ARGUMENTS: dict[str, Call] = {
    "atleast_1d": Call(lambda M, F, x, y: M.atleast_1d(x, y), (A, np.float32(2.0))),
    "atleast_2d": Call(lambda M, F, x, y: M.atleast_2d([x, y]), (A, V)),
    "atleast_3d": Call(lambda M, F, x: M.atleast_3d(x), (A,)),
    "cat of nothing": Call(lambda M, F, x: M.cat([M.zeros(0), x], 1), (A,)),
    "cov": Call(lambda M, F, x, n, w: M.cov(x, correction=1, fweights=n, aweights=w.abs()), (A, WHOLE[1] + 1, V)),
    "cov of aweights": Call(lambda M, F, x, w: M.cov(x, correction=0, aweights=w.abs()), (A, V)),
    "diff": Call(lambda M, F, x, y: x.diff(2, 1, prepend=y, append=y), (A, B)),
    "gather of one": Call(lambda M, F, x, i: x.gather(0, i), (np.float32(2.0), np.array([0]))),
    "index_add of one": Call(lambda M, F, x, i, y: x.index_add(0, i, y, alpha=2), (A[0, 0], np.array([0]), A[0, 1])),
    "index_copy of one": Call(lambda M, F, x, i, y: x.index_copy(0, i, y), (A[0, 0], np.array([0]), A[0, 1])),
    "linspace": Call(lambda M, F, x, y: M.linspace(x, y, 5), (A[0, 0], A[0, 1]), False),
    "logspace": Call(lambda M, F, x: M.logspace(x, 2, 4, 3.0, dtype=M.float32), (A[0, 0],), False),
    "nanquantile": Call(lambda M, F, x: x.nanquantile(0.3, 1, interpolation="midpoint"), (NAN,), False),
    "nanquantile, nearest": Call(lambda M, F, x: x.nanquantile(0.3, 1, interpolation="nearest"), (NAN,), False),
    "quantile": Call(lambda M, F, x, q: x.quantile(q.sigmoid(), 1), (A, V)),
    "quantile, lower": Call(lambda M, F, x, q: x.quantile(q.sigmoid(), 1, interpolation="lower"), (A, V)),
    "new_full": Call(lambda M, F, x: x.new_full((2,), 3, dtype=M.int32), (A,)),
    "new_zeros": Call(lambda M, F, x: (x.new_zeros(2, 3), x.new_ones((2,), dtype=M.int32), x.new_tensor([1, 2])), (A,)),
    "pad, reflect and cut": Call(lambda M, F, x: F.pad(x[None], (-1, 2), "reflect"), (A,)),
    "pad, replicate and cut": Call(lambda M, F, x: F.pad(x[None], (-2, 3), "replicate"), (A,)),
    "pad, circular and cut": Call(lambda M, F, x: F.pad(x[None], (-1, 2), "circular"), (A,)),
    "searchsorted": Call(lambda M, F, x, y: M.searchsorted(x.sort(1).values, y, side="right"), (A, B), False),
    "searchsorted, sorter": Call(lambda M, F, x, y: M.searchsorted(x, y, sorter=x.argsort(1)), (A, B), False),
    "tensordot": Call(lambda M, F, x, y: M.tensordot(x, y, ([0, 1], [1, 0])), (A, f(4, 1, 2))),
    "to": Call(lambda M, F, x: x.to(M.float32, False, True), (A,)),
    "round": Call(lambda M, F, x: (x.round(), x.round(decimals=1)), (A,), False),
    "random in place": Call(
        lambda M, F, x: [getattr(M.zeros(40), n)(*a).isfinite().all() for n, a in DRAWS.items()], (A,), False
    ),
    "embedding": Call(lambda M, F, w, i: F.embedding(i, w, max_norm=1.0, scale_grad_by_freq=True) + w.detach().sum(),
                      (A, np.array([0, 2, 0]))),
    "embedding_bag": Call(lambda M, F, w, i: F.embedding_bag(i, w, max_norm=1.0, mode="sum"),
                          (A, np.array([[0, 2], [0, 0]]))),
    "gaussian_nll_loss": Call(lambda M, F, x, y, v: F.gaussian_nll_loss(x, y, v.exp()), (A, V, B)),
    "multi_margin_loss": Call(lambda M, F, x, i, w: F.multi_margin_loss(x, i, weight=w.detach().abs()),
                              (A, np.array([1, 0, 3]), V)),
    "multi_margin_loss of one": Call(lambda M, F, x, i: F.multi_margin_loss(x, i, p=2), (V, np.array(2))),
    "multilabel_margin_loss of one": Call(lambda M, F, x, i: F.multilabel_margin_loss(x, i), (A[0, 0], np.array(0))),
    "scaled_dot_product_attention": Call(lambda M, F, q, k, v: F.scaled_dot_product_attention(q, k, v),
                                         (f(3, 4), f(2, 5, 4), f(2, 5, 4))),
    "instance_norm": Call(lambda M, F, x, m, v: (F.instance_norm(x, m, v), m, v),
                          (f(2, 3, 4), np.zeros(3, np.float32), np.ones(3, np.float32)), False),
    "instance_norm, kept": Call(lambda M, F, x, m: F.instance_norm(x, m.detach(), m.detach().exp(), use_input_stats=False), (f(2, 3, 4), f(3))),
    "linear_cross_entropy": Call(
        lambda M, F, x, w, i: F.cross_entropy((x @ w.flatten(0, 1).T).reshape(3, 2, 3), i) if M.__name__ == "torch"
        else F.linear_cross_entropy(x, w, i), (A, f(2, 3, 4), WHOLE[:, 1:] % 2)),
    **{f"grid_sample {mode} {padding} {corners}": sampled(mode, padding, corners)
       for mode, padding, corners in [("bilinear", "reflection", False), ("bilinear", "reflection", True),
                                      ("bicubic", "zeros", False), ("bicubic", "border", True),
                                      ("bicubic", "reflection", False), ("nearest", "reflection", True)]},
    "grid_sample of volumes": sampled("bilinear", "zeros", False, True),
    "grid_sample of volumes, reflected": sampled("nearest", "reflection", True, True),
    **{f"interpolate {mode} {corners}": Call(lambda M, F, x, m=mode, c=corners: F.interpolate(
        x, (3, 9), mode=m, align_corners=c, antialias=True), (IMAGE,)) for mode in ("bilinear", "bicubic") for corners in (False, True)},
    "interpolate, scale": Call(lambda M, F, x: F.interpolate(
        x, scale_factor=(0.6, 1.7), mode="bilinear", recompute_scale_factor=True), (IMAGE,)),
}  # fmt: skip

DRAWS: dict[str, tuple[Any, ...]] = {
    "bernoulli_": (0.3,), "cauchy_": (), "exponential_": (2.0,), "geometric_": (0.4,), "log_normal_": (), "normal_": (1.0, 2.0),
    "random_": (), "uniform_": (-1.0, 3.0),
}  # fmt: skip

WIDE = np.linspace(-8.3, 8.3, 41).astype(np.float32)
ABOVE = np.linspace(0.05, 9.0, 40).astype(np.float32)


def special(name: str, x: Any = WIDE, slopes: bool = False) -> Call:
    return Call(lambda M, F, x: getattr(M.special, name)(x), (x,), slopes)


SPECIAL: dict[str, Call] = {
    **{n: special(n, slopes=True) for n in ["i0e", "i1", "i1e", "ndtr", "log_ndtr", "expit"]},
    **{n: special(n, ABOVE, True) for n in ["entr", "psi"]},
    "erfcx": special("erfcx", WIDE[10:], True),
    "ndtri": special("ndtri", np.array([1e-6, 0.01, 0.3, 0.5, 0.9, 0.9999], np.float32), True),
    **{n: special(n) for n in ["modified_bessel_i0", "modified_bessel_i1", "bessel_j0", "bessel_j1", "spherical_bessel_j0"]},
    **{n: special(n, ABOVE) for n in ["modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
                                      "scaled_modified_bessel_k1", "bessel_y0", "bessel_y1"]},
    "ends": Call(lambda M, F, x: [getattr(M.special, n)(x) for n in ["bessel_y0", "modified_bessel_k1", "entr", "ndtri", "i1"]],
                 (np.array([0.0, -1.0, np.nan], np.float32),), False),
    **{f"{kind}polynomial_{letter}": Call(lambda M, F, x, n, name=f"{kind}polynomial_{letter}": [
        getattr(M.special, name)(x, n), getattr(M.special, name)(x, 3)], (WIDE[::4] / 4, np.arange(11, dtype=np.float32) - 1), False)
       for kind, letters in [("chebyshev_", "tuvw"), ("shifted_chebyshev_", "tuvw")] for letter in letters},
    **{name: Call(lambda M, F, x, n, name=name: getattr(M.special, name)(x, n), (WIDE[::4] / 4, np.arange(11, dtype=np.float32)), False)
       for name in ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]},
    "xlog1py": Call(lambda M, F, x, y: M.special.xlog1py(x, y.abs()), (A, B)),
    "zeta": Call(lambda M, F, x, q: M.special.zeta(x, q), (np.array([1.0, 2.0, 3.0, 2.5, 0.5], np.float32),
                                                           np.array([2.0, 1.0, -1.5, 7.0, 1.0], np.float32)), False),
    "zeta of large x": Call(lambda M, F, x, q: M.special.zeta(x, q).reshape(-1)[:-1], (
        np.array([[200.0], [1e4], [1e5], [np.inf]], np.float32), np.array([-2.5, -0.5, 0.25, 0.5, 1.0, 3.0], np.float32)), False),
    "polygamma": Call(lambda M, F, x: [M.special.polygamma(n, x) for n in (0, 1, 2)] + [x.polygamma(3)], (ABOVE,)),
    "polygamma below": Call(lambda M, F, x: [x.polygamma(n) for n in (1, 2)], (np.array([-0.3, -1.7, -4.4], np.float32),)),
    "mvlgamma": Call(lambda M, F, x: M.mvlgamma(x, 3), (ABOVE + 1,)),
}  # fmt: skip

ROWS_MASK = np.array([[True, False, True, True], [False, True, True, False], [True, True, True, True]])


def masked(name: str, *args: Any, **options: Any) -> Call:
    return Call(lambda M, F, x, m: getattr(M.masked, name)(x, *args, mask=m, **options), (A, ROWS_MASK))


MASKED: dict[str, Call] = {
    **{f"masked.{n}": masked(n, 1) for n in ["sum", "prod", "amax", "amin", "mean", "median", "logsumexp", "cumsum", "cumprod",
                                             "softmax", "softmin", "argmax", "argmin"]},
    "masked.log_softmax": Call(lambda M, F, x, m: M.masked.log_softmax(x, 1, mask=m).exp(), (A, ROWS_MASK)),
    **{f"masked.{n} of all": masked(n) for n in ["sum", "amax", "mean", "norm"]},
    "masked.norm": masked("norm", 3.0, 1),
    "masked.normalize": masked("normalize", 2.0, 1),
    "masked.var": masked("var", 1, keepdim=True),
    "masked.std": masked("std", (0, 1), unbiased=False),
    "masked.logaddexp": Call(lambda M, F, x, y, m: M.masked.logaddexp(x, y, input_mask=m), (A, B, ROWS_MASK)),
}  # fmt: skip

WINDOWS: dict[str, Call] = {
    f"windows.{name} {sym}": Call(lambda M, F, name=name, options=options, sym=sym: [
        getattr(M.signal.windows, name)(n, sym=sym, **options) for n in (0, 1, 7)], ())
    for name, options in {
        "bartlett": {}, "blackman": {}, "cosine": {}, "exponential": {"tau": 2.0}, "gaussian": {"std": 2.0}, "hamming": {}, "hann": {},
        "general_cosine": {"a": [0.4, 0.3, 0.2]}, "general_hamming": {"alpha": 0.6}, "kaiser": {"beta": 8.0}, "nuttall": {},
    }.items() for sym in (True, False)
}  # fmt: skip

SQUARE = f(4, 4)
SPD = SQUARE @ SQUARE.T + 4 * np.eye(4, dtype=np.float32)
LOW = np.tril(f(4, 4)).astype(np.float32) + 3 * np.eye(4, dtype=np.float32)

NAMES: dict[str, Call] = {
    "as_strided": Call(lambda M, F, x: x.as_strided((2, 3), (1, 2), 1), (A,)),
    "as_strided_scatter": Call(lambda M, F, x, y: x.as_strided_scatter(y, (2, 2), (4, 1), 1), (A, f(2, 2)), False),
    "diagonal_scatter": Call(lambda M, F, x, y: x.diagonal_scatter(y, 1), (A, f(3))),
    "put": Call(lambda M, F, x, i, y: [x.put(i, y), x.put(i, y, True)], (A, np.array([3, 0, -1]), f(3))),
    "index_reduce": Call(lambda M, F, x, i, y: [x.index_reduce(1, i, y, r, include_self=s) for r in ("mean", "amax")
                                                for s in (True, False)], (A, np.array([3, 0]), f(3, 2))),
    "unravel_index": Call(lambda M, F, i: M.unravel_index(i, (3, 4)), (np.array([[5, 11], [0, 7]]),)),
    "angle": Call(lambda M, F, x: [x.angle(), x.sgn(), x.conj(), M.real(x), x.resolve_neg(), x.mH, x.H, x.adjoint()], (A,)),
    "casts": Call(lambda M, F, x: [x.abs().byte(), x.char(), x.short()], (A * 5,), False),
    "copies": Call(lambda M, F, x: [M.alias_copy(x), M.permute_copy(x, (1, 0)), M.unbind_copy(x), M.view_copy(x, (4, 3)),
                                    x.narrow_copy(0, 1, 1), x.unsafe_chunk(2, 1), M.t_copy(x)], (A,)),
    "rsub": Call(lambda M, F, x, y: [M.rsub(x, y, alpha=2), M.fill(x, 3.0)], (A, B)),
    "trapz": Call(lambda M, F, x: M.trapz(x, dx=0.5), (A,)),
    "gradient": Call(lambda M, F, x: [M.gradient(x), M.gradient(x, spacing=(0.5, 2.0), edge_order=2)], (A,)),
    "gradient over places": Call(lambda M, F, x, v: M.gradient(x, spacing=(v.detach().abs().cumsum(0),), dim=1), (A, V)),
    "histogram": Call(lambda M, F, x, y: [tuple(x.histogram(5)), tuple(x.histogram(3, range=(-1.0, 0.5), weight=y, density=True)),
                                          tuple(x.histogram(M.linspace(-1, 1, 4)))], (A, np.abs(B)), False),
    "normal": Call(lambda M, F, x: [M.normal(x, 0.0), M.normal(2.0, 0.0, (2,)), M.randint_like(x, 1, 2)], (A,), False),
    "shapes": Call(lambda M, F: [M.empty_strided((2, 3), (3, 1)) * 0, M.empty_permuted((2, 3), (1, 0)) * 0, M.scalar_tensor(3.0),
                                 list(M.broadcast_shapes((2, 1), 3))], ()),
    "constant_pad_nd": Call(lambda M, F, x: M.constant_pad_nd(x, (1, 2), 0.5), (A,)),
    "grid_sampler": Call(lambda M, F, x, g: M.grid_sampler_2d(x, g, 0, 1, True), (IMAGE, PLACES)),
    "norm": Call(lambda M, F, x: [M.norm(x), M.norm(x, 1, 0), M.norm(x, "nuc")], (A,)),
    "determinants": Call(lambda M, F, x: [M.logdet(x), M.det(x), M.slogdet(x)[1]], (SPD,)),
    "inverses": Call(lambda M, F, x: [M.inverse(x), M.pinverse(x), M.matrix_exp(x * 0.1)], (SPD,)),
    "cholesky": Call(lambda M, F, x: [M.cholesky(x), M.cholesky(x, upper=True)], (SPD,)),
    "triangles": Call(lambda M, F, L, b: [M.cholesky_solve(b, L), M.cholesky_inverse(L), M.triangular_solve(b, L, upper=False)[0],
                                          M.triangular_solve(b, L, upper=False, transpose=True)[0]], (LOW, f(4, 2)), False),
    "qr and svd": Call(lambda M, F, x: [abs(M.qr(x)[1]), M.svd(x)[1], abs(M.svd(x)[2])], (A,), False),
}  # fmt: skip
