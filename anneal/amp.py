"""Automatic mixed precision with torch's names: casts by function, and losses that are scaled."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Iterable, Mapping
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any

from anneal.doors import names_of, same_under
from anneal.errors import DTypeError, SettingError
from anneal.ops import DTypeLike, as_dtype, cast_dtype, said
from anneal.optim import Optimizer
from anneal.runtime import Fun, here
from anneal.tensor import DType, Tensor, dtypes, no_grad
from anneal.transforms import tree_map

__all__ = names_of(__name__)

_KINDS = ("cpu", "webgpu")  # of devices

# Without CUDA torch's `autocast("cuda")` and `GradScaler("cuda")` warn and change nothing, and so do these.


class autocast(ContextDecorator):
    """A block, or a decorator, in which functions compute in the dtypes that torch's autocast has for CUDA.

    Products of matrices, convolutions and attention take their float operands in `dtype` (their sums are float32);
    softmax, losses, norms, sums, exp, log and the like in float32; what is given several dtypes in the widest; all
    else in the dtypes that it is given. Parameters stay float32 and have float32 gradients: a cast of one stands in the
    graph once, however often it is used. `backward` goes outside of the block. float64 is never cast.

    Args:
        device_type: "cpu", "webgpu", or "auto" for both: the devices whose tensors are cast. Another is not there: a
            warning, and the block is disabled, as torch's is.
        dtype: float16 or bfloat16, by default that of `get_autocast_dtype`. Another is a warning, too.
        enabled: False: nothing is cast within, in a block of others either.
        cache_enabled: ignored.

    >>> w = Tensor.ones(2, 2, requires_grad=True)
    >>> with autocast("cpu", "bfloat16"):
    ...     y = w @ w
    ...     loss = y.sum()
    >>> y.dtype, loss.dtype
    (dtypes.bfloat16, dtypes.float32)
    >>> loss.backward()
    >>> w.grad
    Tensor([[4., 4.],
            [4., 4.]], dtype=float32)
    """

    def __init__(
        self,
        device_type: str = "cpu",
        dtype: DTypeLike | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        kind = get_autocast_dtype(device_type) if dtype is None else as_dtype(dtype)
        self.device, self.fast_dtype, self._before = device_type, kind, []  # type: ignore[var-annotated]
        self._kinds = _KINDS if device_type == "auto" else (_kind(device_type),)
        if enabled and not is_autocast_available(device_type):
            warnings.warn(f"autocast: no device {device_type!r} is here; nothing changes", stacklevel=2)
            enabled = False
        elif enabled and kind not in (dtypes.bfloat16, dtypes.float16):
            warnings.warn(f"autocast: {kind.name} is not a dtype to cast to; nothing changes", stacklevel=2)
            enabled = False
        self._enabled = enabled

    def __enter__(self) -> autocast:
        self._before.append(here.autocast)
        others = tuple([x for x in here.autocast if x[0] not in self._kinds])
        here.autocast = others + tuple([(n, self.fast_dtype) for n in self._kinds if self._enabled])
        return self

    def __exit__(self, *error: Any) -> None:
        here.autocast = self._before.pop()


def _kind(device_type: str) -> str:
    """The kind of device that a `device_type` names. Raises DTypeError for anything but a text."""
    if not isinstance(device_type, str):
        raise DTypeError(f"autocast: device_type is a text such as 'cpu' or 'auto', not {said(device_type)}")
    return device_type.partition(":")[0]


def is_autocast_available(device_type: str) -> bool:
    """True if `device_type` is "cpu", "webgpu" or "auto", which stands for both."""
    return device_type == "auto" or _kind(device_type) in _KINDS


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """True inside `autocast` for the devices of a `device_type`; without one, for those of any.

    >>> with autocast("cpu"):
    ...     is_autocast_enabled("cpu"), is_autocast_enabled("webgpu")
    (True, False)
    """
    return bool(here.autocast) if device_type is None else cast_dtype(here.autocast, _kind(device_type)) is not None


def get_autocast_dtype(device_type: str) -> DType:
    """The dtype that `autocast` casts to on a `device_type`: inside a block the block's, else torch's default, bfloat16
    for "cpu" and float16 for others.
    """
    default = dtypes.bfloat16 if device_type == "cpu" else dtypes.float16
    return cast_dtype(here.autocast, _kind(device_type)) or default


# -- custom functions -------------------------------------------------------------------------------------------------


def custom_fwd(fwd: Fun | None = None, *, device_type: str = "cpu", cast_inputs: DTypeLike | None = None) -> Fun:
    """A decorator for the `forward` of an `autograd.Function` that runs inside `autocast`.

    Args:
        fwd: `forward`. device_type: the kind of device that it is for.
        cast_inputs: the dtype that float tensors among its arguments are cast to in a block of `autocast`, which is off
            within; without one, `forward` runs as it stands, and its functions are cast as others are.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    kind = None if cast_inputs is None else as_dtype(cast_inputs)

    def cast(x: Any) -> Any:
        changes = isinstance(x, Tensor) and x.dtype.is_float and x.dtype is not dtypes.float64
        return x.cast(kind) if changes and kind is not None else x

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **options: Any) -> Any:
        on = is_autocast_enabled(device_type)
        ctx._dtype, ctx._fwd_used_autocast = get_autocast_dtype(device_type), on and kind is None
        if not on or kind is None:
            return fwd(ctx, *args, **options)
        with autocast(device_type, enabled=False):
            return fwd(ctx, *tree_map(cast, args), **tree_map(cast, options))

    return forward


