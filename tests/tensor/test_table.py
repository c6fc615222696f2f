"""The table of methods: what `anneal.ops` has, the class `Tensor` names, and type checkers see it as it is written."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from anneal import names, ops
from anneal.errors import DTypeError
from anneal.runtime import Handle
from anneal.tensor import Tensor, functional
from tools.names import ROOT, declared

DECLARED = {file: [f for f in declared() if f.file == file] for file in {f.file for f in declared()}}
FAMILIES = sorted(DECLARED)

# Ops that take a tensor first and are no methods.
NO_METHODS = {
    "functions of torch.nn.functional, which torch.Tensor does not have either": {
        *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d"),
        *("adaptive_max_pool2d", "adaptive_max_pool3d", "affine_grid", "bilinear", "cdist", "channel_shuffle"),
        *("cosine_embedding_loss", "cosine_similarity", "embedding", "fold", "gaussian_nll_loss", "glu"),
        *("grid_sample", "gumbel_softmax", "hinge_embedding_loss", "instance_norm", "local_response_norm", "lp_pool1d"),
        *("lp_pool2d", "margin_ranking_loss", "multi_margin_loss", "multilabel_soft_margin_loss", "normalize"),
        *("pairwise_distance", "poisson_nll_loss", "soft_margin_loss", "triplet_margin_loss"),
    },
    "Tensor.unfold is another op, as in torch": {"im2col"},
    "functions of several tensors": {"broadcast_tensors", "meshgrid"},
    "functions of anneal.tensor.random": {"categorical"},
    "functions of anneal.special": {
        n
        for f in DECLARED["gamma"]
        for n in (f.names if f.said.get("method") is False else f.words("function_alias"))
        if n != "xlog1py"
    },
    "functions of torch alone": {
        *(n for n in dir(ops) if n.endswith("_copy") and n not in ("index_copy", "narrow_copy")),
        *("fill", "gradient", "real", "rsub", "trapz", "unravel_index"),
    },
}
EXCUSED = set[str]().union(*NO_METHODS.values())


def listed() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    for file, functions in DECLARED.items():
        for name in (n for f in functions for n in f.names):
            yield file, name, getattr(ops, name)


def takes_a_tensor(function: Callable[..., Any]) -> bool:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and (first.name == "tensors" or str(first.annotation).startswith("Tensor"))


def test_tensor_is_one_class() -> None:
    assert Tensor.__mro__ == (Tensor, Handle, object)


def test_a_name_is_declared_once() -> None:
    found = [name for _, name, _ in listed()]
    assert len(found) == len(set(found)) > 400
    assert all(getattr(ops, f.name) is getattr(import_module(f"anneal.ops.{file}"), f.name)
               for file, functions in DECLARED.items() for f in functions)  # fmt: skip


def test_a_function_of_no_declaration_is_refused() -> None:
    from tools.names import functions

    with pytest.raises(SystemExit, match="@function does not take alais"):
        functions('@function("alais=g")\ndef f(x): ...\n', "file")
    assert [f.names for f in functions('@function("alias=g in_place")\ndef f(x: Tensor): ...\n', "file")] == [
        ["f", "g", "f_", "g_"]
    ]


def test_functions_of_a_file_share_words() -> None:
    from tools.names import functions

    text = """
