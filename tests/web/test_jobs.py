"""Jobs: queued, run, paused, stopped, killed, and found again by a server that starts later."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.web.helpers import Client, opened, over, until

pytestmark = pytest.mark.slow


def start(client: Client, **more: object) -> str:
    body = {"kind": "train", "model": "mlp", "device": "cpu", "steps": 3, **more}
    answer = client.post("/api/jobs", json=body)
    assert answer.status_code == 201, answer.text
    found: str = answer.json()["id"]
    return found


def events(client: Client, job: str) -> list[dict[str, object]]:
    """What the stream of a job that has ended tells."""
    found: list[dict[str, object]] = []
    for block in client.get(f"/api/jobs/{job}/events").text.split("\n\n"):
        if "event: lines" in block:
            found += json.loads(block.split("data: ", 1)[1])
    return found


def steps(client: Client, job: str) -> int:
    path = client.studio.jobs.place(client.studio.jobs.get(job)) / "events.jsonl"  # type: ignore[attr-defined]
    return path.read_text().count('"step",') if path.exists() else 0


def test_a_training_is_told_step_by_step_and_kept(client: Client) -> None:
    job = start(client, seed=7)
    ended = over(client, job)
    assert ended["state"] == "done", ended
    told = events(client, job)
    assert [e["event"] for e in told] == ["start", "step", "step", "step", "kernels", "done"]  # times: of all steps
    assert {"lr", "norm", "bytes"} <= set(told[1])
    (run,) = client.get("/api/runs").json()
    assert (run["id"], run["steps_done"], run["status"]) == (ended["run"], 3, "done")
    assert run["command"].startswith("anneal train mlp --json --vitals --device cpu --steps 3 --seed 7")
    bundle = client.get(f"/api/runs/{run['id']}").json()
    assert len(bundle["losses"]) == 3
    assert bundle["schedule"]["kernels"]
    name = bundle["schedule"]["kernels"][0]["name"]
    assert "wgsl" in client.get(f"/api/runs/{run['id']}/kernel/{name}").json()
    again = client.post(f"/api/runs/{run['id']}/again").json()
    assert again["about"] == {"steps": 3, "seed": 7}
    assert over(client, again["id"])["state"] == "done"
    first, second = (client.get(f"/api/runs/{r['id']}").json()["losses"] for r in client.get("/api/runs").json())
    assert [x[1] for x in first] == [x[1] for x in second]  # the same command gives the same run


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system does not tell of the end of a process")
def test_the_end_of_a_process_is_told_and_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anneal.web.jobs.LOOK_S", 1e6)
    with opened(tmp_path) as client:
        first, second = start(client), start(client)
        assert [over(client, job)["state"] for job in (first, second)] == ["done", "done"]
        open_files = os.listdir("/proc/self/fd")
        assert over(client, start(client))["state"] == "done"
        assert len(os.listdir("/proc/self/fd")) <= len(open_files)


@pytest.mark.parametrize("kind", ["time", "check"])
def test_a_report_comes_whole_when_it_is_there(client: Client, kind: str) -> None:
    job = start(client, kind=kind)
    assert over(client, job)["state"] == "done"
    (report,) = events(client, job)
    kernels = client.get("/api/ask/kernels?model=mlp&device=cpu").json()["kernels"]
    assert [k["name"] for k in report["kernels"]] == [k["name"] for k in kernels]
    assert all(k["seconds"] > 0 if kind == "time" else k["ok"] for k in report["kernels"])


def test_one_job_a_device_and_the_queue_moves_on(client: Client) -> None:
    first, second, third = (start(client, steps=100_000, bundle=False) for _ in range(3))
    state = lambda job: client.get(f"/api/jobs/{job}").json()["state"]
    until(lambda: steps(client, first) > 3)
    assert (state(first), state(second), state(third)) == ("running", "queued", "queued")
    client.post(f"/api/jobs/{third}/stop")
    assert state(third) == "cancelled"
    if hasattr(signal, "SIGSTOP"):
        assert client.post(f"/api/jobs/{first}/pause").status_code == 200
        before = until(lambda: steps(client, first))
        assert client.post(f"/api/jobs/{first}/pause").status_code == 409
        assert (state(first), state(second)) == ("paused", "queued")
        assert client.post(f"/api/jobs/{first}/resume").status_code == 200
        until(lambda: steps(client, first) > before + 3)
    client.post(f"/api/jobs/{first}/stop")
    assert over(client, first)["state"] == "stopped"
    assert events(client, first)[-1]["event"] == "done"
    until(lambda: state(second) == "running")
    client.post(f"/api/jobs/{second}/cancel")
    assert state(second) == "cancelled"


def test_a_process_that_dies_is_shown_with_its_message(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = start(client, steps=100_000, bundle=False)
    until(lambda: steps(client, job) > 2)
    os.kill(client.get(f"/api/jobs/{job}").json()["pid"], signal.SIGKILL)
    ended = over(client, job)
    assert ended["state"] == "failed"
    assert "killed" in ended["error"]
    monkeypatch.setenv("ANNEAL_OFFLINE", "1")
    monkeypatch.setenv("ANNEAL_CACHE_DIR", str(tmp_path / "empty"))
    ended = over(client, start(client, model="gpt2"))
    assert (ended["state"], ended["code"]) == ("failed", 4)
    assert "vocab.json" in ended["error"]


def test_a_run_outlives_the_server(tmp_path: Path) -> None:
    with opened(tmp_path) as client:
        job = start(client, steps=100_000, bundle=False)
        until(lambda: steps(client, job) > 2)
        client.studio.jobs._processes.clear()  # type: ignore[attr-defined]  # as if the server had ended
    with opened(tmp_path) as client:
        assert client.get(f"/api/jobs/{job}").json()["state"] == "running"
        before = steps(client, job)
        until(lambda: steps(client, job) > before)
        client.post(f"/api/jobs/{job}/stop")
        assert over(client, job)["state"] == "stopped"


def test_jobs_and_streams_are_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anneal.web.jobs.MOST_QUEUED", 2)
    jobs = [start(client, steps=100_000, bundle=False) for _ in range(2)]
    body = {"kind": "train", "model": "mlp", "device": "cpu"}
    assert client.post("/api/jobs", json=body).status_code == 429
    monkeypatch.setattr("anneal.web.server.MOST_STREAMS", 0)
    assert client.get(f"/api/jobs/{jobs[0]}/events").status_code == 503
    for job in jobs:
        client.post(f"/api/jobs/{job}/cancel")


def test_a_training_goes_on_from_its_weights_and_speaks_with_them(client: Client) -> None:
    asked = {"kind": "train", "model": "makemore-bigram", "steps": 3, "device": "cpu"}
    job = client.post("/api/jobs", json=asked).json()["id"]
    done = over(client, job)
    assert client.get(f"/api/runs/{done['run']}").json()["weights"] is True
    again = client.post(f"/api/runs/{done['run']}/again", json={"weights": True}).json()
    arguments = client.studio.jobs.get(again["id"]).arguments  # type: ignore[attr-defined]
    assert arguments[arguments.index("--start") + 1].endswith(f"{job}/weights.safetensors")
    client.post(f"/api/jobs/{again['id']}/cancel")
    spoken = {
        "kind": "sample",
        "model": "makemore-bigram",
        "weights": job,
        "prompt": "a",
        "max_tokens": 3,
        "device": "cpu",
    }
    said = client.post("/api/jobs", json=spoken).json()["id"]
    assert over(client, said)["state"] == "done"
    tokens = [e for e in client.get(f"/api/jobs/{said}/lines").json() if e["event"] == "token"]
    assert [len(t["likely"]) for t in tokens] == [8, 8, 8]
    parts = {"model": f"job.{said}", "plan": tokens[2]["plan"]}
    assert client.get("/api/ask/kernels", params=parts).json()["kernels"]


@pytest.mark.parametrize("weights", ["", "20260101T000000-train-aaaaaa", "../x", ["a"], "upload.aa.safetensors"])
def test_weights_that_are_not_there(client: Client, weights: object) -> None:
    asked = {"kind": "sample", "model": "nanogpt", "prompt": "a", "weights": weights}
    answer = client.post("/api/jobs", json=asked)
    assert (answer.status_code, "not here any more" in answer.json()["error"]) == (400, True)
    assert client.post("/api/jobs", json={"kind": "sample", "model": "mlp", "prompt": "a"}).status_code == 400
