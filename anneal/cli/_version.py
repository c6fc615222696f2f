"""The line that --version prints."""

from __future__ import annotations

import platform

import anneal

__all__ = ["version_line"]


def version_line() -> str:
    """anneal's version, then Python's."""
    return f"anneal {anneal.__version__} (Python {platform.python_version()}, {platform.system()} {platform.machine()})"
