"""2,000 random requests and 200 crafted ones: nothing that a request says brings the server down."""

from __future__ import annotations

import asyncio
import random
import socket
import string
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from anneal.web.asking import Answer, said
from anneal.web.guard import Key
from anneal.web.server import Studio, application
from anneal.web.starting import server
from tests.web.helpers import until

WORDS = (
    "", "api", "ask", "jobs", "runs", "uploads", "session", "static", "v", "k", "..", "%2e%2e", "mlp", "events", "picture",
    "kernel", "stop", "%00", "main.js", "graph", "20260314T150926-train-a1b2c3",
)  # fmt: skip


class Silent:
    """An inspector without a child: the requests are about the server."""

    async def ask(self, question: object) -> Answer:
        return said(422, "no child in this test")

    async def stop(self) -> None:
        """Nothing to stop."""


def noise(r: random.Random) -> str:
    letters = string.ascii_letters + string.digits + "._-~'\"<>{}\x00é"
    return "".join(r.choice(letters) for _ in range(r.randint(0, 12)))


async def answered(
    app: Any, method: str, path: str, query: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> int:
    """The status of one request, asked of the application itself."""
    told: list[dict[str, Any]] = []
    came = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        return next(came, {"type": "http.disconnect"})

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "headers": headers, "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 3001), "root_path": "",
    }  # fmt: skip
    await app(scope, receive, send)
    assert [m["type"] for m in told][:1] == ["http.response.start"], (method, path)
    status: int = told[0]["status"]
    return status


