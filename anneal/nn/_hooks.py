"""Hooks of modules, called before and after `forward`, or with its gradients; how a module is moved and cast."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar

from anneal.backend import device_names, is_foreign
from anneal.errors import DataError, DTypeError, GradientError
from anneal.ops import DTypeLike, as_dtype, said
from anneal.runtime import Args, Fun, Options, here, outdate_captures, realize, resolve_device
from anneal.tensor import Tensor, host_call
from anneal.transforms import RemovableHandle, attached, wants_gradient
from anneal.uop import Op, UOp, dtypes

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
Named = dict[int, tuple[Fun, int]]


class ModuleHooks(defaultdict[str, Named]):
    """The hooks of one module by when they are called, each a function and whether it takes the keyword arguments too
    (of those "after" 2 more where it is called after an error, too). Those of "pulled_first" and "pulled" get gradients
    of its results, and those with the gradients of its arguments. Those of "saving", "saved", "loading" and "loaded"
    are called with its state."""


class HasForward(Protocol[P, R_co]):
    """A module by its class's own `forward`, whose parameters and result are those of a call."""

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


EVERYWHERE = ModuleHooks(dict)  # of all modules; they come before a module's own
ALWAYS = 2


def hook_on(module: Any, when: str, hook: Fun, prepend: bool = False, with_kwargs: int = False) -> RemovableHandle:
    """Put a hook on a module, or on all for None: `when` is a name of `ModuleHooks`."""
    hooks = EVERYWHERE if module is None else module._hooks
    if hooks is None:
        hooks = vars(module)["_hooks"] = ModuleHooks(dict)
    return RemovableHandle(hooks[when], (hook, with_kwargs), prepend)


def hooks_of(module: Any, when: str) -> list[tuple[Fun, int]]:
    """The hooks of all modules and of this one."""
    return [hook for hooks in (EVERYWHERE, module._hooks or {}) for hook in hooks.get(when, {}).values()]


def called_first(module: Any, args: Args, kwargs: Options) -> Any:
    """`called` for the outermost module of a call: the paths of modules inside begin at it."""
    here.modules = _paths_below(module)
    try:
        return called(module, args, kwargs)
    finally:
        here.modules = None


_OPEN = {list, dict}  # containers in an attribute: later changes of their contents are not noticed


def _paths_below(module: Any) -> dict[int, str]:
    """The paths of the modules below one, by id."""
    tensors = here.tensors
    known = tensors.paths.get(module)
    if known is None or known[0] != tensors.trees:
        below = list(module.named_modules())
        known = tensors.trees, {id(m): name for name, m in below}
        if all([_OPEN.isdisjoint(map(type, vars(m).values())) for _, m in below]):  # noqa: C419  # quicker
            tensors.paths[module] = known
    return known[1].copy()


def called(module: Any, args: Args, kwargs: Options) -> Any:
    """`module.forward` with its hooks: those before may give other arguments, those after another result."""
    if module._hooks is None and not any(EVERYWHERE.values()):
        return module.forward(*args, **kwargs)
    left, call = hooks_of(module, "after"), [args, kwargs, None]
    try:
        return _called(module, left, call)
    except Exception:
        for hook in left:
            if hook[1] & ALWAYS:
                try:
                    _call_after(module, hook, call)
                except Exception as e:  # the user must see the first error
                    warnings.warn(
                        f"a forward hook with always_call=True raised {e!r} after another error", stacklevel=2
                    )
        raise


def _call_after(module: Any, hook: tuple[Fun, int], call: list[Any]) -> None:
    after, how = hook
    changed = after(module, *call) if how & 1 else after(module, call[0], call[2])
    if changed is not None:
        call[2] = changed


def _called(module: Any, left: list[tuple[Fun, int]], call: list[Any]) -> Any:
    """`called` with hooks: `call` has arguments, keywords and result as they are now. Of the hooks after, `left` keeps
    those that were not called.
    """
    for hook, whole in hooks_of(module, "before"):
        changed = hook(module, *call[: 1 + whole])
        if changed is not None:
            if whole:
                call[0], call[1] = changed
            else:
                call[0] = changed if isinstance(changed, tuple) else (changed,)
    back = None
    first, last = [[hook for hook, _ in hooks_of(module, when)] for when in ("pulled_first", "pulled")]
    if first or last:
        back = _Backward(module, first, last)
        call[0] = back.begin(call[0])
    call[2] = module.forward(*call[0], **call[1])
    while left:
        _call_after(module, left.pop(0), call)
    return call[2] if back is None else back.end(call[2])


