"""Every differentiable op: its gradient against central differences in float64 over several shapes, and against JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from anneal.tensor import Tensor, functional as F, grad
from anneal.uop import ALU, MOVEMENT, Op, toposort
from tests.helpers import check_grad
from tests.reference import evaluate

Array = np.ndarray[Any, Any]
Shapes = list[tuple[tuple[int, ...], ...]]
Function = Callable[..., Any]

ONE: Shapes = [((3,),), ((2, 3),), ((2, 1, 2),), ((),), ((1,),), ((1, 5),), ((2, 2, 1, 2),), ((7,),)]
TWO: Shapes = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((), (2, 2)),
    ((4,), ()),
    ((), ()),
    ((1,), (2, 2)),
    ((2, 1, 2), (3, 1)),
]
MATRICES: Shapes = [
    ((2, 3),),
    ((2, 3, 2),),
    ((1, 4),),
    ((4, 2),),
    ((3, 3),),
    ((5, 2),),
    ((1, 2, 3),),
    ((2, 2, 1, 2),),
]
WIDE: Shapes = [((n, m),) for n in (1, 2, 3, 4) for m in (2, 3)]
SPREAD = ((1, 2, 2), (3, 1, 2), (3, 2, 1), (1, 1, 2), (1, 1, 1), (2, 2), (2, 1), (1,))
SAME: Shapes = [(s, s) for (s,) in ONE if s]
SAME.append(((2, 4), (2, 4)))
THREE: Shapes = [((n, *rest),) for n in (3, 5) for rest in ((2,), (), (1, 2), (4,))]
COLUMNS: Shapes = [((n, m, *rest),) for n, m in ((2, 3), (1, 3), (3, 3), (2, 4)) for rest in ((), (2,), (1, 2))]
PRODUCTS: Shapes = [
    ((2, 3), (3, 2)),
    ((2, 2, 3), (3, 1)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((3,), (3,)),
    ((2, 1, 2, 3), (2, 3, 1)),
    ((1, 1), (1, 4)),
    ((2, 2, 3), (2, 3, 2)),
]


class Case(NamedTuple):
    """An op: ours, JAX's (given jax.numpy and jax), shapes of the arguments, and where they lie."""

    name: str
    ours: Function
    jax: Callable[[Any, Any], Function] | None
    shapes: Shapes
    domain: str = "normal"


def unary(name: str, jax: Callable[[Any, Any], Function] | None, domain: str = "normal", **options: Any) -> Case:
    return Case(name, lambda x: getattr(x, name)(**options), jax, ONE, domain)


INDEX = np.array([[2, 0, 1], [1, 1, 0]], np.int32)

