"""Calls that torch refuses, and the class of its error: `python -m tests.tensor.torch_refusals` writes
torch_refusals.json with it. `an` in a call is torch there and anneal in the tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("torch_refusals.json")
ONE_AXIS = """
    sum prod mean std var amax amin argmax argmin argsort sort cumsum cumprod cummax cummin logcumsumexp softmax log_softmax
    logsumexp all any count_nonzero nansum nanmean median mode max min unbind diff flip squeeze unsqueeze aminmax
""".split()  # noqa: SIM905
AXES = (
    "sum",
    "mean",
    "std",
    "var",
    "amax",
    "amin",
    "nansum",
    "nanmean",
    "logsumexp",
    "flip",
    "count_nonzero",
    "squeeze",
)
TWO = """
    add sub mul div floor_divide remainder fmod pow maximum minimum fmax fmin atan2 hypot copysign logaddexp eq lt logical_and
    bitwise_and ldexp xlogy isclose heaviside gcd
""".split()  # noqa: SIM905
CALLS = [
    *[f"an.{f}(X, {d})" for f in ONE_AXIS for d in (3, -4) if f not in ("diff", "flip", "aminmax", "unsqueeze")],
    *[f"an.{f}(X, dim={d})" for f in ("diff", "aminmax") for d in (3, -4)],
    *[f"an.{f}(X, {d})" for f in AXES for d in ("(0, 0)", "(1, -2)", "(0, 3)")],
    *[f"an.{f}(I, J)" if f in ("bitwise_and", "gcd") else f"an.{f}(an.ones(2, 3), an.ones(2, 4))" for f in TWO],
    "an.unsqueeze(X, 4)", "an.transpose(X, 0, 3)", "an.permute(X, (0, 1))", "an.permute(X, (0, 1, 1))", "an.permute(X, (0, 1, 3))",
    "X.expand(5, 3, 4)", "X.expand(3, 4)", "X.reshape(5, 5)", "X.reshape(-1, -1)", "X.reshape(-1, 5)", "X.view(-2, 12)",
    "an.reshape(an.ones(0), (-1, 0))", "X.flatten(2, 0)", "X.unflatten(1, (2, 2))", "X.movedim((0, 1), (0, 0))", "X.movedim(0, 3)",
    "X.swapaxes(0, 5)", "X.repeat(2)", "X.repeat(-1, 1, 1)", "X.roll((1, 2), (0,))", "X.roll(1, 3)", "X.narrow(0, 1, 5)",
    "X.narrow(0, 0, -1)", "X.select(0, 2)", "X.select(3, 0)", "X.chunk(0)", "X.split(0)", "X.split((1, 2), 0)", "X.split(-1)",
    "X.tensor_split(0)", "an.cat([X, an.ones(2, 3)])", "an.cat([X, an.ones(2, 2, 2)])", "an.cat([])", "an.stack([X, an.ones(2, 3)])",
    "an.stack([])", "an.stack([X, X], 4)", "an.hstack([an.ones(2, 2), an.ones(3, 2)])", "an.index_select(X, 0, an.tensor([2]))",
    "an.gather(X, 0, an.zeros(2, 3, dtype=an.int64))", "an.gather(X, 3, an.zeros(2, 3, 4, dtype=an.int64))", "an.take(X, an.tensor([24]))",
    "X.scatter(0, an.zeros(2, 3, dtype=an.int64), 1.0)", "X.scatter_add(0, an.zeros(3, 3, 4, dtype=an.int64), X)",
    "X.index_add(0, an.tensor([0, 1, 1]), X)", "X.index_copy(0, an.tensor([0]), X)", "X.masked_fill(an.ones(5) > 0, 0.0)",
    "an.masked_select(X, an.ones(5) > 0)", "an.where(an.ones(2) > 0, an.ones(3), an.ones(3))", "X[2]", "X[0, 0, 0, 0]", "X[:, 3]",
    "X[an.tensor([0, 2])]", "X[an.tensor([True, False, True])]", "X[::0]", "an.ones(2, 3) @ an.ones(2, 3)",
    "an.mm(X, X)", "an.mm(an.ones(2, 3), an.ones(2, 3))", "an.mv(an.ones(2, 3), an.ones(2))",
    "an.dot(an.ones(2), an.ones(3))", "an.outer(an.ones(2, 2), an.ones(2))",
    "an.bmm(an.ones(2, 3, 4), an.ones(3, 4, 2))",
    "an.inner(an.ones(2, 3), an.ones(2, 4))", "an.tensordot(X, X, 1)", "an.einsum('ij,jk', an.ones(2, 3), an.ones(2, 3))",
    "an.einsum('ij', X)", "an.einsum('ij->ik', an.ones(2, 3))", "an.einsum('i,j', an.ones(2))", "an.addmm(an.ones(5), an.ones(2, 3), an.ones(3, 4))",
    "an.trace(X)", "an.trace(an.ones(3))", "an.diagonal(X, 0, 1, 1)", "an.diagonal(an.ones(3))", "an.diag(X)", "an.tril(an.ones(3))",
    "an.triu(an.ones(3))", "an.cross(an.ones(2), an.ones(2))", "an.kthvalue(X, 5)", "an.kthvalue(X, 0)", "an.topk(X, 5)", "an.topk(X, -1)",
    "an.topk(X, 1, 3)", "an.quantile(X, 1.5)", "an.quantile(X, -0.1)", "an.zeros(-1)", "an.ones(2, -3)", "an.eye(-1)",
    "an.arange(0, 3, 0)", "an.linspace(0, 1, -1)", "an.full((-1,), 0.0)", "an.randperm(-1)",
    "an.randint(3, 3, (2,))", "an.tril_indices(-1, 2)", "an.bincount(an.tensor([-1, 0]))", "an.bincount(an.ones(2))",
    "an.bincount(an.tensor([0, 1]), minlength=-1)", "an.repeat_interleave(X, -1)", "an.repeat_interleave(an.ones(3), an.tensor([1, 2]))",
    "an.amax(an.ones(0))", "an.amax(an.ones(2, 0), 1)", "an.argmax(an.ones(0))", "an.max(an.ones(0))", "an.max(an.ones(2, 0), 1)",
    "an.bitwise_and(an.ones(2), an.ones(2))", "an.bitwise_not(an.ones(2))", "an.gcd(an.ones(2), an.ones(2))", "-B", "B - B",
    "an.ones(2) << 1", "an.logical_and(an.ones(2), an.ones(3))", "an.tensor([[1, 2], [3]])", "an.ones(2).item()", "bool(an.ones(2))",
    "int(an.ones(2))", "len(an.tensor(1.0))", "list(an.tensor(1.0))", "an.ones(2, requires_grad=True).backward()",
    "an.tensor([1, 2], requires_grad=True)", "F.softmax(X, 3)", "F.one_hot(an.tensor([0, 3]), 3)", "F.one_hot(an.tensor([-1]))",
    "F.one_hot(an.ones(2))", "F.pad(X, (1,))", "F.pad(X, (1, 1, 1, 1, 1, 1, 1, 1))", "F.pad(X, (-3, -3))", "F.pad(X, (4, 4), mode='reflect')",
    "F.pad(X, (1, 1), mode='no')", "F.linear(an.ones(2, 3), an.ones(4, 2))", "F.linear(an.ones(2, 3), an.ones(4, 3), an.ones(3))",
    "F.embedding(an.tensor([5]), an.ones(3, 2))", "F.embedding(an.tensor([-1]), an.ones(3, 2))", "F.embedding(an.ones(2), an.ones(3, 2))",
    "F.conv1d(X, an.ones(2, 2, 2))", "F.conv1d(X, an.ones(2, 3, 9))", "F.conv1d(X, an.ones(2, 3, 2), stride=0)", "F.conv1d(X, an.ones(2, 3, 2), groups=2)",
    "F.conv1d(X, an.ones(2, 3, 2), padding=-1)", "F.conv1d(X, an.ones(2, 3, 2), dilation=0)", "F.conv2d(X, an.ones(2, 2, 2))",
    "F.conv1d(X, an.ones(2, 3, 2), an.ones(3))", "F.conv_transpose1d(X, an.ones(2, 3, 2))", "F.max_pool1d(X, 9)", "F.max_pool1d(X, 2, 0)",
    "F.max_pool1d(X, 0)", "F.max_pool1d(X, 2, 1, 2)", "F.avg_pool1d(X, 9)", "F.avg_pool1d(X, 2, 1, 2)", "F.avg_pool2d(an.ones(1, 1, 4, 4), 2, divisor_override=0)",
    "F.layer_norm(X, (3,))", "F.layer_norm(X, (4,), an.ones(3))", "F.batch_norm(X, an.ones(2), an.ones(2))", "F.group_norm(X, 2)",
    "F.cross_entropy(an.ones(2, 3), an.tensor([0, 3]))", "F.cross_entropy(an.ones(2, 3), an.tensor([0]))", "F.nll_loss(an.ones(2, 3), an.tensor([-1, 0]))",
    "F.cross_entropy(an.ones(2, 3), an.ones(2, 2))", "F.mse_loss(an.ones(2), an.ones(2), reduction='no')", "F.mse_loss(an.ones(2, 3), an.ones(2, 4))",
    "F.binary_cross_entropy(an.ones(2), an.ones(3))", "F.interpolate(X, size=(2, 2))", "F.interpolate(X)", "F.interpolate(X, size=0)",
    "F.interpolate(X, scale_factor=2, mode='no')", "F.dropout(X, 1.5)", "F.dropout(X, -0.1)", "F.glu(an.ones(3))", "F.pixel_shuffle(an.ones(1, 3, 2, 2), 2)",
    "F.unfold(an.ones(1, 1, 2, 2), 3)", "F.fold(an.ones(1, 4, 3), (3, 3), 2)", "F.cosine_similarity(an.ones(2, 3), an.ones(2, 4))",
    "F.adaptive_avg_pool1d(X, -1)", "F.scaled_dot_product_attention(an.ones(2, 3), an.ones(2, 4), an.ones(2, 4))",
    "an.linalg.inv(an.ones(2, 3))", "an.linalg.inv(an.zeros(2, 2)).tolist()", "an.linalg.det(an.ones(2, 3))", "an.linalg.solve(an.eye(2), an.ones(3))",
    "an.linalg.cholesky(-an.eye(2)).tolist()", "an.linalg.matrix_power(an.ones(2, 3), 2)", "an.linalg.qr(an.ones(3))", "an.linalg.svd(an.ones(3))",
    "an.linalg.norm(X, 'fro', (0, 0))", "an.linalg.norm(X, 'no')", "an.linalg.eigh(an.ones(2, 3))", "an.linalg.multi_dot([an.ones(2, 2)])",
    "an.searchsorted(an.ones(2, 3), an.ones(3, 3))", "an.meshgrid(an.ones(2, 2), an.ones(2))", "an.cartesian_prod(an.ones(2, 2))", "an.vander(an.ones(2, 2))",
    "an.combinations(an.ones(2, 2))", "an.broadcast_to(X, (2, 3))", "an.multinomial(an.ones(3), 4)", "an.multinomial(an.ones(2, 2, 2), 1)",
    "an.normal(0.0, -1.0, (2,))", "X.clone().fill_(an.ones(2))", "X.clone().copy_(an.ones(5))",
    "an.rot90(X, 1, (0, 0))", "an.rot90(an.ones(2))", "an.trapezoid(X, an.ones(5))", "an.cdist(an.ones(2, 3), an.ones(2, 4))", "an.histc(X, 0)",
    "an.histc(X, 3, 2.0, 1.0)", "an.isin(an.tensor([1.0]), 'a')", "an.clamp(X)", "an.logit(X, 'a')", "an.polygamma(-1, X)", "an.renorm(X, 2, 3, 1.0)",
    # whole numbers and lists of them
    "an.linspace(0, 1, 2.5)", "X.narrow(0, 0.5, 1)", "X.reshape(2, 'a')", "X.sum('a')", "X.chunk(1.5)", "X.repeat(1, 1, 1.5)", "an.zeros(1.5)",
    "X.expand(2, 3, None)", "X.squeeze(1.5)", "an.eye(2.5)", "X.narrow(0, 3, 0)", "an.tensor(1.0).unbind()", "X.view('a', 1)",
    # indices
    "X[1.5]", "X['a']", "X[an.tensor(1.1)]",  "X[[True, False, True]]", "an.tensor(3.0)[0]", "X.__setitem__((0, 0, 0, 0), 1)", "X[:, -4]",
    "X.gather(0, an.tensor([1]))", "an.ones(2, 1, 1).gather(0, an.zeros(3, 4, 5, dtype=an.int64))", "X[an.tensor([0]), an.tensor([0, 1, 2]), an.tensor([0, 1])]",
    # values of another dtype, which would be rounded as they are written
    "X.half().scatter(0, an.zeros(2, 3, 4, dtype=an.int64), X)", "X.half().scatter_add(0, an.zeros(2, 3, 4, dtype=an.int64), X)",
    "X.half().scatter_reduce(0, an.zeros(2, 3, 4, dtype=an.int64), X, 'sum')", "X.half().index_add(0, an.tensor([0, 1]), X)",
    "X.half().index_copy(0, an.tensor([0, 1]), X)", "X.half().index_reduce(0, an.tensor([0, 1]), X, 'prod')", "X.half().put_(an.tensor([0]), an.ones(1))",
    "X.half().index_put((an.tensor([0, 1]),), X)", "X.half().index_put((an.tensor([0, 1]),), X, accumulate=True)", "X.half().masked_scatter(X > 0, X)",
    "X.scatter(0, an.zeros(2, 3, 4, dtype=an.int64), X.int())", "X.int().scatter_add(0, an.zeros(2, 3, 4, dtype=an.int64), X)",
    # modes, ways and dtypes that there are not
    "an.linspace(5, 10, 3, dtype=an.bool)", "an.logspace(0, 1, 3, dtype=an.bool)", "an.arange(2, dtype=an.bool)", "an.rand(2, dtype=an.int32)",
    "X.scatter_reduce(0, an.zeros(2, 3, 4, dtype=an.int64), X, 'no')", "X.scatter(0, an.zeros(2, 3, 4, dtype=an.int64), X, reduce='no')",
    "an.div(X, X, rounding_mode='no')", "an.einsum('...i...->', X)", "an.einsum('i...j,ji...->...', X, X)", "an.cat([an.tensor(3.0), an.tensor(3.0)])",
    # numbers outside of what a function is defined for
    "F.hardtanh(X, 0.5, -0.5)", "F.softshrink(X, -0.5)", "F.rrelu(X, 0.3, 0.1)", "F.celu(X, 0)", "an.isclose(X, X, rtol=-0.1)", "an.allclose(X, X, atol=-0.1)",
    "F.triplet_margin_loss(X, X, X, margin=-1)", "F.triplet_margin_with_distance_loss(X, X, X, margin=0)", "F.huber_loss(X, X, delta=0)",
    "F.smooth_l1_loss(X, X, beta=-1)", "F.instance_norm(an.ones(1, 2, 1))", "an.native_layer_norm(X, (), None, None, 1e-5)",
    "an.native_layer_norm(X, (3,), None, None, 1e-5)", "an.cov(X[0], fweights=an.ones(4))", "X.mean(dtype=an.int64)", "an.flipud(an.tensor(1.0))",
    "an.roll(an.tensor(1.0), 0, 0)", "an.multinomial(an.zeros(3), 2).tolist()",
    "an.bernoulli(an.tensor([0.5, 1.5])).tolist()", "an.bernoulli(an.tensor([0.5, an.nan])).tolist()", "F.cross_entropy(an.ones(2, 3), an.ones(2, 3), ignore_index=0)",
    "an.fft.rfft(an.tensor(1.0))", "an.fft.fft(an.tensor(1.0))", "an.signal.windows.hann(3, dtype=an.int64)",
    "X.unfold(0, 3, 1)", "X.unfold(0, -1, 1)", "X.unfold(0, 1, 0)", "X.unfold(3, 1, 1)", "an.meshgrid(an.ones(2), indexing='no')",
    "F.scaled_dot_product_attention(X, X, X, attn_mask=an.ones(2, 3, 3), is_causal=True)", "F.cross_entropy(an.ones(2, 3), an.ones(2, 3), reduction='no')",
    "F.nll_loss(an.ones(2, 3), an.tensor([0, 1]), reduction='no')", "F.conv2d(an.ones(1, 1, 6, 7), an.ones(6, 1, 3, 3), dilation=3)",
    "F.conv2d(an.ones(2, 16, 2, 2), an.ones(32, 16, 3, 3), padding=(1, 1, 1))", "F.max_pool2d(an.ones(1, 1, 4, 4), 2, padding=(1, 1, 1))",
]  # fmt: skip


def called(an: Any, call: str) -> object:
    """The result of the text of a call, where `an` is torch or anneal."""
    names = {"an": an, "F": an.nn.functional, "X": an.ones(2, 3, 4), "B": an.tensor([True])}
    return eval(call, names | {"I": an.tensor([[1, 2, 3]]), "J": an.tensor([1, 2])})


def main() -> None:
    import torch

    classes: dict[str, str] = {}
    for call in CALLS:
        try:
            called(torch, call)
        except Exception as error:
            classes[call] = type(error).__name__.lstrip("_")
    assert classes.keys() == set(CALLS), set(CALLS) - classes.keys()
    PATH.write_text(json.dumps({"torch": torch.__version__, "classes": classes}, indent=0) + "\n")


if __name__ == "__main__":
    main()
