"""A process that has imported the command line, and runs each command in a fork of itself: what takes most of a
command's time is done once. A fork may be interrupted by Ctrl-C at a moment that is named, or note its long work.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cli.terminal import Terminal

__all__ = ["Forks", "Ran"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Ran:
    """How a command went: its exit code, what stood on the terminal or came by pipes, and its long work in order."""

    code: int
    out: str
    err: str
    raw: bytes = b""
    works: list[tuple[str, int | None]] = field(default_factory=list)  # what it is called, and of how many pieces


class Forks:
    """The process; `run` is one command."""

    def __init__(self, place: Path) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ANNEAL_")}
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.place = place
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.forks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env=kept | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(30)
        assert self._server.stdout is not None
        self._server.stdout.close()

    def run(
        self, arguments: list[str], cwd: Path, environ: Mapping[str, str], *, terminal: Terminal | None = None,
        interrupt: tuple[str, str] | None = None, slowed: bool = False, assets: tuple[str, str, int] | None = None,
    ) -> Ran:  # fmt: skip
        """`anneal ARGUMENTS` on a terminal, or with pipes, which are files here.

        `interrupt`: Ctrl-C is pressed when work of this name "begins", or when it "goes on": at its first step; twice
        when a file is brought to disk, for ("os.fsync", ""). `slowed`: the first pieces of each work take long enough
        to be told of. `assets`: the URL, the hash and the size of every file that would be downloaded.
        """
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        files = [self.place / name for name in ("out", "err", "works")]
        for file in files:
            file.write_bytes(b"")
        order = {
            "arguments": arguments, "cwd": str(cwd), "environ": dict(environ), "interrupt": interrupt, "slowed": slowed,
            "assets": assets, "terminal": os.ttyname(terminal.slave) if terminal else None, "files": [str(file) for file in files],
        }  # fmt: skip
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        before = len(terminal.raw) if terminal else 0
        while not select.select([self._server.stdout], [], [], 0.01 if terminal else 60)[0]:
            if terminal:
                terminal.read(0.01)
        code = json.loads(self._server.stdout.readline())
        if terminal:
            terminal.read()
        works = [tuple(json.loads(line)) for line in files[2].read_text().splitlines()]
        raw = terminal.raw[before:] if terminal else b""
        return Ran(code, files[0].read_text(), files[1].read_text(), raw, works)


# -- in the process ----------------------------------------------------------------------------------------------------


def serve() -> None:
    """Run the commands that stdin orders, a line of JSON each, and tell their exit codes on stdout."""
    import importlib

    from anneal.cli.commands import COMMANDS, FILES

    for room in ("_app", "_dashboard", *{f"commands.{FILES.get(name, name)}" for name in COMMANDS}):
        importlib.import_module(f"anneal.cli.{room}")
    for module in (
        "anneal.nn",
        "anneal.onnx",
        "anneal.inspect",
        "rich.console",
        "rich.syntax",
        "rich.table",
        "wgpu",
        "anneal.assets",
    ):
        importlib.import_module(module)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _command(order)
        status = os.waitpid(child, 0)[1]
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _command(order: dict[str, Any]) -> None:
    """The command, in a fork, which ends with it."""
    from anneal.cli import main

    os.setsid()
    out, err, works = order["files"]
    streams = [order["terminal"]] * 3 if order["terminal"] else [os.devnull, out, err]
    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_RDWR), number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(n, "w" if n else "r", encoding="utf-8", closefd=False)  # noqa: SIM115  # they live as long as the fork
        for n in range(3)
    )
    os.chdir(order["cwd"])
    os.environ.update(order["environ"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _watch(works, order["interrupt"], order["slowed"])
    if order["assets"]:
        _pin(*order["assets"])
    try:
        main(order["arguments"])
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(end.code or 0))
    finally:
        import traceback

        traceback.print_exc()
        os._exit(99)


def _watch(file: str, interrupt: tuple[str, str] | None, slowed: bool) -> None:
    """Note work as it begins; press Ctrl-C at the moment; have the first pieces take long enough to be told of."""
    import time

    from anneal import progress

    begun, at, sync = progress.Work.__init__, progress.Work.at, os.fsync
    moment = list(interrupt or ())
    slept: dict[str, int] = {}

    def press(times: int = 1) -> None:
        moment.clear()
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)

    def begin(work: progress.Work, what: str, total: int | None = None, unit: str = "") -> None:
        begun(work, what, total, unit)
        with open(file, "a", encoding="utf-8") as f:
            f.write(json.dumps([what, total]) + "\n")
        if moment == [what, "begins"]:
            press()

    def step(work: progress.Work, done: int) -> None:
        if slowed and slept.setdefault(work.what, 0) < 3:
            slept[work.what] += 1
            time.sleep(0.03)
        at(work, done)
        if moment == [work.what, "goes on"]:
            press()

    def to_disk(number: int) -> None:
        if moment == ["os.fsync", ""]:
            press(2)  # the first is kept until the work at hand is done
        sync(number)

    progress.Work.__init__, progress.Work.at, os.fsync = begin, step, to_disk  # type: ignore[method-assign]
    if slowed:
        progress.AFTER = progress.REDRAWN = progress.EVERY = 0.01


def _pin(url: str, sha256: str, size: int) -> None:
    """Have every asset be one file of a server on this machine."""
    from dataclasses import replace

    from anneal.assets import ASSETS

    for name, asset in ASSETS.items():
        ASSETS[name] = replace(asset, url=url, sha256=sha256, bytes=size)  # type: ignore[index]  # a mapping to others


if __name__ == "__main__":
    serve()
