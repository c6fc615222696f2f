"""grad, vjp, jvp, vmap and their kin as functions: trees, axes, nesting, jit, modules, and what is refused."""

from __future__ import annotations

from collections import OrderedDict
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from anneal import nn
from anneal.autograd import functional
from anneal.errors import DTypeError, GradientError, ShapeError, TransformError
from anneal.runtime import cache_statistics
from anneal.tensor import (
    Tensor,
    Variable,
    functional as F,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    manual_seed,
    no_grad,
    realize,
    tree_leaves,
    tree_map,
    value_and_grad,
    vjp,
    vmap,
)
from anneal.transforms import scan
from anneal.uop import Op, toposort
from tests.reference import evaluate


def values(t: Tensor) -> np.ndarray[Any, Any]:
    return evaluate([t.uop])[0]


class Pair(NamedTuple):
    left: Tensor
    right: Any


# -- trees ------------------------------------------------------------------------------------------------------------


def test_trees_go_in_and_come_out() -> None:
    tree = {"a": [Tensor([1.0]), (Tensor([2.0]), None)], "b": Pair(Tensor([3.0]), OrderedDict(z=Tensor([4.0])))}

    def f(t: Any) -> Tensor:
        (a, (b, nothing)), pair = t["a"], t["b"]
        assert nothing is None
        assert isinstance(pair, Pair)
        return (a * b * pair.left * pair.right["z"]).sum()

    g = grad(f)(tree)
    assert list(g) == ["a", "b"]
    assert g["a"][1][1] is None
    assert isinstance(g["b"], Pair)
    assert isinstance(g["b"].right, OrderedDict)
    assert [t.item() for t in tree_leaves(g)] == [24, 12, 8, 6]
    out, tangent = jvp(lambda t: {"f": f(t), "first": t["a"][0]}, (tree,), (tree,))
    assert (out["f"].item(), tangent["f"].item(), tangent["first"].item()) == (24, 96, 1)
    many = tree_map(lambda t: Tensor.stack([t, t * 2]), tree)
    assert vmap(f)(many).tolist() == [24, 24 * 16]
    assert tree_leaves(None) == []


def test_trees_that_differ_are_named() -> None:
    with pytest.raises(TransformError, match=r"tangents\[0\]\['w'\] is a list, not a tuple"):
        jvp(lambda p: p["w"][0], ({"w": (Tensor([1.0]),)},), ({"w": [Tensor([1.0])]},))
    with pytest.raises(TransformError, match=r"tangents\[0\] has the keys \['v'\], not \['w'\]"):
        jvp(lambda p: p["w"], ({"w": Tensor([1.0])},), ({"v": Tensor([1.0])},))
    with pytest.raises(TransformError, match="has 1 items, not 2"):
        tree_map(lambda a, b: a, [1, 2], [1])
    _, pull = vjp(lambda x: (x, x), Tensor([1.0]))
    with pytest.raises(TransformError, match="the cotangent is a Tensor, not a tuple"):
        pull(Tensor([1.0]))


# -- reverse ----------------------------------------------------------------------------------------------------------


def test_vjp_of_a_tree_with_aux() -> None:
    out, pull, aux = vjp(
        lambda a, b: ({"sum": a + b, "product": a * b, "count": Tensor([7])}, [a * 10]),
        Tensor([2.0]),
        Tensor([3.0]),
        has_aux=True,
    )
    assert (out["sum"].item(), out["product"].item(), out["count"].item(), aux[0].item()) == (5, 6, 7, 20)
    for weight in (1.0, 10.0):
        a, b = pull({"product": Tensor([weight]), "sum": Tensor([1.0]), "count": None})
        assert (a.item(), b.item()) == (1 + 3 * weight, 1 + 2 * weight)
    with pytest.raises(ShapeError, match=r"the cotangent\['sum'\] has shape \(2,\), but the result has \(1,\)"):
        pull({"product": None, "sum": Tensor([1.0, 2.0]), "count": None})
    with pytest.raises(DTypeError, match=r"the cotangent\['sum'\] is float64"):
        pull({"product": None, "sum": Tensor([1.0], dtype="float64"), "count": None})


