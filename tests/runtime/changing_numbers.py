"""Expressions with a Python number that is another in each round of a loop. They name no package: `an` is anneal, or
torch, and `F` its `nn.functional`."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

Expression = Callable[[Any, Any, Any, Any], Any]  # of `an`, `F`, a tensor of shape (12, 10) and the number
Row = tuple[list[Any], Expression]


def whole(low: int, high: int) -> list[int]:
    """64 numbers from `low` to `high`, some of them twice."""
    draw = random.Random(low * 1000 + high)
    return [draw.randint(low, high) for _ in range(64)]


def real(low: float, high: float) -> list[float]:
    draw = random.Random(round(low * 1000 + high))
    return [round(draw.uniform(low, high), 3) for _ in range(64)]


def labels(an: Any) -> Any:
    return an.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8])


def chances(an: Any) -> Any:
    return an.linspace(0.05, 0.95, 120).reshape(12, 10)


def _wrote(x: Any, *at: Any) -> Any:
    y = x * 1
    y[at if len(at) > 1 else at[0]] = 0.5
    return y


def _zeroed(x: Any, i: int) -> Any:
    y = x * 1
    y[i : i + 3, i % 5 : i % 5 + 4].zero_()
    return y


def _turned(an: Any, F: Any, x: Any, a: float) -> Any:
    theta = an.tensor([[math.cos(a), -math.sin(a), 0.0], [math.sin(a), math.cos(a), 0.1]])
    grid = F.affine_grid(theta.unsqueeze(0), [1, 1, 6, 5], align_corners=False)
    return F.grid_sample(x.reshape(1, 1, 12, 10), grid, align_corners=False)


def _cut(an: Any, x: Any, i: int) -> Any:
    mask = an.ones(12, 10)
    mask[i : i + 3, i % 5 : i % 5 + 4] = 0
    return x * mask


def _focal(F: Any, an: Any, x: Any, gamma: float) -> Any:
    loss = F.cross_entropy(x, labels(an), reduction="none")
    return (1 - (-loss).exp()) ** gamma * loss


def _ctc(an: Any, F: Any, x: Any, n: int) -> Any:
    wide = an.tensor([[1, 2, 3, 4, 5, 1, 2, 3], [2, 3, 4, 5, 1, 2, 3, 4]])
    logs = x[:, :6].log_softmax(-1).unsqueeze(1).expand(12, 2, 6)
    return F.ctc_loss(logs, wide[:, :n], an.tensor([12, 12]), an.tensor([n, 2]), zero_infinity=True)


NUMBERS: dict[str, Row] = {
    "add": (real(-2, 2), lambda an, F, x, n: x + n),
    "rsub": (real(-2, 2), lambda an, F, x, n: n - x),
    "mul": (real(-2, 2), lambda an, F, x, n: x * n),
    "div": (real(1, 2), lambda an, F, x, n: x / n),
    "rdiv": (real(1, 2), lambda an, F, x, n: n / (x + 4)),
    "pow": (real(0.6, 3.5), lambda an, F, x, n: x.abs() ** n),
    "pow of an int": (whole(2, 9), lambda an, F, x, n: x**n),
    "rpow": (real(1, 3), lambda an, F, x, n: n**x),
    "an.pow": (real(0.6, 3.5), lambda an, F, x, n: an.pow(x.abs(), n)),
    "mod": (real(0.5, 2), lambda an, F, x, n: x % n),
    "fmod": (real(0.5, 2), lambda an, F, x, n: x.fmod(n)),
    "remainder": (real(0.5, 2), lambda an, F, x, n: an.remainder(x, n)),
    "floordiv": (real(0.5, 2), lambda an, F, x, n: x // n + x),
    "div, trunc": (real(0.5, 2), lambda an, F, x, n: an.div(x, n, rounding_mode="trunc") + x),
    "mod of ints": (whole(2, 30), lambda an, F, x, n: (an.arange(10) % n) * x),
    "floordiv of ints": (whole(2, 30), lambda an, F, x, n: (an.arange(10) // n) * x),
    "mul of ints": (whole(2, 30), lambda an, F, x, n: (an.arange(10) * n) * x),
    "maximum": (real(-1, 1), lambda an, F, x, n: an.maximum(x, an.tensor(n))),
    "lerp": (real(0, 1), lambda an, F, x, n: an.lerp(x, x * 2, n)),
    "addcmul": (real(0, 1), lambda an, F, x, n: an.addcmul(x, x, x, value=n)),
    "addcdiv": (real(0, 1), lambda an, F, x, n: an.addcdiv(x, x, x.abs() + 1, value=n)),
    "add, alpha": (real(0, 1), lambda an, F, x, n: an.add(x, x.exp(), alpha=n)),
    "sub, alpha": (real(0, 1), lambda an, F, x, n: x.sub(x.exp(), alpha=n)),
    "addmm, alpha": (real(0, 1), lambda an, F, x, n: an.addmm(an.ones(12, 12), x, x.T, alpha=n)),
    "addmm, beta": (real(0.1, 1), lambda an, F, x, n: an.addmm(an.ones(12, 12), x, x.T, beta=n)),
    "addmv, alpha": (real(0, 1), lambda an, F, x, n: an.addmv(an.ones(12), x, an.ones(10), alpha=n)),
    "baddbmm, beta": (real(0.1, 1), lambda an, F, x, n: an.baddbmm(an.ones(1, 12, 12), x[None], x.T[None], beta=n)),
    "where": (real(-1, 1), lambda an, F, x, n: an.where(x > 0, x, n)),
    "where, step": (whole(0, 60), lambda an, F, x, n: an.where(an.arange(10) * 6 < n, x, 0.5)),
    "masked_fill": (real(-1, 1), lambda an, F, x, n: x.masked_fill(x > 0, n)),
    "compare": (real(-1, 1), lambda an, F, x, n: (x > n) * x),
    "clamp": (real(0.2, 1), lambda an, F, x, n: x.clamp(-n, n)),
    "clamp, min": (real(-1, 1), lambda an, F, x, n: x.clamp(min=n)),
    "an.clamp, max": (real(-1, 1), lambda an, F, x, n: an.clamp(x, max=n)),
    "clamp_": (real(0.2, 1), lambda an, F, x, n: (x * 1).clamp_(-n, n)),
    "nan_to_num": (real(0, 1), lambda an, F, x, n: x.nan_to_num(n)),
    "round": (whole(0, 4), lambda an, F, x, n: an.round(x, decimals=n) + x),
    "quantile": (real(0, 1), lambda an, F, x, n: an.quantile(x, n, 1)),
    "logit, eps": (real(0.01, 0.1), lambda an, F, x, n: an.logit(x.sigmoid(), n)),
    "heaviside": (real(0, 1), lambda an, F, x, n: an.heaviside(x.detach(), an.tensor(n)) * x),
    "rsub, fill": (real(0, 1), lambda an, F, x, n: x - an.full((10,), n)),
    "full_like": (real(0, 1), lambda an, F, x, n: x - an.full_like(x, n)),
    "tensor of numbers": (real(0, 1), lambda an, F, x, n: x[:, :2] * an.tensor([n, 1 - n])),
    # activations
    "leaky_relu": (real(0, 0.5), lambda an, F, x, n: F.leaky_relu(x, n)),
    "elu": (real(0.5, 2), lambda an, F, x, n: F.elu(x, n)),
    "celu": (real(0.5, 2), lambda an, F, x, n: F.celu(x, n)),
    "softplus": (real(0.5, 2), lambda an, F, x, n: F.softplus(x, n)),
    "softplus, threshold": (real(0.5, 2), lambda an, F, x, n: F.softplus(x, 1.0, n)),
    "threshold": (real(0.1, 2), lambda an, F, x, n: F.threshold(x, n, 0.0)),
    "threshold, value": (real(0.1, 2), lambda an, F, x, n: F.threshold(x, 0.1, n)),
    "hardtanh": (real(0.1, 2), lambda an, F, x, n: F.hardtanh(x, -n, n)),
    "softshrink": (real(0.1, 1), lambda an, F, x, n: F.softshrink(x, n)),
    "hardshrink": (real(0.1, 1), lambda an, F, x, n: F.hardshrink(x, n)),
    "softmax, temperature": (real(0.5, 2), lambda an, F, x, n: F.softmax(x / n, -1) * x),
    "gumbel_softmax": (real(0.5, 2), lambda an, F, x, n: F.gumbel_softmax(x, n) * x),
    "rrelu": (real(0.2, 0.3), lambda an, F, x, n: F.rrelu(x, 0.1, n)),
    # norms
    "layer_norm, eps": (real(0.01, 0.1), lambda an, F, x, n: F.layer_norm(x, (10,), eps=n)),
    "batch_norm, eps": (real(0.01, 0.1), lambda an, F, x, n: F.batch_norm(x, None, None, training=True, eps=n)),
    "batch_norm, momentum": (
        real(0.01, 0.5),
        lambda an, F, x, n: F.batch_norm(x, an.zeros(10), an.ones(10), training=True, momentum=n),
    ),
    "group_norm, eps": (real(0.01, 0.1), lambda an, F, x, n: F.group_norm(x, 2, eps=n)),
    "rms_norm, eps": (real(0.01, 0.1), lambda an, F, x, n: F.rms_norm(x, (10,), eps=n)),
    "normalize, eps": (real(0.01, 0.1), lambda an, F, x, n: F.normalize(x, eps=n)),
    "normalize, p": (real(1.5, 3), lambda an, F, x, n: F.normalize(x, p=n)),
    "norm, p": (real(1.5, 3), lambda an, F, x, n: x.norm(n, dim=1)),
    "cosine_similarity, eps": (real(0.01, 0.1), lambda an, F, x, n: F.cosine_similarity(x, x * 2 + 1, eps=n)),
    "renorm": (real(0.5, 2), lambda an, F, x, n: an.renorm(x, 2, 0, n)),
    "local_response_norm": (real(0.01, 1), lambda an, F, x, n: F.local_response_norm(x[None], 3, alpha=n)),
    # losses
    "label_smoothing": (real(0, 0.3), lambda an, F, x, n: F.cross_entropy(x, labels(an), label_smoothing=n)),
    "huber": (real(0.3, 2), lambda an, F, x, n: F.huber_loss(x, x.detach() * 0.2, delta=n)),
    "smooth_l1": (real(0.3, 2), lambda an, F, x, n: F.smooth_l1_loss(x, x.detach() * 0.2, beta=n)),
    "focal": (real(0.5, 3), lambda an, F, x, n: _focal(F, an, x, n)),
    "margin_ranking": (real(0, 1), lambda an, F, x, n: F.margin_ranking_loss(x[0], x[1], an.ones(10), margin=n)),
    "hinge_embedding": (real(0.5, 2), lambda an, F, x, n: F.hinge_embedding_loss(x, x.detach().sign(), margin=n)),
    "triplet_margin": (real(0.5, 2), lambda an, F, x, n: F.triplet_margin_loss(x, x * 2, x * 2.2, margin=n)),
    "cosine_embedding": (
        real(-0.5, 0.5),
        lambda an, F, x, n: F.cosine_embedding_loss(x, x * 2 + 1, -an.ones(12), margin=n),
    ),
    "multi_margin": (real(0.5, 2), lambda an, F, x, n: F.multi_margin_loss(x, labels(an), margin=n)),
    "gaussian_nll": (real(0.01, 0.2), lambda an, F, x, n: F.gaussian_nll_loss(x, x * 2, x * x, eps=n)),
    "ignore_index": (whole(0, 9), lambda an, F, x, n: F.cross_entropy(x, labels(an), ignore_index=n)),
    "pos_weight": (
        real(0.5, 2),
        lambda an, F, x, n: F.binary_cross_entropy_with_logits(x, x.detach().sigmoid(), pos_weight=an.tensor([n])),
    ),
    "ctc, the longest": (whole(2, 5), lambda an, F, x, n: _ctc(an, F, x, n)),
    # places
    "roll": (whole(-9, 9), lambda an, F, x, n: x.roll(n, 1) * an.arange(10)),
    "roll of two axes": (whole(-9, 9), lambda an, F, x, n: an.roll(x, (n, -n), (0, 1)) * an.arange(10)),
    "roll, flat": (whole(-9, 9), lambda an, F, x, n: an.roll(x, n) * an.arange(10)),
    "triu": (whole(-5, 5), lambda an, F, x, n: an.triu(x, n)),
    "tril": (whole(-5, 5), lambda an, F, x, n: x.tril(n)),
    "triu of ones": (whole(-5, 5), lambda an, F, x, n: x * an.triu(an.ones(12, 10), diagonal=n)),
    "diagonal": (whole(-2, 0), lambda an, F, x, n: x.diagonal(n)),
    "pad": (whole(0, 4), lambda an, F, x, n: F.pad(x, (n, 4 - n)) * an.arange(14)),
    "pad of two axes": (whole(0, 4), lambda an, F, x, n: F.pad(x, (n, 4 - n, 4 - n, n)) * an.arange(14)),
    "pad, value": (real(0, 1), lambda an, F, x, n: F.pad(x, (1, 1), value=n)),
    "pad, reflect": (
        whole(0, 4),
        lambda an, F, x, n: F.pad(x[None, None], (n, 4 - n, 0, 0), mode="reflect") * an.arange(14),
    ),
    "pad, replicate": (
        whole(0, 4),
        lambda an, F, x, n: F.pad(x[None, None], (n, 4 - n, 0, 0), mode="replicate") * an.arange(14),
    ),
    "pad, cut": (whole(-3, 3), lambda an, F, x, n: F.pad(x, (n, -n)) * an.arange(10)),
    "arange, start": (whole(0, 50), lambda an, F, x, n: x * an.arange(n, n + 10)),
    "arange of floats": (whole(0, 19), lambda an, F, x, n: x * an.arange(n / 4, n / 4 + 5, 0.5)),
    "arange of one step": (whole(1, 9), lambda an, F, x, n: x * an.arange(0, 10 * n, n)),
    "positions": (whole(0, 50), lambda an, F, x, n: F.embedding(an.arange(n, n + 4), an.ones(64, 10)) * x[:4]),
    "linspace": (real(1, 2), lambda an, F, x, n: x * an.linspace(0, n, 10)),
    "linspace, start": (real(1, 2), lambda an, F, x, n: x * an.linspace(n, 3, 10)),
    "logspace": (real(1, 2), lambda an, F, x, n: x * an.logspace(0, n, 10)),
    "x[n]": (whole(-12, 11), lambda an, F, x, n: x[n]),
    "x[:, n]": (whole(-10, 9), lambda an, F, x, n: x[:, n]),
    "x[None, n]": (whole(-12, 11), lambda an, F, x, n: x[None, n]),
    "x[n, None]": (whole(-12, 11), lambda an, F, x, n: x[n, None]),
    "x[..., n, :]": (whole(-12, 11), lambda an, F, x, n: x[..., n, :]),
    "x[:, n:n + 3, None]": (whole(0, 7), lambda an, F, x, n: x[:, n : n + 3, None]),
    "x[n::2]": (whole(0, 1), lambda an, F, x, n: x[n::2]),
    "x[n::4]": (whole(0, 3), lambda an, F, x, n: x[n::4]),
    "x[n:n + 6:2]": (whole(0, 6), lambda an, F, x, n: x[n : n + 6 : 2]),
    "x[n:n + 4]": (whole(0, 8), lambda an, F, x, n: x[n : n + 4]),
    "x[n:n + 4, n]": (whole(0, 8), lambda an, F, x, n: x[n : n + 4, n]),
    "x[n, list]": (whole(0, 8), lambda an, F, x, n: x[n, [1, 2]]),
    "x[[n, n + 1]]": (whole(0, 8), lambda an, F, x, n: x[[n, n + 1]]),
    "x[tensor]": (whole(0, 8), lambda an, F, x, n: x[an.tensor(n)]),
    "x[tensor, tensor]": (whole(0, 8), lambda an, F, x, n: x[an.tensor(n), an.tensor(n)]),
    "x[tensor, n]": (whole(0, 8), lambda an, F, x, n: x[an.arange(4), n]),
    "split": (whole(0, 2), lambda an, F, x, n: x.split(4)[n]),
    "chunk": (whole(0, 4), lambda an, F, x, n: x.chunk(5, 1)[n]),
    "unbind": (whole(-12, 11), lambda an, F, x, n: x.unbind()[n]),
    "list": (whole(-12, 11), lambda an, F, x, n: list(x)[n]),
    "narrow": (whole(0, 8), lambda an, F, x, n: x.narrow(0, n, 3)),
    "select": (whole(0, 9), lambda an, F, x, n: x.select(1, n)),
    "index_select": (whole(0, 9), lambda an, F, x, n: x.index_select(0, an.tensor([n, 1]))),
    "gather": (whole(0, 9), lambda an, F, x, n: x.gather(1, an.full((12, 1), n))),
    "crop": (whole(0, 6), lambda an, F, x, n: x[None, :, n : n + 4]),
    "crop of two axes": (whole(0, 5), lambda an, F, x, n: x[None, None][:, :, n : n + 4, n // 2 : n // 2 + 4]),
    "flat crop": (whole(0, 60), lambda an, F, x, n: x.flatten()[n : n + 20]),
    "as_strided": (whole(0, 60), lambda an, F, x, n: an.as_strided(x, (3, 2), (10, 1), n)),
    "one_hot": (whole(0, 9), lambda an, F, x, n: x * F.one_hot(an.tensor(n), 10)),
    "kthvalue": (whole(1, 9), lambda an, F, x, n: x.kthvalue(n, 1)[0]),
    "mask": (whole(1, 9), lambda an, F, x, n: x * (an.arange(10) < n)),
    "masks of lengths": (
        whole(1, 9),
        lambda an, F, x, n: x * (an.arange(10)[None] < an.tensor([n, 3, 4, n, 5, 6] * 2)[:, None]),
    ),
    "causal mask": (
        whole(0, 5),
        lambda an, F, x, n: (x @ x.T).masked_fill(an.triu(an.ones(12, 12), n + 1).bool(), -1e9).softmax(-1),
    ),
    "index_fill": (whole(0, 9), lambda an, F, x, n: x.index_fill(1, an.tensor([n]), 0.5)),
    "index_fill, value": (real(0, 1), lambda an, F, x, n: x.index_fill(1, an.tensor([2]), n)),
    "scatter, value": (real(0, 1), lambda an, F, x, n: x.scatter(1, labels(an).unsqueeze(1), n)),
    "index_add, alpha": (real(0, 1), lambda an, F, x, n: x.index_add(0, an.tensor([1, 3]), x[:2], alpha=n)),
    "select_scatter": (whole(0, 9), lambda an, F, x, n: x.select_scatter(x[:, 0], 1, n)),
    "slice_scatter": (whole(0, 7), lambda an, F, x, n: x.slice_scatter(x[:, :3], 1, n, n + 3)),
    "y[n] =": (whole(0, 9), lambda an, F, x, n: _wrote(x, n)),
    "y[n:n + 3] =": (whole(0, 9), lambda an, F, x, n: _wrote(x, slice(n, n + 3))),
    "y[:, n] =": (whole(0, 9), lambda an, F, x, n: _wrote(x, slice(None), n)),
    "y[n:n + 3, n:n + 2] =": (whole(0, 8), lambda an, F, x, n: _wrote(x, slice(n, n + 3), slice(n, n + 2))),
    "y[..., n] =": (whole(0, 8), lambda an, F, x, n: _wrote(x, ..., n)),
    "zero_ of a part": (whole(0, 8), lambda an, F, x, n: _zeroed(x, n)),
    "cutout": (whole(0, 8), lambda an, F, x, n: _cut(an, x, n)),
    "affine_grid": (real(-1, 1), lambda an, F, x, n: _turned(an, F, x, n)),
    # random numbers
    "randn times": (real(0.1, 1), lambda an, F, x, n: x + an.randn(12, 10) * n),
    "randn_like times": (real(0.1, 1), lambda an, F, x, n: x + n * an.randn_like(x)),
    "normal": (real(0.1, 1), lambda an, F, x, n: x + an.normal(0.0, n, (12, 10))),
    "normal_": (real(0.1, 1), lambda an, F, x, n: x + an.zeros(12, 10).normal_(0, n)),
    "uniform_": (real(0.1, 1), lambda an, F, x, n: x + an.zeros(12, 10).uniform_(-n, n)),
    "bernoulli_": (real(0.1, 0.9), lambda an, F, x, n: x * an.zeros(12, 10).bernoulli_(n)),
    "exponential_": (real(0.5, 2), lambda an, F, x, n: x + an.zeros(12, 10).exponential_(n)),
    "init.normal_": (real(0.1, 1), lambda an, F, x, n: x + an.nn.init.normal_(an.zeros(12, 10), 0.0, n)),
    "trunc_normal_": (real(0.1, 1), lambda an, F, x, n: x + an.nn.init.trunc_normal_(an.zeros(12, 10), 0.0, n)),
    "rand below": (real(0.1, 0.9), lambda an, F, x, n: x * (an.rand(12, 10) < n)),
    "randint": (whole(2, 9), lambda an, F, x, n: x[an.randint(0, n, (4,))]),
    "dropout": (real(0.1, 0.5), lambda an, F, x, n: F.dropout(x, n)),
    "dropout1d": (real(0.1, 0.5), lambda an, F, x, n: F.dropout1d(x, n)),
    "alpha_dropout": (real(0.1, 0.5), lambda an, F, x, n: F.alpha_dropout(x, n, training=True)),
    "attention, scale": (
        real(0.1, 1),
        lambda an, F, x, n: F.scaled_dot_product_attention(x[None], x[None] * 2, x[None], scale=n),
    ),
    "attention, dropout": (
        real(0.1, 0.5),
        lambda an, F, x, n: F.scaled_dot_product_attention(x[None], x[None] * 2, x[None], dropout_p=n),
    ),
}
