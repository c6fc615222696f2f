"""Jobs: `anneal` commands in processes of their own, one at a time on each device, the others in a queue."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from anneal import files
from anneal.frozen import Json, Texts, frozen
from anneal.web.asking import environment, python

MOST_QUEUED = 20
KEPT = 200  # folders of jobs that have ended
LOOK_S = 0.25  # between two looks at other servers' jobs, or at all jobs without reports of ended processes
RESERVE = 1 << 16  # bytes
ENDED = ("done", "failed", "stopped", "cancelled")
_ID = re.compile(r"\d{8}T\d{6}-[a-z]+-[0-9a-f]{6}")
_STOPPED = 130
_UNKNOWN = 255  # of a process that another server started and that left none


class Busy(Exception):
    """The queue of jobs is full."""


@frozen
class Command:
    """A job that is asked for: `arguments` of `anneal`, in which {job} is the job's folder; `about` is what the page
    is to show.
    """

    kind: str
    model: str
    device: str
    arguments: Texts
    about: Json


@dataclass(slots=True)
class Job:
    """`arguments` are the command's; `about` is what the page asked for. `state` is queued, running, paused, or one of
    ENDED; `error` is what a failed one said last.
    """

    id: str
    kind: str
    model: str
    device: str
    arguments: list[str]
    about: Json
    state: str = "queued"
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    pid: int | None = None
    code: int | None = None
    error: str = ""
    run: str = ""

    @property
    def over(self) -> bool:
        return self.state in ENDED


@dataclass(slots=True)
class Jobs:
    """The jobs in a folder; commands run in `where`, the folder that has runs/.

        runs/.studio/jobs/20260314T150926-train-a1b2c3/
            job.json        what it is, and how far it is
            events.jsonl    what the command prints with --json: a line an event
            log.txt         what it says on stderr
            lock, exit      held while the process lives; its exit code
            reserve         room on the disk for its last words, until they are said

    All that is known of a job is in its folder, so a server that starts again goes on with those that are there.
    """

    folder: Path
    where: Path
    _all: dict[str, Job] = field(default_factory=dict)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)  # set when a process has ended since the last look

    def read(self) -> None:
        """Find the jobs that earlier servers left."""
        for path in sorted(self.folder.glob("*/job.json")):
            with suppress(OSError, ValueError, TypeError):
                job = Job(**json.loads(path.read_text(encoding="utf-8")))
                if _ID.fullmatch(job.id) and job.id == path.parent.name and job.id not in self._all:
                    self._all[job.id] = job

    def all(self) -> list[Job]:
        """Every job, the latest first."""
        return sorted(self._all.values(), key=lambda j: (j.created, j.id), reverse=True)

    def get(self, id: str) -> Job | None:
        return self._all.get(id)

    def place(self, job: Job) -> Path:
        """The job's folder."""
        return self.folder / job.id

    def add(self, made: Command) -> Job:
        """Queue a job. Raises Busy for one too many, and OSError where its folder cannot be written."""
        if sum(not j.over for j in self._all.values()) >= MOST_QUEUED:
            raise Busy(f"{MOST_QUEUED} jobs are waiting or running; cancel one, or wait")
        now = time.time()
        name = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}-{made.kind}-{secrets.token_hex(3)}"
        words = [a.replace("{job}", str(self.folder / name)) for a in made.arguments]
        job = Job(name, made.kind, made.model, made.device, words, made.about, created=now)
        self.place(job).mkdir(parents=True)
        try:
            self._write(job)
            (self.place(job) / "reserve").write_bytes(bytes(RESERVE))
        except OSError:
            self._forget(job)
            raise
        self._all[name] = job
        self.tick()
        return job

    def write(self, job: Job) -> None:
        with suppress(OSError):  # a full disk: the job goes on, and is told of while this server lives
            self._write(job)

    def _write(self, job: Job) -> None:
        text = json.dumps(asdict(job)).encode()
        files.replace(self.place(job) / "job.json", lambda f: f.write(text), cached=True)

    def _forget(self, job: Job) -> None:
        """Remove a job's folder."""
        shutil.rmtree(self.place(job), ignore_errors=True)

    async def watch(self) -> None:
        """Start and end jobs until cancelled."""
        while True:
            self.tick()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), LOOK_S)
            self._ended.clear()

    def tick(self) -> None:
        """Note the jobs that have ended, and start those that may start: one on each device."""
        for job in self._all.values():
            if job.state in ("running", "paused"):
                self._look(job)
        busy = {_device(j) for j in self._all.values() if j.state in ("running", "paused")}
        for job in reversed(self.all()):
            if job.state == "queued" and _device(job) not in busy:
                self._start(job)
                busy.add(_device(job))

    def _start(self, job: Job) -> None:
        place = self.place(job)
        try:
            self._processes[job.id] = subprocess.Popen(
                [*python("anneal.web.jobs"), str(place.resolve()), *job.arguments],
                cwd=self.where, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, env=environment(),
            )  # fmt: skip
        except OSError as error:
            self._end(job, "failed", 1, f"the process could not be started: {error}")
            return
        job.state, job.started, job.pid = "running", time.time(), self._processes[job.id].pid
        self._tell_end(job.pid)
        self.write(job)

    def _tell_end(self, pid: int) -> None:
        """Wake `watch` when a process ends, where the system reports that (Linux)."""
        try:
            loop, told = asyncio.get_running_loop(), os.pidfd_open(pid)
        except (AttributeError, OSError, RuntimeError):  # another system, one file too many, no loop
            return

        def ended() -> None:
            loop.remove_reader(told)
            os.close(told)
            self._ended.set()

        loop.add_reader(told, ended)

    def _look(self, job: Job) -> None:
        place, process = self.place(job), self._processes.get(job.id)
        if process is not None:
            if process.poll() is None:
                return
        elif _held(place / "lock"):
            return
        try:
            code = int((place / "exit").read_text())
        except (OSError, ValueError):
            code = process.returncode if process is not None else _UNKNOWN
        state = {0: "done", _STOPPED: "stopped"}.get(code, "failed")
        self._end(job, state, code, self._last_words(job, code) if state == "failed" else "")

    def _last_words(self, job: Job, code: int) -> str:
        said = self.said(job).strip()[-4000:]
        if code == _UNKNOWN:
            return said or "the process ended without an exit code; it may have been killed"
        if code < 0 and not said:
            return f"the process was killed (signal {-code}); it may have needed more memory than there is"
        said = said or "it said nothing"
        return f"killed by signal {-code}; {said}" if code < 0 else said

    def weights(self, id: str) -> Path | None:
        """The weights that the training `id`, or the training that wrote the run `id`, saved."""
        found = next((j for j in self.all() if j.kind == "train" and id in (j.id, j.run) and id), None)
        path = None if found is None else self.place(found) / "weights.safetensors"
        return path if path is not None and path.is_file() else None

    def script(self, id: str) -> list[str]:
        """The script that a job recorded, and its arguments; empty for other jobs."""
        found = self._all.get(id)
        return [] if found is None or found.kind != "script" else [found.about["script"], *found.about["arguments"]]

    def said(self, job: Job, most: int = 1 << 18) -> str:
        """The end of what the command said on stderr."""
        try:
            with (self.place(job) / "log.txt").open("rb") as f:
                f.seek(max(0, os.fstat(f.fileno()).st_size - most))
                return f.read(most).decode("utf-8", "replace")
        except OSError:
            return ""

    def _end(self, job: Job, state: str, code: int, error: str = "") -> None:
        job.state, job.ended, job.code, job.error = state, time.time(), code, error
        self._processes.pop(job.id, None)
        bundles = re.findall(r"^bundle  runs/([\w.-]+)$", self.said(job), re.MULTILINE)  # printed by the command
        job.run = bundles[-1] if bundles else ""
        self.write(job)
        for old in [j for j in self.all() if j.over][KEPT:]:
            del self._all[old.id]
            self._forget(old)

    def stop(self, job: Job) -> bool:
        """Let the command end as after Ctrl-C: it saves what it has done."""
        self.resume(job)
        if job.state == "queued":
            self._end(job, "cancelled", _STOPPED)
        elif job.state == "running":
            self._signal(job, signal.SIGINT)
        return True

    def cancel(self, job: Job) -> bool:
        """End the process at once."""
        if job.state == "queued":
            self._end(job, "cancelled", _STOPPED)
        elif not job.over:
            self._signal(job, getattr(signal, "SIGKILL", signal.SIGTERM))
            process = self._processes.get(job.id)
            if process is not None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(2)
            self._end(job, "cancelled", _STOPPED)
        return True

    def pause(self, job: Job) -> bool:
        """Halt the process; False where the system cannot."""
        return self._turn(job, "running", "SIGSTOP", "paused")

    def resume(self, job: Job) -> bool:
        """Let a halted process go on."""
        return self._turn(job, "paused", "SIGCONT", "running")

    def _turn(self, job: Job, state: str, name: str, then: str) -> bool:
        """Signal a job that is in one state, so that it goes to another; False if it is in no such state."""
        if job.state != state or not hasattr(signal, name):
            return False
        self._signal(job, getattr(signal, name))
        job.state = then
        self.write(job)
        return True

    def _signal(self, job: Job, number: int) -> None:
        """Signal the process, if it is the one that holds the job's lock: numbers of processes are used again."""
        if job.pid is not None and (job.id in self._processes or _held(self.place(job) / "lock")):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(job.pid, number)