def test_random_requests_leave_it_up(tmp_path: Path) -> None:
    r = random.Random(14)
    studio = Studio(tmp_path, Key(frozenset(["127.0.0.1:3001"])))
    studio.inspector = Silent()  # type: ignore[assignment]
    app = application(studio)
    ours = [(b"host", b"127.0.0.1:3001"), (b"x-anneal-token", studio.key.token.encode())]

    async def all_of_them() -> Counter[int]:
        seen: Counter[int] = Counter()
        for _ in range(2000):
            path = "/" + "/".join(r.choice(WORDS) if r.random() < 0.8 else noise(r) for _ in range(r.randint(0, 5)))
            path = r.choice(["/api/jobs", "/api/uploads", "/api/ask/graph"]) if r.random() < 0.1 else path
            query = "&".join(
                f"{r.choice(['model', 'kernel', 'step', noise(r)])}={noise(r)}" for _ in range(r.randint(0, 3))
            )
            method = r.choice(["GET", "GET", "GET", "POST", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", noise(r)])
            headers = list(ours) if r.random() < 0.9 else []
            if r.random() < 0.4:
                names = [b"x-file-name", b"last-event-id", b"cookie", b"origin", b"accept-encoding", b"content-length"]
                headers.append((r.choice(names), noise(r).encode()))
            body = r.choice([b"", b"{}", b'{"kind":"train"}', r.randbytes(r.randint(0, 50))])
            status = await answered(app, method, path, query, headers, body)
            assert status < 500, (method, path, query, headers, body)
            seen[status] += 1
        assert await answered(app, "GET", "/api/session", "", ours, b"") == 200
        return seen

    assert {200, 400, 403, 404, 405} <= set(asyncio.run(all_of_them()))


@contextmanager
def served(where: Path) -> Iterator[tuple[int, Studio]]:
    """The port of a studio that is served as `anneal web` serves it, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        studio = Studio(where, Key(frozenset([f"127.0.0.1:{port}"])))
        studio.inspector = Silent()  # type: ignore[assignment]
        made = server(application(studio))
        thread = threading.Thread(target=made.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until(lambda: made.started)
        try:
            yield port, studio
        finally:
            made.should_exit = True
            thread.join(10)
            assert not thread.is_alive()


def spoken(port: int, text: bytes, *, shut: bool = False) -> bytes:
    """What the server says to these bytes, its first piece; nothing where it hangs up or waits for more."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=5)) as s:
        try:
            s.sendall(text)
            if shut:
                s.shutdown(socket.SHUT_WR)
            s.settimeout(0.05)
            return s.recv(400)
        except (TimeoutError, ConnectionError):
            return b""


def crafted(port: int, token: str) -> list[bytes]:
    """Requests that no browser sends, or that somebody sends with intent."""
    host = f"Host: 127.0.0.1:{port}\r\n"
    key = f"X-Anneal-Token: {token}\r\n"
    lines = [
        "GET  / HTTP/1.1", "GET / HTTP/9.9", "GET / HTTP/1.0", "GET /", "GET", "", "\x00\x01\x02", "G\x00T / HTTP/1.1",
        "GET /\x00 HTTP/1.1", "GET //// HTTP/1.1", "GET /%00 HTTP/1.1", "GET /%ff%fe HTTP/1.1", "GET /é HTTP/1.1",
        "GET http://evil.example/ HTTP/1.1", "CONNECT 127.0.0.1:22 HTTP/1.1", "TRACE / HTTP/1.1", "PRI * HTTP/2.0",
        "OPTIONS * HTTP/1.1", "get / http/1.1", "GET /" + "a" * 20_000 + " HTTP/1.1", "GET /?" + "a=b&" * 5000 + " HTTP/1.1",
        "GET /static/../server.py HTTP/1.1", "GET /static/%2e%2e/server.py HTTP/1.1", "GET /static/..%2fserver.py HTTP/1.1",
        "GET /static//etc/passwd HTTP/1.1", "GET /static/.hidden HTTP/1.1", "GET /static/main.js/.. HTTP/1.1",
        "GET /api/ask/__class__?model=mlp HTTP/1.1", "GET /api/ask/graph?model=mlp&model=mlp HTTP/1.1",
        "GET /api/ask/graph?kernel=99999999999999999999 HTTP/1.1", "GET /api/ask/graph?kernel=%EF%BC%91 HTTP/1.1",
        "GET /api/ask/file?model=upload.../../x.npy HTTP/1.1", "GET /api/ask/source?model=mlp&file=/etc/shadow&line=1 HTTP/1.1",
        "GET /api/jobs/../../x/events HTTP/1.1", "GET /api/runs/..%2f..%2fetc HTTP/1.1", "GET /api/runs/.studio HTTP/1.1",
        "GET /api/runs/x/kernel/..%2fmanifest HTTP/1.1", "DELETE /api/uploads/upload.%2e%2e HTTP/1.1", "PUT /api/jobs HTTP/1.1",
        "POST /api/jobs/x/__init__ HTTP/1.1", "POST / HTTP/1.1", "HEAD /api/session HTTP/1.1",
        *[f"GET /{view}/{'%2e%2e%2f' * n}etc/passwd HTTP/1.1" for view in "vkxctgr" for n in (1, 3, 6)],
        *[f"{method} /api/{path} HTTP/1.1" for method in ("GET", "POST", "DELETE", "PATCH") for path in (
            "jobs", "jobs/", "uploads", "uploads/upload.x", "runs/x/again", "jobs/x/stop", "session?x=%", "doctor/x", "ask",
        )],
    ]  # fmt: skip
    more = [
        "", "Content-Length: -1\r\n", "Content-Length: 99999999999999999999\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: x\r\n", "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: gzip\r\n", "Expect: 100-continue\r\n", "Upgrade: websocket\r\nConnection: Upgrade\r\n",
        "Host: evil.example\r\n", "Origin: null\r\n", "Range: bytes=0-0,5-9\r\n", "If-None-Match: *\r\n", "Cookie: " + "a=b;" * 4000 + "\r\n",
        "X-Anneal-Token: \xff\r\n", "X: " + "y" * 70_000 + "\r\n", "X: y\r\n" * 3000, " folded: line\r\n", "NoColon\r\n",
        "Last-Event-ID: -1\r\n", "Accept-Encoding: gzip;q=nan\r\n", "X-File-Name: %00/../x.onnx\r\n", "Bad Header: x\r\n",
    ]  # fmt: skip
    bodies = [b"", b"{}", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"zz\r\n", b"[" * 70_000]
    found = [f"{line}\r\n{host}{key}\r\n".encode("latin-1") for line in lines]
    for start in (
        "GET / HTTP/1.1",
        "GET /api/session HTTP/1.1",
        "POST /api/jobs HTTP/1.1",
        "POST /api/uploads HTTP/1.1",
    ):
        for i, header in enumerate(more):
            found.append(f"{start}\r\n{host}{key}{header}\r\n".encode("latin-1") + bodies[i % len(bodies)])
    found += [
        b"",
        b"\r\n" * 500,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"*1\r\n$4\r\nPING\r\n",
        b"\xff" * 5000,
        b"a" * 100_000,
    ]
    return found


def test_crafted_requests_leave_it_up(tmp_path: Path) -> None:
    with served(tmp_path) as (port, studio):
        requests = crafted(port, studio.key.token)
        assert len(requests) >= 200
        begun = time.monotonic()
        for i, text in enumerate(requests):
            first = spoken(port, text, shut=i % 2 == 0).split(b"\r\n", 1)[0]
            assert first == b"" or first.startswith(b"HTTP/1.1 "), (text[:200], first)
            assert b" 500 " not in first, text[:200]
        assert studio.jobs.all() == []
        assert not list(tmp_path.rglob("*.onnx*"))
        plain = f"GET /api/session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()
        plain += f"X-Anneal-Token: {studio.key.token}\r\n\r\n".encode()
        assert until(lambda: spoken(port, plain)).startswith(b"HTTP/1.1 200")
        assert time.monotonic() - begun < 60
