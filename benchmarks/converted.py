"""Networks of other libraries before and after conversion: multiply-accumulates, training steps.

    python -m benchmarks.converted [--quick]

Each network is converted with the defaults, tight windows and R = 1, so that every map keeps its
size, downsampling after each convolution or before it; for comparison, the multiply-accumulates
with the paper's windows, R = 4. A training step has forward, backward and SGD. All figures are
relative to the network as it was.
"""

import argparse
import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.benchmark import timer

from benchmarks import harness
from diffstride import convert, cost

Networks = dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]
NOTE = "float32; relative to the network before conversion"


class Maps(nn.Module):
    """A network of transformers as a function of one tensor."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        found = self.body(x)
        return found if isinstance(found, Tensor) else found[0]


def resnet18() -> nn.Module:
    import transformers

    sizes = {"embedding_size": 64, "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]}
    return transformers.ResNetModel(transformers.ResNetConfig(layer_type="basic", **sizes))


def efficientnet_b0() -> nn.Module:
    from monai.networks import nets

    return nets.EfficientNetBN("efficientnet-b0", pretrained=False, in_channels=3)


def densenet() -> nn.Module:
    from monai.networks import nets

    return nets.DenseNet121(spatial_dims=3, in_channels=1, out_channels=3)


def mobilenet_v2() -> nn.Module:
    import transformers

    return transformers.MobileNetV2Model(transformers.MobileNetV2Config())


NETWORKS: Networks = {
    "ResNet-18": (resnet18, (8, 3, 224, 224)),
    "EfficientNet-B0": (efficientnet_b0, (16, 3, 96, 96)),
    "DenseNet-121, 3D": (densenet, (2, 1, 48, 48, 48)),
    "MobileNetV2": (mobilenet_v2, (8, 3, 224, 224)),
}


def training_step(model: nn.Module, x: Tensor) -> Callable[[], None]:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)  # strides, and so sizes, stay

    def step() -> None:
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()

    return step


def measured(
    networks: Networks, options: argparse.Namespace, clock: Callable[[], float] = timer
) -> list[dict[str, Any]]:
    """Return a row for each network."""
    rows = []
    for name, (make, shape) in networks.items():
        torch.manual_seed(0)
        model, x = Maps(make()), torch.rand(2 if options.quick else shape[0], *shape[1:])
        sides = {"before conversion": model}
        for where in ("after", "before"):
            sides[where], _ = convert(model, x[:1], placement=where)
        paper, _ = convert(model, x[:1], smoothness=4.0, convention="paper")
        macs = {side: cost(one, shape[1:]).macs for side, one in {**sides, "paper": paper}.items()}
        whole = macs.pop("before conversion")
        steps = {side: training_step(one, x) for side, one in sides.items()}
        times = harness.interleaved(steps, options.rounds, clock)
        rows.append(
            {
                "network": name,
                "input": "×".join(map(str, x.shape)),
                "M MACs": whole / 1e6,
                "MACs, paper": macs["paper"] / whole,
                "MACs, after": macs["after"] / whole,
                "step, after": times["after"] / times["before conversion"],
                "MACs, before": macs["before"] / whole,
                "step, before": times["before"] / times["before conversion"],
                "step ms": 1e3 * times["before conversion"],
            }
        )
    return rows


def main() -> None:
    warnings.simplefilter("ignore")
    options = harness.arguments(__doc__)
    options.rounds = min(options.rounds, 7)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    harness.report("converted", measured(NETWORKS, options), options, NOTE)


if __name__ == "__main__":
    main()
