"""Operators of com.microsoft and ai.onnx.ml beside onnxruntime, in tables; those that it has no CPU kernel of by what
they are made of.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper

import anneal.onnx
from anneal.errors import OnnxError
from tests.onnx import peers

R = np.random.RandomState(0)
MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"
Case = tuple[str, list[Any], dict[str, Any]]


def f(*shape: int) -> Any:
    return R.randn(*shape).astype(np.float32)


def fixed(array: Any) -> tuple[Any]:
    """An initialiser."""
    return (array,)


def texts(*values: Any) -> Any:
    return np.array(values, object)


# -- com.microsoft ----------------------------------------------------------------------------------------------------


def microsoft() -> Iterator[Case]:
    images = f(2, 3, 6, 7)
    rois = np.array([[0.1, 0.2, 0.7, 0.9], [0, 0, 1, 1], [-0.2, 0.3, 0.5, 1.3]], np.float32)
    for mode in ("bilinear", "nearest"):
        how = {"mode": mode, "extrapolation_value": 0.5}
        yield "CropAndResize", [images, rois, np.array([0, 1, 1], np.int32), fixed(np.array([4, 5], np.int32))], how
    yield (
        "ConvTransposeWithDynamicPads",
        [f(1, 2, 4, 4), f(2, 3, 3, 3), fixed(np.array([1, 0, 1, 1]))],
        {"strides": [2, 2]},
    )
    yield "GridSample", [f(1, 2, 5, 6), f(1, 4, 3, 2)], {"padding_mode": "border"}
    yield "UnfoldTensor", [f(2, 9, 3)], {"dim": 1, "size": 4, "step": 2}
    yield "Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], {"outputs": 3}
    yield "Inverse", [f(3, 4, 4)], {}
    yield "DynamicTimeWarping", [abs(f(1, 9, 7))], {}
    ids = np.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4]], np.int64)
    yield "NGramRepeatBlock", [ids, f(2, 6)], {"ngram_size": 3}
    yield "NGramRepeatBlock", [ids, f(2, 6)], {"ngram_size": 1}
    yield (
        "MatMulInteger16",
        [R.randint(-99, 99, (3, 4)).astype(np.int16), R.randint(-99, 99, (4, 2)).astype(np.int16)],
        {},
    )
    yield "ScaledSiLU", [f(3, 4)], {"alpha": 0.7}
    yield "GatedRMSNorm", [f(2, 3, 8), f(4), f(2, 3, 8)], {"activation": "sigmoid"}
    yield "MurmurHash3", [np.array([1, -7, 2**30], np.int32)], {"seed": 42}
    yield "MurmurHash3", [texts("", "a", "ab", "abc", "abcd", "hällo wörld")], {"positive": 0}


def packed_weights() -> Iterator[Case]:
    for kind, n in itertools.product((0, 1), (6, 7)):
        weight = R.randint(0, 256, (n * 32 + 1) // 2).astype(np.uint8)
        how = {"K": 32, "N": n, "block_size": 16, "quant_type": kind}
        yield "MatMulBnb4", [f(3, 32), fixed(weight), fixed(abs(f(n * 2)))], how
    for bits, zeros in itertools.product((4, 8), (False, True)):
        data = R.randint(0, 256, (9, 64 * bits // 8)).astype(np.uint8)
        points = [fixed(R.randint(0, 256, (9, 4 * bits // 8)).astype(np.uint8))] if zeros else []
        inputs = [fixed(data), R.randint(0, 9, (2, 3)), fixed(f(9, 4)), *points]
        yield "GatherBlockQuantized", inputs, {"bits": bits, "block_size": 16}


def tokens() -> Iterator[Case]:
    lines = texts("the cat, sat", "", "on  the Mat!", "é zz")
    how: dict[str, Any] = {"mark": 0, "mincharnum": 1, "pad_value": "#"}
    yield "Tokenizer", [lines], {**how, "tokenexp": "[a-zA-Z]+"}
    yield "Tokenizer", [lines.reshape(2, 2)], {**how, "tokenexp": "[a-zA-Z]+", "mark": 1, "mincharnum": 3}
    yield "Tokenizer", [lines], {**how, "separators": [""]}
    yield "Tokenizer", [lines], {**how, "separators": [" ", ","], "mincharnum": 2}


def experts() -> Iterator[Case]:
    for kind, normalise, k in itertools.product(("relu", "gelu", "silu", "identity"), (0, 1), (1, 2)):
        weights = [f(4, 6, 8), f(4, 6), f(4, 8, 6), f(4, 8)]
        how = {"activation_type": kind, "k": k, "normalize_routing_weights": normalise}
        yield "MoE", [f(5, 8), f(5, 4), *map(fixed, weights)], how
    weights = [f(4, 12, 8), f(4, 12), f(4, 8, 6), f(4, 8)]
    how = {"activation_type": "swiglu", "k": 2, "normalize_routing_weights": 1, "swiglu_fusion": 1, "swiglu_limit": 1.5}
    yield "MoE", [f(2, 3, 8), f(6, 4), *map(fixed, weights)], {**how, "activation_alpha": 1.7, "activation_beta": 1.0}
    for bits in (4, 8):
        one = R.randint(0, 256, (4, 32, 16 * bits // 8)).astype(np.uint8)
        two = R.randint(0, 256, (4, 16, 16 * bits // 8)).astype(np.uint8)
        inputs = [f(5, 16), f(5, 4), fixed(one), fixed(f(4, 32) / 40), None, fixed(two), fixed(f(4, 16) / 40)]
        how = {"activation_type": "swiglu", "k": 2, "normalize_routing_weights": 1, "swiglu_fusion": 1}
        yield "QMoE", inputs, {**how, "expert_weight_bits": bits}


# -- ai.onnx.ml -------------------------------------------------------------------------------------------------------

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def regressors() -> Iterator[Case]:
    for kernel, one in itertools.product(KERNELS, (0, 1)):
        how = {"kernel_type": kernel, "kernel_params": [0.5, 0.2, 3.0], "one_class": one, "rho": [0.3]}
        vectors = {"n_supports": 5, "support_vectors": f(20).tolist(), "coefficients": f(5).tolist()}
        yield "SVMRegressor", [f(7, 4)], {**how, **vectors}
    how = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0], "rho": [0.3], "post_transform": "LOGISTIC"}
    yield "SVMRegressor", [f(7, 4)], {**how, "coefficients": f(4).tolist()}


def classifiers() -> Iterator[Case]:
    for kernel, after, count, probable in itertools.product(
        KERNELS, ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"), (2, 3, 4), (False, True)
    ):
        sizes, pairs = [2, 3, 1, 2][:count], count * (count - 1) // 2
        how: dict[str, Any] = {"kernel_type": kernel, "kernel_params": [0.5, 0.2, 3.0], "post_transform": after}
        how |= {"vectors_per_class": sizes, "support_vectors": f(sum(sizes) * 4).tolist(), "rho": f(pairs).tolist()}
        how |= {"coefficients": f((count - 1) * sum(sizes)).tolist()}
        how |= (
            {"classlabels_strings": list("abcd"[:count])}
            if probable
            else {"classlabels_ints": list(range(5, 5 + count))}
        )
        if probable:
            how |= {"prob_a": (-abs(f(pairs))).tolist(), "prob_b": f(pairs).tolist()}
        yield "SVMClassifier", [f(9, 4)], {**how, "outputs": 2}
    for count, positive in itertools.product((1, 2, 3), (False, True)):
        weights = f(count * 4)
        how = {"kernel_type": "LINEAR", "kernel_params": [1.0, 0.0, 1.0], "rho": [0.1] * (count if count > 2 else 1)}
        how |= {"coefficients": (abs(weights) if positive else weights).tolist(), "post_transform": "LOGISTIC"}
        yield "SVMClassifier", [f(9, 4)], {**how, "classlabels_ints": list(range(count)), "outputs": 2}


CASES = [
    pytest.param(domain, case, id=f"{case[0]} {n}")
    for domain, table in (
        (MICROSOFT, microsoft),
        (MICROSOFT, packed_weights),
        (MICROSOFT, tokens),
        (MICROSOFT, experts),
        (ML, regressors),
        (ML, classifiers),
    )
    for n, case in enumerate(table())
]


@pytest.mark.parametrize(("domain", "case"), CASES)
def test_an_operator_gives_the_values_of_onnxruntime(domain: str, case: Case) -> None:
    op, inputs, how = case
    peers.check_node(op, inputs, how.pop("outputs", 1), 17, domain, rtol=3e-4, more=how)


# -- operators that onnxruntime has no CPU kernel of ------------------------------------------------------------------


def run(op: str, inputs: list[Any], outputs: int = 1, domain: str = MICROSOFT, **attributes: Any) -> list[Any]:
    model = anneal.onnx.load(peers.model_of(op, inputs, outputs, 17, domain, **attributes), device="cpu")
    results = model.run({f"x{i}": x for i, x in enumerate(inputs) if isinstance(x, np.ndarray)}).values()
    return [r.numpy() for r in results]


def test_convolutions_of_the_last_axis_are_those_of_the_second() -> None:
    x, w, b, z = f(1, 5, 6, 4), f(3, 3, 3, 4), f(3), f(1, 5, 6, 3)
    how = {"pads": [1, 1, 1, 1]}
    (other,) = run("Conv", [x.transpose(0, 3, 1, 2).copy(), w.transpose(0, 3, 1, 2).copy(), b], 1, "", **how)
    other = other.transpose(0, 2, 3, 1)
    np.testing.assert_allclose(run("NhwcConv", [x, w, b], **how)[0], other, 1e-5, 1e-6)
    fused = run("NhwcFusedConv", [x, w, b, z], activation="Relu", **how)[0]
    np.testing.assert_allclose(fused, np.maximum(other + z, 0), 1e-5, 1e-6)


@pytest.mark.parametrize("most", [258, 300, 2000], ids=["float32 holds it", "nearly", "only float64 holds it"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("held", [True, False], ids=["of the file", "given"])
def test_sums_of_bytes_are_exact_however_large(most: int, rows: int, held: bool) -> None:
    r = np.random.RandomState(most)
    a, w = r.randint(250, 256, (rows, most), np.uint8), r.randint(250, 256, (most, 20), np.uint8)
    zero, zeros = np.array(3, np.uint8), r.randint(0, 2, 20).astype(np.uint8)
    wanted = (a.astype(np.int64) - 3) @ (w.astype(np.int64) - zeros)
    mark = fixed if held else np.asarray
    np.testing.assert_array_equal(run("MatMulInteger", [a, mark(w), zero, mark(zeros)], 1, "")[0], wanted)
    window = w.T.reshape(20, 1, -1, 2).copy()
    image = a.reshape(rows, 1, -1, 2)
    (found,) = run("ConvInteger", [image, mark(window), zero, mark(zeros)], 1, "")
    np.testing.assert_array_equal(found[:, :, 0, 0], wanted)


def test_the_norm_of_a_sum_gives_the_sum_too() -> None:
    x, skip, gamma, beta, bias = f(2, 3, 4, 6), f(2, 6), f(6), f(6), f(6)
    y, total = run("SkipGroupNorm", [x, gamma, beta, skip, bias], 2, activation=0, groups=2)
    np.testing.assert_allclose(total, x + skip[:, None, None] + bias, 1e-6, 1e-6)
    groups = total.astype(np.float64).reshape(2, 12, 2, 3)
    mean, var = groups.mean((1, 3), keepdims=True), groups.var((1, 3), keepdims=True)
    np.testing.assert_allclose(y, ((groups - mean) / np.sqrt(var + 1e-5)).reshape(x.shape) * gamma + beta, 1e-4, 1e-5)


def test_quantised_tables_of_an_embedding_are_read_as_what_they_stand_for() -> None:
    ids, segments = [R.randint(0, n, (2, 3)).astype(np.int32) for n in (5, 2)]
    tables = [R.randint(0, 256, shape).astype(np.uint8) for shape in ((5, 4), (3, 4), (2, 4), (4,), (4,))]
    scales = [np.array(s, np.float32) for s in (0.1, 0.2, 0.3, 0.4, 0.5)]
    zeros = [np.array(z, np.uint8) for z in (100, 120, 90, 10, 128)]
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    floats = [(x.astype(np.float32) - z) * s for x, s, z in zip(tables, scales, zeros, strict=True)]
    found = run("QEmbedLayerNormalization", [ids, segments, *tables, mask, *scales, *zeros], 2)
    wanted = run("EmbedLayerNormalization", [ids, segments, *floats, mask], 2)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_small_ones_are_what_their_names_say() -> None:
    a, b = f(3, 2), f(3, 2)
    for op, other in (("ComplexMul", b), ("ComplexMulConj", b * np.float32([1, -1]))):
        whole = (a[:, 0] + 1j * a[:, 1]) * (other[:, 0] + 1j * other[:, 1])
        np.testing.assert_allclose(run(op, [a, b])[0], np.stack([whole.real, whole.imag], -1), 1e-5, 1e-6)
    x, bias, residual = f(2, 4), f(4), f(2, 4)
    np.testing.assert_allclose(run("BiasDropout", [x, bias, residual])[0], x + bias + residual, 1e-6)
    table, index = f(5, 3), np.array([[4, 0]])
    np.testing.assert_array_equal(run("TorchEmbedding", [table, index])[0], table[index])


def test_the_bias_of_positions_is_that_of_t5() -> None:
    torch = pytest.importorskip("torch")
    table = f(32, 2)
    for both, n, m in ((1, 40, 40), (0, 7, 200)):
        lengths = [fixed(np.array([n])), fixed(np.array([m]))]
        (found,) = run("RelativePositionBias", [table, *lengths], is_bidirectional=both, max_distance=128)
        apart = torch.arange(m)[None] - torch.arange(n)[:, None]
        buckets, base = 32, torch.zeros_like(apart)
        if both:  # T5Attention._relative_position_bucket
            buckets, base, apart = 16, (apart > 0) * 16, apart.abs()
        else:
            apart = -apart.clamp(max=0)
        exact = buckets // 2
        far = exact + (torch.log(apart.float() / exact) / np.log(128 / exact) * (buckets - exact)).long()
        place = base + torch.where(apart < exact, apart, far.clamp(max=buckets - 1))
        np.testing.assert_array_equal(found[0], table[place.numpy()].transpose(2, 0, 1))


# -- maps -------------------------------------------------------------------------------------------------------------


def both(graph: Any, feeds: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """What anneal makes of it, the second time, and what onnxruntime does."""
    import onnxruntime

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    model = anneal.onnx.load(data, device="cpu")
    for _ in range(2):
        results = list(model.run(feeds).values())
    wanted = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    session = anneal.onnx.InferenceSession(data, device="cpu")
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for ours, other in zip(session.get_inputs() + session.get_outputs(), theirs.get_inputs() + theirs.get_outputs()):
        assert ours.type == other.type
    return [r if isinstance(r, list) else r.numpy() if hasattr(r, "numpy") else r for r in results], wanted


def mapped(name: str, key: int, value: int) -> Any:
    inner = helper.make_tensor_type_proto(value, None)
    return helper.make_value_info(name, helper.make_map_type_proto(key, inner))


@pytest.mark.parametrize("names", [{"classlabels_strings": ["a", "b"]}, {"classlabels_int64s": [7, 3]}])
@pytest.mark.parametrize("shape", [(3, 2), (2,)])
def test_rows_become_maps(names: dict[str, Any], shape: tuple[int, ...]) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))
    key = TensorProto.STRING if "classlabels_strings" in names else TensorProto.INT64
    inner = helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    y = helper.make_value_info("y", helper.make_sequence_type_proto(inner))
    nodes = [helper.make_node("Mul", ["x", "x"], ["s"]), helper.make_node("ZipMap", ["s"], ["y"], domain=ML, **names)]
    (ours,), (theirs,) = both(helper.make_graph(nodes, "g", [x], [y]), {"x": f(*shape)})
    assert ours == theirs
    assert all(type(row) is dict for row in ours)


KIND = {np.float32: TensorProto.FLOAT, np.int64: TensorProto.INT64, object: TensorProto.STRING}


def row_of(op: str, key: int, value: int, entries: Any, dtype: Any, **attributes: Any) -> Any:
    """What anneal makes of a map, and onnxruntime, whose Python takes maps to floats alone."""
    y = helper.make_tensor_value_info("y", KIND[dtype], [1, None])
    node = helper.make_node(op, ["x"], ["y"], domain=ML, **attributes)
    graph = helper.make_graph([node], "g", [mapped("x", key, value)], [y])
    if value == TensorProto.FLOAT:
        (ours,), (theirs,) = both(graph, {"x": entries})
        assert ours.tolist() == theirs.tolist()
        assert theirs.dtype == dtype
    else:
        opsets = [helper.make_opsetid(ML, 1)]
        model = anneal.onnx.load(helper.make_model(graph, opset_imports=opsets).SerializeToString(), device="cpu")
        (ours,) = [r if isinstance(r, np.ndarray) else r.numpy() for r in model.run({"x": entries}).values()]
    assert ours.dtype == dtype
    return ours.tolist()


@pytest.mark.parametrize(
    ("key", "value", "entries", "names", "wanted"),
    [
        (TensorProto.STRING, np.float32, {"b": 1.5, "z": 2.0}, {"string_vocabulary": ["a", "b", "c"]}, [[0, 1.5, 0]]),
        (TensorProto.STRING, np.int64, {"b": 4}, {"string_vocabulary": ["a", "b"]}, [[0, 4]]),
        (TensorProto.INT64, np.float32, {5: 1.5}, {"int64_vocabulary": [1, 5]}, [[0, 1.5]]),
        (TensorProto.INT64, object, {5: "x"}, {"int64_vocabulary": [1, 5]}, [["", "x"]]),
    ],
)
def test_a_map_becomes_a_row_by_a_vocabulary(key: int, value: Any, entries: Any, names: Any, wanted: Any) -> None:
    assert row_of("DictVectorizer", key, KIND[value], entries, value, **names) == wanted


@pytest.mark.parametrize(
    ("cast_to", "value", "result", "entries", "dense", "blank"),
    [
        ("TO_FLOAT", TensorProto.FLOAT, np.float32, {3: 1.5, 0: 2.5}, [2.5, 1.5], 0),
        ("TO_INT64", TensorProto.FLOAT, np.int64, {3: 1.5, 0: 2.5}, [2, 1], 0),
        ("TO_STRING", TensorProto.FLOAT, object, {3: 1.5, 0: 2.5}, ["2.500000", "1.500000"], "0.f"),
        ("TO_FLOAT", TensorProto.STRING, np.float32, {3: "1.5", 0: "2"}, [2, 1.5], 0),
        ("TO_STRING", TensorProto.STRING, object, {3: "u", 0: "v"}, ["v", "u"], "0.f"),
    ],
)
def test_a_map_becomes_a_row(cast_to: str, value: int, result: Any, entries: Any, dense: list[Any], blank: Any) -> None:
    how = ("CastMap", TensorProto.INT64, value, entries, result)
    assert row_of(*how, cast_to=cast_to, map_form="DENSE") == [dense]
    assert row_of(*how, cast_to=cast_to, map_form="SPARSE", max_map=5) == [[dense[0], blank, blank, dense[1], blank]]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (3.0, "is float, not a dict; it takes x: map of int64 to float32"),
        ({"a": 1.0}, "has the key 'a'"),
        ({1: "a"}, "has 'a' for 1"),
        ({1: [1.0, 2.0]}, "input 'x'"),
    ],
)
def test_what_is_no_such_map_is_told(given: Any, told: str) -> None:
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, None])
    node = helper.make_node("CastMap", ["x"], ["y"], domain=ML)
    graph = helper.make_graph([node], "g", [mapped("x", TensorProto.INT64, TensorProto.FLOAT)], [y])
    model = anneal.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid(ML, 1)]).SerializeToString())
    with pytest.raises(OnnxError, match=told):
        model.run({"x": given})
