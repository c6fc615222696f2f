"""Loops without jit with derivatives by a user's functions: a known round calls those, and makes nothing anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn, settings
from anneal.errors import GradientError
from anneal.nn import functional as F
from anneal.runtime import cache_statistics
from anneal.tensor import Tensor
from tests.runtime.test_eager_work import Work, warm

Fn = Callable[..., Any]
Step = Callable[[int], Any]
BATCHES = np.random.default_rng(0).standard_normal((8, 4, 6)).astype(np.float32)
LABELS = np.arange(4) % 3
Function = an.autograd.Function


class Quantised(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (x * 8).round() / 8

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


class Reversed(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g.neg() * ctx.scale, None


class Swish(Function):
    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        Swish.calls += 1
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return g * (s * (1 + x * (1 - s)))


class Wrapped(Function):
    """A loss that pulls the largest logits to zero, as RWKV has it."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return loss

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        (y,) = ctx.saved_tensors
        most, at = an.max(y, -1, keepdim=True)
        slope = an.zeros_like(y)
        slope.scatter_(-1, at, most * 1e-2)
        return g, slope


class Split(Function):
    """Two results of which one has no gradient as a rule, and arguments of other shapes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ctx.both = x, scale
        order = x.argsort(-1)
        return x * scale, x + scale, order

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor, _: Any) -> tuple[Any, Any]:
        x, scale = ctx.both
        assert ctx.needs_input_grad == (True, scale.requires_grad)
        return g * scale + h, g * x + h if ctx.needs_input_grad[1] else None  # a scale is broadcast


class Halved(Function):
    """A function whose backward reads its gradient, and branches on the value."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 0.5 if g.abs().sum().item() > 0 else g


