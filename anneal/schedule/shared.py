"""The planning state that all threads share: its lock, and the tables that are dropped with the plans."""

from __future__ import annotations

import threading
from collections.abc import Callable

# Held by whoever plans, compiles, takes gradients or captures a function: these read and fill what all threads share. A
# thread that holds a device's lock never waits for this one.
BUILDING = threading.RLock()

WITH_PLANS: list[Callable[[], None]] = []  # what is forgotten with the plans, by rooms further up
