"""A model of characters, trained on windows of a text, that samples with a temperature and the k likeliest."""

from __future__ import annotations

import numpy as np

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import start

TEXT = "the cat sat on the mat and the rat sat on the cat. "


class CharModel(nn.Module):
    def __init__(self, vocab: int, context: int) -> None:
        super().__init__()
        self.context = context
        self.tok, self.pos = nn.Embedding(vocab, 8), nn.Embedding(context, 8)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.ln, self.mlp = nn.LayerNorm(8), nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, vocab)

    def forward(self, idx: torch.Tensor) -> torch.Tensor:
        t = idx.shape[1]
        x = self.tok(idx) + self.pos(torch.arange(t, device=idx.device))
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)
        a, _ = self.attn(x, x, x, attn_mask=mask, need_weights=False)
        x = x + a
        x = x + self.mlp(self.ln(x))
        return self.head(x)

    @torch.no_grad()
    def generate(self, idx: torch.Tensor, count: int, draws: list[float]) -> torch.Tensor:
        for n in range(count):
            logits = self(idx[:, -self.context :])[:, -1, :] / 0.8
            v, _ = torch.topk(logits, 5)
            logits[logits < v[:, [-1]]] = -float("inf")
            p = F.softmax(logits, dim=-1)
            chosen = (torch.cumsum(p, dim=-1) < draws[n]).sum(dim=-1, keepdim=True)
            idx = torch.cat((idx, chosen.to(idx.dtype)), dim=1)
        return idx


def run() -> list[float]:
    chars = sorted(set(TEXT))
    stoi = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([stoi[c] for c in TEXT], dtype=torch.long)
    model = CharModel(len(chars), 8)
    start(0, model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(10):
        ix = rng.integers(0, len(data) - 9, 6)
        x = torch.stack([data[i : i + 8] for i in ix])
        y = torch.stack([data[i + 1 : i + 9] for i in ix])
        logits = model(x)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    made = model.generate(data[None, :3], 10, rng.random(10).tolist())
    losses += [float(i) for i in made[0].tolist()]
    return losses
