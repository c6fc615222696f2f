"""Gradients at edges: ties, bounds, kinks, both zeros, infinities, nan, out of domain, nothing at all.

`python -m tests.tensor.edge_gradients`, with a Python that has torch, writes `edge_gradients.json`: what torch gives
for each row. A row is an expression of `x` (and `y`, `z`), tensors that want gradients, in the names that torch and
this library share: `T` is the library, `F` its `nn.functional`. Its gradient is that of the sum of its values, times 1,
2, 3 and so on where values are not element by element.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_suffix(".json")
INF, NAN = math.inf, math.nan

POINTS = [0.0, -0.0, 0.5, -0.5, 1, -1, 1.5, -1.5, 2, -2, 2.5, 3, -3, 6, -6, 20, -20, 1e-30, 100, -100, INF, -INF, NAN]
FEW = [0.0, -0.0, 0.5, -0.5, 1, -1, 2, -2, 3, INF, -INF, NAN]
_PAIRS = list(itertools.product([0.0, -0.0, 1, -1, 2, 0.5, -1.5, INF, -INF, NAN], repeat=2))
ROWS = [[1, 1, 0, -1], [2, 2, 2, 2], [0, 0, 0, 0], [-0.0, 0, -1, -1], [3, 1, 2, 2], [NAN, 1, 1, 0], [NAN, NAN, 1, 2]]
WILD = [*ROWS, [INF, INF, 0, 1], [-INF, -INF, -INF, -INF], [INF, -INF, 0, 0]]
_SQUARE = [[[[1, 1, 0, 2], [1, 1, 2, 2], [0, 0, -1, 3], [0, 0, 3, 3]], [[5, 5, 5, 5]] * 4]]

INPUTS: dict[str, list[Any]] = {
    "points": [POINTS],
    "few": [FEW],
    "pairs": [[a for a, _ in _PAIRS], [b for _, b in _PAIRS]],
    "rows": [ROWS],
    "wild": [WILD],
    "ties": [[[1, 1, 0, -1], [2, 2, 2, 2], [0, 0, -0.0, 0], [3, 1, 2, 2]]],
    "nans": [[[1, NAN, 0, 0], [0, 0, NAN, 1]]],
    "square": [_SQUARE],
    "line": [[[[1, 1, 0, 0, 2, 2], [3, 3, 3, 3, 3, 3]]][0]],
    "cube": [[[_SQUARE[0], _SQUARE[0]]]],
    "unit": [[0.0, 1.0, 0.5, 0.0, 1.0, 0.25], [0.0, 1.0, 1.0, 1.0, 0.0, 0.5]],
    "loss": [[0.0, 1, -1, 2, 0.5, 3, -2, 1], [0.0, 0, 0, 1, 0, 1, 0, 1]],
    "signs": [[0.0, 1, -1, 0.5, 2, -2], [1.0, -1, 1, -1, 1, -1]],
    "scores": [[[1, 1, 0], [2, 2, 2], [0, 1, 2], [-1, 0, 0]]],
    "matrix": [[[0, 0, 0], [0, 0, 0], [0, 0, 0]]],
    "eye": [[[1, 0, 0], [0, 1, 0], [0, 0, 1]]],
    "vectors": [[[0, 0], [1, 1], [3, 4]], [[0, 0], [1, 1], [0, 0]]],
    "three": [[[0, 0], [1, 1], [3, 4]], [[0, 0], [1, 1], [0, 0]], [[0, 0], [0, 0], [0, 0]]],
    "places": [[1, 2, 3, 4], [5, 6, 7]],
    "chances": [[[[-1, -2, -3]] * 2, [[-0.5, -1, -4], [-2, -2, -1]], [[-1, -1, -1]] * 2]],
    "corner": [[[2, 9, 7], [1, 3, 8], [0.5, 1, 2]]],
    "none": [[]],
    "no rows": [[[], []]],
    "no pairs": [[], []],
}
# sizes of inputs that nested lists cannot say
SHAPES = {"none": (0,), "no rows": (2, 0), "no pairs": (0,), "flat": (0, 3), "empty": (0, 0), "batch": (0, 2, 2)}

# {input: expressions, one by one or as names of functions `T.name(x)`}
_POINTS = """
abs neg sign floor ceil round trunc frac relu sqrt rsqrt reciprocal square exp exp2 expm1 log log2 log10 log1p sin cos tan
asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv lgamma digamma sinc logit nan_to_num deg2rad
special.entr special.ndtri special.ndtr special.log_ndtr special.i0 special.i0e special.i1 special.i1e special.erfcx
special.expit special.xlog1py=T.special.xlog1py(x,2.0) clone positive
"""
_POINTS_TEXT = """
x.clamp(-1, 2); x.clamp(min=0); x.clamp(max=0); x.clip(-1, 1); x.clamp(T.tensor(-1.0), T.tensor(2.0)); x.clamp_min(1)
x.clamp_max(1); T.maximum(x, T.zeros_like(x)); T.minimum(x, T.zeros_like(x)); T.maximum(x, T.tensor(0.0)); x.max(T.tensor(1.0))
T.fmax(x, T.zeros_like(x)); T.fmin(x, T.ones_like(x)); x.clamp(1, -1); x.clamp(min=-math.inf, max=math.inf)
F.relu(x); F.relu6(x); F.hardtanh(x); F.hardtanh(x, -2, 2); F.hardsigmoid(x); F.hardswish(x); F.hardshrink(x, 1.0)
F.softshrink(x, 1.0); F.tanhshrink(x); F.leaky_relu(x, 0.1); F.elu(x); F.selu(x); F.celu(x); F.gelu(x)
F.gelu(x, approximate="tanh"); F.silu(x); F.mish(x); F.softplus(x); F.softplus(x, 2, 3); F.softsign(x); F.logsigmoid(x)
F.threshold(x, 1.0, 5.0); F.prelu(x, T.tensor([0.25])); x**2; x**3; x**0; x**1; x**0.5; x**-1; x**-0.5; x**1.5; 2.0**x; 0.0**x
x % 2; x % 1.5; x.remainder(-2); T.fmod(x, 2); T.fmod(x, -1.5); x // 2; T.div(x, 2, rounding_mode="trunc"); 1 / x; x / 2
x.div(2, rounding_mode="floor"); x.where(x > 0, T.zeros_like(x)); T.where(x > 1, x.sqrt(), x); x.masked_fill(x > 0, 0.0)
x.heaviside(T.tensor(0.5)) * x; T.copysign(x, T.tensor(-1.0)); T.copysign(x, T.ones_like(x)); x.hypot(T.zeros_like(x)); T.atan2(x, T.zeros_like(x))
T.logaddexp(x, x); T.logaddexp(x, T.zeros_like(x)); T.logaddexp2(x, T.zeros_like(x)); x.xlogy(x); x.xlogy(0.0); x.lerp(T.zeros_like(x), 0.5)
x.abs().sqrt(); x * x.sign(); (x * x).sqrt(); x.softmax(0) * 0; x.detach() * x; x.square().sqrt(); x.relu().log1p()
T.special.zeta(x, 2.0) * 0; x.polygamma(1); x.mvlgamma(1); x.logit(0.1); x.nan_to_num(0.0, 1.0, -1.0); x.float_power(2)
x.float_power(0.5); T.pow(x, T.zeros_like(x)); T.pow(x, T.ones_like(x)); T.pow(T.zeros_like(x), x); T.rsub(x, 1); x.addcdiv(x, T.ones_like(x))
"""
_PAIRS_TEXT = """
T.maximum(x, y); T.minimum(x, y); T.fmax(x, y); T.fmin(x, y); x.max(y); x.min(y); x * y; x / y; x**y; T.atan2(x, y)
T.hypot(x, y); x % y; T.fmod(x, y); T.logaddexp(x, y); T.logaddexp2(x, y); T.xlogy(x, y); T.special.xlog1py(x, y); x.clamp(min=y)
x.clamp(max=y); x.clamp(y, y); x.clamp(y, y + 1); T.where(x > y, x, y); T.copysign(x, y); x - y; T.dist(x, y); T.lerp(x, y, 0.5)
x.div(y, rounding_mode="floor"); x.div(y, rounding_mode="trunc"); T.ldexp(x, y); x.heaviside(y); T.rsub(x, y)
F.l1_loss(x, y, reduction="none"); F.mse_loss(x, y, reduction="none"); F.smooth_l1_loss(x, y, reduction="none")
F.smooth_l1_loss(x, y, reduction="none", beta=0.0); F.huber_loss(x, y, reduction="none"); F.huber_loss(x, y, reduction="none", delta=0.5)
"""
_ROWS_TEXT = """
x.amax(1); x.amin(1); x.max(1).values; x.min(1).values; x.max(); x.min(); x.amax(); x.amin((0, 1)); x.median(); x.median(1).values
x.nanmedian(); x.nanmedian(1).values; x.mode(1).values; x.kthvalue(2, 1).values; x.sort(1).values; x.sort(1, descending=True).values
x.sort(1, stable=True).values; x.topk(2, 1).values; x.topk(2, 1, largest=False).values; x.msort(); x.cummax(1).values
x.cummin(1).values; T.aminmax(x, dim=1).max; T.aminmax(x).min; x.prod(1); x.prod(); x.cumprod(1); x.cumsum(1); x.logcumsumexp(1)
x.logsumexp(1); x.softmax(1); x.log_softmax(1); F.softmin(x, 1); x.std(1); x.var(1); x.std(1, correction=0); x.std(); x.mean(1)
x.norm(dim=1); x.norm(1, dim=1); x.norm(3, dim=1); x.norm(math.inf, dim=1); x.norm(-math.inf, dim=1); x.norm(0, dim=1); x.norm(0.5, dim=1)
T.linalg.vector_norm(x, 2, 1); T.linalg.vector_norm(x, math.inf, 1); T.linalg.vector_norm(x, 1.5, 1); T.linalg.norm(x); x.nansum(1)
x.nanmean(1); x.quantile(0.5, 1); x.nanquantile(0.5, 1); x.quantile(0.25, 1); x.renorm(2, 0, 1.0); F.normalize(x, dim=1)
F.normalize(x, p=1, dim=1); F.layer_norm(x, (4,)); F.rms_norm(x, (4,)); x.diff(dim=1); x.logsumexp((0, 1)); T.std_mean(x, 1)[0]
T.var_mean(x, 1)[1]; x.argmax(1) * x.sum(1); x.unique().sum() * 0 + x.sum(); x.max(0, keepdim=True).values; x.scatter_reduce(1, (x * 0).nan_to_num().long(), x, "amax")
x.scatter_reduce(1, (x * 0).nan_to_num().long(), x, "prod"); x.index_reduce(0, T.tensor([0, 0, 0, 0, 0, 0, 0]), x, "amin"); F.glu(x, 1)
T.cdist(x, x); T.cdist(x, x, p=1.0); T.cdist(x, x, p=math.inf); F.pdist(x); F.cosine_similarity(x, x.flip(0), dim=1); F.gumbel_softmax(x, dim=1) * 0
x.masked_select(x > 0); x[x == x].sum(); x.take(T.tensor([0, 0, 1])); x.unfold(1, 2, 1).amax(2); T.stack([x, x]).amax(0); T.cat([x, x], 1).amax(1)
F.local_response_norm(x[None], 2); F.instance_norm(x[None]); F.batch_norm(x, None, None, training=True); F.group_norm(x[None], 7)
"""
_POOLS = {
    "square": """
