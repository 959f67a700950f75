"""Resolution that is taken away is lost, and nothing else is; what a network needs is found."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from diffstride import DiffStride1d, DiffStride2d
from diffstride.lab.cli import main
from diffstride.lab.runs.axes import data_axes, image_axes
from diffstride.lab.runs.config import Config, ModelConfig
from diffstride.lab.runs.data_config import DataConfig
from diffstride.lab.runs.documents import read_rows
from diffstride.lab.runs.resolution import COLUMNS, curves, enough, read_resolution, sentences
from diffstride.lab.training import resampling
from diffstride.lab.training.classifier import Classifier
from diffstride.lab.training.preparation import prepare
from diffstride.lab.training.resolution import (
    Reduction,
    Setting,
    bands,
    bins_down,
    low_pass,
    places,
    reduced,
)
from diffstride.layers.joined import JoiningSequential
from tests.lab.training.generated_data import TINY_AUDIO, audio_pack, rows

SIZE, NEEDED = 32, 5
FACTS = {"data": "waves", "weights": "last"}


class Wave(nn.Module):
    """Scores of two classes: whether a wave of so many periods along height is up or down."""

    def forward(self, x):
        height = x.shape[-2]
        wave = torch.cos(2 * torch.pi * NEEDED * torch.arange(height) / height)
        found = (x.mean((1, 3)) * wave).sum(1)
        return torch.stack([-found, found], 1) * (found.abs() > 1e-3)[:, None]


def waves(number=64):
    """Batches of a wave along height that is up or down, with a constant along width."""
    labels = torch.arange(number) % 2
    wave = torch.cos(2 * torch.pi * NEEDED * torch.arange(SIZE) / SIZE)
    images = (2.0 * labels - 1)[:, None, None, None] * wave[:, None].expand(1, 1, SIZE, SIZE)
    return [(images[i::4], labels[i::4]) for i in range(4)]


def layer():
    return DiffStride2d(2.0, smoothness=1.0, convention="tight")


class TwoBranches(nn.Module):
    """Branches that meet behind one layer, with the wave in the second alone."""

    def __init__(self):
        super().__init__()
        self.convolution, self.layer = nn.Conv2d(1, 1, 1), layer()
        nn.init.zeros_(self.convolution.weight)

    def forward(self, x):
        return self.layer(self.convolution(x)) + self.layer(x)


def convolution():
    made = nn.Conv2d(1, 1, 1, bias=False)
    nn.init.ones_(made.weight)
    return made


NETWORKS = {
    "alone": lambda: nn.Sequential(layer(), Wave()),
    "joined": lambda: nn.Sequential(JoiningSequential(convolution(), layer()), Wave()),
    "branches": lambda: nn.Sequential(TwoBranches(), Wave()),
    "strided": lambda: nn.Sequential(nn.AvgPool2d((1, 2)), Wave()),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_what_a_network_needs_is_found(name):
    """Whatever is below the wave is too little, whatever is not is enough, at every place."""
    module = Classifier(NETWORKS[name](), Config(), (1, SIZE, SIZE))
    before = [p.detach().clone() for p in module.parameters()]
    reduction = Reduction((1, SIZE, SIZE), image_axes(), steps=20)
    steps = reduction.curves(module, waves(), FACTS)
    found = curves(steps)
    assert len(found) == (2 if name == "strided" else 4)
    for (_, axis), curve in found.items():
        assert curve[0].accuracy == 1
        assert len(curve) > 3
        for step in curve:
            enough_left = axis == 1 or step.bins >= NEEDED
            assert step.accuracy == (1 if enough_left else 0.5), step
        assert enough(curve).bins == (NEEDED if axis == 0 else 1)
    assert sentences(steps)[0].startswith("Height up to 0.156 cycles per pixel is enough for 99 %")
    assert all(map(torch.equal, before, module.parameters()))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


class Tone(nn.Module):
    """Scores of two classes: whether a tone of so many periods is up or down."""

    def forward(self, x):
        return Wave()(x[..., None])


def test_signals_are_measured_alike():
    axes = data_axes({"size": [1, SIZE], "sampling_rate": [250]}, "signals")
    module = Classifier(nn.Sequential(DiffStride1d(2.0), Tone()), Config(), (1, SIZE))
    batches = [(images[..., 0], labels) for images, labels in waves()]
    steps = Reduction((1, SIZE), axes, steps=20).curves(module, batches, FACTS)
    assert [enough(curve).bins for curve in curves(steps).values()] == [NEEDED] * 2
    assert sentences(steps)[0].startswith("Time up to 39.1 Hz is enough for 99 % of the accuracy")


def test_of_signals_made_smaller_the_real_part_stays_the_same():
    seen = []

    class Masked(nn.Module):
        def forward(self, x, lengths):
            seen.append((lengths / x.shape[-1]).tolist())

    setting = Setting(places(Masked(), (1, SIZE), data_axes({"size": [1, SIZE]}))[0], 0, 5, False)
    for resize in (False, True):
        model = Masked()
        with reduced(model, setting, resize):
            model(torch.ones(2, 1, SIZE), torch.tensor([SIZE // 4, SIZE]))
    assert seen == [pytest.approx([0.25, 1.0])] * 2


def test_the_cut_off_that_was_learned_is_told():
    module = Classifier(NETWORKS["alone"](), Config(), (1, SIZE, SIZE))
    steps = Reduction((1, SIZE, SIZE), image_axes((0.5, 0.25))).curves(module, waves(), FACTS)
    assert {(step.axis, step.learned) for step in steps} == {(0, 0.5), (1, 1.0)}
    assert [steps[0].cutoff, steps[0].unit] == [1.0, "cycles per mm"]
    assert max(step.cutoff for step in steps if step.axis == 1) == 2.0
    strided = Classifier(NETWORKS["strided"](), Config(), (1, SIZE, SIZE))
    steps = Reduction((1, SIZE, SIZE), image_axes()).curves(strided, waves(), FACTS)
    assert {step.learned for step in steps} == {None}


def test_larger_strides_change_sizes_and_are_put_back():
    module = Classifier(NETWORKS["alone"](), Config(), (1, SIZE, SIZE))
    seen = []
    module.model[1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[2:]))
    Reduction((1, SIZE, SIZE), image_axes(), 3, resize=True).curves(module, waves(), FACTS)
    assert {(16, 16), (2, 16), (16, 2)} <= set(map(tuple, seen))
    assert module.model[0].strides == (2, 2)
    module.model[0] = DiffStride2d(2.0, shared=True)
    with pytest.raises(ValueError, match="--resize needs a stride of its own for each axis, and t"):
        Reduction((1, SIZE, SIZE), image_axes(), 3, resize=True).curves(module, waves(), FACTS)


@pytest.mark.parametrize("size", [8, 9])
def test_low_passes_keep_what_is_below(size):
    x = torch.randn(2, 3, size, 4, dtype=torch.float64)
    assert torch.allclose(low_pass(x, -2, size // 2), x)
    once = low_pass(x, -2, 2)
    assert torch.allclose(low_pass(once, -2, 2), once)
    assert torch.allclose(once.mean(-2), x.mean(-2))
    bins = np.abs(np.fft.rfft(once.numpy(), axis=-2)).max((0, 1, 3))
    assert (bins[:3] > 0.1).all() and (bins[3:] < 1e-9).all()
    smaller = low_pass(x, -2, 2, resize=True)
    assert smaller.shape == (2, 3, 5, 4)
    assert torch.allclose(smaller.mean(-2), x.mean(-2))
    assert low_pass(x.to(torch.bfloat16), -2, 2).dtype == torch.bfloat16


@pytest.mark.parametrize("top", [1.0, 1.9, 2.0, 7.3, 16.0, 50.0, 8000.0])
@pytest.mark.parametrize("steps", [1, 3, 8])
def test_steps_are_distinct_and_go_down_to_one(top, steps):
    full = math.ceil(top) + 1
    bins = bins_down(top, full, steps)
    assert bins == sorted(set(bins), reverse=True)
    assert all(1 <= b <= top for b in bins)
    assert bins[-1] == 1
    assert min(steps, int(top)) <= len(bins) <= 2 * steps + 1


def test_bands_are_those_of_pairs():
    """Of two that differ in a few answers only, the share is known better than the accuracies."""
    generator = np.random.default_rng(0)
    full = generator.random(400) < 0.7
    fewer = full & (generator.random(400) < 0.98)
    found, same = bands({"": full}, [{"": fewer}, {"": full}])
    assert found["accuracy"] == fewer.mean()
    assert found["kept"] == fewer.mean() / full.mean()
    error = math.sqrt(fewer.mean() * (1 - fewer.mean()) / 400)
    assert found["high"] - found["low"] == pytest.approx(2 * 1.96 * error, rel=0.15)
    assert found["kept_high"] - found["kept_low"] < (found["high"] - found["low"]) / 2
    assert found["kept_low"] <= found["kept"] <= found["kept_high"] <= 1
    assert (same["kept_low"], same["kept_high"]) == (1, 1)
    assert bands({"": full}, [{"": fewer}]) == [found]  # the same resamples every time


def test_bands_of_several_tasks_are_of_their_mean():
    right = np.array([True] * 30 + [False] * 10)
    (found,) = bands({"a": right, "b": ~right}, [{"a": right, "b": right[:40]}])
    assert found["accuracy"] == pytest.approx(0.75)
    assert found["kept"] == pytest.approx(0.75 / 0.5)
    with pytest.raises(ValueError, match="none of these data right"):
        bands({"": np.zeros(5, bool)}, [])


@pytest.mark.parametrize("tasks", [9, 11, 49])
def test_no_mean_of_tasks_is_above_one(tasks):
    full = {str(task): np.ones(7, dtype=bool) for task in range(tasks)}
    (found,) = bands(full, [full])
    assert set(found.values()) == {1.0}  # or the file is taken for a damaged one


def test_parts_of_resamples_make_the_same_bands(monkeypatch):
    right = np.random.default_rng(0).random(50) < 0.5
    whole = bands({"": right}, [{"": right}])
    monkeypatch.setattr(resampling, "AT_ONCE", 120)
    assert bands({"": right}, [{"": right}]) == whole


def test_places_are_the_input_and_every_layer():
    axes = data_axes({"size": [1, 100, 64]}, "audio")
    model = nn.Sequential(DiffStride2d(2.0), nn.Conv2d(1, 1, 3), DiffStride2d((1.0, 4.0)))
    first, second, third = places(model, (1, 100, 64), axes)
    assert [p.name for p in (first, second, third)] == ["input", "behind 0", "behind 2"]
    assert first.cutoffs == (50, 0.5) and second.cutoffs == (25, 0.25)
    assert third.cutoffs[0] == 25 and third.cutoffs[1] < 0.1


def test_images_with_a_spacing_have_cut_offs_in_millimetres():
    options = DataConfig(spacing=(0.5, 0.25), limit=20)
    facts = prepare(Config(ModelConfig(width=0.0625), options)).facts
    assert data_axes(facts) == image_axes((0.5, 0.25))


TINY = "--model.width 0.0625 --data.limit 128 --data.batch_size 32 --trainer.epochs 1".split()


@pytest.fixture
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.usefixtures("_there")
def test_a_run_from_training_to_its_report(tmp_path, capsys):
    assert main(["train", "digits", *TINY, "--name", "a"]) == 0
    out = capsys.readouterr().out
    recorded, across = rows("runs/a/strides.csv")[-2:]
    height, width = (f"{float(row['cutoff']):.3g} cycles per pixel" for row in (recorded, across))
    passes = f"up to {height} along height and up to {width} along width"
    assert f"all layers together let pass {passes}" in out
    assert main(["strides", "runs/a", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["units"] == ["cycles per pixel"] * 2
    assert table["rows"][-1]["cutoff"][0] == pytest.approx(float(recorded["cutoff"]))
    assert "How much resolution" not in (tmp_path / "runs/a/report.html").read_text()
    assert main(["resolution", "runs/a", "--steps", "2"]) == 0
    out = capsys.readouterr().out
    steps = read_resolution(tmp_path / "runs/a/resolution.csv")
    assert "height, cut-offs in cycles per pixel" in out
    assert all(sentence in out for sentence in sentences(steps))
    assert {step.place for step in steps} == {
        "input",
        *(f"behind stages.{i}.0.downsample" for i in (1, 2, 3)),
    }
    accuracy = float(rows("runs/a/metrics.csv")[-1]["test_accuracy"])
    assert steps[0].accuracy == pytest.approx(accuracy)
    assert {step.examples for step in steps} == {128}
    html = (tmp_path / "runs/a/report.html").read_text()
    assert "How much resolution the task needs" in html
    assert "height: cut-off (cycles per pixel)" in html
    written = (tmp_path / "runs/a/resolution.csv").read_bytes()
    assert main(["resolution", "runs/a", "--steps", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sentences"] == sentences(steps)
    assert found["steps"][0]["accuracy"] == pytest.approx(accuracy)
    assert main(["resolution", "runs/a", "--steps", "1", "--resize"]) == 0
    assert (tmp_path / "runs/a/resolution.csv").read_bytes() == written
    capsys.readouterr()
    for words, message in (
        (["--steps", "0"], "--steps must be at least 1, got 0"),
        (["--task", "pitch"], "--task must be a task of the run"),
        (["--data.path", "nowhere"], "nowhere"),
    ):
        assert main(["resolution", "runs/a", *words]) == 1
        assert message in capsys.readouterr().err
        assert (tmp_path / "runs/a/resolution.csv").read_bytes() == written
    (tmp_path / "runs/a/resolution.csv").write_bytes(written[:-40])
    assert main(["report", "runs/a"]) == 1
    assert "runs/a/resolution.csv, line" in capsys.readouterr().err
    for path in (tmp_path / "runs/a/checkpoints").iterdir():
        path.unlink()
    (tmp_path / "runs/a/resolution.csv").unlink()
    assert main(["resolution", "runs/a"]) == 1
    assert "runs/a has no checkpoint yet" in capsys.readouterr().err
    assert not (tmp_path / "runs/a/resolution.csv").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("_there")
def test_recordings_count_and_not_their_windows(tmp_path, capsys):
    path = audio_pack(tmp_path / "pack", pitch=2, family=3)
    tasks = ["--data.task", f"family={path}:family", "--data.task", f"pitch={path}:pitch"]
    assert main(["train", "audio_multitask", *tasks, *TINY_AUDIO, "--name", "a"]) == 0
    capsys.readouterr()
    last = rows("runs/a/metrics.csv")[-1]
    for words, name, examples in (
        ([], "test_accuracy", 10),
        (["--task", "pitch"], "test_accuracy_pitch", 5),
    ):
        if not float(last[name]):
            continue
        assert main(["resolution", "runs/a", "--steps", "1", *words]) == 0
        steps = read_resolution(tmp_path / "runs/a/resolution.csv")
        assert steps[0].accuracy == pytest.approx(float(last[name]))
        assert {step.examples for step in steps} == {examples}
        assert steps[0].task == (words[1] if words else "")
        assert {(step.name, step.unit) for step in steps} == {
            ("time", "Hz"),
            ("frequency", "cycles per mel channel"),
        }
    first = read_rows(tmp_path / "runs/a/resolution.csv", kinds=COLUMNS)[0]
    assert (first["place"], float(first["cutoff"])) == ("input", 50)
