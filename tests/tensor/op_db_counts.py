"""Count the names of PyTorch's op_db that are here, and those that agree on every float32 sample, gradients included.

`python -m tests.tensor.op_db_counts [--all]`: minutes. With `--all` the names that are absent or differ are listed.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from anneal.nn import functional
from tests.tensor.torch_op_db import OTHERS, found, outcomes


def function_of(name: str) -> Callable[..., Any] | None:
    """Ours of a name, also where it is in `nn.functional` alone."""
    ours, short = found(name), name.removeprefix("nn.functional.")
    if short != name and short in functional.__all__:
        return getattr(functional, short)  # type: ignore[no-any-return]
    return ours


def main(listed: bool) -> None:
    warnings.simplefilter("ignore")
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    torch.manual_seed(0)
    names = {op.name for op in op_db}
    here, differing = dict[str, Callable[..., Any]](), dict[str, str]()
    for op in op_db:
        ours = function_of(op.name)
        if ours is None or torch.float32 not in op.dtypes or op.name.startswith(OTHERS):
            continue
        here[op.name] = ours
        if op.name not in differing:
            bad = next((o for o in outcomes(op, torch, ours) if o.kind != "agrees"), None)
            if bad is not None:
                differing[op.name] = f"{bad.kind}: {bad.said:.100}"
    print(f"names {len(names)}  present {len(here)}  agreeing on every sample {len(here) - len(differing)}")
    if listed:
        for name in sorted(differing):
            print(f"differs  {name}: {differing[name]}")
        print("absent  ", ", ".join(sorted(names - set(here))))


if __name__ == "__main__":
    main("--all" in sys.argv)
