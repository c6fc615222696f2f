"""A script of the user's, run in this process as Python would run it."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from anneal.cli._output import message
from anneal.errors import AnnealError, DataError, UserError

_PACKAGE = Path(__file__).resolve().parents[1]


def check_script(name: str) -> None:
    """DataError for a script that is not there, or is a folder."""
    if Path(name).is_dir():
        raise DataError(f"{name} cannot be read: it is a folder, not a file")
    if not Path(name).is_file():
        raise DataError(f"{name}: there is no such file")


def run_script(name: str, arguments: Sequence[str], aside: bool) -> None:
    """Run a script as Python would; what it prints goes to stderr where stdout is for JSON. UserError if it fails."""
    argv, path = sys.argv, sys.path[:]
    sys.argv, sys.path[0:0] = [name, *arguments], [str(Path(name).resolve().parent)]
    try:
        with contextlib.redirect_stdout(sys.stderr) if aside else contextlib.nullcontext():
            runpy.run_path(name, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            message(f"anneal: {name} ended with {end.code}")
    except AnnealError as error:
        raise (DataError if isinstance(error, DataError) else UserError)(f"{name}: {error}") from error
    except Exception as error:
        mine = [f for f in traceback.extract_tb(error.__traceback__) if _is(f.filename, name)]
        where = f" at line {mine[-1].lineno}" if mine else ""
        raise UserError(f"{name} failed{where}: {type(error).__name__}: {error}") from error
    finally:
        sys.argv, sys.path[:] = argv, path


def trace_of(error: BaseException, name: str) -> str:
    """The traceback of what a script raised, from its own first line on; of a mistake of the user's without anneal's
    lines.
    """
    cause = error.__cause__ or error
    frames = list(traceback.extract_tb(cause.__traceback__))
    frames = frames[next((n for n, f in enumerate(frames) if _is(f.filename, name)), 0) :]
    if isinstance(cause, UserError):
        frames = [f for f in frames if not Path(f.filename).resolve().is_relative_to(_PACKAGE)]
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(cause)]
    found = "Traceback (most recent call last):\n" + "".join(lines).rstrip()
    return found.replace(f"{Path.cwd()}{os.sep}", "")


def _is(filename: str, name: str) -> bool:
    return filename == name or Path(filename).resolve() == Path(name).resolve()
