"""Exchange of tensors with Python and other libraries: numbers, arrays, copies, DLPack; what torch's programs ask."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import deepcopy
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args, overload

import numpy as np

from anneal import runtime  # not its names: start-up does without the values of steps
from anneal.doors import pairs
from anneal.errors import DeviceError, DTypeError, GradientError, JitError, SettingError, ShapeError, UserError
from anneal.names import Tensor

from anneal.ops import (  # isort: skip
    DTypeLike, as_dtype, axis_of, called_on_host, checked, grad_enabled, is_tensor, made, no_grad, said, whole, zeros,
)  # fmt: skip
from anneal.uop import DType, Nodes, Op, Some, UOp
from anneal.uop.sizes import most, product, sizes

if TYPE_CHECKING:
    import numpy.typing as npt

    from anneal.backend import Array


def data(x: Tensor) -> Tensor:
    """The same values without a gradient. Assigning to it, and in-place ops of it, change this tensor, as under
    `no_grad`.
    """
    return x.detach()


def set_data(x: Tensor, value: Any) -> None:
    """Make this tensor a view of another one, of any shape, dtype and device; `grad` stays."""
    if not isinstance(value, runtime.tensor_class()):
        raise DTypeError(f"data: a tensor's data is a tensor, not {value.__class__.__name__}: write Tensor(value)")
    if value._detached_from() is x:
        return  # x.data += y has changed the tensor already
    if x.requires_grad and not value.dtype.is_float:
        raise DTypeError(f"data: a tensor that requires a gradient is of floats, not {value.dtype.name}")
    other = value.detach()
    x._leave()
    if value.dtype is not x.dtype or value.shape != x.shape or value.device != x.device:
        runtime.forbid_in_capture("a tensor's data of another shape, dtype or device", "set it outside")
        runtime.outdate_captures("a tensor's data became of another shape, dtype or device")
        x._device = value.device
        x._become(UOp(Op.CONTIGUOUS, value.dtype, (other.uop,)))
    elif x.requires_grad and not x.is_leaf:
        with no_grad():
            x.copy_(other)  # and the gradient goes to what the tensor was computed from, as it did before
        return
    x.assign(other)
    if x.requires_grad and x.is_leaf:
        x._used = 0
        x.requires_grad_()  # a node of its own: equal ones are one
    elif x.requires_grad:
        x._spent = True  # its graph ends here, and `backward` says so
        x.realize()
    if other._base is not None:
        x._part_of(value, other._base.step)


def retains_grad(x: Tensor) -> bool:
    """True if `backward` sets `.grad` of this tensor, which is no leaf, by `retain_grad`."""
    from anneal.transforms import retains_grad as retained

    return retained(x)


def __copy__(x: Tensor) -> Tensor:
    """`copy.copy(x)`: a leaf that shares its values."""
    copy = x.detach()
    return copy.requires_grad_() if x.requires_grad else copy


def __deepcopy__(x: Tensor, memo: dict[Any, Any]) -> Tensor:
    if not x.is_leaf:
        raise GradientError("deepcopy: x was computed: copy x.detach(), or gradients flow through x.clone()")
    copy = memo[id(x)] = _rebuild(x.numpy(), x.device, x.requires_grad)
    copy.grad = deepcopy(x.grad, memo)
    return copy


def __reduce__(x: Tensor) -> tuple[Any, ...]:
    return _rebuild, (x.numpy(), x.device, x.requires_grad)


def _rebuild(values: Any, device: str, requires_grad: bool) -> Tensor:
    x = made.tensor(values, device)
    return x.requires_grad_() if requires_grad else x


def __array__(x: Tensor, dtype: npt.DTypeLike | None = None, copy: Any = None) -> Array:
    if copy is False:
        raise SettingError("numpy: copy=False cannot be had: a tensor's values are copied to an array; leave it out")
    values = x.numpy()
    return values if dtype is None else values.astype(dtype)


def __array_wrap__(x: Tensor, values: Array, context: Any = None, return_scalar: bool = False) -> Tensor:
    """The tensor that NumPy's elementwise functions give for a tensor: `np.sin(t)`. GradientError if a gradient would
    be lost.
    """
    if x.requires_grad and grad_enabled():
        name = "numpy" if context is None else f"np.{context[0].__name__}"
        raise GradientError(f"{name}: NumPy records no gradient: write anneal's function, or .detach() first")
    return made.tensor(values, x.device)


def sized(data: int, device: Any, dtype: Any, requires_grad: Any, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """The arguments of `Tensor(2, 3)`, whose sizes stand in the places of others, as those of a tensor of zeros."""
    shape = [n for n in (data, device, dtype, requires_grad, *sizes) if n.__class__ is int]
    kind, wants = (None if n.__class__ is int else n for n in (dtype, requires_grad))
    return zeros(*shape, dtype=kind), None, None, wants


def __array_function__(x: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> object:
    """NumPy's functions get the values, and give arrays: `np.sum(t)` is `np.sum(t.numpy())`."""
    values = lambda given: given.numpy() if is_tensor(given) else given
    return function(*runtime.mapped(args, values), **runtime.mapped(kwargs, values))


