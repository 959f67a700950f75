"""Networks that go up again learn their strides: every way up follows what it undoes."""

import copy
import json
import pickle

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from diffstride import (
    StridePlan,
    convert,
    cost,
    export_onnx,
    fit_budget,
    freeze,
    parameter_groups,
    soft_macs,
)
from diffstride.layers import Undo, apply_conversion
from diffstride.layers.resizer import learned_strides, resizers
from diffstride.layers.returning import Returning, is_way_up
from diffstride.surgery.sites import strided_layers
from diffstride.surgery.size_check import check_another_size
from diffstride.surgery.size_trace import SizeTrace
from tests.small_networks import Does
from tests.surgery import usual_decoders as usual
from tests.surgery.decoders import NETWORKS, OURS, build, upsampling

pytestmark = pytest.mark.third_party
SHORT = {1: (97,), 2: (67, 71), 3: (17, 13, 16)}


def sizes(dims, example):
    """The size of an example, odd ones, and primes."""
    size = tuple(example.shape[2:])
    return size, tuple(n + 1 for n in size), SHORT[dims]


@pytest.mark.parametrize("name", NETWORKS)
def test_every_stride_is_learned_and_outputs_fit_at_any_size(name):
    model, x = build(name)
    dims = NETWORKS[name][1]
    converted, report = convert(model, x)
    assert {site.name for site in report.sites} == set(strided_layers(model))
    ups = {name for name, module in model.named_modules() if is_way_up(module)}
    if "UNETR" not in name:  # which makes sizes in between that nothing on the way down has
        assert {up.name for up in report.ways_up} >= ups  # and modules around functions
    assert converted(x).shape == model(x).shape
    for site in report.sites:
        assert site.size_after == site.size_before

    optimiser = torch.optim.SGD(parameter_groups(converted, lr=0.05, weight_decay=0, stride_lr=1.0))
    before = {key: layer.strides for key, layer in learned_strides(converted).items()}
    converted.train()
    for _ in range(3):
        loss = converted(x).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for key, layer in learned_strides(converted).items():
        assert layer.strides != before[key], key
    with torch.no_grad():  # strides that nobody would have chosen
        for i, layer in enumerate(learned_strides(converted).values()):
            layer.stride.copy_(1.3 + 0.37 * (i % 3) + 0.21 * torch.arange(len(layer.stride)))
    converted.eval()
    for size in sizes(dims, x):
        assert converted(torch.randn(1, 1, *size)).shape == (1, 2, *size)

    # No name has changed, and the record alone makes the same network again.
    new = set(converted.state_dict()) - set(model.state_dict())
    assert new >= {f"{key}.stride" for key in before}
    assert all(key.endswith("downsample.stride") for key in new)
    again = apply_conversion(build(name)[0], json.loads(json.dumps(report.record))).eval()
    again.load_state_dict(converted.state_dict())
    assert torch.equal(again(x), converted(x))


