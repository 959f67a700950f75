"""From data to a run folder and back: training, resuming, evaluating."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from diffstride import CostModel, Timings
from diffstride.analysis.timing_fit import kind_of
from diffstride.analysis.timing_runs import machine_name
from diffstride.files import seal
from diffstride.lab.cli import main
from diffstride.lab.data import images
from diffstride.lab.runs.documents import RunError
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training import runner
from diffstride.lab.training.classifier import Classifier
from diffstride.lab.training.recipes import RECIPES
from diffstride.lab.training.trained_run import read_checkpoint
from tests.lab.training.generated_data import image_pack, rows

pytestmark = pytest.mark.slow

TINY = "--model.width 0.0625 --data.limit 128 --data.batch_size 32".split()


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


def labels_in_test():
    return "".join(str(label) for label in images.load_digits().test.labels.tolist())


def test_a_run_has_everything_and_can_be_read_again(tmp_path, capsys):
    assert main(["train", "digits", *TINY, "--trainer.epochs", "2", "--name", "a"]) == 0
    out = capsys.readouterr().out
    assert "epoch   2  loss" in out
    assert "test accuracy" in out
    assert "stages.3.0.downsample" in out
    assert out.rstrip().endswith("run runs/a, report runs/a/report.html, figure runs/a/strides.png")
    run = Run.open("runs/a")
    assert run.config.model.width == 0.0625
    environment = json.loads((run.folder / "environment.json").read_text())
    assert environment["torch"] == torch.__version__
    assert environment["seed"] == 0
    assert run.data["size"] == [1, 32, 32]
    assert run.data["classes"] == list("0123456789")
    assert (run.data["train"], run.data["test"], run.data["skipped"]) == (128, 128, [])
    metrics = rows(run.folder / "metrics.csv")
    assert [row["epoch"] for row in metrics] == ["1", "2"]
    strides = rows(run.folder / "strides.csv")
    assert len(strides) == 3 * 3 * 2  # before and after each epoch, three layers, two axes
    assert strides[0]["stride"] == "2.0"
    assert strides[-1]["stride"] != strides[-7]["stride"]
    assert strides[-1]["output_size"]
    assert all(0 < float(row["cost_saved"]) < 1 for row in strides)
    assert {row["loss_gradient"] for row in strides[:6]} == {""}  # no step was taken yet
    assert all(abs(float(row["loss_gradient"])) < 10 for row in strides[6:])
    assert all(0 < float(row["loss_gradient_error"]) < 10 for row in strides[6:])
    assert "What a per cent of stride buys" in (run.folder / "report.html").read_text()
    names = sorted(path.name for path in run.checkpoints.iterdir())
    assert names == ["best.ckpt", "epoch-00001.ckpt", "epoch-00002.ckpt"]
    examples = json.loads((run.folder / "examples.json").read_text())["images"]
    assert [example["label"] for example in examples] == sorted("012", key=labels_in_test().index)
    assert all(np.shape(example["pixels"]) == (32, 32) for example in examples)
    assert "Windows on the data" in (run.folder / "report.html").read_text()
    assert main(["report", "runs/a", "runs", "-o", "pages/both.html"]) == 0
    assert capsys.readouterr().out == "wrote pages/both.html\n"
    assert Path("pages/both.html").read_text().count("stages.3.0.downsample") > 2

    assert main(["evaluate", "runs/a"]) == 0
    last = float(metrics[-1]["test_accuracy"])
    assert f"test accuracy  {last:.4f}" in capsys.readouterr().out
    assert main(["evaluate", "runs/a", "--best"]) == 0
    best = max(float(row["test_accuracy"]) for row in metrics)
    assert f"test accuracy  {best:.4f}" in capsys.readouterr().out
    assert main(["strides", "runs/a"]) == 0
    learned = [f"{float(row['stride']):.2f}" for row in strides[-2:]]
    assert "×".join(learned) in capsys.readouterr().out
    assert main(["train", "digits", *TINY, "--name", "a"]) == 1
    assert "runs/a has a run already: continue it" in capsys.readouterr().err


def test_the_demo_keeps_its_promise():
    """The whole recipe, as `make demo` runs it."""
    assert main(["train", "digits", "--name", "demo"]) == 0
    run = Run.open("runs/demo")
    last = rows(run.folder / "metrics.csv")[-1]
    assert float(last["test_accuracy"]) >= 0.98
    strides = [float(row["stride"]) for row in rows(run.folder / "strides.csv")]
    moved = [abs(a - b) for a, b in zip(strides[:6], strides[-6:], strict=True)]
    assert max(moved) > 0.2
    assert (run.folder / "strides.png").read_bytes().startswith(b"\x89PNG")


def test_a_seed_gives_the_same_numbers_and_another_other_ones():
    options = [*TINY, "--trainer.epochs", "1"]
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        assert main(["train", "digits", *options, "--name", name, "--seed", seed]) == 0
    texts = {name: (Run.open(f"runs/{name}").folder / "metrics.csv").read_text() for name in "abc"}
    assert texts["a"] == texts["b"]
    assert texts["a"] != texts["c"]


class Killed(Exception):
    pass


def test_an_interrupted_run_ends_as_if_it_had_not_been(monkeypatch, capsys):
    """Killed within an epoch, and again; then with the last checkpoint damaged."""
    options = [*TINY, "--trainer.epochs", "4", "--model.downsampling", "diffstride"]
    assert main(["train", "digits", *options, "--name", "whole"]) == 0
    config = replace(Run.open("runs/whole").config, name="broken")
    steps = 0
    step = Classifier.training_step

    def until(last):
        def counted(self, batch, index):
            nonlocal steps
            steps += 1
            if steps > last:
                raise Killed
            return step(self, batch, index)

        return counted

    monkeypatch.setattr(Classifier, "training_step", until(6))  # in the second epoch of 4
    with pytest.raises(Killed):
        runner.train(config, "digits")
    steps = 0
    monkeypatch.setattr(Classifier, "training_step", until(9))  # 2 epochs on, and a bit
    with pytest.raises(Killed):
        runner.resume("runs/broken")
    monkeypatch.setattr(Classifier, "training_step", step)
    newest, _ = Run.open("runs/broken").checkpoint_files()
    newest.write_bytes(newest.read_bytes()[:1000])
    assert main(["resume", "runs/broken"]) == 0
    assert "can't be read" in capsys.readouterr().err
    for file in ("metrics.csv", "strides.csv"):
        whole, broken = (Run.open(f"runs/{name}").folder / file for name in ("whole", "broken"))
        assert broken.read_text() == whole.read_text()
    states = [
        read_checkpoint(Run.open(f"runs/{name}").checkpoint_files()[0])["state_dict"]
        for name in ("whole", "broken")
    ]
    for key, value in states[0].items():
        assert torch.equal(value, states[1][key]), key


def test_a_checkpoint_that_is_code_is_refused(tmp_path):
    class Code:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    path = tmp_path / "bad.ckpt"
    torch.save({"state_dict": Code()}, path)
    path.write_bytes(seal(path.read_bytes()))
    with pytest.raises(RunError, match=r"can't be read \(Weights only load failed"):
        read_checkpoint(path)
    assert not (tmp_path / "executed").exists()
    path.write_bytes(b"garbage")
    with pytest.raises(RunError, match="can't be read"):
        read_checkpoint(path)


IMAGES = [name for name, recipe in RECIPES.items() if recipe.config.data.kind == "images"]


def test_a_run_whose_checkpoints_are_code_is_refused(tmp_path, capsys):
    assert main(["train", "digits", *TINY, "--trainer.epochs", "1", "--name", "a"]) == 0

    class Code:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    for path in Path("runs/a/checkpoints").iterdir():
        torch.save({"state_dict": Code()}, path)
        path.write_bytes(seal(path.read_bytes()))
    for words in (["resume"], ["evaluate"], ["evaluate", "--best"], ["strides"]):
        assert main([*words, "runs/a"]) == 1
        assert "can't be read" in "".join(capsys.readouterr())
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("classes", "labels", "message"),
    [
        (3, 4, "labels must be from 0 to 2, or names of classes, got 3"),
        (1, 1, "must have at least 2 classes, got 1"),
    ],
)
def test_wrong_labels_end_the_command(classes, labels, message, tmp_path, capsys):
    path = image_pack(tmp_path / "pack", classes=labels)
    (tmp_path / "pack" / "classes.json").write_text(json.dumps([str(i) for i in range(classes)]))
    assert main(["train", "cifar10", "--data.path", path]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not Path("runs").exists()


def test_low_precision_trains_with_strides_at_full_precision():
    options = [*TINY, "--trainer.epochs", "1", "--trainer.precision", "bf16-mixed"]
    assert main(["train", "digits", *options, "--name", "low"]) == 0
    assert main(["train", "digits", *TINY, "--trainer.epochs", "1", "--name", "full"]) == 0
    low, full = (rows(Path(f"runs/{name}/strides.csv"))[-6:] for name in ("low", "full"))
    moved = [abs(float(row["stride"]) - round(float(row["stride"]))) for row in low]
    assert 0 < min(moved)  # by less than bfloat16 could tell from a whole number
    assert [row["stride"] for row in low] != [row["stride"] for row in full]


@pytest.mark.parametrize("recipe", [name for name in IMAGES if name != "digits"])
def test_every_recipe_runs_at_toy_size(recipe, tmp_path):
    size = 64 if recipe == "imagenet" else 32
    channels = 1 if "mnist" in recipe else 3
    path = image_pack(tmp_path / "pack", size=size, channels=channels, number=16)
    options = ["--data.path", path, "--model.width", "0.0625", "--data.batch_size", "8"]
    options += ["--trainer.epochs", "1", "--name", "toy"]
    if RECIPES[recipe].config.data.image_size:
        options += ["--data.image_size", "64"]
    assert main(["train", recipe, *options]) == 0
    (row,) = rows(Run.open("runs/toy").folder / "metrics.csv")
    assert float(row["train_loss"]) > 0
    assert row["step"] == "2"


def test_the_regulariser_makes_strides_larger():
    common = [*TINY, "--trainer.epochs", "4", "--optim.stride_lr", "0.2"]
    assert main(["train", "digits", *common, "--name", "free"]) == 0
    assert main(["train", "digits", *common, "--name", "held", "--stride_penalty", "5"]) == 0
    free, held = (
        float(rows(Run.open(f"runs/{name}").folder / "metrics.csv")[-1]["stride_penalty"])
        for name in ("free", "held")
    )
    assert held < 0.9 * free


def test_a_budget_is_kept_from_the_first_step_to_the_last(capsys):
    options = [*TINY, "--optim.stride_lr", "0.2", "--model.convention", "symmetric"]
    options += ["--model.smoothness", "1", "--macs_budget", "2"]
    assert main(["train", "digits", *options, "--name", "held"]) == 0
    costs = [float(row["mmacs"]) for row in rows(Run.open("runs/held").folder / "metrics.csv")]
    assert max(costs) <= 2
    assert main(["train", "digits", *options, "--name", "spent", "--spend"]) == 0
    costs = [float(row["mmacs"]) for row in rows(Run.open("runs/spent").folder / "metrics.csv")]
    assert costs == [pytest.approx(2, rel=0.02)] * len(costs)
    assert main(["train", "digits", *options, "--name", "none", "--macs_budget", "0.1"]) == 1
    assert "a budget of 0.1 M MACs can't be met" in capsys.readouterr().err
    assert not Path("runs/none").exists()


def test_a_budget_in_milliseconds_is_kept_by_the_table_of_the_run(capsys, monkeypatch):
    """The table is made up, so that no time of this machine matters."""
    measured = []

    def measure(model, size, *, batch, training):
        measured.append((tuple(size), batch, training))
        kinds = {kind_of(use) for use in CostModel(model, size).uses()}
        rates = dict.fromkeys(kinds, (1e-6, 0.0, 0.0))  # as many ms as there are M MACs
        threads, versions = torch.get_num_threads(), (torch.__version__, "0")
        machine = machine_name(torch.device("cpu"))
        return Timings(rates, batch, training, machine, threads, *versions, 0.0, 0.0)

    monkeypatch.setattr(Timings, "measure", measure)
    options = [*TINY, "--optim.stride_lr", "0.2", "--model.convention", "symmetric"]
    options += ["--model.smoothness", "1", "--ms_budget", "2"]
    assert main(["train", "digits", *options, "--name", "held", "--ms_of", "training"]) == 0
    run = Run.open("runs/held")
    assert max(float(row["mmacs"]) for row in rows(run.folder / "metrics.csv")) <= 2
    assert Timings.load(run.timings_file).training
    assert len(measured) == 1 and measured[0][2] is True
    assert main(["resume", "runs/held"]) == 0
    assert len(measured) == 1
    assert main(["train", "digits", *options, "--name", "none", "--ms_budget", "0.1"]) == 1
    assert "a budget of 0.1 ms can't be met" in capsys.readouterr().err
    assert not Path("runs/none").exists()
    given = ["--timings", str(run.timings_file), "--name", "given"]
    assert main(["train", "digits", *options, *given]) == 0
    assert len(measured) == 2  # by the one that failed


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, ""),
        (
            ["tran"],
            2,
            "no command 'tran': train, search, resume, evaluate, strides, resolution, cost, tab",
        ),
        (["train"], 2, "usage: diffstride train RECIPE"),
        (["train", "cifra10"], 2, "no recipe 'cifra10', nor such a file"),
        (["train", "cifar10", "--data.path", "./nowhere"], 1, "./nowhere does not exist"),
        (["train", "digits", "--model.strides", "2"], 1, "one for each of stage 2, stage 3"),
        (["train", "digits", "--data.batch_size", "0"], 1, "--data.batch_size must be at least 1"),
        (["train", "digits", "--trainer.devices", "3"], 1, "multiple of the 3 processes"),
        (["train", "digits", "--optim.milestones", "200"], 1, "must be parts of the run from 0"),
        (["train", "digits", "--trainer.epochs", "0"], 1, "--trainer.epochs must be at least 1"),
        (
            ["train", "digits", "--optim.lr", "nan"],
            1,
            "--optim.lr must be a finite number",
        ),
        (["train", "digits", "--macs_budget", "0"], 1, "--macs_budget must be above 0"),
        (["train", "digits", "--spend"], 1, "--spend needs a budget to spend"),
        (["train", "digits", "--ms_budget", "0"], 1, "--ms_budget must be above 0"),
        (
            ["train", "digits", "--ms_budget", "9", "--macs_budget", "9"],
            1,
            "--macs_budget and --ms_budget were both given: a run has one budget",
        ),
        (
            ["train", "digits", "--ms_budget", "9", "--timings", "none.json"],
            1,
            "--timings: none.json does not exist",
        ),
        (["resume", "nowhere"], 1, "nowhere has no run: it must have a config.yaml"),
        (["evaluate", "nowhere"], 1, "nowhere has no run"),
        (["strides", "nowhere"], 1, "nowhere has no run"),
        (["table", "nowhere"], 1, "nowhere is no run"),
    ],
)
def test_what_goes_wrong_is_said_in_a_line(words, code, message, capsys):
    assert main(words) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert not Path("runs").exists()


@pytest.mark.parametrize("words", [["--model.widht", "1"], ["--model.width", "wide"]])
def test_a_wrong_option_is_a_usage_error(words, capsys):
    with pytest.raises(SystemExit) as raised:
        main(["train", "digits", *words])
    assert raised.value.code == 2
    assert "--model.width" in capsys.readouterr().err


def test_an_interruption_says_how_to_go_on(monkeypatch, capsys):
    def interrupted(self, batch, index):
        raise KeyboardInterrupt

    monkeypatch.setattr(Classifier, "training_step", interrupted)
    assert main(["train", "digits", *TINY]) == 1
    assert "interrupted: diffstride resume RUN goes on" in capsys.readouterr().err


def test_strides_may_be_given_one_a_site_and_axis():
    options = [*TINY, "--trainer.epochs", "1", "--name", "six", "--optim.lr", "0"]
    words = ["--model.strides", "3", "2", "2", "2", "1.5", "3"]
    assert main(["train", "digits", *options, *words]) == 0
    strides = [float(row["stride"]) for row in rows(Path("runs/six/strides.csv"))]
    assert strides[:6] == [3, 2, 2, 2, 1.5, 3]


@pytest.mark.parametrize(
    "words",
    [
        ["--trainer.accelerator", "gpu"],
        ["--trainer.strategy", "no_such"],
        ["--optim.label_smoothing", "2"],
        ["--optim.momentum", "-1"],
        ["--seed", "-3"],
    ],
)
def test_settings_that_can_not_work_leave_no_run_behind(words, capsys):
    assert main(["train", "digits", *TINY, *words]) == 1
    assert "diffstride: " in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_run_whose_data_changed_is_not_continued(tmp_path, capsys):
    path = image_pack(tmp_path / "pack", number=12)
    options = ["--data.path", path, "--trainer.epochs", "1", "--name", "a", *TINY]
    assert main(["train", "fashion_mnist", *options]) == 0
    for file in (tmp_path / "pack").iterdir():
        file.unlink()
    (tmp_path / "pack").rmdir()
    image_pack(tmp_path / "pack", number=18)
    assert main(["resume", "runs/a"]) == 1
    assert "was trained on other data: train was 12 and is 18 now" in capsys.readouterr().err


def test_a_run_goes_on_when_nobody_reads(tmp_path):
    """As in ``diffstride train digits | head -1``."""
    words = ["train", "digits", *TINY, "--trainer.epochs", "3", "--name", "a"]
    process = subprocess.Popen(
        [sys.executable, "-m", "diffstride", *words],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().startswith("epoch   1")
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=120) == 0
    assert len(rows(tmp_path / "runs/a/metrics.csv")) == 3


def test_mixup_blends_images_and_says_their_share():
    config = replace(RECIPES["digits"].config, data=replace(RECIPES["digits"].config.data, mixup=1))
    module = Classifier(torch.nn.Identity(), config, (1, 2, 2))
    images = torch.rand(5, 1, 2, 2)
    mixed, share = module._mixed(images)
    assert ((share >= 0.5) & (share <= 1)).all()
    weights = share[:, None, None, None]
    torch.testing.assert_close(mixed, weights * images + (1 - weights) * images.flip(0))


def test_a_loss_that_is_no_number_ends_the_run_and_keeps_what_was_learned(monkeypatch, capsys):
    loss = Classifier._loss

    def poisoned(self, scores, labels):
        return loss(self, scores, labels) + (float("nan") if self.current_epoch else 0)

    monkeypatch.setattr(Classifier, "_loss", poisoned)
    assert main(["train", "digits", *TINY, "--trainer.epochs", "3", "--name", "a"]) == 1
    assert "the loss became nan in epoch 2: try a smaller --optim.lr" in capsys.readouterr().err
    assert len(rows(Path("runs/a/metrics.csv"))) == 1
    assert [path.name for path in Run.open("runs/a").checkpoint_files()] == ["epoch-00001.ckpt"]


@pytest.mark.parametrize("where", ["parameter", "buffer"])
def test_weights_that_are_no_numbers_after_the_last_step_are_not_written(
    where, monkeypatch, capsys
):
    """Also where the loss on test data does not tell."""

    def poison(self):
        if self.current_epoch:
            own = self.model.parameters() if where == "parameter" else self.model.buffers()
            with torch.no_grad():
                next(x for x in own if x.is_floating_point()).view(-1)[0] = float("inf")

    monkeypatch.setattr(Classifier, "on_validation_epoch_end", poison)
    assert main(["train", "digits", *TINY, "--trainer.epochs", "3", "--name", "a"]) == 1
    assert "weights or strides became infinite in epoch 2: try" in capsys.readouterr().err
    for name in ("metrics.csv", "strides.csv", "times.csv"):
        assert {row["epoch"] for row in rows(Path("runs/a", name))} <= {"0", "1"}
    assert [path.name for path in Run.open("runs/a").checkpoint_files()] == ["epoch-00001.ckpt"]


def test_images_that_can_not_be_read_are_an_error_or_counted(tmp_path, capsys):
    for split in ("train", "test"):
        for name in ("ant", "bee"):
            folder = tmp_path / "pics" / split / name
            folder.mkdir(parents=True)
            for i in range(4):
                pixels = np.full((16, 16), 10 * i, dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    (tmp_path / "pics/train/ant/2.png").write_bytes(b"no image")
    options = ["--data.path", "pics", "--data.batch_size", "4", "--trainer.epochs", "1"]
    words = ["train", "fashion_mnist", *options, "--name", "a", "--model.width", "0.0625"]
    assert main(words) == 1
    assert "train/ant/2.png can't be read as an image" in capsys.readouterr().err
    assert not Path("runs").exists()
    assert main([*words, "--data.skip_corrupt"]) == 0
    assert "1 files could not be read and were left out" in capsys.readouterr().out
    assert [Path(name).name for name in Run.open("runs/a").data["skipped"]] == ["2.png"]


def test_a_bar_shows_loss_accuracy_and_strides(monkeypatch, capsys):
    """In a terminal; everywhere else there is a line an epoch and no more."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    assert main(["train", "digits", *TINY, "--trainer.epochs", "2", "--name", "a"]) == 0
    bars = [line for line in capsys.readouterr().out.splitlines() if "epoch 2 of 2" in line]
    assert bars
    assert all(word in bars[-1] for word in ("loss", "accuracy", "strides"))


