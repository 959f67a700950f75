"""Networks of other libraries, and small ones of our own, that surgery is tried on."""

import warnings

import torch
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers
    from monai.networks import nets

SMALL = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 2, 1, 1]}


class TwoBranches(nn.Module):
    """Twice by two on one side, once by four on the other, side by side in the end."""

    def __init__(self, swapped=False):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.second = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.pool = nn.MaxPool2d(4)
        self.swapped = swapped

    def forward(self, x):
        if self.swapped:
            pooled = self.pool(x)
            return torch.cat([pooled, self.second(self.first(x).relu())], 1)
        return torch.cat([self.second(self.first(x).relu()), self.pool(x)], 1)


def plain():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def monai_resnet(dims):
    return nets.ResNet(
        "basic", [1, 1, 1, 1], [8, 16, 24, 32], spatial_dims=dims, n_input_channels=3, num_classes=3
    )


def monai_densenet(dims):
    return nets.DenseNet(
        dims, 3, 3, init_features=8, growth_rate=4, block_config=(2, 2, 2), bn_size=2
    )


MODELS = {
    "sequential": (plain, 2),
    "two branches": (TwoBranches, 2),
    "two branches, swapped": (lambda: TwoBranches(swapped=True), 2),
    "transformers ResNet": (
        lambda: transformers.ResNetModel(
            transformers.ResNetConfig(embedding_size=8, layer_type="basic", **SMALL)
        ),
        2,
    ),
    "transformers RegNet": (
        lambda: transformers.RegNetModel(
            transformers.RegNetConfig(embedding_size=8, groups_width=8, **SMALL)
        ),
        2,
    ),
    "transformers ConvNeXt": (
        lambda: transformers.ConvNextModel(transformers.ConvNextConfig(**SMALL)),
        2,
    ),
    "transformers MobileNetV2": (
        lambda: transformers.MobileNetV2Model(
            transformers.MobileNetV2Config(depth_multiplier=0.25)
        ),
        2,
    ),
    "transformers EfficientNet": (
        lambda: transformers.EfficientNetModel(
            transformers.EfficientNetConfig(
                width_coefficient=0.5, depth_coefficient=0.5, hidden_dim=640
            )
        ),
        2,
    ),
    "monai EfficientNet": (
        lambda: nets.EfficientNetBN("efficientnet-b0", pretrained=False, in_channels=3),
        2,
    ),
    **{f"monai ResNet {d}d": (lambda d=d: monai_resnet(d), d) for d in (1, 2, 3)},
    **{f"monai DenseNet {d}d": (lambda d=d: monai_densenet(d), d) for d in (1, 2, 3)},
}


def example(dims, extra=0):
    size = {1: (128,), 2: (64, 64), 3: (32, 32, 32)}[dims]
    return torch.rand(2, 3, *(n + extra for n in size))


def tensor(output):
    return output if isinstance(output, torch.Tensor) else output[0]
