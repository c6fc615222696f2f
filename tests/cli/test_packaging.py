"""What is installed is what was written: a wheel carries the examples, the data and the rules, and runs without the
checkout.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from anneal.assets import BUNDLED
from anneal.training import examples_folder

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = pytest.importorskip("hatchling.builders.wheel", reason="the test extra is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    return Path(next(builder.WheelBuilder(str(ROOT)).build(directory=str(folder))))


def test_a_wheel_is_complete_and_for_every_machine(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {"anneal/py.typed", "anneal/transforms/gradient.upat"}
    wanted |= {f"anneal/assets/{file.file}" for file in BUNDLED.values()}
    wanted |= {f"anneal/_examples/{file.relative_to(EXAMPLES).as_posix()}" for file in EXAMPLES.rglob("*.py")}
    assert wanted <= names
    assert not [n for n in names if n.startswith(("tests/", "benchmarks/", "examples/")) or "__pycache__" in n]


def test_a_wheel_grows_by_no_file_that_nobody_meant(wheel: Path) -> None:
    """Code, rules, bundled data, pictures of the examples; of documents the rooms' READMEs, about a kilobyte each."""
    files = {i.filename: i.file_size for i in zipfile.ZipFile(wheel).infolist() if ".dist-info/" not in i.filename}
    page = {name: files.pop(name) for name in list(files) if name.startswith("anneal/web/static/")}
    assert page == {f"anneal/web/static/{p.name}": p.stat().st_size for p in (ROOT / "anneal/web/static").iterdir()}
    assert sum(page.values()) < 2 << 20
    kinds = {Path(name).suffix for name in files}
    assert kinds <= {
        ".py",
        ".pyi",
        ".c",
        ".h",
        ".wgsl",
        ".upat",
        ".typed",
        ".md",
        ".txt",
        ".png",
        ".gz",
        ".bin",
        ".html",
        ".css",
        ".js",
        ".ts",
    }, kinds
    documents = {name: size for name, size in files.items() if name.endswith(".md")}
    assert all(name.endswith("/README.md") for name in documents)
    assert sum(documents.values()) < 48 << 10


def test_a_wheel_trains(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    done = subprocess.run(
        [sys.executable, "-c", "from anneal.cli import main; main()", "train", "mlp", "--steps", "2", "--device", "cpu"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(site)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "step 2  loss" in done.stdout


@pytest.mark.parametrize("file", sorted(file.name for file in EXAMPLES.glob("*.py")))
def test_an_example_uses_the_public_api_only_and_can_be_read_in_one_sitting(file: str) -> None:
    text = (examples_folder() / file).read_text(encoding="utf-8")
    public = ("anneal", "anneal.assets", "anneal.errors", "anneal.tensor", "anneal.training", "numpy")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [node.module or ""] if not node.level else []
        else:
            continue
        for module in found:
            assert module in public or module.partition(".")[0] in sys.stdlib_module_names, module
    assert len(text.splitlines()) <= 250


def test_torch_is_no_test_dependency() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert not [name for name in extras["test"] if name.startswith(("torch", "tinygrad"))]
