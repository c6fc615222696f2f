"""Derivatives by functions: `Function`, `custom_vjp`, `custom_jvp`, in every mode, against the same by ops."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.autograd.function import once_differentiable
from anneal.errors import GradientError, ShapeError
from anneal.tensor import Tensor, grad, hessian, jit, jvp, vjp, vmap
from anneal.uop import arena

Fn = Callable[..., Any]


class Exp(an.autograd.Function):
    """Saves its result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return g * y


class Pair(an.autograd.Function):
    """Two results, a plain argument, tensors as attributes."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, k: float) -> tuple[Tensor, Tensor]:
        ctx.k, ctx.both = k, {"a": a, "b": [b]}
        return a * b, a + k * b

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> tuple[Any, ...]:
        return g * ctx.both["b"][0] + h, g * ctx.both["a"] + ctx.k * h, None


class Cube(an.autograd.Function):
    """torch 2's form, with a value that is computed for backward alone, and forward mode of its own."""

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * x * x, 3 * x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(output[1], inputs[0])
        ctx.save_for_forward(output[1], inputs[0])

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Tensor:
        slope, x = ctx.saved_tensors
        return g * slope + h * 6 * x

    @staticmethod
    def jvp(ctx: Any, t: Tensor) -> tuple[Tensor, Tensor]:
        slope, x = ctx.saved_tensors
        return slope * t, 6 * x * t


@an.custom_vjp
def product(tree: dict[str, Tensor], k: Tensor) -> dict[str, Tensor]:
    return {"p": tree["a"] * tree["b"] * k}


product.defvjp(
    lambda tree, k: ({"p": tree["a"] * tree["b"] * k}, (tree, k)),
    lambda res, g: (
        {"a": g["p"] * res[0]["b"] * res[1], "b": g["p"] * res[0]["a"] * res[1]},
        g["p"] * res[0]["a"] * res[0]["b"],
    ),
)


@an.custom_jvp
def quotient(a: Tensor, b: Tensor) -> Tensor:
    return a / b


quotient.defjvps(lambda t, ans, a, b: t / b, lambda t, ans, a, b: -t * ans / b)

# the function with a derivative of its own, the same by ops
CASES: dict[str, tuple[Fn, Fn]] = {
    "one": (lambda a, b: (Exp.apply(a) * b).sum(), lambda a, b: (a.exp() * b).sum()),
    "two": (
        lambda a, b: Tensor.mul(*Pair.apply(a, b, 3.0)).sum(),
        lambda a, b: (a * b * (a + 3 * b)).sum(),
    ),
    "second result": (lambda a, b: (Pair.apply(a, b, 2.0)[1] ** 2).sum(), lambda a, b: ((a + 2 * b) ** 2).sum()),
    "same twice": (lambda a, b: (Pair.apply(a, a, 2.0)[0] * b).sum(), lambda a, b: (a * a * b).sum()),
    "chain": (lambda a, b: Exp.apply(Exp.apply(a * b) * 0.1).sum(), lambda a, b: ((a * b).exp() * 0.1).exp().sum()),
    "with setup": (lambda a, b: (Cube.apply(a)[0] * b).sum(), lambda a, b: (a * a * a * b).sum()),
    "tree": (lambda a, b: product({"a": a, "b": b}, b)["p"].sum(), lambda a, b: (a * b * b).sum()),
    "custom_jvp": (lambda a, b: (quotient(a, b) * a).sum(), lambda a, b: (a / b * a).sum()),
}
A, B = np.array([0.5, -0.3, 0.8], np.float32), np.array([1.5, 0.7, -0.9], np.float32)

MODES: dict[str, Callable[[Fn, Tensor, Tensor], Any]] = {
    "value": lambda f, a, b: f(a, b),
    "grad": lambda f, a, b: grad(f, argnums=(0, 1))(a, b),
    "hessian": lambda f, a, b: hessian(f)(a, b),
    "vjp": lambda f, a, b: vjp(f, a, b)[1](Tensor(2.0)),
    "jvp": lambda f, a, b: jvp(f, (a, b), (b, a)),
    "jvp of grad": lambda f, a, b: jvp(grad(f), (a, b), (b, a)),
    "vmap of grad": lambda f, a, b: vmap(grad(f, argnums=(0, 1)), in_axes=(0, None))(Tensor.stack([a, b, a + b]), b),
    "grad of vmap": lambda f, a, b: grad(
        lambda y: (vmap(f, in_axes=(0, None))(Tensor.stack([a, b, a + y]), y) * Tensor([1.0, 2.0, 3.0])).sum()
    )(b),
    "jvp of vmap": lambda f, a, b: jvp(
        lambda x, y: vmap(f, in_dims=(0, None))(Tensor.stack([x, y]), y), (a, b), (b, a)
    ),
    "vmap of vmap": lambda f, a, b: grad(
        lambda y: vmap(vmap(f, in_axes=(0, None)), in_axes=(None, 0))(Tensor.stack([a, b]), Tensor.stack([b, y])).sum()
    )(b),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_custom_derivative_is_that_of_the_ops(mode: str) -> None:
    for name, (own, plain) in CASES.items():
        found, wanted = (an.tree_leaves(MODES[mode](f, Tensor(A), Tensor(B))) for f in (own, plain))
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=2e-5, atol=2e-5, err_msg=name)