def custom_bwd(bwd: Fun | None = None, *, device_type: str = "cpu") -> Fun:
    """A decorator for `backward` of an `autograd.Function` whose `forward` has `custom_fwd`: it runs under the
    `autocast` that was in force there, wherever `backward` is called.

    Args:
        bwd: `backward`. device_type: the kind of device that it is for.

    >>> from anneal.autograd import Function
    >>> class Product(Function):
    ...     @staticmethod
    ...     @custom_fwd(device_type="cpu")
    ...     def forward(ctx, a, b):
    ...         ctx.save_for_backward(a, b)
    ...         return a @ b
    ...     @staticmethod
    ...     @custom_bwd(device_type="cpu")
    ...     def backward(ctx, g):
    ...         a, b = ctx.saved_tensors
    ...         return g @ b.T, a.T @ g
    >>> a = Tensor.ones(2, 2, requires_grad=True)
    >>> with autocast("cpu", "bfloat16"):
    ...     y = Product.apply(a, a)
    >>> y.sum().backward()
    >>> y.dtype, a.grad.dtype
    (dtypes.bfloat16, dtypes.float32)
    """
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *args: Any, **options: Any) -> Any:
        with autocast(device_type, ctx._dtype, ctx._fwd_used_autocast):
            return bwd(ctx, *args, **options)

    return backward


# -- scaled losses ----------------------------------------------------------------------------------------------------


