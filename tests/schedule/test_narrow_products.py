"""Products of float32 and bfloat16 from float16 factors, as devices with matrices compute them, here by NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import anneal as an
from anneal import nn
from anneal.amp import autocast
from anneal.backend import cost_models, get_device
from anneal.codegen import HALVES, Target, choose, generate, prepare
from anneal.errors import SettingError
from anneal.runtime import late, tracing
from anneal.schedule import graph, plan_for
from anneal.schedule.passes import narrow_products
from anneal.tensor import Tensor, functional as F, jit, manual_seed
from anneal.uop import Op, toposort

TARGET = Target(f16=True, subgroup=32, names_subgroups=True, workgroup_bytes=49152, matrices=(HALVES,))
M, N, K = 128, 64, 512
Array = npt.NDArray[Any]
COSTS = replace(cost_models.CPU, matrices=True)


@pytest.fixture(autouse=True)
def with_matrices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The cpu decides as a device with matrices does, by the precision in force."""
    monkeypatch.setattr(get_device("cpu"), "cost_model", replace(cost_models.CPU, matrices=True))
    monkeypatch.setattr(narrow_products, "_WORTH", 1 << 12)
    yield
    an.set_float32_matmul_precision("highest")


def product(precision: str, a: Array, b: Array, dtype: str = "float32") -> Array:
    an.set_float32_matmul_precision(precision)
    x, y = (Tensor(v, device="cpu").cast(dtype).realize() for v in (a, b))
    return (x @ y).float().numpy().astype(np.float64)


def operands(positive: bool = True) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((M, K), (K, N)))
    return (np.abs(a), np.abs(b)) if positive else (a, b)


@pytest.mark.usefixtures("same_kernels")  # whose products of float32 are BLAS's
def test_errors_of_each_precision() -> None:
    a, b = operands()
    exact = a.astype(np.float64) @ b

    def error(got: Array) -> float:
        return float((np.abs(got - exact) / exact).max())

    errors = {p: error(product(p, a, b)) for p in ("highest", "high", "medium")}
    assert errors["highest"] < 1e-6
    assert errors["high"] < 1e-6
    assert 1e-5 < errors["medium"] < 1e-3
    assert product("high", a, b).tolist() != product("highest", a, b).tolist(), "it is computed in another way"


def test_sums_of_a_value_times_a_number_are_no_products() -> None:
    x, number = Tensor(np.ones((M, K), np.float32)), Tensor(np.float32(3)).realize()
    an.set_float32_matmul_precision("high")
    assert (x * number).sum(1).tolist() == [3.0 * K] * M


@pytest.mark.parametrize("precision", ["high", "medium", "highest"])
@pytest.mark.parametrize("scale", [0, 30, -30, None])
def test_magnitudes_that_float16_has_not(precision: str, scale: int | None) -> None:
    """Of float32, and with "highest" of bfloat16: rows and columns of any size, to the precision of the largest."""
    a, b = operands(positive=False)
    if scale is None:
        a *= np.logspace(-18, 18, M, dtype=np.float32)[:, None]
        b *= np.logspace(18, -18, N, dtype=np.float32)
    else:
        a, b = a * np.float32(10.0**scale), b * np.float32(10.0**-scale)
    dtype = "bfloat16" if precision == "highest" else "float32"
    given = [Tensor(v).cast(dtype).float().numpy().astype(np.float64) for v in (a, b)]
    size = np.abs(given[0]) @ np.abs(given[1])
    off = np.abs(product(precision, a, b, dtype) - given[0] @ given[1]) / size
    assert off.max() < {"high": 1e-6, "medium": 1e-3, "highest": 4e-3}[precision]


