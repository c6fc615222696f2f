"""The meanings of arguments that many ops share: `checked` adds to a docstring those that it does not name itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType


def _read(text: str) -> dict[str, str]:
    """The meanings of arguments, one or several a line, by name; a line that is indented goes on with the last."""
    lines = [line.partition(": ") for line in text.strip().replace("\n  ", " ").split("\n")]
    return {name: meaning for names, _, meaning in lines for name in names.split()}


MEANINGS: Mapping[str, str] = _read("""
a: a tensor, or a number.
activation: the function between the two products, "relu", "gelu" or a function of tensors.
affine: whether to learn a weight and a bias for each channel.
align_corners: whether the outermost positions are the centres of elements, not their edges.
alpha: a factor of the second term.
average_attn_weights: whether the returned weights are averaged over the heads.
axes: the order of the axes, each once.
axis: the axis, or for reductions several; negative ones count from the end, None means all. `dim` means the same.
b: a tensor, or a number.
batch_first: whether the batch is the first axis and time the second.
beta: a factor of x.
bias: the term that is added, one number for each output channel; of a layer, a bool: whether to learn one.
bidirectional: whether a second layer reads the sequence backwards.
blank: the index of the blank label.
bounds: a (begin, end) pair for each axis.
ceil_mode: whether to keep a window that begins inside and ends outside.
col: the number of columns.
correction: the number subtracted from the count of elements in the divisor.
count_include_pad: whether a mean counts the padding.
descending: whether to sort from large to small.
device: the name of a device, "cpu" or "webgpu"; None: the default device.
dilation: the step between the elements of a window, one number or one for each axis.
dim: the axis; negative ones count from the end. Reductions take several, and None for all. `axis` means the same.
dim0: one axis.
dim1: the first of two axes, or the other one.
dim2: the second of two axes.
dim_feedforward: the width between the two linear layers.
dims: the axes.
distance_function: a function of two tensors that returns the distances of their rows.
divisor_override: the divisor of the sums, in place of the number of elements.
downscale_factor: the factor by which sides shrink.
dropout: the probability that an element becomes 0 in training.
dropout_p: the probability that an attention weight becomes 0.
dtype: the dtype of the result, by name or as a member of `dtypes`; None: the op's own choice.
dx: the distance between neighbours.
eps: a small number that keeps divisors and logarithms away from 0.
equal_nan: whether nan equals nan.
fill_value: the number that fills the tensor, or replaces missing values.
from_: the lower bound of the draws.
generator: the source of random numbers; None: the stream of `manual_seed`.
groups: the number of groups of channels; a convolution does not mix groups.
hidden_size: the number of features of the state.
ignore_index: the class to ignore in the target.
include_self: whether the tensor's own elements take part in the reduction.
index: integers: positions along the axis.
indices: integers, positions.
indices_or_sections: the number of equal parts, or the positions to cut at.
init: the initial value.
inplace: whether the result replaces x's values.
input: the output of a model; its shape is given above.
input1: the first of a pair of inputs.
input2: the second of a pair of inputs.
input_size: the number of features of each step of the sequence.
interpolation: the value between two elements: "linear", "lower", "higher", "nearest" or "midpoint".
is_causal: whether a position sees only itself and earlier ones.
keepdim: whether to keep reduced axes, with size 1.
kernel_size: the window's size, one number or one for each axis.
label_smoothing: the share of the target that is spread over all classes, 0 to 1.
layer_norm_eps: the epsilon of the norms.
log_input: whether the input is a logarithm.
margin: the distance beyond which the loss is 0.
mask: a bool tensor, whose shape broadcasts with x's.
max_norm: the norm to which rows with a larger norm are scaled down.
momentum: the weight of a new batch in the running statistics; None: the mean of all batches.
nhead: the number of heads of attention.
norm_first: whether to normalise before attention and linear layers, not after them.
norm_type: the power of the norm.
normalized_shape: the sizes of the last axes, over which it normalises.
num_channels: the number of channels of x.
num_classes: the number of classes.
num_features: the number of channels of x.
num_groups: the number of groups of channels.
num_heads: the number of heads of attention.
num_layers: the number of layers, each applied to the result of the one before.
num_parameters: the number of learnt slopes: 1, or one for each channel.
offset: the number of the diagonal: 0 is the main one, positive ones lie above it.
ord: the order of the norm.
other: a tensor, an array or a number; shapes broadcast.
others: more tensors, if the first argument is a tensor and not a list.
out_features: the number of output features.
output_padding: the number of elements added to the end of the result, one number or one for each axis.
output_ratio: the output's size relative to x's, one number or one for each axis.
output_size: the sizes of the result's last axes, one number or one for each axis; None: x's own.
p: a power, or a probability.
padding: the number of elements added at both ends, one number or one for each axis.
padding_idx: the row that gets no gradient.
padding_mode: the values of the padding: "zeros", "reflect", "replicate" or "circular".
periodic: whether the window is periodic, as for a spectrum.
proj_size: 0: projections are not supported.
q: a fraction from 0 to 1, or several.
reduction: "mean", "sum", or "none" for a loss of each element.
repeats: the number of repetitions, one number or one for each axis.
requires_grad: whether `backward()` gives it a gradient.
return_indices: whether to return the positions of the maxima.
rounding_mode: the rounding of the quotient: None for none, "floor" or "trunc".
row: the number of rows.
rtol: the relative tolerance.
atol: the absolute tolerance.
running_mean: (channels,), the mean that training updates and evaluation uses.
running_var: (channels,), the variance that training updates and evaluation uses.
scale_factor: the factor by which sides grow, one number or one for each axis.
scale_grad_by_freq: whether the gradient of a row is divided by how often the row is read.
shape: sizes, one by one or as a tuple.
shifts: the number of places by which elements move, one number or one for each axis.
sigma: the scale of the distribution.
size: sizes, one by one or as a tuple; for results of unknown length, their number.
sorted: ignored: the results are always sorted.
sparse: ignored: gradients are dense.
split_sizes: the sizes of the parts, which add up to the axis.
stable: ignored: equal elements always keep their order.
stride: the step of the window, one number or one for each axis; None: its size.
swap: whether to use the harder of the two negative distances.
target: the true values, of the input's shape.
tensors: tensors, in a list or one by one.
theta: affine maps, (batch, rows, columns).
track_running_stats: whether to keep statistics of training for evaluation.
training: whether it is training; evaluation drops nothing and uses the running statistics.
unbiased: whether the divisor of the variance is the number of elements minus one.
unflattened_size: the sizes that the axis becomes.
upscale_factor: the factor by which sides grow.
value: a number or a tensor.
values: a tensor of the new values, or modules or parameters.
weight: factors: of a loss one for each class or element, of a norm one for each channel.
window_length: the number of elements.
with_replacement: whether an element may be drawn several times.
x: a tensor of any shape, unless stated otherwise.
y: a tensor of the heights.
zero_infinity: whether infinite losses become 0.
config: the sizes of the model.
n_head n_heads: the number of heads of attention.
residual_std: the initial standard deviation of the weights of the last linear layer.
rotary: the angles of positions.
mlp_ratio: the width of the MLP as a multiple of the embedding's.
mode: the name of the method; the names are given above.
k: a number that is added to the squares.
N: the number of columns.
custom_decoder: a module to use as the decoder.
custom_encoder: a module to use as the encoder.
decoder_layer: the layer to copy.
enable_nested_tensor: ignored.
encoder_layer: the layer to copy.
gain: a factor of the standard deviation, or of the bound.
mask_check: ignored.
nonlinearity: the function after the layer, such as "relu" or "leaky_relu".
num_decoder_layers: the number of layers of the decoder.
num_encoder_layers: the number of layers of the encoder.
modules: modules, in a list or one by one.
as_tuple: whether to return one tensor of positions for each axis.
""")
_OPTIMISER = _read("""
params: tensors that require gradients, or dicts `{"params": tensors, "lr": ...}` with settings of their own.
lr: the learning rate.
weight_decay: the weight decay.
maximize: whether to maximise the loss.
foreach fused capturable differentiable: ignored: updates are fused and differentiable anyway.
betas: the decay of the running means of gradients and of their squares, for each step.
amsgrad: whether to divide by the largest mean of squares so far.
decoupled_weight_decay: whether weight decay is separate from the gradient, as in AdamW.
optimizer: the optimiser whose learning rates it sets.
last_epoch: the number of the last step; -1 before the first.
schedulers: schedules of one optimiser.
""")
_INPUTS = _read("""
anchor: rows that are compared with the others, (batch, features).
positive: rows that belong to the anchors, (batch, features).
negative: rows that do not belong to the anchors, (batch, features).
hx: the initial state; None: zeros.
input_lengths: the lengths of the sequences of `log_probs`, integers (batch,).
target_lengths: the lengths of the targets, integers (batch,).
log_probs: log-probabilities, (time, batch, classes).
targets: classes, integers (batch, length), or all in one row.
offsets: the start of each bag in `input`, integers (bags,); None: each row of `input` is a bag.
per_sample_weights: a factor for each row that is summed, in the shape of `input`.
output_size: the sizes of the result's last axes; None: the smallest that fit.
x1 x2: a tensor; shapes broadcast.
""")
_ATTENTION = _read("""
query: (l, batch, embed_dim), with `batch_first` (batch, l, embed_dim), or without a batch.
key: (s, batch, kdim); axes as for the query.
value: (s, batch, vdim); axes as for the query.
need_weights: whether to return the weights of attention.
src: the sequence that the encoder reads, (time, batch, d_model).
tgt: the sequence that the decoder reads, (time, batch, d_model).
memory: the encoder's result, (time, batch, d_model).
is_causal: whether each position attends to itself and those before it alone.
src_is_causal: whether the mask of `src` is the causal one.
tgt_is_causal: whether the mask of `tgt` is the causal one.
memory_is_causal: whether the mask of `memory` is the causal one.
mask attn_mask src_mask tgt_mask memory_mask: bool, True where a position is left out, or floats that are added to
  scores: (l, s).
