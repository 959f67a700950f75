"""Runs whose strides are found by an optimiser of their own, or vary."""

import shutil
from pathlib import Path

import pytest
import torch

from diffstride.lab.cli import main
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training import learner
from diffstride.lab.training.classifier import Classifier
from diffstride.layers.resizer import learned_strides
from diffstride.strides.optimiser import StrideOptimizer
from tests.lab.training.generated_data import rows

pytestmark = pytest.mark.slow

MMACS = 1.0
TINY = "--model.width 0.0625 --data.limit 64 --data.batch_size 32 --trainer.epochs 3".split()
SPENT = [*TINY, "--macs_budget", str(MMACS), "--spend"]
BY = {
    "gradient": "--optim.strides_by gradient --optim.stride_lr 0.1".split(),
    "jitter": "--optim.strides_by jitter --model.smoothness 0".split(),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Runs that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    for name, words in BY.items():
        out = ["--name", name, "--out", str(folder)]
        assert main(["train", "digits", *SPENT, *words, *out]) == 0
    return folder


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", BY)
@pytest.mark.parametrize("epochs", [1, 2])
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(name, epochs, whole):
    """After any epoch, all of whose files it has."""
    run = Run(Path(shutil.copytree(whole / name, "runs/a")))
    if epochs == 1:  # its checkpoint is not kept: begin again, and stop there
        shutil.rmtree(run.folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Classifier, "on_train_epoch_start", _stop_in_second)
            assert main(["train", "digits", *SPENT, *BY[name], "--name", "a"]) == 1
    else:
        run.checkpoint_file(3).unlink()
        run.best_file.unlink()
    assert len(run.checkpoint_files()) == 1
    assert main(["resume", "runs/a"]) == 0
    for file in ("strides.csv", "metrics.csv"):
        assert (run.folder / file).read_text() == (whole / name / file).read_text()


def _stop_in_second(self, start=Classifier.on_train_epoch_start):
    if self.current_epoch == 1:
        raise OSError("stopped")
    start(self)


@pytest.mark.parametrize("name", BY)
def test_the_cost_is_at_the_budget_in_every_epoch(name, whole):
    run = Run.open(whole / name)
    for row in run.metrics():
        assert float(row["mmacs"]) == pytest.approx(MMACS, rel=0.02)
    strides = [[float(row["stride"]) for row in rows(run.strides_file)[i::6]] for i in range(6)]
    moved = name != "jitter"
    assert all((len(set(column)) > 1) == moved for column in strides)


def test_strides_that_vary_are_their_own_whenever_they_are_looked_at(monkeypatch):
    used, step = set(), Classifier.training_step

    def spied(self, batch, number):
        layers = learned_strides(self.model).values()
        used.add(tuple(stride for layer in layers for stride in layer.strides))
        return step(self, batch, number)

    monkeypatch.setattr(Classifier, "training_step", spied)
    longer = ["--trainer.epochs", "4"]
    assert main(["train", "digits", *SPENT, *BY["jitter"], *longer, "--name", "a"]) == 0
    seen = {(row["layer"], row["axis"], row["stride"]) for row in rows(Path("runs/a/strides.csv"))}
    own = tuple(float(stride) for _, _, stride in sorted(seen))
    assert len(seen) == 6  # one for each site and axis, in all epochs
    assert own in used and len(used) == 8  # other ones in all of eight steps but the last
    ratios = [abs(a / b - 1) for point in used for a, b in zip(point, own, strict=True)]
    assert 0 < max(ratios) < 2


def test_the_gradient_of_a_step_is_that_of_its_batch(monkeypatch):
    """It is not added to those of all steps before: no other optimiser has the strides."""
    backward, used = [], []

    class Spied(StrideOptimizer):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            first = self.param_groups[0]["params"][0]
            first.register_hook(lambda gradient: backward.append(gradient.clone()))

        def step(self, closure=None):
            used.append(self.param_groups[0]["params"][0].grad.clone())
            return super().step(closure)

    monkeypatch.setattr(learner, "StrideOptimizer", Spied)
    assert main(["train", "digits", *SPENT, *BY["gradient"], "--name", "a"]) == 0
    assert len(used) == 6
    assert all(torch.equal(a, b) for a, b in zip(backward, used, strict=True))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--optim.strides_by jitter --macs_budget 1", "strides_by jitter needs --spend and --m"),
        (
            "--optim.strides_by jitter --spend --macs_budget 1 --model.downsampling spectral",
            "strides vary with --model.downsampling diffstride, got spectral",
        ),
        (
            "--optim.strides_by gradient --optim.stride_lr 1",
            "--optim.stride_lr must be the part of itself that a stride moves by in a step, below",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(words, message, capsys):
    assert main(["train", "digits", *TINY, *words.split(), "--name", "a"]) == 1
    assert message in capsys.readouterr().err
    assert not Path("runs/a").exists() or not any(Path("runs/a").iterdir())


def test_a_search_is_no_way_to_train_one_network(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "digits", *SPENT, "--optim.strides_by", "trials"])
    assert "invalid choice 'trials' for argument '--optim.strides_by'" in capsys.readouterr().err
    assert not Path("runs").exists()
