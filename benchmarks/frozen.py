"""Whole networks as they are used: with learnable strides, frozen, and strided from the start.

    python -m benchmarks.frozen [--quick]

ResNet-18 on 32×32 images in eval mode, at strides near 2: ours, and one of transformers that was
converted. Freezing folds everything learned into constant matrices, and moves them before the
convolution where that is less work. How far that is from the strided network depends on windows:
maps are larger by 2R samples an axis, or as large as the strided network's if windows are tight.
"""

import logging
import warnings

import torch
from torch import Tensor, nn

from benchmarks import harness
from diffstride import convert, cost, freeze, models

STRIDES = ((2.03, 1.98), (1.97, 2.04), (2.01, 2.02))
WINDOWS = [("tight", 1.0), ("symmetric", 1.0), ("paper", 4.0)]
SIZE = (3, 32, 32)


def own(downsampling: str, convention: str, smoothness: float) -> nn.Module:
    strides = (2, 2, 2) if downsampling == "strided" else STRIDES
    return models.create(
        "resnet18",
        num_classes=10,
        downsampling=downsampling,
        strides=strides,
        smoothness=smoothness,
        convention=convention,
    ).eval()


class Scores(nn.Module):
    """ResNet-18 of transformers without the stem of large images, as a plain function."""

    def __init__(self) -> None:
        super().__init__()
        import transformers

        config = transformers.ResNetConfig(
            embedding_size=64,
            hidden_sizes=[64, 128, 256, 512],
            depths=[2, 2, 2, 2],
            layer_type="basic",
        )
        self.body = transformers.ResNetModel(config)
        self.body.embedder.embedder.convolution = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.body.embedder.pooler = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x).pooler_output
        return found


def converted(convention: str, smoothness: float) -> nn.Module:
    rule = {"smoothness": smoothness, "convention": convention}
    model, _ = convert(Scores().eval(), torch.rand(1, *SIZE), **rule)
    strides = [x for name, x in model.named_parameters() if name.endswith("stride")]
    with torch.no_grad():
        for parameter, learned in zip(strides, STRIDES, strict=True):
            parameter.copy_(torch.tensor(learned))
    return model


def main() -> None:
    options = harness.arguments(__doc__)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    x = torch.randn(8 if options.quick else 32, *SIZE)
    rows = []
    for name in ("resnet18", "transformers, converted"):
        for window in WINDOWS:
            torch.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ours = name == "resnet18"
                strided = own("strided", *window) if ours else Scores().eval()
                learned = own("diffstride", *window) if ours else converted(*window)
            frozen = freeze(learned, SIZE)
            sides = {"strided": strided, "unfrozen": learned, "frozen": frozen}
            with torch.inference_mode():
                off = (frozen(x[:4]) - learned(x[:4])).abs().max() / learned(x[:4]).abs().max()
                times = harness.interleaved(
                    {side: lambda model=model: model(x) for side, model in sides.items()},
                    options.rounds,
                )
            rows.append(
                {
                    "network": name,
                    "window": f"{window[0]}, R = {window[1]:g}",
                    **{f"{side} ms": 1e3 * seconds for side, seconds in times.items()},
                    "frozen / unfrozen": times["frozen"] / times["unfrozen"],
                    "frozen / strided": times["frozen"] / times["strided"],
                    "MACs, unfrozen / strided": cost(learned, SIZE).macs / cost(strided, SIZE).macs,
                    "difference": float(off),
                }
            )
    harness.report("frozen", rows, options, f"float32, eval, input {len(x)}×3×32×32")


if __name__ == "__main__":
    main()
