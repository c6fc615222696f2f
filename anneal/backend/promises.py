"""Threads that make calls for others: one after another, or parts of some work at once.

An executor of `concurrent.futures` would do, but each of its calls costs the caller a future with a condition, a work
item and two locks: a twentieth of the host's part of a small training step, and as long as copying 500 KB.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Around = Callable[[], AbstractContextManager[Any]]


class Promise(Generic[T]):
    """The result of a call that another thread makes."""

    __slots__ = ("_call", "_error", "_made", "_value")
    _value: T  # once it is made

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
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

    def wait(self, seconds: float = -1) -> bool:
        """Wait for the call, no longer than that; True once it was made."""
        if came := self._made.acquire(timeout=seconds):
            self._made.release()
        return came

    def result(self) -> T:
        """Wait for the call; its result, or the error that it raised."""
        with self._made:
            if self._error is not None:
                raise self._error
            return self._value


class Finisher:
    """Makes calls one after another in a thread of its own, which starts with the first one.

    Args:
        name: of the thread.
        around: makes the block that its calls are made in.

    >>> Finisher("example").submit(lambda: 2 + 2).result()
    4
    """

    def __init__(self, name: str, around: Around = nullcontext) -> None:
        self._name, self._around = name, around
        self._calls: SimpleQueue[Promise[Any] | None] = SimpleQueue()
        self._started = False

    def submit(self, call: Callable[[], T]) -> Promise[T]:
        """Have `call` made after all that were submitted before."""
        promise = Promise(call)
        if not self._started:
            self._started = True
            thread = threading.Thread(target=_run, args=(self._calls, self._around), name=self._name, daemon=True)
            thread.start()
            # at the latest when the interpreter ends: a thread must not be in a driver then
            weakref.finalize(self, _stop, self._calls, thread)
        self._calls.put(promise)
        return promise


class Crew:
    """Threads that share some work with the caller.

    Args:
        threads: how many share it, the caller among them.
        name: of the other threads.
        around: makes the block that the other threads' calls are made in.

    >>> found = []
    >>> Crew(2, "example").each(found.append, [1, 2, 3])
    >>> sorted(found)
    [1, 2, 3]
    """

    def __init__(self, threads: int, name: str, around: Around = nullcontext) -> None:
        self._others = [Finisher(name, around) for _ in range(threads - 1)]

    def each(self, step: Callable[[T], Any], items: Sequence[T]) -> None:
        """Call `step` for each of `items`; an error that one raises is raised once all have ended."""
        if len(items) < 2 or not self._others:
            _each(step, items)
            return
        count = len(self._others) + 1
        mine = Promise(partial(_each, step, items[::count]))
        promises = [mine, *[f.submit(partial(_each, step, items[n::count])) for n, f in
                            enumerate(self._others[: len(items) - 1], 1)]]  # fmt: skip
        mine.keep()
        try:
            for promise in promises:
                promise.wait()
        except BaseException:  # interrupted: nobody may go on while they work
            for promise in promises:
                promise.wait()
            raise
        for promise in promises:
            promise.result()


def _each(step: Callable[[T], Any], items: Sequence[T]) -> None:
    for item in items:
        step(item)


def _run(calls: SimpleQueue[Promise[Any] | None], around: Around) -> None:
    with around():
        while (promise := calls.get()) is not None:
            promise.keep()
            del promise  # the last reference may be this one, and the next call may be far off


def _stop(calls: SimpleQueue[Promise[Any] | None], thread: threading.Thread) -> None:
    calls.put(None)
    if thread is not threading.current_thread():
        thread.join()
