"""Models that are broken, and what is said of each: made here, a function each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    helper,
    numpy_helper,
)

__all__ = ["BAD", "Bad", "external", "floats", "model"]

F, I64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def floats(name: str, *shape: Any) -> Any:
    """The type of a float32 tensor."""
    return helper.make_tensor_value_info(name, F, list(shape))


def ints(name: str, *shape: Any) -> Any:
    return helper.make_tensor_value_info(name, I64, list(shape))


def array(name: str, values: Any, dtype: Any = np.int64) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    weights: Sequence[TensorProto] = (),
    functions: Sequence[FunctionProto] = (),
    opset: int = 18,
    domains: Sequence[str] = (),
) -> ModelProto:
    """A model; without inputs it has x, float32 [2], without outputs y, float32 of any shape."""
    graph = GraphProto(name="bad", node=nodes, initializer=weights)
    graph.input.extend(inputs or [floats("x", 2)])
    graph.output.extend(outputs or [helper.make_tensor_value_info("y", F, None)])
    imports = [helper.make_opsetid("", opset), *[helper.make_opsetid(d, 1) for d in domains]]
    return ModelProto(ir_version=8, graph=graph, opset_import=imports, functions=functions)


@dataclass(frozen=True)
class Bad:
    """What makes the file, what its error says, and the inputs of a run if it can be loaded."""

    make: Callable[[], ModelProto | bytes]
    says: str
    feeds: dict[str, Any] = field(default_factory=lambda: {"x": np.ones(2, np.float32)})


BAD: dict[str, Bad] = {}


def _bad(name: str, made: Any, says: str, **feeds: Any) -> None:
    make = made if callable(made) else lambda: made
    BAD[name] = Bad(make, says, feeds) if feeds else Bad(make, says)


def _tensor(**fields: Any) -> ModelProto:
    """A model that adds an initialiser of these fields."""
    return model([node("Add", ["x", "w"], ["y"])], weights=[TensorProto(name="w", **fields)])


def sparse(values: Any, indices: Any, dims: Sequence[int]) -> ModelProto:
    out = model([node("Add", ["x", "w"], ["y"])])
    sparse = SparseTensorProto(dims=dims)
    sparse.values.CopyFrom(array("w", values, np.float32))
    sparse.indices.CopyFrom(array("i", indices))
    out.graph.sparse_initializer.append(sparse)
    return out


def external(**said: str) -> ModelProto:
    """x plus two numbers of another file."""
    tensor = TensorProto(name="w", data_type=F, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in said.items():
        tensor.external_data.add(key=key, value=value)
    return model([node("Add", ["x", "w"], ["y"])], weights=[tensor])


def _branch(*nodes: NodeProto, outputs: Sequence[Any] = (), inputs: Sequence[Any] = ()) -> GraphProto:
    graph = GraphProto(name="branch", node=nodes)
    graph.input.extend(inputs)
    graph.output.extend(outputs or [helper.make_tensor_value_info("b", F, None)])
    return graph


def _if(cond: TensorProto, then: GraphProto, other: GraphProto, count: int = 1) -> ModelProto:
    outputs = ["y", *[f"y{n}" for n in range(1, count)]]
    return model([node("If", ["c"], outputs, then_branch=then, else_branch=other)], weights=[cond])


def _loop(most: Any, cond: Any, body: GraphProto, *carried: str) -> ModelProto:
    weights = [] if most is None else [array("m", most)]
    weights += [] if cond is None else [array("c", cond, np.bool_)]
    ins = ["" if most is None else "m", "" if cond is None else "c", *carried]
    return model([node("Loop", ins, ["y"], body=body)], weights=weights)


def _turn(*nodes: NodeProto, carried: int = 1) -> GraphProto:
    """A body of a loop that goes on as it was told, and carries values."""
    graph = _branch(
        node("Identity", ["on"], ["goes"]),
        *nodes,
        inputs=[ints("n"), helper.make_tensor_value_info("on", B, []), *[floats(f"v{k}", 2) for k in range(carried)]],
        outputs=[helper.make_tensor_value_info("goes", B, []), *[floats(f"w{k}", 2) for k in range(carried)]],
    )
    if not nodes:
        graph.node.extend([node("Identity", [f"v{k}"], [f"w{k}"]) for k in range(carried)])
    return graph


def _function(
    name: str, *nodes: NodeProto, outputs: Sequence[str] = ("o",), inputs: Sequence[str] = ("i",)
) -> FunctionProto:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    return FunctionProto(name=name, domain="f", input=inputs, output=outputs, node=nodes, opset_import=imports)


def _calls(*functions: FunctionProto, inputs: Sequence[str] = ("x",), opset: int = 18) -> ModelProto:
    call = node(functions[0].name, list(inputs), ["y"], domain="f")
    return model([call], functions=functions, domains=["f"], opset=opset)


def _chain(length: int, each: int) -> ModelProto:
    """Functions each of which calls the next several times."""
    out = []
    for n in range(length):
        inner = "Identity" if n == length - 1 else f"f{n + 1}"
        domain = "" if n == length - 1 else "f"
        names = ["i", *[f"t{k}" for k in range(each - 1)], "o"]
        out.append(_function(f"f{n}", *[node(inner, [a], [b], domain=domain) for a, b in zip(names, names[1:])]))
    return _calls(*out)


def _attribute(name: str, kind: int, **fields: Any) -> ModelProto:
    n = node("Concat", ["x", "x"], ["y"])
    n.attribute.append(AttributeProto(name=name, type=kind, **fields))
    return model([n])


def _sized(op: str, sizes: Any, dtype: Any = np.int64, **attributes: Any) -> ModelProto:
    """x and sizes that the file gives."""
    ins = ["s"] if op == "ConstantOfShape" else ["x", "s"]
    return model([node(op, ins, ["y"], **attributes)], weights=[array("s", sizes, dtype)])


def _doubled(op: str, times: int) -> ModelProto:
    nodes = [node("Concat", [f"t{n}" if n else "x"] * 2, [f"t{n + 1}"], axis=0) for n in range(times)]
    return model([*nodes, node(op, [f"t{times}"], ["y"])])


def _files() -> None:
    sound = model([node("Identity", ["x"], ["y"])]).SerializeToString()
    for name, data in {
        "empty": b"",
        "text": b"ir_version: 8\ngraph {\n  name: 'x'\n}\n",
        "json": b'{"irVersion": "8", "graph": {}}',
        "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b\x04\x00",
        "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94.",
        "zip": b"PK\x03\x04" + b"\0" * 60,
        "zeros": b"\0" * 100,
        "ones": b"\xff" * 100,
    }.items():
        _bad(f"file {name}", data, "no ONNX model")
    for n in (len(sound) // 4, len(sound) // 2, len(sound) * 3 // 4, len(sound) - 1):
        _bad(f"file cut at {n}", sound[:n], "")
    _bad("file without a graph", ModelProto(ir_version=8), "has no graph")


def _graphs() -> None:
    _bad(
        "input that nothing computes",
        model([node("Add", ["x", "z"], ["y"])]),
        "nothing before it computes its input 'z'",
    )
    _bad(
        "nodes in a circle",
        model([node("Neg", ["a"], ["y"]), node("Neg", ["y"], ["a"])]),
        "nothing before it computes its input 'a'",
    )
    _bad("node that feeds itself", model([node("Add", ["x", "y"], ["y"])]), "nothing before it computes its input 'y'")
    _bad("output twice", model([node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])]), "the name of another value")
    _bad("output with an input's name", model([node("Neg", ["x"], ["x"])]), "the name of another value")
    _bad("output that nothing computes", model([node("Neg", ["x"], ["z"])]), "nothing computes its output 'y'")
    _bad("unknown operator", model([node("Frobnicate", ["x"], ["y"])]), "neither ONNX nor anneal has this operator")
    _bad("unknown domain", model([node("Neg", ["x"], ["y"], domain="no.such")]), "imports no opset of its domain")
    _bad("domain without such an operator", model([node("Neg", ["x"], ["y"], domain="f")], domains=["f"]), "Neg")
    for opset in (0, -1, -(2**63)):
        _bad(f"opset {opset}", model([node("Neg", ["x"], ["y"])], opset=opset), "the first is 1")
    _bad("no name of an operator", model([NodeProto(input=["x"], output=["y"])]), "cannot be run")
    _bad("too few inputs", model([node("Add", ["x"], ["y"])]), "has 1 inputs, not 2")
    _bad("too many inputs", model([node("Neg", ["x", "x"], ["y"])]), "has 2 inputs, not 1")
    _bad("too many outputs", model([node("Neg", ["x"], ["y", "z"])]), "has 2 outputs, not 1")
    _bad("no outputs", model([node("Neg", ["x"], []), node("Neg", ["x"], ["y"])]), "has 0 outputs")
    _bad("required input left off", model([node("Add", ["x", ""], ["y"])]), "its input b is missing")
    for op, inputs in ("Clip", ["", "x"]), ("Identity", [""]), ("Elu", [""]), ("Softmax", [""]), ("Shape", [""]):
        _bad(f"{op} of nothing", model([node(op, inputs, ["y"])]), "its input x is missing")
    _bad("no bias", model([node("InstanceNormalization", ["x", "x", ""], ["y"])]), "its input bias is missing")
    _bad("attribute that does not exist", _attribute("axes", AttributeProto.INT, i=1), "axis is missing")
    _bad(
        "no required attribute",
        model([node("Concat", ["x"], ["y"])]),
        "axis is missing",
    )
    for name, kind, value in (
        ("float", AttributeProto.FLOAT, {"f": 1.0}),
        ("text", AttributeProto.STRING, {"s": b"1"}),
        ("tensor", AttributeProto.TENSOR, {"t": array("t", 1)}),
        ("ints", AttributeProto.INTS, {"ints": [1]}),
        ("floats", AttributeProto.FLOATS, {"floats": [1.0]}),
        ("texts", AttributeProto.STRINGS, {"strings": [b"a"]}),
        ("graph", AttributeProto.GRAPH, {"g": _branch(node("Neg", ["x"], ["b"]))}),
        ("graphs", AttributeProto.GRAPHS, {"graphs": [_branch()]}),
    ):
        _bad(f"attribute that is {name}", _attribute("axis", kind, **value), "axis")
    twice = node("Concat", ["x", "x"], ["y"], axis=0)
    twice.attribute.append(AttributeProto(name="axis", type=AttributeProto.INT, i=0))
    _bad("attribute twice", model([twice]), "'axis' twice")
    refers = node("Concat", ["x", "x"], ["y"])
    refers.attribute.append(AttributeProto(name="axis", type=AttributeProto.INT, ref_attr_name="a"))
    _bad("attribute of no function", model([refers]), "stands in no function")
    for axis in (5, -3, 2**62, -(2**63)):
        _bad(f"axis {axis}", model([node("Concat", ["x", "x"], ["y"], axis=axis)]), "Concat")
    _bad("unknown mode", model([node("Pad", ["x", "p"], ["y"], mode="melt")], weights=[array("p", [1, 1])]), "Pad")
    _bad("constant without a value", model([node("Constant", [], ["y"])]), "has no value")
    _bad(
        "shapes that do not broadcast",
        model([node("Add", ["x", "w"], ["y"])], weights=[array("w", [1, 2, 3], np.float32)]),
        "Add",
    )
    _bad("dtypes that do not fit", model([node("Add", ["x", "w"], ["y"])], weights=[array("w", [1, 2])]), "Add")


def _tensors() -> None:
    _bad("negative size", _tensor(data_type=F, dims=[-2], float_data=[1, 2]), "negative size")
    _bad("size of 2**62", _tensor(data_type=F, dims=[2**62], float_data=[1, 2]), "has 2 elements")
    _bad("sizes whose product overflows", _tensor(data_type=F, dims=[2**40, 2**40], float_data=[]), "elements")
    _bad("no elements", _tensor(data_type=F, dims=[2]), "needs 2")
    _bad("too many elements", _tensor(data_type=F, dims=[2], float_data=[1, 2, 3]), "has 3 elements")
    _bad("too few bytes", _tensor(data_type=F, dims=[2], raw_data=b"\0" * 7), "has 7 bytes")
    _bad("too many bytes", _tensor(data_type=F, dims=[2], raw_data=b"\0" * 9), "has 9 bytes")
    _bad("elements in another field", _tensor(data_type=F, dims=[2], int64_data=[1, 2]), "needs 2")
    for code in (0, 29, 99, -1):
        _bad(f"element type {code}", _tensor(data_type=code, dims=[2], raw_data=b"\0" * 8), f"type {code}")
    _bad("65 axes", _tensor(data_type=F, dims=[1] * 65, float_data=[1]), "65 axes")
    _bad(
        "texts that are missing", _tensor(data_type=TensorProto.STRING, dims=[2], string_data=[b"a"]), "has 1 elements"
    )
    _bad("texts to add", _tensor(data_type=TensorProto.STRING, dims=[2], string_data=[b"a", b"b"]), "Add")
    _bad("int4 of the wrong length", _tensor(data_type=TensorProto.INT4, dims=[5], raw_data=b"\0"), "has 1 bytes")
    _bad("numbers that are no int8", _tensor(data_type=TensorProto.INT8, dims=[1], int32_data=[1000]), "")
    _bad("sparse index outside", sparse([1.0], [7], [2]), "outside")
    _bad("sparse index below 0", sparse([1.0], [-1], [2]), "outside")
    _bad("sparse pair outside", sparse([1.0], [[0, 5]], [2, 2]), "outside")
    _bad("sparse without an index", sparse([1.0, 2.0], [1], [2]), "2 values and indices of shape (1,)")
    _bad("sparse with more indices", sparse([1.0], [[0, 1], [1, 1]], [2, 2]), "1 values and indices of shape (2, 2)")
    numbers = sparse([1.0], [1], [2])
    numbers.graph.sparse_initializer[0].indices.CopyFrom(array("i", [1.0], np.float32))
    _bad("sparse indices that are floats", numbers, "are int64, not float32")
    _bad("sparse of 2**60 elements", sparse([1.0], [1], [2**60]), "not possible")
    _bad("sparse of a negative size", sparse([1.0], [1], [-2]), "not possible")
    _bad("sparse indices of rank 3", sparse([1.0], [[[1]]], [2]), "do not fit")
    _bad("external, from bytes", external(location="w.bin"), "by its path")
    _bad("external without a place", external(), "by its path")


def _subgraphs() -> None:
    true = array("c", True, np.bool_)
    good = _branch(node("Neg", ["x"], ["b"]))
    _bad("condition of two", _if(array("c", [True, False], np.bool_), good, good), "2 elements")
    _bad("condition of none", _if(array("c", [], np.bool_), good, good), "0 elements")
    _bad("branch without an output", _if(true, GraphProto(name="g"), good), "gives 0 outputs")
    _bad(
        "branch that takes an input",
        _if(true, _branch(node("Neg", ["x"], ["b"]), inputs=[floats("q")]), good),
        "takes 1 inputs",
    )
    _bad(
        "branch with a hidden value", _if(true, _branch(node("Neg", ["h"], ["b"])), good), "nothing before it computes"
    )
    _bad("branch with a wrong op", _if(true, good, _branch(node("Frob", ["x"], ["b"]))), "else_branch")
    only = node("If", ["c"], ["y"], then_branch=good)
    _bad("no other branch", model([only], weights=[true]), "else_branch is missing")
    _bad("loop for ever", _loop(None, True, _turn(), "x"), "budget")
    _bad("loop 2**62 times", _loop(2**62, True, _turn(), "x"), "budget")
    _bad("loop of two counts", _loop([1, 2], True, _turn(), "x"), "not one number")
    _bad("loop of two conditions", _loop(1, [True, True], _turn(), "x"), "not one number")
    _bad("loop whose body carries less", _loop(1, True, _turn(carried=0), "x"), "carries")
    _bad("loop whose body carries more", _loop(1, True, _turn(carried=2), "x"), "carries")
    _bad(
        "loop that grows",
        _loop(60, True, _turn(node("Concat", ["v0", "v0"], ["w0"], axis=0)), "x"),
        "elements",
    )
    scan = _branch(node("Neg", ["s"], ["b"]), inputs=[floats("s")])
    for n in (0, -1, 2, 2**62):
        _bad(f"scan of {n} inputs", model([node("Scan", ["x"], ["y"], body=scan, num_scan_inputs=n)]), "scans")
    _bad(
        "scan along an axis that is not there",
        model([node("Scan", ["x"], ["y"], body=scan, num_scan_inputs=1, scan_input_axes=[3])]),
        "axis 3",
    )
    both = _branch(node("Add", ["s", "t"], ["b"]), inputs=[floats("s"), floats("t")])
    _bad(
        "scan of two lengths",
        model(
            [node("Scan", ["x", "w"], ["y"], body=both, num_scan_inputs=2)], weights=[array("w", [1, 2, 3], np.float32)]
        ),
        "not one length",
    )
    for at in (5, -3, 2**62):
        nodes = [node("SequenceConstruct", ["x", "x"], ["s"]), node("SequenceAt", ["s", "i"], ["y"])]
        _bad(f"item {at} of a sequence", model(nodes, weights=[array("i", at)]), "outside a sequence of 2")
    _bad(
        "tensor as a sequence",
        model([node("SequenceAt", ["x", "i"], ["y"])], weights=[array("i", 0)]),
        "takes no float32",
    )
    empty = [node("SequenceEmpty", [], ["s"]), node("ConcatFromSequence", ["s"], ["y"], axis=0)]
    _bad("nothing to join", model(empty), "its sequence is empty")
    _bad(
        "nothing to erase",
        model(
            [empty[0], node("SequenceErase", ["s"], ["t"]), node("SequenceAt", ["t", "i"], ["y"])],
            weights=[array("i", 0)],
        ),
        "empty",
    )
    _bad("sequence as a tensor", model([node("SequenceConstruct", ["x"], ["s"]), node("Neg", ["s"], ["y"])]), "Neg")
    _bad(
        "pieces that do not add up",
        model(
            [node("SplitToSequence", ["x", "p"], ["s"], axis=0), node("SequenceAt", ["s", "i"], ["y"])],
            weights=[array("p", [5, 5]), array("i", 0)],
        ),
        "splits 2 elements",
    )


def _functions() -> None:
    _bad("function that calls itself", _calls(_function("f0", node("f0", ["i"], ["o"], domain="f"))), "deep")
    _bad(
        "functions that call each other",
        _calls(
            _function("f0", node("f1", ["i"], ["o"], domain="f")), _function("f1", node("f0", ["i"], ["o"], domain="f"))
        ),
        "deep",
    )
    _bad("functions 60 deep", lambda: _chain(60, 1), "deep")
    _bad("functions 2**30 calls wide", lambda: _chain(30, 2), "budget")
    _bad(
        "function without its output", _calls(_function("f0", node("Neg", ["i"], ["q"]))), "nothing computes its output"
    )
    _bad(
        "function with too many inputs",
        _calls(_function("f0", node("Neg", ["i"], ["o"])), inputs=("x", "x")),
        "is given 2 inputs",
    )
    _bad("function that sees outside", _calls(_function("f0", node("Neg", ["x"], ["o"]))), "nothing before it computes")
    _bad("function of an unknown op", _calls(_function("f0", node("Frob", ["i"], ["o"]))), "Frob")


def _sizes() -> None:
    huge = 2**30
    for op in ("ConstantOfShape", "Expand", "Tile"):
        _bad(f"{op} to 2**30", _sized(op, [huge, 1] if op == "Expand" else [huge]), "elements")
    for op in ("ConstantOfShape", "Tile"):
        _bad(f"{op} to 2**62", _sized(op, [2**62]), op)
    _bad("ConstantOfShape below 0", _sized("ConstantOfShape", [-1]), "ConstantOfShape")
    _bad("Reshape to another size", _sized("Reshape", [3]), "Reshape")
    _bad("Reshape to two unknowns", _sized("Reshape", [-1, -1]), "Reshape")
    _bad("Reshape to -2", _sized("Reshape", [-2]), "Reshape")
    _bad("Expand to 3", _sized("Expand", [3]), "Expand")
    _bad("Tile by -1", _sized("Tile", [-1]), "")
    axes = [node("NonZero", ["x"], ["z"])]
    axes += [node("Size", ["z"], ["n"]), node("Expand", ["n", "h"], ["s"]), node("Tile", ["x", "s"], ["y"])]
    _bad("Tile along 100 axes", model(axes, weights=[array("h", [100])]), "axes")
    _bad("Pad by 2**30", _sized("Pad", [0, huge]), "elements")
    _bad("Resize by 1e12", model([node("Resize", ["x", "", "s"], ["y"])], weights=[array("s", [1e12], np.float32)]), "")
    _bad(
        "Resize by nan",
        model([node("Resize", ["x", "", "s"], ["y"])], weights=[array("s", [np.nan], np.float32)]),
        "Resize",
    )
    ends = [array("a", 0), array("z", huge), array("d", 1)]
    _bad(
        "Range to 2**30",
        model([node("Range", ["a", "z", "d"], ["r"]), node("Cast", ["r"], ["y"], to=F)], weights=ends),
        "elements",
    )
    ends = [array("a", 0), array("z", 5), array("d", 0)]
    _bad(
        "Range by 0",
        model([node("Range", ["a", "z", "d"], ["r"]), node("Cast", ["r"], ["y"], to=F)], weights=ends),
        "Range",
    )
    one = [array("i", [0]), array("n", huge), array("v", [0, 1], np.float32)]
    _bad("OneHot of 2**30", model([node("OneHot", ["i", "n", "v"], ["y"])], weights=one), "elements")
    _bad("RandomNormal of 2**30", model([node("RandomNormal", [], ["y"], shape=[huge])]), "RandomNormal")
    _bad("HannWindow of 2**30", model([node("HannWindow", ["n"], ["y"])], weights=[array("n", huge)]), "")
    _bad("doubled 40 times", lambda: _doubled("Neg", 40), "elements")
    _bad(
        "TopK of more than there are",
        model([node("TopK", ["x", "k"], ["y", "i"])], weights=[array("k", [7])]),
        "TopK",
    )
    _bad("Conv of a vector", model([node("Conv", ["x", "x"], ["y"])]), "Conv")
    _bad(
        "MatMul that does not fit",
        model([node("MatMul", ["x", "w"], ["y"])], weights=[array("w", [[1.0], [1], [1]], np.float32)]),
        "MatMul",
    )
    _bad("Einsum of nonsense", model([node("Einsum", ["x"], ["y"], equation="ij,->&")]), "Einsum")
    _bad("Cast to nothing", model([node("Cast", ["x"], ["y"], to=99)]), "Cast")
    _bad("Transpose by nonsense", model([node("Transpose", ["x"], ["y"], perm=[0, 0])]), "Transpose")
    _bad("Squeeze of 2", _sized("Squeeze", [0]), "Squeeze")
    _bad("Unsqueeze twice", _sized("Unsqueeze", [0, 0]), "Unsqueeze")


def _work() -> None:
    def filled(name: str, shape: Sequence[int]) -> list[Any]:
        """Nodes that fill a value with the sum of x, which no runtime can fold."""
        of = node("ConstantOfShape", [f"{name}_s"], [f"{name}_0"])
        sizes.append(array(f"{name}_s", shape))
        return [
            of,
            node("ReduceSum", ["x"], [f"{name}_1"], keepdims=0),
            node("Add", [f"{name}_0", f"{name}_1"], [name]),
        ]

    sizes: list[TensorProto] = []
    nodes = [*filled("a", [8192, 8192]), *filled("i", [1, 1, 3, 3]), *filled("w", [1, 2, 65535, 3])]
    transposed = node("ConvTranspose", ["i", "w"], ["y"], strides=[3, 2], pads=[1, 2, 1, 2])
    _bad("a transposed kernel of 65535 rows", model([*nodes[3:], transposed], weights=sizes), "sums; the file")
    _bad(
        "product of square matrices",
        model([*nodes[:3], node("MatMul", ["a", "a"], ["y"])], weights=sizes),
        "sums; the file",
    )
    steps = [node("MatMul", [f"v{i}" if i else "b", "b"], [f"v{i + 1}"]) for i in range(40)]
    steps += [node("ReduceMax", ["v40"], ["y"])]
    _bad("40 products of matrices", model([*filled("b", [2048, 2048]), *steps], weights=sizes), "sums; the file")


def _feeds() -> None:
    good = model([node("Neg", ["x"], ["y"])])
    ones = np.ones(2, np.float32)
    _bad("input that is missing", good, "no input 'z'", z=ones)
    _bad("input that is not there", good, "no input 'z'", x=ones, z=ones)
    _bad("input of another dtype", good, "takes float32, not float64", x=np.ones(2))
    _bad("input of another size", good, "has shape \\[3\\]", x=np.ones(3, np.float32))
    _bad("input of another rank", good, "has shape \\[1, 2\\]", x=np.ones((1, 2), np.float32))
    _bad("input that is None", good, "is no optional", x=None)
    _bad("input of text", good, "x", x="text")
    _bad("input that is ragged", good, "cannot be made", x=[[1.0], [1.0, 2.0]])
    _bad("input that is an object", good, "x", x=object())


for _part in (_files, _graphs, _tensors, _subgraphs, _functions, _sizes, _work, _feeds):
    _part()
