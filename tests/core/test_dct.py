"""The basis of the DCT: an axis that goes on as its mirror image, in everything that knows bases.

That each number is right is in test_exact.py and test_up_exact.py, whose cases have both bases.
"""

import math
from itertools import product

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.func import jacrev, jvp

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    DiffStride3d,
    DiffStrideConv1d,
    DiffStrideConv2d,
    DiffUpsample1d,
    SpectralPool1d,
    SpectralPool2d,
    SpectralUpsample2d,
    convert,
    cost,
    export_onnx,
    freeze,
    functional,
    models,
    stride_table,
)
from diffstride.core import bases, fft
from diffstride.layers.block_products import BlockProducts, MirroredBlockProducts

# torch uses scripts for some derivatives in forward mode, and warns whoever traces by itself.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit")

PATHS = ("operator", "fft")
CONVENTIONS = ("paper", "symmetric", "tight")
NORMS = ("ortho", "forward", "backward")
ADJOINT = {"ortho": "ortho", "forward": "backward", "backward": "forward"}
DCT = {"basis": "dct"}
needs_exporter = pytest.mark.skipif(fft.OLD_TORCH, reason="torch 2.6 can't export")


def mirrored(x):
    return torch.cat([x, x.flip(-1)], -1)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 16, 31])
def test_it_is_what_the_fourier_basis_makes_of_the_axis_and_its_mirror_image(size, path):
    """Of twice the samples, and each of them half a sample later: by numpy's FFT."""
    x = torch.randn(3, size, dtype=torch.float64)
    for kept in range(1, 2 * size + 2):
        spectrum = np.fft.fft(mirrored(x).numpy())
        highest = min(size, kept)
        waves = np.arange(1 - highest, highest)
        turn = np.exp(1j * np.pi * waves * (0.5 / kept - 0.5 / size))
        made = np.exp(1j * np.pi * np.outer(waves, np.arange(kept)) / kept)
        expected = (spectrum[:, waves] * turn) @ made / (2 * size)
        found = functional.spectral_resize(x, (kept,), norm="forward", path=path, **DCT)
        np.testing.assert_allclose(found.numpy(), expected.real, rtol=0, atol=1e-12)
        np.testing.assert_allclose(expected.imag, 0, rtol=0, atol=1e-12)


def test_sizes_do_not_depend_on_the_basis():
    for n, s, convention in product([1, 2, 3, 8, 31, 32], [1.0, 1.3, 2.0, 5.0, 40.0], CONVENTIONS):
        x = torch.rand(1, 1, n)
        options = {"smoothness": 1.5, "convention": convention}
        expected = functional.output_size((n,), s, **options)
        for path in PATHS:
            y = functional.diff_stride(x, s, path=path, **options, **DCT)
            assert tuple(y.shape[2:]) == expected
            assert y.isfinite().all()
        up = functional.diff_upsample(x, s, **options, **DCT)
        assert up.shape == functional.diff_upsample(x, s, **options).shape


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("norm", NORMS)
def test_one_sample_and_constants_keep_what_the_norm_says(norm, path):
    for size, kept in [(1, 1), (1, 5), (2, 1), (9, 1), (9, 4), (4, 9)]:
        gain = {"ortho": math.sqrt(size / kept), "forward": 1.0, "backward": size / kept}[norm]
        x = torch.full((2, size), 3.0, dtype=torch.float64, requires_grad=True)
        y = functional.spectral_resize(x, (kept,), norm=norm, path=path, **DCT)
        torch.testing.assert_close(y, torch.full_like(y, 3 * gain))
    empty = functional.diff_stride(torch.zeros(0, 2, 9), 2.0, path=path, norm=norm, **DCT)
    assert empty.shape == (0, 2, 9)  # ⌊9/2 + 8⌋ is more than there is
    assert functional.diff_stride(torch.zeros(0, 9, 20), 5.0, path=path, **DCT).shape[2] == 12


