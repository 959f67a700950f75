"""Signals in files are classified as in evaluation, whatever their sampling rate."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from diffstride.lab.cli import main
from diffstride.lab.inference import predict
from diffstride.lab.training import trained_run

pytestmark = pytest.mark.slow

HERTZ = {"high": 350.0, "low": 80.0, "middle": 200.0}
WORDS = (
    "--model.width 0.125 --model.strides 2 2 2 2 2 --data.batch_size 6 --data.length 600 "
    "--trainer.epochs 8 --optim.lr 5e-3"
).split()


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write_tones(folder, rate, seconds, number):
    """Files by class, each with its class's tone and a random phase."""
    for label, hertz in HERTZ.items():
        (folder / label).mkdir(parents=True)
        for i in range(number):
            time = np.arange(round(seconds[i % len(seconds)] * rate)) / rate
            phase = np.random.default_rng([i, round(hertz)]).uniform(0, 6)
            wave = 0.3 * np.sin(2 * np.pi * hertz * time + phase)
            soundfile.write(folder / label / f"{i}.wav", wave, rate)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signals")
    write_tones(folder / "data" / "train", 2000, (0.25, 0.3, 0.4), 8)
    write_tones(folder / "data" / "test", 2000, (0.2, 0.3, 0.7), 6)
    words = [*WORDS, "--data.path", str(folder / "data"), "--data.cache", str(folder / "cache")]
    words += ["--out", str(folder), "--name", "run"]
    assert main(["train", "waveform_small", *words]) == 0
    return folder / "run"


def share_right(predictions):
    right = [Path(p.file).parent.name == p.classes[0][0] for p in predictions]
    return sum(right) / len(right)


def test_as_in_evaluation_also_from_an_exported_folder(run, capsys):
    files = run.parent / "data" / "test"
    found, errors = predict.predict_files(run, [files], top=3)
    assert not errors
    assert len(found) == 18
    assert share_right(found) == trained_run.evaluate(run)["test_accuracy"] > 0.9
    assert main(["export", str(run), "-o", "shared"]) == 0
    again, _ = predict.predict_files("shared", [files], top=3)
    for one, other in zip(found, again, strict=True):
        assert [name for name, _ in one.classes] == [name for name, _ in other.classes]
        assert [p for _, p in one.classes] == pytest.approx([p for _, p in other.classes])
    told = json.loads(Path("shared/config.json").read_text())["metadata"]["preprocessing"]
    assert (told["kind"], told["size"], told["rate"]) == ("signals", [1, 600], 2000)


@pytest.mark.parametrize("rate", [1500, 5000])
def test_files_of_another_rate_are_not_resampled(run, rate, tmp_path, capsys):
    files = write_tones(tmp_path / "other", rate, (0.2, 0.3, 0.7), 6)
    mixed = run.parent / "data" / "test" / "low" / "0.wav"
    assert main(["predict", str(run), str(files), str(mixed), "--json"]) == 0
    out, err = capsys.readouterr()
    ratio = f"its first stride is {rate / 2000:g} times as large for them"
    assert err == (
        f"some files have {rate} samples a second, and the network was trained on 2000: {ratio}\n"
    )
    found = json.loads(out)
    right = [Path(each["file"]).parent.name == each["classes"][0]["class"] for each in found]
    assert len(right) == 19
    assert sum(right) / 19 > 0.9


def test_an_onnx_file_takes_full_windows_of_one_rate(run, tmp_path, capsys):
    assert main(["export", str(run), "-o", "network.onnx"]) == 0
    files = write_tones(tmp_path / "long", 2000, (0.3, 0.6), 2)
    found, errors = predict.predict_files("network.onnx", [files], top=3)
    known, _ = predict.predict_files(run, [files], top=3)
    assert not errors
    for one, other in zip(found, known, strict=True):
        assert dict(one.classes) == pytest.approx(dict(other.classes), abs=1e-4)
    # The rest behind a full batch of windows is left out too.
    soundfile.write("longer.wav", np.tile(np.sin(np.arange(600)), 65)[: 64 * 600 + 9], 2000)
    assert len(predict.predict_files("network.onnx", ["longer.wav"]).predictions) == 1
    capsys.readouterr()
    soundfile.write("short.wav", np.zeros(599), 2000)
    soundfile.write("other.wav", np.zeros(5000), 4000)
    assert main(["predict", "network.onnx", "short.wav", "other.wav"]) == 1
    err = capsys.readouterr().err
    assert "short.wav has 599 samples, and network.onnx takes no fewer than 600" in err
    assert "other.wav has 4000 samples a second, and network.onnx takes 2000 only" in err


def test_bad_files_are_named_and_others_classified(run, tmp_path, capsys):
    good = run.parent / "data" / "test" / "low" / "0.wav"
    soundfile.write("two.wav", np.zeros((700, 2)), 2000)
    Path("damaged.wav").write_bytes(good.read_bytes()[:200])
    assert main(["predict", str(run), "two.wav", "damaged.wav", str(good), "--csv"]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert "two.wav has 2 channels, and the network was trained on 1" in err
    assert "damaged.wav" in err
