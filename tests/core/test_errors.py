"""Wrong input gets an error that names the argument, what was given and what was expected."""

import math

import pytest
import torch

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStride3d,
    DiffStrideConv2d,
    DiffUpsample1d,
    DiffUpsample2d,
    SpectralPool1d,
    SpectralPool2d,
    SpectralUpsample2d,
    functional,
)

IMAGE = torch.zeros(1, 1, 8, 8)

LAYERS = [
    (DiffStride2d, {"stride": 0.99}, r"stride must be at least 1, got 0\.99"),
    (DiffStride2d, {"stride": -2}, r"stride must be at least 1, got -2"),
    (DiffStride2d, {"stride": (2, 0.5)}, r"stride must be at least 1, got 0\.5 in \(2\.0, 0\.5\)"),
    (DiffStride2d, {"stride": (0.5, 0.5)}, r"stride must be at least 1"),
    (DiffStride2d, {"stride": math.inf}, r"stride must be finite, got inf"),
    (DiffStride2d, {"stride": (2, math.nan)}, r"stride must be finite, got nan"),
    (DiffStride2d, {"stride": (2,)}, r"stride must be one number or 2 .* got 1: \(2\.0,\)"),
    (DiffStride2d, {"stride": (2, 2, 2)}, r"stride must be one number or 2 .* got 3"),
    (DiffStride1d, {"stride": (2, 2)}, r"stride must be one number or 1 .* got 2"),
    (DiffStride3d, {"stride": []}, r"stride must be one number or 3 .* got 0"),
    (DiffStride2d, {"stride": (2, 3), "shared": True}, r"stride must be the same .*shared=True"),
    (DiffStride2d, {"smoothness": -1}, r"smoothness must be finite and at least 0, got -1"),
    (DiffStride2d, {"smoothness": math.inf}, r"smoothness must be finite .* got inf"),
    (DiffStride2d, {"smoothness": math.nan}, r"smoothness must be finite .* got nan"),
    (DiffStride2d, {"norm": "unitary"}, r"norm must be one of ortho.*got 'unitary'"),
    (DiffStride2d, {"convention": "tf"}, r"convention must be one of paper.*got 'tf'"),
    (DiffStride2d, {"path": "gpu"}, r"path must be one of auto.*got 'gpu'"),
    (DiffStride2d, {"min_stride": 0.5}, r"min_stride must be at least 1, got 0\.5"),
    (DiffStride2d, {"min_stride": math.inf}, r"min_stride must be finite"),
    (DiffStride2d, {"min_stride": 3, "max_stride": 2}, r"max_stride must be at least min_stride"),
    (DiffStride2d, {"max_stride": math.nan}, r"max_stride must be at least min_stride"),
    (DiffStride2d, {"stride": 5, "max_stride": 4}, r"stride must be from min_stride to max_stride"),
    (DiffStride2d, {"stride": 1, "min_stride": 1.5}, r"stride must be from min_stride"),
    (SpectralPool2d, {}, r"exactly one of stride and output_size .* stride=None"),
    (SpectralPool2d, {"stride": 2, "output_size": 4}, r"exactly one of stride and output_size"),
    (SpectralPool2d, {"stride": (2, 0.5)}, r"stride must be at least 1, got 0\.5"),
    (SpectralPool2d, {"stride": (2, 2, 2)}, r"stride must be one number or 2"),
    (SpectralPool2d, {"output_size": 0}, r"output_size must be whole numbers of at least 1"),
    (SpectralPool2d, {"output_size": (4, 2.5)}, r"output_size must be whole numbers"),
    (SpectralPool2d, {"output_size": math.inf}, r"output_size must be whole numbers"),
    (SpectralPool2d, {"output_size": (4, 4, 4)}, r"output_size must be one number or 2"),
    (SpectralPool2d, {"stride": 2, "norm": "none"}, r"norm must be one of"),
    (SpectralPool2d, {"stride": 2, "path": "none"}, r"path must be one of"),
    (DiffUpsample2d, {"stride": 0.5}, r"stride must be at least 1, got 0\.5"),
    (DiffUpsample2d, {"stride": math.nan}, r"stride must be finite, got nan"),
    (DiffUpsample1d, {"stride": (2, 2)}, r"stride must be one number or 1 .* got 2"),
    (DiffUpsample2d, {"smoothness": -1}, r"smoothness must be finite and at least 0, got -1"),
    (DiffUpsample2d, {"convention": "tf"}, r"convention must be one of paper.*got 'tf'"),
    (DiffUpsample2d, {"output_size": 0}, r"output_size must be whole numbers of at least 1"),
    (DiffUpsample2d, {"min_stride": 3, "max_stride": 2}, r"max_stride must be at least min_stride"),
    (DiffUpsample2d, {"stride": (2, 3), "shared": True}, r"stride must be the same .*shared=True"),
    (SpectralUpsample2d, {}, r"exactly one of scale and output_size .* scale=None"),
    (SpectralUpsample2d, {"scale": 2, "output_size": 4}, r"exactly one of scale and output_size"),
    (SpectralUpsample2d, {"scale": (2, 0.5)}, r"scale must be at least 1, got 0\.5"),
    (SpectralUpsample2d, {"scale": (2, 2, 2)}, r"scale must be one number or 2"),
    (SpectralUpsample2d, {"output_size": (4, 2.5)}, r"output_size must be whole numbers"),
    (SpectralUpsample2d, {"scale": 2, "norm": "none"}, r"norm must be one of"),
]