F.max_pool2d(x, 2); F.max_pool2d(x, 3, 1); F.max_pool2d(x, 2, 1, 1); F.max_pool2d(x, 3, 2, 1); F.max_pool2d(x, 2, dilation=2, stride=1)
F.adaptive_max_pool2d(x, 2); F.adaptive_max_pool2d(x, 3); F.adaptive_max_pool2d(x, 1); F.avg_pool2d(x, 2); F.lp_pool2d(x, 2, 2); F.lp_pool2d(x, 1.5, 2)
F.max_pool2d(x, 2, ceil_mode=True, stride=3); F.interpolate(x, scale_factor=2); F.max_pool2d(x, (2, 1)); F.max_pool2d(x, 2, return_indices=True)[0]
F.pad(x, (1, 1, 1, 1), mode="reflect").amax((2, 3)); x.flatten(2).max(2).values; F.adaptive_avg_pool2d(x, 3); F.max_pool2d(-x, 2)
F.max_pool2d(x.relu(), 2); F.max_pool2d(x, 4); F.max_pool2d(x, 3, 3, 1); F.max_pool2d(x * 0, 2)
""",
    "line": """
F.max_pool1d(x, 2); F.max_pool1d(x, 3, 1); F.max_pool1d(x, 3, 1, 1); F.adaptive_max_pool1d(x, 2); F.adaptive_max_pool1d(x, 4); F.lp_pool1d(x, 2, 2)
F.max_pool1d(x, 2, dilation=2); F.max_pool1d(x, 2, ceil_mode=True, stride=4)
""",
    "cube": """
