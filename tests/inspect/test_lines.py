"""From a kernel to the user's lines and modules, and back: forward, backward, update; from disk; inside jit."""

from __future__ import annotations

import inspect as python_inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal import nn, settings
from anneal.backend import planned_cost_model
from anneal.inspect import KernelCall, kernel_calls, of_line, refusals
from anneal.runtime import tracing
from anneal.schedule import clear_cache, graph, live_nodes, origins, plan_for
from anneal.tensor import Tensor, Variable, functional as F, jit

HERE = Path(__file__).name


class Layer(nn.Module):
    def __init__(self) -> None:
        self.fc = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        return y.gelu()


class Net(nn.Module):
    def __init__(self) -> None:
        self.layers = [Layer(), Layer()]
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def update(model: Net, optimiser: nn.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    loss = F.cross_entropy(model(x), y)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss


def line_of(function: Any, text: str) -> int:
    lines, first = python_inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if text in line)


FC, GELU = line_of(Layer.forward, "self.fc"), line_of(Layer.forward, "gelu")
LOSS, STEP = line_of(update, "cross_entropy"), line_of(update, "optimiser.step")


def training() -> tuple[Net, nn.Optimizer, Tensor, Tensor]:
    model = Net()
    random = np.random.default_rng(0)
    x = Tensor(random.normal(size=(8, 16)).astype(np.float32), device="cpu")
    return model, nn.AdamW(model.parameters(), lr=1e-3), x, Tensor(np.arange(8) % 4, device="cpu")


def calls_of_a_step(device: str = "webgpu") -> list[KernelCall]:
    model, optimiser, x, y = training()
    with tracing() as noted:
        loss = update(model, optimiser, x, y)
    sink = graph([loss.uop, *[t.uop for t in noted]])
    plan, _, _ = plan_for(sink, planned_cost_model(device))
    return kernel_calls(plan, origins(sink), lambda _: "")


def check(calls: list[KernelCall]) -> None:
    """Every kernel has lines of this file, and the lines of the model have the kernels of their phase."""
    for c in calls:
        assert c.lines
        assert all(x.file.endswith(HERE) for x in c.lines), c
    forward = of_line(calls, HERE, GELU)
    assert {"forward", "backward"} <= {c.phase for c in forward}
    assert {"backward"} <= {c.phase for c in of_line(calls, HERE, LOSS)}
    assert "update" in {c.phase for c in of_line(calls, HERE, STEP)}
    for module in ("layers.0.fc", "layers.1.fc", "head"):
        of_module = [c for c in calls if module in c.modules]
        assert {"forward", "update"} <= {c.phase for c in of_module}  # the gradient of a weight is part of its update
        assert ("backward" in {c.phase for c in of_module}) == (module != "layers.0.fc")
        if module != "head":
            assert all(FC in [x.line for x in c.lines] for c in of_module)


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_lines_and_kernels_of_a_step(device: str) -> None:
    calls = calls_of_a_step(device)
    check(calls)
    assert [c.label for c in calls if c.phase == "forward"][:2] == [
        "layers.0: linear + gelu",
        "layers.1: linear + gelu",
    ]


def test_names_belong_to_calls_and_not_to_kernels_that_they_share() -> None:
    first, second = [c for c in calls_of_a_step("cpu") if c.phase == "forward"][:2]
    assert first.name == second.name
    assert first.label != second.label


def test_a_kernels_outputs_are_nodes_of_the_graph() -> None:
    x = Tensor(np.ones((4, 16), np.float32), device="cpu")
    y = Net()(x)
    sink = graph([y.uop])
    plan, _, _ = plan_for(sink, planned_cost_model("cpu"))
    live = live_nodes(sink)
    calls = kernel_calls(plan, origins(sink), lambda _: "")
    assert live[calls[-1].nodes[0]] is y.uop
    for c in calls:
        for at, b in zip(c.nodes, c.writes, strict=False):
            assert live[at].size == b.size
            assert live[at].op.name in ("ADD", "MUL", "REDUCE_AXIS", "RESHAPE"), live[at]