@pytest.mark.parametrize("name", NETWORKS)
def test_frozen_decoders_compute_the_same(name):
    model, x = build(name)
    converted, _ = convert(model, x, stride=1.7)
    frozen = freeze(converted, x.shape[1:])
    assert not resizers(frozen)
    torch.testing.assert_close(frozen(x), converted(x), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_files_of_decoders_compute_the_same(name, tmp_path):
    model, x = build(name)
    converted, _ = convert(model, x, stride=1.7)
    expected = converted(x).detach()
    path = export_onnx(converted, tmp_path / "model.onnx", x.shape[1:])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert (torch.from_numpy(y) - expected).abs().max() <= 1e-4 * expected.abs().max()


@pytest.mark.parametrize("name", [*OURS, "monai UNet 3d", "monai BasicUNet, interpolating"])
def test_at_the_initial_strides_each_way_up_computes_what_it_did(name):
    """What is told a size is an exception: it is resized to that, and not padded."""
    model, x = build(name)
    converted, report = convert(model, x)
    converted(x)
    for up in report.ways_up:
        before, after = model.get_submodule(up.name), converted.get_submodule(up.name)
        channels = getattr(before, "in_channels", 8)
        y = torch.randn(1, channels, *up.size_before)
        made = before(y, output_size=up.size_after) if name == "told a size" else before(y)
        if name != "told a size":
            torch.testing.assert_close(after(y), made, rtol=1e-5, atol=1e-6)
        assert after(y).shape == made.shape
        assert isinstance(after, type(before))


def test_a_way_up_is_the_work_that_it_was_and_resizing_where_sizes_differ():
    model, x = build("transposed convolutions")
    converted, _ = convert(model, x)
    costs = {use.name: use.macs for use in cost(model, x.shape[1:]).layers}
    after = {use.name: use.macs for use in cost(converted, x.shape[1:]).layers}
    for name in ("4", "6"):
        assert after[name] == costs[name] > 0
        assert after[f"{name}.undo"] == 0
    with torch.no_grad():
        converted[2].downsample.stride.copy_(torch.tensor([2.0, 1.6]))  # 8 × 10 of 16 × 16
    after = {use.name: use.macs for use in cost(converted, x.shape[1:]).layers}
    assert after["4.undo"] == 16 * 16 * 20 * 4  # along one axis alone, from 20 samples to 16
    assert after["6.undo"] == 0
    assert soft_macs(converted, x.shape[1:]).item() == cost(converted, x.shape[1:]).macs


def test_a_way_up_that_fits_hands_on_what_it_was_given():
    model, x = build("transposed convolutions")
    converted, _ = convert(model, x)
    converted(x)
    y = torch.randn(1, 4, 16, 16)
    assert converted[4].undo(y) is y
    assert converted[4].undo(y[..., 1:]).shape == y.shape
    with torch.no_grad():
        compiled = torch.compile(converted.eval(), backend="eager", fullgraph=True)
        for size in ((32, 32), (37, 41), (33, 32)):
            x = torch.randn(1, 1, *size)
            torch.testing.assert_close(compiled(x), converted(x))


def test_a_step_up_over_two_steps_down_goes_back_to_the_first():
    _, report = convert(*build("one step up for two down"))
    assert [(up.name, up.kind, up.undoes) for up in report.ways_up] == [("5", "Upsample", "1")]
    _, report = convert(*build("monai UNet 2d"))
    assert [up.undoes for up in report.ways_up] == ["model.1.submodule.0.conv", "model.0.conv"]
    assert "way up" in str(report)
    assert "model.2.conv              ConvTranspose2d  model.0.conv" in str(report)


def test_a_module_around_a_function_goes_back_as_a_whole():
    _, report = convert(*build("functions in modules"))
    found = [(up.name, up.kind, up.undoes) for up in report.ways_up]
    assert found == [("5", "Does", "3"), ("6", "Does", "1")]
    _, report = convert(*build("monai SegResNet, pixel shuffle"))
    assert {up.kind for up in report.ways_up} == {"SubpixelUpsample"}


def test_copies_and_pickles_follow_their_own_layers():
    converted, _ = convert(*build("transposed convolutions"))
    for other in (copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))):
        assert isinstance(other[4], nn.ConvTranspose2d)
        assert isinstance(other[4].undo, Undo)
        assert other[4].undo.undone is other[2].downsample
        converted(torch.randn(1, 1, 32, 32))
        assert other(torch.randn(1, 1, 21, 22)).shape[2:] == (21, 22)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_weights_of_the_way_up_that_are_computed_go_on_to_be():
    model, x = build("transposed convolutions")
    model[4] = parametrizations.weight_norm(model[4])
    converted, _ = convert(model, x)
    converted.load_state_dict(model.state_dict())
    converted(torch.randn(1, 1, 33, 37)).sum().backward()
    assert all(p.grad is not None for p in converted[4].parameters())
    torch.nn.utils.parametrize.remove_parametrizations(converted[4], "weight")
    assert isinstance(converted[4], Returning)
    assert converted(torch.randn(1, 1, 33, 37)).shape[2:] == (33, 37)


def test_budgets_plans_and_whole_strides_know_converted_decoders():
    model, x = build("monai UNet 2d")
    converted, _ = convert(model, x)
    macs = cost(converted, (1, 32, 32)).macs
    plain = freeze(converted, (1, 32, 32), integer_strides=True)
    fixed = StridePlan.of(converted, (1, 32, 32)).apply(converted)
    for other in (plain, fixed):
        assert not learned_strides(other)
        for size in ((32, 32), (33, 37)):
            assert other(torch.randn(1, 1, *size)).shape[2:] == size
    for size in ((1, 32, 32), (1, 33, 37)):
        assert soft_macs(converted, size).item() == cost(converted, size).macs
    fit_budget(converted, (1, 32, 32), 0.8 * macs)
    assert 0.7 * macs <= cost(converted, (1, 32, 32)).macs <= 0.8 * macs
    assert converted(torch.randn(1, 1, 33, 37)).shape[2:] == (33, 37)