F.max_pool3d(x, 2); F.max_pool3d(x, 2, 1); F.max_pool3d(x, (1, 2, 2), 1, (0, 1, 1)); F.adaptive_max_pool3d(x, 2)
""",
}
_OTHERS = {
    "unit": """
F.binary_cross_entropy(x, y, reduction="none"); F.kl_div(x, y, reduction="none"); F.kl_div(x, y, reduction="none", log_target=True)
F.binary_cross_entropy_with_logits(x, y, reduction="none"); F.poisson_nll_loss(x, y, reduction="none"); F.poisson_nll_loss(x, y, log_input=False, full=True, reduction="none")
F.gaussian_nll_loss(x, y, x * 0 + 1, reduction="none"); F.gaussian_nll_loss(x, y, x, reduction="none"); T.special.xlogy(x, y)
""",
    "loss": """
F.l1_loss(x, y); F.smooth_l1_loss(x, y); F.huber_loss(x, y); F.mse_loss(x, y); F.hinge_embedding_loss(x, y.detach() * 2 - 1); F.soft_margin_loss(x, y.detach() * 2 - 1)
F.poisson_nll_loss(x, y.detach()); F.binary_cross_entropy_with_logits(x, y); x.dist(y); x.dist(x); F.pairwise_distance(x[None], y[None]); x.dist(y, 1)
F.pairwise_distance(x[None], x[None].detach())
""",
    "signs": """
