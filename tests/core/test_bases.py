"""The basis as matrices, and the cache that holds them."""

import pytest
import torch

from diffstride import functional
from diffstride.core import bases


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 64, 97])
def test_a_round_trip_is_the_identity(n):
    analysis, synthesis = bases.FOURIER.matrices(n, n)
    torch.testing.assert_close(synthesis @ analysis, torch.eye(n, dtype=torch.float64))


def arguments(n):
    return bases.FOURIER.matrices, n, n, torch.float32, torch.device("cpu")


def test_matrices_are_made_once():
    cache = bases._Cache(max_bytes=2**20)
    assert cache.matrices(*arguments(8)) is cache.matrices(*arguments(8))
    other = (bases.FOURIER.matrices, 8, 8, torch.float64, torch.device("cpu"))
    assert cache.matrices(*other)[0].dtype == torch.float64


def test_the_cache_stays_within_its_bytes_and_drops_the_oldest():
    cache = bases._Cache(max_bytes=4 * 2 * 4 * 16**2)  # four pairs of 16×16
    pairs = {n: cache.matrices(*arguments(n)) for n in (13, 14, 15, 16)}
    assert cache.matrices(*arguments(13)) is pairs[13]  # used again: no longer the oldest
    cache.matrices(*arguments(17))
    held = [key[1] for key in cache._entries]
    assert 14 not in held
    assert 13 in held
    assert 17 in held
    assert cache._bytes == sum(m.nbytes for pair in cache._entries.values() for m in pair)
    assert cache._bytes <= cache.max_bytes
    for n in range(1, 20):
        cache.matrices(*arguments(n))
    assert cache._bytes <= cache.max_bytes


def test_one_pair_larger_than_the_cache_is_still_held():
    cache = bases._Cache(max_bytes=1)
    assert cache.matrices(*arguments(8)) is cache.matrices(*arguments(8))
    cache.matrices(*arguments(9))
    assert len(cache._entries) == 1


@pytest.mark.parametrize("mode", ["inference", "grad", "vmap", "meta default", "fake"])
def test_whatever_mode_makes_them_first_the_next_caller_is_not_harmed(mode):
    from torch._subclasses.fake_tensor import FakeTensorMode

    n = {"inference": 101, "grad": 103, "vmap": 105, "meta default": 107, "fake": 109}[mode]

    def filtered(x):
        return functional.diff_stride(x, 2.0, path="operator")

    x = torch.randn(2, 1, n)
    if mode == "inference":
        with torch.inference_mode():
            filtered(x)
    elif mode == "grad":
        torch.func.grad(lambda x: filtered(x).sum())(x)
    elif mode == "vmap":
        torch.func.vmap(filtered)(x[:, None])
    elif mode == "meta default":
        with torch.device("meta"):
            filtered(x)
    else:
        with FakeTensorMode() as fake:
            assert filtered(fake.from_tensor(x)).shape == (2, 1, n // 2 + 8)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(filtered(x).square().sum(), x, create_graph=True)
    gradient.square().sum().backward()  # twice, so that the matrices themselves are saved
    assert x.grad.isfinite().all()
    plain = x.detach()
    with FakeTensorMode() as fake:  # and a cache that is filled does not harm a fake mode
        assert filtered(fake.from_tensor(plain)).shape == (2, 1, n // 2 + 8)
