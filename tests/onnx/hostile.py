"""Damaged models: bytes and fields of sound ones changed, a function of the number of a mutation alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import anneal.onnx
from anneal.errors import OnnxError
from anneal.onnx import ValueInfo
from anneal.tensor import Tensor

__all__ = ["make", "mutated_model", "read", "sound_models"]

_EXTREMES = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 64, 127, 1000, 65535, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
_NUMBERS = (float("nan"), float("inf"), -1.0, 0.0, 0.5, 1e30, 3.0)
# Of every family: what has axes, shapes, counts, indices, subgraphs, functions of the standard, weights.
_CASES = """
    add_bcast argmax_default_axis_example averagepool_2d_pads basic_conv_with_padding batchnorm_example cast_FLOAT_to_DOUBLE
    clip_expanded compress_0 concat_2d_axis_1 constant constantofshape_int_zeros conv_with_strides_padding convtranspose_pads
    cumsum_2d_axis_0 depthtospace_example dequantizelinear_axis dynamicquantizelinear_expanded einsum_batch_matmul
    expand_dim_changed eyelike_with_dtype flatten_axis1 gather_0 gather_elements_0 gathernd_example_int32 gelu_default_1_expanded
    gemm_all_attributes if if_opt if_seq instancenorm_example layer_normalization_default_axis_expanded loop11 loop13_seq
    loop16_seq_none lrn lstm_defaults gru_defaults matmul_3d max_example maxpool_2d_pads maxpool_with_argmax_2d_precomputed_pads
    mod_mixed_sign_float32 nonmaxsuppression_two_batches nonzero_example nllloss_NCd1_expanded onehot_with_axis
    optional_get_element_sequence pad constant_pad pow_bcast_array prelu_broadcast qlinearmatmul_2D_uint8_float32 quantizelinear
    range_float_type_positive_delta range_float_type_positive_delta_expanded reduce_l1_keep_dims_example reduce_mean_default_axes_keepdims_random
    reflect_pad reshape_zero_and_negative_dim reversesequence_batch scan9_sum scatter_elements_with_axis scatternd
    sequence_insert_at_front sequence_map_add_2_sequences shape_start_1 size slice slice_default_steps softmax_axis_0
    softplus_expanded spacetodepth_example split_variable_parts_2d_opset18 squeeze split_to_sequence_2 tile topk transpose_all_permutations_3
    tril unique_sorted_with_axis_3d unsqueeze_two_axes where_example attention_4d_causal resize_upsample_scales_nearest
    gridsample sce_mean_weight_expanded
"""


@cache
def sound_models() -> tuple[tuple[bytes, tuple[Any, ...]], ...]:
    """Small models of every family, each with the inputs of its case."""
    from tests.onnx.corpus import node_cases

    cases = node_cases()
    names = [f"test_{name}" for name in _CASES.split()]
    return tuple([(cases[n].model, cases[n].data[0][0]) for n in names if n in cases])


def mutated_model(_: bytes, r: random.Random, damaged: Callable[[bytes, random.Random], bytes]) -> bytes:
    """One of the sound models with faults: in its bytes by `damaged`, or in fields of what they say."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    data, _inputs = r.choice(sound_models())
    if r.random() < 0.3:
        return damaged(data, r)
    model = ModelProto.FromString(data)
    for _n in range(r.choice((1, 1, 1, 2, 4))):
        messages = list(_messages(model))
        try:
            _change(r.choice(messages), messages, r)
        except (ValueError, TypeError, DecodeError, UnicodeError):
            pass  # protobuf itself does not take it
    try:
        changed: bytes = model.SerializeToString()
    except (ValueError, TypeError):
        return data
    return changed


def _messages(root: Any) -> Iterator[Any]:
    stack = [root]
    while stack:
        message = stack.pop()
        yield message
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                stack.extend(value if field.is_repeated else [value])


