"""The layers under the paths that torch's files have: `anneal.nn.modules.linear` and its kin are `anneal.nn`."""

import sys

nn = sys.modules["anneal.nn"]  # the package around this one, which is imported before it

__all__ = list(nn.__all__)

_FILES = (
    *("activation", "adaptive", "batchnorm", "channelshuffle", "container", "conv", "distance", "dropout", "flatten"),
    *("fold", "instancenorm", "linear", "loss", "normalization", "padding", "pixelshuffle", "pooling", "rnn"),
    *("sparse", "transformer", "upsampling"),
)
sys.modules.update({f"{__name__}.{file}": nn for file in _FILES})


def __getattr__(name: str) -> object:
    return nn if name in _FILES else getattr(nn, name)