class _Backward:
    """The hooks of one call that get gradients: one node for all arguments, one for all results."""

    def __init__(self, module: Any, first: list[Fun], last: list[Fun]) -> None:
        self.module, self.first, self.last = module, first, last
        self.inputs = 0  # arguments of the call
        self.begun = False  # whether one of them requires a gradient
        self.came: tuple[Any, ...] | None = None  # the results' gradients, until those of the arguments come

    def begin(self, args: Args) -> tuple[Any, ...]:
        """The arguments, with the hooks put on their gradients."""
        self.inputs = len(args)
        made, self.begun = self._through(args, self._of_arguments)
        return made

    def end(self, result: Any) -> Any:
        """The result, whose gradients are noted."""
        several = result if isinstance(result, tuple) else (result,)
        made, any_wants = self._through(several, self._of_results)
        if not any_wants:
            return result
        if not isinstance(result, tuple):
            return made[0]
        return type(result)(*made) if hasattr(result, "_fields") else made

    def _through(self, values: tuple[Any, ...], taken: Fun) -> tuple[tuple[Any, ...], bool]:
        places = [i for i, x in enumerate(values) if wants_gradient(x)]
        if not places:
            return values, False
        shown = [(x.shape, x.dtype, x.device) if isinstance(x, Tensor) else None for x in values]

        def pull(_: Any, __: Any, ___: Any, given: Sequence[Any]) -> list[Any]:
            whole = taken([dict(zip(places, given, strict=True)).get(i) for i in range(len(values))], shown)
            return [whole[i] for i in places]

        wanted = [values[i] for i in places]
        name = f"a backward hook of {type(self.module).__name__}"
        made = dict(zip(places, attached(name, wanted, [x.uop for x in wanted], wanted, pull), strict=True))
        return tuple(made.get(i, x) for i, x in enumerate(values)), True

    def _of_results(self, came: list[Any], shown: list[Any]) -> Sequence[Any]:
        found = tuple(came)
        for hook in self.first:
            found = self._after("register_full_backward_pre_hook", found, hook(self.module, found))
        if self.begun:
            self.came = found
            return found
        none = (None,) * self.inputs
        for hook in self.last:
            changed = hook(self.module, none, found)
            if changed is not None and not (isinstance(changed, tuple) and all(g is None for g in changed)):
                raise GradientError(
                    f"register_full_backward_hook: no argument of this call of {type(self.module).__name__} requires "
                    f"a gradient, so the hook returns None, not {said(changed)}"
                )
        return found

    def _of_arguments(self, came: list[Any], shown: list[Any]) -> Sequence[Any]:
        results, self.came = self.came, None
        if results is None:  # the loss depends on the arguments other than through the call's result
            return came
        found = tuple(
            Tensor.zeros(*s[0], dtype=s[1], device=s[2]) if g is None and s is not None else g
            for g, s in zip(came, shown, strict=True)
        )
        for hook in self.last:
            found = self._after("register_full_backward_hook", found, hook(self.module, found, results))
        return found

    def _after(self, name: str, came: tuple[Any, ...], changed: Any) -> tuple[Any, ...]:
        """The gradients after a hook that returned `changed` for them."""
        if changed is None:
            return came
        if not isinstance(changed, (tuple, list)) or len(changed) != len(came):
            raise GradientError(
                f"{name}: the hook of {type(self.module).__name__} returns a tuple of {len(came)} gradients or None, "
                f"not {said(changed)}"
            )
        for new, old in zip(changed, came, strict=True):
            if new is not None and (
                not isinstance(new, Tensor) or (old is not None and tuple(new.shape) != tuple(old.shape))
            ):
                raise GradientError(
                    f"{name}: the hook of {type(self.module).__name__} returns a gradient of shape "
                    f"{None if old is None else old.shape} or None, not {said(new)}"
                )
        return tuple(changed)


