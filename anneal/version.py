"""The version of anneal, which stands here alone."""

__version__ = "0.1.0"
cuda = hip = None  # there is neither, as torch's version says without one
