"""Strides in what Lightning and transformers log, and the runs that their callbacks record."""

import pytest
import torch
import transformers
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from diffstride import DiffStride2d, cost
from diffstride.lab import StrideCallback, StrideMonitor
from diffstride.lab.reports.run_reader import RunRecord

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # advice of others

SIZE = (1, 12, 12)
X, Y = torch.rand(8, *SIZE), torch.arange(8) % 2


def network():
    down = DiffStride2d((2.5, 1.5), smoothness=1.0, convention="tight")
    layers = nn.Conv2d(1, 2, 3, padding=1), down, nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2, 2))


class Module(LightningModule):
    """Has its strides in two places, and none in what it calls its model."""

    def __init__(self):
        super().__init__()
        self.body, self.model = network(), nn.Identity()
        self.example_input_array = X[:1]

    def forward(self, x):
        return self.model(self.body(x))

    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def on_train_epoch_end(self):
        self.log("late", float(self.current_epoch))  # after all callbacks

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1.0)


def fit(module, *callbacks, path=None, **options):
    batches = DataLoader(TensorDataset(X, Y), batch_size=4)
    usual = {"max_epochs": 2, "logger": False, "enable_checkpointing": False}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = Trainer(callbacks=list(callbacks), **usual | quiet | options)
    trainer.fit(module, batches, batches, ckpt_path=path, weights_only=False)
    return trainer


def test_checkpoints_and_early_stopping_follow_strides_and_costs(tmp_path):
    module = Module()
    callbacks = [
        # One looks at the end of a validation, the other at the end of an epoch.
        ModelCheckpoint(tmp_path, monitor="mmacs", save_on_train_epoch_end=False),
        EarlyStopping("strides/body.1/0", patience=0, min_delta=9.0, check_on_train_epoch_end=True),
        StrideMonitor(),
    ]
    trainer = fit(module, *callbacks, enable_checkpointing=True, max_epochs=5)
    assert trainer.current_epoch == 2  # the stride did not shrink by 9
    strides = module.body[1].strides
    for metrics in (trainer.logged_metrics, trainer.callback_metrics):
        assert [metrics[f"strides/body.1/{axis}"].item() for axis in (0, 1)] == list(strides)
        assert metrics["mmacs"].item() == pytest.approx(cost(module, SIZE).macs / 1e6)
    best = callbacks[0].best_model_score.item()
    assert 0 < best <= trainer.callback_metrics["mmacs"].item()


def test_a_lightning_run_has_each_metric_in_the_epoch_that_it_is_of(tmp_path):
    module, monitor = Module(), StrideMonitor(folder=tmp_path / "run", sampling_rate=2.0)
    trainer = fit(module, monitor, max_epochs=3, check_val_every_n_epoch=2)
    run = RunRecord(tmp_path / "run")
    assert [row["other late"] for row in run.metrics] == [0, 1, 2]
    assert ["test_loss" in row for row in run.metrics] == [False, True, False]
    assert run.last("mmacs") == cost(module, SIZE).macs / 1e6
    assert run.strides[0].loss_gradient == pytest.approx(monitor.rows[-2]["loss_gradient"])
    assert run.cutoff(run.strides[0]) == pytest.approx(1 / run.strides[0].last)
    assert not (tmp_path / "run/.lock").exists()
    # From a checkpoint: the epochs go on, and those behind it are forgotten.
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = StrideMonitor(folder=tmp_path / "run", sampling_rate=2.0)
    fit(Module(), again, path=tmp_path / "last.ckpt", max_epochs=4)
    run = RunRecord(tmp_path / "run")
    assert [row["epoch"] for row in run.metrics] == [1, 2, 3, 4]
    assert [row["step"] for row in run.metrics] == [2, 4, 6, 8]


