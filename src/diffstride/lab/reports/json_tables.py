"""The tables of runs and sweeps as plain numbers and words, for other programs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diffstride.lab.reports.sweep_reader import Sweep
from diffstride.lab.reports.tables import open_run, products, sweep_tables


def document(runs: Sequence[str | Path], sweeps: Sequence[str | Path]) -> dict[str, Any]:
    """Return the tables of runs and of sweeps together."""
    return {
        "runs": [run_document(folder) for folder in runs],
        "sweeps": [sweep_document(folder) for folder in sweeps],
    }


def run_document(folder: str | Path) -> dict[str, Any]:
    """Return what the table of runs says of a run; what is not known (yet) is None.

    Accuracies are parts of 1, PSNRs are in dB. A folder that is no run is a ValueError.
    """
    run = open_run(folder)
    consistency, corrupted = run.robustness
    return {
        "run": run.name,
        "folder": str(folder),
        "downsampling": run.downsampling,
        "epochs": run.epochs,
        "planned_epochs": run.planned_epochs,
        "score": run.score.name,
        run.score.name: run.scored,
        "task_accuracies": run.task_scores,
        "first_strides": [stride.last for stride in run.first_layer],
        "products": products(run),
        "maps_smaller": list(map(run.times_smaller, run.last_layer)),
        "cutoffs": list(map(run.cutoff, run.last_layer)),
        "units": [axis.unit for axis in run.data_axes],
        "mmacs": run.last("mmacs"),
        "seconds_per_step": run.seconds_per_step,
        "minutes": run.minutes,
        "shift_consistency": consistency,
        "corrupted_accuracy": corrupted,
    }


def sweep_document(folder: str | Path) -> dict[str, Any]:
    """Return the table of a sweep: an object for each row, column and metric, as in table.csv."""
    shown, plan = sweep_tables(folder), Sweep(Path(folder)).plan
    heading, *remarks = shown.remarks
    return {
        "folder": str(folder),
        "table": plan["table"],
        "title": heading,
        "scale": plan["scale"],
        "seeds": plan["seeds"],
        "cells": shown.rows,
        "notes": remarks,
    }