def test_numbers_and_arrays_are_arguments_too() -> None:
    assert grad(lambda x: x * x)(3.0).item() == 6
    assert grad(lambda x: (x * x).sum())(np.array([1.0, 2.0])).tolist() == [2, 4]
    assert vmap(lambda x: x * 2)(np.arange(3)).tolist() == [0, 2, 4]


def test_what_grad_refuses() -> None:
    x = Tensor([1.0, 2.0])
    with pytest.raises(
        GradientError, match=r"one float, and its result has shape \(2,\) \(2 elements, float32\): reduce"
    ):
        grad(lambda x: x)(x)
    with pytest.raises(GradientError, match=r"argument 0\['n'\] is int32.*use .float\(\)"):
        grad(lambda p: p["w"].sum())({"w": x, "n": Tensor([1])})
    with pytest.raises(DTypeError, match=r"argument 0\[1\] is a str"):
        grad(lambda p: p[0].sum())([x, "name"])
    with pytest.raises(GradientError, match="argument -3"):
        grad(lambda x: x.sum(), argnums=-3)(x)
    with pytest.raises(GradientError, match="twice"):
        grad(lambda x, y: x.sum(), argnums=(0, -2))(x, x)
    with pytest.raises(TransformError, match=r"returns \(result, aux\)"):
        grad(lambda x: x.sum(), has_aux=True)(x)
    with pytest.raises(GradientError, match="has_aux=True it may return"):
        grad(lambda x: (x.sum(), x))(x)


def test_detach_and_no_grad_inside() -> None:
    x = Tensor([3.0])
    assert grad(lambda x: (x * x.detach()).sum())(x).item() == 3
    assert jvp(lambda x: x * x.detach(), (x,), (x,))[1].item() == 9

    def halted(x: Tensor) -> Tensor:
        with no_grad():
            y = x * x
        return (x * y).sum()

    assert grad(halted)(x).item() == 9
    assert vmap(grad(halted))(Tensor([[3.0], [2.0]])).tolist() == [[9], [4]]
    assert grad(lambda x: vmap(lambda y: y * y.detach())(x).sum())(x).item() == 3


def test_values_may_be_read_inside_a_derivative() -> None:
    def f(x: Tensor) -> Tensor:
        y = x * x
        return (y * 2 if y.sum().item() > 1 else y).realize().sum()

    for x, slope in ((3.0, 12), (0.5, 1)):
        assert grad(f)(Tensor([x])).item() == slope
        assert jvp(f, (Tensor([x]),), (Tensor([1.0]),))[1].item() == slope
        assert grad(lambda x: grad(f)(x).sum())(Tensor([x])).item() == (4 if x > 1 else 2)


def test_results_want_gradients_of_leaves_only() -> None:
    x, w = Tensor([2.0]), Tensor([3.0], requires_grad=True)
    assert not grad(lambda x: (x * x).sum())(x).requires_grad
    assert not vmap(grad(lambda x: x * x))(x).requires_grad
    assert not jvp(lambda x: x * x, (x,), (x,))[1].requires_grad
    for g in (
        grad(lambda x: (x * x * w).sum())(x),
        vmap(lambda x: x * w)(x),
        jvp(lambda x: x * x * w, (x,), (x,))[1],
        grad(lambda w: (w * w * w).sum())(w),
    ):
        assert g.requires_grad
        w.grad = None
        g.sum().backward()
        assert w.grad is not None
    with no_grad():
        g = grad(lambda x: (x * w).sum())(x)
    assert not g.requires_grad
    w.grad = None
    (g * w).sum().backward()
    assert w.grad is not None
    assert w.grad.item() == 3


