"""The code generator's passes: each is shown, obeys its stage, and leaves the graph that the next one expects."""

from __future__ import annotations

import pytest

from anneal import settings
from anneal.codegen import PASSES, Lowering, Opt, Target, generate, run_passes
from anneal.codegen.coalesce import coalesce
from anneal.codegen.pipeline import lower, prepare
from anneal.errors import CompilerError, UserError
from anneal.rewrite import Pass
from anneal.rewrite.passes import verify
from anneal.uop import ALU, Op, UOp, dtypes, toposort
from tests.codegen import kernels as K
from tests.codegen.test_golden import KERNELS, TARGET, TARGETS

TILED = [
    Opt("VECTORIZE", 1, 4), Opt("LOCAL", 1, 4), Opt("UPCAST", 0, 4), Opt("LOCAL", 0, 4), Opt("UNROLL", 2, 4),
    Opt("GROUP", 2, 2), Opt("TILE", 2, 2), Opt("PREFETCH", 2, 2),
]  # fmt: skip
CASES: dict[str, tuple[UOp, list[Opt] | None]] = {
    **KERNELS,
    "tiled": (K.matmul(64, 64, 64), TILED),
    "row": (K.softmax(64, 1000, statistics=True), None),
    "row_of_several_axes": (K.layer_norm_backward(12, 64), None),
    "bytes": (K.row_reduce(Op.ADD, 12, 64, dtypes.int8), None),
    "bfloat16": (K.column_reduce(Op.MAX, 64, 12, dtypes.bfloat16), [Opt("LOCAL", 0, 4)]),
    "flat": (K.elementwise(30, 7), [Opt("FLAT", 0, 8)]),
}


def after(name: str) -> dict[str, Lowering]:
    """What every pass makes of a case."""
    found: dict[str, Lowering] = {}
    graph, opts = CASES[name]
    run_passes(graph, TARGETS.get(name, TARGET), opts, hook=lambda p, s: found.update({p.name: s}))
    assert tuple(found) == PASSES.names
    return found


def nodes(s: Lowering) -> list[UOp]:
    return toposort((s.sink,))


def kinds(s: Lowering) -> set[str]:
    return {u.arg[1] for u in nodes(s) if u.op is Op.RANGE}


@pytest.mark.parametrize("name", CASES)
def test_what_every_pass_makes_obeys_its_stage(name: str) -> None:
    stages: list[str | None] = []

    def hook(p: Pass[Lowering], s: Lowering) -> None:
        stages.append(p.stage)
        verify(p, s)

    graph, opts = CASES[name]
    run_passes(graph, TARGETS.get(name, TARGET), opts, hook=hook)
    assert stages == ["legal"] * 3 + [None] + ["linear"] * 5 + [None] * 3


@pytest.mark.parametrize("name", CASES)
def test_each_pass_leaves_the_graph_that_the_next_one_expects(name: str) -> None:
    found = after(name)
    legal = nodes(found["legalise"])
    assert not any(u.op is Op.ARGSORT for u in legal)
    assert not any(u.op in ALU and u.op is not Op.CAST and u.dtype in (dtypes.int8, dtypes.bfloat16) for u in legal)
    assert not any(u.op is Op.REDUCE and u.dtype is dtypes.bool_ for u in legal)
    assert coalesce(found["coalesce-loops"].sink) is found["coalesce-loops"].sink, "nothing is left to coalesce"
    assert found["choose-opts"].opts is not None
    assert kinds(found["choose-opts"]) <= {"loop", "reduce"}
    assert "loop" not in kinds(found["apply-opts"])
    assert kinds(found["map-to-hardware"]).isdisjoint({"workgroup", "local", "tile"})
    assert kinds(found["write-out"]) <= {"reduce", "written", "group", "vector", "row", "column", "depth"}
    group = [u for u in nodes(found["write-out"]) if u.op is Op.RANGE and u.arg[1] == "group"]
    assert all(u.src[0].arg == found["map-to-hardware"].launch.group for u in group)  # type: ignore[union-attr]


