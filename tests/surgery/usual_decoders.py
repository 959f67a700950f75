"""Small decoders of our own, each with what people's networks do on their way up."""

import torch
from monai.networks import blocks
from torch import nn
from torch.nn import functional as F

from tests.small_networks import Does


class Twice(nn.Module):
    """Interpolates and then convolves, as image generators do."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


def down(channels, outputs):
    return nn.Conv2d(channels, outputs, 3, stride=2, padding=1)


def latent_unet():
    """With skips, and modules that interpolate and convolve, as in diffusion models."""

    def forward(m, x):
        high = m.first(x)
        low = m.second(m.down1(high).relu())
        y = m.deepest(m.down2(low).relu())
        y = m.middle(torch.cat([m.up2(y), low], 1)).relu()
        return m.last(torch.cat([m.up1(y), high], 1))

    return Does(
        forward,
        first=nn.Conv2d(1, 4, 3, padding=1),
        down1=down(4, 4),
        second=nn.Conv2d(4, 8, 3, padding=1),
        down2=down(8, 8),
        deepest=nn.Conv2d(8, 8, 3, padding=1),
        up2=Twice(8),
        middle=nn.Conv2d(16, 4, 3, padding=1),
        up1=Twice(4),
        last=nn.Conv2d(8, 2, 3, padding=1),
    )


def autoencoder(padded_before):
    """Of images, without skips. Some pad with a function before each convolution that strides."""

    def padding(channels, outputs):
        layer = nn.Conv2d(channels, outputs, 3, stride=2)
        return Does(lambda m, x: m.conv(F.pad(x, (0, 1, 0, 1))), conv=layer)

    step = padding if padded_before else down
    encoder = step(1, 4), nn.SiLU(), step(4, 8), nn.SiLU()
    return nn.Sequential(*encoder, Twice(8), nn.SiLU(), Twice(8), nn.Conv2d(8, 2, 1))


def wave_unet():
    """For signals: what comes up and the skip beside it are cropped to the shorter of both."""

    def forward(m, x):
        skips = []
        for layer in m.down:
            skips.append(x)
            x = layer(x).relu()
        for layer in m.up:
            skip, x = skips.pop(), layer(x).relu()
            n = min(x.shape[-1], skip.shape[-1])
            x = torch.cat([x[..., :n], skip[..., :n]], 1)
        return m.last(x)

    steps = (1, 4), (4, 8), (8, 8)
    back = (8, 8), (16, 4), (8, 4)
    return Does(
        forward,
        down=nn.ModuleList(nn.Conv1d(*c, 5, padding=2, stride=2) for c in steps),
        up=nn.ModuleList(nn.ConvTranspose1d(*c, 4, stride=2, padding=1) for c in back),
        last=nn.Conv1d(5, 2, 1),
    )


def attention_gate():
    """A skip that is weighed by a map from further down, which is made larger for it."""

    def forward(m, x):
        skip = m.first(x).relu()
        deep = m.second(m.pool(skip)).relu()
        weight = m.weight((m.of_skip(skip) + m.of_deep(deep)).relu()).sigmoid()
        return m.last(torch.cat([skip * m.larger(weight), m.up(deep)], 1))

    return Does(
        forward,
        first=nn.Conv2d(1, 4, 3, padding=1),
        pool=nn.MaxPool2d(2),
        second=nn.Conv2d(4, 8, 3, padding=1),
        of_skip=nn.Conv2d(4, 4, 2, stride=2),
        of_deep=nn.Conv2d(8, 4, 1),
        weight=nn.Conv2d(4, 1, 1),
        larger=nn.Upsample(scale_factor=2, mode="bilinear"),
        up=nn.ConvTranspose2d(8, 4, 2, stride=2),
        last=nn.Conv2d(8, 2, 3, padding=1),
    )


def padded(y, skip):
    """What comes up, padded to the skip by as many samples as it lacks."""
    rows, columns = (n - k for n, k in zip(skip.shape[2:], y.shape[2:], strict=True))
    return F.pad(y, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)), skip


def cropped(y, skip):
    """What comes up and its skip, cropped to the shorter of both."""
    rows, columns = map(min, zip(y.shape[2:], skip.shape[2:], strict=True))
    return y[..., :rows, :columns], skip[..., :rows, :columns]


def fitted_to_skip(up=None, fit=padded):
    """What comes up, by a transposed convolution if by nothing else, is made to fit the skip."""

    def forward(m, x):
        skip = m.first(x)
        y = m.second(m.pool(skip)).relu()
        y, skip = fit((up or m.up)(y), skip)
        return m.last(torch.cat([skip, y], 1))

    return Does(
        forward,
        first=nn.Conv2d(1, 4, 3, padding=1),
        pool=nn.MaxPool2d(2),
        second=nn.Conv2d(4, 4 if up else 8, 3, padding=1),
        last=nn.Conv2d(8, 2, 3, padding=1),
        **({} if up else {"up": nn.ConvTranspose2d(8, 4, 2, stride=2)}),
    )


def cropped_skip():
    """The first U-Net: convolutions that do not pad, and skips that are cropped in the middle."""

    def forward(m, x):
        skip = m.first(x).relu()
        y = m.up(m.second(m.pool(skip)).relu())
        rows, columns = ((n - k) // 2 for n, k in zip(skip.shape[2:], y.shape[2:], strict=True))
        cropped = skip[..., rows : rows + y.shape[2], columns : columns + y.shape[3]]
        return m.last(torch.cat([cropped, y], 1))

    return Does(
        forward,
        first=nn.Conv2d(1, 4, 3),
        pool=nn.MaxPool2d(2),
        second=nn.Conv2d(4, 8, 3),
        up=nn.ConvTranspose2d(8, 4, 2, stride=2),
        last=nn.Conv2d(8, 2, 3),
    )


def unetr(positions):
    """A transformer of patches, and the blocks with which MONAI's UNETR goes up from it.

    That itself needs another package. Without positions it takes any number of patches.
    """

    def forward(m, x):
        y = m.patches(x)
        tokens = y.flatten(2).mT
        if positions:
            tokens = tokens + m.positions
        first = m.attention[0](tokens)
        both = (t.mT.reshape(y.shape) for t in (first, m.attention[1](first)))
        middle, deep = both
        y = m.up2(m.deep_up(deep), m.middle_up(middle))
        return m.last(m.up1(y, m.skip(x)))

    how = {"spatial_dims": 2, "kernel_size": 3, "norm_name": "instance", "res_block": True}
    larger = {**how, "upsample_kernel_size": 2}
    again = {**larger, "num_layer": 0, "stride": 1, "conv_block": True}
    model = Does(
        forward,
        patches=nn.Conv2d(1, 16, 8, stride=8),
        attention=nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in "12"
        ),
        skip=blocks.UnetrBasicBlock(in_channels=1, out_channels=4, stride=1, **how),
        middle_up=blocks.UnetrPrUpBlock(
            in_channels=16, out_channels=8, **{**again, "num_layer": 1}
        ),
        deep_up=blocks.UnetrPrUpBlock(in_channels=16, out_channels=16, **again),
        up2=blocks.UnetrUpBlock(in_channels=16, out_channels=8, **larger),
        up1=blocks.UnetrUpBlock(in_channels=8, out_channels=4, **larger),
        last=nn.Conv2d(4, 2, 1),
    )
    if positions:
        model.positions = nn.Parameter(torch.zeros(1, 16, 16))  # of 4 × 4 patches
    return model
