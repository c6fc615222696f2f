"""anneal: a lazy tensor compiler. Start at `anneal.tensor`."""

__version__ = "0.1.0"
