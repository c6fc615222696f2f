"""Answers that outlast the studio: a view as one page of its own, and on disk for the next start."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import os
import sys
import sysconfig
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from starlette.types import ASGIApp, Message

from anneal import cache, settings
from anneal.assets import ASSETS, location
from anneal.errors import DataError, UserError
from anneal.frozen import Json
from anneal.training import MODELS, examples_folder
from anneal.version import __version__

STATIC = Path(__file__).resolve().parent / "static"
KERNELS = 60  # kernels whose texts are kept, those nearest to the selected one
LINES = 300  # of the user's, each with the lines about it


@dataclass(slots=True)
class _Collector:
    """The answers so far by their addresses, and pictures as data.

    The page asks nothing of anybody: its policy allows the script and the style that it has, by their hashes, and no
    connection. What it was not given is said to be missing. It opens from a file, and from any server.
    """

    app: ASGIApp
    view: str
    name: str
    query: dict[str, str]
    answers: Json = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, *, needed: bool = True, **query: Any) -> Any:
        """The answer at `path`, kept. Raises UserError for one that is an error, and is `needed`."""
        asked = [(k, "1" if v is True else str(v)) for k, v in query.items() if v not in (None, False, "")]
        status, body = await _get(self.app, path, urlencode(asked))
        value = json.loads(body)
        if status != 200:
            if needed:
                raise UserError(f"{path}: {value.get('error', status)}")
            return None
        self.answers[path + "".join(f"&{k}={v}" for k, v in sorted(asked))] = value
        return value

    async def picture(self, path: str) -> None:
        """A picture, kept, if there is one."""
        place, _, query = path.partition("?")
        status, body = await _get(self.app, place, query)
        if status == 200:
            self.files[path] = "data:image/png;base64," + base64.b64encode(body).decode()

    async def job(self, number: str | None) -> None:
        """The events of a job so far."""
        if number is None:
            return
        job = await self.get(f"/api/jobs/{quote(number)}")
        lines = await self.get(f"/api/jobs/{quote(number)}/lines")
        await self.get(f"/api/jobs/{quote(number)}/log")
        self.answers[f"/api/jobs/{number}/events"] = {"lines": lines, "state": job}
        await self.picture(f"/api/jobs/{number}/picture")
        for line in lines:
            if line.get("event") == "sample" and line.get("picture"):
                await self.picture(f"/api/jobs/{number}/picture?step={line['step']}")

    async def sources(self, about: Json, records: Iterable[Any]) -> None:
        """The user's lines that records name, with the lines around them."""
        lines = dict.fromkeys((x["file"], x["line"]) for x in records if x is not None)
        parts = {k: about[k] for k in ("model", "step")}
        for file, line in list(lines)[:LINES]:
            await self.get("/api/ask/source", needed=False, **parts, file=file, line=line)

    @property
    def about(self) -> Json:
        """The settings that a view of a graph sends with each question."""
        step = self.query.get("step") != "0"
        return {"model": self.name, "step": step, **{k: self.query.get(k) for k in ("device", "plan")}}

    # -- the views

    async def home(self) -> None:
        await self.get("/api/doctor")
        for device in ("cpu", "webgpu"):
            await self.job(self.query.get(device))

    async def graph(self) -> None:
        about = self.about
        graph = await self.get("/api/ask/graph", **about)
        kernel = self.query.get("kernel")
        for which in dict.fromkeys([None, kernel]):
            for p in await self.get("/api/ask/passes", **about, kernel=which):
                await self.get("/api/ask/pass", **about, kernel=which, name=p["info"]["name"])
        await self.sources(about, [n["line"] for n in graph["nodes"]])
        worker = next(STATIC.glob("*-worker.js"))
        self.files[f"/static/{worker.name}"] = worker.read_text(encoding="utf-8")

    async def kernels(self) -> None:
        about = self.about
        found = await self.get("/api/ask/kernels", **about)
        count = len(found["kernels"])
        said = self.query.get("kernel", "")
        chosen = min(int(said) if said.isdecimal() else 0, max(0, count - 1))
        lines = []
        for n in sorted(range(count), key=lambda n: abs(n - chosen))[:KERNELS]:
            text = (await self.get("/api/ask/kernel", **about, kernel=n))["text"]
            lines += [x for line in (text["lines"] if text else ()) for x in line["lines"]]
        await self.sources(about, lines)
        await self.job(self.query.get("time"))

    async def explained(self) -> None:
        await self.get("/api/ask/ops")
        if self.name:
            await self.get("/api/ask/explain", op=self.name)

    async def of_job(self) -> None:
        await self.job(self.query.get("job"))

    async def history(self) -> None:
        await self.get("/api/runs")
        for run in (self.name, self.query.get("with")):
            if run:
                await self.get(f"/api/runs/{quote(run)}")
                await self.picture(f"/api/runs/{run}/picture")

    async def overlay(self) -> None:
        if self.query.get("runs"):
            log = "log" if self.query.get("x") == "log" else None
            await self.get("/api/curves", runs=" ".join(dict.fromkeys(self.query["runs"].split())), x=log)

    async def script(self) -> None:
        if self.name.startswith("job."):
            await self.job(self.name.removeprefix("job."))
        elif self.name:
            await self.get("/api/ask/recording", model=self.name)


_VIEWS = {
    "": _Collector.home, "v": _Collector.graph, "k": _Collector.kernels, "x": _Collector.explained,
    "c": _Collector.of_job, "t": _Collector.of_job, "g": _Collector.of_job, "r": _Collector.history,
    "o": _Collector.overlay, "s": _Collector.script, "d": _Collector.home,
}  # fmt: skip


