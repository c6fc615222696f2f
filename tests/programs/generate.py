"""Write `torch.json`: the losses of each program run by torch. `python -m tests.programs.generate`"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.programs.common import FILES, losses_of, with_torch
from tests.programs.programs import PROGRAMS

if __name__ == "__main__":
    import torch

    losses = {name: run(torch, np.random.default_rng(0)) for name, run in PROGRAMS.items()}
    losses |= {name: losses_of(with_torch(name)) for name in FILES}
    text = json.dumps(losses, indent=1)
    Path(__file__).with_name("torch.json").write_text(text + "\n", encoding="utf-8")
