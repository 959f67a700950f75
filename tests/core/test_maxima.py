"""Max pooling a few examples at a time is max pooling."""

import pytest
import torch
from torch import nn

from diffstride.core import maxima
from diffstride.core.maxima import max_pool


@pytest.fixture(params=[1, 2**30], ids=["one at a time", "all at once"])
def chunks(request, monkeypatch):
    monkeypatch.setattr(maxima, "CHUNK_BYTES", request.param)


POOLS = {
    "2d": (nn.MaxPool2d(3, 1, 1), (3, 4, 9, 7)),
    "even": (nn.MaxPool2d(2, 1), (2, 3, 8, 5)),
    "dilated": (nn.MaxPool2d((3, 2), 1, dilation=(2, 1)), (3, 1, 11, 6)),
    "3d": (nn.MaxPool3d(3, 1, 1), (2, 3, 5, 6, 4)),
}


@pytest.mark.parametrize("name", POOLS)
def test_values_and_gradients_are_those_of_torch(name, chunks):
    pool, shape = POOLS[name]
    x = torch.randn(shape, dtype=torch.float64).round(decimals=1)  # with ties
    ours, expected = (x.clone().requires_grad_() for _ in range(2))
    y, truth = max_pool(ours, pool), pool(expected)
    assert torch.equal(y, truth)
    g = torch.randn_like(truth)
    y.backward(g)
    truth.backward(g)
    torch.testing.assert_close(ours.grad, expected.grad, rtol=0, atol=1e-12)


def test_a_gradient_can_be_differentiated(chunks):
    x = torch.randn(2, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    pool = nn.MaxPool2d(3, 1, 1)
    assert torch.autograd.gradcheck(lambda x: max_pool(x, pool), (x,))
    assert torch.autograd.gradgradcheck(lambda x: max_pool(x, pool).pow(2), (x,))


def test_nan_is_the_largest_and_an_empty_batch_stays_empty():
    pool = nn.MaxPool2d(3, 1, 1)
    x = torch.zeros(1, 2, 4, 4)
    x[0, 1, 0, 0] = torch.nan
    assert torch.equal(max_pool(x, pool).isnan(), pool(x).isnan())
    assert max_pool(x[:0], pool).shape == (0, 2, 4, 4)


def test_no_more_than_the_input_is_kept():
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        max_pool(x, nn.MaxPool2d(3, 1, 1))
    assert [t.data_ptr() for t in kept] == [x.data_ptr()]


def test_each_example_may_be_mapped():
    pool, x = nn.MaxPool2d(3, 1, 1), torch.randn(3, 2, 4, 6, 5)
    torch.testing.assert_close(
        torch.vmap(lambda one: max_pool(one, pool))(x), pool(x.flatten(0, 1)).reshape(x.shape)
    )
