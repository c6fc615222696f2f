"""Damaged models: bytes, fields and nodes of sound ones changed, a function of the number of a mutation alone.

    python -m tests.onnx.hostile 0 200000               # which mutations
    python -m tests.onnx.hostile 0 5000 --answers       # and compare what runs with the onnx package's reference

Each must give an OnnxError that names its fault, or be run; nothing else, within SECONDS and ROOM bytes.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import anneal.onnx
from anneal import settings
from anneal.errors import OnnxError, OutOfMemoryError
from anneal.onnx import ValueInfo
from anneal.tensor import Tensor

__all__ = ["main", "make", "mutated_model", "read", "sound_models"]

SECONDS = 10.0

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
    """One of the sound models with faults: in its bytes by `damaged`, in fields of what they say, or in its nodes."""
    return mutation(r, damaged)[1]


def mutation(r: random.Random, damaged: Callable[[bytes, random.Random], bytes]) -> tuple[str, bytes, tuple[Any, ...]]:
    """What kind of faults, the model that has them, and the inputs that it had before."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    data, inputs = r.choice(sound_models())
    kind = r.choices(("bytes", "fields", "nodes", "weights"), (3, 5, 3, 1))[0]
    if kind == "bytes":
        return kind, damaged(data, r), inputs
    model = ModelProto.FromString(data)
    change = {"fields": _change, "nodes": _rewire, "weights": _reweigh}[kind]
    for _n in range(r.choice((1, 1, 1, 2, 4))):
        messages = list(_messages(model))
        try:
            change(r.choice(messages) if kind == "fields" else model, messages, r)
        except (ValueError, TypeError, DecodeError, UnicodeError):
            pass  # protobuf itself does not take it
    try:
        changed: bytes = model.SerializeToString()
    except (ValueError, TypeError):
        return kind, data, inputs
    return kind, changed, inputs


def _rewire(model: Any, messages: list[Any], r: random.Random) -> None:
    """A node that is another operator, has other inputs, or comes from another model."""
    from onnx import ModelProto

    other = ModelProto.FromString(r.choice(sound_models())[0])
    nodes = [m for m in messages if m.DESCRIPTOR.name == "NodeProto"]
    strangers = [m for m in _messages(other) if m.DESCRIPTOR.name == "NodeProto"]
    names = sorted({x for n in nodes for x in (*n.input, *n.output)})
    what = r.randrange(6)
    if what == 0 or not nodes:  # a node of another model reads values of this one, and is read in place of an output
        if not strangers:
            return
        node = model.graph.node.add()
        node.CopyFrom(r.choice(strangers))
        node.input[:] = [r.choice(names) if names else x for x in node.input]
        node.output[:] = [f"{x}_new" for x in node.output]
        if node.output and model.graph.output:
            r.choice(model.graph.output).name = node.output[0]
            del model.graph.output[0].type.tensor_type.shape.dim[:]
        return
    node = r.choice(nodes)
    if what == 1:
        node.op_type = r.choice(nodes + strangers).op_type
    elif what == 2 and strangers:
        stranger = r.choice(strangers)
        node.op_type, node.domain = stranger.op_type, stranger.domain
        del node.attribute[:]
        node.attribute.extend(stranger.attribute)
    elif what == 3 and node.input:
        node.input[r.randrange(len(node.input))] = r.choice(names)
    elif what == 4:
        node.input.append(r.choice(names))
    elif model.opset_import:
        r.choice(model.opset_import).version = r.randrange(30)


def _reweigh(model: Any, messages: list[Any], r: random.Random) -> None:
    """A tensor with other numbers, another shape, or other elements; an input of another shape or type."""
    from onnx import numpy_helper

    tensors = [m for m in messages if m.DESCRIPTOR.name == "TensorProto"]
    infos = [v.type.tensor_type for v in model.graph.input if v.type.HasField("tensor_type")]
    if infos and (not tensors or r.random() < 0.5):
        info = r.choice(infos)
        if r.random() < 0.2:
            info.elem_type = r.randrange(24)
        elif info.shape.dim and r.random() < 0.7:
            r.choice(info.shape.dim).dim_value = r.choice((0, 1, 2, 3, 7, 64, 1000, 65535))
        else:
            info.shape.dim.add().dim_value = r.choice((0, 1, 2, 3))
        return
    if not tensors:
        return
    tensor = r.choice(tensors)
    array = numpy_helper.to_array(tensor)
    what = r.randrange(3)
    if what == 0:
        array = array.reshape(r.choice(((-1,), (1, *array.shape), (*array.shape, 1))))
    elif what == 1 and array.dtype.kind in "iuf" and array.size:
        array = array.copy()
        odd = _NUMBERS if array.dtype.kind == "f" else _EXTREMES
        array.reshape(-1)[r.randrange(array.size)] = np.array(r.choice(odd)).astype(array.dtype)
    elif array.ndim:
        array = np.concatenate([array, array], axis=r.randrange(array.ndim))
    name = tensor.name
    tensor.CopyFrom(numpy_helper.from_array(array, name))


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
    return results(data, next((inputs for sound, inputs in sound_models() if sound == data), ()))[1]


