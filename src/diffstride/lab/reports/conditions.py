"""How it was made: training curves, data, settings, machines."""

from collections.abc import Iterable, Sequence
from typing import Any

from diffstride.lab.reports import plots
from diffstride.lab.reports.run_reader import Run
from diffstride.lab.reports.sections import Block, Group, Legend, Part, Section


def training(part: Part) -> Section | None:
    groups = [group for group in part.groups if any(run.metrics for run in group.runs)]
    if not groups:
        return None

    def lines(own: Sequence[Group], names: Sequence[str], scale: float) -> list[Any]:
        return [
            (
                part.rows.index(g.row) if part.sweep else groups.index(g),
                dash,
                [
                    [(row["epoch"], scale * row[name]) for row in run.metrics if name in row]
                    for run in g.runs
                ],
            )
            for g in own
            for dash, name in enumerate(names)
        ]

    kinds = (("accuracy", "accuracy (%)", 100.0), ("loss", "loss", 1.0))
    if part.sweep is None:
        legend: Legend = [(i, 0, group.title) for i, group in enumerate(groups)]
        legend += [(None, 0, "test"), (None, 1, "train")]
        items = [
            (
                plots.curves(lines(groups, [f"test_{k}", f"train_{k}"], scale), ylabel=label),
                k.title(),
            )
            for k, label, scale in kinds
        ]
    else:
        legend = [(i, 0, row) for i, row in enumerate(part.rows)]
        items = [
            (
                plots.curves(
                    lines([g for g in groups if g.column == column], [f"test_{k}"], scale),
                    ylabel=f"test {label}",
                ),
                f"{column}: test {k}",
            )
            for column in dict.fromkeys(group.column for group in groups)
            for k, label, scale in kinds
        ]
    return Section("Training", "", [{"kind": "figures", "legend": legend, "items": items}])


def conditions(part: Part) -> Section | None:
    """What all runs have in common, and where they were made."""
    if not part.runs:
        return None
    settings = [_flat(run.config) for run in part.runs]
    names = [name for name in settings[0] if name not in ("name", "out")]
    same = [n for n in names if all(own.get(n) == settings[0][n] for own in settings)]
    differ = [n for n in names if n not in same]
    blocks: list[Block] = [
        _listing("Data", found, count) for found, count in _distinct(map(_data, part.runs))
    ]
    where = [
        {k: _shown(v) for k, v in run.environment.items() if k not in ("seed", "started")}
        for run in part.runs
    ]
    blocks += [_listing("Environment", found, count) for found, count in _distinct(where) if found]
    shared = {name: _shown(settings[0][name]) for name in same}
    if shared:
        blocks.append(_listing("Settings", shared, len(settings)) | {"folded": True})
    text = f"Runs differ in {', '.join(differ)}." if differ else ""
    return Section("Data and environment", text, blocks)


def _data(run: Run) -> dict[str, str]:
    facts, told = run.facts, run.config.get("data", {})
    if tasks := told.get("task"):
        found = {"tasks": _shown(tasks)}
    else:
        found = {"path": str(told.get("path") or "built in: handwritten digits")}
    if "size" in facts:
        found["size of one example"] = " × ".join(map(str, facts["size"]))
    if "classes" in facts:
        found["classes"] = _shown(
            {k: len(v) for k, v in facts["classes"].items()}
            if isinstance(facts["classes"], dict)
            else len(facts["classes"])
        )
    for split in ("train", "test"):
        if split in facts:
            found[f"{split} examples"] = _shown(facts[split])
    return found


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        )
    return flat


def _distinct(found: Iterable[dict[str, str]]) -> list[tuple[dict[str, str], int]]:
    """Each mapping once, with how often it occurs."""
    counted: dict[tuple[tuple[str, str], ...], int] = {}
    for values in found:
        key = tuple(values.items())
        counted[key] = counted.get(key, 0) + 1
    return [(dict(key), count) for key, count in counted.items()]


def _listing(title: str, values: dict[str, str], count: int) -> Block:
    caption = f"{title} of {count} runs" if count > 1 else title
    return {"kind": "table", "caption": caption, "head": [], "rows": list(values.items())}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_shown(own)}" for name, own in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    return "none" if value is None else str(value)
