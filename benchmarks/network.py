"""Whole training steps: ResNet-18 and the audio network, strided and with learnable strides.

    python -m benchmarks.network [--quick]

As in the paper, R = 4, maps are larger than those of the strided network, so there is more to
convolve; with tight windows they are as large. What the layers themselves add is the time relative
to the strided network, divided by the same ratio of convolution multiply-accumulates.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import harness
from diffstride import cost, models
from diffstride.layers.resizer import Resizer

SIDES: dict[str, dict[str, Any]] = {
    "strided": {"downsampling": "strided"},
    "paper, R = 4": {"smoothness": 4.0},
    "tight, R = 1, after": {"smoothness": 1.0, "convention": "tight"},
    "tight, R = 1, before": {"smoothness": 1.0, "convention": "tight", "placement": "before"},
}
NETWORKS = {"resnet18": "resnet18", "audio": "audio_cnn"}


def network(name: str, side: str = "paper, R = 4") -> nn.Module:
    return models.create(NETWORKS[name], num_classes=10, **SIDES[side])


def inputs(name: str, quick: bool) -> Tensor:
    if name == "audio":
        return torch.randn(4 if quick else 16, 1, 64, 100)
    return torch.randn(8 if quick else 32, 3, 32, 32)


def convolution_macs(model: nn.Module, size: tuple[int, ...]) -> int:
    """Multiply-accumulates for one example, without those of the resampling."""
    return sum(use.macs for use in cost(model, size).layers if not isinstance(use.layer, Resizer))


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
    rows = []
    for name in NETWORKS:
        x = inputs(name, options.quick)
        made = {side: network(name, side) for side in SIDES}
        macs = {side: convolution_macs(model, tuple(x.shape[1:])) for side, model in made.items()}
        times = harness.interleaved(
            {side: training_step(model, x) for side, model in made.items()}, min(options.rounds, 7)
        )
        for side in list(SIDES)[1:]:
            ratio, work = times[side] / times["strided"], macs[side] / macs["strided"]
            rows.append(
                {
                    "network": name,
                    "input": "×".join(map(str, x.shape)),
                    "strides": side,
                    "strided ms": 1e3 * times["strided"],
                    "ms": 1e3 * times[side],
                    "time ratio": ratio,
                    "MACs ratio": work,
                    "time / MACs": ratio / work,
                }
            )
    harness.report("network", rows, options, "float32, S = 2; one training step with SGD")


if __name__ == "__main__":
    main()
