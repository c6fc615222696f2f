"""The arguments that change with the result of a call, when that is changed in place: those it is a view of, in torch.

`python -m tests.tensor.torch_sharing` writes torch_sharing.json; `an` in a call is torch there and anneal in the tests.
Most calls are an op's trivial cases, where it has nothing to do and could give the argument itself.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_suffix(".json")
CALLS = [
    "F.dropout(X, 0.5, False)", "F.dropout(X, 0.0, True)", "F.dropout1d(X, 0.5, False)",
    "F.alpha_dropout(X, 0.5, False)", "F.feature_alpha_dropout(X, 0.5, False)", "F.rrelu(X, 0.1, 0.1, False)",
    "F.pad(X, (0, 0))", "F.pad(X, ())", "F.pad(X, (0, 0, 0, 0))", "F.pad(X[None], (0, 0), mode='reflect')",
    "F.pad(X[None], (0, 0), mode='replicate')", "F.pad(X[None], (0, 0), mode='circular')", "F.interpolate(M, (2, 3))",
    "F.interpolate(M, scale_factor=1)", "F.interpolate(M, (2, 3), mode='bilinear')",
    "F.interpolate(M, (2, 3), mode='bicubic')", "F.interpolate(M, (2, 3), mode='area')",
    "F.interpolate(M, (2, 3), mode='nearest-exact')", "F.pixel_shuffle(M, 1)", "F.pixel_unshuffle(M, 1)",
    "F.channel_shuffle(M, 1)", "F.adaptive_avg_pool2d(M, (2, 3))", "F.adaptive_max_pool2d(M, (2, 3))",
    "F.avg_pool2d(M, 1)", "F.max_pool2d(M, 1)", "F.lp_pool2d(M, 1, 1)", "F.unfold(M, 1)",
    "F.fold(M.reshape(1, 1, 6), (2, 3), 1)", "F.fold(F.unfold(M, 1), (2, 3), 1)", "F.normalize(M)",
    "F.threshold(X, -9.0, 1.0)", "F.hardtanh(X, -99., 99.)", "F.relu(X)", "F.relu6(X)", "F.leaky_relu(X, 1.0)",
    "F.prelu(X, an.ones(1))", "F.softshrink(X, 0.0)", "F.hardshrink(X, 0.0)", "F.celu(X)", "F.elu(X)",
    "F.glu(X.repeat(2, 1), 0)", "F.linear(X, an.eye(3))", "F.batch_norm(M, an.zeros(1), an.ones(1), eps=0.0)",
    "F.grid_sample(M, an.zeros(1, 2, 3, 2), align_corners=False)", "F.conv2d(M, an.ones(1, 1, 1, 1))",
    "F.embedding(an.arange(2), X)", "F.embedding_bag(an.arange(2), X, an.arange(2))",
    "F.l1_loss(X, X * 0, reduction='none')", "F.mse_loss(X, X * 0, reduction='none')", "F.layer_norm(X, [3], eps=0.0)",
    "F.scaled_dot_product_attention(M, M, M)", "F.softmax(S, 0)", "F.one_hot(an.zeros(1).to(an.int64), 1)",
    "F.kl_div(X, X, reduction='none')", "F.smooth_l1_loss(X, X*0, reduction='none', beta=0.0)",
    "F.hinge_embedding_loss(X, an.ones(2, 3), reduction='none')",
    "F.margin_ranking_loss(X, X * 0, -an.ones(2, 3), reduction='none')",
    "F.poisson_nll_loss(X, X * 0, log_input=False, reduction='none')",
    "F.binary_cross_entropy(X * 0.1, X * 0.1, reduction='none')", "F.nll_loss(-X, an.tensor([0, 1]), reduction='none')",
    "F.local_response_norm(M, 1, 0.0)", "F.cosine_similarity(S, S, 0)", "F.pairwise_distance(X, X * 0, 1, 0.0)",
    "F.logsigmoid(X)", "F.hardswish(X + 9)", "F.silu(X)",
    "an.positive(X)", "an.real(X)", "an.conj(X)", "an.conj_physical(X)", "an.resolve_conj(X)", "an.resolve_neg(X)",
    "an.clone(X)", "an.atleast_1d(X)", "an.atleast_2d(X)", "an.atleast_3d(X)", "an.broadcast_to(X, (2, 3))",
    "an.broadcast_tensors(X)", "an.broadcast_tensors(X, X)", "an.meshgrid(V, indexing='ij')",
    "an.meshgrid(V, an.ones(1), indexing='ij')[0]", "an.meshgrid(V, an.ones(1), indexing='xy')[0]",
    "an.cartesian_prod(V)", "an.block_diag(V)", "copy.copy(X)", "copy.copy(X[0])", "copy.copy(an.nn.Parameter(X))",
    "an.combinations(V, 1)", "an.block_diag(X)", "an.chain_matmul(X)", "an.einsum('ij->ij', X)",
    "an.einsum('ij->ji', X)", "an.einsum('ii->i', Q)", "an.einsum('i', V)", "an.einsum('...', V)",
    "an.einsum('ij->i', an.ones(1, 1))", "an.cat([X])", "an.cat([an.zeros(0), X])", "an.concat([X])", "an.stack([X])",
    "an.hstack([X])", "an.vstack([X])", "an.dstack([X])", "an.row_stack([X])", "an.column_stack([X])", "an.flip(X, ())",
    "an.flip(X, [])", "an.where(an.ones(2, 3).bool(), X, X)", "an.linalg.matrix_power(Q, 1)",
    "an.linalg.multi_dot([Q, an.eye(3)])", "an.kron(X, an.ones(1, 1))", "an.kron(X, an.tensor(1.0))",
    "an.special.entr(X)", "an.fft.fftshift(X)", "an.fft.ifftshift(an.ones(1))", "an.fft.fftshift(an.ones(1))",
    "an.masked.sum(S)", "an.masked.amax(S)", "an.masked.median(S, 0)", "an.masked.normalize(X, 1.0, 0)",
    "an.masked.cumsum(S, 0)", "an.as_tensor(X)", "an.asarray(X)", "an.tensor(X)", "an.nan_to_num(X)",
    "an.renorm(X, 2, 0, 1e9)", "an.lerp(X, X, 0.0)", "an.addcmul(X, X, X, value=0)",
    "an.addmm(X, an.ones(2, 0), an.ones(0, 3))", "an.hypot(X, X * 0)", "an.maximum(X, X)", "an.minimum(X, X)",
    "an.fmax(X, X)", "an.remainder(X, 100)", "an.fmod(X, 100)", "an.copysign(X, X)", "an.ldexp(X, an.zeros(1))",
    "an.nextafter(X, X)", "an.gcd(I, I * 0)", "an.lcm(I, I * 0 + 1)", "an.bitwise_and(I, I)", "an.bitwise_or(I, I)",
    "an.logical_or(B, B)", "an.logaddexp(X, X * 0 - an.inf)", "an.frexp(X)", "an.narrow_copy(X, 0, 0, 2)",
    "an.slice_scatter(X, X)", "an.select_scatter(X[:1], X[0], 0, 0)", "an.diagonal_scatter(Q, an.diagonal(Q))",
    "an.diagonal(Q)", "an.diag(Q)", "an.diag(an.ones(1, 1))", "an.diagflat(an.ones(1))", "an.diag_embed(an.ones(1))",
    "an.trace(an.ones(1, 1))", "an.tensordot(S, S, 0)", "an.tensordot(S, an.tensor(1.0), 0)",
    "an.cumulative_trapezoid(X)", "an.vander(V, 1)", "an.take(V, an.arange(3))", "an.unfold_copy(V, 0, 3, 1)",
    "an.searchsorted(V, V)", "an.utils.checkpoint.checkpoint(lambda x: x, X, use_reentrant=False)",
    "an.split_with_sizes(X, [2])", "an.hsplit(X, 1)", "an.vsplit(X, 1)", "an.dsplit(X[None], 1)",
    "an.addr(X, an.zeros(2), an.zeros(3))", "an.fake_quantize_per_tensor_affine(X, 1.0, 0, 0, 255)",
    "an.native_layer_norm(X, [3], None, None, 0.0)[0]",
    "X.to(an.float32)", "X.float()", "X.type_as(X)", "X.cpu()", "X.type(an.float32)", "X.roll(0, 0)", "X.roll(0)",
    "X.tile(1)", "X.tile((1, 1))", "X.repeat(1, 1)", "X.repeat_interleave(1, 0)", "X.repeat_interleave(1)",
    "X.rot90(0)", "X.rot90(4)", "X.diff(n=0)", "X.tril(5)", "X.triu(-5)", "X.movedim(0, 0)", "X.permute(0, 1)",
    "X.squeeze()", "X.flatten()", "X.flatten(0, 0)", "X.ravel()", "X.unflatten(0, (2,))", "X.reshape(2, 3)",
    "X.view(2, 3)", "X.expand(2, 3)", "X.expand_as(X)", "X.contiguous()", "X.narrow(0, 0, 2)", "X.chunk(1)",
    "X.split(2)", "X.tensor_split(1)", "X.unbind()", "X.select(0, 0)", "X.sum_to_size(2, 3)", "X.sum_to_size((2, 3))",
    "X.mean(dim=())", "X.amax(dim=())", "S.sum()", "S.mean()", "S.max()", "S.min()", "S.amax()", "S.prod()",
    "S.median()", "S.mode()", "S.sort()", "S.msort()", "S.cumsum(0)", "S.cumprod(0)", "S.cummax(0)",
    "S.logcumsumexp(0)", "S.logsumexp(0)", "S.kthvalue(1)", "S.topk(1)", "S.nansum()", "S.nanmedian()",
    "S.quantile(0.5)", "S.flip(0)", "S.unique()", "X.sort(0)", "X[:1].sum(0, True)", "X[:1].sum(0)", "X[:1].prod(0)",
    "X[:1].amax(0)", "X[:1].max(0)", "X[:1].max()", "X[:1].mean(0)", "X[:1].cumsum(0)", "X[:1].logsumexp(0)",
    "X[:1].median(0)", "X[:1].mode(0)", "X[:1].sort(0)", "X[:1].topk(1, 0)", "X[:1].kthvalue(1, 0)",
    "X[:1].quantile(0.5, 0)", "X[:1].flip(0)", "X[:1].roll(1, 0)", "X.index_select(0, an.arange(2))",
    "X.take_along_dim(an.zeros(2, 3).to(an.int64), 0)", "X.masked_fill(an.zeros(2, 3).bool(), 1.0)",
    "X.index_fill(0, an.zeros(0).to(an.int64), 1.0)", "X.index_add(0, an.zeros(0).to(an.int64), an.zeros(0, 3))",
    "X.index_copy(0, an.zeros(0).to(an.int64), an.zeros(0, 3))", "X.scatter(0, an.zeros(0, 3).to(an.int64), 1.0)",
    "X.scatter_add(0, an.zeros(0, 3).to(an.int64), X)", "X.masked_scatter(an.zeros(2, 3).bool(), X)",
    "X.clamp(min=None, max=9.0)", "X.clip(-99)", "X.add(0)", "X.sub(0)", "X.mul(1)", "X.div(1)", "X.pow(1)", "X ** 1",
    "X + 0", "X * 1", "X / 1", "X // 1", "X - 0", "I + 0", "I * 1", "I // 1", "I ** 1", "I & -1", "I | 0", "I ^ 0",
    "I << 0", "I >> 0", "B & True", "B | False", "B ^ False", "B == True", "B * True",
    "B.logical_and(an.ones(2, 3).bool())", "B.sign()", "B.sgn()", "B.to(an.bool)", "B.bool()", "B.clone()", "I.round()",
    "I.floor()", "I.ceil()", "I.trunc()", "I.nan_to_num()", "I.abs()", "I.sgn()", "I.conj()", "I.real", "X.real",
    "X.data", "X.detach()", "X.T", "X.mT", "X.H", "X.t()", "V.t()", "S.t()", "S.T", "Q.matrix_power(1)",
    "X.new_tensor(X)", "V.unfold(0, 3, 3)", "V.as_strided((3,), (1,))", "X.masked_select(an.ones(2, 3).bool())",
    "X[an.ones(2, 3).bool()]", "X[:]", "X[...]", "X[None]", "X[[0, 1]]", "X[an.arange(2)]", "X[0]", "X[0:2, 0:3]",
    "X.swapaxes(0, 0)", "X.adjoint()", "X.requires_grad_(False)", "X.fill_diagonal_(1.0)", "X.resolve_neg()",
    "X.nan_to_num(0.0)",
    "+X", "list(X)",
    "an.nn.utils.parameters_to_vector([X])", "an.nn.utils.rnn.pad_sequence([V])", "an.nn.Identity()(X)",
    "an.nn.Dropout(0.0)(X)", "an.nn.Dropout().eval()(X)", "an.nn.Dropout2d().eval()(M)",
    "an.nn.AlphaDropout().eval()(X)", "an.nn.Flatten()(X)", "an.nn.Unflatten(0, (2,))(X)", "an.nn.Sequential()(X)",
    "an.nn.Upsample(scale_factor=1)(M)", "an.nn.UpsamplingNearest2d(scale_factor=1)(M)", "an.nn.ZeroPad2d(0)(M)",
    "an.nn.ConstantPad2d(0, 1.0)(M)", "an.nn.ReflectionPad2d(0)(M)", "an.nn.ReplicationPad2d(0)(M)",
    "an.nn.CircularPad2d(0)(M)", "an.nn.PixelShuffle(1)(M)", "an.nn.PixelUnshuffle(1)(M)", "an.nn.ChannelShuffle(1)(M)",
    "an.nn.MaxPool2d(1)(M)", "an.nn.AvgPool2d(1)(M)", "an.nn.AdaptiveAvgPool2d((2, 3))(M)",
    "an.nn.AdaptiveMaxPool2d((2, 3))(M)", "an.nn.LPPool2d(1, 1)(M)", "an.nn.Hardtanh(-99., 99.)(X)",
    "an.nn.Threshold(-9., 0.)(X)", "an.nn.PReLU(init=1.0)(X)", "an.nn.LeakyReLU(1.0)(X)", "an.nn.RReLU().eval()(X)",
    "an.nn.Unfold(1)(M)", "an.nn.Softshrink(0.0)(X)", "an.nn.LocalResponseNorm(1, 0.0)(M)",
    "an.nn.GroupNorm(1, 1, affine=False)(M)", "an.nn.utils.rnn.unpad_sequence(X[None], an.tensor([2]), True)",
    "an.nn.utils.rnn.pack_sequence([V]).data", "an.nn.utils.rnn.pack_padded_sequence(X[:, :1], [2]).data",
    "an.nn.Parameter(X)", "an.nn.Buffer(X)",
]  # fmt: skip


def numbers(an: Any, *shape: int) -> Any:
    """Whole numbers from 1 on."""
    return an.arange(1, 1 + math.prod(shape)).reshape(shape)


def arguments(an: Any) -> dict[str, Any]:
    """The tensors of the calls by name: a matrix, a vector, a number, a square, an image, integers and bools."""
    shapes = {"X": (2, 3), "V": (3,), "S": (), "Q": (3, 3), "M": (1, 1, 2, 3)}
    floats = {name: numbers(an, *shape).to(an.float32) * 1.0 for name, shape in shapes.items()}
    return floats | {"I": numbers(an, 2, 3).to(an.int32) * 1, "B": numbers(an, 2, 3) > 3}


def tensors(an: Any, x: Any) -> list[Any]:
    """The tensors of a nest."""
    several = [y for z in x for y in tensors(an, z)] if isinstance(x, (list, tuple)) else []
    return [x] if isinstance(x, an.Tensor) else several


def changed(an: Any, call: str, given: Callable[[Any], None] = lambda x: None) -> str:
    """The names of the arguments that change when every result of a call is changed; `given` gets each before."""
    named = arguments(an)
    for x in named.values():
        given(x)
    before = {name: x.tolist() for name, x in named.items()}
    with an.no_grad():
        for result in tensors(an, eval(call, {"an": an, "F": an.nn.functional, "copy": copy} | named)):
            result.logical_not_() if result.dtype == an.bool else result.add_(1)
    return "".join([name for name, x in named.items() if x.tolist() != before[name]])


def main() -> None:
    import torch

    rows = ",\n".join(f"{json.dumps(call)}: {json.dumps(changed(torch, call))}" for call in CALLS)
    PATH.write_text(f'{{"torch": "{torch.__version__}", "changed": {{\n{rows}\n}}}}\n')


if __name__ == "__main__":
    main()
