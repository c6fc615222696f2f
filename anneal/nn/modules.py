"""The paths of torch's files of layers: this file is `anneal.nn.modules.linear` and its kin, and has the names of
`anneal.nn`, hooks on all modules, `_pair` and its kin.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from anneal.doors import same_under

from anneal.nn._hooks import (  # isort: skip
    register_module_forward_hook, register_module_forward_pre_hook, register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)  # fmt: skip
from anneal.nn._layers import _BatchNorm, _ChannelNorm as _NormBase, _InstanceNorm
from anneal.nn._module import Module
from anneal.nn._windows import _Kernels as _ConvNd
from anneal.tensor import Tensor


def _ntuple(n: int) -> Callable[[Any], tuple[Any, ...]]:
    """The function that makes n of one value, and a tuple of several.

    >>> _ntuple(2)(3), _ntuple(2)([1, 2])
    ((3, 3), (1, 2))
    """
    return lambda x: tuple(x) if isinstance(x, Iterable) and not isinstance(x, str) else (x,) * n


class _Loss(Module):
    """The base of losses of programs."""

    def __init__(self, size_average: None = None, reduce: None = None, reduction: str = "mean") -> None:
        self.reduction = reduction


class _WeightedLoss(_Loss):
    def __init__(self, weight: Tensor | None = None, *settings: Any, **named: Any) -> None:
        super().__init__(*settings, **named)
        self.register_buffer("weight", weight)


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Rename what begins with `prefix`, "module." say, in `state_dict`: without it.

    >>> state = {"module.weight": 1, "n": 2}
    >>> consume_prefix_in_state_dict_if_present(state, "module."); state
    {'weight': 1, 'n': 2}
    """
    renamed = {name.removeprefix(prefix): value for name, value in state_dict.items()}
    state_dict.clear()
    state_dict.update(renamed)


_single, _pair, _triple, _quadruple = map(_ntuple, (1, 2, 3, 4))
_nn = sys.modules["anneal.nn"]  # the package around this file, which is imported before it
__all__ = list(_nn.__all__)
__getattr__ = same_under(
    __name__,
    "activation adaptive batchnorm channelshuffle container conv distance dropout flatten fold instancenorm linear "
    "loss module normalization padding pixelshuffle pooling rnn sparse transformer upsampling utils",
    _nn.__getattr__,
)
