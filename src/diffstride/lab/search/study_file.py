"""The file of a study: what it may say, and the names of the rows and runs that follow from it."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diffstride.lab.search.stages import TRIALS
from diffstride.lab.sweeps.tables import toml
from diffstride.strides.trials import FEWEST

NAMES = ("recipe", "title", "seeds", "settings", "beginnings", "random", "trials", "learned")
TRIED = "best of the trials"
AGAIN = f"{TRIED}, another seed"
OWN_ROWS = (TRIED, AGAIN)


def run_name(row: str, column: str, seed: int) -> str:
    """Return the name of the run in a place of the table of a study."""
    return re.sub(r"[^\w.+-]+", "_", f"{column}-{row}-s{seed}")


def read_study(path: Path) -> dict[str, Any]:
    """Return the content of a file, if all in it has the form it must have."""
    content: dict[str, Any] = toml.loads(path.read_text("utf-8"))
    if unknown := sorted(set(content) - set(NAMES)):
        raise ValueError(f"{path} has {', '.join(unknown)}; it may have {', '.join(NAMES)}")
    for name in ("recipe", "title"):
        if not isinstance(text := content.get(name, ""), str):
            raise ValueError(f"{path}: {name} must be a text, got {text!r}")
    for name in ("settings", "beginnings"):
        if not isinstance(table := content.get(name, {}), dict):
            raise ValueError(f"{path}: [{name}] must be a table, got {table!r}")
    random, seeds = content.get("random", 8), content.get("seeds", [0])
    if not (type(random) is int and (random == 0 or random >= 2)):
        wanted = "a whole number, 0 or at least 2"
        raise ValueError(f"{path}: random must be {wanted}, got {random!r}")
    if not (type(trials := content.get("trials", TRIALS)) is int and trials >= FEWEST):
        wanted = f"a whole number of at least {FEWEST}"
        raise ValueError(f"{path}: trials must be {wanted}, got {trials!r}")
    whole = isinstance(seeds, list) and all(type(n) is int and n >= 0 for n in seeds)
    if not (whole and seeds and len(set(seeds)) == len(seeds)):
        wanted = "one whole number at least, none of them twice, such as [0, 1]"
        raise ValueError(f"{path}: seeds must be {wanted}, got {seeds!r}")
    rows = [f"best of {many} random" for many in (random // 2, random)]
    rows += [f"random {number + 1}" for number in range(random)]
    _check_beginnings(path, content["beginnings"], (*OWN_ROWS, *rows))
    learned = content.get("learned", [])
    names = [*content["beginnings"]]
    if not (isinstance(learned, list) and all(name in names for name in learned)):
        raise ValueError(f"{path}: learned must be a list of beginnings, got {learned!r}")
    return content


def _check_beginnings(path: Path, beginnings: Mapping[str, Any], taken: Sequence[str]) -> None:
    if not beginnings:
        raise ValueError(f"{path}: [beginnings] must have one at least")
    for name, parts in beginnings.items():
        numbers = isinstance(parts, list) and all(type(x) in (int, float) for x in parts)
        if not (numbers and parts and all(0 <= x < math.inf for x in parts) and any(parts)):
            wanted = (
                "a list of numbers from 0 on, one for each site and axis, and not all of them 0"
            )
            raise ValueError(f"{path}: the beginning {name!r} must be {wanted}, got {parts!r}")
    names = Counter(run_name(row, "fixed", 0) for row in {*beginnings, *taken})
    for row in beginnings:
        if row in taken or names[run_name(row, "fixed", 0)] > 1:
            wrong = "has the name of another row, or one that makes the same folder"
            raise ValueError(f"{path}: the beginning {row!r} {wrong}: give it another")
