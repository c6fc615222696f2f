"""Normalisation over batches, channels, groups and rows; dropout, losses, random numbers, steps of optimisers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import anneal.tensor.functional as F
from anneal.onnx.execute import fail, node
from anneal.onnx.ops.elementwise import MaybeArray, MaybeValue, Tensors, Value, axes_of, axis_of, counted, plus, single
from anneal.onnx.registry import op
from anneal.onnx.values import dtype_named
from anneal.tensor import Generator, Tensor
from anneal.tensor.random import multinomial, rand, randn


def _channels(x: Tensor, row: Tensor) -> Tensor:
    """A number for each channel, along axis 1."""
    return row.reshape(1, -1, *[1] * (x.ndim - 2)) if x.ndim > 1 else row


def _standardised(x: Tensor, mean: Tensor, var: Tensor, scale: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """(x - mean) / sqrt(var + epsilon) * scale + bias, as one product and one sum for each element."""
    factor = scale * (var + epsilon).rsqrt()
    return x * _channels(x, factor).cast(x.dtype) + _channels(x, bias - mean * factor).cast(x.dtype)


def _inference(x: Tensor, scale: Value, bias: Value, mean: Value, var: Value, epsilon: float) -> Tensor:
    """Normalisation by running statistics: where these are known, the factor and the shift are computed once."""
    known = (scale, bias, mean, var)
    if not all(isinstance(v, np.ndarray) for v in known):
        return _standardised(x, node.tensor(mean), node.tensor(var), node.tensor(scale), node.tensor(bias), epsilon)
    s, b, m, v = [np.asarray(k, np.float64) for k in known]
    factor = s / np.sqrt(v + epsilon)
    own = dtype_named(x.dtype.name)
    one, other = [node.constant(row.astype(own), known) for row in (factor, b - m * factor)]
    return x * _channels(x, one) + _channels(x, other)


@op
def BatchNormalization(
    x: Tensor,
    scale: Value,
    bias: Value,
    mean: Value,
    var: Value,
    *,
    epsilon: float,
    momentum: float,
    is_test: int = 1,
    spatial: int = 1,
    training_mode: int | None,
) -> Any:
    """Batch normalisation. The statistics are the batch's, and the running ones are outputs as well, with is_test=0 in
    versions 1 and 6, with outputs for them in versions 7 and 9, and with training_mode=1 since version 14.

    spatial=0, until version 7, has statistics for each place and not for each channel.
    """
    training = (node.version >= 7 or not is_test) and node.wants(1) if training_mode is None else training_mode
    if spatial and not training:
        return _inference(x, scale, bias, mean, var, epsilon)
    rows = node.tensor([scale, bias, mean, var])
    if spatial:
        return _of_batch(x, rows, epsilon, momentum)
    if training:
        raise fail("statistics of a batch with spatial=0 are not computed", "export with spatial=1")
    s, b, m, v = [r.reshape(1, *x.shape[1:]) for r in rows]
    return (x - m) * (s * (v + epsilon).rsqrt()) + b


def _of_batch(x: Tensor, rows: Sequence[Tensor], epsilon: float, momentum: float) -> Tensors:
    """The result, the running mean and variance, and the batch's, for rows of scale, bias, mean and variance."""
    scale, bias, mean, var = rows
    axes = (0, *range(2, x.ndim))
    batch_mean, batch_var = x.mean(axes), x.var(axes, correction=0)
    y = _standardised(x, batch_mean, batch_var, scale, bias, epsilon)
    new_mean = (mean * momentum + batch_mean * (1 - momentum)).cast(mean.dtype)
    return y, new_mean, (var * momentum + batch_var * (1 - momentum)).cast(var.dtype), batch_mean, batch_var


# each channel of each sample with mean 0 and variance 1, then scaled and shifted
op("InstanceNormalization")(lambda x, scale, bias, *, epsilon: F.group_norm(x, x.shape[1], scale, bias, epsilon))


@op
def GroupNormalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float, num_groups: int, stash_type: int = 1
) -> Tensor:
    """Groups of channels with mean 0 and variance 1; scale and bias have a number for each channel, before version 21
    for each group.
    """
    if node.version < 21:
        each = x.shape[1] // num_groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return F.group_norm(_stashed(x, stash_type), num_groups, scale, bias, epsilon).cast(x.dtype)


