"""Embeddings by a triplet loss, with the hardest negatives of a batch, and a contrastive loss."""

from __future__ import annotations

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import STEPS, normal, start


def run() -> list[float]:
    net = nn.Sequential(nn.Linear(6, 12), nn.PReLU(), nn.Linear(12, 4))
    start(0, net.parameters())
    x = torch.tensor(normal(1, 12, 6))
    labels = torch.arange(12) // 4
    criterion = nn.TripletMarginLoss(margin=0.5)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=0.005)
    losses = []
    for _ in range(STEPS):
        e = F.normalize(net(x), dim=1)
        distances = torch.cdist(e, e)
        same = labels[:, None] == labels[None, :]
        hardest = distances.masked_fill(same, 1e9).argmin(dim=1)
        positive = torch.roll(e.view(3, 4, 4), 1, 1).view(12, 4)
        loss = criterion(e, positive, e[hardest])
        logits = e @ e.t() / 0.5
        logits = logits - torch.eye(12) * 1e9
        loss = loss + 0.1 * -(F.log_softmax(logits, dim=1) * (same.float() - torch.eye(12))).sum() / 12
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
