"""In-place ops: a tensor has an identity, which all of its names share; values and gradients beside torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal import autograd, nn
from anneal.errors import DTypeError, GradientError, JitError, ShapeError
from anneal.tensor import Tensor, grad, jit, jvp, no_grad, vmap
from tests.helpers import check_kernels, optional

torch = optional("torch")

A, B = [[1.5, -2.0, 0.25], [4.0, 3.0, -1.0]], [[0.5, 1.0, 2.0], [3.0, -1.5, 0.75]]


def both(program: Callable[[Any, Any], Any]) -> None:
    """`program(library, make)` in torch and here, with `make(values, **options)` for tensors."""
    theirs = program(torch, torch.tensor)
    ours = program(Here, Tensor)
    for a, b in zip(ours, theirs, strict=True):
        want = b.detach().numpy()
        assert str(a.dtype).removeprefix("dtypes.") == str(b.dtype).removeprefix("torch.")
        assert (a.requires_grad, a.is_leaf) == (b.requires_grad, b.is_leaf)
        np.testing.assert_allclose(a.numpy(), want, rtol=1e-6)


class Here:
    no_grad = no_grad


def names_share(lib: Any, make: Any) -> Any:
    a = make(A)
    b = a
    b += 1
    assert a is b
    a *= make(B)
    return a, b


def operators(lib: Any, make: Any) -> Any:
    floats, whole, bits = [make(A) for _ in range(6)], [make([7, -7, 5]) for _ in range(6)], make([True, False])
    floats[0] += 2
    floats[1] -= make(B)
    floats[2] *= 0.5
    floats[3] /= make([2.0, 4.0, 8.0])
    floats[4] %= 1.5
    floats[5] **= 2
    whole[0] //= 2
    whole[1] %= 3
    whole[2] &= 6
    whole[3] |= 8
    whole[4] ^= 5
    whole[5] <<= 2
    whole[5] >>= 1
    bits &= make([True, True])
    return *floats, *[w.to(lib.int32) if lib is torch else w for w in whole], bits


def methods(lib: Any, make: Any) -> Any:
    x = [make(A) for _ in range(9)]
    x[0].add_(make(B), alpha=2).sub_(1, alpha=3)
    x[1].mul_(make(B)).div_(2)
    x[2].div_(0.75, rounding_mode="floor")
    x[3].clamp_(-1, 2)
    x[4].clamp_(min=make(B))
    x[5].copy_(make([1, 2, 3]))
    x[6].fill_(3)
    x[7].zero_()
    x[8].lerp_(make(B), 0.25)
    return x


def a_gradient_goes_through(lib: Any, make: Any) -> Any:
    w = make(A, requires_grad=True)
    x = w * 2
    x += w * w
    x *= 3
    x.sub_(w.exp())
    x.sum().backward()
    return w.grad, x, w


def a_gradient_goes_to_what_was_added(lib: Any, make: Any) -> Any:
    w = make(B, requires_grad=True)
    x = make(A)
    x += w * w
    y = make(A)
    y.copy_(w)
    z = make(A)
    z.fill_(w.sum())
    (x * 2 + y * y + z).sum().backward()
    return w.grad, x, y, z


def a_parameter_changes_without_a_gradient(lib: Any, make: Any) -> Any:
    w = make(A, requires_grad=True)
    (w * w).sum().backward()
    with lib.no_grad():
        w -= w.grad * 0.1
        w.mul_(0.5)
    w.grad.zero_()
    (w * w).sum().backward()
    return w, w.grad


def a_result_changes_without_a_record(lib: Any, make: Any) -> Any:
    w = make(A, requires_grad=True)
    x = w * 2
    with lib.no_grad():
        x += 1
    x.sum().backward()
    return w.grad, x


def gradients_add_up_in_place(lib: Any, make: Any) -> Any:
    w = make(A, requires_grad=True)
    (w * w).sum().backward()
    kept = w.grad
    kept += 1
    return w.grad, kept


@pytest.mark.parametrize(
    "program",
    [
        names_share,
        operators,
        methods,
        a_gradient_goes_through,
        a_gradient_goes_to_what_was_added,
        a_parameter_changes_without_a_gradient,
        a_result_changes_without_a_record,
        gradients_add_up_in_place,
    ],
)
def test_as_torch_does(program: Callable[[Any, Any], Any]) -> None:
    both(program)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "add_": lambda x: x.add_(1.0),
    "sub_": lambda x: x.sub_(1.0),
    "mul_": lambda x: x.mul_(2.0),
    "div_": lambda x: x.div_(2.0),
    "clamp_": lambda x: x.clamp_(0.0),
    "lerp_": lambda x: x.lerp_(2.0 * x.detach(), 0.5),
    "copy_": lambda x: x.copy_(x.detach()),
    "fill_": lambda x: x.fill_(2.0),
    "zero_": lambda x: x.zero_(),
    "+=": lambda x: x.__iadd__(1.0),
    "-=": lambda x: x.__isub__(1.0),
    "*=": lambda x: x.__imul__(1.0),
    "/=": lambda x: x.__itruediv__(2.0),
    "//=": lambda x: x.__ifloordiv__(2.0),
    "%=": lambda x: x.__imod__(2.0),
    "**=": lambda x: x.__ipow__(2.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_leaf_is_not_changed_while_gradients_are_recorded(change: str) -> None:
    w = Tensor(A, requires_grad=True)
    with pytest.raises(GradientError, match="a leaf that requires a gradient cannot be changed in place"):
        CHANGES[change](w)
    assert w.tolist() == A
    with no_grad():
        assert CHANGES[change](w) is w
    assert w.requires_grad
    assert w.is_leaf
    torch_w = torch.tensor(A, requires_grad=True)
    if hasattr(torch_w, change) or change != "//=":
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            CHANGES[change](torch_w)


def test_the_gradient_of_x_plus_a_function_of_x_uses_the_old_node() -> None:
    """torch refuses it where the function keeps x; nodes do not change, so it is right here."""
    w = Tensor([0.5, -1.0], requires_grad=True)
    x = w * 2
    x += x.sin() * x
    x.sum().backward()
    v = np.array([1.0, -2.0])
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), 2 * (1 + np.cos(v) * v + np.sin(v)), rtol=1e-6)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize(
    "write",
    [
        lambda y, s: y.__setitem__(slice(None), s),
        lambda y, s: y.__setitem__(Ellipsis, s[:]),
        lambda y, s: y.view(3).__setitem__(slice(0, 3), s.view(3)),
        lambda y, s: y.copy_(s),
        lambda y, s: y.zero_().add_(s),
        lambda y, s: y.slice_scatter(s),
        lambda y, s: y.unsqueeze(0).select_scatter(s, 0, 0),
        lambda y, s: s.clone().unsqueeze_(0),
        lambda y, s: (s * 1).unsqueeze_(0).squeeze_(0),
    ],
)
def test_a_gradient_goes_through_a_tensor_that_took_a_whole_leaf(write: Callable[..., Any], computed: bool) -> None:
    # what is written is the leaf's memory, of which no node has to be computed
    s = Tensor([1.0, 2.0, 3.0])
    s = (s.realize() if computed else s).requires_grad_()
    for y in (Tensor([4.0, 5.0, 6.0], requires_grad=True) * 2, Tensor.zeros(3)):
        out = write(y, s)
        (slope,) = autograd.grad(((y if out is None else out) ** 2).sum(), [s])
        assert slope.flatten().tolist() == [2.0, 4.0, 6.0]


def test_what_was_computed_before_keeps_its_values_and_views_do_not() -> None:
    x = Tensor([1.0, 2.0, 3.0])
    y, view, same, copy = x * 10, x[1:], x.detach(), x.clone()
    x += 100
    assert (y.tolist(), view.tolist(), same.tolist()) == ([10.0, 20.0, 30.0], [102.0, 103.0], [101.0, 102.0, 103.0])
    assert copy.tolist() == [1.0, 2.0, 3.0]
    other = x
    x = x + 1  # a new tensor under the name
    assert other.tolist() == [101.0, 102.0, 103.0]


def test_memory_is_not_shared_with_what_was_copied() -> None:
    a, b = Tensor([1.0, 2.0]).realize(), Tensor([5.0, 6.0]).realize()
    a.copy_(b)
    b += 1
    one = Tensor.ones(2)
    one *= a  # folds to the node of `a`
    a.zero_()
    assert (a.tolist(), b.tolist(), one.tolist()) == ([0.0, 0.0], [6.0, 7.0], [5.0, 6.0])


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda x: x.add_(Tensor([[1.0], [2.0]])), ShapeError, r"add_: the result has shape \(2, 3\)"),
        (lambda x: x.__imul__(Tensor([[1.0], [2.0]])), ShapeError, r"mul_: the result has shape \(2, 3\)"),
        (lambda x: x.copy_(Tensor([1.0, 2.0])), ShapeError, r"copy_: .*do not broadcast"),
        (lambda x: x.copy_(Tensor([[1.0], [2.0]])), ShapeError, r"copy_: values of shape \(2, 1\) do not fit"),
        (lambda x: x.fill_(Tensor([1.0])), ShapeError, "fill_: the value is one number"),
        (lambda x: x.int().add_(0.5), DTypeError, "add_: the result is float32, which a tensor of int32"),
        (lambda x: x.int().__itruediv__(2), DTypeError, "div_: the result is float32"),
        (lambda x: x.bool().add_(1), DTypeError, "add_: the result is int32, which a tensor of bool"),
        (lambda x: x.add_("1"), DTypeError, "add_: takes a tensor, an array or a number"),
    ],
)
def test_what_does_not_fit_is_an_error(change: Callable[[Tensor], Any], error: type[Exception], said: str) -> None:
    x = Tensor([1.0, 2.0, 3.0])
    with pytest.raises(error, match=said):
        change(x)
    assert x.tolist() == [1.0, 2.0, 3.0]


def test_a_parameter_stays_one() -> None:
    layer = nn.Linear(2, 1, bias=False)
    weight = layer.weight
    with no_grad():
        layer.weight.fill_(1.0)
        weight *= 3
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.weight is weight
    assert list(layer.parameters())[0] is weight
    assert layer(Tensor([[1.0, 2.0]])).item() == 9.0


def test_it_costs_no_kernel() -> None:
    def residual(x: Tensor) -> Tensor:
        x += x.tanh()
        x *= 2
        return x

    check_kernels(residual(Tensor(A).realize() * 1.5), 1)


def test_in_jit() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)

    @jit
    def step(x: Tensor) -> Tensor:
        h = x * w
        h += h.tanh()
        loss = (h * h).sum()
        w.zero_grad()
        loss.backward()
        with no_grad():
            w.sub_(w.grad * 0.1)
        return loss

    tw = torch.tensor([1.0, 2.0], requires_grad=True)
    for i in range(6):
        x = [1.0 + i, 0.5]
        h = torch.tensor(x) * tw
        h = h + h.tanh()
        loss = (h * h).sum()
        (g,) = torch.autograd.grad(loss, tw)
        with torch.no_grad():
            tw -= g * 0.1
        assert step(Tensor(x)).item() == pytest.approx(loss.item(), rel=1e-4)
        np.testing.assert_allclose(w.numpy(), tw.detach().numpy(), rtol=1e-4)
    assert len(step.captures) == 1
    assert not step.recaptures


def test_a_counter_beside_jit_does_not_outdate_it() -> None:
    double = jit(lambda x: x * 2)
    total, kept = Tensor(0.0), []
    for i in range(6):
        out = double(Tensor([float(i)]))
        total += out.sum()
        out += 100
        kept.append(out)
    assert total.item() == 30.0
    assert [t.item() for t in kept] == [100.0 + 2 * i for i in range(6)]
    assert not double.recaptures


def test_state_that_a_jit_function_reads_may_change_in_place() -> None:
    bias = Tensor([1.0]).realize()
    f = jit(lambda x: x + bias)
    assert [f(Tensor([0.0])).item() for _ in range(3)] == [1.0] * 3
    bias += 5
    assert [f(Tensor([0.0])).item() for _ in range(3)] == [6.0] * 3


def test_the_argument_of_a_jit_function_may_not_change() -> None:
    @jit
    def f(x: Tensor) -> Tensor:
        x += 1
        return x

    with pytest.raises(JitError, match=r"changed it in place; return the new value"):
        f(Tensor([1.0]))


def test_in_transforms_the_callers_tensor_stays() -> None:
    def f(x: Tensor) -> Tensor:
        x += 1
        y = x.sin()
        y *= x
        return y.sum()

    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    v = x.numpy().astype(np.float64) + 1
    slopes = np.cos(v) * v + np.sin(v)
    np.testing.assert_allclose(grad(f)(x).numpy(), slopes, rtol=1e-5)
    examples = x.clone()
    np.testing.assert_allclose(vmap(f)(examples).numpy(), (np.sin(v) * v).sum(1), rtol=1e-5)
    np.testing.assert_array_equal(examples.numpy(), v)  # but for vmap's, as in torch
    np.testing.assert_allclose(vmap(grad(f))(x).numpy(), slopes, rtol=1e-5)
    np.testing.assert_allclose(jvp(f, (x,), (x,))[1].numpy(), (slopes * (v - 1)).sum(), rtol=1e-5)
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
