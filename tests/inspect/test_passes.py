"""What each pass of both pipelines has made, as values."""

from __future__ import annotations

import numpy as np
import pytest

from anneal import codegen, schedule
from anneal.backend import planned_cost_model
from anneal.codegen import generate
from anneal.errors import UserError
from anneal.inspect import after_pass, passes
from anneal.schedule import graph, plan_for
from anneal.tensor import Tensor
from anneal.uop import UOp
from tests.inspect import models

POLICY = planned_cost_model("webgpu")


@pytest.fixture(scope="module")
def step() -> UOp:
    return models.step()


def test_the_list_is_that_of_the_pipelines() -> None:
    assert [(p.pipeline, p.name, p.reason, p.stage) for p in passes()] == [
        (line.name, p.name, p.reason, p.stage) for line in (schedule.PASSES, codegen.PASSES) for p in line
    ]
    assert len({p.name for p in passes()}) == len(passes()), "a name without its pipeline says which pass it is"


@pytest.mark.parametrize("info", passes(), ids=lambda p: p.name)
def test_every_pass_shows_what_it_has_made(step: UOp, info: object) -> None:
    info = next(p for p in passes() if p == info)
    kernel = 0 if info.pipeline == "codegen" else None
    state = after_pass(step, POLICY, info.name, kernel)
    assert (state.info, state.kernel) == (info, kernel)
    assert state.parts or info.name == "compute-again"
    graphs = [p for p in state.parts if p.nodes]
    assert bool(graphs) == (info.stage is not None), "passes with a stage make graphs, the others none"
    for part in graphs:
        assert [n.id for n in part.nodes] == list(range(len(part.nodes)))
        assert all(s < n.id for n in part.nodes for s in n.src), "sources come first"
        assert part.nodes[-1].op == "SINK"


def test_the_last_pass_has_the_kernels_text(step: UOp) -> None:
    [part] = after_pass(step, POLICY, "write-module", 0).parts
    assert part.text == generate(plan_for(step, POLICY)[0].calls[0].kernel.sink).source


def test_a_pass_comes_after_those_before_it(step: UOp) -> None:
    before, after = (after_pass(step, POLICY, name, 0).parts[-1] for name in ("choose-opts", "apply-opts"))
    assert "(" in before.text
    first, second = (
        {n.op for n in after_pass(step, POLICY, name, 0).parts[-1].nodes} for name in ("apply-opts", "map-to-hardware")
    )
    assert "SPECIAL" in second - first
    assert after.nodes


def test_the_parts_of_a_kernel_follow_each_other() -> None:
    x, y = (Tensor(np.ones(n, np.float32), device="cpu") for n in (16, 40))
    sink = graph([x.sqrt().uop, y.abs().uop])
    state = after_pass(sink, POLICY, "write-body", 0)
    heads = [n for n, p in enumerate(state.parts) if p.text.startswith("// ====")]
    assert len(heads) == 2
    texts = ["".join(p.text for p in state.parts[a:b]) for a, b in ((heads[0], heads[1]), (heads[1], None))]
    assert ["sqrt(" in texts[0], "abs(" in texts[0], "sqrt(" in texts[1], "abs(" in texts[1]] == [
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(("name", "kernel", "said"), [
    ("fuse", None, r"no pass called 'fuse'.*early-rewrites, .*memory-plan.*--kernel N.*: legalise, .*write-module"),
    ("legalise", None, "legalise is a pass of the code generator.*add --kernel N"),
    ("memory-plan", 0, "memory-plan is a pass of the whole graph.*leave --kernel out"),
    ("legalise", 1000, "there is no kernel 1000: the plan has"),
])  # fmt: skip
def test_what_there_is_not(step: UOp, name: str, kernel: int | None, said: str) -> None:
    with pytest.raises(UserError, match=said):
        after_pass(step, POLICY, name, kernel)
