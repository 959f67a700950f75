"""The table says what the network does."""

import json
import math

import pytest
import torch
from torch import nn

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStrideConv2d,
    SpectralPool2d,
    convert,
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
    assert "cut-off\n" in str(table)  # of a rate without a unit
    assert "cut-off (cycles/sample)\n" in str(stride_table(model, (1, 100, 64)))
    units = ("Hz", "cycles per mel channel")
    in_units = stride_table(model, (1, 100, 64), sampling_rate=(100, 1), units=units)
    assert "cut-off (Hz × cycles/mel channel)\n" in str(in_units)
    with pytest.raises(ValueError, match="units must be one word or one for each of 2 axes"):
        stride_table(model, (1, 100, 64), units=("Hz",))


def test_cut_offs_never_rise_and_maps_are_larger_than_strides_say():
    """Windows that fall behind the cut-off make maps in which a later layer could pass more."""
    layers = [DiffStride1d(2.0, smoothness=8.0), DiffStride1d(1.2), DiffStride1d(4.0)]
    table = stride_table(nn.Sequential(*layers), (1, 64))
    assert [row.input_size for row in table.rows] == [(64,), (48,), (47,)]
    assert [row.cutoff[0] for row in table.rows] == pytest.approx([0.25, 0.25, 47 / 8 / 64])
    own = 48 / (2 * 1.2 * 64)
    assert own > 0.25
    assert [row.downsampling for row in table.rows] == [(64 / 48,), (64 / 47,), (64 / 19,)]
    assert table.global_strides == pytest.approx((9.6,))


def test_a_layer_of_other_axes_than_the_input_has_no_cut_off():
    table = stride_table(nn.Sequential(nn.Flatten(2), DiffStride1d(2.0)), (1, 8, 8))
    assert (table.rows[0].cutoff, table.rows[0].downsampling) == ((), ())
    assert str(table).splitlines()[1].endswith("–       –")


def test_the_table_as_json_is_what_it_says():
    table = stride_table(nn.Sequential(DiffStride2d(2.5)), (3, 32, 32), units="cycles per pixel")
    found = json.loads(json.dumps(table.as_json()))
    (row,) = found["rows"]
    assert (row["site"], row["cutoff"], row["downsampling"]) == ("0", [0.2, 0.2], [1.6, 1.6])
    assert found["units"] == ["cycles per pixel"] * 2
    assert (found["global_strides"], found["macs"]) == ([2.5, 2.5], table.cost.macs)


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
    assert head.split() == "site stride size cost +1% saves maps ÷ cut-off (cycles/sample)".split()
    assert row == "1     2.50×2.50  32×32 → 20×20  92%   0.59%, 0.23%  1.60×1.60  0.2 × 0.2"
    assert foot.startswith("global stride 2.50 × 2.50, a factor of 6.2; 145 k MACs")


def test_a_network_without_such_layers_is_an_error():
    with pytest.raises(ValueError, match="model must have a DiffStride"):
        stride_table(nn.Conv2d(1, 1, 3), (1, 8, 8))


def test_a_price_is_what_a_larger_stride_saves():
    """At a large size, where whole numbers are nearly what they stand for."""
    layers = [DiffStride1d(3.0), nn.Conv1d(8, 8, 3), DiffStride1d(1.5), nn.Conv1d(8, 4, 5)]
    model, size = nn.Sequential(nn.Conv1d(2, 8, 3, padding=1), *layers), (2, 220_000)
    table = stride_table(model, size)
    for row, layer in zip(table.rows, (layers[0], layers[2]), strict=True):
        assert row.saved == pytest.approx([slope_in_logarithms(model, layer, size)], rel=1e-3)
        assert 0.1 < row.saved[0] < 1


def slope_in_logarithms(model, layer, size):
    """By how much the logarithm of the cost falls with that of the first stride of a layer."""
    stride, macs = layer.strides[0], []
    for factor in (0.97, 1.03):
        with torch.no_grad():
            layer.stride[0] = stride * factor
        macs.append(cost(model, size).macs)
    with torch.no_grad():
        layer.stride[0] = stride
    return math.log(macs[0] / macs[1]) / math.log(1.03 / 0.97)


def test_each_axis_has_its_price():
    """Nothing but what follows the downsampling costs anything worth mentioning."""
    head = nn.Conv2d(1, 4096, 9, padding=4)
    model = nn.Sequential(DiffStride2d((2.0, 4.0), smoothness=0.0, convention="tight"), head)
    (row,) = stride_table(model, (1, 256, 256)).rows
    assert row.saved == pytest.approx((1, 1), abs=0.01)
    with_border = nn.Sequential(DiffStride2d((2.0, 4.0), convention="symmetric"), head)
    (row,) = stride_table(with_border, (1, 256, 256)).rows
    assert row.saved == pytest.approx((128 / 136, 64 / 72), abs=0.01)


def test_axes_that_share_a_stride_have_one_price():
    def prices(**options):
        layers = DiffStride2d(2.0, **options), nn.Conv2d(8, 8, 3)
        (row,) = stride_table(nn.Sequential(*layers), (8, 40, 60)).rows
        return row.saved

    assert prices(shared=True) == pytest.approx([sum(prices())])


class TwoBranches(nn.Module):
    """Branches that meet, so that they must have one stride."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.second = nn.Conv2d(3, 8, 1, stride=2)
        self.last = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        return self.last(self.first(x) + self.second(x))


def test_branches_that_share_a_stride_are_counted_once():
    options = {"smoothness": 1.0, "convention": "tight"}
    model, _ = convert(TwoBranches(), torch.rand(1, 3, 640, 640), **options)
    (layer,) = (m for m in model.modules() if isinstance(m, DiffStride2d))
    with torch.no_grad():
        layer.stride[1] = 2.5  # where both are alike, which axis is cheaper first changes there
    (row,) = stride_table(model, (3, 640, 640)).rows
    assert row.saved[0] == pytest.approx(slope_in_logarithms(model, layer, (3, 640, 640)), rel=0.02)


def test_a_layer_that_is_used_twice_has_the_price_of_both_uses():
    def layer():
        return DiffStride2d(2.0, smoothness=1.0)

    shared, head = layer(), nn.Conv2d(4, 4, 3, padding=1)
    (both,) = stride_table(nn.Sequential(shared, head, shared, head), (4, 64, 64)).rows
    each = stride_table(nn.Sequential(layer(), head, layer(), head), (4, 64, 64)).rows
    assert both.saved == pytest.approx([sum(x) for x in zip(*(r.saved for r in each), strict=True)])


def test_a_stride_that_does_not_learn_has_a_price_and_a_pooling_has_none():
    layers = DiffStride2d(2.0, learnable=False), SpectralPool2d(stride=2.0), nn.Conv2d(4, 4, 3)
    table = stride_table(nn.Sequential(*layers), (4, 64, 64))
    fixed, pooling = table.rows
    assert all(0.1 < saved < 1.1 for saved in fixed.saved)
    assert pooling.saved is None
    assert "  –  " in str(table).splitlines()[2]
    alone = str(stride_table(nn.Sequential(*layers[1:]), (4, 64, 64)))
    assert "saves" not in alone


def test_prices_stay_when_nothing_becomes_smaller():
    """Without cropping a stride changes no size, and saves nothing."""
    model = nn.Sequential(DiffStride2d(2.0, crop=False), nn.Conv2d(4, 4, 3))
    table = stride_table(model, (4, 16, 16))
    assert table.rows[0].saved == (0, 0)
    assert "0.00%, 0.00%" in str(table)
