"""Functions of `import anneal as an` under torch's names that are not ops: tensors from data, devices, files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np

from anneal.errors import DataError, DTypeError, ShapeError

from anneal.ops import (  # isort: skip
    OUTSIDE, SAMPLED, DTypeLike, Generator, broadcast_shapes as _broadcast_shapes, checked, grad_enabled,
    axis_of, grid_sample as _grid_sample, normal as _normal, randint as _randint, said,
)  # fmt: skip
from anneal.tensor import Tensor, io, no_grad

# -- tensors ----------------------------------------------------------------------------------------------------------


def tensor(
    data: Any,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of a number, a nested list, an array or a tensor: `Tensor(...)` with torch's order of arguments.

    Args:
        data: a number, a nested list, an array or a tensor. Python's ints become int32, where torch has int64, and its
            floats float32.
        dtype: the dtype by name or as a member of `dtypes`; None: int32, float32 or bool by the data, an array's own.
        device: the name of a device; None: the default one.
        requires_grad: whether `backward()` gives it a gradient.
        pin_memory: ignored.

    >>> tensor([1, 2], dtype="float32")
    Tensor([1., 2.], dtype=float32)
    """
    return Tensor(data, device, dtype, requires_grad)


def as_tensor(data: Any, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """`data` itself if it is a tensor of that `dtype` on that `device`, else a tensor of it.

    >>> x = tensor([1.0])
    >>> as_tensor(x) is x
    True
    """
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)
    return Tensor(data, device, dtype)


asarray = as_tensor


@checked
def from_dlpack(x: Any) -> Tensor:
    """A copy, on the cpu, of an array x that another library exports by DLPack.

    >>> from_dlpack(np.array([1.0, 2.0], np.float32))
    Tensor([1., 2.], dtype=float32)
    """
    if not hasattr(x, "__dlpack__"):
        raise DTypeError(f"from_dlpack: takes an array of another library, not {said(x)}")
    try:
        return Tensor(np.from_dlpack(x))
    except (BufferError, RuntimeError):  # for a dtype that NumPy lacks
        return Tensor(x)


def randint(
    *args: Any, low: int | None = None, high: int | None = None, size: Sequence[int] | None = None, **options: Any
) -> Tensor:
    """Integers of [low, high): `randint(low, high, size)`, or of [0, high): `randint(high, size)`; int32.

    >>> randint(1, 2, (3,)).tolist()
    [1, 1, 1]
    """
    given = [*args, *[n for n in (low, high) if n is not None]]
    if size is None and given and isinstance(given[-1], (tuple, list)):
        size = given.pop()
    if size is None or not 1 <= len(given) <= 2:
        raise TypeError("randint: takes (high, size) or (low, high, size), and size is a tuple")
    low, high = given if len(given) == 2 else (0, given[0])
    return _randint(low, high, size, **options)


