"""What must hold of every differentiable function, in float64, and functions to hold it of.

`python -m tests.transforms.checks` holds all of it of every function and shape, JAX included; the tests take a
part.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from anneal.tensor import Tensor, functional as F, grad, jvp, vjp, vmap
from tests.reference import evaluate
from tests.tensor.test_gradient import CASES, COLUMNS, MATRICES, ONE, SECOND, TWO, Array, Case, Shapes, arguments

__all__ = ["ALL", "check", "check_jax"]

EXAMPLES = 3
H = 1e-5


def ints(*values: Any) -> Tensor:
    return Tensor(np.array(values, np.int32))


def written(x: Tensor, y: Tensor) -> Tensor:
    z = x * 1.0
    z[:1] = y
    return z * x


def classes(x: Tensor) -> Tensor:
    """A class for each row of logits."""
    return Tensor(np.arange(x.shape[0], dtype=np.int32) * 2 % x.shape[1])


def ids(w: Tensor) -> Tensor:
    """Some rows of a table, one of them twice."""
    return Tensor(np.arange(4, dtype=np.int32).reshape(2, 2) % w.shape[0])


def places(s: Tensor, rows: int = 2) -> Tensor:
    """Where each element of `s` goes along the first axis; several go to one."""
    return Tensor((np.arange(s.numel(), dtype=np.int32) * 3 % 5 % rows).reshape(s.shape))


def apart(x: Tensor) -> Tensor:
    """A place of its own along the first axis for each row."""
    order = np.arange(x.shape[0], dtype=np.int32)[::-1].reshape(-1, *[1] * (x.ndim - 1))
    return Tensor(np.broadcast_to(order, x.shape).copy())


SIZES = [(b, c, h, w) for b in (1, 2) for c in (1, 2) for h, w in ((2, 3), (4, 4))]
IMAGES: Shapes = [((b, 4 * c, 2 * h, w),) for b, c, h, w in SIZES]
BATCHES: Shapes = [((*s, n),) for s in ((3,), (1,), (2, 3), (2, 1, 2)) for n in (4, 2)]
LOGITS: Shapes = [((n, m),) for n in (1, 2, 3, 5) for m in (3, 4)]
SQUARES: Shapes = [((n, n),) for n in range(1, 9)]
TABLES: Shapes = [((n, m),) for n in (3, 4, 6, 7) for m in (1, 3)]
PAIRS: Shapes = [(s, s) for (s,) in MATRICES]


def rows_and(*widths: int) -> Shapes:
    """Rows with weights along the last axis."""
    return [(s, *[(s[-1],)] * len(widths)) for (s,) in BATCHES]


def attention(value: int) -> Shapes:
    return [((*b, n, 2), (*b, m, 2), (*b, m, value)) for b in ((), (2,)) for n, m in ((3, 3), (2, 4), (1, 3), (4, 1))]


def normed(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, w.shape, w, b)


CONV: Shapes = [((b, c, h + 1, w + 1), (o, c, 2, 3), (o,)) for (b, c, h, w), o in zip(SIZES, (1, 2) * 4, strict=True)]
GROUPED: Shapes = [((b, 2 * c, h, w), (2 * c, c, 2, 2)) for b, c, h, w in SIZES]
TRANSPOSED: Shapes = [((b, c, h, w), (c, 2, 3, 3)) for b, c, h, w in SIZES]
LINES: Shapes = [((b, c, n), (2, c, k)) for b in (1, 2) for c in (1, 3) for n, k in ((5, 3), (4, 2))]
AFFINE: Shapes = [((b, n, w), (2, w), (2,)) for b in (1, 2) for n in (1, 3) for w in (2, 4)]
WRITES: Shapes = [((2, *r), (n, *r)) for n in (1, 3) for r in ((), (2,), (3,), (2, 2))]
PARTS: Shapes = [((n, *r), (1, *r)) for n in (1, 3) for r in ((), (3,), (2, 2), (1, 4))]
ENDS: Shapes = [((*s, n),) for s in ((), (2,), (2, 2), (1,)) for n in (4, 6)]
CHANNELS: Shapes = [((b, 4 * c, *r), (4 * c,)) for b in (1, 3) for c in (1, 2) for r in ((3,), (2, 2))]

PLACED: Shapes = [((3, *r), (n, *r)) for n in (1, 2) for r in ((), (2,), (3,), (2, 2))]

MORE = [
    Case("layer_norm", normed, None, rows_and(1, 1)),
    Case("rms_norm", lambda x, w: F.rms_norm(x, w.shape, w), None, rows_and(1)),
    Case("group_norm", lambda x, w: F.group_norm(x, 2, w), None, CHANNELS),
    Case("batch_norm", lambda x, w: F.batch_norm(x, None, None, w, training=True), None, CHANNELS),
    Case("conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1, stride=2), None, CONV),
    Case("grouped conv2d", lambda x, w: F.conv2d(x, w, groups=2), None, GROUPED),
    Case("conv1d", lambda x, w: F.conv1d(x, w, padding=1), None, LINES),
    Case("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), None, TRANSPOSED),
    Case("max_pool2d", lambda x: F.max_pool2d(x, 2), None, IMAGES),
    Case("avg_pool2d", lambda x: F.avg_pool2d(x, 2, 1, 1), None, IMAGES),
    Case("interpolate", lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), None, IMAGES),
    Case("unfold windows", lambda x: F.unfold(x, 2) * 2, None, IMAGES),
    Case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2).exp(), None, IMAGES),
    Case("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), None, attention(3)),
    Case(
        "causal attention",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        None,
        attention(1),
    ),
    Case(
        "masked attention",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=Tensor(np.arange(k.shape[-2]) % 2 == 0)),
        None,
        attention(2),
    ),
    Case("cross_entropy", lambda x: F.cross_entropy(x, classes(x)), None, LOGITS),
    Case(
        "weighted cross_entropy",
        lambda x, w: F.cross_entropy(x, classes(x), weight=w.exp(), ignore_index=1, label_smoothing=0.1),
        None,
        [(s, s[1:]) for (s,) in LOGITS],
    ),
    Case("soft cross_entropy", lambda x, p: F.cross_entropy(x, p.softmax(-1)), None, PAIRS),
    Case("nll_loss", lambda x: F.nll_loss(x.log_softmax(1), classes(x)), None, LOGITS),
    Case("bce", lambda x, t: F.binary_cross_entropy_with_logits(x, t.sigmoid()), None, PAIRS),
    Case("kl_div", lambda x, t: F.kl_div(x.log_softmax(-1), t.softmax(-1)), None, PAIRS),
    Case("huber_loss", lambda x, t: F.huber_loss(x, t), None, PAIRS),
    Case("smooth_l1_loss", lambda x, t: F.smooth_l1_loss(x, t, beta=0.5), None, PAIRS),
    Case("linear", lambda x, w, b: F.linear(x, w, b), None, AFFINE),
    Case("embedding", lambda w: F.embedding(ids(w), w) * 2, None, TABLES),
    Case("tied embedding", lambda w: F.embedding(ids(w), w).tanh() @ w.T, None, TABLES),
    Case("scatter_add", lambda x, s: x.scatter_add(0, places(s), s) * x, None, WRITES),
    Case("scatter", lambda x, s: x.scatter(0, apart(s), s).exp(), None, [((s[0] + 1, *s[1:]), s) for _, s in WRITES]),
    Case("index_add", lambda x, s: x.index_add(0, places(s[:, *[0] * (s.ndim - 1)]), s).sin(), None, WRITES),
    Case("index_select", lambda x: x.index_select(1, ints(1, 1, 0)).exp(), None, COLUMNS),
    Case("positions of its own", lambda x: x.take_along_dim(x.argsort(0), 0).exp() * x, None, MATRICES),
    Case("sort", lambda x: x.sort(-1)[0].exp() * x, None, ENDS),
    Case("topk", lambda x: x.topk(2)[0].exp(), None, ENDS),
    Case("median", lambda x: x.median(-1).values * x.sum(), None, ENDS),
    Case("quantile", lambda x: x.quantile(0.3) * x, None, ENDS),
    Case("cummax", lambda x: x.cummax(1).values.exp(), None, MATRICES),
    Case("prod of all", lambda x: x.prod(), None, MATRICES),
    Case("prod with zeros", lambda x: (x.relu() * x).prod(1), None, MATRICES),
    Case("assigned part", written, None, PARTS),
    Case("index_put", lambda x, v: x.index_put((ints(*range(v.shape[0])),), v), None, PLACED),
    Case("masked_fill", lambda x: x.masked_fill(x > 0.3, 0.0) * x, None, MATRICES),
    Case("3-norm", lambda x: x.norm(3.0), None, ONE),
    Case("normalize", lambda x: F.normalize(x), None, MATRICES),
    Case("cosine_similarity", lambda x, y: F.cosine_similarity(x, y), None, PAIRS),
    Case("cdist", lambda x, y: F.cdist(x, y), None, [((n, w), (m, w)) for n in (1, 2) for m in (1, 3) for w in (2, 3)]),
    Case("glu", lambda x: F.glu(x), None, ENDS),
    Case("logaddexp", lambda x, y: x.logaddexp(y), None, TWO),
    Case("outer", lambda a, b: a.outer(b), None, [((n,), (m,)) for n in (1, 2, 3, 4) for m in (1, 3)]),
    Case("diag", lambda x: x.diag().exp(), None, SQUARES),
    *[Case(f"second: {name}", f, None, [(shape,)]) for name, f, shape in SECOND],
]
ALL = [*CASES, *MORE]


def t(a: Any) -> Tensor:
    return Tensor(np.asarray(a, dtype=np.float64))


def inner(a: Any, b: Any) -> Tensor:
    return sum(((x * y).sum() for x, y in zip(a, b, strict=True)), t(0.0))


class _Wanted:
    """Pairs of tensors that are to be equal, computed together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pairs: list[tuple[str, Tensor, Tensor, bool]] = []

    def equal(self, what: str, got: Any, want: Any, near: bool = False) -> None:
        several = isinstance(got, (tuple, list))
        for n, (g, w) in enumerate(zip(got, want, strict=True) if several else [(got, want)]):
            self.pairs.append((f"{what} {n}" if several else what, g, w, near))

    def hold(self, values: Callable[[list[Tensor]], list[Array]]) -> None:
        flat = [x for _, g, w, _ in self.pairs for x in (g, w)]
        found = values(flat)
        for (what, *_, near), got, want in zip(self.pairs, found[::2], found[1::2], strict=True):
            rtol, atol = (1e-4, 2e-5) if near else (1e-8, 1e-10)
            np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=f"{self.name}: {what}")


