"""Put other layers in the places of a network that have a stride."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from diffstride.analysis.restoring import check_copyable, copied
from diffstride.layers.conv import DiffStrideConvNd
from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.resizer import Resizer, learned_strides, resizers
from diffstride.layers.spectral_pool import SpectralPoolNd
from diffstride.layers.undo import Undo
from diffstride.strides.sites import StrideSite
from diffstride.surgery.constants import replace_modules
from diffstride.surgery.freeze import forget_conversion

Replaceable = DiffStrideNd | SpectralPoolNd


def with_layers(
    model: nn.Module, sites: Sequence[StrideSite], make: Callable[[StrideSite, Any], nn.Module]
) -> nn.Module:
    """Return a copy of a network with another layer at each site.

    Args:
        model: the network. It is left as it is.
        sites: where to put them.
        make: returns the new layer, from the site and the layer that is there.

    Raises:
        ValueError: for a site that the network does not have or whose layer can't be replaced, and
            for a learnable stride of the network that is no site; with the name of the layer.
    """
    check_copyable(model, "apply the plan to")
    changed = copied(model)
    layers = {site.name: _layer_at(changed, site) for site in sites}
    learned = learned_strides(changed).items()
    forgotten = [
        name
        for name, layer in learned
        if layer.stride.requires_grad and layer not in layers.values()
    ]
    if forgotten:
        raise ValueError(
            f"the network has learnable strides that the plan has not: {', '.join(forgotten)}. "
            f"Make the plan of a network built like this one; a layer that is not to be in it "
            f"has learnable=False"
        )
    made: dict[nn.Module, nn.Module] = {}
    for site in sites:
        made[layers[site.name]] = make(site, layers[site.name])
    for old, new in made.items():
        new.train(old.training)
    for _, layer in resizers(changed):
        if isinstance(layer, Undo):
            its_place = made.get(layer.undone)
            if isinstance(its_place, Resizer):
                layer.undo_instead(its_place)
    changed = replace_modules(changed, made)
    forget_conversion(changed)
    vars(changed).pop("created_with", None)  # arguments that would make another network
    return changed


def _layer_at(model: nn.Module, site: StrideSite) -> Resizer:
    """Return the layer of a site, if another one may take its place."""
    try:
        layer = model.get_submodule(site.name)
    except AttributeError as error:
        known = [name for name, x in model.named_modules() if isinstance(x, Replaceable)]
        raise ValueError(
            f"the plan has a layer {site.name!r}, and the network has none of that name: its "
            f"layers with a stride are {', '.join(map(repr, known)) or 'none'}. Apply the plan to "
            f"a network built like the one that it was made of"
        ) from error
    kind, where = type(layer).__name__, site.name or "the model"
    if not isinstance(layer, Replaceable):
        inside = isinstance(layer, DiffStrideConvNd)
        advice = f"name its stride, {site.name}.downsample" if inside else "build it as it was"
        raise ValueError(
            f"{where} is a {kind}, and the plan has a DiffStride or SpectralPool there: {advice}"
        )
    if type(layer).forward is not Resizer.forward:
        raise ValueError(
            f"{where} is a {kind} with a forward of its own, and a spectral pooling in its place "
            f"would do less: use a DiffStride layer, and do the rest in a layer of its own"
        )
    if layer.axes != len(site.strides):
        raise ValueError(
            f"{where} is a {kind}, of {layer.axes} axes, and the plan has {len(site.strides)} "
            f"strides for it, {site.strides}: one is needed for each axis"
        )
    return layer
