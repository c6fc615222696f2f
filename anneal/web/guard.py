"""The check of every request: its host and origin, the token, and what a browser may do with the answers.

A page of another site can make a browser send requests here, and its name can be made to mean 127.0.0.1 (DNS
rebinding); so a request must name a host that is ours, and come from a page of ours. Other users of this machine can
reach the address too; so answers under /api/ need the token. The address that `anneal web` prints has a word that is
exchanged for it once, and leaves it in a cookie. What starts work needs the token in a header, which only a page of
ours can set.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import sys
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "anneal_token_"  # and the port: browsers send a cookie to every port of a host
POLICY = "; ".join(
    [
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' blob:", "connect-src 'self'",
        "worker-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    ]
)  # fmt: skip
HEADERS = {
    "x-anneal-studio": "1",
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(slots=True)
class Key:
    """The hosts that are ours ("127.0.0.1:3001"), the token, and whether others are let in, who need it for the pages
    too. `word` opens the first browser that says it; those that are let in from elsewhere all say the token.
    """

    hosts: frozenset[str]
    always: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    word: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def __post_init__(self) -> None:
        if self.always:
            self.word = self.token

    def fits(self, said: str) -> bool:
        return _same(said, self.token)

    def opens(self, said: str) -> bool:
        """True for the word, which opens nothing from then on."""
        found = bool(self.word) and _same(said, self.word)
        if found and not self.always:
            self.word = ""
        return found


def kept_token(place: Path) -> str:
    """The token in a file that its user alone can read, made where there is none: an open page goes on when the studio
    is started again. A token of this start alone where there can be no such file.
    """
    token = secrets.token_urlsafe(24)
    try:
        if found := _read(place):
            return found
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as f:
            f.write(token)
    except OSError:
        pass
    return token


def _read(place: Path) -> str:
    """The token in a file; nothing of one that is not there, or that another user has or can read."""
    try:
        number = os.open(place, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return ""
    with open(number, encoding="ascii", errors="replace") as f:
        facts = os.fstat(f.fileno())
        own = sys.platform == "win32" or (facts.st_uid == os.getuid() and not facts.st_mode & 0o077)
        found = f.read(200)
    return found if own and re.fullmatch(r"[\w-]{32,64}", found, re.ASCII) else ""


class Guard:
    """Refuses what is not ours, and adds the headers that bind the browser to every answer."""

    def __init__(self, app: ASGIApp, key: Key) -> None:
        self.app, self.key = app, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # nothing here speaks anything else

        async def bound(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refused = self._refused(scope)
        if refused is not None:
            await refused(scope, receive, bound)
            return
        await self.app(scope, receive, bound)

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        reads = scope["method"] in ("GET", "HEAD")
        if headers.get("host", "").lower() not in self.key.hosts or len(headers.getlist("host")) != 1:
            return _no("this host is not the studio's; open the address that `anneal web` printed")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.key.hosts}:
            return _no("requests of other sites are refused")
        page = reads and not scope["path"].startswith("/api/")
        if headers.get("sec-fetch-site") not in (None, "same-origin", "none") and not (
            page and headers.get("sec-fetch-mode") == "navigate"
        ):
            return _no("requests of other sites are refused")
        if self.key.fits(headers.get("x-anneal-token", "")):
            return None
        if not reads:
            return _no("this needs the token of the page; reload it")
        name, asked = _cookie_name(headers), dict(parse_qsl(scope["query_string"].decode("latin-1")))
        known, said = self.key.fits(_cookie(headers, name)), asked.pop("token", "") if page else ""
        if said and scope["method"] == "GET" and (known or self.key.opens(said)):
            answer = RedirectResponse(_address(scope["path"], asked), 303)
            answer.set_cookie(name, self.key.token, httponly=True, samesite="strict")
            return answer
        if known or (page and not self.key.always):
            return None
        return _no(
            "this browser is not let in; open the whole address that `anneal web` printed, or start `anneal web` again "
            "for a new one"
        )


def _no(text: str) -> Response:
    return JSONResponse({"error": text}, 403)


def _same(said: str, secret: str) -> bool:
    return hmac.compare_digest(said.encode("utf-8", "replace"), secret.encode())


def _cookie_name(headers: Headers) -> str:
    port = re.search(r":(\d+)$", headers["host"])
    return f"{COOKIE}{port[1] if port else 80}"


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else str(found.value)


def _address(path: str, asked: dict[str, str]) -> str:
    """An address here: of two slashes at its start a browser would make another host."""
    return f"/{path.lstrip('/')}{'?' if asked else ''}{urlencode(asked)}"
