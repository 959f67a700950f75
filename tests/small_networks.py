"""Small networks that several tests build, and what they ask of them."""

import torch
from torch import nn

from diffstride import DiffStride2d, convert, cost, fit_budget, soft_macs, stride_table
from diffstride.analysis.budget import least_macs

X = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))

QUESTIONS = {
    "cost": cost,
    "soft_macs": lambda model, size: soft_macs(model, size).backward(),
    "stride_table": stride_table,
    "least_macs": least_macs,
    "fit_budget": lambda model, size: fit_budget(model, size, 1e12),
    "convert": lambda model, size: convert(model, torch.rand(1, *size)),
}
"""Functions that must leave a network as it was."""


def conv(channels=4, stride=1):
    return nn.Conv2d(channels, 4, 3, stride=stride, padding=1)


class Does(nn.Module):
    """Some parts, and a function of the module and its input that calls them."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


class UNet(nn.Module):
    """Two levels down and up again by layers that undo, with a skip on each."""

    def __init__(self, stride: float = 2.0, **rule):
        super().__init__()
        rule = {"smoothness": 1.0, "convention": "tight"} | rule
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.down = DiffStride2d(stride, **rule)
        self.second = nn.Conv2d(4, 6, 3, padding=1)
        self.deeper = DiffStride2d(stride, **rule)
        self.bottom = nn.Conv2d(6, 6, 3, padding=1)
        self.from_bottom = self.deeper.up()
        self.third = nn.Conv2d(12, 4, 3, padding=1)
        self.up = self.down.up()
        self.last = nn.Conv2d(8, 1, 3, padding=1)

    def decode(self, x, skip):
        return self.last(torch.cat([self.up(x), skip], 1))

    def forward(self, x):
        high = self.first(x).relu()
        low = self.second(self.down(high)).relu()
        x = self.bottom(self.deeper(low)).relu()
        x = self.third(torch.cat([self.from_bottom(x), low], 1)).relu()
        return self.decode(x, high)
