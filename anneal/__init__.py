"""anneal: a lazy tensor compiler. `import anneal as an` has tensors, functions and rooms by torch's names."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the command's first import: until it is done nobody can catch Ctrl-C
    from typing import Any

    from anneal.front import *
    from anneal.front import autograd as autograd
    from anneal.front import nn as nn
    from anneal.front import optim as optim
    from anneal.front import utils as utils
    from anneal.inspect import check as check

__version__ = "0.1.0"

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A name of `anneal.front`, which is imported when the first is asked for."""
        if name.startswith("_"):
            raise AttributeError(f"module 'anneal' has no attribute {name!r}")
        from importlib import import_module

        home = import_module("anneal.inspect" if name == "check" else "anneal.front")
        if not hasattr(home, name):
            raise AttributeError(f"module 'anneal' has no attribute {name!r}")
        found = globals()[name] = getattr(home, name)
        return found


def __dir__() -> list[str]:
    from importlib import import_module

    front = import_module("anneal.front")
    return sorted({*globals(), *[name for name in vars(front) if not name.startswith("_")]})
