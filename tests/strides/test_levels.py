"""Whole strides for each level of a network that goes down and up, as other libraries take them."""

import itertools
import json
import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStrideConv2d,
    SpectralPool2d,
    convert,
    cost,
    models,
    stride_plan,
)
from diffstride.layers.resizer import learned_strides
from tests.small_networks import Does
from tests.small_networks import UNet as SmallUNet

TIGHT = {"smoothness": 1.0, "convention": "tight"}


def unet(strides, dims=2, **options):
    options = {"num_classes": 2, "width": 0.0625, **TIGHT, **options}
    return models.create("unet", dims=dims, strides=strides, **options)


def set_strides(model, *strides):
    layers = learned_strides(model).values()
    with torch.no_grad():
        for layer, stride in zip(layers, strides, strict=True):
            layer.stride.copy_(torch.tensor(stride))
    return model


@pytest.mark.parametrize("placement", ["after", "before"])
@pytest.mark.parametrize("kind", ["diffstride", "spectral"])
@pytest.mark.parametrize(
    ("strides", "size"),
    [
        ([(2.0,), (4.0,), (1.0,)], (64,)),
        ([(2.0, 1.0), (2.0, 3.0), (1.0, 2.0)], (32, 24)),
        ([(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)], (33, 47)),
        ([(1.0, 2.0, 2.0), (2.0, 2.0, 2.0), (1.0, 1.0, 2.0)], (4, 16, 16)),
    ],
)
def test_whole_strides_are_what_they_are(strides, size, kind, placement):
    model = unet(strides, len(size), downsampling=kind, placement=placement)
    plan = stride_plan(model, (3, *size))
    whole = [[1] * len(size), *([int(s) for s in level] for level in strides)]
    assert plan.strides == whole
    assert [level.sites for level in plan.levels] == [
        (),
        *((f"levels.{i}.1",) for i in (1, 2, 3)),
    ]
    assert plan.kernel_sizes == [[3] * len(size)] * 4
    assert plan.macs == cost(model, (3, *size)).macs
    multiples = [math.prod(axis) for axis in zip(*whole, strict=True)]
    assert plan.multiple_of == multiples
    if all(n % m == 0 for n, m in zip(size, multiples, strict=True)):
        pooled = unet(strides, len(size), downsampling="spectral", placement=placement)
        assert plan.whole_macs == cost(pooled, (3, *size)).macs


def small(pool1, pool2):
    """Two levels down by given layers."""
    convolutions = [nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1)]
    return nn.Sequential(convolutions[0], pool1, nn.ReLU(), convolutions[1], pool2, nn.ReLU())


@pytest.mark.parametrize(
    "strides",
    [
        [(1.4, 2.6), (2.3, 1.7)],
        [(2.9, 1.2), (1.1, 3.4)],
        [(1.5, 1.5), (1.5, 1.5)],
        [(2.45, 1.3), (3.6, 2.2)],
    ],
)
@pytest.mark.parametrize("size", [(48, 36), (31, 37)])
def test_no_other_whole_strides_are_better(strides, size):
    """Against all of them, each as a network with poolings to the sizes that it makes."""
    plan = stride_plan(small(*(DiffStride2d(s, **TIGHT) for s in strides)), (1, *size))
    found = plan.strides[1:]
    wanted = [ratio for level in plan.levels[1:] for ratio in level.learned]

    def judged(numbers):
        halves, now, pools = (numbers[:2], numbers[2:]), size, []
        for half in halves:
            now = tuple(math.ceil(n / s) for n, s in zip(now, half, strict=True))
            pools.append(SpectralPool2d(output_size=now))
        macs = cost(small(*pools), (1, *size)).macs
        moved = sum(math.log(n / w) ** 2 for n, w in zip(numbers, wanted, strict=True))
        return round(10 * abs(math.log(macs / plan.macs))), round(moved, 9), macs

    # Where a whole number lies between a stride and the ratio of its sizes, it is that one.
    pairs = zip(itertools.chain(*strides), wanted, strict=True)
    options = [
        {math.ceil(s)} if math.ceil(s) <= w else {math.floor(s), math.ceil(s)} for s, w in pairs
    ]
    numbers = tuple(itertools.chain(*found))
    assert all(n in some for n, some in zip(numbers, options, strict=True))
    judgements = [judged(each) for each in itertools.product(*options)]
    assert judged(numbers) == min(judgements)
    assert plan.whole_macs == judged(numbers)[2]


