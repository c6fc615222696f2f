"""What the programs share: the same weights in both libraries, and the files of `files/` as modules of either."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

STEPS = 20


def same_weights(lib: Any, model: Any, rng: np.random.Generator) -> Any:
    """The model with weights from NumPy."""
    with lib.no_grad():
        for p in model.parameters():
            p.copy_(lib.tensor(rng.standard_normal(tuple(p.shape)).astype(np.float32) * 0.2))
    return model


def normal(lib: Any, rng: np.random.Generator, *shape: int) -> Any:
    return lib.tensor(rng.standard_normal(shape).astype(np.float32))


FOLDER = Path(__file__).with_name("files")
FILES = sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))


def with_anneal(name: str) -> ModuleType:
    """A file as it stands."""
    return importlib.import_module(f"tests.programs.files.{name}")


def with_torch(name: str) -> ModuleType:
    """A file with torch in place of anneal in its imports, and nothing else changed."""
    path = FOLDER / f"{name}.py"
    text = path.read_text(encoding="utf-8").replace("import anneal as torch", "import torch")
    text = re.sub(r"^(import|from) anneal\b", r"\1 torch", text, flags=re.MULTILINE)
    module = sys.modules[f"torch_{name}"] = ModuleType(f"torch_{name}")
    exec(compile(text, str(path), "exec"), vars(module))
    return module


def losses_of(module: ModuleType) -> list[float]:
    """What a file's `run` gives."""
    found: list[float] = module.run()
    return found
