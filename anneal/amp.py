"""Automatic mixed precision with torch's names: losses that are scaled; casts that follow a list of ops are not there.

Without CUDA torch's `autocast("cuda")` and `GradScaler("cuda")` warn and change nothing, and so do these.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any

from anneal.doors import same_under
from anneal.errors import DTypeError, SettingError
from anneal.ops import DTypeLike, as_dtype
from anneal.optim import Optimizer
from anneal.tensor import DType, Tensor, dtypes, no_grad

__all__ = [
    "GradScaler",
    "autocast",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_enabled",
]


class autocast(ContextDecorator):
    """A block, or a decorator, in which torch computes some ops in a narrower dtype: here a disabled one alone.

    Args:
        device_type: "cpu" or "webgpu"; another is not there: a warning, and the block is disabled, as torch's is.
        dtype: the narrower dtype. One that torch's cpu does not take is a warning, too.
        enabled: whether ops are cast. cache_enabled: ignored.

    Raises DTypeError for an enabled one: a dtype by op is not there, so cast the model and its input, `.bfloat16()`,
    where an optimiser keeps a float32 copy of the parameters.

    >>> with autocast("cpu", enabled=False):
    ...     (Tensor.ones(1, 1) @ Tensor.ones(1, 1)).dtype
    dtypes.float32
    """

    def __init__(
        self,
        device_type: str = "cpu",
        dtype: DTypeLike | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        kind = dtypes.bfloat16 if dtype is None else as_dtype(dtype)
        self.device, self.fast_dtype, self._enabled = device_type, kind, False
        if not enabled:
            return
        if device_type not in ("cpu", "webgpu", "auto"):
            warnings.warn(f"autocast: no device {device_type!r} is here; nothing changes", stacklevel=2)
        elif kind not in (dtypes.bfloat16, dtypes.float16):
            warnings.warn(f"autocast: {kind.name} is not a dtype to cast to; nothing changes", stacklevel=2)
        else:
            raise DTypeError(
                f"autocast: casting single ops to {kind.name} is not supported: give enabled=False, or cast the model "
                f"and its input, model.to({kind.name!r}); the optimiser then keeps a copy in float32"
            )

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *error: Any) -> None:
        pass


def is_autocast_available(device_type: str) -> bool:
    """False: casts that follow a list of ops are not there on any `device_type`."""
    return False


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """False: no block casts on any `device_type`."""
    return False


def get_autocast_dtype(device_type: str) -> DType:
    """The dtype that torch's autocast takes for a `device_type`: bfloat16 for "cpu", else float16."""
    return dtypes.bfloat16 if device_type == "cpu" else dtypes.float16


