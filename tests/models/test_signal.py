"""The network for raw signals: its masked mean, and its rate, which can be changed afterwards."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diffstride import CostModel, cost, freeze, models, stride_table
from diffstride.core.bases import BASES
from diffstride.core.fft import enlarge
from diffstride.models.network import mean_over_time

RATED = pytest.mark.parametrize("kind", ["diffstride", "spectral"])


def network(kind="diffstride", first=2.0, **options):
    torch.manual_seed(0)
    options = {"num_classes": 4, "width": 0.125, "smoothness": 1.5, **options}
    strides = (first, 2.0, 1.5, 2.0, 1.25)
    model = models.create("signal_cnn", downsampling=kind, strides=strides, **options)
    model = model.double()
    model(torch.randn(8, 1, 400).double())  # statistics that are not the initial ones
    return model.eval()


def sampled(samples, highest, seed=0):
    """A second of a signal with so many samples, which has up to ``highest`` cycles in it."""
    generator = torch.Generator().manual_seed(seed)
    draw = {"generator": generator, "dtype": torch.float64}
    cycles = torch.arange(highest + 1, dtype=torch.float64)[:, None]
    heights, phases = torch.randn(highest + 1, 1, **draw), 7 * torch.rand(highest + 1, 1, **draw)
    angles = 2 * math.pi * cycles * torch.arange(samples, dtype=torch.float64) / samples
    return (heights * torch.cos(angles + phases)).sum(0)[None, None]


@RATED
@settings(deadline=None, max_examples=40)
@given(
    first=st.floats(1, 6),
    samples=st.integers(150, 500),
    other=st.integers(150, 1500),
    seed=st.integers(0, 99),
)
def test_a_signal_at_another_rate_has_the_same_scores_and_features(
    kind, first, samples, other, seed
):
    model = network(kind, first)
    # A whole number of samples in a second of both; below both Nyquist frequencies.
    highest = (min(samples, other) - 1) // 2
    changed = model.at_rate(other / samples)
    seen = []
    for each in (model, changed):
        each.stem.register_forward_hook(lambda layer, inputs, output: seen.append(inputs[0]))
    with torch.no_grad():
        scores = model(sampled(samples, highest, seed))
        rated = changed(sampled(other, highest, seed))
    assert seen[0].shape == seen[1].shape
    # The stride is a number of 24 bits, and so is the place where the window falls.
    torch.testing.assert_close(seen[1], seen[0], atol=3e-5 * float(seen[0].abs().max()), rtol=0)
    torch.testing.assert_close(rated, scores, atol=1e-4, rtol=1e-4)


@RATED
def test_without_it_the_scores_are_others(kind):
    model = network(kind)
    scores = [model(sampled(samples, 60)) for samples in (400, 800)]
    assert (scores[0] - scores[1]).abs().max() > 0.05


@RATED
@pytest.mark.parametrize("first", [1.0, 3.0])
def test_rates_can_be_changed_again_and_back(kind, first):
    model, x = network(kind, first), sampled(400, 60)
    there_and_back = model.at_rate(0.25).at_rate(2.0).at_rate(3.0).at_rate(2 / 3)
    assert there_and_back.sampling.strides == pytest.approx(model.sampling.strides)
    assert there_and_back.enlarged_by == 1.0
    torch.testing.assert_close(there_and_back(x), model(x), atol=1e-5, rtol=1e-5)


def test_the_network_itself_stays_as_it_is():
    model, x = network(), sampled(400, 60)
    before = model(x)
    changed = model.at_rate(1.7)
    assert changed.training == model.training
    with torch.no_grad():
        changed.head.weight.zero_()
    assert torch.equal(model(x), before)
    assert model.sampling.strides == (2.0,)


def test_the_range_of_the_stride_goes_with_it():
    model = network(min_stride=1.125, max_stride=4.0).train()
    changed = model.at_rate(3.0)
    assert changed.sampling.strides == (6.0,)
    changed(torch.randn(2, 1, 900).double())
    assert changed.sampling.strides == (6.0,)  # no more held to 4
    assert (changed.sampling.min_stride, changed.sampling.max_stride) == (3.375, 12.0)


@RATED
@pytest.mark.parametrize("first", [1.0, 3.0])
def test_what_was_made_for_another_rate_is_frozen_counted_and_kept(kind, first, tmp_path):
    model = network(kind, first)
    changed, size = model.at_rate(0.5), (1, 200)
    x = sampled(200, 60)
    torch.testing.assert_close(freeze(changed, size)(x), changed(x))
    torch.testing.assert_close(changed(x), model(sampled(400, 60)), atol=1e-5, rtol=1e-5)
    assert cost(changed, size).activations == cost(model, (1, 400)).activations
    assert CostModel(changed, size).at().macs == cost(changed, size).macs
    assert stride_table(changed, size, sampling_rate=200).rows[0].output_size == (
        stride_table(model, (1, 400), sampling_rate=400).rows[0].output_size
    )
    models.save_pretrained(changed, tmp_path)
    if first == 3.0:
        again = models.from_pretrained(tmp_path)
        torch.testing.assert_close(again.double()(x), changed(x), atol=1e-5, rtol=1e-5)
    else:  # it is no longer what `create` makes
        with pytest.raises(ValueError, match="model"):
            models.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "make",
    [
        lambda: _whole("strided"),
        lambda: _whole("average"),
        lambda: _whole("max"),
        lambda: models.create("resnet18", num_classes=3, dims=1, in_channels=1, width=0.125),
        lambda: models.create("audio_cnn", num_classes=3, width=0.125),
    ],
)
def test_networks_that_begin_with_a_convolution_say_that_they_can_not(make):
    with pytest.raises(ValueError, match=r"begins with a convolution or a pooling.*resample"):
        make().at_rate(2.0)


def _whole(kind):
    return models.create("signal_cnn", num_classes=3, width=0.125, downsampling=kind)


@pytest.mark.parametrize("ratio", [0, -1.0, math.nan, math.inf, "2", None])
def test_a_ratio_that_is_none(ratio):
    for model in (network(), models.create("resnet18", num_classes=3, dims=1, width=0.125)):
        with pytest.raises(ValueError, match="ratio must be the new sampling rate divided by"):
            model.at_rate(ratio)


def test_other_bases_know_no_hertz(monkeypatch):
    monkeypatch.setitem(BASES, "cosine", BASES["fourier"])
    with pytest.raises(ValueError, match="basis 'fourier' only"):
        network(basis="cosine").at_rate(2.0)


@pytest.mark.parametrize("before", [4, 5, 8, 9])
@pytest.mark.parametrize("size", [9, 16, 23])
def test_enlarging_gives_samples_of_the_same_curve(before, size):
    highest = (before - 1) // 2
    x = sampled(before, highest)
    torch.testing.assert_close(enlarge(x, -1, size), sampled(size, highest))
    torch.testing.assert_close(enlarge(x.mT, -2, size).mT, sampled(size, highest))


def test_enlarging_to_the_same_size_changes_nothing_and_to_less_is_an_error():
    x = torch.randn(2, 8).double()
    torch.testing.assert_close(enlarge(x, -1, 8), x)
    with pytest.raises(ValueError, match="size must be at least that of the input, 8, got 7"):
        enlarge(x, -1, 7)


@given(real=st.integers(1, 24), samples=st.integers(1, 24))
def test_the_mean_is_that_of_a_curve_of_steps(real, samples):
    x = torch.randn(1, 3, samples).double()
    part = min(real / 24, 1.0)
    fine = x.repeat_interleave(24, -1)[..., : round(part * samples * 24)]
    torch.testing.assert_close(mean_over_time(x, torch.tensor([part]).double()), fine.mean(-1))


@pytest.mark.parametrize("make", [network, lambda: _resnet("resnet18"), lambda: _resnet("preact")])
def test_full_lengths_are_no_lengths_and_what_is_added_counts_little(make):
    model, x = make(), torch.randn(3, 1, 400).double()
    torch.testing.assert_close(model(x, torch.tensor([400, 400, 400])), model(x))
    x[:, :, 200:] = 0
    plain, masked = model(x), model(x, torch.tensor([200, 200, 200]))
    short = model(x[:, :, :200])
    assert (masked - short).abs().mean() < 0.5 * (plain - short).abs().mean()


@pytest.mark.parametrize("lengths", [torch.tensor([[9], [9]]), torch.tensor([9]), torch.tensor(9)])
def test_lengths_of_another_shape_are_an_error(lengths):
    for model in (network(), _resnet("resnet18")):
        with pytest.raises(ValueError, match=r"lengths must be one number for each signal"):
            model(torch.randn(2, 1, 400).double(), lengths)
    images = models.create("resnet18", num_classes=3, width=0.125).eval()
    with pytest.raises(ValueError, match=r"for maps of \(2, 64, 9, 9\)"):
        images(torch.randn(2, 3, 9, 9), torch.tensor([9, 9]))


def _resnet(name):
    torch.manual_seed(0)
    name = {"preact": "preact_resnet18"}.get(name, name)
    options = {"num_classes": 3, "dims": 1, "in_channels": 1, "width": 0.125}
    model = models.create(name, smoothness=1.0, **options).double()
    model(torch.randn(8, 1, 400).double())
    return model.eval()
