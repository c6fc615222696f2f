"""anneal: a lazy tensor compiler. `import anneal as an` has tensors, functions and packages by torch's names."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the command's first import: until it is done nobody can catch Ctrl-C
    from typing import Any

    from anneal.front import *
    from anneal.version import __version__ as __version__
else:

    def __getattr__(name: str) -> Any:
        """A package, or a name of `anneal.front`, which is imported when the first is asked for."""
        if name.startswith("_") and name != "__version__":
            raise AttributeError(f"module 'anneal' has no attribute {name!r}")
        import os
        from importlib import import_module

        at = os.path.join(os.path.dirname(__file__), name)
        if os.path.isdir(at) or os.path.isfile(f"{at}.py"):
            return import_module(f"anneal.{name}")
        home = import_module("anneal.version" if name == "__version__" else "anneal.front")
        if not hasattr(home, name):
            raise AttributeError(f"module 'anneal' has no attribute {name!r}{home.instead(name)}")
        found = globals()[name] = getattr(home, name)
        return found


def __dir__() -> list[str]:
    from importlib import import_module

    front = import_module("anneal.front")
    inner = {
        "doors",
        "errors",
        "front",
        "names",
        "progress",
        "settings",
    }  # imported by others, no user's names
    own = set(globals()) - {"Any", "TYPE_CHECKING", "annotations"} - inner
    return sorted({"__version__", *own, *[name for name in dir(front) if not name.startswith("_")]})