@pytest.mark.parametrize("precision", ["high", "medium", "highest"])
def test_numbers_that_are_not_finite(precision: str) -> None:
    a, b = operands(positive=False)
    a[3, 5], a[7, 1], b[9, 4], a[11, 2] = np.nan, np.inf, -np.inf, np.inf
    b[1, 6], a[20], b[:, 8] = 0.0, 0.0, 0.0
    a[30], b[:, 9] = 3e38, 2.0
    with np.errstate(all="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
    got = product(precision, a, b, "bfloat16" if precision == "highest" else "float32")
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    infinite = np.isinf(exact) | (np.abs(exact) > 3.41e38)
    np.testing.assert_array_equal(np.isinf(got), infinite)
    np.testing.assert_array_equal(np.sign(got[infinite]), np.sign(exact[infinite]))


@pytest.mark.parametrize(
    "shapes",
    [((3, M, K), (3, K, N)), ((2, M, K), (K, N)), ((K, M), (K, N)), ((M, 4, K), (N, K)), ((300, K), (K, 260))],
)
def test_spaces_of_products(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Batches, rows of several axes, transposed factors, and gradients: all as float32 computes them."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in shapes)

    def results(precision: str) -> list[Array]:
        an.set_float32_matmul_precision(precision)
        x, y = (Tensor(v, device="cpu", requires_grad=True) for v in (a, b))
        if shapes[0][0] == K:
            out = x.T @ y
        else:
            out = x @ (y.T if shapes[1] == (N, K) else y)
        (out * out).sum().backward()
        assert x.grad is not None
        assert y.grad is not None
        return [out.numpy(), x.grad.numpy(), y.grad.numpy()]

    for got, want in zip(results("high"), results("highest"), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_what_stays_as_it_is() -> None:
    an.set_float32_matmul_precision("high")
    rng = np.random.default_rng(2)
    sizes = [((60, K), (K, N)), ((M, 500), (500, N)), ((M, K), (K, 1))]
    for sa, sb in sizes:
        a, b = (rng.standard_normal(s).astype(np.float32) for s in (sa, sb))
        np.testing.assert_array_equal(product("high", a, b), product("highest", a, b))
    half = Tensor(rng.standard_normal((M, K)).astype(np.float16))
    plan, *_ = plan_for(graph([(half @ half.T).uop]), replace(cost_models.gpu(matrices=True), float32_products="high"))
    assert len(plan.calls) == 1, "float16 factors are what matrices take"


def test_jit_follows_the_setting() -> None:
    a, b = operands()
    x, y = Tensor(a, device="cpu"), Tensor(b, device="cpu")
    run = jit(lambda x, y: x @ y)
    found = []
    for precision in ("highest", "medium", "medium", "highest"):
        an.set_float32_matmul_precision(precision)
        found.append(run(x, y).numpy().tolist())
    assert found[0] == found[3] != found[1] == found[2]


def test_torchs_names() -> None:
    matmul = an.backends.cuda.matmul
    assert (an.get_float32_matmul_precision(), matmul.allow_tf32) == ("highest", False)
    matmul.allow_tf32 = True
    assert an.get_float32_matmul_precision() == "high"
    an.set_float32_matmul_precision("medium")
    assert matmul.allow_tf32
    matmul.allow_tf32 = False
    assert an.get_float32_matmul_precision() == "highest"
    with pytest.raises(SettingError, match="highest, high, medium, not 'low'"):
        an.set_float32_matmul_precision("low")


@pytest.mark.parametrize(("precision", "dtype"), [("high", "float32"), ("medium", "float32"), ("highest", "bfloat16")])
def test_matrices_compute_them(precision: str, dtype: str) -> None:
    """Of each product one kernel, or one and the sum of its pieces, is by matrices."""
    model = replace(cost_models.gpu(matrices=True), float32_products=precision)
    x, w = (Tensor(np.ones(s, np.float32)).cast(dtype).realize() for s in ((1024, 512), (768, 512)))
    plan, *_ = plan_for(graph([(x @ w.T).uop]), model)
    kinds = [{o.kind for o in choose(prepare(c.kernel.sink, TARGET), TARGET)} for c in plan.calls]
    assert sum("MATRIX" in k for k in kinds) == 1
    assert len(kinds) <= 5
    sources = [generate(c.kernel.sink, TARGET).source for c in plan.calls]
    assert sum("subgroupMatrixMultiplyAccumulate" in s for s in sources) == 1


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_step_under_autocast(precision: str) -> None:
    """Losses as without matrices; every large product reads float16 memory, weights and gradients of logits too."""
    losses: dict[bool, list[float]] = {}
    for matrices in (False, True):
        get_device("cpu").cost_model = replace(cost_models.CPU, matrices=matrices)
        manual_seed(0)
        model = nn.GPT(vocab_size=128, block_size=64, n_layer=1, n_head=2, n_embd=320)
        optimiser, x = nn.AdamW(model.parameters(), lr=1e-3), np.random.default_rng(0).integers(0, 128, (2, 65))
        windows = Tensor(x.astype(np.int32)).realize()
        losses[matrices] = []
        for _ in range(4):
            with autocast("cpu", precision):
                loss = model.loss(windows[:, :-1], windows[:, 1:])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses[matrices].append(loss.item())
    np.testing.assert_allclose(losses[True], losses[False], atol=2e-2)
    with tracing() as noted, autocast("cpu", precision):
        loss = model.loss(windows[:, :-1], windows[:, 1:])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    outputs = list(dict.fromkeys([loss.uop, *[t.uop for t in noted]]))
    plan, *_ = plan_for(graph(outputs), cost_models.gpu(matrices=True))
    products = []
    for c in plan.calls:
        order = toposort((c.kernel.sink,))
        for r in (u for u in order if u.op is Op.REDUCE and u.arg is Op.ADD and u.src[0].op is Op.MUL):
            space = [u for u in toposort((r.src[0],)) if u.op is Op.RANGE]
            if len(space) >= 3 and np.prod([int(u.src[0].arg) for u in space]) == 2 * 64 * 128 * 320:  # of the head
                products.append({u.dtype.name for u in toposort((r,)) if u.op is Op.LOAD})
    assert len(products) >= 3
    assert products == [{"float16"}] * len(products)


def test_no_repeated_value_is_stored() -> None:
    """A factor that is cast after it was repeated is cast, and stored, before."""
    an.set_float32_matmul_precision("highest")
    x = Tensor(np.ones((128, 64), np.float32), requires_grad=True)
    w = Tensor(np.ones((64, 64), np.float32), requires_grad=True)
    with autocast("cpu", "float16"):
        out = (x @ w).softmax(-1)
    (out * out).sum().backward()
    assert w.grad is not None
    plan, *_ = plan_for(graph([w.grad.uop]), replace(cost_models.gpu(matrices=True)))
    assert max(v.size for v in plan.values) <= 128 * 64


def test_a_residual_stream_that_ends_in_few_logits_is_no_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradient begins with a product over few elements, as scores do; others are added to it."""
    monkeypatch.setattr(narrow_products, "_LONG", 1)
    x, head = Tensor.zeros(512, 64), Tensor.zeros(16, 64, requires_grad=True)
    layers = [(Tensor.zeros(256, 64, requires_grad=True), Tensor.zeros(64, 256, requires_grad=True)) for _ in range(2)]
    an.realize([x, head, *[w for pair in layers for w in pair]])
    with autocast("cpu", "bfloat16"):
        for wide, narrow in layers:
            x = x + F.linear(F.gelu(F.linear(x, wide)), narrow)
        loss = F.linear(F.layer_norm(x, (64,)), head).float().square().sum()
    loss.backward()
    wanted = [w.grad.uop for pair in layers for w in pair if w.grad is not None]
    plan, *_ = plan_for(graph(wanted), replace(cost_models.gpu(matrices=True), matrix_bytes=1))
    loads = []
    for c in plan.calls:
        for r in (u for u in toposort((c.kernel.sink,)) if u.op is Op.REDUCE and u.src[0].op is Op.MUL):
            space = [int(u.src[0].arg) for u in toposort((r.src[0],)) if u.op is Op.RANGE]
            if np.prod(space) == 512 * 256 * 64:
                loads.append({u.dtype.name for u in toposort((r,)) if u.op is Op.LOAD})
    assert loads == [{"float16"}] * 11  # four forward; backward four of weights and three of inputs


Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As a user writes it, with a bias for each head."""
    scores = q @ k.transpose(-1, -2) * 0.25
    bias = Tensor.arange(scores.shape[-3], dtype="bfloat16").reshape(-1, 1, 1) * 0.125
    return (scores + bias).softmax(-1) @ v


@pytest.mark.parametrize(
    ("attention", "heads", "sizes"),
    [
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (2, 2), (1, 1, 1, 1)),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (1, 1), (1, 1, 1, 1e-20)),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), (4, 2), (1e10, 1e-10, 1e15, 1e3)),
        (by_hand, (2, 2), (1, 1, 1, 1)),
    ],
    ids=["causal", "one head, small gradients", "grouped heads, extremes", "by hand"],
)
def test_attention_of_bfloat16(
    monkeypatch: pytest.MonkeyPatch, attention: Attention, heads: tuple[int, int], sizes: tuple[float, ...]
) -> None:
    """Values and gradients from scaled factors of float16 are those from float32, row by row."""
    monkeypatch.setattr(narrow_products, "_LONG", 64 * 64)
    rng = np.random.default_rng(0)
    shapes = [(2, h, 64, 16) for h in (heads[0], heads[1], heads[1], heads[0])]
    arrays = [(rng.standard_normal(s) * c).astype(np.float32) for s, c in zip(shapes, sizes, strict=True)]
    arrays[2] *= np.logspace(-3, 3, 64, dtype=np.float32)[:, None]
    found, kinds = [], []
    for least in (1 << 10, 0):
        late.forget()  # the engine knows a program by its structure, not by what products cost
        monkeypatch.setattr(get_device("cpu"), "cost_model", replace(COSTS, matrix_bytes=least))
        q, k, v, g = (Tensor(a, device="cpu").cast("bfloat16").realize() for a in arrays)
        for t in (q, k, v):
            t.requires_grad_(True)
        out = attention(q, k, v)
        out.backward(g)
        results = [t for t in (out, q.grad, k.grad, v.grad) if t is not None]
        plan, *_ = plan_for(graph([t.uop for t in results]), get_device("cpu").cost_model)
        kinds.append(any(x.dtype.name == "float16" for x in plan.values))
        found.append([t.float().numpy().astype(np.float64) for t in results])
    assert kinds == [True, False]
    for got, want in zip(*found, strict=True):
        rows = np.linalg.norm(want, axis=-1)
        off = np.linalg.norm(got - want, axis=-1) / np.where(rows > 1e-6 * rows.max(), rows, np.inf)
        assert off.max() < 0.04
        assert np.linalg.norm(got - want) < 5e-3 * np.linalg.norm(want)
