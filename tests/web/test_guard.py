"""Who may ask: hosts, origins, tokens, and the headers that bind a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.web.helpers import Client, opened

PAGES = ("/", "/v/mlp", "/k/mlp", "/x/ADD", "/t/mlp", "/g/gpt2", "/r", "/r/x", "/d")


@pytest.mark.parametrize("path", [*PAGES, "/api/session", "/api/jobs", "/static/main.js"])
def test_every_answer_binds_the_browser(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/api/session", "/api/jobs", "/static/main.js", "/api/nothing"])
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:3001"},
        {"host": "127.0.0.1:3002"},
        {"host": "127.0.0.1"},
        {"host": "127.0.0.1:3001.evil.example"},
        {"host": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:3001"},
        {"origin": "http://127.0.0.1:3002"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    ],
)
def test_requests_of_others_are_refused(client: Client, path: str, headers: dict[str, str]) -> None:
    answer = client.get(path, headers=headers)
    assert answer.status_code == 403
    assert client.get("/api/session").json()["token"] not in answer.text


def test_a_link_from_elsewhere_opens_a_page_and_reads_no_data(client: Client) -> None:
    elsewhere = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/v/mlp", headers=elsewhere).status_code == 200
    assert client.get("/api/session", headers=elsewhere).status_code == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/jobs"),
        ("POST", "/api/uploads"),
        ("DELETE", "/api/uploads/upload.x.onnx"),
        ("POST", "/api/jobs/x/stop"),
        ("POST", "/api/runs/x/again"),
    ],
)
@pytest.mark.parametrize("token", ["", "wrong", "é"])
def test_what_starts_work_needs_the_token(client: Client, method: str, path: str, token: str) -> None:
    headers = {"x-anneal-token": token.encode("latin-1")}
    assert client.request(method, path, headers=headers).status_code == 403


def test_with_a_host_everything_needs_the_token(tmp_path: Path) -> None:
    with opened(tmp_path, always=True) as client:
        token = client.headers.pop("x-anneal-token")
        for path in ("/", "/api/session", "/static/main.js"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"cookie": "anneal_token=wrong"}).status_code == 401
        answer = client.get(f"/v/mlp?token={token}", follow_redirects=False)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/v/mlp"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert re.search("SameSite=strict", cookie, re.IGNORECASE)
        assert client.get("/api/session").status_code == 200  # by the cookie
        assert client.post("/api/jobs", json={}).status_code == 403  # a cookie alone starts nothing
        assert client.get(f"/api/session?token={token}", headers={"cookie": ""}).status_code == 401


def test_each_start_has_another_token(tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):
        with opened(tmp_path) as client:
            seen.add(client.get("/api/session").json()["token"])
    assert len(seen) == 2
    assert min(map(len, seen)) >= 32