def __dlpack__(
    x: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
) -> object:
    """A copy of the values, on the cpu. Raises BufferError for another device, if copy is False, and for dtypes that
    NumPy has no DLPack of.
    """
    if dl_device is not None and tuple(dl_device) != __dlpack_device__(x):
        raise BufferError(f"__dlpack__: values go by way of the cpu, device (1, 0), not {tuple(dl_device)}")
    if copy is False:
        raise BufferError("__dlpack__: values are copied, and copy is False; leave copy out")
    return np.asarray(x.numpy(), order="C").__dlpack__()


def __dlpack_device__(x: Tensor) -> tuple[int, int]:
    return 1, 0  # the cpu


# -- the array API standard -------------------------------------------------------------------------------------------


class Elements(int):
    """The number of elements, which the array API reads as `x.size`; called as in torch, the shape or the size of one
    axis: `x.size()`, `x.size(0)`.
    """

    shape: tuple[Any, ...]

    @classmethod
    def of(cls, shape: tuple[Any, ...]) -> Elements:
        """The elements of a shape."""
        found = cls(most(product(shape)))
        found.shape = shape
        return found

    @overload
    def __call__(self, dim: None = None) -> tuple[Any, ...]: ...
    @overload
    def __call__(self, dim: int) -> int: ...
    def __call__(self, dim: int | None = None) -> Any:
        if dim is None:
            return self.shape
        if not self.shape:
            raise ShapeError("size: a tensor of shape () has no axes")
        return self.shape[axis_of(whole("dim", dim, "size"), len(self.shape), "size")]


