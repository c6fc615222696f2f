"""Attention whose scores are computed again: values and gradients on webgpu are those of the cpu, which stores them.

Each program is written as a user writes it; the cost model is that of a device whose buffers hold no scores at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import anneal as an
from anneal.backend import get_device
from anneal.nn import functional as F
from anneal.schedule import clear_cache
from anneal.schedule.passes import kernel_groups
from anneal.tensor import Tensor, Variable, jit
from tests.tiers import thinned

Program = Callable[..., Tensor]
RNG = np.random.default_rng(5)
MASK = RNG.random((70, 72)) > 0.3
MASK[:, 0] = True
MASK[-3:] = False  # rows that see nothing


def normal(*shape: int) -> npt.NDArray[Any]:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture
def small_buffers(webgpu: str) -> Iterator[str]:
    device: Any = get_device(webgpu)
    before = device.cost_model
    device.cost_model = replace(before, buffer_bytes=1)
    try:
        yield webgpu
    finally:
        device.cost_model = before
        clear_cache()


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=an.tensor(MASK, device=q.device))


def biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, is_causal=True)


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    later = an.tril(an.ones(q.shape[-2], k.shape[-2], device=q.device)) == 0
    return F.softmax(scores.masked_fill(later, float("-inf")), dim=-1) @ v


def by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = F.softmax(an.einsum("bhqd,bhkd->bhqk", q, k) * 0.2, dim=-1)
    return an.einsum("bhqk,bhkd->bhqd", F.dropout(weights, 0.2), v)


def one_product(x: Tensor) -> Tensor:
    q, k, v = (t.reshape(2, 64, 2, 16).transpose(1, 2) for t in x.chunk(3, dim=-1))
    return causal(q, k, v).transpose(1, 2).reshape(2, 64, 32)


def sigmoid(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return an.sigmoid(q @ k.transpose(-1, -2)) @ v


def both_ways(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = an.exp(q @ k.mT * 0.1)
    weights = weights / weights.sum(-1, keepdim=True)
    return (weights / weights.sum(-2, keepdim=True)) @ v


def second(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    (slope,) = an.autograd.grad((causal(q, k, v) ** 2).sum(), [q], create_graph=True)
    return slope


def mapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return an.vmap(causal)(q, k, v)


QKV = (normal(2, 2, 70, 20), normal(2, 2, 72, 20), normal(2, 2, 72, 24))
SMALL = (normal(1, 64, 16), normal(1, 64, 16), normal(1, 64, 16))
CASES: list[tuple[Program, tuple[npt.NDArray[Any], ...]]] = [
    (causal, QKV),
    (masked, QKV),
    (biased, (*QKV, normal(2, 1, 70, 72))),
    (dropped, QKV),
    (grouped, (normal(1, 4, 64, 16), normal(1, 2, 64, 16), normal(1, 2, 64, 16))),
    (by_hand, QKV),
    (by_einsum, QKV),
    (one_product, (normal(2, 64, 96),)),
    (sigmoid, QKV),
    (both_ways, SMALL),
    (second, SMALL),
    (mapped, (normal(2, 1, 64, 16), normal(2, 1, 64, 16), normal(2, 1, 64, 16))),
]


def values(program: Program, arrays: tuple[npt.NDArray[Any], ...], device: str) -> list[npt.NDArray[Any]]:
    """The result and the gradients of all inputs."""
    an.manual_seed(3)
    given = [an.tensor(a, device=device).requires_grad_(True) for a in arrays]
    out = program(*given)
    weight = an.tensor(np.cos(np.arange(out.numel())).reshape(out.shape).astype(np.float32), device=device)
    (out * weight).sum().backward()
    return [out.numpy(), *[t.grad.numpy() for t in given if t.grad is not None]]


@pytest.fixture
def left_out(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many nodes each plan that was made keeps out of memory."""
    inside: list[int] = []
    find = kernel_groups.find_chains

    def spied(*args: Any) -> Any:
        found = find(*args)
        inside.append(len(found))
        return found

    monkeypatch.setattr(kernel_groups, "find_chains", spied)
    monkeypatch.setenv("ANNEAL_CACHE", "0")
    return inside


@pytest.mark.parametrize(
    ("program", "arrays"), thinned([pytest.param(p, a, id=p.__name__) for p, a in CASES], test=6, ci=3)
)
def test_values_and_gradients(
    program: Program, arrays: tuple[npt.NDArray[Any], ...], small_buffers: str, left_out: list[int]
) -> None:
    want = values(program, arrays, "cpu")
    left_out.clear()
    got = values(program, arrays, small_buffers)
    assert max(left_out) > 0, "no scores were left out"
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * max(1e-3, float(np.abs(b).max())))


# -- sizes that a run chooses -----------------------------------------------------------------------------------------

WIDE = (normal(1, 4, 70, 16), normal(1, 4, 70, 16), normal(1, 4, 70, 24))


def continued(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The queries are the last rows of as many keys as there are: row i sees keys up to as many more."""
    n, m = q.shape[-2], k.shape[-2]
    row, column = an.arange(n, device=q.device).reshape(-1, 1), an.arange(m, device=q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=column <= row + (m - n))


def partly_masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = an.tensor(MASK, device=q.device)[: q.shape[-2], : k.shape[-2]]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def partly_biased(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    bias = an.tensor(np.where(MASK, 0.5, -np.inf).astype(np.float32)[:60], device=q.device)
    return F.softmax(q @ k.mT * 0.2 + bias[: q.shape[-2], : k.shape[-2]], dim=-1) @ v


def in_groups(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k[:, ::2], v[:, ::2], is_causal=True, enable_gqa=True)


SYMBOLIC = [causal, continued, partly_masked, partly_biased, dropped, in_groups, sigmoid]
RUNS = ((1, 1), (47, 53), (60, 70), (13, 64))  # rows and columns, at most 60 and 70


@pytest.mark.parametrize("program", thinned([pytest.param(p, id=p.__name__) for p in SYMBOLIC], test=7, ci=4))
def test_sizes_that_a_run_chooses(program: Program, small_buffers: str, left_out: list[int]) -> None:
    """Values and gradients of one capture for several numbers of rows and columns, by chains and by the cpu."""
    n, m = Variable("n", 1, 60), Variable("m", 1, 70)
    found = []
    for device in ("cpu", small_buffers):
        an.manual_seed(3)
        given = [an.tensor(a, device=device).realize() for a in WIDE]
        weight = an.tensor(np.cos(np.arange(4 * 60 * 24)).reshape(1, 4, 60, 24).astype(np.float32), device=device)

        @jit
        def run(rows: Any, columns: Any, given: Any = given, weight: Any = weight) -> Any:
            parts = [given[0][:, :, :rows], *[t[:, :, :columns] for t in given[1:]]]
            parts = [t.detach().requires_grad_(True) for t in parts]
            out = program(*parts)
            return out, *an.autograd.grad((out * weight[:, :, :rows]).sum(), parts)

        found.append([[t.numpy() for t in run(n.bind(i), m.bind(j))] for i, j in RUNS])
        assert len(run.captures) == 1
    assert max(left_out) > 0, "no scores were left out"
    for want, got in zip(*found, strict=True):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * max(0.1, float(np.abs(b).max())))
