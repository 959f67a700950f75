"""Strides that are found for each example: the same alone and in a batch, within a budget."""

import copy

import pytest
import torch
from torch import nn

from diffstride import (
    AdaptiveStride1d,
    AdaptiveStride2d,
    AdaptiveStride3d,
    StridePredictor,
    cost,
    functional,
)

KINDS = {1: AdaptiveStride1d, 2: AdaptiveStride2d, 3: AdaptiveStride3d}
SIZES = {1: (40,), 2: (20, 17), 3: (9, 8, 12)}


def images(axes=2, examples=7):
    """Noise that is filtered by another stride in each example, so that some are harder."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(examples, 2, *SIZES[axes], dtype=torch.float64, generator=generator)
    strides = 1 + 3 * torch.rand(examples, axes, dtype=torch.float64, generator=generator)
    return functional.diff_stride(x, strides, crop=False, smoothness=1.0)


def layer(axes=2, rest=True, **options):
    """One whose head is no longer what it was before training."""
    torch.manual_seed(0)
    convolution = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[axes]
    pool = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}[axes]
    network = nn.Sequential(convolution(2, 3, 3, padding=1), nn.ReLU(), pool(1), nn.Flatten())
    made = KINDS[axes](2, network if rest else None, **options).double()
    with torch.no_grad():
        made.predictor.head[-1].weight.normal_(std=0.5)
    return made


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_it_starts_at_one_stride_for_all(axes):
    predictor = StridePredictor(2, axes, stride=1.7, min_stride=1.2, max_stride=3.0)
    strides = predictor(torch.randn(5, 2, *SIZES[axes]))
    torch.testing.assert_close(strides, torch.full((5, axes), 1.7))
    strides.sum().backward()
    assert predictor.head[-1].weight.grad.abs().max() > 0
    with torch.no_grad():
        predictor.head[-1].weight.normal_(std=100)
        predictor.head[-1].bias.normal_(std=100)
    strides = predictor(
        torch.randn(200, 2, *SIZES[axes]) * torch.logspace(-2, 2, 200)[(..., *[None] * (axes + 1))]
    )
    assert strides.min().item() == pytest.approx(1.2)
    assert strides.max().item() == pytest.approx(3.0)
    assert predictor(torch.zeros(1, 2, *[1] * axes)).isfinite().all()


def test_a_shared_stride_is_that_of_all_axes():
    predictor = layer(shared=True).predictor
    strides = predictor(images())
    assert torch.equal(strides[:, 0], strides[:, 1])
    assert len(strides[:, 0].unique()) > 1


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_in_eval_mode_no_example_changes_another(axes):
    model, x = layer(axes).eval(), images(axes)
    found = model(x)
    torch.testing.assert_close(found, torch.cat([model(one[None]) for one in x]))
    alone = layer(axes, rest=False).eval()
    outputs = alone(x)
    assert len({y.shape for y in outputs}) > 1
    strides = alone.strides_of(x)
    for one, stride, y in zip(x, strides, outputs, strict=True):
        options = {"convention": "tight", "smoothness": 1.0, "norm": "forward"}
        torch.testing.assert_close(functional.diff_stride(one, stride, **options), y)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_while_training_all_have_one_size_and_strides_of_their_own(axes):
    model, x = layer(axes, rest=False, min_stride=1.3), images(axes)
    model.predictor.eval()  # which stops to note what it has seen
    y = model(x)
    expected = functional.output_size(SIZES[axes], 1.3, convention="tight", smoothness=1.0)
    assert tuple(y.shape[2:]) == expected
    for one, stride, output in zip(x, model.strides_of(x), y, strict=True):
        options = {"convention": "tight", "smoothness": 1.0, "norm": "forward"}
        alone = functional.diff_stride(one, stride, output_size=expected, **options)
        torch.testing.assert_close(alone, output)
    y.square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in model.predictor.parameters())


def test_groups_can_be_trained_too():
    model, x = layer(size_multiple=4), images()
    model.in_groups = True
    model.predictor.eval()  # which stops to note what it has seen
    found = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    expected = [torch.zeros_like(p) for p in model.parameters()]
    for one in x:
        loss = model(one[None]).square().sum()
        for total, gradient in zip(
            expected, torch.autograd.grad(loss, list(model.parameters())), strict=True
        ):
            total += gradient
    torch.testing.assert_close(found, tuple(expected))


def kept(strides):
    return strides.prod(-1).reciprocal().mean()


def test_a_budget_holds_in_the_mean_over_a_batch():
    for budget in (0.1, 0.25, 0.6):
        model, x = layer(budget=budget), images(examples=20)
        strides = model.strides_of(x)
        assert kept(strides).item() == pytest.approx(budget, rel=1e-6)
        assert strides.std(0).min() > 0.01
        # Whatever moves a stride, the budget moves the others back.
        kept(strides).backward()
        for p in model.predictor.parameters():
            assert p.grad.abs().max() < 1e-5


def test_training_within_a_budget_is_one_graph():
    model, x = layer(budget=0.3), images()
    expected = copy.deepcopy(model)(x)
    found = torch.compile(model, backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(found, expected)


def test_the_gradient_of_a_budget_is_that_of_differences():
    model = layer(budget=0.3)

    def strides(logarithms):
        return model._within(logarithms + model._shift_to_budget(logarithms))

    logarithms = torch.rand(4, 2, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(strides, (logarithms,), eps=1e-4, atol=1e-4)


def test_a_budget_that_was_trained_with_stays_in_eval_mode():
    model, x = layer(budget=0.2), images(examples=20)
    for _ in range(100):
        model(x)
    strides = model.eval().strides_of(x)
    assert kept(strides).item() == pytest.approx(0.2, rel=0.01)
    torch.testing.assert_close(model.strides_of(x[:1]), strides[:1])
    again = layer(budget=0.2)
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again.eval().strides_of(x), strides)


def test_easy_examples_cost_less():
    """Counted for one example: the layer, what finds its stride, and all that follows."""
    model = layer(rest=True, stride=2.0).float()
    with torch.no_grad():
        model.predictor.head[-1].weight.zero_()
    macs = {}
    for bias in (-2.0, 2.0):
        with torch.no_grad():
            model.predictor.head[-1].bias.fill_(bias)
        strides = model.eval().strides_of(torch.zeros(1, 2, 20, 17))[0].tolist()
        h, w = functional.output_size((20, 17), strides, convention="tight", smoothness=1.0)
        head = 6 * 16 + 16 * 2
        resampling = 2 * min(20 * 17 * h + 17 * h * w, 20 * 17 * w + 20 * h * w)
        macs[bias] = cost(model, (2, 20, 17)).macs
        assert macs[bias] == head + resampling + 9 * 2 * 3 * h * w
    assert macs[2.0] < macs[-2.0] / 2


def test_what_is_wrong_is_said():
    for options, said in (
        ({"stride": 5.0}, "stride must lie between min_stride=1.0 and max_stride=4.0, got 5.0"),
        ({"min_stride": 0.5}, "min_stride and max_stride must be at least 1, got 0.5"),
        ({"budget": 0.01}, "budget must lie between .* 0.0625 and 1, got 0.01"),
        ({"crop": False}, "output_size and crop=False are not for layers whose sizes are found"),
    ):
        with pytest.raises(ValueError, match=said):
            AdaptiveStride2d(2, **options)
    for wrong in (torch.zeros(2, 20, 17), torch.zeros(0, 2, 20, 17), torch.zeros(2, 3, 20, 17)):
        with pytest.raises(ValueError, match=r"\*spatial\) with 2 channels, 2 spatial axes and at"):
            AdaptiveStride2d(2)(wrong)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_strides_have_all_digits_under_autocast(dtype):
    model = layer(budget=0.2).float().train()
    expected = model.predictor.eval()(images().float().to(dtype))
    model.train()
    with torch.autocast("cpu", dtype):
        strides = model.predictor.eval()(images().to(dtype))
        model.train()(images().to(dtype)).sum().backward()
    assert strides.dtype == torch.float32
    torch.testing.assert_close(strides, expected)


def test_half_precision_has_strides_for_images_without_contrast():
    strides = StridePredictor(2, 2).half()(torch.ones(3, 2, 8, 8, dtype=torch.float16))
    torch.testing.assert_close(strides, torch.full_like(strides, 2.0))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_batch_that_is_not_finite_leaves_the_next_ones_as_they_are(wrong):
    model, x = layer(budget=0.2), images()
    model(torch.cat([x[:1] * wrong, x[1:]]))
    assert all(buffer.isfinite().all() for buffer in model.buffers())
    assert model(x).isfinite().all()


def test_functional_transforms_go_through():
    model, x = layer().eval(), images()
    parameters = dict(model.named_parameters())

    def loss(parameters):
        return torch.func.functional_call(model, parameters, (x,)).square().sum()

    found = torch.func.grad(loss)(parameters)
    expected = torch.autograd.grad(loss(parameters), list(parameters.values()))
    for gradient, one in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(gradient, one)
