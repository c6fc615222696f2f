"""Models: what a run takes and gives, when it is planned anew, what the host does, and what trains."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

import anneal.onnx
from anneal import nn, schedule
from anneal.errors import OnnxError
from anneal.onnx.execute import GraphRun
from anneal.runtime import nodes
from anneal.runtime.nodes import LEARNED
from anneal.tensor import Tensor
from anneal.uop import Op, toposort
from tests.helpers import EveryLine
from tests.onnx.bad import array, floats, ints, model, node

F, I64 = TensorProto.FLOAT, TensorProto.INT64
ONES = np.ones(2, np.float32)


def load(*arguments: Any, **more: Any) -> anneal.onnx.Model:
    return anneal.onnx.load(model(*arguments, **more).SerializeToString())


def mlp(batch: Any = "n") -> bytes:
    """Two layers with a normalisation between, weights as initialisers and one as a Constant."""
    r = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array((r.standard_normal(shape) / 2).astype(np.float32), name)

    variance = numpy_helper.from_array(np.abs(r.standard_normal(5)).astype(np.float32) + 0.5, "var")
    nodes = [
        node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], transB=1),
        node("BatchNormalization", ["h", "bn.weight", "bn.bias", "mean", "var"], ["b"]),
        node("Relu", ["b"], ["r"]),
        node("Constant", [], ["/fc2/Constant"], value=weight("", 5, 2)),
        node("MatMul", ["r", "/fc2/Constant"], ["m"]),
        node("Mul", ["m", "two"], ["y"]),
    ]
    weights = [weight("fc1.weight", 5, 3), weight("fc1.bias", 5), weight("bn.weight", 5), weight("bn.bias", 5)]
    weights += [weight("mean", 5), variance, array("two", 2.0, np.float32)]
    made = model(nodes, [floats("x", batch, 3)], [floats("y", batch, 2)], weights)
    return made.SerializeToString()


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each run that goes through the nodes."""
    runs: list[int] = []
    main = GraphRun.main

    def counted(self: GraphRun, *arguments: Any) -> Any:
        runs.append(1)
        return main(self, *arguments)

    monkeypatch.setattr(GraphRun, "main", counted)
    return runs


@pytest.mark.parametrize(("x", "wanted"), [(3.0, (0, 1)), (0.0, (0, 0))])
def test_a_scalar_has_positions_along_no_axis(x: float, wanted: tuple[int, int]) -> None:
    made = load([node("NonZero", ["x"], ["y"])], [floats("x")], [ints("y", "r", "n")])
    assert made.run({"x": np.float32(x)})["y"].shape == wanted


def test_the_onnx_package_is_imported_when_a_model_is_loaded() -> None:
    code = "import sys, anneal.onnx; print([m for m in ('onnx', 'google.protobuf', 'onnxruntime') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- what a run takes and gives -------------------------------------------------------------------------------------


def test_inputs_and_outputs_say_their_names_dtypes_and_symbolic_shapes() -> None:
    m = anneal.onnx.load(mlp())
    assert [str(v) for v in (*m.inputs, *m.outputs)] == ["x: float32[n, 3]", "y: float32[n, 2]"]
    assert repr(m) == "Model('bad': x: float32[n, 3] -> y: float32[n, 2])"


VALUES = [[[1, 2, 3]], [[1.0, 2.0, 3.0]], np.float32([[1, 2, 3]]), np.array([[1, 2, 3]], ">f4"), Tensor([[1.0, 2, 3]])]


@pytest.mark.parametrize("x", VALUES)
def test_values_are_numbers_lists_arrays_and_tensors(x: Any) -> None:
    m = anneal.onnx.load(mlp())
    wanted = m.run({"x": np.float32([[1, 2, 3]])})["y"].numpy()
    for _ in range(3):
        np.testing.assert_array_equal(m.run({"x": x})["y"].numpy(), wanted)
        np.testing.assert_array_equal(m(x).numpy(), wanted)


