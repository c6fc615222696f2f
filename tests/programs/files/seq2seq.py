"""A translator with attention: teacher forcing in training, a greedy loop afterwards."""

from __future__ import annotations

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import start


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.gru = nn.Embedding(8, 6), nn.GRU(6, 6, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.gru(self.embed(x))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell = nn.Embedding(8, 6), nn.GRUCell(12, 6)
        self.score, self.out = nn.Linear(6, 6, bias=False), nn.Linear(12, 8)

    def forward(self, y: torch.Tensor, h: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights = F.softmax(torch.bmm(memory, self.score(h).unsqueeze(2)).squeeze(2), dim=1)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        h = self.cell(torch.cat([self.embed(y), context], dim=1), h)
        return self.out(torch.cat([h, context], dim=1)), h


def run() -> list[float]:
    encoder, decoder = Encoder(), Decoder()
    start(0, [*encoder.parameters(), *decoder.parameters()], 0.4)
    source = (torch.arange(12).view(3, 4) * 5) % 7 + 1
    target = source.flip(1)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.02)
    losses = []
    for step in range(8):
        memory, hidden = encoder(source)
        h = hidden[0]
        y = torch.zeros(3, dtype=torch.long)
        loss = torch.zeros(())
        for t in range(4):
            logits, h = decoder(y, h, memory)
            loss = loss + F.cross_entropy(logits, target[:, t])
            y = target[:, t] if step % 3 else logits.argmax(dim=1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*encoder.parameters(), *decoder.parameters()], 1.0)
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        memory, hidden = encoder(source)
        h, y, words = hidden[0], torch.zeros(3, dtype=torch.long), []
        for _ in range(4):
            logits, h = decoder(y, h, memory)
            y = logits.argmax(1)
            words.append(y)
        losses.append(float(torch.stack(words, dim=1).sum().item()))
    return losses
