"""Calls on tensors without elements, and with NumPy's integers and tensors of shape () where an int is due.

`python -m tests.tensor.torch_empties` writes torch_empties.json; `an` in a call is torch there and anneal in the tests.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

PATH = Path(__file__).with_suffix(".json")
SHAPES = ("0", "0, 3", "2, 0", "2, 0, 4")
WHOLE = """
    sum prod mean std var amax amin argmax argmin all any count_nonzero nansum nanmean median nanmedian max min norm aminmax
    unique nonzero cov histc bincount std_mean triu diagonal trace flatten rot90 cartesian_prod vander combinations msort
    cumulative_trapezoid gradient nan_to_num logical_not linalg.vector_norm linalg.matrix_norm
""".split()  # noqa: SIM905
AXIS = """
    sum prod mean std var amax amin argmax argmin all any count_nonzero nansum nanmean median nanmedian mode max min logsumexp
    norm aminmax softmax log_softmax cumsum cumprod cummax cummin logcumsumexp sort argsort diff unbind unique_consecutive
    trapezoid flip
""".split()  # noqa: SIM905
AXES = "sum mean std var amax amin nansum nanmean logsumexp norm all any count_nonzero".split()  # noqa: SIM905
ALONG = (  # of a tensor E along an axis D
    "an.topk(E, 0, dim=D)", "an.topk(E, 1, dim=D)", "an.kthvalue(E, 1, dim=D)", "an.quantile(E, 0.5, dim=D)",
    "an.cat([E, E + 1], dim=D)", "an.cat([an.zeros(0), E], dim=D)", "an.stack([E, E], dim=D)", "an.split(E, 1, dim=D)",
    "an.chunk(E, 2, dim=D)", "an.tensor_split(E, 2, dim=D)", "an.roll(E, 1, D)", "an.index_select(E, D, L[:0])",
    "an.repeat_interleave(E, 2, dim=D)", "F.normalize(E, dim=D)", "F.glu(E, dim=D)", "F.softmin(E, dim=D)",
    "an.renorm(E, 2, D, 1.0)", "an.cross(E, E, dim=D)", "an.gather(E, D, E.long())",
    "an.scatter_add(E, D, E.long(), E)", "F.cosine_similarity(E, E, dim=D)",
)  # fmt: skip
OF = (  # of a tensor E
    "an.linalg.vector_norm(E, float('inf'))", "an.linalg.vector_norm(E, 0)", "an.dist(E, E)", "E[E > 0]", "an.equal(E, E)",
    "an.tile(E, (2,))", "an.cdist(E, E)", "F.pdist(E)", "an.take(E, L[:0])", "an.take(E, an.tensor([0]))", "an.searchsorted(E, E)",
    "an.isin(E, E)", "an.max(E, E)", "F.one_hot(E.long(), 3)", "F.one_hot(E.long())", "an.block_diag(E, an.ones(1, 1))",
    "an.kron(E, an.ones(2, 2))", "E.view(-1)", "E.unflatten(0, (1, -1))", "E.tolist()", "E.squeeze()", "E.item()", "bool(E)",
    "F.dropout(E)", "F.embedding(E.long(), an.ones(2, 3))", "an.quantile(E, an.tensor([0.1, 0.2]))", "an.logsumexp(E, ())",
    "F.pad(E, (1, 1))", "F.gelu(E)", "F.prelu(E, an.ones(1))",
)  # fmt: skip
PRODUCTS = """
    matmul:0,3:3,4 matmul:2,0:0,4 matmul:2,3:3,0 matmul:0,3:3,0 matmul:0,0:0,0 matmul:0:0 matmul:2,0:0 matmul:0:0,3
    matmul:5,0,3:3,4 matmul:0,2,3:3,4 matmul:0,2,3:0,3,4 matmul:1,2,3:0,3,4 matmul:5,2,0:5,0,4 mm:2,0:0,4 mv:2,0:0 mv:0,2:2
    dot:0:0 outer:0:3 outer:3:0 bmm:0,2,3:0,3,4 bmm:5,2,0:5,0,4 inner:2,0:3,0 vdot:0:0 addmm:2,4:2,0:0,4 addmm:4:0,3:3,4
    addmv:2:2,0:0 addbmm:2,4:0,2,3:0,3,4 baddbmm:5,2,4:5,2,0:5,0,4 linear:0,3:4,3:4 linear:2,0:4,0:4 linear:2,3:0,3:0
    bilinear:0,2:0,3:4,2,3 pairwise_distance:0,3:0,3 pairwise_distance:2,0:2,0 conv1d:0,3,4:5,3,2 conv1d:2,3,0:5,3,2
    conv2d:0,3,4,4:5,3,2,2 conv1d:2,0,4:5,0,2 conv1d:2,3,4:0,3,2 conv_transpose1d:0,3,4:3,5,2
    scaled_dot_product_attention:0,2,3,4:0,2,3,4:0,2,3,4 scaled_dot_product_attention:1,2,0,4:1,2,3,4:1,2,3,4
    scaled_dot_product_attention:1,2,3,4:1,2,0,4:1,2,0,4 scaled_dot_product_attention:1,2,3,0:1,2,3,0:1,2,3,4
    grid_sample:0,3,4,4:0,2,2,2 grid_sample:2,3,4,4:2,0,2,2
