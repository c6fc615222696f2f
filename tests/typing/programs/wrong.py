# pyright: standard
"""Mistakes that a checker has to find: each line names mypy's code and pyright's rule for what is wrong with it."""

from __future__ import annotations

from typing import assert_type

from anneal import nn
from anneal.tensor import Tensor, grad, jit, jvp, value_and_grad, vjp, vmap


class Net(nn.Module):
    def forward(self, x: Tensor, *, scale: float = 1.0) -> tuple[Tensor, int]:
        return x * scale, 1


class Trainer:
    @jit
    def step(self, x: Tensor) -> Tensor:
        return x


def loss(params: dict[str, Tensor], x: Tensor) -> Tensor:
    return (params["w"] * x).sum()


def pair(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, x


@jit
def twice(x: Tensor, times: int = 2) -> Tensor:
    return x * times


net, x, params = Net(), Tensor.ones(2), {"w": Tensor.ones(2)}

net("text")  # wrong: arg-type reportArgumentType
net(x, 2.0)  # wrong: call-arg reportCallIssue
net(x, factor=2.0)  # wrong: call-arg reportCallIssue
net()  # wrong: call-arg reportCallIssue
net(x).sum()  # wrong: attr-defined reportAttributeAccessIssue
assert_type(net(x), Tensor)  # wrong: assert-type reportAssertTypeFailure
nn.Linear(2, 3)(x, x)  # wrong: call-arg reportCallIssue
nn.Sequential(nn.Linear(2, 3), net)  # wrong: arg-type reportArgumentType
nn.ModuleList([nn.Linear(2, 3)])[0].kernel_size  # wrong: attr-defined reportAttributeAccessIssue
twice(x, "2")  # wrong: arg-type reportArgumentType
twice(x).logits  # wrong: attr-defined reportAttributeAccessIssue
jit(net)(3.0)  # wrong: arg-type reportArgumentType
Trainer().step(3.0)  # wrong: arg-type reportArgumentType
grad(loss)(x, x)  # wrong: arg-type reportArgumentType
grad(loss)(params, x)["w"] = 1.0  # wrong: assignment reportArgumentType
grad(pair)(x)  # wrong: arg-type reportArgumentType
assert_type(value_and_grad(loss)(params, x), tuple[Tensor, Tensor])  # wrong: assert-type reportAssertTypeFailure
vmap(loss)(params)  # wrong: call-arg reportCallIssue
vmap(loss)(params, x).values()  # wrong: attr-defined reportAttributeAccessIssue
assert_type(vjp(pair, x)[0], Tensor)  # wrong: assert-type reportAssertTypeFailure
assert_type(jvp(pair, (x,), (x,)), tuple[Tensor, Tensor])  # wrong: assert-type reportAssertTypeFailure
nn.SGD(3, lr=0.1)  # wrong: arg-type reportArgumentType
nn.SGD(net.parameters(), lr="fast")  # wrong: arg-type reportArgumentType
net.load_state_dict([x])  # wrong: arg-type reportArgumentType
x.max(dim=1).max  # wrong: attr-defined reportAttributeAccessIssue
x.max(axis=0).indices  # wrong: attr-defined reportAttributeAccessIssue
x.sum(0, keep=True)  # wrong: call-arg reportCallIssue
x.exp(3)  # wrong: call-arg reportCallIssue
x.conv2d("a")  # wrong: arg-type reportArgumentType
nn.Parameter(x, "yes")  # wrong: arg-type reportArgumentType