def test_an_assignment_inside_belongs_to_the_real_arguments() -> None:
    seen = Tensor([0.0])

    def f(x: Tensor) -> Tensor:
        seen.assign(seen + x * 2)
        return (x * x).sum()

    for total in (6, 12):
        assert grad(f)(Tensor([3.0])).item() == 6
        assert all(u.tag is None for u in toposort([seen.uop]))
        assert seen.item() == total
    assert jvp(f, (Tensor([1.0]),), (Tensor([1.0]),))[1].item() == 2
    assert seen.item() == 14
    with pytest.raises(
        TransformError, match=r"assigned a value of one example, or turn, to a tensor of shape \(1,\) that outlives"
    ):
        vmap(f)(Tensor([[1.0], [2.0]]))

    def own(x: Tensor) -> Tensor:
        row: Any = Tensor.zeros(3)
        cycle: list[Any] = []
        cycle.append((row, cycle))
        row[1:] = x
        return Tensor.zeros(2).index_put((Tensor([1]),), row.sum()[None])

    assert vmap(own)(Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[0, 3], [0, 7]]


# -- forward ----------------------------------------------------------------------------------------------------------


def test_jvp_with_zeros_integers_and_aux() -> None:
    x, n = Tensor([2.0, 3.0]), Tensor([1, 0])
    y, dy, aux = jvp(lambda x, n, z: (x[n] * z, x * 2), (x, n, x), (Tensor([1.0, 0.0]), None, None), has_aux=True)
    assert (y.tolist(), dy.tolist(), aux.tolist()) == ([6, 6], [0, 3], [4, 6])
    _, dy = jvp(lambda x: (x > 2, x.floor(), Tensor([5.0])), (x,), (x,))
    assert [d.tolist() for d in dy] == [[False, False], [0, 0], [0]]


def test_what_jvp_refuses() -> None:
    x = Tensor([2.0, 3.0])
    with pytest.raises(TransformError, match=r"jvp\(f, \(x,\), \(dx,\)\), not a Tensor"):
        jvp(lambda x: x, x, (x,))  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"tangents\[0\] has shape \(1,\), but primals has \(2,\)"):
        jvp(lambda x: x, (x,), (Tensor([1.0]),))
    with pytest.raises(DTypeError, match=r"tangents\[0\]\['a'\] is float64, but primals is float32 there: use .cast"):
        jvp(lambda x: x, ({"a": x},), ({"a": x.double()},))
    with pytest.raises(DTypeError, match=r"primals\[0\] is int32.*None"):
        jvp(lambda x: x, (Tensor([1]),), (Tensor([1]),))
    with pytest.raises(TransformError, match="tangents has 1 items, not 2"):
        jvp(lambda x, y: x, (x, x), (x,))


# -- vmap -------------------------------------------------------------------------------------------------------------


def test_axes_in_and_out() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    outer = vmap(lambda x, y: x[:, None] * y, in_axes=(1, 0), out_axes=-1)(Tensor(a), Tensor(b))
    np.testing.assert_array_equal(values(outer), np.einsum("xi,iy->xyi", a, b))
    tree = {"x": Tensor(a), "y": [Tensor(b), Tensor([1.0, 2.0], dtype="float64")]}

    def f(t: dict[str, Any], scale: Tensor) -> Any:
        return {"out": t["x"] * scale, "pair": (t["y"][0].sum(), t["y"][1])}

    out = vmap(f, in_axes=({"x": 1, "y": [0, None]}, None), out_axes={"out": 1, "pair": (0, None)})(tree, 2.0)
    np.testing.assert_array_equal(values(out["out"]), a * 2)
    np.testing.assert_array_equal(values(out["pair"][0]), b.sum(1))
    np.testing.assert_array_equal(values(out["pair"][1]), [1, 2])
    assert vmap(lambda x, k: x + k)(Tensor([1, 2]), k=Tensor([10, 20])).tolist() == [11, 22]
    assert vmap(lambda: Tensor([1.0]), in_axes=(), axis_size=3)().shape == (3, 1)
    assert vmap(lambda x: (x, 7))(Tensor([1, 2]))[1].tolist() == [7, 7]
    assert vmap(lambda x: x.sum())(Tensor.zeros(0, 3)).shape == (0,)


