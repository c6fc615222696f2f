"""Operators beside onnxruntime: old versions, com.microsoft and ai.onnx.ml, which the node cases leave out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from anneal.errors import DTypeError, OnnxError
from anneal.onnx import load
from anneal.onnx.ops.elementwise import counted
from anneal.onnx.registry import find
from anneal.runtime import here
from anneal.tensor import Tensor
from tests.onnx import peers

R = np.random.RandomState(0)
MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"
Case = tuple[str, list[Any], dict[str, Any]]


def f(*shape: int) -> Any:
    """Normal float32 numbers."""
    return R.randn(*shape).astype(np.float32)


def u8(*shape: int) -> Any:
    """Bytes."""
    return R.randint(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> Any:
    """Small int8: onnxruntime's sums of products with larger ones saturate on some CPUs."""
    return R.randint(-60, 60, shape).astype(np.int8)


def ints(*shape: int, high: int = 10) -> Any:
    """int64 from 0 on."""
    return R.randint(0, high, shape)


def s(v: Any) -> Any:
    """float32 values."""
    return np.array(v, np.float32)


def b(v: Any) -> Any:
    """uint8 values."""
    return np.array(v, np.uint8)


def fixed(array: Any) -> tuple[Any]:
    """An initialiser."""
    return (array,)


def norms_and_softmax() -> Iterator[Case]:
    for op, axis, opset in (("Softmax", 1, 11), ("Softmax", 2, 11), ("LogSoftmax", 0, 9), ("Hardmax", 1, 9)):
        yield op, [f(2, 3, 4)], {"opset": opset, "axis": axis}
    yield "Softmax", [f(2, 3, 4)], {"opset": 13}
    stats = [f(3), f(3), f(3), abs(f(3))]
    for opset in (7, 9):
        yield "BatchNormalization", [f(2, 3, 4, 4), *stats], {"opset": opset, "momentum": 0.5}
        yield "BatchNormalization", [f(2, 3, 4, 4), *map(fixed, stats)], {"opset": opset}
    yield "BatchNormalization", [f(2, 3, 4, 4), *map(fixed, stats)], {"opset": 15, "epsilon": 0.01}
    yield "BatchNormalization", [f(2, 3, 4, 4), *stats], {"opset": 15, "outputs": 3, "training_mode": 1}
    yield "InstanceNormalization", [f(2, 3, 5, 5), f(3), f(3)], {"opset": 6}
    yield "LRN", [f(2, 7, 3, 3)], {"opset": 1, "size": 5}
    yield "LRN", [f(2, 7, 3, 3)], {"opset": 13, "size": 3, "alpha": 0.1, "beta": 0.5, "bias": 2.0}
    yield "LpNormalization", [f(3, 4)], {"opset": 1, "p": 1, "axis": 0}
    yield "MeanVarianceNormalization", [f(2, 3, 4, 4)], {"opset": 9}
    yield "LayerNormalization", [f(2, 3, 4), f(4), f(4)], {"outputs": 3}
    yield "LayerNormalization", [f(2, 3, 4), f(3, 4), f(3, 4)], {"axis": 1}
    yield "GroupNormalization", [f(2, 4, 3, 3), f(2), f(2)], {"opset": 18, "num_groups": 2}
    yield "Dropout", [f(3, 4)], {"opset": 10}