F.margin_ranking_loss(x, x.flip(0), y.detach()); F.margin_ranking_loss(x, x, y.detach()); F.margin_ranking_loss(x, x.detach(), y.detach(), margin=1.0)
F.hinge_embedding_loss(x, y.detach(), margin=1.0, reduction="none"); F.soft_margin_loss(x, y.detach(), reduction="none"); T.copysign(x, y)
""",
    "scores": """
F.multi_margin_loss(x, T.tensor([0, 1, 2, 0])); F.multilabel_margin_loss(x, T.tensor([[0, -1, 1], [1, 2, -1], [0, 1, 2], [-1, 0, 0]])); F.cross_entropy(x, T.tensor([0, 1, 2, 0]))
F.nll_loss(x, T.tensor([0, 1, 2, 0])); F.multilabel_soft_margin_loss(x, (x > 0).float()); F.cross_entropy(x, T.tensor([0, 0, 0, 0]), ignore_index=0) * 0
F.cross_entropy(x, x.softmax(1).detach(), label_smoothing=0.1); F.multi_margin_loss(x, T.tensor([0, 1, 2, 0]), p=2); F.multi_margin_loss(x, T.tensor([0, 1, 2, 0]), margin=0.0)
""",
    "vectors": """
F.pairwise_distance(x, y); F.pairwise_distance(x, y, p=1); F.cosine_similarity(x, y); T.cdist(x, y); T.cdist(x, y, p=1); T.cdist(x, y, p=3.0); T.cdist(x, y, p=math.inf)
F.pdist(x - y); T.dist(x, y, math.inf); F.cosine_embedding_loss(x, y, T.tensor([1, -1, 1])); F.cosine_embedding_loss(x, y, T.tensor([-1, -1, -1]), margin=0.5)
T.linalg.norm(x - y, dim=1); T.linalg.norm(x - x, dim=1); (x - y).norm(); (x - x).norm(); (x @ y.T).amax(1); T.linalg.matrix_norm(x)
""",
    "three": """
