"""How long must a trial of a search be? Short trainings beside whole ones, at the same strides.

    python -m benchmarks.trial_length STUDY.toml [--data.path PATH] [other options of train]

STUDY is a file of docs/results/search-NAME.toml. Networks at random strides of one cost are trained
for several numbers of epochs, each with a learning rate that comes to its end there, on the part of
the training set that is not held out. What is printed is how the loss on the held-out part goes
with the accuracy there after the longest training, as a correlation: of trainings that were
shorter, and of the longest one, before it was over. What is done is kept in
docs/results/trial_length-NAME.json, and is not done again.
"""

import copy
import json
import math
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch

from benchmarks.estimators import DATA, Training
from diffstride.lab.search.study import Study
from diffstride.text import aligned

SEED, NUMBER = 50, 25
PARTS = (0.3, 0.5, 1.0)
"""How long trainings are, as parts of those of the study."""


def measured(study: Study, number: int, epochs: int) -> dict[str, Any]:
    """Return the losses and accuracies on the held-out part after each epoch of a training."""
    point = study.space.random(Random(f"{SEED} random {number}"))
    shorter = copy.copy(study)
    trainer = replace(study.config.trainer, epochs=epochs)
    shorter.config = replace(study.config, trainer=trainer)
    made = Training(shorter, SEED, smoothness=0.0)
    made.space.write(point)
    losses, accuracies = [], []
    for epoch in range(epochs):
        made.module.train()
        made.train_epoch(epoch)
        accuracies.append(round(made.accuracy(), 3))
        losses.append(round(made.module.means()["test_loss"], 5))
    strides = [round(math.exp(x), 2) for x in point]
    return {"number": number, "epochs": epochs, "strides": strides} | {
        "losses": losses,
        "accuracies": accuracies,
    }


def table(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """A line for each length: correlations with the accuracy in the end of the longest training."""
    lengths = sorted({row["epochs"] for row in rows})
    by_length = {n: {r["number"]: r for r in rows if r["epochs"] == n} for n in lengths}
    longest = by_length[lengths[-1]]
    lines = []
    for length in lengths:
        both = [(own, longest[n]) for n, own in by_length[length].items() if n in longest]
        ends = [whole["accuracies"][-1] for _, whole in both]
        short = statistics.correlation([own["losses"][-1] for own, _ in both], ends)
        cut = statistics.correlation([whole["losses"][length - 1] for _, whole in both], ends)
        lines.append((str(length), f"{short:.2f}", f"{cut:.2f}"))
    return lines


HEAD = ("epochs", "a training that ends there", "the longest one, after so many")


def main() -> None:
    file, *words = sys.argv[1:] or ["--help"]
    if file in ("-h", "--help"):
        print(__doc__)
        return
    study = Study(Path(file), None, words)
    path = DATA / f"trial_length-{study.path.stem.removeprefix('search-')}.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    done = {(row["number"], row["epochs"]) for row in rows}
    for number in range(NUMBER):
        for part in PARTS:
            epochs = math.ceil(part * study.config.trainer.epochs)
            if (number, epochs) not in done:
                rows.append(measured(study, number, epochs))
                print(number, epochs, rows[-1]["accuracies"][-1], flush=True)
                path.write_text(json.dumps(rows) + "\n")
    print("\n".join(aligned([HEAD, *table(rows)])))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
