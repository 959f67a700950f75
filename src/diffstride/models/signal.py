"""The network for raw signals: it begins with a stride, and so chooses its own sampling rate."""

import copy
from dataclasses import replace

from torch import Tensor, nn

from diffstride.core import fft
from diffstride.layers.resizer import Resizer
from diffstride.models.network import Network, check_ratio, mean_over_time
from diffstride.models.resnet import Block
from diffstride.models.spec import Spec, Stride, initialise

CHANNELS = (64, 128, 256, 512)
STRIDES = (2.0, 2.0, 2.0, 2.0, 2.0)
STEM_KERNEL, KERNEL = 9, 5

# With these, what the first layer makes of a signal does not depend on how often it was sampled:
# amplitudes stay as they are, and the window ends at the cut-off, which is never beyond the band.
SAMPLING = {"norm": "forward", "convention": "tight"}


class SignalCNN(Network):
    """A stride, a convolution, residual blocks, the mean over time and a linear layer.

    Takes (batch, channels, samples). ``lengths`` says how many samples of each signal are real; the
    others, at its end, are left out of the mean.
    """

    def __init__(self, spec: Spec, strides: list[Stride]) -> None:
        super().__init__()
        channels = [*map(spec.channels, CHANNELS)]
        first = replace(spec, options={**spec.options, **SAMPLING})
        self.sampling, conv_stride = first.downsample(strides[0])
        stem = spec.conv(spec.in_channels, channels[0], STEM_KERNEL, stride=conv_stride)
        self.stem = nn.Sequential(stem, spec.norm(channels[0]), nn.ReLU())
        sides = zip([channels[0], *channels], channels, strides[1:], strict=False)
        self.stages = nn.Sequential(*(Block(spec, *side, kernel=KERNEL) for side in sides))
        self.head = nn.Linear(channels[-1], spec.classes)
        self.enlarged_by = 1.0
        """How many times the samples a signal is brought to before anything else."""
        initialise(self)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        y = x
        if self.enlarged_by != 1:
            y = fft.enlarge(y, -1, round(self.enlarged_by * y.shape[-1]))
        y = self.stages(self.stem(self.sampling(y)))
        mean = y.mean(-1) if lengths is None else mean_over_time(y, lengths / x.shape[-1])
        return self.head(mean)  # type: ignore[no-any-return]

    def at_rate(self, ratio: float) -> Network:
        """Return a copy of the network for signals at another sampling rate, ``ratio`` times its.

        The stride of its first layer is ``ratio`` times as large, so that everything behind it
        sees what it saw: the same frequencies, in Hz, at the same number of samples. Where that
        stride would be below 1, signals are first brought to the old rate, by frequencies that are
        zero. Scores of a signal that has only frequencies below half of both rates stay the same.

        Args:
            ratio: the new sampling rate divided by the old one.

        Raises:
            ValueError: if the network begins with a convolution or a pooling of a few samples
                (``downsampling`` "strided", "max" or "blur", say), which know no Hz.

        >>> from diffstride import models
        >>> model = models.create("signal_cnn", num_classes=10, width=0.125)
        >>> model.at_rate(48_000 / 16_000).sampling.strides
        (6.0,)
        """
        check_ratio(ratio)
        if not (isinstance(self.sampling, Resizer) and self.sampling.is_planned):
            return super().at_rate(ratio)
        if self.sampling.basis != "fourier":
            wrong = f"basis {self.sampling.basis!r} depends on where samples lie, not on Hz alone"
            raise ValueError(f"the rate can be changed with basis 'fourier' only: {wrong}")
        changed = copy.deepcopy(self)
        (stride,) = self.sampling.strides
        wanted = ratio * stride / self.enlarged_by
        if wanted > 1 - 1e-6:  # or a 1 that was rounded
            changed.enlarged_by = 1.0
            assert isinstance(changed.sampling, Resizer)
            changed.sampling.scale_stride(wanted / stride)
            if settings := vars(changed).get("created_with"):
                strides = settings["strides"] or STRIDES
                settings["strides"] = [*changed.sampling.strides, *strides[1:]]
        else:
            changed.enlarged_by = self.enlarged_by / ratio
            vars(changed).pop("created_with", None)  # arguments that would make another network
        return changed


def signal_cnn(spec: Spec) -> SignalCNN:
    """A residual network for raw signals (batch, channels, samples): waveforms, currents, sensors.

    Site 1 is a stride on the signal itself, so that the network chooses its own sampling rate; then
    come a convolution of 9 samples and four blocks of two convolutions of 5, with 64, 128, 256 and
    512 channels, each of which downsamples. All five strides are 2 unless given. With downsampling
    "strided" the first convolution is strided instead.

    >>> import torch
    >>> from diffstride import models
    >>> model = models.create("signal_cnn", num_classes=5, width=0.25, strides=(4, 2, 2, 2, 2))
    >>> model(torch.rand(2, 1, 4000)).shape
    torch.Size([2, 5])
    """
    if spec.dims != 1:
        raise ValueError(f"signal_cnn has dims=1, time, got {spec.dims}")
    return SignalCNN(spec, spec.read_strides("site", STRIDES))