def by_reference(tensors: list[Tensor]) -> list[Array]:
    return evaluate([x.uop for x in tensors])


def stack(rows: Any) -> Any:
    return tuple(map(Tensor.stack, zip(*rows, strict=True)))


def check(
    name: str,
    f: Callable[..., Any],
    arrays: list[Array],
    nested: bool,
    values: Callable[[list[Tensor]], list[Array]] = by_reference,
) -> None:
    """jvp against differences and vjp, vmap against a loop; with `nested`, second derivatives and vmap in
    every order.
    """
    rng = np.random.default_rng(0)
    xs = tuple(t(a) for a in arrays)
    directions = [rng.standard_normal(a.shape) for a in arrays]
    vs = tuple(t(v) for v in directions)
    up, down = (tuple(t(a + h * v) for a, v in zip(arrays, directions, strict=True)) for h in (H, -H))
    wanted = _Wanted(f"{name} {[a.shape for a in arrays]}")
    y, dy = jvp(f, xs, vs)
    assert (dy.shape, dy.dtype) == (y.shape, y.dtype)
    w = t(rng.standard_normal(y.shape))
    wanted.equal("jvp and differences", dy, (f(*up) - f(*down)) / (2 * H), near=True)
    wanted.equal("jvp and vjp", (dy * w).sum(), inner(vjp(f, *xs)[1](w), vs))

    # examples that are not multiples of each other, with the first as it is: ties stay ties
    many = [np.stack([a, *[a * rng.uniform(0.9, 1.1, a.shape) for _ in range(EXAMPLES - 1)]]) for a in arrays]
    batch = tuple(t(m) for m in many)
    rows = [tuple(t(m[i]) for m in many) for i in range(EXAMPLES)]
    wanted.equal("vmap and a loop", vmap(f)(*batch), Tensor.stack([f(*row) for row in rows]))
    for k in range(len(xs) if len(xs) > 1 else 0):
        one = [batch[k] if i == k else x for i, x in enumerate(xs)]
        loop = Tensor.stack([f(*[row[k] if i == k else x for i, x in enumerate(xs)]) for row in rows])
        wanted.equal(f"vmap over argument {k}", vmap(f, [0 if i == k else None for i in range(len(xs))])(*one), loop)
    if nested:
        numbers = tuple(range(len(xs)))

        def loss(*a: Tensor) -> Tensor:
            return (f(*a) * w).sum()

        slope = grad(loss, numbers)
        product = grad(lambda *a: inner(slope(*a), vs), numbers)(*xs)
        wanted.equal(
            "differences of grad", product, [(p - q) / (2 * H) for p, q in zip(slope(*up), slope(*down))], True
        )
        wanted.equal("jvp of grad", jvp(slope, xs, vs)[1], product)
        wanted.equal("grad of jvp", grad(lambda *a: jvp(loss, a, vs)[1], numbers)(*xs), product)
        wanted.equal("jvp of jvp", jvp(lambda *a: jvp(loss, a, vs)[1], xs, vs)[1], inner(product, vs))
        slopes = stack([slope(*row) for row in rows])
        wanted.equal("vmap of grad", vmap(slope)(*batch), slopes)
        wanted.equal("grad of vmap", grad(lambda *a: (vmap(f)(*a) * w).sum(), numbers)(*batch), slopes)
        each = Tensor.stack([jvp(f, row, vs)[1] for row in rows])
        wanted.equal("vmap of jvp", vmap(lambda *a: jvp(f, a, vs)[1])(*batch), each)
        wanted.equal("jvp of vmap", jvp(vmap(f), batch, stack([vs] * EXAMPLES))[1], each)
        twice = vmap(vmap(f, out_axes=-1), in_axes=1)(*[Tensor.stack([b, b * 0.9], dim=1) for b in batch])
        both = [Tensor.stack([f(*[x * s for x in row]) for row in rows], dim=-1) for s in (1.0, 0.9)]
        wanted.equal("vmap of vmap", twice, Tensor.stack(both))
        curved = stack([jvp(slope, row, vs)[1] for row in rows])
        wanted.equal("vmap of jvp of grad", vmap(lambda *a: jvp(slope, a, vs)[1])(*batch), curved)
    wanted.hold(values)


