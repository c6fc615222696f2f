"""Processes that MPI has started: what they compute together, and how all of them end when one does."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal import distributed
from anneal.distributed import Alone, all_gather, all_reduce, broadcast, reduce_scatter
from anneal.errors import DTypeError, GroupError, ShapeError
from anneal.tensor import Tensor
from benchmarks.distributed_kills import kills
from tests.distributed.program import CHECKS
from tests.distributed.ranks import ROOT, needs_mpi, run
from tests.distributed.threads import ThreadGroup

HERE = "tests/distributed"


@functools.cache
def done(ranks: int, per_host: int) -> list[dict[str, str]]:
    """The outcome of each check with `ranks` processes, and with so many of them on a host where that is not 0."""
    ended = run(ranks, f"{HERE}/program.py", env={"PER_HOST": str(per_host)}, timeout=280)
    lines = [line.removeprefix("FOUND ") for line in ended.out.splitlines() if line.startswith("FOUND ")]
    assert len(lines) == 1 + bool(per_host), ended.out + ended.err
    assert ended.code == 0
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module", params=["2", "4", "4 on 2 hosts"])
def found(request: pytest.FixtureRequest) -> dict[str, str]:
    """The outcome of each check, with so many ranks."""
    ranks, _, hosts = request.param.partition(" ")
    return done(int(ranks), 0 if ranks == "2" else 2)[bool(hosts)]


@pytest.mark.parametrize("name", list(CHECKS))
def test_together(found: dict[str, str], name: str) -> None:
    assert found[name] == ""


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("error", "ZeroDivisionError: planted at rank 1"),
        ("killed", ""),
        ("ends", "participant 1 has ended, and participant 0 makes all_reduce (sum) of float32[3]"),
        ("exit", "participant 1 has ended"),
        ("late", "waited 5 s, and others did not come"),
        ("shapes", "participant 0 makes all_reduce (sum) of float32[3], and participant 1 makes"),
        ("other", "participant 1 makes all_reduce (mean) of float32[3]"),
        ("seeds", "the seed is 0 for participant 0, and 1 for participant 1"),
    ],
)
def test_one_that_fails_ends_all(how: str, told: str) -> None:
    ended = run(2, f"{HERE}/failures.py", how)
    assert ended.code != 0
    assert told in ended.err, ended.err
    assert ended.seconds < 25, "of which starting takes some"


@pytest.mark.parametrize("group", [True, False])
def test_a_launch_that_is_stopped_ends_with_130(group: bool, tmp_path: Path) -> None:
    """Also where the signal goes to `anneal launch` alone, which a terminal's does not; the processes end first."""
    needs_mpi()
    program = tmp_path / "waits.py"
    program.write_text("import time\nprint('there', flush=True)\ntime.sleep(60)\n")
    child = subprocess.Popen(
        [sys.executable, "-m", "anneal", "launch", "-n", "2", "--quiet", str(program)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "there"
    (os.killpg if group else os.kill)(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in err


def test_a_killed_training_goes_on(tmp_path: Path) -> None:
    """benchmarks/distributed_kills.py kills more often."""
    needs_mpi()
    row = kills(2, 2, tmp_path)
    assert (row["hangs"], row["wrong"]) == (0, 0), row
    assert row["ended"], row


# -- alone ----------------------------------------------------------------------------------------------------------


def test_alone_needs_no_mpi() -> None:
    program = (
        "import sys\n"
        "from anneal import distributed\n"
        "from anneal.distributed import all_reduce, get_rank, get_world_size, init_process_group\n"
        "from anneal.tensor import Tensor\n"
        "init_process_group('mpi')\n"
        "x = Tensor([1.0, 2.0])\n"
        "assert all_reduce(x).tolist() == [1.0, 2.0]\n"
        "print(get_rank(), get_world_size(), 'mpi4py' in sys.modules, 'anneal.distributed.mpi' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["0", "1", "False", "False"], done.stderr


def test_exchanges_of_one_change_nothing() -> None:
    x = Tensor([[1.0, 2.0]])
    assert distributed.init().size == 1
    assert all_reduce(x) is x
    assert reduce_scatter(x) is x
    assert broadcast([x]) == [x]
    assert all_gather(x).shape == (1, 1, 2)
    assert isinstance(distributed.world(), Alone)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: reduce_scatter(x, op="least"), GroupError, "reduce_scatter: op is"),
        (lambda x: all_reduce(x > 1), DTypeError, "the sum of bool is none"),
        (lambda x: distributed.send(x, 1), GroupError, "send: root is a participant"),
        (lambda x: distributed.average_gradients([x], wire="int8"), Exception, "gradients travel as floats"),
        (lambda x: distributed.init_process_group("nccl"), GroupError, 'the backend is "mpi", or None'),
    ],
)
def test_what_cannot_be_is_said(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(Tensor([1.0, 2.0]))


def test_parts_have_to_be_equal() -> None:
    (first, _) = ThreadGroup.of(2)
    with pytest.raises(ShapeError, match=r"shape \(3,\) has no 2 equal parts"):
        reduce_scatter(Tensor(np.ones(3, np.float32)), first)
