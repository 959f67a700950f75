"""Layers that run several times before a decoder goes back to what they have read."""

import pytest
import torch
from torch import nn

from diffstride import convert
from tests.small_networks import Does

SIAMESE = {
    "decoded one by one": lambda m, a, b: torch.cat([m.up(a), m.up(b)], 1),
    "compared": lambda m, a, b: m.up((a - b).abs()),
}


@pytest.mark.parametrize("name", SIAMESE)
def test_an_encoder_that_runs_twice_before_its_decoder_is_undone(name):
    def forward(m, x):
        return SIAMESE[name](m, *map(m.down, x.split(1, 1)))

    down = nn.Sequential(
        nn.MaxPool2d(2), nn.Conv2d(1, 16, 3, padding=1), nn.AvgPool2d(2), nn.ReLU()
    )
    up = nn.Sequential(nn.PixelShuffle(2), nn.Upsample(scale_factor=2))
    model = Does(forward, down=down, up=up)
    converted, report = convert(model, torch.randn(2, 2, 32, 32))
    assert [(up.name, up.undoes) for up in report.ways_up] == [
        ("up.0", "down.2"),
        ("up.1", "down.0"),
    ]
    assert converted(torch.randn(2, 2, 33, 37)).shape[2:] == (33, 37)


def test_a_layer_on_two_levels_is_named_where_there_is_no_way_back():
    def forward(m, x):
        low = m.down(x)
        return m.last(m.up(m.down(low)) + low) + x

    ups = {name: nn.Upsample(scale_factor=2) for name in ("up", "last")}
    message = r"last makes 32 × 32 of 16 × 16, as down has read, .* a layer of its own .*must match"
    with pytest.raises(ValueError, match=message):
        convert(Does(forward, down=nn.MaxPool2d(2), **ups), torch.randn(1, 1, 32, 32))
