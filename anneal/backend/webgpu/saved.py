"""Generated code on disk: the WGSL of all kernels of a plan is one entry, so that a second process generates nothing.

The key is the kernels' graphs in order, and everything of the device that code may depend on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anneal import cache
from anneal.codegen import Kernel, decode_kernel, encode_kernel

_WORTH = 0.005  # seconds of code generation below which the result is not worth a file


def recall(graphs: Iterable[bytes], identity: object) -> list[Kernel] | None:
    """The generated kernels for the graphs with these keys, if a process before this one kept them."""
    if not cache.enabled():
        return None
    return cache.load("kernels", cache.disk_key(identity, *graphs), lambda found: [decode_kernel(k) for k in found])


def keep(graphs: Iterable[bytes], identity: object, kernels: Sequence[Kernel], label: str, seconds: float) -> None:
    """Save generated kernels that took `seconds` to make."""
    if seconds >= _WORTH and cache.enabled():
        cache.save("kernels", cache.disk_key(identity, *graphs), [encode_kernel(k) for k in kernels], label)
