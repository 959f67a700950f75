"""Every network with every downsampling: the tests walk the registry."""

import copy

import pytest
import torch
from torch import nn

from diffstride import DiffStride1d, DiffStride3d, cost, models, parameter_groups
from diffstride.layers import DiffStrideNd, SpectralPoolNd
from diffstride.layers.factory import KINDS

EVERY = pytest.mark.parametrize("name", models.list())
OURS = KINDS[: KINDS.index("blur")]
# Methods of others stand where these do, so two networks with them are enough.
WITH_OTHERS = ("resnet18", "signal_cnn")
PAIRS = [(n, k) for n in models.list() for k in (KINDS if n in WITH_OTHERS else OURS)]
EVERY_PAIR = pytest.mark.parametrize(("name", "downsampling"), PAIRS)
LEARNING = ("diffstride", "shape_adaptor", "bilinear")
STRIDES = (".stride", ".alpha")  # names of parameters that strides are, or follow from
# Small enough for hundreds of tests; odd and different along the axes.
WIDTH, SIZE = 0.125, (33, 35)


def create(name, downsampling="diffstride", **options):
    torch.manual_seed(0)
    options = {"num_classes": 5, "width": WIDTH, "downsampling": downsampling, **options}
    return models.create(name, **options)


def images(name, *size, batch=4):
    channels = 3 if name not in ("audio_cnn", "signal_cnn") else 1
    usual = (195,) if name == "signal_cnn" else SIZE
    return torch.randn(batch, channels, *(size or usual))


def shape_of_scores(model, x, classes=5):
    """(batch, classes), and for networks that score every place the size of the input behind it."""
    return (len(x), classes, *(x.shape[2:] if model.is_dense else ()))


def learnable(model):
    return [module for module in model.modules() if isinstance(module, DiffStrideNd)]


@EVERY_PAIR
def test_it_trains_on_odd_sizes_and_every_stride_moves(name, downsampling):
    model, x = create(name, downsampling), images(name)
    before = {key: value.clone() for key, value in model.named_parameters()}
    optimiser = torch.optim.SGD(parameter_groups(model, lr=0.1, weight_decay=0), momentum=0.9)
    scores = model(x)
    targets = torch.arange(4).reshape(-1, *[1] * (scores.ndim - 2))
    targets = targets.expand(4, *scores.shape[2:])  # one for every place, if every place is scored
    nn.functional.cross_entropy(scores, targets).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{key} has no part in the output"
        assert parameter.grad.isfinite().all(), key
    optimiser.step()
    for key, parameter in model.named_parameters():
        if key.endswith(STRIDES):
            assert (parameter != before[key]).all(), f"{key} did not move"
    assert bool(learnable(model)) == (downsampling in LEARNING)


@EVERY_PAIR
def test_a_state_comes_back_and_eval_is_deterministic(name, downsampling):
    model, x = create(name, downsampling), images(name)
    model(x)  # so that the running statistics are no longer the initial ones
    model.eval()
    other = models.create(name, num_classes=5, width=WIDTH, downsampling=downsampling)
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    with torch.no_grad():
        y = model(x)
        assert y.shape == shape_of_scores(model, x)
        assert torch.equal(y, model(x))
        assert torch.equal(y, other.eval()(x))


@EVERY
def test_kinds_differ_by_their_strides_alone(name):
    """So weights of one can start another."""
    strided = create(name, "strided").state_dict()
    for kind in KINDS if name in WITH_OTHERS else OURS:
        state = create(name, kind).state_dict()
        weights = {key: value for key, value in state.items() if not key.endswith(STRIDES)}
        assert {k: v.shape for k, v in weights.items()} == {k: v.shape for k, v in strided.items()}
        assert (len(state) > len(weights)) == (kind in LEARNING)