def test_what_vmap_refuses() -> None:
    x = Tensor.zeros(2, 3)
    with pytest.raises(ShapeError, match=r"argument \[0\] has 2 \(axis 0 of shape \(2, 3\)\), argument \[1\] has 3"):
        vmap(lambda a, b: a)(x, x.T)
    with pytest.raises(ShapeError, match=r"in_axes names axis 2 of argument \[0\], which has shape \(2, 3\)"):
        vmap(lambda a: a, in_axes=2)(x)
    with pytest.raises(ShapeError, match="use None for what all examples share"):
        vmap(lambda a: a)(Tensor(1.0))
    with pytest.raises(TransformError, match="2 entries, but the call has 1"):
        vmap(lambda a: a, in_axes=(0, 0))(x)
    with pytest.raises(
        TransformError, match="a list of 2 items, but the part of the arguments there is a list of 1 items"
    ):
        vmap(lambda a: a[0], in_axes=([0, 0],))([x])
    with pytest.raises(TransformError, match="no argument has an axis of examples"):
        vmap(lambda a: a, in_axes=None)(x)
    with pytest.raises(TransformError, match=r"out_axes is None for the result\['y'\], which differs"):
        vmap(lambda a: {"y": a}, out_axes=None)(x)
    with pytest.raises(DTypeError, match="the function's result is a str"):
        vmap(lambda a: "no")(x)
    with pytest.raises(TransformError, match="ints and None"):
        vmap(lambda a: a, in_axes="rows")(x)


def test_an_example_has_no_values() -> None:
    kept: list[Tensor] = []

    def leaks(x: Tensor) -> Tensor:
        kept.append(x * 2)
        return x

    vmap(leaks)(Tensor([1.0, 2.0]))
    for look in (lambda: kept[0].tolist(), lambda: vmap(lambda x: x if x > 0 else -x)(Tensor([1.0]))):
        with pytest.raises(
            TransformError, match=r"a value of a vmapped function, or of a loop.s body, was read.*where\(\)"
        ):
            look()