async def snapshot(app: ASGIApp, view: str) -> bytes:
    """The page of the view at address `view` ("/k/mlp?kernel=3"), by the application that serves it.

    Raises UserError for an address that has no view, and what the view's own questions are answered with.
    """
    parts = urlsplit("/" + view.lstrip("/"))
    kind, _, name = parts.path.removeprefix("/").partition("/")
    if kind not in _VIEWS:
        raise UserError(f"there is no view at {view[:60]!r}; there is: {', '.join('/' + k for k in _VIEWS)}")
    found = _Collector(app, kind, unquote(name), dict(parse_qsl(parts.query)))
    await _VIEWS[kind](found)
    session = await found.get("/api/session")
    found.answers["/api/session"] = _bare(session, found)
    for path in [p for p in found.answers if p.startswith("/api/jobs/")]:
        if path.count("/") == 3:
            del found.answers[path]
    icon = base64.b64encode((STATIC / "icon.svg").read_bytes()).decode()
    found.files["/static/icon.svg"] = f"data:image/svg+xml;base64,{icon}"
    address = parts.path + (f"?{parts.query}" if parts.query else "")
    kept = {"view": address, "made": time.time(), "answers": found.answers, "files": found.files}
    return _page(kept, f"{address} · anneal studio {__version__}")


def _bare(session: Json, found: _Collector) -> Json:
    """The facts about its origin that the page may hold: no token, and of files, jobs and runs those that it shows."""
    shown = {found.name, *found.query.values()}
    home = found.view == ""
    return {
        **session,
        "token": "",
        "uploads": [u for u in session["uploads"] if u["id"] in shown],
        "jobs": [j for j in session["jobs"] if j["id"] in shown or f"job.{j['id']}" in shown],
        "runs": session["runs"] if home else [],
    }


def _page(kept: Json, title: str) -> bytes:
    script = (STATIC / "main.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    text = json.dumps(kept, separators=(",", ":"))
    for root in (Path.cwd(), STATIC.parents[2]):  # the page must not tell where this machine keeps its files
        text = text.replace(json.dumps(f"{root}{os.sep}")[1:-1], "")
    data = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(script)}'; style-src 'sha256-{_digest(style)}'; "
        "img-src data:; worker-src blob:; base-uri 'none'; form-action 'none'"
    )
    shown = title.replace("&", "&amp;").replace("<", "&lt;")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="content-security-policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light">
<title>{shown}</title>
<style>{style}</style>
</head>
<body>
<div id="app"><p class="boot">This page needs JavaScript.</p></div>
<script type="text/plain" id="snapshot">{data}</script>
<script type="module">{script}</script>
</body>
</html>
""".encode()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


async def _get(app: ASGIApp, path: str, query: str) -> tuple[int, bytes]:
    """The status and the body that the application answers a GET with."""
    status, body = 0, bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            body.extend(message.get("body", b""))

    scope: Json = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [], "client": None, "server": None, "app": app,
    }  # fmt: skip
    await app(scope, receive, send)
    if not status:
        raise DataError(f"nothing answered at {path}")
    return status, bytes(body)


# -- answers on disk ---------------------------------------------------------------------------------------------------


KIND = "studio"
LEAST = 2000  # bytes of an answer
WORTH_S = 0.2  # answers that take less time are not kept
QUESTIONS = frozenset({"graph", "passes", "pass", "kernels", "kernel", "explain", "firings"})
_STARTED = time.time()
_PACKAGE = Path(__file__).resolve().parents[1]


def load(question: Json, text: str) -> bytes | None:
    """The answer to `question`, whose JSON is `text`; None if none is kept.

    It is found by the question and by all that decides the answer: every source file of anneal and of its examples, the
    packages that are installed, and which files were downloaded. A file that is newer than this process makes a miss of
    everything, as in `anneal/cache`, which keeps them.
    """
    return cache.load(KIND, _key(text), str.encode) if _lasting(question) and cache.enabled() else None


def keep(question: Json, text: str, answer: bytes, seconds: float) -> None:
    """Keep an answer if it is long and took long, `seconds`, to find."""
    worth = seconds >= WORTH_S and len(answer) > LEAST and _lasting(question) and cache.enabled()
    if worth and all(changed <= _STARTED for _, changed in _sources()):
        cache.save(KIND, _key(text), answer.decode(), f"studio: {text}")


def _lasting(question: Json) -> bool:
    """True if the question is about an example, or a dropped file, which is named by its content."""
    model = question.get("model")
    known = model is None or model in MODELS or str(model).startswith("upload.")
    return known and question.get("ask") in QUESTIONS


def _key(text: str) -> bytes | None:
    decided = _decided()
    return None if decided is None else cache.disk_key(decided, _here(), text)


@functools.cache
def _decided() -> bytes | None:
    """A hash of every source file; None where one is newer than this process, or cannot be read."""
    return cache.digest(_sources(), _STARTED)


def _here() -> bytes:
    """The things that may change without a source of ours: the packages, the settings, and the files that an example
    found or did without.
    """
    sizes = [(a.name, _size(location(a))) for a in ASSETS.values()]
    packages = Path(sysconfig.get_path("purelib"))
    plain = replace(settings.current(), debug=0, cache_dir="", bundle=False)
    changed = packages.stat().st_mtime if packages.is_dir() else None
    return repr((__version__, sys.version, changed, sizes, plain)).encode()


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _sources() -> list[tuple[str, float]]:
    """The Python files and rules of anneal and its examples, and when they changed, in a fixed order."""
    return [s for root in (_PACKAGE, examples_folder()) for s in cache.sources(str(root), (".py", ".upat"))]
