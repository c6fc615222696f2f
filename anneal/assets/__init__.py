"""Data that ships inside the package, checked against its SHA-256 each time it is read."""

from anneal.assets._bundled import BUNDLED, Asset, load

__all__ = ["BUNDLED", "Asset", "load"]