def test_outputs_come_in_the_order_of_the_file_and_feed_the_next_run() -> None:
    m = load([node("Add", ["x", "x"], ["b"]), node("Neg", ["x"], ["a"])], [], [floats("a", 2), floats("b", 2)])
    first = m.run({"x": ONES})
    assert list(first) == ["a", "b"]
    for _ in range(4):
        x = first["b"].numpy()
        first = m.run({"x": first["b"]})
        assert first["b"].tolist() == (2 * x).tolist()
        assert first["a"].tolist() == (-x).tolist()


def test_results_of_earlier_runs_keep_their_values() -> None:
    m = load([node("Exp", ["x"], ["y"])])
    results = [m.run({"x": np.full(2, n, np.float32)})["y"] for n in range(6)]
    for n, y in enumerate(results):
        np.testing.assert_allclose(y.numpy(), np.exp(np.float32([n, n])), rtol=1e-6)


def test_arrays_like_those_of_the_last_run_go_right_to_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    m = load([node("Add", ["x", "x"], ["y"])], [floats("x", "n")], [floats("y", "n")])
    taken: list[int] = []
    plain = type(m).taken
    monkeypatch.setattr(type(m), "taken", lambda self, feeds: taken.append(1) or plain(self, feeds))
    strided = np.arange(4, dtype=np.float32)[::2]
    for n, x in enumerate([ONES, ONES, ONES, 3 * ONES, strided]):
        np.testing.assert_array_equal(m.run({"x": x})["y"].numpy(), 2 * x)
        assert len(taken) == min(n + 1, 3)  # traced, captured, replayed: then nothing is checked anew
    kept = x = 5 * ONES
    y = m.run({"x": x})["y"]
    kept[:] = 7
    assert y.tolist() == [10, 10]
    for x in (np.ones(3, np.float32), Tensor([1.0, 2.0]), [4.0, 5.0], ONES):
        np.testing.assert_array_equal(m.run({"x": x})["y"].numpy(), 2 * np.asarray(x))
    assert len(taken) == 7
    for wrong in ({"x": ONES.astype(np.float64)}, {"x": ONES, "z": ONES}, {}):
        with pytest.raises(OnnxError):
            m.run(wrong)


def test_numbers_that_decide_shapes_are_looked_at_in_each_run() -> None:
    m = load([node("Expand", ["x", "shape"], ["y"])], [floats("x", 1), ints("shape", 1)], [floats("y", "n")])
    for n in (3, 3, 3, 3, 5, 5, 5, 5, 3):
        assert m.run({"x": ONES[:1], "shape": np.array([n])})["y"].shape == (n,)


def test_a_result_that_is_an_input_keeps_its_values() -> None:
    m = load(
        [node("Identity", ["x"], ["y"]), node("Neg", ["x"], ["z"])], [floats("x", 2)], [floats("y", 2), floats("z", 2)]
    )
    x, found = ONES.copy(), []
    for n in range(6):
        x[:] = n
        found.append(m.run({"x": x})["y"])
    assert [y.tolist() for y in found] == [[n, n] for n in range(6)]


def test_what_is_done_to_a_result_in_place_is_not_done_to_the_model() -> None:
    nodes = [node("Identity", ["w"], ["a"]), node("Add", ["x", "w"], ["b"]), node("Identity", ["x"], ["c"])]
    m = load(nodes, [], [floats("a", 2), floats("b", 2), floats("c", 2)], [array("w", [5, 5], np.float32)])
    x = Tensor(ONES)
    for _ in range(5):
        results = m.run({"x": x})
        assert [r.tolist() for r in results.values()] == [[5, 5], [6, 6], [1, 1]]
        for r in results.values():
            r[0] = 100.0
        assert results["a"].tolist() == [100, 5]
    assert x.tolist() == [1, 1]


def test_a_model_is_a_part_of_a_function_that_jit_captures() -> None:
    from anneal.tensor import jit

    m = anneal.onnx.load(mlp())

    @jit
    def twice(x: Tensor) -> Tensor:
        y: Tensor = m.run({"x": x * 2})["y"]
        return y + 1

    for n in range(5):
        x = np.full((2, 3), n, np.float32)
        np.testing.assert_allclose(twice(Tensor(x)).numpy(), m(x * 2).numpy() + 1, rtol=1e-5)


