"""The functions of neural networks, under torch's names and with torch's meaning.

They are layers, activations, attention and losses. Each is a composition of movement, elementwise ops and reductions (a
convolution is a sum of products over a view of the windows), so gradients and fusion need nothing of their own here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anneal.doors import names_of, opened_later
from anneal.ops import alias, take_running_updates

if TYPE_CHECKING:
    from anneal.stubs.functional import *
else:
    __all__ = [*names_of(__name__), "take_running_updates"]
    __getattr__ = opened_later(__name__, make=alias)
