"""A U-Net with skip connections and a Dice loss."""

from __future__ import annotations

import anneal as torch
import anneal.nn.functional as F
from anneal import nn
from tests.programs.files._start import normal, start


class Double(nn.Module):
    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1, bias=False),
            nn.BatchNorm2d(b),
            nn.ReLU(inplace=True),
            nn.Conv2d(b, b, 3, padding=1, bias=False),
            nn.GroupNorm(2, b),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.up1 = Double(1, 4), Double(4, 8), Double(8, 4)
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.out = nn.Conv2d(4, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.up(b)
        dy, dx = a.size(2) - c.size(2), a.size(3) - c.size(3)
        c = F.pad(c, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.out(self.up1(torch.cat([a, c], dim=1)))


def run() -> list[float]:
    model = UNet()
    start(0, model.parameters())
    x = torch.tensor(normal(1, 2, 1, 9, 8))
    y = (torch.tensor(normal(2, 2, 1, 9, 8)) > 0).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(8):
        logits = model(x)
        p = torch.sigmoid(logits)
        dice = 1 - (2 * (p * y).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1)
        loss = F.binary_cross_entropy_with_logits(logits, y) + dice.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