""".split()  # noqa: SIM905
SUMS = """
    ij,jk->ik:2,0:0,3 ij,jk->ik:0,2:2,3 ij,jk->ik:2,3:3,0 i,i->:0:0 ij->:0,3 ij->i:2,0 ij->j:2,0 ii->i:0,0 ii->:0,0
    bij,bjk->bik:0,2,3:0,3,4 bij,bjk->bik:5,2,0:5,0,4 i,j->ij:0:3 i,j,k->:0:3:2 ...i,...i->...:2,0:2,0
""".split()  # noqa: SIM905
PAIRS = """
    l1_loss mse_loss smooth_l1_loss huber_loss soft_margin_loss kl_div poisson_nll_loss hinge_embedding_loss
    binary_cross_entropy binary_cross_entropy_with_logits multilabel_soft_margin_loss cross_entropy
""".split()  # noqa: SIM905
LOSSES = (  # of logits by classes
    "F.cross_entropy(an.zeros(0, 3), L[:0]", "F.cross_entropy(an.zeros(2, 0), L", "F.cross_entropy(an.zeros(0, 0), L[:0]",
    "F.cross_entropy(an.zeros(2, 3, 0), an.zeros(2, 0).long()", "F.cross_entropy(an.zeros(0, 3), L[:0], label_smoothing=0.1",
    "F.cross_entropy(an.zeros(2, 0), an.zeros(2, 0), label_smoothing=0.1", "F.cross_entropy(an.zeros(2, 3), L - 100",
    "F.cross_entropy(an.zeros(0, 0), L[:0], label_smoothing=0.1", "F.nll_loss(an.zeros(0, 3), L[:0]",
    "F.nll_loss(an.zeros(2, 0), L", "F.nll_loss(an.zeros(2, 3, 0), an.zeros(2, 0).long()",
    "F.nll_loss(an.zeros(0, 3), L[:0], weight=an.ones(3)", "F.multi_margin_loss(an.zeros(2, 0), L",
    "F.multilabel_margin_loss(an.zeros(0, 3), an.zeros(0, 3).long()",
    "F.margin_ranking_loss(an.zeros(0), an.zeros(0), an.zeros(0)",
    "F.cosine_embedding_loss(an.zeros(0, 3), an.zeros(0, 3), an.zeros(0)",
    "F.triplet_margin_loss(an.zeros(2, 0), an.zeros(2, 0), an.zeros(2, 0)",
    "F.triplet_margin_loss(an.zeros(0, 3), an.zeros(0, 3), an.zeros(0, 3)",
    "F.gaussian_nll_loss(an.zeros(0, 3), an.zeros(0, 3), an.zeros(0, 3)",
    "F.ctc_loss(an.zeros(4, 0, 3), an.zeros(0, 2).long(), L[:0], L[:0]",
)  # fmt: skip
LAYERS = (
    *[f"F.layer_norm(an.zeros({s}), [{k}])" for s, k in (("0, 3", 3), ("2, 0", 0), ("0", 0), ("2, 0, 3", 3))],
    *[f"F.rms_norm(an.zeros({s}), [{k}])" for s, k in (("0, 3", 3), ("2, 0", 0))],
    *[f"F.batch_norm(an.zeros({s}), an.zeros({c}), an.ones({c}), training={t})" for t in (False, True)
      for s, c in (("0, 3", 3), ("2, 0", 0), ("0, 3, 4", 3), ("2, 3, 0", 3))],
    *[f"F.instance_norm(an.zeros({s}))" for s in ("0, 3, 4", "2, 0, 4", "2, 3, 0")],
    *[f"F.group_norm(an.zeros({s}), {g})" for s, g in (("0, 4, 2", 2), ("2, 4, 0", 2), ("2, 0, 2", 1))],
    *[f"F.{p}_pool1d(an.zeros({s}), 2)" for p in ("max", "avg") for s in ("0, 3, 4", "2, 3, 0", "2, 0, 4")],
    *[f"F.{p}_pool2d(an.zeros({s}), 2)" for p in ("max", "avg") for s in ("0, 3, 4, 4", "2, 3, 0, 4", "2, 0, 4, 4")],
    *[f"F.adaptive_{p}_pool1d(an.zeros({s}), {n})" for p in ("max", "avg") for n in (0, 1) for s in ("0, 3, 4", "2, 3, 0")],
    *[f"F.interpolate(an.ones({s}), size=2)" for s in ("0, 3, 4", "2, 3, 0")], "F.unfold(an.ones(0, 3, 4, 4), 2)",
    *[f"F.pad(an.ones(0, 3, 4), (1, 1), mode='{mode}')" for mode in ("reflect", "replicate", "circular")],
    "F.fold(an.ones(0, 12, 9), (4, 4), 2)", "F.pixel_shuffle(an.ones(0, 4, 2, 2), 2)", "F.embedding(L[:0], an.ones(0, 3))",
    "F.embedding_bag(L[:0], an.ones(3, 2), L[:1])", "F.embedding_bag(L[:0], an.ones(3, 2), L[:0])",
    "nn.LSTM(3, 4)(an.ones(2, 0, 3))[0]", "nn.GRU(3, 4)(an.ones(2, 0, 3))[0]", "nn.RNNCell(3, 4)(an.ones(0, 3))",
    "nn.MultiheadAttention(4, 2)(*[an.ones(2, 0, 4)] * 3)[0]", "nn.TransformerEncoderLayer(4, 2, 8)(an.ones(2, 0, 4))",
    "an.einsum('...', an.zeros(0))", "an.hstack([an.ones(0), an.ones(2)])", "an.where(an.zeros(0) > 0, an.ones(1), an.ones(0))",
    "an.arange(0)", "an.linspace(0, 1, 0)", "an.eye(0, 3)", "an.zeros(2, 3)[:, []]", "an.zeros(0, 3)[-1:]", "an.zeros(0, 3)[0]",
    "an.tensor([[], []])", "an.zeros(0, 3).index_add(0, L[:0], an.zeros(0, 3))", "an.diag(an.zeros(0))",
    "an.zeros(2).scatter_reduce(0, L[:0], an.zeros(0), 'amax')", "an.linalg.det(an.ones(0, 0))", "an.linalg.inv(an.ones(0, 0))",
    "an.linalg.solve(an.ones(0, 0), an.ones(0, 2))", "an.linalg.svd(an.ones(0, 3))[1]", "an.linalg.eigvalsh(an.ones(0, 0))",
    *[f"(lambda m: (m(an.ones(0, 3)).sum().backward(), [p.grad for p in m.parameters()])[1])(nn.{layer})"
      for layer in ("Linear(3, 2)", "LayerNorm(3)", "PReLU()", "BatchNorm1d(3).eval()")],
)  # fmt: skip
SLOPES = """
    x.sum() x.mean() x.prod() x.std() x.norm() F.mse_loss(x,x*0) F.softmax(x,1).sum() x.logsumexp(1).sum() x.cumsum(1).sum()
    x.sort(1)[0].sum() F.layer_norm(x,[x.shape[1]]).sum() (x@x.T).sum() an.cat([x,x]).sum() F.normalize(x).sum() x[x>0].sum()
    F.cross_entropy(x,x.detach(),reduction='sum') x.cumprod(1).sum() F.pad(x,(1,1)).sum() F.cosine_similarity(x,x).sum()
