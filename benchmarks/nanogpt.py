"""`anneal train nanogpt` from the command to its sample, in cold processes; the second finds what the first compiled.

python -m benchmarks.nanogpt --device webgpu --steps 2000 --json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks import _harness as h

TRAIN = "import sys; sys.argv = ['anneal', *sys.argv[1:]]; from anneal.cli import main; main()"


def run(device: str, steps: int, env: dict[str, str]) -> dict[str, Any]:
    """Wall seconds of the whole process, and what its last JSON line says."""
    command = [sys.executable, "-c", TRAIN, "train", "nanogpt", "--json"]
    command += ["--device", device, "--steps", str(steps), "--seed", "1"]
    start = time.perf_counter()
    done = subprocess.run(command, env=h.environment(env), cwd=h.ROOT, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"anneal train nanogpt failed with code {done.returncode}:\n{done.stderr.strip()}")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    first, last = next(e for e in events if e["event"] == "step"), events[-1]
    return {
        "seconds": seconds,
        "adapter": events[0].get("adapter") or events[0]["device"],
        "first_loss": first["loss"],
        **{k: last[k] for k in ("steps", "final_loss", "median_ms", "compile_s", "kernels")},
    }


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "process": n,
            "s": r["seconds"],
            "ms a step": r["median_ms"],
            "compile s": r["compile_s"],
            "kernels": r["kernels"],
            "first loss": r["first_loss"],
            "final loss": r["final_loss"],
        }
        for n, r in zip(("first", "second", "third"), result["runs"])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nanogpt", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "webgpu"), default="cpu")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--runs", type=int, choices=(1, 2, 3), default=2, help="processes, one after the other")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        runs = [run(args.device, args.steps, {"ANNEAL_CACHE_DIR": cache}) for _ in range(args.runs)]
    result = {"benchmark": "nanogpt", "machine": h.machine(), "device": args.device, "steps": args.steps, "runs": runs}
    h.report(result, rows(result), args.json)


if __name__ == "__main__":
    main()
