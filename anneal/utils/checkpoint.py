"""Checkpointing, under torch's names: values inside a block are computed again for its gradient, not kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

from anneal.errors import TransformError
from anneal.ops import grad_enabled, is_tensor
from anneal.runtime import here, realize
from anneal.transforms import computed_again, tree_leaves

__all__ = ["checkpoint", "checkpoint_sequential"]

R = TypeVar("R")


def checkpoint(
    function: Callable[..., R],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> R:
    """`function(*args, **kwargs)`; for the gradient only the arguments and the result are kept, and no value between
    them.

    The arguments and then the result are computed at this call. What `function` computes on the way goes at once; the
    gradient's graph has the same nodes, and computes them again, with the same random numbers. `function` itself is
    called once. Memory falls where many blocks follow one another, and every block is computed twice. In the body of a
    loop nothing is computed at the call, and the loop's reverse keeps no rows of what is inside.

    Args:
        use_reentrant: accepted as torch's; there is one way here.
        preserve_rng_state: as True; False is the same.

    Raises TransformError inside vmap, where nothing can be computed yet: put checkpoint around vmap there.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> y = checkpoint(lambda t: (t * 2).exp(), x, use_reentrant=False)
    >>> y.sum().backward()
    >>> x.grad.isclose(2 * y).all().item()
    True
    """
    inputs = [t for t in tree_leaves([args, kwargs]) if is_tensor(t)]
    if not grad_enabled() or here.tracing:
        return function(*args, **kwargs)
    if here.turns:
        out: R = computed_again(lambda: function(*args, **kwargs))
        return out
    _compute(inputs)
    out = function(*args, **kwargs)
    _compute([t for t in tree_leaves(out) if is_tensor(t)])
    return out


def _compute(tensors: Sequence[Any]) -> None:
    try:
        realize(tensors)
    except TransformError as e:
        raise TransformError(
            "checkpoint: inside vmap nothing can be computed yet: checkpoint the function that vmap returns"
        ) from e


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, preserve_rng_state: bool = True
) -> Any:
    """The functions one after another (an `nn.Sequential`, or a list), in `segments` checkpointed parts.

    >>> from anneal import nn
    >>> from anneal.tensor import Tensor
    >>> checkpoint_sequential([nn.ReLU(), nn.Tanh(), nn.ReLU()], 2, Tensor([0.0, -1.0]))
    Tensor([0., 0.], dtype=float32)
    """
    layers = list(functions)
    x = input
    size = max(1, len(layers) // segments)
    parts = [layers[i * size : (i + 1) * size] for i in range(segments - 1)] + [layers[(segments - 1) * size :]]
    for part in parts:
        x = checkpoint(lambda part, x: reduce(lambda x, layer: layer(x), part, x), part, x)
    return x
