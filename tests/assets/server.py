"""An HTTP server on this machine that answers as it is told: the next answer of a script each time, then properly."""

from __future__ import annotations

import gzip
import random
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["ANSWERS", "BODY", "OTHER", "Answer", "Server", "cut", "status"]

BODY = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)  # the same length, another file


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.server.seen.append(asked)
        self.server.encodings.append(self.headers.get("Accept-Encoding"))
        self.close_connection = True
        answer = self.server.script.pop(0) if self.server.script else good
        try:
            answer(self)
        except ConnectionError:
            self.server.hung_up.set()  # the client had enough

    def reply(self, code: int, body: bytes, length: int | None = -1, cut: int | None = None, **headers: str) -> None:
        """Headers and body. `length` -1 is the true one, None none at all; `cut` sends only so many bytes."""
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if length is not None:
            self.send_header("Content-Length", str(len(body) if length == -1 else length))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body[:cut])
        self.wfile.flush()

    def part(self, body: bytes = BODY, cut: int | None = None, **headers: str) -> None:
        """The range that was asked for, or the whole."""
        if self.start == 0:
            self.reply(200, body, cut=cut, **headers)
        elif self.start >= len(body):
            self.reply(416, b"", Content_Range=f"bytes */{len(body)}")
        else:
            given = f"bytes {self.start}-{len(body) - 1}/{len(body)}"
            self.reply(206, body[self.start :], cut=cut, Content_Range=given, **headers)

    def log_message(self, format: str, *args: object) -> None:
        pass


Answer = Callable[[Handler], None]


class Server(ThreadingHTTPServer):
    """`script` is what to answer, `seen` the Range of each request, `encodings` what it accepts."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Answer] = []
        self.seen: list[str | None] = []
        self.encodings: list[str | None] = []
        self.go_on = threading.Event()
        self.hung_up = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file"


def good(h: Handler) -> None:
    h.part()


def cut(after: int) -> Answer:
    return lambda h: h.part(cut=after)


def status(code: int, **headers: str) -> Answer:
    return lambda h: h.reply(code, b"an error page", **headers)


def chunked(h: Handler, body: bytes = BODY, end: bool = True) -> None:
    h.send_response(200)
    h.send_header("Transfer-Encoding", "chunked")
    h.end_headers()
    for i in range(0, len(body), 50_000):
        piece = body[i : i + 50_000]
        h.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    if end:
        h.wfile.write(b"0\r\n\r\n")


def hang(h: Handler, after: int = 131_072) -> None:
    """Some bytes, then none until the test ends or allows it."""
    h.part(cut=after)
    h.server.go_on.wait(60)


def drip(h: Handler) -> None:
    """Slow, but never so slow that it looks dead."""
    h.send_response(200)
    h.send_header("Content-Length", str(len(BODY)))
    h.end_headers()
    for i in range(0, len(BODY), 20_000):
        h.wfile.write(BODY[i : i + 20_000])
        time.sleep(0.03)


def no_end(h: Handler) -> None:
    h.send_response(200)
    h.end_headers()
    for _ in range(1000):  # 300 MB, where nobody hangs up
        h.wfile.write(BODY)


def redirect(h: Handler) -> None:
    h.server.script.insert(0, good)
    h.reply(302, b"", Location=h.server.url + "/elsewhere")


def silent(h: Handler) -> None:
    h.server.go_on.wait(60)


ANSWERS: dict[str, Answer] = {
    "good": good,
    "cut": cut(131_072),
    "cut at once": cut(0),
    "hangs up without an answer": lambda h: None,
    "range ignored": lambda h: h.reply(200, BODY),
    "range ignored, cut": lambda h: h.reply(200, BODY, cut=196_608),
    "no length": lambda h: h.reply(200, BODY, length=None),
    "no length, cut": lambda h: h.reply(200, BODY, length=None, cut=150_000),
    "chunked": chunked,
    "chunked, cut": lambda h: chunked(h, BODY[:200_000], end=False),
    "gzip": lambda h: h.reply(200, gzip.compress(BODY), Content_Encoding="gzip"),
    "gzip, cut": lambda h: h.reply(200, gzip.compress(BODY), cut=150_000, Content_Encoding="gzip"),
    "gzip of a range": lambda h: h.part(gzip.compress(BODY), Content_Encoding="gzip"),
    "not gzip at all": lambda h: h.reply(200, BODY, Content_Encoding="gzip"),
    "another file": lambda h: h.part(OTHER, ETag='"other"'),
    "another file, cut": lambda h: h.part(OTHER, cut=131_072, ETag='"other"'),
    "a shorter file": lambda h: h.part(BODY[:250_000], ETag='"short"'),
    "a longer file": lambda h: h.part(BODY + b"more", ETag='"long"'),
    "no end": no_end,
    "a range with too much": lambda h: h.reply(
        206, BODY, length=None, Content_Range=f"bytes {h.start}-{len(BODY) - 1}/{len(BODY)}"
    ),
    "another range": lambda h: h.reply(206, BODY[7:], Content_Range=f"bytes 7-{len(BODY) - 1}/{len(BODY)}"),
    "a range without its place": lambda h: h.reply(206, BODY[h.start :]),
    "a range of unknown length": lambda h: h.reply(
        206, BODY[h.start :], Content_Range=f"bytes {h.start}-{len(BODY) - 1}/*"
    ),
    "a wrong length": lambda h: h.reply(200, BODY, length=len(BODY) + 5),
    "a login page": lambda h: h.reply(200, b"<html>Please log in</html>", Content_Type="text/html"),
    "redirect": redirect,
    "redirect to itself": lambda h: h.reply(302, b"", Location=h.server.url),
    "416": status(416),
    "403": status(403),
    "404": status(404),
    "429": status(429, Retry_After="0"),
    "500": status(500),
    "503": status(503, Retry_After="soon"),
    "hang": hang,
    "silent": silent,
    "drip": drip,
    "no http": lambda h: (h.wfile.write(b"\x00\x01\x02 what?\r\n\r\n"), None)[1],
}
