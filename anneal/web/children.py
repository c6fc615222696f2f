"""Child processes: this Python, with the modules of this process, wherever they are started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]


def python(module: str) -> list[str]:
    """The command line that runs a module. What stands in the folder that it is started in is not imported."""
    return [sys.executable, "-P", "-m", module]


def environment() -> dict[str, str]:
    """The environment of a child: it imports what this process does."""
    paths = dict.fromkeys([str(PACKAGE), *[p for p in sys.path if p]])
    # all of the environment: a child reads what this process would, and what the commands that it starts do
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