class Hooked:
    """The hooks of `Module`: functions that are called with its forward and its backward pass."""

    _hooks: ModuleHooks | None

    def register_forward_hook(
        self, hook: Fun, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args, result)` after each `forward`; its result, if that is not None, replaces the
        module's.

        With `with_kwargs` it is `hook(module, args, kwargs, result)`; `prepend` puts it before the others. The handle's
        `remove()` takes it away. With `always_call` it is called after an error in `forward` or in a hook, too, with
        the result so far: None after one in `forward`.

        >>> from anneal import nn
        >>> layer = nn.ReLU()
        >>> handle = layer.register_forward_hook(lambda module, args, result: print(args[0].shape, result.shape))
        >>> y = layer(Tensor.ones(2, 3))
        (2, 3) (2, 3)
        """
        return hook_on(self, "after", hook, prepend, with_kwargs | ALWAYS * always_call)

    def register_forward_pre_hook(
        self, hook: Fun, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before each `forward`; its result, if that is not None, replaces the arguments.

        With `with_kwargs` it is `hook(module, args, kwargs)` and gives both. Otherwise as `register_forward_hook`.

        Args:
            prepend: whether this hook runs before those that are there.

        >>> from anneal import nn
        >>> layer = nn.ReLU()
        >>> handle = layer.register_forward_pre_hook(lambda module, args: args[0] - 1)
        >>> layer(Tensor([3.0]))
        Tensor([2.], dtype=float32)
        """
        return hook_on(self, "before", hook, prepend, with_kwargs)

    def register_full_backward_hook(self, hook: Fun, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of a call's arguments are taken; a tuple
        that it gives replaces `grad_input`.

        Both are tuples with an entry for each positional argument, and each result: a tensor or None. Where no argument
        requires a gradient all of `grad_input` is None. The hook is called when a graph of gradients is built: under
        `jit`, when it captures. Raises GradientError, in `backward`, for a wrong number or shape.

        Args:
            hook: the function.
            prepend: whether it runs before those that are there.

        >>> from anneal import nn
        >>> layer = nn.Softplus()
        >>> handle = layer.register_full_backward_hook(lambda module, given, came: (came[0] * 10,))
        >>> x = Tensor([0.0], requires_grad=True)
        >>> layer(x).sum().backward(); x.grad
        Tensor([10.], dtype=float32)
        """
        return hook_on(self, "pulled", hook, prepend)

    def register_full_backward_pre_hook(self, hook: Fun, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` when the gradients of a call's results are there, before its own are taken;
        what it gives replaces them. Otherwise as `register_full_backward_hook`.

        Args:
            hook: the function.
            prepend: whether it runs before those that are there.

        >>> from anneal import nn
        >>> layer = nn.ReLU()
        >>> handle = layer.register_full_backward_pre_hook(lambda module, came: (came[0] * 10,))
        >>> x = Tensor([3.0], requires_grad=True)
        >>> layer(x).sum().backward(); x.grad
        Tensor([10.], dtype=float32)
        """
        return hook_on(self, "pulled_first", hook, prepend)


# -- devices and dtypes -----------------------------------------------------------------------------------------------
# The methods of a module that move its tensors to a device or a dtype, in place.


class Moved:
    """The part of `Module` that moves and casts it: `to` and its short forms."""

    if TYPE_CHECKING:

        def _tensors(self, private: bool = False, recurse: bool = True) -> Iterator[tuple[str, Any, str, Tensor]]: ...
        def _owners(self, prefix: str, method: str = "") -> list[tuple[Any, str, bool]]: ...

    def to(
        self,
        *args: DTypeLike,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        non_blocking: bool = False,
        memory_format: str | None = None,
    ) -> Self:
        """Move every tensor to a device, those of floats to a dtype, or both; returns the module. Parameters stay the
        same objects, and their gradients go with them; a buffer that changes is a new tensor.

        `non_blocking` and `memory_format` are ignored: nothing waits here before a value is read, and the
        compiler chooses the layout. On "meta" tensors forget their values and keep shapes, dtypes and their device: a
        module to be called with others' parameters, by `functional_call`. Computing one raises DataError.

        Raises DTypeError for a dtype that is no float, DeviceError for a device that is not there.

        >>> from anneal import nn
        >>> nn.Linear(2, 1).to("bfloat16").weight.dtype
        dtypes.bfloat16
        """
        for a in args:
            if isinstance(a, str) and (a in device_names() or is_foreign(a) or a == "meta"):
                device = a
            elif isinstance(a, Tensor):
                device, dtype = a.device, a.dtype
            elif a is not None and a not in (True, False):  # torch's third is non_blocking
                dtype = a
        if device == "meta":
            for name, *_, t in self._tensors(private=True):
                if t.numel():
                    device, no_values = t.device, _no_values(name)
                    t._leave()
                    t.grad = None
                    t._become(host_call(no_values, (t.shape, t.dtype), Tensor.zeros(1, device=device)).uop)
            outdate_captures("a module moved to another device or dtype")
            return self
        device = None if device is None else resolve_device(device)
        kind = None if dtype is None else as_dtype(dtype)
        if kind is not None and not kind.is_float:
            raise DTypeError(f"{type(self).__name__}.to: a module's dtype is a float, not {kind.name}")
        return self._apply(lambda t: t.to(device=device, dtype=kind if t.dtype.is_float else None))

    def _apply(self, fn: Fun, recurse: bool = True) -> Self:
        """Replace the values of every tensor `t`, and gradients, by `fn(t)`, in place; a module below that defines
        `_apply` is asked to. Without `recurse`, those of this module alone.
        """
        changed = []
        m: Any
        for m, _, own in self._owners("", "_apply") if recurse else [(self, "", False)]:
            if own:
                m._apply(fn)
                continue
            for *_, name, t in list(m._tensors(True, False)):
                new = fn(before := t.detach())
                if new is not before:
                    if not m._is_parameter(t):
                        t = vars(m)[name] = copy(t)
                    gradient = fn(t._grad.detach()) if isinstance(t._grad, Tensor) else None
                    t._leave()
                    t._device, t.grad = new.device, None
                    t._assign(UOp(Op.CONTIGUOUS, new.dtype, (new.uop,)))
                    t.grad = gradient
                    changed += [t] if gradient is None else [t, gradient]
        if changed:
            outdate_captures("a module moved to another device or dtype")
            realize(changed)
        return self

    def _place(self, device: str | None, dtype: DTypeLike | None) -> None:
        """Move and cast to the `device=` and `dtype=` of a layer, if they are given."""
        if device is not None or dtype is not None:
            self.to(device=device, dtype=dtype)

    def half(self) -> Self:
        """Cast floats to float16: `.to("float16")`."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast floats to bfloat16, `.to("bfloat16")`: half the memory; an optimiser keeps a float32 copy of the
        parameters.
        """
        return self.to(dtypes.bfloat16)

    def double(self) -> Self:
        """Cast floats to float64: `.to("float64")`."""
        return self.to(dtypes.float64)

    def float(self) -> Self:
        """Cast floats to float32: `.to("float32")`."""
        return self.to(dtypes.float32)

    def type(self, dst_type: DTypeLike) -> Self:
        """Cast floats to `dst_type`: `.to(dst_type)`."""
        return self.to(dtype=dst_type)

    def share_memory(self) -> Self:
        """The module itself: its tensors' memory is this process's."""
        return self

    def realize(self) -> Self:
        """Compute every tensor now, together; returns the module."""
        realize([t for *_, t in self._tensors()])
        return self

    def cpu(self) -> Self:
        """Move every tensor to the cpu: `.to("cpu")`."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> Self:
        """Raise DeviceError, which names the device to use instead: there is no CUDA."""
        return self.to("cuda")


