"""A call of every differentiable method of Tensor and function of `functional`, for tables that hold over all of them.

A case is written once for anneal and for torch: `f(M, F, *tensors)`, where M has the functions that are no methods
(`cat`) and F is `functional`. Its shapes are words: each letter is an axis, and an axis has one size wherever its
letter stands, so a table can make any axis empty. A new method or function without a case fails
`test_every_op_has_a_case`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from anneal import ops
from anneal.tensor import Tensor, functional as F

SIZES = {"a": 2, "b": 3, "c": 4, "d": 6, "e": 5, "s": 3, "t": 3, "n": 2, "k": 2, "l": 2, "i": 1}


class Case(NamedTuple):
    """`names` are the methods and functions that it stands for; `positive`: what it takes is above 0."""

    names: str
    f: Callable[..., Any]
    shapes: str = "ab"
    torch: Callable[..., Any] | None = None  # where torch writes it in another way
    positive: bool = False

    @property
    def id(self) -> str:
        return f"{self.names.split()[0]}({self.shapes})"


def ints(like: Any, values: Any) -> Any:
    """Whole numbers in the library of `like`."""
    array = np.asarray(values, np.int32)
    if isinstance(like, Tensor):
        return Tensor(array, device=like.device)
    return __import__("torch").tensor(array.astype(np.int64))


def places(like: Any, shape: Any, n: int) -> Any:
    """Whole numbers below n, of a shape."""
    return ints(like, np.arange(int(np.prod(shape))).reshape(shape) * 2 % max(n, 1))


def chosen(M: Any, condition: Any, a: Any, b: Any) -> Any:
    return condition.where(a, b) if isinstance(condition, Tensor) else M.where(condition, a, b)


def unary(*names: str, **kw: Any) -> list[Case]:
    return [Case(n, lambda M, F, x, n=n: getattr(x, n)(), **kw) for n in names]


def function(*names: str, **kw: Any) -> list[Case]:
    return [Case(n, lambda M, F, x, n=n: getattr(F, n)(x), **kw) for n in names]


def loss(*names: str, **kw: Any) -> list[Case]:
    return [Case(n, lambda M, F, x, y, n=n: getattr(F, n)(x, y), "ab,ab", **kw) for n in names]


def _method_of(name: str, torch_name: str | None = None, **kw: Any) -> list[Case]:
    """A method that torch has as a function of torch.nn.functional."""
    return [
        Case(name, lambda M, F, x: getattr(x, name)(), torch=lambda M, F, x: getattr(F, torch_name or name)(x), **kw)
    ]


CASES: list[Case] = [
    # numbers, element by element
    *unary("abs", "ceil", "cos", "cosh", "deg2rad", "erf", "erfc", "exp", "exp2", "expm1", "floor", "frac", "neg"),
    *unary("nan_to_num", "positive", "rad2deg", "relu", "round", "sigmoid", "sign", "sin", "sinc", "sinh", "square", "tan"),
    *unary("tanh", "trunc", "asinh", "atan", "contiguous", "clone", "float", "reciprocal"),
    *unary("sqrt", "rsqrt", "log", "log2", "log10", "log1p", "lgamma", "digamma", positive=True),
    Case("acos asin atanh erfinv", lambda M, F, x: (x * 0.1).acos() + (x * 0.1).asin() + (x * 0.1).atanh() + (x * 0.1).erfinv()),
    Case("acosh", lambda M, F, x: (x + 1.0).acosh(), positive=True),
    Case("cbrt", lambda M, F, x: x.cbrt(), torch=lambda M, F, x: x ** (1 / 3), positive=True),
    Case("logit", lambda M, F, x: (x * 0.1 + 0.5).logit(0.1)),
    Case("frexp", lambda M, F, x: x.frexp()[0]),
    *[c for n in ("celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish",
                  "relu6", "selu", "silu", "softplus", "softsign", "tanhshrink", "softshrink", "hardshrink")
      for c in _method_of(n)],
    Case("threshold", lambda M, F, x: x.threshold(0.5, 2.0), torch=lambda M, F, x: F.threshold(x, 0.5, 2.0)),
    Case("add", lambda M, F, x, y: x.add(y, alpha=2), "ab,ab"),
    Case("add", lambda M, F, x, y: x + y, "ab,ib"),
    Case("sub", lambda M, F, x, y: x - y, "ab,b"),
    Case("mul", lambda M, F, x, y: x * y, "ab,ab"),
    Case("div", lambda M, F, x, y: x / y, "ab,ab", positive=True),
    Case("pow", lambda M, F, x, y: x**y, "ab,ab", positive=True),
    Case("pow", lambda M, F, x: x**0),
    Case("pow", lambda M, F, x: x**3),
    Case("pow", lambda M, F, x: 2.0**x),
    Case("float_power", lambda M, F, x: x.float_power(2.5).float(), positive=True),
    Case("remainder", lambda M, F, x, y: x % y, "ab,ab", positive=True),
    Case("fmod", lambda M, F, x, y: x.fmod(y), "ab,ab", positive=True),
    Case("maximum", lambda M, F, x, y: x.maximum(y), "ab,ab"),
    Case("minimum", lambda M, F, x, y: x.minimum(y), "ab,ab"),
    Case("fmax", lambda M, F, x, y: x.fmax(y), "ab,ab"),
    Case("fmin", lambda M, F, x, y: x.fmin(y), "ab,ab"),
    Case("atan2", lambda M, F, x, y: x.atan2(y), "ab,ab"),
    Case("hypot", lambda M, F, x, y: x.hypot(y), "ab,ab"),
    Case("copysign", lambda M, F, x, y: x.copysign(y), "ab,ab"),
    Case("nextafter", lambda M, F, x, y: x.nextafter(y), "ab,ab"),
    Case("xlogy", lambda M, F, x, y: x.xlogy(y), "ab,ab", positive=True),
    Case("logaddexp", lambda M, F, x, y: x.logaddexp(y), "ab,ab"),
    Case("logaddexp2", lambda M, F, x, y: x.logaddexp2(y), "ab,ab"),
    Case("ldexp", lambda M, F, x, y: x.ldexp(y), "ab,ab"),
    Case("lerp", lambda M, F, x, y, w: x.lerp(y, w), "ab,ab,ab"),
    Case("addcmul", lambda M, F, x, y, z: x.addcmul(y, z, value=2), "ab,ab,ab"),
    Case("addcdiv", lambda M, F, x, y, z: x.addcdiv(y, z, value=2), "ab,ab,ab", positive=True),
    Case("clamp", lambda M, F, x: x.clamp(-0.5, 0.5)),
    Case("clamp_min", lambda M, F, x: x.clamp_min(0.0)),
    Case("clamp_max", lambda M, F, x: x.clamp_max(0.0)),
    Case("prelu", lambda M, F, x, w: x.prelu(w), "ab,b"),
    Case("where", lambda M, F, x, y: chosen(M, x > 0.1, x, y), "ab,ab"),
    Case("where", lambda M, F, x, y: chosen(M, (x * 0 + 1) > 0, x, y), "ab,ab"),
    *unary("adjoint", "sgn", "conj", "angle"),
    *unary("i0", positive=True),
    Case("conj_physical resolve_conj resolve_neg", lambda M, F, x: x.resolve_conj()),
    Case("polygamma", lambda M, F, x: x.polygamma(1), positive=True),
    Case("mvlgamma", lambda M, F, x: (x + 1.0).mvlgamma(2), positive=True),
    Case("as_strided", lambda M, F, x: x.reshape(-1).as_strided(x.shape, (x.shape[1], 1))),
    Case("as_strided_scatter", lambda M, F, x: (x * 0.0).as_strided_scatter(x, x.shape, (x.shape[1], 1)),
         torch=lambda M, F, x: x * 1.0),
    Case("diagonal_scatter", lambda M, F, x, y: x.diagonal_scatter(y), "ab,a"),
    Case("put", lambda M, F, x, y: x.put(places(y, y.shape, x.shape[0]), y), "a,a"),
    Case("index_reduce", lambda M, F, x, y: x.index_reduce(0, places(y, y.shape, x.shape[0]), y, "mean"), "a,a"),
    Case("masked_select", lambda M, F, x: x.masked_select(x.abs() >= 0)),
    Case("masked_fill", lambda M, F, x: x.masked_fill(x > 0.1, 2.0)),
    Case("heaviside", lambda M, F, x: x.heaviside(0.5)),
    Case("floor_divide", lambda M, F, x, y: x // y, "ab,ab", positive=True),
    Case("divmod", lambda M, F, x, y: divmod(x, y)[1], "ab,ab", torch=lambda M, F, x, y: x % y, positive=True),
    Case("cast astype half bfloat16 double", lambda M, F, x: x.double().float()),
    Case("dropout", lambda M, F, x: F.dropout(x, 0.0)),
    # movement
    Case("reshape view", lambda M, F, x: x.reshape(x.shape[1], x.shape[0])),
    Case("reshape_as view_as", lambda M, F, x, y: x.reshape_as(y), "ab,ba"),
    Case("flatten ravel", lambda M, F, x: x.flatten()),
    Case("unflatten", lambda M, F, x: x.unflatten(0, (1, x.shape[0]))),
    Case("permute permute_dims", lambda M, F, x: x.permute(1, 0)),
    Case("transpose swapaxes swapdims t matrix_transpose", lambda M, F, x: x.transpose(0, 1)),
    Case("movedim moveaxis", lambda M, F, x: x.movedim(0, 1)),
    Case("squeeze", lambda M, F, x: x.squeeze(1), "aib"),
    Case("unsqueeze expand_dims", lambda M, F, x: x.unsqueeze(1)),
    Case("expand broadcast_to", lambda M, F, x: x.expand(4, *x.shape)),
    Case("expand", lambda M, F, x: x.expand(x.shape[0], 0), "ai"),
    Case("expand_as", lambda M, F, x, y: x.expand_as(y), "ib,ab"),
    Case("flip fliplr flipud", lambda M, F, x: x.flip(0)),
    Case("roll", lambda M, F, x: x.roll(1, 0)),
    Case("rot90", lambda M, F, x: x.rot90(1, (0, 1))),
    Case("pad", lambda M, F, x: x.pad((1, 2)), torch=lambda M, F, x: F.pad(x, (1, 2))),
    Case("shrink", lambda M, F, x: x.shrink(((0, x.shape[0]), (0, 0))), torch=lambda M, F, x: x[:, :0]),
    Case("cat concat concatenate hstack column_stack", lambda M, F, x, y: M.cat([x, y], 1), "ab,ac"),
    Case("cat vstack row_stack dstack", lambda M, F, x, y: M.cat([x, y], 0), "ab,cb"),
    Case("stack", lambda M, F, x, y: M.stack([x, y], 0), "ab,ab"),
    Case("chunk split tensor_split split_with_sizes hsplit vsplit dsplit", lambda M, F, x: x.split(2, 0)[0]),
    Case("unbind unstack", lambda M, F, x: M.stack(list(x.unbind(1)), 0)),
    Case("narrow", lambda M, F, x: x.narrow(0, 0, x.shape[0])),
    Case("select", lambda M, F, x: x.select(0, 0)),
    Case("select_scatter", lambda M, F, x, y: x.select_scatter(y, 0, 0), "ab,b"),
    Case("slice_scatter update_slice", lambda M, F, x, y: x.slice_scatter(y, 0, 0, 1), "ab,ib"),
    Case("tile repeat", lambda M, F, x: x.repeat(2, 2)),
    Case("repeat_interleave", lambda M, F, x: x.repeat_interleave(2, dim=0)),
    Case("tril triu", lambda M, F, x: x.tril() + x.triu(1)),
    Case("diag diagflat", lambda M, F, x: x.diag(), "b"),
    Case("diagonal", lambda M, F, x: x.diagonal(), "ss"),
    Case("diag_embed", lambda M, F, x: x.diag_embed()),
    Case("block_diag", lambda M, F, x, y: x.block_diag(y), "ab,cd", torch=lambda M, F, x, y: M.block_diag(x, y)),
    Case("cartesian_prod", lambda M, F, x, y: x.cartesian_prod(y), "a,b", torch=lambda M, F, x, y: M.cartesian_prod(x, y)),
    Case("combinations", lambda M, F, x: x.combinations(2), "b", torch=lambda M, F, x: M.combinations(x, 2)),
    Case("atleast_1d atleast_2d atleast_3d", lambda M, F, x: M.atleast_3d(x)),
    Case("sum_to_size", lambda M, F, x: x.sum_to_size(x.shape[0], 1)),
    Case("unfold", lambda M, F, x: x.unfold(1, 2, 1)),
    Case("update_slice", lambda M, F, x: x[:1] * x[-1:], "ab"),
    # reductions
    *[Case(n, lambda M, F, x, n=n: getattr(x, n)(1)) for n in ("sum", "mean", "prod", "logsumexp", "nansum", "nanmean")],
    *[Case(n, lambda M, F, x, n=n: getattr(x, n)()) for n in ("sum", "mean", "prod", "std", "var")],
    *[Case(n, lambda M, F, x, n=n: getattr(x, n)(1)) for n in ("amax", "amin")],
    Case("max min", lambda M, F, x: x.max(1)[0]),
    Case("max min", lambda M, F, x: x.max(axis=1), torch=lambda M, F, x: x.amax(1)),
    Case("aminmax", lambda M, F, x: x.aminmax(dim=1)[1]),
    Case("std", lambda M, F, x: x.std(1, correction=0)),
    Case("var", lambda M, F, x: x.var(1, correction=0)),
    Case("std_mean var_mean", lambda M, F, x: x.std_mean(1)[0], torch=lambda M, F, x: M.std_mean(x, 1)[0]),
    Case("nanstd nanvar", lambda M, F, x: x.nanstd(1) + x.nanvar(1), torch=lambda M, F, x: x.std(1) + x.var(1)),
    Case("nanmax nanmin", lambda M, F, x: x.nanmax(1), torch=lambda M, F, x: x.amax(1)),
    *[Case("norm", lambda M, F, x, p=p: x.norm(p, 1), torch=lambda M, F, x, p=p: M.linalg.vector_norm(x, p, 1))
      for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf"))],
    Case("matrix_norm", lambda M, F, x: x.matrix_norm(), torch=lambda M, F, x: M.linalg.matrix_norm(x)),
    Case("dist", lambda M, F, x, y: x.dist(y), "ab,ab"),
    Case("renorm", lambda M, F, x: x.renorm(2.0, 0, 0.5)),
    *[Case(n, lambda M, F, x, n=n: getattr(x, n)(1)) for n in ("softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp")],
    Case("softmin", lambda M, F, x: x.softmin(1), torch=lambda M, F, x: F.softmin(x, 1)),
    Case("cummax cummin", lambda M, F, x: x.cummax(1)[0]),
    Case("cumulative_sum", lambda M, F, x: x.cumulative_sum(1), torch=lambda M, F, x: x.cumsum(1)),
    Case("cumulative_prod", lambda M, F, x: x.cumulative_prod(1), torch=lambda M, F, x: x.cumprod(1)),
    Case("diff", lambda M, F, x: x.diff()),
    Case("median nanmedian", lambda M, F, x: x.median(1)[0]),
    Case("quantile", lambda M, F, x: x.quantile(0.3, 1)),
    Case("nanquantile", lambda M, F, x: x.nanquantile(0.3, 1)),
    Case("mode", lambda M, F, x: x.mode(1)[0]),
    Case("kthvalue", lambda M, F, x: x.kthvalue(1, 1)[0]),
    Case("sort msort", lambda M, F, x: x.sort(1)[0]),
    Case("topk", lambda M, F, x: x.topk(1, 1)[0]),
    Case("cov", lambda M, F, x: x.cov()),
    Case("corrcoef", lambda M, F, x: x.corrcoef()),
    Case("trapezoid", lambda M, F, x: x.trapezoid(dx=0.5), torch=lambda M, F, x: M.trapezoid(x, dx=0.5)),
    Case("cumulative_trapezoid", lambda M, F, x: x.cumulative_trapezoid(), torch=lambda M, F, x: M.cumulative_trapezoid(x)),
    Case("pdist", lambda M, F, x: x.pdist(), torch=lambda M, F, x: F.pdist(x)),
    Case("vander", lambda M, F, x: x.vander(3), "b", torch=lambda M, F, x: M.vander(x, 3)),
    Case("matrix_power", lambda M, F, x: x.matrix_power(0), "ss"),
    Case("matrix_power", lambda M, F, x: x.matrix_power(3), "ss"),
    Case("trace", lambda M, F, x: x.trace(), "ss"),
    # indices
    Case("gather take_along_dim take_along_axis", lambda M, F, x: x.gather(0, places(x, (1, x.shape[1]), x.shape[0]))),
    Case("gather", lambda M, F, x: x.gather(0, places(x, (0, x.shape[1]), 1))),
    Case("take", lambda M, F, x: x.take(places(x, (2,), x.shape[0] * x.shape[1]))),
    Case("index_select", lambda M, F, x: x.index_select(0, places(x, (2,), x.shape[0]))),
    Case("index_select", lambda M, F, x: x.index_select(0, places(x, (0,), 1))),
    Case("index_select", lambda M, F, x: x[places(x, (2, 2), x.shape[0])]),
    Case("scatter", lambda M, F, x, y: x.scatter(0, places(x, (1, x.shape[1]), x.shape[0]), y), "ab,ib"),
    Case("scatter_add", lambda M, F, x, y: x.scatter_add(0, places(x, y.shape, x.shape[0]), y), "ab,cb"),
    Case("scatter_add", lambda M, F, x, y: x.scatter_add(0, places(x, (0, x.shape[1]), 1), y), "ab,cb"),
    Case("scatter", lambda M, F, x, y: x.scatter(0, places(x, (0, x.shape[1]), 1), y), "ab,cb"),
    Case("scatter_reduce", lambda M, F, x, y: x.scatter_reduce(0, places(x, y.shape, x.shape[0]), y, "mean"), "ab,cb"),
    Case("scatter_reduce", lambda M, F, x, y: x.scatter_reduce(0, places(x, y.shape, x.shape[0]), y, "sum"), "ab,cb"),
    Case("index_add", lambda M, F, x, y: x.index_add(0, places(x, y.shape[:1], x.shape[0]), y), "ab,cb"),
    Case("index_copy", lambda M, F, x, y: x.index_copy(0, ints(x, np.arange(x.shape[0])), y), "ab,ab"),
    Case("index_fill", lambda M, F, x: x.index_fill(0, places(x, (1,), x.shape[0]), 2.0)),
    Case("index_put", lambda M, F, x, y: x.index_put((ints(x, np.arange(x.shape[0])),), y), "ab,ab"),
    Case("masked_scatter", lambda M, F, x, y: x.masked_scatter(x > 0.1, y), "ab,ab"),
    # products
    Case("matmul dot mm bmm mv", lambda M, F, x, y: x @ y, "ab,bc"),
    Case("matmul", lambda M, F, x, y: x @ y, "nab,nbc"),
    Case("matmul", lambda M, F, x, y: x @ y, "ab,b"),
    Case("outer", lambda M, F, x, y: x.outer(y), "a,b"),
    Case("inner", lambda M, F, x, y: x.inner(y), "ab,cb"),
    Case("vdot", lambda M, F, x, y: x.vdot(y), "a,a"),
    Case("vecdot", lambda M, F, x, y: x.vecdot(y), "ab,ab", torch=lambda M, F, x, y: M.linalg.vecdot(x, y)),
    Case("tensordot", lambda M, F, x, y: x.tensordot(y, 1), "ab,bc", torch=lambda M, F, x, y: M.tensordot(x, y, 1)),
    Case("kron", lambda M, F, x, y: x.kron(y), "ab,cd"),
    Case("cross", lambda M, F, x, y: x.cross(y, dim=1), "at,at"),
    Case("einsum", lambda M, F, x, y: M.einsum("ij,jk->ik", x, y), "ab,bc"),
    Case("addmm", lambda M, F, x, y, z: x.addmm(y, z, beta=2, alpha=3), "ac,ab,bc"),
    *[Case("addmm", lambda M, F, x, y, z: x.addmm(y, z, beta=0), "ac,ab,bc")],
    Case("addmv", lambda M, F, x, y, z: x.addmv(y, z, beta=0), "a,ab,b"),
    Case("addr", lambda M, F, x, y, z: x.addr(y, z, beta=0), "ab,a,b"),
    Case("baddbmm", lambda M, F, x, y, z: x.baddbmm(y, z, beta=0), "nac,nab,nbc"),
    Case("addbmm", lambda M, F, x, y, z: x.addbmm(y, z, beta=0), "ac,nab,nbc"),
    Case("linear", lambda M, F, x, w, b: F.linear(x, w, b), "nb,cb,c"),
    Case("bilinear", lambda M, F, x, y, w, b: F.bilinear(x, y, w, b), "na,nb,cab,c"),
    # layers
    Case("conv1d", lambda M, F, x, w, b: F.conv1d(x, w, b), "nce,tck,t"),
    Case("conv2d", lambda M, F, x, w, b: F.conv2d(x, w, b), "ncee,tckk,t"),
    Case("conv3d", lambda M, F, x, w, b: F.conv3d(x, w, b), "nceee,tckkk,t"),
    Case("conv_transpose1d", lambda M, F, x, w, b: F.conv_transpose1d(x, w, b), "nce,ctk,t"),
    Case("conv_transpose2d", lambda M, F, x, w, b: F.conv_transpose2d(x, w, b), "ncee,ctkk,t"),
    Case("conv_transpose3d", lambda M, F, x, w, b: F.conv_transpose3d(x, w, b), "nceee,ctkkk,t"),
    *[Case(f"{kind}_pool{r}d", lambda M, F, x, n=f"{kind}_pool{r}d": getattr(F, n)(x, 2), "nc" + "e" * r)
      for kind in ("max", "avg") for r in (1, 2, 3)],
    *[Case(f"adaptive_{kind}_pool{r}d", lambda M, F, x, n=f"adaptive_{kind}_pool{r}d": getattr(F, n)(x, 2), "nc" + "e" * r)
      for kind in ("max", "avg") for r in (1, 2, 3)],
    Case("lp_pool1d", lambda M, F, x: F.lp_pool1d(x, 2.0, 2), "nce", positive=True),
    Case("lp_pool2d", lambda M, F, x: F.lp_pool2d(x, 2.0, 2), "ncee", positive=True),
    Case("interpolate", lambda M, F, x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), "ncee"),
    Case("pixel_shuffle", lambda M, F, x: F.pixel_shuffle(x, 2), "ncee"),
    Case("pixel_unshuffle", lambda M, F, x: F.pixel_unshuffle(x, 2), "ncdd"),
    Case("channel_shuffle", lambda M, F, x: F.channel_shuffle(x, 2), "ncee"),
    Case("unfold", lambda M, F, x: F.unfold(x, 2), "ncee"),
    Case("fold", lambda M, F, x: F.fold(x, (3, 3), 2), "ncc"),
    Case("affine_grid", lambda M, F, x: F.affine_grid(x, [x.shape[0], 1, 3, 3]), "nat"),
    Case("grid_sample", lambda M, F, x, g: F.grid_sample(x, g, align_corners=False), "ncee,nttk"),
    Case("local_response_norm", lambda M, F, x: F.local_response_norm(x, 2), "nce"),
    Case("layer_norm", lambda M, F, x, w, b: F.layer_norm(x, (x.shape[-1],), w, b), "nb,b,b"),
    Case("rms_norm", lambda M, F, x, w: F.rms_norm(x, (x.shape[-1],), w), "nb,b"),
    Case("group_norm", lambda M, F, x, w, b: F.group_norm(x, 2, w, b), "nce,c,c"),
    Case("instance_norm", lambda M, F, x: F.instance_norm(x), "nce"),
    Case("batch_norm", lambda M, F, x, w, b: F.batch_norm(x, None, None, w, b, training=True), "nce,c,c"),
    Case("normalize", lambda M, F, x: F.normalize(x)),
    Case("cosine_similarity", lambda M, F, x, y: F.cosine_similarity(x, y), "ab,ab"),
    Case("cosine_similarity", lambda M, F, x, y: F.cosine_similarity(x, y), "ai,ab"),
    Case("cdist", lambda M, F, x, y: F.cdist(x, y), "ab,cb", torch=lambda M, F, x, y: M.cdist(x, y)),
    Case("pairwise_distance", lambda M, F, x, y: F.pairwise_distance(x, y), "ab,ab"),
    Case("glu", lambda M, F, x: F.glu(x), "ac"),
    Case("gumbel_softmax", lambda M, F, x: F.gumbel_softmax(x) * 0.0, torch=lambda M, F, x: x * 0.0),
    Case("embedding", lambda M, F, w: F.embedding(places(w, (2, 2), w.shape[0]), w), "ab"),
    Case("embedding", lambda M, F, w: F.embedding(places(w, (0,), 1), w), "ab"),
    Case("scaled_dot_product_attention", lambda M, F, q, k, v: F.scaled_dot_product_attention(q, k, v), "nab,ncb,nce"),
    # losses
    *loss("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "kl_div", "binary_cross_entropy_with_logits"),
    *loss("soft_margin_loss", "poisson_nll_loss", "multilabel_soft_margin_loss", "hinge_embedding_loss"),
    Case("binary_cross_entropy", lambda M, F, x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), "ab,ab"),
    Case("gaussian_nll_loss", lambda M, F, x, y, v: F.gaussian_nll_loss(x, y, v), "ab,ab,ab", positive=True),
    Case("gaussian_nll_loss", lambda M, F, x, y, v: F.gaussian_nll_loss(x, y, v), "ab,ab,a", positive=True),
    Case("margin_ranking_loss", lambda M, F, x, y: F.margin_ranking_loss(x, y, x.detach() * 0 + 1), "ab,ab"),
    Case("triplet_margin_loss", lambda M, F, x, y, z: F.triplet_margin_loss(x, y, z), "ab,ab,ab"),
    Case("cosine_embedding_loss", lambda M, F, x, y: F.cosine_embedding_loss(x, y, (x.detach() * 0 + 1)[:, 0]), "ab,ab"),
    Case("cross_entropy", lambda M, F, x: F.cross_entropy(x, places(x, x.shape[:1], x.shape[1]))),
    Case("nll_loss", lambda M, F, x: F.nll_loss(x, places(x, x.shape[:1], x.shape[1]))),
    Case("multi_margin_loss", lambda M, F, x: F.multi_margin_loss(x, places(x, x.shape[:1], x.shape[1]))),
]  # fmt: skip

BOOLS = "gives bools or integers"
MAKES = "makes a tensor from none"
PYTHON = "gives no tensor, or one without a graph"
INTEGERS = "takes integers"
DRAWN = "draws numbers; test_random.py"
IN_PLACE = "has the graph of the op that it is named after; test_inplace.py"
WITHOUT = {
    IN_PLACE: " ".join(n for n in ops.__all__ if n.endswith("_")),
    DRAWN: "bernoulli multinomial",
    BOOLS: "all allclose any argmax argmin argsort argwhere bool bucketize count_nonzero eq equal ge greater "
    "greater_equal gt int isclose isfinite isin isinf isnan isneginf isposinf isreal le less less_equal logical_and "
    "logical_not logical_or logical_xor long lt ne nonzero nonzero_static not_equal one_hot searchsorted signbit unique unique_consecutive "
    "byte char short is_contiguous is_floating_point histc histogram bitcast",
    MAKES: "arange bartlett_window blackman_window empty empty_like eye from_numpy full full_like hamming_window "
    "hann_window kaiser_window linspace logspace new new_empty_strided new_empty new_full new_ones new_tensor new_zeros normal ones ones_like rand rand_like randint randn randn_like randperm "
    "tri tril_indices triu_indices uniform zeros zeros_like",
    PYTHON: "assign backward detach dim element_size item manual_seed ndimension nelement no_grad numel numpy realize stride "
    "get_device is_complex is_conj is_inference is_neg is_nonzero is_pinned is_same_size is_shared is_signed "
    "data_ptr set_ detach_ pin_memory share_memory_ to_dense type register_hook register_post_accumulate_grad_hook retain_grad "
    "requires_grad_ rows to to_device cpu tolist type_as zero_grad take_running_updates float",
    INTEGERS: "bincount bitwise_and bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor gcd lcm",
}


def names() -> dict[str, Any]:
    """Every public method of Tensor and function of `functional`, by name."""
    found = {n: getattr(Tensor, n) for n in dir(Tensor) if not n.startswith("_") and callable(getattr(Tensor, n))}
    return {**{n: getattr(F, n) for n in F.__all__}, **found}


def missing() -> set[str]:
    """The names that have neither a case nor a reason; an alias has those of what it names."""
    every = names()
    known = {n for c in CASES for n in c.names.split()} | {n for some in WITHOUT.values() for n in some.split()}
    same = {id(_inner(f)) for n, f in every.items() if n in known}
    return {n for n, f in every.items() if n not in known and id(_inner(f)) not in same}


def _inner(f: Any) -> Any:
    """The function below what checks its arguments: each name has a check of its own."""
    while hasattr(f, "__wrapped__"):
        f = f.__wrapped__
    return f


def arrays(case: Case, values: str = "ordinary", empty: str = "") -> list[np.ndarray[Any, Any]]:
    """Arguments: "ordinary" ones, all "equal", or all "zero"; the axis of the letter `empty` has no elements."""
    rng = np.random.default_rng(7)
    out = []
    for word in case.shapes.split(","):
        shape = [0 if x == empty else SIZES[x] for x in word]
        a = rng.permutation(int(np.prod(shape))).reshape(shape) * 0.37 % 1.9 + rng.uniform(0.01, 0.05, shape)
        a = a + 0.05 if case.positive else a - 0.9
        out.append(
            (a if values == "ordinary" else np.full(shape, 0.0 if values == "zero" else 0.75)).astype(np.float32)
        )
    return out
