"""The models a command can name: the files of examples/, found beside the package or inside the installed wheel."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from anneal.errors import DataError, UserError

__all__ = ["MODELS", "Example", "Training", "examples_folder", "load_example", "load_package", "suggest"]

MODELS = ("mlp", "conv", "nanogpt")


class Training(Protocol):
    """What an example hands to the commands: a model in training, advanced one step at a time."""

    data: str  # one line: which data, and where they come from
    info: str  # one line: the model's sizes
    unit: str  # what it counts: "tokens", "points", "images"
    examples_per_step: int  # how many of those in a step
    batch: int
    model: Any  # an nn.Module

    def next_batch(self) -> tuple[Any, ...]:
        """Tensors for `loss` and `update`."""

    def loss(self, *batch: Any) -> Any:
        """The loss of a batch, a Tensor of shape (); nothing has run yet."""

    def update(self, *batch: Any) -> Any:
        """The loss, after adding the backward pass and the optimiser to the graph; nothing has run yet."""

    def step(self) -> Any:
        """Do one optimiser step on the next batch; the loss of that batch, a Tensor of shape ()."""

    def sample(self) -> str:
        """A short text that shows what the model has learnt."""


class Example(Protocol):
    """What the CLI uses of a file in examples/."""

    STEPS: int
    BATCH: int
    LR: float

    def make(self, *, steps: int, batch: int, seed: int, lr: float) -> Training:
        """A freshly initialised training run. Each of the four has the default above (seed: 1)."""


def suggest(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for an unknown name: the nearest known one, and the list of all."""
    names = list(known)
    near = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=1, cutoff=0.5)
    hint = next((f" Did you mean {n!r}?" for n in names if near and n.lower() == near[0]), "")
    return UserError(f"there is no {kind} called {name!r}.{hint} There is: {', '.join(names)}")


def examples_folder() -> Path:
    """examples/ of a checkout, or its copy inside an installed package."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_examples", package.parent / "examples"):
        if (folder / "nanogpt.py").is_file():
            return folder
    raise DataError(
        f"the examples are missing beside {package}; reinstall: pip install --force-reinstall anneal-compiler"
    )


def load_package(name: str) -> Any:
    """Import the package examples/NAME/."""
    full, folder = f"anneal_examples_{name}", examples_folder() / name
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.spec_from_file_location(
        full, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None or not (folder / "__init__.py").is_file():
        raise DataError(f"{folder} is missing; reinstall: pip install --force-reinstall anneal-compiler")
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    return module


def load_example(name: str) -> Example:
    """Import examples/NAME.py. UserError with a suggestion when there is no such model."""
    if name not in MODELS:
        raise suggest("model", name, MODELS)
    path = examples_folder() / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"anneal_examples_{name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise DataError(f"{path} is missing; reinstall: pip install --force-reinstall anneal-compiler")
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return cast(Example, module)