def resizes() -> Iterator[Case]:
    for mode in ("nearest", "linear"):
        yield "Upsample", [f(1, 2, 3, 4)], {"opset": 7, "scales": [1.0, 1.0, 2.0, 2.0], "mode": mode}
    yield "Upsample", [f(1, 2, 3, 4), fixed(s([1, 1, 2.5, 1.5]))], {"opset": 9}
    yield "Resize", [f(1, 2, 3, 4), fixed(s([1, 1, 2, 3]))], {"opset": 10}
    yield "Resize", [f(1, 2, 6, 8), fixed(s([1, 1, 0.6, 0.6]))], {"opset": 10, "mode": "linear"}
    for where, mode in itertools.product(
        ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"), ("nearest", "linear", "cubic")
    ):
        how = {"opset": 13, "mode": mode, "coordinate_transformation_mode": where}
        yield "Resize", [f(1, 2, 6, 5), None, None, fixed(np.array([1, 2, 9, 4]))], how
        # A fraction of an element: here the standard's align_corners is not onnxruntime's.
        if where != "align_corners":
            yield "Resize", [f(1, 2, 6, 5), None, fixed(s([1, 1, 1.7, 0.6]))], how
    for nearest in ("floor", "ceil", "round_prefer_ceil"):
        how = {"opset": 13, "coordinate_transformation_mode": "asymmetric", "nearest_mode": nearest}
        yield "Resize", [f(1, 1, 6, 5), None, fixed(s([1, 1, 1.5, 2]))], how
    for mode, border, corners in itertools.product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (0, 1)
    ):
        how = {"opset": 16, "mode": mode, "padding_mode": border, "align_corners": corners}
        yield "GridSample", [f(1, 2, 5, 6), f(1, 4, 3, 2)], how
    boxes = s([[1, 1, 6, 7], [2, 0, 9.5, 8]])
    how = {"output_height": 3, "output_width": 2}
    yield "RoiAlign", [f(2, 3, 10, 10), boxes, np.array([0, 1])], {"opset": 10, "spatial_scale": 0.8, **how}
    yield "RoiAlign", [f(2, 3, 10, 10), boxes, np.array([0, 1])], {"opset": 16, "sampling_ratio": 2, **how}
    flat = np.float32([[3, 3, 3, 3], [1, 2, 5, 2]])  # regions without area
    for mode in ("avg", "max"):
        yield "RoiAlign", [f(2, 3, 10, 10), flat, np.array([0, 1])], {"opset": 16, "mode": mode, **how}
    rois = s([[0, 1, 1, 6, 7], [1, 2, 0, 9, 8]])
    yield "MaxRoiPool", [f(2, 3, 10, 10), rois], {"opset": 1, "pooled_shape": [3, 2], "spatial_scale": 0.9}


def movement() -> Iterator[Case]:
    yield "Pad", [f(2, 3)], {"opset": 2, "pads": [0, 1, 1, 2], "value": 2.0}
    yield "Pad", [f(5, 5)], {"opset": 2, "pads": [1, 1, 2, 2], "mode": "reflect"}
    yield "Pad", [f(4, 4), fixed(np.array([3, 0, 3, 1]))], {"opset": 13, "mode": "edge"}
    yield "Slice", [f(4, 5)], {"opset": 9, "starts": [1, -3], "ends": [3, 9999], "axes": [0, 1]}
    bounds = [[4, -1], [-9999, -6], [0, 1], [-2, -1]]
    yield "Slice", [f(6, 5), *[fixed(np.array(v)) for v in bounds]], {"opset": 13}
    bounds = [[-7, 9], [-4, -9], [0, 1], [-2, -1]]
    yield "Slice", [f(3, 5), *[fixed(np.array(v)) for v in bounds]], {"opset": 13}
    yield "Split", [f(6, 4)], {"opset": 11, "outputs": 2, "axis": 0}
    yield "Split", [f(6, 4)], {"opset": 11, "outputs": 2, "axis": 0, "split": [2, 4]}
    yield "Split", [f(7, 4)], {"opset": 18, "outputs": 3, "axis": 0, "num_outputs": 3}
    yield "Squeeze", [f(1, 3, 1)], {"opset": 11}
    yield "Unsqueeze", [f(3)], {"opset": 11, "axes": [0, 2]}
    yield "Tile", [f(2, 3), np.array([2, 2])], {"opset": 6}
    yield "Expand", [f(3, 1), np.array([2, 1, 6])], {"opset": 8}
    yield "ConstantOfShape", [np.array([2, 3])], {"opset": 9}
    yield "EyeLike", [f(3, 4)], {"opset": 9, "k": -1}
    yield "Trilu", [f(3, 4), np.array(1)], {"opset": 14, "upper": 0}
    yield "ReverseSequence", [f(4, 3, 2), np.array([1, 4, 2])], {"opset": 10}
    yield "DepthToSpace", [f(1, 8, 2, 3)], {"opset": 11, "blocksize": 2, "mode": "CRD"}
    yield "DepthToSpace", [f(1, 8, 2, 3)], {"opset": 1, "blocksize": 2}
    yield "SpaceToDepth", [f(1, 2, 4, 6)], {"opset": 1, "blocksize": 2}
    yield "Range", [np.array(3), np.array(20), np.array(4)], {"opset": 11}
    yield "Range", [s(1), s(2), s(0.3)], {"opset": 11}