def results(data: bytes, given: tuple[Any, ...]) -> tuple[dict[str, Any], list[Any]]:
    """The inputs that a model was given, those of `given` that fit it, and the outputs of the second of two runs."""
    with settings.override(cache=False):  # plans of damaged models are no use to anyone
        model = anneal.onnx.load(data, budget=2000, elements=1 << 16)
        model.describe()
        some = [*given[: len(model.inputs)], *[None] * (len(model.inputs) - len(given))]
        feeds = {v.name: x if _fits(x, v) else _some(v) for v, x in zip(model.inputs, some, strict=True)}
        for _ in range(2):
            out = [_plain(r) for r in model.run(feeds).values()]
    return feeds, out


def _fits(x: Any, info: ValueInfo) -> bool:
    """Whether a value is one that an input takes."""
    if not isinstance(x, np.ndarray):
        return x is not None and info.kind != "tensor"
    shape = info.shape if info.shape is not None else x.shape
    same = len(shape) == x.ndim and all(not isinstance(d, int) or d == n for d, n in zip(shape, x.shape, strict=True))
    return info.kind == "tensor" and same and info.dtype in (x.dtype.name, "string" if x.dtype.kind in "OU" else "")


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


class TooLongError(BaseException):
    """A mutation takes more than SECONDS; nobody may catch it on the way."""


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, stop)
    # Of processor time; again after a second, because weak references swallow what is raised in their callbacks.
    signal.setitimer(signal.ITIMER_PROF, SECONDS, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def outcome(data: bytes, given: tuple[Any, ...], *, answers: bool = False) -> str:
    """What becomes of a model: "runs", "refused", "no memory", or what is a failure; with `answers` "right" in place of
    "runs" where the onnx package's reference runs it as well, and "differs" where that has another answer.
    """
    try:
        with _limited():
            feeds, ours = results(data, given)
            return _compared(data, feeds, ours) if answers else "runs"
    except TooLongError:
        return f"FAILED: takes more than {SECONDS:g} s"
    except OutOfMemoryError:
        return "no memory"
    except OnnxError as e:
        return "refused" if str(e).strip() else "FAILED: an error without a text"
    except Exception as e:
        return f"FAILED: {type(e).__name__}: {str(e)[:300]}"


def _compared(data: bytes, feeds: dict[str, Any], ours: list[Any]) -> str:
    """Our outputs beside those of the onnx package's reference, if that has any."""
    from onnx import ModelProto
    from onnx.reference import ReferenceEvaluator

    from tests.onnx.corpus import compare

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            theirs = ReferenceEvaluator(ModelProto.FromString(data)).run(None, feeds)
    except Exception:
        return "runs"
    try:
        for n, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            wanted = b if b is None or isinstance(b, list) else np.asarray(b)
            compare(a, wanted, 1e-3, 1e-5, f"output {n}")
    except (AssertionError, TypeError, ValueError) as e:
        return f"differs: {' '.join(str(e).split())[:300]}"
    return "right"


def main(arguments: list[str]) -> int:
    """Run mutations, and print how many of each kind were run, refused, or failed; 1 if one failed."""
    from tests.fuzz.files import limit_memory, mutated

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--answers", action="store_true", help="compare what runs with the onnx package's reference")
    options = parser.parse_args(arguments)
    sound_models()
    limit_memory()
    counts: Counter[tuple[str, str]] = Counter()
    slowest, begun = (0.0, 0), time.process_time()
    for n in range(options.first, options.first + options.count):
        kind, data, given = mutation(random.Random(f"onnx {n}"), mutated)
        started = time.process_time()
        found = outcome(data, given, answers=options.answers)
        slowest = max(slowest, (time.process_time() - started, n))
        counts[kind, found.partition(":")[0]] += 1
        if ":" in found or found == "no memory":
            print(f"{n} ({kind}): {found}", flush=True)
        if (n + 1 - options.first) % 10_000 == 0:
            print(f"{n + 1 - options.first} done in {time.process_time() - begun:.0f} s of processor time", flush=True)
    for (kind, found), count in sorted(counts.items()):
        print(f"{kind:8} {found:10} {count:7}")
    print(f"{options.count} mutations; the slowest, {slowest[1]}, took {slowest[0]:.1f} s of processor time")
    return 1 if any(found == "FAILED" for _, found in counts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
