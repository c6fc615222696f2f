"""Signals: `an.signal.windows` has torch's windows."""

from anneal.signal import windows

__all__ = ["windows"]
