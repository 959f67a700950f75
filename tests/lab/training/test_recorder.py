"""A training loop of one's own, recorded: what is written, how it goes on, what is refused."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import diffstride
from diffstride import Budget, DiffStride1d, DiffStride2d, DiffStride3d, SpectralPool2d
from diffstride.lab import Recorder
from diffstride.lab.reports import page
from diffstride.lab.reports.run_reader import RunRecord
from diffstride.lab.reports.tables import compare
from diffstride.lab.runs.documents import DamagedFile, RunError, read_rows
from diffstride.lab.runs.recorded_folder import RecordedRun
from diffstride.lab.runs.run_folder import Run

TIGHT = {"smoothness": 1.0, "convention": "tight"}


def network(axes=2):
    conv, down = getattr(nn, f"Conv{axes}d"), getattr(diffstride, f"DiffStride{axes}d")
    pool = getattr(nn, f"AdaptiveAvgPool{axes}d")(1)
    layers = conv(1, 2, 3, padding=1), down(2.0, **TIGHT), nn.ReLU(), conv(2, 2, 3, padding=1), pool
    return nn.Sequential(*layers, nn.Flatten())


def batch(axes=2):
    return torch.rand(4, 1, *[12] * axes)


def train(model, optimizer, x, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        (loss := model(x).square().mean()).backward()
        optimizer.step()
    return loss


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_loop_is_a_run_that_can_be_shown(axes, tmp_path):
    model, x = network(axes), batch(axes)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    expected = []
    with Recorder(tmp_path / "mine", model, x, optimizer=optimizer, epochs=3) as recorder:
        for epoch in range(2):
            loss = train(model, optimizer, x)
            expected.append(model[1].strides)
            recorder.log(epoch + 1, train_loss=loss, val_accuracy=0.25 * (epoch + 1))
    run = RunRecord(tmp_path / "mine")
    assert (run.epochs, run.planned_epochs, run.finished) == (2, 3, False)
    assert [s.axis for s in run.strides] == list(range(axes))
    for axis, stride in enumerate(run.strides):
        assert [value for _, value in stride.points] == [2.0, *(s[axis] for s in expected)]
        assert stride.sizes == (12, model[1].output_size([12] * axes)[axis])
        assert stride.loss_gradient is not None and stride.cost_saved is not None
    assert run.last("mmacs") == diffstride.cost(model, (1, *[12] * axes)).macs / 1e6
    assert [row["step"] for row in run.times] == [2, 4]
    assert (run.scored, run.score.text(run.scored)) == (0.5, "50.00 %")
    assert page.write([run.folder]).stat().st_size > 10_000
    assert "50.0 %" in compare([run.folder])


def test_gradients_are_those_of_the_steps(tmp_path):
    model, x = network(), batch()
    optimizer, found = torch.optim.SGD(model.parameters(), 1.0), []
    with Recorder(tmp_path / "a", model, x, optimizer=[optimizer]) as recorder:
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            found.append(model[1].stride.detach() * model[1].stride.grad)
            optimizer.step()
        recorder.log(1)
        optimizer.step(lambda: model(x).square().mean())  # which nobody can look into
        recorder.log(2)
    means = torch.stack(found).double().mean(0)
    rows = read_rows(tmp_path / "a/strides.csv", "epoch")
    written = [float(row["loss_gradient"]) for row in rows if row["epoch"] == "1"]
    assert written == pytest.approx(means.tolist(), rel=1e-5)
    assert [row["loss_gradient"] for row in rows if row["epoch"] == "2"] == ["", ""]
    assert rows[-1]["step"] == "4"
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks


def test_a_second_recorder_goes_on(tmp_path):
    model, x = network(), batch()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Recorder(tmp_path, model, x, optimizer=optimizer) as recorder:
        for _ in range(3):
            train(model, optimizer, x)
            recorder.log(train_loss=1.0, odd=1.0)
    with Recorder(tmp_path, model, x, optimizer=optimizer) as recorder:
        train(model, optimizer, x)
        recorder.log(train_loss=0.5)
    steps = [row["step"] for row in read_rows(tmp_path / "metrics.csv", "epoch")]
    assert steps == ["2", "4", "6", "8"]
    # From a checkpoint of the second epoch: what came after it is forgotten.
    with Recorder(tmp_path, model, x, optimizer=optimizer) as recorder:
        train(model, optimizer, x, steps=3)
        recorder.log(3, train_loss=0.25)
    rows = read_rows(tmp_path / "metrics.csv", "epoch")
    assert [(row["epoch"], row["step"], row["odd"]) for row in rows] == [
        ("1", "2", "1.0"),
        ("2", "4", "1.0"),
        ("3", "7", ""),
    ]
    assert RunRecord(tmp_path).strides[0].points[-1] == (3, model[1].strides[0])
    assert len(RunRecord(tmp_path).times) == 3


def test_more_metrics_of_an_epoch_are_added_to_it(tmp_path):
    model = network()
    with Recorder(tmp_path, model) as recorder:
        recorder.log(1, train_loss=1.0)
        recorder.log(1, val_loss=torch.tensor(2.0), val_accuracy=float("nan"))
        with pytest.raises(ValueError, match="how many epochs are done, from 1 on, got 0"):
            recorder.log(0)
        recorder.log(5)
        with pytest.raises(ValueError, match="epoch must be at least 5, the last one, got 4"):
            recorder.log(4)
    with pytest.raises(ValueError, match="is closed: make another one"):
        recorder.log(6)
    run = RunRecord(tmp_path)
    assert [row["epoch"] for row in run.metrics] == [1, 5]
    assert (run.metrics[0]["train_loss"], run.metrics[0]["test_loss"]) == (1.0, 2.0)
    assert run.strides[0].sizes == (0, 0) and run.last("mmacs") is None  # there was no example
    assert page.write([tmp_path]).is_file()


KILLED = """
import sys, time, torch
from torch import nn
from diffstride import DiffStride2d
from diffstride.lab import Recorder
recorder = Recorder(sys.argv[1], nn.Sequential(DiffStride2d(2.0)), (1, 12, 12))
while True:
    recorder.log(train_loss=1.0)
    print("epoch", flush=True)