def test_a_full_disk_loses_nothing_and_leaves_no_rubbish(monkeypatch, capsys):
    """When the second epoch is written; room is made, and the run goes on."""
    words = ["train", "digits", *TINY, "--trainer.epochs", "2"]
    assert main([*words, "--name", "whole"]) == 0
    replace = Path.replace

    def full(path, target):
        if Path(target).name == "epoch-00002.ckpt":
            raise OSError(28, "No space left on device")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", full)
    assert main([*words, "--name", "a"]) == 1
    assert "No space left on device" in capsys.readouterr().err
    names = sorted(path.name for path in Path("runs/a/checkpoints").iterdir())
    assert names == ["best.ckpt", "epoch-00001.ckpt"]
    monkeypatch.setattr(Path, "replace", replace)
    assert main(["resume", "runs/a"]) == 0
    assert Path("runs/a/metrics.csv").read_text() == Path("runs/whole/metrics.csv").read_text()


def test_a_finished_run_can_be_resumed_to_no_effect(capsys):
    assert main(["train", "digits", *TINY, "--trainer.epochs", "1", "--name", "a"]) == 0
    before = {path.name: path.read_bytes() for path in Path("runs/a").glob("*.csv")}
    assert main(["resume", "runs/a"]) == 0
    assert "test accuracy" in capsys.readouterr().out
    assert before == {path.name: path.read_bytes() for path in Path("runs/a").glob("*.csv")}


