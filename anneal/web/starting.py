"""`anneal web`: the server at its address, and the browser."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
import socket
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anneal import files
from anneal.errors import DataError, SettingError, UserError
from anneal.frozen import frozen

if TYPE_CHECKING:
    import uvicorn

    from anneal.web.guard import Guard
    from anneal.web.server import Studio

PORT = 3001
MARK = "x-anneal-studio"  # a header of every answer
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@frozen
class Options:
    """`address` is HOST:PORT, :PORT or PORT; `host` an address that others may reach; `shows` a model, or an ONNX file,
    whose graph is the page to open; `script` a program and its arguments, which is run and whose plans are the page.
    """

    address: str = ""
    host: str | None = None
    shows: str | None = None
    opens: bool = True
    script: Sequence[str] = ()


def serve(options: Options) -> None:
    """Serve until Ctrl-C. UserError where the extra is missing, SettingError for an address that cannot be had."""
    if options.script and not Path(options.script[0]).is_file():
        raise DataError(f"{options.script[0]}: there is no such file")
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"the studio needs {' and '.join(missing)}: pip install starlette uvicorn")
    host, port = _address(options)
    with _bound(host, port) as listening:
        _serve(options, host, listening)


def save(view: str, output: Path) -> None:
    """Write a view as one page. UserError for what is no view, DataError for a file that cannot be written."""
    if importlib.util.find_spec("starlette") is None:
        raise UserError("the studio needs starlette: pip install starlette uvicorn")
    from anneal.web.guard import Key
    from anneal.web.server import Studio, application
    from anneal.web.snapshots import snapshot

    studio = Studio(Path.cwd(), Key(frozenset()))
    studio.jobs.read()
    kind, _, name = view.lstrip("/").partition("/")
    file, mark, query = name.partition("?")
    if file.endswith((".onnx", ".zip")) and Path(file).is_file():
        view = f"{kind}/{studio.uploads.copy(Path(file)).id}{mark}{query}"

    async def made() -> bytes:
        try:
            return await snapshot(application(studio).app, view)
        finally:
            await studio.inspector.stop()

    try:
        files.check_replaceable(output)
        page = asyncio.run(made())
        files.replace(output, lambda f: f.write(page))
    except OSError as error:
        raise DataError(f"{output} cannot be written: {error.strerror or error}") from None


def _serve(options: Options, host: str, listening: socket.socket) -> None:
    port = listening.getsockname()[1]

    from anneal.web.guard import Key, kept_token
    from anneal.web.server import Studio, application

    hosts, here = _hosts(host, options.host, port), Path.cwd()
    if options.host is None:
        key = Key(hosts, token=kept_token(here / "runs" / ".studio" / "token"))
    else:
        key = Key(hosts, always=True)
    studio = Studio(here, key, warm=True)
    url = f"http://{_spelt(host)}:{port}{_path(studio, options)}?token={key.word}"
    print(f"studio  {url}", flush=True)
    if options.host is not None:
        print("        the network can reach it; whoever has the token can start work here", file=sys.stderr)
    if options.opens and sys.stdout.isatty():
        threading.Timer(0.3, webbrowser.open, (url,)).start()
    with contextlib.suppress(KeyboardInterrupt):
        server(application(studio)).run(sockets=[listening])
    live = sum(not j.over for j in studio.jobs.all())
    if live:
        said = (
            "a run goes on; {} shows and stops it"
            if live == 1
            else f"{live} runs go on or wait; {{}} shows and stops them"
        )
        print(said.format("`anneal web` in this folder"), file=sys.stderr)


def server(app: Guard) -> uvicorn.Server:
    """The server of the application, with limits, so that no request can use up its memory or delay its end."""
    import logging

    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # Requests that still run are cut off after a second, without a message: the user ended the studio.
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app, log_config=None, log_level="error", access_log=False, server_header=False, ws="none",
        timeout_graceful_shutdown=1, limit_concurrency=256, h11_max_incomplete_event_size=1 << 16,
    )  # fmt: skip
    return Server(config)


def _path(studio: Studio, options: Options) -> str:
    """The first page; a file that is shown is taken in, and a script started."""
    if options.script:
        from anneal.web.guard import script

        return f"/s/job.{studio.jobs.add(script(Path(options.script[0]), options.script[1:])).id}"
    shown = options.shows
    if shown is None:
        return "/"
    if not shown.endswith(".onnx"):
        return f"/v/{shown}"
    try:
        return f"/v/{studio.uploads.copy(Path(shown)).id}"
    except OSError as error:
        raise DataError(f"{shown} cannot be read: {error.strerror or error}") from None


def _address(options: Options) -> tuple[str, int]:
    parts = re.fullmatch(r"(?:(.*?):)?(\d*)", options.address)
    host, port = (parts[1] or "", parts[2]) if parts else (options.address, "")
    number = int(port or PORT)
    if number > 65535:
        raise SettingError(f"{number} is no port; those go to 65535, and :0 takes a free one")
    host = host.strip("[]")
    if options.host is not None:
        if host:
            raise SettingError(
                f"the address names the host {host} and --host names {options.host}; leave one of them out"
            )
        return options.host, number
    if host not in ("", "127.0.0.1", "localhost", "::1"):
        raise SettingError(f"{host} is no address of this machine's own; to let others in: anneal web --host {host}")
    return host or "127.0.0.1", number


def _bound(host: str, port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(128)
    except OSError as error:
        found.close()
        there = "a studio is there already" if _is_studio(host, port) else "another program has it"
        advice = f"{there}; `anneal web :0` takes a free one" if port else "choose another address"
        raise SettingError(f"{host}:{port} cannot be served at: {error.strerror or error}; {advice}") from None
    return found


def _is_studio(host: str, port: int) -> bool:
    """True if a studio answers there."""
    from http.client import HTTPConnection, HTTPException

    asked = HTTPConnection(host, port, timeout=0.5)
    try:
        asked.request("GET", "/static/icon.svg")
        return asked.getresponse().getheader(MARK) is not None
    except (OSError, HTTPException):
        return False
    finally:
        asked.close()


def _spelt(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _hosts(host: str, given: str | None, port: int) -> frozenset[str]:
    """The hosts that a request may name."""
    names = set(LOOPBACK)
    if given in ("0.0.0.0", "::"):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower(), *_own()}
    elif given is not None:
        names = {_spelt(given).lower()}
    return frozenset([f"{n}:{port}" for n in names] + (list(names) if port == 80 else []))


def _own() -> set[str]:
    """The addresses that this machine's name has."""
    try:
        return {_spelt(str(x[4][0])) for x in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return set()
