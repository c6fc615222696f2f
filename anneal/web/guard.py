"""The check of every request: host, origin, token; and of every value in the commands that a page asks for."""

from __future__ import annotations

import hmac
import math
import os
import re
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anneal.frozen import Json
from anneal.training import DRAWING, MODELS, SPEAKING
from anneal.web.jobs import Command
from anneal.web.uploads import Uploads

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


@dataclass
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
        """True for the word; only the first time, unless others are let in."""
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
    """The token in a file; empty if the file is missing, or another user owns or can read it."""
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
    """Refuses requests that do not come from the studio's pages, and adds to every answer the headers that restrict the
    browser.

    A page of another site can make a browser send requests here, and its name can be made to mean 127.0.0.1 (DNS
    rebinding); so a request must name a host that is ours, and come from a page of ours. Other users of this machine
    can reach the address too; so answers under /api/ need the token. The address that `anneal web` prints has a word
    that is exchanged for it once, and leaves it in a cookie. What starts work needs the token in a header, which only a
    page of ours can set.
    """

    def __init__(self, app: ASGIApp, key: Key) -> None:
        self.app, self.key = app, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # the studio answers HTTP only

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
        request = HTTPConnection(scope)
        headers, asked = request.headers, dict(request.query_params)
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
        port = re.search(r":(\d+)$", headers["host"])
        name = f"{COOKIE}{port[1] if port else 80}"
        known, said = self.key.fits(request.cookies.get(name, "")), asked.pop("token", "") if page else ""
        if said and scope["method"] == "GET" and (known or self.key.opens(said)):
            # an address here: of two slashes at its start a browser would make another host
            address = f"/{scope['path'].lstrip('/')}{'?' if asked else ''}{urlencode(asked)}"
            answer = RedirectResponse(address, 303)
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


# -- command lines -----------------------------------------------------------------------------------------------------


DEVICES = ("auto", "cpu", "webgpu")
_RUN = re.compile(r"\w[\w.-]{0,120}")


Asked = Mapping[str, Any]  # the values that a page sent, by name


class Wrong(Exception):
    """A job that cannot be run, with the reason."""


def _none(_: str) -> None:
    """No job has weights, or is a script's."""


def command(
    asked: Asked,
    uploads: Uploads,
    weights: Callable[[str], Path | None] = _none,
    scripts: Callable[[str], list[str] | None] = _none,
) -> Command:
    """The command that the page asked for; `weights` finds the weights that a training job or a run saved, `scripts`
    the command line of a script that a job recorded. Raises Wrong.
    """
    kind = asked.get("kind")
    make = _KINDS.get(kind) if isinstance(kind, str) else None
    if make is None:
        raise Wrong(f"there is no job of kind {str(kind)[:40]!r}; there is: {', '.join(_KINDS)}")
    device = asked.get("device", "auto")
    if device not in DEVICES:
        raise Wrong(f"the device is one of {', '.join(DEVICES)}")
    found = {"device": device}
    if (of := asked.get("weights")) is not None:  # a job, a run or an upload
        place = None if not isinstance(of, str) else uploads.path(of) if of.startswith("upload.") else weights(of)
        if place is None or place.suffix != ".safetensors":
            raise Wrong("these weights are not here any more; train the model again, or drop its .safetensors file")
        found["place"] = str(place.resolve())
    model = str(asked.get("model"))
    words = _script(asked, uploads, scripts) if model.startswith("job.") or model.endswith(".py") else []
    return make({**asked, "place": None, "script": words, **found}, uploads)


def _script(asked: Asked, uploads: Uploads, scripts: Callable[[str], list[str] | None]) -> list[str]:
    """The words of a script that is to be checked: one that a job recorded, or one that was dropped, with arguments."""
    if asked["model"].startswith("job."):
        words = scripts(asked["model"].removeprefix("job.")) or []
    else:
        path, given = uploads.path(asked["model"]), asked.get("arguments") or ""
        if not isinstance(given, str) or len(given) > 2000 or "\0" in given:
            raise Wrong("arguments are a text of at most 2,000 characters")
        try:
            words = [] if path is None else [str(path.resolve()), *shlex.split(given)]
        except ValueError as error:
            raise Wrong(f"these arguments cannot be split into words: {error}") from None
    if not words:
        raise Wrong("this script is not here any more; drop it again")
    return words


def _train(asked: Json, _: Uploads) -> Command:
    model = _model(asked)
    words = ["train", model, "--json", "--vitals", *_options(asked, "steps batch seed samples lr")]
    if asked["place"] is not None:
        words += ["--start", asked["place"]]
    if asked.get("bundle", True):
        words.append("--bundle")
    if model in DRAWING:
        words += ["--picture", "{job}/picture.png"]
    if model == "gpt2":
        words.append("--scratch")
    elif asked.get("bundle", True):
        words += ["--save", "{job}/weights.safetensors"]
    return _made(asked, words, "steps batch seed lr bundle samples weights")


