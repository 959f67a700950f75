"""Whole networks, strided and with learnable strides: what a training step and an answer take.

    python -m benchmarks.network [--quick]

ResNet-18 and the audio network, all with the strides of the strided one. As in the paper, R = 4,
maps are larger than those of the strided network, so there is more to convolve; with tight windows
they are as large. "after" and "before" is where a block downsamples: after its first convolution,
as in the paper, or before it. A training step has forward, backward and SGD; frozen is the same
network as constants, in eval mode. All figures are relative to the strided network.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import harness
from diffstride import cost, freeze, models, parameter_groups

WINDOWS = {"paper": 4.0, "symmetric": 1.0, "tight": 1.0}
SIDES: dict[str, dict[str, Any]] = {
    f"{name}, R = {r:g}, {where}": {"convention": name, "smoothness": r, "placement": where}
    for name, r in WINDOWS.items()
    for where in ("after", "before")
}
NETWORKS = {"resnet18": "resnet18", "audio": "audio_cnn"}


def network(name: str, side: str = "paper, R = 4, after") -> nn.Module:
    options = SIDES.get(side, {"downsampling": side})
    return models.create(NETWORKS[name], num_classes=10, **options)


def inputs(name: str, quick: bool) -> Tensor:
    if name == "audio":
        return torch.randn(4 if quick else 16, 1, 64, 100)
    return torch.randn(8 if quick else 32, 3, 32, 32)


def training_step(model: nn.Module, x: Tensor) -> Callable[[], None]:
    groups = parameter_groups(model, lr=1e-3, weight_decay=0.0, stride_lr=0.0)  # maps stay equal
    optimiser = torch.optim.SGD(groups, momentum=0.9)
    labels = torch.arange(len(x)) % 10

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimiser.step()

    return step


def answer(model: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    model.eval()
    with torch.no_grad():
        frozen = freeze(model, tuple(x.shape[1:])) if has_strides(model) else model

    def step() -> Tensor:
        with torch.inference_mode():
            return frozen(x)

    return step


def has_strides(model: nn.Module) -> bool:
    return any(name.endswith("stride") for name, _ in model.named_parameters())


def main() -> None:
    options = harness.arguments(__doc__)
    options.rounds = min(options.rounds, 9)
    rows = []
    for name in NETWORKS:
        x = inputs(name, options.quick)
        made = {side: network(name, side) for side in ("strided", *SIDES)}
        macs = {side: cost(model, tuple(x.shape[1:])).macs for side, model in made.items()}
        steps = {side: training_step(model, x) for side, model in made.items()}
        training = harness.interleaved(steps, options.rounds)
        answers = {side: answer(model, x) for side, model in made.items()}
        frozen = harness.interleaved(answers, options.rounds)
        for side in SIDES:
            row = {"network": name, "strides": side, "MACs": macs[side] / macs["strided"]}
            row["training step"] = training[side] / training["strided"]
            row["frozen"] = frozen[side] / frozen["strided"]
            row |= {"step ms": 1e3 * training[side], "strided ms": 1e3 * training["strided"]}
            rows.append(row)
    shapes = " and ".join(
        "×".join(map(str, inputs(name, options.quick).shape)) for name in NETWORKS
    )
    note = f"float32, strides as the strided network's, inputs {shapes}; relative to strided"
    harness.report("network", rows, options, note)


if __name__ == "__main__":
    main()