def test_an_argument_that_vmaps_function_changes_in_place_is_changed() -> None:
    """As by torch's vmap: all examples of it, along their axis, also where it is a view, and in nested ones."""
    c, v = Tensor.zeros(2, 3), Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    sums = vmap(lambda c, v: c.mul_(2).add_(v).sum(), in_axes=1)(c, v)
    np.testing.assert_allclose(sums.numpy(), [5.0, 7.0, 9.0])
    np.testing.assert_allclose(c.numpy(), v.numpy())
    whole = Tensor.zeros(2, 2, 3)
    vmap(vmap(lambda c, v: c.add_(v).sum(), (0, None)), (0, None))(whole[:, 1:], Tensor([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(whole.numpy(), np.array([[0, 0, 0], [1, 2, 3]] * 2).reshape(2, 2, 3))
    x, d = Tensor.ones(3, requires_grad=True), Tensor.zeros(3)
    (vmap(lambda d, x: d.add_(x * x))(d, x).sum() + d.sum()).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [4.0, 4.0, 4.0])
    with pytest.raises(GradientError, match="in place"):
        vmap(lambda x: x.fill_(3).sum())(x)


def test_random_numbers_differ_between_examples_or_not() -> None:
    def noisy(x: Tensor) -> Tensor:
        return x + Tensor.rand(4) + Tensor.randn(4)

    manual_seed(3)
    rows = vmap(noisy)(Tensor.zeros(5)).numpy()
    assert len(np.unique(rows.round(6))) == 20
    nested = vmap(vmap(noisy))(Tensor.zeros(3, 5)).numpy()
    assert len(np.unique(nested.round(6))) == 60
    same = vmap(noisy, randomness="same")(Tensor.zeros(5)).numpy()
    assert (same == same[0]).all()
    manual_seed(3)
    np.testing.assert_array_equal(vmap(noisy)(Tensor.zeros(5)).numpy(), rows)
    # uniform over examples too
    many = vmap(lambda _: Tensor.rand(()))(Tensor.zeros(4000)).numpy()
    assert abs(many.mean() - 0.5) < 0.03
    assert abs(np.corrcoef(many[1:], many[:-1])[0, 1]) < 0.06
    outside = Tensor.rand(2)
    assert (vmap(lambda x: x + outside)(Tensor.zeros(3)).numpy() == outside.numpy()).all()
    with pytest.raises(TransformError, match="randomness"):
        vmap(noisy, randomness="none")  # type: ignore[arg-type]


def test_an_embedding_of_many_examples_reads_one_table() -> None:
    """Rows are looked up and added back as rows: no copy of the table, no work for each row of it and example."""
    table, index = Tensor(np.arange(12.0).reshape(6, 2)), Tensor(np.array([[1, 5], [1, 0], [2, 2]]))
    f = vmap(lambda i, t: t.rows(i).sum(0), in_axes=(0, None))
    np.testing.assert_array_equal(values(f(index, table)), table.numpy()[index.numpy()].sum(1))
    g = grad(lambda t: (f(index, t) ** 2).sum())(table)
    added = [u for u in toposort([g.uop]) if u.op is Op.SCATTER_ADD]
    assert [u.shape for u in added] == [(6, 2)]


# -- nesting ----------------------------------------------------------------------------------------------------------


def test_variables_are_not_mixed_up() -> None:
    x = Tensor(2.0)
    # d/dx (x * d/dy (x + y)) = 1, in every pair of modes
    first = [lambda f: grad(f), lambda f: lambda y: jvp(f, (y,), (Tensor(1.0),))[1]]
    for outer, inner in product(first, first):
        assert outer(lambda x, d=inner: x * d(lambda y: x + y)(Tensor(1.0)))(x).item() == 1
        assert outer(lambda x, d=inner: x * d(lambda y: x * y * y)(x))(x).item() == 24
    rows = vmap(lambda a: vmap(lambda b: a * b)(Tensor([1.0, 10.0])))(Tensor([1.0, 2.0, 3.0]))
    assert rows.tolist() == [[1, 10], [2, 20], [3, 30]]


def test_a_transform_leaves_no_trace_in_the_graph() -> None:
    x = Tensor([1.0, 2.0])
    for f in (
        lambda: jvp(lambda y: y.sin() * y, (x,), (x,))[1],
        lambda: vmap(lambda y: y.sin() * y)(x),
        lambda: vmap(grad(lambda y: y.sin() * y))(x),
        lambda: hessian(lambda y: (y.sin() * y).sum())(x),
    ):
        assert f().uop is f().uop


def test_loops_of_transforms_are_linear() -> None:
    def nodes(n: int) -> int:
        x = Tensor([1.0, 2.0])
        for _ in range(n):
            x = x - 0.1 * grad(lambda y: (y * y.sin()).sum())(x)
            x = jvp(lambda y: y.cos(), (x,), (x,))[1]
            x = vmap(lambda y: y * y)(x)
        return len(toposort([x.uop]))

    assert nodes(100) < 2.2 * nodes(50)
    x = Tensor([1.0])

    def deep(x: Tensor) -> Tensor:
        for _ in range(2000):  # deeper than Python's calls may be
            x = x.sin()
        return x.sum()

    assert len(toposort([jvp(grad(deep), (x,), (x,))[1].uop])) > 8_000
    assert len(toposort([vmap(grad(deep))(x[None]).uop])) > 4_000


def test_the_same_on_every_device(device: str) -> None:
    """Per-example gradients, curvature and random bits: the graph is what is transformed, so devices see
    ordinary ones.
    """
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((4, 6), (6, 5), (5,))]

    def loss(w: Tensor, x: Tensor, b: Tensor) -> Tensor:
        row = F.layer_norm(x @ w, (5,)).gelu() * (Tensor.rand(5) > 0.3) + b
        return row.softmax(-1)[2] + row.sort()[0][0] + w[Tensor([1, 1, 0])].sum()

    def results() -> list[Tensor]:
        manual_seed(1)
        x, w, b = (Tensor(a) for a in arrays)
        each = vmap(grad(loss, (0, 2)), in_axes=(None, 0, None))(w, x, b)
        product = jvp(grad(lambda w: vmap(loss, (None, 0, None))(w, x, b).sum()), (w,), (w,))[1]
        return [*each, product]

    got = [t.numpy() for t in results()]
    for g, want in zip(got, evaluate([t.uop for t in results()]), strict=True):
        np.testing.assert_allclose(g, want, rtol=2e-4, atol=2e-5)


def test_matrices_of_derivatives() -> None:
    x = Tensor([1.0, 2.0])

    def f(p: dict[str, Tensor], k: float) -> Any:
        return {"y": p["w"][:, None] * p["b"] * k, "z": p["b"].sum()}

    p = {"w": x, "b": Tensor([3.0, 4.0, 5.0])}
    for jacobian in (jacrev, jacfwd):
        j = jacobian(f)(p, 2.0)
        assert j["y"]["w"].shape == (2, 3, 2)
        assert j["y"]["b"].shape == (2, 3, 3)
        np.testing.assert_array_equal(values(j["y"]["w"]), np.einsum("ik,j->ijk", np.eye(2), [6, 8, 10]))
        assert j["z"]["w"].tolist() == [0, 0]
        assert j["z"]["b"].tolist() == [1, 1, 1]
        both = jacobian(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x * 3)
        assert [t.tolist() for t in both] == [[3, 6], [1, 2]]
        j, aux = jacobian(lambda a: (a * a, a * 5), has_aux=True)(x)
        assert (j.tolist(), aux.tolist()) == ([[2, 0], [0, 4]], [5, 10])
        with pytest.raises(GradientError, match="int32"):
            jacobian(lambda a: a)(Tensor([1]))
    h = hessian(lambda p: (p["w"] * p["w"]).sum() * p["b"].sum())(p)
    assert h["w"]["w"].tolist() == [[24, 0], [0, 24]]
    assert h["w"]["b"].tolist() == [[2, 2, 2], [4, 4, 4]]
    assert h["b"]["w"].tolist() == [[2, 4], [2, 4], [2, 4]]
    assert h["b"]["b"].tolist() == np.zeros((3, 3)).tolist()


def test_sizes_may_be_variables() -> None:
    """The number of examples, and the sizes inside: as with the numbers that the variables are bound to."""
    n = Variable("n", 1, 16)
    x = Tensor(np.arange(48, dtype=np.float32).reshape(16, 3) / 20)

    def f(t: Tensor) -> Tensor:
        return (F.layer_norm(t.tanh(), (3,)) @ x.T[:, :2]).softmax(-1)

    def slope(t: Tensor) -> Tensor:
        return grad(lambda t: (f(t) ** 2).sum())(t)

    functions: list[Any] = [
        slope,
        lambda t: jvp(slope, (t,), (t,))[1],
        lambda t: vmap(lambda r: r.cumsum(0) * r.sum() + r[Tensor([0, 2, 1])])(t),
        lambda t: vmap(grad(lambda r: (r * r).sum()))(t),
        lambda t: vmap(lambda s: (t * s).sum(0))(Tensor([1.0, 2.0])),
        lambda t: vmap(lambda r: x[(r * 2).int()].sum(0))(t),
        lambda t: vmap(lambda r: Tensor.zeros(4).scatter_add(0, r.int(), r))(t),
    ]
    for k in (3, 5):
        for g in functions:
            np.testing.assert_allclose(g(x[: n.bind(k)]).numpy(), g(x[:k]).numpy(), rtol=1e-6)
    with pytest.raises(ShapeError, match=r"argument \[0\] has n=2 .*, argument \[1\] has 16"):
        vmap(lambda a, b: a + b)(x[: n.bind(2)], x)


# -- jit and modules --------------------------------------------------------------------------------------------------


def test_transforms_in_jit_and_jit_in_transforms() -> None:
    def loss(w: Tensor, x: Tensor) -> Tensor:
        return ((x * w).tanh() ** 2).sum()

    step = jit(lambda w, x: (vmap(grad(loss), in_axes=(None, 0))(w, x), jvp(grad(loss), (w, x[0]), (w, x[0]))[1]))
    inner = jit(loss)
    for k in range(4):
        w, x = Tensor([1.0, 0.5 + k]), Tensor([[1.0, 2.0], [3.0, float(k)]])
        each, along = step(w, x)
        want = [grad(loss)(w, row).numpy() for row in (x[0], x[1])]
        np.testing.assert_allclose(each.numpy(), want, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(along.numpy(), jvp(grad(loss), (w, x[0]), (w, x[0]))[1].numpy(), rtol=1e-5)
        np.testing.assert_allclose(grad(inner)(w, x[0]).numpy(), want[0], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(vmap(inner, in_axes=(None, 0))(w, x)[0].numpy(), loss(w, x[0]).numpy(), rtol=1e-5)


def test_modules_as_functions_of_their_parameters() -> None:
    manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2))
    params = {name: p.detach() for name, p in model.named_parameters()}
    x, y = Tensor(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)), Tensor([0, 1, 1, 0, 1])

    def loss(p: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(nn.functional_call(model, p, x), y)

    value, grads = value_and_grad(loss)(params, x, y)
    direct = F.cross_entropy(model(x), y)
    direct.backward()
    assert value.item() == pytest.approx(direct.item(), rel=1e-6)
    for name, p in model.named_parameters():
        assert p.grad is not None
        np.testing.assert_allclose(grads[name].numpy(), p.grad.numpy(), rtol=1e-4, atol=1e-6, err_msg=name)
    each = vmap(grad(loss), in_axes=(None, 0, 0))(params, x[:, None], y[:, None])
    for name, g in grads.items():
        np.testing.assert_allclose(each[name].mean(0).numpy(), g.numpy(), rtol=1e-3, atol=1e-6, err_msg=name)
    # an ensemble: as many models as there are parameters stacked
    stacked = tree_map(lambda p: Tensor.stack([p, p * 0.5]), params)
    both = vmap(lambda p: nn.functional_call(model, p, x))(stacked)
    np.testing.assert_allclose(both[0].numpy(), model(x).numpy(), rtol=1e-4, atol=1e-6)


def test_functional_training_is_training() -> None:
    """With running statistics that the module assigns, captured or not, and no plan made anew for a later step."""

    def fresh() -> nn.Module:
        manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))

    rng = np.random.default_rng(0)
    xs = rng.standard_normal((4, 5, 1, 4, 4)).astype(np.float32)
    y = Tensor([0, 2, 1, 1, 0])
    one = fresh()
    sgd = nn.SGD(one.parameters(), lr=0.1)
    want = []
    for x in xs:
        sgd.zero_grad()
        direct = F.cross_entropy(one(Tensor(x)), y)
        direct.backward()
        sgd.step()
        want.append(direct.item())
    for captured in (False, True):
        model = fresh()
        params = {name: t.detach().realize() for name, t in model.named_parameters()}

        def step(params: Any, x: Tensor, y: Tensor, model: nn.Module = model) -> Any:
            loss, grads = value_and_grad(lambda p: F.cross_entropy(nn.functional_call(model, p, x), y))(params)
            return loss, tree_map(lambda p, g: p - 0.1 * g, params, grads)

        run = jit(step) if captured else step
        losses, misses = [], []
        for x in xs:
            loss, params = run(params, Tensor(x), y)
            realize([loss, *params.values(), *(b for _, b in model.named_buffers())])
            losses.append(loss.item())
            misses.append(cache_statistics()[1])
        np.testing.assert_allclose(losses, want, rtol=1e-5)
        for (name, got), (_, expected) in zip(model.named_buffers(), one.named_buffers(), strict=True):
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-4, atol=1e-6, err_msg=name)
        assert misses[-1] == misses[-2]