@EVERY
def test_strides_are_taken_per_site_and_per_axis(name):
    sites, axes = len(learnable(create(name))), learnable(create(name))[0].axes
    per_axis = [(1.5 + 0.1 * i, 2.5)[:axes] for i in range(sites)]
    layers = learnable(create(name, strides=per_axis))
    assert [layer.strides for layer in layers] == [pytest.approx(pair) for pair in per_axis]
    in_a_row = learnable(create(name, strides=[stride for pair in per_axis for stride in pair]))
    assert [layer.strides for layer in in_a_row] == [layer.strides for layer in layers]
    shared = learnable(create(name, strides=[1.5] * sites, shared=True, smoothness=2.0))
    assert all(layer.stride.numel() == 1 and layer.smoothness == 2.0 for layer in shared)
    spectral = create(name, "spectral", strides=[1.5] * sites)
    pools = [m for m in spectral.modules() if isinstance(m, SpectralPoolNd)]
    assert [pool.stride for pool in pools] == [(1.5,) * axes] * sites


@pytest.mark.parametrize(
    ("name", "options", "sites"),
    [
        ("resnet18", {}, "3, one for each of stage 2, stage 3, stage 4"),
        ("resnet18", {"stem": "imagenet"}, "4, one for each of stage 1, stage 2, stage 3, stage 4"),
        ("preact_resnet56", {}, "3, one for each of stage 1, stage 2, stage 3"),
        ("densenet121", {}, "3, one for each of transition 1, transition 2, transition 3"),
        ("efficientnet_b0", {}, "7, one for each of stage 1, .*, stage 7"),
        ("audio_cnn", {}, "6, one for each of block 1, .*, block 6"),
        ("signal_cnn", {}, "5, one for each of site 1, .*, site 5"),
        ("unet", {}, "3, one for each of level 2, level 3, level 4"),
    ],
)
def test_a_wrong_number_of_strides_is_an_error_that_names_the_sites(name, options, sites):
    with pytest.raises(ValueError, match=f"strides must be {sites}; got \\[2.0\\]"):
        create(name, strides=[2.0], **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "resnet19"}, "name must be one of resnet18, .*; got 'resnet19'"),
        ({"downsampling": "pool"}, "downsampling must be one of strided, .*; got 'pool'"),
        ({"stem": "mnist"}, "stem must be one of cifar, imagenet; got 'mnist'"),
        ({"dims": 4}, "dims must be 1, 2 or 3, got 4"),
        ({"width": 0}, "width must be above 0, got 0"),
        ({"num_classes": {"a": 2}}, "num_classes must be one number for this network"),
        ({"strides": 2.0}, "strides must be a sequence, one a site, got 2.0"),
        ({"strides": (2, 2, 0.5)}, "stride must be at least 1, got 0.5"),
        ({"strides": (2, 2, (2, 2, 2))}, r"one number or 2 \(one per spatial axis\), got 3"),
        (
            {"downsampling": "strided", "strides": (2, 2, 1.5)},
            "stride must be whole for downsampling='strided', got",
        ),
        ({"downsampling": "max", "strides": (2, 2, 1.5)}, "must be whole for downsampling='max'"),
        ({"name": "audio_cnn", "dims": 1}, "audio_cnn has dims=2, time and frequency, got 1"),
        ({"name": "signal_cnn", "dims": 2}, "signal_cnn has dims=1, time, got 2"),
        ({"name": "unet", "stem": "imagenet"}, "unet has stem='cifar', .* got 'imagenet'"),
    ],
)
def test_what_can_not_be_built_is_said(options, message):
    with pytest.raises(ValueError, match=message):
        create(**{"name": "resnet18", **options})


@pytest.mark.parametrize("name", [n for n in models.list() if n not in ("audio_cnn", "signal_cnn")])
@pytest.mark.parametrize(("dims", "size"), [(1, (67,)), (3, (18, 17, 19))])
def test_the_same_network_for_signals_and_volumes(name, dims, size):
    kind = {1: DiffStride1d, 3: DiffStride3d}[dims]
    model = create(name, dims=dims, width=0.0625)
    assert learnable(model)
    assert all(isinstance(layer, kind) for layer in learnable(model))
    x = torch.randn(2, 3, *size)
    assert model.eval()(x).shape == shape_of_scores(model, x)