@checked
def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Sequence[int] | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers: `normal(mean, std, size)` of numbers, or of tensors that broadcast, whose shape they take.

    Raises ShapeError for numbers without a size, or a tensor with one.

    Args:
        mean: a number, or a tensor.
        std: a number, or a tensor.
        size: the shape of the result, where both are numbers.
        dtype: the dtype of the result, a float.
        device: the name of a device; None: the default one.
        requires_grad: whether `backward()` gives it a gradient.
        generator: the source of random numbers; None: the stream of `manual_seed`.

    >>> normal(2.0, 0.0, (3,)), normal(tensor([1.0, 2.0]), 0.0)
    (Tensor([2., 2., 2.], dtype=float32), Tensor([1., 2.], dtype=float32))
    """
    given = [x for x in (mean, std) if isinstance(x, Tensor)]
    if (size is None) != bool(given):
        raise ShapeError("normal: takes (mean, std, size) of numbers, or tensors for mean or std and no size")
    if not given:
        out = _normal(tuple(size or ()), mean=mean, std=std, dtype=dtype, device=device, generator=generator)
    else:
        shape = _broadcast_shapes(*[x.shape for x in given], name="normal")
        drawn = _normal(shape, dtype=given[0].dtype, device=given[0].device, generator=generator)
        out = drawn * std + mean
    return out.requires_grad_() if requires_grad else out


@checked
def randint_like(x: Tensor, *bounds: int, **options: Any) -> Tensor:
    """Integers of [low, high), or of [0, high), as `bounds` names one or two of them, in the shape, the dtype and on
    the device of `x`.

    >>> randint_like(tensor([0.5, 0.5]), 1, 2)
    Tensor([1., 1.], dtype=float32)
    """
    return randint(*bounds, size=x.shape, **{"dtype": x.dtype, "device": x.device, **options})


@checked
def clone(input: Tensor) -> Tensor:
    """`input.clone()`: the same values in a tensor of its own; gradients flow through.

    >>> clone(tensor([1, 2]))
    Tensor([1, 2], dtype=int32)
    """
    return input.clone()


@checked
def detach(input: Tensor) -> Tensor:
    """`input.detach()`: the same values, through which no gradient flows.

    >>> detach(tensor([1.0], requires_grad=True)).requires_grad
    False
    """
    return input.detach()


@checked
def numel(input: Tensor) -> int:
    """The number of elements of `input`, a tensor.

    >>> numel(tensor([[1, 2], [3, 4]]))
    4
    """
    return input.numel()


@checked
def is_floating_point(input: Tensor) -> bool:
    """`input.is_floating_point()`: whether its dtype is a float.

    >>> is_floating_point(tensor([1.0])), is_floating_point(tensor([1]))
    (True, False)
    """
    return input.is_floating_point()


def scalar_tensor(
    s: Any, *, dtype: DTypeLike | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of shape () of the number `s`, of `dtype` and on `device`; `requires_grad` makes it a leaf.
    Without `dtype` it is float32, also of an integer.
    """
    return Tensor(s, device, dtype or "float32", requires_grad)


def empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """`empty(size)`: tensors have no strides of their own, so `stride` only has to be as long. Raises ShapeError if it
    is not.
    """
    if len(tuple(size)) != len(tuple(stride)):
        raise ShapeError(f"empty_strided: {len(tuple(size))} sizes and {len(tuple(stride))} strides")
    return Tensor.empty(tuple(size), **options)


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:
    """`empty(size)`: the order of axes in memory is the compiler's. Raises ShapeError for a `physical_layout` that is
    no order of the axes.
    """
    named = sorted(physical_layout) if isinstance(physical_layout, Iterable) else None
    if named != list(range(len(tuple(size)))):
        raise ShapeError(f"empty_permuted: a layout names each of {len(tuple(size))} axes once, not {physical_layout}")
    return Tensor.empty(tuple(size), **options)


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that shapes, tuples or ints, broadcast to. Raises ShapeError for those that do not.

    >>> broadcast_shapes((4, 1), (3,), 1)
    (4, 3)
    """
    if wrong := [n for n in shapes if not isinstance(n, (int, Iterable))]:
        raise ShapeError(f"broadcast_shapes: a shape is a tuple of ints or an int, not {wrong[0]!r}")
    wide = [(n,) if isinstance(n, int) else tuple(n) for n in shapes]
    return _broadcast_shapes(*wide, name="broadcast_shapes") if wide else ()


@checked
def constant_pad_nd(x: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """`x.pad(pad, value=value)`.

    >>> constant_pad_nd(tensor([1.0]), (1, 0), 5.0)
    Tensor([5., 1.], dtype=float32)
    """
    return x.pad(pad, value=value)


def grid_sampler_2d(x: Tensor, grid: Tensor, mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """`grid_sample` of images x, or of volumes, at places `grid`, with `align_corners`; `mode` is 0 (bilinear), 1
    (nearest) or 2 (bicubic), `padding_mode` 0 (zeros), 1 (border) or 2 (reflection).
    """
    if mode not in range(3) or padding_mode not in range(3):
        raise ShapeError(f"grid_sampler: mode and padding_mode are 0, 1 or 2, not {mode!r} and {padding_mode!r}")
    return _grid_sample(x, grid, SAMPLED[mode], OUTSIDE[padding_mode], align_corners)


grid_sampler_3d = grid_sampler_2d


@checked
def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`layer_norm` of `input` over its last axes, `normalized_shape`, with the means and the reciprocals of standard
    deviations (`eps` is added to variances), before `weight` and `bias`.

    >>> native_layer_norm(tensor([[1.0, 3.0]]), (2,), None, None, 0.0)[:2]
    (Tensor([[-1.,  1.]], dtype=float32), Tensor([[2.]], dtype=float32))
    """
    out = input.layer_norm(normalized_shape, weight, bias, eps)
    return out, *_moments(input, tuple(range(input.ndim - len(normalized_shape), input.ndim)), eps)