# -- leaves that the function captures, or is given --------------------------------------------------------------------

THROUGH: dict[str, Any] = {
    "vmap": lambda f, w, x: vmap(f, (None, 0))(w, x),
    "vmap of both": lambda f, w, x: vmap(f)(w.expand(2, *w.shape), x),
    "vmap, captured": lambda f, w, x: vmap(lambda x: f(w, x))(x),
    "vjp": lambda f, w, x: vjp(lambda w: f(w, x[0]), w)[0],
    "jvp": lambda f, w, x: jvp(lambda w: f(w, x[0]), (w,), (w.detach() * 0,))[0],
    "value": lambda f, w, x: value_and_grad(lambda w: f(w, x[0]).sum())(w)[0],
    "slope": lambda f, w, x: grad(lambda x: (f(w, x) ** 2).sum())(x[0]),
    "jacobian": lambda f, w, x: jacrev(lambda x: f(w, x) ** 2)(x[0]),
}


@pytest.mark.parametrize("shape", [(), (2,), (2, 2), (1, 2)])
@pytest.mark.parametrize("way", THROUGH)
def test_gradients_reach_a_leaf_however_it_lies_in_memory(way: str, shape: tuple[int, ...]) -> None:
    x = Tensor(np.arange(4, dtype=np.float32).reshape(2, 2))
    for f in (lambda w, x: x * w * w, lambda w, x: (x * w).sum(-1) * 2, lambda w, x: (w.reshape(-1) * x[:1]).exp()):
        found = []
        for lie in ("lazy", "realized", "array", "under jit", "under jit, again"):
            w = Tensor(np.ones(shape, np.float32)) if lie == "array" else Tensor.ones(*shape)
            w.requires_grad_()
            if lie == "realized":
                realize([w])
            call = THROUGH[way]
            if lie.startswith("under jit"):
                call = jit(lambda w, x, f=f: THROUGH[way](f, w, x))
                y = [call(w, x) for _ in range(1 if lie == "under jit" else 4)][-1]
            else:
                y = call(f, w, x)
            assert y.requires_grad, lie
            y.sum().backward()
            assert w.grad is not None
            found.append(w.grad.tolist())
        np.testing.assert_allclose(found, [found[0]] * len(found), rtol=1e-5)


