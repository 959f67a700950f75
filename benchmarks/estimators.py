"""Which way of learning strides finds good ones: several, from two beginnings, at one cost.

    python -m benchmarks.estimators STUDY.toml [--data.path PATH] [other options of train]

STUDY is a file of docs/results/search-NAME.toml. Every way learns strides on the part of the
training set that is not held out, for as many steps as a training has. What it ends with is fixed,
and networks with these strides are trained from scratch on the same part: what counts is how often
they are right on the held-out part. The test set is not looked at. What is done is kept in
docs/results/estimators-NAME.json, and is not done again.

    gradient            the gradient of the window on training examples, all strides at one cost
    gradient per MAC    the same, with only what is left of it along strides of one cost
    held-out gradient   the same again, on held-out examples
    opposite            two opposite changes of all strides on one batch; their losses are compared
    shared weights, once
                        weights learn at strides at random, which are compared once, in the end
    shared weights      they are compared in rounds, and what is tried next is near the best
    trials              networks with weights of their own, half a training each, and a plane
                        through their losses: what `diffstride search` does
"""

import copy
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR

from benchmarks.shared_weights import ROUNDS, SharedWeights, scoring
from diffstride.analysis.budget import Budget
from diffstride.analysis.training import parameter_groups
from diffstride.lab.data.batches import AudioBatches, AudioEvaluation
from diffstride.lab.runs.config import Config
from diffstride.lab.search.configs import held_out_data, trial_epochs
from diffstride.lab.search.searched_network import learnable
from diffstride.lab.search.study import Study
from diffstride.lab.training.preparation import Prepared, prepare
from diffstride.strides.optimiser import StrideOptimizer
from diffstride.strides.space import Point, StrideSpace
from diffstride.strides.trials import StrideTrials, best
from diffstride.text import aligned

DATA = Path(__file__).parents[1] / "docs/results"
SPREAD, RATE = 0.2, 0.05
"""Of opposite changes: how far apart, and how far strides move by what they tell."""
EXAMPLES = 192
SEEDS = (0, 1)
"""Of networks that are trained from scratch; strides are learned with the first."""


class Training:
    """A network of a study in training, and the strides that it may have."""

    def __init__(self, study: Study, seed: int, smoothness: float, spend: bool = True) -> None:
        model = replace(learnable(study.config.model), smoothness=smoothness)
        config = replace(study.config, seed=seed, model=model, macs_budget=None)
        self.config: Config = replace(config, data=held_out_data(config.data))
        self.prepared: Prepared = prepare(self.config)
        self.module = self.prepared.module
        self.network = self.module.model
        size = tuple(self.prepared.facts["size"])
        self.budget = Budget(self.network, size, macs=1e6 * study.macs)
        self.space = StrideSpace(self.budget)
        optim = self.config.optim
        groups = parameter_groups(self.network, optim.lr, optim.weight_decay, with_strides=False)
        self.steps = self.config.trainer.epochs * len(self.prepared.train)
        self.optimiser = AdamW(groups)
        self.schedule = OneCycleLR(self.optimiser, optim.lr, total_steps=self.steps)

    def batches(self) -> Iterator[Any]:
        for epoch in range(self.config.trainer.epochs):
            yield from self.batches_of(epoch)

    def batches_of(self, epoch: int) -> Iterator[Any]:
        self.prepared.train.epoch = lambda: epoch
        yield from self.prepared.train

    def held_out(self) -> Iterator[Any]:
        """Yield random batches of recordings that are held out."""
        test, epoch = self.prepared.test, 0
        assert isinstance(test, AudioEvaluation), "of sound"
        held_out: Any = AudioBatches(test.tasks, self.config.data.batch_size, seed=self.config.seed)
        while True:
            held_out.epoch = lambda epoch=epoch: epoch
            yield from held_out
            epoch += 1

    def loss(self, batch: Any) -> torch.Tensor:
        """Return the mean loss of a batch; it counts for no metrics of training."""
        sums, self.module.sums = self.module.sums, {}
        loss = self.module.training_step(batch, 0)
        self.module.sums = sums
        return loss

    def step(self, loss: torch.Tensor) -> None:
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.schedule.step()

    def train(self) -> None:
        for epoch in range(self.config.trainer.epochs):
            self.train_epoch(epoch)

    def train_epoch(self, epoch: int) -> None:
        for batch in self.batches_of(epoch):
            self.step(self.loss(batch))

    def accuracy(self) -> float:
        """How often it is right on the held-out part."""
        self.module.eval()
        with torch.no_grad():
            self.module.on_validation_epoch_start()
            for i, batch in enumerate(self.prepared.test):
                self.module.validation_step(batch, i)
            self.module.on_validation_epoch_end()
        return 100 * self.module.means()["test_accuracy"]


def by_gradient(study: Study, start: Point, seed: int, *, per_mac: bool, held_out: bool) -> Point:
    made = Training(study, seed, smoothness=1.0)
    made.space.write(start)
    options: Any = dict(steps=made.steps, budget=made.budget, per_mac=per_mac)
    strides, others = StrideOptimizer(made.network, **options), made.held_out()
    for batch in made.batches():
        made.step(made.loss(batch))
        if held_out:
            strides.zero_grad()
            made.loss(next(others)).backward()
        strides.step()
        strides.zero_grad()
    return made.space.read()


