"""Small forms of the examples, for tests: the constants of a file at other values."""

from __future__ import annotations

from typing import Any

import pytest

from anneal.training import MODELS, load_example, load_module

__all__ = ["SMALL", "small"]

# name: (constants, steps, batch, learning rate, how far the loss must fall: its end as a share of its start)
SMALL: dict[str, tuple[dict[str, Any], int, int, float, float]] = {
    "mlp": ({"WIDTH": 32}, 150, 64, 1e-2, 0.35),
    "dynmlp": ({"WIDTH": 32}, 150, 64, 1e-2, 0.35),
    "conv": ({}, 100, 32, 3e-3, 0.85),
    "nanogpt": ({"CONTEXT": 16, "LAYERS": 1, "HEADS": 2, "WIDTH": 32, "WARM_UP": 5}, 120, 16, 1e-2, 0.75),
    "llama": (
        {"CONTEXT": 16, "LAYERS": 1, "HEADS": 4, "KV_HEADS": 2, "WIDTH": 32}, 120, 16, 1e-2, 0.75,
    ),
    "vit": ({"PATCH": 8, "WIDTH": 32, "DEPTH": 1, "HEADS": 2, "POOL": 64, "UNSEEN": 128}, 150, 32, 3e-3, 0.75),
    "resnet9": ({"WIDTH": 4, "POOL": 64, "UNSEEN": 32}, 60, 16, 0.2, 0.9),
    "diffusion": ({"WIDTH": 8, "TIMES": 20, "DRAWN": 4}, 30, 8, 1e-2, 0.6),
    "dit": ({"WIDTH": 32, "DEPTH": 1, "HEADS": 2, "POOL": 64, "DRAWS": 4, "ROWS": 1}, 100, 16, 1e-2, 0.65),
    "meanflow": ({"ROWS": 1}, 300, 16, 1e-2, 0.7),
    "makemore-bigram": ({}, 100, 32, 1e-1, 0.8),
    "makemore-mlp": ({"WIDTH": 16}, 100, 32, 1e-2, 0.8),
    "makemore-cnn": ({"WIDTH": 16}, 60, 32, 1e-2, 0.8),
    "makemore-rnn": ({"WIDTH": 16}, 60, 32, 1e-2, 0.8),
    "makemore-gru": ({"WIDTH": 16}, 60, 32, 2e-2, 0.8),
    "makemore-gpt": ({"WIDTH": 16}, 60, 32, 1e-2, 0.8),
}  # fmt: skip


def small(name: str, monkeypatch: pytest.MonkeyPatch, steps: int | None = None) -> Any:
    """Example `name` in its small form, in training."""
    constants, usual, batch, lr, _ = SMALL[name]
    module = load_module(name.partition("-")[0])
    base = {"meanflow": "dit", "llama": "nanogpt"}.get(name)  # what it is built on
    if base is not None:
        for key, value in SMALL[base][0].items():
            monkeypatch.setattr(load_module(base), key, value)
    for key, value in constants.items():
        monkeypatch.setattr(module, key, value)
    return load_example(name).make(steps=steps or usual, batch=batch, seed=1, lr=lr)


assert set(SMALL) <= set(MODELS)
