"""A right call of every public op, for the table of wrong ones (test_arguments.py): the arguments by position, then by
name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from anneal import nn, tensor as front
from anneal.tensor import Generator, Tensor, functional, random


class Row(NamedTuple):
    """A right call: `args` may hold tensors, made on the device at hand by `made`."""

    args: tuple[Any, ...]
    options: dict[str, Any]


class T(NamedTuple):
    """A tensor of a row: ints as given, floats of a shape otherwise."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    values: Any = None


def made(x: Any, device: str) -> Any:
    if isinstance(x, T):
        if x.values is not None:
            return Tensor(np.array(x.values, x.dtype), device=device)
        count = int(np.prod(x.shape))
        values = np.linspace(0.25, 2.0, count) if x.dtype.startswith("float") else np.arange(count) % 3
        return Tensor(values.reshape(x.shape).astype(x.dtype), device=device)
    if isinstance(x, (list, tuple)):
        return type(x)([made(y, device) for y in x])
    return x


def row(*args: Any, **options: Any) -> Row:
    return Row(args, options)


X = T((2, 3))
S = T((3, 3))
V = T((3,))
W = T((2,))
I = T((2, 3), "int32")
B = T((2, 3), "bool")
P = T((2, 3), "int32", [[0, 1, 0], [1, 0, 1]])
IMAGE = {1: T((1, 2, 5)), 2: T((1, 2, 5, 5)), 3: T((1, 2, 4, 4, 4))}
KERNEL = {1: T((2, 2, 2)), 2: T((2, 2, 2, 2)), 3: T((2, 2, 2, 2, 2))}

