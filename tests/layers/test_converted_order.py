"""A converted convolution changes its order only when nobody could tell."""

import types

import pytest
import torch
from torch import nn

from diffstride import DiffStride2d, convert
from diffstride.core import taps


class Doubling(DiffStride2d):
    def forward(self, x):
        return 2 * super().forward(x)


def small():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 32, 32)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1))
    return convert(model, x, smoothness=1.0, convention="tight")[0], x


def hooked(method):
    def change(model):
        calls = []
        getattr(model[0].downsample, method)(lambda *_: calls.append(1))
        return lambda: bool(calls)

    return change


def derived(model):
    model[0].downsample = Doubling(2.0, smoothness=1.0, convention="tight", norm="forward")
    return lambda: True


def replaced(model):
    calls, layer = [], model[0].downsample

    def forward(self, x):
        calls.append(1)
        return type(self).forward(self, x)

    layer.forward = types.MethodType(forward, layer)
    return lambda: bool(calls)


@pytest.mark.parametrize(
    "change",
    [
        hooked("register_forward_hook"),
        hooked("register_forward_pre_hook"),
        hooked("register_full_backward_hook"),
        hooked("register_full_backward_pre_hook"),
        derived,
        replaced,
    ],
    ids=["hook", "hook before", "backward", "before backward", "derived", "replaced"],
)
def test_what_is_put_between_is_carried_out(change):
    model, x = small()
    plain = model(x)
    was_called = change(model)
    y = model(x.requires_grad_())
    y.sum().backward()
    assert was_called()
    factor = 2 if change is derived else 1
    torch.testing.assert_close(y, factor * plain, atol=1e-5, rtol=1e-5)


def test_otherwise_the_taps_come_first(monkeypatch):
    model, x = small()
    seen = []
    original = taps._convolve_taps
    monkeypatch.setattr(taps, "_convolve_taps", lambda *a: seen.append(1) or original(*a))
    # A stem of 3 channels is less work so.
    model(x)
    assert seen
