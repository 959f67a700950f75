"""The sections on how runs were made: training curves, data, settings, machines."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from diffstride.lab.reports import chapters, plots
from diffstride.lab.reports.chapters import Chapter, PageBlock, RunGroup, Section
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.text import times

CURVES = (("accuracy", "accuracy (%)", 100.0), ("loss", "loss", 1.0))
"""What is drawn: a metric, its label and its scale."""


def training_curves(chapter: Chapter) -> Section:
    """Accuracy and loss over the epochs: all runs in one figure, or a sweep's by method."""
    groups = [group for group in chapter.groups if any(run.metrics for run in group.runs)]
    in_sweep, rows = chapter.sweep is not None, chapter.rows
    panels: dict[str, list[tuple[int, RunGroup]]] = {}
    for i, group in enumerate(groups):
        panel, colour = (group.column, rows.index(group.row)) if in_sweep else ("", i)
        panels.setdefault(panel, []).append((colour, group))
    items = []
    for panel, members in panels.items():
        for metric, label, scale in CURVES:
            lines = [
                (colour, dash, [run.curve(f"{split}_{metric}", scale) for run in group.runs])
                for colour, group in members
                for dash, split in enumerate(["test"] if in_sweep else ["test", "train"])
            ]
            svg = plots.curves(lines, ylabel=f"test {label}" if in_sweep else label)
            items.append((svg, f"{panel}: test {metric}" if in_sweep else metric.title()))
    legend = chapters.colour_legend(rows if in_sweep else [group.title for group in groups])
    legend += [] if in_sweep else [(None, 0, "test"), (None, 1, "train")]
    return Section("Training", "", chapters.figures(legend, items))


def data_and_environment(chapter: Chapter) -> Section:
    """What all runs have in common, and where they were made."""
    settings = [_flat(run.config) for run in chapter.runs] or [{}]
    first = {name: value for name, value in settings[0].items() if name not in ("name", "out")}
    shared = {
        name: _shown(value)
        for name, value in first.items()
        if all(other.get(name) == value for other in settings)
    }
    environments = [
        {name: _shown(v) for name, v in run.environment.items() if name not in ("seed", "started")}
        for run in chapter.runs
    ]
    differing = [name for name in first if name not in shared]
    return Section(
        "Data and environment",
        f"Runs differ in {', '.join(differing)}." if differing else "",
        [
            *_listings("Data", map(_data, chapter.runs)),
            *_listings("Environment", environments),
            *_listings("Settings", [shared] * len(settings), folded=True),
        ],
    )


def _data(run: RunRecord) -> dict[str, str]:
    facts, settings = run.data_facts, run.config.get("data", {})
    if tasks := settings.get("task"):
        values = {"tasks": _shown(tasks)}
    else:
        values = {"path": str(settings.get("path") or "built in: handwritten digits")}
    if "size" in facts:
        values["size of one example"] = times(facts["size"])
    if isinstance(classes := facts.get("classes"), dict):
        values["classes"] = _shown({task: len(names) for task, names in classes.items()})
    elif classes is not None:
        values["classes"] = str(len(classes))
    for split in ("train", "test"):
        if split in facts:
            values[f"{split} examples"] = _shown(facts[split])
    return values


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by names with dots."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        nested = isinstance(value, dict)
        flat |= _flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat


def _listings(
    title: str, mappings: Iterable[dict[str, str]], folded: bool = False
) -> list[PageBlock]:
    """A table of names and values for each distinct mapping, with how many runs have it."""
    counts = Counter(tuple(values.items()) for values in mappings if values)
    blocks: list[PageBlock] = []
    for rows, count in counts.items():
        caption = f"{title} of {count} runs" if count > 1 else title
        blocks += chapters.table(caption, [], rows, folded)
    return blocks


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_shown(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    return "none" if value is None else str(value)
