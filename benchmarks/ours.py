"""anneal's side of the comparisons: the step of `anneal train nanogpt`, run or only compiled."""

from __future__ import annotations