@pytest.mark.parametrize(("layer", "arguments", "message"), LAYERS)
def test_layers_are_not_made_from_wrong_arguments(layer, arguments, message):
    with pytest.raises(ValueError, match=message):
        layer(**arguments)


@pytest.mark.parametrize("stride", ["2", None, object(), (2, "a"), [[2, 2]]])
def test_a_stride_that_is_no_number(stride):
    with pytest.raises(TypeError, match="stride must be a number or one number per axis, got"):
        functional.diff_stride(IMAGE, stride)


CALLS = [
    (DiffStride2d(), torch.zeros(8, 8), ValueError, r"2 spatial axes.*got 2 dim.*\(8, 8\)"),
    (DiffStride2d(), torch.zeros(1, 1, 1, 8, 8), ValueError, r"2 spatial axes.*got 5 dimensions"),
    (DiffStride1d(), torch.zeros(1, 1, 8, 8), ValueError, r"1 spatial axes.*got 4 dimensions"),
    (SpectralPool1d(2), torch.zeros(1, 1, 8, 8), ValueError, r"1 spatial axes.*got 4 dimensions"),
    (SpectralPool2d(2), torch.zeros(8), ValueError, r"2 spatial axes.*got 1 dimensions"),
    (
        DiffStride2d(),
        torch.zeros(1, 1, 0, 8),
        ValueError,
        r"at least 1 on every axis, got \(0, 8\)",
    ),
    (SpectralPool2d(2), torch.zeros(1, 1, 8, 0), ValueError, r"at least 1 on every axis"),
    (SpectralPool2d(output_size=1), torch.zeros(1, 1, 0, 8), ValueError, r"at least 1 on every"),
    (DiffStride2d(), torch.zeros(1, 1, 8, 8, dtype=torch.complex64), TypeError, r"complex64"),
    (DiffStride2d(), torch.zeros(1, 1, 8, 8, dtype=torch.int64), TypeError, r"floating.*int64"),
    (SpectralPool2d(2), torch.zeros(1, 1, 8, 8, dtype=torch.uint8), TypeError, r"floating.*uint8"),
    (SpectralPool2d(2), [[1.0]], TypeError, r"input must be a tensor, got list"),
    (DiffStride2d(), [[1.0]], TypeError, r"input must be a tensor, got list"),
    (DiffStride2d(), torch.zeros(8), ValueError, r"2 spatial axes, got 1 dimensions"),
    (DiffStride2d().eval(), torch.zeros(8), ValueError, r"2 spatial axes, got 1 dimensions"),
    (DiffStrideConv2d(1, 1, 3), torch.zeros(8), ValueError, r"2 spatial axes, got 1 dimensions"),
    (DiffStrideConv2d(1, 1, 3), None, TypeError, r"input must be a tensor, got NoneType"),
    (SpectralPool2d(output_size=(9, 8)), IMAGE, ValueError, r"not be larger .*\(9, 8\) for \(8, 8"),
    (SpectralUpsample2d(output_size=7), IMAGE, ValueError, r"not be smaller .*\(7, 7\) for \(8, 8"),
    (DiffUpsample2d(output_size=(8, 7)), IMAGE, ValueError, r"smaller .* layers for the way down"),
    (DiffUpsample2d(), torch.zeros(8, 8), ValueError, r"2 spatial axes.*got 2 dim.*\(8, 8\)"),
    (DiffUpsample2d(), torch.zeros(1, 1, 0, 8), ValueError, r"at least 1 on every axis"),
    (DiffUpsample2d(), torch.zeros(1, 1, 8, 8).int(), TypeError, r"floating.*int32"),
    (SpectralUpsample2d(2), torch.zeros(8), ValueError, r"2 spatial axes.*got 1 dimensions"),
    (SpectralUpsample2d(2), [[1.0]], TypeError, r"input must be a tensor, got list"),
    (DiffStride2d().up(), IMAGE, RuntimeError, r"has not run yet: in every forward pass, call it"),
]


