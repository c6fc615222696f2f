"""Every differentiable method and function, exported: its values, its gradients, and both where an axis is empty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx

import anneal.onnx
from anneal.errors import AnnealError, OnnxError
from anneal.tensor import Tensor, functional as F, grad, tree_leaves
from tests.onnx.exporting import run_file, same
from tests.tensor.gradient_ops import CASES, Case, arrays
from tests.tiers import thinned

RANDOM = ("gumbel_softmax",)
LEFT_OUT = (*RANDOM, "masked_select")  # the shape of this one depends on values
DRAWN = [pytest.param(c, id=c.id) for c in CASES if c.names not in LEFT_OUT]
EMPTY = [
    pytest.param(c.values[0], letter, id=f"{c.id} without {letter}")
    for c in DRAWN
    for letter in sorted(set(c.values[0].shapes) - set("i,"))
]


def forward(case: Case) -> Callable[..., Any]:
    return lambda *xs: case.f(Tensor, F, *xs)


def gradients(case: Case) -> Callable[..., Any]:
    """The gradients of a sum in which each number counts in its own way."""

    def loss(xs: list[Tensor]) -> Tensor:
        total = Tensor(0.0)
        for t in tree_leaves(case.f(Tensor, F, *xs)):
            if t.dtype.is_float:
                weights = np.cos(np.arange(t.numel())).astype(np.float32).reshape(t.shape)
                total = total + (t * t + t * Tensor(weights).cast(t.dtype)).sum()
        return total

    return lambda *xs: grad(loss)(list(xs))


def check(function: Callable[..., Any], given: list[Any], want: list[Any], path: Path) -> None:
    made = anneal.onnx.export(function, tuple(given), path)
    onnx.checker.check_model(str(path), full_check=True)
    got = run_file(path, {i.name: a for i, a in zip(made.inputs, given, strict=True)})
    for g, w in zip(got, want, strict=True):
        same(g, w)


def computed(function: Callable[..., Any], given: list[Any]) -> list[Any]:
    results = tree_leaves(function(*[Tensor(a) for a in given]))
    return [(t if isinstance(t, Tensor) else Tensor(t)).numpy() for t in results]


@pytest.mark.parametrize("case", thinned(DRAWN, test=2, ci=1))
def test_values(case: Case, tmp_path: Path) -> None:
    given = arrays(case)
    check(forward(case), given, computed(forward(case), given), tmp_path / "m.onnx")


@pytest.mark.parametrize("case", thinned(DRAWN, test=6, ci=4))
def test_gradients(case: Case, tmp_path: Path) -> None:
    given = arrays(case)
    check(gradients(case), given, computed(gradients(case), given), tmp_path / "m.onnx")


@pytest.mark.parametrize(("case", "letter"), thinned(EMPTY, test=8, ci=4))
def test_values_of_nothing(case: Case, letter: str, tmp_path: Path) -> None:
    given = arrays(case, empty=letter)
    try:
        want = computed(forward(case), given)
    except AnnealError:
        return  # it takes no empty axis, here and in a file
    check(forward(case), given, want, tmp_path / "m.onnx")


def test_what_draws_is_refused(tmp_path: Path) -> None:
    for case in CASES:
        if case.names in RANDOM:
            with pytest.raises(OnnxError, match="random numbers"):
                anneal.onnx.export(forward(case), tuple(arrays(case)), tmp_path / "m.onnx")