def test_an_initialiser_that_is_an_input_may_be_given() -> None:
    m = load(
        [node("Add", ["x", "w"], ["y"])], [floats("x", 2), floats("w", 2)], weights=[array("w", [5, 5], np.float32)]
    )
    assert [v.name for v in m.inputs] == ["x"]
    assert [v.name for v in m.optional_inputs] == ["w"]
    for _ in range(3):
        assert m.run({"x": ONES})["y"].tolist() == [6, 6]
        assert m.run({"x": ONES, "w": ONES})["y"].tolist() == [2, 2]


def test_nodes_may_stand_in_any_order() -> None:
    """onnxruntime's converter to float16 appends the casts of inputs, and its quantiser what it inserts."""
    none = helper.make_graph([node("Neg", ["b"], ["r"])], "then", [], [helper.make_tensor_value_info("r", F, None)])
    other = helper.make_graph([], "else", [], [helper.make_tensor_value_info("b", F, None)])
    nodes = [
        node("Add", ["d", "a"], ["y"]),
        node("If", ["c"], ["d"], then_branch=none, else_branch=other),
        node("Exp", ["a"], ["b"]),
        node("Abs", ["x"], ["a"]),
    ]
    m = load(nodes, [floats("x", 2), helper.make_tensor_value_info("c", TensorProto.BOOL, [])])
    for c, sign in ((True, -1), (False, 1)):
        y = m.run({"x": -ONES, "c": np.bool_(c)})["y"].numpy()
        np.testing.assert_allclose(y, 1 + sign * np.exp(ONES), rtol=1e-6)


def test_names_are_any_text_and_unused_domains_do_no_harm() -> None:
    names = ["/a/b", "c::d", "3", " ", "ü", "training", "_private", "a.b"]
    chain = [node("Neg", [a], [b]) for a, b in zip(["x", *names], [*names, "y"])]
    m = load(chain, domains=["com.example.unused"])
    assert m.run({"x": ONES})["y"].tolist() == [-1, -1]


def test_a_session_has_the_shape_of_onnxruntimes() -> None:
    runtime = pytest.importorskip("onnxruntime")
    data = mlp()
    ours, theirs = anneal.onnx.InferenceSession(data), runtime.InferenceSession(data)
    for a, b in zip([*ours.get_inputs(), *ours.get_outputs()], [*theirs.get_inputs(), *theirs.get_outputs()]):
        assert (a.name, a.type, a.shape) == (b.name, b.type, b.shape)
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    (mine,), (other,) = ours.run(None, {"x": x}), theirs.run(None, {"x": x})
    np.testing.assert_allclose(mine, other, rtol=1e-5)
    assert len(ours.run(["y"], {"x": x})) == 1
    with pytest.raises(OnnxError, match="no output 'z'"):
        ours.run(["z"], {"x": x})