class GradScaler:
    """A scale of losses, so that small gradients are numbers of 16 bits: a step whose gradients are not finite is left
    out, and the scale becomes smaller; after many that are, larger.

    Each step reads on the host whether the gradients are finite, so it stands outside `jit`.

    Args:
        device: "cpu", "webgpu"; for "cuda", as in torch where there is none, a warning, and it is not enabled.
        init_scale: the first scale. growth_factor: what it is multiplied by after `growth_interval` finite steps.
        backoff_factor: what it is multiplied by after a step that was left out. enabled: False: it does nothing.

    Raises SettingError for factors on the wrong side of 1.

    >>> from anneal.optim import SGD
    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimiser, scaler = SGD([w], lr=0.5), GradScaler("cpu", init_scale=4.0)
    >>> scaler.scale(w.sum()).backward()
    >>> scaler.step(optimiser); scaler.update()
    >>> w.tolist(), scaler.get_scale()
    ([0.5], 4.0)
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and str(device).partition(":")[0] == "cuda":
            warnings.warn("GradScaler: there is no CUDA here; it scales nothing", stacklevel=2)
            enabled = False
        if enabled and (growth_factor <= 1 or backoff_factor >= 1):
            raise SettingError(
                f"GradScaler: growth_factor is above 1 and backoff_factor below, not {growth_factor}, {backoff_factor}"
            )
        self._enabled, self._scale, self._good = enabled, float(init_scale), 0
        self._growth, self._backoff, self._interval = growth_factor, backoff_factor, growth_interval
        self._finite: dict[int, bool] = {}  # optimisers, by id, whose gradients were unscaled since the last update
        self._stepped: set[int] = set()

    def scale(self, outputs: Any) -> Any:
        """The tensor `outputs`, or each of several, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if not isinstance(outputs, Iterable):
            raise DTypeError(f"GradScaler.scale: takes tensors, not {type(outputs).__name__}")
        scaled = [self.scale(x) for x in outputs]
        return scaled if isinstance(outputs, list) else tuple(scaled)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the parameters of `optimizer` by the scale, before they are clipped; once a step.

        Raises SettingError for a second time, DTypeError for gradients of float16.
        """
        if not self._enabled:
            return
        if id(optimizer) in self._finite:
            raise SettingError("GradScaler.unscale_: was called before for this optimiser since the last update()")
        held = [(p, p.grad) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if any(grad.dtype is dtypes.float16 for _, grad in held):
            raise DTypeError("GradScaler.unscale_: gradients of float16 are not divided: keep parameters in float32")
        with no_grad():
            finite = [grad.isfinite().all() for _, grad in held]
            for p, grad in held:
                p.grad = grad * (1.0 / self._scale)
            self._finite[id(optimizer)] = bool(Tensor.stack(finite).all()) if held else True

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args, **kwargs)` if its gradients, divided by the scale, are finite, else None.

        Raises SettingError for a second time since `update`.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or args:
            raise SettingError("GradScaler.step: takes no closure")
        if id(optimizer) in self._stepped:
            raise SettingError("GradScaler.step: was called before for this optimiser since the last update()")
        if id(optimizer) not in self._finite:
            self.unscale_(optimizer)
        self._stepped.add(id(optimizer))
        return optimizer.step(**kwargs) if self._finite[id(optimizer)] else None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Choose the next scale by the steps since the last time, or take `new_scale`."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._finite:
            raise SettingError("GradScaler.update: no step() or unscale_() came before it")
        elif not all(self._finite.values()):
            self._scale, self._good = self._scale * self._backoff, 0
        else:
            self._good += 1
            if self._good == self._interval:
                self._scale, self._good = self._scale * self._growth, 0
        self._finite, self._stepped = {}, set()

    def get_scale(self) -> float:
        """The scale; 1 if it is not enabled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """The factor that the scale is multiplied by after good steps."""
        return self._growth

    def get_backoff_factor(self) -> float:
        """The factor that the scale is multiplied by after a step that was left out."""
        return self._backoff

    def get_growth_interval(self) -> int:
        """The number of good steps after which the scale grows."""
        return self._interval

    def set_growth_factor(self, new_factor: float) -> None:
        """Let the scale be multiplied by `new_factor` after good steps."""
        self._growth = new_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Let the scale be multiplied by `new_factor` after a step that was left out."""
        self._backoff = new_factor

    def set_growth_interval(self, new_interval: int) -> None:
        """Let the scale grow after `new_interval` good steps."""
        self._interval = new_interval

    def is_enabled(self) -> bool:
        """True if scaling is on."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale and its settings, under torch's names; empty if it is not enabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth,
            "backoff_factor": self._backoff,
            "growth_interval": self._interval,
            "_growth_tracker": self._good,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`. Raises SettingError for an empty one, of a scaler that was not enabled."""
        if not self._enabled:
            return
        if not state_dict:
            raise SettingError(
                "GradScaler.load_state_dict: the state is empty: it is from a scaler that was not enabled"
            )
        self._scale, self._growth = float(state_dict["scale"]), state_dict["growth_factor"]
        self._backoff, self._interval = state_dict["backoff_factor"], state_dict["growth_interval"]
        self._good = state_dict["_growth_tracker"]


if not TYPE_CHECKING:
    __getattr__ = same_under(__name__, "autocast_mode grad_scaler")
