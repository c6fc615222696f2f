"""Kernels in C as the tools show them: their text, the origins of its lines, their times, and the wrong ones."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import inspect, settings
from anneal.backend import compiler, get_device
from anneal.backend.cpu import CpuDevice, in_c
from anneal.cli._app import run
from anneal.inspect.checking import check
from anneal.schedule import graph
from anneal.web.answers import Answers
from tests.inspect import models

pytestmark = pytest.mark.skipif(compiler.find() is None, reason="this machine has no C compiler")


@pytest.fixture(autouse=True)
def _auto() -> Iterator[None]:
    with settings.override(cpu="auto"):
        yield


def said(*command: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        assert run([*command]) == 0
    return out.getvalue()


def softmax(x: an.Tensor) -> an.Tensor:
    return (x * 2.0).softmax(1)


def test_each_line_of_a_text_in_c_has_the_lines_that_it_comes_from() -> None:
    cpu = get_device("cpu")
    step = models.step()
    for n in range(len(inspect.Looked("", step, cpu.cost_model).plan.calls)):
        text = inspect.kernel_text(step, cpu.cost_model, n, inspect.c_target("cpu"))
        assert text.lines[0].text == "void kernel(void **memory, long begin, long end) {"
        assert text.lines[-1].text == "}"
        for t in text.lines:
            if any(not op.startswith("RANGE") for op in t.ops):
                assert {x.file for x in t.lines} == {models.__file__}, t
            if " = " in t.text and t.text.startswith("      ") and "for (" not in t.text:
                assert t.ops, t


def test_a_kernel_of_two_lines_in_c_says_which_of_its_lines_is_whose() -> None:
    x = an.tensor(np.ones((40, 64), np.float32))
    here = test_a_kernel_of_two_lines_in_c_says_which_of_its_lines_is_whose.__code__.co_firstlineno
    y = x.exp()
    z = y.sum(1)
    text = inspect.kernel_text(graph([z.uop]), get_device("cpu").cost_model, 0, inspect.c_target("cpu"))
    of = [{t.number for t in text.of_line(__file__, here + line)} for line in (3, 4)]
    assert any("exp_f32" in t.text for t in text.lines if t.number in of[0])
    assert any("*(p0 + " in t.text for t in text.lines if t.number in of[1] - of[0])


def test_the_command_shows_c_and_where_its_lines_come_from() -> None:
    whole = said("kernels", "mlp", "--device", "cpu", "--all")
    assert "void kernel_" in whole
    assert "@compute" not in whole
    lines = json.loads(said("kernels", "mlp", "--device", "cpu", "--wgsl", "0", "--lines", "--json"))
    assert any(t["lines"] for t in lines["lines"])
    with settings.override(cpu="numpy"):
        assert "@compute" in said("kernels", "mlp", "--device", "cpu", "--all")


def test_times_are_those_of_c(monkeypatch: pytest.MonkeyPatch) -> None:
    device = get_device("cpu")
    assert isinstance(device, CpuDevice)
    asked: list[Any] = []
    programs = device.kernels.programs
    monkeypatch.setattr(device.kernels, "programs", lambda *a: asked.append(programs(*a)) or asked[-1])
    found = json.loads(said("kernels", "mlp", "--device", "cpu", "--time", "--json"))
    assert any(asked[0])
    assert all(k["seconds"] > 0 for k in found["kernels"])


def test_the_studio_shows_c_of_models_and_of_recordings(tmp_path: Path) -> None:
    answers = Answers(tmp_path, tmp_path)
    status, found = answers.answer({"ask": "kernel", "model": "mlp", "device": "cpu", "kernel": 0})
    assert status == 200, found
    assert found["text"].lines[0].text.startswith("void kernel(")
    f, x = an.jit(softmax), an.tensor(np.ones((30, 40), np.float32))
    with inspect.recording("softmax") as r:
        f(x).numpy()
        f(x).numpy()
    kept = r.plans[0].answer("kernel/0")
    assert kept["text"]["lines"][0]["text"].startswith("void kernel(")
    assert any(line["lines"] for line in kept["text"]["lines"])


def test_explain_is_the_same(tmp_path: Path) -> None:
    """The rules that fire are the same whoever runs the kernels."""
    found = said("explain", "--model", "mlp", "--device", "cpu")
    with settings.override(cpu="numpy"):
        assert said("explain", "--model", "mlp", "--device", "cpu") == found


def test_a_check_of_a_jit_function_runs_c() -> None:
    device = get_device("cpu")
    assert isinstance(device, CpuDevice)
    x = an.tensor(np.random.default_rng(0).normal(size=(31, 40)).astype(np.float32))
    f = an.jit(softmax)
    report = check(lambda: f(x).numpy())
    assert report.kernels
    assert not report.differences
    assert any(device.kernels._programs.values())


def test_a_check_finds_what_is_wrong_with_c(monkeypatch: pytest.MonkeyPatch) -> None:
    right = in_c.generate

    def wrong(*args: Any) -> Any:
        made = right(*args)
        head, start, body = made.source.partition("\nvoid kernel(")
        return dataclasses.replace(made, source=head + start + body.replace("2.0f", "2.5f"))

    monkeypatch.setattr(in_c, "generate", wrong)
    f, x = an.jit(softmax), an.tensor(np.random.default_rng(0).normal(size=(33, 40)).astype(np.float32))
    report = check(lambda: f(x).numpy())
    assert report.differences
    assert "the program that device cpu made" in str(report.differences[0])