key_padding_mask src_key_padding_mask tgt_key_padding_mask memory_key_padding_mask: bool, True where a position is
  left out, or floats that are added to scores: (batch, s).
""")
_TRANSFORM = _read("""
n: the number of elements to transform: the axis is cut, or padded with zeros; None: all.
s: the number of elements of each axis; None, or -1 in it: all.
dim: the axis, or the axes, not counting the last axis of pairs.
norm: "backward" (None) divides the inverse by the number of elements, "forward" the transform, "ortho" both by its
  root.
""")
_MATRICES = _read("""
A: matrices of floats, (..., m, n); equations and determinants take square ones.
UPLO: "L" or "U": the triangle that is read.
""")
_SAMPLES = _read("""
M: the number of elements.
sym: whether the window is symmetric; False for a periodic one, as for a spectrum.
""")
_LAYERS = _read("""
device: the device of its parameters; None: the default one.
dtype: the dtype of its parameters; None: float32.
""")
_TABLES: Sequence[tuple[str, Mapping[str, str]]] = (
    ("ops.pooling nn._f_pools", {"x": "(batch, channels, *sizes), or without the batch."}),
    ("ops.polynomials", {"n": "the degree, a whole number."}),
    ("nn._recurrent", _LAYERS | {"bias": "whether the layers have biases."} | _INPUTS),
    ("nn._layers nn._losses nn._shapes", _LAYERS | _INPUTS),
    ("nn._multihead", _LAYERS | _ATTENTION),
    ("fft", _TRANSFORM),
    ("signal", _SAMPLES),
    ("linalg._solving linalg._spectra linalg._triangles linalg.older", _MATRICES),
    ("optim._adam optim._base optim._formulas optim._lbfgs optim._schedule optim.lr_scheduler", _OPTIMISER),
    ("nn.init", {"tensor": "the tensor that takes the values, of any shape, unless stated otherwise."}),
)
FAMILIES = {f"anneal.{file}": meanings for files, meanings in _TABLES for file in files.split()}
_SAME = "Gives a tensor of x's shape."
_MEET = "Gives a tensor of the shape that the arguments broadcast to."
_REDUCED = "Gives x's shape without the reduced axes, () if all are reduced."
_RESULTS = (
    ("activations functions angles gamma", _SAME),
    ("elementwise logic", _MEET),
    ("reduce extremes", _REDUCED),
    ("inplace", "Gives x itself, in its shape."),
    ("losses", 'Gives a tensor of shape () for reduction "mean" and "sum", and one loss each for "none".'),
)
RESULTS = {f"anneal.ops.{file}": said for files, said in _RESULTS for file in files.split()}
FORWARD = "The result of the module, as the docstring of its class describes it."
WORD = re.compile(r"\w+")

# A family of ops may mean something else by a name (`FAMILIES`), and says what shape its results have (`RESULTS`).


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
        if "Args:" not in map(str.strip, lines):
            lines += ["", f"{indent}Args:"]
        at = [*map(str.strip, lines)].index("Args:") + 1
        lines[at:at] = [f"{indent}    {name}: {meaning}" for name, meaning in listed.items()]
    ending = f"\n\n{indent}{prompt}{examples}" if prompt else "\n" + indent if doc.endswith(indent) and indent else ""
    return "\n".join(lines) + ending