def test_several_threads_run_one_model() -> None:
    m = anneal.onnx.load(mlp())
    r = np.random.default_rng(0)
    xs = [r.standard_normal((n % 3 + 1, 3)).astype(np.float32) for n in range(24)]
    alone = anneal.onnx.load(mlp())
    wanted = [alone.run({"x": x})["y"].numpy() for x in xs]
    found: dict[int, Any] = {}

    def some(first: int) -> None:
        for n in range(first, 24, 4):
            found[n] = m.run({"x": xs[n]})["y"].numpy()

    threads = [threading.Thread(target=some, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for n, y in enumerate(wanted):
        np.testing.assert_allclose(found[n], y, rtol=1e-6)


# -- plans -----------------------------------------------------------------------------------------------------------


def test_the_third_run_of_a_shape_goes_through_no_node(traced: list[int]) -> None:
    m = anneal.onnx.load(mlp())
    for size in (1, 4):
        for n in range(6):
            x = np.full((size, 3), n, np.float32)
            m.run({"x": x})
        assert len(traced) == 2
        traced.clear()
    m.run({"x": np.zeros((1, 3), np.float32)})
    assert not traced


def test_values_that_decide_a_shape_are_part_of_what_a_plan_is_for(traced: list[int]) -> None:
    m = load([node("Reshape", ["x", "s"], ["y"])], [floats("x", 6), ints("s", 2)])
    for _ in range(4):
        for shape in ((2, 3), (3, 2), (6, 1)):
            y = m.run({"x": np.arange(6, dtype=np.float32), "s": np.int64(shape)})["y"]
            assert y.shape == shape
    assert len(traced) == 6
    assert m.host_steps == ()


def test_whole_numbers_that_decide_no_shape_are_data(traced: list[int]) -> None:
    table = array("t", np.arange(20).reshape(10, 2), np.float32)
    m = load([node("Gather", ["t", "i"], ["y"])], [ints("i", 3)], weights=[table])
    for n in range(8):
        assert m.run({"i": np.int64([n, 0, 1])})["y"].numpy()[0, 0] == 2 * n
    assert len(traced) == 2


def test_what_follows_from_shapes_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # exporters' way to flatten: Shape, Gather, Unsqueeze, Concat, Reshape
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "axes"], ["n1"]),
        node("Concat", ["n1", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
    ]
    m = load(
        nodes,
        [floats("x", "n", 2, 3)],
        [floats("y", "n", 6)],
        [array("zero", 0), array("axes", [0]), array("rest", [-1])],
    )
    for n in (1, 5, 1, 5, 1, 5):
        assert m.run({"x": np.zeros((n, 2, 3), np.float32)})["y"].shape == (n, 6)
    assert m.host_steps == ()


def recurrent(hidden: int = 3) -> bytes:
    """Two layers whose first states are zeros for the batch that a run has, as exporters write them."""
    r = np.random.default_rng(0)
    nodes = [
        node("Shape", ["x"], ["batch"], start=1, end=2),
        node("Concat", ["one", "batch", "hidden"], ["s"], axis=0),
        node("ConstantOfShape", ["s"], ["h0"]),
        node("RNN", ["x", "w", "r", "", "", "h0"], ["h"], hidden_size=hidden),
        node("Squeeze", ["h", "one"], ["z"]),
        node("ConstantOfShape", ["s"], ["h1"]),
        node("RNN", ["z", "w", "r", "", "", "h1"], ["y"], hidden_size=hidden),
    ]
    weights = [array(n, r.standard_normal((1, hidden, hidden)), np.float32) for n in "wr"]
    weights += [array("one", [1]), array("hidden", [hidden])]
    return model(nodes, [floats("x", "t", "n", 3)], [floats("y", "t", 1, "n", hidden)], weights).SerializeToString()


def test_what_one_run_makes_and_keeps_is_no_frozen_value(traced: list[int]) -> None:
    """The first run makes the zeros of these shapes, the second finds them, both with numbers on the same line."""
    m = anneal.onnx.load(recurrent())
    x = np.random.default_rng(1).standard_normal((3, 2, 3)).astype(np.float32)
    for _ in range(5):
        y = m.run({"x": x})["y"].numpy()
    assert m.host_steps == ()
    assert len(traced) == 2
    for call in (m, m.module()):
        captured = anneal.jit(lambda t, call=call: call(t) + 1)
        for _ in range(4):
            np.testing.assert_allclose(captured(Tensor(x)).numpy(), y + 1, rtol=1e-6)


def test_plans_are_bounded() -> None:
    m = anneal.onnx.load(mlp())
    for n in range(1, 40):
        assert m.run({"x": np.zeros((n, 3), np.float32)})["y"].shape == (n, 2)
    assert len(m._plans) <= 16


# -- on the host in the middle of a run --------------------------------------------------------------------------------


def test_sizes_that_depend_on_values_are_host_steps_that_are_named() -> None:
    # positions of what is above 0, and what follows from how many there are: nothing of it may be kept
    nodes = [
        node("Greater", ["x", "zero"], ["g"]),
        node("NonZero", ["g"], ["p"], name="where"),
        node("Shape", ["p"], ["s"]),
        node("ConstantOfShape", ["s"], ["c"], value=array("", [7], np.float32)),
        node("Size", ["p"], ["count"]),
        node("Cast", ["count"], ["f"], to=F),
        node("Add", ["c", "f"], ["y"]),
    ]
    m = load(nodes, [floats("x", 6)], [floats("y", 1, None)], [array("zero", 0, np.float32)])
    r = np.random.default_rng(0)
    for _ in range(12):
        x = r.standard_normal(6).astype(np.float32)
        count = int((x > 0).sum())
        for given in (x, Tensor(x)):  # on the host already, or read from the device
            np.testing.assert_array_equal(m.run({"x": given})["y"].numpy(), np.full((1, count), 7 + count, np.float32))
    (step,) = m.host_steps
    assert "NonZero" in step.node
    assert "'where'" in step.node


def test_a_condition_of_the_run_chooses_between_constants_and_values() -> None:
    def branch(*nodes: Any) -> Any:
        out = helper.make_graph(list(nodes), "b", [], [floats("b", None)])
        return out

    first = branch(node("Constant", [], ["b"], value=array("", [1, 2, 3], np.float32)))
    second = branch(node("Mul", ["x", "x"], ["b"]))
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["c"]),
        node("If", ["c"], ["z"], then_branch=first, else_branch=second),
        node("Shape", ["z"], ["s"]),
        node("Cast", ["s"], ["f"], to=F),
        node("Add", ["z", "f"], ["y"]),
    ]
    m = load(nodes, weights=[array("zero", 0, np.float32)])
    for n in range(8):
        x = np.float32([n, 1]) * (-1) ** n
        wanted = np.float32([4, 5, 6]) if x.sum() > 0 else x * x + 2
        for given in (x, Tensor(x)):
            np.testing.assert_array_equal(m.run({"x": given})["y"].numpy(), wanted)
    assert "If" in m.host_steps[-1].node


