"""A thread that finishes command buffers for the runs that follow.

An executor of `concurrent.futures` would do, but each of its calls costs the caller a future with a condition, a work
item and two locks: a twentieth of the host's part of a small training step.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class Promise(Generic[T]):
    """The result of a call that another thread makes."""

    __slots__ = ("_call", "_error", "_made", "_value")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._value: T | None = None
        self._error: BaseException | None = None
        self._made = threading.Lock()
        self._made.acquire()

    def keep(self) -> None:
        """Make the call; its arguments are let go of."""
        call, self._call = self._call, None
        try:
            if call is not None:
                self._value = call()
        except BaseException as e:  # the caller's, wherever it was raised
            self._error = e
        finally:
            self._made.release()

    def result(self) -> T:
        """Wait for the call; its result, or the error that it raised."""
        with self._made:
            if self._error is not None:
                raise self._error
            return cast(T, self._value)


class Finisher:
    """Makes calls one after another in a thread of its own, which starts with the first one.

    >>> Finisher("example").submit(lambda: 2 + 2).result()
    4
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Promise[Any] | None] = SimpleQueue()
        self._started = False

    def submit(self, call: Callable[[], T]) -> Promise[T]:
        """Have `call` made after all that were submitted before."""
        promise = Promise(call)
        if not self._started:
            self._started = True
            thread = threading.Thread(target=_run, args=(self._calls,), name=self._name, daemon=True)
            thread.start()
            # at the latest when the interpreter ends: a thread must not be in a driver then
            weakref.finalize(self, _stop, self._calls, thread)
        self._calls.put(promise)
        return promise


def _run(calls: SimpleQueue[Promise[Any] | None]) -> None:
    while (promise := calls.get()) is not None:
        promise.keep()
        del promise  # the last reference may be this one, and the next call may be far off


def _stop(calls: SimpleQueue[Promise[Any] | None], thread: threading.Thread) -> None:
    calls.put(None)
    if thread is not threading.current_thread():
        thread.join()
