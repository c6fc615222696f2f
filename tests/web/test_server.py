"""The addresses: what they answer, and that nothing that a request says brings the server down."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from anneal.training import MODELS
from tests.web.helpers import Client

onnx = pytest.importorskip("onnx")


def relu(path: Path, name: str = "relu") -> bytes:
    """A model of one node."""
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 3]) for n in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"], name=name)], name, [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path.read_bytes()


def upload(client: Client, name: str, data: bytes) -> dict[str, object]:
    answer = client.post("/api/uploads", content=data, headers={"x-file-name": name})
    assert answer.status_code == 201, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_the_server_needs_neither_numpy_nor_a_tensor(tmp_path: Path) -> None:
    import subprocess

    program = (
        "import sys; from pathlib import Path\n"
        "from anneal.web.guard import Key; from anneal.web.server import Studio, application\n"
        "application(Studio(Path('.'), Key(frozenset())))\n"
        "print([m for m in ('numpy', 'wgpu', 'onnx', 'anneal.tensor', 'anneal.uop') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_first_page_knows_the_models(client: Client) -> None:
    session = client.get("/api/session").json()
    assert [m["name"] for m in session["models"]] == list(MODELS)
    assert (session["uploads"], session["jobs"], session["runs"]) == ([], [], [])


def test_a_models_graph_kernels_passes_and_lines_belong_together(shared: Client) -> None:
    def ask(question: str, **parts: object) -> dict[str, object]:
        answer = shared.get(f"/api/ask/{question}", params={"model": "mlp", "step": "1", **parts})
        assert answer.status_code == 200, answer.text
        return answer.json()

    graph, kernels = ask("graph"), ask("kernels")
    assert [n["id"] for n in graph["nodes"]] == list(range(len(graph["nodes"])))
    assert len(graph["kernels"]) == len(kernels["kernels"])
    for number, kernel in enumerate(kernels["kernels"]):
        for node in kernel["nodes"]:
            assert number in graph["nodes"][node]["kernels"]
    assert {n["phase"] for n in graph["nodes"]} == {"forward", "backward", "update"}
    text = ask("kernel", kernel=0)["text"]
    known = [line for line in text["lines"] if line["nodes"]]
    assert known
    assert {n for line in known for n in line["nodes"]} <= set(kernels["kernels"][0]["nodes"])
    user = next(line["lines"][0] for line in known if line["lines"])
    source = ask("source", file=user["file"], line=user["line"])
    assert source["lines"][source["line"] - source["first"]].strip()
    summaries = ask("passes")
    assert [p["info"]["name"] for p in summaries][:2] == ["early-rewrites", "split-contractions"]
    after = ask("pass", name="early-rewrites")
    assert sum(n["changed"] for n in after["nodes"]) == after["changed"] == summaries[0]["changed"]
    assert [p["info"]["pipeline"] for p in ask("passes", kernel=0)][:1] == ["codegen"]
    assert ask("firings")[0]["count"] > 0


def test_questions_that_are_none_are_told_what_there_is(shared: Client) -> None:
    def ask(path: str) -> tuple[int, str]:
        answer = shared.get(f"/api/ask/{path}")
        return answer.status_code, answer.json()["error"]

    assert ask("graph?model=nothing")[0] == 404
    assert ask("graph?model=../../etc/passwd")[0] == 404
    assert ask("graph?model=upload.aa.onnx")[0] == 404
    assert ask("graph")[0] == 404
    assert ask("secrets?model=mlp")[0] == 404
    assert ask("graph?model=mlp&device=tpu")[0] == 404
    assert ask("graph?model=mlp&batch=-1")[0] == 400
    status, text = ask("pass?model=mlp&name=early-rewrite")
    assert (status, "Did you mean 'early-rewrites'?" in text) == (422, True)
    assert "there is no kernel 999" in ask("kernel?model=mlp&kernel=999")[1]
    assert "no node of this graph comes from that file" in ask("source?model=mlp&file=/etc/passwd&line=1")[1]
    assert "Did you mean" in ask("explain?op=softmx")[1]


def test_an_op_is_explained_with_an_example(shared: Client) -> None:
    found = shared.get("/api/ask/explain?op=exp").json()
    assert [o["op"] for o in found["ops"]] == ["EXP"]
    assert "exp(x) -> g * y" in [r["text"] for r in found["ops"][0]["rules"]]
    assert found["ops"][0]["batching"]["place"].startswith("anneal/transforms/batching.py:")
    assert ".exp()" in found["example"]["call"]
    assert "@compute" in found["example"]["kernels"][0]
    assert [o["op"] for o in shared.get("/api/ask/explain?op=softmax").json()["ops"]][:2] == ["REDUCE_AXIS", "SUB"]


def test_a_dropped_model_is_looked_at_like_an_example(shared: Client, tmp_path: Path) -> None:
    found = upload(shared, "my%20model.onnx", relu(tmp_path / "m.onnx"))
    assert (found["name"], found["kind"]) == ("my model.onnx", "onnx")
    described = shared.get("/api/ask/onnx", params={"model": found["id"]}).json()
    assert (described["nodes"], described["gaps"]) == (1, [])
    assert shared.get("/api/ask/graph", params={"model": found["id"]}).json()["kernels"]
    kernel = shared.get("/api/ask/kernel", params={"model": found["id"], "kernel": 0}).json()
    assert "@compute" in "\n".join(line["text"] for line in kernel["text"]["lines"])
    assert shared.delete(f"/api/uploads/{found['id']}").status_code == 200
    assert shared.get("/api/ask/graph", params={"model": found["id"]}).status_code == 404


def test_a_model_with_gaps_lists_them_all(shared: Client, tmp_path: Path) -> None:
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xy")
    nodes = [
        onnx.helper.make_node("Strange", ["x"], ["a"], domain="other"),
        onnx.helper.make_node("Odd", ["a"], ["y"], domain="other"),
    ]
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("other", 1)]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y]), opset_imports=imports, ir_version=9)
    found = upload(shared, "gaps.onnx", model.SerializeToString())
    assert len(shared.get("/api/ask/onnx", params={"model": found["id"]}).json()["gaps"]) == 2
    answer = shared.get("/api/ask/graph", params={"model": found["id"]})
    assert answer.status_code == 422
    assert len(answer.json()["gaps"]) == 2


def test_files_of_weights_and_arrays_are_listed(shared: Client, tmp_path: Path) -> None:
    from anneal.tensor import io

    io.safe_save({"w": np.zeros((2, 3), np.float32)}, tmp_path / "w.safetensors")
    np.save(tmp_path / "a.npy", np.arange(4))
    np.savez(tmp_path / "b.npz", one=np.zeros(2), two=np.zeros((1, 2), np.int32))
    for name, shapes in (("w.safetensors", [[2, 3]]), ("a.npy", [[4]]), ("b.npz", [[2], [1, 2]])):
        found = upload(shared, name, (tmp_path / name).read_bytes())
        listed = shared.get("/api/ask/file", params={"model": found["id"]}).json()
        assert [t["shape"] for t in listed["tensors"]] == shapes
        assert all(t["statistics"]["not_finite"] == 0 for t in listed["tensors"])
    broken = upload(shared, "broken.gguf", b"GGUF and no more")
    assert shared.get("/api/ask/file", params={"model": broken["id"]}).status_code == 422


@pytest.mark.parametrize(
    ("name", "status"),
    [("x.exe", 415), ("", 415), ("onnx", 415), ("x.py.sh", 415), ("../../../x.sh", 415)],
)
def test_other_files_are_refused(client: Client, name: str, status: int) -> None:
    assert client.post("/api/uploads", content=b"x", headers={"x-file-name": name}).status_code == status


def test_no_name_of_a_file_reaches_the_file_system(client: Client, tmp_path: Path) -> None:
    for name in (
        "../../evil.onnx",
        "/etc/passwd.onnx",
        "..%2F..%2Fevil.onnx",
        "a\\b\\evil.onnx",
        "<script>.onnx",
        "\x1b[2J.onnx",
    ):
        found = upload(client, name, name.encode())
        assert "/" not in str(found["name"])
        assert "\x1b" not in str(found["name"])
    there = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert all(set(n) <= set("0123456789abcdef.onxjs") for n in there), there
    assert not list(tmp_path.parent.glob("evil*"))


def test_a_file_beyond_the_limit_is_refused_and_not_kept(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("anneal.web.uploads.LARGEST", 100)
    assert client.post("/api/uploads", content=b"x" * 101, headers={"x-file-name": "a.npy"}).status_code == 413
    assert client.post("/api/uploads", content=b"", headers={"x-file-name": "a.npy"}).status_code == 400
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_child_that_dies_is_told_of_and_another_takes_its_place(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as m:
        program = "import sys; sys.stdin.readline(); sys.exit('out of luck')"
        m.setattr("anneal.web.asking.python", lambda module: [sys.executable, "-c", program])
        answer = client.get("/api/ask/explain?op=MUL")
        assert answer.status_code == 500
        assert "the inspecting process died (exit code 1)" in answer.json()["error"]
    assert client.get("/api/ask/explain?op=MUL").status_code == 200
    client.studio.inspector._process.kill()  # type: ignore[attr-defined]
    client.get("/api/ask/explain?op=ADD")
    assert client.get("/api/ask/explain?op=ADD").status_code == 200


CRAFTED = [
    b"{", b"[]", b"null", b"1e999", b"\xff\xfe", b"[" * 100_000, json.dumps({"kind": ["train"]}).encode(),
    *[json.dumps({"kind": "train", "model": "mlp", **more}).encode() for more in (
        {"steps": -1}, {"steps": 1.5}, {"steps": "many"}, {"steps": 10**30}, {"steps": True}, {"lr": 0}, {"lr": None, "steps": []},
        {"device": "tpu"}, {"device": ["cpu"]}, {"model": "--help"}, {"model": "mlp; rm -rf /"}, {"model": "../x"}, {"model": {"a": 1}},
    )],
    *[json.dumps({"kind": "sample", **more}).encode() for more in (
        {}, {"prompt": 1}, {"prompt": "x" * 30_000}, {"prompt": "a\0b"}, {"prompt": "x", "temperature": 0}, {"prompt": "x", "top_k": -1},
    )],
    *[json.dumps({"kind": kind, "model": "upload.aa.onnx"}).encode() for kind in ("run", "time", "check", "__class__")],
]  # fmt: skip


@pytest.mark.parametrize("body", CRAFTED, ids=range(len(CRAFTED)))
def test_crafted_jobs_are_refused_with_why(client: Client, body: bytes) -> None:
    answer = client.post("/api/jobs", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert client.get("/api/jobs").json() == []
