"""Functions of `import anneal as an` that are no ops, under torch's names: tensors of data, devices, files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anneal.errors import DataError
from anneal.ops import DTypeLike, grad_enabled
from anneal.ops import randint as _randint
from anneal.tensor import Tensor, io

__all__ = [
    "as_tensor",
    "asarray",
    "cuda",
    "device",
    "from_dlpack",
    "is_grad_enabled",
    "load",
    "randint",
    "save",
    "tensor",
]


def device(name: str, index: int | None = None) -> str:
    """A device is its name: "cpu", "webgpu", "auto".

    >>> device("cpu")
    'cpu'
    """
    return name


class cuda:
    """What programs ask before they choose a device: there is no CUDA here; GPUs are "webgpu".

    >>> "cuda" if cuda.is_available() else "cpu"
    'cpu'
    """

    @staticmethod
    def is_available() -> bool:
        """False."""
        return False

    @staticmethod
    def device_count() -> int:
        """0."""
        return 0

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """Nothing: `manual_seed` is every device's."""


# -- tensors ----------------------------------------------------------------------------------------------------------


def tensor(data: Any, dtype: DTypeLike | None = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """A tensor of a number, a nested list, an array or a tensor: `Tensor(...)` with torch's order of arguments.

    >>> tensor([1, 2], dtype="float32")
    Tensor([1., 2.], dtype=float32)
    """
    return Tensor(data, device, dtype, requires_grad)


def as_tensor(data: Any, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """`data` itself if it is such a tensor, else a tensor of it.

    >>> x = tensor([1.0])
    >>> as_tensor(x) is x
    True
    """
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)
    return Tensor(data, device, dtype)


asarray = as_tensor


def from_dlpack(x: Any) -> Tensor:
    """A copy of what another library gives by DLPack, on the cpu.

    >>> from_dlpack(np.array([1.0, 2.0], np.float32))
    Tensor([1., 2.], dtype=float32)
    """
    return Tensor(np.from_dlpack(x))


def randint(*args: Any, size: Sequence[int] | None = None, **options: Any) -> Tensor:
    """Integers of [low, high): `randint(low, high, size)`, or of [0, high): `randint(high, size)`; int32.

    >>> randint(1, 2, (3,)).tolist()
    [1, 1, 1]
    """
    given = list(args)
    if size is None and given and isinstance(given[-1], (tuple, list)):
        size = given.pop()
    if size is None or not 1 <= len(given) <= 2:
        raise TypeError("randint: takes (high, size) or (low, high, size), and size is a tuple")
    low, high = given if len(given) == 2 else (0, given[0])
    return _randint(low, high, size, **options)


def is_grad_enabled() -> bool:
    """Whether gradients are recorded here.

    >>> is_grad_enabled()
    True
    """
    return grad_enabled()


# -- files ------------------------------------------------------------------------------------------------------------


def save(obj: Any, path: Any) -> None:
    """Save a tensor, or a nest of dicts, lists and tuples of tensors, arrays, numbers and texts, as safetensors.

    Other programs read its tensors by their places, as "model.weight". Raises DataError for anything else: nothing is
    pickled.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save({"model": {"w": tensor([1.0])}, "epoch": 3}, os.path.join(folder, "checkpoint"))
    ...     load(os.path.join(folder, "checkpoint"))
    {'model': {'w': Tensor([1.], dtype=float32)}, 'epoch': 3}
    """
    tensors: dict[str, Any] = {}
    shape = _laid_out(obj, (), tensors)
    io.safe_save(tensors, path, {"anneal": json.dumps(shape)})


def _laid_out(obj: Any, path: tuple[str, ...], tensors: dict[str, Any]) -> Any:
    """A nest as JSON has it: tensors stand in `tensors` by their places."""
    if isinstance(obj, (Tensor, np.ndarray)):
        name = ".".join(path) or "tensor"
        while name in tensors:
            name += "_"
        tensors[name] = obj.detach() if isinstance(obj, Tensor) else obj
        return {"tensor": name}
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
        f"save: {'.'.join(path) or 'the object'} is a {type(obj).__name__}; tensors, numbers, texts, dicts and lists are "
        "saved, so give a module's or an optimiser's state_dict()"
    )


def load(path: Any, device: str | None = None, map_location: str | None = None, weights_only: bool = True) -> Any:
    """What `save` saved; of another safetensors file, its tensors by name.

    Tensors are on `device` (torch's `map_location`). Raises DataError for a file that is none of these: torch's own
    files are pickled, so save them again there, with `safetensors.torch.save_file(model.state_dict(), path)`.
    """
    where = device if map_location is None else map_location
    tensors = io.safe_load(path, where)
    noted = io.safe_metadata(path).get("anneal")
    return tensors if noted is None else _built(json.loads(noted), tensors)


def _built(shape: Any, tensors: dict[str, Tensor]) -> Any:
    ((kind, value),) = shape.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {k: _built(v, tensors) for k, v in value}
    if kind in ("list", "tuple"):
        several = [_built(v, tensors) for v in value]
        return several if kind == "list" else tuple(several)
    return value
