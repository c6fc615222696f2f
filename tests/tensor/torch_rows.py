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
    "bincount, weighted": Call(lambda M, F, x, w: x.bincount(w, 6) if M.__name__ == "torch" else x.bincount(6, w),
                               (WHOLE[0], V), False),
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
