"""Settings of torch's libraries, none of which is here: they may be set, and change nothing."""

from __future__ import annotations

from anneal.backends import cpu, cuda, cudnn, mkldnn, mps, openmp

__all__ = ["cpu", "cuda", "cudnn", "mkldnn", "mps", "openmp"]