def test_the_window_has_half_frequencies():
    """f in periods per axis, as in the other basis: at whole ones both say the same."""
    for convention in CONVENTIONS:
        options = {"smoothness": 3.0, "convention": convention}
        halves = functional.window(40, 2.7, **options, **DCT)
        assert len(halves) == functional.output_size((40,), 2.7, **options)[0]
        whole = functional.window(40, 2.7, **options)
        shared = min(len(whole), len(halves[::2]))
        torch.testing.assert_close(halves[::2][:shared], whole[:shared])
        assert halves.diff().max() <= 0


def test_a_tight_window_of_one_frequency_is_enough_to_learn():
    """As in the Fourier basis: the highest function that is kept always lies within it."""
    for size, stride in product(range(4, 30), [1.0, 1.01, 1.5, 1.9, 2.0]):
        x = torch.randn(1, 1, size, dtype=torch.float64)
        s = torch.tensor([stride], dtype=torch.float64, requires_grad=True)
        y = functional.diff_stride(x, s, smoothness=1.0, convention="tight", **DCT)
        y.square().sum().backward()
        assert s.grad.item() < 0


def test_both_ends_of_a_slope_stay_apart():
    """The Fourier basis joins them, and what lies at one end is felt at the other."""
    slope = torch.linspace(0, 1, 64, dtype=torch.float64)[None]
    options = {"output_size": (16,), "norm": "forward"}
    ends = torch.arange(16)[[0, -1]] * 4 + 1.5  # where 16 samples of a mirrored axis lie
    by_dct = functional.spectral_pool(slope, **options, **DCT)[0, [0, -1]]
    assert (by_dct - ends / 63).abs().max() < 0.01
    by_fourier = functional.spectral_pool(slope, **options)[0, [0, -1]]
    assert (by_fourier - ends / 63).abs().max() > 0.3

    impulse = torch.zeros(1, 64, dtype=torch.float64)
    impulse[0, 2] = 1
    far = functional.spectral_pool(impulse, **options, **DCT)[0, -3:].abs().max()
    assert far < functional.spectral_pool(impulse, **options)[0, -3:].abs().max() / 3


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("norm", NORMS)
def test_the_way_up_is_inverse_and_adjoint_without_exception(norm, path):
    for small, large in [((1,), (4,)), ((8,), (8,)), ((8,), (15,)), ((6, 7), (12, 9))]:
        g = torch.randn(2, 2, *small, dtype=torch.float64)
        up = functional.spectral_resize(g, large, norm=norm, path=path, **DCT)
        back = functional.spectral_pool(up, output_size=small, norm=norm, path=path, **DCT)
        torch.testing.assert_close(back, g, rtol=0, atol=1e-12)
        x = torch.zeros(2, 2, *large, dtype=torch.float64, requires_grad=True)
        options = {"norm": ADJOINT[norm], "path": path, **DCT}
        functional.spectral_pool(x, output_size=small, **options).backward(g)
        torch.testing.assert_close(x.grad, up, rtol=0, atol=1e-12)


def test_axes_can_be_swapped():
    x = torch.randn(1, 2, 12, 19, dtype=torch.float64)
    options = {"convention": "symmetric", "smoothness": 1.0, **DCT}
    y = functional.diff_stride(x, (1.7, 3.0), **options)
    torch.testing.assert_close(functional.diff_stride(x.mT, (3.0, 1.7), **options).mT, y)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_derivatives_of_every_order_and_mode(path):
    options = {"smoothness": 1.5, "convention": "symmetric", "path": path, **DCT}
    x = torch.randn(1, 2, 7, 8, dtype=torch.float64, requires_grad=True)
    s = torch.tensor([2.1, 1.7], dtype=torch.float64, requires_grad=True)
    up = torch.randn(1, 1, 7, 8, dtype=torch.float64, requires_grad=True)
    for function, given in ((functional.diff_stride, x), (functional.diff_upsample, up)):
        torch.autograd.gradgradcheck(lambda x, s, f=function: f(x, s, **options), (given, s))

    def down(x, s):
        return functional.diff_stride(x, s, **options)

    dx, ds = torch.randn_like(x), torch.randn_like(s)
    _, change = jvp(down, (x, s), (dx, ds))
    by_x, by_s = jacrev(down, argnums=(0, 1))(x, s)
    torch.testing.assert_close(change, (by_x * dx).flatten(-4).sum(-1) + by_s @ ds)