METHODS: dict[str, Row] = {
    "clamp_": row(X, 0.5, 1.0),
    "fill_": row(X, 2.0),
    "fill_diagonal_": row(X, 2.0),
    "lerp_": row(X, X, 0.5),
    **{
        name: row(X, X)
        for name in [
            "add",
            "sub",
            "subtract",
            "mul",
            "multiply",
            "div",
            "divide",
            "true_divide",
            "floor_divide",
            "remainder",
            "fmod",
            "divmod",
            "pow",
            "maximum",
            "minimum",
            "eq",
            "ne",
            "not_equal",
            "lt",
            "less",
            "gt",
            "greater",
            "le",
            "less_equal",
            "ge",
            "greater_equal",
            "isclose",
            "allclose",
            "isin",
            "logical_and",
            "logical_or",
            "logical_xor",
            "atan2",
            "arctan2",
            "copysign",
            "hypot",
            "xlogy",
            "logaddexp",
            "logaddexp2",
            "fmax",
            "fmin",
            "float_power",
            "ldexp",
            "nextafter",
            "equal",
            "heaviside",
            "dist",
            "assign",
            "add_",
            "sub_",
            "mul_",
            "div_",
            "copy_",
            "type_as",
            "expand_as",
            "reshape_as",
            "view_as",
            "vecdot",
            "inner",
            "kron",
            "binary_cross_entropy_with_logits",
            "binary_cross_entropy",
            "mse_loss",
            "l1_loss",
            "huber_loss",
            "smooth_l1_loss",
            "kl_div",
            "masked_scatter",
        ]
    },
    **{
        name: row(I, I)
        for name in [
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "bitwise_left_shift",
            "bitwise_right_shift",
            "gcd",
            "lcm",
        ]
    },
    **{name: row(S, S) for name in ["matmul", "mm", "dot", "cross"]},
    **{name: row(T((1, 2, 2)), T((1, 2, 2))) for name in ["bmm"]},
    **{name: row(V, V) for name in ["ger", "outer", "vdot"]},
    **{name: row(X, 2) for name in ["chunk", "tensor_split"]},
    "addcdiv": row(X, X, X),
    "addcmul": row(X, X, X),
    "lerp": row(X, X, 0.5),
    "addmm": row(S, S, S),
    "addmv": row(V, S, V),
    "addr": row(S, V, V),
    "baddbmm": row(T((1, 2, 2)), T((1, 2, 2)), T((1, 2, 2))),
    "addbmm": row(T((2, 2)), T((1, 2, 2)), T((1, 2, 2))),
    "masked_scatter": row(X, B, X),
    "masked_fill": row(X, B, 1.0),
    "mv": row(S, V),
    "clamp": row(X, 0.5, 1.0),
    "clip": row(X, 0.5, 1.0),
    "clamp_min": row(X, 0.5),
    "clamp_max": row(X, 0.5),
    "where": row(B, X, X),
    "prelu": row(X, 0.5),
    "threshold": row(X, 1.0, 0.0),
    "bitcast": row(X, "int32"),
    "astype": row(X, "int32"),
    "cast": row(X, "int32"),
    "view": row(X, 3, 2),
    "reshape": row(X, 3, 2),
    "expand": row(X, 2, 2, 3),
    "broadcast_to": row(X, 2, 2, 3),
    "permute": row(X, 1, 0),
    "permute_dims": row(X, (1, 0)),
    "flip": row(X, 1),
    "roll": row(X, 1, 0),
    "repeat": row(X, 2, 1),
    "tile": row(X, 2),
    "repeat_interleave": row(X, 2, 0),
    "pad": row(X, (1, 1)),
    "shrink": row(X, ((0, 1), (1, 2))),
    "narrow": row(X, 1, 0, 2),
    "unflatten": row(X, 1, (1, 3)),
    "movedim": row(X, 0, 1),
    "moveaxis": row(X, 0, 1),
    "unsqueeze": row(X, 0),
    "split": row(X, 1),
    "split_with_sizes": row(X, (1, 1)),
    "hsplit": row(X, 3),
    "vsplit": row(X, 2),
    "dsplit": row(T((1, 2, 2)), 2),
    "unfold": row(X, 1, 2, 1),
    "select": row(X, 1, 0),
    "select_scatter": row(X, W, 1, 0),
    "slice_scatter": row(X, T((1, 3)), 0, 0, 1),
    "tensordot": row(S, S, 1),
    "trace": row(S),
    "t": row(X),
    "diag": row(S),
    "matrix_power": row(S, 2),
    "matrix_norm": row(S),
    "sum_to_size": row(X, 1, 3),
    "block_diag": row(X, X),
    "cartesian_prod": row(V, V),
    "combinations": row(V),
    "vander": row(V),
    "cumsum": row(X, 0),
    "cumprod": row(X, 0),
    "cummax": row(X, 0),
    "cummin": row(X, 0),
    "logcumsumexp": row(X, 0),
    "cumulative_sum": row(X, 0),
    "cumulative_prod": row(X, 0),
    "quantile": row(X, 0.5),
    "nanquantile": row(X, 0.5),
    "topk": row(X, 1),
    "kthvalue": row(X, 1),
    "histc": row(X, 3, 0, 1),
    "bincount": row(T((3,), "int32"), V, 3),
    "searchsorted": row(V, V),
    "bucketize": row(V, V),
    "renorm": row(X, 2.0, 0, 1.0),
    "gather": row(X, 0, P),
    "take": row(X, P),
    "rows": row(X, P),
    "index_select": row(X, 0, T((2,), "int32")),
    "take_along_dim": row(X, P, 0),
    "take_along_axis": row(X, P, 0),
    "scatter": row(X, 0, P, X),
    "scatter_add": row(X, 0, P, X),
    "scatter_reduce": row(X, 0, P, X, "sum"),
    "index_add": row(X, 0, T((2,), "int32"), X),
    "index_copy": row(X, 0, T((2,), "int32"), X),
    "index_fill": row(X, 0, T((2,), "int32"), 1.0),
    "index_put": row(X, (T((2,), "int32"),), 1.0),
    "update_slice": row(X, T((1, 1)), (0, 0)),
    "one_hot": row(P, 3),
    "masked_select": row(X, B),
    "unique": row(X),
    "unique_consecutive": row(X),
    "bitwise_not": row(I),
    "bitwise_invert": row(I),
    "new_full": row(X, (2,), 1.0),
    "new_empty": row(X, 2),
    "new_empty_strided": row(X, (2,), (1,)),
    "set_": row(X, X),
    "is_same_size": row(X, X),
    "is_nonzero": row(T((1,))),
    "polygamma": row(X, 1),
    "mvlgamma": row(T((3,), "float32", [2.0, 3.0, 4.0]), 2),
    "as_strided": row(X, (2, 2), (1, 2)),
    "as_strided_scatter": row(X, T((2, 2)), (2, 2), (1, 2)),
    "diagonal_scatter": row(X, W),
    "put": row(X, T((2,), "int32"), W),
    "index_reduce": row(X, 0, T((2,), "int32"), X, "mean"),
    "histogram": row(X, 3),
    "narrow_copy": row(X, 1, 0, 2),
    "unsafe_chunk": row(X, 2),
    "unsafe_split": row(X, 1),
    "multinomial": row(X, 1),
    "bernoulli": row(T((3,), "float32", [0.0, 0.5, 1.0])),
    **{f"atleast_{n}d": row(X) for n in (1, 2, 3)},
    "nonzero_static": row(X, size=3),
    "geometric_": row(X, 0.5),
    **{name: row(X) for name in ["uniform_", "normal_"]},
    "new_ones": row(X, 2),
    "new_zeros": row(X, 2),
    "new": row(X, 2),
    "new_tensor": row(X, [1.0]),
    "full_like": row(X, 1.0),
    "item": row(T((1,))),
    "fliplr": row(X),
    "cat": row(X, X),
    "concat": row(X, X),
    "concatenate": row(X, X),
    "stack": row(X, X),
    "einsum": row("ij,jk->ik", X, S),
    **{name: row(X, X) for name in ["hstack", "vstack", "row_stack", "dstack", "column_stack"]},
    # made from nothing
    "arange": row(0, 3),
    "linspace": row(0.0, 1.0, 3),
    "logspace": row(0.0, 1.0, 3),
    "full": row((2,), 1.0),
    **{name: row(2, 3) for name in ["zeros", "ones", "empty", "rand", "randn", "uniform", "normal"]},
    "eye": row(2),
    "tri": row(2),
    "tril_indices": row(2, 2),
    "triu_indices": row(2, 2),
    **{
        name: row(3)
        for name in ["hann_window", "hamming_window", "blackman_window", "kaiser_window", "bartlett_window", "randperm"]
    },
    "randint": row(0, 5, (2,)),
    "from_numpy": row(np.ones(2, np.float32)),
    "manual_seed": row(0),
}

