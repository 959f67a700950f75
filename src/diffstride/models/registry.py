"""Networks by name."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

from torch import nn

from diffstride.models import audio, densenet, efficientnet, resnet
from diffstride.models.spec import Spec, Stride


class Model(NamedTuple):
    """How to build a network, and what it takes unless told otherwise."""

    build: Callable[[Spec], nn.Module]
    in_channels: int = 3
    stem: str = "cifar"


MODELS = {
    "resnet18": Model(resnet.resnet18),
    "preact_resnet18": Model(resnet.preact_resnet18),
    "preact_resnet56": Model(resnet.preact_resnet56),
    "densenet121": Model(densenet.densenet121),
    "efficientnet_b0": Model(efficientnet.efficientnet_b0, stem="imagenet"),
    "audio_cnn": Model(audio.audio_cnn, in_channels=1),
}


def list_models() -> list[str]:
    """The names that :func:`create` knows.

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
    dims: int = 2,
    stem: str | None = None,
    stem_downsampling: str = "strided",
    **options: Any,
) -> nn.Module:
    """Make a network with the downsampling of your choice at every site.

    It keeps what it was asked to be as ``created_with``, arguments that make it again.

    Args:
        name: one of :func:`list_models`; what it is and which sites it has says the docstring of
            the function of that name in ``diffstride.models``.
        num_classes: how many scores come out; for ``audio_cnn`` also a mapping task → classes.
        in_channels: 3 for images, 1 for audio, unless given.
        downsampling: ``"diffstride"``, ``"strided"`` (the textbook network) or another kind that
            :func:`diffstride.layers.downsample` has.
        strides: one a site, each a number or one number per axis, or all of the latter in a row;
            those of the textbook network unless given. Where a stride is learned, these are the
            initial ones.
        smoothness: R of learnable strides.
        shared: whether a site learns one stride for all axes instead of one each.
        width: multiplies all channels.
        dims: 1 for signals, 2 for images, 3 for volumes or video.
        stem: ``"cifar"`` begins at full size, ``"imagenet"`` with the first convolution and pooling
            of large images. EfficientNet begins with the latter unless told otherwise.
        stem_downsampling: how the first convolution of an ImageNet stem downsamples; it is not
            one of the sites.
        options: other arguments of the layers, such as ``norm`` and ``convention``; see
            :func:`diffstride.layers.factory`.

    Raises:
        ValueError: for an argument out of range, or another number of strides than sites; the
            message names them.

    >>> model = create("resnet18", num_classes=10, strides=(2, 2, (2.0, 3.0)), width=0.25)
    >>> model.stages[3][0].downsample.strides
    (2.0, 3.0)
    """
    if name not in MODELS:
        raise ValueError(f"name must be one of {', '.join(MODELS)}; got {name!r}")
    model = MODELS[name]
    spec = Spec(
        num_classes=num_classes,
        in_channels=model.in_channels if in_channels is None else in_channels,
        downsampling=downsampling,
        strides=strides,
        smoothness=smoothness,
        shared=shared,
        width=width,
        dims=dims,
        stem=model.stem if stem is None else stem,
        stem_downsampling=stem_downsampling,
        options=options,
    )
    made = model.build(spec)
    told = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec) if f.name != "options"}
    arguments = {"name": name, **told, **options}
    # As JSON has them: :func:`diffstride.models.save_pretrained` writes them.
    vars(made)["created_with"] = json.loads(json.dumps(arguments, default=_plain))
    return made


def _plain(value: Any) -> Any:
    """What JSON does not know by itself, as something that it does."""
    if hasattr(value, "tolist"):  # numbers and arrays of numpy and torch
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return float(value) if isinstance(value, Real) else list(value)
