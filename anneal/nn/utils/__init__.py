"""Functions for parameters and their gradients, under torch's names: `nn.utils.clip_grad_norm_(model.parameters(),
1.0)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from anneal.doors import same_under
from anneal.errors import ShapeError
from anneal.nn.utils import parametrizations, parametrize, prune, rnn
from anneal.nn.utils._older import (
    fuse_conv_bn_eval,
    remove_spectral_norm,
    remove_weight_norm,
    skip_init,
    spectral_norm,
    weight_norm,
)
from anneal.optim import clip_grad_norm_, clip_grad_value_
from anneal.tensor import Tensor

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "fuse_conv_bn_eval", "parameters_to_vector", "parametrizations",
    "parametrize", "prune", "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init", "spectral_norm",
    "vector_to_parameters", "weight_norm",
]  # fmt: skip


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all `parameters` in one vector; gradients flow.

    >>> parameters_to_vector([Tensor([1.0, 2.0]), Tensor([[3.0]])])
    Tensor([1., 2., 3.], dtype=float32)
    """
    return Tensor.cat([p.reshape(-1) for p in parameters], dim=0)


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


if not TYPE_CHECKING:  # a function's file is found by import alone: the attribute is the function
    __getattr__ = same_under(__name__, "clip_grad convert_parameters fusion init spectral_norm weight_norm")