def indexing() -> Iterator[Case]:
    yield "Gather", [f(3, 4), np.array([[0, -1]])], {"opset": 11, "axis": 1}
    yield "GatherElements", [f(3, 4), ints(3, 2, high=4) - 4], {"opset": 11, "axis": -1}
    yield "GatherND", [f(2, 3, 4), ints(2, 2, 1, high=3)], {"opset": 12, "batch_dims": 1}
    yield "ScatterND", [f(4, 5), np.array([[3], [0], [-2]]), f(3, 5)], {"opset": 11}
    yield "ScatterElements", [f(4, 5), np.array([[1, 2, 3, 0, -1]]), f(1, 5)], {"opset": 11}
    yield "ScatterElements", [f(4, 5), ints(6, 5, high=4), f(6, 5)], {"opset": 16, "reduction": "add"}
    yield "ScatterElements", [f(4, 5), ints(6, 5, high=4), f(6, 5)], {"opset": 18, "reduction": "max"}
    yield "OneHot", [ints(3, 2, high=6) - 3, fixed(np.array(4)), fixed(s([2, 5]))], {"opset": 11, "axis": 0}
    yield "TopK", [f(3, 5)], {"opset": 9, "outputs": 2, "k": 2}
    yield "TopK", [f(3, 5), fixed(np.array([2]))], {"opset": 11, "outputs": 2, "axis": 0, "largest": 0}
    scores = [R.rand(1, 20, 4).astype(np.float32), R.rand(1, 2, 20).astype(np.float32)]
    yield "NonMaxSuppression", [*scores, *map(fixed, (np.array([5]), s([0.5]), s([0.1])))], {"opset": 11}
    yield "Unique", [ints(12)], {"opset": 11, "outputs": 4, "sorted": 0}
    yield "Compress", [f(3, 4), np.array([True, False, True])], {"opset": 11, "axis": 1}
    yield "NonZero", [ints(3, 4, high=2)], {"opset": 13}


def elementwise() -> Iterator[Case]:
    yield "Add", [f(2, 3), f(3)], {"opset": 7}
    yield "Clip", [f(3, 3)], {"opset": 6, "min": -0.5, "max": 0.5}
    yield "Clip", [f(3, 3)], {"opset": 6, "min": -0.5}
    yield "PRelu", [f(2, 3, 4), f(3, 1)], {"opset": 9}
    yield "Mod", [f(9), f(9)], {"opset": 13, "fmod": 1}
    yield "Mod", [ints(99) - 5, ints(99) + 1], {"opset": 13}
    yield "Div", [ints(99) - 5, ints(99) - 12], {"opset": 14}
    yield "BitShift", [u8(5), u8(5) % 8], {"opset": 11, "direction": "LEFT"}
    yield "Pow", [abs(f(9)), ints(9)], {"opset": 13}
    yield "Pow", [ints(9), f(9) * 0 + 2], {"opset": 13}
    yield "Shrink", [f(9)], {"opset": 9, "bias": 0.3, "lambd": 0.4}
    yield "ThresholdedRelu", [f(9)], {"opset": 10, "alpha": 0.5}
    yield "Celu", [f(9)], {"opset": 12, "alpha": 2.0}
    yield "IsInf", [s([1, np.inf, -np.inf])], {"opset": 10, "detect_negative": 0}
    for op, opset in (("Erf", 9), ("Selu", 6), ("HardSwish", 14)):
        yield op, [f(9)], {"opset": opset}


def sums_and_products() -> Iterator[Case]:
    yield "ReduceSum", [f(3, 4)], {"opset": 11, "axes": [1]}
    yield "ReduceMean", [f(3, 4), fixed(np.array([0]))], {"opset": 18}
    yield "ReduceMax", [f(3, 4)], {"opset": 11}
    yield "CumSum", [f(3, 4), fixed(np.array(1))], {"opset": 14, "exclusive": 1, "reverse": 1}
    yield "Gemm", [f(3, 4), f(4, 5), f(5)], {"opset": 7, "alpha": 0.5, "beta": 2.0}
    yield "Einsum", [f(2, 3, 4), f(2, 4, 5)], {"opset": 12, "equation": "b i j, b j k -> b i k"}
    yield "Einsum", [f(2, 3, 3)], {"opset": 12, "equation": "...ii->...i"}
    yield "Einsum", [f(2, 3), f(3, 4)], {"opset": 12, "equation": "ij,jk"}
    yield "Det", [f(2, 3, 3)], {"opset": 11}
    yield "STFT", [f(1, 32, 1), np.array(4), f(8), np.array(8)], {}
    yield "DFT", [f(2, 9, 1)], {"axis": 1, "onesided": 1}
    yield "MelWeightMatrix", [np.array(8), np.array(64), np.array(8000), s(100), s(3800)], {}
    yield "HannWindow", [np.array(9)], {"periodic": 0}
    yield "SoftmaxCrossEntropyLoss", [f(3, 5), ints(3, high=5)], {"opset": 13, "outputs": 2}
    yield "NegativeLogLikelihoodLoss", [f(3, 5, 2), ints(3, 2, high=5), abs(f(5))], {"opset": 13, "ignore_index": 2}