def _device(job: Job) -> str:
    """The devices that a job keeps busy; `auto` may be any device."""
    return "gpu" if job.device in ("auto", "webgpu") else job.device


def _held(path: Path) -> bool:
    """True if a living process holds the lock."""
    try:
        with FileLock(path, timeout=0):
            return False
    except (Timeout, OSError):
        return True


MOST_STREAMS = 24
TAIL_S = 0.04
STATE_LOOKS = 5  # looks from one at the state to the next
PIECE = 1 << 18  # bytes at a time
LARGEST = 64 << 20  # bytes of a document
QUIET_S = 15.0  # after so long a comment shows that the connection lives


async def stream(path: Path, begin: int, state: Callable[[], Json], *, whole: bool = False) -> AsyncIterator[bytes]:
    """The lines of `path` from byte `begin` on, in batches, and every new `state`; ends when the job has.

    An event's id is the byte after its last line, from which a page that lost the connection goes on. A file that is
    one document is `whole`: it is told once, when the job has ended.
    """
    at, told, spoke = begin, "", time.monotonic()
    for look in itertools.count():
        if look % STATE_LOOKS == 0:
            now = state()
        ended = now["state"] in ENDED
        quiet = not ended and (whole or _size(path) <= at)  # a look at the size costs less than a thread that reads
        piece = b"" if quiet else await asyncio.to_thread(read, path, at, whole)
        if piece:
            at += len(piece)
            yield b"id: %d\nevent: lines\ndata: [%s]\n\n" % (at, _joined(piece, whole))
            spoke = time.monotonic()
            continue
        said = json.dumps(now)
        if said != told:
            told = said
            yield b"event: state\ndata: " + said.encode() + b"\n\n"
            spoke = time.monotonic()
        if ended:
            return
        if time.monotonic() - spoke > QUIET_S:
            yield b": here\n\n"
            spoke = time.monotonic()
        await asyncio.sleep(TAIL_S)