def test_backward_takes_custom_derivatives_in_loops_and_in_jit(device: str) -> None:
    for name, (own, plain) in CASES.items():
        grads = []
        for f in (own, plain):
            a, b = Tensor(A, requires_grad=True), Tensor(B, requires_grad=True)

            def step(f: Fn = f, a: Tensor = a, b: Tensor = b) -> tuple[Tensor, ...]:
                a.grad = b.grad = None
                f(a, b).backward()
                grads = a.grad, b.grad
                with an.no_grad():
                    a.sub_(0.1 * grads[0])
                return grads

            compiled = jit(step)
            grads.append([[g.numpy() for g in (step() if n % 2 else compiled())] for n in range(6)])
        np.testing.assert_allclose(grads[0], grads[1], rtol=2e-4, atol=2e-5, err_msg=name)


def test_a_graph_of_gradients_goes_through_a_custom_derivative() -> None:
    x = Tensor(A, requires_grad=True)
    (slope,) = an.autograd.grad((Exp.apply(x) * x).sum(), x, create_graph=True)
    (second,) = an.autograd.grad((slope * slope).sum(), x)
    wanted = 2 * np.exp(2 * A) * (A + 1) * (A + 2)
    np.testing.assert_allclose(second.numpy(), wanted, rtol=1e-5)
    ((Exp.apply(x) * x).sum()).backward(create_graph=True)
    assert x.grad is not None
    assert x.grad.requires_grad