def test_windows_that_need_room_count_as_what_maps_are():
    model = unet([2.0, 2.0, 2.0], smoothness=4.0, convention="paper")
    plan = stride_plan(model, (3, 64, 64))
    assert plan.levels[1].learned == (1.6, 1.6)  # 64 to 40
    assert plan.whole_macs == pytest.approx(plan.macs, rel=0.06)


def test_axes_that_share_a_stride_go_on_sharing_it():
    plan = stride_plan(unet([2.6, 1.4, 2.2], shared=True), (3, 64, 40))
    assert all(len(set(level)) == 1 for level in plan.strides)


def test_it_is_read_written_and_leaves_the_network_alone():
    model = unet([(1.9, 1.0), (2.0, 2.0), (2.0, 3.0)])
    before = [layer.strides for layer in learned_strides(model).values()]
    plan = stride_plan(model, (3, 64, 48))
    assert stride_plan(nn.DataParallel(model), (3, 64, 48)) == plan
    assert before == [layer.strides for layer in learned_strides(model).values()]
    assert plan.strides == [[1, 1], [2, 1], [2, 2], [2, 3]]
    record = plan.as_dict()
    assert json.loads(json.dumps(record))["nnunet"] == plan.nnunet()
    assert plan.nnunet() == {
        "n_stages": 4,
        "strides": plan.strides,
        "kernel_sizes": [[3, 3]] * 4,
    }
    assert plan.monai_unet() == {"spatial_dims": 2, "strides": plan.strides[1:]}
    assert plan.monai_dynunet() == {
        "spatial_dims": 2,
        "strides": plan.strides,
        "upsample_kernel_size": plan.strides[1:],
        "kernel_size": [[3, 3]] * 4,
    }
    lines = str(plan).splitlines()
    assert lines[1].split() == "1 1 × 1 64 × 48".split()
    assert lines[2].split()[:4] == "2 2 × 1".split()
    assert lines[-1].endswith("Sizes of inputs should be multiples of 8 × 6.")


def conv(kernel, inputs=4, **options):
    return nn.Conv2d(inputs, 4, kernel, padding="same", **options)


@pytest.mark.parametrize(
    ("layers", "kernels"),
    [
        ([conv(3, 1), conv(1), DiffStride2d(2.0, **TIGHT), conv(5)], [[3, 3], [5, 5]]),
        ([conv((1, 3), 1), DiffStride2d(2.0, **TIGHT), conv(3)], [[1, 3], [3, 3]]),
        ([conv(3, 1), conv(5), DiffStride2d(2.0, **TIGHT), conv(3)], None),
        ([conv(3, 1), DiffStride2d(2.0, **TIGHT), conv(1)], None),
        ([DiffStrideConv2d(1, 4, 2, stride=2.0), conv(1)], [[2, 2], [2, 2]]),
        ([conv(3, 1), DiffStrideConv2d(4, 4, 2, stride=2.0), conv(1)], [[3, 3], [2, 2]]),
    ],
)
def test_kernels_are_said_where_each_level_has_one(layers, kernels):
    undo = next(x for x in layers if isinstance(x, DiffStride2d | DiffStrideConv2d)).up()
    # What is behind the way up belongs to no level.
    plan = stride_plan(nn.Sequential(*layers, undo, conv(7)), (1, 16, 16))
    assert plan.kernel_sizes == kernels
    assert plan.strides == [[1, 1], [2, 2]]
    assert ("kernel_sizes" in plan.nnunet()) == ("kernel_size" in plan.monai_dynunet())
    assert ("kernel_sizes" in plan.nnunet()) == (kernels is not None)


def test_sites_side_by_side_are_one_level():
    model = Does(
        lambda self, x: torch.cat([self.a(self.first(x)), self.b(x)], 1),
        first=nn.Conv2d(3, 2, 3, padding=1),
        a=DiffStride2d((2.0, 1.0), **TIGHT),
        b=DiffStride2d((2.0, 1.0), **TIGHT),
    )
    plan = stride_plan(model, (3, 16, 16))
    assert plan.strides == [[1, 1], [2, 1]]
    assert plan.levels[1].sites == ("a", "b")