FUNCTIONS: dict[str, Row] = {
    **{f"avg_pool{n}d": row(IMAGE[n], 2) for n in (1, 2, 3)},
    **{f"max_pool{n}d": row(IMAGE[n], 2) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": row(IMAGE[n], 2) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": row(IMAGE[n], 2) for n in (1, 2, 3)},
    **{f"lp_pool{n}d": row(IMAGE[n], 2.0, 2) for n in (1, 2)},
    **{f"conv{n}d": row(IMAGE[n], KERNEL[n], W) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": row(IMAGE[n], KERNEL[n], W) for n in (1, 2, 3)},
    **{
        name: row(X, X)
        for name in [
            "binary_cross_entropy",
            "binary_cross_entropy_with_logits",
            "mse_loss",
            "l1_loss",
            "huber_loss",
            "smooth_l1_loss",
            "kl_div",
            "soft_margin_loss",
            "hinge_embedding_loss",
            "poisson_nll_loss",
            "multilabel_soft_margin_loss",
            "pairwise_distance",
            "cosine_similarity",
            "cdist",
        ]
    },
    **{name: row(X, X, X) for name in ["margin_ranking_loss", "gaussian_nll_loss", "triplet_margin_loss"]},
    "cosine_embedding_loss": row(X, X, W),
    "multi_margin_loss": row(X, T((2,), "int32")),
    "cross_entropy": row(X, T((2,), "int32")),
    "nll_loss": row(X, T((2,), "int32")),
    "embedding": row(P, X),
    "linear": row(X, X, W),
    "bilinear": row(W, V, T((2, 2, 3))),
    "layer_norm": row(X, 3, V, V),
    "rms_norm": row(X, 3, V),
    "group_norm": row(T((2, 4)), 2),
    "instance_norm": row(IMAGE[1]),
    "local_response_norm": row(IMAGE[1], 2),
    "batch_norm": row(X, V, V),
    "dropout": row(X),
    "normalize": row(X),
    "glu": row(T((2, 4))),
    "gumbel_softmax": row(X),
    "interpolate": row(IMAGE[2], 4),
    "pixel_shuffle": row(T((1, 4, 2, 2)), 2),
    "pixel_unshuffle": row(T((1, 1, 4, 4)), 2),
    "channel_shuffle": row(T((1, 4, 2)), 2),
    "native_channel_shuffle": row(T((1, 4, 2)), 2),
    "fold": row(T((1, 4, 4)), (3, 3), 2),
    "unfold": row(IMAGE[2], 2),
    "affine_grid": row(T((1, 2, 3)), (1, 1, 2, 2)),
    "grid_sample": row(IMAGE[2], T((1, 2, 2, 2))),
    "scaled_dot_product_attention": row(T((1, 3, 2)), T((1, 3, 2)), T((1, 3, 2))),
}

RANDOM: dict[str, Row] = {
    **{name: METHODS[name] for name in ["rand", "randn", "uniform", "normal", "randint", "randperm", "manual_seed"]},
    **{name: row() for name in ["fork_rng", "get_rng_state", "initial_seed", "seed"]},
    "set_rng_state": row(T((2,), "int64", [1, 0])),
    "random_bits": row(2),
    "bernoulli": row(0.5, 2),
    "categorical": row(X, 2),
    "multinomial": row(X, 2),
}

INIT: dict[str, Row] = {
    name: row((3, 2)) for name in ["normal", "uniform", "kaiming_uniform", "xavier_normal", "xavier_uniform", "fan"]
} | {"constant": row((2,), 1.0), "skipped": row(), "blank": row()}
INIT |= {
    f"{name}_": row(S)
    for name in [
        *("eye", "kaiming_normal", "kaiming_uniform", "normal", "ones", "orthogonal", "trunc_normal", "uniform"),
        *("xavier_normal", "xavier_uniform", "zeros"),
    ]
} | {"constant_": row(X, 1.0), "dirac_": row(KERNEL[1]), "sparse_": row(X, 0.5), "calculate_gain": row("relu")}

FRONT: dict[str, Row] = {
    "meshgrid": row(V, V),
    "broadcast_tensors": row(X, V),
}

LAYERS: dict[str, Row] = {
    **{f"{kind}{n}d": row(2, 2, 2) for kind in ("Conv", "ConvTranspose") for n in (1, 2, 3)},
    **{f"{kind}{n}d": row(2) for kind in ("MaxPool", "AvgPool") for n in (1, 2, 3)},
    **{f"BatchNorm{n}d": row(2) for n in (1, 2, 3)},
    **{f"{kind}{n}d": row(2) for kind in ("AdaptiveAvgPool", "AdaptiveMaxPool", "MaxUnpool") for n in (1, 2, 3)},
    **{f"{kind}Pad{n}d": row(1) for kind in ("Zero", "Reflection", "Replication", "Circular") for n in (1, 2, 3)},
    **{f"ConstantPad{n}d": row(1, 0.5) for n in (1, 2, 3)},
    **{f"LPPool{n}d": row(2.0, 2) for n in (1, 2, 3)},
    **{f"InstanceNorm{n}d": row(2) for n in (1, 2, 3)},
    **{f"FractionalMaxPool{n}d": row(2, 2) for n in (2, 3)},
    **{f"Lazy{kind}{n}d": row(2, 2) for kind in ("Conv", "ConvTranspose") for n in (1, 2, 3)},
    **{f"Lazy{kind}{n}d": row() for kind in ("BatchNorm", "InstanceNorm") for n in (1, 2, 3)},
    "LazyLinear": row(2),
    "SyncBatchNorm": row(2),
    "LocalResponseNorm": row(2),
    "CrossMapLRN2d": row(2),
    "Unflatten": row(1, [2, 2]),
    "Unfold": row(2),
    "Fold": row(4, 2),
    "PixelShuffle": row(2),
    "PixelUnshuffle": row(2),
    "ChannelShuffle": row(2),
    "UpsamplingNearest2d": row(4),
    "UpsamplingBilinear2d": row(4),
    "Threshold": row(0.5, 0.5),
    "EmbeddingBag": row(3, 2),
    "Bilinear": row(2, 2, 2),
    "MultiheadAttention": row(4, 2),
    "TransformerEncoderLayer": row(4, 2, 8),
    "TransformerDecoderLayer": row(4, 2, 8),
    "Transformer": row(4, 2, 1, 1, 8),
    "LinearCrossEntropyLoss": row(4, 3),
    "AdaptiveLogSoftmaxWithLoss": row(8, 12, [3, 6]),
    **{f"{name}Cell": row(2, 3) for name in ["RNN", "GRU", "LSTM"]},
    "Upsample": row(4),
    "Linear": row(2, 3),
    "Embedding": row(3, 2),
    "LayerNorm": row(2),
    "RMSNorm": row(2),
    "GroupNorm": row(2, 4),
    **{name: row(2, 3) for name in ["RNN", "GRU", "LSTM"]},
    "SelfAttention": row(4, 2),
    "GroupedQueryAttention": row(4, 2, 1),
    "RotaryEmbedding": row(4, 8),
    "SwiGLU": row(4, 8),
    "PatchEmbed": row(4, 2, 3, 8),
}

# Called on a list of tensors too.
JOINED = (
    *("cat", "concat", "concatenate", "stack", "hstack", "vstack", "row_stack", "dstack", "column_stack"),
    *("atleast_1d", "atleast_2d", "atleast_3d"),
)

# Of the other tensor they take its shape or its dtype alone, or give each back on its own device.
OWN_DEVICE = ("is_same_size", "expand_as", "reshape_as", "view_as", "type_as", "meshgrid", "broadcast_tensors")

# Not ops: what they are is said beside them.
NOT_OPS = {
    "no_grad": "a context",
    "backward": "takes a gradient; its errors are GradientErrors and have no op's name",
    "realize": "takes tensors and no argument besides",
    "requires_grad_": "a flag of the tensor",
    "to": "a device, a dtype or a tensor, in any order",
    "to_device": "as `to`",
    "register_hook": "takes a function",
    "retain_grad": "a flag of the tensor",
    "register_post_accumulate_grad_hook": "takes a function",
    "take_running_updates": "what an optimiser asks for",
    "cpu": "another device",
    **dict.fromkeys(
        [
            "numpy",
            "tolist",
            "numel",
            "nelement",
            "nbytes",
            "element_size",
            "dim",
            "ndimension",
            "pin_memory",
            "share_memory_",
            "to_dense",
            "zero_grad",
            "detach",
            "is_floating_point",
        ],
        "facts",
    ),
}


class Case(NamedTuple):
    """An op: how it is called, the name that its errors carry, and a right call."""

    call: Callable[..., Any]
    title: str
    row: Row


def _methods() -> Iterator[tuple[str, Case]]:
    for name in dir(Tensor):
        found = getattr(Tensor, name)
        if name.startswith("_") or not callable(found) or name in NOT_OPS:
            continue
        given = METHODS.get(name) or FUNCTIONS.get(name) or METHODS.get(name.removesuffix("_"))
        if given is None and not _needs(found)[1:]:
            given = row(X)
        if given is None:
            raise LookupError(f"Tensor.{name} has no row in tests/tensor/argument_rows.py: add a right call of it")
        yield f"Tensor.{name}", Case(found, name, given)


def _needs(function: Any) -> list[str]:
    return [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.KEYWORD_ONLY)
    ]