def windows() -> Iterator[Case]:
    square = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
    yield "MaxPool", [f(1, 2, 7, 7)], {"opset": 12, "outputs": 2, "pads": [1, 1, 1, 1], **square}
    how = {"kernel_shape": [3, 2], "dilations": [2, 2], "pads": [1, 0, 2, 1]}
    yield "MaxPool", [f(1, 2, 9, 9)], {"opset": 12, **how}
    yield "MaxPool", [f(1, 2, 9)], {"opset": 8, "outputs": 2, "kernel_shape": [3]}
    yield "AveragePool", [f(1, 2, 7, 7)], {"opset": 11, "pads": [1, 0, 1, 2], **square}
    how = {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "count_include_pad": 1}
    yield "AveragePool", [f(1, 2, 7, 7)], {"opset": 11, **how}
    yield "LpPool", [f(1, 2, 7, 7)], {"opset": 11, "kernel_shape": [3, 3], "p": 3}
    yield "GlobalMaxPool", [f(2, 3, 5)], {"opset": 1}
    yield "GlobalLpPool", [f(2, 3, 5, 5)], {"opset": 2, "p": 2}
    yield "GlobalAveragePool", [f(2, 3, 4, 5, 6)], {"opset": 1}
    how = {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}
    yield "Conv", [f(1, 4, 9, 9), f(6, 2, 3, 3), f(6)], {"opset": 11, **how}
    yield "Conv", [f(1, 4, 9), f(6, 4, 3)], {"opset": 11, "auto_pad": "SAME_UPPER", "strides": [2]}
    yield "Conv", [f(1, 2, 5, 6, 7), f(3, 2, 2, 3, 3)], {"opset": 11}
    yield "Conv", [f(1, 6, 9, 9), f(6, 1, 3, 3)], {"opset": 11, "group": 6, "auto_pad": "SAME_LOWER", "strides": [2, 2]}
    images, kernels = f(1, 4, 5, 5), f(4, 3, 3, 3)
    how = {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}
    yield "ConvTranspose", [images, kernels, f(3)], {"opset": 11, **how}
    yield "ConvTranspose", [images, kernels], {"opset": 11, "strides": [2, 3], "output_shape": [10, 15]}
    yield "ConvTranspose", [images, kernels], {"opset": 11, "strides": [2, 2], "auto_pad": "SAME_UPPER"}
    yield "ConvTranspose", [f(1, 4, 5), f(4, 2, 4)], {"opset": 11, "strides": [3], "group": 2, "dilations": [2]}


def recurrent() -> Iterator[Case]:
    time, batch, width, h = 5, 3, 4, 6
    x = f(time, batch, width)
    for (direction, n), lengths in itertools.product(
        (("forward", 1), ("reverse", 1), ("bidirectional", 2)), (None, np.array([5, 2, 3], np.int32))
    ):
        how = {"hidden_size": h, "direction": direction}
        state = f(n, batch, h)
        gates = [f(n, 4 * h, width), f(n, 4 * h, h), f(n, 8 * h)]
        yield "LSTM", [x, *gates, lengths, state, state, f(n, 3 * h)], {"opset": 14, "outputs": 3, **how}
        gates = [f(n, 3 * h, width), f(n, 3 * h, h), f(n, 6 * h)]
        yield "GRU", [x, *gates, lengths, state], {"opset": 14, "outputs": 2, "linear_before_reset": 1, **how}
        yield "GRU", [x, *gates, lengths], {"opset": 7, "outputs": 2, **how}
        gates = [f(n, h, width), f(n, h, h), f(n, 2 * h)]
        yield "RNN", [x, *gates, lengths], {"opset": 7, "outputs": 2, "activations": ["Relu"] * n, **how}
    gates = [f(1, 4 * h, width), f(1, 4 * h, h)]
    how = {"opset": 14, "outputs": 3, "hidden_size": h}
    names = {"activations": ["HardSigmoid", "Softsign", "Tanh"], "activation_alpha": [0.3], "activation_beta": [0.4]}
    yield "LSTM", [x, *gates], {"clip": 0.5, **names, **how}
    yield "LSTM", [x, *gates], {"input_forget": 1, **how}