def check_jax(case: Case, shapes: tuple[tuple[int, ...], ...]) -> None:
    """jvp, and jvp of grad for many examples, against JAX."""
    import jax

    assert case.jax is not None
    with jax.enable_x64(True):
        theirs = case.jax(jax.numpy, jax)
        arrays = arguments(case, shapes)
        rng = np.random.default_rng(2)
        many = [np.stack([a, a * 0.95]) for a in arrays]
        vs = [rng.standard_normal(a.shape) for a in many]
        numbers = tuple(range(len(arrays)))

        def loss(*a: Any) -> Any:
            return (theirs(*a) ** 2).sum()

        def both(a: Any, v: Any) -> Any:
            return jax.jvp(theirs, a, v), jax.jvp(jax.grad(loss, numbers), a, v)[1]

        (value, tangent), second = jax.jit(jax.vmap(both))(tuple(many), tuple(vs))
    slope = grad(lambda *a: (case.ours(*a) ** 2).sum(), numbers)
    ours = vmap(lambda a, v: (*jvp(case.ours, a, v), jvp(slope, a, v)[1]))
    got_value, got_tangent, got_second = ours(tuple(t(m) for m in many), tuple(t(v) for v in vs))
    got = by_reference([got_value, got_tangent, *got_second])
    for what, g, want in zip(("value", "jvp", *["jvp of grad"] * 9), got, (value, tangent, *second), strict=False):
        np.testing.assert_allclose(g, np.asarray(want), rtol=1e-8, atol=1e-9, err_msg=f"{case.name} {shapes}: {what}")


def main() -> Iterator[str]:
    """Everything, on the reference interpreter and on the cpu device; gives a line for each failure."""
    from anneal.runtime import values

    for case in ALL:
        for shapes in case.shapes:
            for how in (by_reference, values):
                try:
                    check(case.name, case.ours, arguments(case, shapes), True, how)
                except AssertionError as e:
                    yield f"{how.__name__}: {e}"
            if case.jax is not None:
                try:
                    check_jax(case, shapes)
                except AssertionError as e:
                    yield f"jax: {e}"


if __name__ == "__main__":
    count = 0
    for line in main():
        count += 1
        print(line)
    print(f"{len(ALL)} functions, {sum(len(c.shapes) for c in ALL)} shapes, {count} failures")
    sys.exit(count > 0)
