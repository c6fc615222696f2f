"""Temporaries that are overwritten by what is made of them: which kernels may, and that they compute the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from anneal import settings
from anneal.codegen import generate
from anneal.errors import CompilerError
from anneal.runtime import plan_of, values
from anneal.schedule import Plan, clear_cache
from anneal.schedule.passes import memory_plan
from anneal.schedule.passes.memory_plan import arrange, overwrites_rows, shared_temporaries
from anneal.tensor import Tensor, functional as F
from tests.tiers import thinned

Program = Callable[[Tensor, Tensor], list[Tensor]]


def logits(x: Tensor, w: Tensor) -> list[Tensor]:
    """The loss and the gradients through logits, which nobody else reads."""
    target = Tensor(np.arange(x.shape[0], dtype=np.int32) % w.shape[1], device=x.device)
    loss = F.cross_entropy(x @ w, target, ignore_index=None)
    loss.backward()
    return [loss, *[t.grad for t in (x, w) if t.grad is not None]]


def weights(x: Tensor, w: Tensor) -> list[Tensor]:
    """A softmax between two products."""
    return [(x @ w).softmax(-1) @ w.T]


def attention(x: Tensor, w: Tensor) -> list[Tensor]:
    """Causal attention and its gradients: what the mask leaves out is never written."""
    y = F.scaled_dot_product_attention(x, x * 0.5, x + 1.0, is_causal=True)
    (y * y).sum().backward()
    assert x.grad is not None
    return [y, x.grad]


def norm(x: Tensor, w: Tensor) -> list[Tensor]:
    """Rows standardized between two products."""
    y = x @ w
    return [F.layer_norm(y, y.shape[-1], None, None).contiguous() @ w.T]


PROGRAMS: dict[str, Program] = {"logits": logits, "weights": weights, "attention": attention, "norm": norm}
CASES = [
    pytest.param(name, width, id=f"{name}-{width}")
    for width in (50, 1, 2, 7, 129, 1000, 5003)
    for name in ("logits", "weights", "norm")
]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small it is, a temporary is overwritten."""
    monkeypatch.setattr(memory_plan, "_LEAST", 0)
    monkeypatch.setattr(memory_plan, "_SHARE", 1 << 60)
    clear_cache()


def operands(rows: int, width: int, device: str) -> tuple[Tensor, Tensor]:
    r = np.random.default_rng(rows * width)
    x, w = r.standard_normal((rows, 8)), r.standard_normal((8, width))
    return tuple([Tensor(a.astype(np.float32), device=device, requires_grad=True) for a in (x, w)])  # type: ignore[return-value]


@pytest.mark.parametrize(("name", "width"), [("attention", 8), *thinned(CASES, test=2, ci=1)])
def test_a_result_over_what_it_is_made_of(name: str, width: int, webgpu: str, eager: None) -> None:
    program = PROGRAMS[name]
    with settings.override(cache=False):
        found = values(program(*operands(33, width, webgpu)))
        expected = values(program(*operands(33, width, "cpu")))
    clear_cache()
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())


def plan(name: str, width: int = 300) -> Plan:
    with settings.override(cache=False):
        return plan_of(PROGRAMS[name](*operands(33, width, "cpu")))


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_are_overwritten_where_one_thread_reads_and_stores_each_element(name: str, eager: None) -> None:
    sinks = [k.sink for k in plan(name).kernels]
    clear_cache()
    rows = [s for s in sinks if overwrites_rows(s)]
    assert rows
    for sink in rows:
        assert any(o.kind == "FUSE_REDUCE" for o in generate(sink).opts)
        with pytest.raises(CompilerError, match="needs the opt FUSE_REDUCE"):
            generate(sink, opts=())


def test_only_what_is_large_is_overwritten() -> None:
    assert not any(overwrites_rows(k.sink) for k in plan("logits").kernels)


def test_two_readers_forbid_it(eager: None) -> None:
    x, w = operands(33, 300, "cpu")
    y = x @ w
    with settings.override(cache=False):
        found = plan_of([y.softmax(-1) @ w.T, y.sum(0).contiguous() * 2.0])
    clear_cache()
    assert not any(overwrites_rows(k.sink) for k in found.kernels)


def test_what_is_overwritten_keeps_its_memory_meanwhile(eager: None) -> None:
    p = plan("logits")
    clear_cache()
    assert shared_temporaries(p.values, p.calls) == list(p.calls)  # nothing is left to share
    twice = [v for v in dict(p.memory) if sum(v in c.args[: c.outputs] for c in p.calls) == 2]
    assert len(twice) == 1
    order, (places, _) = arrange(p.values, p.calls, True)
    place = dict(places)
    (value,) = twice
    at = [n for n, c in enumerate(order) if value in c.args]
    assert len(at) >= 4  # the product, the gradient over it, and the two products that read that
    others = {v for n in range(at[0], at[-1] + 1) for v in order[n].args if v != value and v in place}
    assert place[value] not in {place[v] for v in others}
