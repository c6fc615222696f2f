"""Programs in which something goes wrong at rank 1: `python tests/distributed/failures.py HOW`."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

from anneal import distributed
from anneal.distributed import all_reduce
from anneal.tensor import Tensor, jit, manual_seed


def main() -> None:
    how = sys.argv[1]
    group = distributed.init(timeout=5 if how == "late" else 60)
    at_fault = group.rank == 1
    if how == "seeds":
        manual_seed(group.rank)
    step = jit(lambda x: all_reduce(x * 2))
    for i in range(1000):
        if i == 20 and at_fault:
            if how == "error":
                raise ZeroDivisionError("planted at rank 1")
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "ends":
                return
            if how == "exit":
                sys.exit(3)
            if how == "late":
                time.sleep(30)
            if how == "shapes":
                all_reduce(Tensor(np.ones(4, np.float32))).realize()
            if how == "other":
                all_reduce(Tensor([1.0, 2.0, 3.0]), op="mean").realize()
        step(Tensor([float(i), 1.0, 2.0])).realize()


if __name__ == "__main__":
    main()
