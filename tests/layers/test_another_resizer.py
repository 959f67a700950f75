"""A layer that changes sizes answers what ``Resizer`` asks for, and works with all that asks.

The one here makes maps larger by plans of its own: it spreads frequency 0 of an axis, the mean, on
twice as many samples.
"""

import pytest
import torch
from torch import nn

from diffstride import DiffStride2d, cost, freeze, soft_macs, stride_table
from diffstride.core.bases import FOURIER
from diffstride.core.rule import AxisPlan, Rule
from diffstride.layers.resizer import Resizer, learned_strides


class Larger(Resizer):
    axes = 2
    rule = Rule(0.0)
    strides = (0.5, 0.5)

    def output_size(self, size):
        return tuple(2 * n for n in size)

    def plans(self, size, device, known=None):
        plans = []
        for n in size:
            weights = torch.zeros(n + 1, dtype=torch.float64)
            weights[0] = 2.0
            plans.append(AxisPlan(n, 2 * n, weights, 1.0, FOURIER))
        return plans


@pytest.fixture
def model():
    learned = DiffStride2d(2.4, smoothness=1.0)
    return nn.Sequential(nn.ReLU(), learned, Larger(), nn.Conv2d(3, 3, 3, padding=1)).eval()


def test_it_is_counted_tabled_and_frozen(model):
    size = (3, 16, 12)
    x = torch.rand(2, *size)
    made = model[1].output_size((16, 12))
    larger = tuple(2 * n for n in made)
    mean = model[1](x).mean((-2, -1), keepdim=True).expand(-1, -1, *larger)
    torch.testing.assert_close(model[2](model[1](x)), mean)
    macs = [use.macs for use in cost(model, size).layers if use.name == "2"]
    n, m = made, larger
    assert macs == [
        3 * min(n[0] * n[1] * m[0] + m[0] * n[1] * m[1], n[0] * n[1] * m[1] + n[0] * m[1] * m[0])
    ]
    torch.testing.assert_close(freeze(model, size)(x), model(x))
    assert list(learned_strides(model)) == ["1"]
    soft_macs(model, size).backward()
    assert (model[1].stride.grad < 0).all()


def test_it_passes_all_there_is(model):
    """A stride below 1 does not bring back the frequencies that were taken away before."""
    table = stride_table(model, (3, 16, 12), sampling_rate=1.0)
    rows = {row.site: row for row in table.rows}
    assert rows["2"].strides == (0.5, 0.5)
    assert rows["2"].output_size == tuple(2 * n for n in rows["2"].input_size)
    assert rows["2"].cutoff == rows["1"].cutoff == pytest.approx((1 / 4.8, 1 / 4.8))
    alone = stride_table(model[2:], (3, 16, 12), sampling_rate=1.0)
    assert alone.rows[0].cutoff == (0.5, 0.5)


def test_whole_strides_leave_it_as_it_is(model):
    plain = freeze(model, (3, 16, 12), integer_strides=True)
    assert plain(torch.rand(1, 3, 16, 12)).shape == (1, 3, 16, 12)
    assert isinstance(plain[2], Larger)