def quantised() -> Iterator[Case]:
    yield "QuantizeLinear", [f(3, 4) * 9, s(0.1), b(3)], {"opset": 10, "steps": 1}
    yield "QuantizeLinear", [f(3, 4) * 9, abs(f(4)), u8(4)], {"opset": 13, "axis": 1, "steps": 1}
    yield "DequantizeLinear", [i8(3, 4), s(0.1), np.array(-3, np.int8)], {"opset": 10}
    yield "DynamicQuantizeLinear", [f(3, 4)], {"opset": 11, "outputs": 3}
    yield "MatMulInteger", [u8(3, 4), i8(4, 5), b(3), np.array(-2, np.int8)], {"opset": 10}
    yield "MatMulInteger", [u8(2, 3, 4), u8(4, 5), b(3), u8(5)], {"opset": 10}
    yield "ConvInteger", [u8(1, 2, 6, 6), u8(3, 2, 3, 3), b(4), b(7)], {"opset": 10, "pads": [1, 1, 1, 1]}
    weight = [i8(3, 2, 3, 3), abs(f(3)), np.zeros(3, np.int8), s(4.0), b(9), np.array([1, -50, 300], np.int32)]
    yield "QLinearConv", [u8(1, 2, 6, 6), s(0.1), b(4), *weight], {"opset": 10, "pads": [1, 1, 1, 1], "steps": 1}
    sides = [u8(3, 4), s(0.1), b(4), u8(4, 5), s(0.2), b(5), s(3.0), b(9)]
    yield "QLinearMatMul", sides, {"opset": 10, "steps": 1}


def microsoft() -> Iterator[Case]:
    for op, inputs in (("Gelu", 1), ("BiasGelu", 2), ("FastGelu", 2), ("FastGelu", 1), ("QuickGelu", 1)):
        yield op, [f(3, 4), f(4)][:inputs], {}
    yield "FusedMatMul", [f(2, 4, 3), f(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}
    yield "FusedMatMul", [f(3, 2, 4), f(2, 4, 5)], {"transBatchA": 1}
    yield "FusedMatMul", [f(3, 2, 4), f(4, 2, 5)], {"transBatchA": 1, "transBatchB": 1}
    yield "FusedMatMul", [f(4, 2, 3), f(4, 2, 5)], {"transBatchA": 1, "transA": 1, "transBatchB": 1}
    yield "FusedGemm", [f(3, 4), f(4, 5), f(5)], {"activation": "LeakyRelu", "activation_alpha": 0.2}
    convolution = [f(1, 4, 9, 9), f(6, 4, 3, 3), f(6)]
    yield "FusedConv", convolution, {"activation": "Relu", "pads": [1, 1, 1, 1]}
    yield "FusedConv", convolution, {"activation": "Clip", "activation_params": [-0.5, 0.5]}
    yield "FusedConv", convolution, {"activation": "HardSigmoid", "activation_params": [0.3, 0.6]}
    rows, total = f(2, 3, 8), ["y", "", "", "sum"]
    yield "SkipLayerNormalization", [rows, f(2, 3, 8), f(8), f(8), f(8)], {"outputs": total, "epsilon": 1e-5}
    yield "SkipLayerNormalization", [rows, f(3, 8), f(8)], {}
    yield "SkipSimplifiedLayerNormalization", [rows, f(2, 3, 8), f(8)], {"outputs": total, "epsilon": 1e-5}
    ids, segments = ints(2, 4).astype(np.int32), ints(2, 4, high=2).astype(np.int32)
    tables = [f(10, 8), f(6, 8), f(2, 8), f(8), f(8), np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)]
    yield "EmbedLayerNormalization", [ids, segments, *tables], {"outputs": 3}
    yield "CDist", [f(3, 4), f(5, 4)], {"metric": "euclidean"}
    yield "Trilu", [f(3, 4)], {}
    yield "ExpandDims", [f(3, 4), np.array(1, np.int32)], {}
    yield "Pad", [f(3, 4), np.array([1, 0, 0, 1])], {}
    yield "GatherND", [f(3, 4), ints(2, 1, high=3)], {}
    for bits in (4, 8):
        how = {"K": 32, "N": 6, "bits": bits, "block_size": 16}
        yield "MatMulNBits", [f(3, 32), fixed(u8(6, 2, 2 * bits)), fixed(abs(f(12)))], how
    how = {"K": 48, "N": 6, "bits": 4, "block_size": 16}
    yield "MatMulNBits", [f(3, 48), fixed(u8(6, 3, 8)), fixed(abs(f(18))), fixed(u8(12))], how


