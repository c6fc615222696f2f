"""Gradients and batching of host_call, and which calls are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from anneal.errors import GradientError, ShapeError, TransformError
from anneal.linalg import solve
from anneal.ops import stack
from anneal.runtime import HostCall, Step, observed
from anneal.tensor import Tensor, host_call, jit
from anneal.transforms import grad, hessian, jacfwd, jvp, vmap

Tensors = Sequence[Tensor]
A = np.array([[2.0, 0.5], [0.25, 1.0]], np.float32)


def inverse(x: Tensor, **options: Any) -> Tensor:
    """The inverse, whose gradient is made of products."""

    def gradient(inputs: Tensors, outputs: Tensors, cotangents: Tensors) -> Tensor:
        y = outputs[0]
        return -(y.T @ cotangents[0] @ y.T)

    return host_call(np.linalg.inv, (x.shape, "float32"), x, gradient=gradient, key="inverse", **options)


def calls_of(f: Callable[[], Any]) -> list[HostCall]:
    steps: list[Step] = []
    with observed(steps.append):
        f()
    return [s for s in steps if isinstance(s, HostCall)]


def slope(f: Callable[[Any], Any], at: Any, step: float = 1e-4) -> Any:
    """The gradient of a function of an array by differences, in float64."""
    at = at.astype(np.float64)
    out = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        e = np.zeros_like(at)
        e[i] = step
        out[i] = (f(at + e) - f(at - e)) / (2 * step)
    return out


def test_a_gradient_made_of_ops(device: str) -> None:
    w = Tensor(A, requires_grad=True)
    (inverse(w * 1.5) ** 2).sum().backward()
    want = slope(lambda a: (np.linalg.inv(1.5 * a) ** 2).sum(), A)
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), want, rtol=1e-3)
    assert len(calls_of(lambda: (inverse(w * 2).sum() + inverse(w * 2).max()).realize())) == 1


def test_it_has_derivatives_of_its_own(device: str) -> None:
    def f(x: Tensor) -> Tensor:
        return (inverse(x) ** 2).sum()

    def g(a: Any) -> Any:
        return (np.linalg.inv(a) ** 2).sum()

    first = slope(g, A)
    np.testing.assert_allclose(grad(f)(Tensor(A)).numpy(), first, rtol=1e-3)

    def of_its_gradient(a: Any) -> Any:
        y = np.linalg.inv(a)
        return (-(y.T @ (2 * y) @ y.T) * np.array([[1, 2], [3, 4]])).sum()

    weights = Tensor(np.array([[1, 2], [3, 4]], np.float32))
    second = grad(lambda x: (grad(f)(x) * weights).sum())(Tensor(A))
    np.testing.assert_allclose(second.numpy(), slope(of_its_gradient, A), rtol=2e-3)
    rows = np.stack([slope(lambda a: slope(g, a, 1e-3)[i], A, 1e-3) for i in np.ndindex(2, 2)])  # noqa: B023
    whole = hessian(lambda x: f(x.reshape(2, 2)))(Tensor(A.reshape(-1)))
    np.testing.assert_allclose(whole.numpy(), rows.reshape(4, 4), rtol=5e-3)


def test_tangents_go_by_its_transpose(device: str) -> None:
    direction = np.array([[1, -1], [0.5, 2]], np.float32)
    y, along = jvp(lambda x: inverse(x * 2), (Tensor(A),), (Tensor(direction),))
    inv = np.linalg.inv(2 * A)
    np.testing.assert_allclose(y.numpy(), inv, rtol=1e-5)
    np.testing.assert_allclose(along.numpy(), -inv @ (2 * direction) @ inv, rtol=1e-4)
    _, (first, second) = jvp(lambda x: split(x * 3), (Tensor([1.0, 2.0]),), (Tensor([1.0, 10.0]),))
    assert first.tolist() == [3.0, 30.0]
    assert second.tolist() == [6.0, 60.0]


def split(x: Tensor) -> tuple[Tensor, ...]:
    return host_call(
        lambda a: [a + 1, a * 2], [((2,), "float32")] * 2, x, gradient=lambda i, o, c: [c[0] + 2 * c[1]], key="split"
    )


def test_a_captured_step_goes_through_it(device: str) -> None:
    w = Tensor(A, requires_grad=True)

    @jit
    def step(x: Tensor) -> Tensor:
        w.zero_grad()
        loss = (inverse(w + x) ** 2).sum()
        loss.backward()
        return w.grad * 1  # type: ignore[operator, no-any-return]

    for i in range(4):
        x = np.full((2, 2), 0.1 * i, np.float32)
        want = slope(lambda a: (np.linalg.inv(a + x) ** 2).sum(), A)  # noqa: B023
        np.testing.assert_allclose(step(Tensor(x)).numpy(), want, rtol=1e-3)


def cube(x: Tensor, depth: int = 2) -> Tensor:
    """`x**3` on the host, with a gradient on the host as well, `depth` times over."""

    def gradient(inputs: Tensors, outputs: Tensors, cotangents: Tensors) -> Tensor:
        def scaled(g: Any, a: Any) -> Any:
            return 3 * g * a**2

        second: Any = None
        if depth:
            second = lambda i, o, c: [3 * c[0] * i[1] ** 2, 6 * c[0] * i[0] * i[1]]
        return host_call(scaled, (x.shape, "float32"), cotangents[0], inputs[0], gradient=second)

    return host_call(lambda a: a**3, (x.shape, "float32"), x, gradient=gradient)


def test_a_gradient_that_runs_on_the_host(device: str) -> None:
    x = Tensor([1.0, 2.0, -3.0], requires_grad=True)
    cube(x * 2).sum().backward()
    assert x.grad is not None
    assert len(calls_of(lambda: x.grad.realize())) == 1  # type: ignore[union-attr]
    assert x.grad.tolist() == [24.0, 96.0, 216.0]
    total = grad(lambda v: (grad(lambda u: cube(u).sum())(v) * v).sum())
    assert total(Tensor([1.0, 2.0])).tolist() == [9.0, 36.0]
    with pytest.raises(GradientError, match="host_call has no gradient for cube.<locals>.gradient"):
        grad(lambda v: grad(lambda u: cube(u, 0).sum())(v).sum())(Tensor([1.0]))


def test_several_results_have_one_gradient(device: str) -> None:
    asked: list[list[list[float]]] = []

    def both(x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        def gradient(inputs: Tensors, outputs: Tensors, cotangents: Tensors) -> list[Tensor | None]:
            asked.append([c.tolist() for c in cotangents])
            return [cotangents[0] * 2 + cotangents[1] * outputs[1], None]

        return host_call(
            lambda a, i: [2 * a, np.exp(a)], [((2,), "float32")] * 2, x, index, gradient=gradient, key="double, exp"
        )

    x, index = Tensor([1.0, 2.0], requires_grad=True), Tensor([0, 1])
    twice, power = both(x, index)
    (power * 3 + twice.log() * power.sum()).sum().backward()  # the first result is used below the second, and beside
    a = np.array([1.0, 2.0])
    g0, g1 = np.exp(a).sum() / (2 * a), 3 + np.log(2 * a).sum()
    assert len(asked) == 1
    np.testing.assert_allclose(asked[0], [g0, [g1, g1]], rtol=1e-5)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 2 * g0 + g1 * np.exp(a), rtol=1e-5)
    x.zero_grad()
    both(x, index)[1].sum().backward()
    assert asked[1] == [[0.0, 0.0], [1.0, 1.0]], "zeros for a result that nobody used"


def test_what_nothing_flows_through_asks_for_none() -> None:
    """The last of a call's results on the way may be the one without a cotangent."""
    x = Tensor([3.0, 4.0], requires_grad=True)
    first, second = split(x)
    (second * 5 + first.detach()).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [10.0, 10.0]