def by_opposites(study: Study, start: Point, seed: int) -> Point:
    """Both changes of a step get half of a batch each, the same half; weights learn from both."""
    made, numbers = Training(study, seed, smoothness=0.0), Random(seed)
    at, mean, number = start, [0.0] * len(start), 0
    for i, batch in enumerate(made.batches()):
        done = i / made.steps
        spread = SPREAD * (1 - 0.7 * done) if done < 0.8 else 0.0
        if not spread:
            made.space.write(at)
            made.step(made.loss(batch))
            continue
        half = halved(batch)
        change = [numbers.gauss(0, 1) for _ in at]
        losses = []
        for sign in (1, -1):
            point = [x + sign * spread * c for x, c in zip(at, change, strict=True)]
            made.space.write(made.space.fitted(point))
            losses.append(made.loss(half))
        made.step((losses[0] + losses[1]) / 2)
        slope, number = (losses[0] - losses[1]).item() / (2 * spread), number + 1
        mean = [0.9 * m + 0.1 * slope * c for m, c in zip(mean, change, strict=True)]
        if done > 0.1:
            moved = [x - RATE * m / (1 - 0.9**number) for x, m in zip(at, mean, strict=True)]
            at = made.space.fitted(moved)
    return at


def halved(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: tuple(x[: len(x) // 2] for x in parts) for name, parts in batch.items()}
    return tuple(x[: len(x) // 2] for x in batch)


def by_shared_weights(study: Study, start: Point, seed: int, *, once: bool) -> Point:
    made = Training(study, seed, smoothness=0.0)
    batches = [batch for batch, _ in zip(made.held_out(), range(_batches(made)), strict=False)]

    def score() -> float:
        with scoring(made.module):
            return statistics.fmean(float(made.loss(batch)) for batch in batches)

    rounds = (1.0,) if once else ROUNDS
    tried = SharedWeights(made.space, made.steps, score, seed=seed, rounds=rounds)
    for batch in made.batches():
        tried.begin_step()
        made.step(made.loss(batch))
        tried.end_step()
    return tried.best


def by_trials(study: Study, start: Point, seed: int) -> Point:
    """What `diffstride search` does: networks with weights of their own, and a plane."""
    shorter = copy.copy(study)
    epochs = trial_epochs(study.config)
    shorter.config = replace(study.config, trainer=replace(study.config.trainer, epochs=epochs))
    chooser, points, scores = StrideTrials(study.space, study.trials, seed=seed), [], []
    while wave := chooser.next(points, scores):
        for point in wave:
            made = Training(shorter, seed, smoothness=0.0)
            made.space.write(point)
            made.train()
            made.accuracy()
            scores.append(made.module.means()["test_loss"])
        points += wave
    return points[best(points, scores)]


def _batches(made: Training) -> int:
    return -(-EXAMPLES // made.config.data.batch_size)


WAYS: dict[str, Callable[[Study, Point, int], Point]] = {
    "fixed": lambda study, start, seed: start,
    "gradient": lambda *a: by_gradient(*a, per_mac=False, held_out=False),
    "gradient per MAC": lambda *a: by_gradient(*a, per_mac=True, held_out=False),
    "held-out gradient": lambda *a: by_gradient(*a, per_mac=True, held_out=True),
    "opposite": by_opposites,
    "shared weights, once": lambda *a: by_shared_weights(*a, once=True),
    "shared weights": lambda *a: by_shared_weights(*a, once=False),
    "trials": by_trials,
}
ANYWHERE = ("shared weights, once", "shared weights", "trials")
"""Ways that are the same wherever they begin."""


def main() -> None:
    file, *words = sys.argv[1:] or ["--help"]
    if file in ("-h", "--help"):
        print(__doc__)
        return
    study = Study(Path(file), None, words)
    path = DATA / f"estimators-{study.path.stem.removeprefix('search-')}.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    begins = list(study.beginnings)[:3:2]  # the usual one, and a bad one
    for seed in SEEDS[:1]:
        for way, learn in WAYS.items():
            for begin in begins:
                if way in ANYWHERE and begin != begins[0]:
                    continue
                key = {"way": way, "begin": "any" if way in ANYWHERE else begin, "seed": seed}
                if any(key.items() <= row.items() for row in rows):
                    continue
                start = study.space.towards(study.beginnings[begin])
                found = learn(study, start, seed)
                scores = []
                for other in SEEDS:
                    made = Training(study, other, smoothness=0.0)
                    made.space.write(found)
                    made.train()
                    scores.append(round(made.accuracy(), 2))
                cost = round(100 * (made.budget.cost / made.budget.limit - 1), 2)
                strides = [round(math.exp(x), 2) for x in found]
                found_there = {"accuracies": scores, "over budget %": cost, "strides": strides}
                rows.append(key | found_there)
                print(*rows[-1].values(), flush=True)
                path.write_text(json.dumps(rows, indent=1) + "\n")
    print("\n".join(aligned([("way", "from", "held-out accuracy"), *table(rows)])))


def table(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """A line for each way and beginning: the mean over seeds of learning and of training."""
    cells: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        cells.setdefault((row["way"], row["begin"]), []).extend(row["accuracies"])
    return [
        (way, begin, f"{statistics.fmean(x):.1f} ± {statistics.stdev(x):.1f}")
        for (way, begin), x in cells.items()
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
