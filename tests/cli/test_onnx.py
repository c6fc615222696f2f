"""`anneal onnx`: what it prints of a file, what a run gives, and its errors."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

from tests.cli.helpers import run
from tests.onnx.bad import floats, model, node
from tests.onnx.test_models import mlp


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "m.onnx"
    path.write_bytes(mlp())
    return str(path)


def test_info_says_what_there_is_and_what_it_costs(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "onnx", "info", file)
    assert found.code == 0
    assert "input   x: float32[n, 3]" in found.out
    assert "BatchNormalization" in found.out
    assert "no gaps" in found.out
    assert "what a run costs is not known: give --size n=N" in found.out
    assert "51 numbers in initialisers and constants, 204 bytes" in found.out
    with_size = run(capsys, "onnx", "info", file, "--size", "n=4", "--json")
    report = json.loads(with_size.out)
    assert report["cost"]["kernels"] >= 1
    assert report["cost"]["flops"] > 0
    assert report["parameters"] == 15 + 5 * 5 + 1 + 10  # a Constant
    assert report["bytes"] == 4 * report["parameters"]
    assert {u["op"] for u in report["uses"]} == {"Gemm", "BatchNormalization", "Relu", "Constant", "MatMul", "Mul"}


def test_info_says_of_all_sizes_that_are_open_how_to_give_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    x = helper.make_tensor_value_info("x", TensorProto.INT64, ["n", None])
    path.write_bytes(model([node("Neg", ["x"], ["y"])], [x]).SerializeToString())
    assert "give --size n=N --size x.1=N" in run(capsys, "onnx", "info", str(path)).out
    for device in ("cpu", "webgpu"):  # which may have no int64: its plan is then the cpu's
        found = run(capsys, "onnx", "info", str(path), "--size", "n=2", "--size", "x.1=5", "--device", device)
        assert (found.code, " flops, 160 bytes" in found.out) == (0, True)
    assert "y: int64[2, 5]" in run(capsys, "onnx", "run", str(path), "--size", "x.0=2", "--size", "x.1=5").out


def test_large_weights_are_counted_where_they_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    weight = numpy_helper.from_array(np.ones((50, 60), np.float16), "w")
    made = model(
        [node("Cast", ["w"], ["c"], to=1), node("Add", ["x", "c"], ["y"])], [floats("x", 50, 60)], [], [weight]
    )
    path.write_bytes(made.SerializeToString())
    assert "3,000 numbers in initialisers and constants, 6,000 bytes" in run(capsys, "onnx", "info", str(path)).out


def test_elements_of_wrong_types_are_gaps_all_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    text = helper.make_tensor_value_info("s", TensorProto.STRING, [2])
    sparse = helper.make_sparse_tensor_value_info("sp", TensorProto.FLOAT, [2])
    nodes = [
        node("Cast", ["x"], ["c"], name="complex", to=TensorProto.COMPLEX64),
        node("Relu", ["s"], ["r"], name="text"),
        node("Shape", ["x"], ["n"]),
        node("Add", ["n", "x"], ["a"], name="two types"),
        node("Transpose", ["x"], ["t"]),
        node("And", ["t", "t"], ["y"], name="carried"),
    ]
    path.write_bytes(model(nodes, [floats("x", 2), text, sparse]).SerializeToString())
    found = run(capsys, "onnx", "info", str(path))
    assert found.code == 4
    for told in (
        "node 'sp' of main graph: an input of the kind 'sparse tensor' is not taken",
        "node 'complex' of main graph: makes elements of complex64",
        "node 'text' of main graph: version 14 takes no text as 'X'",
        "node 'two types' of main graph: 'B' is float32, but 'A' is int64",
        "node 'carried' of main graph: version 7 takes no float32 as 'A'",
        "5 of the nodes cannot be run",
    ):
        assert told in found.out


def test_info_lists_all_gaps_and_ends_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    made = model([node("Frob", ["x"], ["a"], name="first"), node("Thing", ["a"], ["y"], name="second")])
    path.write_bytes(made.SerializeToString())
    found = run(capsys, "onnx", "info", str(path))
    assert found.code == 4
    assert "'first'" in found.out
    assert "'second'" in found.out
    assert run(capsys, "onnx", "run", str(path)).code == 4


def test_run_takes_files_writes_files_and_times(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.float32([[1, 2, 3]])
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "out.npz"
    arguments = ("onnx", "run", file, "--input", f"x={tmp_path / 'x.npy'}", "--device", "cpu")
    found = run(capsys, *arguments, "--output", str(out), "--time")
    assert found.code == 0, found.err
    assert found.out.startswith("y: float32[1, 2]")
    assert "median" in found.err
    import anneal.onnx

    np.testing.assert_array_equal(np.load(out)["y"], anneal.onnx.load(file, "cpu").run({"x": x})["y"].numpy())
    random = run(capsys, "onnx", "run", file, "--size", "n=5", "--device", "cpu", "--json")
    assert json.loads(random.out)["outputs"]["y"].startswith("float32[5, 2]")


def test_a_size_of_a_file_that_is_another_than_the_one_asked_for_is_told(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "x.npy")
    np.save(path, np.float32([[1, 2, 3]]))
    for command in ("run", "check"):
        for size in ("n=5", "x.0=5"):
            found = run(capsys, "onnx", command, file, "--input", f"x={path}", "--size", size)
            assert found.code == 2
            assert f"--size {size}: {size[:-2]} is 1 in the file" in found.err.replace("\n", " ")
    assert run(capsys, "onnx", "run", file, "--input", f"x={path}", "--size", "n=1", "--device", "cpu").code == 0


def test_the_sizes_of_files_are_those_of_random_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, array = str(tmp_path / "sum.onnx"), str(tmp_path / "x.npy")
    made = model([node("Add", ["x", "z"], ["y"])], [floats("z", "n"), floats("x", "n")], [floats("y", "n")])
    Path(path).write_bytes(made.SerializeToString())
    np.save(array, np.float32([1, 2, 3]))
    assert "y: float32[3]" in run(capsys, "onnx", "run", path, "--input", f"x={array}", "--device", "cpu").out


def test_run_takes_bounds_of_sizes(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "onnx", "run", file, "--size", "n=5", "--shape", "n=2:8", "--device", "cpu")
    assert "n (2 to 8): one plan" in done.err
    report = json.loads(run(capsys, "onnx", "run", file, "--shape", "n=2:8", "--device", "cpu", "--json").out)
    assert report["sizes"] == [{"name": "n", "bounds": [2, 8], "reason": ""}]
    assert "float32[2, " in report["outputs"]["y"]


def test_run_says_where_the_host_was_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    nodes = [node("NonZero", ["x"], ["p"], name="where"), node("Cast", ["p"], ["y"], to=1)]
    path.write_bytes(model(nodes).SerializeToString())
    found = run(capsys, "onnx", "run", str(path), "--device", "cpu")
    assert found.code == 0
    assert "on the host: NonZero" in found.err


def test_check_compares_each_node(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    found = run(capsys, "onnx", "check", file, "--device", "cpu")
    assert found.code == 0, found.err + found.out
    assert "6 values compared with onnxruntime" in found.out
    assert "no node differs" in found.out
    from anneal.onnx import registry

    relu = registry.find("Relu", "", 18)
    assert relu is not None
    monkeypatch.setattr(relu, "function", lambda x: x)
    found = run(capsys, "onnx", "check", file, "--device", "cpu")
    assert found.code == 1
    assert "the first that differs: Relu" in found.err
    assert "the reference has 0.0" in found.err


def test_kernels_and_graphs_are_of_a_run_and_name_its_nodes(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "kernels", file, "--batch", "3", "--device", "cpu", "--json")
    assert found.code == 0, found.err
    kernels = json.loads(found.out)["kernels"]
    assert kernels
    assert "Gemm:h" in json.dumps(kernels)
    graph = run(capsys, "graph", file, "--limit", "3")
    assert graph.code == 0
    assert "total" in graph.out
    assert run(capsys, "graph", "none.onnx").code == 4
    assert run(capsys, "train", file).code == 2


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (["run", "none.onnx"], "cannot be read", 4),
        (["info", "README.md"], "no ONNX model", 4),
        (["run", "{file}", "--input", "z=random"], "no input 'z'", 2),
        (["run", "{file}", "--input", "x"], "NAME=FILE.npy", 2),
        (["run", "{file}", "--input", "x=none.npy"], "cannot be read", 4),
        (["run", "{file}", "--input", "x=README.md"], "is no .npy file of numbers: the magic string is not correct", 4),
        (["info", "{file}", "--size", "zz=3"], "no open size 'zz'; it has n, x.0", 2),
        (["run", "{file}", "--size", "n=many"], "NAME=N", 2),
        (["run", "{file}", "--size", "zz=3"], "no open size 'zz'; it has n, x.0", 2),
        (["run", "{file}", "--shape", "n=1:2:3"], "NAME=LOW:HIGH", 2),
        (["run", "{file}", "--shape", "n=5:1"], "--shape n=5:1: bounds are 1 <= LOW <= HIGH < 2**31, such as n=1:5", 2),
        (["run", "{file}", "--shape", "n=0"], "--shape n=0: bounds are 1 <= LOW <= HIGH < 2**31", 2),
        (["run", "{file}", "--shape", "n=1:4", "--size", "n=5"], "which goes from 1 to 4, and has 5", 4),
        (["check", "{file}", "--device", "cpu", "--adapter", "x"], "--adapter", 2),
        (["run", "{file}", "--output", "/no/such/folder/o.npz"], "no/such/folder", 4),
        (["export", "mpl", "-o", "m.onnx"], "Did you mean 'mlp'", 2),
        (["export", "mlp"], "--output", 2),
        (["export", "mlp", "-o", "/no/such/folder/m.onnx"], "no/such/folder", 4),
        (["export", "mlp", "-o", "m.onnx", "--opset", "16"], "--opset", 2),
        (["export", "mlp", "-o", "m.onnx", "--scratch"], "for gpt2, not for mlp", 2),
        (["export", "mlp", "-o", "m.onnx", "--weights", "{file}"], "corrupt or not a safetensors file", 4),
        (["export", "gpt2", "-o", "m.onnx", "--model-dir", "no/such/folder"], "no/such/folder", 4),
    ],
)
def test_mistakes_are_one_message(
    arguments: list[str], says: str, code: int, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(capsys, "onnx", *[a.replace("{file}", file) for a in arguments])
    assert found.code == code
    assert says in found.err
    assert "Traceback" not in found.err


def test_the_weights_may_be_missing_for_info(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.onnx.bad import external

    path = tmp_path / "m.onnx"
    path.write_bytes(external(location="gone.bin").SerializeToString())
    assert run(capsys, "onnx", "info", str(path)).code == 0
    found = run(capsys, "onnx", "run", str(path))
    assert found.code == 4
    assert "missing from the model's folder" in found.err


def test_export_writes_a_model_for_any_batch_or_for_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import anneal.onnx

    path = str(tmp_path / "m.onnx")
    found = run(capsys, "onnx", "export", "mlp", "-o", path)
    assert found.code == 0, found.err
    assert f"{path}: x: float32[batch, 2] -> output: float32[batch, 3]; 11 nodes, opset 20" in found.out
    assert run(capsys, "onnx", "check", path, "--size", "batch=7", "--device", "cpu").code == 0
    report = json.loads(run(capsys, "onnx", "export", "mlp", "-o", path, "--batch", "9", "--opset", "17", "--json").out)
    assert report["opset"] == 17
    assert report["inputs"][0]["shape"] == [9, 2]
    assert report["operators"]["MatMul"] == 3
    assert anneal.onnx.load(path).run({"x": np.zeros((9, 2), np.float32)})["output"].shape == (9, 3)


def test_export_takes_the_weights_that_training_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from onnx import load, numpy_helper

    from anneal.tensor.io import safe_load

    saved, path = str(tmp_path / "mlp.safetensors"), str(tmp_path / "m.onnx")
    trained = run(capsys, "train", "mlp", "--steps", "2", "--batch", "8", "--device", "cpu", "--plain", "--save", saved)
    assert trained.code == 0, trained.err
    assert run(capsys, "onnx", "export", "mlp", "-o", path, "--weights", saved).code == 0
    written = {i.name: numpy_helper.to_array(i) for i in load(path).graph.initializer}
    for name, t in safe_load(saved).items():
        np.testing.assert_array_equal(written[name], t.numpy())


def test_export_of_gpt2_takes_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.cli.test_gpt2 import make

    (tmp_path / "gpt2").mkdir()
    folder, path = make(tmp_path / "gpt2"), str(tmp_path / "m.onnx")
    found = run(capsys, "onnx", "export", "gpt2", "-o", path, "--model-dir", str(folder))
    assert found.code == 0, found.err
    assert "index: int32[batch, " in found.out
    assert run(capsys, "onnx", "check", path, "--size", "batch=2", "--device", "cpu").code == 0


# -- every command that takes a file, with every flag -----------------------------------------------------------------

TAKES_A_FILE = ("onnx info", "onnx run", "onnx check", "graph", "kernels", "check", "explain --model")
NO_SUCH = "No such option: "
# flag -> what the commands that do not take it say, and those that do
FLAGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "--device cpu": ("", TAKES_A_FILE),
    "--json": ("", TAKES_A_FILE),
    "--quiet": ("", TAKES_A_FILE),
    "--size n=2": (NO_SUCH, ("onnx info", "onnx run", "onnx check", "check")),
    "--batch 2": (NO_SUCH, ("graph", "kernels", "check", "explain --model")),
    "--seed 3": (NO_SUCH, ("onnx run", "onnx check", "check")),
    "--step": ("an ONNX file is run, not trained; leave --step", ()),
    "--gradients": ("an ONNX file is run, not trained; leave --step and --gradients out", ()),
    "--adapter none": ("", ()),
}


@pytest.mark.parametrize("flag", FLAGS)
def test_every_command_of_a_file_takes_a_flag_or_says_why_not(
    file: str, flag: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANNEAL_DEVICE", "cpu")
    said, takers = FLAGS[flag]
    for command in TAKES_A_FILE:
        found = run(capsys, *command.split(), file, *flag.split())
        if command in takers:
            assert found.code == 0, (command, found.err)
            assert not found.err or flag != "--quiet"
            if flag == "--json":
                assert json.loads(found.out)
        elif found.code or flag != "--adapter none":  # what opens no device plans for it
            assert found.code in (2, 3), (command, found.out)
            last = found.err.splitlines()[-1]
            assert last.startswith("error: ")
            assert said in last or NO_SUCH in last, (command, last)


READS = [
    *[f"{c} {{}}" for c in TAKES_A_FILE], "kernels {} --time", "viz {} --no-open", "check --replay {}", "run llama2c {}",
    "run llama2c {real} --tokenizer {}", "run text nanogpt --weights {}", "run resnet9 --weights {}",
    "train mlp --start {}", "onnx run {real} --input x={}", "onnx check {real} --input x={}",
    "onnx export mlp -o {out} --weights {}",
]  # fmt: skip
NO_FILES = {
    "none.onnx": "No such file or directory", "pipe.onnx": "it is a pipe, not a file",
    "socket.onnx": "it is a socket, not a file", "folder.onnx": "it is a folder, not a file",
    "zero.onnx": "it is a device, not a file", "loop.onnx": "Too many levels of symbolic links",
}  # fmt: skip


def test_what_is_no_file_is_refused_before_anything_is_imported(file: str, tmp_path: Path) -> None:
    """All in one process, at the end of which nothing that reads a model is there: each costs a tenth of a second."""
    os.mkfifo(tmp_path / "pipe.onnx")
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "zero.onnx").symlink_to("/dev/zero")
    (tmp_path / "loop.onnx").symlink_to(tmp_path / "loop.onnx")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "socket.onnx"))
    rows = [
        (name, command.replace("{real}", file).replace("{out}", str(tmp_path / "out.onnx")))
        for command in READS for name in NO_FILES
    ]  # fmt: skip
    text = """if True:
        import json, sys
        from anneal.cli import main
        for line in json.load(sys.stdin):
            try:
                main(line)
            except SystemExit as end:
                print("code", end.code, file=sys.stderr)
        print(*[m for m in ("numpy", "onnx", "anneal.tensor", "anneal.onnx") if m in sys.modules])
    """
    lines = [command.replace("{}", str(tmp_path / name)).split() for name, command in rows]
    done = subprocess.run(
        [sys.executable, "-c", text], input=json.dumps(lines), capture_output=True, text=True, timeout=120, check=True
    )
    wanted = [f"error: {tmp_path / name} cannot be read: {NO_FILES[name]}\ncode 4" for name, _ in rows]
    assert done.stderr.splitlines() == "\n".join(wanted).splitlines()
    assert done.stdout == "\n"


def test_what_a_shell_pipes_in_is_no_file(file: str) -> None:
    with open(file, "rb") as f:
        for command in ("onnx info", "graph"):
            name = "/dev/stdin" if command.startswith("onnx") else "/dev/stdin.onnx"
            done = subprocess.run(
                [sys.executable, "-c", "from anneal.cli import main; main()", *command.split(), name],
                input=f.read(), capture_output=True, timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode == 4
            assert done.stderr.startswith(b"error: /dev/stdin")
            assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ("kernels",), ("kernels", "--wgsl", "0"), ("kernels", "--wgsl", "0", "--lines"), ("kernels", "--json"),
        ("kernels", "--time", "--device", "cpu", "--json"), ("graph",), ("graph", "--json"),
        ("graph", "--until", "kernel-split"), ("explain", "--model"), ("explain", "--json", "--model"), ("check",),
        ("check", "--json"), ("onnx", "info"), ("onnx", "run", "--size", "n=2"), ("onnx", "check", "--size", "n=2"),
    ],
)  # fmt: skip
def test_what_a_file_computes_is_named_by_its_nodes(
    command: tuple[str, ...], file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line's callers are frames of libraries, and no line of anybody's model."""
    found = run(capsys, *command, file)
    assert found.code == 0, found.err
    for wrong in ("main.py:", "typer", "click", "anneal/cli/", "  []"):
        assert wrong not in found.out.replace('": []', ""), found.out
    if command[0] in ("kernels", "graph", "explain") and "--until" not in command:
        assert "Gemm" in found.out, found.out
