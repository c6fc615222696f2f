"""`anneal web` and `anneal viz`: addresses, the extra that may be missing, the first response."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from anneal.web import starting
from tests.cli.helpers import run
from tests.web.helpers import opened
from tests.web.test_requests import served
from tests.web.test_server import relu

ROOT = Path(__file__).resolve().parents[2]


def test_without_the_extra_one_line_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else there(name))
    outcome = run(capsys, "web", ":0", "--no-open")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "error: the studio needs uvicorn: pip install starlette uvicorn\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("0.0.0.0:0",), "to let others in: anneal web --host 0.0.0.0"),
        (("example.org",), "to let others in: anneal web --host example.org"),
        ((":70000",), "70000 is no port"),
        (("127.0.0.1:0", "--host", "0.0.0.0"), "leave one of them out"),
    ],
)
def test_an_address_that_cannot_be_had(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    outcome = run(capsys, "web", *arguments, "--no-open")
    assert outcome.code == 2
    assert said in outcome.err


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        outcome = run(capsys, "web", str(taken.getsockname()[1]), "--no-open")
    assert outcome.code == 2
    assert "another program has it; `anneal web :0` takes a free one" in outcome.err


def test_a_port_that_another_studio_has(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with served(tmp_path) as (port, _):
        outcome = run(capsys, "web", str(port), "--no-open")
    assert outcome.code == 2
    assert "a studio is there already; `anneal web :0` takes a free one" in outcome.err


def test_viz_of_what_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "Did you mean 'nanogpt'" in run(capsys, "viz", "nanogtp", "--no-open").err
    outcome = run(capsys, "viz", str(tmp_path / "no.onnx"), "--no-open")
    assert (outcome.code, "cannot be read" in outcome.err) == (4, True)


def test_hosts_are_those_of_the_address() -> None:
    assert starting._hosts("127.0.0.1", None, 3001) == {"127.0.0.1:3001", "localhost:3001", "[::1]:3001"}
    assert starting._hosts("10.0.0.5", "10.0.0.5", 80) == {"10.0.0.5:80", "10.0.0.5"}


def test_viz_opens_at_the_graph_of_a_file(tmp_path: Path) -> None:
    relu(tmp_path / "m.onnx")
    command = [sys.executable, "-c", "from anneal.cli import main; main()", "viz", "m.onnx", "--no-open"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            assert "/v/upload." in url
            with urllib.request.urlopen(url) as answer:
                assert answer.status == 200
        finally:
            process.terminate()


def test_with_a_host_the_address_has_the_token_and_nothing_is_told_without_it(tmp_path: Path) -> None:
    """`--host` as a user starts it: what is printed opens the page; whoever has the address alone gets nothing."""
    command = [
        sys.executable,
        "-c",
        "from anneal.cli import main; main()",
        "web",
        ":0",
        "--host",
        "127.0.0.1",
        "--no-open",
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=env, **streams) as process:  # type: ignore[call-overload]
        url, _, token = process.stdout.readline().split()[-1].partition("?token=")

        name = f"anneal_token_{url.split(':')[-1].strip('/')}"
        cookie = f"{name}={token}"

        def status(path: str, method: str = "GET", **headers: str) -> int:
            with contextlib.closing(http.client.HTTPConnection(url.split("/")[2], timeout=20)) as asked:
                asked.request(method, path, headers=headers)
                return asked.getresponse().status

        try:
            assert len(token) >= 32
            for path in (
                "/",
                "/v/mlp",
                "/static/main.js",
                "/api/session",
                "/api/jobs",
                "/api/ask/ops",
                "/?token=wrong",
            ):
                assert status(path) == 403, path
            assert status("/", cookie=f"{name}=wrong") == 403
            assert status(f"/?token={token}") == 303
            for path in ("/", "/static/main.js", "/api/session"):
                assert status(path, cookie=cookie) == 200
            assert status("/api/session", cookie=cookie, host="other.example") == 403
            for path in ("/api/jobs", "/api/uploads"):
                assert status(path, "POST", cookie=cookie) == 403  # a cookie starts nothing
            assert status("/api/jobs", "POST", **{"x-anneal-token": token}) == 400  # an empty request, but heard
        finally:
            process.terminate()
            _, said = process.communicate(timeout=20)
    assert said == "        the network can reach it; whoever has the token can start work here\n"


@pytest.mark.ci
def test_ctrl_c_says_what_goes_on_and_ends_what_was_asked(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from anneal.cli import main; main()", "web", ":0", "--no-open"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=env, **streams) as process:  # type: ignore[call-overload]
        url, _, word = process.stdout.readline().split()[-1].partition("?token=")
        assert len(word) >= 32
        kept = (tmp_path / "runs" / ".studio" / "token").read_text()

        def send(path: str, body: dict[str, object] | None = None, token: str = kept) -> Any:
            data = None if body is None else json.dumps(body).encode()
            with urllib.request.urlopen(urllib.request.Request(url + path, data, {"x-anneal-token": token})) as answer:
                return json.load(answer)

        def asked() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                send("api/ask/graph?model=nanogpt&step=1")  # takes a second or more

        body = {"kind": "train", "model": "mlp", "device": "cpu", "steps": 100_000, "bundle": False}
        job = send("api/jobs", body, send("api/session")["token"])["id"]
        asking = threading.Thread(target=asked)
        asking.start()
        time.sleep(0.3)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        started = children.read_text().split() if children.exists() else []
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        asking.join(10)
    with opened(tmp_path) as client:
        try:
            assert client.get(f"/api/jobs/{job}").json()["state"] == "running"
            pid = client.get(f"/api/jobs/{job}").json()["pid"]
        finally:
            client.post(f"/api/jobs/{job}/cancel")
    assert (process.returncode, out) == (0, "")
    assert err == "a run goes on; `anneal web` in this folder shows and stops it\n"
    assert not [p for p in started if p != str(pid) and Path(f"/proc/{p}").exists()]
