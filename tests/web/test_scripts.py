"""Scripts and recordings in the studio; runs that are dropped as .zip files; traces."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from anneal.web.guard import script
from anneal.web.jobs import Job
from tests.cli.helpers import run
from tests.web.helpers import Client, opened, over
from tests.web.test_server import upload

SCRIPT = """
from anneal.tensor import Tensor
print("said")
for _ in range(2):
    (Tensor([1.0, 2.0]) + 1.0).sum().item()
Tensor([1.0, 2.0]) @ Tensor([[1.0]])
"""


def start(client: Client, path: Path) -> Job:
    made = script(path, ["--x"], "cpu")
    return client.studio.jobs.add(made)  # type: ignore[attr-defined]


def packed(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as f:
        for name, text in files.items():
            f.writestr(name, text)
    return out.getvalue()


def test_a_scripts_plans_output_and_exception_are_shown(client: Client, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)
    job = start(client, tmp_path / "mine.py")
    done = over(client, job.id)
    assert (done["state"], "matmul" in done["error"]) == ("failed", True)
    assert client.get(f"/api/jobs/{job.id}/log").json()["text"].startswith("said\n")
    name = f"job.{job.id}"
    recording = client.get("/api/ask/recording", params={"model": name}).json()
    assert [p["runs"] for p in recording["plans"]] == [2]
    assert "line 6, in <module>" in recording["error"]
    parts = {"model": name, "plan": 0}
    graph = client.get("/api/ask/graph", params=parts).json()
    kernels = client.get("/api/ask/kernels", params=parts).json()
    assert len(graph["kernels"]) == len(kernels["times"]["kernels"]) == 1
    assert "@compute" in str(client.get("/api/ask/kernel", params={**parts, "kernel": 0}).json()["text"])
    node = next(n for n in graph["nodes"] if n["line"])
    source = client.get("/api/ask/source", params={**parts, **{k: node["line"][k] for k in ("file", "line")}}).json()
    assert "Tensor" in source["lines"][source["line"] - source["first"]]
    spans = client.get("/api/ask/trace", params=parts).json()["traceEvents"]
    assert [e["name"] for e in spans if e["ph"] == "X"] == [k["label"] for k in kernels["kernels"]]
    assert client.get("/api/ask/graph", params={**parts, "plan": 7}).status_code == 422
    again = client.post(f"/api/jobs/{job.id}/again").json()
    assert again["id"] != job.id
    assert client.studio.jobs.get(again["id"]).arguments[3].endswith(f"{again['id']}/recording.zip")  # type: ignore[attr-defined]
    client.post(f"/api/jobs/{again['id']}/cancel")
    assert client.get("/api/ask/graph", params={"model": "job.20260101T000000-script-aaaaaa"}).status_code == 404


CHECKED = """
import sys
from anneal.tensor import Tensor
print("said", sys.argv[1:])
x = Tensor([1.0, 3.0], requires_grad=True)
(x.log() * 2).sum().backward()
Tensor([1.0, float(sys.argv[2])]).log().realize()
"""


def checked(client: Client, **asked: object) -> tuple[dict[str, object], str]:
    """The report of a check, and what the script printed."""
    answer = client.post("/api/jobs", json={"kind": "check", "device": "cpu", **asked})
    assert answer.status_code == 201, answer.text
    job = answer.json()["id"]
    over(client, job)
    lines = client.get(f"/api/jobs/{job}/lines").json()
    return (lines or [client.get(f"/api/jobs/{job}").json()])[0], client.get(f"/api/jobs/{job}/log").json()["text"]


def test_a_script_is_checked_as_the_command_line_does(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(CHECKED)
    dropped = str(upload(client, "mine.py", CHECKED.encode())["id"])
    outcome = run(capsys, "check", "--device", "cpu", "--gradients", str(tmp_path / "mine.py"), "--x", "-1")
    report, said = checked(client, model=dropped, arguments="--x -1", gradients=True)
    assert said.startswith("said ['--x', '-1']")
    assert report["text"] == outcome.out.partition("\n")[2].strip()
    assert str(report["text"]).startswith("the first nan appears in kernel")
    assert "from mine.py:7" in str(report["text"])
    assert report["target"] == "mine.py"
    assert checked(client, model=dropped, arguments="--x 1")[0]["ok"] is True
    failed, _ = checked(client, model=dropped)
    assert "mine.py failed at line 7: IndexError" in str(failed["error"])


def test_a_script_that_was_recorded_is_checked(client: Client, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CHECKED.replace("sys.argv[2]", "4"))
    job = start(client, tmp_path / "mine.py")
    report, said = checked(client, model=f"job.{job.id}")
    assert (report["ok"], said) == (True, "said ['--x']\n")


def test_what_is_no_script_is_not_checked(client: Client) -> None:
    other = client.post("/api/jobs", json={"kind": "check", "model": "mlp", "device": "cpu"}).json()["id"]
    dropped = upload(client, "mine.py", b"print(1)")["id"]
    asked = [
        {"model": f"job.{other}"}, {"model": "job.x"}, {"model": "upload.aa.py"}, {"model": "/etc/x.py"}, {"model": "../x.py"},
        {"model": dropped, "arguments": "'"}, {"model": dropped, "arguments": ["x"]}, {"model": dropped, "arguments": "a\0"},
        {"model": dropped, "kind": "time"}, {"model": dropped, "kind": "run"},
    ]  # fmt: skip
    for body in asked:
        assert client.post("/api/jobs", json={"kind": "check", **body}).status_code == 400, body
    client.post(f"/api/jobs/{other}/cancel")


def test_those_who_are_let_in_from_elsewhere_bring_no_program(tmp_path: Path) -> None:
    with opened(tmp_path, always=True) as client:
        answer = client.post("/api/uploads", content=b"x", headers={"x-file-name": "x.py"})
        assert (answer.status_code, ", .py" in answer.json()["error"]) == (415, False)


def test_a_recording_is_dropped(client: Client) -> None:
    from anneal import inspect
    from anneal.tensor import Tensor

    with inspect.recording("mine", times=False) as r:
        Tensor([1.0, 2.0], device="cpu").exp().realize()
    found = upload(client, "mine.zip", r.save(client.studio.where / "r.zip").read_bytes())  # type: ignore[attr-defined]
    assert found["kind"] == "recording"
    assert client.get("/api/ask/recording", params={"model": found["id"]}).json()["name"] == "mine"
    assert client.get("/api/ask/graph", params={"model": found["id"]}).json() == r.plans[0].answer("graph")
    assert client.get("/api/ask/trace", params={"model": found["id"]}).status_code == 422


@pytest.mark.parametrize("folder", ["", "20260314T150926-mlp-a1b2c3/"])
def test_a_run_is_dropped_and_stands_in_the_history(client: Client, folder: str) -> None:
    files = {
        "manifest.json": json.dumps({"model": "mlp", "status": "done", "begun": "2026", "command": ["train", "mlp"]}),
        "loss.csv": "step,loss,ms\n1,2.5,3.0\n",
        "kernels/k0.wgsl": "fn main() {}",
    }
    found = upload(client, "run.zip", packed({folder + name: text for name, text in files.items()}))
    assert found["kind"] == "run"
    assert [(r["id"], r["dropped"]) for r in client.get("/api/runs").json()] == [(found["id"], True)]
    run = client.get(f"/api/runs/{found['id']}").json()
    assert (run["losses"], run["command"]) == ([[1.0, 2.5, 3.0]], "anneal train mlp")
    assert client.get(f"/api/runs/{found['id']}/kernel/k0").json()["wgsl"] == "fn main() {}"
    assert client.get(f"/api/runs/{found['id']}/kernel/k1").status_code == 404


@pytest.mark.parametrize("data", [b"PK", b"", packed({"x": "y"}), packed({"a/b/manifest.json": "{}"})])
def test_another_zip_is_refused(client: Client, data: bytes) -> None:
    answer = client.post("/api/uploads", content=data, headers={"x-file-name": "a.zip"})
    assert answer.status_code in (400, 422)
    assert client.get("/api/session").json()["uploads"] == []


def test_times_that_were_measured_are_a_trace(client: Client) -> None:
    job = client.post("/api/jobs", json={"kind": "time", "model": "mlp", "device": "cpu"}).json()["id"]
    assert client.get(f"/api/jobs/{job}/trace").status_code == 404
    assert over(client, job)["state"] == "done"
    answer = client.get(f"/api/jobs/{job}/trace")
    assert "attachment" in answer.headers["content-disposition"]
    assert any(e["ph"] == "X" for e in answer.json()["traceEvents"])