CASES = [
    # arithmetic
    Case("add", lambda a, b: a + b, lambda n, _: n.add, TWO),
    Case("sub", lambda a, b: a - b, lambda n, _: n.subtract, TWO),
    Case("mul", lambda a, b: a * b, lambda n, _: n.multiply, TWO),
    Case("square", lambda a: a * a, lambda n, _: n.square, ONE),
    Case("div", lambda a, b: a / b, lambda n, _: n.divide, TWO, "positive"),
    Case("divided by a number", lambda a: a / 3.0, lambda *_: lambda x: x / 3.0, ONE),
    Case("number divided", lambda a: 2.0 / a, lambda *_: lambda x: 2.0 / x, ONE, "positive"),
    Case("remainder", lambda a, b: a % b, lambda n, _: n.remainder, TWO),
    Case("fmod", lambda a, b: a.fmod(b), lambda n, _: n.fmod, TWO),
    Case("pow", lambda a, b: a**b, lambda n, _: n.power, TWO, "positive"),
    Case("cube", lambda a: a**3, lambda *_: lambda x: x**3, ONE),
    Case("power of a half", lambda a: a**0.5, lambda *_: lambda x: x**0.5, ONE, "positive"),
    Case("number to the power", lambda a: 2.0**a, lambda n, _: lambda x: n.power(2.0, x), ONE),
    Case("maximum", lambda a, b: a.maximum(b), lambda n, _: n.maximum, TWO),
    Case("minimum", lambda a, b: a.minimum(b), lambda n, _: n.minimum, TWO),
    Case("clamp", lambda a: a.clamp(-0.5, 0.5), lambda n, _: lambda x: n.clip(x, -0.5, 0.5), ONE),
    Case(
        "where", lambda a, b: (a > b).where(a * 2, b * 3), lambda n, _: lambda x, y: n.where(x > y, x * 2, y * 3), TWO
    ),
    Case("lerp", lambda a, b: a.lerp(b, 0.3), None, TWO),
    # functions of one number
    unary("neg", lambda n, _: n.negative),
    unary("abs", lambda n, _: n.abs),
    unary("exp", lambda n, _: n.exp),
    unary("exp2", lambda n, _: n.exp2),
    unary("expm1", lambda n, _: n.expm1),
    unary("log", lambda n, _: n.log, "positive"),
    unary("log2", lambda n, _: n.log2, "positive"),
    unary("log10", lambda n, _: n.log10, "positive"),
    unary("log1p", lambda n, _: n.log1p, "positive"),
    unary("sqrt", lambda n, _: n.sqrt, "positive"),
    unary("rsqrt", lambda _, j: j.lax.rsqrt, "positive"),
    unary("reciprocal", lambda n, _: n.reciprocal, "positive"),
    unary("sin", lambda n, _: n.sin),
    unary("cos", lambda n, _: n.cos),
    unary("tan", lambda n, _: n.tan, "small"),
    unary("sinh", lambda n, _: n.sinh),
    unary("cosh", lambda n, _: n.cosh),
    unary("tanh", lambda n, _: n.tanh),
    unary("erfc", lambda _, j: j.scipy.special.erfc),
    unary("erfinv", lambda _, j: j.scipy.special.erfinv, "inside"),
    unary("lgamma", lambda _, j: j.scipy.special.gammaln, "positive"),
    unary("digamma", lambda _, j: j.scipy.special.digamma, "positive"),
    unary("asin", lambda n, _: n.arcsin, "inside"),
    unary("acos", lambda n, _: n.arccos, "inside"),
    unary("atan", lambda n, _: n.arctan),
    unary("asinh", lambda n, _: n.arcsinh),
    unary("acosh", lambda n, _: n.arccosh, "above one"),
    unary("atanh", lambda n, _: n.arctanh, "inside"),
    unary("cbrt", lambda n, _: n.cbrt),
    unary("sinc", lambda n, _: n.sinc),
    unary("logit", lambda _, j: j.scipy.special.logit, "probability"),
    Case("atan2", lambda a, b: a.atan2(b), lambda n, _: n.arctan2, TWO),
    Case("hypot", lambda a, b: a.hypot(b), lambda n, _: n.hypot, TWO),
    Case("copysign", lambda a: a.copysign(-1.0), lambda n, _: lambda x: n.copysign(x, -1.0), ONE),
    Case("xlogy", lambda a, b: a.xlogy(b), lambda _, j: j.scipy.special.xlogy, TWO, "positive"),
    unary("softshrink", None),
    unary("hardshrink", None),
    Case(
        "prelu",
        lambda a, b: a.prelu(b),
        None,
        [((3, 2), (2,)), *[((*s, 2, *r), (c,)) for s in ((1,), (3,)) for r in ((), (3,), (1, 2)) for c in (1, 2)]],
    ),
    unary("erf", lambda _, j: j.scipy.special.erf),
    unary("sigmoid", lambda _, j: j.nn.sigmoid),
    unary("logsigmoid", lambda _, j: j.nn.log_sigmoid),
    unary("relu", lambda _, j: j.nn.relu),
    unary("relu6", lambda _, j: j.nn.relu6),
    unary("leaky_relu", lambda _, j: lambda x: j.nn.leaky_relu(x, 0.01)),
    unary("elu", lambda _, j: j.nn.elu),
    unary("selu", lambda _, j: j.nn.selu),
    unary("silu", lambda _, j: j.nn.silu),
    unary("gelu", lambda _, j: lambda x: j.nn.gelu(x, approximate=False)),
    unary("gelu", lambda _, j: lambda x: j.nn.gelu(x, approximate=True), approximate="tanh"),
    unary("softplus", lambda _, j: j.nn.softplus),
    unary("mish", lambda _, j: j.nn.mish),
    unary("contiguous", lambda *_: lambda x: x),
    Case("casts", lambda x: (x * x).double() * x, lambda *_: lambda x: x * x * x, ONE),
    # reductions
    Case("sum", lambda x: x.sum(1), lambda n, _: lambda x: n.sum(x, 1), MATRICES),
    Case("sum of all", lambda x: x.sum() * 2, lambda n, _: lambda x: n.sum(x) * 2, ONE),
    Case("sum, axes kept", lambda x: x.sum((0, 1), keepdim=True) * x, None, MATRICES),
    Case("mean", lambda x: x.mean(0), lambda n, _: lambda x: n.mean(x, 0), MATRICES),
    Case("prod", lambda x: x.prod(1), lambda n, _: lambda x: n.prod(x, 1), MATRICES),
    Case("max", lambda x: x.amax(1), lambda n, _: lambda x: n.max(x, 1), MATRICES),
    Case("min of all", lambda x: x.min(), lambda n, _: n.min, MATRICES),
    Case("var", lambda x: x.var(), lambda n, _: lambda x: n.var(x, ddof=1), MATRICES),
    Case("std", lambda x: x.std(1), lambda n, _: lambda x: n.std(x, 1, ddof=1), WIDE),
    Case("logsumexp", lambda x: x.logsumexp(1), lambda _, j: lambda x: j.nn.logsumexp(x, 1), MATRICES),
    Case("softmax", lambda x: x.softmax(-1), lambda _, j: lambda x: j.nn.softmax(x, -1), MATRICES),
    Case("log_softmax", lambda x: x.log_softmax(1), lambda _, j: lambda x: j.nn.log_softmax(x, 1), MATRICES),
    Case("cumsum", lambda x: x.cumsum(1), lambda n, _: lambda x: n.cumsum(x, 1), MATRICES),
    Case("logcumsumexp", lambda x: x.logcumsumexp(1), lambda _, j: lambda x: j.lax.cumlogsumexp(x, 1), MATRICES),
    Case("cumprod", lambda x: x.cumprod(0), lambda n, _: lambda x: n.cumprod(x, 0), MATRICES),
    Case("norm", lambda x: x.norm(), lambda n, _: lambda x: n.sqrt(n.sum(x * x)), MATRICES),
    # movement
    Case("reshape", lambda x: x.reshape(-1) * 2, lambda n, _: lambda x: n.reshape(x, -1) * 2, MATRICES),
    Case("transpose", lambda x: x.transpose(0, 1), lambda n, _: lambda x: n.swapaxes(x, 0, 1), MATRICES),
    Case("expand", lambda x: x.unsqueeze(1).expand(x.shape[0], 4, *x.shape[1:]), None, MATRICES),
    Case("expand ones", lambda x: x.expand(3, 2, 2), None, [(s,) for s in SPREAD]),
    Case("pad", lambda x: x.pad((1, 2)), lambda n, _: lambda x: n.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 2)]), MATRICES),
    Case("flip", lambda x: x.flip(0), lambda n, _: lambda x: n.flip(x, 0), MATRICES),
    Case("roll", lambda x: x.roll(1, 1), lambda n, _: lambda x: n.roll(x, 1, 1), MATRICES),
    Case("slice", lambda x: x[:, 1:], lambda *_: lambda x: x[:, 1:], MATRICES),
    Case("strided slice", lambda x: x[::-1, ::2], lambda *_: lambda x: x[::-1, ::2], MATRICES),
    Case("integer and None", lambda x: x[0, None], lambda *_: lambda x: x[0, None], MATRICES),
    Case("cat", lambda a, b: Tensor.cat([a, b, a], dim=0), lambda n, _: lambda a, b: n.concatenate([a, b, a]), SAME),
    Case("stack", lambda a, b: Tensor.stack([a, b]), lambda n, _: lambda a, b: n.stack([a, b]), SAME),
    Case("split", lambda x: x.split(1, 1)[0] * x, None, MATRICES),
    Case("repeat", lambda x: x.repeat(*[2] * (x.ndim - 1), 3), None, MATRICES),
    Case("tril", lambda x: x.tril(), lambda n, _: n.tril, MATRICES),
    Case("unfold", lambda x: x.unfold(1, 2, 1), None, WIDE),
    Case("unfold with steps", lambda x: x.unfold(0, 1, 2), None, MATRICES),
    # indices
    Case("rows", lambda x: x[Tensor(INDEX)], lambda *_: lambda x: x[INDEX], THREE),
    Case("columns", lambda x: x[:, Tensor(INDEX)], lambda *_: lambda x: x[:, INDEX], COLUMNS),
    Case(
        "gather",
        lambda x: x.gather(1, Tensor(INDEX)),
        lambda n, _: lambda x: n.take_along_axis(x, INDEX, 1),
        [((2, n),) for n in range(3, 11)],
    ),
    Case(
        "two index arrays", lambda x: x[Tensor([1, 0, 1]), Tensor([0, 2, 0])], None, [c for c in COLUMNS if c[0][0] > 1]
    ),
    # products
    Case("matmul", lambda a, b: a @ b, lambda n, _: n.matmul, PRODUCTS),
    Case(
        "einsum",
        lambda a, b: Tensor.einsum("bij,bkj->bik", a, b),
        lambda n, _: lambda a, b: n.einsum("bij,bkj->bik", a, b),
        [((b, i, j), (b, k, j)) for b in (1, 2) for i, j, k in ((2, 3, 1), (1, 2, 2), (3, 1, 2), (2, 2, 2))],
    ),
]