def attention() -> Iterator[Case]:
    x = [f(2, 4, 8), f(8, 24), f(24)]
    two = {"num_heads": 2}
    yield "Attention", x, two
    yield "Attention", [*x, np.array([3, 2], np.int32)], two
    yield "Attention", [*x, np.array([[1, 1, 1, 0], [0, 1, 1, 1]], np.int32)], {"unidirectional": 1, **two}
    yield "Attention", [*x, None, f(2, 2, 2, 3, 4)], {"outputs": 2, "unidirectional": 1, **two}
    yield "Attention", [*x, None, None, f(2, 2, 4, 4)], two
    q, k, v = f(2, 4, 8), f(2, 5, 8), f(2, 5, 8)
    yield "MultiHeadAttention", [q, k, v], two
    yield "MultiHeadAttention", [q, k, v, f(24), np.array([5, 3], np.int32)], two
    cache = [f(2, 2, 3, 4), f(2, 2, 3, 4)]
    yield "MultiHeadAttention", [q, q, q, None, None, f(1, 2, 4, 7), *cache], {"outputs": 3, **two}
    yield "MultiHeadAttention", [q, q, q], {"unidirectional": 1, "scale": 0.3, **two}
    yield from grouped()
    yield "RotaryEmbedding", [f(2, 4, 16), np.array([2]), f(20, 4), f(20, 4)], two
    yield "RotaryEmbedding", [f(2, 3, 4, 8), ints(2, 4), f(20, 4), f(20, 4)], {"interleaved": 1}


def grouped() -> Iterator[Case]:
    for length, past, how in (
        (4, 0, {}),
        (1, 3, {}),
        (1, 3, {"do_rotary": 1}),
        (4, 0, {"do_rotary": 1, "rotary_interleaved": 1}),
        (1, 5, {"local_window_size": 3}),
        (4, 0, {"local_window_size": 2}),
        (1, 5, {"softcap": 2.0}),
    ):
        cache = [f(2, 2, past, 16), f(2, 2, past, 16)] if past else [None, None]
        total = length + past
        ends = [np.array([total - 1] * 2, np.int32), fixed(np.array(total, np.int32))]
        angles = [f(16, 8), f(16, 8)] if "do_rotary" in how else []
        names = {"outputs": 3, "num_heads": 4, "kv_num_heads": 2, **how}
        yield (
            "GroupQueryAttention",
            [f(2, length, 64), f(2, length, 32), f(2, length, 32), *cache, *ends, *angles],
            names,
        )
        yield "GroupQueryAttention", [f(2, length, 128), None, None, *cache, *ends, *angles], names


def quantised_layers() -> Iterator[Case]:
    def q(*shape: int) -> list[Any]:
        return [u8(*shape), s(0.05), b(100)]

    to, near = [s(0.06), b(80)], {"steps": 1}
    yield "QLinearAdd", [*q(3, 4), *q(3, 4), s(0.1), b(90)], near
    yield "QLinearMul", [*q(3, 4), *q(4), s(0.1), b(90)], near
    yield "QLinearSigmoid", [*q(3, 4), fixed(s(1 / 256)), fixed(b(0))], near
    yield "QLinearLeakyRelu", [*q(3, 4), *map(fixed, to)], {"alpha": 0.2, **near}
    softmax = {"more": {"opset": 13}, "axis": -1, **near}
    yield "QLinearSoftmax", [*q(3, 4), fixed(s(1 / 256)), fixed(b(0))], softmax
    yield "QLinearAveragePool", [*q(1, 2, 6, 6), *to], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], **near}
    yield "QLinearGlobalAveragePool", [*q(1, 2, 6, 6), *to], near
    yield "QLinearConcat", [*to, *q(2, 3), *q(2, 4)], {"axis": 1, **near}
    yield "QLinearWhere", [f(3, 4) > 0, *q(3, 4), *q(3, 4), *to], near
    zero, sums = np.array(0, np.int8), ints(5, high=100).astype(np.int32)
    yield "QGemm", [*q(3, 8), i8(8, 5), s(0.1), zero, sums, s(0.5), b(99)], near
    yield "QGemm", [*q(3, 8), i8(5, 8), abs(f(5)), np.zeros(5, np.int8), sums], {"transB": 1}
    yield "DynamicQuantizeMatMul", [f(3, 8), i8(8, 5), s(0.1), np.array(2, np.int8), f(5)], {}
    yield "DynamicQuantizeMatMul", [f(3, 8), u8(8, 5), abs(f(5)), u8(5)], {}
    yield "MatMulIntegerToFloat", [u8(3, 8), i8(8, 5), s(0.1), abs(f(5)), b(3), i8(5), f(5)], {}
    heads = [u8(2, 4, 8), i8(8, 24), f(24), s(0.01), s(0.02), np.array([3, 4], np.int32), b(120), zero]
    yield "QAttention", heads, {"num_heads": 2}
    for direction, n in (("forward", 1), ("bidirectional", 2)):
        scale, none = abs(f(n)) * 0.02, np.zeros(n, np.int8)
        weights = [*map(fixed, (i8(n, 4, 24), i8(n, 6, 24))), f(n, 48), None, None, None, None]
        how = {"outputs": 3, "hidden_size": 6, "direction": direction, "rtol": 1e-3, "atol": 1e-4}
        yield "DynamicQuantizeLSTM", [f(5, 1, 4), *weights, *map(fixed, (scale, none, scale, none))], how


