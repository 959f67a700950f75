"""U-Nets before and after conversion: multiply-accumulates, training steps.

    python -m benchmarks.unets [--quick]

As benchmarks.converted measures other networks: converted with the defaults, and with downsampling
before each convolution. Layers that go up have their outputs resized, which is nothing to do while
strides are what they were. Times are those of the processor for one thread, so that other work on
the machine does not count, and freed memory is kept, so that no step takes it anew from the system.
"""

import time
import warnings

import torch
from torch import Tensor, nn

from benchmarks import harness
from benchmarks.converted import NOTE, Networks, measured


def unet(axes: int, channels: tuple[int, ...]) -> nn.Module:
    """MONAI's, with residual units."""
    from monai.networks import nets

    strides = (2,) * (len(channels) - 1)
    how = {"channels": channels, "strides": strides, "num_res_units": 2}
    return nets.UNet(spatial_dims=axes, in_channels=1, out_channels=2, **how)


def basic_unet() -> nn.Module:
    from monai.networks import nets

    return nets.BasicUNet(spatial_dims=2, in_channels=1, out_channels=2)


class TextbookUNet(nn.Module):
    """Pairs of convolutions, max pooling down and transposed convolutions up, four times each."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(5)]
        self.down = nn.ModuleList(map(self.pair, [1, *widths[:-1]], widths))
        self.pools = nn.ModuleList(nn.MaxPool2d(2) for _ in widths[1:])
        back = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(*pair, 2, stride=2) for pair in back)
        self.beside = nn.ModuleList(self.pair(*pair) for pair in back)
        self.last = nn.Conv2d(width, 2, 1)

    @staticmethod
    def pair(channels: int, outputs: int) -> nn.Module:
        layers: list[nn.Module] = []
        for read in (channels, outputs):
            layers += [nn.Conv2d(read, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x, skips = self.down[0](x), []
        for pool, down in zip(self.pools, self.down[1:], strict=True):
            skips.append(x)
            x = down(pool(x))
        for up, beside in zip(self.ups, self.beside, strict=True):
            x = beside(torch.cat([skips.pop(), up(x)], 1))
        return self.last(x)


NETWORKS: Networks = {
    "MONAI UNet": (lambda: unet(2, (16, 32, 64, 128, 256)), (4, 1, 128, 128)),
    "MONAI UNet, 3D": (lambda: unet(3, (16, 32, 64, 128)), (1, 1, 48, 48, 48)),
    "MONAI BasicUNet": (basic_unet, (4, 1, 128, 128)),
    "U-Net, max pooling": (TextbookUNet, (4, 1, 128, 128)),
}


def main() -> None:
    warnings.simplefilter("ignore")
    options = harness.arguments(__doc__)
    options.rounds = min(options.rounds, 7)
    torch.set_num_threads(1)
    harness.keep_freed_memory()
    rows = measured(NETWORKS, options, time.process_time)
    harness.report("unets", rows, options, f"{NOTE}, processor time, freed memory kept")


if __name__ == "__main__":
    main()