F.triplet_margin_loss(x, y, z); F.triplet_margin_loss(x, y, z, p=1); F.triplet_margin_loss(x, y, z, swap=True); F.triplet_margin_with_distance_loss(x, y, z)
F.triplet_margin_loss(x, x, x); T.addcmul(x, y, z); T.addcdiv(x, y, z)
""",
    "matrix": """
T.linalg.det(x); T.linalg.matrix_norm(x); T.linalg.matrix_power(x, 2); T.linalg.matrix_power(x, 0); x @ x; T.linalg.norm(x); T.linalg.vector_norm(x); T.linalg.matrix_norm(x, 1)
T.linalg.matrix_norm(x, math.inf); T.matrix_exp(x); T.linalg.multi_dot([x, x, x]); T.trace(x); T.kron(x, x); x.prod(); x.norm("fro")
""",
    "eye": """
T.linalg.det(x); T.linalg.inv(x); T.linalg.matrix_norm(x); T.linalg.slogdet(x)[1]; T.logdet(x); T.linalg.solve(x, x); T.linalg.cholesky(x); T.matrix_exp(x); T.linalg.matrix_norm(x, 1)
T.linalg.svdvals(x); T.linalg.eigvalsh(x); T.linalg.qr(x)[1]; T.linalg.pinv(x); T.linalg.matrix_norm(x, 2); T.linalg.matrix_norm(x, -1)
""",
    "places": """
x.scatter(0, T.tensor([1, 1, 2]), y); x.index_copy(0, T.tensor([1, 1, 2]), y); x.put(T.tensor([1, 1, 2]), y); x.index_put((T.tensor([1, 1, 2]),), y)
x.clone().scatter_(0, T.tensor([1, 1, 2]), y); (z := x.clone()).__setitem__(T.tensor([1, 1, 2]), y) or z; (z := x.clone()).__setitem__(T.tensor([1, 1]), y[0]) or z
x.scatter_add(0, T.tensor([1, 1, 2]), y); F.max_unpool1d(x[None, None], T.tensor([[[0, 0, 2, 5]]]), 2); x.index_copy(0, T.tensor([3]), y[:1] * y[1:2]).square()
x.reshape(2, 2).index_copy(0, T.tensor([1, 1]), y[:2].reshape(2, 1).expand(2, 2)); x.index_put((T.tensor([1, 1, 2]),), y, accumulate=True)
""",
    "chances": """
F.ctc_loss(x, T.tensor([[1, 2], [1, 1]]), T.tensor([3, 3]), T.tensor([2, 1]), reduction="none"); F.ctc_loss(x, T.tensor([[1, 2], [1, 1]]), T.tensor([2, 3]), T.tensor([2, 1]))
F.ctc_loss(x, T.tensor([[1, 2], [1, 1]]), T.tensor([2, 2]), T.tensor([1, 2]), reduction="none"); F.ctc_loss(x.log_softmax(2), T.tensor([[1, 2], [1, 1]]), T.tensor([3, 3]), T.tensor([1, 2]))
F.ctc_loss(x, T.tensor([[1, 2], [1, 1]]), T.tensor([2, 2]), T.tensor([1, 2]), reduction="none", zero_infinity=True)
""",
    "corner": """
T.cholesky_inverse(x); T.cholesky_inverse(x, True); T.cholesky_solve(x.detach(), x); T.cholesky_solve(x, x, True); T.linalg.pinv(x, hermitian=True); T.linalg.solve_triangular(x, x, upper=True)
""",
    "none": """