class GradScaler:
    """Scales losses, so that small gradients do not vanish in 16 bits: a step whose gradients are not finite changes
    nothing, and the scale becomes smaller; after many that are, larger.

    The scale and the decisions stay on the device, so a step may be in `jit`. An optimiser of the user's own, whose
    class has a `step` of its own, is asked on the host, as in torch.

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
    >>> w.grad = None
    >>> scaler.scale(w.sum() * float("inf")).backward()
    >>> scaler.step(optimiser); scaler.update()
    >>> w.tolist(), scaler.get_scale()
    ([0.5], 2.0)
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
        self._enabled = enabled
        self._growth, self._backoff, self._interval = growth_factor, backoff_factor, growth_interval
        self._found: dict[int, Tensor] = {}  # gradients that are not finite, by the id of their optimiser
        self._stepped: set[int] = set()
        if enabled:
            self._scale = Tensor([float(init_scale)], device=device).realize()
            self._good = Tensor([0], device=device).realize()  # finite steps since the scale changed

    def scale(self, outputs: Any) -> Any:
        """The tensor `outputs`, or each of several, times the scale, in float32."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            here.backwards.append(weakref.ref(outputs))  # with the step, or a later read computes it again
            return outputs * self._scale.reshape(()).to(outputs.device)
        if not isinstance(outputs, Iterable):
            raise DTypeError(f"GradScaler.scale: takes tensors, not {type(outputs).__name__}")
        scaled = [self.scale(x) for x in outputs]
        return scaled if isinstance(outputs, list) else tuple(scaled)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the parameters of `optimizer` by the scale, before they are clipped; at most once a
        step. Raises SettingError for a second call, DTypeError for gradients of float16.
        """
        if not self._enabled:
            return
        if id(optimizer) in self._found:
            raise SettingError("GradScaler.unscale_: was called before for this optimiser since the last update()")
        held = [(p, p.grad) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if any(grad.dtype is dtypes.float16 for _, grad in held):
            raise DTypeError("GradScaler.unscale_: gradients of float16 are not divided: keep parameters in float32")
        with no_grad(), autocast("auto", enabled=False):
            found = Tensor.zeros(1, device=self._scale.device)
            for p, grad in held:
                found = found + (~grad.isfinite()).float().sum().to(found.device)
                p.grad = grad * (1.0 / self._scale).reshape(()).to(grad.device)
            self._found[id(optimizer)] = found > 0

    def step(self, optimizer: Optimizer, *results: Tensor, **kwargs: Any) -> Any:
        """`optimizer.step(*results, **kwargs)` with gradients that are divided by the scale; if a gradient is not
        finite, parameters and state stay as they are. Raises SettingError for a second call since `update`, and for a
        closure.
        """
        if not self._enabled:
            return optimizer.step(*results, **kwargs)
        if "closure" in kwargs or any(not isinstance(r, Tensor) for r in results):
            raise SettingError("GradScaler.step: takes no closure")
        if id(optimizer) in self._stepped:
            raise SettingError("GradScaler.step: was called before for this optimiser since the last update()")
        if id(optimizer) not in self._found:
            self.unscale_(optimizer)
        self._stepped.add(id(optimizer))
        found = self._found[id(optimizer)]
        if type(optimizer).step is not Optimizer.step:
            return None if bool(found) else optimizer.step(*results, **kwargs)
        optimizer.found_inf = found
        try:  # with `found`: computed apart it would compute every gradient once more
            return optimizer.step(*results, found, **kwargs)
        finally:
            optimizer.found_inf = None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Choose the next scale by the steps since the last `update`, or take `new_scale`.

        Raises SettingError if no step came before.
        """
        if not self._enabled:
            return
        if new_scale is not None:
            new = new_scale if isinstance(new_scale, Tensor) else Tensor([float(new_scale)], device=self._scale.device)
            self._scale.assign(new.float().reshape(1))
        elif not self._found:
            raise SettingError("GradScaler.update: no step() or unscale_() came before it")
        else:
            with no_grad(), autocast("auto", enabled=False):
                failed = functools.reduce(lambda a, b: a | b.to(a.device), self._found.values())
                good = self._good + 1
                grown = self._scale * self._growth
                grows = good.ge(self._interval) & grown.isfinite()
                kept = grows.where(grown, self._scale)
                scale = failed.where(self._scale * self._backoff, kept)
                good = (failed | good.ge(self._interval)).where(0, good)
                self._scale.assign(scale)
                self._good.assign(good)
        self._found, self._stepped = {}, set()

    def get_scale(self) -> float:
        """The scale, read from the device; 1 if it is not enabled."""
        return float(self._scale.item()) if self._enabled else 1.0

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
            "scale": self.get_scale(),
            "growth_factor": self._growth,
            "backoff_factor": self._backoff,
            "growth_interval": self._interval,
            "_growth_tracker": int(self._good.item()),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`. Raises SettingError for an empty one, of a scaler that was not enabled."""
        if not self._enabled:
            return
        if not state_dict:
            raise SettingError(
                "GradScaler.load_state_dict: the state is empty: it is from a scaler that was not enabled"
            )
        self.update(float(state_dict["scale"]))
        self._growth = state_dict["growth_factor"]
        self._backoff, self._interval = state_dict["backoff_factor"], state_dict["growth_interval"]
        self._good.assign(Tensor([int(state_dict["_growth_tracker"])], device=self._good.device))


if not TYPE_CHECKING:
    __getattr__ = same_under(__name__, "autocast_mode grad_scaler")
