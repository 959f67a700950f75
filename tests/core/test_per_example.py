"""Strides of each example's own equal a loop over examples: values, gradients, what is kept."""

from itertools import product

import pytest
import torch

from diffstride import functional
from diffstride.core.per_example import groups_by_size
from diffstride.core.rule import Rule

SIZES = {1: (40,), 2: (17, 12), 3: (8, 9, 7)}
RULES = [
    {"output_size": 5},
    {"crop": False},
    {"crop": False, "smoothness": 0.0},
    {"smoothness": 0.0},
    {"convention": "tight", "smoothness": 1.0, "norm": "forward"},
    {"smoothness": 1.5, "size_multiple": 3, "norm": "backward"},
    {"convention": "symmetric", "smoothness": 0.5, "window": "raised_cosine"},
]


def example(axes, examples=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(examples, 3, *SIZES[axes], dtype=torch.float64, generator=generator)
    strides = 1 + 4 * torch.rand(examples, axes, dtype=torch.float64, generator=generator)
    strides[0] = strides[1]  # two examples come out at one size whatever the rule
    return x, strides


def loss(outputs):
    """A number that has another gradient for each sample of each example."""
    return sum((y * torch.arange(y.numel()).reshape(y.shape).sin()).sum() for y in outputs)


@pytest.mark.parametrize("basis", ["fourier", "dct"])
@pytest.mark.parametrize("path", ["operator", "fft"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_they_equal_a_loop_over_examples(axes, path, basis):
    for rule in RULES:
        options = {"path": path, "basis": basis, **rule}
        if "output_size" in rule:
            options["output_size"] = (rule["output_size"],) * axes
        x, strides = (t.requires_grad_() for t in example(axes))
        found = functional.diff_stride(x, strides, **options)
        examples = zip(x, strides, strict=True)
        expected = [functional.diff_stride(*one, **options) for one in examples]
        assert [y.shape for y in found] == [y.shape for y in expected]
        for y, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(y, wanted, rtol=1e-10, atol=1e-10)
        wanted = torch.autograd.grad(loss(expected), (x, strides))
        for gradient, one in zip(
            torch.autograd.grad(loss(found), (x, strides)), wanted, strict=True
        ):
            torch.testing.assert_close(gradient, one, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("path", ["operator", "fft"])
def test_their_gradients_have_gradients(path):
    x = torch.randn(2, 1, 7, 8, dtype=torch.float64, requires_grad=True)
    strides = torch.tensor([[2.1, 1.7], [1.3, 2.9]], dtype=torch.float64, requires_grad=True)

    def function(x, strides):
        options = {"output_size": (6, 5), "convention": "tight", "smoothness": 1.5}
        return functional.diff_stride(x, strides, path=path, **options)

    torch.autograd.gradcheck(function, (x, strides))
    torch.autograd.gradgradcheck(function, (x, strides))


def kept_bytes(x, strides, **options):
    """The bytes of the memory that is kept for a backward pass, and of what comes out."""
    saved = {}

    def note(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y = functional.diff_stride(x, strides, **options)
    return sum(storage.nbytes() for storage in saved.values()), sum(one.nbytes for one in y)


@pytest.mark.parametrize("basis", ["fourier", "dct"])
@pytest.mark.parametrize("path", ["operator", "fft"])
def test_the_output_and_the_strides_are_all_that_is_kept(path, basis):
    """Also where there is one channel, and a window is as long as the example itself."""
    for channels, output_size in product([1, 8], [100, None]):
        x = torch.randn(32, channels, 400, requires_grad=True)
        strides = (1.5 + 3 * torch.rand(32, 1)).requires_grad_()
        kept, made = kept_bytes(x, strides, output_size=output_size, path=path, basis=basis)
        # Groups have strides of their own beside those that were given.
        assert 0.9 * made < kept <= 1.05 * made + 2 * strides.nbytes
    x = torch.randn(16, 1, 40, 36, requires_grad=True)
    strides = (2 + torch.rand(16, 2)).requires_grad_()
    if path == "operator":
        kept, made = kept_bytes(x, strides, output_size=(16, 15), basis=basis)
        assert 0.9 * made < kept <= 1.05 * made + strides.nbytes


def test_examples_of_one_size_are_done_together():
    groups = groups_by_size((32,), [(2.0,), (4.0,), (2.05,)], Rule(1.0, convention="tight"))
    assert groups == {(8,): [1], (15,): [2], (16,): [0]}
    groups = groups_by_size((32,), [(2.0,), (4.0,), (2.05,)], Rule(1.0, size_multiple=8))
    assert groups == {(16,): [1], (24,): [0, 2]}


def test_a_padded_batch_has_lengths():
    x, strides = example(2)
    outputs = functional.diff_stride(x, strides, convention="tight", smoothness=1.0)
    batch, sizes = functional.padded(outputs)
    assert batch.shape[2:] == tuple(sizes.amax(0))
    assert len({tuple(size) for size in sizes.tolist()}) > 2
    for row, (h, w), y in zip(batch, sizes, outputs, strict=True):
        assert torch.equal(row[:, :h, :w], y)
        assert row.abs().sum() == pytest.approx(y.abs().sum().item())
    with pytest.raises(ValueError, match="no example to pad"):
        functional.padded([])
    for wrong in ([1, 3], [2, 3, 3]), ([2, 3], [2, 3, 3]):
        with pytest.raises(ValueError, match="as many channels and axes in each, got"):
            functional.padded([torch.ones(shape) for shape in wrong])


def test_a_padded_batch_has_gradients():
    x, strides = example(2)
    outputs = functional.diff_stride(x.requires_grad_(), strides, convention="tight")
    (padded,) = torch.autograd.grad(functional.padded(outputs)[0].square().sum(), x)
    outputs = functional.diff_stride(x, strides, convention="tight")
    (each,) = torch.autograd.grad(sum(y.square().sum() for y in outputs), x)
    torch.testing.assert_close(padded, each)


@pytest.mark.parametrize("path", ["operator", "fft"])
def test_functional_transforms_go_through(path):
    x, strides = example(2)
    options = {"output_size": (6, 7), "path": path}

    def loss(x, strides):
        return functional.diff_stride(x, strides, **options).square().sum()

    found = torch.func.grad(loss, argnums=(0, 1))(x, strides)
    x, strides = x.detach().requires_grad_(), strides.detach().requires_grad_()
    expected = torch.autograd.grad(loss(x, strides), (x, strides))
    for gradient, one in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, one)
    both = torch.stack([x, 2 * x])
    mapped = torch.func.vmap(lambda x: functional.diff_stride(x, strides, **options))(both)
    torch.testing.assert_close(mapped[1], functional.diff_stride(2 * x, strides, **options))


def test_half_precision_other_layouts_and_empty_batches():
    x, strides = example(2)
    expected = functional.diff_stride(x, strides, output_size=(6, 7))
    y = functional.diff_stride(x.bfloat16(), strides, output_size=(6, 7))
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), expected, atol=0.1, rtol=0.05)
    last = x.to(memory_format=torch.channels_last)
    y = functional.diff_stride(last, strides, output_size=(6, 7))
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, expected)
    assert functional.diff_stride(x[:0], strides[:0], output_size=(6, 7)).shape == (0, 3, 6, 7)
    assert functional.diff_stride(x[:0], strides[:0]) == []


def test_what_is_wrong_is_said():
    x, strides = example(2)
    for wrong in (strides[:3], strides[:, :1]):
        with pytest.raises(ValueError, match=r"must be \(batch, axes\) for an input of"):
            functional.diff_stride(x, wrong)
    with pytest.raises(ValueError, match=r"at least 1, got 0\.5"):
        functional.diff_stride(x, strides * 0 + 0.5, output_size=(6, 7))