x.sum(); x.prod(); x.mean(); x.clone().zero_().sum(); (x * 2).sum(); x.norm(); x.cumsum(0); x.cumprod(0); x.sort().values; x.softmax(0); x.log_softmax(0)
x.logsumexp(0); x.var(); x.std(); x.exp(); x.relu(); x.abs(); x.diff(); x.flip(0); x.dot(x); x.outer(x); T.cat([x, x]); x.reshape(0, 3).sum(0); x.clamp(0, 1)
x.norm(1); x.nansum(); x.square().mean(); x[:0]; x.repeat(2); x.diag(); x.masked_select(x > 0); F.mse_loss(x, x.detach()); F.l1_loss(x, x.detach() + 1)
x.cummax(0).values; x.where(x > 0, x * 2); x.expand(3, 0).sum(); x.index_select(0, T.tensor([]).long()); x.gather(0, T.tensor([]).long()); x.logcumsumexp(0)
x.sign(); x.floor(); x * 0; x.detach().sum() + x.sum(); T.linalg.vector_norm(x); x.dist(x); F.normalize(x, dim=0); x.renorm(2, 0, 1.0) if x.ndim > 1 else x.sum()
""",
    "no rows": """
x.sum(1); x.prod(1); x.mean(1); x.norm(dim=1); x.cumsum(1); x.cumprod(1); x.sort(1).values; x.softmax(1); x.logsumexp(1); x.var(1); x @ x.T; x.T @ x; x.T; x.reshape(0); x.amax(0)
x.max(0).values; x.median(0).values; x.std(0); x.logsumexp((0, 1)); x.nansum(1); F.linear(x, T.ones(3, 0)); F.layer_norm(x.T, (2,)); F.softmin(x, 0); x.mean(0); T.cdist(x, x)
x.addmm(x, T.ones(0, 0)); T.linalg.norm(x); T.linalg.matrix_norm(x); x.kthvalue(1, 0).values; x.topk(1, 0).values; x.prod(0); x.cumsum(0); F.glu(x, 0); x.pow(2).sum(1).sqrt()
T.einsum("ij,kj->ik", x, x); T.tensordot(x, x, 2); T.linalg.vector_norm(x, dim=1); x.fliplr(); x.unfold(0, 2, 1); F.pad(x, (1, 1)); x.tril(); x.triu(); x.nanmean(1)
""",
    "empty": """
T.linalg.det(x); T.linalg.inv(x); T.linalg.slogdet(x)[1]; x @ x; T.trace(x); T.linalg.matrix_power(x, 2); T.matrix_exp(x); T.linalg.cholesky(x); T.linalg.solve(x, x); x.tril()
x.diagonal(); T.linalg.qr(x)[0]; T.linalg.svdvals(x); T.linalg.eigvalsh(x); T.linalg.pinv(x); T.linalg.norm(x); T.logdet(x); T.linalg.multi_dot([x, x]); T.kron(x, x); x.sum(0); x.prod(0)
""",
    "batch": """
T.linalg.det(x); T.linalg.inv(x); T.linalg.slogdet(x)[1]; x @ x; x.bmm(x); T.linalg.matrix_power(x, 2); T.linalg.cholesky(x); T.linalg.solve(x, x); x.softmax(2); x.amax(2); x.max(1).values; T.linalg.qr(x)[0]
T.linalg.svdvals(x); T.linalg.eigvalsh(x); T.linalg.pinv(x); T.linalg.matrix_norm(x); T.linalg.vector_norm(x, dim=(1, 2)); F.max_pool2d(x[:, None], 2); F.avg_pool2d(x[:, None], 2); F.conv2d(x[:, None], T.ones(1, 1, 2, 2))
F.layer_norm(x, (2,)); F.interpolate(x[:, None], scale_factor=2); F.scaled_dot_product_attention(x, x, x); x.median(2).values; x.std(1); x.cumsum(1); x.sort(1).values; F.cross_entropy(x[:, 0], T.tensor([]).long(), reduction="sum")
""",
    "flat": """
