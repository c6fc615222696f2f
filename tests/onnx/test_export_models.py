"""Every example is exported, for batches of any size; random programs are, and give what the interpreter gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import ml_dtypes
import onnx

import anneal.onnx
from anneal.cli.commands.onnx import example_arguments
from anneal.errors import OnnxError
from anneal.tensor import Tensor, functional as F, manual_seed, tree_leaves, tree_map
from tests.examples.helpers import SMALL, small
from tests.fuzz.generate import Program, program
from tests.fuzz.programs import difference, expected
from tests.onnx.exporting import run_file, same
from tests.tiers import thinned


def given_to(training: Any, batch: int, rng: np.random.Generator) -> Any:
    """Values like those that the loss gives the model, of a batch of so many."""
    highest = 3  # of classes, letters and times

    def values(t: Tensor) -> Any:
        shape = (batch, *t.shape[1:])
        return (
            rng.standard_normal(shape).astype(np.float32)
            if t.dtype.is_float
            else rng.integers(0, highest, shape, np.int32)
        )

    return tree_map(lambda t: Tensor(values(t)) if isinstance(t, Tensor) else t, example_arguments(training, True))


@pytest.mark.parametrize("name", SMALL)
def test_every_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = small(name, monkeypatch)
    model = training.model.eval()
    manual_seed(5)
    for t in model.parameters():  # some start with zeros, which would hide what is wrong
        t.assign(t.detach() + Tensor.randn(*t.shape) * 0.05)
    made = anneal.onnx.export(model, example_arguments(training, True), tmp_path / "m.onnx")
    onnx.checker.check_model(str(made.path), full_check=True)
    loaded = anneal.onnx.load(made.path)
    rng = np.random.default_rng(0)
    for batch in (1, 3):
        arguments = given_to(training, batch, rng)
        named = {
            i.name: t.numpy()
            for i, t in zip(made.inputs, [t for t in tree_leaves(arguments) if isinstance(t, Tensor)], strict=True)
        }
        want = model(*arguments).numpy()
        assert np.abs(want).max() > 1e-3
        same(run_file(made.path, named)[0], want)
        same(loaded.run(named)["output"].numpy(), want)
    assert "Expand" not in made.operators or made.operators["Expand"] < made.nodes / 5


# -- random programs ------------------------------------------------------------------------------------------------

_WITHOUT_ARRAYS = ("bfloat16", "float8_e5m2", "float8_e4m3fn")  # NumPy has none of them, so onnxruntime gives none


def exported(p: Program, path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Export a program as a function of its leaves: their values, and outputs that are widened, with their dtypes."""
    code = compile("\n".join(p.lines), f"<program {p.seed}>", "exec")
    widened: dict[str, str] = {}

    def function(*leaves: Tensor) -> list[Tensor]:
        scope: dict[str, Any] = {"np": np, "Tensor": Tensor, "F": F}
        for (name, *_), t in zip(p.leaves, leaves, strict=True):
            scope[name] = t.requires_grad_() if name in p.wants_grad else t
        exec(code, scope)
        for name in p.outputs:
            if scope[name] is None:  # a gradient that there is none of
                leaf = next(n for n, *_ in p.leaves if f"{name} = {n}.grad" in p.lines)
                scope[name] = Tensor.zeros(*scope[leaf].shape)
            if scope[name].dtype.name in _WITHOUT_ARRAYS:
                widened[name] = scope[name].dtype.name
                scope[name] = scope[name].float()
        return [scope[name] for name in p.outputs]

    values = {n: np.array(v, d).reshape(s) for n, d, s, v in p.leaves}
    names = [f"{n}_" for n in p.outputs]
    anneal.onnx.export(function, tuple(values.values()), path, input_names=list(values), output_names=names)
    return values, widened


def check_program(seed: int, path: Path) -> None:
    p = program(seed)
    try:
        values, widened = exported(p, path)
    except OnnxError as e:
        if "changes its argument" in str(e):
            return
        raise
    onnx.checker.check_model(str(path), full_check=True)
    got = dict(zip(p.outputs, run_file(path, values), strict=True))
    for name, dtype in widened.items():
        got[name] = got[name].astype(getattr(ml_dtypes, dtype))
    found = difference("cpu", *expected(p)[:2], got)
    assert found is None, f"program {seed}: {found}\n{p.source()}"


PARTS = [*range(0, 1000, 20), *range(-200, 0, 20)]


@pytest.mark.parametrize("first", thinned(PARTS, test=12, ci=12))
def test_random_programs(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 20):
        check_program(seed, tmp_path / "m.onnx")
