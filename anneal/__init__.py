"""anneal: a lazy tensor compiler. Start at `anneal.tensor`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the command's first import: until it is done nobody can catch Ctrl-C
    from typing import Any

    from anneal.inspect import check as check

__version__ = "0.1.0"

_LAZY = {"check": "anneal.inspect", "empty_cache": "anneal.tensor", "memory": "anneal.tensor"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'anneal' has no attribute {name!r}")
