"""The pages of the reference: which public name is on which, and the words of the command line."""

import contextlib
import inspect
import io
import os
import pydoc
import re
from typing import NamedTuple
from unittest import mock

import diffstride
from diffstride import functional, lab, models


class Group(NamedTuple):
    """Names that share a page. They are those of `diffstride`, or paths below it."""

    title: str
    text: str
    names: tuple[str, ...]


GROUPS = {
    "diffstride": Group(
        "DiffStride",
        "The layer whose stride is a parameter.",
        ("DiffStride2d", "DiffStride1d", "DiffStride3d"),
    ),
    "conv": Group(
        "DiffStrideConv",
        "A convolution with a stride that is learned.",
        ("DiffStrideConv2d", "DiffStrideConv1d", "DiffStrideConv3d"),
    ),
    "spectral_pool": Group(
        "SpectralPool",
        "The same cut at a stride or a size that is fixed.",
        ("SpectralPool2d", "SpectralPool1d", "SpectralPool3d"),
    ),
    "upsample": Group(
        "The way up",
        "Layers that make maps larger, by a stride that is learned or by a fixed scale.",
        (
            *(f"DiffUpsample{n}d" for n in (2, 1, 3)),
            *(f"SpectralUpsample{n}d" for n in (2, 1, 3)),
        ),
    ),
    "adaptive": Group(
        "AdaptiveStride",
        "Strides that are found anew for each example.",
        (*(f"AdaptiveStride{n}d" for n in (2, 1, 3)), "StridePredictor"),
    ),
    "multi_scale": Group(
        "MultiScale",
        "Branches with strides of their own, side by side.",
        tuple(f"MultiScale{n}d" for n in (2, 1, 3)),
    ),
    "rivals": Group(
        "Methods of others",
        "Layers of five published ways to downsample.",
        tuple(
            f"{kind}{n}d"
            for kind in (
                *("BlurPool", "FrequencyLowCut", "PolyphaseSample"),
                *("ShapeAdaptor", "LearnedResize"),
            )
            for n in (2, 1, 3)
        ),
    ),
    "functional": Group(
        "Functions",
        "What the layers compute, as pure functions in `diffstride.functional`: no parameters, "
        "no state.",
        tuple(f"functional.{name}" for name in sorted(vars(functional)) if name[0] != "_"),
    ),
    "models": Group(
        "Networks",
        "Networks in which every downsampling is an argument, in `diffstride.models`. "
        "`models.create` makes one by its name; it reads its arguments into a `Spec`, and calls "
        "the function of that name with it.",
        (
            *(
                f"models.{name}"
                for name in ("create", "list", "save_pretrained", "from_pretrained")
            ),
            *(f"models.{name}" for name in models.list()),
            "layers.downsample",
        ),
    ),
    "convert": Group(
        "Convert, freeze, export",
        "What changes a whole network, and returns a copy.",
        ("convert", "layers.apply_conversion", "freeze", "export_onnx"),
    ),
    "cost": Group(
        "Cost",
        "What a network costs, at its strides or at any others, and what its strides mean.",
        (
            "cost",
            "stride_table",
            "CostModel",
            "Timings",
            "soft_macs",
            "stride_penalty",
        ),
    ),
    "budget": Group("Budget", "Strides that are held to a cost.", ("Budget", "fit_budget")),
    "strides": Group(
        "Finding and keeping strides",
        "Searches, an optimiser for strides, and plans: strides that were found, in numbers.",
        (
            "search",
            "StrideOptimizer",
            "StridePlan",
            "stride_plan",
            "strides.levels.LevelPlan",
        ),
    ),
    "training": Group(
        "Training",
        "What a training loop needs besides: in `diffstride.lab` are what records any training for "
        "`diffstride report`, and callbacks for Lightning and transformers.",
        (
            "parameter_groups",
            "lab.Recorder",
            "lab.StrideMonitor",
            "lab.StrideCallback",
            "lab.training.callbacks.SmoothnessSchedule",
        ),
    ),
}
MODULES = ("functional", "models")
"""Public names that are no function and no class: what is in them has entries instead."""
ENTRIES = {"models.unet": "models.unet.unet", "list_models": "models.list"}
"""Names whose entry has another path: that of one is a module's too, the other is an alias."""


def public() -> set[str]:
    """Every public name, with those in the public modules, without `diffstride.` before it."""
    names = {name for name in diffstride.__all__ if name not in MODULES}
    names |= {f"lab.{name}" for name in lab.__all__}
    inside = {"functional": functional, "models": models}
    for module, found in inside.items():
        own = {name for name, value in vars(found).items() if callable(value) and name[0] != "_"}
        names |= {f"{module}.{name}" for name in own}
    return names


def pages() -> dict[str, str]:
    """The text of each page by its path in the site."""
    made = {"api/index.md": _overview()}
    for name, group in GROUPS.items():
        entries = "\n\n".join(f"::: {path_of(path)}" for path in group.names)
        made[f"api/{name}.md"] = f"# {group.title}\n\n{group.text}\n\n{entries}\n"
    return made | {"api/command_line.md": _command_line()}


def navigation() -> list[dict[str, str] | str]:
    """The pages of the reference in their order, as `nav` has them."""
    titles = {f"api/{name}.md": group.title for name, group in GROUPS.items()}
    pages = {"api/index.md": "All names", **titles, "api/command_line.md": "The command line"}
    return [{title: page} for page, title in pages.items()]


def path_of(name: str) -> str | None:
    """The full path of an entry by that of a name, or by its last part alone.

    >>> path_of("DiffStride2d"), path_of("diff_stride"), path_of("diffstride.models.create")
    ('diffstride.DiffStride2d', 'diffstride.functional.diff_stride', 'diffstride.models.create')
    """
    name = name.removeprefix("diffstride.")
    if name in ENTRIES:
        return f"diffstride.{ENTRIES[name]}"
    for group in GROUPS.values():
        for path in group.names:
            if name in (path, path.rpartition(".")[2]):
                return f"diffstride.{path}"
    return None


def _overview() -> str:
    """Tables of all names, with the first line that each says of itself."""
    words = "Every public name, by what it is for. See also [the command line](command_line.md)."
    lines = ["# All names", "", words]
    for name, group in GROUPS.items():
        lines += ["", f"## {group.title}", "", f"{group.text} [The page]({name}.md)."]
        lines += ["", "| | |", "|---|---|"]
        for path in group.names:
            found = inspect.getdoc(pydoc.locate(f"diffstride.{path}")) or ""
            first = re.sub(r":\w+:`", "`", found.partition("\n")[0])
            lines.append(f"| [`{path}`][{path_of(path)}] | {first} |")
    return "\n".join([*lines, ""])


def _command_line() -> str:
    """What `diffstride --help` and the help of each command say."""
    from diffstride.lab.cli import COMMANDS

    parts = ["# The command line", _help(), "`pip install 'diffstride[train]'` has what it needs."]
    for command in COMMANDS:
        words = (command, "digits") if command in ("train", "search") else (command,)
        parts += [f"## diffstride {command}", _help(*words)]
    return "\n\n".join(parts) + "\n"


def _help(*words: str) -> str:
    from diffstride.lab.cli import main

    said = io.StringIO()
    plain = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    with mock.patch.dict(os.environ, plain), contextlib.redirect_stdout(said):
        with contextlib.suppress(SystemExit):
            main([*words, "--help"])
    return f"```text\n{said.getvalue().rstrip()}\n```"