def _stashed(x: Tensor, code: int) -> Tensor:
    """x in the type that statistics are computed in: float32 at least, whatever less is asked for."""
    return x.double() if code == 11 else x


# -- rows -------------------------------------------------------------------------------------------------------------


@op
def LayerNormalization(
    x: Tensor, scale: Tensor, bias: Tensor | None, *, axis: int, epsilon: float, stash_type: int
) -> Any:
    """Mean 0 and variance 1 over the axes from `axis` on; the mean and 1 / deviation are outputs as well."""
    first = axis_of(axis, x.ndim)
    tail, wide = tuple(x.shape[first:]), _stashed(x, stash_type)
    if scale.shape == tail and (bias is None or bias.shape == tail):
        y = F.layer_norm(wide, tail, scale, bias, epsilon)
    else:
        y = plus(F.layer_norm(wide, tail, None, None, epsilon) * scale, bias)
    y = y.cast(x.dtype)
    if not node.wants(1) and not node.wants(2):
        return y
    axes = tuple(range(first, x.ndim))
    wide = wide if wide.dtype.bits == 64 else wide.float()
    return y, wide.mean(axes, keepdim=True), (wide.var(axes, correction=0, keepdim=True) + epsilon).rsqrt()


@op
def RMSNormalization(x: Tensor, scale: Tensor, *, axis: int, epsilon: float, stash_type: int) -> Tensor:
    """x over the root of its mean square, over the axes from `axis` on, times scale."""
    tail, wide = tuple(x.shape[axis_of(axis, x.ndim) :]), _stashed(x, stash_type)
    if scale.shape == tail:
        return F.rms_norm(wide, tail, scale, epsilon).cast(x.dtype)
    return (F.rms_norm(wide, tail, None, epsilon) * scale).cast(x.dtype)


@op
def LpNormalization(x: Tensor, *, axis: int, p: int) -> Tensor:
    """x over its 1- or 2-norm along an axis; 0 where that is 0."""
    size = x.norm(p, axis_of(axis, x.ndim), keepdim=True)
    return (size == 0).where(x.zeros_like(), x / size)


