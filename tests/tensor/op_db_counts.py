"""Count the names of PyTorch's op_db that are here, those that agree on every float32 sample, and gradients that agree.

`python -m tests.tensor.op_db_counts [--all] [--limit SECONDS] [--json FILE] [NAME ...]`: half an hour for all names.
With `--all` what is absent or differs is listed by families, each with the number of its samples and its first reason.
Names run in a process of their own, begun again where one dies; a sample has a limit of time. torch's table imports
`expecttest`, of which two empty names suffice. The torch that runs is the one whose numbers count: ours are those of
2.14 where 2.13 has others.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import pathlib
import re
import signal
import sys
import warnings
from multiprocessing.connection import Connection
from typing import Any

from tests.tensor.torch_op_db import Outcome, differentiable, found, outcomes

RIGHT = ("agrees", "nearer")


def _late(signum: int, frame: object) -> None:
    raise TimeoutError("the sample takes too long")


def work(names: list[str], limit: float, out: Connection) -> None:
    """Say of each name that it begins, and then what becomes of each sample."""
    warnings.simplefilter("ignore")
    import torch

    signal.signal(signal.SIGALRM, _late)
    ops = table()
    for name in names:
        out.send((name, None))
        seen: list[Outcome] = []
        try:
            for op in ops[name]:
                torch.manual_seed(0)
                signal.setitimer(signal.ITIMER_REAL, limit)
                for o in outcomes(op, torch):
                    signal.setitimer(signal.ITIMER_REAL, limit)
                    seen.append(o)
        except Exception as e:
            seen.append(Outcome("raw", f"{type(e).__name__}: {e}", name))
        signal.setitimer(signal.ITIMER_REAL, 0)
        out.send((name, [tuple(o) for o in seen]))


def table() -> dict[str, list[Any]]:
    """Entries of op_db that have float32 samples, by name."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    ops: dict[str, list[Any]] = {}
    for op in op_db:
        if torch.float32 in op.dtypes:
            ops.setdefault(op.name, []).append(op)
    return ops


def found_out(names: list[str], limit: float) -> dict[str, list[Outcome]]:
    """What becomes of the samples of each name."""
    result: dict[str, list[Outcome]] = {}
    while rest := [n for n in names if n not in result]:
        here, there = multiprocessing.Pipe(False)
        child = multiprocessing.get_context("fork").Process(target=work, args=(rest, limit, there))
        child.start()
        there.close()
        at = rest[0]
        try:
            while True:
                at, seen = here.recv()
                if seen is not None:
                    result[at] = [Outcome(*o) for o in seen]
                    print(f"{len(result)}/{len(names)} {at}", end="\r", file=sys.stderr, flush=True)
        except EOFError:
            child.join()
            if child.exitcode:
                result.setdefault(at, [Outcome("crash", f"the process ended with {child.exitcode}", at)])
    return result


def absent_samples(names: list[str]) -> tuple[int, int]:
    """Count the samples of names that are not here, and of those with a gradient."""
    import torch

    counts = [0, 0]
    for op in (op for name in names for op in table().get(name, [])):
        wants = differentiable(op, torch)
        samples = sum(1 for _ in op.sample_inputs("cpu", torch.float32, requires_grad=wants))
        counts[0] += samples
        counts[1] += samples * wants
    return counts[0], counts[1]


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true", help="list what is absent or differs")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a sample may take")
    parser.add_argument("--json", type=pathlib.Path, help="write what differs to this file")
    given = parser.parse_args()
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    every = sorted(given.names or {op.name for op in op_db})
    floats = table()
    here = [n for n in every if found(n) is not None]
    absent = sorted(set(every) - set(here))
    seen = found_out([n for n in here if n in floats], given.limit)
    # a wrong gradient comes after right values; without float32 samples a name agrees if it is there
    valued = [n for n in here if all(o.kind in (*RIGHT, "gradient") for o in seen.get(n, []))]
    whole = [n for n in valued if all(o.kind in RIGHT for o in seen.get(n, []))]
    samples = [o for outs in seen.values() for o in outs]
    sloped = [o for o in samples if o.differentiable]
    none, no_slopes = absent_samples(absent)

    def part(n: int, of: int) -> str:
        return f"{n} of {of} ({100 * n / max(of, 1):.2f} %)"

    values = sum(o.kind in (*RIGHT, "gradient") for o in samples)
    slopes = sum(o.kind in RIGHT for o in sloped)
    print(f"torch {torch.__version__}: names {len(every)}, here {len(here)}")
    print(
        f"names whose values agree at every sample     {part(len(valued), len(here))}; of all {part(len(valued), len(every))}"
    )
    print(f"names whose gradients agree as well          {part(len(whole), len(here))}")
    print(
        f"samples whose values agree                   {part(values, len(samples))}; of all {part(values, len(samples) + none)}"
    )
    print(
        f"differentiable samples whose gradients agree {part(slopes, len(sloped))}; of all {part(slopes, len(sloped) + no_slopes)}"
    )
    families: dict[tuple[str, str, str], list[Outcome]] = collections.defaultdict(list)
    for name, outs in seen.items():
        for o in outs:
            if o.kind != "agrees":
                families[o.kind, name, _family(o)].append(o)
    if given.json:
        rows = [[name, *o] for name, outs in seen.items() for o in outs if o.kind != "agrees"]
        given.json.write_text(json.dumps(rows, indent=0))
    if given.all or given.names:
        for (kind, name, _), outs in sorted(families.items()):
            said, call = (" ".join(t.split()) for t in (outs[0].said, outs[0].call))
            print(f"{kind:<9} {len(outs):>4} of {len(seen[name]):>4}  {name}: {said:.250}  in  {call:.250}")
        print("absent  ", ", ".join(absent))


def _family(o: Outcome) -> str:
    """A reason without its numbers; differences in value are one family of their name."""
    return "" if o.kind in ("value", "gradient") else re.sub(r"[\d.,e+\-\[\]() ]+", " ", o.said)[:60]


if __name__ == "__main__":
    main()