x.sum(0); x.mean(0); x.softmax(1); x.amax(1); x.max(1).values; x.median(1).values; x.norm(dim=1); x.norm(dim=0); x.prod(0); F.linear(x, T.ones(2, 3)); F.layer_norm(x, (3,)); x.var(1); x.std(1); x.logsumexp(1)
F.cross_entropy(x, T.tensor([]).long(), reduction="sum"); F.cosine_similarity(x, x); F.pairwise_distance(x, x); T.cdist(x, T.ones(2, 3)); F.normalize(x); x.cumsum(0); x.logsumexp(0); F.nll_loss(x, T.tensor([]).long(), reduction="sum")
""",
}


_TIES_TEXT = """
x.max(); x.min(); x.amax(); x.amin((0, 1)); x.median(); x.nanmedian(); T.aminmax(x).min; x.unfold(1, 2, 1).amax(2); T.cat([x, x], 1).amax(1)
T.stack([x, x]).amax(0); x.scatter_reduce(1, (x * 0).long(), x, "amax"); x.scatter_reduce(1, (x * 0).long(), x, "amin", include_self=False)
x.scatter_reduce(1, (x * 0).long(), x * 1, "prod"); x.index_reduce(0, T.tensor([0, 0, 0, 0]), x, "amin"); x.norm(math.inf); x.max(0).values; x.amax(0)
x.sort().values.amax(1); x.cummax(0).values; (x - x).norm(); x.renorm(2, 0, 1.0); F.max_pool1d(x, 2); x.prod(); x.median(0).values; x.quantile(0.0)
x.clone().zero_().sum() + x.sum() * 0; x.clone().fill_(3.0); (x * 2).zero_() + x; x.clone().masked_fill_(x > 0, 0.0); x.clone().clamp_(0, 1); x.clone().relu_()
x.clone().fill_(x[0, 0]); x.clone().copy_(x * 2); x.nansum(); x.logsumexp((0, 1)); x.std(); T.linalg.vector_norm(x, math.inf); T.linalg.norm(x, math.inf)
"""


def _table() -> list[tuple[str, str]]:
    rows = []
    for name in _POINTS.split():
        title, _, text = name.partition("=")
        rows.append(("points", text or f"T.{title}(x)"))
    texts = {
        "ties": _TIES_TEXT,
        "nans": "x.nanmedian(); x.nansum(); x.nanmean()",
        "points": _POINTS_TEXT,
        "pairs": _PAIRS_TEXT,
        **_POOLS,
        **_OTHERS,
    }
    for which, text in texts.items():
        rows += [(which, e) for line in text.strip().split("\n") for e in line.split("; ")]
    for line in _ROWS_TEXT.strip().split("\n"):
        rows += [("rows", e) for e in line.split("; ")]
        rows += [("wild", e) for e in line.split("; ") if "scatter" not in e and "index" not in e and "masked" not in e]
    return rows


CASES = _table()


def gradients(T: Any, which: str, text: str, device: str | None = None) -> list[Any]:
    """The gradient of each input, flat; None for one that gets none."""
    options: dict[str, Any] = {} if device is None else {"device": device}
    values = INPUTS.get(which, [[]])
    leaves = [T.tensor(v, dtype=T.float32, **options) for v in values]
    if which in SHAPES:
        leaves = [t.reshape(SHAPES[which]) for t in leaves]
    leaves = [t.detach().requires_grad_(True) for t in leaves]
    names = {"T": T, "F": T.nn.functional, "math": math, **dict(zip("xyz", leaves, strict=False))}
    out = eval(text, names)
    if which in ("points", "few", "pairs", "unit", "signs"):
        out.sum().backward()
    else:
        weights = T.arange(1, out.numel() + 1, **options).reshape(out.shape).to(out.dtype)
        out.backward(weights)
    return [None if t.grad is None else [*t.grad.reshape(-1).tolist()] for t in leaves]


def main() -> None:
    import torch

    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for which, text in CASES:
            torch.manual_seed(0)
            try:
                grads: Any = [
                    None if g is None else [x if not math.isfinite(x) else float(f"{x:.7g}") for x in g]
                    for g in gradients(torch, which, text)
                ]
            except Exception as e:  # torch refuses
                print(which, text, type(e).__name__, sep=": ")
                grads = None
            if isinstance(grads, list):
                found[f"{which}: {text}"] = grads
    lines = [f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in found.items()]
    TABLE.write_text(f'{{"torch": "{torch.__version__}",\n"rows": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
