"""Planted bugs are found and named: what differs, beside what, in which kernel, from which line; and without one,
nothing is found.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from anneal.inspect import Difference, GradientCheck, Report, Suspect, check
from anneal.nn import functional
from anneal.schedule import clear_cache
from anneal.tensor import Tensor
from anneal.uop import Arena
from tests.conftest import opened
from tests.inspect.checking.planted import BUGS, Bug, compiled_afresh, inputs, rule


def here(program: Any) -> int:
    lines, first = inspect.getsourcelines(program)
    [n] = [n for n, line in enumerate(lines) if "# here" in line]
    return first + n


@pytest.fixture
def available(request: pytest.FixtureRequest) -> Iterator[Bug]:
    bug: Bug = request.param
    with opened(bug.device):
        yield bug


def test_twenty_bugs_and_more_are_planted_in_every_part() -> None:
    """Each is found below, with its kernel and its line: rules, passes, opts, shaders, barriers, memory, drivers."""
    names = [b.name for b in BUGS]
    assert len(set(names)) == len(names) >= 20
    assert {b.device for b in BUGS} == {"cpu", "webgpu"}
    assert {b.against for b in BUGS} == {"tensor graph", "kernel graph", "memory", "one batch"}
    for part in ("rule", "opt ", "barrier", "memory", "thread", "driver"):
        assert [n for n in names if part in n], part


@pytest.mark.parametrize("available", BUGS, ids=lambda b: b.name, indirect=True)
def test_a_planted_bug_is_named(available: Bug) -> None:
    bug = available
    with compiled_afresh(bug):
        report = check(bug.program, *inputs(bug.device))
    first = report.first
    assert isinstance(first, Difference), str(report)
    assert first.against == bug.against, str(first)
    assert here(bug.program) in [line.line for line in first.lines], str(first)
    assert bug.says in str(first), str(first)
    assert [k for k in report.kernels if k.kernel == first.kernel and k.name == first.name]
    assert not report.ok


@pytest.mark.parametrize("available", BUGS, ids=lambda b: b.name, indirect=True)
def test_without_it_nothing_is_found(available: Bug) -> None:
    clear_cache()
    report = check(available.program, *inputs(available.device))
    assert report.ok, str(report)
    assert report.first is None
    assert report.tensor_elements > 0


def negative_whole(x: Tensor, w: Tensor) -> Tensor:
    return (-(x * 2.0)).sum()  # here


def test_a_wrong_sign_is_named_where_a_side_of_the_rule_reads_memory_by_itself() -> None:
    [bug] = [b for b in BUGS if b.name == "a rule drops a sign"]
    with compiled_afresh(bug):
        first = check(negative_whole, *inputs("cpu")).first
    assert isinstance(first, Difference)
    assert bug.says in str(first), str(first)
    assert [line.line for line in first.suspects[0].lines] == [here(negative_whole)]


def bent_loss(x: Tensor, w: Tensor) -> Tensor:
    y = (x @ w).sigmoid()
    z = y.tanh()  # here
    return (z * z).mean()


def test_a_wrong_rule_of_a_derivative_is_named() -> None:
    x, w = inputs("cpu")
    w = Tensor(w.numpy(), requires_grad=True, device="cpu")
    wrong = rule("gradient.upat", "tanh(x) -> g * (1 - y * y)", "tanh(x) -> g * (1 - y)")
    with wrong():
        report = check(bent_loss, x, w, gradients=True)
    first = report.first
    assert isinstance(first, GradientCheck), str(report)
    assert first.name.startswith("TANH")
    assert [line.line for line in first.lines] == [here(bent_loss)]
    assert "tanh(x) -> g * (1 - y)" in first.blame
    right = check(bent_loss, x, w, gradients=True)
    assert right.ok, str(right)
    assert len(right.gradients) == 1


def subtracted(x: Tensor) -> Tensor:
    y = x * 2.0
    return x + -y  # here


def test_a_wrong_rule_that_fires_while_the_graph_is_made_is_named(device: str) -> None:
    x = Tensor(np.arange(6, dtype=np.float32), device=device)
    wrong = rule("fold.upat", "x + -y -> x - y", "x + -y -> x - x")
    with Arena(), wrong():
        report = check(subtracted, x)
    first = report.first
    assert isinstance(first, Suspect), str(report)
    assert first.rule == "x + -y -> x - x"
    assert [line.line for line in first.lines] == [here(subtracted)]
    assert not report.differences, "the kernel does what the graph says"
    assert check(subtracted, x).ok


def overflowing(x: Tensor) -> Tensor:
    e = x.exp()  # here
    return (e / e.sum(1, keepdim=True)).contiguous()


def test_the_first_nan_is_named_with_what_it_comes_from(device: str) -> None:
    x = Tensor(np.array([[1.0, 2.0, 3.0], [-1.0, 90.0, 0.0]], np.float32), device=device)
    report: Report = check(lambda: overflowing(x * 1.0).log())
    found = report.not_finite
    assert found is not None
    assert (found.kind, found.begins, found.op) == ("nan", "inf", "EXP")
    assert here(overflowing) in [line.line for line in found.lines]
    assert found.sources == ("90",)
    assert any("[4] = 90" in x for x in found.inputs)
    assert report.first is None, "a nan that the program itself makes is no difference"
    assert not report.ok
    assert report.reason.startswith("the first inf that becomes nan is EXP of 90 (test_planted.py:")
    assert str(report).startswith(str(found))
    assert "nothing differs" not in str(report)


@pytest.mark.parametrize(
    ("values", "f", "op", "ok"),
    [
        ([1.0, 2.0], lambda x: (x - 5.0).log().softmax(-1), "LOG", False),  # all of it is nan
        ([float("nan"), 2.0], lambda x: x * 2.0, "MUL", False),  # as it was given
        ([1.0, 2.0], lambda x: ((x - 1.0).log().contiguous() * 0.0).exp(), "LOG", False),  # an infinity, then a nan
        ([1.0, 90.0], lambda x: x.exp(), "EXP", False),  # finite in float64
        ([1.0, 2.0], lambda x: x / 0.0, "DIV", True),  # infinite in float64 too
        ([1.0, 90.0], lambda x: x / x.exp().sum(), "EXP", True),  # no result has it
        ([1.0, -2.0], lambda x: (x.log().sum() > 0.0).where(x.log().sum(), x), "LOG", True),
    ],
)
def test_what_is_not_finite_is_said_first(values: list[float], f: Any, op: str, ok: bool, device: str) -> None:
    report = check(f, Tensor(np.array(values, np.float32), device=device))
    assert report.not_finite is not None
    assert report.not_finite.op == op, str(report)
    assert report.ok is ok, str(report)
    assert report.first is None
    assert bool(report.reason) is not ok
    assert str(report).startswith("the first ")


def test_numbers_that_are_infinite_on_purpose_are_no_finding() -> None:
    x = Tensor(np.ones((4, 4), np.float32), device="cpu")
    hidden = Tensor.ones(4, 4, device="cpu").tril() == 0
    report = check(lambda: x.masked_fill(hidden, float("-inf")).softmax(-1))
    assert report.not_finite is None
    assert report.ok


def test_what_a_padded_maximum_begins_with_is_no_finding() -> None:
    x = Tensor(np.ones((1, 1, 6, 6), np.float32), device="cpu")
    for padded in (
        lambda: functional.max_pool2d(x, 3, 2, 1),
        lambda: x.pad(((0, 0),) * 2 + ((1, 1),) * 2, value=-np.inf),
    ):
        report = check(lambda padded=padded: padded().contiguous())
        assert report.not_finite is None
        assert report.ok