_real = function("in_place special")
@_real
def f(x: Tensor) -> Tensor: ...
@_real("alias=h special=no")
@by_slope
def g(x: Tensor) -> tuple[Tensor, Tensor]: ...
"""
    f, g = functions(text, "file")
    assert (f.names, f.words("special"), g.names, g.words("special")) == (
        ["f", "f_"],
        ["f"],
        ["g", "h", "g_", "h_"],
        [],
    )
    assert g.node.returns is not None
    assert ast.unparse(g.node.returns) == "Tensor"  # the slope is no result
    with pytest.raises(SystemExit, match="@function does not take alais"):
        functions('_real = function("alais=g")\n@_real\ndef f(x): ...\n', "file")


def test_an_op_that_takes_a_tensor_first_is_a_method() -> None:
    ops_of_tensors = {name: f for _, name, f in listed() if takes_a_tensor(f)}
    missing = {name for name, f in ops_of_tensors.items() if getattr(Tensor, name, None) is not f}
    assert missing == EXCUSED
    assert len(ops_of_tensors) > 330


@pytest.mark.parametrize("family", FAMILIES)
def test_every_op_is_checked_and_bears_its_name(family: str) -> None:
    for name in (n for f in DECLARED[family] for n in f.names):
        function = getattr(ops, name)
        assert function.__name__ == name
        assert inspect.unwrap(function) is not function, f"{name} is not checked"
        if takes_a_tensor(function) and next(iter(inspect.signature(function).parameters)) != "tensors":
            with pytest.raises((DTypeError, TypeError), match=rf"^{name}"):
                function("a text")


def test_help_shows_the_signature_and_the_text_of_the_function() -> None:
    assert "weight: 'Tensor', bias: 'Tensor | None' = None" in str(inspect.signature(Tensor.conv2d))
    assert Tensor.conv2d.__doc__ == functional.conv2d.__doc__
    assert str(inspect.signature(Tensor.zeros)).startswith("(*shape: 'Any', dtype: 'DTypeLike | None' = None")


def test_no_method_gives_any() -> None:
    """What comes out has a type: a tensor, tensors, or what the annotation says; of operators, in the stub alone."""
    stub = ast.parse((ROOT / "anneal/names.pyi").read_text(encoding="utf-8"))
    methods = next(n for n in stub.body if isinstance(n, ast.ClassDef)).body
    typed = {f.name: ast.unparse(f.returns) for f in methods if isinstance(f, ast.FunctionDef) and f.returns}
    assert set(names.OPERATORS.split()) < set(typed)
    assert [name for name, returns in typed.items() if returns == "Any"] == []
    for name in dir(Tensor):
        getattr(Tensor, name)  # imported by now
    for name, found in vars(Tensor).items():
        function = inspect.unwrap(found.__func__ if isinstance(found, (classmethod, staticmethod)) else found)
        if inspect.isfunction(function) and function.__module__.startswith("anneal.ops.") and name[:2] != "__":
            assert function.__annotations__.get("return") not in (None, "Any"), name


TYPED = """
from anneal.tensor import Tensor, functional

t = Tensor([1.0])
for row in t:
    reveal_type(row)
reveal_type(t.exp())
reveal_type(t.conv2d(t))
reveal_type(t + 1)
reveal_type(1 - t)
reveal_type(t == 1)
reveal_type(t < 1)
reveal_type(t[0])
reveal_type(t @ t)
reveal_type(t.max(dim=1).values)
reveal_type(t.arcsin())
reveal_type(t.T)
reveal_type(t.float())
reveal_type(Tensor.zeros(2, 3))
reveal_type(Tensor.cat([t, t], dim=0))
reveal_type(functional.linear(t, t))
t.exp(3)  # Too many arguments
t.conv2d("a")  # incompatible type
"""


@pytest.mark.deep
def test_mypy_sees_tensors(tmp_path: Path) -> None:
    """A program of a user's, by `mypy --strict`: every result is a Tensor, and a wrong call is found."""
    (tmp_path / "program.py").write_text(TYPED)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    found = subprocess.run(
        [*command, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    revealed = re.findall(r'Revealed type is "(.*)"', found.stdout)
    assert revealed == ["anneal.tensor._tensor.Tensor"] * TYPED.count("reveal_type"), found.stdout
    wrong = [n for n, line in enumerate(TYPED.split("\n"), 1) if "  # " in line]
    assert [int(n) for n in re.findall(r"program\.py:(\d+): error", found.stdout)] == wrong
