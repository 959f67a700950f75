"""Networks for raw signals of 16,000 samples: what a step and an answer take beside strided ones.

    python -m benchmarks.signal [--quick]

``signal_cnn`` and the 1-D ResNet-18, with strides whose maps are those of the strided network. The
first learns its sampling rate: its first stride is on the signal itself. A training step has
forward, backward and SGD; frozen is the same network as constants, in eval mode. All figures are
relative to the strided network.

FFTs are slow at lengths with large prime factors, which learned strides make: "any length" has
strides near the others whose maps are 3997, 996, 247, ..., and "multiples of 8" the same with
``size_multiple=8``.
"""

from typing import Any

import torch
from torch import nn

from benchmarks import harness
from benchmarks.network import answer, training_step
from diffstride import cost, models

SAMPLES = 16_000
NETWORKS: dict[str, dict[str, Any]] = {
    "signal_cnn": {"strides": (4, 4, 4, 4, 2)},
    "resnet18": {"strides": (4, 4, 4), "in_channels": 1, "dims": 1, "stem": "cifar"},
}
SIDES: dict[str, dict[str, Any]] = {
    f"{kind}, {where}": {"downsampling": kind, "placement": where}
    for kind in ("diffstride", "spectral")
    for where in ("after", "before")
}
BEFORE = {"downsampling": "diffstride", "placement": "before"}
ANY, MULTIPLES = "before, any length", "before, multiples of 8"
NEAR = (4.003, 4.01, 4.02, 4.0, 2.0)


def network(name: str, width: float, side: str = "strided") -> nn.Module:
    torch.manual_seed(0)
    options = {"convention": "tight", "smoothness": 1.0, **NETWORKS[name]}
    near = {**BEFORE, "strides": NEAR[: len(options["strides"])]}
    sides = SIDES | {ANY: near, MULTIPLES: {**near, "size_multiple": 8}}
    options |= sides.get(side, {"downsampling": side})
    return models.create(name, num_classes=10, width=width, **options)


def main() -> None:
    options = harness.arguments(__doc__)
    options.rounds = min(options.rounds, 9)
    rows = []
    cases = [("signal_cnn", 0.25), ("signal_cnn", 1.0), ("resnet18", 0.125)]
    for name, width in cases[:1] if options.quick else cases:
        x = torch.randn(4 if options.quick else 16, 1, SAMPLES)
        made = {side: network(name, width, side) for side in ("strided", *SIDES, ANY, MULTIPLES)}
        macs = {side: cost(model, (1, SAMPLES)).macs for side, model in made.items()}
        steps = {side: training_step(model, x) for side, model in made.items()}
        training = harness.interleaved(steps, options.rounds)
        # Anew: strides that have moved meanwhile would make other maps.
        answers = {side: answer(network(name, width, side), x) for side in made}
        frozen = harness.interleaved(answers, options.rounds)
        for side in list(made)[1:]:
            row = {"network": name, "width": width, "strides": side}
            row["MACs"] = macs[side] / macs["strided"]
            row["training step"] = training[side] / training["strided"]
            row["frozen"] = frozen[side] / frozen["strided"]
            row |= {"step ms": 1e3 * training[side], "strided ms": 1e3 * training["strided"]}
            rows.append(row)
    note = f"float32, tight windows, R = 1, {len(x)} signals of {SAMPLES} samples"
    harness.report("signal", rows, options, f"{note}; relative to strided")


if __name__ == "__main__":
    main()
