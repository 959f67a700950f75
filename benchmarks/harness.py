"""How everything here is measured: both sides in one process, in turns, medians.

A single time says little on a machine that does other things as well. Ratios of medians over
interleaved rounds do: whatever slows one side down slows the other one too.
"""

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

import diffstride
from diffstride.lab.sweeps.step_cost import interleaved as interleaved

RESULTS = Path(__file__).parent / "results"


def arguments(description: str) -> argparse.Namespace:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer rounds and shapes, under 60 s")
    add("--rounds", type=int, default=None, help="how often each side is timed")
    add("--threads", type=int, default=2, help="threads torch may use (%(default)s)")
    add("--output", type=Path, default=RESULTS, help="folder for the JSON (%(default)s)")
    options = parser.parse_args()
    if options.rounds is None:
        options.rounds = 5 if options.quick else 15
    torch.set_num_threads(options.threads)
    return options


def keep_freed_memory() -> None:
    """Have the C library keep memory that is freed, as it does in programs that use much of it.

    The GNU library gives what lies free at the end back to the system, and a step then takes it
    again page by page, unless something large was freed before. Here that is 32 MB, the most it
    looks at.
    """
    torch.empty(2**25 - 2**12, dtype=torch.uint8)


def conditions(threads: int | None = None) -> dict[str, Any]:
    """What a figure depends on besides the code: machine and versions."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": threads or torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "diffstride": diffstride.__version__,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def report(name: str, rows: list[dict[str, Any]], options: argparse.Namespace, note: str) -> None:
    """Print rows as a table under the conditions they hold for, and write both as JSON."""
    where = conditions()
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    print(note)
    print()
    columns = list(rows[0])
    cells = [columns] + [[_cell(row.get(column, "")) for column in columns] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"{name}.json"
    record = {"conditions": where, "quick": options.quick, "rounds": options.rounds}
    path.write_text(json.dumps({**record, "note": note, "rows": rows}, indent=1) + "\n")
    print(f"\nwrote {path}")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)
