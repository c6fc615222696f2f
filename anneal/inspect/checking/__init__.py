"""Checks of compiled programs: kernels beside their graphs, values beside the graph as the user wrote it.

Start in `watching.py`: whatever a program computes under `under_check()` is handed to `launches.py`, which runs its
plan once more, kernel by kernel.
"""

from anneal.inspect.checking.blame import CheckLimits
from anneal.inspect.checking.kernel_values import error_bounds

from anneal.inspect.checking.records import (  # isort: skip
    CheckedKernel, Difference, GradientCheck, NotFinite, Replayed, Report, Suspect, replayed, repro_of,
)  # fmt: skip
from anneal.inspect.checking.watching import Checking, check, check_gradients, under_check