# What is refused


def shared_way_up():
    def forward(m, x):
        low = m.first(x)
        return m.up(m.up(m.second(low)) + low)

    down = {name: nn.Conv2d(1, 1, 3, stride=2, padding=1) for name in ("first", "second")}
    return Does(forward, **down, up=nn.Upsample(scale_factor=2))


def patched():
    model = build("transposed convolutions")[0]
    inner = model[6].forward
    model[6].forward = lambda x: inner(x)
    return model


def by_a_function():
    return Does(lambda m, x: F.interpolate(m.down(x), scale_factor=4), down=upsampling())


REFUSED = {
    "one layer for two ways": (
        shared_way_up,
        32,
        "up is used several times, and undoes second",
    ),
    "a replaced method": (patched, 32, r"6 \(ConvTranspose2d\) had its method forward replaced"),
    "a size that was never there": (
        lambda: build("transposed convolutions")[0],
        30,
        r"after 0, .* and not 32 × 32.*4 makes 16 × 16 of 8 × 8, and nothing that is converted",
    ),
    "padding by a function": (
        lambda: usual.autoencoder(padded_before=True),
        32,
        "interpolate in 4.*2.conv reads 16 × 16 padded by a function to 17 × 17",
    ),
    "padded to a skip of an odd size": (
        usual.fitted_to_skip,
        35,
        "up makes 34 × 34 of 17 × 17, almost what pool has read",
    ),
    "a cropped skip": (usual.cropped_skip, 36, "can't take what comes to it now"),
    "a position for each patch": (
        lambda: usual.unetr(positions=True),
        32,
        "can't take what comes to it now",
    ),
    "a function": (by_a_function, 32, r"interpolate in the model \(8 × 8 → 32 × 32\) makes maps"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_follow_is_refused_by_name(name):
    make, size, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        convert(make(), torch.randn(1, 1, size, size))


def test_positions_of_patches_stay_with_sizes_that_are_kept():
    converted, _ = convert(
        usual.unetr(positions=True), torch.randn(2, 1, 32, 32), output_size="keep"
    )
    converted(torch.randn(1, 1, 32, 32)).square().mean().backward()
    assert converted.patches.downsample.stride.grad.abs().min() > 0


def goes_back(size):
    """Down by two, and up again to a size that a function of the input's has."""
    return Does(
        lambda m, x: F.interpolate(m.down(x), size=size(x)),
        down=nn.Conv2d(1, 1, 3, stride=2, padding=1),
    )


def fails_at_odd_sizes(x):
    if x.shape[2] % 2:
        raise ValueError("even sizes only")
    return x.shape[2:]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (lambda x: (32, 32), r"input of 31 × 31 .* put out 32 × 32 after .*, and not 31 × 31"),
        (fails_at_odd_sizes, r"32 × 32 after conversion, but not for one of 31 × 31.* even sizes"),
    ],
)
def test_what_fits_at_one_size_alone_is_refused_unless_it_was_so_before(size, message):
    x = torch.randn(1, 1, 32, 32)
    follows, fits_once = goes_back(lambda x: x.shape[2:]), goes_back(size)
    for model in (follows, fits_once):
        converted, _ = convert(model, x)
        check_another_size(model, converted, x, SizeTrace(model, x, {}, {}))
    with pytest.raises(ValueError, match=message):
        check_another_size(follows, fits_once, x, SizeTrace(follows, x, {}, {}))


def test_a_record_of_another_decoder_is_refused():
    model, x = build("transposed convolutions")
    record = convert(model, x)[1].record
    other = build("transposed convolutions")[0]
    other[6] = nn.Conv2d(4, 2, 3)
    with pytest.raises(ValueError, match="has 6 as a ConvTranspose2d that makes maps larger, and"):
        apply_conversion(other, record)
    changed = {**record, "ups": [{**record["ups"][0], "undoes": "1"}]}
    with pytest.raises(ValueError, match="has 4 undo 1, which is not converted before it"):
        apply_conversion(model, changed)