def _no_values(name: str) -> Fun:
    def no_values(_: Any) -> Any:
        raise DataError(f"{name}: the module was moved to 'meta': its tensors have shapes and no values")

    return no_values


# -- hooks on all modules, by torch's names ---------------------------------------------------------------------------
#
# They are for looking and debugging: a module's own hooks come after them.


def register_module_forward_pre_hook(hook: Fun) -> RemovableHandle:
    """`Module.register_forward_pre_hook` of all modules.

    Args:
        hook: `hook(module, args)`.

    >>> from anneal import nn
    >>> with register_module_forward_pre_hook(lambda module, args: print(type(module).__name__)):
    ...     y = nn.Sequential(nn.ReLU())(nn.Parameter([1.0]))
    Sequential
    ReLU
    """
    return hook_on(None, "before", hook)


def register_module_forward_hook(hook: Fun, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """`Module.register_forward_hook` of all modules.

    Args:
        hook: `hook(module, args, result)`.
        with_kwargs: whether it is `hook(module, args, kwargs, result)`.
        always_call: whether it is called after an error, too.
    """
    return hook_on(None, "after", hook, with_kwargs=with_kwargs | ALWAYS * always_call)


def register_module_full_backward_pre_hook(hook: Fun) -> RemovableHandle:
    """`Module.register_full_backward_pre_hook` of all modules.

    Args:
        hook: `hook(module, grad_output)`.
    """
    return hook_on(None, "pulled_first", hook)


def register_module_full_backward_hook(hook: Fun) -> RemovableHandle:
    """`Module.register_full_backward_hook` of all modules.

    Args:
        hook: `hook(module, grad_input, grad_output)`.
    """
    return hook_on(None, "pulled", hook)


# -- the settings that a printed layer shows, in torch's order and form -----------------------------------------------


# For each layer the settings that `repr` shows; # stands for 1d, 2d and 3d. `name` shows name=value; `=name` the value
# alone; `name?x` only another value than x; `name!x` that without quotes; `name*` a value for each axis, `name*x`
# unless all are x.
_SHOWN = """
Conv#: =in_channels =out_channels kernel_size* stride* padding*0 dilation*1 groups?1 bias?True padding_mode!zeros
ConvTranspose#: =in_channels =out_channels kernel_size* stride* padding*0 dilation*1 output_padding*0 groups?1 bias?True
BatchNorm# InstanceNorm# SyncBatchNorm: =num_features eps momentum affine bias track_running_stats
MaxPool#: kernel_size stride padding dilation ceil_mode
AvgPool#: kernel_size stride padding
MaxUnpool# AvgPool1d: kernel_size* stride* padding*
AdaptiveAvgPool# AdaptiveMaxPool#: output_size
ZeroPad# ReflectionPad# ReplicationPad# CircularPad#: =padding
RNN LSTM GRU: =input_size =hidden_size num_layers?1 bias?True batch_first?False dropout?0.0 bidirectional?False
RNNCell LSTMCell GRUCell: =input_size =hidden_size bias?True nonlinearity!tanh
Hardshrink Softshrink: =lambd
LayerNorm: =normalized_shape eps elementwise_affine bias
RMSNorm: =normalized_shape eps elementwise_affine
GroupNorm: =num_groups =num_channels eps affine bias
LocalResponseNorm: =size alpha beta k
Linear: in_features out_features bias
Bilinear: in1_features in2_features out_features bias
Embedding: =num_embeddings =embedding_dim padding_idx?None max_norm?None norm_type?2.0 scale_grad_by_freq?False
EmbeddingBag: =num_embeddings =embedding_dim max_norm?None norm_type?2.0 scale_grad_by_freq?False mode padding_idx?None
_Dropout: p inplace
ReLU6: inplace?False
_Loss _FractionalMaxPool CosineSimilarity Hardswish Hardsigmoid:
PReLU: num_parameters
Upsample: size?None scale_factor?None mode
"""
_TABLE = {
    name.replace("#", axes): words.split()
    for names, _, words in [row.partition(":") for row in _SHOWN.splitlines()]
    for name in names.split()
    for axes in ("1d", "2d", "3d")
}
_OF_TENSORS = {  # settings of which a layer keeps the tensors that they ask for
    "bias": ("bias", "bias_ih"),
    "affine": ("weight",),
    "elementwise_affine": ("weight",),
    "track_running_stats": ("running_mean",),
}


def settings_shown(module: Any) -> str:
    """The text between the brackets of a printed layer: the settings that the table has for its class or a base, or a
    row's own.

    >>> from anneal import nn
    >>> settings_shown(nn.Conv2d(3, 8, 3, padding=1, bias=False))
    '3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False'
    """
    for kind in type(module).__mro__:
        if kind.__name__ in _TABLE and kind.__module__.startswith("anneal.nn."):
            return _shown(module, kind, _TABLE[kind.__name__])
    rows = getattr(module, "_settings", ())
    return _shown(module, type(module), ["inplace?False" if name == "inplace" else name for name in rows])


def _shown(module: Any, kind: type, words: list[str]) -> str:
    return ", ".join([s for s in [_setting(module, kind, word) for word in words] if s])


def _setting(module: Any, kind: type, word: str) -> str:
    alone = word.startswith("=")
    name = word.lstrip("=")
    mark = next((c for c in "?!*" if c in name), "")
    usual = ""
    if mark:
        name, _, usual = name.partition(mark)
    value = setting(module, name)
    if mark == "*" and not isinstance(value, str):
        axes = int(kind.__name__[-2])
        value = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
        if usual and all(str(v) == usual for v in value):
            return ""
    elif usual and (str(value) == usual or value is None):
        return ""
    text = str(value) if mark in ("!", "*") else repr(value)
    return text if alone else f"{name}={text}"


def setting(module: Any, name: str, default: Any = None) -> Any:
    """The setting of a layer, or `default` if it keeps none of this name."""
    if name == "num_parameters":
        return module.weight.numel()
    if name in _OF_TENSORS and not isinstance(getattr(module, name, None), bool):
        return any(getattr(module, t, None) is not None for t in _OF_TENSORS[name])
    return getattr(module, name, default)
