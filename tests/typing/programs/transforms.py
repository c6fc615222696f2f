"""Transforms of functions: parameters stay, and gradients are of the type of what is differentiated."""

from __future__ import annotations

from typing import NamedTuple, assert_type

from anneal import nn
from anneal.tensor import Tensor, functional as F, grad, hessian, jacfwd, jacrev, jit, jvp, value_and_grad, vjp, vmap

Params = dict[str, Tensor]


class Line(NamedTuple):
    slope: Tensor
    offset: Tensor


def loss(params: Params, x: Tensor, y: Tensor, *, weight: float = 1.0) -> Tensor:
    return F.mse_loss(F.linear(x, params["w"], params["b"]), y) * weight


def of_line(line: Line, x: Tensor) -> Tensor:
    return (line.slope * x + line.offset).sum()


def with_scores(params: Params, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    out = F.linear(x, params["w"])
    return out.sum(), [out]


def square(x: Tensor) -> Tensor:
    return x * x


def total(x: Tensor) -> Tensor:
    return (x * x).sum()


params = {"w": Tensor.ones(1, 2), "b": Tensor.ones(1)}
x, y = Tensor.ones(3, 2), Tensor.ones(3, 1)
line = Line(Tensor(1.0), Tensor(2.0))

# Reverse mode.
grads = grad(loss)(params, x, y, weight=0.5)
assert_type(grads, Params)
new = {name: p - 0.1 * grads[name] for name, p in params.items()}
assert_type(new, Params)
assert_type(grad(loss, argnums=1)(params, x, y), Tensor)
assert_type(grad(loss, (0, 1))(params, x, y), tuple[Params, Tensor])
assert_type(grad(of_line)(line, x), Line)
assert_type(grad(with_scores, has_aux=True)(params, x), tuple[Params, list[Tensor]])
assert_type(value_and_grad(loss)(params, x, y=y), tuple[Tensor, Params])
assert_type(value_and_grad(loss, argnums=(0, 1, 2))(params, x, y), tuple[Tensor, tuple[Params, Tensor, Tensor]])
assert_type(value_and_grad(with_scores, has_aux=True)(params, x), tuple[tuple[Tensor, list[Tensor]], Params])
value, pull = vjp(square, x)
assert_type(value, Tensor)
assert_type(pull(value), tuple[Tensor])
assert_type(vjp(of_line, line, x)[1](Tensor(1.0)), tuple[Line, Tensor])
assert_type(vjp(with_scores, params, x, has_aux=True)[2], list[Tensor])

# Forward mode.
assert_type(jvp(of_line, (line, x), (line, x)), tuple[Tensor, Tensor])
assert_type(jvp(with_scores, (params, x), (params, None), has_aux=True), tuple[Tensor, Tensor, list[Tensor]])

# Jacobians, of one tensor by a tree.
assert_type(jacrev(square)(x), Tensor)
assert_type(jacfwd(of_line)(line, x), Line)
assert_type(hessian(total)(x), Tensor)

# Many examples.
assert_type(vmap(square)(x), Tensor)
assert_type(vmap(loss, in_axes=(None, 0, 0))(params, x, y), Tensor)
assert_type(vmap(grad(loss), in_axes=(None, 0, 0))(params, x, y), Params)
assert_type(vmap(with_scores, in_axes=(None, 0))(params, x), tuple[Tensor, list[Tensor]])

# jit, of all these, and of modules.
assert_type(jit(grad(loss))(params, x, y), Params)
assert_type(jit(vmap(square))(x), Tensor)
model = nn.Linear(2, 1)
assert_type(vmap(model)(x), Tensor)
assert_type(grad(total)(x), Tensor)


@jit
def update(params: Params, x: Tensor, y: Tensor, rate: float = 0.1) -> tuple[Tensor, Params]:
    value, grads = value_and_grad(loss)(params, x, y)
    return value, {name: p - rate * grads[name] for name, p in params.items()}


assert_type(update(params, x, y, rate=0.2), tuple[Tensor, Params])