""".split()  # noqa: SIM905
INTEGERS = """
    an.cat([X, X], 1) | an.cat([X, X], dim=1) | an.stack([X, X], 1) | an.concat([X, X], 1) | X.sum((0, 1)) | X.softmax(1)
    X.argmax(1) | X.topk(2) | X.topk(2, 1) | X.kthvalue(2) | X.std(1) | X.norm(2, 1) | X.split(1, 1) | X.chunk(2, 1)
    X.tensor_split(2) | X.tensor_split((1,)) | X.narrow(1, 0, 2) | X.select(1, 0) | X.unsqueeze(1) | X.transpose(0, 1)
    X.permute(1, 0, 2) | X.movedim(0, 1) | X.flip(1) | X.roll(1, 1) | X.rot90(1, (0, 1)) | X.flatten(1) | X.reshape(2, -1)
    X.unflatten(0, (1, 2)) | X.view(2, -1) | X.expand(2, 2, 3, 4) | X.repeat(1, 2, 1) | X.repeat_interleave(2, 1)
    X.diagonal(0, 1, 2) | X.tril(1) | X.unfold(1, 2, 1) | X.gather(1, L.view(2, 1, 1)) | X.index_select(1, L) | X.size(1)
    X.scatter(1, L.view(2, 1, 1), 1.0) | X.diff(1) | X.cummax(1) | X.renorm(2, 1, 1.0) | X.unique(dim=1) | X.quantile(0.5, 1)
    X[1] | X[0, 1] | X[:2] | X[:, ::2] | an.zeros(2, 3) | an.full((2,), 1.0) | an.arange(0, 3) | an.linspace(0, 1, 3)
    an.eye(2, 3) | an.tril_indices(2, 3, 1) | X.new_zeros(2) | an.vander(V, 2) | an.combinations(V, 2) | an.histc(V, 3)
    an.bincount(L, minlength=3) | an.tensordot(X, X, 3) | an.linalg.matrix_power(X[:, :2, :2], 2) | an.cross(X, X, dim=1)
    an.linalg.vector_norm(X, 2, 1) | an.cdist(X, X, 2) | an.block_diag(V, V) | an.as_strided(V, (2, 2), (1, 1))
    an.round(V, decimals=1) | an.mvlgamma(V + 3, 2) | V * 2 | 2 ** V | V // 2 | 3 - V | V > 1 | an.where(V > 1, 1, 0)
    an.clamp(V, 1, 2) | an.add(V, V, alpha=2) | V.masked_fill(V > 1, 5) | V.index_put((an.tensor([1]),), an.tensor(9.0))
    F.one_hot(L, 3) | F.pad(X, (1, 1)) | F.conv1d(X, X, None, 1, 1, 1, 1) | F.max_pool2d(X, (2, 1)) | F.avg_pool1d(X, 2, 1, 1)
    F.adaptive_avg_pool1d(X, 2) | F.interpolate(X, size=2) | F.pixel_shuffle(an.ones(1, 4, 1, 1), 2) | F.normalize(X, 2, 1)
    F.glu(X, 2) | F.layer_norm(X, (4,)) | F.group_norm(X, 3) | F.nll_loss(X, an.zeros(2, 4).long(), ignore_index=1)
    F.leaky_relu(V, 1) | F.hardtanh(V, 0, 1) | F.cosine_similarity(X, X, 1) | nn.Linear(2, 3).weight.shape[0]
    nn.Conv1d(2, 2, (3,), groups=2).weight.shape[1] | nn.LayerNorm((2, 3)).weight | nn.Embedding(2, 3).weight.shape[1]
    nn.Flatten(1)(X) | nn.Softmax(1)(X) | nn.MaxPool1d(2)(X) | nn.Sequential(nn.ReLU(), nn.Tanh())[1](V) | [1, 2, 3][1]
    len(range(2)) | an.hsplit(X, 3) | an.cov(X[0], correction=0) | an.take_along_dim(X, L.view(2, 1, 1), 1) | an.std_mean(X, 1)
