"""Attention and rotary positions; RNN, GRU and LSTM: the products with the inputs of all steps are one product."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np

import anneal.tensor.functional as F
from anneal.frozen import frozen
from anneal.onnx.execute import fail, node
from anneal.onnx.graph import Graph
from anneal.onnx.ops.elementwise import Floats, MaybeTensor, MaybeValue, Tensors, Texts, iota, plus
from anneal.onnx.ops.shapes import ReverseSequence
from anneal.onnx.registry import op
from anneal.onnx.values import border, element_name
from anneal.tensor import Tensor, dtypes
from anneal.transforms import scan


def heads_of(x: Tensor, heads: int) -> Tensor:
    """(batch, positions, heads * size) to (batch, heads, positions, size)."""
    n, length, width = x.shape
    return x.reshape(n, length, heads, width // heads).transpose(1, 2)


def together(x: Tensor) -> Tensor:
    """(batch, heads, positions, size) to (batch, positions, heads * size)."""
    n, heads, length, width = x.shape
    return x.transpose(1, 2).reshape(n, length, heads * width)


# -- attention --------------------------------------------------------------------------------------------------------


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: MaybeTensor,
    bias: MaybeTensor,
    scale: float | None,
    *,
    causal: bool = False,
    guarded: bool = True,
) -> Tensor:
    """softmax(q k^T * scale + bias) v over what is allowed; heads of k and v are repeated to those of q.

    `causal` stands for a mask of position i seeing 0..i, and nothing else is masked. A row of which nothing is allowed
    gives zeros where `guarded`.
    """
    mask = _joined(allowed, bias)
    y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=True)
    return y if mask is None or not guarded else _nothing(mask).where(y.zeros_like(), y)


def _joined(allowed: MaybeTensor, bias: MaybeTensor) -> MaybeTensor:
    if allowed is None or bias is None:
        return allowed if bias is None else bias
    return allowed.where(bias, -math.inf)


def _nothing(mask: Tensor) -> Tensor:
    """True for each row that has no position to attend to."""
    if mask.dtype is dtypes.bool_:
        return mask.any(-1, keepdim=True).logical_not()
    return mask.amax(-1, keepdim=True) == -math.inf


def scored(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: MaybeTensor,
    bias: MaybeTensor,
    scale: float | None,
    softcap: float,
    precision: int | None,
    mode: int,
) -> tuple[Tensor, Tensor]:
    """Attention step by step, and the scores after the step `mode`: 0 product, 1 softcap, 2 mask, 3 softmax."""
    k, v = _repeated(q, k, v)
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = (q * root).matmul((k * root).transpose(-1, -2))
    stages = [scores]
    if softcap:
        scores = (scores / softcap).tanh() * softcap
    stages.append(scores)
    mask = _joined(allowed, bias)
    if mask is not None:
        scores = mask.where(scores, -math.inf) if mask.dtype is dtypes.bool_ else scores + mask
    stages.append(scores)
    if precision:
        scores = scores.cast(_float_name(precision))
    weights = scores.softmax(-1)
    if mask is not None:
        weights = _nothing(mask).where(weights.zeros_like(), weights)
    weights = weights.cast(q.dtype)
    stages.append(weights)
    return weights.matmul(v.cast(q.dtype)), stages[mode]


def _repeated(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """k and v with as many heads as q."""
    times = q.shape[1] // k.shape[1]
    return [k, v] if times == 1 else [x.repeat_interleave(times, 1) for x in (k, v)]


def _float_name(code: int) -> str:
    name = element_name(code)
    if not name.startswith(("float", "bfloat")):
        raise fail(f"softmax_precision {code} is no float type")
    return name


def visible(q: Tensor, total: int, offset: Tensor | int, causal: bool, left: int, right: int) -> MaybeTensor:
    """The keys that each query may see: up to its own position, and within a window about it."""
    position = iota(q, q.shape[2], 2, 4) + offset
    key = iota(q, total, 3, 4)
    return _all_of(
        causal and key <= position, left >= 0 and key >= position - left, right >= 0 and key <= position + right
    )


def _all_of(*parts: Any) -> MaybeTensor:
    """True where all parts that are tensors are true."""
    found = [p for p in parts if isinstance(p, Tensor)]
    return reduce(Tensor.bitwise_and, found) if found else None


def _mask(mask: Tensor, total: int) -> tuple[MaybeTensor, MaybeTensor]:
    """A mask in the form of numbers that are added to the scores, or of bools; a mask that is too short hides the
    positions beyond it.
    """
    short = total - mask.shape[-1]
    sides = border(mask.ndim - 1, mask.ndim, 0, short)
    if mask.dtype.name == "bool":
        return None, mask.pad(sides) if short > 0 else mask
    return mask.pad(sides, value=-math.inf) if short > 0 else mask, None


@op
def Attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: MaybeTensor,
    past_key: MaybeTensor,
    past_value: MaybeTensor,
    nonpad_kv_seqlen: MaybeTensor,
    *,
    is_causal: int,
    kv_num_heads: int | None,
    left_window_size: int = -1,
    q_num_heads: int | None,
    qk_matmul_output_mode: int,
    right_window_size: int = -1,
    scale: float | None,
    softcap: float,
    softmax_precision: int | None,
) -> Any:
    """Scaled dot product attention with masks and a cache of keys and values.

    `nonpad_kv_seqlen`, how many keys of each sample count, came with version 24, as did masks that are too short;
    windows about each position with version 25.
    """
    if flat := q.ndim == 3:
        if not q_num_heads or not kv_num_heads:
            raise fail("q_num_heads and kv_num_heads are missing, which inputs of three axes need")
        q, k, v = heads_of(q, q_num_heads), heads_of(k, kv_num_heads), heads_of(v, kv_num_heads)
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = Tensor.cat([past_key, k], dim=2), Tensor.cat([past_value, v], dim=2)
    total = k.shape[2]
    bias, allowed = (None, None) if mask is None else _mask(mask, total)
    plain = mask is None and nonpad_kv_seqlen is None and past == 0 and left_window_size < 0 and right_window_size < 0
    precise = softmax_precision and _float_name(softmax_precision) not in (q.dtype.name, "float32")
    simple = not (softcap or precise or node.wants(3))
    if not plain or not simple:
        offset = past
        padded = None
        if nonpad_kv_seqlen is not None:
            lengths = nonpad_kv_seqlen.int().reshape(-1, 1, 1, 1)
            padded = iota(q, total, 3, 4) < lengths
            offset = lengths - q.shape[2] if past_key is None else offset
        seen = visible(q, total, offset, bool(is_causal), left_window_size, right_window_size)
        allowed = _all_of(allowed, seen, padded)
    stage = None
    if simple:
        y = attend(q, k, v, allowed, bias, scale, causal=plain and bool(is_causal))
    else:
        y, stage = scored(q, k, v, allowed, bias, scale, softcap, softmax_precision, qk_matmul_output_mode)
    y = y.cast(q.dtype)
    return together(y) if flat else y, k, v, stage


@op(domain="ai.onnx.preview")
def FlexAttention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    prob_mod: Graph | None,
    scale: float | None,
    score_mod: Graph | None,
    softmax_precision: int | None,
) -> Tensor:
    """Attention whose scores and weights go through subgraphs."""
    k, v = _repeated(q, k, v)
    name = _float_name(softmax_precision) if softmax_precision else "float64" if q.dtype.bits == 64 else "float32"
    scores = q.matmul(k.transpose(-1, -2)).cast(name)
    scores = scores * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if score_mod is not None:
        scores = node.tensor(node.run(score_mod, scores)[0])
    weights = scores.softmax(-1)
    if prob_mod is not None:
        weights = node.tensor(node.run(prob_mod, weights)[0])
    return weights.cast(v.dtype).matmul(v).cast(q.dtype)


# -- rotary positions -------------------------------------------------------------------------------------------------


def rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: int, width: int | None = None) -> Tensor:
    """Pairs of the first features turned by angles: neighbours if interleaved, else those half the width apart.

    cos and sin broadcast to (..., width / 2); by default as many features are turned as there are angles for.
    """
    width = width or 2 * cos.shape[-1]
    if width != x.shape[-1]:
        return Tensor.cat([rotated(x[..., :width], cos, sin, interleaved, width), x[..., width:]], dim=-1)
    a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1) if interleaved else x.chunk(2, -1)
    parts = [a * cos - b * sin, a * sin + b * cos]
    return Tensor.stack(parts, dim=-1).reshape(*x.shape) if interleaved else Tensor.cat(parts, dim=-1)


@op
def RotaryEmbedding(
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: MaybeTensor,
    *,
    interleaved: int,
    num_heads: int | None,
    rotary_embedding_dim: int,
) -> Tensor:
    """The first features of each head turned by the angles of their positions."""
    flat = x.ndim == 3
    if flat and not num_heads:
        raise fail("num_heads is missing, which an input of three axes needs")
    data = heads_of(x, num_heads or 1) if flat else x
    if position_ids is not None:
        index = position_ids.int()
        cos_cache, sin_cache = cos_cache.rows(index), sin_cache.rows(index)
    width = rotary_embedding_dim or data.shape[-1]
    if width > data.shape[-1]:
        raise fail(f"rotary_embedding_dim is {width}, of {data.shape[-1]} features")
    out = rotated(data, cos_cache.unsqueeze(1), sin_cache.unsqueeze(1), interleaved, width)
    return together(out) if flat else out


_TRAINED = 256  # steps that are a loop on the device where gradients flow, as in anneal.nn

Function = Callable[[Tensor], Tensor]

# -- activations ------------------------------------------------------------------------------------------------------

# name: the function of x, alpha and beta, and the defaults of those that it has
ACTIVATIONS: dict[str, tuple[Any, ...]] = {
    "affine": (lambda x, a, b: x * a + b, 1.0, 0.0),
    "elu": (Tensor.elu, 1.0),
    "hardsigmoid": (lambda x, a, b: (x * a + b).clamp(0.0, 1.0), 0.2, 0.5),
    "leakyrelu": (Tensor.leaky_relu, 0.01),
    "relu": (Tensor.relu,),
    "scaledtanh": (lambda x, a, b: (x * b).tanh() * a, 1.0, 1.0),
    "sigmoid": (Tensor.sigmoid,),
    "softplus": (Tensor.softplus,),
    "softsign": (Tensor.softsign,),
    "tanh": (Tensor.tanh,),
    "thresholdedrelu": (lambda x, a: (x > a).where(x, x.zeros_like()), 1.0),
}


class Layer(NamedTuple):
    """The attributes of recurrent layers."""

    activation_alpha: Floats = None
    activation_beta: Floats = None
    activations: Texts = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    input_forget: int = 0
    layout: int = 0
    linear_before_reset: int = 0
    output_sequence: int = 0


def activations_of(how: Layer, default: Sequence[str], directions: int) -> list[list[Function]]:
    """The functions of each direction; alphas and betas go to those that have one, in order."""
    wanted = list(how.activations or list(default) * directions)
    if len(wanted) < len(default) * directions:
        raise fail(f"{len(wanted)} activations; {len(default) * directions} are wanted")
    alpha, beta = iter(how.activation_alpha or ()), iter(how.activation_beta or ())
    made: list[Any] = []
    for name in wanted[: len(default) * directions]:
        if name.lower() not in ACTIVATIONS:
            raise fail(f"activation {name!r} is none of {', '.join(ACTIVATIONS)}")
        function, *defaults = ACTIVATIONS[name.lower()]
        arguments = [*map(next, (alpha, beta), defaults)]
        made.append(lambda x, f=function, a=arguments: f(x if how.clip is None else x.clamp(-how.clip, how.clip), *a))
    return [made[i * len(default) : (i + 1) * len(default)] for i in range(directions)]


# -- layers -----------------------------------------------------------------------------------------------------------


@frozen
class Cell:
    """One direction: its activations, the weights of the inputs and of the state, transposed, and their biases."""

    f: list[Function]
    inputs: Tensor  # (in, gates * hidden)
    state: Tensor  # (hidden, gates * hidden)
    input_bias: MaybeTensor
    state_bias: MaybeTensor
    peephole: MaybeTensor = None
    looped: ClassVar[int] = 32  # steps that are a loop on the device; fewer are one graph, which is faster

    def from_inputs(self, x: Tensor) -> Tensor:
        """The part of the gates that the inputs of all steps give."""
        return plus(x.matmul(self.inputs), self.input_bias)

    def from_state(self, h: Tensor) -> Tensor:
        """The part of the gates that the state gives."""
        return h.matmul(self.state)


Step = Callable[[Tensor, Tensors, Cell], Tensors]


def _turns(projected: Tensor, cell: Cell, states: Tensors, step: Step, lengths: MaybeTensor) -> tuple[Tensors, Tensor]:
    """The last states, and all outputs; what is behind the end of a sequence is zeros."""

    def turn(states: Tensors, given: tuple[Tensor, MaybeTensor]) -> tuple[Tensors, Tensor]:
        now, going = given
        new = step(now, states, cell)
        if going is None:
            return new, new[0]
        return tuple(going.where(n, s) for n, s in zip(new, states)), going.where(new[0], new[0].zeros_like())

    time = projected.shape[0]
    going = None if lengths is None else (lengths > iota(projected, time, 0, 2)).unsqueeze(-1)
    if not isinstance(time, int) or time >= (_TRAINED if node.training else cell.looped):
        return scan(turn, states, (projected, going))
    outputs = []
    for t in range(time):
        states, y = turn(states, (projected[t], None if going is None else going[t]))
        outputs.append(y)
    none = projected.new_zeros(0, *states[0].shape)
    return states, Tensor.stack(outputs) if outputs else none


def run_layer(
    x: Tensor, cells: Sequence[Cell], initial: list[MaybeTensor], step: Step, lengths: MaybeValue, how: Layer
) -> tuple[Tensor, ...]:
    """The results of a layer in all its directions: Y (time, directions, batch, hidden), then each last state."""
    if how.layout:
        x = x.transpose(0, 1)
    hidden, batch = cells[0].state.shape[0], x.shape[1]
    if isinstance(lengths, np.ndarray):
        lengths = None if (lengths == x.shape[0]).all() else node.tensor(lengths)
    size = None if lengths is None else lengths.int()
    ys, lasts = [], []
    for d, cell in enumerate(cells):
        zero = x.new_zeros(batch, hidden)
        first = tuple(zero if s is None else s[:, d] if how.layout else s[d] for s in initial)

        def turned(y: Tensor, backward: bool = how.direction == "reverse" or d == 1) -> Tensor:
            if not backward:
                return y
            return y.flip(0) if size is None else ReverseSequence(y, size, batch_axis=1, time_axis=0)

        last, y = _turns(cell.from_inputs(turned(x)), cell, first, step, size)
        ys.append(turned(y))
        lasts.append(last)
    whole = Tensor.stack(ys, dim=1)
    ends = [Tensor.stack([last[i] for last in lasts]) for i in range(len(initial))]
    if how.layout:
        return whole.permute(2, 0, 1, 3), *[e.transpose(0, 1) for e in ends]
    return whole, *ends


def directions_of(how: Layer, r: Tensor) -> int:
    """The number of directions; an error for a hidden_size that is not the weights'."""
    if how.hidden_size is not None and how.hidden_size != r.shape[-1]:
        raise fail(f"hidden_size is {how.hidden_size}, but the weights R have {r.shape[-1]}")
    return 2 if how.direction == "bidirectional" else 1


