"""Which layers of a network are to be converted."""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatch

from torch import Tensor, nn

from diffstride.layers.conversion_record import check_convertible
from diffstride.layers.converted import CONVERTED, torch_class, whole_strides

KINDS = ("conv", "maxpool", "avgpool")


def find_sites(
    model: nn.Module, kinds: Sequence[str], include: Sequence[str] | None, exclude: Sequence[str]
) -> dict[str, nn.Module]:
    """The layers to convert, by name; a ValueError if one can't be."""
    found = {}
    for name, module in _strided(model).items():
        wanted = include is None or any(fnmatch(name, pattern) for pattern in include)
        if not wanted or any(fnmatch(name, pattern) for pattern in exclude):
            continue
        base = torch_class(module)
        assert base is not None
        if CONVERTED[base][0] in kinds:
            check_convertible(name, module)
            found[name] = module
    return found


def left_out(model: nn.Module, sites: Mapping[str, nn.Module]) -> Collection[str]:
    """The names of layers that could have been converted, and were not asked for."""
    return set(_strided(model)) - set(sites)


def _strided(model: nn.Module) -> dict[str, nn.Module]:
    return {
        name: module
        for name, module in model.named_modules()
        if torch_class(module) is not None and max(whole_strides(module)) > 1
    }


def check_example(example: Tensor, sites: Mapping[str, nn.Module]) -> None:
    """Raise a ValueError unless the example is a batch for one of the layers at least."""
    axes = {name: len(whole_strides(module)) for name, module in sites.items()}
    if axes and example.ndim - 2 not in axes.values():
        name, some = next(iter(axes.items()))
        kind = type(sites[name]).__name__
        raise ValueError(
            f"example_input must be a batch, of {some + 2} axes for {name or 'the model'} "
            f"({kind}): (batch, channels, and {some} more); got the shape "
            f"{tuple(example.shape)}. A single example becomes a batch by example_input[None]"
        )
