"""The planning state that all threads share: its lock, and the tables that are dropped with the plans."""

from __future__ import annotations

import threading
from collections.abc import Callable

# The lock of a thread that plans, compiles, takes gradients or captures a function: these read and fill shared state. A
# thread that holds a device's lock never waits for this one.
BUILDING = threading.RLock()

WITH_PLANS: list[Callable[[], None]] = []  # functions of other packages, called when the plans are forgotten
