"""What export writes: names, sizes that vary, weights; what it refuses, and with which words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx

import anneal.onnx
from anneal import nn
from anneal.errors import DataError, OnnxError, ShapeError, TransformError
from anneal.onnx.exporting.graph_writer import code_of
from anneal.tensor import Tensor, Variable, dtypes, functional as F, host_call, jit, manual_seed
from anneal.transforms import fori_loop, scan, while_loop
from anneal.uop import DType
from tests.onnx.exporting import check_export, run_file, same

Function = Callable[..., Any]
R = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


class Net(nn.Module):
    """Two convolutions, a norm, a head."""

    def __init__(self) -> None:
        self.blocks = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, stride=2)]
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 5)
        self.unused = nn.Linear(7, 7)

    def forward(self, image: Tensor) -> Tensor:
        for block in self.blocks:
            image = block(image).relu()
        return self.head(self.drop(image.mean((2, 3))))


def read(path: Path) -> Any:
    return onnx.load(str(path)).graph


# -- names ------------------------------------------------------------------------------------------------------------


def test_weights_and_nodes_have_the_names_of_the_module(tmp_path: Path) -> None:
    check_export(Net().eval(), floats(2, 3, 8, 8), folder=tmp_path)
    graph = read(tmp_path / "model.onnx")
    weights = {i.name for i in graph.initializer}
    assert {"blocks.0.weight", "blocks.1.running_mean", "head.bias"} <= weights
    assert not [name for name in weights if name.startswith("unused")]
    assert {"/blocks.0/Conv", "/head/MatMul"} <= {n.name for n in graph.node}
    assert [i.name for i in graph.input] == ["image"]
    assert [o.name for o in graph.output] == ["output"]


def test_inputs_are_named_as_the_parameters_and_trees_by_their_paths(tmp_path: Path) -> None:
    def f(x: Tensor, pair: tuple[Tensor, Tensor], scale: float, *, table: dict[str, Tensor]) -> dict[str, Any]:
        return {"a": x + pair[0] * scale, "b": [pair[1], table["t"]]}

    x = floats(2)
    example = {"x": x, "pair": (x, x), "scale": 2.0, "table": {"t": x}}
    made = anneal.onnx.export(f, example, tmp_path / "m.onnx")
    assert [i.name for i in made.inputs] == ["x", "pair_0", "pair_1", "table_t"]
    assert [o.name for o in made.outputs] == ["output", "output_1", "output_2"]
    named = anneal.onnx.export(
        lambda x, y: (x, x * y),
        (x, x),
        tmp_path / "m.onnx",
        input_names=["left", "right"],
        output_names=["same", "product"],
    )
    assert str(named).startswith(
        f"{tmp_path / 'm.onnx'}: left: float32[2], right: float32[2] -> same: float32[2], product"
    )


def test_tensors_that_a_function_reaches_have_their_variables_names(tmp_path: Path) -> None:
    layer, scale, rows = nn.Linear(3, 2), Tensor(floats(2)), [Tensor(floats(2)), Tensor(floats(2))]
    check_export(lambda x: layer(x) * scale + rows[1], floats(4, 3), folder=tmp_path)
    assert {i.name for i in read(tmp_path / "model.onnx").initializer} >= {"layer.weight", "scale", "rows_1"}
    check_export(Net().eval().forward, floats(2, 3, 8, 8), folder=tmp_path)
    assert "head.weight" in {i.name for i in read(tmp_path / "model.onnx").initializer}


def test_one_value_may_be_several_outputs_and_an_input_an_output(tmp_path: Path) -> None:
    w = Tensor(floats(3))
    check_export(lambda x: (x, x + 1, x + 1, w, x.reshape(3, 1), Tensor.ones(2), 3.0), floats(3), folder=tmp_path)


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    table = nn.Embedding(9, 4)
    made = check_export(lambda i: table(i) @ table.weight.T, np.int32([1, 8]), folder=tmp_path)
    assert [i.name for i in read(tmp_path / "model.onnx").initializer].count("table.weight") == 1
    assert made.bytes < 2000


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_a_batch_that_varies(tmp_path: Path) -> None:
    made = check_export(
        Net().eval(), floats(2, 3, 8, 8), feeds=[(floats(n, 3, 8, 8),) for n in (1, 5)], folder=tmp_path,
        dynamic={"image": {0: "batch"}},
    )  # fmt: skip
    assert [str(v) for v in (*made.inputs, *made.outputs)] == [
        "image: float32[batch, 3, 8, 8]",
        "output: float32[batch, 5]",
    ]


def test_a_transformer_for_every_batch_and_length(tmp_path: Path) -> None:
    model = nn.GPT(vocab_size=11, block_size=16, n_layer=2, n_head=2, n_embd=8).eval()
    tokens = lambda *shape: (R.integers(0, 11, shape).astype(np.int32),)
    made = check_export(
        model, *tokens(2, 5), feeds=[tokens(1, 16), tokens(3, 2)], folder=tmp_path,
        dynamic={"index": {0: "batch", 1: Variable("time", 2, 16)}},
    )  # fmt: skip
    assert str(made.outputs[0]) == "output: float32[batch, time, 11]"
    assert made.operators["LayerNormalization"] == 5
    assert made.operators["Softmax"] == 2


VARYING: list[Function] = [
    lambda x, y: x.sum(0),
    lambda x, y: x.mean(),
    lambda x, y: x.softmax(0),
    lambda x, y: x.argmax(0),
    lambda x, y: x.cumsum(0),
    lambda x, y: x.reshape(-1),
    lambda x, y: x.reshape(x.shape[0], 2, 2, 1).permute(1, 2, 0, 3).reshape(2, -1),
    lambda x, y: x @ y,
    lambda x, y: (x @ y) @ x,
    lambda x, y: x.unsqueeze(1).expand(x.shape[0], 3, 4).reshape(-1, 4),
    lambda x, y: Tensor.cat([x, x * 2], dim=0),
    lambda x, y: Tensor.cat([x, y.T], dim=1),
    lambda x, y: x.pad((0, 0, 1, 2)),
    lambda x, y: x[1:],
    lambda x, y: x[: x.shape[0] - 1, 1:3],
    lambda x, y: x.flip(0),
    lambda x, y: x + Tensor.arange(x.shape[0]).reshape(-1, 1),
    lambda x, y: Tensor.arange(x.shape[0]) * 2,
    lambda x, y: x * x.shape[0],
    lambda x, y: F.layer_norm(x, (4,)),
    lambda x, y: x[y.argmax(1)],
    lambda x, y: x.int().sum(0),
    lambda x, y: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    lambda x, y: F.conv1d(x.reshape(x.shape[0], 1, 4), y[:, :1].reshape(1, 1, 4)[:, :, :2]),
    lambda x, y: Tensor.zeros(x.shape[0], 2),
    lambda x, y: (x.T * x.T).sum(1),
]


@pytest.mark.parametrize("f", VARYING)
def test_functions_of_sizes_that_vary(f: Function, tmp_path: Path) -> None:
    n = Variable("n", 2, 70)
    feeds = [(floats(m, 4), floats(4, m)) for m in (2, 33, 70)]
    dynamic = {"x": {0: n}, "y": {1: n}}
    check_export(f, floats(5, 4), floats(4, 5), feeds=feeds, folder=tmp_path, dynamic=dynamic)


def test_two_sizes_that_vary(tmp_path: Path) -> None:
    made = check_export(
        lambda x: (x.reshape(-1), x.permute(1, 0).reshape(x.shape[1], x.shape[0], 1), x.sum(0), (x + 1).mean()),
        floats(3, 4), feeds=[(floats(7, 2),)], folder=tmp_path, dynamic={"x": {0: "rows", -1: "columns"}},
    )  # fmt: skip
    assert str(made.outputs[0]) == "output: float32[columns*rows]"


def test_an_example_that_holds_variables_varies(tmp_path: Path) -> None:
    n = Variable("n", 1, 8)
    made = anneal.onnx.export(lambda x: x * 2, Tensor.zeros(n.bind(3), 2), tmp_path / "m.onnx")
    assert str(made.inputs[0]) == "x: float32[n, 2]"
    x = floats(8, 2)
    same(run_file(made.path, {"x": x})[0], x * 2)


# -- what is computed when --------------------------------------------------------------------------------------------


def test_a_mask_is_computed_once_and_has_no_repeated_axes(tmp_path: Path) -> None:
    def f(x: Tensor) -> Tensor:
        return Tensor.ones(6, 6).tril().bool().where(x, -1e9)

    made = check_export(f, floats(2, 3, 6, 6), folder=tmp_path)
    assert made.operators == {"Where": 1}
    assert made.bytes < 1000


def test_a_large_table_is_computed_by_the_file(tmp_path: Path) -> None:
    made = check_export(
        lambda x: x + Tensor.arange(1500).reshape(-1, 1) * Tensor.arange(1500), floats(1, 1), folder=tmp_path
    )
    assert made.bytes < 100_000


def test_numbers_drawn_before_are_constants(tmp_path: Path) -> None:
    manual_seed(3)
    noise = Tensor.randn(2, 3)
    check_export(lambda x: x + noise, floats(2, 3), folder=tmp_path)


def test_jit_functions_and_arrays_are_looked_into(tmp_path: Path) -> None:
    table = Tensor(floats(3))

    @jit
    def f(x: Tensor) -> Tensor:
        return x * table

    check_export(f, floats(3), folder=tmp_path)
    check_export(lambda x: f(x) + 1, floats(3), folder=tmp_path)


def test_decoding_with_a_cache_as_argument_and_result(tmp_path: Path) -> None:
    """A row is written where a number says, and attended to up to there."""
    at = Variable("at", 0, 7)

    def step(keys: Tensor, query: Tensor, position: Any) -> tuple[Tensor, Tensor]:
        keys = keys * 1
        keys[:, position : position + 1] = query
        seen = keys[:, : position + 1]
        return F.scaled_dot_product_attention(query, seen, seen), keys

    given = [(floats(2, 8, 3), floats(2, 1, 3), at.bind(n)) for n in (3, 0, 7)]
    made = check_export(step, *given[0], feeds=given[1:], folder=tmp_path)
    assert str(made.inputs[2]) == "position: int64[]"


# -- the file ---------------------------------------------------------------------------------------------------------


def test_the_file_is_the_same_twice_and_tells_nothing_of_the_machine(tmp_path: Path) -> None:
    model = Net().eval()
    files = []
    for name in "ab":
        anneal.onnx.export(model, floats(2, 3, 8, 8), tmp_path / name, dynamic={"image": {0: "batch"}})
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]
    for word in (__file__, str(tmp_path), str(Path(__file__).parent), "test_export", "/anneal"):
        assert word.encode() not in files[0]
    proto = onnx.load_from_string(files[0])
    assert (proto.producer_name, proto.producer_version) == ("anneal", anneal.__version__)
    assert not any(n.doc_string for n in proto.graph.node)


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    layer = nn.Linear(64, 48)
    x = floats(3, 64)
    made = anneal.onnx.export(layer, x, tmp_path / "m.onnx", external_data=True)
    assert made.data == tmp_path / "m.onnx.data"
    assert made.bytes == made.path.stat().st_size + made.data.stat().st_size
    onnx.checker.check_model(str(made.path), full_check=True)
    for got in (run_file(made.path, {"x": x})[0], anneal.onnx.load(made.path).run({"x": x})["output"].numpy()):
        same(got, layer(Tensor(x)).numpy())
    inside = onnx.load(str(made.path), load_external_data=False).graph.initializer
    assert {i.name: i.data_location for i in inside} == {"weight": 1, "bias": 0}
    assert str(tmp_path).encode() not in made.path.read_bytes()


def test_weights_go_to_a_file_of_their_own_where_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anneal.onnx.exporting.writing._APART", 1000)
    assert anneal.onnx.export(nn.Linear(64, 48), floats(3, 64), tmp_path / "m.onnx").data is not None
    assert anneal.onnx.export(nn.Linear(6, 4), floats(3, 6), tmp_path / "n.onnx").data is None


def test_what_was_exported_trains_again(tmp_path: Path) -> None:
    model = Net().eval()
    x = floats(2, 3, 8, 8)
    made = anneal.onnx.export(model, x, tmp_path / "m.onnx")
    module = anneal.onnx.load(made.path).module()
    module(Tensor(x)).square().sum().backward()
    model(Tensor(x)).square().sum().backward()
    got = dict(module.named_parameters())["head.weight"].grad
    assert got is not None
    assert model.head.weight.grad is not None
    same(got.numpy(), model.head.weight.grad.numpy())


def test_narrow_weights_stay_narrow_in_the_file(tmp_path: Path) -> None:
    model = nn.Linear(8, 8).half()
    check_export(model, floats(2, 8).astype(np.float16), folder=tmp_path)
    assert {i.name: i.data_type for i in read(tmp_path / "model.onnx").initializer}[
        "weight"
    ] == onnx.TensorProto.FLOAT16


# -- refusals ---------------------------------------------------------------------------------------------------------


def refused(function: Function, example: Any, path: Path, **more: Any) -> str:
    with pytest.raises(OnnxError) as error:
        anneal.onnx.export(function, example, path / "m.onnx", **more)
    assert not (path / "m.onnx").exists()
    return str(error.value)


def test_a_module_in_training_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    model = Net()
    before = {n: t.numpy() for n, t in model.state_dict().items()}
    message = refused(model, floats(2, 3, 8, 8), tmp_path)
    assert "blocks.1.running_mean" in message
    assert ".eval()" in message
    for name, t in model.state_dict().items():
        np.testing.assert_array_equal(t.numpy(), before[name])
    drop = refused(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), floats(2, 3), tmp_path)
    assert "random numbers" in drop
    assert ".eval()" in drop
    assert "in 1" in drop  # the module's path


def test_all_that_has_no_form_is_listed_with_its_lines(tmp_path: Path) -> None:
    def f(x: Tensor) -> Tensor:
        y = host_call(np.sin, (x.shape, x.dtype), x)
        z = x.double().bitcast(dtypes.int64)
        return y + z + Tensor.rand(3)

    message = refused(f, floats(3), tmp_path)
    assert message.count("test_export.py:") == 3
    for word in ("host", "bits", "random"):
        assert word in message


def test_a_loop_is_written_turn_by_turn(tmp_path: Path) -> None:
    def f(x: Tensor) -> Tensor:
        rows = scan(lambda c, row: (c + row, c * row), Tensor.zeros(2), x, reverse=True)[1]
        return fori_loop(0, 3, lambda i, y: y * 2 + i, rows)

    check_export(f, floats(3, 2), folder=tmp_path)
    by_step = lambda x: scan(lambda c, row: (c + row, c * row), x[0] * 0, x)[1]
    check_export(by_step, floats(3, 2), dynamic={"x": {1: "n"}}, folder=tmp_path, feeds=[(floats(3, 5),)])
    with pytest.raises(ShapeError, match="n=3 turns cannot be written out one by one, .* give a length that is an int"):
        check_export(by_step, floats(3, 2), dynamic={"x": {0: "n"}}, folder=tmp_path)
    assert "while_loop" in refused(lambda x: while_loop(lambda v: v.sum() < 9, lambda v: v * 2, x), floats(3), tmp_path)


def test_bits_of_integers_need_opset_18(tmp_path: Path) -> None:
    assert "opset 18" in refused(lambda x: x & 3, np.int32([1, 2]), tmp_path, opset=17)


def test_a_dtype_that_onnx_lacks_is_refused() -> None:
    with pytest.raises(OnnxError, match="no type float8_e3m4"):
        code_of(DType("float8_e3m4", "float", 8, 5, -2, 15.5))


def keep(x: Tensor, kept: Tensor = Tensor([1.0, 2.0])) -> Tensor:  # noqa: B008
    return x


REFUSALS: list[tuple[Function, dict[str, Any], str]] = [
    (lambda x: x, {"opset": 16}, "opset is 17 to 23, not 16"),
    (lambda x: x, {"opset": True}, "opset is"),
    (lambda x: x, {"dynamic": {"y": {0: "n"}}}, "'y', which is no input; the inputs are x"),
    (lambda x: x, {"dynamic": {"x": {2: "n"}}}, "axis 2 of x"),
    (lambda x: x, {"dynamic": {"x": {0: 3}}}, "a name or a Variable, not 3"),
    (lambda x: x, {"dynamic": {"x": "batch"}}, "is a dict from axes"),
    (lambda x: x, {"dynamic": {"x": {0: Variable("n", 4, 8)}}}, "axis 0 of x"),
    (lambda x: x, {"dynamic": {"x": {0: "n", 1: "n"}}}, "'n' is 2 and 3 in the example"),
    (lambda x: x[: Variable("n", 1, 2).bind(1)], {}, "no input tells the Variable 'n'"),
    (lambda x: x, {"input_names": ["a", "b"]}, "input_names has 2 names"),
    (lambda x: x, {"output_names": ["a", "b"]}, "output_names has 2 names"),
    (lambda x: (x, x), {"output_names": ["a", "a"]}, "'a' is the name of two"),
    (lambda x: x, {"output_names": ["x"]}, "'x' is the name of two"),
    (lambda x, y: x, {}, "do not fit the function"),
    (lambda x: None, {}, "returned no tensor"),
    (lambda x: "text", {}, "the result is a str"),
    (lambda x: x.add_(1), {}, "changes its argument x"),
]


@pytest.mark.parametrize(("f", "options", "words"), REFUSALS)
def test_refusals(f: Function, options: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in refused(f, floats(2, 3), tmp_path, **options)


def test_a_changed_tensor_outside_is_refused(tmp_path: Path) -> None:
    count, cache = Tensor([0.0, 0.0]), {"kept": [Tensor([0.0, 0.0])]}

    def counts(x: Tensor) -> Tensor:
        count.add_(1)
        return x + count

    def keeps(x: Tensor) -> Tensor:
        cache["kept"][0].assign(x)
        return x * 2

    assert "changes count" in refused(counts, floats(2), tmp_path)
    assert "cache_kept_0" in refused(keeps, floats(2), tmp_path)
    assert count.tolist() == [0.0, 0.0]
    assert cache["kept"][0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "f", [lambda x: x * x.sum().item(), lambda x: x if x[0] > 0 else -x, lambda x: (x + 1).realize()]
)
def test_reading_a_value_is_refused(f: Function, tmp_path: Path) -> None:
    with pytest.raises(TransformError, match="in a function that is exported"):
        anneal.onnx.export(f, floats(2), tmp_path / "m.onnx")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        anneal.onnx.export(lambda x: x, floats(2), tmp_path / "nowhere" / "m.onnx")
