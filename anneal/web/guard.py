"""Who may ask: the host and the origin of every request, the token, and what a browser may do with the answers.

A page of another site can make a browser send requests here, and its name can be made to mean 127.0.0.1 (DNS
rebinding); so a request must name a host that is ours, and come from a page of ours. What starts work also needs the
token of this start of the server, which only a page of ours can read.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["COOKIE", "Guard", "Key"]

COOKIE = "anneal_token"
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
    """The hosts that are ours ("127.0.0.1:3001"), the token of this start, and whether reading needs it too."""

    hosts: frozenset[str]
    always: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def fits(self, said: str) -> bool:
        return hmac.compare_digest(said.encode("utf-8", "replace"), self.token.encode())


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
        if reads and not self.key.always:
            return None
        if self.key.fits(headers.get("x-anneal-token", "")):
            return None
        if not reads:
            return _no("this needs the token of the page; reload it")
        if self.key.fits(_cookie(headers.get("cookie", ""))):
            return None
        if page and self.key.fits(_asked(scope)):
            answer = RedirectResponse(scope["path"], 303)
            answer.set_cookie(COOKIE, self.key.token, httponly=True, samesite="strict")
            return answer
        return _no("this needs the token: open the address that `anneal web` printed, with its ?token=", 401)


def _no(text: str, status: int = 403) -> Response:
    return JSONResponse({"error": text}, status)


def _cookie(text: str) -> str:
    try:
        found = SimpleCookie(text).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else str(found.value)


def _asked(scope: Scope) -> str:
    query: bytes = scope["query_string"]
    return parse_qs(query.decode("latin-1")).get("token", [""])[0]