def test_a_constant_condition_takes_its_branch_when_the_run_is_planned(traced: list[int]) -> None:
    first = helper.make_graph([node("Neg", ["x"], ["b"])], "b", [], [floats("b", 2)])
    second = helper.make_graph([node("Frob", ["x"], ["b"], domain="")], "b", [], [floats("b", 2)])
    sound = helper.make_graph([node("Abs", ["x"], ["b"])], "b", [], [floats("b", 2)])
    choose = [node("If", ["c"], ["y"], then_branch=first, else_branch=sound)]
    m = load(choose, weights=[array("c", True, np.bool_)])
    for _ in range(4):
        assert m.run({"x": ONES})["y"].tolist() == [-1, -1]
    assert m.host_steps == ()
    assert len(traced) == 2
    with pytest.raises(OnnxError, match="else_branch"):
        load([node("If", ["c"], ["y"], then_branch=first, else_branch=second)], weights=[array("c", True, np.bool_)])


def test_a_loop_of_a_count_that_the_run_computes() -> None:
    body = helper.make_graph(
        [node("Identity", ["on"], ["goes"]), node("Add", ["v", "x"], ["w"])],
        "body",
        [ints("n"), helper.make_tensor_value_info("on", TensorProto.BOOL, []), floats("v", 2)],
        [helper.make_tensor_value_info("goes", TensorProto.BOOL, []), floats("w", 2)],
    )
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Cast", ["m"], ["times"], to=I64),
        node("Loop", ["times", "", "x"], ["y"], body=body),
    ]
    m = load(nodes)
    for n in (3, 0, 5, 3, 1):
        assert m.run({"x": np.float32([n, 0])})["y"].tolist() == [n * (n + 1), 0]


def test_dynamic_runs_do_not_grow() -> None:
    nodes = [node("NonZero", ["x"], ["p"]), node("Cast", ["p"], ["f"], to=F), node("Add", ["f", "one"], ["y"])]
    m = load(nodes, weights=[array("one", 1, np.float32)])
    sizes = []
    for n in range(30):
        m.run({"x": np.float32([n % 2, 1])})
        (plan,) = m._plans.values()
        sizes.append((len(plan.memo.results), len(plan.memo.fixed), len(m._constants.fixed), len(m._constants.lifted)))
    assert sizes[5] == sizes[-1]


