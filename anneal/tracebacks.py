"""Tracebacks of a user's mistake: this library's frames are taken out, and the module where it happened is named.

    Traceback (most recent call last):
      File "train.py", line 20, in <module>
        loss = net(x).sum()
      File "train.py", line 12, in forward
        return self.fc2(self.fc1(x))
    anneal.errors.ShapeError: linear: weight of shape (8, 17) is (out, in) and takes ...
    in Net.encoder.1.fc2

ANNEAL_TRACEBACK=full keeps every frame. The functions that users call (`checked` ops, `Module.__call__`, jit functions)
hand an error to `shorten` and raise it again, which adds no frame.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

from anneal import settings
from anneal.errors import UserError

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_INSTALLED = tuple({os.path.join(p, "lib") + os.sep for p in (sys.prefix, sys.base_prefix, sys.exec_prefix)})


def shorten(error: BaseException) -> None:
    """Take this library's frames out of the traceback of `error` and of what it was raised from.

    Of a mistake in the arguments all go. Of any other error those go that lie above the user's own code: below it they
    are needed to find a fault of ours.
    """
    if settings.current().traceback == "full":
        return
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        at.__traceback__ = _without_ours(at.__traceback__, isinstance(at, UserError))
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def locate(error: Exception, path: str, root: str = "") -> None:
    """Note in which module an error was raised.

    Args:
        path: the path of that module from the one that was called first; the innermost call's is kept.
        root: the class of the module that was called first, by its own call: the note is added there.
    """
    if not root:
        error.__dict__.setdefault("_module", path)
    elif inner := error.__dict__.pop("_module", ""):
        error.add_note(f"in {root}.{inner}")


def _without_ours(first: TracebackType | None, every: bool) -> TracebackType | None:
    entries: list[tuple[TracebackType, str]] = []
    while first is not None:
        entries.append((first, first.tb_frame.f_code.co_filename))
        first = first.tb_next
    users = [n for n, (_, file) in enumerate(entries) if not file.startswith((_OURS, *_INSTALLED))]
    last = len(entries) if every else users[-1] if users else 0
    out: TracebackType | None = None
    for n in range(len(entries) - 1, -1, -1):
        entry, file = entries[n]
        if n >= last or not file.startswith(_OURS):
            out = TracebackType(out, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return out
