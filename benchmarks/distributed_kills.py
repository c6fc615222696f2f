"""Random ranks of a training killed at random moments: `python -m benchmarks.distributed_kills [COUNT] [RANKS]`.

Prints how many launches ended by themselves within ten seconds, and the longest time that one took to.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

TRAIN = ["train", "nanogpt", "--steps", "100000", "--device", "cpu", "--plain"]


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


def main() -> None:
    count, ranks = [int(n) for n in (*sys.argv[1:], "60", "2")][:2] if len(sys.argv) < 3 else map(int, sys.argv[1:3])
    rng, hangs, longest = random.Random(0), 0, 0.0
    for n in range(count):
        call = [sys.executable, "-m", "anneal", "launch", "-n", str(ranks), *TRAIN]
        run = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(1.5, 8))
        victims = ranks_of(run.pid)
        if victims:
            os.kill(rng.choice(victims), signal.SIGKILL)
        else:
            run.terminate()
        begun = time.monotonic()
        try:
            code = run.wait(10)
            longest = max(longest, time.monotonic() - begun)
            assert code != 0, "a killed rank is no success"
        except subprocess.TimeoutExpired:
            hangs += 1
            for pid in ranks_of(run.pid):
                os.kill(pid, signal.SIGKILL)
            run.kill()
        print(f"{n + 1}: {len(victims)} ranks, {hangs} hangs, longest {longest:.1f} s", flush=True)


if __name__ == "__main__":
    main()