def _cells(
    functions: list[list[Function]], joined: bool, w: Tensor, r: Tensor, b: MaybeTensor, p: MaybeTensor
) -> list[Cell]:
    """The weights of each direction; both biases in one, added to the inputs, unless the step needs them apart."""
    made = []
    for d, f in enumerate(functions):
        first, second = (None, None) if b is None else b[d].chunk(2)
        if joined and first is not None and second is not None:
            first, second = first + second, None
        made.append(Cell(f, w[d].T, r[d].T, first, second, None if p is None else p[d]))
    return made


def _gru_step(x: Tensor, states: Tensors, cell: Cell, after: bool = False) -> Tensors:
    """The reset gate before the product with the state, or behind it (linear_before_reset=1), as cuDNN has it."""
    (h,), f = states, cell.f
    n = 2 * h.shape[-1]
    hidden = plus(cell.from_state(h), cell.state_bias) if after else h.matmul(cell.state[:, :n])
    update, reset = f[0](x[..., :n] + hidden[..., :n]).chunk(2, -1)
    new = f[1](x[..., n:] + (reset * hidden[..., n:] if after else (reset * h).matmul(cell.state[:, n:])))
    return (new + update * (h - new),)


def lstm_step(x: Tensor, states: Tensors, cell: Cell, coupled: bool = False) -> Tensors:
    """Gates in the order input, output, forget, cell; peepholes weigh the cell's state for the first three."""
    (h, c), f = states, cell.f
    into, out, forget, new = (x + cell.from_state(h)).chunk(4, -1)
    peeps = None if cell.peephole is None else cell.peephole.chunk(3)
    if peeps is not None:
        into, forget = into + peeps[0] * c, forget + peeps[2] * c
    i = f[0](into)
    kept = 1 - i if coupled else f[0](forget)
    c = kept * c + i * f[1](new)
    if peeps is not None:
        out = out + peeps[1] * c
    return f[0](out) * f[2](c), c


