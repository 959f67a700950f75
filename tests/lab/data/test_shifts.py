"""A moved example is a slice of itself, with its border repeated, and nothing is wrapped."""

import pytest
import torch

from diffstride.lab.data.shifts import directions, moved

SPATIAL = [(9,), (6, 7), (4, 5, 6)]


@pytest.mark.parametrize("size", SPATIAL, ids=len)
@pytest.mark.parametrize("far", range(-4, 5))
def test_a_moved_example_is_the_slice(size, far):
    x = torch.randn(2, 3, *size)
    for axis, length in enumerate(size):
        dim = 2 + axis
        y = moved(x, [far if a == axis else 0 for a in range(len(size))])
        assert y.shape == x.shape
        start, kept = max(0, far), max(0, length - abs(far))
        assert torch.equal(y.narrow(dim, start, kept), x.narrow(dim, max(0, -far), kept))
        border = x.narrow(dim, 0 if far > 0 else length - 1, 1)
        entered = y.narrow(dim, 0 if far > 0 else kept, length - kept)
        assert torch.equal(entered, border.expand_as(entered))


def test_an_image_by_hand():
    x = torch.tensor([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]])
    assert moved(x, (1, -1)).tolist() == [[[[2, 3, 3], [2, 3, 3], [5, 6, 6]]]]
    assert moved(x, (0, 0)) is x
    assert moved(x, (-9, 0)).tolist() == [[[[7, 8, 9]] * 3]]  # all that was there has left


def test_moves_along_two_axes_are_one_after_the_other():
    x = torch.randn(1, 2, 8, 9)
    assert torch.equal(moved(x, (3, -2)), moved(moved(x, (0, -2)), (3, 0)))


def test_every_direction_is_there_once_and_those_along_one_axis_come_first():
    assert directions([True]) == [(-1,), (1,)]
    assert directions([True, True])[:4] == [(-1, 0), (1, 0), (0, -1), (0, 1)]
    assert len(set(directions([True] * 3))) == 26
    assert directions([False, True]) == [(0, -1), (0, 1)]


def test_an_offset_for_each_axis():
    with pytest.raises(ValueError, match=r"one offset for each spatial axis of \(1, 1, 4\), got"):
        moved(torch.zeros(1, 1, 4), (1, 2))
