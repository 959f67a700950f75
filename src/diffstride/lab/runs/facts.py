"""What a run knows of its data: data.json, checked while it is read."""

import math
from pathlib import Path
from typing import Any

from diffstride.lab.runs.documents import LARGEST_SIZE, DamagedFile, read_json, short

MOST_CHANNELS = 1024


def read_facts(path: Path, *names: str) -> dict[str, Any]:
    """Return the facts on the data of a run, each of the kind that it must be.

    Args:
        path: of data.json.
        names: of those that must be there.

    Raises:
        DamagedFile: if one is not there, or of another kind.
        OSError: if there is no such file.
    """
    facts = read_json(path, *names)
    expected = {
        "size": (
            _is_size,
            f"channels (1 to {MOST_CHANNELS:,}) and 1 to 3 sizes (1 to {LARGEST_SIZE:,})",
        ),
        "mean": (_are_numbers, "a list of numbers"),
        "std": (_are_numbers, "a list of numbers"),
        "classes": (_are_classes, "a list of names, or one for each task"),
        "axes": (_are_words, "a list of words"),
        "sampling_rate": (_are_rates, "a list of numbers above 0"),
        "train": (_is_count, "a whole number, or one for each task"),
        "test": (_is_count, "a whole number, or one for each task"),
        "skipped": (lambda value: isinstance(value, list), "a list of files"),
    }
    for name, (is_right, kind) in expected.items():
        if name in facts and not is_right(facts[name]):
            raise DamagedFile(f"{path}: {name} must be {kind}, got {short(facts[name])}")
    given = [name for name in ("axes", "sampling_rate") if name in facts]
    for name in given:
        if len(facts.get("size", ())) != 1 + len(facts[name]):
            raise DamagedFile(
                f"{path}: {name} must be as many as size has after the channels, got "
                f"{short(facts[name])} and {short(facts.get('size'))}"
            )
    if given == ["axes"]:
        raise DamagedFile(f"{path} must have sampling_rate where it has axes: there is none")
    return facts


def _is_whole(value: Any, lowest: int, highest: int) -> bool:
    return type(value) is int and lowest <= value <= highest


def _is_size(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 2 <= len(value) <= 4
        and _is_whole(value[0], 1, MOST_CHANNELS)
        and all(_is_whole(n, 1, LARGEST_SIZE) for n in value[1:])
    )


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return abs(value) < 10**300  # beyond, it is no float
    return type(value) is float and math.isfinite(value)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _are_rates(value: Any) -> bool:
    return _are_numbers(value) and all(rate > 0 for rate in value)


def _are_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _are_classes(value: Any) -> bool:
    tasks = list(value.values()) if isinstance(value, dict) else [value]
    return bool(tasks) and all(_are_words(names) and names for names in tasks)


def _is_count(value: Any) -> bool:
    tasks = value.values() if isinstance(value, dict) else [value]
    return all(_is_whole(count, 0, 10**12) for count in tasks)
