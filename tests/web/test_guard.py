"""Who may ask: hosts, origins, tokens, and the headers that bind a browser."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from anneal.web.guard import kept_token
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


def test_another_user_of_the_machine_reads_nothing(client: Client) -> None:
    """Whoever can reach the port has the page, in which there is nothing, and no answer."""
    token = client.headers.pop("x-anneal-token")
    for path in ("/api/session", "/api/jobs", "/api/doctor", "/api/ask/ops", "/api/snapshot?view=/", "/api/runs"):
        for more in ({}, {"cookie": "anneal_token_3001=wrong"}, {"cookie": f"anneal_token={token}"}):
            answer = client.get(path, headers=more)
            assert answer.status_code == 403, path
            assert "open the whole address that `anneal web` printed" in answer.json()["error"]
    for path in (*PAGES, "/static/main.js"):
        assert token not in client.get(path).text
        assert client.get(path).status_code == 200


def test_the_word_of_the_address_opens_one_browser(client: Client) -> None:
    key = client.app.key  # type: ignore[attr-defined]
    del client.headers["x-anneal-token"]
    word = key.word
    assert word != key.token
    assert client.get(f"/api/session?token={word}").status_code == 403  # it is for pages
    assert client.head(f"/?token={word}").status_code == 200  # what looks at a link does not use it up
    answer = client.get(f"/k/mlp?token={word}&kernel=2", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/k/mlp?kernel=2")
    assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers["set-cookie"].split("; "))
    assert client.get("/api/session").json()["token"] == key.token  # as after a reload
    assert client.get(f"/?token={word}", follow_redirects=False).status_code == 303  # a second tab
    assert client.post("/api/jobs", json={}).status_code == 403  # a cookie alone starts nothing
    client.cookies.clear()  # another browser
    assert "set-cookie" not in client.get(f"/?token={word}", follow_redirects=False).headers
    assert client.get("/api/session").status_code == 403


def test_the_address_that_follows_the_word_is_here(client: Client) -> None:
    word = client.app.key.word  # type: ignore[attr-defined]
    del client.headers["x-anneal-token"]
    answer = client.get(f"http://127.0.0.1:3001//evil.example/?token={word}", follow_redirects=False)
    assert answer.headers["location"] == "/evil.example/"


def test_with_a_host_everything_needs_the_token(tmp_path: Path) -> None:
    with opened(tmp_path, always=True) as client:
        token = client.headers.pop("x-anneal-token")
        for path in ("/", "/api/session", "/static/main.js"):
            assert client.get(path).status_code == 403
            assert client.get(path, headers={"cookie": "anneal_token_3001=wrong"}).status_code == 403
        for _ in range(2):  # those that are let in have one address
            client.cookies.clear()
            answer = client.get(f"/v/mlp?token={token}", follow_redirects=False)
            assert answer.status_code == 303
            assert answer.headers["location"] == "/v/mlp"
            cookie = answer.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert re.search("SameSite=strict", cookie, re.IGNORECASE)
        assert client.get("/api/session").status_code == 200  # by the cookie
        assert client.post("/api/jobs", json={}).status_code == 403  # a cookie alone starts nothing
        assert client.get(f"/api/session?token={token}", headers={"cookie": ""}).status_code == 403


def test_each_start_has_another_word(tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):
        with opened(tmp_path) as client:
            seen |= {client.app.key.word, client.app.key.token}  # type: ignore[attr-defined]
    assert len(seen) == 4
    assert min(map(len, seen)) >= 32


@pytest.mark.skipif(sys.platform == "win32", reason="rights of a file are POSIX's")
def test_the_kept_token_is_its_users_alone(tmp_path: Path) -> None:
    place = tmp_path / "runs" / ".studio" / "token"
    token = kept_token(place)
    assert place.stat().st_mode & 0o777 == 0o600
    assert kept_token(place) == token == place.read_text()
    place.chmod(0o640)  # others may have read it
    other = kept_token(place)
    assert (other != token, place.stat().st_mode & 0o777) == (True, 0o600)
    place.write_text("short")
    assert len(kept_token(place)) >= 32
    place.unlink()
    place.symlink_to(tmp_path / "elsewhere")
    assert len(kept_token(place)) >= 32
    assert not (tmp_path / "elsewhere").exists()
    assert len(kept_token(tmp_path / "runs" / ".studio" / "token" / "no" / "folder")) >= 32
