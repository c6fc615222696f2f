"""Transforms of functions that give views of what they change: a view shows what its tensor holds at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from anneal.errors import TransformError
from anneal.tensor import Tensor, grad, jacfwd, jacrev, jvp, vjp, vmap
from anneal.transforms.loops import cond, fori_loop, scan, while_loop

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def rows(x: Tensor) -> Tensor:
    y = x * 1
    z = y[1:]
    y *= 2
    return z


def turned(x: Tensor) -> Tensor:
    y = x.clone()
    z = y.T
    y[0] = y[1] * 3
    return z


def flat(x: Tensor) -> Tensor:
    y = x + 0
    z = y.view(-1)
    y.T[1].mul_(x[0, 0])
    return z


def of_view(x: Tensor) -> Tensor:
    y = x * 1
    z = y[1:][0, 1:]
    y[1].exp_()
    return z


def copied(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """`f` whose result is the result of an op, for which nothing is special."""
    return lambda x: f(x) + 0


def both(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Any]:
    """`f` whose result is two views of one tensor."""

    def two(x: Tensor) -> tuple[Tensor, Tensor]:
        z = f(x)
        return z, z[:1]

    return two


@pytest.mark.parametrize("f", [rows, turned, flat, of_view])
def test_derivatives_of_a_view_that_was_outdated_are_those_of_its_copy(f: Callable[[Tensor], Tensor]) -> None:
    x, plain = Tensor(X), copied(f)
    for (y, pushed), (y2, pushed2) in [
        (jvp(f, (x,), (x + 1,)), jvp(plain, (x,), (x + 1,))),
        (jvp(both(f), (x,), (x + 1,)), jvp(both(plain), (x,), (x + 1,))),
    ]:
        for a, b in zip((*y, *pushed), (*y2, *pushed2), strict=True):
            assert a.tolist() == b.tolist()
    y, pull = vjp(f, x)
    y2, pull2 = vjp(plain, x)
    assert pull(y2)[0].tolist() == pull2(y2)[0].tolist()
    assert pull(y2)[0].abs().sum().item() > 0
    for derivative in (jacrev, jacfwd):
        assert derivative(f)(x).tolist() == derivative(plain)(x).tolist()
    slope = grad(lambda x: f(x).reshape(-1)[0])(x)
    assert slope.tolist() == grad(lambda x: plain(x).reshape(-1)[0])(x).tolist()


@pytest.mark.parametrize("f", [rows, turned, flat, of_view])
def test_vmap_and_loops_give_a_view_that_was_outdated(f: Callable[[Tensor], Tensor]) -> None:
    x, many = Tensor(X), Tensor(np.stack([X, X + 1, X * 2]))
    assert vmap(f)(many).tolist() == [f(t).tolist() for t in many]
    assert [t.tolist() for t in vmap(both(f))(many)] == [
        [f(t).tolist() for t in many],
        [f(t)[:1].tolist() for t in many],
    ]
    assert cond(x.sum() > 0, f, copied(f), x).tolist() == f(x).tolist()
    assert scan(lambda c, t: (c, f(t + c)), x, many)[1].tolist() == [f(t + x).tolist() for t in many]


def test_a_carry_may_be_a_view_that_was_outdated() -> None:
    x, twice = Tensor(X), turned(turned(Tensor(X))).tolist()
    assert fori_loop(0, 2, lambda i, c: turned(c), x).tolist() == twice
    assert while_loop(lambda s: s[1] < 2, lambda s: (turned(s[0]), s[1] + 1), (x, Tensor(0)))[0].tolist() == twice


def test_what_outlives_a_call_may_not_hold_values_of_examples_though_a_view_of_it_is_given() -> None:
    kept: list[Tensor] = []

    def keeps(x: Tensor) -> Tensor:
        y = x * 1
        kept.append(y)
        z = y[1:]
        y *= 2
        return z

    buffer = Tensor.zeros(2, 2).contiguous()

    def fills(x: Tensor) -> Tensor:
        buffer[0] = x[0]
        return buffer[1:]

    for f in (keeps, fills):
        with pytest.raises(TransformError, match="outlives the call"):
            vmap(f)(Tensor(X)[None])


def test_a_view_of_a_tensor_outside_stays_one() -> None:
    buffer = Tensor.zeros(2, 2).contiguous()
    view = buffer[1:]

    def reads(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + view, view

    vmap(reads, out_axes=(0, None))(Tensor(X))
    buffer += 1
    assert view.tolist() == [[1.0, 1.0]]
