"""The inspector: one child process that knows the compiler, asked by the server and answering in order."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from anneal.frozen import Json, frozen

MOST_WAITING = 32
LONGEST = 256 << 20  # bytes of an answer
PATIENCE = 300.0  # seconds
FRESH_S = 60.0
DOCTOR_S = 60.0
# The names of the questions; `answers.py` answers them.
QUESTIONS = (
    "graph", "passes", "pass", "kernels", "kernel", "explain", "ops", "firings", "onnx", "file", "source", "recording",
    "trace",
)  # fmt: skip
GROWING = ("recording",)  # questions whose answer changes while a job runs


@frozen
class Answer:
    """JSON text, and its HTTP status."""

    status: int
    text: bytes


def said(status: int, message: str) -> Answer:
    """An error message as an answer."""
    return Answer(status, json.dumps({"error": message}).encode())


@dataclass
class Inspector:
    """`ask` gives the answer to a question, as `answers.py` knows them.

    It is started when it is first needed and kept, so that what it has imported and traced serves the next question.
    What took it long is kept on disk, too (`snapshots.py`), where the next start of the studio finds it. One that dies
    fails the questions that it was asked, with what it said last, and the next question starts another.
    """

    uploads: str
    jobs: str
    _process: asyncio.subprocess.Process | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _waiting: int = 0
    _last: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    _kept: dict[str, Answer] = field(default_factory=dict)

    async def ask(self, question: Json) -> Answer:
        """The answer to `question`; recent answers are kept."""
        text = json.dumps(question, sort_keys=True)
        if text in self._kept:
            return self._kept[text]
        if self._waiting >= MOST_WAITING:
            return said(503, "too many questions at once; try again in a moment")
        from anneal.web.snapshots import keep, load  # their imports are not needed for the first page

        self._waiting += 1
        try:
            found = await asyncio.to_thread(load, question, text)
            if found is not None:
                answer = Answer(200, found)
            else:
                async with self._lock:
                    if text in self._kept:
                        return self._kept[text]
                    begun = time.monotonic()
                    answer = await self._answer(text)
                if answer.status == 200:
                    await asyncio.to_thread(keep, question, text, answer.text, time.monotonic() - begun)
        finally:
            self._waiting -= 1
        if answer.status == 200 and len(answer.text) < 16 << 20 and question["ask"] not in GROWING:
            if len(self._kept) >= 64:
                del self._kept[next(iter(self._kept))]
            self._kept[text] = answer
        return answer

    async def _answer(self, text: str) -> Answer:
        try:
            process = await self.start()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()
            status, size = map(int, (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).split())
            if size > LONGEST:
                raise ValueError("an answer that is too long")
            return Answer(status, await process.stdout.readexactly(size))
        except TimeoutError:
            await self.stop()
            return said(504, f"the compiler took more than {PATIENCE:.0f} s for this, and was stopped")
        except (OSError, ValueError, asyncio.IncompleteReadError):
            code = await self.stop(ended=True)
            last = "\n".join(self._last) or "it said nothing"
            return said(500, f"the inspecting process died (exit code {code}); {last}")
        except asyncio.CancelledError:  # the answer would be taken for that of the next question
            await self.stop()
            raise

    async def start(self) -> asyncio.subprocess.Process:
        """The process, started if there is none."""
        if self._process is None or self._process.returncode is not None:
            self._last.clear()
            self._process = await asyncio.create_subprocess_exec(
                *python("anneal.web.answers"), self.uploads, self.jobs,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                limit=1 << 20, env=environment(),
            )  # fmt: skip
            asyncio.get_running_loop().create_task(self._listen(self._process))
        return self._process

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        with suppress(ValueError, OSError):
            async for line in process.stderr:
                self._last.append(line.decode("utf-8", "replace").rstrip()[:500])

    async def stop(self, ended: bool = False) -> int | None:
        """End the process, if there is one, and it has not `ended` by itself; its exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        if ended:  # a signal would replace the exit code that the caller waits for
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 1)
        with suppress(ProcessLookupError):
            if process.returncode is None:
                process.kill()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 5)
        return process.returncode


# -- the machine's devices ---------------------------------------------------------------------------------------------


class Doctor:
    """A report on the machine, asked for in a process of its own and kept a while."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._until = 0.0  # by `time.monotonic`
        self._report: Json = {}

    async def report(self) -> Json:
        """The output of `anneal doctor --json`; with status "failed" and a cause if the command failed."""
        async with self._lock:
            if time.monotonic() >= self._until:
                self._report = await _asked()
                self._until = time.monotonic() + FRESH_S
            return self._report


async def _asked() -> Json:
    process = await asyncio.create_subprocess_exec(
        *python("anneal"), "doctor", "--json",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=environment(),
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), DOCTOR_S)
        found = json.loads(out)
        if isinstance(found, dict):
            return found
        cause = "it said something else"
    except TimeoutError:
        cause = f"it took more than {DOCTOR_S:.0f} s"
    except ValueError:
        cause = err.decode("utf-8", "replace").strip()[-2000:] or f"exit code {process.returncode}"
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    return {"status": "failed", "cause": cause, "advice": [], "adapters": [], "chosen": None}


# -- child processes --------------------------------------------------------------------------------------------------


PACKAGE = Path(__file__).resolve().parents[2]


def python(module: str) -> list[str]:
    """The command line that runs a module. Nothing is imported from the folder that it is started in."""
    return [sys.executable, "-P", "-m", module]


def environment() -> dict[str, str]:
    """The environment of a child: it imports what this process does."""
    paths = dict.fromkeys([str(PACKAGE), *[p for p in sys.path if p]])
    # all of the environment: a child reads what this process would, and what the commands that it starts do
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
