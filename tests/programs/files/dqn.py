"""Q-learning from a replay memory, with a target network that follows slowly."""

from __future__ import annotations

import copy

import numpy as np

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import STEPS, normal, start


def run() -> list[float]:
    rng = np.random.default_rng(0)
    q = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
    start(0, q.parameters())
    target = copy.deepcopy(q)
    for p in target.parameters():
        p.requires_grad = False
    states, nexts = torch.tensor(normal(1, 64, 3)), torch.tensor(normal(2, 64, 3))
    actions = torch.tensor(rng.integers(0, 2, 64))
    rewards = torch.tensor(normal(3, 64))
    done = torch.tensor(rng.random(64) < 0.1)
    optimizer = torch.optim.Adam(q.parameters(), lr=0.01)
    losses = []
    for step in range(STEPS):
        batch = torch.tensor(rng.integers(0, 64, 16))
        chosen = q(states[batch]).gather(1, actions[batch].unsqueeze(1).long()).squeeze(1)
        with torch.no_grad():
            best = target(nexts[batch]).max(1).values
            wanted = rewards[batch] + 0.9 * best * (~done[batch]).float()
        loss = F.smooth_l1_loss(chosen, wanted)
        optimizer.zero_grad()
        loss.backward()
        for p in q.parameters():
            if p.grad is not None:
                p.grad.data.clamp_(-1, 1)
        optimizer.step()
        if step % 10 == 9:
            target.load_state_dict(q.state_dict())
        else:
            for slow, fast in zip(target.parameters(), q.parameters(), strict=True):
                slow.data.mul_(0.95).add_(0.05 * fast.data)
        losses.append(loss.item())
    return losses