@op
def MeanVarianceNormalization(x: Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    """Mean 0 and variance 1 over axes; 1e-9 is added to the deviation."""
    over = tuple(axes_of(axes, x.ndim))
    less = x - x.mean(over, keepdim=True)
    return less / ((less * less).mean(over, keepdim=True).sqrt() + 1e-9)


@op
def LRN(x: Tensor, *, alpha: float, beta: float, bias: float, size: int) -> Tensor:
    """x over a power of the mean square of `size` channels about each; of an even number more lie behind."""
    before = (size - 1) // 2
    total = (x * x).pad([(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)]).unfold(1, size).sum(-1)
    return x / (total * (alpha / size) + bias).pow(beta)


# -- dropout ----------------------------------------------------------------------------------------------------------


@op(since=12, pure=False, was=("ratio", ""))
def Dropout(x: Tensor, ratio: MaybeArray, training_mode: MaybeArray, *, is_test: int = 1, seed: int | None) -> Any:
    """x, or in training with probability `ratio` 0 and what is left scaled; and what was kept as a mask, if it is
    wanted: of bools since version 10.

    It is training if training_mode is true; with is_test=0 in versions 1 and 6, and never in those between. With a seed
    the numbers are those of the standard's reference, NumPy's, and the same in each run.
    """
    share = 0.5 if ratio is None else float(single(ratio))
    if not share or (is_test and (training_mode is None or not single(training_mode))):
        y, kept = x, x.ones_like(dtype="bool")
    else:
        if seed is None:
            kept = rand(*x.shape, device=x.device) >= share
        else:
            kept = node.constant(np.random.RandomState(seed).uniform(0, 1.0, x.shape) >= share)
        y = kept.where(x / (1 - share) if share < 1 else x.zeros_like(), x.zeros_like())
    return (y, kept.cast(x.dtype) if node.version < 10 else kept) if node.wants(1) else y


PREVIEW = "ai.onnx.preview.training"


def _each(tensors: Tensors, kinds: int, step: Callable[..., Tensors]) -> Any:
    """Inputs are all parameters, then all gradients, then all of each state; so are the outputs, without gradients."""
    if not tensors or len(tensors) % kinds:
        raise fail(f"{len(tensors)} tensors; {kinds} for each parameter are wanted")
    count = len(tensors) // kinds
    rows = [step(*tensors[i::count]) for i in range(count)]
    return tuple(row[k] for k in range(kinds - 1) for row in rows)


@op(domain=PREVIEW)
def Momentum(
    r: Tensor, t: Tensor, *tensors: Tensor, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> Any:
    """Gradient descent with momentum, "standard" or "nesterov"."""
    scale = (t > 0).where(beta, 1.0)

    def step(x: Tensor, g: Tensor, v: Tensor) -> Tensors:
        g = g + x * norm_coefficient
        v = v * alpha + g * scale
        return x - r * (g + v * alpha if mode == "nesterov" else v), v

    return _each(tensors, 3, step)


@op(domain=PREVIEW)
def Adagrad(
    r: Tensor, t: Tensor, *tensors: Tensor, decay_factor: float, epsilon: float, norm_coefficient: float
) -> Any:
    """A rate for each element, less the more its gradients were."""
    rate = r / (t * decay_factor + 1)

    def step(x: Tensor, g: Tensor, h: Tensor) -> Tensors:
        g = g + x * norm_coefficient
        h = h + g * g
        return x - rate * g / (h.sqrt() + epsilon), h

    return _each(tensors, 3, step)


@op(domain=PREVIEW)
def Adam(
    r: Tensor,
    t: Tensor,
    *tensors: Tensor,
    alpha: float,
    beta: float,
    epsilon: float,
    norm_coefficient: float,
    norm_coefficient_post: float,
) -> Any:
    """Running means of the gradient and of its square, corrected for their start by the count t."""
    steps = t.float()
    corrected = r * (1 - beta**steps).sqrt() / (1 - alpha**steps)
    rate = (t > 0).where(corrected, r)

    def step(x: Tensor, g: Tensor, v: Tensor, h: Tensor) -> Tensors:
        g = g + x * norm_coefficient
        v = v * alpha + g * (1 - alpha)
        h = h * beta + g * g * (1 - beta)
        return (x - rate * v / (h.sqrt() + epsilon)) * (1 - norm_coefficient_post), v, h

    return _each(tensors, 4, step)


def _generator(seed: float | None) -> Generator | None:
    """A stream that begins at the bits of the seed, or None for the default one."""
    return None if seed is None else Generator(struct.unpack("<I", struct.pack("<f", seed))[0])


def _named(code: int | None, like: MaybeValue) -> str:
    return node.element(code).name if code is not None else "float32" if like is None else like.dtype.name


@op("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", pure=False)
def random(
    like: MaybeValue,
    *,
    dtype: int | None,
    high: float = 1.0,
    low: float = 0.0,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None,
    shape: Any,
) -> Tensor:
    """Normal or uniform numbers of a shape, or that of another value.

    Random numbers are anneal's, not those of another runtime; with a seed each run draws the same.
    """
    sizes = (shape or ()) if like is None else like.shape
    draw, scale, mean = (randn, scale, mean) if "Normal" in node.op else (rand, high - low, low)
    drawn = draw(*sizes, device=node.device, generator=_generator(seed))
    return (drawn * scale + mean).cast(_named(dtype, like))


@op(pure=False)
def Bernoulli(p: Tensor, *, dtype: int | None, seed: float | None) -> Any:
    """1 with the probability that the element says, else 0."""
    drawn = rand(*p.shape, device=p.device, generator=_generator(seed)) < p
    return drawn.cast(_named(dtype, p))


@op(pure=False)
def Multinomial(x: Tensor, *, dtype: int, sample_size: int, seed: float | None) -> Tensor:
    """Classes drawn from rows of unnormalised log-probabilities."""
    found = multinomial(x.float().softmax(-1), sample_size, True, generator=_generator(seed))
    return found.int() if dtype == 6 else counted(found)
