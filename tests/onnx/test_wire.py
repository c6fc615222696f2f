"""Large tensors are views of a file's bytes; whatever the bytes, protobuf reads what it would have read."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from anneal import onnx
from anneal.onnx.reading import LARGE, parsed, reader_of, without_large

SIZES = (LARGE // 4 - 1, LARGE // 4, 3 * LARGE)  # just below what is large, just so, and more


def values(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal(n).astype(np.float32)


def inner(n: int, name: str) -> GraphProto:
    """A branch with a weight of its own."""
    constant = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(values(n), name))
    return helper.make_graph([constant], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, [n])])


def model(n: int) -> ModelProto:
    """Weights wherever a file may have them: an initialiser, a Constant, the branches of an If."""
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(values(n + 1)[:n], "c")),
        helper.make_node("If", ["which"], ["b"], then_branch=inner(n, "yes"), else_branch=inner(n, "no")),
        helper.make_node("Sum", ["w", "c", "b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("which", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [n])],
        [numpy_helper.from_array(values(n + 2)[:n], "w")],
    )
    return helper.make_model(graph)


def restored(data: bytes) -> ModelProto:
    """A ModelProto read without its large tensors, with these put back."""
    small, large = without_large(data)
    text = bytes(small)
    proto = ModelProto()
    proto.ParseFromString(text)

    def fill(graph: GraphProto) -> None:
        for tensor in graph.initializer:
            tensor.raw_data = bytes(large.get(tensor.raw_data, tensor.raw_data))
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    attribute.t.raw_data = bytes(large.get(attribute.t.raw_data, attribute.t.raw_data))
                if attribute.HasField("g"):
                    fill(attribute.g)

    fill(proto.graph)
    return proto


@pytest.mark.parametrize("n", SIZES)
def test_what_was_taken_out_is_what_the_file_holds(n: int) -> None:
    data = model(n).SerializeToString()
    small, large = without_large(data)
    assert len(large) == (4 if 4 * n >= LARGE else 0)
    assert sum(map(len, large.values())) + len(small) < len(data) + 1000
    assert restored(data) == model(n)
    run = onnx.load(data, "cpu").run({"which": True})["y"].numpy()
    np.testing.assert_array_equal(run, values(n + 2)[:n] + values(n + 1)[:n] + values(n))


def test_large_weights_are_not_copied() -> None:
    data = model(SIZES[-1]).SerializeToString()
    proto, folder, large = parsed(data)
    array = reader_of(folder, large)(proto.graph.initializer[0], "w")
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))
    assert not array.flags.writeable


def test_a_model_changes_no_bytes_that_it_was_given() -> None:
    data = model(SIZES[-1]).SerializeToString()
    before = hash(bytes(data))
    module = onnx.load(data, "cpu").module()
    for parameter in module.parameters():
        parameter.assign(parameter * 2)
    module.realize()
    assert hash(bytes(data)) == before


def test_bytes_that_are_broken_are_read_as_protobuf_reads_them() -> None:
    whole = model(SIZES[1]).SerializeToString()
    generator = np.random.default_rng(0)
    heads = [i for i in range(len(whole)) if i < 400 or i > len(whole) - 400]
    refused = 0
    for turn in range(400):
        data = bytearray(whole)
        if turn % 4 == 0:
            data = data[: generator.integers(1, len(data))]
        else:
            for _ in range(turn % 3 + 1):
                data[heads[generator.integers(len(heads))] % len(data)] = generator.integers(256)
        wanted = ModelProto()
        try:
            wanted.ParseFromString(bytes(data))
        except DecodeError:
            refused += 1
            with pytest.raises(DecodeError):
                restored(bytes(data))
            continue
        assert restored(bytes(data)).SerializeToString(deterministic=True) == wanted.SerializeToString(
            deterministic=True
        )
    assert 50 < refused < 390
