"""From a line of WGSL to its nodes, the rules that made them and the user's line; and the other way round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anneal import settings
from anneal.backend import get_device, planned_cost_model
from anneal.codegen import PASSES, GeneratedKernel, Target, generate
from anneal.errors import UserError
from anneal.inspect import KernelText, kernel_calls, kernel_text, wgsl_for
from anneal.rewrite.passes import rules
from anneal.schedule import graph, live_nodes, origins, plan_for
from anneal.tensor import Tensor
from anneal.uop import UOp
from tests.inspect import models
from tests.inspect.models import ATTENTION, FC

POLICY = planned_cost_model("webgpu")
HERE = __file__.rpartition("/")[2]


@pytest.fixture(scope="module")
def step() -> UOp:
    return models.step()


@pytest.fixture(scope="module")
def texts(step: UOp) -> list[KernelText]:
    return [kernel_text(step, POLICY, n) for n in range(len(plan_for(step, POLICY)[0].calls))]


def test_the_text_is_the_kernels_and_the_lines_are_numbered(step: UOp, texts: list[KernelText]) -> None:
    for call, text in zip(plan_for(step, POLICY)[0].calls, texts, strict=True):
        assert "\n".join(t.text for t in text.lines) + "\n" == generate(call.kernel.sink).source
        assert [t.number for t in text.lines] == list(range(1, len(text.lines) + 1))


def test_every_line_that_computes_comes_from_a_line_of_the_model(texts: list[KernelText]) -> None:
    for text in texts:
        for t in text.lines:
            # A loop's head, a range, is of no node in particular.
            if any(not op.startswith("RANGE") for op in t.ops):
                assert t.lines, (text.label, t)
                assert {x.file for x in t.lines} <= {models.__file__}
            elif not t.ops:
                assert not t.lines


def test_every_line_that_computes_says_which_passes_made_it(texts: list[KernelText]) -> None:
    passes = [p.name for p in PASSES]
    known = {"range-propagation", *passes[: passes.index("linearise") + 1]}
    for text in texts:
        for t in text.lines:
            assert bool(t.passes) == bool(t.ops), (text.label, t)
            assert set(t.passes) <= known
    assert len({name for text in texts for t in text.lines for name in t.passes}) > 3


def test_lines_of_the_text_are_those_of_the_nodes_that_the_kernel_computes(step: UOp, texts: list[KernelText]) -> None:
    live = live_nodes(step)
    for call, text in zip(plan_for(step, POLICY)[0].calls, texts, strict=True):
        for t in text.lines:
            assert set(t.nodes) <= set(call.places)
            named = {
                (live[n].provenance[1].co_filename, live[n].provenance[2]) for n in t.nodes if live[n].provenance[1]
            }
            assert {(x.file, x.line) for x in t.lines} <= named


def test_a_kernel_of_two_lines_says_which_of_its_lines_is_whose() -> None:
    x = Tensor(np.ones((4, 8), np.float32), device="cpu")
    y = x.sqrt()
    z = (y / 3.0).sum(1)
    text = kernel_text(graph([z.uop]), POLICY, 0)
    first = test_a_kernel_of_two_lines_says_which_of_its_lines_is_whose.__code__.co_firstlineno
    root, rest = text.of_line(HERE, first + 2), text.of_line(HERE, first + 3)
    assert [t for t in text.lines if "sqrt(" in t.text] == [t for t in root if "SQRT float32" in t.ops]
    assert any("STORE float32" in t.ops for t in rest)
    assert not any("STORE float32" in t.ops for t in root if "SQRT float32" not in t.ops)


def test_from_a_line_of_the_user_to_lines_of_the_text(texts: list[KernelText]) -> None:
    file = "models.py"
    attention = [t for text in texts for t in text.of_line(file, ATTENTION)]
    linear = [t for text in texts for t in text.of_line(file, FC)]
    assert any("exp" in t.text for t in attention), "softmax"
    assert any("fma(" in t.text for t in linear), "a product of matrices"
    assert not any(t.modules == ("head",) for t in attention)
    assert any("fc" in t.modules for t in linear)
    assert texts[0].of_line(file, 1) == []


def test_the_rules_are_those_of_the_files_in_the_order_of_the_way_back(texts: list[KernelText]) -> None:
    known = {(r.text, f"{r.file}:{r.line}") for r in rules()}
    told = {r for text in texts for t in text.lines for r in t.rules}
    assert told
    for r in told:
        assert (r.rule, r.place) in known
        assert r.pass_name
        assert str(r) == f"{r.rule}   [{r.place}]"
    assert {"symbolic", "fold"} <= {r.table for r in told}


def test_the_rule_that_made_a_node_is_named() -> None:
    x = Tensor(np.ones((6, 8), np.float32), device="cpu")
    y = x.reshape(48).exp2().reshape(8, 6).transpose(0, 1).contiguous()
    text = kernel_text(graph([y.uop]), POLICY, 0)
    [load] = [t for t in text.lines if "LOAD float32" in t.ops]
    assert "lid >> 3u" in load.text
    assert "x:int // 1 -> x" in [r.rule for r in load.rules], "the remainder is the last axis, whose stride is 1"
    [store] = [t for t in text.lines if "STORE float32" in t.ops]
    assert store.rules == (), "an index that is a thread's number needs none"


def test_parts_of_a_kernel_have_lines_of_their_own() -> None:
    x, y = (Tensor(np.ones(n, np.float32), device="cpu") for n in (16, 40))
    first = x.sqrt()
    second = y.abs()
    sink = graph([first.uop, second.uop])
    text = kernel_text(sink, POLICY, 0)
    assert "_and_1_" in text.name
    line = test_parts_of_a_kernel_have_lines_of_their_own.__code__.co_firstlineno
    start = [n for n, t in enumerate(text.lines) if t.text.startswith("  if ((at >= ")]
    parts = [text.lines[start[0] : start[1]], text.lines[start[1] :]]
    for part, word, at in zip(parts, ("sqrt(", "abs("), (line + 2, line + 3), strict=True):
        [computing] = [t for t in part if word in t.text]
        assert {x.line for t in part for x in t.lines} == {x.line for x in computing.lines} == {at}


def test_a_long_sort_has_the_line_of_the_sort() -> None:
    order = Tensor(np.arange(64, dtype=np.float32), device="cpu").argsort()
    text = kernel_text(graph([order.uop]), POLICY, 0)
    assert {x.line for t in text.lines for x in t.lines} <= {
        test_a_long_sort_has_the_line_of_the_sort.__code__.co_firstlineno + 1
    }
    assert any(t.lines for t in text.lines)


def test_twice_is_the_same(step: UOp, texts: list[KernelText]) -> None:
    assert kernel_text(step, POLICY, 0) == texts[0]


@pytest.mark.parametrize("number", [-1, 10_000])
def test_a_kernel_that_there_is_not(step: UOp, number: int) -> None:
    with pytest.raises(UserError, match=rf"there is no kernel {number}: the plan has \d+, from 0 to \d+"):
        kernel_text(step, POLICY, number)


def test_the_text_of_a_plan_is_generated_once_for_all_processes(
    step: UOp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated: list[UOp] = []
    plan, _, _ = plan_for(step, POLICY)

    def counted(kernel: UOp, target: Target) -> GeneratedKernel:
        generated.append(kernel)
        return generate(kernel, target)

    monkeypatch.setattr("anneal.inspect.kernel_list.generate", counted)
    with settings.override(cache=True, cache_dir=str(tmp_path), cpu="numpy"):
        first = [k.text for k in kernel_calls(plan, origins(step))]
        distinct = len({call.kernel.key for call in plan.calls})
        assert len(generated) == distinct
        assert [k.text for k in kernel_calls(plan, origins(step))] == first
        assert len(generated) == distinct
        assert first == [generate(call.kernel.sink, Target()).source for call in plan.calls]
        # For another target, and where the file is damaged, it is generated again.
        half = wgsl_for(get_device("cpu"), plan)
        assert [half(call.kernel.sink) for call in plan.calls] == [
            generate(call.kernel.sink, Target(f16=True)).source for call in plan.calls
        ]
        assert len(generated) == 2 * distinct
        for path in (tmp_path / "texts").iterdir():
            path.write_bytes(path.read_bytes()[:-1])
        assert [k.text for k in kernel_calls(plan, origins(step))] == first
        assert len(generated) == 3 * distinct
