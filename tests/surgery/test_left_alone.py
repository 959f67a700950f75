"""Strides of functions on whatever a map has become are reported, and nothing else is."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffstride import convert
from tests.small_networks import Does, X

EVERY_OTHER = torch.arange(0, 16, 2)


def left_alone(function, example=X):
    """What a report has of a function on maps of 16 × 16, after a layer that is converted."""
    layer = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}[example.ndim]
    model = nn.Sequential(layer(3, 4, 3, stride=2, padding=1), Does(lambda _, x: function(x)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, report = convert(model, example, smoothness=0.0)
    found = [(left.operation, left.size_before, left.size_after) for left in report.left_alone]
    assert bool(caught) == bool(found)
    assert all(left.name == "1" for left in report.left_alone)
    return found


STRIDED = {
    "windows": (lambda x: x.unfold(2, 2, 2), [("unfold", (16,), (8,))]),
    "windows that overlap": (lambda x: x.unfold(-1, 4, 2), [("unfold", (16,), (7,))]),
    "windows of both axes": (
        lambda x: x.unfold(2, 2, 2).unfold(dimension=3, size=2, step=2).mean((4, 5)),
        [("unfold", (16,), (8,))],  # both alike
    ),
    "numbers of columns": (lambda x: x[..., EVERY_OTHER], [("__getitem__", (16, 16), (16, 8))]),
    "a list of rows": (lambda x: x[:, :, [0, 5, 10]], [("__getitem__", (16, 16), (3, 16))]),
    "numbers on both axes": (
        lambda x: x[:, :, EVERY_OTHER[:, None], EVERY_OTHER],
        [("__getitem__", (16, 16), (8, 8))],
    ),
    "which rows": (
        lambda x: x[:, :, torch.arange(x.shape[2]) % 4 == 0],
        [("__getitem__", (16, 16), (4, 16))],
    ),
    "index_select": (
        lambda x: x.index_select(2, EVERY_OTHER),
        [("index_select", (16, 16), (8, 16))],
    ),
    "index_select by name": (
        lambda x: torch.index_select(x, dim=3, index=EVERY_OTHER),
        [("index_select", (16, 16), (16, 8))],
    ),
    "a flattened map": (
        lambda x: F.max_pool1d(x.flatten(2), 2),
        [("max_pool1d", (256,), (128,))],
    ),
    "twice": (
        lambda x: F.avg_pool1d(F.max_pool1d(x.flatten(2), 2, return_indices=True)[0], 4),
        [("max_pool1d", (256,), (128,)), ("avg_pool1d", (128,), (32,))],
    ),
    "a flattened map, convolved": (
        lambda x: F.conv1d(x.flatten(2), torch.ones(1, 4, 3), stride=4, padding=1),
        [("conv1d", (256,), (64,))],
    ),
    "rows": (lambda x: F.lp_pool1d(x.mean(3), 2.0, 2), [("lp_pool1d", (16,), (8,))]),
    "a map without a batch": (
        lambda x: F.max_pool2d(x[0], 2)[None],
        [("max_pool2d", (16, 16), (8, 8))],
    ),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides_of_functions_are_reported_whatever_became_of_maps(name):
    function, expected = STRIDED[name]
    assert left_alone(function) == expected


def test_strides_of_functions_on_fewer_axes_are_reported():
    film = torch.rand(1, 3, 8, 16, 16)

    def images(x):  # each by itself
        x = F.max_pool2d(x.transpose(1, 2).flatten(0, 1), 2)
        return F.avg_pool2d(x, 2)

    assert left_alone(images, film) == [
        ("max_pool2d", (8, 8), (4, 4)),
        ("avg_pool2d", (4, 4), (2, 2)),
    ]
    sound = torch.rand(1, 3, 32)
    assert left_alone(lambda x: x.unfold(2, 4, 2), sound) == [("unfold", (16,), (7,))]


NOT_STRIDED = {
    "windows at every sample": lambda x: x.unfold(2, 3, 1),
    "a window of everything": lambda x: x.unfold(2, x.shape[2], 2),
    "windows of channels": lambda x: x.unfold(1, 2, 2),
    "columns, to be put back": lambda x: F.fold(F.unfold(x, 2, stride=2), x.shape[2:], 2, stride=2),
    "borders": lambda x: x[:, :, 1:-1, torch.arange(1, 15)],
    "a half": lambda x: x[:, :, torch.arange(8), 8:],
    "channels, and a border": lambda x: x[:, ::2, 1:],
    "numbers of channels": lambda x: x[:, [0, 2]].index_select(1, torch.tensor([1])),
    "in another order": lambda x: x[:, :, torch.randperm(16)],
    "one row": lambda x: x[:, :, [5]],
    "larger": lambda x: x[:, :, torch.arange(32) // 2].mean((2, 3)),
    "a fixed size": lambda x: F.adaptive_max_pool1d(x.flatten(2), 8),
    "no stride": lambda x: F.max_pool1d(x.flatten(2), 3, stride=1),
    "over everything": lambda x: F.avg_pool1d(x.flatten(2), x.shape[2] * x.shape[3]),
    "the most of two channels": lambda x: F.max_pool3d(x[:, None], (2, 1, 1)),
    "the most of two numbers": lambda x: F.max_pool1d(x.mean((2, 3))[:, None], 2),
}


@pytest.mark.parametrize("name", NOT_STRIDED)
def test_what_is_no_stride_is_not_reported(name):
    assert left_alone(NOT_STRIDED[name]) == []
