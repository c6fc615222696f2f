"""Count the names of PyTorch's op_db that are here, and those that agree on every float32 sample, gradients included.

`python -m tests.tensor.op_db_counts [--all] [--limit SECONDS] [NAME ...]`: minutes. With `--all` the names that are
absent or differ are listed, each with its first reason. Names run in a process of their own, begun again where one
dies; a sample has a limit of time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import warnings
from multiprocessing.connection import Connection
from typing import Any

from tests.tensor.torch_op_db import Outcome, found, outcomes


def _late(signum: int, frame: object) -> None:
    raise TimeoutError("the sample takes too long")


def first_difference(ops: list[Any], torch: Any, limit: float) -> str:
    """What becomes of the first sample of an op that does not agree; empty if all do."""
    samples = 0
    for op in ops:
        torch.manual_seed(0)
        signal.setitimer(signal.ITIMER_REAL, limit)
        for o in outcomes(op, torch):
            assert isinstance(o, Outcome)
            signal.setitimer(signal.ITIMER_REAL, limit)
            samples += 1
            if o.kind != "agrees":
                signal.setitimer(signal.ITIMER_REAL, 0)
                return f"{o.kind}: {o.said}  in  {o.call}"
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "" if samples else "no sample runs"


def work(names: list[str], limit: float, out: Connection) -> None:
    """Say of each name that it begins, and then how it differs."""
    warnings.simplefilter("ignore")
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    signal.signal(signal.SIGALRM, _late)
    ops: dict[str, list[Any]] = {}
    for op in op_db:
        if torch.float32 in op.dtypes:
            ops.setdefault(op.name, []).append(op)
    for name in names:
        out.send((name, None))
        try:
            said = first_difference(ops[name], torch, limit)
        except Exception as e:
            said = f"raw: {type(e).__name__}: {e}"
        out.send((name, said))


def differences(names: list[str], limit: float) -> dict[str, str]:
    """How each name differs: empty text for one that agrees."""
    result: dict[str, str] = {}
    while rest := [n for n in names if n not in result]:
        here, there = multiprocessing.Pipe(False)
        child = multiprocessing.get_context("fork").Process(target=work, args=(rest, limit, there))
        child.start()
        there.close()
        at = rest[0]
        try:
            while True:
                at, said = here.recv()
                if said is not None:
                    result[at] = said
        except EOFError:
            child.join()
            if child.exitcode:
                result.setdefault(at, f"crash: the process ended with {child.exitcode}")
    return result


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true", help="list what is absent or differs")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a sample may take")
    given = parser.parse_args()
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    every = {op.name for op in op_db}
    floats = {op.name for op in op_db if torch.float32 in op.dtypes}
    # without float32 samples a name counts as present and agrees if it is there
    here = [n for n in sorted(given.names or every) if found(n) is not None]
    differ = differences([n for n in here if n in floats], given.limit)
    bad = {n: said for n, said in differ.items() if said}
    print(f"names {len(every)}  present {len(here)}  agreeing on every sample {len(here) - len(bad)}")
    if given.all or given.names:
        for name, said in sorted(bad.items()):
            print(f"differs  {name}: {' '.join(said.split()):.300}")
        print("absent  ", ", ".join(sorted(set(given.names or every) - set(here))))


if __name__ == "__main__":
    main()