def test_branches_of_a_block_share_their_layer_and_a_kept_shape_needs_no_projection():
    model = create("resnet18", stem="imagenet")
    first = model.stages[0][0]
    assert isinstance(first.shortcut, nn.Identity)
    assert first.downsample.strides == (1.0, 1.0)
    calls = []
    layer = model.stages[1][0].downsample
    layer.register_forward_hook(lambda *_: calls.append(1))
    model(images("resnet18", 64, 64))
    assert len(calls) == 2
    assert len(learnable(model)) == 4
    strided = create("resnet18", "strided", stem="imagenet", strides=(2, 2, 2, 2))
    assert isinstance(strided.stages[0][0].shortcut, nn.Sequential)  # now its shape changes


def test_the_shortcut_is_convolved_after_it_is_downsampled():
    sizes = {}
    model = create("resnet18")
    model.stages[1][0].shortcut[0].register_forward_hook(
        lambda module, inputs, output: sizes.update(shortcut=inputs[0].shape[2:])
    )
    model(images("resnet18", 32, 32))
    assert sizes["shortcut"] == (24, 24)


def test_a_stem_can_learn_too_and_is_no_site():
    model = create("resnet18", stem="imagenet", stem_downsampling="diffstride")
    assert model.stem[1].strides == (2.0, 2.0)
    assert len(learnable(model)) == 5


def test_densenet_has_the_third_transition_when_asked():
    assert len(learnable(create("densenet121"))) == 2
    assert len(learnable(create("densenet121", strides=(2, 2, 1)))) == 3
    assert len(learnable(create("densenet121", stem="imagenet"))) == 3


def test_audio_has_a_head_for_each_task():
    model = create("audio_cnn", num_classes={"birds": 2, "words": 35}).eval()
    x = images("audio_cnn", 100, 64)
    scores = model(x)
    assert {task: tuple(value.shape) for task, value in scores.items()} == {
        "birds": (4, 2),
        "words": (4, 35),
    }
    assert torch.equal(model(x, task="words"), scores["words"])
    with pytest.raises(ValueError, match="task must be one of birds, words; got 'bats'"):
        model(x, task="bats")
    with pytest.raises(ValueError, match="one head and no task by name, got 'birds'"):
        create("audio_cnn")(x, task="birds")


def test_audio_convolves_time_first_and_strides_each_axis_where_it_convolves():
    block = create("audio_cnn", "strided", strides=[(2, 3), *[1] * 5]).blocks[0]
    assert (block[0].kernel_size, block[0].stride) == ((3, 1), (2, 1))
    assert (block[3].kernel_size, block[3].stride) == ((1, 3), (1, 3))


def test_the_cost_of_the_textbook_resnet():
    model = models.create("resnet18", num_classes=10, downsampling="strided")
    assert cost(model, (3, 32, 32)).macs == pytest.approx(555e6, abs=2e6)


def test_layers_take_further_options_and_kinds_without_them_leave_them_aside():
    options = {"norm": "forward", "convention": "symmetric", "max_stride": 4.0}
    for layer in learnable(create("resnet18", **options)):
        assert (layer.norm, layer.convention, layer.max_stride) == ("forward", "symmetric", 4.0)
    spectral = create("densenet121", "spectral", **options)
    assert [m.norm for m in spectral.modules() if isinstance(m, SpectralPoolNd)] == ["forward"] * 2
    create("audio_cnn", "strided", **options)
    with pytest.raises(TypeError, match="unknown options depth: known are norm, path, convention"):
        create("resnet18", "strided", depth=50)


def test_stochastic_depth_keeps_the_mean():
    block = create("efficientnet_b0").stages[5][1]
    block.drop = 0.25
    y = torch.ones(20_000, 1, 1, 1)
    assert block._dropped(y).mean().item() == pytest.approx(1, abs=0.02)
    assert block._dropped(y).unique().tolist() == pytest.approx([0, 4 / 3])
    assert torch.equal(block.eval()._dropped(y), y)
