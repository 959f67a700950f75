"""The table says what the network does."""

import pytest
import torch
from torch import nn

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStrideConv2d,
    SpectralPool2d,
    cost,
    models,
    stride_table,
)


def test_rows_of_a_network_with_shared_layers():
    model = models.create("resnet18", num_classes=10, strides=(2, (1.5, 3), 2))
    table = stride_table(model, (3, 32, 32))
    assert [row.site for row in table.rows] == [f"stages.{i}.0.downsample" for i in (1, 2, 3)]
    assert [row.strides for row in table.rows] == [(2, 2), (1.5, 3), (2, 2)]
    assert [row.input_size for row in table.rows] == [(32, 32), (24, 24), (24, 16)]
    assert table.rows[-1].output_size == (20, 16)
    assert table.global_strides == (6, 12)
    assert table.global_factor == 72
    total = cost(model, (3, 32, 32))
    before = sum(u.macs for u in total.layers if u.name.startswith(("stem", "stages.0")))
    before += next(u.macs for u in total.layers if u.name == "stages.1.0.conv1")
    assert sum(row.cost_share for row in table.rows) == pytest.approx(1 - before / total.macs)


def test_cut_offs_are_what_a_wave_sees():
    """Just below the cut-off of the second layer a wave passes whole, well above not at all."""
    layers = [DiffStride1d(2.0, norm="forward"), DiffStride1d(3.0, norm="forward")]
    model, rate = nn.Sequential(*layers), 1000.0
    table = stride_table(model, (1, 500), sampling_rate=rate)
    first, second = (row.cutoff[0] for row in table.rows)
    assert first == 250
    assert second == pytest.approx(258 * rate / (2 * 3 * 500))
    time = torch.arange(500) / rate
    for frequency, passes in ((int(second // 2) * 2, True), (int(second) + 20, False)):
        wave = torch.cos(2 * torch.pi * frequency * time)[None, None]
        amplitude = model(wave).std() * 2**0.5
        assert amplitude.item() == pytest.approx(1.0 if passes else 0.0, abs=0.01)


def test_rates_may_differ_between_axes():
    model = models.create("audio_cnn", num_classes=3, width=0.0625)
    table = stride_table(model, (1, 100, 64), sampling_rate=(100, 1))
    assert table.rows[0].cutoff == (25.0, 0.25)
    assert "cut-off" in str(table)
    assert "cut-off" not in str(stride_table(model, (1, 100, 64)))


def test_other_layers_have_rows_too():
    model = nn.Sequential(
        DiffStrideConv2d(1, 2, 3, stride=2.0, padding=1),
        SpectralPool2d(stride=1.5),
        SpectralPool2d(output_size=8),
    )
    table = stride_table(model, (1, 32, 32))
    assert [row.site for row in table.rows] == ["0", "1", "2"]
    assert [row.strides for row in table.rows] == [(2, 2), (1.5, 1.5), (1.25, 1.25)]
    assert [row.output_size for row in table.rows] == [(16, 16), (10, 10), (8, 8)]


def test_it_prints_a_line_a_site():
    lines = str(stride_table(nn.Sequential(nn.Conv2d(3, 4, 1), DiffStride2d(2.5)), (3, 32, 32)))
    head, row, foot = lines.splitlines()
    assert head.split() == ["site", "stride", "size", "cost"]
    assert row.split() == "1 2.50 × 2.50 32 × 32 → 20 × 20 92%".split()
    assert foot.startswith("global stride 2.50 × 2.50, a factor of 6.2; 145 k MACs")


def test_a_network_without_such_layers_is_an_error():
    with pytest.raises(ValueError, match="model must have a DiffStride"):
        stride_table(nn.Conv2d(1, 1, 3), (1, 8, 8))