class InNumPy(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return Tensor(np.tanh(x.numpy()))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return Tensor(g.numpy() * (1 - np.tanh(x.numpy()) ** 2))


class InPlace(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        g = g.clone()
        g.mul_(3)
        return g


class Through(Function):
    """A linear layer that adds to its weight's gradient by itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: nn.Linear) -> Tensor:
        ctx.layer = layer
        ctx.save_for_backward(x)
        return layer(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        with an.enable_grad():
            x = x.detach().requires_grad_()
            ctx.layer(x).backward(g)
        assert x.grad is not None
        return x.grad, None


class Reversible(Function):
    """A block whose argument is computed from its result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, f: nn.Linear, *weights: Tensor) -> Tensor:
        ctx.f, ctx.weights = f, weights
        a, b = x.chunk(2, -1)
        y = an.cat([a + f(b).tanh(), b], -1)
        ctx.save_for_backward(y.detach())
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        (y,) = ctx.saved_tensors
        (_, b), (ga, gb) = y.chunk(2, -1), g.chunk(2, -1)
        with an.enable_grad():
            b = b.detach().requires_grad_()
            grads = an.autograd.grad(ctx.f(b).tanh(), [b, *ctx.f.parameters()], ga)
        return an.cat([ga, gb + grads[0]], -1), None, *grads[1:]


class Rerun(Function):
    """It keeps a graph of its own, with the leaf that it begins with, and adds to the gradients of its weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: nn.Linear) -> Tensor:
        with an.enable_grad():
            x = x.detach().requires_grad_()
            y = layer(x)
        ctx.own = x, y
        return y.detach()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, None]:
        x, y = ctx.own
        y.backward(g)
        return x.grad, None


@an.custom_vjp
def clipped(x: Tensor) -> Tensor:
    return x * 3


clipped.defvjp(lambda x: (x * 3, None), lambda _, g: ((g * 3).clamp(-0.1, 0.1),))


def trained(
    act: Fn, after: Fn = lambda loss, y: loss, depth: int = 2, every: int = 1, read: Fn = lambda loss: None
) -> Step:
    """A step of training of a perceptron with this activation, whose loss `after` has."""
    an.manual_seed(0)
    layers = [nn.Linear(6, 6) for _ in range(depth)]
    head = nn.Linear(6, 3)
    weights = [p for layer in (*layers, head) for p in layer.parameters()]
    optimiser = an.optim.Adam(weights, 0.01)

    def step(n: int) -> list[float]:
        h = Tensor(BATCHES[n % 8])
        for layer in layers:
            h = act(layer(h))
        y = head(h)
        loss = after(F.cross_entropy(y, Tensor(LABELS)), y)
        read(loss)
        loss.backward()
        if n % every == every - 1:
            optimiser.step()
            optimiser.zero_grad()
        return [loss.item(), weights[0].sum().item()]

    return step


def residual() -> Step:
    return trained(lambda x: x.tanh() + Swish.apply(x.tanh()))


def shared() -> Step:
    """Two functions of which one is used several times, and weights that both parts read."""

    def act(x: Tensor) -> Tensor:
        a, b, order = Split.apply(x, x.mean())
        return a + Quantised.apply(x) * Split.apply(b, Tensor(2.0))[1] + order

    return trained(act)


def of_a_part() -> Step:
    return trained(lambda x: an.cat([Swish.apply(x[:, :2]), Quantised.apply(x[:, 2:])], -1))


def changing() -> Step:
    """A gradient that Python makes anew, with a number of the round."""
    turn = iter(range(1000))
    return trained(lambda x: Reversed.apply(x, 0.1 * next(turn)))


def through(call: Fn = Through.apply, read: Fn = lambda loss: None) -> Step:
    an.manual_seed(1)
    layer = nn.Linear(6, 6)
    rest, optimiser = trained(lambda x: call(x.tanh(), layer), read=read), an.optim.SGD(layer.parameters(), 0.1)

    def step(n: int) -> list[float]:
        found = rest(n)
        optimiser.step()
        optimiser.zero_grad()
        return [*found, layer.weight.sum().item()]

    return step


def reversible() -> Step:
    an.manual_seed(1)
    f = nn.Linear(3, 3)
    rest = trained(lambda x: Reversible.apply(x, f, *f.parameters()))
    optimiser = an.optim.SGD(f.parameters(), 0.1)

    def step(n: int) -> list[float]:
        found = rest(n)
        optimiser.step()
        optimiser.zero_grad()
        return [*found, f.weight.sum().item()]

    return step


def by_grad(weights: bool = False) -> Step:
    """Gradients of a loss by a batch, and by the weights, that `autograd.grad` takes."""
    an.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    optimiser = an.optim.SGD(net.parameters(), 0.1)

    def step(n: int) -> list[float]:
        x = Tensor(BATCHES[n % 8], requires_grad=True)
        loss = F.cross_entropy(net(x), Tensor(LABELS))
        leaves = [x, *net.parameters()] if weights else [x]
        slopes = an.autograd.grad(loss, leaves)
        assert x.grad is None
        if weights:
            for p, g in zip(net.parameters(), slopes[1:]):
                p.grad = g
            optimiser.step()
        return [loss.item(), *[g.sum().item() for g in slopes]]

    return step


def weighted() -> Step:
    """A backward with a gradient of the results, to some of the leaves."""
    w, k = (Tensor(BATCHES[n], requires_grad=True) for n in range(2))
    optimiser = an.optim.SGD([w, k], 0.01)

    def step(n: int) -> list[float]:
        y = Swish.apply(w * k)
        y.backward(Tensor(BATCHES[n % 8]), inputs=[w] if n % 2 else None)
        optimiser.step()
        found = [y.sum().item(), w.sum().item(), k.sum().item()]
        optimiser.zero_grad()
        return found

    return step


def hooked() -> Step:
    """Hooks on results: one that looks at a gradient, and one that replaces it."""
    seen: list[Any] = []

    def act(x: Tensor) -> Tensor:
        x.register_hook(lambda g: g.clamp(-0.1, 0.1))
        y = Swish.apply(x)
        y.register_hook(lambda g: seen.append(g.abs().max()))
        return y

    rest = trained(act)

    def step(n: int) -> list[float]:
        seen.clear()
        return [*rest(n), *[g.item() for g in seen]]

    return step


def of_leaves() -> Step:
    """A function of leaves themselves, and a leaf with a hook."""
    w = Tensor(BATCHES[0], requires_grad=True)
    k = Tensor(2.0, requires_grad=True)
    w.register_hook(lambda g: g * 2)
    optimiser = an.optim.SGD([w, k], 0.01)

    def step(n: int) -> list[float]:
        optimiser.zero_grad()
        a, b, _ = Split.apply(w, k)
        ((a - Tensor(BATCHES[n % 8])) ** 2 + Swish.apply(b)).sum().backward()
        optimiser.step()
        return [w.sum().item(), k.item()]

    return step


def again() -> Step:
    """Two gradients of one graph, of which the second one follows a change of a leaf."""
    w = Tensor(BATCHES[0], requires_grad=True)

    def step(n: int) -> list[float]:
        w.grad = None
        loss = (Swish.apply(w * 2) * Tensor(BATCHES[n % 8])).sum()
        loss.backward(retain_graph=True)
        with an.no_grad():
            w.mul_(0.9)
        loss.backward()
        assert w.grad is not None
        return [loss.item(), w.sum().item(), w.grad.sum().item()]

    return step


# programs whose rounds are known, with the same programs by ops alone
KNOWN: dict[str, tuple[Callable[[], Step], Callable[[], Step]]] = {
    "a quantiser": (
        lambda: trained(Quantised.apply),
        lambda: trained(lambda x: x + ((x * 8).round() / 8 - x).detach()),
    ),
    "a reversal": (lambda: trained(lambda x: Reversed.apply(x.tanh(), 0.5)), lambda: trained(Tensor.tanh)),
    "an activation": (lambda: trained(Swish.apply), lambda: trained(lambda x: x * x.sigmoid())),
    "beside its argument": (residual, lambda: trained(lambda x: x.tanh() + x.tanh() * x.tanh().sigmoid())),
    "a wrapped loss": (lambda: trained(Tensor.tanh, Wrapped.apply), lambda: trained(Tensor.tanh)),
    "a wrapped loss, read before": (
        lambda: trained(Tensor.tanh, Wrapped.apply, read=Tensor.item),
        lambda: trained(Tensor.tanh, read=Tensor.item),
    ),
    "of JAX's kind": (lambda: trained(clipped), lambda: trained(lambda x: x * 3)),
    "many": (lambda: trained(Swish.apply, depth=12), lambda: trained(lambda x: x * x.sigmoid(), depth=12)),
}
OTHERS: dict[str, Callable[[], Step]] = {
    "gradients of two rounds": lambda: trained(Swish.apply, every=2),
    "several results": shared,
    "of a part": of_a_part,
    "a number of the round": changing,
    "values that backward reads": lambda: trained(lambda x: Swish.apply(Halved.apply(Swish.apply(x)))),
    "in NumPy": lambda: trained(lambda x: Swish.apply(InNumPy.apply(Swish.apply(x)))),
    "an argument that it changes": lambda: trained(lambda x: Swish.apply(InPlace.apply(x * 2))),
    "a gradient inside": through,
    "a graph of its own": lambda: through(Rerun.apply),
    "hooks of results": hooked,
    "gradients inside": reversible,
    "slopes by a batch": by_grad,
    "slopes by weights": lambda: by_grad(True),
    "a backward with a gradient": weighted,
    "leaves": of_leaves,
    "a second gradient": again,
    "a captured layer beside": lambda: trained(an.jit(lambda x: x.tanh() * 2), Wrapped.apply),
    "captured": lambda: trained(an.jit(lambda x: Swish.apply(x) * 2)),
    "a checkpoint": lambda: trained(lambda x: an.utils.checkpoint.checkpoint(lambda x: Swish.apply(x) * 2, x)),
}
ALL = {name: own for name, (own, _) in KNOWN.items()} | OTHERS


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_round_costs_about_what_it_costs_without_the_function(name: str) -> None:
    work, before = (Work(warm(make()), range(6, 10)) for make in KNOWN[name])
    assert (work.plans, work.misses) == (0, 0)
    functions = 12 if name == "many" else 2
    assert work.nodes <= before.nodes + 2 * functions  # what stands for a call
    assert work.calls <= 1.2 * before.calls + 2 * 300 * functions  # of two rounds; ops of the function's own are there


@pytest.mark.parametrize("name", ALL)
def test_its_values_are_those_of_ops_that_are_never_late(name: str, device: str) -> None:
    step = ALL[name]()
    found = [step(n) for n in range(9)]
    with settings.override(replay=False), an.device("cpu"):
        step = ALL[name]()
        expected = [step(n) for n in range(9)]
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_a_graph_that_a_function_keeps_has_gradients_for_its_leaf_and_weights() -> None:
    calls = [Rerun.apply, lambda x, layer: an.jit(lambda x: Rerun.apply(x, layer))(x), lambda x, layer: layer(x)]
    steps = [through(call, read) for call in calls for read in (lambda loss: None, Tensor.item)]
    *found, expected = [[step(n) for n in range(9)] for step in steps]
    for one in found:
        np.testing.assert_allclose(one, expected, rtol=2e-4, atol=2e-5)


def test_no_plan_is_made_after_the_third_round() -> None:
    for name, make in ALL.items():
        step, made = make(), []
        for n in range(8):
            before = cache_statistics()[1]
            step(n)
            made.append(cache_statistics()[1] - before)
        assert made[5:] == [0] * 3, name


def test_backward_is_called_once_for_each_gradient() -> None:
    step = trained(lambda x: Swish.apply(x) + Halved.apply(Swish.apply(x)))
    for n in range(6):
        before = Swish.calls
        step(n)
        assert Swish.calls == before + 4


def test_an_error_of_backward_adds_no_gradient_and_the_loop_goes_on() -> None:
    failing = False

    class Failing(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            if failing:
                raise ValueError("no gradient today")
            return g * 2

    w = Tensor([1.0, 2.0], requires_grad=True)
    for n in range(8):
        failing = n % 3 == 2
        loss = (Failing.apply(Swish.apply(w)) * w).sum()
        w.grad = None
        if failing:
            with pytest.raises(ValueError, match="today"):
                loss.backward()
            assert w.grad is None
        else:
            loss.backward()
            assert w.grad is not None
            s = 1 / (1 + np.exp(-w.numpy()))
            slope = s * (1 + w.numpy() * (1 - s))
            np.testing.assert_allclose(w.grad.numpy(), 2 * w.numpy() * (s + slope), rtol=1e-5)


def test_what_backward_keeps_has_its_values_in_later_rounds() -> None:
    kept: list[Tensor] = []

    class Keeping(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            kept.extend((g, ctx.saved_tensors[0] * g))
            return g * 2

    w = Tensor([1.0, 2.0], requires_grad=True)
    for n in range(6):
        w.grad = None
        (Keeping.apply(w + n) * (n + 1)).sum().backward()
        with an.no_grad():
            w += 1
        w.numpy()
    for n in range(6):
        np.testing.assert_array_equal(kept[2 * n].numpy(), np.full(2, n + 1.0))
        np.testing.assert_array_equal(kept[2 * n + 1].numpy(), (np.array([1.0, 2.0]) + 2 * n) * (n + 1))


@pytest.mark.parametrize("make", [by_grad, lambda: by_grad(True), weighted, reversible])
def test_a_known_round_makes_no_gradient_anew(make: Callable[[], Step]) -> None:
    work = Work(warm(make(), 8), range(8, 16))
    assert (work.plans, work.misses) == (0, 0)
    assert work.nodes <= 4 * (90 if make is reversible else 12)  # a leaf that is computed has nodes of its own
    # 16,000 without; a file whose tests used other features before makes 2% more
    assert work.calls <= 4 * (2700 if make is reversible else 1250)


def test_what_functions_add_to_leaves_stays_where_gradients_are_taken_and_not_added() -> None:
    an.manual_seed(0)
    layer, w = nn.Linear(6, 6), Tensor(BATCHES[0], requires_grad=True)
    for n in range(5):
        w.grad, layer.weight.grad = Tensor.ones(4, 6), None
        x = Tensor(BATCHES[n], requires_grad=True)
        slopes = an.autograd.grad((Through.apply(w * x, layer) * layer.weight.sum()).sum(), [w, layer.weight])
        np.testing.assert_array_equal(w.grad.numpy(), np.ones((4, 6)))
        assert layer.weight.grad is not None
        scale, rows = layer.weight.sum().item(), (w * x).sum(0).numpy()
        np.testing.assert_allclose(layer.weight.grad.numpy(), np.tile(scale * rows, (6, 1)), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            slopes[0].numpy(), scale * x.numpy() * layer.weight.numpy().sum(0), rtol=1e-4, atol=1e-4
        )


def test_leaves_that_nothing_depends_on_have_no_gradient_in_known_rounds() -> None:
    w, k = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0], requires_grad=True)
    for _ in range(5):
        y = (Swish.apply(w) * 2).sum()
        assert an.autograd.grad(y, [w, k], allow_unused=True)[1] is None
        assert an.autograd.grad(y, [k, w], materialize_grads=True)[0].tolist() == [0.0]
        with pytest.raises(GradientError, match="no output depends"):
            an.autograd.grad(y, k)


class Sign(Function):
    """Its backward is not linear: called for parts of a sum, it would give other gradients."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor | None:
        Sign.calls += 1
        return None if Sign.calls == 5 else g.sign()


@pytest.mark.parametrize("joined", [True, False])
def test_a_function_before_a_captured_call_has_the_sum_of_its_cotangents(joined: bool) -> None:
    x, captured = Tensor(BATCHES[0], requires_grad=True), an.jit(lambda y, z: y.tanh() + z)
    Sign.calls = 6
    for n in range(10):
        x.grad = None
        y = Sign.apply(x)
        z = captured(y, Tensor(BATCHES[n % 8]))
        if joined or n % 3:
            z = z * 1
        (z.sum() - 3 * y.sum() + (y * BATCHES[n % 8]).sum()).backward()
        assert Sign.calls == n + 7
        sums = 1 - np.tanh(2 * BATCHES[0]) ** 2 - 3 + BATCHES[n % 8]
        np.testing.assert_array_equal(x.grad.numpy(), np.sign(sums))  # type: ignore[attr-defined]


def test_a_pass_in_which_no_leaf_has_a_gradient_calls_functions_once() -> None:
    w = Tensor(BATCHES[0], requires_grad=True)
    for n in range(9):
        Sign.calls = 4 if n % 2 else 5
        y = (Sign.apply(w * 2) * 3).tanh()
        y.retain_grad()
        before, w.grad = Sign.calls, None
        y.sum().backward(inputs=[w])
        assert Sign.calls == before + 1
        np.testing.assert_array_equal(y.grad.numpy(), np.ones((4, 6)))
        assert (w.grad is None) is bool(n % 2)