def told(path: Path, whole: bool) -> bytes:
    """The lines that a file of events has now, with commas between them."""
    return _joined(read(path, 0, True), whole)


def _joined(text: bytes, whole: bool) -> bytes:
    """The lines that are JSON, or the document on one line, with commas between them."""
    found = []
    for line in [text] if whole else text.split(b"\n"):
        with suppress(ValueError):
            value = json.loads(line)
            found.append(json.dumps(value, separators=(",", ":")).encode() if whole else line)
    return b",".join(found)


def _size(path: Path) -> int:
    """The size of a file in bytes; 0 if it is missing."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def read(path: Path, at: int, whole: bool) -> bytes:
    """Whole lines from byte `at` on, as many as fit a piece, or all."""
    try:
        with path.open("rb") as f:
            f.seek(at)
            piece = f.read(LARGEST if whole else PIECE)
    except OSError:
        return b""
    return piece[: piece.rfind(b"\n") + 1]


# -- the process of a job ----------------------------------------------------------------------------------------------


class _Log(io.FileIO):
    """The log's file; the first write that fails gives up the reserve, and is tried again."""

    def __init__(self, number: int, reserve: Path) -> None:
        super().__init__(number, "w", closefd=False)
        self._reserve = reserve

    def write(self, text: Any) -> int:
        try:
            return super().write(text)
        except OSError:
            self._reserve.unlink(missing_ok=True)
            return super().write(text)


def main() -> None:
    """Run a command of anneal's, with its events into a file, its exit code beside it, which is this process's, too.

    `python -m anneal.web.jobs FOLDER ARGUMENTS...` holds a lock on FOLDER/lock while it lives. The server that started
    it may end meanwhile, and another one find the job. FOLDER/reserve, which that server wrote, keeps room for its last
    words on a disk that gets full.
    """
    folder = Path(sys.argv[1])
    with FileLock(folder / "lock", timeout=10):
        for number, name in ((1, "events.jsonl"), (2, "log.txt")):
            file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, number)
            os.close(file)
        reserve = folder / "reserve"
        sys.stderr = io.TextIOWrapper(_Log(2, reserve), encoding="utf-8", errors="backslashreplace", write_through=True)
        from anneal.cli import main as anneal

        code = 1
        try:
            sys.argv[:] = ["anneal", *sys.argv[2:]]  # a run bundle tells the command
            anneal()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        finally:
            reserve.unlink(missing_ok=True)
            files.replace(folder / "exit", lambda f: f.write(b"%d" % code), cached=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
