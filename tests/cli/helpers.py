"""Run the command line in this process or in another, and look at what came out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from anneal.cli import main

__all__ = ["Outcome", "run", "run_process"]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """stdout as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Outcome:
    """`anneal ARGUMENTS` in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    captured = capsys.readouterr()
    return Outcome(int(end.value.code or 0), captured.out, captured.err)


def run_process(*arguments: str, timeout: float = 240, **environ: str) -> Outcome:
    """`anneal ARGUMENTS` in a process of its own, its output piped."""
    done = subprocess.run(
        [sys.executable, "-c", "from anneal.cli import main; main()", *arguments],
        capture_output=True, text=True, timeout=timeout, env={**os.environ, **environ}, check=False,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)
