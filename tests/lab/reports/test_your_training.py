"""The guide to trainings of one's own: every block of it runs, and the reports of all three open.

MLflow and Weights & Biases are no packages of the tests: where one is missing, a logger that keeps
what it is given stands for it.
"""

import csv
import importlib.util
import os
import re
from pathlib import Path

import lightning.pytorch.loggers
import pytest
import torch
from lightning.pytorch.loggers.logger import Logger

from diffstride.lab.reports import page
from diffstride.lab.reports.run_reader import RunRecord

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # advice of others

GUIDE = Path(__file__).parents[3] / "docs/your_training.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
FOLDERS = {"mine": 3, "lightning": 2, "hugging_face": 2}
"""What each run is called, and how many epochs it has."""


PACKAGES = {"MLFlowLogger": ("mlflow", "sqlalchemy"), "WandbLogger": ("wandb",)}


class StandIn(Logger):
    """A logger of a package that is not here, which keeps what it is given."""

    name = version = "stand-in"

    def __init__(self, *_, **__):
        super().__init__()
        self.steps = []

    def log_metrics(self, metrics, step=None):
        self.steps.append((step, set(metrics)))

    def log_hyperparams(self, *_, **__):
        pass


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """The folder in which the guide was followed, and what its names are in the end."""
    folder, before = tmp_path_factory.mktemp("guide"), Path.cwd()
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_SILENT", "true")
        for name, packages in PACKAGES.items():
            if not all(map(importlib.util.find_spec, packages)):
                patch.setattr(lightning.pytorch.loggers, name, StandIn)
        names, loggers = {}, []
        os.chdir(folder)
        try:
            for block in BLOCKS:
                exec(compile(block, str(GUIDE), "exec"), names)
                loggers += [names["logger"]] if "logger = " in block else []
        finally:
            os.chdir(before)
    return folder, names, loggers


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_every_block_was_found():
    assert len(BLOCKS) == GUIDE.read_text().count("```python") == 7


def test_the_guide_does_what_it_says(guide):
    folder, names, loggers = guide
    assert len(list((folder / "checkpoints").glob("epoch=*-mmacs=*.ckpt"))) == 1
    history = names["trainer"].state.log_history
    assert history[0]["mmacs"] > 0 and history[1]["eval_mmacs"] > 0
    assert names["trainer"].state.best_metric == min(x.get("eval_mmacs", 1e9) for x in history)
    assert names["trainer"].callback_handler.callbacks[0] is names["first"]
    for logger in loggers:
        if isinstance(logger, StandIn):
            ours = [(step, names) for step, names in logger.steps if "mmacs" in names]
            assert [step for step, _ in ours] == [0, 3]
            assert all(
                {"strides/1/0", "cutoff/4/1", "cost_saved/4/0"} <= found for _, found in ours
            )
    assert len(loggers) == 2


@pytest.mark.parametrize("name", FOLDERS)
def test_each_is_a_run_with_all_that_was_measured(guide, name):
    run = RunRecord(guide[0] / "runs" / name)
    assert (run.epochs, run.planned_epochs) == (FOLDERS[name],) * 2
    assert run.windows_known and len(run.layers) >= 2
    assert run.strides[0].points[0] == (0, pytest.approx(2, abs=0.1))
    assert run.strides[0].last != run.strides[0].points[0][1]
    judged = {"mine": "Validation accuracy", "lightning": "Validation loss"}
    assert f"{run.tested} {run.score.title}" == judged.get(name, "Evaluation accuracy")
    assert run.curve(run.score.column) and run.last("train_loss") and run.last("mmacs")
    learned = rows(run.folder / "strides.csv")
    measured = [row["loss_gradient"] != "" for row in learned if row["epoch"] == "2"]
    assert measured and all(measured)
    times = rows(run.folder / "times.csv")[1]
    assert times["step"] == "8" and 0 < float(times["step_seconds"]) < float(times["seconds"])


@pytest.mark.parametrize("name", FOLDERS)
def test_the_report_of_each_opens(guide, opened, name):
    tab = opened(page.write([guide[0] / "runs" / name]))
    assert tab.run("document.title") == f"{name} · diffstride"
    titles = tab.run("[...document.querySelectorAll('main h2')].map(e => e.textContent)")
    shown = ["Strides while training", "What a per cent of stride buys", "Windows on the data"]
    assert set(shown) | {"Training", "The run", "Try a stride"} <= set(titles)
    cards = tab.run("document.querySelector('.cards').innerText")
    assert f"{FOLDERS[name]} of {FOLDERS[name]}" in cards
    assert "handwritten digits" not in tab.run("document.querySelector('main').innerText")