def trees_and_scores() -> Iterator[Case]:
    for norm in ("MAX", "L1", "L2"):
        yield "Normalizer", [abs(f(3, 4))], {"norm": norm}
    yield "Scaler", [f(3, 4)], {"offset": [0.5] * 4, "scale": [2.0] * 4}
    yield "Binarizer", [f(3, 4)], {"threshold": 0.1}
    holes = s([[1, np.nan], [np.nan, 2]])
    yield "Imputer", [holes], {"imputed_value_floats": [7.0, 8.0], "replaced_value_float": float("nan")}
    yield "FeatureVectorizer", [f(3, 4), f(3, 2)], {"inputdimensions": [4, 2]}
    yield "OneHotEncoder", [ints(4, high=4)], {"cats_int64s": [0, 2, 3]}
    yield "ArrayFeatureExtractor", [f(3, 4), np.array([[1, 3]])], {}
    yield "LinearRegressor", [f(3, 4)], {"coefficients": [0.1, 0.2, 0.3, 0.4], "intercepts": [1.0]}
    how = {"coefficients": f(12).tolist(), "intercepts": [0.1, 0.2, 0.3], "classlabels_ints": [3, 5, 7]}
    yield "LinearClassifier", [f(5, 4)], {"outputs": 2, "post_transform": "SOFTMAX", "multi_class": 1, **how}
    how = {"coefficients": f(4).tolist(), "intercepts": [0.1], "classlabels_ints": [0, 1]}
    yield "LinearClassifier", [f(5, 4)], {"outputs": 2, "post_transform": "LOGISTIC", **how}
    nodes = {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0],
        "nodes_values": [0.1, -0.2, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
    }
    leaves = {"treeids": [0, 0, 0, 1, 1], "nodeids": [2, 3, 4, 1, 2], "weights": [0.5, -0.3, 0.7, 0.2, -0.9]}
    votes = {f"target_{k}": v for k, v in leaves.items()}
    for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
        how = {"n_targets": 1, "target_ids": [0] * 5, "aggregate_function": aggregate, "base_values": [0.1]}
        yield "TreeEnsembleRegressor", [f(20, 3)], {**nodes, **votes, **how}
    yield "TreeEnsembleRegressor", [f(20, 3)], {**nodes, **votes, "n_targets": 2, "target_ids": [0, 1, 0, 1, 0]}
    votes = {f"class_{k}": v for k, v in leaves.items()}
    how = {"outputs": 2, "classlabels_int64s": [4, 5, 6], "class_ids": [0, 1, 2, 1, 0], "post_transform": "SOFTMAX"}
    yield "TreeEnsembleClassifier", [f(20, 3)], {**nodes, **votes, **how}
    for voted, how in itertools.product((0, 1), ("NONE", "LOGISTIC")):
        how = {"outputs": 2, "classlabels_int64s": [4, 5], "class_ids": [voted] * 5, "post_transform": how}
        yield "TreeEnsembleClassifier", [f(20, 3)], {**nodes, **votes, **how}


FAMILIES = {
    norms_and_softmax: "",
    resizes: "",
    movement: "",
    indexing: "",
    elementwise: "",
    sums_and_products: "",
    windows: "",
    recurrent: "",
    quantised: "",
    microsoft: MICROSOFT,
    attention: MICROSOFT,
    quantised_layers: MICROSOFT,
    trees_and_scores: ML,
}
CASES = [
    pytest.param(domain, case, id=f"{case[0]}-{n}")
    for family, domain in FAMILIES.items()
    for n, case in enumerate(family())
]


@pytest.mark.parametrize(("domain", "case"), CASES)
def test_an_operator_gives_the_values_of_onnxruntime(domain: str, case: Case) -> None:
    op, inputs, how = case
    peers.check_node(op, inputs, domain=domain, **how)