def test_debug_shows_where():
    with pytest.raises(RunError):
        main(["resume", "nowhere", "--debug"])


def test_a_run_without_strides_and_one_from_a_config():
    options = [*TINY, "--trainer.epochs", "1"]
    strided = ["--model.downsampling", "strided", "--name", "strided"]
    assert main(["train", "digits", *options, *strided]) == 0
    assert main(["train", "runs/strided", "--model.downsampling", "spectral"]) == 0
    assert Run.open("runs/strided-spectral-0").config.model.width == 0.0625


def test_other_images_can_be_evaluated(tmp_path, capsys):
    path = image_pack(tmp_path / "pack", number=12)
    options = ["--data.path", path, "--trainer.epochs", "1", "--name", "a", *TINY]
    assert main(["train", "fashion_mnist", *options]) == 0
    other = image_pack(tmp_path / "other", number=6)
    assert main(["evaluate", "runs/a", "--data.path", other]) == 0
    assert "test top5  1.0000" in capsys.readouterr().out
    grey = image_pack(tmp_path / "grey", number=6, channels=1)
    assert main(["evaluate", "runs/a", "--data.path", grey]) == 1
    assert "has images of 1 channels, and the run was trained on 3" in capsys.readouterr().err
    wrong = image_pack(tmp_path / "wrong", number=6, classes=2)
    assert main(["evaluate", "runs/a", "--data.path", wrong]) == 1
    assert "must have the classes" in capsys.readouterr().err
