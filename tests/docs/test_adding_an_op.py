"""The diff of docs/adding-an-op.md applies to the tree as it is, and what it adds works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.test_documents import ROOT, read

GUIDE = "docs/adding-an-op.md"
# Run in the changed copy: the op beside NumPy, its gradient beside finite differences, forward mode, vmap, both
# oracles, the checks, and a file of ONNX.
CHECKS = """
import sys
import tempfile
import numpy as np
import anneal
from anneal import onnx, settings
from anneal.rewrite import check
from anneal.schedule import CostModel, graph, plan_for
from anneal.tensor import Tensor, grad, jvp, set_default_device, vmap
from anneal.uop import Op
from tests.backend.kernel_oracle import run_kernel
from tests.helpers import check_grad, check_values

values = np.linspace(-4, 4, 37, dtype=np.float32).reshape(1, 37)
wide = values.astype(np.float64)
expected = np.exp(-wide * wide)
with settings.override(require_webgpu=sys.argv[1] == "webgpu"):
    set_default_device(sys.argv[1])
    x = Tensor(values)
    check_values(x.gauss(), expected, dtype="float32", rtol=2e-5, atol=1e-9)
    check_values((x.gauss() * 2 + 1).sum(1), (expected * 2 + 1).sum(1), rtol=1e-5)
    slopes = grad(lambda t: t.gauss().sum())
    check_values(slopes(x), -2 * wide * expected, rtol=2e-5, atol=1e-7)
    check_values(vmap(slopes)(x), -2 * wide * expected, rtol=2e-5, atol=1e-7)
    check_values(jvp(lambda t: t.gauss(), (x,), (x,))[1], -2 * wide * wide * expected, rtol=2e-5, atol=1e-7)
    report = anneal.check(lambda t: (t.gauss() * 3).sum(), Tensor(values * 2, requires_grad=True), gradients=True)
    assert report.ok and report.tensor_elements, str(report)
if sys.argv[1] == "cpu":
    with tempfile.TemporaryDirectory() as folder:
        path = onnx.export(lambda t: t.gauss(), x, folder + "/gauss.onnx").path
        check_values(onnx.load(path)(x), expected, rtol=2e-5, atol=1e-9)
    check_grad(lambda t: t.gauss(), wide)
    check(x.gauss().uop, "tensor")
    plan, inputs, _ = plan_for(graph([x.gauss().uop]), CostModel())
    (call,) = plan.calls
    check(call.kernel.sink, "kernel")
    out = np.zeros(37, np.float32)
    run_kernel(call.kernel.sink, [out, values.ravel()])
    np.testing.assert_allclose(out, expected.ravel(), rtol=1e-6)
    try:
        check(Op.GAUSS(Tensor([1]).uop), "tensor")
    except Exception as error:
        print(str(error).splitlines()[0])
"""


def apply(diff: str, folder: Path) -> list[str]:
    """Change the files of a folder; the text before each change must stand there once. The names of what was
    changed.
    """
    changed = []
    for name, hunks in re.findall(
        r"^--- (?:a/\S+|/dev/null)\n\+\+\+ b/(\S+)\n((?:[@ +-].*\n|\n)*?)(?=^--- (?:a/|/dev)|\Z)", diff, re.MULTILINE
    ):
        path = folder / name
        if f"--- /dev/null\n+++ b/{name}\n" in diff:
            assert not path.exists()
            path.touch()
        text = path.read_text(encoding="utf-8")
        for hunk in re.split(r"^@@.*\n", hunks, flags=re.MULTILINE)[1:]:
            lines = [line or " " for line in hunk.splitlines()]
            before, after = ("".join(f"{line[1:]}\n" for line in lines if line[0] in kept) for kept in (" -", " +"))
            found = f"\n{text}".count(f"\n{before}")
            assert found == 1, f"{name} has changed; a guide in docs/ is to follow:\n{before}"
            text = f"\n{text}".replace(f"\n{before}", f"\n{after}")[1:]
        path.write_text(text, encoding="utf-8")
        changed.append(name)
    return changed


def the_diff(guide: str = GUIDE) -> str:
    found = re.search(r"^```diff\n(.*?)^```$", read(guide), re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def changed_tree(folder: Path, diff: str) -> Path:
    """A copy of the package and the tests with a diff applied, its rules and names generated."""
    for name in ("anneal", "tests", "benchmarks", "tools"):
        shutil.copytree(ROOT / name, folder / name)  # what Python compiled, too: it is of files of the same age
    shutil.copy(ROOT / "pyproject.toml", folder)
    changed = apply(diff, folder)
    assert len(changed) == diff.count("\n+++ b/")
    run(folder, "-m", "anneal.rewrite.generate")
    run(folder, "-m", "tools.names")
    return folder


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return changed_tree(tmp_path_factory.mktemp("tree"), the_diff())


def run(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder), "ANNEAL_CACHE": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    found = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_a_diff_that_does_not_fit_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")
    diff = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,3 @@\n one\n+more\n two\n"
    assert apply(diff, tmp_path) == ["a.py"]
    assert (tmp_path / "a.py").read_text() == "one\nmore\ntwo\nthree\n"
    with pytest.raises(AssertionError, match="has changed"):
        apply(diff, tmp_path)


def test_git_applies_it_too(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("no git")
    shutil.copytree(ROOT / "anneal", tmp_path / "anneal", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-C", str(tmp_path), "apply", "-"]
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    done = subprocess.run(git, input=the_diff(), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "GAUSS" in (tmp_path / "anneal" / "uop" / "ops.py").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_op_is_right_on_the_cpu_and_by_both_oracles(tree: Path) -> None:
    assert run(tree, "-c", CHECKS, "cpu") == "GAUSS is for floats in pass tensor on node:\n"


@pytest.mark.slow
def test_the_op_is_right_on_webgpu(tree: Path, webgpu: str) -> None:
    run(tree, "-c", CHECKS, webgpu)


@pytest.mark.slow
def test_the_tests_that_it_adds_pass(tree: Path) -> None:
    slow = ("tests/tensor/test_gradient.py", "tests/backend/webgpu/test_alu.py")
    changed = re.findall(r"^\+\+\+ b/(tests/\S+/test_\w+\.py)$", the_diff(), re.MULTILINE)
    names = [*[name for name in changed if name not in slow], "tests/tensor/test_gradient_tables.py"]
    chosen = "(gauss or GAUSS or every_op_has_a_case) and not webgpu"
    said = run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *names)
    run_here = [name for name in names if "gradient_tables" not in name or find_spec("torch")]
    assert int(re.findall(r"(\d+) passed", said)[0]) > len(run_here)


def test_it_touches_every_place_that_the_guide_names() -> None:
    listed = set(re.findall(r"`((?:anneal|tests)/[\w/]+\.py)`", read(GUIDE).partition("## The diff")[0]))
    changed = set(re.findall(r"^\+\+\+ b/(\S+)$", the_diff(), re.MULTILINE))
    assert listed - changed == {"tests/docs/test_adding_an_op.py"}


def test_it_edits_five_files_of_the_package() -> None:
    changed = re.findall(r"^\+\+\+ b/(anneal/\S+)$", the_diff(), re.MULTILINE)
    assert len(changed) <= 5
