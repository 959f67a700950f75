"""Every difference from the released code has a name, and there is no other."""

import hashlib
import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from diffstride import functional
from tests import released

DATA = Path(__file__).parent / "golden"
CASES = json.loads((DATA / "released.json").read_text())
LEARNABLE = [case for case in CASES if case["layer"] == "DiffStride"]


@pytest.fixture(scope="module")
def recorded():
    with np.load(DATA / "released.npz") as file:
        return dict(file)


def inputs(case):
    rng = np.random.default_rng(case["seed"])
    x = rng.standard_normal((2, 3, *case["size"])).astype(np.float32)
    g = rng.standard_normal((2, 3, *case["output_size"])).astype(np.float32)
    digest = hashlib.sha256(x.tobytes() + g.tobytes()).hexdigest()
    assert digest == case["sha256"], "numpy draws other numbers than those recorded"
    return (torch.tensor(a, dtype=torch.float64) for a in (x, g))


def arguments(case):
    x, _ = inputs(case)
    return x, torch.tensor(case["stride"], dtype=torch.float64).expand(2)


def restated(case, x, stride, quirks):
    if case["layer"] == "SpectralPool":
        return released.spectral_pool(x, tuple(stride.tolist()), quirks=quirks)
    return released.diff_stride(
        x,
        stride,
        case["smoothness"],
        shared=len(case["stride"]) == 1,
        crop=case["crop"],
        quirks=quirks,
    )


def ours(case, x, stride):
    if case["layer"] == "SpectralPool":
        return functional.spectral_pool(x, tuple(stride.tolist()))
    return functional.diff_stride(x, stride, smoothness=case["smoothness"], crop=case["crop"])


def with_gradients(function, case, g=None):
    """Output, input gradient, and the gradient of each axis' stride, shared or not."""
    x, recorded_g = inputs(case)
    x.requires_grad_()
    stride = torch.tensor(case["stride"], dtype=torch.float64).expand(2).clone().requires_grad_()
    y = function(case, x, stride)
    if g is None:
        g = recorded_g
    (y * g).sum().backward()
    return y.detach(), x.grad, stride.grad


def relative(actual, expected, scale=0.0):
    error = np.linalg.norm(np.asarray(actual) - expected)
    return error / max(np.linalg.norm(expected), scale) if error else 0.0


def test_all_recorded_cases_are_here():
    assert len([c for c in CASES if c["id"].startswith("c")]) == 62
    assert len([c for c in CASES if c["id"].startswith("e")]) == 21


def matches(case, recorded, quirks):
    name = case["id"]
    if list(restated(case, *arguments(case), quirks).shape[2:]) != case["output_size"]:
        return False
    y, grad_x, grad_axes = with_gradients(
        lambda case, x, stride: restated(case, x, stride, quirks), case
    )
    errors = [
        relative(y, recorded[f"{name}_y"]),
        relative(grad_x, recorded[f"{name}_grad_x"]),
    ]
    if grad_axes is not None:
        # A shared stride's gradient is a sum over the axes, recorded in float32: its rounding is
        # that of the parts, which may cancel.
        parts = grad_axes.norm().item()
        total = grad_axes.sum(0, keepdim=True) if len(case["stride"]) == 1 else grad_axes
        errors.append(relative(total, recorded[f"{name}_grad_stride"], scale=parts))
    return max(errors) < 1e-5


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_with_every_quirk_the_released_code_is_reproduced(case, recorded):
    assert matches(case, recorded, released.RELEASED)


@pytest.mark.parametrize("quirk", [field.name for field in fields(released.Quirks)])
def test_without_any_one_quirk_it_is_not(quirk, recorded):
    quirks = replace(released.RELEASED, **{quirk: False})
    assert not all(matches(case, recorded, quirks) for case in CASES)


@pytest.mark.parametrize("case", LEARNABLE, ids=lambda case: case["id"])
def test_the_released_layer_writes_its_floor_into_the_stride(case, recorded):
    x, stride = arguments(case)
    shared = len(case["stride"]) == 1
    written = released.floored(stride, x.shape[2:], case["smoothness"], shared)
    expected = recorded[f"{case['id']}_stride_after"]
    np.testing.assert_array_equal(written[: len(expected)].numpy().astype(np.float32), expected)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_without_quirks_it_is_our_layer(case):
    x, stride = arguments(case)
    g = torch.randn(ours(case, x, stride).shape, dtype=torch.float64)
    actual = with_gradients(ours, case, g)
    expected = with_gradients(
        lambda case, x, stride: restated(case, x, stride, released.OURS), case, g
    )
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-10, atol=1e-11)
