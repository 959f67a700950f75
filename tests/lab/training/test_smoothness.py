"""A smoothness that changes with the epochs: strides learn with a wide ramp, end with another."""

import pytest
import torch
from lightning import LightningModule, Trainer

from diffstride import DiffStride2d
from diffstride.lab.cli import main
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.runs.config import ModelConfig
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training import runner
from diffstride.lab.training.callbacks import SmoothnessSchedule
from diffstride.lab.training.trained_run import evaluate, load_model
from tests.lab.training.generated_data import rows

TINY = (
    "--model.width 0.0625 --data.limit 128 --data.batch_size 32 --model.convention tight "
    "--model.placement before --model.strides 2 2 2 --model.smoothness 2 --model.smoothness_end 0.5"
).split()


@pytest.mark.parametrize(
    ("epochs", "expected"), [(4, [2.0, 1.5, 1.0, 0.5]), (2, [2.0, 0.5]), (1, [0.5])]
)
def test_it_changes_evenly_and_ends_where_it_was_told_to(epochs, expected):
    model = ModelConfig(smoothness=2.0, smoothness_end=0.5)
    assert [model.in_epoch(e, epochs).smoothness for e in range(epochs)] == expected
    assert ModelConfig(smoothness=3.0).in_epoch(0, epochs).smoothness == 3.0


class Halving(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = DiffStride2d(2.0, smoothness=4.0, convention="tight")
        self.seen = []

    def training_step(self, batch, _):
        self.seen.append(self.layer.smoothness)
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore")  # Lightning's advice
def test_any_lightning_module_may_have_it(tmp_path):
    module = Halving()
    trainer = Trainer(
        max_epochs=3,
        accelerator="cpu",
        callbacks=[SmoothnessSchedule(2.0, 1.0)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    data = torch.utils.data.DataLoader(torch.randn(4, 3, 16, 16), batch_size=4)
    trainer.fit(module, data)
    assert module.seen == [2.0, 1.5, 1.0]


@pytest.mark.slow
def test_a_run_is_read_with_the_smoothness_of_its_epoch(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", *TINY, "--trainer.epochs", "3", "--name", "a"]) == 0
    run = Run.open("runs/a")
    model = load_model(run)
    layers = [layer for layer in model.modules() if isinstance(layer, DiffStride2d)]
    assert {layer.smoothness for layer in layers} == {0.5}
    assert {layer.convention for layer in layers} == {"tight"}
    assert RunRecord(run.folder).smoothness == 0.5
    accuracy = float(rows(run.folder / "metrics.csv")[-1]["test_accuracy"])
    assert evaluate("runs/a")["test_accuracy"] == pytest.approx(accuracy)
    # One that stopped after the second epoch has the smoothness of that one, and goes on from it.
    assert main(["train", "digits", *TINY, "--trainer.epochs", "3", "--name", "b"]) == 0
    last, _ = Run.open("runs/b").checkpoint_files()
    last.unlink()
    half = load_model(Run.open("runs/b"))
    assert half.stages[1][0].downsample.smoothness == 1.25
    runner.resume("runs/b")
    assert (tmp_path / "runs/b/metrics.csv").read_text() == (
        tmp_path / "runs/a/metrics.csv"
    ).read_text()
