"""Scripts and recordings in the studio; runs that are dropped as .zip files; traces."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from anneal.web.commands import script
from anneal.web.jobs import Job
from tests.web.helpers import Client, over
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
    return client.studio.jobs.add(made.kind, made.model, made.device, made.arguments, made.about)  # type: ignore[attr-defined]


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
