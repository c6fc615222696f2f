"""Attention whose heads are computed in turns: the results, gradients and other derivatives of the open form.

The cost model is that of a device that keeps the scores of two heads and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import anneal as an
from anneal.backend import get_device
from anneal.nn import functional as F
from anneal.runtime import Loop
from anneal.runtime.late import forget
from anneal.schedule import clear_cache
from anneal.tensor import Tensor
from anneal.uop import Op, toposort

RNG = np.random.default_rng(7)
LENGTH, KEYS, WIDTH = 24, 20, 8
MASK = RNG.random((LENGTH, KEYS)) > 0.3
MASK[:, 0] = True


def normal(*shape: int) -> npt.NDArray[Any]:
    return RNG.standard_normal(shape).astype(np.float32)


Q, K, V = normal(2, 3, LENGTH, WIDTH), normal(2, 3, KEYS, WIDTH), normal(2, 3, KEYS, 5)
ATTENTIONS: dict[str, Callable[..., Tensor]] = {
    "plain": F.scaled_dot_product_attention,
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
    "masked": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, an.tensor(MASK, device=q.device)[None]),
    "biased": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, (q[0, 0] @ k[0, 0].mT)),
    "grouped": lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
    "bfloat16": lambda q, k, v: F.scaled_dot_product_attention(q.bfloat16(), k.bfloat16(), v.bfloat16()).float(),
}


@pytest.fixture(params=["cpu", "webgpu"])
def in_turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], str]]:
    """Has a device keep the scores of two heads alone; or of all."""
    monkeypatch.setattr("anneal.ops.attention._NEVER", 0)
    name = request.param
    if name == "webgpu":
        request.getfixturevalue("webgpu")
    device: Any = get_device(name)
    before = device.cost_model

    def switch(on: bool) -> str:
        device.cost_model = replace(before, chained_bytes=3 * 4 * LENGTH * KEYS if on else 0)
        forget()  # graphs that were made for the other
        return str(name)

    try:
        yield switch
    finally:
        device.cost_model = before
        if name == "cpu":
            del device.cost_model  # its class has it
        clear_cache()
        forget()


def tensors(device: str, wants: bool = True) -> list[Tensor]:
    return [an.tensor(x, device=device).requires_grad_(wants) for x in (Q, K, V)]


def loops(out: Tensor) -> list[Loop]:
    found = {u.arg[0]: None for u in toposort((out.uop,)) if u.op is Op.HOST_CALL}
    return [f for f in found if isinstance(f, Loop)]


@pytest.mark.parametrize("name", ATTENTIONS)
def test_results_and_gradients(name: str, in_turns: Callable[[bool], str]) -> None:
    found = []
    for on in (False, True):
        given = tensors(in_turns(on))
        out = ATTENTIONS[name](*given)
        assert [f.length for f in loops(out)] == [3] * on  # six heads, of which two are kept
        (out * out.detach().cos()).sum().backward()
        found.append([out.detach().numpy(), *[t.grad.numpy() for t in given if t.grad is not None]])
        assert len(found[-1]) == 4
    for expected, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2**-7 if name == "bfloat16" else 2e-5, atol=2e-5)


def test_no_row_of_the_loops_has_scores(in_turns: Callable[[bool], str]) -> None:
    q, k, v = tensors(in_turns(True))
    out = ATTENTIONS["causal"](q, k, v)
    grads = an.autograd.grad((out**2).sum(), [q, k, v])
    kept = [shape for g in (out, *grads) for f in loops(g) for shape, _ in f.results]
    assert len({f for g in grads for f in loops(g)}) == 2  # one forward, and one back
    assert kept
    assert max(int(np.prod(shape)) for shape in kept) <= max(Q.size, K.size) < 6 * LENGTH * KEYS


@pytest.mark.parametrize("name", ["causal", "masked"])
def test_other_derivatives(name: str, in_turns: Callable[[bool], str]) -> None:
    f = ATTENTIONS[name]
    found = []
    for on in (False, True):
        q, k, v = tensors(in_turns(on), False)
        pushed = an.func.jvp(f, (q, k, v), (q.cos(), k.cos(), v.cos()))[1]
        second = an.func.grad(lambda q: (an.func.grad(lambda x: (f(x, k, v) ** 2).sum())(q) ** 2).sum())(q)  # noqa: B023
        mapped = an.vmap(lambda q: f(q, k, v))(an.stack([q, q.sin()]))  # noqa: B023
        found.append([x.numpy() for x in (pushed, second, mapped)])
    for expected, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_jit_and_a_loop_of_steps(in_turns: Callable[[bool], str]) -> None:
    device = in_turns(True)

    def step(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        q = q.detach().requires_grad_(True)
        out = ATTENTIONS["causal"](q, k, v)
        (slope,) = an.autograd.grad((out**2).sum(), [q])
        return out.detach(), slope

    fast = an.jit(step)
    for n in range(4):
        given = [an.tensor(x * (1 + n), device=device) for x in (Q, K, V)]
        for expected, got in zip(step(*given), fast(*given), strict=True):
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", ["dropout", "a mask of each head", "one head that is too large", "small"])
def test_what_stays_whole(case: str, in_turns: Callable[[bool], str]) -> None:
    q, k, v = tensors(in_turns(True))
    f = F.scaled_dot_product_attention
    if case == "dropout":
        out = f(q, k, v, dropout_p=0.5)
    elif case == "a mask of each head":
        out = f(q, k, v, an.ones(3, LENGTH, KEYS, device=q.device))
    elif case == "one head that is too large":
        long = [t.repeat(1, 1, 2, 1) for t in (q, k, v)]
        out = f(*long)
    else:
        out = f(q[0, :2], k[0, :2], v[0, :2])
    assert loops(out) == []