def __array_namespace__(x: Tensor, /, *, api_version: str | None = None) -> ModuleType:
    """`anneal.array_api`, imported by its name: that package is above this one. ValueError for an unknown version."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(
            f"__array_namespace__: version 2024.12 of the standard is here, and earlier ones, not {api_version!r}"
        )
    return import_module("anneal.array_api")


def to_device(x: Tensor, device: str, /, *, stream: Any = None) -> Tensor:
    """`x.to(device)`, by the array API's name; `stream` is ignored: each device has one queue.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).to_device("cpu").device
    'cpu'
    """
    return x.to(device=device)


# -- numbers ----------------------------------------------------------------------------------------------------------


def __bool__(x: Tensor) -> bool:
    if x.numel() != 1:
        raise ShapeError(
            f"bool: the truth of a tensor of shape {x.shape} is ambiguous; use .any() or .all() and then .item()"
        )
    try:
        return bool(x.numpy().item())
    except JitError:
        runtime.forbid_in_jit(
            "a branch on the value of a tensor (if, while, and, or, not)",
            "write an.where(condition, a, b), or decide outside and pass the choice as an argument",
        )
        raise


def __contains__(x: Tensor, value: Any) -> bool:
    if not (is_tensor(value) or isinstance(value, (bool, int, float, np.generic))):
        raise DTypeError(f"in: a tensor contains numbers; write a number or a tensor before `in`, not {said(value)}")
    return bool((x == value).any())


def __float__(x: Tensor) -> float:
    return float(x.item())


def __int__(x: Tensor) -> int:
    return int(x.item())


def __complex__(x: Tensor) -> complex:
    return complex(x.item())


def __index__(x: Tensor) -> int:
    if x.uop.dtype.is_float or product(x.shape) != 1:
        raise TypeError(f"only an integer tensor of one element is an index, not {x.dtype.name} of shape {x.shape}")
    return int(x.item())


# -- facts about tensors that torch's programs query ------------------------------------------------------------------
#
# Most of them are the same for every tensor here; and dtypes by torch's older names.


# torch's names of tensors of a dtype, as `x.type()` gives them and `x.type("torch.LongTensor")` takes them
OLDER = {
    name: as_dtype(dtype)
    for name, dtype in pairs("""
        Half=float16 BFloat16=bfloat16 Float=float32 Double=float64 Bool=bool Byte=uint8 Char=int8 Short=int16
        Int=int32 Long=int64
    """).items()
}


class Whole(int):
    """An int that may be called, since here it was a method: `x.nbytes` and `x.nbytes()`."""

    def __call__(self) -> int:
        return int(self)


@overload
def type(x: Tensor, dtype: None = None) -> str: ...  # noqa: A001
@overload
def type(x: Tensor, dtype: Any) -> Tensor: ...  # noqa: A001
@checked
def type(x: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:  # noqa: A001
    """torch's name of a tensor of this dtype, or the tensor in a dtype, which may have such a name; `non_blocking`
    changes nothing.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).type(), Tensor([1.5]).type("torch.LongTensor").dtype
    ('torch.FloatTensor', dtypes.int64)
    """
    if dtype is None:
        return f"torch.{next((n for n, d in OLDER.items() if d is x.dtype), x.dtype.name.title())}Tensor"
    return x.cast(older(dtype))


def older(dtype: Any) -> DTypeLike:
    """A dtype, by its own names or as `torch.LongTensor`."""
    name = getattr(dtype, "older_name", dtype)
    if isinstance(name, str) and name.endswith("Tensor"):
        found = OLDER.get(name.removeprefix("torch.").removesuffix("Tensor"))
        if found is None:
            raise DTypeError(f"type: there is no {name}; tensors are {', '.join(OLDER)}Tensor")
        return found
    return as_dtype(dtype)


def itemsize(x: Tensor) -> int:
    """Bytes of one element in host memory."""
    return x.dtype.itemsize


def nbytes(x: Tensor) -> Whole:
    """Bytes of all elements in host memory; called, too.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).nbytes == Tensor([1, 2]).nbytes() == 8
    True
    """
    return Whole(x.numel() * x.dtype.itemsize)


def is_cpu(x: Tensor) -> bool:
    """True on the cpu device."""
    return x._device == "cpu"


def real(x: Tensor) -> Tensor:
    """The tensor itself: there are no complex numbers."""
    return x


def no(x: Tensor) -> bool:
    """False, for every tensor x.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).is_complex(), Tensor([1.0]).is_pinned()
    (False, False)
    """
    return False


def itself(x: Tensor, *args: Any, **options: Any) -> Tensor:
    """The tensor x itself: programs do not decide where its memory lies.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).pin_memory()
    Tensor([1.], dtype=float32)
    """
    return x


@checked
def is_signed(x: Tensor) -> bool:
    """True if the dtype has negative numbers.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).is_signed(), Tensor([1], dtype="uint8").is_signed()
    (True, False)
    """
    return x.dtype.min < 0


@checked
def is_nonzero(x: Tensor) -> bool:
    """True if the one number of the tensor is not 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2.0]).is_nonzero()
    True
    """
    return bool(x)


@checked
def is_same_size(x: Tensor, other: Tensor) -> bool:
    """True if `other` has the same shape.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2.0]).is_same_size(Tensor([1]))
    True
    """
    return x.shape == other.shape


@checked
def get_device(x: Tensor) -> int:
    """-1, as of every tensor that is on no CUDA device.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2.0]).get_device()
    -1
    """
    return -1


@checked
def data_ptr(x: Tensor) -> int:
    """A number that tells with which element the tensor x begins, no address: equal for tensors that share their values
    and begin with the same one, 0 for a tensor without elements. It holds while a tensor that shares the values lives.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x[0].data_ptr() == x.data_ptr(), x[1].data_ptr() == x.data_ptr(), x.clone().data_ptr() == x.data_ptr()
    (True, False, False)
    """
    link = x._base
    if not x.numel():
        return 0
    if link is None or not link.recipe.is_view:
        return id(x) << 40
    return (id(link.root) << 40) + int(link.recipe.layout[1]) * x.dtype.itemsize


@checked
def set_(x: Tensor, source: Tensor) -> Tensor:
    """The tensor itself, which is a view of all of `source` from now on, in that one's shape: `x.data = source`.

    Raises GradientError for a leaf that requires a gradient outside no_grad, and where gradients of `source` would be
    recorded, DTypeError for another dtype, DeviceError for another device.

    Args:
        source: a tensor, no storage.

    >>> from anneal.tensor import Tensor
    >>> x, y = Tensor([0.0]), Tensor([1.0, 2.0])
    >>> x.set_(y)[0] = 7.0; y
    Tensor([7., 2.], dtype=float32)
    """
    if x.requires_grad and x.is_leaf and grad_enabled():
        raise GradientError("set_: a leaf that requires a gradient cannot be changed in place; use no_grad()")
    if source.requires_grad and grad_enabled():
        raise GradientError("set_: no gradient flows to the source; write x.set_(source.detach()), or no_grad()")
    if source.dtype is not x.dtype:
        raise DTypeError(
            f"set_: a tensor of {x.dtype.name} becomes no view of one of {source.dtype.name}: write "
            f"x.set_(source.to(x.dtype)), or x.data = source"
        )
    if source.device != x.device:
        raise DeviceError(f"set_: a tensor on {x.device} becomes no view of one on {source.device}: move that by .to()")
    x.data = source
    return x


@checked
def detach_(x: Tensor) -> Tensor:
    """The tensor itself, cut off from what it was computed from: no gradient flows through it any more.

    >>> from anneal.tensor import Tensor
    >>> y = Tensor([2.0], requires_grad=True) * 3
    >>> y.detach_().requires_grad
    False
    """
    if x._wants:
        x._show(x.detach().uop)  # views that were made before keep their gradients
        x._leaf = True
        x.requires_grad_(False)
    return x


# -- functions of the host in the graph -------------------------------------------------------------------------------


Tensors = Sequence[Tensor]
Gradient = Callable[[Tensors, Tensors, Tensors], Any]  # (inputs, results, cotangents) -> cotangents of the inputs


@overload
def host_call(
    function: Callable[..., Any],
    results: tuple[Any, Any],
    *inputs: Tensor,
    key: Hashable = ...,
    gradient: Gradient | None = ...,
    vmap_method: runtime.VmapMethod = ...,
) -> Tensor: ...
@overload
def host_call(
    function: Callable[..., Any],
    results: list[Any],
    *inputs: Tensor,
    key: Hashable = ...,
    gradient: Gradient | None = ...,
    vmap_method: runtime.VmapMethod = ...,
) -> tuple[Tensor, ...]: ...
def host_call(
    function: Callable[..., Any],
    results: tuple[Any, Any] | list[Any],
    *inputs: Tensor,
    key: Hashable = None,
    gradient: Gradient | None = None,
    vmap_method: runtime.VmapMethod = "sequential",
) -> Tensor | tuple[Tensor, ...]:
    """The result of `function` for the values of `inputs`, on the host, whenever a result is computed.

    It gets NumPy arrays and gives arrays; it is part of the graph, so it is called when results are realized, between
    the kernels before it and those after it, and by each replay of a jit function. It may be called again, or not at
    all, as kernels are: it should depend on its arguments alone. It computes no tensors.

    A size of a result may be a `Variable` without a value: each call finds it, within its bounds, for what comes after.

    Args:
        function: takes an array for each input, and gives an array or a sequence of them.
        results: `(shape, dtype)` of the one result, which is returned, or a list of such pairs: then a tuple is.
        inputs: tensors on one device, at least one.
        key: calls of functions of equal keys on equal inputs are one, and a loop without jit traces calls without a key
            anew. By default equal functions are one; a lambda, or what cannot be hashed, equals itself alone.
        gradient: takes the inputs, the results and the cotangents of the results, three lists of tensors, and gives a
            cotangent for each input, None for one that gets none. It is made of ops, and so has derivatives itself, or
            of `host_call`. Without it no gradient flows.
        vmap_method: how vmap calls it. "sequential": for each example. Or once for all of them, along a new first axis
            of inputs and results; an input without examples has 1 there by "expand_dims", repeats by "broadcast_all".

    Raises:
        ShapeError: no input, no pair of shape and dtype, or a size of 0; where results are computed, one of another
            number or shape than `results` says, or a size outside a Variable's bounds.
        DTypeError: an input that is no tensor, a key that cannot be hashed, an unknown vmap_method; later a result's.
        DeviceError: inputs on several devices.

    >>> import numpy as np
    >>> from anneal.tensor import Tensor, Variable
    >>> x = Tensor([3.0, 1.0, 2.0]) + 1
    >>> host_call(np.sort, ((3,), "float32"), x) * 10
    Tensor([20., 30., 40.], dtype=float32)
    >>> n = Variable("n", 0, 3)
    >>> large = host_call(lambda a: np.flatnonzero(a > 2.5).astype("int32"), ((n,), "int32"), x)
    >>> large.shape, x[large].sum().item(), large.tolist()
    ((n,), 7.0, [0, 2])
    """
    name = str(key) if isinstance(key, str) else getattr(function, "__qualname__", function.__class__.__name__)
    _check(inputs, key, vmap_method)
    pairs = [_pair(r) for r in (results if isinstance(results, list) else [results])]
    found = runtime.found_sizes(f"host_call of {name}", pairs, [x.shape for x in inputs])
    called = runtime.HostFunction(
        (runtime.key_of(function) if key is None else key, gradient is not None),
        tuple(pairs),
        function,
        name,
        None if gradient is None else _on_nodes(gradient, name, inputs[0].device),
        vmap_method,
        found,
        key is not None,
    )
    made = called_on_host("host_call", called, inputs)
    return made if isinstance(results, list) else made[0]


def _check(inputs: Sequence[Any], key: Any, vmap_method: Any) -> None:
    """Raise ShapeError or DTypeError for arguments that are none of a call's."""
    for x in inputs:
        if not is_tensor(x):
            raise DTypeError(
                f"host_call: takes tensors, not {x.__class__.__name__}; let the function hold what is constant"
            )
    if not inputs:
        raise ShapeError(
            "host_call: takes at least one tensor; make a Tensor of the result of a function without arguments"
        )
    if vmap_method not in (None, *get_args(get_args(runtime.VmapMethod)[0])):
        raise DTypeError(
            f'host_call: vmap_method is "sequential", "expand_dims" or "broadcast_all", not {said(vmap_method)}'
        )
    try:
        hash(key)
    except TypeError:
        raise DTypeError(
            f"host_call: key must be hashable, like a text or a tuple of texts and numbers, not {said(key)}"
        ) from None


