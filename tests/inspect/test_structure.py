"""The graph with what became of each node, what each pass changed, memory, and models from their structure alone."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np
import pytest

from anneal import inspect
from anneal.backend import planned_cost_model
from anneal.codegen import Target
from anneal.inspect.looking import Looked
from anneal.nn import init
from anneal.rewrite import tracing
from anneal.schedule import graph, live_nodes, plan_for
from anneal.tensor import Tensor
from tests.inspect.models import outputs

MODEL = planned_cost_model("webgpu")


@pytest.fixture(scope="module")
def sink() -> Any:
    return graph(outputs())


def test_every_node_has_its_place_its_sources_and_its_kernels(sink: Any) -> None:
    plan, _, _ = plan_for(sink, MODEL)
    found = inspect.graph_nodes(sink, plan)
    order = live_nodes(sink)
    assert [n.op for n in found] == [u.op.name for u in order]
    for n, u in zip(found, order, strict=True):
        assert [order[s] for s in n.src] == list(u.src)
    for number, call in enumerate(plan.calls):
        assert {n.id for n in found if number in n.kernels} == set(call.places)
    assert {n.phase for n in found} == {"forward", "backward", "update"}
    assert {"fc", "head"} <= {n.module for n in found}


def test_a_node_of_the_backward_pass_names_the_rule_of_its_derivative() -> None:
    """Also the nodes inside of a rule, and where a value is used twice; the sum of two contributions is no rule's."""
    x = Tensor(np.ones((3, 4), np.float32), requires_grad=True, device="cpu")
    with tracing() as fired:
        y = x * 3.0
        (y.tanh().sum() + (y.exp() * x).sum()).backward()
    assert x.grad is not None
    named = {n.op: n for n in inspect.graph_nodes(graph([x.grad.uop]), fired=fired) if n.phase == "backward"}
    rules = {op: None if n.rule is None else n.rule.rule for op, n in named.items()}
    assert rules["SUB"] == "tanh(x) -> g * (1 - y * y)"
    assert rules["ADD"] is None
    nodes = [n for n in inspect.graph_nodes(graph([x.grad.uop]), fired=fired) if n.phase == "backward"]
    assert {"exp(x) -> g * y", "tanh(x) -> g * (1 - y * y)", "x * c -> g * c, _"} <= {
        n.rule.rule for n in nodes if n.rule
    }
    assert all(n.rule or n.op in ("ADD", "CONST", "DETACH") for n in nodes), [n for n in nodes if not n.rule]


def test_a_node_that_a_rule_made_names_it() -> None:
    x = Tensor([1, 2, 3])
    with tracing() as fired:
        sink = graph([(x * 2 * 3).uop])
    named = [n for n in inspect.graph_nodes(sink, fired=fired) if n.rule is not None]
    assert [n.op for n in named] == ["CONST", "MUL"]  # x * (2 * 3)
    assert all(".upat:" in n.rule.place for n in named if n.rule)


def test_a_pass_that_changes_nothing_says_so_and_one_that_does_marks_it(sink: Any) -> None:
    found = {p.info.name: p for p in inspect.pass_graphs(sink, MODEL)}
    assert list(found) == [p.name for p in inspect.passes() if p.pipeline == "schedule"]
    for p in found.values():
        assert p.changed == (sum(n.changed for n in p.nodes) if p.nodes else p.changed)
        assert all(s < n.id for n in p.nodes for s in n.src)
    # x + 0 keeps its node, -(-x) goes: only what a rule made is marked, not all that stands above it
    x = Tensor(np.ones((4, 4), np.float32))
    y = x.reshape(2, 8).reshape(4, 4).exp().sum()
    early = inspect.pass_graphs(graph([y.uop]), MODEL)[0]
    assert [n.op for n in early.nodes if n.changed] == []
    big = Tensor(np.ones(1 << 16, np.float32)).sum()
    split = next(p for p in inspect.pass_graphs(graph([big.uop]), MODEL) if p.info.name == "split-reduces")
    assert "REDUCE_AXIS" in [n.op for n in split.nodes if n.changed]


def test_the_passes_of_a_kernel_end_in_its_text(sink: Any) -> None:
    found = inspect.kernel_pass_graphs(sink, MODEL, 0)
    assert [p.info.name for p in found] == [p.name for p in inspect.passes() if p.pipeline == "codegen"]
    text = inspect.kernel_text(sink, MODEL, 0)
    assert list(found[-1].text) == [line.text for line in text.lines]


def test_passes_are_those_for_the_device_that_is_looked_at() -> None:
    x = Tensor(np.ones((64, 64), np.float32)).realize()
    looked = Looked("halves", graph([(x.half() * 2 + 1).sum(1).uop]), MODEL, target=Target(f16=True))
    assert list(looked.after(0)[-1].text) == [line.text for line in looked.text(0).lines]


def test_memory_is_what_the_launches_need(sink: Any) -> None:
    plan, _, _ = plan_for(sink, MODEL)
    memory = inspect.memory_plan(plan)
    assert len(memory.live) == len(plan.calls)
    for n, call in enumerate(plan.calls):
        there = {life.buffer for life in memory.lives if life.first <= n <= life.last}
        assert {f"v{v}" for v in call.args if plan.values[v].kind != "input"} <= there
        assert memory.live[n] == sum(life.bytes for life in memory.lives if life.first <= n <= life.last)
    pieces: dict[int, list[tuple[int, int]]] = {}
    for life in memory.lives:
        if life.piece is not None:
            pieces.setdefault(life.piece, []).append((life.first, life.last))
    assert all(a[1] < b[0] for lives in pieces.values() for a, b in zip(sorted(lives), sorted(lives)[1:], strict=False))


def test_a_launch_says_its_opts_and_bindings(sink: Any) -> None:
    plan, _, _ = plan_for(sink, MODEL)
    facts = inspect.launch_facts(plan.calls[0].kernel.sink)
    assert facts is not None
    assert facts.workgroups == np.prod(facts.grid)
    assert len(facts.bindings) == len(dict.fromkeys(plan.calls[0].args))
    assert facts.bindings[0].endswith("written")


@pytest.mark.parametrize("name", ["ADD", "REDUCE_AXIS", "GATHER", "softmax", "tanh"])
def test_an_example_has_the_op_that_it_is_of(name: str) -> None:
    found = inspect.worked(name, MODEL)
    assert found is not None
    if name.isupper():
        assert name in [n.op for n in found.nodes]
    assert all("@compute" in k for k in found.kernels)


def test_blank_parameters_are_memory_of_zeros() -> None:
    with init.blank():
        t = init.normal((3, 2))
    assert t.uop.op.name == "RESHAPE"
    assert t.tolist() == [[0.0, 0.0]] * 3
    assert init.normal((3, 2)).numpy().std() > 0


def test_gpt2_is_looked_at_without_a_file_a_network_or_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("ANNEAL_CACHE_DIR", str(tmp_path))

    def no(*_: object, **__: object) -> None:
        raise AssertionError("a connection, or random numbers, for a graph")

    monkeypatch.setattr(socket, "create_connection", no)
    monkeypatch.setattr(init, "host_normal", no)
    traced = inspect.traced_model("gpt2", 1)
    assert sum(u.op.name == "BUFFER" and u.arg.size == 50257 * 768 for u in traced.nodes) == 3  # the table, and Adam's
    assert len(traced.nodes) > 5000
