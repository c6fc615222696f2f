"""tinygrad: a step under `TinyJit`, and the same step traced and scheduled only."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from tinygrad import Context, Device, Tensor, TinyJit, nn
from tinygrad.engine.realize import run_linear

from benchmarks._harness import Config


class Block:
    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def __call__(self, x: Tensor) -> Tensor:
        batch, time_, width = x.shape
        qkv = self.c_attn(self.ln_1(x)).reshape(batch, time_, 3, self.heads, width // self.heads)
        q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
        y = q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(batch, time_, width)
        x = x + self.c_proj(y)
        return x + self.mlp_proj(self.c_fc(self.ln_2(x)).gelu())


class GPT:
    def __init__(self, c: Config) -> None:
        self.wte, self.wpe = nn.Embedding(c.vocab, c.width), nn.Embedding(c.context, c.width)
        self.h = [Block(c.width, c.heads) for _ in range(c.layers)]
        self.ln_f = nn.LayerNorm(c.width)
        # Weights come from NumPy: with parameters realized from its own random numbers, tinygrad 0.14 stops with
        # "cycle detected in assign graph"; left lazy, their initialisation would be scheduled inside the step.
        random = np.random.default_rng(0)
        for p in nn.state.get_parameters(self):
            if p.ndim > 1:
                p.replace(Tensor(random.normal(0, 0.02, p.shape).astype(np.float32)))
            p.realize()

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(Tensor.arange(tokens.shape[1]).reshape(1, -1))
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.T
        return logits.reshape(-1, logits.shape[-1]).sparse_categorical_crossentropy(targets.reshape(-1))


def prepare(config: Config) -> tuple[GPT, Any, Tensor, Tensor]:
    """Model, optimiser and a batch, all of them realized, so that only the step itself is left to do."""
    Tensor.manual_seed(0)
    model = GPT(config)
    optimiser = nn.optim.AdamW(nn.state.get_parameters(model), lr=1e-3, b1=0.9, b2=0.99, weight_decay=0.1)
    shape = (config.batch, config.context)
    x, y = (Tensor.randint(*shape, low=0, high=config.vocab).realize() for _ in range(2))
    return model, optimiser, x, y


def schedule_once(config: Config, codegen: bool = False) -> dict[str, Any]:
    """Seconds to trace and to schedule one step; nothing of the step runs or is rendered.

    `codegen` goes on to realize it: on the NULL device that adds code generation and nothing else.
    """
    with Context(TRAINING=1):
        model, optimiser, x, y = prepare(config)
        start = time.perf_counter()
        optimiser.zero_grad()
        loss = model(x, y).backward()
        pending = optimiser.schedule_step()
        traced = time.perf_counter()
        linear = loss.schedule_linear(*pending)
        done = time.perf_counter()
        if codegen:
            run_linear(linear)
    return {
        "codegen_s": time.perf_counter() - done if codegen else None,
        "seconds": done - start,
        "trace_s": traced - start,
        "schedule_s": done - traced,
        "kernels": len(linear.src),
        "device": Device.DEFAULT,
        "params": sum(p.numel() for p in nn.state.get_parameters(model)),
    }


class Step:
    def __init__(self, config: Config, device: str, mode: str) -> None:
        self.model, self.optimiser, self.x, self.y = prepare(config)

        @TinyJit
        def step(x: Tensor, y: Tensor) -> Tensor:
            self.optimiser.zero_grad()
            loss = self.model(x, y).backward()
            return loss.realize(*self.optimiser.schedule_step())

        self.step = step

    @property
    def about(self) -> dict[str, Any]:
        return {"device": Device.DEFAULT, "params": sum(p.numel() for p in nn.state.get_parameters(self.model))}

    def __call__(self) -> None:
        with Context(TRAINING=1):
            self.loss = self.step(self.x, self.y)

    def wait(self) -> None:
        Device[Device.DEFAULT].synchronize()

    def last_loss(self) -> float:
        return float(self.loss.item())