def test_the_fft_keeps_no_more_than_comes_out():
    saved = []

    def note(tensor):
        saved.append(tensor.untyped_storage())
        return tensor

    x = torch.randn(2, 3, 4000, requires_grad=True)
    stride = torch.tensor([4.0], requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y = functional.diff_stride(x, stride, path="fft", **DCT)
    kept = sum(nbytes for nbytes in {s.data_ptr(): s.nbytes() for s in saved}.values())
    assert y.nbytes <= kept <= 2 * y.nbytes  # the window in float64 is some of it
    many = torch.randn(64, 3, 4000, requires_grad=True)
    saved.clear()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y = functional.diff_stride(many, stride, path="fft", **DCT)
    kept = sum(nbytes for nbytes in {s.data_ptr(): s.nbytes() for s in saved}.values())
    assert kept <= 1.05 * y.nbytes


@pytest.mark.slow
def test_a_compiled_layer_and_a_traced_one():
    layer = nn.Sequential(DiffStride2d((2.0, 1.5), path="fft", smoothness=1.0, **DCT)).eval()
    x = torch.randn(2, 3, 16, 15)
    for follow in (
        torch.compile(layer, backend="aot_eager", fullgraph=True),
        torch.jit.trace(layer, torch.randn_like(x)),
    ):
        torch.testing.assert_close(follow(x), layer(x))


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_convolution_is_the_same_in_every_order(kernel):
    """By taps too; only the spectrum is for a basis that wraps round, and is never chosen."""
    x = torch.randn(2, 3, 14, 15, dtype=torch.float64)
    found = []
    for order in ("after", "before", "taps", "auto"):
        torch.manual_seed(0)
        padding = {"padding": kernel // 2, "padding_mode": "circular"}
        layer = DiffStrideConv2d(3, 4, kernel, 2.3, order=order, **padding, **DCT).double()
        y = layer(x)
        y.square().sum().backward()
        found.append([y, layer.stride_owner.stride.grad, layer.weight.grad])
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])
    layer.order = "spectral"
    with pytest.raises(ValueError, match=r"a basis that wraps round, .* basis='dct'"):
        layer(x)


def test_cost_counts_what_is_done():
    """As in the Fourier basis: products of matrices, or N·log₂N where the axis is long."""
    for size in ((40,), (4000,), (20, 30)):
        make = DiffStride1d if len(size) == 1 else DiffStride2d
        by_dct, by_fourier = (cost(make(2.3, basis=b), (3, *size)) for b in ("dct", "fourier"))
        assert by_dct.macs == by_fourier.macs > 0
        assert cost(freeze(make(2.3, **DCT), (3, *size)), (3, *size)).macs == by_dct.macs


SIZES = [(1, 1), (2, 1), (1, 3), (7, 5), (5, 9), (64, 64), (101, 31), (997, 251), (4096, 1025)]


@pytest.mark.parametrize(("size", "kept"), [*SIZES, (16000, 4007)])
def test_small_products_are_the_fft(size, kept):
    x, weights = torch.randn(2, size, 3, dtype=torch.float64), torch.rand(kept).double()
    expected = fft.apply_cosines(x, -2, kept, weights)
    layer = MirroredBlockProducts(size, kept, weights)
    close = {"rtol": 0, "atol": 3e-7 * max(1.0, float(expected.abs().max()))}
    torch.testing.assert_close(layer(x, dim=-2), expected, **close)
    torch.testing.assert_close(layer(x.mT, dim=-1).mT, expected, **close)
    single = MirroredBlockProducts(size, kept, weights.float())(x.float(), dim=-2)
    assert (single - expected).abs().max() < 2e-6 * expected.abs().max()


