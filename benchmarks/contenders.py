"""What a learnable stride is measured against, each written plainly."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride import functional


class TextbookFFT(nn.Module):
    """DiffStride as one would first write it: FFT, mask, crop, inverse FFT, under autograd."""

    def __init__(
        self, stride: float = 2.0, smoothness: float = 4.0, convention: str = "paper"
    ) -> None:
        super().__init__()
        self.stride = nn.Parameter(torch.tensor([stride, stride]))
        self.rule = {"smoothness": smoothness, "convention": convention}
        self.smoothness = smoothness
        self.is_tight = convention == "tight"

    def mask(self, frequency: Tensor, size: int, stride: Tensor, offset: float) -> Tensor:
        height = size / (2 * stride) - frequency.abs()
        if not self.is_tight:
            height = height + self.smoothness + offset
        return (height / self.smoothness).clamp(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        sizes = functional.output_size((height, width), self.stride, **self.rule)
        spectrum = torch.fft.rfft2(x, norm="ortho")
        rows = torch.fft.fftfreq(height, 1 / height, device=x.device)
        columns = torch.arange(width // 2 + 1, device=x.device)
        vertical = self.mask(rows, height, self.stride[0], 0.0)
        horizontal = self.mask(columns, width, self.stride[1], 1.0)
        spectrum = spectrum * vertical[:, None] * horizontal
        above = (sizes[0] + 1) // 2
        spectrum = torch.cat([spectrum[..., :above, :], spectrum[..., above - sizes[0] :, :]], -2)
        spectrum = spectrum[..., : sizes[1] // 2 + 1]
        return torch.fft.irfft2(spectrum, s=sizes, norm="ortho")


class BlurPool(nn.Module):
    """A fixed binomial filter, then every second sample (Zhang 2019)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        row = torch.tensor([1.0, 2.0, 1.0]) / 4
        self.register_buffer("kernel", torch.outer(row, row).expand(channels, 1, 3, 3).clone())

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.kernel, stride=2, padding=1, groups=x.shape[1])


def average_pool(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 2)


def interpolate(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)


def strided_convolution(channels: int) -> nn.Module:
    return nn.Conv2d(channels, channels, 3, stride=2, padding=1)
