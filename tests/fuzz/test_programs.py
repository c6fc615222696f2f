"""A thousand random tensor programs, ten thousand in the deep tier: interpreter, cpu and webgpu agree.

All tiers run the thousand on the cpu, and `make test` and CI a third of it on webgpu, the deep tier all on both: where
no shader is in Mesa's cache, as on a fresh machine, a hundred take it ten seconds.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest

from anneal import settings
from anneal.backend import get_device
from anneal.codegen.heuristics import order, reduces
from anneal.codegen.opts import KINDS
from anneal.schedule import CostModel, graph, plan_for
from anneal.schedule.passes import split_reduces
from anneal.uop import Recent
from tests.conftest import opened
from tests.fuzz import programs
from tests.fuzz.force import forced
from tests.fuzz.generate import program
from tests.fuzz.programs import Failure, Known, build, expected, run_variables, shrink
from tests.tiers import thinned

COUNT, PARTS, BATCH = 2000, 20, 25
FURTHER = 10_000  # of `make deep`
# Found by longer runs: kernels joined in a cycle, products with an epilogue by column, outputs that are one node.
ONCE_FAILED = (2155, 2675, 2734, 2827, 2867, 3459, 4582, 6349, 7774, 107167)


@functools.lru_cache(4096)
def _known(seed: int, device: str) -> Known:
    known = expected(program(seed)) if device == "cpu" else _known(seed, "cpu")
    return expected(program(seed), device) if device != "cpu" and known.looks else known


def run(seeds: range, devices: Sequence[str], batch: int) -> list[Failure]:
    """As programs.run, but what the interpreter says of a program is asked once for all tests of this process."""
    return programs.run(seeds, devices, batch, lambda p, device: _known(p.seed, device))


# A part's two rows one after the other: see `_known`. Mesa takes most of the time to compile for webgpu.
ON_CPU = thinned([pytest.param(part, "cpu") for part in range(PARTS)], test=3, ci=3)
ON_WEBGPU = thinned([pytest.param(part, "webgpu") for part in range(PARTS)], test=7, ci=7)
FORCED = [k for k in KINDS if k != "FLAT"]
OPTS = [
    *thinned([pytest.param(k, first, 12) for k in FORCED for first in (0, 12)], test=6, ci=2),  # CI has each kind
    *[pytest.param(k, 24, 26, marks=pytest.mark.deep) for k in FORCED],
]
COST_MODELS = thinned([pytest.param(*r) for r in itertools.product((8, 10, 32), (0, 8192), (0, 50))], test=3, ci=3)
HALVES = thinned((0, 50), test=2, ci=2)
ROWS = [row for both in zip(ON_CPU, ON_WEBGPU, strict=True) for row in both]


@pytest.mark.slow
@pytest.mark.parametrize(("part", "name"), ROWS)
def test_random_programs_agree(part: int, name: str) -> None:
    size = COUNT // PARTS
    with opened(name):
        failures = run(range(part * size, (part + 1) * size), [name], BATCH)
    assert not failures, f"{len(failures)} programs differ; the first, made small:\n{shrink(failures[0])}"


@pytest.mark.deep
@pytest.mark.parametrize(("first", "name"), list(itertools.product(range(COUNT, FURTHER, 500), ("cpu", "webgpu"))))
def test_further_programs_agree(first: int, name: str) -> None:
    with opened(name):
        failures = run(range(first, first + 500), [name], BATCH) + run(range(-first - 50, -first), [name], BATCH)
    assert not failures, f"{len(failures)} programs differ; the first, made small:\n{shrink(failures[0])}"


@pytest.mark.deep
@pytest.mark.parametrize("first", range(COUNT, FURTHER, 500))
def test_further_programs_with_variables_for_sizes_agree(first: int) -> None:
    failures = run_variables(range(first, first + 500), ["cpu"], BATCH)
    assert not failures, f"{len(failures)} programs differ; the first:\n{failures[0]}"


def test_programs_with_narrow_dtypes_agree_on_the_cpu() -> None:
    failures = run(range(-200, 0), ["cpu"], BATCH)
    assert not failures, f"{len(failures)} programs differ; the first, made small:\n{shrink(failures[0])}"


def test_programs_with_narrow_dtypes_agree_on_webgpu(webgpu: str) -> None:
    failures = run(range(-75, 0), [webgpu], BATCH)
    assert not failures, f"{len(failures)} programs differ; the first, made small:\n{shrink(failures[0])}"


def test_programs_with_narrow_dtypes_agree_with_vectors_forced(webgpu: str) -> None:
    with settings.override(cache=False), forced("VECTORIZE"):
        failures = run(range(-25, 0), [webgpu], BATCH)
    assert not failures, failures[0]


def test_programs_that_once_failed() -> None:
    assert not [f for s in ONCE_FAILED for f in run(range(s, s + 1), ["cpu"], 1)]


@pytest.mark.parametrize(("limit", "row_fusion", "first"), COST_MODELS)
def test_programs_agree_under_every_cost_model(limit: int, row_fusion: int, first: int) -> None:
    cost_model = CostModel(max_buffers=limit, row_fusion=row_fusion)
    with mock.patch.object(get_device("cpu"), "cost_model", cost_model):
        failures = run(range(first, first + 50), ["cpu"], 10)
    assert not failures, failures[0]
    for seed in range(first, first + 50):
        plan, _, _ = plan_for(graph([t.uop for t in build(program(seed), "cpu").values()]), cost_model)
        for call in plan.calls:
            assert len(call.args) <= limit, f"program {seed}: {call.kernel.name} binds {len(call.args)} buffers"


def test_programs_agree_where_every_reduce_is_split() -> None:
    cost_model = CostModel(max_buffers=16, row_fusion=8, parallel=512)
    with (
        mock.patch.object(get_device("cpu"), "cost_model", cost_model),
        mock.patch.multiple(
            split_reduces,
            _LEAST_DEPTH=2,
            _LEAST_ROWS=2,
            _LEAST_RUN=2,
            _SUMS=2,
            _LONG_SEGMENTS=2,
            _SEGMENT_PART=1,
            _WORTH={"product": 4, "columns": 4, "run": 4},
        ),
    ):
        failures = run(range(500, 600), ["cpu"], 10)
    assert not failures, failures[0]


@pytest.mark.parametrize("first", HALVES)
def test_programs_agree_on_webgpu_with_the_opts_of_large_kernels(webgpu: str, first: int) -> None:
    # Vectors, several rows a thread, blocks of registers: small kernels do without.
    device: Any = get_device(webgpu)
    with (
        settings.override(cache=False),
        mock.patch.object(order, "_ENOUGH_WORDS", 1),
        mock.patch.object(reduces, "ENOUGH_GROUPS", 1),
        mock.patch.object(device, "_programs", Recent(1024)),
    ):
        failures = run(range(first, first + 50), [webgpu], BATCH)
    assert not failures, failures[0]


@pytest.mark.parametrize("first", HALVES)
def test_programs_agree_on_webgpu_with_checked_shaders(webgpu: str, first: int) -> None:
    device: Any = get_device(webgpu)
    with (
        mock.patch.object(device, "trusted", not device.trusted),
        mock.patch.object(device, "_programs", Recent(1024)),
        mock.patch.object(device, "_pipelines", Recent(1024)),
    ):
        failures = run(range(first, first + 50), [webgpu], BATCH)
    assert not failures, failures[0]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "first", "count"), OPTS)
def test_programs_agree_on_webgpu_with_every_opt_forced(webgpu: str, kind: str, first: int, count: int) -> None:
    device: Any = get_device(webgpu)
    if kind == "CHAIN":
        pytest.skip("these programs have no chains of products: tests/codegen/test_chains.py forces them")
    if kind == "MATRIX" and not device.target.matrices:
        pytest.skip("no subgroup matrices")
    with settings.override(cache=False), forced(kind) as used:
        failures = run(range(first, first + count), [webgpu], BATCH)
    assert kind in used
    assert not failures, failures[0]


def test_a_seed_names_one_program() -> None:
    first, again = program(7), program(7)
    assert first == again
    assert first != program(8)


def test_a_failing_program_prints_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(program(3).script("cpu"), "<script>", "exec"), {})
    assert "False" not in capsys.readouterr().out.splitlines()[0]


def test_programs_use_the_whole_language() -> None:
    text = "\n".join(line for s in range(400) for line in program(s).lines)
    for word in (
        "reshape",
        "permute",
        ".pad(",
        "flip",
        "expand",
        "sum(",
        "max(",
        "prod(",
        "@",
        "gather",
        "where",
        "cast",
    ):
        assert word in text
    for word in (
        "// -",
        "% -",
        ">>",
        "<<",
        "assign",
        "softmax",
        "layer_norm",
        "conv2d",
        "backward",
        "cumsum",
        "argmax",
    ):
        assert word in text


@pytest.mark.parametrize("first", thinned((0, 125), test=2, ci=2))
def test_programs_with_variables_for_sizes_agree_on_the_cpu(first: int) -> None:
    failures = run_variables(range(first, first + 125), ["cpu"], BATCH)
    failures += run_variables(range(-60, -30) if first else range(-30, 0), ["cpu"], BATCH)
    assert not failures, f"{len(failures)} programs differ; the first:\n{failures[0]}"


def test_programs_with_variables_for_sizes_agree_on_webgpu(webgpu: str) -> None:
    failures = run_variables(range(60), [webgpu], BATCH) + run_variables(range(-15, 0), [webgpu], BATCH)
    assert not failures, f"{len(failures)} programs differ; the first:\n{failures[0]}"
