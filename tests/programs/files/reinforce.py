"""REINFORCE on a small chain of states, with a baseline and an entropy bonus."""

from __future__ import annotations

import numpy as np

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import STEPS, start


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.actions, self.value = nn.Linear(5, 8), nn.Linear(8, 2), nn.Linear(8, 1)

    def forward(self, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.relu(self.body(s))
        return F.softmax(self.actions(h), dim=-1), self.value(h)


def run() -> list[float]:
    rng = np.random.default_rng(0)
    policy = Policy()
    start(0, policy.parameters())
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    losses = []
    for _ in range(STEPS):
        state, log_probs, values, rewards, entropies = 2, [], [], [], []
        for _ in range(5):
            s = F.one_hot(torch.tensor(state), 5).float()
            probs, value = policy(s)
            action = 1 if rng.random() < probs[1].item() else 0
            log_probs.append(torch.log(probs[action]))
            entropies.append(-(probs * probs.log()).sum())
            values.append(value.squeeze(-1))
            state = min(4, max(0, state + (1 if action else -1)))
            rewards.append(1.0 if state == 4 else -0.1)
        returns: list[float] = []
        total = 0.0
        for r in reversed(rewards):
            total = r + 0.9 * total
            returns.insert(0, total)
        back = torch.tensor(returns)
        back = (back - back.mean()) / (back.std() + 1e-6)
        advantage = back - torch.stack(values).detach()
        loss = -(torch.stack(log_probs) * advantage).sum() + F.smooth_l1_loss(torch.stack(values), back)
        loss = loss - 0.01 * torch.stack(entropies).sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses
