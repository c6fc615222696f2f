"""Parts that the examples share: a model in training, pictures to learn from, and pictures to look at.

`Training` is what `anneal train` drives; `main` is the same without the command line. The list of examples is read
without importing what they are made of.
"""

from typing import TYPE_CHECKING

from anneal.doors import opened_later
from anneal.training._examples import (
    DRAWING,
    MODELS,
    SPEAKING,
    Example,
    Trainable,
    check_model,
    examples_folder,
    load_example,
    load_module,
    suggest,
)

if TYPE_CHECKING:
    from anneal.progress import told
    from anneal.training._checkpoint import Checkpoint, Training, decayed, main
    from anneal.training._data import (
        CIFAR10,
        Images,
        TokenFiles,
        cifar10,
        downloads,
        grid,
        half_blocks,
        images,
        png,
        shades,
        shapes,
        write_tokens,
    )
else:
    __getattr__ = opened_later(__name__)

__all__ = [
    "CIFAR10", "DRAWING", "MODELS", "SPEAKING", "Checkpoint", "Example", "Images", "TokenFiles", "Trainable",
    "Training", "check_model", "cifar10", "decayed", "downloads", "examples_folder", "grid", "half_blocks", "images",
    "load_example", "load_module", "main", "png", "shades", "shapes", "suggest", "told", "write_tokens",
]  # fmt: skip
