"""anneal: a lazy tensor compiler. `import anneal as an` has tensors, functions and packages by torch's names."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the command's first import: until it is done nobody can catch Ctrl-C
    from typing import Any

    from anneal import (
        amp as amp,
        array_api as array_api,
        autograd as autograd,
        backends as backends,
        compiler as compiler,
        cuda as cuda,
        distributions as distributions,
        fft as fft,
        func as func,
        linalg as linalg,
        masked as masked,
        nn as nn,
        optim as optim,
        signal as signal,
        special as special,
        testing as testing,
        utils as utils,
    )
    from anneal.front import *
    from anneal.inspect import check as check
    from anneal.pages import export as export
    from anneal.version import __version__ as __version__

_HOMES = {"check": "anneal.inspect", "export": "anneal.pages", "__version__": "anneal.version"}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A package, or a name of `anneal.front`, which is imported when the first is asked for."""
        if name.startswith("_") and name != "__version__":
            raise AttributeError(f"module 'anneal' has no attribute {name!r}")
        import os
        from importlib import import_module

        at = os.path.join(os.path.dirname(__file__), name)
        if os.path.isdir(at) or os.path.isfile(f"{at}.py"):
            return import_module(f"anneal.{name}")
        home = import_module(_HOMES.get(name, "anneal.front"))
        if not hasattr(home, name):
            raise AttributeError(f"module 'anneal' has no attribute {name!r}{home.instead(name)}")
        found = globals()[name] = getattr(home, name)
        return found


def __dir__() -> list[str]:
    from importlib import import_module

    front = import_module("anneal.front")
    rooms = (
        "amp", "array_api", "autograd", "backends", "compiler", "cuda", "distributions", "fft", "func", "linalg",
        "masked", "nn", "optim", "signal", "special", "testing", "utils",
    )  # fmt: skip
    inner = {
        "doors",
        "errors",
        "front",
        "names",
        "progress",
        "settings",
    }  # imported by others, no user's names
    own = set(globals()) - {"Any", "TYPE_CHECKING", "_HOMES", "annotations"} - inner
    return sorted({*_HOMES, *own, *rooms, *[name for name in dir(front) if not name.startswith("_")]})