def test_what_does_not_go_down_level_by_level_is_said():
    down = DiffStride2d(2.0, **TIGHT)
    model = nn.Sequential(down, nn.Conv2d(1, 1, 3), down.up(), DiffStride2d(3.0, **TIGHT))
    message = r"'3' makes \(5, 5\) of \(16, 16\) after there was a level of \(8, 8\)"
    with pytest.raises(ValueError, match=f"one level after the other, and {message}"):
        stride_plan(model, (1, 16, 16))
    with pytest.raises(ValueError, match="must have a layer with a stride"):
        stride_plan(nn.Conv2d(1, 1, 3), (1, 16, 16))
    rows = nn.Sequential(nn.Flatten(2), DiffStride1d(2.0, **TIGHT))
    with pytest.raises(ValueError, match="the 2 axes of the input, and '1' has 1"):
        stride_plan(rows, (1, 16, 16))


def test_a_network_of_ones_own():
    plan = stride_plan(SmallUNet(2.0), (1, 16, 16))
    assert plan.strides == [[1, 1], [2, 2], [2, 2]]
    assert plan.kernel_sizes == [[3, 3]] * 3


STEPS = {"in_channels": 1, "out_channels": 2}


def monai(name, dims):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, on import
        from monai.networks import nets
    make = {
        "UNet": lambda: nets.UNet(dims, **STEPS, channels=(4, 8, 8), strides=(2, 2)),
        "residual": lambda: nets.UNet(
            dims, **STEPS, channels=(4, 8, 8), strides=(2, 2), num_res_units=2
        ),
        "BasicUNet": lambda: nets.BasicUNet(dims, **STEPS, features=(4, 4, 4, 4, 4, 4)),
        "DynUNet": lambda: nets.DynUNet(
            dims,
            **STEPS,
            kernel_size=((1, 3, 3)[-dims:], 3, 3),
            strides=(1, 2, 2),
            upsample_kernel_size=(2, 2),
            filters=(4, 8, 8),
        ),
    }
    return make[name](), nets


def trains(model, size):
    x, target = torch.randn(2, 1, *size), torch.randint(2, (2, *size))
    loss = F.cross_entropy(model(x), target)
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.01).step()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.third_party
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("name", ["UNet", "residual", "BasicUNet", "DynUNet"])
def test_networks_of_monai_before_and_after(name, dims):
    """Their strides are found as they were, and those that were learned build others of them."""
    theirs, nets = monai(name, dims)
    size = (64, 48) if dims == 2 else (32, 32, 32)
    learning, _ = convert(theirs, torch.rand(1, 1, *size))
    plan = stride_plan(learning, (1, *size))
    depth = len(learned_strides(learning))
    assert depth == (4 if name == "BasicUNet" else 2)
    assert plan.strides == [[1] * dims, *[[2] * dims] * depth]
    assert plan.whole_macs == pytest.approx(plan.macs, rel=0.01)
    # Anisotropic ones. The first axis of volumes stays as it is at first.
    learned = [(1.0, 2.0, 2.0)[-dims:], (2.0, 2.0, 1.0)[-dims:], *[(1.0, 1.0, 2.0)[-dims:]] * 2]
    plan = stride_plan(set_strides(learning, *learned[:depth]), (1, *size))
    wanted = [[1] * dims, *([int(s) for s in stride] for stride in learned[:depth])]
    assert plan.strides == wanted
    kernels = plan.kernel_sizes
    assert kernels == [
        [1, 3, 3][-dims:] if name == "DynUNet" else [3] * dims,
        *[[3] * dims] * depth,
    ]
    channels = [4] * len(plan.strides)
    fits = [4 * n for n in plan.multiple_of]
    trains(nets.UNet(**STEPS, **plan.monai_unet(), channels=channels), fits)
    trains(nets.DynUNet(**STEPS, **plan.monai_dynunet(), filters=channels), fits)


@pytest.mark.third_party
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_ours_as_networks_of_monai(dims):
    _, nets = monai("UNet", max(dims, 2))
    strides = [(1.0, 2.0, 3.0), (3.1, 1.0, 2.2), (2.0, 1.9, 1.0)]
    model = unet([stride[:dims] for stride in strides], dims)
    plan = stride_plan(model, (3, *(48, 36, 30)[:dims]))
    sizes = [2 * n for n in plan.multiple_of]
    channels = [4] * 4
    trains(nets.UNet(**STEPS, **plan.monai_unet(), channels=channels), sizes)
    if dims > 1:
        trains(nets.DynUNet(**STEPS, **plan.monai_dynunet(), filters=channels), sizes)
