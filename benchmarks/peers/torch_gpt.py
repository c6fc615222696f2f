"""PyTorch: eager, `torch.compile`, or `torch.compile` with CUDA graphs; f32, TF32 off."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks._harness import Config


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        q, k, v = (
            t.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
            for t in self.c_attn(self.ln_1(x)).split(width, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, time, width))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(c.vocab, c.width), nn.Embedding(c.context, c.width)
        self.h = nn.ModuleList([Block(c.width, c.heads) for _ in range(c.layers)])
        self.ln_f = nn.LayerNorm(c.width)
        self.lm_head = nn.Linear(c.width, c.vocab, bias=False)
        self.lm_head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class Step:
    def __init__(self, config: Config, device: str, mode: str) -> None:
        self.device = "cuda" if device == "webgpu" and torch.cuda.is_available() else "cpu"
        torch.manual_seed(0)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        self.model = GPT(config).to(self.device)
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=self.device == "cuda" or None
        )
        self.forward: Any = self.model
        self.graphs = mode == "graphs"
        if mode != "eager":
            self.forward = torch.compile(self.model, mode="reduce-overhead" if mode == "graphs" else None)
        shape = (config.batch, config.context)
        self.x = torch.randint(0, config.vocab, shape, device=self.device)
        self.y = torch.randint(0, config.vocab, shape, device=self.device)

    @property
    def about(self) -> dict[str, Any]:
        name = torch.cuda.get_device_name() if self.device == "cuda" else f"cpu, {torch.get_num_threads()} threads"
        return {"device": name, "params": sum(p.numel() for p in self.model.parameters())}

    def __call__(self) -> None:
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()  # the loss of the step before may be overwritten
        self.loss = self.forward(self.x, self.y)
        self.optimiser.zero_grad(set_to_none=True)
        self.loss.backward()
        self.optimiser.step()

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def last_loss(self) -> float:
        return float(self.loss.detach())