def test_what_a_backward_keeps_is_a_constant_unless_a_graph_is_created() -> None:
    kept: list[Any] = []

    class Keeping(an.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            kept.append(g * x)
            return g * 3 * x**2

    for create, flows, slope in ((False, False, [32.0, 512.0, 2592.0]), (True, True, [160.0, 2560.0, 12960.0])):
        x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
        Keeping.apply(x * 2).pow(2).sum().backward(create_graph=create)
        x.grad, held = None, kept[-1]
        (held * x).sum().backward()
        assert held.requires_grad is flows
        assert x.grad is not None
        assert x.grad.tolist() == slope  # torch's


def test_every_gradient_calls_backward_also_in_a_loop() -> None:
    """A loop without jit is recognised, and what the user's functions do besides must happen each time."""
    seen: list[str] = []

    class Counted(an.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            seen.append("forward")
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            seen.append("backward")
            return g * 2

    w = Tensor(A, requires_grad=True)
    optimizer = an.optim.SGD([w], lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        (Counted.apply(w) ** 2).sum().backward()
        optimizer.step()
    assert seen == ["forward", "backward"] * 5
    np.testing.assert_allclose(w.numpy(), A * 0.2**5, rtol=1e-4)


def test_results_without_gradient_zero_cotangents_and_none() -> None:
    given: list[Any] = []

    class Several(an.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, flag: bool) -> tuple[Any, ...]:
            top, place = x.max(dim=0)
            mask = (x > 0).float()
            ctx.mark_non_differentiable(mask)
            ctx.set_materialize_grads(flag)
            return x * 2, x * 3, mask, place, "text"

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            given.append([None if g is None else g.shape for g in grads])
            return grads[0] * 2, None

    for flag in (True, False):
        x = Tensor(A, requires_grad=True)
        double, _, mask, place, text = Several.apply(x, flag)
        assert double.requires_grad
        assert not mask.requires_grad
        assert (place.item(), text) == (2, "text")
        double.sum().backward()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), 2)
    assert given == [[(3,), (3,), (3,), (), None], [(3,), None, None, None, None]]


def test_a_function_that_changes_its_argument_in_place() -> None:
    class Double(an.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * 20

    w = Tensor(A, requires_grad=True)
    h = w * 1.5
    out = Double.apply(h)
    assert out is h
    h.sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(h.numpy(), 3 * A)
    np.testing.assert_allclose(w.grad.numpy(), 30)


def _wrong(backward: Fn | None, **more: Any) -> Any:
    members = {} if backward is None else {"backward": staticmethod(backward)}
    return type("Wrong", (an.autograd.Function,), {"forward": staticmethod(lambda ctx, x: x * 2), **members, **more})


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "too many": (_wrong(lambda ctx, g: (g, g)), GradientError, "2 gradients for 1 arguments"),
    "shape": (_wrong(lambda ctx, g: g.sum(dim=0, keepdim=True).expand(5)), ShapeError, r"shape \(5,\)"),
    "array": (_wrong(lambda ctx, g: g.numpy()), GradientError, "a tensor or None"),
    "none": (_wrong(None), GradientError, "neither backward nor jvp"),
    "twice": (_wrong(once_differentiable(lambda ctx, g: g * g)), GradientError, "once_differentiable"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_backward_that_does_not_fit_is_an_error(case: str) -> None:
    cls, error, text = WRONG[case]
    x = Tensor(A, requires_grad=True)
    with pytest.raises(error, match=text):
        (g,) = an.autograd.grad((cls.apply(x) ** 2).sum(), x, create_graph=True)
        an.autograd.grad((g * x).sum(), x)


def test_arguments_that_are_not_differentiated() -> None:
    @an.custom_vjp
    def before(x: Tensor) -> Tensor:
        return x

    with pytest.raises(GradientError, match="defvjp"):
        grad(lambda x: before(x).sum())(Tensor(A))
    scaled = an.custom_vjp(lambda k, x: x * k["by"], nondiff_argnums=(0,))
    scaled.defvjp(lambda k, x: (x * k["by"], None), lambda k, _, g: (g * k["by"] * 10,))
    np.testing.assert_allclose(grad(lambda x: scaled({"by": 2}, x).sum())(Tensor(A)).numpy(), 20)


def test_what_backward_gives_for_an_argument_without_gradient_is_not_looked_at() -> None:
    class Scaled(an.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, times: Tensor) -> Tensor:
            return x * times.sum()

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            return grads[0] * 10, Tensor.ones(4, 3, 1)

    x = Tensor.ones(3, requires_grad=True)
    Scaled.apply(x, Tensor.ones(4)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [10.0] * 3
    with pytest.raises(ShapeError, match=r"gradient 1 has shape \(4, 3, 1\)"):
        Scaled.apply(x, Tensor.ones(4, requires_grad=True)).sum().backward()


def test_gradcheck_finds_a_wrong_gradient() -> None:
    x = Tensor([0.3, -0.7], dtype="float64", device="cpu", requires_grad=True)
    assert an.autograd.gradcheck(Exp.apply, (x,))
    assert an.autograd.gradgradcheck(Exp.apply, (x,))
    assert not an.autograd.gradcheck(_wrong(lambda ctx, g: g).apply, x, raise_exception=False)
    with pytest.raises(GradientError, match="by input 0"):
        an.autograd.gradcheck(_wrong(lambda ctx, g: g).apply, x)


def test_calls_leave_nothing_behind() -> None:
    w = Tensor(A, requires_grad=True)
    sizes = []
    for _ in range(3):
        for _ in range(20):
            w.grad = None
            h = w * 3
            h += Exp.apply(h)
            h.sum().backward()
            h.tolist()
        del h
        gc.collect()
        sizes.append(len(arena().buffers()))
    assert sizes[1] == sizes[2]


def with_jit(kind: str, where: str) -> Fn:
    """A function whose derivative is 3, and which calls a jit function, itself or in its rule."""
    double, triple = jit(lambda a: a * 2), jit(lambda a: a * 3)
    if kind == "custom_jvp":
        q = an.custom_jvp(lambda x: double(x) if where == "function" else x * 2)
        q.defjvp(lambda p, t: (q(*p), triple(t[0]) if where == "rule" else t[0] * 3))
        return q
    if kind == "custom_vjp":
        r = an.custom_vjp(lambda x: double(x) if where == "function" else x * 2)
        r.defvjp(lambda x: (r.fun(x), None), lambda _, c: (triple(c) if where == "rule" else c * 3,))
        return r

    class Tripled(an.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return double(x) if where == "function" else x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return triple(g) if where == "rule" else g * 3

    return Tripled.apply


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("where", ["function", "rule"])
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp", "Function"])
def test_a_jit_function_is_looked_into_where_values_are_not_there(kind: str, where: str, mapped: bool) -> None:
    """A rule is called with stand-ins for one example, or for tangents: a jit function in it computes nothing."""
    q, x = with_jit(kind, where), Tensor([[0.3, 0.9], [1.0, 2.0]])
    f = vmap(q) if mapped else q
    for _ in range(3):
        np.testing.assert_allclose(grad(lambda x: f(x).sum())(x).numpy(), np.full((2, 2), 3.0))
        np.testing.assert_allclose(vjp(f, x)[1](x)[0].numpy(), 3 * x.numpy())
        np.testing.assert_allclose(jvp(f, (x,), (x,))[1].numpy(), 3 * x.numpy())
        np.testing.assert_allclose(grad(lambda x: grad(lambda x: (f(x) ** 2).sum())(x).sum())(x).numpy(), 18.0)
        leaf = Tensor(x.numpy(), requires_grad=True)
        f(leaf).sum().backward()
        assert leaf.grad.tolist() == [[3.0, 3.0]] * 2
        np.testing.assert_allclose(vmap(grad(lambda x: q(x).sum()))(x).numpy(), 3.0)


@pytest.mark.parametrize("reads", [False, True])
def test_a_gradient_by_a_tensor_before_a_call_that_changes_its_argument(reads: bool) -> None:
    class Tripled(an.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.mark_dirty(x)
            return x.mul_(3)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * 3

    w = Tensor([1.0, 2.0], requires_grad=True)
    h = w * 2
    loss = (Tripled.apply(h * 1) ** 2).sum()
    if reads:
        loss.item()
    by_h, by_w = an.autograd.grad(loss, [h, w])
    np.testing.assert_allclose(by_h.numpy(), [36.0, 72.0])
    np.testing.assert_allclose(by_w.numpy(), [72.0, 144.0])