@checked
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`group_norm` of `input`, of sizes N, C and HxW, in `group` groups, with the means and the reciprocals of standard
    deviations (`eps` is added to variances), before `weight` and `bias`.
    """
    mean, scale = _moments(input.reshape(N, group, C // group * HxW), (2,), eps)
    return input.group_norm(group, weight, bias, eps), mean.squeeze(-1), scale.squeeze(-1)


def _moments(x: Tensor, axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """The means, and the reciprocals of standard deviations, over `axes`; of narrow floats computed in float32."""
    wide = x.float() if x.dtype.is_narrow else x
    scale = (wide.var(axes, correction=0, keepdim=True) + eps).rsqrt()
    return wide.mean(axes, True).cast(x.dtype), scale.cast(x.dtype)


@checked
def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Tensor | float, zero_point: Tensor | int, quant_min: int, quant_max: int
) -> Tensor:
    """The floats that integers of `quant_min` to `quant_max` stand for, each the nearest to an element; the gradient is
    1 where an element is within their range, else 0.

    Args:
        input: floats. scale: what one step is. zero_point: the integer that stands for 0.

    Raises ShapeError for bounds in the wrong order.

    >>> fake_quantize_per_tensor_affine(tensor([0.26, -3.0, 9.0]), 0.5, 0, -4, 3)
    Tensor([ 0.5, -2. ,  1.5], dtype=float32)
    """
    if quant_min > quant_max:
        raise ShapeError(f"fake_quantize: quant_min is at most quant_max, not {quant_min} and {quant_max}")
    with no_grad():
        at = (input * (1.0 / scale)).round() + zero_point
        within = (at >= quant_min) & (at <= quant_max)
        value = (at.clamp(quant_min, quant_max) - zero_point) * scale
    passed = within.where(input, 0.0)
    return value + (passed - passed.detach())


@checked
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """`fake_quantize_per_tensor_affine` with a `scale` and a `zero_point` for each place along `axis`.

    Args:
        input, quant_min, quant_max: as there.

    >>> fake_quantize_per_channel_affine(tensor([[0.3], [0.3]]), tensor([0.5, 0.1]), tensor([0, 0]), 0, -4, 3)
    Tensor([[0.5],
            [0.3]], dtype=float32)
    """
    at = axis_of(axis, input.ndim)
    shape = [size if n == at else 1 for n, size in enumerate(input.shape)]
    return fake_quantize_per_tensor_affine(input, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


@checked
def norm(
    x: Tensor,
    p: float | str | None = "fro",
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """`x.norm(p, dim)` of vectors; "nuc" is the sum of the singular values of matrices, by `linalg.matrix_norm`.

    Args:
        p: the order of the norm.
        dim: an axis or several; None: all.
        keepdim: whether reduced axes stay, with size 1.
        dtype: the dtype that x is cast to first; None: its own.

    >>> norm(tensor([3.0, 4.0])).item(), norm(tensor([[3.0, 0.0], [0.0, 4.0]]), "nuc").round(4).item()
    (5.0, 7.0)
    """
    x = x if dtype is None else x.cast(dtype)
    if p == "nuc":
        from anneal import linalg  # decompositions are imported when one is asked for

        if dim is None and x.ndim != 2:
            raise ShapeError(f"norm: p='nuc' takes a matrix, not shape {x.shape}, or two axes, dim")
        axes = (-2, -1) if dim is None else dim
        return linalg.matrix_norm(x, "nuc", axes, keepdim)  # type: ignore[arg-type]
    return x.norm("fro" if p is None else p, dim, keepdim)


is_grad_enabled = grad_enabled


# -- files ------------------------------------------------------------------------------------------------------------


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Save `obj`, a tensor or a nest of dicts, lists and tuples of tensors, arrays, numbers and texts, to the path
    `f`, or to an open file, as safetensors; `pickle_module` and `pickle_protocol` are ignored.

    Other programs read its tensors by paths such as "model.weight". Raises DataError for anything else: nothing is
    pickled.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save({"model": {"w": tensor([1.0])}, "epoch": 3}, os.path.join(folder, "checkpoint"))
    ...     load(os.path.join(folder, "checkpoint"))
    {'model': {'w': Tensor([1.], dtype=float32)}, 'epoch': 3}
    """
    tensors: dict[str, Any] = {}
    shape = _laid_out(obj, (), tensors)
    io.safe_save(tensors, f, {"anneal": json.dumps(shape)})


