"""How near images are to what they should be: PSNR and SSIM, of values from 0 to 1."""

import torch
from torch import Tensor
from torchmetrics.functional.image import structural_similarity_index_measure

SMALLEST = 6
"""The least height and width that SSIM has windows for."""


def psnr(images: Tensor, clean: Tensor) -> Tensor:
    """Return 10·log₁₀(1/MSE) of each image, in dB: the higher, the nearer.

    What is beyond black or white is taken for black or white. Of equal images it is that of the
    smallest error there is, some hundreds, and not infinite.

    >>> round(psnr(torch.full((1, 1, 2, 2), 0.6), torch.full((1, 1, 2, 2), 0.5)).item(), 3)
    20.0
    """
    errors = (images.clamp(0, 1).float() - clean.float()).square().mean((1, 2, 3))
    return -10 * errors.clamp(min=torch.finfo(errors.dtype).tiny).log10()


def ssim(images: Tensor, clean: Tensor) -> Tensor:
    """Return the structural similarity of each image (Wang et al., 2004), 1 for equal ones.

    With Gaussian windows of 11×11 pixels, σ = 1.5, around every pixel of every channel; images are
    mirrored at their borders. What is beyond black or white is taken for black or white.
    """
    if not len(images):  # a process may have no part in the last batch
        return clean.new_zeros(0)
    found = structural_similarity_index_measure(
        images.clamp(0, 1).float(), clean.float(), data_range=1.0, reduction="none"
    )
    assert isinstance(found, Tensor)
    return found
