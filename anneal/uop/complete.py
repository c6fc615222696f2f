"""The node's last parts, which are written in nodes themselves: folding at creation, symbolic sizes, printing.

They need the node and it needs them, so it is given them here, once all are loaded. The front door takes `alu` from
here.
"""

from __future__ import annotations

from anneal.uop import sizes, text
from anneal.uop.fold_rules import FOLD
from anneal.uop.node import alu, fold_by
from anneal.uop.ops import LATER

__all__ = ["alu"]

fold_by(FOLD)
LATER.sizes, LATER.text = sizes, text