@pytest.mark.parametrize(
    ("gradient", "error", "message"),
    [
        (lambda i, o, c: [c[0], c[0]], GradientError, "host_call of f gives 2 cotangents for 1 inputs"),
        (lambda i, o, c: c[0].sum(), ShapeError, r"gives input 0, of shape \(2,\), a cotangent of shape \(\)"),
        (lambda i, o, c: 1.0, GradientError, "gradient of host_call of f gives tensors, or None, not 1.0"),
        (None, GradientError, "host_call has no gradient for f: pass gradient=, or use detach"),
    ],
)
def test_a_wrong_gradient_is_said(gradient: Any, error: type[Exception], message: str) -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = host_call(np.sort, ((2,), "float32"), x, key="f", gradient=gradient)
    with pytest.raises(error, match=message):
        y.sum().backward()
    with pytest.raises(GradientError, match="jvp: host_call has no derivative"):
        jvp(lambda v: host_call(np.sort, ((2,), "float32"), v), (x.detach(),), (Tensor([1.0, 1.0]),))


# -- which calls are one ------------------------------------------------------------------------------------------


class Scale:
    """Callables that are equal where they do the same; `Unhashable` ones cannot be hashed."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, a: Any) -> Any:
        return a * np.float32(self.by)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.by == self.by  # type: ignore[attr-defined, no-any-return]

    def __hash__(self) -> int:
        return hash(self.by)

    def method(self, a: Any) -> Any:
        return self(a)


class Unhashable(Scale):
    __hash__ = None  # type: ignore[assignment]


def test_equal_functions_are_one() -> None:
    x = Tensor([1.0, 2.0])
    scale, odd = Scale(2), Unhashable(2)

    def node(function: Any, **options: Any) -> Any:
        made = host_call(function, ((2,), "float32"), x, **options)
        return made.uop

    kept = [node(np.sort), node(Scale(2)), node(scale.method), node(odd), node(scale, key=("a", 1))]
    again = [node(np.sort), node(Scale(2)), node(scale.method), node(odd), node(odd, key=("a", 1))]
    for one, other in zip(kept, again, strict=True):
        assert one is other
    apart = [node(Scale(3)), node(Unhashable(2)), node(lambda a: a), node(lambda a: a), node(scale, key="b")]
    apart += [node(scale, gradient=lambda i, o, c: c), node(scale, vmap_method="expand_dims")]
    assert len({*kept, *apart}) == len(kept) + len(apart)


# -- many examples ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "shapes"),
    [("sequential", [(2, 2)] * 3), ("expand_dims", [(3, 2, 2)]), ("broadcast_all", [(3, 2, 2)])],
)
def test_examples_are_called_as_its_method_says(device: str, method: Any, shapes: list[Any]) -> None:
    seen: list[Any] = []

    def product(a: Any, b: Any) -> Any:
        seen.append((a.shape, b.shape))
        return a @ b

    x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 2, 2))
    other = Tensor(A)
    f = vmap(lambda a, b: host_call(product, ((2, 2), "float32"), a, b, vmap_method=method), in_axes=(0, None))
    np.testing.assert_allclose(f(x, other).numpy(), x.numpy() @ A)
    assert [a for a, _ in seen] == shapes
    assert seen[0][1] == {"sequential": (2, 2), "expand_dims": (1, 2, 2), "broadcast_all": (3, 2, 2)}[method]


@pytest.mark.parametrize("count", [3, 2])
@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_examples_of_examples_have_their_axes_in_the_order_of_the_vmaps(method: Any, count: int) -> None:
    """The first argument has the outer axis, the second the inner, the third both: of one size, and of two."""

    def combined(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return host_call(lambda a, b, c: a - b * c, ((2,), "float32"), a, b, c, vmap_method=method)

    a, b = [np.arange(2 * n, dtype=np.float32).reshape(n, 2) + 1 for n in (3, count)]
    c = np.arange(6 * count, dtype=np.float32).reshape(3, count, 2)
    inner = vmap(combined, in_axes=(None, 0, 0))
    found = vmap(lambda a, c: inner(a, Tensor(b), c))(Tensor(a), Tensor(c))
    np.testing.assert_array_equal(found.numpy(), a[:, None] - b * c)


def test_examples_of_examples_of_a_solution_have_their_derivatives() -> None:
    a, b = Tensor(batch()), Tensor(batch()[:, 0])
    found = vmap(lambda a: vmap(lambda b: jacfwd(lambda a: solve(a, b))(a))(b))(a)
    wanted = stack([stack([jacfwd(lambda a, b=y: solve(a, b))(x) for y in b]) for x in a])
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


def batch() -> Any:
    return np.stack([A + 0.2 * i * np.eye(2, dtype=np.float32) for i in range(3)])


@pytest.mark.parametrize("method", ["sequential", "expand_dims"])
def test_examples_have_their_gradients(device: str, method: Any) -> None:
    a = batch()
    want = np.stack([slope(lambda b: (np.linalg.inv(b) ** 2).sum(), x) for x in a])

    def f(x: Tensor) -> Tensor:
        return (inverse(x, vmap_method=method) ** 2).sum()

    np.testing.assert_allclose(vmap(grad(f))(Tensor(a)).numpy(), want, rtol=1e-3)
    np.testing.assert_allclose(grad(lambda x: vmap(f)(x).sum())(Tensor(a)).numpy(), want, rtol=1e-3)


def test_an_input_that_examples_share_has_the_sum_of_their_gradients(device: str) -> None:
    def product(x: Tensor, w: Tensor) -> Tensor:
        return host_call(
            np.multiply, ((2,), "float32"), x, w, gradient=lambda i, o, c: [c[0] * i[1], c[0] * i[0]], key="product"
        )

    x, w = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([2.0, 3.0], np.float32)

    def total(x: Tensor, w: Tensor) -> Tensor:
        return vmap(product, in_axes=(0, None))(x, w).sum()

    gx, gw = grad(total, argnums=(0, 1))(Tensor(x), Tensor(w))
    assert gx.tolist() == [[2.0, 3.0]] * 3
    assert gw.tolist() == x.sum(0).tolist()


def test_what_has_no_rule_is_said() -> None:
    many = Tensor(np.ones((3, 2), np.float32))
    with pytest.raises(TransformError, match="host_call of sort has no rule for many examples"):
        vmap(lambda x: host_call(np.sort, ((2,), "float32"), x, vmap_method=None))(many)