# -- what cannot be run ------------------------------------------------------------------------------------------------


def test_what_is_traced_stays_a_graph_whatever_loops_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants are computed in a trace, and what a node needs on the host is read: the outputs are not computed along
    with them, though a loop has taught the thread that results of such lines go on."""
    nodes = [
        node("Add", ["x", "c"], ["y"]),
        node("Relu", ["x"], ["r"]),
        node("NonZero", ["r"], ["found"]),  # of a size that the host has to know
        node("Transpose", ["found"], ["places"]),
        node("GatherND", ["y", "places"], ["there"]),
        node("Mul", ["there", "two"], ["z"]),
    ]
    weights = [array("c", np.arange(4.0), np.float32), array("two", 2.0, np.float32)]
    m = load(nodes, [floats("x", 4)], [floats("y", 4), floats("z", "k")], weights)
    monkeypatch.setattr(LEARNED, "carried", EveryLine())
    x = np.float32([0, 1, 0, 3])
    y, z = m.trace({"x": x}).values()
    for t, op in ((y, Op.ADD), (z, Op.MUL)):
        assert not t.is_realized
        assert op in {u.op for u in toposort((t.uop,))}
    np.testing.assert_array_equal(y.numpy(), x + np.arange(4))
    np.testing.assert_array_equal(z.numpy(), [4, 12])
    (y,) = anneal.onnx.load(mlp()).trace({"x": np.ones((2, 3), np.float32)}).values()
    assert not y.is_realized


def test_all_gaps_are_told_at_once() -> None:
    inner = helper.make_graph([node("Frob", ["x"], ["b"], name="deep")], "b", [], [floats("b", 2)])
    nodes = [
        node("Frob", ["x"], ["a"], name="first"),
        node("Thing", ["a"], ["b2"], name="second", domain="com.example"),
        node("If", ["c"], ["y"], name="if", then_branch=inner, else_branch=inner),
    ]
    with pytest.raises(OnnxError) as caught:
        load(nodes, weights=[array("c", True, np.bool_)], domains=["com.example"])
    gaps: Any = caught.value.gaps
    assert [(g.op, g.node, g.path) for g in gaps] == [
        ("Frob", "first", "main graph"),
        ("Thing", "second", "main graph"),
        ("Frob", "deep", "main graph / If 'if' then_branch"),
        ("Frob", "deep", "main graph / If 'if' else_branch"),
    ]
    for g in gaps:
        assert str(g) in str(caught.value)
        assert g.fix
    found = anneal.onnx.load(
        model(nodes, weights=[array("c", True, np.bool_)], domains=["com.example"]).SerializeToString(),
        structure_only=True,
    )
    assert found.gaps() == gaps


def test_a_node_that_cannot_be_computed_says_which_with_its_inputs() -> None:
    m = load([node("MatMul", ["x", "w"], ["y"], name="/layer/MatMul")], weights=[array("w", [[1.0, 2, 3]], np.float32)])
    with pytest.raises(
        OnnxError, match=r"MatMul \(version 13\), node '/layer/MatMul' of main graph.*float32\[2\], float32\[1, 3\]"
    ):
        m.run({"x": ONES})


def test_the_structure_is_read_without_weights(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(mlp())
    m = anneal.onnx.load(path, structure_only=True)
    found = m.describe()
    assert found.nodes == 6
    assert found.uses[0].by == "anneal"
    assert dict(found.opsets) == {"": 18}


# -- training ----------------------------------------------------------------------------------------------------------


def test_initialisers_are_parameters_by_their_names_and_gradients_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    module = anneal.onnx.load(mlp()).module()
    assert [n for n, _ in module.named_parameters()] == [
        "fc1.weight",
        "fc1.bias",
        "bn.weight",
        "bn.bias",
        "/fc2/Constant",
    ]
    assert [n for n, _ in module.named_buffers()] == ["mean", "var", "two"]
    r = np.random.default_rng(1)
    x = r.standard_normal((4, 3)).astype(np.float32)
    given = Tensor(x, requires_grad=True)
    (module(given) ** 2).sum().backward()
    state = {n: torch.tensor(t.numpy(), requires_grad=True) for n, t in module.state_dict().items()}
    h = torch.tensor(x, requires_grad=True)
    y = torch.nn.functional.linear(h, state["fc1.weight"], state["fc1.bias"])
    y = torch.nn.functional.batch_norm(
        y, state["mean"].detach(), state["var"].detach(), state["bn.weight"], state["bn.bias"]
    )
    y = torch.relu(y) @ state["/fc2/Constant"] * state["two"]
    (y**2).sum().backward()
    assert given.grad is not None
    np.testing.assert_allclose(given.grad.numpy(), h.grad.numpy(), rtol=1e-4, atol=1e-5)
    for name, p in module.named_parameters():
        assert p.grad is not None
        np.testing.assert_allclose(p.grad.numpy(), state[name].grad.numpy(), rtol=1e-4, atol=1e-5)


def test_an_imported_network_is_fine_tuned() -> None:
    module = anneal.onnx.load(mlp()).module()
    optimiser = nn.Adam(module.parameters(), lr=0.02)
    r = np.random.default_rng(2)
    x, target = (
        Tensor(r.standard_normal((16, 3)).astype(np.float32)),
        Tensor(r.standard_normal((16, 2)).astype(np.float32)),
    )

    from anneal.tensor import jit

    @jit
    def step(x: Tensor, target: Tensor) -> Tensor:
        loss = ((module(x) - target) ** 2).mean()
        module.zero_grad()
        loss.backward()
        optimiser.step(loss)
        return loss

    losses = [float(step(x, target).item()) for _ in range(30)]
    assert losses[-1] < losses[0] / 2


def test_the_state_of_a_module_goes_to_another() -> None:
    first, second = anneal.onnx.load(mlp()).module(), anneal.onnx.load(mlp()).module()
    for p in first.parameters():
        p.assign(p.detach() * 2)
    second.load_state_dict(first.state_dict())
    x = Tensor(np.float32([[1, 2, 3]]))
    np.testing.assert_array_equal(first(x).numpy(), second(x).numpy())


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize(("n", "parts"), [(12, 1), (12, 2), (9001, 2)])
def test_gradients_flow_through_a_fourier_transform_of_any_length(
    n: int, parts: int, inverse: int, onesided: int
) -> None:
    made = load(
        [node("DFT", ["x"], ["y"], axis=1, inverse=inverse, onesided=onesided)],
        [floats("x", 1, n, parts)],
        [floats("y", "a", "b", "c")],
        opset=17,
    )
    x = np.random.default_rng(0).standard_normal((1, n, parts)).astype(np.float32)
    t = Tensor(x).requires_grad_()
    y = made.module()(t)
    np.testing.assert_allclose(y.detach().numpy(), made.run({"x": x})["y"].numpy(), rtol=1e-4, atol=1e-3)
    (y * y).sum().backward()
    assert t.grad is not None
    assert t.grad.shape == x.shape
    assert float(t.grad.abs().max().item()) > 0


def test_names_that_a_module_has_itself_are_changed() -> None:
    weights = [array(n, [2, 2], np.float32) for n in ("training", "_w", "forward")]
    chain = [
        node("Mul", ["x", "training"], ["a"]),
        node("Mul", ["a", "_w"], ["b"]),
        node("Mul", ["b", "forward"], ["y"]),
    ]
    module = load(chain, weights=weights).module()
    assert [n for n, _ in module.named_parameters()] == ["ptraining", "p_w", "pforward"]
    assert module(ONES).tolist() == [8, 8]


def test_what_follows_from_the_file_is_computed_once_for_all_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quantised weight is unpacked once; a pad of it that another shape asks for is not the first one."""
    from anneal.onnx.ops import quantised

    calls = []
    unpacked = quantised._dequantised_on_host
    monkeypatch.setattr(quantised, "_dequantised_on_host", lambda *a: calls.append(1) or unpacked(*a))
    weight = array("w", [[1, 2], [3, 4]], np.int8)
    scale = array("s", 0.5, np.float32)
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["d"]),
        node("Shape", ["x"], ["n"], start=0, end=1),
        node("Sub", ["n", "one"], ["more"]),
        node("Concat", ["zeros", "more", "zero"], ["pads"], axis=0),
        node("Pad", ["d", "pads"], ["p"]),
        node("MatMul", ["p", "v"], ["y"]),
    ]
    fixed = [weight, scale, array("one", [1], np.int64), array("zeros", [0, 0], np.int64), array("zero", [0], np.int64)]
    fixed.append(array("v", [1.0, 1.0], np.float32))
    loaded = load(nodes, [floats("x", "n")], [floats("y", "m")], fixed)
    for n in (1, 3, 1, 2):
        (y,) = loaded.run({"x": np.zeros(n, np.float32)}).values()
        assert y.tolist() == [1.5, 3.5, *[0.0] * (n - 1)]
    assert len(calls) == 1