def _pair(result: Any) -> tuple[tuple[Any, ...], DType]:
    """A result's shape and dtype."""
    try:
        shape, dtype = result
        return sizes(tuple(shape)), as_dtype(dtype)
    except (TypeError, ValueError) as e:
        if isinstance(e, UserError):
            raise
        raise ShapeError(
            f"host_call: a result is a pair of shape and dtype, as ((3,), 'float32'), not {said(result)}"
        ) from e


def _on_nodes(gradient: Gradient, name: str, device: str) -> runtime.HostGradient:
    """A gradient over tensors as one over nodes. Raises GradientError where it gives anything but tensors and None."""

    def of_nodes(inputs: Nodes, outputs: Nodes, cotangents: Nodes) -> Some:
        given = [
            [runtime.tensor_class()._from_uop(u, device) for u in nodes] for nodes in (inputs, outputs, cotangents)
        ]
        made = gradient(*given)
        several = list(made) if isinstance(made, (list, tuple)) else [made]
        for c in several:
            if c is not None and not is_tensor(c):
                raise GradientError(f"the gradient of host_call of {name} gives tensors, or None, not {said(c)}")
        return [None if c is None else c.uop for c in several]

    return of_nodes


def carried(x: Tensor, y: Tensor) -> Tensor:
    """`y`, which has the values of `x` on another device, as a tensor whose gradients come back to that of `x`."""
    from anneal.runtime import here
    from anneal.transforms import attached

    there, back = y.device, x.device
    here.tensors.moved = True

    def moved(device: str) -> Any:
        return lambda _, __, ___, given: [None if t is None else t.to(device) for t in given]

    made = attached(f"to({there!r})", [x], [x.uop], [y], moved(back), moved(there))
    return made[0]