@pytest.mark.parametrize(("layer", "x", "error", "message"), CALLS)
def test_layers_refuse_wrong_inputs(layer, x, error, message):
    with pytest.raises(error, match=message):
        layer(x)


FUNCTIONS = [
    (lambda: functional.diff_stride(IMAGE, 0.5), ValueError, "stride must be at least 1, got 0.5"),
    (lambda: functional.diff_stride(IMAGE, (2, 2, 2, 2)), ValueError, "4 spatial axes"),
    (lambda: functional.diff_stride(IMAGE, ()), ValueError, "0 spatial axes"),
    (lambda: functional.diff_stride(IMAGE[0, 0], 2), ValueError, "pass one number per axis"),
    (lambda: functional.diff_stride(IMAGE, 2, smoothness=-1), ValueError, "smoothness"),
    (lambda: functional.diff_stride(IMAGE, 2, norm="x"), ValueError, "norm must be one of"),
    (lambda: functional.diff_stride(IMAGE, 2, path="x"), ValueError, "path must be one of"),
    (lambda: functional.diff_stride(IMAGE, 2, convention="x"), ValueError, "convention must be"),
    (
        lambda: functional.diff_stride(IMAGE, torch.tensor([2.0, math.nan])),
        ValueError,
        "stride must be finite, got nan",
    ),
    (
        lambda: functional.diff_stride(IMAGE, torch.empty(2, device="meta")),
        TypeError,
        "stride must have values that can be read",
    ),
    (lambda: functional.spectral_pool(IMAGE), ValueError, "exactly one of stride and output_size"),
    (lambda: functional.spectral_pool(IMAGE, output_size=9), ValueError, "must not be larger"),
    (lambda: functional.spectral_pool(IMAGE, output_size=0), ValueError, "output_size must be"),
    (lambda: functional.spectral_resize(IMAGE, 0), ValueError, "output_size must be whole"),
    (lambda: functional.spectral_resize(IMAGE, (9, 8, 7, 6)), ValueError, "4 spatial axes"),
    (lambda: functional.spectral_resize(IMAGE, None), TypeError, "output_size must be a number"),
    (lambda: functional.spectral_resize(IMAGE, 9, norm="x"), ValueError, "norm must be one of"),
    (lambda: functional.diff_upsample(IMAGE, 0.5), ValueError, "stride must be at least 1, got"),
    (lambda: functional.diff_upsample(IMAGE, 2, output_size=7), ValueError, "not be smaller"),
    (lambda: functional.diff_upsample(IMAGE, 2, smoothness=-1), ValueError, "smoothness"),
    (lambda: functional.diff_upsample(IMAGE, 2, R=1), TypeError, "argument 'R'"),
    (lambda: functional.diff_upsample(IMAGE, 2, crop=False), ValueError, "is for the way down"),
    (lambda: functional.diff_upsample(IMAGE, 2, way="down"), TypeError, "argument 'way'"),
    (lambda: functional.output_size((8, 8), 0), ValueError, "stride must be at least 1"),
    (lambda: functional.output_size((8, 0), 2), ValueError, "at least 1 on every axis"),
    (lambda: functional.output_size((8, 8), (2, 2, 2)), ValueError, "stride must be one number"),
    (lambda: functional.output_size(8, 2, smoothness=-1), ValueError, "smoothness"),
    (lambda: functional.window(8, 0.5), ValueError, "stride must be at least 1"),
    (lambda: functional.window(0, 2), ValueError, "at least 1 on every axis"),
    (lambda: functional.window(8, 2, smoothness=math.nan), ValueError, "smoothness"),
    (lambda: DiffStride2d().output_size((8, 8, 8)), ValueError, "size must have 2 spatial axes"),
    (lambda: DiffStride2d().output_size(8), ValueError, "size must have 2 spatial axes"),
    (lambda: SpectralPool2d(2).output_size((8,)), ValueError, "size must have 2 spatial axes"),
]


@pytest.mark.parametrize(("call", "error", "message"), FUNCTIONS)
def test_functions_refuse_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