def test_the_standards_align_corners_counts_fractions_of_elements() -> None:
    """length_resized is the scale times the length, which onnxruntime rounds down."""
    import anneal.onnx

    x = s([[[[1, 2, 3, 4], [5, 6, 7, 8]]]])
    model = peers.model_of(
        "Resize",
        [x, None, fixed(s([1, 1, 0.6, 0.6]))],
        1,
        13,
        mode="linear",
        coordinate_transformation_mode="align_corners",
    )
    (y,) = anneal.onnx.load(model, device="cpu").run({"x0": x}).values()
    np.testing.assert_allclose(y.numpy(), [[[[1, 3.142857]]]], rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "inputs", "how", "told"),
    [
        ("Conv", [f(1, 2, 3, 3), f(2, 2, 3, 3)], {"auto_pad": "ALL"}, "auto_pad is NOTSET, VALID"),
        ("Concat", [f(2), f(2)], {"axis": 3}, "axis 3 of a value of 1 axes"),
        ("Resize", [f(1, 1, 2, 2), None, fixed(s([2, 2]))], {"opset": 13}, "scales or sizes name 2 of 4 axes"),
        ("Gather", [f(3), fixed(np.array([7]))], {}, "an index from 7 to 7 into 3 elements"),
        ("LSTM", [f(2, 1, 3), f(1, 8, 3), f(1, 8, 2)], {"direction": "up"}, "direction is forward, reverse"),
        ("TopK", [f(3), fixed(np.array([9]))], {"outputs": 2}, "k must be 0 to 3"),
        ("Cast", [f(3)], {"to": 14}, "makes elements of complex64, which no tensor has"),
        ("BitShift", [u8(3), u8(3)], {"direction": "UP"}, "direction is LEFT or RIGHT"),
    ],
)
def test_what_cannot_be_computed_is_told_with_its_node(
    op: str, inputs: list[Any], how: dict[str, Any], told: str
) -> None:
    import anneal.onnx

    rest = {k: v for k, v in how.items() if k not in ("outputs", "opset")}
    model = peers.model_of(op, inputs, how.get("outputs", 1), how.get("opset", 17), **rest)
    with pytest.raises(OnnxError, match=told) as error:
        anneal.onnx.load(model, device="cpu").run(
            {f"x{i}": x for i, x in enumerate(inputs) if isinstance(x, np.ndarray)}
        )
    assert op in str(error.value)
    assert "main graph" in str(error.value)


class _Node:
    """As much of a node that runs as an elementwise operator asks of it."""

    device = "cpu"

    @staticmethod
    def tensor(x: Any) -> Tensor:
        return x if isinstance(x, Tensor) else Tensor(x)


@pytest.mark.parametrize(("op", "number"), [("Mul", 0.5), ("Add", 1.0), ("Pow", 2.0), ("Where", 0.0)])
def test_a_known_number_is_part_of_the_kernel_and_no_memory(op: str, number: float) -> None:
    x = s([1.0, -2.0])
    given = [x > 0, x] if op == "Where" else [x]

    def buffers(known: Any) -> int:
        model = load(peers.model_of(op, [*given, (s(known),)], 1, 17), "cpu")
        return str(model.trace({f"x{n}": v for n, v in enumerate(given)})["y0"].uop).count("Op.BUFFER")

    assert buffers(number) == len(given)
    assert buffers([number, number]) == len(given) + 1


def test_positions_stay_as_they_are_where_a_device_has_no_integers_of_64_bits() -> None:
    class Narrow:
        def cast(self, dtype: Any) -> Any:
            raise DTypeError(f"no {dtype} here")

    x = Narrow()
    assert counted(x) is x  # type: ignore[arg-type, comparison-overlap]
    assert counted(Tensor([1, 2])).dtype.name == "int64"


def test_known_statistics_of_a_batch_norm_are_a_factor_and_a_shift(monkeypatch: pytest.MonkeyPatch) -> None:
    class Node(_Node):
        @staticmethod
        def constant(array: Any, inputs: Any) -> Tensor:
            return Tensor(array)

    monkeypatch.setattr(here, "node", Node())
    stats = [abs(f(3)) for _ in range(4)]
    x = Tensor(f(2, 3, 4, 4))
    norm = find("BatchNormalization", "", 15).function  # type: ignore[union-attr]
    y = norm(x, *stats, epsilon=1e-5, momentum=0.9, training_mode=0)
    assert str(y.uop).count("Op.BUFFER") == 3
    trained = norm(x, *map(Tensor, stats), epsilon=1e-5, momentum=0.9, training_mode=0)
    np.testing.assert_allclose(y.numpy(), trained.numpy(), rtol=1e-5, atol=1e-6)
