"""The examples by name: files and packages of examples/, found beside the package or inside the installed wheel."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from anneal.errors import DataError, UserError

# The example models. A name with a hyphen is one of several in a file: `makemore-rnn` is MODELS["rnn"] of makemore.py.
MODELS = {
    "mlp": "a perceptron on three spirals",
    "dynmlp": "the same from batches that grow, by kernels for any size",
    "conv": "a convolutional net on dot-matrix digits",
    "nanogpt": "a character GPT on Tiny Shakespeare",
    "gpt2": "GPT-2 on the same text; --scratch: a small one from random weights",
    "llama": "the same text by a Llama: RMSNorm, rotary positions, grouped queries, SwiGLU",
    "vit": "a vision transformer on pictures of shapes",
    "resnet9": "a residual network on CIFAR-10, or shapes where that cannot be had",
    "diffusion": "a diffusion model that draws digits",
    "dit": "a diffusion transformer that draws CIFAR-10's classes, or shapes",
    "meanflow": "the same, in one step",
    "makemore-bigram": "names from a table of pairs of letters",
    "makemore-mlp": "names from the last three letters",
    "makemore-cnn": "names by dilated causal convolutions",
    "makemore-rnn": "names by a recurrent network",
    "makemore-gru": "names by a gated recurrent unit",
    "makemore-gpt": "names by attention",
}

# Models that predict the next character (`anneal run text`); GPT-2 has its own command.
SPEAKING = (
    "nanogpt", "llama", "makemore-bigram", "makemore-mlp", "makemore-cnn", "makemore-rnn", "makemore-gru",
    "makemore-gpt",
)  # fmt: skip
DRAWING = ("vit", "resnet9", "diffusion", "dit", "meanflow")  # those whose sample is a picture, too

_PACKAGE = "anneal_examples"


class Trainable(Protocol):
    """An example as the commands drive it: a model in training, advanced one step at a time."""

    data: str  # one line: which data, and where they come from
    info: str  # one line: the model's sizes
    unit: str  # what it counts: "tokens", "points", "images"
    examples_per_step: int  # how many of those in a step
    batch: int
    model: Any  # an nn.Module
    wire: str | None  # the dtype in which gradients travel between processes

    def next_batch(self) -> tuple[Any, ...]:
        """Tensors for `loss` and `update`."""

    def loss(self, *batch: Any) -> Any:
        """The loss of a batch, a Tensor of shape (); nothing has run yet."""

    def update(self, *batch: Any) -> Any:
        """The loss, after adding the backward pass and the optimiser to the graph; nothing has run yet.

        Args:
            batch: the tensors of a batch.
        """

    def step(self) -> Any:
        """Do one optimiser step on the next batch; the loss of that batch, a Tensor of shape ()."""

    def sample(self) -> str:
        """A short text that shows what the model has learnt. It may leave a `picture` as well: uint8 (h, w, 3)."""


class Example(Protocol):
    """The names of a file in examples/ that the commands use."""

    STEPS: int
    BATCH: int
    LR: float

    def make(self, *, steps: int, batch: int, seed: int, lr: float) -> Trainable:
        """A freshly initialised training run. Each of the four has the default above (seed: 1).

        Args:
            steps: the number of steps.
            batch: the size of a batch.
            lr: the learning rate.
        """


def suggest(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for an unknown name: the nearest known one, and the list of all.

    Args:
        kind: the kind of name, for the message.
    """
    names = list(known)
    near = difflib.get_close_matches(name[:100].lower(), [n.lower() for n in names], n=3, cutoff=0.5)
    found = [repr(next(n for n in names if n.lower() == x)) for x in near]
    hint = f" Did you mean {' or '.join([', '.join(found[:-1]), found[-1]] if found[1:] else found)}?" if found else ""
    said = ascii(name) if len(name) <= 60 else f"{name[:50]!a}... ({len(name)} characters)"
    return UserError(f"there is no {kind} called {said}.{hint} There is: {', '.join(names)}")


def examples_folder() -> Path:
    """examples/ of a checkout, or its copy inside an installed package."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_examples", package.parent / "examples"):
        if (folder / "nanogpt.py").is_file():
            return folder
    raise DataError(
        f"the examples are missing beside {package}; reinstall: pip install --force-reinstall anneal-compiler"
    )


def load_module(name: str) -> ModuleType:
    """Import examples/NAME.py or the package examples/NAME/; such modules import each other relatively.

    Args:
        name: the name of a file or folder in examples/.
    """
    if _PACKAGE not in sys.modules:
        spec = ModuleSpec(_PACKAGE, None, is_package=True)
        spec.submodule_search_locations = [str(examples_folder())]
        sys.modules[_PACKAGE] = module_from_spec(spec)
    try:
        return importlib.import_module(f"{_PACKAGE}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{_PACKAGE}.{name}":
            raise
        missing = examples_folder() / f"{name}.py"
        raise DataError(f"{missing} is missing; reinstall: pip install --force-reinstall anneal-compiler") from None


def check_model(name: str) -> None:
    """UserError with a suggestion when there is no such model; nothing is imported for that.

    Args:
        name: the name of a file in examples/.
    """
    if name not in MODELS:
        raise suggest("model", name, MODELS)


def load_example(name: str) -> Example:
    """The example called `name`. UserError as `check_model`."""
    check_model(name)
    file, _, member = name.partition("-")
    module = load_module(f"{file}.train" if (examples_folder() / file).is_dir() else file)
    return cast(Example, module.MODELS[member] if member else module)
