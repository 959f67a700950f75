"""Networks by name."""

import json
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

from torch import nn

from diffstride.core import arguments
from diffstride.models import audio, densenet, efficientnet, resnet, signal, unet
from diffstride.models.spec import Spec, Stride

# How to build each, and what it takes unless given that others do not.
MODELS: dict[str, tuple[Callable[[Spec], nn.Module], dict[str, Any]]] = {
    "resnet18": (resnet.resnet18, {}),
    "preact_resnet18": (resnet.preact_resnet18, {}),
    "preact_resnet56": (resnet.preact_resnet56, {}),
    "densenet121": (densenet.densenet121, {}),
    "efficientnet_b0": (efficientnet.efficientnet_b0, {"stem": "imagenet"}),
    "audio_cnn": (audio.audio_cnn, {"in_channels": 1}),
    "signal_cnn": (signal.signal_cnn, {"in_channels": 1, "dims": 1}),
    "unet": (unet.unet, {}),
}


def list_models() -> list[str]:
    """Return the names that :func:`create` knows.

    >>> list_models()[:3]
    ['resnet18', 'preact_resnet18', 'preact_resnet56']
    """
    return [*MODELS]


def create(
    name: str,
    *,
    num_classes: int | Mapping[str, int],
    in_channels: int | None = None,
    downsampling: str = "diffstride",
    strides: Sequence[Stride] | None = None,
    smoothness: float = 4.0,
    shared: bool = False,
    width: float = 1.0,
    dims: int | None = None,
    stem: str | None = None,
    stem_downsampling: str = "strided",
    placement: str = "after",
    **options: Any,
) -> nn.Module:
    """Make a network with the downsampling of your choice at every site.

    It keeps what it was asked to be as ``created_with``, arguments that make it again.

    Args:
        name: one of :func:`list_models`; the function of that name in ``diffstride.models`` says
            what it is and which sites it has.
        num_classes: how many scores come out; for ``audio_cnn`` also a mapping task → classes. They
            are scores of a whole example, but for ``unet`` of every place of it; a network's
            ``is_dense`` says which.
        in_channels: 3 for images, 1 for audio and signals, unless given.
        downsampling: ``"diffstride"``, ``"strided"`` (the textbook network) or another kind that
            :func:`diffstride.layers.downsample` has.
        strides: one for each site, a number or one per axis, or all of the latter in a row; those
            of the textbook network unless given. Where strides are learned, the initial ones.
        smoothness: R of learnable strides.
        shared: whether a site learns one stride for all axes instead of one each.
        width: multiplies all channels.
        dims: 1 for signals, 2 for images, 3 for volumes or video; 1 for ``signal_cnn`` and 2 for
            others unless given.
        stem: ``"cifar"`` begins at full size, ``"imagenet"`` with the first convolution and pooling
            of large images; the latter is what EfficientNet has unless given.
        stem_downsampling: how the first convolution of an ImageNet stem, no site, downsamples.
        placement: where a block downsamples: ``"after"`` its first convolution, as in the paper, or
            ``"before"`` it, so that all of the block works on the smaller map.
        options: other arguments of :func:`diffstride.layers.downsample`, such as ``norm``.

    Raises:
        ValueError: for an argument out of range, or strides that are not as many as the sites.

    >>> model = create("resnet18", num_classes=10, strides=(2, 2, (2.0, 3.0)), width=0.25)
    >>> model.stages[3][0].downsample.strides
    (2.0, 3.0)
    """
    settings = {key: value for key, value in locals().items() if key not in ("name", "options")}
    arguments.check_choice(name, MODELS, "name")
    build, usual = MODELS[name]
    for key, value in {"in_channels": 3, "stem": "cifar", "dims": 2, **usual}.items():
        settings[key] = value if settings[key] is None else settings[key]
    made = build(Spec(**settings, options=options))
    # As JSON has it: :func:`diffstride.models.save_pretrained` writes it.
    text = json.dumps({"name": name, **settings, **options}, default=_plain)
    vars(made)["created_with"] = json.loads(text)
    return made


def _plain(value: Any) -> Any:
    """Return what JSON does not know by itself as something that it does."""
    if hasattr(value, "tolist"):  # numbers and arrays of numpy and torch
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return float(value) if isinstance(value, Real) else list(value)
