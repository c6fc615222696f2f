"""The `anneal` command. Its parts import what they run only when they run it, so that help is instant.

`main` stands here, and imports the rest inside: importing takes most of the command's first second, and whoever presses
Ctrl-C in it is to see no traceback.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # even the module that has the real one takes a while
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, NoReturn

_STOPPED = 130  # as shells have it


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command line; exits with the documented code. A user's mistake prints one message and no traceback."""
    pressed: list[int] = []
    restore = None
    try:
        restore = _on_interrupt(pressed)
        from anneal.cli._app import run

        code = run(argv)
    except BaseException as error:
        # An import that is interrupted by Ctrl-C may raise another error than KeyboardInterrupt.
        if not pressed and not isinstance(error, KeyboardInterrupt):
            raise
        pressed.append(2)
        code = _STOPPED
    finally:
        _give_back()
        if restore is not None:
            restore()
    if pressed and code == _STOPPED:
        _say_stopped()
    sys.exit(code)


def _on_interrupt(pressed: list[int]) -> Callable[[], None]:
    """Note Ctrl-C before it is raised, also where Python can only report what was raised; returns what undoes this."""
    import atexit
    import signal

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        if _importing(frame):
            _say_stopped()
            os._exit(_STOPPED)
        raise KeyboardInterrupt

    def report(unraisable: Any) -> None:
        if unraisable.exc_type is not None and issubclass(unraisable.exc_type, KeyboardInterrupt):
            _give_back()
            _say_stopped()
            os._exit(_STOPPED)  # it was lost where nothing can be raised, and would not come again
        hook(unraisable)

    try:
        before = signal.signal(signal.SIGINT, note)
    except ValueError:  # another thread than the first has no signals
        return lambda: None
    hook, sys.unraisablehook = sys.unraisablehook, report
    # Once all is done, while Python takes itself apart, it would end the process by the signal: exit code -2.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)

    def restore() -> None:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = hook

    return restore


def _importing(frame: FrameType | None) -> bool:
    """True while an import goes on and there are no tensors yet, so that nothing is lost by an exit on the spot.

    Modules in C that are interrupted while they import others print what was raised, traceback and all.
    """
    tensor = sys.modules.get("anneal.tensor")
    if tensor is not None and not getattr(tensor.__spec__, "_initializing", False):
        return False
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _give_back() -> None:
    """Leave the terminal as it was, whatever fills it."""
    dashboard = sys.modules.get("anneal.cli._dashboard")
    if dashboard is not None and hasattr(dashboard, "leave"):
        dashboard.leave()


def _say_stopped() -> None:
    try:
        sys.stderr.write("stopped\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # stderr is closed or full
        pass
