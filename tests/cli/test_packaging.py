"""What is installed is what was written: a wheel carries the examples, the data and the rules, and runs without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from anneal.cli._models import MODELS, examples_folder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = pytest.importorskip("hatchling.builders.wheel", reason="the test extra is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    return Path(next(builder.WheelBuilder(str(ROOT)).build(directory=str(folder))))


def test_a_wheel_is_complete_and_for_every_machine(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {"anneal/py.typed", "anneal/assets/tinyshakespeare.txt", "anneal/tensor/gradient.upat"}
    wanted |= {f"anneal/_examples/{model}.py" for model in MODELS}
    wanted |= {f"anneal/_examples/gpt2/{file.name}" for file in (ROOT / "examples" / "gpt2").glob("*.py")}
    assert wanted <= names
    assert not [n for n in names if n.startswith(("tests/", "benchmarks/", "examples/")) or "__pycache__" in n]


def test_a_wheel_trains(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    done = subprocess.run(
        [sys.executable, "-c", "from anneal.cli import main; main()", "train", "mlp", "--steps", "2", "--device", "cpu"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(site)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "step 2  loss" in done.stdout


@pytest.mark.parametrize("model", MODELS)
def test_an_example_uses_the_public_api_only(model: str) -> None:
    text = (examples_folder() / f"{model}.py").read_text(encoding="utf-8")
    imports = [line for line in text.splitlines() if line.startswith(("import ", "from ")) and "__future__" not in line]
    allowed = (
        "import numpy as np",
        "from anneal import nn",
        "from anneal.assets import ",
        "from anneal.tensor import ",
    )
    assert [line for line in imports if not line.startswith(allowed)] == []


def test_torch_is_no_test_dependency() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert not [name for name in extras["test"] if name.startswith(("torch", "tinygrad"))]
