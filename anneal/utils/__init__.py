"""Utilities beside tensors and modules, under torch's names: `utils.data` feeds examples in batches, `utils.checkpoint`
saves memory of gradients.
"""

from anneal.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