# -- torch.autograd.functional ----------------------------------------------------------------------------------------


def test_torchs_functions_of_functions_take_all_of_torchs_arguments() -> None:
    x, v = Tensor([1.0, 2.0]), Tensor([1.0, 10.0])
    cube, squares, one = lambda x: (x**3).sum(), lambda x: x * x.sum(), Tensor([2.0])
    for strategy in ("reverse-mode", "forward-mode"):
        found = functional.jacobian(squares, x, vectorize=True, strategy=strategy)
        assert found.tolist() == [[4.0, 1.0], [2.0, 5.0]]
        for f in (cube, lambda x: cube(x).reshape(1)):
            second = functional.hessian(f, x, vectorize=True, outer_jacobian_strategy=strategy)
            assert second.tolist() == [[6.0, 0.0], [0.0, 12.0]]
    assert functional.hessian(cube, (x,))[0][0].tolist() == [[6.0, 0.0], [0.0, 12.0]]
    for of in (functional.hvp, functional.vhp):
        assert of(cube, x, v)[1].tolist() == [6.0, 120.0]
        assert of(cube, one)[1].tolist() == [12.0]
        with pytest.raises(GradientError, match="give v"):
            of(cube, x)
    for wrong in (squares, lambda x: (cube(x), cube(x))):
        with pytest.raises(GradientError, match="one element"):
            functional.hessian(wrong, x)
    with pytest.raises(GradientError, match="a strategy is"):
        functional.jacobian(squares, x, strategy="forward")


def test_random_numbers_of_examples_may_be_an_error() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert vmap(lambda x: x.sum(), randomness="error")(x).tolist() == [3.0, 7.0]
    for f in (lambda x: x + x.rand_like(), lambda x: scan(lambda c, y: (c + y.rand_like(), y), x.sum(), x)[0]):
        with pytest.raises(TransformError, match="draws random numbers"):
            vmap(f, randomness="error")(x)
    noisy = jacfwd(lambda x: x * x.rand_like(), randomness="same")(x[0])
    assert noisy[0, 1].item() == 0.0
