"""Parts that the examples share: a model in training, pictures to learn from, and pictures to look at.

`Training` is what `anneal train` drives; `main` is the same without the command line.
"""

from anneal.training._data import CIFAR10, Images, cifar10, downloads, images, shapes
from anneal.training._pictures import grid, half_blocks, png, shades
from anneal.training._progress import told
from anneal.training._run import Training, decayed, main

__all__ = [
    "CIFAR10",
    "Images",
    "Training",
    "cifar10",
    "decayed",
    "downloads",
    "grid",
    "half_blocks",
    "images",
    "main",
    "png",
    "shades",
    "shapes",
    "told",
]
