"""Raw signals from files to accuracies, at the rate of training and at others."""

import json

import numpy as np
import pytest
import soundfile
import torch

from diffstride.lab.cli import main
from diffstride.lab.data.signals import load
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training import trained_run
from tests.lab.training.generated_data import rows

pytestmark = pytest.mark.slow

TINY = (
    "--model.width 0.125 --data.batch_size 8 --data.cache cache --trainer.epochs 6 "
    "--optim.lr 5e-3 --data.rate 100"
).split()
FREQUENCIES = (4.0, 9.0, 14.0)  # of the classes, in Hz


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def tone(hertz, seconds, rate, seed):
    time = np.arange(round(seconds * rate)) / rate
    phase = np.random.default_rng(seed).uniform(0, 6)
    return np.sin(2 * np.pi * hertz * time + phase) + 0.3 * np.sin(2 * np.pi * 2 * time)


def pack(path, rate=100, seconds=(2.0, 4.0)):
    """An .npz file of tones of different lengths, which are filled up with what is no number."""
    arrays = {"rate": np.array(rate)}
    for split, number in (("train", 48), ("test", 18)):
        longest = round(seconds[1] * rate)
        signals = np.full((number, longest), np.nan, np.float32)
        for i in range(number):
            part = np.random.default_rng([i, number]).uniform(*seconds)
            wave = tone(FREQUENCIES[i % 3], round(4 * part) / 4, rate, seed=i)
            signals[i, : len(wave)] = wave
        arrays |= {f"x_{split}": signals, f"y_{split}": np.arange(number) % 3}
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on signals of 100 samples a second."""
    folder = tmp_path_factory.mktemp("signals")
    path, words = pack(folder / "tones.npz"), ["--out", str(folder), "--name", "run"]
    assert main(["train", "signals_small", "--data.path", path, *TINY, *words]) == 0
    return folder / "run"


def test_a_run_learns_says_its_hertz_and_is_evaluated(trained, capsys):
    run = Run.open(trained)
    assert run.data["size"] == [1, 400]
    assert (run.data["rate"], run.data["axes"], run.data["units"]) == (100.0, ["time"], ["Hz"])
    last = rows(trained / "metrics.csv")[-1]
    assert float(last["test_accuracy"]) > 0.9
    layers = [row["layer"] for row in rows(trained / "strides.csv") if row["epoch"] == "6"]
    assert layers == ["sampling", *(f"stages.{i}.downsample" for i in range(4))]
    assert main(["evaluate", str(trained)]) == 0
    assert f"test accuracy  {float(last['test_accuracy']):.4f}" in capsys.readouterr().out
    assert main(["strides", str(trained)]) == 0
    assert "Hz" in capsys.readouterr().out
    examples = json.loads((trained / "examples.json").read_text())["images"]
    assert [len(example["samples"]) > 100 for example in examples] == [True] * 3
    assert "<html" in (trained / "report.html").read_text()


def slowly(folder):
    """Loss and accuracy, window by window without batches; each counts by its real samples."""
    run = Run.open(folder)
    network, (_, length) = trained_run.load_model(run), run.data["size"]
    test = load(run.config.data.path, rate=100.0).test
    means = []
    for i in range(len(test)):
        (signal,), _ = test.windows([(i, 0)], test.length(i))
        scores = 0
        for first in range(0, test.length(i), length):
            window = signal[:, first : first + length]
            x = (window - window.mean()) / window.std(correction=0)
            filled = torch.nn.functional.pad(x, (0, length - window.shape[-1]))[None]
            with torch.no_grad():
                scores += network(filled, torch.tensor([x.shape[-1]])) * x.shape[-1]
        means.append(scores / test.length(i))
    scores = torch.cat(means)
    loss = torch.nn.functional.cross_entropy(scores, test.labels).item()
    return {"test_loss": loss, "test_accuracy": (scores.argmax(1) == test.labels).float().mean()}


def test_evaluation_is_that_of_a_slow_loop_over_signals(trained):
    found = trained_run.evaluate(trained)
    for name, value in slowly(trained).items():
        assert found[name] == pytest.approx(float(value), rel=1e-4)


@pytest.mark.parametrize("rate", [60, 150, 200])
def test_signals_of_another_rate_are_told_as_well(rate, trained, tmp_path, capsys):
    path = pack(tmp_path / "other.npz", rate)
    assert main(["evaluate", str(trained), "--data.path", path, "--json"]) == 0
    out, err = capsys.readouterr()
    ratio = f"its first stride is {rate / 100:g} times as large"
    assert f"have {rate} samples a second, and the network was trained on 100: {ratio}" in err
    found, known = json.loads(out), trained_run.evaluate(trained)
    assert abs(found["test_accuracy"] - known["test_accuracy"]) < 0.06
    assert found["test_accuracy_without"] < found["test_accuracy"] - 0.2


def test_other_data_need_a_test_set(trained, tmp_path, capsys):
    np.savez(tmp_path / "one.npz", x=np.ones((6, 9)), y=np.arange(6) % 3)
    assert main(["evaluate", str(trained), "--data.path", "one.npz"]) == 1
    err = capsys.readouterr().err
    assert "one.npz must have a training and a test set, as for `train`" in err
    assert "test_fraction" not in err  # which `evaluate` has not


def test_a_network_that_begins_with_a_convolution_can_not(tmp_path, capsys):
    words = [*TINY, "--model.downsampling", "strided", "--trainer.epochs", "1", "--name", "a"]
    path = pack(tmp_path / "tones.npz")
    assert main(["train", "signals_small", "--data.path", path, *words]) == 0
    assert main(["evaluate", "runs/a", "--data.path", pack(tmp_path / "b.npz", 200)]) == 1
    assert "begins with a convolution or a pooling" in capsys.readouterr().err
    assert main(["strides", "runs/a"]) == 1
    assert "runs/a has downsampling 'strided', and no strides to learn" in capsys.readouterr().err


def test_files_of_another_rate_are_resampled_in_training(tmp_path, capsys):
    for split in ("train", "test"):
        for label, hertz in zip("abc", FREQUENCIES, strict=True):
            folder = tmp_path / "sounds" / split / label
            folder.mkdir(parents=True)
            for i in range(4):
                rate = (4000, 2000)[i % 2]
                soundfile.write(folder / f"{i}.wav", 0.3 * tone(hertz, 0.5, rate, i), rate)
    words = [*TINY[:-2], "--trainer.epochs", "1", "--name", "a", "--data.path", "sounds"]
    assert main(["train", "waveform_small", *words]) == 1
    assert "--data.rate" in capsys.readouterr().err
    rated = [*words, "--data.rate", "2000", "--data.length", "800"]
    assert main(["train", "waveform_small", *rated]) == 0
    assert Run.open("runs/a").data["rate"] == 2000
    assert Run.open("runs/a").data["size"] == [1, 800]


def test_a_run_is_not_continued_at_another_rate(tmp_path, capsys):
    path, words = pack(tmp_path / "tones.npz"), [*TINY[:-2], "--trainer.epochs", "1", "--name", "a"]
    assert main(["train", "signals_small", "--data.path", path, *words]) == 0
    assert main(["resume", "runs/a"]) == 0
    pack(path, 200)
    assert main(["resume", "runs/a"]) == 1
    wrong = "was trained on other data: rate was 100.0 and is 200.0 now"
    assert wrong in capsys.readouterr().err


def test_what_is_not_for_signals_is_said(tmp_path, capsys):
    path = pack(tmp_path / "tones.npz")
    for words, message in (
        (["--model.name", "densenet121"], "--model.name must be one of signal_cnn"),
        (["--data.flip"], "--data.flip is for images, and --data.kind is signals"),
        (["--trainer.steps", "3"], "--trainer.steps is for --data.kind audio"),
    ):
        assert main(["train", "signals_small", "--data.path", path, *words]) == 1
        assert message in capsys.readouterr().err
    assert main(["train", "signals_small"]) == 1
    assert "signals need --data.path" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())


def test_another_network_is_masked_too_and_long_signals_are_cut_into_pieces(tmp_path):
    path, words = pack(tmp_path / "tones.npz"), ["--model.name", "resnet18", "--name", "a"]
    words += ["--trainer.epochs", "1", "--data.length", "150"]
    assert main(["train", "signals_small", "--data.path", path, *TINY, *words]) == 0
    found = trained_run.evaluate("runs/a")
    for name, value in slowly("runs/a").items():
        assert found[name] == pytest.approx(float(value), rel=1e-4)
