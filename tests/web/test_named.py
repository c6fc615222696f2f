"""Files that were dropped go by the names of those who dropped them, in every answer of every address."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path

import pytest

from tests.web.helpers import Client, over
from tests.web.test_server import relu, upload
from tests.web.test_snapshots import kept

ASKED = ("onnx", "file", "graph", "kernels", "kernel", "passes", "pass", "firings", "recording", "trace", "source")
PARTS = {"pass": {"name": "early-rewrites"}, "source": {"file": "x", "line": 1}}


def broken_recording() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as f:
        f.writestr("recording.json", "{")
    return out.getvalue()


BROKEN = {
    "my wörk.onnx": b"\x08junk", "t.safetensors": b"1234567890", "g.gguf": b"GGUF and", "a.npy": b"nonsense",
    "z.npz": b"PK nonsense", 'so "called".zip': broken_recording(),
}  # fmt: skip


def told(client: Client, path: str, **parts: object) -> str:
    """The text of an answer, in which no file goes by its name in the folder."""
    answer = client.get(path, params=parts)
    html = answer.headers["content-type"].startswith("text/html")
    text = json.dumps(kept(answer.text)["answers"]) if html else answer.text
    text = text.replace("\\\\", "/")
    assert "uploads" not in text.replace('"uploads":', ""), (path, parts)
    for place in client.studio.uploads.folder.iterdir():  # type: ignore[attr-defined]
        assert place.name[:12] not in re.sub(r"upload\.[0-9a-f]{32}", "", text), (path, parts)
    return str(answer.json()) if answer.headers["content-type"] == "application/json" else text


def test_answers_about_a_file_call_it_as_its_sender_did(shared: Client, tmp_path: Path) -> None:
    for name, data in {**BROKEN, "m.onnx": relu(tmp_path / "m.onnx")}.items():
        found = upload(shared, name.replace("ö", "%C3%B6"), data)
        assert found["name"] == name
        said = [told(shared, f"/api/ask/{q}", model=found["id"], **PARTS.get(q, {})) for q in ASKED]
        assert sum(name in text for text in said) >= 3, name
        told(shared, "/api/snapshot", view=f"/v/{found['id']}")


@pytest.mark.parametrize("name", ["my wörk.onnx", "m.onnx"])
def test_jobs_call_a_file_as_its_sender_did(client: Client, tmp_path: Path, name: str) -> None:
    data = BROKEN.get(name) or relu(tmp_path / "m.onnx")
    model = upload(client, name.replace("ö", "%C3%B6"), data)["id"]
    weights = upload(client, "t.safetensors", BROKEN["t.safetensors"])["id"]
    bodies = [{"kind": kind, "model": model, "device": "cpu"} for kind in ("check", "time")]
    bodies.append({"kind": "sample", "model": "makemore-mlp", "weights": weights, "prompt": "a", "device": "cpu"})
    for body in bodies:
        job = client.post("/api/jobs", json=body).json()["id"]
        over(client, job)
        said = [told(client, f"/api/jobs/{job}{path}") for path in ("", "/lines", "/log", "/events", "/trace")]
        assert any((name if body["kind"] != "sample" else "t.safetensors") in text for text in said), body
    told(client, "/api/session")
    told(client, "/api/jobs")


@pytest.mark.parametrize(
    ("name", "data"),
    [("a b.exe", b"x"), ("a b.zip", b"PK"), ("a b.npy", b""), ("..%2Fa b.zip", b"no zip")],
    ids=["kind", "broken", "empty", "folder"],
)
def test_what_is_not_taken_is_named(client: Client, name: str, data: bytes) -> None:
    answer = client.post("/api/uploads", content=data, headers={"x-file-name": name})
    assert answer.status_code >= 400
    assert answer.json()["error"].startswith(f"a b.{name[-3:]}: ")


def test_a_text_of_other_hashes_is_left_as_it_is(client: Client) -> None:
    uploads = client.studio.uploads  # type: ignore[attr-defined]
    stored = "0123456789abcdef" * 2
    for text in (b"", b"no file", f"upload.{stored}.onnx".encode(), f"{stored}.txt and x{stored[1:]}.npy".encode()):
        assert uploads.named(text) is text
    assert uploads.named(f'"{uploads.folder}/{stored}.onnx: x"'.encode()) == b'"a file that was dropped: x"'
