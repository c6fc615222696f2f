"""The thread that finishes command buffers: order, errors, and what it lets go of."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref

import pytest

from anneal.backend.promises import Finisher


def test_calls_are_made_in_order_in_one_other_thread() -> None:
    finisher, made = Finisher("test"), list[tuple[int, int]]()

    def note(n: int) -> int:
        time.sleep(0.001 * (n % 3))
        made.append((n, threading.get_ident()))
        return n * n

    promises = [finisher.submit(lambda n=n: note(n)) for n in range(20)]
    assert [p.result() for p in promises] == [n * n for n in range(20)]
    assert [n for n, _ in made] == list(range(20))
    assert len({ident for _, ident in made}) == 1
    assert threading.get_ident() not in {ident for _, ident in made}
    assert promises[3].result() == 9  # as often as it is asked for


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    finisher = Finisher("test")
    wrong, right = finisher.submit(lambda: 1 // 0), finisher.submit(lambda: 1)
    assert right.result() == 1
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            wrong.result()


def test_a_call_and_its_arguments_are_let_go_of_and_the_thread_ends_with_its_owner() -> None:
    class Thing:
        pass

    finisher, thing = Finisher("a finisher"), Thing()
    gone = weakref.ref(thing)
    promise = finisher.submit(lambda kept=thing: None)
    promise.result()
    del thing
    deadline = time.monotonic() + 10
    while gone() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.001)
    assert gone() is None
    assert any(t.name == "a finisher" for t in threading.enumerate())
    del finisher
    gc.collect()
    assert not any(t.name == "a finisher" for t in threading.enumerate())


def test_a_process_ends_after_the_calls_that_wait() -> None:
    code = (
        "import time\n"
        "from anneal.backend.promises import Finisher\n"
        "f = Finisher('x')\n"
        "for n in range(3):\n"
        "    f.submit(lambda n=n: (time.sleep(0.02), print(n, flush=True)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (ran.stdout.split(), ran.stderr) == (["0", "1", "2"], "")