"""
FORMS = ("np.int64({})", "np.int32({})", "an.tensor({})")


def _calls() -> Iterator[str]:
    for shape in SHAPES:
        of = f"an.zeros({shape})"
        yield from [f"an.{f}({of})" for f in WHOLE if f != "bincount"]
        yield f"an.bincount({of}.long())"
        yield from [f"an.{f}({of}, dim=(0, 1))" for f in AXES if "," in shape]
        yield from [call.replace("E", of) for call in OF]
        for d in range(shape.count(",") + 1):
            yield from [f"an.{f}({of}, {'dims' if f == 'flip' else 'dim'}={[d] if f == 'flip' else d})" for f in AXIS]
            yield from [call.replace("E", of).replace("D", str(d)) for call in ALONG]
    functions = "matmul mm mv dot outer bmm inner vdot addmm addmv addbmm baddbmm"
    for row in PRODUCTS:
        name, *shapes = row.split(":")
        yield f"{'an' if name in functions.split() else 'F'}.{name}({', '.join(f'an.ones({s})' for s in shapes)})"
    for row in SUMS:
        text, *shapes = row.split(":")
        yield f"an.einsum('{text}', {', '.join(f'an.ones({s})' for s in shapes)})"
    for r in ("mean", "sum", "none"):
        pairs = [f"an.zeros({s}), an.zeros({s})" for s in ("0", "0, 3", "2, 0")]
        yield from [f"F.{f}({p}, reduction='{r}')" for f in PAIRS for p in pairs[f == "cross_entropy" :]]
        yield from [f"{call}, reduction='{r}')" for call in LOSSES]
    yield from LAYERS
    yield from [f"slope(lambda x: {f}, an.zeros({s}))" for f in SLOPES for s in ("0, 3", "2, 0")]
    for call in [c.strip() for line in INTEGERS.strip().splitlines() for c in line.split(" | ")]:
        for form in FORMS:
            yield re.sub(r"(?<![\w.)])(\d)(?![\d.])", lambda m, form=form: form.format(m[1]), call)  # type: ignore[misc]


CALLS = list(dict.fromkeys(_calls()))


def called(an: Any, call: str) -> Any:
    """The result of the text of a call, where `an` is torch or anneal."""

    def slope(f: Any, x: Any) -> Any:
        f(x.requires_grad_()).backward()
        return x.grad

    names = {"an": an, "np": np, "F": an.nn.functional, "nn": an.nn, "slope": slope}
    names |= {"X": an.arange(24).reshape(2, 3, 4).float(), "V": an.arange(3).float(), "L": an.tensor([0, 0])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(call, names)


def told(x: Any) -> Any:
    """Dtypes, shapes and numbers as JSON has them: torch's integers are ours of 32 bits."""
    if isinstance(x, (tuple, list)):
        return [told(y) for y in x]
    if not hasattr(x, "dtype"):
        return x
    numbers = [str(round(n, 3) + 0.0) if isinstance(n, float) else str(n) for n in x.reshape(-1).tolist()]
    return {
        "dtype": str(x.dtype).rpartition(".")[2].replace("int64", "int32"),
        "shape": list(x.shape),
        "values": numbers,
    }


def main() -> None:
    import torch

    rows = []
    for call in CALLS:
        try:
            value = told(called(torch, call))
        except Exception as error:
            value = f"raises {type(error).__name__.strip('_')}"
        rows.append(f"{json.dumps(call)}: {json.dumps(value)}")
    values = ",\n".join(rows)
    PATH.write_text(f'{{"torch": "{torch.__version__}", "values": {{\n{values}\n}}}}\n')


if __name__ == "__main__":
    main()