def _time(asked: Json, uploads: Uploads) -> Command:
    words = ["kernels", _traceable(asked, uploads), "--time", "--json", "--trace", "{job}/trace.json"]
    return _made(asked, [*words, *_options(asked, "step batch")], "step batch")


def _check(asked: Json, uploads: Uploads) -> Command:
    flags = "gradients" if asked["script"] else "step gradients"
    target = asked["script"] or [_traceable(asked, uploads)]
    return _made(asked, ["check", "--json", *_options(asked, flags), "--", *target], f"{flags} arguments")


def _run(asked: Json, uploads: Uploads) -> Command:
    model = _traceable(asked, uploads)
    if not model.endswith(".onnx"):
        raise Wrong("only an ONNX file is run")
    return _made(asked, ["onnx", "run", model, "--json", "--time", *_options(asked, "")])


def _sample(asked: Json, _: Uploads) -> Command:
    prompt = asked.get("prompt")
    if not isinstance(prompt, str) or len(prompt) > 20_000 or "\0" in prompt:
        raise Wrong("a prompt is a text of at most 20,000 characters")
    model = asked.setdefault("model", "gpt2")
    if model != "gpt2" and model not in SPEAKING:
        raise Wrong(f"{str(model)[:60]!r} does not speak; those that do: gpt2, {', '.join(SPEAKING)}")
    options = "max_tokens top_k seed greedy temperature"
    words = ["gpt2", "sample"] if model == "gpt2" else ["run", "text"]
    words += ["--stream", "--json", "--record", "{job}/recording.zip", *_options(asked, options)]
    if model != "gpt2" and asked["place"] is not None:
        words += ["--weights", asked["place"]]
    words += ["--", *([] if model == "gpt2" else [model]), prompt]
    return _made(asked, words, f"prompt {options} weights")


def script(file: Path, arguments: Sequence[str], device: str = "auto") -> Command:
    """The job of a script, which the command line names and no page can."""
    words = ["record", "--json", "-o", "{job}/recording.zip", "--device", device, "--", str(file), *arguments]
    return Command("script", file.name, device, tuple(words), {"script": str(file), "arguments": [*arguments]})


_KINDS: dict[str, Callable[[Json, Uploads], Command]] = {
    "train": _train,
    "time": _time,
    "check": _check,
    "run": _run,
    "sample": _sample,
    "numerics": lambda asked, _: _made(
        {**asked, "model": asked["device"]}, ["doctor", "--numerics", "--json", *_options(asked, "")]
    ),
}
# The least and the most of each option that is a number; an option with int bounds is an int.
_LIMITS: dict[str, tuple[float, float]] = {
    "steps": (1, 10**6), "batch": (1, 1 << 16), "seed": (0, 2**53), "samples": (0, 100), "max_tokens": (1, 1024),
    "top_k": (0, 50257), "lr": (1e-12, 1e6), "temperature": (1e-3, 100.0),
}  # fmt: skip


def _made(asked: Asked, words: list[str], told: str = "") -> Command:
    about = {name: asked[name] for name in told.split() if asked.get(name) is not None}
    return Command(asked["kind"], str(asked["model"]), asked["device"], tuple(words), about)


def _model(asked: Asked) -> str:
    model = asked.get("model")
    if not isinstance(model, str) or model not in MODELS:
        raise Wrong(f"there is no model {str(model)[:60]!r}")
    return model


def _traceable(asked: Asked, uploads: Uploads) -> str:
    model = asked.get("model")
    if isinstance(model, str) and model.startswith("upload."):
        path = uploads.path(model)
        if path is None or path.suffix != ".onnx":
            raise Wrong("this file is not here any more; drop it again")
        return str(path.resolve())
    return _model(asked)


def _options(asked: Asked, names: str) -> list[str]:
    """The device, and the flags and the numbers of these names, as the command line has them. Raises Wrong."""
    words = ["--device", asked["device"]]
    for name in names.split():
        value, flag = asked.get(name), f"--{name.replace('_', '-')}"
        if name not in _LIMITS:
            words += [flag] * bool(value)
        elif value is not None:
            low, high = _LIMITS[name]
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise Wrong(f"{name} is a number")
            if not low <= value <= high:
                raise Wrong(f"{name} is from {low:g} to {high:g}")
            if isinstance(high, int) and value != int(value):
                raise Wrong(f"{name} is a whole number")
            words += [flag, str(int(value)) if isinstance(high, int) else f"{value:g}"]
    return words
