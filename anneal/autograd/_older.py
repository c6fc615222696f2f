"""torch's older names of gradient functions."""

from __future__ import annotations

import warnings

__all__ = ["detect_anomaly", "set_detect_anomaly"]


class set_detect_anomaly:
    """torch's search for the first nan of a backward pass, as a call or a block; here it only warns.

    Args:
        mode: whether it is wanted. check_nan: ignored.

    >>> with set_detect_anomaly(False):
    ...     total = 2.0
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        if mode:
            warnings.warn(
                "detect_anomaly: has no effect; `anneal check script.py` names the op of the first nan",
                stacklevel=2,
            )

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, *error: object) -> None:
        """Does nothing."""


class detect_anomaly(set_detect_anomaly):
    """`set_detect_anomaly(True)` as a block.

    Args:
        check_nan: ignored.
    """

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(True, check_nan)
