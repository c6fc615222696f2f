"""torch's older names of `anneal.amp`, which mean CUDA: what is asked for is said to be not there, and left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anneal import amp
from anneal.doors import same_under
from anneal.ops import DTypeLike

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):
    """`amp.autocast("cuda")`, which there is none of: a warning if it is `enabled`, and no other dtypes.

    Args:
        dtype, cache_enabled: as there.
    """

    def __init__(self, enabled: bool = True, dtype: DTypeLike = "float16", cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`amp.GradScaler("cuda")`, which there is none of: a warning if it is enabled, and losses are not scaled.

    Args:
        init_scale, growth_factor, backoff_factor, growth_interval, enabled: as there.
    """

    def __init__(self, init_scale: float = 2.0**16, *settings: Any, **named: Any) -> None:
        super().__init__("cuda", init_scale, *settings, **named)


def custom_fwd(fwd: Any = None, *, cast_inputs: DTypeLike | None = None) -> Any:
    """`amp.custom_fwd` for "cuda": nothing is cast for `fwd`.

    Args:
        cast_inputs: as there.
    """
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """`amp.custom_bwd` for "cuda": nothing is cast for `bwd`."""
    return amp.custom_bwd(bwd, device_type="cuda")


if not TYPE_CHECKING:
    __getattr__ = same_under(__name__, "autocast_mode common grad_scaler")
