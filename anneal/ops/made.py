"""The material of tensors: dtypes by any of their names; numbers, lists, arrays and calls of the host as nodes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from anneal.backend import HOST, Array, dtype_of, get_device, numpy_dtype
from anneal.errors import DTypeError, ShapeError
from anneal.names import Tensor
from anneal.ops.checks import is_tensor, said
from anneal.runtime import at_once, buffer_leaf, here, host_storage, tensor_class
from anneal.uop import DTYPES, DType, Op, UOp, by_name, const, dtypes
from anneal.uop.sizes import most, symbolic_arg

if TYPE_CHECKING:  # what annotations alone need is not imported at start-up
    import numpy.typing as npt

    from anneal.runtime import HostFunction

DTypeLike: TypeAlias = "DType | str | npt.DTypeLike | type"

HELD: tuple[str, ...] = tuple([d.name for d in DTYPES])  # the dtypes that data may have
_MOST_UPLOADED = 1 << 22  # elements of a constant that become memory on the host first


def as_dtype(dtype: DTypeLike) -> DType:
    """A dtype given as anneal's own, a name, a NumPy dtype, or Python's bool, int or float.

    Raises DTypeError, listing the known names, for anything else.

    >>> as_dtype("half"), as_dtype(int), as_dtype(np.uint8)
    (dtypes.float16, dtypes.int32, dtypes.uint8)
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str):
        return by_name(dtype)
    if dtype is bool:
        return dtypes.bool_
    if dtype is int:
        return dtypes.int32
    if dtype is float:
        return dtypes.float32
    try:
        if isinstance(dtype, (type, np.dtype)):
            return by_name(np.dtype(dtype).name)
    except (TypeError, ValueError):
        pass
    by_name(said(dtype))
    raise AssertionError("unreachable: by_name takes no such name")


def check_device_dtype(device: str, dtype: DType) -> None:
    """Raise DTypeError if `device` cannot hold `dtype`."""
    if device != HOST:
        held = get_device(device).limits.dtypes
        if dtype not in held:
            names = ", ".join(sorted(d.name for d in held))
            raise DTypeError(f"device {device!r} has no {dtype.name}; it has {names}: cast first, or use device 'cpu'")


def _arrays(data: Any) -> bool:
    """True if a nested list has arrays in it, which keep their dtype. Raises ShapeError if it is no box."""
    level = [("", data)]
    while level and any(isinstance(x, (list, tuple)) for _, x in level):
        sizes: dict[int | None, str] = {}
        for where, x in level:
            sizes.setdefault(len(x) if isinstance(x, (list, tuple)) or np.ndim(x) else None, where)
        if len(sizes) > 1:
            (n0, w0), (n1, w1) = list(sizes.items())[:2]
            said = ["is a number" if n is None else f"has {n} items" for n in (n0, n1)]
            raise ShapeError(
                f"Tensor: a nested list must be a box, but data{w0} {said[0]} but data{w1} {said[1]}; pad the shorter "
                "one or flatten"
            )
        level = [(f"{where}[{i}]", y) for where, x in level for i, y in enumerate(x)]
    return any(getattr(x, "ndim", 0) for _, x in level[:1])


def _numbers(data: Any) -> Any:
    """A nest of lists with the number in place of a tensor that has one, as torch reads it; gradients end there."""
    if is_tensor(data):
        if data.requires_grad:
            warnings.warn("Tensor: a number is read from a tensor that requires a gradient, and the gradient is lost: "
                          "use Tensor.stack", stacklevel=2)  # fmt: skip
        return np.asarray(data.item(), numpy_dtype(data.dtype)) if data.numel() == 1 else data.numpy()
    return [_numbers(x) for x in data] if isinstance(data, (list, tuple)) else data


def _exact(data: Any, array: Array, dtype: DType | None) -> Array:
    """The array of a list, whose large integers NumPy made floats: it knows no integers for -1 and 2**63, nor for 0.5
    and an integer.
    """
    if array.dtype.kind == "f" and (array.itemsize < 8 or not (np.abs(array) >= 2**53).any()):
        return array
    each = np.array(data, object)
    whole = all(isinstance(v, (int, np.integer)) for v in each.flat)
    if not whole and (dtype is None or array.dtype.kind == "O" or not np.isfinite(array).all()):
        return array
    numbers = [int(v) for v in each.flat]
    low, high = min(numbers), max(numbers)
    wide = dtypes.uint64 if low >= 0 else dtypes.int64
    if low < wide.min or high > wide.max:
        into = f"into {dtype.name}" if dtype is not None else "into int64, nor into uint64"
        raise DTypeError(f"Tensor: integers from {low} to {high} do not fit {into}; give a float dtype")
    return np.array(numbers, numpy_dtype(wide)).reshape(each.shape)


