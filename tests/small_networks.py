"""Small networks that several tests build, and what they ask of them."""

import torch
from torch import nn

from diffstride import convert, cost, fit_budget, soft_macs, stride_table
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
