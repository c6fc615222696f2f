"""Random ranks of a training killed at random moments: `python -m benchmarks.distributed_kills [COUNT] [RANKS]`.

Each training goes on from the checkpoint of the one before it. Prints how many launches did not end by themselves
within ten seconds of a kill, how many trainings ended with another state than one that was never killed, and the
longest time that a launch took to end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TRAIN = [
    "train",
    "nanogpt",
    "--steps",
    "60",
    "--batch",
    "4",
    "--device",
    "cpu",
    "--plain",
    "--checkpoint-every",
    "3",
    "--checkpoint",
]
FILE = "training.safetensors"


def ranks_of(launcher: int) -> list[int]:
    """The processes below a launcher that train."""
    below: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        below.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, stack = [], [launcher]
    while stack:
        pid = stack.pop()
        stack += below.get(pid, [])
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith((b"python", b"python3")) and b"train" in words and b"launch" not in words:
            found.append(pid)
    return found


def launched(ranks: int, folder: Path) -> subprocess.Popen[bytes]:
    """A training in some processes that goes on from what is in a folder."""
    call = [sys.executable, "-m", "anneal", "launch", "-n", str(ranks), *TRAIN, str(folder)]
    return subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def killed(run: subprocess.Popen[bytes], chance: random.Random) -> float | None:
    """Kill one rank of a training, and return the seconds that the others took to end; None if they did not in ten."""
    victims = ranks_of(run.pid)
    os.kill(chance.choice(victims) if victims else run.pid, signal.SIGKILL)
    begun = time.monotonic()
    try:
        run.wait(10)
    except subprocess.TimeoutExpired:
        for pid in ranks_of(run.pid):
            os.kill(pid, signal.SIGKILL)
        run.kill()
        return None
    return time.monotonic() - begun


def kills(count: int, ranks: int, place: Path) -> dict[str, Any]:
    """Kill ranks so often, and count what went wrong."""
    begun = time.monotonic()
    assert launched(ranks, place / "whole").wait() == 0
    whole, most = (place / "whole" / FILE).read_bytes(), time.monotonic() - begun
    chance = random.Random(0)
    row: dict[str, Any] = {
        "ranks": ranks,
        "kills": 0,
        "hangs": 0,
        "resumed": 0,
        "ended": 0,
        "wrong": 0,
        "longest_s": 0.0,
    }
    while row["kills"] < count or not row["ended"]:
        folder = place / str(row["ended"])
        row["resumed"] += (folder / FILE).exists()
        run = launched(ranks, folder)
        try:
            # the last one is left alone
            code = run.wait(chance.uniform(0.5, most) if row["kills"] < count else None)
        except subprocess.TimeoutExpired:
            seconds = killed(run, chance)
            row["kills"] += 1
            row["hangs"] += seconds is None
            row["longest_s"] = max(row["longest_s"], round(seconds or 10.0, 2))
            continue
        finally:
            print(json.dumps(row), file=sys.stderr, flush=True)
        row["ended"] += 1
        row["wrong"] += code != 0 or (folder / FILE).read_bytes() != whole
    return row


def main() -> None:
    count, ranks = [int(n) for n in (*sys.argv[1:], *("60", "2")[len(sys.argv) - 1 :])][:2]
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(kills(count, ranks, Path(place))))


if __name__ == "__main__":
    main()
