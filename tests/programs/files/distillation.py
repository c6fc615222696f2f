"""A student of a frozen teacher, trained on adversarial examples too (the fast gradient sign)."""

from __future__ import annotations

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import STEPS, normal, start


def run() -> list[float]:
    teacher = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    student = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    start(0, teacher.parameters(), 0.8)
    start(1, student.parameters())
    teacher.eval()
    x = torch.tensor(normal(2, 15, 6))
    y = torch.arange(15) % 3
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        seen = x.clone().detach().requires_grad_(True)
        F.cross_entropy(student(seen), y).backward()
        assert seen.grad is not None
        attacked = torch.clamp(seen + 0.1 * seen.grad.sign(), -2.5, 2.5).detach()
        with torch.no_grad():
            soft = F.softmax(teacher(attacked) / 2.0, dim=1)
        logits = student(attacked)
        loss = F.kl_div(F.log_softmax(logits / 2.0, dim=1), soft, reduction="batchmean") * 4.0
        loss = 0.7 * loss + 0.3 * F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
