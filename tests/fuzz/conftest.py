"""What the fuzz tests ask of the WebGPU device."""

from __future__ import annotations

import os

# Most of the time goes into compiling thousands of small kernels. Mesa's software adapter, which reads this when it
# starts, compiles them in half the time without its optimisation passes; other adapters do not look at it.
os.environ.setdefault("GALLIVM_PERF", "nopt")
