"""The pages that docs/howto/web-page.md shows, as `anneal export` writes them, with weights of tools/live.

python -m tools.live_pages FOLDER               writes them; `make docs-build` does it for the site
python -m tools.live_pages --train              makes the weights anew, which takes ten minutes of one core
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from anneal import nn, onnx, settings
from anneal.pages import PageRecipe, export, of_gpt2, of_onnx, of_training
from anneal.pages.exporting import loaded, stored
from anneal.tensor import Tensor, functional as F, io, manual_seed
from anneal.training import Training, load_example
from anneal.training._data import made

WEIGHTS = Path(__file__).parent / "live"  # matrices of bytes, with a scale a row, as the pages have them
MEAN, SPREAD = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32)[..., None, None]
STEPS = {"nanogpt": 1500, "llama": 1500, "shapes": 500}


class Shapes(Training):
    """A small ResNet-9 that learns which of ten shapes a picture shows, with the colours that a page gives it."""

    def __init__(self, steps: int) -> None:
        resnet9: Any = load_example("resnet9")
        self.found = made(4000, 512, 0)
        self.rng = np.random.default_rng(0)
        self.shifted = resnet9.shifted
        manual_seed(0)
        model = resnet9.ResNet9(8)
        optimizer = nn.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)
        schedule = nn.WarmupCosine(optimizer, 0.2, warmup=steps // 5, steps=steps, floor=0.0)
        super().__init__(model, optimizer, steps=steps, batch=64, schedule=schedule)

    def next_batch(self) -> tuple[Tensor, Tensor]:
        rows = self.rng.integers(0, len(self.found.train), self.batch)
        pictures = (self.shifted(self.rng, self.found.train[rows]) - MEAN) / SPREAD
        return Tensor(pictures), Tensor(self.found.train_labels[rows])

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x), y, ignore_index=None, label_smoothing=0.1)


def training_of(name: str, steps: int) -> Any:
    """The training of an example, or of "shapes"."""
    if name == "shapes":
        return Shapes(steps)
    example = load_example(name)
    return example.make(steps=steps, batch=example.BATCH, seed=1, lr=example.LR)


def trained(name: str) -> Any:
    """The training of a model whose weights are in tools/live."""
    training = training_of(name, 1)
    file = {key: t.numpy() for key, t in io.safe_load(WEIGHTS / f"{name}.safetensors").items()}
    forms = {key: "int8" for key in file if f"{key}#scale" in file}
    training.model.load_state_dict(loaded(file, forms))
    return training


def text(name: str) -> PageRecipe:
    """The recipe of a model that writes."""
    return of_training(name, trained(name), False)


def spirals() -> PageRecipe:
    """The recipe of the perceptron that is trained in the page."""
    return of_training("mlp", training_of("mlp", 1), False)


def digit() -> PageRecipe:
    """The recipe of the net that reads digits; it is trained here."""
    training = training_of("conv", load_example("conv").STEPS)
    for _ in range(training.steps):
        training.step()
    return of_training("conv", training, False)


def picture() -> PageRecipe:
    """The recipe of an ONNX file that says what a picture shows."""
    training = trained("shapes")
    with tempfile.TemporaryDirectory() as folder:
        onnx.export(training.model.eval(), Tensor.zeros(1, 3, 32, 32), Path(folder) / "shapes.onnx")
        model = onnx.load(Path(folder) / "shapes.onnx", "cpu")
        first = (training.found.test[:1] - MEAN) / SPREAD
        return of_onnx(model, {model.inputs[0].name: first}, list(training.found.classes))


PAGES: dict[str, tuple[str, Callable[[], PageRecipe]]] = {
    "spirals": ("Three spirals", spirals),
    "digit": ("Draw a digit", digit),
    "nanogpt": ("Shakespeare by nanogpt", lambda: text("nanogpt")),
    "llama": ("Shakespeare by a Llama", lambda: text("llama")),
    "picture": ("Describe a picture", picture),
    "gpt2": ("GPT-2 from your own folder", lambda: of_gpt2(nn.GPTConfig())),
}


def write(place: Path, names: tuple[str, ...] = tuple(PAGES)) -> None:
    """Write the pages, a folder each."""
    with settings.override(device="cpu"):
        for name in names:
            title, make = PAGES[name]
            recipe = make()
            how: dict[str, Any] = {"train": recipe.train, "page": recipe.page, "data": recipe.data}
            weights = recipe.weights or ("int8" if (WEIGHTS / f"{name}.safetensors").exists() else "f32")
            export(recipe.functions, recipe.examples, place / name, name=title, weights=weights, **how)


def train() -> None:
    """Make the weights of tools/live anew."""
    with settings.override(device="cpu"):
        for name, steps in STEPS.items():
            training = training_of(name, steps)
            for n in range(steps):
                loss = training.step()
                if n % 100 == 0:
                    print(name, n, f"{loss.item():.3f}")
            arrays = {key: t.numpy() for key, t in training.model.state_dict().items()}
            io.safe_save(stored(arrays, (), "int8")[0], WEIGHTS / f"{name}.safetensors")


if __name__ == "__main__":
    if sys.argv[1:] == ["--train"]:
        train()
    else:
        write(Path(sys.argv[1]))
