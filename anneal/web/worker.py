"""The process of a job: it runs a command of anneal's, with its events into a file, its exit code beside it.

`python -m anneal.web.worker FOLDER ARGUMENTS...` holds a lock on FOLDER/lock while it lives. The server that started it
may end meanwhile, and another one find the job. FOLDER/reserve, which that server wrote, keeps
room for its last words on a disk that gets full.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

from filelock import FileLock


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
    """Run the command; its exit code is this process's, too."""
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
            place = folder / ".exit"
            place.write_text(str(code))
            place.rename(folder / "exit")
    sys.exit(code)


if __name__ == "__main__":
    main()
