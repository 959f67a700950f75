"""Whole training steps: ResNet-18 and an audio network, strided and with learnable strides.

    python -m benchmarks.network [--quick]

At R = 4 the maps are larger, so there is more to convolve. What the layer itself adds is the time
relative to the strided network, divided by the same ratio of convolution multiply-accumulates:
at most 1 means that learning strides costs nothing beyond the larger maps.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import harness
from diffstride import DiffStride2d


class Block(nn.Module):
    """A residual block whose branches share one downsampling, None for a fixed stride."""

    def __init__(self, inputs: int, outputs: int, stride: int, learnable: bool) -> None:
        super().__init__()
        self.downsample = DiffStride2d(float(stride)) if learnable and stride > 1 else None
        fixed = 1 if self.downsample else stride
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=fixed, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, fixed)

    def forward(self, x: Tensor) -> Tensor:
        y, shortcut = self.conv1(x), x
        if self.downsample is not None:
            # The 1×1 convolution of the shortcut comes after: the same numbers for less.
            y, shortcut = self.downsample(y), self.downsample(x)
        y = self.norm2(self.conv2(F.relu(self.norm1(y))))
        return F.relu(y + self.shortcut(shortcut))


def resnet18(learnable: bool) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64)]
    channels = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(channels, outputs, stride, learnable), Block(outputs, outputs, 1, False)]
        channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def audio_network(learnable: bool) -> nn.Sequential:
    """Convolutions along time, then along frequency; the downsampling closes a block."""
    layers: list[nn.Module] = []
    channels = 1
    for outputs, stride in ((64, 2), (128, 2), (256, 1), (256, 2), (512, 1), (512, 2)):
        fixed = 1 if learnable else stride
        layers += [
            nn.Conv2d(channels, outputs, (3, 1), padding=(1, 0)),
            nn.ReLU(),
            nn.BatchNorm2d(outputs),
            nn.Conv2d(outputs, outputs, (1, 3), stride=fixed, padding=(0, 1)),
        ]
        if learnable and stride > 1:
            layers.append(DiffStride2d(float(stride)))
        layers += [nn.ReLU(), nn.BatchNorm2d(outputs)]
        channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def convolution_macs(model: nn.Module, x: Tensor) -> int:
    """Multiply-accumulates of all convolutions for one example."""
    total = 0

    def count(layer: nn.Module, _: object, y: Tensor) -> None:
        nonlocal total
        total += layer.weight.numel() * y[0, 0].numel()

    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, nn.Conv2d)]
    with torch.no_grad():
        model(x[:2])
    for hook in hooks:
        hook.remove()
    return total


def training_step(model: nn.Module, x: Tensor) -> Callable[[], None]:
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    labels = torch.arange(len(x)) % 10

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimiser.step()

    return step


def main() -> None:
    options = harness.arguments(__doc__)
    rounds = min(options.rounds, 7)
    cases = {
        "resnet18": (resnet18, torch.randn(8 if options.quick else 32, 3, 32, 32)),
        "audio": (audio_network, torch.randn(4 if options.quick else 16, 1, 64, 100)),
    }
    rows = []
    for name, (make, x) in cases.items():
        models = {"strided": make(False), "diffstride": make(True)}
        macs = {side: convolution_macs(model, x) for side, model in models.items()}
        times = harness.interleaved(
            {side: training_step(model, x) for side, model in models.items()}, rounds
        )
        ratio = times["diffstride"] / times["strided"]
        work = macs["diffstride"] / macs["strided"]
        rows.append(
            {
                "network": name,
                "input": "×".join(map(str, x.shape)),
                "strided ms": 1e3 * times["strided"],
                "diffstride ms": 1e3 * times["diffstride"],
                "time ratio": ratio,
                "MACs ratio": work,
                "time / MACs": ratio / work,
            }
        )
    harness.report("network", rows, options, "float32, S = 2, R = 4; one training step with SGD")


if __name__ == "__main__":
    main()