# the step, and the activations that it has by default
_STEPS: dict[str, tuple[Step, list[str]]] = {
    "RNN": (lambda x, states, cell: (cell.f[0](x + cell.from_state(states[0])),), ["Tanh"]),
    "GRU": (_gru_step, ["Sigmoid", "Tanh"]),
    "LSTM": (lstm_step, ["Sigmoid", "Tanh", "Tanh"]),
}


@op("RNN", "GRU", "LSTM")
def recurrent(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: MaybeTensor,
    sequence_lens: MaybeValue,
    initial_h: MaybeTensor,
    initial_c: MaybeTensor,
    p: MaybeTensor,
    *,
    how: Layer,
) -> Any:
    """h = f(x W + h R + b), in one direction or both; the gated recurrent unit, whose linear_before_reset came with
    version 3; long short-term memory, with peepholes (p) and coupled gates (input_forget=1) if asked.

    Version 14 brought `layout` (1: the batch is the first axis), version 7 dropped `output_sequence`, which says
    nothing here: an output that is not wanted is not computed.
    """
    step, default = _STEPS[node.op]
    functions = activations_of(how, default, directions_of(how, r))
    after = node.op == "GRU" and how.linear_before_reset
    cells = _cells(functions, not after, w, r, b, p)
    if after:
        step = partial(_gru_step, after=True)
    elif node.op == "LSTM" and how.input_forget:
        step = partial(lstm_step, coupled=True)
    states = [initial_h, initial_c][: 2 if node.op == "LSTM" else 1]
    return run_layer(x, cells, states, step, sequence_lens, how)
