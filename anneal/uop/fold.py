"""Creation-time algebra (to be generated from fold.upat)."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from anneal.uop.dtype import DType
from anneal.uop.ops import Op

if TYPE_CHECKING:
    from anneal.uop.node import UOp

FOLD: dict[Op, Any] = {}