def test_the_lines_are_those_of_the_graph_at_hand_and_not_of_the_one_planned_first() -> None:
    def again(x: Tensor) -> Tensor:
        return (x * 3 + 1).sum()

    def other(x: Tensor) -> Tensor:
        return (x * 3 + 1).sum()

    kept = []
    for function in (again, other):
        u = function(Tensor(np.ones((4, 3), np.float32), device="cpu"))
        kept.append(u)
        sink = graph([u.uop])
        plan, _, _ = plan_for(sink, planned_cost_model("cpu"))
        calls = kernel_calls(plan, origins(sink), lambda _: "")
        assert {x.line for c in calls for x in c.lines} == {function.__code__.co_firstlineno + 1}


def test_symbolic_sizes_change_no_place() -> None:
    n = Variable("n", 1, 8)
    model = Layer()
    x = Tensor(np.ones((8, 16), np.float32), device="cpu")[: n.bind(5)]
    y = model(x)
    sink = graph([y.uop])
    plan, _, _ = plan_for(sink, planned_cost_model("cpu"), {})
    calls = kernel_calls(plan, origins(sink), lambda _: "")
    assert {FC, GELU} <= {x.line for c in calls for x in c.lines}


def test_a_long_sort_in_passes_bears_the_line_of_the_sort() -> None:
    x = Tensor(np.zeros(40_000, np.int32), device="cpu")
    y = x.argsort()
    sink = graph([y.uop])
    plan, _, _ = plan_for(sink, planned_cost_model("webgpu"))
    assert len(plan.calls) > 3
    here = test_a_long_sort_in_passes_bears_the_line_of_the_sort.__code__.co_firstlineno
    for c in kernel_calls(plan, origins(sink), lambda _: ""):
        assert {x.line for x in c.lines} <= {here + 1, here + 2}
        assert c.lines


PROGRAM = """
import json
from tests.inspect.test_lines import calls_of_a_step, check
from anneal.cache import entries, folder
calls = calls_of_a_step()
check(calls)
told = [[c.name, c.label, [str(x) for x in c.lines], c.modules, c.nodes] for c in calls]
print(json.dumps([told, sorted(e.kind for e in entries(folder()))]))
"""


def test_a_second_process_says_the_same_of_its_plan_from_disk(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=False,
            env={**settings_environment(), "ANNEAL_CACHE_DIR": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout))
    assert told[0] == told[1]
    assert "plans" in told[0][1]


def settings_environment() -> dict[str, str]:
    import os

    return {k: v for k, v in os.environ.items() if k != "ANNEAL_CACHE"}


def test_a_captured_function_says_so_too(device: str) -> None:
    with settings.override(device=device):
        model, optimiser, x, y = training()
        x, y = x.to(device=device), y.to(device=device)
        step = jit(lambda x, y: update(model, optimiser, x, y))
        for _ in range(3):
            step(x, y)
        [(plan, found)] = step.plans()
        calls = kernel_calls(plan, found, lambda _: "")
        check(calls)
    clear_cache()


def test_refusals_say_why_neighbours_are_two_kernels() -> None:
    model, optimiser, x, y = training()
    with tracing() as noted:
        loss = update(model, optimiser, x, y)
    sink = graph([loss.uop, *[t.uop for t in noted]])
    cost_model = planned_cost_model("webgpu")
    plan, _, _ = plan_for(sink, cost_model)
    found = refusals(sink, cost_model)
    assert found
    for r in found:
        assert r.reason
        writes = plan.calls[r.writer].args[: plan.calls[r.writer].outputs]
        assert set(writes) & set(plan.calls[r.reader].args), r
    square = Tensor(np.ones((16, 16), np.float32), device="cpu")
    product = x @ square @ square
    [only] = refusals(graph([product.uop]), cost_model)
    assert (only.writer, only.reader) == (0, 1)
    assert "each of its results needs several results of the producer" in only.reason
