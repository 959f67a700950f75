"""Networks that go down and up again: small ones of our own, and those of other libraries."""

import warnings

import torch
from torch import nn
from torch.nn import functional as F

from tests.small_networks import Does
from tests.surgery import usual_decoders as usual
from tests.surgery.third_party_networks import nets, transformers

SMALL = {"in_channels": 1, "out_channels": 2}


def autoencoder():
    """Transposed convolutions of two usual kinds, and no skip."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 2, 4, stride=2, padding=1),
    )


def upsampling(*up):
    """Down by four in two steps, and up by some layers."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 16, 3, padding=1),
        nn.AvgPool2d(2),
        nn.ReLU(),
        *up,
    )


class Interpolated(nn.Module):
    """Goes up by a function, to the size of the map that it then lies beside."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.down = nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.deeper = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.up = nn.Conv2d(16, 8, 3, padding=1)
        self.last = nn.Conv2d(12, 2, 3, padding=1)

    def forward(self, x):
        high = self.first(x).relu()
        low = self.down(high).relu()
        x = self.deeper(low).relu()
        x = torch.cat([F.interpolate(x, size=low.shape[2:]), low], 1)
        x = self.up(x).relu()
        return self.last(
            torch.cat([F.interpolate(x, size=high.shape[2:], mode="bilinear"), high], 1)
        )


class ToTheSkip(nn.Module):
    """A transposed convolution that is told what size to make."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1)

    def forward(self, x):
        return self.up(self.down(x).relu(), output_size=x.shape[2:]) + x


OURS = {
    "transposed convolutions": autoencoder,
    "interpolated to the skip": Interpolated,
    "told a size": ToTheSkip,
    "one step up for two down": lambda: upsampling(
        nn.Upsample(scale_factor=4, mode="bilinear"), nn.Conv2d(16, 2, 1)
    ),
    "pixel shuffle": lambda: upsampling(
        nn.PixelShuffle(2), nn.Upsample(scale_factor=2), nn.Conv2d(4, 2, 1)
    ),
    "functions in modules": lambda: upsampling(
        Does(lambda _, x: F.interpolate(x, scale_factor=2)),
        Does(lambda _, x: F.pixel_shuffle(x, 2)),
        nn.Conv2d(4, 2, 1),
    ),
}


def monai_unet(dims, residual=0):
    steps = {"channels": (4, 8, 16), "strides": (2, 2), "num_res_units": residual}
    return nets.UNet(spatial_dims=dims, **SMALL, **steps)


def basic_unet(dims, upsample="deconv"):
    features = (4, 4, 8, 8, 16, 4)
    return nets.BasicUNet(spatial_dims=dims, **SMALL, features=features, upsample=upsample)


def attention_unet():
    return nets.AttentionUnet(spatial_dims=2, **SMALL, channels=(4, 8, 16), strides=(2, 2))


def segresnet(upsample="nontrainable"):
    steps = {"blocks_down": (1, 1, 1), "blocks_up": (1, 1), "upsample_mode": upsample}
    return nets.SegResNet(spatial_dims=2, **SMALL, init_filters=8, **steps)


def dynunet():
    steps = {"kernel_size": (3, 3, 3), "strides": (1, 2, 2), "upsample_kernel_size": (2, 2)}
    return nets.DynUNet(spatial_dims=2, **SMALL, **steps, filters=(4, 8, 8))


class Segments(nn.Module):
    """What a network of transformers says of each pixel of its input, as its loss has it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return F.interpolate(self.model(x).logits, size=x.shape[2:], mode="bilinear")


def upernet():
    backbone = transformers.ConvNextConfig(
        num_channels=1,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = transformers.UperNetConfig(
        backbone_config=backbone,
        pool_scales=[1, 2],
        hidden_size=16,
        use_auxiliary_head=False,
        num_labels=2,
    )
    return Segments(transformers.UperNetForSemanticSegmentation(config))


def segformer():
    config = transformers.SegformerConfig(
        num_channels=1,
        depths=[1, 1, 1, 1],
        hidden_sizes=[8, 16, 24, 32],
        num_attention_heads=[1, 1, 1, 1],
        sr_ratios=[4, 2, 1, 1],
        decoder_hidden_size=16,
        num_labels=2,
        initializer_range=0.2,  # with less, attention is the same everywhere
    )
    return Segments(transformers.SegformerForSemanticSegmentation(config))


OTHERS = {
    "of a diffusion model": (usual.latent_unet, 2),
    "of an autoencoder of images": (lambda: usual.autoencoder(padded_before=False), 2),
    "of signals, cropped": (usual.wave_unet, 1),
    "with an attention gate": (usual.attention_gate, 2),
    "padded to the skip": (usual.fitted_to_skip, 2),
    "blocks of monai UNETR": (lambda: usual.unetr(positions=False), 2),
    **{f"monai UNet {d}d": (lambda d=d: monai_unet(d), d) for d in (1, 2, 3)},
    "monai UNet, residual": (lambda: monai_unet(2, residual=2), 2),
    "monai BasicUNet 1d": (lambda: basic_unet(1), 1),
    "monai BasicUNet 2d": (lambda: basic_unet(2), 2),
    "monai BasicUNet, interpolating": (lambda: basic_unet(2, "nontrainable"), 2),
    "monai AttentionUnet": (attention_unet, 2),
    "monai BasicUNet, pixel shuffle": (lambda: basic_unet(2, "pixelshuffle"), 2),
    "monai SegResNet": (segresnet, 2),
    "monai SegResNet, pixel shuffle": (lambda: segresnet("pixelshuffle"), 2),
    "monai DynUNet": (dynunet, 2),
    "transformers UperNet": (upernet, 2),
    "transformers SegFormer": (segformer, 2),
}
"""Each with the number of its axes."""
NETWORKS = {**{name: (make, 2) for name, make in OURS.items()}, **OTHERS}


def build(name):
    """Return a network with random weights in eval mode, and an example for it."""
    make, dims = NETWORKS[name]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make().eval()
    deep = 64 if "Basic" in name or "transformers" in name else 32
    size = {1: (2 * deep,), 2: (deep, deep), 3: (16, 16, 16)}[dims]
    return model, torch.randn(2, 1, *size)
