"""The way up: the operator of downsampling with more samples on its way out than on its way in."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from diffstride.core.pooling import spatial_axes
from diffstride.core.resample import resample
from diffstride.core.rule import REPLACING, Rule, plan
from diffstride.core.tracing import shape_of


def spectral_resize(
    x: Tensor,
    output_size: int | Sequence[int],
    *,
    norm: str = "ortho",
    basis: str = "fourier",
    path: str = "auto",
) -> Tensor:
    """Resize to any size by cutting the spectrum, or by zeros where an axis has no frequencies.

    For every spatial axis, of N samples that become M:

    1. E finds the lowest min(N, M) real Fourier coefficients of x.
    2. D makes M samples of them, as if all higher frequencies were 0.

    An axis that becomes shorter is :func:`spectral_pool`, to the last digit. One that becomes
    longer is its left inverse: ``spectral_pool`` of the same norm back to N returns x, for all
    sizes. It is the adjoint of that pooling too, up to a factor, but for one function: of a wave at
    the highest frequency of an even N, which pooling lets pass by half, it makes twice what the
    adjoint does (docs/maths.md). In the basis of the DCT no function is an exception.

    Args:
        x: (batch, channels, *spatial) or (channels, *spatial), floating point, any memory format.
        output_size: the size to come out, one number per spatial axis, or one for all of a batched
            input.
        norm: by how much a constant grows, as for :func:`diff_stride`: √(N/M) per axis with
            ``"ortho"``, not at all with ``"forward"``, N/M with ``"backward"``.
        basis, path: as for :func:`diff_stride`.

    Raises:
        TypeError: if ``x`` is not a floating-point tensor.
        ValueError: if another argument is not what is said above; the message names it.

    >>> import torch
    >>> from diffstride.functional import spectral_pool
    >>> x = torch.rand(2, 3, 15, 20)
    >>> larger = spectral_resize(x, (32, 41))
    >>> torch.allclose(spectral_pool(larger, output_size=(15, 20)), x, atol=1e-5)
    True
    >>> spectral_resize(x, (7, 40)).shape
    torch.Size([2, 3, 7, 40])
    """
    rule = Rule(0.0, norm=norm, basis=basis, path=path, way="any")
    axes = spatial_axes(x, output_size, "output_size")
    plans = plan(rule, shape_of(x)[-axes:], 1.0, x.device, output_size=output_size)
    return resample(x, plans, path=path)


def diff_upsample(x: Tensor, stride: float | Sequence[float] | Tensor, **rule: Any) -> Tensor:
    """Upsample by a real stride, differentiably in the input and in the stride.

    What :func:`diff_stride` does by the same stride from M samples to N, the other way round. For
    every spatial axis, of N samples and stride S:

    1. length M, of which ``diff_stride`` keeps N samples: ⌈S·N⌉ with tight windows, ⌈S·(N − 2R)⌉
       with the others, at least N;
    2. window m(f) of an axis of M samples and this stride, at the frequencies of N samples: it ends
       where these end;
    3. y = D · diag(m) · E · x: E finds all N real Fourier coefficients of x, D makes M samples of
       them.

    The gradient of the stride flows through the window; the size is an integer and has none.

    Args:
        x: (batch, channels, *spatial) or (channels, *spatial), floating point, any memory format.
        stride: one number of at least 1 per spatial axis, as for :func:`diff_stride`.
        rule: ``smoothness``, ``convention``, ``norm``, ``window``, ``basis``, ``path``,
            ``output_size`` and ``size_multiple``, as for :func:`diff_stride`. Windows are tight and
            R is 1 unless given, so that stride 2 makes 32 of 16 samples.

    Raises:
        TypeError: if ``x`` is not a floating-point tensor, or the stride's values can't be read.
        ValueError: if another argument is not what is said above; the message names it.

    >>> import torch
    >>> stride = torch.tensor([2.0, 1.5], requires_grad=True)
    >>> diff_upsample(torch.rand(1, 1, 16, 16), stride).shape
    torch.Size([1, 1, 32, 24])
    >>> diff_upsample(torch.rand(1, 1, 24, 24), 2.0, smoothness=4.0, convention="paper").shape
    torch.Size([1, 1, 32, 32])
    """
    checked = Rule(**{**REPLACING, **rule}, way="up")
    axes = spatial_axes(x, stride, "stride")
    return resample(x, plan(checked, shape_of(x)[-axes:], stride, x.device), path=checked.path)
