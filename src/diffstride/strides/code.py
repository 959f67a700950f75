"""Strides as lines of Python that somebody copies into a program."""

import json
from collections.abc import Sequence

from diffstride.strides.sites import POOLS, StrideSite
from diffstride.text import times


def code_for(sites: Sequence[StrideSite], input_size: Sequence[int], macs: int) -> str:
    """Return Python that puts fixed layers into the sites of a network called ``model``."""
    kinds = sorted({POOLS[len(site.strides)].__name__ for site in sites})
    lines = [
        f"from diffstride import {', '.join(kinds)}",
        "",
        f"# Fixed strides in the places of learnable ones: {macs:,} multiply-accumulates.",
        f"# Sizes before → after are for inputs of {times(input_size)} (channels × size).",
    ]
    for site in sites:
        sizes = f"  # {times(site.input_size)} → {times(site.output_size)}"
        if not site.name:
            lines.append(f"model = {layer_code(site)}{sizes}")
            continue
        name = json.dumps(site.name)
        lines.append(f"model.set_submodule({name}, {layer_code(site)}){sizes}")
        for other in map(json.dumps, site.other_names):
            same = f"model.get_submodule({name})"
            lines.append(f"model.set_submodule({other}, {same})  # the same layer")
        for up in map(json.dumps, site.undone_by):
            new = f"model.get_submodule({name})"
            lines.append(f"model.get_submodule({up}).undo_instead({new})  # on the way up")
    if all(site.is_whole for site in sites):
        lines += ["", *_plain_network(sites, input_size)]
    return "\n".join(lines) + "\n"


def layer_code(site: StrideSite) -> str:
    """Return the layer that :meth:`StrideSite.layer` makes, as Python.

    >>> layer_code(StrideSite("0", (2.25, 3.0), (32, 32), (14, 10), 0, norm="forward"))
    'SpectralPool2d(stride=(2.25, 3), norm="forward")'
    """
    numbers = [f"{s:.12f}".rstrip("0").rstrip(".") for s in site.fixed_strides]
    stride = f"({', '.join(numbers)})" if len(numbers) > 1 else numbers[0]
    usual = {"norm": "ortho", "basis": "fourier", "path": "auto"}
    options = [f", {k}={json.dumps(v)}" for k, v in site.options.items() if v != usual[k]]
    return f"{POOLS[len(numbers)].__name__}(stride={stride}{''.join(options)})"


def _plain_network(sites: Sequence[StrideSite], input_size: Sequence[int]) -> list[str]:
    """Return, as comments, which strides convolutions have instead."""
    lines = [
        "# These strides are whole. A plain network has them in its convolutions, without these",
        "# layers: give each to the convolution that the layer is a part of or stands next to, and",
        "# in a residual block to that of the shortcut too.",
    ]
    for site in sites:
        stride = tuple(int(s) for s in site.fixed_strides)
        given = stride if len(stride) > 1 else stride[0]
        lines.append(f"#   {json.dumps(site.name)}: nn.Conv{len(stride)}d(..., stride={given})")
    freeze = f"diffstride.freeze(model, {tuple(input_size)}, integer_strides=True)"
    return [*lines, f"# The same is done by {freeze}."]
