# pyright: standard
"""What a lambda without annotations takes is open, and no error; what is known around it stays known."""

from __future__ import annotations

from typing import assert_type

from anneal.tensor import Tensor, grad, jit, jvp, vjp, vmap

x = Tensor.ones(2)

slopes = grad(lambda p: (p["w"] * p["w"]).sum())({"w": x})
print(slopes["w"], grad(lambda x: (x**3).sum())(x) + 1)
print(grad(lambda p, q: (p * q).sum(), argnums=1)(x, x).shape)
print(grad(lambda p, q: (p * q).sum(), argnums=(0, 1))(x, x)[1].shape)
print(grad(grad(lambda x: x**3))(Tensor(2.0)))
print(vmap(lambda a, b: (a * b).sum())(x, x).shape, vmap(grad(lambda x: x * x))(x).shape)
print(jit(lambda x: x * 2)(x).shape)

# Where the arguments stand beside it, a lambda has their types.
assert_type(vjp(lambda a, b: a * b, x, x)[0], Tensor)
assert_type(jvp(lambda a: a * a, (x,), (x,)), tuple[Tensor, Tensor])
