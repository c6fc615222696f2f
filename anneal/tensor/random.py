"""Random numbers: counter-based, so a tensor of them is a function of (seed, call, position) and the same everywhere.

Element i of the n-th call is the first word of threefry2x32-20 applied to (i, 0) under the key (seed, n). Integers and
uniform floats are equal bit for bit on every device; normal numbers (Box-Muller) as far as its log and cos are.

The two key words are data, never constants of a kernel: a program that draws numbers again finds its kernels again.
Inside a jit function the call number lives on the device and is advanced by an assignment, so replayed steps draw new
numbers: those that the same calls draw without jit.
"""

from typing import TYPE_CHECKING

from anneal.doors import names_of, opened_later

if TYPE_CHECKING:
    from anneal.ops import Generator as Generator, default_generator as default_generator
    from anneal.stubs.random import *
else:
    __getattr__ = opened_later(__name__)
    __all__ = names_of(__name__)