def _laid_out(obj: Any, path: tuple[str, ...], tensors: dict[str, Any]) -> Any:
    """A nest as JSON has it: tensors stand in `tensors` by their places."""
    if isinstance(obj, (Tensor, np.ndarray)):
        name = ".".join(path) or "tensor"
        while name in tensors:
            name += "_"
        tensors[name] = obj.detach() if isinstance(obj, Tensor) else obj
        return {"leaf" if isinstance(obj, Tensor) and obj.requires_grad else "tensor": name}
    if isinstance(obj, Mapping):
        if not all(isinstance(k, (str, int)) for k in obj):
            raise DataError("save: the keys of a dict are texts or whole numbers")
        return {"dict": [[k, _laid_out(v, (*path, str(k)), tensors)] for k, v in obj.items()]}
    if isinstance(obj, (list, tuple)):
        kind = "list" if isinstance(obj, list) else "tuple"
        return {kind: [_laid_out(v, (*path, str(i)), tensors) for i, v in enumerate(obj)]}
    if obj is None or isinstance(obj, (bool, int, float, str)):
        return {"value": obj}
    if isinstance(obj, np.generic):
        return {"value": obj.item()}
    raise DataError(
        f"save: {'.'.join(path) or 'the object'} is a {type(obj).__name__}; tensors, numbers, texts, dicts and lists "
        "are saved, so give a module's or an optimiser's state_dict()"
    )


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    device: str | None = None,
    weights_only: bool | None = True,
    mmap: bool | None = None,
) -> Any:
    """The object that `save` wrote to the path `f`, or to an open file; of another file, its tensors by name.
    Nothing is pickled, so `weights_only`, `pickle_module` and `mmap` are ignored.

    Tensors are on `device` (torch's `map_location`); no file says where they were, so a function or a dict for that
    puts them on the default one. Raises DataError for a file that is none of these: torch's own
    files are pickled, so save them again there, with `safetensors.torch.save_file(model.state_dict(), path)`.
    """
    where = map_location if isinstance(map_location, str) else device
    if hasattr(f, "read"):  # to its end, once
        data = f.read()
        if not isinstance(data, bytes):
            raise DataError("load: the file is open as text; open it with mode 'rb'")
        f = BytesIO(data)
    tensors = io.safe_load(f, where)
    noted = io.safe_metadata(f).get("anneal")
    return tensors if noted is None else _built(json.loads(noted), tensors)


def _built(shape: Any, tensors: dict[str, Tensor]) -> Any:
    ((kind, value),) = shape.items()
    if kind in ("tensor", "leaf"):
        return tensors[value].requires_grad_(kind == "leaf")
    if kind == "dict":
        return {k: _built(v, tensors) for k, v in value}
    if kind in ("list", "tuple"):
        several = [_built(v, tensors) for v in value]
        return several if kind == "list" else tuple(several)
    return value
