"""What `export` writes, without a browser: the plan, the weights, the limits, and errors in words."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn
from anneal.backend import get_device
from anneal.backend.registry import DEVICES
from anneal.errors import AnnealError, DataError, DTypeError, JitError, SettingError, TransformError, UserError
from anneal.pages import PROFILES, export, fit, of_onnx, page_device, profile
from anneal.pages.program import planned_for
from anneal.tensor import Tensor, Variable, host_call, io, jit
from anneal.transforms import scan
from tests.cli.helpers import run
from tests.pages.helpers import recipe_of, write


def model_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "model.json").read_text())
    return found


def test_a_page_is_a_folder_of_files_with_hashes(tmp_path: Path) -> None:
    made = an.export(nn.Linear(3, 2), Tensor.ones(4, 3), tmp_path / "page")
    plan = model_of(tmp_path / "page")
    assert set(made.files) == {
        "index.html", "anneal.js", "anneal.d.ts", "page.js", "style.css", "sw.js", "model.json", "kernels.wgsl",
        "weights.safetensors", "check.safetensors",
    }  # fmt: skip
    for name, told in plan["files"].items():
        data = (tmp_path / "page" / name).read_bytes()
        assert told == {"bytes": len(data), "sha256": [base64.b64encode(hashlib.sha256(data).digest()).decode()]}
    page = (tmp_path / "page/index.html").read_text()
    whole = (tmp_path / "page/model.json").read_bytes()
    assert base64.b64encode(hashlib.sha256(whole).digest()).decode() in page
    assert [p["profile"] for p in plan["programs"]] == ["browser", "software"]
    assert set(io.safe_load(tmp_path / "page/weights.safetensors")) == {"weight", "bias"}


def test_zeros_are_in_no_file(tmp_path: Path) -> None:
    state = Tensor.zeros(4).realize()

    def count(x: Tensor) -> Tensor:
        return state.assign(state + x)

    an.export(count, Tensor.ones(4), tmp_path)
    assert state.tolist() == [0, 0, 0, 0], "the state is as it was"
    assert model_of(tmp_path)["zeros"] == {"state": ["F32", [4]]}
    assert not set(io.safe_load(tmp_path / "weights.safetensors"))


def test_no_page_has_code_inline_or_from_elsewhere(tmp_path: Path) -> None:
    export(nn.Linear(3, 2), Tensor.ones(4, 3), tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,", "style.css", "page.js"]
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=|unsafe", page)
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)[0]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
    for name in ("anneal.js", "page.js", "sw.js"):
        script = (tmp_path / name).read_text()
        assert not re.search(r"\beval\(|new Function\(|innerHTML|outerHTML|insertAdjacentHTML|document\.write", script)
        assert re.findall(r"https?://(?!localhost)[\w.]+", script) == []


def test_kernels_keep_to_the_limits_of_every_browser(tmp_path: Path) -> None:
    opened = set(DEVICES.open)
    _, recipe = recipe_of("nanogpt", train=True, batch=2)
    write(recipe, tmp_path)
    assert set(DEVICES.open) <= opened | {"cpu"}, "no adapter is asked for"
    plan, pack = model_of(tmp_path), (tmp_path / "kernels.wgsl").read_text()
    for program in plan["programs"]:
        for kernel in program["kernels"]:
            start, end = plan["sources"][kernel["source"]]
            source = pack[start:end]
            assert len(kernel["bindings"]) <= 8
            assert source.count("var<storage") == len(kernel["bindings"])
            assert not re.search(r"enable |subgroup|f16", source)
            threads = int(re.findall(r"@workgroup_size\((\d+)", source)[0])
            assert threads <= 256
            if program["software"]:
                assert "workgroupBarrier" not in source
                assert "var<workgroup>" not in source
        for f in program["functions"].values():
            assert all(max(c[2]) <= 65535 for c in f["calls"])


def test_the_runtime_is_small_and_so_is_all_but_the_weights(tmp_path: Path) -> None:
    import gzip

    _, recipe = recipe_of("nanogpt")
    made = write(recipe, tmp_path)
    small = {n: len(gzip.compress((tmp_path / n).read_bytes(), 9)) for n in made.files if n != "weights.safetensors"}
    assert small["anneal.js"] <= 12 << 10, "it was 9 KB; the bar of the issue is 25"
    assert sum(small.values()) <= 80 << 10, "it was 60 KB; the bar of the issue is 150"


def test_planning_for_a_profile_ends_with_its_block() -> None:
    device = get_device("cpu")
    before = device.cost_model
    with planned_for(device, profile("browser")):
        assert device.cost_model.max_buffers == 8
    assert device.cost_model is before


def test_functions_share_their_tensors(tmp_path: Path) -> None:
    _, recipe = recipe_of("mlp", batch=16)
    write(recipe, tmp_path)
    program = model_of(tmp_path)["programs"][0]
    weights = {program["weights"][n] for n in ("first.weight", "second.weight", "last.bias")}
    bound = {name: {b for c in f["calls"] for b in c[1]} for name, f in program["functions"].items()}
    assert weights <= bound["predict"] & bound["train"]
    assert {"first.weight", "last.bias"} <= set(program["state"])


def test_halves_and_bytes_make_a_smaller_file(tmp_path: Path) -> None:
    layer, x = nn.Linear(64, 64), Tensor.ones(2, 64)
    sizes = {}
    for form in ("f32", "f16", "int8"):
        export(layer, x, tmp_path / form, weights=form)
        file = io.safe_open(tmp_path / form / "weights.safetensors")
        sizes[form] = file.entries["weight"].dtype
        out = io.safe_load(tmp_path / form / "check.safetensors")["run/out/out"].numpy()
        assert np.abs(out - layer(x).numpy()).max() <= {"f32": 1e-6, "f16": 1e-2, "int8": 0.1}[form]
    assert sizes == {"f32": "F32", "f16": "F16", "int8": "I8"}


def test_the_tensors_are_as_they_were_when_a_forward_is_exported(tmp_path: Path) -> None:
    layer = nn.Linear(64, 64)
    before = layer.weight.numpy()
    export(layer, Tensor.ones(2, 64), tmp_path, weights="int8")
    assert (layer.weight.numpy() == before).all()


def test_a_jit_function_and_a_nest_of_tensors(tmp_path: Path) -> None:
    @jit
    def step(pair: dict[str, Tensor], scale: float) -> tuple[Tensor, Tensor]:
        return pair["a"] * scale, pair["b"].sum()

    export(step, ({"a": Tensor.ones(3), "b": Tensor.ones(2)}, 2.0), tmp_path)
    run = model_of(tmp_path)["programs"][0]["functions"]["run"]
    assert [p["name"] for p in run["inputs"]] == ["pair['a']", "pair['b']"]
    assert [(p["name"], p["shape"]) for p in run["outputs"]] == [("out[0]", [3]), ("out[1]", [])]


def test_a_size_that_varies_is_a_variable(tmp_path: Path) -> None:
    n = Variable("n", 1, 8)
    export(lambda x, count: x[:count] * 2 + count, (Tensor.ones(8), n.bind(3)), tmp_path)
    run = model_of(tmp_path)["programs"][0]["functions"]["run"]
    assert run["variables"] == [{"name": "n", "low": 1, "high": 8, "example": 3}]
    assert [(p["shape"], p["room"]) for p in run["outputs"]] == [(["n"], [8])]


FAULTS: dict[str, tuple[Any, Any, dict[str, Any], type[AnnealError], str]] = {
    "no function": (3, Tensor.ones(2), {}, UserError, "run is a int, not a function"),
    "other names": ({"a": abs}, {"b": ()}, {}, UserError, "of the same names"),
    "an array": (lambda x: x, np.ones(3), {}, UserError, "x is a ndarray; give a Tensor"),
    "arguments that do not fit": (lambda x, y: x, Tensor.ones(2), {}, UserError, "do not fit the function"),
    "no result": (lambda x: None, Tensor.ones(2), {}, JitError, "ran nothing"),
    "a dtype": (
        lambda x: x.cast("float64") * 2, Tensor.ones(2), {}, DTypeError, "profile browser has no buffer of float64, wh",
    ),
    "int64": (
        lambda x: x.sum(), Tensor([1, 2]), {}, DTypeError, "has no CAST of int64, which kernel r_by_2",
    ),
    "a result's dtype": (lambda x: x.cast("int8"), Tensor.ones(2), {}, DTypeError, "int8; a page takes and gives f"),
    "the host": (
        lambda x: host_call(lambda a: a, ((2,), "float32"), x), Tensor.ones(2), {}, JitError, "runs on the host",
    ),
    "a long loop": (
        lambda x: scan(lambda c, t: (c + t, c), 0.0, x)[0], Tensor.ones(300), {}, TransformError,
        "scan: its 300 turns would be written out one by one, since what is exported has no loops, and at most 128 are",
    ),
    "no profile": (abs, Tensor.ones(2), {"profiles": ("phone",)}, SettingError, "profiles are browser, software"),
    "no format": (lambda x: x + 1, Tensor.ones(2), {"weights": "f8"}, SettingError, "weights are f32, f16, int8"),
    "another to train": (lambda x: x + 1, Tensor.ones(2), {"train": ["fit"]}, UserError, "train names fit"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_no_page_can_do_is_said(fault: str, tmp_path: Path) -> None:
    function, args, how, error, text = FAULTS[fault]
    with pytest.raises(error, match=re.escape(text)):
        export(function, args, tmp_path / "page", **how)
    assert not (tmp_path / "page").exists()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "page", tmp_path / "file"):
        with pytest.raises(DataError, match=r"cannot write .*: .*file is a file; choose another place"):
            export(lambda x: 1 / 0, Tensor.ones(2), path)  # before anything is called


def test_one_file_of_too_much_is_refused(tmp_path: Path) -> None:
    big = Tensor.ones(3000, 3000) * 2
    big.realize()
    with pytest.raises(UserError, match="one file of 4"):
        export(lambda x: x @ big, Tensor.ones(1, 3000), tmp_path / "page.html", single_file=True)


def test_random_numbers_leave_their_counter_aside(tmp_path: Path) -> None:
    """One kernel draws numbers and counts on: its parts run in other workgroups, so neither overwrites what the other
    reads."""
    export(lambda x: x + an.randn(3), Tensor.ones(3), tmp_path)
    program = model_of(tmp_path)["programs"][0]
    (call,), copies = program["functions"]["run"]["calls"], program["functions"]["run"]["copies"]
    (counter,) = [program["weights"][n] for n in program["state"]]
    assert counter in call[1][2:]
    assert [b for _, b in copies] == [counter]


# -- whole numbers -----------------------------------------------------------------------------------------------------


def test_on_the_pages_device_sums_of_integers_are_of_32_bits(tmp_path: Path) -> None:
    x = Tensor(np.arange(6, dtype=np.int32).reshape(2, 3), device=page_device())
    export(lambda x: (x.sum(1), x @ x.T), x, tmp_path)
    found = io.safe_load(tmp_path / "check.safetensors")
    assert found["run/out/out[0]"].tolist() == [3, 12]
    assert found["run/out/out[1]"].tolist() == [[5, 14], [14, 50]]


def integers(one: int) -> bytes:
    """A file that takes and gives int64: the places of rows, which row is largest, and the places after them."""
    from onnx import TensorProto, helper, numpy_helper

    rows = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["rows", "ids"], ["found"]),
        helper.make_node("ReduceMean", ["found", "axis"], ["mean"], keepdims=0),
        helper.make_node("ArgMax", ["mean"], ["best"], axis=1, keepdims=0),
        helper.make_node("Add", ["ids", "one"], ["next"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 6])
    out = [helper.make_tensor_value_info(n, TensorProto.INT64, s) for n, s in (("best", [1]), ("next", [1, 6]))]
    given = {"rows": rows, "axis": np.array([1]), "one": np.array([one])}
    graph = helper.make_graph(nodes, "g", [ids], out, [numpy_helper.from_array(a, n) for n, a in given.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(made.SerializeToString())


def test_int64_of_a_file_is_int32_in_a_page_where_it_fits(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from anneal import onnx

    ids = np.array([[4, 0, 49, 7, 7, 1]])
    model = onnx.load(integers(1), "cpu")
    write(of_onnx(model, {"ids": ids}), tmp_path)
    run = model_of(tmp_path)["programs"][0]["functions"]["run"]
    assert [p["dtype"] for p in (*run["inputs"], *run["outputs"])] == ["i32"] * 3
    found, wanted = io.safe_load(tmp_path / "check.safetensors"), model.run({"ids": ids})
    assert found["run/out/out[0]"].tolist() == wanted["best"].tolist()
    assert found["run/out/out[1]"].tolist() == (ids + 1).tolist()
    with pytest.raises(DTypeError, match="input 'ids' has values of int64 that int32 does not hold"):
        of_onnx(model, {"ids": ids << 40})
    with pytest.raises(AnnealError, match="has no int64.*its values do not fit int32"):
        write(of_onnx(onnx.load(integers(1 << 40), "cpu"), {"ids": ids}), tmp_path)


# -- fit ---------------------------------------------------------------------------------------------------------------


def test_fit_says_what_is_split_and_what_does_not_fit() -> None:
    table = Tensor.zeros(40_000_000).realize()  # 160 MB: two bindings of the plainest profile
    at = Tensor(np.array([1, 39_000_000], np.int32))
    found = fit(lambda i: table[i] * 2, at)
    assert not found.why
    assert found.split
    assert found.largest == 160_000_000
    assert "split over several bindings: e_2" in str(found) or "split over" in str(found)
    assert not fit(lambda i: table[i] * 2, at, "m1").split
    table = Tensor.zeros(80_000_000).realize()
    assert fit(lambda i: table[i] * 2, at).why.startswith("a tensor takes 320000000 bytes, and browser has buffers of")


def test_profiles_are_at_least_the_plainest() -> None:
    plain = PROFILES["browser"].limits()
    for p in PROFILES.values():
        assert all(p.limits()[name] >= n for name, n in plain.items()), p.name


# -- the commands ------------------------------------------------------------------------------------------------------


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "export", "mlp", "-o", str(tmp_path / "p"), "--json")
    assert done.code == 0
    assert json.loads(done.out)["calls"]["predict"] == 3
    done = run(capsys, "fit", "mlp", "--for", "browser")
    assert done.code == 0
    assert done.out.startswith("browser: fits in ")


def test_the_command_takes_a_function_of_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "s.py"
    text = "from anneal.tensor import Tensor\nEXAMPLE = Tensor.ones(3)\ndef twice(x):\n    return x * 2\n"
    script.write_text(f"{text}def wrong(x):\n    return nothing\n")
    assert run(capsys, "export", f"{script}:twice", "-o", str(tmp_path / "p.html"), "--single-file").code == 0
    page = (tmp_path / "p.html").read_text()
    assert 'data-file="model.json"' in page
    assert "unsafe-inline" not in page
    assert "unsafe-eval" not in page
    for arguments, said in (
        (f"{script}:thrice -o {tmp_path}/q", "has no function 'thrice'; it has twice, wrong"),
        (f"{script} -o {tmp_path}/q", f"which function of {script}? Write {script}:FUNCTION"),
        (f"{script}:wrong -o {tmp_path}/q", "failed in line 6, `return nothing`: NameError: name 'nothing' is not"),
        (f"{script}:twice -o {tmp_path}/q --steps 3", "--steps is not for"),
        (f"mlp -o {tmp_path}/q --size n=3", "--size is not for mlp"),
        (f"mlp -o {tmp_path}/q.onnx", "for an ONNX file: anneal onnx export mlp"),
        (f"mlp -o {tmp_path}/q.html", "--single-file writes FILE.html"),
        (f"mlp -o {tmp_path}/q --for phone", "there is no profile 'phone'"),
        (f"nolp -o {tmp_path}/q", "mlp"),
    ):
        done = run(capsys, "export", *arguments.split())
        assert (done.code, said in done.err) == (2, True), done.err
