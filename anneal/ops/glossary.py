"""The meanings of arguments that many ops share: `checked` adds to a docstring those that it does not name itself.

A family of ops may mean something else by a name (`FAMILIES`), and says what shape its results have (`RESULTS`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from types import CodeType

__all__ = ["arguments_of", "explain_class", "explained"]

MEANINGS: Mapping[str, str] = {
    "a": "a tensor, or a number.",
    "accumulate": "whether values are added to the elements that the tensor has already.",
    "activation": 'the function between the two products, "relu", "gelu" or a function of tensors.',
    "affine": "whether there are a weight and a bias that are learnt, of one number a channel.",
    "align_corners": "whether the outermost places are centres of elements, not their edges.",
    "alpha": "a number that the second term is multiplied with.",
    "axes": "the order of the axes, each once.",
    "axis": "the axis, or for reductions several; negative ones count from the end, None is all of them.",
    "b": "a tensor, or a number.",
    "batch1": "matrices, (batch, n, k).",
    "batch2": "matrices, (batch, k, m).",
    "batch_first": "whether the batch is the first axis and time the second.",
    "beta": "a number that x is multiplied with.",
    "bias": "the term that is added, one number for each output channel; of a layer, a bool: whether it has one.",
    "bidirectional": "whether a second row of cells reads the sequence from its end.",
    "blank": "the class that stands for no class.",
    "bounds": "a pair of begin and end for each axis.",
    "ceil_mode": "whether a window that begins inside and ends outside counts.",
    "col": "the number of columns.",
    "correction": "the number that is subtracted from the count of elements, which divides.",
    "count_include_pad": "whether padding counts in a mean.",
    "data": "a number, a nested list, an array or a tensor.",
    "decimals": "the number of digits behind the point that are kept.",
    "descending": "whether the largest comes first.",
    "device": 'the name of a device, "cpu" or "webgpu"; None: the default one.',
    "diagonal": "the number of the diagonal: 0 is the main one, positive ones lie above it.",
    "dilation": "the step between the elements of a window, one number or one for each axis.",
    "dim": "the axis; negative ones count from the end. Reductions take several, and None for all.",
    "dim0": "the one axis.",
    "dim1": "the first of two axes, or the other one.",
    "dim2": "the second of two axes.",
    "dim_feedforward": "the width between the two products.",
    "dims": "the axes.",
    "distance_function": "a function that takes two tensors and returns the distances of their rows.",
    "divisor_override": "the divisor of the sums, in place of the number of elements.",
    "downscale_factor": "the factor by which sides shrink.",
    "dropout": "the chance with which an element is made 0 in training.",
    "dropout_p": "the chance with which a weight is made 0.",
    "dtype": "the dtype of the result, by name or as a member of `dtypes`; None: the op's own choice.",
    "dx": "the distance between neighbours.",
    "embedding_dim": "the number of elements of a row.",
    "eps": "a small number that keeps divisors and logarithms away from 0.",
    "equal_nan": "whether nan equals nan.",
    "exponent": "a number or a tensor.",
    "fill_value": "the number that fills the tensor, or replaces missing values.",
    "foreach": "ignored: updates are always fused.",
    "from_": "the smallest value that is drawn.",
    "full": "whether a constant term is added to the loss.",
    "generator": "the source of random numbers; None: the stream of `manual_seed`.",
    "groups": "the number of groups of channels; a convolution does not mix them.",
    "hidden_size": "the number of elements of the state.",
    "ignore_index": "targets that are this class do not count.",
    "include_self": "whether the elements that the tensor has already take part.",
    "index": "integers: positions along the axis.",
    "indices": "integers, positions.",
    "indices_or_sections": "how many equal parts, or the positions to cut at.",
    "init": "the initial value.",
    "inplace": "whether x itself takes the result's values.",
    "input": "the output of a model; its shape is given above.",
    "input1": "the first of a pair of inputs.",
    "input2": "the second of a pair of inputs.",
    "input_size": "the number of features of one step of the sequence.",
    "interpolation": 'the value between two elements: "linear", "lower", "higher", "nearest" or "midpoint".',
    "is_causal": "whether a position sees only itself and those before it.",
    "keepdim": "whether reduced axes stay, with size 1.",
    "kernel_size": "the window's size, one number or one for each axis.",
    "label_smoothing": "the share of the target that is spread over all classes, 0 to 1.",
    "layer_norm_eps": "the epsilon of the norms.",
    "log_input": "whether the input is a logarithm.",
    "margin": "the distance beyond which the loss is 0.",
    "mask": "a bool tensor, whose shape broadcasts with x's.",
    "mat": "a matrix, (n, m).",
    "max": "the largest value that is let through, a number or a tensor.",
    "max_norm": "rows with a larger norm are scaled down to it.",
    "maxnorm": "the norm above which a part is scaled down.",
    "mean": "the mean of the distribution.",
    "median": "the median of the distribution.",
    "min": "the smallest value that is let through, a number or a tensor.",
    "momentum": "the share of a running statistic that a new batch replaces; None: the mean of all batches.",
    "named": "options of the same meaning by name.",
    "nan": "the number that replaces nan.",
    "neginf": "the number that replaces -inf; None: the dtype's least number.",
    "nhead": "the number of heads of attention.",
    "norm_first": "whether norms stand before attention and products, not behind.",
    "norm_type": "the power of the norm.",
    "normalized_shape": "the sizes of the last axes, over which it normalises.",
    "num_channels": "the number of channels of x.",
    "num_classes": "the number of classes.",
    "num_embeddings": "the number of rows of the table.",
    "num_features": "the number of channels of x.",
    "num_groups": "the number of groups of channels.",
    "num_heads": "the number of heads of attention.",
    "num_layers": "the number of layers, each applied to the result of the one before.",
    "num_parameters": "the number of slopes that are learnt: 1, or one for each channel.",
    "offset": "the number of the diagonal: 0 is the main one, positive ones lie above it.",
    "ord": "the order of the norm.",
    "other": "a tensor, an array or a number; shapes broadcast.",
    "others": "more tensors, where the first argument is one and no list.",
    "out_features": "the number of features of a row of the result.",
    "output_padding": "the number of elements that the result is longer at its end, one number or one for each axis.",
    "output_ratio": "the output's size as a part of x's, one number or one for each axis.",
    "output_size": "the sizes of the result's last axes, one number or one for each axis; None: x's own.",
    "p": "a power, or a chance between 0 and 1.",
    "padding": "the number of elements added at both ends, one number or one for each axis.",
    "padding_idx": "a row that gets no gradient.",
    "padding_mode": 'the values of the padding: "zeros", "reflect", "replicate" or "circular".',
    "periodic": "whether the window goes on into the next one, as for a spectrum.",
    "posinf": "the number that replaces inf; None: the dtype's largest number.",
    "proj_size": "0: there are no projections.",
    "q": "a part from 0 to 1, or several.",
    "reduce": 'the reduction of values for one place: "sum", "prod", "mean", "amax" or "amin".',
    "reduction": '"mean", "sum", or "none" for each element\'s own.',
    "repeats": "the number of repetitions, one number or one for each axis.",
    "requires_grad": "whether `backward()` gives it a gradient.",
    "return_counts": "whether the numbers of equal elements are given too.",
    "return_indices": "whether the positions of the maxima are given too.",
    "return_inverse": "whether the place of each element among the results is given too.",
    "rounding_mode": 'the rounding of the quotient: None for none, "floor" or "trunc".',
    "row": "the number of rows.",
    "rtol": "the relative tolerance.",
    "atol": "the absolute tolerance.",
    "running_mean": "(channels,), the mean that training updates and evaluation uses.",
    "running_var": "(channels,), the variance that training updates and evaluation uses.",
    "scale_factor": "the factor by which sides grow, one number or one for each axis.",
    "scale_grad_by_freq": "has to be False.",
    "shape": "sizes, one by one or as a tuple.",
    "shifts": "the number of places by which elements move, one number or one for each axis.",
    "sigma": "the scale of the distribution.",
    "size": "sizes, one by one or as a tuple; for results of unknown length, their number.",
    "sorted": "whether the results are in order; they always are.",
    "source": "a tensor of the values that are taken.",
    "sparse": "has to be False: gradients are dense.",
    "split_sizes": "the sizes of the parts, which add up to the axis.",
    "src": "a tensor of the values that are written.",
    "stable": "whether equal elements keep their order; they always do.",
    "std": "the standard deviation of the distribution.",
    "stride": "the step of the window, one number or one for each axis; None: its size.",
    "swap": "whether the harder of two distances counts.",
    "target": "the values that are right, of the input's shape.",
    "tensors": "tensors, in a list or one by one.",
    "theta": "affine maps, (batch, rows, columns).",
    "track_running_stats": "whether statistics of training are kept for evaluation.",
    "training": "whether it is training; in evaluation nothing is dropped, and kept statistics are taken.",
    "unbiased": "whether the variance divides by one less than the number of elements.",
    "unflattened_size": "the sizes that the axis becomes.",
    "upscale_factor": "the factor by which sides grow.",
    "value": "a number or a tensor.",
    "values": "a tensor of the values that are written, or modules or parameters.",
    "vec": "a vector, (m,).",
    "vec1": "a vector, (n,).",
    "vec2": "a vector, (m,).",
    "weight": "factors: of a loss one for each class or element, of a norm one for each channel.",
    "window_length": "the number of elements.",
    "with_replacement": "whether an element may come several times.",
    "x": "a tensor of any shape, unless stated otherwise.",
    "y": "a tensor of the heights.",
    "zero_infinity": "whether losses that are infinite are 0.",
    "config": "the sizes of the model.",
    "n_head": "the number of heads of attention.",
    "n_heads": "the number of heads of attention.",
    "residual_std": "the spread of the last product's weights at the start.",
    "rotary": "the angles of positions.",
    "in1_features": "the number of features of a row of the first input.",
    "in2_features": "the number of features of a row of the second input.",
    "img_size": "the side of a picture in pixels.",
    "patch_size": "the side of a patch in pixels.",
    "mlp_ratio": "the width of the MLP as a multiple of the embedding's.",
    "include_last_offset": "whether the last offset is the end.",
    "mode": "the name of the method; the names are given above.",
    "k": "a number that is added to the squares.",
    "N": "the number of columns.",
    "pad": "the number of elements added at both ends.",
    "add_zero_attn": "whether a row of zeros is added to keys and values.",
    "average_attn_weights": "whether the weights given are the mean over the heads.",
    "bias_k": "a row that is added to the keys.",
    "bias_v": "a row that is added to the values.",
    "custom_decoder": "a module in the decoder's place.",
    "custom_encoder": "a module in the encoder's place.",
    "decoder_layer": "a layer that is copied.",
    "embed_dim_to_check": "the number of features of a row of the query.",
    "enable_nested_tensor": "ignored.",
    "encoder_layer": "a layer that is copied.",
    "gain": "a factor of the standard deviation, or of the bound.",
    "in_proj_bias": "(3 * width,), of queries, keys and values.",
    "in_proj_weight": "(3 * width, width), of queries, keys and values.",
    "k_proj_weight": "(width, key width), with separate projections.",
    "mask_check": "ignored.",
    "nonlinearity": 'the function behind it, such as "relu" or "leaky_relu".',
    "num_decoder_layers": "the number of layers of the decoder.",
    "num_encoder_layers": "the number of layers of the encoder.",
    "out_proj_bias": "(width,), of the result.",
    "out_proj_weight": "(width, width), of the result.",
    "q_proj_weight": "(width, width), with separate projections.",
    "seed": "an integer that the stream of random numbers begins with.",
    "static_k": "keys that are projected already.",
    "static_v": "values that are projected already.",
    "use_separate_proj_weight": "whether each projection has a weight of its own.",
    "v_proj_weight": "(width, value width), with separate projections.",
    "val": "the number that fills it.",
    "modules": "modules, in a list or one by one.",
    "step": "the distance between positions.",
    "as_tuple": "whether each axis's positions are a tensor of their own.",
    "inputs": "tensors.",
}

_IGNORED = "ignored: updates are fused and differentiable anyway."
_OPTIMISER = {
    "params": 'tensors that require gradients, or dicts `{"params": tensors, "lr": ...}` with settings of their own.',
    "lr": "the learning rate.",
    "weight_decay": "the factor of the decay of parameters towards 0.",
    "momentum": "the share of the last step that is added to the next.",
    "maximize": "whether the loss is maximised, not minimised.",
    "foreach": _IGNORED,
    "fused": _IGNORED,
    "capturable": _IGNORED,
    "differentiable": _IGNORED,
    "betas": "the factors by which the running means of gradients and of their squares decay in a step.",
    "amsgrad": "whether the largest mean of squares so far divides.",
    "decoupled_weight_decay": "whether decay is a step of its own, as in AdamW.",
    "optimizer": "the optimiser whose learning rates it sets.",
    "last_epoch": "the number of the last step; -1 before the first.",
    "schedulers": "schedules of one optimiser.",
}
_INPUTS = {
    "anchor": "rows that are compared with the others, (batch, features).",
    "positive": "rows that belong to the anchors, (batch, features).",
    "negative": "rows that do not belong to the anchors, (batch, features).",
    "hx": "the initial state; None: zeros.",
    "input_lengths": "the lengths of the sequences of `log_probs`, integers (batch,).",
    "target_lengths": "the lengths of the targets, integers (batch,).",
    "log_probs": "log-probabilities, (time, batch, classes).",
    "targets": "classes, integers (batch, length), or all in one row.",
    "offsets": "the begin of each bag in `input`, integers (bags,); None: each row of `input` is a bag.",
    "per_sample_weights": "a factor for each row that is summed, in the shape of `input`.",
    "output_size": "the sizes of the result's last axes; None: the smallest that fit.",
    "var": "variances, of the input's shape or with 1 at its end.",
    "x1": "a tensor; shapes broadcast.",
    "x2": "a tensor; shapes broadcast.",
}
_MASK = "bool, True where a position is left out, or floats that are added to scores"
_ATTENTION = {
    "query": "(l, batch, embed_dim), with `batch_first` (batch, l, embed_dim), or without a batch.",
    "key": "(s, batch, kdim); axes as for the query.",
    "value": "(s, batch, vdim); axes as for the query.",
    "need_weights": "whether the weights of attention are returned too.",
    "average_attn_weights": "whether these are the mean over the heads.",
    "src": "the sequence that the encoder reads, (time, batch, d_model).",
    "tgt": "the sequence that the decoder reads, (time, batch, d_model).",
    "memory": "the encoder's result, (time, batch, d_model).",
    "is_causal": "whether each position attends to itself and those before it alone.",
    **{f"{of}_is_causal": f"whether the mask of `{of}` is the causal one." for of in ("src", "tgt", "memory")},
    **dict.fromkeys(("mask", "attn_mask", "src_mask", "tgt_mask", "memory_mask"), f"{_MASK}: (l, s)."),
    **{f"{of}key_padding_mask": f"{_MASK}: (batch, s)." for of in ("", "src_", "tgt_", "memory_")},
}
_TRANSFORM = {
    "n": "the number of elements that are transformed: the axis is cut, or filled up with zeros; None: all.",
    "s": "the number of elements of each axis; None, or -1 in it: all.",
    "dim": "the axis, or the axes; without pairs' own.",
    "norm": '"backward" (None) divides the inverse by the number of elements, "forward" the transform, "ortho" both by '
    "its root.",
}
_MATRICES = {
    "A": "matrices of floats, (..., m, n); equations and determinants take square ones.",
    "B": "matrices of floats, (..., n, k).",
    "UPLO": '"L" or "U": the triangle that is read.',
    "upper": "whether the upper triangle is meant.",
    "hermitian": "whether A is symmetric.",
    "atol": "the absolute tolerance.",
    "rtol": "the relative tolerance.",
}
_SAMPLES = {
    "M": "the number of elements.",
    "sym": "whether the last element mirrors the first; False for a window that goes on, as for a spectrum.",
}
_WINDOWED = {"x": "(batch, channels, *sizes), or without the batch."}
_LAYERS = {
    "device": "the device of its parameters; None: the default one.",
    "dtype": "the dtype of its parameters; None: float32.",
}
_SEQUENCES = _LAYERS | {"bias": "whether something is added in the products."}
FAMILIES: Mapping[str, Mapping[str, str]] = {
    "anneal.ops.convolution": _WINDOWED
    | {"weight": "(out, in / groups, *kernel); transposed: (in, out / groups, ...)."},
    "anneal.ops.pooling": _WINDOWED,
    "anneal.ops.polynomials": {"n": "the degree, a whole number."},
    "anneal.nn._f_pools": _WINDOWED,
    "anneal.nn._recurrent": _SEQUENCES | _INPUTS,
    "anneal.nn._cells": _SEQUENCES | _INPUTS,
    **{f"anneal.nn.{name}": _LAYERS | _INPUTS for name in ("_layers", "_losses", "_sequence_losses", "_shapes")},
    "anneal.nn._multihead": _LAYERS | _ATTENTION,
    "anneal.fft._transforms": _TRANSFORM,
    "anneal.signal.windows": _SAMPLES,
    **{f"anneal.linalg.{name}": _MATRICES for name in ("_norms", "_solving", "_spectra", "_triangles", "older")},
    **{f"anneal.optim.{name}": _OPTIMISER for name in ("_adam", "_base", "_cycles", "_formulas", "_lbfgs", "_muon")},
    "anneal.optim._schedule": _OPTIMISER,
    "anneal.optim.lr_scheduler": _OPTIMISER,
    "anneal.nn.init": {"tensor": "the tensor that takes the values, of any shape, unless stated otherwise."},
    "anneal.nn._init_in_place": {"tensor": "the tensor that takes the values, of any shape, unless stated otherwise."},
}

_SAME = "Gives a tensor of x's shape."
_MEET = "Gives a tensor of the shape that the arguments broadcast to."
_REDUCED = "Gives x's shape without the reduced axes; () where all are."
RESULTS: Mapping[str, str] = {
    **{
        f"anneal.ops.{name}": _SAME
        for name in ("activations", "functions", "angles", "rounding", "gamma", "running", "bessel", "tails")
    },
    **{f"anneal.ops.{name}": _MEET for name in ("elementwise", "logic")},
    **{f"anneal.ops.{name}": _REDUCED for name in ("reduce", "extremes")},
    **{f"anneal.ops.{name}": "Gives x itself, whose shape stays." for name in ("inplace", "inplace_random")},
    "anneal.ops.losses": 'Gives a tensor of shape () by reduction "mean" and "sum", and a loss for each by "none".',
    "anneal.ops.normalisation": _SAME,
}
_FORWARD = "The result of the module, as the docstring of its class describes it."
WORD = re.compile(r"\w+")


def explain_class(cls: type) -> None:
    """Explain the arguments of `__init__` in the docstring of a class of ours, and those of its `forward` there; a
    user's class stays as it is.
    """
    if not cls.__module__.startswith("anneal."):
        return
    start = getattr(inspect.unwrap(cls.__init__), "__code__", None)  # type: ignore[misc]  # it is only read
    if cls.__doc__ is not None and start is not None:
        cls.__doc__ = explained(cls.__doc__, arguments_of(start)[1:], cls.__module__)
    forward = vars(cls).get("forward")
    if forward is not None and forward.__doc__ is None:
        forward.__doc__ = explained(_FORWARD, arguments_of(inspect.unwrap(forward).__code__)[1:], cls.__module__)


def arguments_of(code: CodeType) -> tuple[str, ...]:
    """The names of a function's arguments, those that stand for several among them."""
    several = inspect.CO_VARARGS & code.co_flags != 0
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + several]