IDS = [f"{i}-{c.name}" for i, c in enumerate(CASES)]


def arguments(case: Case, shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    rng = np.random.default_rng(len(case.name) + sum(map(len, shapes)))
    if case.domain == "positive":
        return [rng.uniform(0.5, 2.0, s) for s in shapes]
    if case.domain == "above one":
        return [rng.uniform(1.1, 3.0, s) for s in shapes]
    if case.domain == "inside":
        return [rng.uniform(-0.9, 0.9, s) for s in shapes]
    if case.domain == "probability":
        return [rng.uniform(0.1, 0.9, s) for s in shapes]
    if case.domain == "small":
        return [rng.uniform(-1.0, 1.0, s) for s in shapes]
    return [rng.standard_normal(s) for s in shapes]


def our_gradients(case: Case, arrays: list[Array], weight: Array) -> list[Array]:
    tensors = [Tensor(np.array(a), dtype="float64", requires_grad=True) for a in arrays]
    y = case.ours(*tensors)
    assert y.dtype.name == "float64"
    y.backward(Tensor(weight, dtype="float64"))
    grads = [t.grad for t in tensors]
    assert all(g is not None and g.shape == t.shape for g, t in zip(grads, tensors, strict=True))
    return evaluate([g.uop for g in grads if g is not None])


def weight_for(case: Case, arrays: list[Array]) -> Array:
    shape = case.ours(*[Tensor(a, dtype="float64") for a in arrays]).shape
    return np.asarray(np.random.default_rng(1).standard_normal(shape))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_central_differences(case: Case) -> None:
    for shapes in case.shapes:
        arrays = arguments(case, shapes)
        weight = weight_for(case, arrays)
        grads = our_gradients(case, arrays, weight)
        # All perturbed arguments at once: one graph per argument element, one evaluation for all of them.
        probes, h = [], 1e-6
        for k, a in enumerate(arrays):
            for place in np.ndindex(a.shape):
                for step in (h, -h):
                    moved = [np.array(x) for x in arrays]
                    moved[k][place] += step
                    probes.append(case.ours(*[Tensor(m, dtype="float64") for m in moved]).uop)
        sums = [float((v * weight).sum()) for v in evaluate(probes)]
        slopes = iter([(up - down) / (2 * h) for up, down in zip(sums[::2], sums[1::2], strict=True)])
        for k, (a, g) in enumerate(zip(arrays, grads, strict=True)):
            want = np.array([next(slopes) for _ in range(a.size)]).reshape(a.shape)
            np.testing.assert_allclose(g, want, rtol=1e-5, atol=1e-7, err_msg=f"{case.name} {shapes}, argument {k}")


@pytest.mark.parametrize("case", [c for c in CASES if c.jax], ids=[i for i, c in zip(IDS, CASES, strict=True) if c.jax])
def test_jax(case: Case) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        jnp = jax.numpy
        assert case.jax is not None
        theirs = case.jax(jnp, jax)
        # One shape: JAX compiles anew for each, and the central differences above take them all.
        for shapes in case.shapes[:1]:
            arrays = arguments(case, shapes)
            weight = weight_for(case, arrays)

            def pulled(*primals: Any, theirs: Any = theirs, weight: Array = weight) -> Any:
                return jax.vjp(theirs, *primals)[1](jnp.asarray(weight))

            wanted = jax.jit(pulled)(*arrays)  # compiled in one piece, not op by op
            for g, want in zip(our_gradients(case, arrays, weight), wanted, strict=True):
                np.testing.assert_allclose(g, np.asarray(want), rtol=1e-9, atol=1e-11, err_msg=f"{case.name} {shapes}")


SECOND: list[tuple[str, Function, tuple[int, ...]]] = [
    ("products", lambda x: (x * x * x).prod(1), (2, 3)),
    ("softmax", lambda x: x.softmax(1) * x, (2, 3)),
    ("layer norm", lambda x: F.layer_norm(x, 3), (2, 3)),
    ("rows", lambda x: x[Tensor(INDEX)] * x[Tensor(INDEX + 0)].exp(), (3, 2)),
    ("cross entropy", lambda x: F.cross_entropy(x, Tensor([2, 0])), (2, 3)),
    ("attention", lambda x: F.scaled_dot_product_attention(x, x * 2, x.sin(), is_causal=True), (3, 2)),
    ("convolution", lambda x: F.conv2d(x, x[:, :, :2, :2].sin(), padding=1).tanh(), (1, 1, 3, 3)),
    ("average pooling", lambda x: F.avg_pool2d(x * x, 2, 1).exp(), (1, 3, 3)),
    ("inverse functions", lambda x: x.atan() * x.asinh() + x.tanh().asin() + x.atan2(x * x + 0.5) + x.cbrt(), (4,)),
    ("gelu", lambda x: x.gelu("tanh") + x.gelu(), (4,)),
    ("matmul", lambda x: (x @ x.transpose(0, 1)).tanh(), (2, 3)),
]


@pytest.mark.parametrize(("name", "f", "shape"), SECOND, ids=[n for n, _, _ in SECOND])
def test_second_derivatives(name: str, f: Function, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, direction = rng.standard_normal(shape), rng.standard_normal(shape)
    weight = Tensor(rng.standard_normal(f(Tensor(x)).shape), dtype="float64")
    first = grad(lambda a: (f(a) * weight).sum())
    product = grad(lambda a: (first(a) * Tensor(direction)).sum())(Tensor(x))
    h = 1e-5
    up, down = evaluate([first(Tensor(x + h * direction)).uop, first(Tensor(x - h * direction)).uop])
    np.testing.assert_allclose(evaluate([product.uop])[0], (up - down) / (2 * h), rtol=1e-5, atol=1e-6, err_msg=name)


def test_every_differentiable_op_has_a_rule() -> None:
    """Whatever takes and gives floats either has a gradient rule, is flat, or stops gradients on purpose."""
    from anneal.transforms.gradient_rules import GRADIENT
    from anneal.transforms.walks import FLAT, STOPS

    integers = {Op.NOT, Op.IDIV, Op.MOD, Op.LT, Op.EQ, Op.NE, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR, Op.THREEFRY}
    others = {Op.REDUCE_AXIS, Op.GATHER, Op.SCATTER_ADD, Op.CONTIGUOUS}
    needed = (ALU | MOVEMENT | others) - integers - FLAT - STOPS
    assert needed <= set(GRADIENT), sorted(o.name for o in needed - set(GRADIENT))


RISING: list[Callable[[Tensor], Tensor]] = [
    lambda x: F.interpolate(x, (9, 4), mode="bilinear"),
    lambda x: F.interpolate(x, (5, 11), mode="bilinear", align_corners=True),
    lambda x: F.interpolate(x, (8, 3)),
    lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
    lambda x: F.adaptive_avg_pool2d(x, (9, 4)),
    lambda x: F.adaptive_max_pool2d(x, (3, 4)),
    lambda x: F.pad(x, (1, 2, 0, 3), mode="replicate"),
]


@pytest.mark.parametrize("number", range(len(RISING)))
def test_places_that_rise_are_read_back_without_a_scatter(number: int) -> None:
    """Windows and images in another size: each element reads the few places that read it."""
    f = RISING[number]
    x = Tensor(np.random.default_rng(number).normal(size=(2, 1, 7, 6)), requires_grad=True)
    loss = (f(x) ** 3).sum()
    loss.backward()
    assert not any(u.op is Op.SCATTER_ADD for u in toposort((x.grad.uop,)))
    check_grad(lambda x: f(x) ** 3, x.numpy())


@pytest.mark.parametrize("condition", [False, True])
def test_an_operand_that_a_constant_condition_leaves_out_has_a_gradient_of_zero(condition: bool) -> None:
    x, y = Tensor([1.0, 2.0], requires_grad=True), Tensor([[3.0, 4.0]] * 2, requires_grad=True)
    chosen = Tensor(condition).where(x, y)
    (chosen * chosen).sum().backward()
    taken, left = (x, y) if condition else (y, x)
    assert taken.grad is not None
    assert left.grad is not None
    assert left.grad.tolist() == np.zeros(left.shape).tolist()
    assert taken.grad.tolist() == (2 * taken.numpy() * (2 if condition else 1)).tolist()
    z = Tensor([1.0], requires_grad=True)
    Tensor(False).where(z, 2.0).sum().backward()
    assert z.grad is not None
    assert z.grad.tolist() == [0.0]
