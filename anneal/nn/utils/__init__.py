"""Functions for parameters and gradients, by torch's names: `nn.utils.clip_grad_norm_(model.parameters(), 1.0)`."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from anneal.doors import same_under
from anneal.errors import DataError, ShapeError
from anneal.nn._computed import before, compute, computed, keep
from anneal.nn._module import Module
from anneal.nn.parameter import Parameter
from anneal.nn.utils import parametrizations, parametrize, prune, rnn
from anneal.nn.utils.parametrizations import SpectralNorm, axis, lengths
from anneal.ops import guarded
from anneal.optim import clip_grad_norm_, clip_grad_value_, get_total_norm
from anneal.tensor import Tensor, no_grad

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "fuse_conv_bn_eval", "get_total_norm", "parameters_to_vector",
    "parametrizations", "parametrize", "prune", "remove_spectral_norm", "remove_weight_norm", "rnn",
    "skip_init", "spectral_norm", "vector_to_parameters", "weight_norm",
]  # fmt: skip


@guarded
def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all `parameters` in one vector; gradients flow.

    >>> parameters_to_vector([Tensor([1.0, 2.0]), Tensor([[3.0]])])
    Tensor([1., 2., 3.], dtype=float32)
    """
    return Tensor.cat([p.reshape(-1) for p in parameters], dim=0)


@guarded
def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Assign the elements of the vector `vec` to `parameters`, in their order. Raises ShapeError for a vector of
    another length.

    >>> w = Tensor([[0.0], [0.0]])
    >>> vector_to_parameters(Tensor([1.0, 2.0]), [w]); w.tolist()
    [[1.0], [2.0]]
    """
    given = list(parameters)
    if vec.shape != (sum(p.numel() for p in given),):
        raise ShapeError(
            f"vector_to_parameters: {sum(p.numel() for p in given)} numbers in a row, not shape {vec.shape}"
        )
    at = 0
    for p in given:
        p.assign(vec[at : at + p.numel()].reshape(*p.shape).detach())
        at += p.numel()


# -- torch's older names: norms of weights beside which their parts stand, merged layers ------------------------------


def _weight(dim: int | None, module: Any, name: str) -> Tensor:
    g, v = getattr(module, f"{name}_g"), getattr(module, f"{name}_v")
    out: Tensor = v * (g / lengths(v, dim))
    return out


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Make the tensor `name` of `module` a length, `weight_g`, times a direction, `weight_v`, which train; returns the
    module. The product is computed at each access.

    Args:
        dim: the axis along which there are lengths; None: one length.

    >>> from anneal import nn
    >>> [name for name, _ in weight_norm(nn.Linear(3, 2)).named_parameters()]
    ['bias', 'weight_g', 'weight_v']
    """
    weight = getattr(module, name)
    compute(module, name, partial(_weight, dim))
    setattr(module, f"{name}_g", Parameter(lengths(weight.detach(), dim)))
    setattr(module, f"{name}_v", Parameter(weight.detach()))
    return module


def _removed(what: str, module: Any, name: str, parts: tuple[str, ...]) -> Any:
    if name not in computed(module) or not hasattr(module, name + parts[0]):
        raise DataError(f"{what}: {name!r} of {before(module).__name__} has none")
    value = Parameter(getattr(module, name).detach())
    for part in parts:
        delattr(module, name + part)
    keep(module, name, value)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Make the tensor `name` of `module` one parameter again, after `weight_norm`; returns the module. Raises DataError
    if it is not a length and a direction.

    >>> from anneal import nn
    >>> layer = remove_weight_norm(nn.utils.weight_norm(nn.Linear(2, 2)))
    >>> sorted(name for name, _ in layer.named_parameters())
    ['bias', 'weight']
    """
    return _removed("remove_weight_norm", module, name, ("_g", "_v"))


def _divided(norm: SpectralNorm, module: Any, name: str) -> Tensor:
    return norm.divided(getattr(module, f"{name}_orig"), getattr(module, f"{name}_u"), getattr(module, f"{name}_v"))


def _iterated(norm: SpectralNorm, name: str, module: Any, args: Any) -> None:
    if module.training:
        weight, u, v = [getattr(module, name + part) for part in ("_orig", "_u", "_v")]
        norm.iterate(weight, u, v, norm.n_power_iterations, v_first=True)


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Let the tensor `name` of `module` be `weight_orig`, which trains, divided by its largest singular value; each
    call in training takes some steps of the power iteration; returns the module.

    Args:
        n_power_iterations: the steps of a call. eps: the least length that is divided by.
        dim: the axis of the outputs; None: 0, and 1 for transposed convolutions.

    >>> from anneal import nn
    >>> list(spectral_norm(nn.Linear(3, 2)).state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    weight = getattr(module, name)
    norm = SpectralNorm(weight, n_power_iterations, axis(module) if dim is None else dim, eps, begun=False)
    compute(module, name, partial(_divided, norm))
    setattr(module, f"{name}_orig", weight)
    for part in ("_u", "_v"):
        module.register_buffer(name + part, getattr(norm, part))
        delattr(norm, part)
    handle = module.register_forward_pre_hook(partial(_iterated, norm, name))
    vars(module)["_spectral"] = {**vars(module).get("_spectral", {}), name: handle}
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Make the tensor `name` of `module` one parameter again, after `spectral_norm`; returns the module. Raises
    DataError if it is not divided.

    >>> from anneal import nn
    >>> layer = remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(2, 2)))
    >>> sorted(name for name, _ in layer.named_parameters())
    ['bias', 'weight']
    """
    _removed("remove_spectral_norm", module, name, ("_orig", "_u", "_v"))
    vars(module)["_spectral"].pop(name).remove()
    return module


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that is `conv` and then `bn`, a batch normalisation, both in evaluation.

    Args:
        transpose: whether it is a transposed convolution.

    Raises DataError for layers in training.

    >>> from anneal import nn
    >>> fuse_conv_bn_eval(nn.Conv2d(1, 2, 1).eval(), nn.BatchNorm2d(2).eval()).bias.shape
    (2,)
    """
    if conv.training or bn.training:
        raise DataError("fuse_conv_bn_eval: takes layers in evaluation; call eval() first")
    fused = copy.deepcopy(conv)
    with no_grad():
        scale = (bn.running_var + bn.eps).rsqrt()
        scale = scale if bn.weight is None else scale * bn.weight
        shape = [1] * conv.weight.ndim
        shape[1 if transpose else 0] = -1
        bias = (0 if conv.bias is None else conv.bias) - bn.running_mean
        bias = bias * scale if bn.bias is None else bias * scale + bn.bias
        fused.weight = Parameter((conv.weight * scale.reshape(shape)).detach(), conv.weight.requires_grad)
        fused.bias = Parameter(bias.detach(), True if conv.bias is None else conv.bias.requires_grad)
    return fused


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Any:
    """A module of `module_cls` of these arguments; its values are those of a new one, which are lazy here.

    >>> from anneal import nn
    >>> skip_init(nn.Linear, 3, 2).weight.shape
    (2, 3)
    """
    return module_cls(*args, **kwargs)


if not TYPE_CHECKING:  # a function's file is found by import alone: the attribute is the function
    __getattr__ = same_under(__name__, "clip_grad convert_parameters fusion init spectral_norm weight_norm")