def explained(doc: str, arguments: Iterable[str], module: str) -> str:
    """A docstring with a line for each argument that it does not name, and its result's shape, before its examples.

    >>> print(explained("The angle.", ["x", "deg"], "anneal.ops.angles"))
    The angle.
    <BLANKLINE>
    Gives a tensor of x's shape.
    <BLANKLINE>
    Args:
        x: a tensor of any shape, unless stated otherwise.
    """
    begin, prompt, examples = doc.partition(">>>")
    said = set(WORD.findall(begin))
    family = FAMILIES.get(module, _LAYERS if module.startswith("anneal.nn._") else {})
    listed = {a: m for a in arguments if a not in said and (m := family.get(a) or MEANINGS.get(a))}
    result = "" if {"shape", "shapes", "Gives"} & said else RESULTS.get(module, "")
    if not listed and not result:
        return doc
    lines = begin.rstrip().split("\n")
    indent = next((" " * (len(line) - len(line.lstrip())) for line in lines[1:] if line.strip()), "")
    if not lines[1:] and prompt:
        indent = begin[len(begin.rstrip()) :].rpartition("\n")[2]
    if result:
        lines += ["", indent + result]
    if listed:
        if not any(line.strip() == "Args:" for line in lines):
            lines += ["", f"{indent}Args:"]
            lines += [f"{indent}    {name}: {meaning}" for name, meaning in listed.items()]
        else:  # among those that are there
            at = next(n for n, line in enumerate(lines) if line.strip() == "Args:") + 1
            lines[at:at] = [f"{indent}    {name}: {meaning}" for name, meaning in listed.items()]
    ending = f"\n\n{indent}{prompt}{examples}" if prompt else "\n" + indent if doc.endswith(indent) and indent else ""
    return "\n".join(lines) + ending