def test_what_is_called_like_our_columns_ends_no_training(tmp_path):
    class Counts(Module):
        def validation_step(self, batch, index):  # the usual way to have epochs on the axis of logs
            self.log_dict({"step": float(self.current_epoch), "epoch": 1.0, "cutoff": -1.0})
            super().validation_step(batch, index)

    fit(Counts(), StrideMonitor(folder=tmp_path / "run"))
    run = RunRecord(tmp_path / "run")
    assert [row["step"] for row in run.metrics] == [2, 4]
    assert all("test_loss" in row and "other cutoff" not in row for row in run.metrics)


def test_a_lightning_training_that_fails_lets_go_of_its_folder(tmp_path):
    class Fails(Module):
        def on_train_batch_end(self, *_):
            if self.current_epoch == 1:
                raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        fit(Fails(), StrideMonitor(folder=tmp_path / "run"))
    assert RunRecord(tmp_path / "run").epochs == 1
    assert not (tmp_path / "run/.lock").exists()


class Classifier(nn.Module):
    """Takes and gives what a Trainer of transformers does."""

    def __init__(self):
        super().__init__()
        self.body = network()

    def forward(self, pixel_values, labels=None):
        logits = self.body(pixel_values)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def trainer_of(tmp_path, model, *callbacks, **options):
    usual = {"num_train_epochs": 2, "per_device_train_batch_size": 4, "learning_rate": 0.1}
    usual |= {"save_strategy": "epoch", "use_cpu": True, "disable_tqdm": True, "logging_steps": 1}
    arguments = transformers.TrainingArguments(str(tmp_path / "out"), **usual | options)
    examples = [{"pixel_values": x, "labels": int(y)} for x, y in zip(X, Y, strict=True)]
    data = {"train_dataset": examples, "eval_dataset": examples}
    return transformers.Trainer(model, arguments, callbacks=list(callbacks), **data)


def test_a_trainer_of_transformers_stops_and_records_and_goes_on(tmp_path):
    model, folder = Classifier(), tmp_path / "run"
    stop = transformers.EarlyStoppingCallback(1)
    best = {"metric_for_best_model": "mmacs", "greater_is_better": False}
    options = {"eval_strategy": "epoch", "load_best_model_at_end": True, **best}
    trainer = trainer_of(tmp_path, model, StrideCallback(folder, SIZE), stop, **options)
    trainer.train()
    history = [x for x in trainer.state.log_history if "loss" in x]
    assert all({"mmacs", "strides/body.1/0", "strides/body.1/1"} <= set(x) for x in history)
    run = RunRecord(folder)
    assert (run.epochs, run.planned_epochs, run.tested) == (2, 2, "Evaluation")
    means = [(a["loss"] + b["loss"]) / 2 for a, b in zip(history[::2], history[1::2], strict=True)]
    assert [row["train_loss"] for row in run.metrics] == pytest.approx(means)
    evaluated = [x for x in trainer.state.log_history if "eval_loss" in x]
    assert [row["test_loss"] for row in run.metrics] == [x["eval_loss"] for x in evaluated]
    assert run.strides[0].last == evaluated[-1]["eval_strides/body.1/0"]
    assert trainer.state.best_metric == min(x["eval_mmacs"] for x in evaluated)
    assert run.strides[0].loss_gradient is not None
    # More epochs, from the first checkpoint: the second is forgotten, and trained again.
    again = trainer_of(tmp_path, Classifier(), StrideCallback(folder, SIZE), num_train_epochs=3)
    again.train(resume_from_checkpoint=str(tmp_path / "out/checkpoint-2"))
    run = RunRecord(folder)
    assert [row["step"] for row in run.metrics] == [2, 4, 6]
    assert (run.planned_epochs, "test_loss" in run.metrics[-1]) == (3, False)
    assert run.strides[0].last == again.model.body[1].strides[0]


def test_without_a_folder_logs_alone_have_the_strides(tmp_path):
    trainer = trainer_of(tmp_path, Classifier(), StrideCallback(), max_steps=1, save_strategy="no")
    trainer.train()
    assert "mmacs" not in trainer.state.log_history[0]
    assert trainer.state.log_history[0]["strides/body.1/0"] == trainer.model.body[1].strides[0]
    assert trainer.evaluate()["eval_strides/body.1/1"] == trainer.model.body[1].strides[1]