LAYERS = {
    "1d": (lambda: DiffStride1d(2.5, **DCT), (3, 40)),
    "2d": (lambda: DiffStride2d((2.0, 1.5), norm="forward", convention="tight", **DCT), (3, 24, 9)),
    "3d": (lambda: DiffStride3d(2.0, smoothness=1.0, convention="symmetric", **DCT), (2, 7, 8, 9)),
    "long": (lambda: DiffStride1d(4.0, **DCT), (2, 16000)),
    "long and not": (lambda: SpectralPool2d(3.1, **DCT), (2, 500, 20)),
    "convolution": (lambda: DiffStrideConv2d(3, 4, 3, 1.7, padding=1, **DCT), (3, 20, 21)),
    "long convolution": (lambda: DiffStrideConv1d(3, 4, 5, 4.0, padding=2, **DCT), (3, 2000)),
    "up": (lambda: DiffUpsample1d(1.7, **DCT), (3, 30)),
    "up by fft": (lambda: SpectralUpsample2d(1.7, **DCT), (3, 400, 3)),
}


@pytest.mark.slow
@needs_exporter
@pytest.mark.filterwarnings("ignore:.*times as long in the file")
@pytest.mark.parametrize("name", LAYERS)
def test_frozen_and_exported_layers_are_the_layer(name, tmp_path):
    make, size = LAYERS[name]
    torch.manual_seed(0)
    layer = nn.Sequential(make(), nn.ReLU()).eval()
    x = torch.randn(2, *size)
    with torch.no_grad():
        expected = layer(x)
        close = {"rtol": 0, "atol": 1e-5 * float(expected.abs().max())}
        torch.testing.assert_close(freeze(layer, size)(x), expected, **close)
    path = export_onnx(layer, tmp_path / "layer.onnx", size)
    assert path.stat().st_size < 5e6
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(None, {"input": x.numpy()})[0])
    torch.testing.assert_close(found, expected, **close)


def test_files_take_small_products_of_their_own_basis():
    for basis, kind in (("fourier", BlockProducts), ("dct", MirroredBlockProducts)):
        frozen = freeze(nn.Sequential(nn.ReLU(), DiffStride1d(4.0, basis=basis)), (1, 16000))
        frozen[1].replace_fft()
        assert type(frozen[1].products0) is kind


def test_an_encoder_is_undone_in_its_basis():
    down = SpectralPool1d(2.5, **DCT)
    up = down.up()
    small = down(torch.randn(1, 2, 31, dtype=torch.float64))
    torch.testing.assert_close(up(small), functional.spectral_resize(small, (31,), **DCT))


def test_networks_are_made_of_it_and_converted_to_it():
    options = {"convention": "tight", "smoothness": 1.0}
    made = {}
    for basis in bases.BASES:
        torch.manual_seed(0)
        made[basis] = models.create(
            "resnet18", num_classes=3, width=0.0625, strides=(2, 2, 2), basis=basis, **options
        ).eval()
    assert made["dct"].load_state_dict(made["fourier"].state_dict())
    x = torch.randn(2, 3, 32, 32)
    assert not torch.allclose(made["dct"](x), made["fourier"](x))
    sizes = [
        [row.output_size for row in stride_table(model, (3, 32, 32)).rows]
        for model in made.values()
    ]
    assert sizes[0] == sizes[1]
    torch.testing.assert_close(freeze(made["dct"], (3, 32, 32))(x), made["dct"](x))

    strided = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2))
    converted, _ = convert(strided, x, basis="dct")
    layers = [m for m in converted.modules() if isinstance(m, DiffStride2d)]
    assert [layer.basis for layer in layers] == ["dct", "dct"]
    converted(x).square().sum().backward()
    assert all(layer.stride.grad.abs().min() > 0 for layer in layers)