def test_hardware_indices_are_as_large_as_the_launch() -> None:
    found = after("tiled")
    launch = found["map-to-hardware"].launch
    assert launch is not None
    special = {u.arg for u in nodes(found["map-to-hardware"]) if u.op is Op.SPECIAL}
    assert special == {("wg", launch.workgroups), ("lid", launch.threads)}
    assert (launch.workgroups, launch.threads, launch.group) == (16, 32, 2)


def test_registers_are_nodes_after_they_are_written_out() -> None:
    found = after("tiled")
    # Two tiles lie in two places each; the accumulators are four registers of four lanes.
    assert sum(u.op is Op.REDUCE for u in nodes(found["map-to-hardware"])) == 2
    reduces = [u for u in nodes(found["write-out"]) if u.op is Op.REDUCE]
    assert len(reduces) == 2 * 4
    assert sum(u.op is Op.SHARED for u in nodes(found["vectorise"])) == 2


def test_only_whole_vectors_are_made_by_vectorise() -> None:
    found = after("tiled")
    assert not any(u.op is Op.LANES for u in nodes(found["write-out"]))
    assert any(u.op is Op.LANES for u in nodes(found["vectorise"]))


def test_the_last_passes_fill_one_field_each() -> None:
    found = after("elementwise")
    for name, field in (("linearise", "program"), ("write-body", "text"), ("write-module", "source")):
        before = found[PASSES.names[PASSES.names.index(name) - 1]]
        assert getattr(before, field) is None
        assert getattr(found[name], field)
    assert found["write-module"].source == generate(*CASES["elementwise"][:1], TARGET).source


def test_debug_5_shows_every_pass_with_what_it_made(capsys: pytest.CaptureFixture[str]) -> None:
    with settings.override(debug=5):
        run_passes(*CASES["tiled"][:1], TARGET, TILED)
    parts = capsys.readouterr().err.split("anneal: after ")[1:]
    assert [p.splitlines()[0] for p in parts] == list(PASSES.names)
    shown = dict(zip(PASSES.names, parts, strict=True))
    assert "VECTORIZE(1,4) LOCAL(1,4)" in shown["choose-opts"]
    assert "LaunchConfig(workgroups=16, threads=32" in shown["map-to-hardware"]
    assert "= for RANGE(" in shown["linearise"]
    assert "workgroupBarrier();" in shown["write-body"]
    assert "@compute" in shown["write-module"]


def test_debug_5_shows_the_passes_of_every_part_of_a_merged_module(capsys: pytest.CaptureFixture[str]) -> None:
    i, j = K.loop(40, 0), K.loop(50, 1)
    two = K.sink(*[K.store(K.param(n, 50), r, K.load(K.param(n + 2, 50), r) + n) for n, r in ((0, i), (1, j))])
    with settings.override(debug=5):
        generate(two)
    said = capsys.readouterr().err
    assert said.count("anneal: after write-body") == 2
    assert "anneal: after write-module" not in said, "the parts have one module"


def test_until_stops_after_each_pass_and_refuses_other_names() -> None:
    graph = K.logsumexp(6, 20)
    for number, name in enumerate(PASSES.names, 1):
        heard: list[str] = []
        s = run_passes(graph, until=name, hook=lambda p, _, into=heard: into.append(p.name))  # type: ignore[misc]
        assert tuple(heard) == PASSES.names[:number]
        assert (s.source is not None) == (name == "write-module")
    with pytest.raises(
        UserError, match="no pass 'linearize' in the pipeline codegen; passes: legalise, coalesce-loops"
    ):
        run_passes(graph, until="linearize")


def test_preparing_and_lowering_are_the_same_passes() -> None:
    graph = K.matmul(64, 48, 32)
    ready = prepare(graph, TARGET)
    assert ready is run_passes(graph, TARGET, until="merge-rows").sink
    opts = [Opt("LOCAL", 1, 8), Opt("UPCAST", 0, 4)]
    assert lower(ready, opts, TARGET) == run_passes(graph, TARGET, opts, until="linearise").program


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (Target(max_threads=16), "32 threads in a workgroup; the target has 16"),
        (Target(workgroup_bytes=64), "bytes of"),
    ],
)
def test_a_program_that_the_target_has_no_room_for_is_refused(target: Target, why: str) -> None:
    with pytest.raises(CompilerError, match=why):
        run_passes(K.matmul(64, 64, 64), target, TILED, until="linearise")
