"""Recordings from files to accuracies, for one task and for several."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from diffstride.lab.cli import main
from diffstride.lab.data.recordings import decode
from diffstride.lab.data.spectrogram import log_mel
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training.classifier import Classifier
from diffstride.lab.training.preparation import prepare
from diffstride.lab.training.recipes import RECIPES
from tests.lab.data.published_trees import TREES
from tests.lab.training.generated_data import TINY_AUDIO, audio_pack, rows, sound

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


def test_one_task(tmp_path, capsys):
    path = audio_pack(tmp_path / "pack")
    assert main(["train", "audio", "--data.path", path, *TINY_AUDIO, "--name", "a"]) == 0
    out = capsys.readouterr().out
    assert "cut-off" in out
    assert "blocks.5.4" in out
    run = Run.open("runs/a")
    assert run.data["size"] == [1, 100, 64]
    assert (run.data["train"], run.data["test"]) == (12, 5)
    facts = [run.data[name] for name in ("axes", "sampling_rate", "units")]
    assert facts == [["time", "frequency"], [100, 1], ["Hz", "cycles per mel channel"]]
    *_, first, last_time, last_channel = (rows("runs/a/strides.csv")[i] for i in (-12, -2, -1))
    assert float(first["cutoff"]) == pytest.approx(50 / float(first["stride"]))
    assert float(last_time["cutoff"]) <= float(first["cutoff"])
    assert f"up to {float(last_time['cutoff']):.3g} Hz along time" in out
    assert f"{float(last_channel['cutoff']):.3g} cycles per mel channel along frequency" in out
    assert main(["evaluate", "runs/a"]) == 0
    last = float(rows("runs/a/metrics.csv")[-1]["test_accuracy"])
    assert f"test accuracy  {last:.4f}" in capsys.readouterr().out
    other = audio_pack(tmp_path / "other")
    assert main(["evaluate", "runs/a", "--data.path", other]) == 0
    assert main(["evaluate", "runs/a", "--data.path", audio_pack(tmp_path / "three", label=3)]) == 1
    assert "must have the classes" in capsys.readouterr().err


def test_several_tasks_share_a_network(tmp_path, capsys):
    path = audio_pack(tmp_path / "pack", family=2, pitch=3)
    tasks = ["--data.task", f"family={path}:family", "--data.task", f"pitch={path}:pitch"]
    assert main(["train", "audio_multitask", *tasks, *TINY_AUDIO, "--name", "a"]) == 0
    assert "accuracy" in capsys.readouterr().out
    last = rows("runs/a/metrics.csv")[-1]
    each = [float(last[f"test_accuracy_{name}"]) for name in ("family", "pitch")]
    assert float(last["test_accuracy"]) == pytest.approx(sum(each) / 2)
    assert Run.open("runs/a").data["classes"] == {"family": ["0", "1"], "pitch": ["0", "1", "2"]}
    assert main(["evaluate", "runs/a"]) == 0
    assert f"test accuracy pitch  {each[1]:.4f}" in capsys.readouterr().out
    assert main(["evaluate", "runs/a", "--data.path", path]) == 1
    assert "is of several tasks" in capsys.readouterr().err
    shared = ["--model.shared_stride", "--name", "shared"]
    assert main(["train", "runs/a", *shared]) == 0
    strides = [float(row["stride"]) for row in rows("runs/shared/strides.csv")]
    assert strides[0::2] == strides[1::2]
    assert len(list(Path("cache").glob("*.samples"))) == 2  # two tasks of the same recordings


def test_evaluation_is_that_of_a_slow_loop_over_files(tmp_path):
    """Read, split into seconds, average; for a third of a second, one, and 10.37 of them."""
    lengths = (0.3, 1.0, 10.37, 2.0, 0.99)
    for split in ("train", "test"):
        for i, seconds in enumerate(lengths):
            folder = tmp_path / "sounds" / split / ("low", "high")[i % 2]
            folder.mkdir(parents=True, exist_ok=True)
            rate, channels = ((16_000, 1), (44_100, 2), (8_000, 1))[i % 3]
            content = sound(seconds, 200 * (1 + i), rate, channels, seed=i)
            (folder / f"{i}.wav").write_bytes(content)
    config = RECIPES["audio"].config
    config = replace(
        config,
        model=replace(config.model, width=0.0625),
        data=replace(config.data, path="sounds", cache="cache", batch_size=4),
    )
    prepared = prepare(config)
    module = prepared.module.eval()
    with torch.no_grad():
        for parameter in module.model.head.parameters():  # scores that tell recordings apart
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(0))
        module.on_validation_epoch_start()
        for i, batch in enumerate(prepared.test):
            module.validation_step(batch, i)
        module.on_validation_epoch_end()

        names = prepared.facts["classes"]
        right, loss = 0, 0.0
        recordings = sorted(Path("sounds/test").rglob("*.wav"))
        sums = module.scores[""]
        found = sums[:, :-1] / sums[:, -1:]
        for i, path in enumerate(recordings):
            label = names.index(path.parent.name)
            assert module.labels[""][i] == label
            wave = torch.tensor(decode(str(path), path.read_bytes()))
            wave = (wave * 32768).round().clamp(-32768, 32767) / 32768
            scores = []
            for second in wave.split(16_000):
                padded = torch.cat([second, torch.zeros(16_000 - len(second))])
                image = (log_mel(padded) - module.frontend.mean) / module.frontend.std
                scores.append(module.model(image[None, None])[0])
            mean = torch.stack(scores).double().mean(0)
            torch.testing.assert_close(found[i], mean, atol=1e-4, rtol=1e-5)
            right += int(mean.argmax() == label)
            loss += torch.nn.functional.cross_entropy(mean[None], torch.tensor([label])).item()
            assert len(scores) == -(-len(wave) // 16_000)
    means = module.means()
    assert means["test_accuracy"] == right / len(recordings)
    assert means["test_loss"] == pytest.approx(loss / len(recordings), rel=1e-4)


def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    path = audio_pack(tmp_path / "pack")
    words = ["train", "audio", "--data.path", path, *TINY_AUDIO, "--trainer.epochs", "3"]
    assert main([*words, "--name", "whole"]) == 0
    step = Classifier.optimizer_step
    steps = iter(range(5))

    def limited(self, *args, **options):
        next(steps)
        return step(self, *args, **options)

    monkeypatch.setattr(Classifier, "optimizer_step", limited)
    assert main([*words, "--name", "broken"]) == 1
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["resume", "runs/broken"]) == 0
    for name in ("metrics.csv", "strides.csv"):
        assert Path("runs/broken", name).read_text() == Path("runs/whole", name).read_text()


LAYOUTS = {
    "audio_scenes": "urban_scenes",
    "audio_birds": "birds",
    "audio_instruments": "nsynth",
    "audio_pitch": "nsynth",
    "audio_commands": "speech_commands",
}


@pytest.mark.parametrize("recipe", LAYOUTS)
def test_every_recipe_runs_at_toy_size(recipe, tmp_path, capsys):
    folder = tmp_path / "tree"
    TREES[LAYOUTS[recipe]](folder)
    for i, path in enumerate(sorted(folder.rglob("*.wav"))):
        path.write_bytes(sound(0.2, 100 + 20 * i, seed=i))
    words = ["train", recipe, "--data.path", str(folder), *TINY_AUDIO, "--trainer.epochs", "1"]
    assert main([*words, "--name", "a"]) == 0
    (row,) = rows("runs/a/metrics.csv")
    assert row["step"] == "3"
    assert main(["train", recipe, "--data.path", str(tmp_path / "nowhere"), *TINY_AUDIO]) == 1
    assert str(tmp_path / "nowhere") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "audio needs --data.path, or a --data.task for each"),
        (["--data.task", "a"], "must be NAME=PATH or NAME=PATH:LABEL"),
        (["--data.task", "a b=c"], "must be NAME=PATH or NAME=PATH:LABEL"),
        (["--data.task", "a=b", "--data.path", "c"], "give one of them"),
        (["--data.task", "a=b", "--data.task", "a=c"], "'a' is taken"),
        (["--data.task", "keys=b"], "'keys' is taken"),
        (["--data.task", "a=b", "--data.task", "b=c", "--data.batch_size", "1"], "at least 2, one"),
        (["--data.path", "./nowhere"], "./nowhere does not exist"),
        (["--data.path", "pack", "--data.flip"], "--data.flip is for images, and"),
        (["--data.path", "pack", "--data.normalise", "each"], "--data.normalise is for signals"),
        (["--data.path", "pack", "--data.label", "color"], "and color, got audio, label"),
        (["--data.path", "pack", "--trainer.steps", "0"], "--trainer.steps must be at least 1"),
    ],
)
def test_what_goes_wrong_is_said_in_a_line(words, message, tmp_path, capsys):
    audio_pack(tmp_path / "pack")
    assert main(["train", "audio", "--data.cache", "cache", *words]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not Path("runs").exists()
    assert main(["train", "digits", "--trainer.steps", "4"]) == 1
    assert "--trainer.steps is for --data.kind audio" in capsys.readouterr().err


def test_recordings_that_can_not_be_read_are_an_error_or_counted(tmp_path, capsys):
    folder = tmp_path / "tree"
    TREES["speech_commands"](folder)
    for i, path in enumerate(sorted(folder.rglob("*.wav"))):
        path.write_bytes(sound(0.2, 100 + 20 * i, seed=i))
    (folder / "bed" / "00000005_nohash_0.wav").write_bytes(b"no sound")
    words = ["train", "audio_commands", "--data.path", str(folder), *TINY_AUDIO, "--name", "a"]
    assert main(words) == 1
    assert "bed/00000005_nohash_0.wav can't be read as audio" in capsys.readouterr().err
    assert main([*words, "--data.skip_corrupt"]) == 0
    assert "1 files could not be read and were left out" in capsys.readouterr().out
    (name,) = Run.open("runs/a").data["skipped"]
    assert name.endswith("bed/00000005_nohash_0.wav")