"""


@pytest.mark.slow
def test_a_training_that_is_killed_leaves_whole_files(tmp_path):
    with subprocess.Popen([sys.executable, "-c", KILLED, tmp_path], stdout=-1) as process:
        for _ in range(5):
            process.stdout.readline()
        time.sleep(0.01)
        with pytest.raises(ValueError, match="is being written by process"):
            Recorder(tmp_path, nn.Sequential(DiffStride2d(2.0)), (1, 12, 12))
        os.kill(process.pid, signal.SIGKILL)
    epochs = RunRecord(tmp_path).epochs
    assert epochs >= 5
    with Recorder(tmp_path, nn.Sequential(DiffStride2d(2.0)), (1, 12, 12)) as recorder:
        recorder.log()
    run = RunRecord(tmp_path)
    assert run.epochs == epochs + 1 == len(run.metrics) == len(run.times)
    assert [epoch for epoch, _ in run.strides[0].points] == list(range(epochs + 2))


def test_tables_that_are_an_epoch_ahead_are_brought_back(tmp_path):
    model = network()
    with Recorder(tmp_path, model) as recorder:
        recorder.log()
        before = (tmp_path / "metrics.csv").read_text()
        recorder.log()
    (tmp_path / "metrics.csv").write_text(before)  # as if it was killed before the last file
    with Recorder(tmp_path, model) as recorder:
        recorder.log()
    assert [epoch for epoch, _ in RunRecord(tmp_path).strides[0].points] == [0, 1, 2]


def test_a_cell_that_is_run_again_takes_over(tmp_path):
    first = Recorder(tmp_path, network())
    first.log()
    second = Recorder(tmp_path, network())
    second.log()
    with pytest.raises(ValueError, match="closed"):
        first.log()
    second.close()
    assert RunRecord(tmp_path).epochs == 2 and not (tmp_path / ".lock").exists()


def test_other_folders_are_refused_and_left_alone(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.png").write_text("cat")
    with pytest.raises(RunError, match=r"files that no Recorder wrote \(cat.png\): give a folder"):
        Recorder(tmp_path / "photos", network())
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.png"]
    with pytest.raises(RunError, match="is a file, and must be a folder"):
        Recorder(tmp_path / "photos/cat.png", network())
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("model:\n  downsampling: diffstride\n")
    with pytest.raises(RunError, match=r"config\.yaml that no Recorder wrote, as a run of `diff"):
        Recorder(tmp_path / "run", network())
    Recorder(tmp_path / "mine", network(), batch()).close()
    other = nn.Sequential(network())
    with pytest.raises(RunError, match=r"strides in '1', and this one has them in '0\.1'"):
        Recorder(tmp_path / "mine", other)
    plain = nn.Sequential(nn.Conv2d(1, 2, 3))
    Recorder(tmp_path / "plain", plain).close()
    with pytest.raises(RunError, match=r"strides in 'no layer', and this one has them in '1'"):
        Recorder(tmp_path / "plain", network())
    with pytest.raises(RunError, match=r"examples of size \[1, 12, 12\], got \[1, 16, 16\]"):
        Recorder(tmp_path / "mine", network(), (1, 16, 16))
    (tmp_path / "mine/strides.csv").write_text("epoch,layer\n0,1\n")
    with pytest.raises(DamagedFile, match=r"strides.csv, line 1: there is no column axis"):
        Recorder(tmp_path / "mine", network())


def test_commands_that_need_the_network_say_what_the_folder_is(tmp_path):
    Recorder(tmp_path, network()).close()
    with pytest.raises(RunError, match="record of a training of one's own, without its network"):
        Run.open(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"example": torch.rand(4, 3)}, r"\(channels, \*spatial\)"),
        ({"example": (1,)}, "with 1 to 3 spatial axes"),
        ({"units": "Hz"}, "units are those of a sampling_rate"),
        ({"sampling_rate": 2.0}, "are of an example: give one"),
        ({"example": (1, 12, 12), "axes": ["time"]}, "axes must be one for each of 2 axes"),
        ({"example": (1, 12, 12), "sampling_rate": (1, 2, 3)}, "sampling_rate must be one number"),
        ({"example": (1, 12, 12), "sampling_rate": 0}, "sampling_rate must be above 0"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"epochs": "ten"}, "epochs must be a whole number of at least 1, got 'ten'"),
        ({"judged_by": 3}, "judged_by must be the name of a metric"),
        ({"optimizer": "adam"}, "optimizer must be one of torch.optim, or a list of them"),
        ({"optimizer": [None]}, "optimizer must be one of torch.optim, or a list of them"),
        ({"settings": [1]}, "settings must be a mapping"),
        ({"settings": {"a": "x" * 3001}}, "settings do not fit .* at most 3,000 characters"),
        ({"settings": {str(i): "x" * 1000 for i in range(1000)}}, "at most 1,000,000 characters"),
    ],
)
def test_wrong_arguments_are_told(arguments, message, tmp_path):
    with pytest.raises((ValueError, TypeError), match=message):
        Recorder(tmp_path / "mine", network(), **arguments)
    assert not (tmp_path / "mine").exists()


def test_wrong_metrics_are_told(tmp_path):
    with Recorder(tmp_path, network()) as recorder:
        with pytest.raises(TypeError, match="accuracy must be a number, got str"):
            recorder.log(accuracy="high")
        with pytest.raises(TypeError, match="loss must be a number, got Tensor"):
            recorder.log(loss=torch.rand(3))
        with pytest.raises(ValueError, match="mmacs is a column that the recorder fills"):
            recorder.log(mmacs=1.0)
        with pytest.raises(TypeError, match="big must be a number, got int"):
            recorder.log(big=10**400)
        # Files would have no such columns, or columns of another meaning, when they are read.
        for name in ("cutoff", "step", "axis"):
            with pytest.raises(ValueError, match=f"{name} is a column that the recorder fills"):
                recorder.log(**{name: -0.5})
        for name in ("", "a\0b", "a\rb"):
            with pytest.raises(ValueError, match="name of a metric must be printable characters"):
                recorder.log(**{name: 1.0})
        recorder.log(**{'a, "b" / ü': 1.0})
    assert not {"loss", "big", "accuracy"} & set(read_rows(tmp_path / "metrics.csv")[0])
    assert read_rows(tmp_path / "metrics.csv")[0]['a, "b" / ü'] == "1.0"


@pytest.mark.parametrize("numbers", [(1, 2), (None, None)])
def test_a_call_that_was_interrupted_can_be_made_again(numbers, tmp_path, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    with Recorder(tmp_path, network(), batch()) as recorder:
        recorder.log(numbers[0], loss=1.0)
        with monkeypatch.context() as patch:
            patch.setattr(RecordedRun, "write_tables", interrupted)
            with pytest.raises(KeyboardInterrupt):
                recorder.log(numbers[1], loss=2.0)
        recorder.log(numbers[1], loss=3.0)
    metrics, strides = (read_rows(tmp_path / name) for name in ("metrics.csv", "strides.csv"))
    assert [(row["epoch"], row["loss"]) for row in metrics] == [("1", "1.0"), ("2", "3.0")]
    assert [row["epoch"] for row in strides] == list("001122")


def test_layers_with_other_axes_are_left_out_with_a_warning(tmp_path):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.signal = DiffStride2d(2.0, **TIGHT), DiffStride1d(2.0, **TIGHT)

        def forward(self, x):
            return self.signal(self.image(x).flatten(2))

    with pytest.warns(UserWarning, match="strides of signal are not recorded"):
        Recorder(tmp_path, Both(), batch()).close()
    assert list(RunRecord(tmp_path).layers) == ["image"]


def test_windows_are_drawn_only_where_all_are_alike(tmp_path):
    model = nn.Sequential(DiffStride2d(2.0, **TIGHT), DiffStride2d(1.5, smoothness=2.0))
    with Recorder(tmp_path, model, batch()) as recorder:
        recorder.log()
        assert not RunRecord(tmp_path).windows_known
        model[1].convention, model[1].smoothness = "tight", 1.0
        recorder.log()
    run = RunRecord(tmp_path)
    assert run.windows_known and (run.smoothness, run.convention) == (1.0, "tight")
    with Recorder(tmp_path, model, batch()) as recorder:
        model[0].smoothness = model[1].smoothness = 0.5  # as a schedule does
        recorder.log()
    assert RunRecord(tmp_path).smoothness == 0.5


def test_a_budget_a_whole_network_and_none_of_our_strides(tmp_path):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    budget = Budget(model, (1, 12, 12), macs=3000, spend=True)
    with Recorder(tmp_path / "budget", model, batch(), optimizer=optimizer) as recorder:
        for _ in range(2):
            train(model, optimizer, batch())
            budget.hold()
            recorder.log()
    assert RunRecord(tmp_path / "budget").last("mmacs") <= 0.003
    Recorder(tmp_path / "whole", DiffStride3d(2.0), (1, 8, 8, 8)).close()
    assert list(RunRecord(tmp_path / "whole").layers) == ["model"]
    with Recorder(tmp_path / "fixed", nn.Sequential(SpectralPool2d(2)), (1, 8, 8)) as recorder:
        recorder.log(test_accuracy=0.5)
    run = RunRecord(tmp_path / "fixed")
    assert (run.downsampling, run.strides) == ("spectral", [])
    assert page.write([tmp_path / name for name in ("budget", "whole", "fixed")]).is_file()


def test_settings_and_units_are_in_the_report(tmp_path):
    settings = {"lr": 0.1, "crops": (3, 4), "path": Path("data/cats"), "none": None}
    options = {"sampling_rate": 16_000, "units": "Hz", "axes": ["time"], "settings": settings}
    with Recorder(tmp_path, network(1), batch(1), **options) as recorder:
        recorder.log(val_miou=0.5, val_loss=1.0, odd=3.0)
    run = RunRecord(tmp_path)
    assert run.cutoff(run.strides[0]) == 4000
    made = page.write([tmp_path]).read_text()
    assert "data/cats" in made and "Validation miou" in made and "4000" in made
    assert "handwritten" not in made


WITHOUT = """
import sys
hidden = {"lightning", "transformers", "tyro", "datasets", "rich", "sklearn", "yaml"}
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Finder())
from torch import nn
from diffstride import DiffStride2d
from diffstride.lab import Recorder
try:
    Recorder(sys.argv[1], nn.Identity())
except ModuleNotFoundError as error:
    print(error)
hidden.remove("yaml")
with Recorder(sys.argv[1], nn.Sequential(DiffStride2d(2.0)), (1, 12, 12)) as recorder:
    recorder.log(val_accuracy=0.5)
from diffstride.lab.cli import main
sys.exit(main(["report", sys.argv[1]]))
"""


@pytest.mark.slow
def test_it_and_its_report_need_the_extra_report_alone(tmp_path):
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "run")]
    made = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0, made.stderr
    assert "Recorder needs yaml: pip install 'diffstride[report]'" in made.stdout
    assert (tmp_path / "run/report.html").is_file()