def _change(message: Any, messages: list[Any], r: random.Random) -> None:
    """One fault in a message: a field without its value, with an odd one, or with that of another message."""
    fields = [f for f, _ in message.ListFields()] if r.random() < 0.8 else list(message.DESCRIPTOR.fields)
    if not fields:
        return
    field = r.choice(fields)
    name = field.name
    if r.random() < 0.15:
        message.ClearField(name)
        return
    if field.is_repeated:
        values = getattr(message, name)
        if field.type == field.TYPE_MESSAGE:
            if r.random() < 0.5 and len(values):
                del values[r.randrange(len(values))]
            elif len(values):
                values.add().ParseFromString(r.choice(list(values)).SerializeToString())
            else:
                values.add()
        elif len(values) and r.random() < 0.3:
            del values[r.randrange(len(values))]
        elif len(values) and r.random() < 0.7:
            values[r.randrange(len(values))] = _odd(field, messages, r)
        else:
            values.append(_odd(field, messages, r))
    elif field.type == field.TYPE_MESSAGE:
        others = [m for m in messages if type(m) is type(getattr(message, name))]
        if others:
            other = r.choice(others)
            getattr(message, name).ParseFromString(other.SerializeToString())  # which may be a message around this one
    else:
        setattr(message, name, _odd(field, messages, r))


def _odd(field: Any, messages: list[Any], r: random.Random) -> Any:
    """A value for a field of numbers or text."""
    kind = field.cpp_type
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return r.choice(_NUMBERS)
    if kind == field.CPPTYPE_ENUM:
        return r.choice((*range(30), 99))
    if kind == field.CPPTYPE_STRING:
        texts = [v for m in messages for f, v in m.ListFields() if f.cpp_type == kind and not f.is_repeated]
        texts += [x for m in messages for f, v in m.ListFields() if f.cpp_type == kind and f.is_repeated for x in v]
        text = r.choice(
            [*texts, "", "x", "Loop", "If", "Reshape", "Range", "ai.onnx.ml", "com.microsoft", "../../etc/passwd"]
        )
        return text.encode() if field.type == field.TYPE_BYTES and isinstance(text, str) else text
    value = r.choice(_EXTREMES)
    if kind in (field.CPPTYPE_INT32,):
        return (value + 2**31) % 2**32 - 2**31
    return value % 2**64 if kind == field.CPPTYPE_UINT64 else value


def make(folder: Path) -> Path:
    """One of the sound models as a file."""
    path = folder / "model.onnx"
    path.write_bytes(sound_models()[0][0])
    return path


def read(path: Path) -> list[Any]:
    """Load a model and run it, twice, with what fits its inputs; its outputs as arrays."""
    data = path.read_bytes()
    model = anneal.onnx.load(path, budget=2000, elements=1 << 20)
    model.describe()
    given = next((inputs for sound, inputs in sound_models() if sound == data), ())
    feeds = {v.name: x for v, x in zip(model.inputs, given)} if given else {v.name: _some(v) for v in model.inputs}
    for _ in range(2):
        out = [_plain(r) for r in model.run(feeds).values()]
    return out


def _some(info: ValueInfo) -> Any:
    """Values for an input: small, and of the type that the file says."""
    if "optional" in info.kind:
        return None
    if "sequence" in info.kind:
        return []
    shape = [min(d, 1 << 40) if isinstance(d, int) else 2 for d in info.shape or ()]
    if np.prod(shape, dtype=float) > 1 << 12 or len(shape) > 60:
        raise OnnxError(f"{info}: nobody has such an input")
    if info.dtype == "string":
        return np.full(shape, "a", object)
    import ml_dtypes

    try:
        dtype = np.dtype(getattr(ml_dtypes, info.dtype, None) or info.dtype or np.float32)
    except TypeError:
        raise OnnxError(f"{info}: nobody has such an input") from None
    return np.ones(shape).astype(dtype)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value.numpy() if isinstance(value, Tensor) else value
