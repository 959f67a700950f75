"""The strided networks are the published ones, weight for weight."""

import re
import warnings

import pytest
import torch

from diffstride import models


def published(name):
    """The same network of another package, and how its names become ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, on import
        return {"resnet18": resnet18, "densenet121": densenet121, "efficientnet_b0": efficientnet}[
            name
        ]()


def resnet18():
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        depths=[2] * 4, hidden_sizes=[64, 128, 256, 512], layer_type="basic", num_labels=1000
    )
    parts = {"0.convolution": "conv1", "0.normalization": "norm1"}
    parts |= {"1.convolution": "conv2", "1.normalization": "norm2"}
    names = [
        (r"resnet\.embedder\.embedder\.convolution", "stem.0"),
        (r"resnet\.embedder\.embedder\.normalization", "stem.2"),
        (r"resnet\.encoder\.stages\.(\d)\.layers\.(\d)\.", r"stages.\1.\2."),
        (r"shortcut\.convolution", "shortcut.0"),
        (r"shortcut\.normalization", "shortcut.1"),
        (r"layer\.(\d\.\w+)", lambda match: parts[match[1]]),
        (r"classifier\.1", "head.1"),
    ]
    return ResNetForImageClassification(config), names, lambda output: output.logits


def densenet121():
    from monai.networks.nets import DenseNet121

    inner = {"norm1": "0", "conv1": "2", "norm2": "3", "conv2": "5", "norm": "0", "conv": "2"}
    names = [
        (r"features\.conv0", "stem.0"),
        (r"features\.norm0", "stem.2"),
        (r"features\.norm5", "head.0"),
        (r"class_layers\.out", "head.3"),
        (
            r"features\.denseblock(\d)\.denselayer(\d+)\.layers\.(\w+)\.",
            lambda m: f"blocks.{int(m[1]) - 1}.{int(m[2]) - 1}.layers.{inner[m[3]]}.",
        ),
        (
            r"features\.transition(\d)\.(\w+)\.",
            lambda m: f"transitions.{int(m[1]) - 1}.{inner[m[2]]}.",
        ),
    ]
    return DenseNet121(2, 3, 1000), names, lambda output: output


def efficientnet():
    """Padded on one side where an even size meets a stride of 2: so none is even here."""
    from monai.networks.nets.efficientnet import EfficientNet

    stages = ["r1_k3_s11_e1_i32_o16", "r2_k3_s22_e6_i16_o24", "r2_k5_s22_e6_i24_o40"]
    stages += ["r3_k3_s22_e6_i40_o80", "r3_k5_s11_e6_i80_o112", "r4_k5_s22_e6_i112_o192"]
    stages += ["r1_k3_s11_e6_i192_o320"]
    network = EfficientNet([f"{stage}_se0.25" for stage in stages], image_size=65)
    # Theirs counts blocks on over the stages, ours anew in each.
    place = {}
    for stage, text in enumerate(stages):
        place |= {str(len(place) + i): f"stages.{stage}.{i}" for i in range(int(text[1]))}
    parts = {"_expand_conv": "expand.0", "_bn0": "expand.1", "_depthwise_conv": "depthwise"}
    parts |= {"_bn1": "norm", "_se_reduce": "excite.reduce", "_se_expand": "excite.expand"}
    parts |= {"_project_conv": "narrow.0", "_bn2": "narrow.1"}
    names = [
        (r"_blocks\.\d\.(\d+)\.(\w+)\.", lambda m: f"{place[m[1]]}.{parts[m[2]]}."),
        (r"^_conv_stem", "stem.0"),
        (r"^_bn0", "stem.2"),
        (r"^_conv_head", "head.0"),
        (r"^_bn1", "head.1"),
        (r"^_fc", "head.5"),
    ]
    return network, names, lambda output: output


@pytest.mark.parametrize(
    ("name", "count"),
    [("resnet18", 11_689_512), ("densenet121", 7_978_856), ("efficientnet_b0", 5_288_548)],
)
def test_strided_networks_are_the_published_ones(name, count):
    ours = models.create(name, num_classes=1000, downsampling="strided", stem="imagenet").eval()
    assert sum(p.numel() for p in ours.parameters()) == count
    theirs, names, read = published(name)
    generator = torch.Generator().manual_seed(0)
    state = {}
    for key, value in theirs.state_dict().items():
        if value.is_floating_point():  # nothing is left at 0 or 1, where a mistake would not show
            noise = torch.rand(value.shape, generator=generator)
            value.mul_(0.9 + 0.2 * noise).add_(
                0.1 * (noise if "running_var" in key else noise - 0.5)
            )
        for pattern, replacement in names:
            key = re.sub(pattern, replacement, key)
        state[key] = value
    ours.load_state_dict(state)
    x = torch.randn(2, 3, 65, 65, generator=generator)
    with torch.no_grad():
        expected = read(theirs.eval()(x))
        y = ours(x)
    assert expected.std() > 1e-3
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5 * expected.abs().max().item())