@pytest.mark.parametrize("host", [False, True])
def test_a_chain_of_scatters_is_that_of_numpy(host: bool) -> None:
    """torch writes one ScatterND for each slice that a program assigns; what is known is written on the host."""
    x = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    nodes, weights, wanted = [], [], x * 2
    for i in range(8):
        rows = np.arange(i, 30 + i)[:, None]
        weights += [array(f"i{i}", rows), array(f"u{i}", np.full((30, 3), i), np.float32)]
        nodes.append(node("ScatterND", [f"x{i}", f"i{i}", f"u{i}"], [f"x{i + 1}"]))
        wanted[i : 30 + i] = i
    weights += [array("known", x, np.float32)] if host else []
    nodes = [node("Add", ["known" if host else "x", "known" if host else "x"], ["x0"]), *nodes]
    nodes.append(node("Mul", ["x8", "x"], ["y"]))
    made = load(nodes, [floats("x", 40, 3)], [floats("y", 40, 3)], weights)
    np.testing.assert_array_equal(made.run({"x": x})["y"].numpy(), wanted * x)
    assert made.host_steps == ()


def test_what_several_reads_share_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A detector reads the host for each of its classes: its features are not computed anew for each."""
    nodes = [node("MatMul", ["x", "w"], ["features"])]
    for i in range(3):
        nodes += [
            node("Constant", [], [f"bar{i}"], value=array("", float(i), np.float32)),
            node("Greater", ["features", f"bar{i}"], [f"above{i}"]),
            node("NonZero", [f"above{i}"], [f"found{i}"]),
        ]
    nodes.append(node("Concat", ["found0", "found1", "found2"], ["y"], axis=1))
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((6, 5)).astype(np.float32)
    made = load(nodes, [floats("x", 4, 6)], [ints("y", 2, "n")], [array("w", w, np.float32)])
    products = []
    plan_for = schedule.plan_for

    def counted(sink: Any, *rest: Any) -> Any:
        products.append(sum(u.op is Op.REDUCE_AXIS for u in toposort((sink,))))
        return plan_for(sink, *rest)

    monkeypatch.setattr(schedule, "plan_for", counted)
    wanted = np.concatenate([np.nonzero(x @ w > i) for i in range(3)], 1)
    np.testing.assert_array_equal(made.run({"x": x})["y"].numpy(), wanted)
    assert len(made.host_steps) == 3
    assert sum(products) == 1


def test_weights_of_a_file_are_not_read_once_more_for_what_may_be_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the same in every run. To hash them took half of the first run of a large model."""
    noted: list[int] = []
    whole = nodes.note_made

    def counted(storage: Any, content: Any, dtype: Any) -> None:
        noted.append(len(content))
        whole(storage, content, dtype)

    monkeypatch.setattr(nodes, "note_made", counted)
    found = anneal.onnx.load(mlp(4))
    x = np.ones((4, 3), np.float32)
    first = found(x).numpy()
    np.testing.assert_array_equal(found(x).numpy(), first)
    assert not {60, 40} & {*noted}  # of the matrices; what was computed of others is noted