def array_of(data: Any, dtype: DType | None) -> Array:
    """`data` as a fresh contiguous array of a dtype that anneal has."""
    weak = isinstance(data, (list, tuple, range))
    if weak and not isinstance(data, range):
        if any(is_tensor(x) for x in data):
            if isinstance(data, tuple) and hasattr(data, "_fields"):  # of x.max(dim=1), say
                raise DTypeError(
                    f"Tensor: {type(data).__name__} is not one tensor but {len(data)}: take .{data._fields[0]}; "
                    "dim= gives such a pair, axis= the values alone"
                )
            if all(is_tensor(x) and x.numel() != 1 for x in data):
                raise DTypeError("Tensor: a list of tensors is no data; use Tensor.stack(list) or Tensor.cat(list)")
            data = _numbers(data)
        weak = not _arrays(data)
    try:
        array = np.asarray(data)
    except (TypeError, ValueError) as e:
        name = str(getattr(data, "dtype", "")).removeprefix("torch.")
        if name not in HELD:
            raise DTypeError(f"Tensor: cannot make a tensor of {type(data).__name__}: {e}") from e
        # of torch's bfloat16 or float8, which NumPy lacks; float32 holds them all
        array = np.asarray(data.float()).astype(numpy_dtype(as_dtype(name)))
    if weak and array.dtype.kind in "fO" and (dtype is None or dtype.is_int):
        array = _exact(data, array, dtype)
    if dtype_of(array.dtype) is None:
        what = type(data).__name__ if array.dtype.kind == "O" else f"dtype {array.dtype}"
        raise DTypeError(f"Tensor: cannot make a tensor of {what}; known dtypes: {', '.join(HELD)}")
    wanted = numpy_dtype(dtype) if dtype is not None else array.dtype
    if dtype is None and weak:
        # Python numbers are weak: 32 bits unless a value needs more or NumPy scalars say otherwise.
        if array.dtype == np.float64:
            wanted = np.dtype(np.float32)
        elif array.dtype == np.int64:
            fits = not array.size or (array.min() >= -(2**31) and array.max() < 2**31)
            wanted = np.dtype(np.int32) if fits else array.dtype
    other = array.dtype.kind in ("iuf" if weak else "iu") and wanted is not array.dtype
    if dtype is not None and dtype.is_int and other and array.size:
        low, high = array.min(), array.max()
        if not (low >= dtype.min and high <= dtype.max):  # nan is neither
            raise DTypeError(f"Tensor: values from {low} to {high} do not fit {dtype.name}; choose a wider dtype")
    if wanted is array.dtype:  # as each batch of a loop: nothing is converted
        return np.array(array, order="C", copy=True)
    with np.errstate(all="ignore"):
        return np.array(array, dtype=wanted, order="C", copy=True)


def wrap_array(array: Array, device: str, *, constant: bool = False) -> UOp:
    """A node that holds `array` (contiguous, not aliased by the caller), uploaded when first used; a `constant` is the
    same in every run. Where a capture records, one number is a part of the graph.
    """
    dtype = dtype_of(array.dtype)
    assert dtype is not None, array.dtype
    check_device_dtype(device, dtype)
    if array.ndim == 0 and (constant or here.recordings):
        return const(dtype, array.item())
    return buffer_leaf(host_storage(array.reshape(-1), dtype, device, constant=constant), array.shape)


def memory_of_constant(u: UOp, device: str) -> UOp | None:
    """Memory of what no memory is read for: of a constant, repeated or not; of another node, such as of `linspace`, it
    is computed. A loop that makes such a leaf in each round has the same graph in each then. None for other nodes,
    large constants, where ops run at once, and in `nn.init.skipped`.

    Args:
        u: the node, of any shape. device: the name of the device.

    >>> memory_of_constant(const(dtypes.float32, 2.0), "cpu").op is Op.RESHAPE
    True
    """
    if u.weak or here.skips_init or at_once(vars(here)) or symbolic_arg(u.shape):
        return None
    value = u
    while value.op in (Op.EXPAND, Op.RESHAPE):
        value = value.src[0]
    if value.op is not Op.CONST:
        from anneal.runtime import realize  # what computes is imported when something is computed

        t = tensor_class()._from_uop(u.then(Op.CONTIGUOUS), device)
        realize([t])
        return t.uop  # type: ignore[no-any-return]
    if u.size > _MOST_UPLOADED:
        return None
    return buffer_leaf(host_storage(np.full(u.size, value.arg, numpy_dtype(u.dtype)), u.dtype, device), u.shape)


def called_on_host(name: str, called: HostFunction, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The results of a call; `name` is for messages. Raises ShapeError, DTypeError or DeviceError for wrong inputs."""
    first = inputs[0]
    for x in inputs:
        if x.device != first.device:
            first._mixed(x, name)
    for shape, dtype in called.results:
        check_device_dtype(first.device, dtype)
        if any(most(n) < 1 for n in shape):
            raise ShapeError(f"{name}: a result has sizes of at least 1, or a Variable's, not {shape}")
    if any(most(n) < 1 for x in inputs for n in x.shape):
        raise ShapeError(f"{name}: takes tensors whose sizes are at least 1; pad an empty one, and pass the length")
    here.tensors.host_calls = True
    return tuple([first._new(u, *inputs) for u in called.nodes(tuple([x.uop for x in inputs]))])


# -- tensors made of what is no tensor --------------------------------------------------------------------------------
#
# An op gives tensors by way of those that it takes (`x._new(node)`). What takes none asks here, since no file of ops
# imports the class: the class says what it is when it is defined.


def tensor(data: Any, device: str | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """`Tensor(data, device, dtype)`."""
    return tensor_class()(data, device, dtype)  # type: ignore[no-any-return]


def fresh(u: UOp, device: str | None = None, requires_grad: bool | None = None) -> Tensor:
    """The tensor of a node made from nothing; device as `default_device`."""
    return tensor_class()._fresh(u, device, requires_grad)  # type: ignore[no-any-return]


def result(u: UOp, x: Tensor, *others: Tensor | None) -> Tensor:
    """The tensor of `u`, made from `x` and those of `others` that are there."""
    return x._new(u, *[o for o in others if o is not None])