def _those_of(module: ModuleType, rows: dict[str, Row]) -> Iterator[tuple[str, Case]]:
    short = module.__name__.rpartition(".")[2]
    for name in module.__all__:
        found = getattr(module, name)
        if name in NOT_OPS or not inspect.isfunction(found):
            continue
        given = rows.get(name)
        if given is None and hasattr(Tensor, name):  # a method under torch's name for the function
            given = METHODS.get(name) or row(X)
        if given is None:
            raise LookupError(f"{short}.{name} has no row in tests/tensor/argument_rows.py: add a right call of it")
        yield f"{short}.{name}", Case(found, name, given)


def _layers() -> Iterator[tuple[str, Case]]:
    for name in nn.__all__:
        found = getattr(nn, name)
        if not (inspect.isclass(found) and issubclass(found, nn.Module)) or name in COMPOSED:
            continue
        if name not in LAYERS and _needs(found):
            raise LookupError(f"nn.{name} has no row in tests/tensor/argument_rows.py: add a right call of it")
        yield f"nn.{name}", Case(found, name, LAYERS.get(name, row()))


# Made of layers, a configuration or modules: what is wrong with them is said by the layers.
COMPOSED = {
    "Module",
    "ModuleList",
    "DataParallel",
    "RNNBase",
    "RNNCellBase",
    "Identity",
    "ModuleDict",
    "ParameterList",
    "ParameterDict",
    "Sequential",
    "TransformerEncoder",
    "TransformerDecoder",
    "GPT",
    "Llama",
    "LlamaBlock",
    "Block",
    "ViT",
    "ViTBlock",
    "MLP",
    "CausalSelfAttention",
}


def cases() -> dict[str, Case]:
    """Every public op by name. LookupError for one without a row."""
    found = [
        *_methods(),
        *_those_of(functional, FUNCTIONS),
        *_those_of(random, RANDOM),
        *_those_of(nn.init, INIT),
        *_layers(),
    ]
    return dict(found) | {f"tensor.{name}": Case(getattr(front, name), name, given) for name, given in FRONT.items()}


__all__ = ["Case", "Generator", "Row", "T", "cases", "made"]
