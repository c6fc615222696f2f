"""Parametrizations by torch's names: weights by their direction and length, of spectral norm 1."""

from __future__ import annotations

from typing import Any

from anneal.errors import SettingError
from anneal.nn import functional as F
from anneal.nn._computed import before
from anneal.nn._module import Module
from anneal.nn.utils.parametrize import register_parametrization
from anneal.tensor import Tensor, no_grad

__all__ = ["spectral_norm", "weight_norm"]


def lengths(v: Tensor, dim: int | None) -> Tensor:
    """The norms of v over every axis but `dim`; over all for None, and torch's -1, which is that here."""
    if dim is None or dim == -1:
        return (v * v).sum().sqrt()
    return (v * v).sum([n for n in range(v.ndim) if n != dim % v.ndim], keepdim=True).sqrt()


class _WeightNorm(Module):
    def __init__(self, dim: int | None, name: str) -> None:
        self.dim, self.name = dim, name

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        return v * (g / lengths(v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return lengths(weight, self.dim), weight

    def renamed(self, module: Any, state_dict: Any, prefix: str, *_: Any) -> None:
        # what nn.utils.weight_norm saves
        older = [f"{prefix}{self.name}_{n}" for n in "gv"]
        if state_dict.keys() >= {*older}:
            for n, key in enumerate(older):
                state_dict[f"{prefix}parametrizations.{self.name}.original{n}"] = state_dict.pop(key)


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Make the tensor `name` of `module` a length times a direction, `parametrizations.weight.original0` and
    `original1`, each of which trains; returns the module.

    Args:
        dim: the axis along which there are lengths; None: one length.

    >>> from anneal import nn
    >>> layer = weight_norm(nn.Linear(3, 2))
    >>> layer.parametrizations.weight.original0.shape
    (2, 1)
    """
    norm = _WeightNorm(dim, name)
    module.register_load_state_dict_pre_hook(norm.renamed)
    return register_parametrization(module, name, norm, unsafe=True)


class SpectralNorm(Module):
    """A weight divided by its largest singular value, by the power iteration.

    Args:
        weight: the first. n_power_iterations, dim, eps: as of `spectral_norm`. begun: whether 15 steps are taken first.

    Raises SettingError for no steps.
    """

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float, begun: bool = True) -> None:
        if n_power_iterations <= 0:
            raise SettingError(f"spectral_norm: n_power_iterations is 1 or more, not {n_power_iterations}")
        self.n_power_iterations, self.eps, self.dim = n_power_iterations, eps, dim % weight.ndim
        if weight.ndim > 1:
            for key, size in zip(("_u", "_v"), self._matrix(weight).shape, strict=True):
                self.register_buffer(key, F.normalize(Tensor.randn(size, device=weight.device), dim=0, eps=eps))
            if begun:
                self.iterate(weight, self._u, self._v, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def iterate(self, weight: Tensor, u: Tensor, v: Tensor, times: int, v_first: bool = False) -> None:
        """Take steps of the power iteration, from `u` and `v`, which are changed."""
        with no_grad():
            rows, new_u, new_v = self._matrix(weight), u, v
            for _ in range(times):
                if v_first:
                    new_v = F.normalize(new_u @ rows, dim=0, eps=self.eps)
                new_u = F.normalize(rows @ new_v, dim=0, eps=self.eps)
                if not v_first:
                    new_v = F.normalize(new_u @ rows, dim=0, eps=self.eps)
            u.copy_(new_u)
            v.copy_(new_v)

    def divided(self, weight: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """The weight by the singular value of these vectors."""
        return weight / u.detach().clone().dot(self._matrix(weight) @ v.detach().clone())

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        if self.training:
            self.iterate(weight, self._u, self._v, self.n_power_iterations)
        return self.divided(weight, self._u, self._v)

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value


def axis(module: Any) -> int:
    """The axis of a weight that its outputs are along."""
    return 1 if before(module).__name__.startswith("ConvTranspose") else 0


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Let the tensor `name` of `module` be divided by its largest singular value, of which each use in training takes
    some steps of the power iteration; returns the module.

    Args:
        n_power_iterations: the steps of a use. eps: the least length that is divided by.
        dim: the axis of the outputs; None: 0, and 1 for transposed convolutions.

    Raises SettingError for no steps.

    >>> from anneal import nn
    >>> layer = spectral_norm(nn.Linear(3, 2), n_power_iterations=50)
    >>> round(layer.weight.norm(2).item(), 2) >= 1
    True
    """
    dim = axis(module) if dim is None else dim
    return register_parametrization(module, name, SpectralNorm(getattr(module, name), n_power_iterations, dim, eps))
