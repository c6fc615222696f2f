"""`grad_fn`, `.grad` of what is no leaf, in-place ops that change a shape, the room `compiler`: as torch has them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.errors import GradientError, ShapeError
from anneal.runtime import JitError

F = an.nn.functional


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda x: x + 1, "AddBackward0"),
        (lambda x: 2 * x, "MulBackward0"),
        (lambda x: x / 2, "DivBackward0"),
        (lambda x: x - x * 2, "SubBackward0"),
        (lambda x: x @ x, "MmBackward0"),
        (lambda x: x.sum(), "SumBackward0"),
        (lambda x: x.mean(), "MeanBackward0"),
        (lambda x: x.exp(), "ExpBackward0"),
        (lambda x: x**2, "PowBackward0"),
        (lambda x: x.reshape(-1), "ViewBackward0"),
        (lambda x: F.linear(x, x, x[0]), "AddmmBackward0"),
        (lambda x: F.mse_loss(x, x * 2), "MseLossBackward0"),
        (lambda x: F.softmax(x, 0), "SoftmaxBackward0"),
    ],
)
def test_the_name_of_a_function(make: Callable[[Any], Any], name: str) -> None:
    x = an.ones(2, 2, requires_grad=True)
    for y in (make(x), make(x)):
        assert (y.grad_fn.name(), repr(y.grad_fn), y.grad_fn.next_functions[0][1]) == (name, f"<{name}>", 0)
        y.tolist()
        assert y.grad_fn.name() == name
        assert y.detach().grad_fn is None
    assert x.grad_fn is None


def names(f: Any) -> Any:
    return f.name(), [names(g) for g, _ in f.next_functions]


@pytest.mark.parametrize("computed", [False, True])
def test_the_functions_before_a_function(computed: bool) -> None:
    one, two = an.nn.Linear(2, 3), an.nn.Linear(3, 1)
    hidden = one(an.ones(1, 2)).relu()
    if computed:
        hidden.tolist()
    loss = F.mse_loss(two(hidden), an.zeros(1, 1))
    leaf = ("torch::autograd::AccumulateGrad", [])
    first = ("AddmmBackward0", [leaf, leaf])
    assert names(loss.grad_fn) == ("MseLossBackward0", [("AddmmBackward0", [("ReluBackward0", [first]), leaf, leaf])])
    step = loss.grad_fn.next_functions[0][0].next_functions[0][0].next_functions[0][0]
    assert {id(f.variable) for f, _ in step.next_functions} == {id(one.weight), id(one.bias)}
    assert repr(step.next_functions[0][0]) == "<AccumulateGrad>"


def test_a_variable_is_a_leaf_of_the_same_values() -> None:
    Variable = an.autograd.Variable
    x = an.ones(2, requires_grad=True)
    v, w = Variable(x * 2, requires_grad=True), Variable(x)
    assert (v.is_leaf, v.requires_grad, w.requires_grad) == (True, True, False)
    assert isinstance(x, Variable)
    assert not isinstance(2, Variable)
    assert w.data_ptr() == x.data_ptr()
    assert Variable().shape == (0,)
    with pytest.warns(UserWarning, match="volatile has no effect"):
        assert Variable(x, volatile=True).tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="the data is a tensor, not int"):
        Variable(3)
    with pytest.warns(UserWarning, match="only_inputs"):
        assert an.autograd.grad(v.sum(), v, only_inputs=False)[0].tolist() == [1.0, 1.0]


def test_data_ptr_tells_who_shares_values() -> None:
    x = an.arange(6.0).reshape(2, 3) + 0
    same = [x.view(-1), x.detach(), x.data, x[0], x.T, x[:, :2]]
    assert {t.data_ptr() for t in same} == {x.data_ptr()}
    assert x[1].data_ptr() == x.view(-1)[3:].data_ptr() == x.data_ptr() + 12
    others = [x.clone(), x + 0, x[[0, 1]], x.T.reshape(-1)]
    assert len({t.data_ptr() for t in [x, *others]}) == 5
    assert x[:0].data_ptr() == 0
    p = an.nn.Parameter(x)
    p.data = x[1]
    assert p.data_ptr() == x[1].data_ptr()


def test_set_shows_the_source() -> None:
    x, p = an.arange(3.0) + 0, an.nn.Parameter(an.zeros(2, 2))
    with pytest.raises(GradientError, match="a leaf that requires a gradient"):
        p.set_(x)
    with an.no_grad():
        assert p.set_(x) is p
        assert p.data_ptr() == x.data_ptr()
    x[0] = 9
    assert p.tolist() == [9.0, 1.0, 2.0]
    assert p.requires_grad
    (p * x).sum().backward()
    assert p.grad is not None
    assert p.grad.tolist() == [9.0, 1.0, 2.0]
    with pytest.raises(TypeError, match="becomes no view of one of int32"):
        x.set_(an.arange(3))
    with pytest.raises(GradientError, match="no gradient flows to the source"):
        x.set_(p * 2)


def test_a_function_of_the_users_has_its_name() -> None:
    class Twice(an.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    assert repr(Twice.apply(an.ones(2, requires_grad=True)).grad_fn) == "<TwiceBackward>"


def test_the_gradient_of_what_is_no_leaf_is_a_warning() -> None:
    x = an.ones(2, requires_grad=True)
    y = x * 2
    with pytest.warns(UserWarning, match="no leaf"):
        assert y.grad is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = x * 2
        y.retain_grad()
        assert y.grad is None
        y.sum().backward()
        assert y.grad is not None
        assert x.grad is not None
        assert an.ones(2).grad is None
        z = x * 2
        (z * z).sum().backward(inputs=[z])
        assert z.grad is not None
        assert z.grad.tolist() == [4.0, 4.0]


@pytest.mark.parametrize(
    ("change", "shape"),
    [
        (lambda x: x.unsqueeze_(0), (1, 2, 1, 3)),
        (lambda x: x.unsqueeze_(-1), (2, 1, 3, 1)),
        (lambda x: x.squeeze_(), (2, 3)),
        (lambda x: x.squeeze_(1).t_(), (3, 2)),
        (lambda x: x.transpose_(0, 2), (3, 1, 2)),
        (lambda x: x.swapaxes_(0, 1), (1, 2, 3)),
        (lambda x: x.swapdims_(1, 2), (2, 3, 1)),
    ],
)
def test_ops_in_place_that_change_the_shape(change: Callable[[Any], Any], shape: tuple[int, ...], device: str) -> None:
    for computed in (False, True):
        x = (an.arange(6.0, device=device) * 2).reshape(2, 1, 3).clone()
        x = x.realize() if computed else x
        y = x + 0
        assert change(x) is x
        assert tuple(x.shape) == shape
        x += 1
        np.testing.assert_array_equal(np.sort(x.numpy(), None), np.arange(6) * 2 + 1)
        assert tuple(y.shape) == (2, 1, 3)
    for read, slope in ((lambda w: w * 3, 18), (lambda w: w.clone(), 2), (lambda w: w * 1, 2)):
        w = an.ones(2, 1, 3, device=device, requires_grad=True)
        x = read(w)
        change(x)
        (x * x).sum().backward()
        assert w.grad is not None
        assert w.grad.tolist() == (w.detach() * slope).tolist()


def test_the_shape_of_views_and_leaves_stays() -> None:
    x = an.zeros(2, 3)
    v = x[0]
    for t in (x, v):
        with pytest.raises(ShapeError, match="is a view, or of which there are views"):
            t.unsqueeze_(0)
    with pytest.raises(GradientError, match="keeps its shape"):
        an.ones(2, requires_grad=True).unsqueeze_(0)

    outer = an.zeros(2)

    @an.jit
    def f(y: Any) -> Any:
        outer.unsqueeze_(0)
        return y + outer

    with pytest.raises(JitError, match="unsqueeze_"):
        for _ in range(3):
            f(an.ones(2))


def test_the_room_compiler() -> None:
    c = an.compiler
    c.reset()
    c.cudagraph_mark_step_begin()
    seen = []

    @an.jit
    @c.disable(recursive=False)
    @c.disable
    @c.allow_in_graph
    def f(x: Any) -> Any:
        seen.append(c.is_compiling()) if len(seen) < 9 else None
        return x * 2

    assert [f(an.ones(1) * i).item() for i in range(4)] == [0.0, 2.0, 4.0, 6.0]
    assert not c.is_compiling()
    assert not c.is_exporting()
