"""The functions of neural networks under torch's names and with its arguments: `import anneal.nn.functional as F`.

All of `anneal.tensor.functional`, and the functions of the files `_f_*.py`: values in place, indices of pools,
attention with its weights, losses over sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anneal.doors import names_of, opened_later
from anneal.ops import flagged

if TYPE_CHECKING:
    from anneal.stubs.nn_functional import *
else:
    __all__ = names_of(__name__)
    __getattr__ = opened_later(__name__, make=flagged)
