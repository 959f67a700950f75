"""What goes up by a factor and is padded or cropped to fit lies where it does not belong."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffstride import convert
from tests.small_networks import Does
from tests.surgery.usual_decoders import cropped, down, fitted_to_skip, padded

pytestmark = pytest.mark.third_party
X = torch.randn(1, 1, 32, 32)


def twice(y):
    return F.interpolate(y, scale_factor=2)


def shuffled_by_hand(y):
    """Every sample four times, by views alone."""
    n, channels, rows, columns = y.shape
    y = y[:, :, :, None, :, None].expand(-1, -1, -1, 2, -1, 2)
    return y.reshape(n, channels, 2 * rows, 2 * columns)


UPS = {
    "interpolate": twice,
    "interpolate to twice the size": lambda y: F.interpolate(y, [2 * n for n in y.shape[2:]]),
    "conv_transpose2d": lambda y: F.conv_transpose2d(y, torch.ones(4, 1, 2, 2), stride=2, groups=4),
    "pixel_shuffle": lambda y: F.pixel_shuffle(y.repeat(1, 4, 1, 1), 2),
    "repeat_interleave": lambda y: y.repeat_interleave(2, 2).repeat_interleave(2, 3),
    "reshape": shuffled_by_hand,
    "interpolate and move channels": lambda y: twice(y).permute(0, 2, 3, 1).permute(0, 3, 1, 2),
}


@pytest.mark.parametrize("fit", [padded, cropped])
@pytest.mark.parametrize("name", UPS)
def test_a_function_whose_factor_is_made_to_fit_is_refused(name, fit):
    message = rf"{name.split()[0]} in the model .* 40.* padded or cropped to 32 × 32, .*size=skip.*"
    with pytest.raises(ValueError, match=message + r"exclude=\['pool'\]"):
        convert(fitted_to_skip(UPS[name], fit), X)


@pytest.mark.parametrize("fit", [padded, cropped])
def test_a_layer_in_its_place_follows(fit):
    converted, report = convert(fitted_to_skip(fit=fit), X)
    assert [up.undoes for up in report.ways_up] == ["pool"]
    assert converted(torch.randn(1, 1, 33, 37)).shape[2:] == (33, 37)


class Block(nn.Module):
    """Goes up, pads to the skip, and puts both side by side."""

    def __init__(self, up=None):
        super().__init__()
        self.up, self.conv = up, nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, y, skip):
        y, _ = padded((self.up or twice)(y), skip)
        return self.conv(torch.cat([skip, y], 1)).relu()


def popular(*ups):
    """With a level for each way up; None is a function."""

    def forward(m, x):
        skips = [m.first(x)]
        for layer in m.down:
            skips.append(layer(skips[-1]))
        y = skips.pop()
        for block in m.up:
            y = block(y, skips.pop())
        return m.last(y)

    steps = (nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, padding=1)) for _ in ups)
    return Does(
        forward,
        first=nn.Conv2d(1, 4, 3, padding=1),
        down=nn.ModuleList(steps),
        up=nn.ModuleList(map(Block, ups)),
        last=nn.Conv2d(4, 2, 1),
    )


LAYERS = {
    "Upsample": lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
    "ConvTranspose2d": lambda: nn.ConvTranspose2d(4, 4, 2, stride=2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_popular_network_is_converted(name):
    model = popular(*(LAYERS[name]() for _ in range(4)))
    converted, report = convert(model, torch.randn(1, 1, 64, 64))
    assert [up.kind for up in report.ways_up] == [name] * 4
    assert converted(torch.randn(1, 1, 53, 64)).shape[2:] == (53, 64)


FUNCTIONS = {
    "in all levels": (None, None, None),
    "in the first level": (LAYERS["Upsample"](), LAYERS["Upsample"](), None),
    "in the last level": (None, LAYERS["Upsample"](), LAYERS["Upsample"]()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_popular_network_with_functions_is_refused(name):
    message = r"interpolate.*(follows no layer|which no stride can make agree).*size=skip\.shape"
    with pytest.raises(ValueError, match=message):
        convert(popular(*FUNCTIONS[name]), torch.randn(1, 1, 64, 64))


def test_what_comes_out_padded_to_the_input_is_refused():
    model = Does(lambda m, x: padded(twice(m.down(x)), x)[0], down=down(1, 1))
    with pytest.raises(ValueError, match=r"interpolate in the model .*to 32 × 32"):
        convert(model, X)


def test_it_is_seen_at_the_initial_strides_if_these_are_others():
    with pytest.raises(ValueError, match=r"\(18 × 18 → 36 × 36\).*to 32 × 32"):
        convert(fitted_to_skip(twice), X, stride=1.7, learnable=False)


def test_a_way_up_that_is_to_follow_nothing_is_refused_where_it_is_made_to_fit():
    with pytest.raises(ValueError, match=r"conv_transpose2d in up .*follows no layer"):
        convert(fitted_to_skip(), X, exclude=["up"])


# What belongs there though it is padded or cropped


def behind(steps, inner):
    """Something that starts from a map whose size is learned, and is added to that again."""
    return Does(lambda m, x: inner(m, low := m.down(x)) + low, down=down(1, 4), **steps)


def windows(m, x):
    """Padded to a multiple of seven, and cropped again once the windows were looked at."""
    rows, columns = x.shape[2:]
    y = F.pad(twice(m.fixed(x)), (0, -columns % 7, 0, -rows % 7))
    return y[..., :rows, :columns]


def halves(m, x):
    """Taken apart and put together again."""
    y = twice(m.fixed(x))
    return padded(torch.cat([y[..., :3], y[..., 3:]], -1), x)[0]


def gated(m, x):
    """Halves of channels that weigh each other, where channels come last; windows there too."""
    y = padded(twice(m.fixed(x)), x)[0].permute(0, 2, 3, 1)
    rows, columns = x.shape[2:]
    y = F.pad(y, (0, 0, 0, -columns % 7, 0, -rows % 7)).relu()[:, :rows, :columns]
    y = torch.cat([y, y], -1)
    y = m.linear(y[..., :2] * y[..., 2:4].sigmoid() + y.chunk(4, -1)[0])
    return y.permute(0, 3, 1, 2)


def rows(m, x):
    """Convolved row by row, and cropped to nothing beside that."""
    y = padded(twice(m.fixed(x)), x)[0]
    empty = twice(y)[..., :0].sum((2, 3), keepdim=True)
    return torch.stack([m.row(row) for row in y.unbind(2)], 2) + empty


BELONGS = {
    "over a stride that stays": lambda: behind(
        {"fixed": down(4, 4)}, lambda m, x: padded(twice(m.fixed(x)), x)[0]
    ),
    "over four": lambda: behind(
        {"fixed": nn.Conv2d(4, 4, 7, stride=4)},
        lambda m, x: padded(twice(twice(m.fixed(x))), x)[0],
    ),
    "mirrored around a convolution": lambda: behind(
        {"fixed": down(4, 4), "conv": nn.Conv2d(4, 4, 9)},
        lambda m, x: m.conv(F.pad(padded(twice(m.fixed(x)), x)[0], (4,) * 4, mode="reflect")),
    ),
    "windows": lambda: behind({"fixed": down(4, 4)}, windows),
    "two that were padded alike": lambda: behind(
        {"pool": nn.AdaptiveAvgPool2d(1)},
        lambda m, x: m.pool(F.pad(twice(x), (8,) * 4) + F.pad(twice(x.relu()), (8,) * 4)),
    ),
    "a border of a larger image": lambda: Does(
        lambda m, x: twice(m.up(m.down(x)))[..., 4:-4, 4:-4],
        down=down(1, 4),
        up=nn.ConvTranspose2d(4, 1, 2, stride=2),
    ),
    "gated": lambda: behind({"fixed": down(4, 4), "linear": nn.Linear(2, 4)}, gated),
    "rows": lambda: behind({"fixed": down(4, 4), "row": nn.Conv1d(4, 4, 3, padding=1)}, rows),
    "halves": lambda: behind({"fixed": down(4, 4)}, halves),
}


@pytest.mark.parametrize("size", [32, 42, 46])
@pytest.mark.parametrize("name", BELONGS)
def test_what_belongs_there_is_converted(name, size):
    _, report = convert(BELONGS[name](), torch.randn(1, 1, size, size), exclude=["fixed"])
    assert [site.name for site in report.sites] == ["down"]
