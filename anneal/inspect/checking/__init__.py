"""Checks of compiled programs: kernels beside their graphs, values beside the graph as the user wrote it.

Start in `watching.py`: whatever a program computes under `under_check()` is handed to `launches.py`, which runs its
plan once more, kernel by kernel.
"""

from anneal.inspect.checking.blame import CheckLimits
from anneal.inspect.checking.kernel_values import error_bounds
from anneal.inspect.checking.records import CheckedKernel, Difference, GradientCheck, NotFinite, Report, Suspect
from anneal.inspect.checking.repro import Replayed, replayed, repro_of
from anneal.inspect.checking.watching import Checking, check, check_gradients, under_check
