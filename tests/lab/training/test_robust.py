"""Networks of which it is known how they do on changed examples."""

import json

import pytest
import torch
from torch import nn

from diffstride import models
from diffstride.lab.cli import main
from diffstride.lab.data.corruptions import CORRUPTIONS
from diffstride.lab.data.shifts import moved
from diffstride.lab.runs.axes import data_axes
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.robust import (
    EVERY_CORRUPTION,
    EVERY_MOVE,
    MOVED,
    RATE,
    RESIZED,
    UNCHANGED,
    corruptions,
    moves,
    read_robust,
    row_of,
    sentences,
    summary,
)
from diffstride.lab.training import robust
from diffstride.lab.training.changed_inputs import Change, changes, finishing, on_changed
from diffstride.lab.training.classifier import Classifier
from diffstride.lab.training.preparation import Prepared
from tests.lab.training.generated_data import TINY_AUDIO, audio_pack, rows

SIZE = 16
FACTS = {"size": [1, SIZE, SIZE], "mean": [0.0], "std": [1.0]}
WHERE = {"data": "points", "weights": "last"}
AXES = data_axes(FACTS)


def points(number=40, batch_size=10):
    """Batches of black images with one white pixel, far from borders, and its column's parity."""
    places = torch.randint(5, 11, (number, 2), generator=torch.Generator().manual_seed(0))
    images = torch.zeros(number, 1, SIZE, SIZE)
    images[torch.arange(number), 0, places[:, 0], places[:, 1]] = 1
    return list(zip(images.split(batch_size), (places[:, 1] % 2).split(batch_size), strict=True))


class Parity(nn.Module):
    """Scores of two classes: whether the brightest column is even or odd."""

    def forward(self, x):
        odd = x.amax((1, 2)).argmax(1) % 2
        return nn.functional.one_hot(odd, 2).float()


class Constant(nn.Module):
    """Always the same answer."""

    def forward(self, x):
        return torch.tensor([0.0, 1.0]).expand(len(x), 2)


def measured(network, batches=None, kind="images", facts=FACTS, axes=AXES):
    module = Classifier(network, Config(), tuple(facts["size"]))
    prepared = Prepared(facts, module, None, batches or points())
    found = robust.rows(prepared, kind, axes, WHERE)
    assert module.model is network
    assert not any(m._forward_pre_hooks for m in module.modules())
    return found


def test_a_network_that_always_says_the_same_is_consistent():
    found = measured(Constant())
    assert {(row.same, row.same_low, row.same_high) for row in found} == {(1, 1, 1)}
    assert len({row.accuracy for row in found}) == 1
    assert summary(found).consistency == 1
    assert {row.examples for row in found} == {40}
    assert [found[0].change, found[-2].change, found[-1].change] == [
        UNCHANGED,
        EVERY_MOVE,
        EVERY_CORRUPTION,
    ]


def test_one_that_tells_parity_is_as_consistent_as_moves_are_even():
    found = measured(Parity())
    assert row_of(found, UNCHANGED).accuracy == 1
    for along, own in moves(found).items():
        for row in own:
            stays = along == "height" or row.strength % 2 == 0
            assert (row.same, row.accuracy) == (stays, stays)
    # Of 8 directions, 2 are along height; half of the distances are even.
    assert summary(found).consistency == (0.25 + 1 + 0.25 + 1) / 4
    assert sentences(found)[0] == (
        "Moved by up to 4 pixels in every direction, 62.5 % (62.5 to 62.5) of the examples get the "
        "answer that they get unmoved"
    )
    accuracies = [row.accuracy for own in corruptions(found).values() for row in own]
    assert len(accuracies) == 5 * len(CORRUPTIONS)
    assert summary(found).corrupted == pytest.approx(sum(accuracies) / len(accuracies))
    # Contrast that is lost leaves the brightest where it is.
    assert {row.same for row in corruptions(found)["contrast"]} == {1}
    half = next(row for row in found if row.change == RESIZED and row.amount == 0.5)
    assert half.accuracy < 1


def test_batches_do_not_matter():
    """The noise of an example is its own."""
    assert measured(Parity(), points(batch_size=40)) == measured(Parity(), points(batch_size=7))


class Seen(nn.Module):
    """Keeps what it gets."""

    def forward(self, x, real=None):
        self.x, self.real = x, real
        return torch.zeros(len(x), 2)


def seen(change, *given, finish=lambda given: given):
    module = Classifier(Seen(), Config(), (1, SIZE))
    with on_changed(module, change, finish):
        module.model(*given)
    return module.model.x, module.model.real


def change(name, kind="signals", amount=None, axes=1):
    every = changes(kind, data_axes({"size": [1] * (1 + axes)}, kind))
    return next(c for c in every if c.name == name and amount in (None, c.amount))


def test_signals_are_changed_as_far_as_they_are_real():
    x, real = torch.randn(3, 2, SIZE), torch.tensor([5, SIZE, 5])
    x[0, :, 5:] = x[2, :, 5:] = 0
    for name in (MOVED, *CORRUPTIONS):
        y, same = seen(change(name), x, real)
        assert torch.equal(same, real)
        assert not y[0, :, 5:].any() and not y[2, :, 5:].any()
        alone, _ = seen(change(name), x[:1, :, :5], real[:1])
        assert torch.equal(y[:1, :, :5], alone)
        assert not torch.equal(y[1], x[1])
    by = change(MOVED)
    assert (by.along, by.amount, by.unit) == ("time", 1, "samples")
    assert torch.equal(seen(by, x, real)[0][1:2], moved(x[1:2], (-1,)))


def test_signals_that_are_normalised_each_are_normalised_again():
    """A signal at half its volume is what it was to such a network."""
    x, real = torch.randn(2, 1, SIZE), torch.tensor([SIZE, SIZE])
    x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0)
    facts = {"size": [1, SIZE], "mean": [0.0], "std": [1.0]}
    for each, expected in ((True, x), (False, x / 2)):
        finish = finishing(facts | {"normalise": "each" if each else "set"}, "signals")
        y, _ = seen(change("contrast", amount=0.5), x, real, finish=finish)
        assert torch.allclose(y, expected, atol=1e-6)


def test_pixels_stay_between_black_and_white():
    facts = {"size": [2, 4, 4], "mean": [0.5, 0.2], "std": [0.25, 0.1]}
    mean, std = (torch.tensor(facts[name]).reshape(1, 2, 1, 1) for name in ("mean", "std"))
    images = torch.rand(5, 2, 4, 4).round()
    strongest = change("noise", "images", 0.8, axes=2)
    y, _ = seen(strongest, (images - mean) / std, finish=finishing(facts, "images"))
    pixels = y * std + mean
    assert pixels.min() >= -1e-6 and pixels.max() <= 1 + 1e-6
    inside = (pixels > 1e-3) & (pixels < 1 - 1e-3)
    assert 0.3 < inside.float().mean() < 0.7  # half of it goes beyond


def test_other_sizes_and_how_much_of_a_signal_is_real():
    wave = torch.cos(2 * torch.pi * 2 * torch.arange(SIZE) / SIZE).expand(1, 1, SIZE)
    half = change(RESIZED, amount=0.5)
    y, real = seen(half, wave, torch.tensor([4]))
    assert torch.allclose(y, wave[..., ::2], atol=1e-6)
    assert real.tolist() == [2]
    y, _ = seen(change(RESIZED, "images", 0.5, axes=2), torch.ones(1, 1, 6, 9))
    assert torch.allclose(y, torch.ones(1, 1, 3, 4))


def test_a_network_that_can_be_brought_to_another_rate_keeps_its_answers():
    """Signals with frequencies that all rates have."""
    length, batches = 64, []
    t = torch.arange(length) / length
    for i in range(4):
        signals = torch.stack([torch.cos(2 * torch.pi * (1 + (i + j) % 4) * t) for j in range(6)])
        batches.append((signals[:, None], torch.zeros(6, dtype=torch.long)))
    facts = {"size": [1, length], "mean": [0.0], "std": [1.0]}
    torch.manual_seed(0)
    network = models.create("signal_cnn", num_classes=3, width=0.25).eval()
    found = measured(network, batches, "signals", facts, data_axes(facts, "signals"))
    rates = [row for row in found if row.change == RATE]
    assert [row.amount for row in rates] == [0.5, 0.75, 1.5]
    assert {row.same for row in rates} == {1}
    assert min(row.same for row in found if row.change == RESIZED) < 1
    strided = models.create("signal_cnn", num_classes=3, width=0.25, downsampling="strided")
    found = measured(strided.eval(), batches, "signals", facts, data_axes(facts, "signals"))
    assert not [row for row in found if row.change == RATE]
    assert len([row for row in found if row.change == RESIZED]) == 3


def test_sound_is_moved_along_time():
    own = [c for c in changes("audio", data_axes({"size": [1, 100, 64]}, "audio"))]
    assert {(c.along, c.unit) for c in own if c.name == MOVED} == {("time", "frames")}
    assert len([c for c in own if c.name == MOVED]) == 8
    assert RATE not in {c.name for c in own}


def test_what_cannot_be_done_leaves_the_network_as_it_is():
    module = Classifier(Constant(), Config(), (1, SIZE))
    with on_changed(module, Change("moved", "", 1, 1, "", lambda x, numbers: x)) as works:
        assert works
    with pytest.raises(RuntimeError), on_changed(module, change(MOVED)):
        raise RuntimeError
    assert not module.model._forward_pre_hooks


TINY = "--model.width 0.0625 --data.limit 24 --data.batch_size 24 --trainer.epochs 1".split()


@pytest.fixture
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.usefixtures("_there")
def test_a_run_from_training_to_its_report(tmp_path, capsys):
    assert main(["train", "digits", *TINY, "--name", "a"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "runs/a", "--robust"]) == 0
    out = capsys.readouterr().out
    found = read_robust(tmp_path / "runs/a/robust.csv")
    assert all(sentence in out for sentence in sentences(found))
    accuracy = float(rows("runs/a/metrics.csv")[-1]["test_accuracy"])
    assert row_of(found, UNCHANGED).accuracy == pytest.approx(accuracy)
    assert {row.examples for row in found} == {24}
    assert "Moved and corrupted examples" in (tmp_path / "runs/a/report.html").read_text()
    written = (tmp_path / "runs/a/robust.csv").read_bytes()
    assert main(["evaluate", "runs/a", "--robust", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (tmp_path / "runs/a/robust.csv").read_bytes() == written  # the same once more
    assert document["consistency"] == summary(found).consistency
    assert len(document["rows"]) == len(found)
    assert main(["table", "runs/a"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.endswith("same when moved  corrupted")
    assert f"{100 * summary(found).consistency:.1f} %" in line
    assert main(["evaluate", "runs/a", "--robust", "--data.path", "nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err
    assert (tmp_path / "runs/a/robust.csv").read_bytes() == written


@pytest.mark.slow
@pytest.mark.usefixtures("_there")
def test_recordings_count_and_not_their_windows(tmp_path, capsys):
    path = audio_pack(tmp_path / "pack", pitch=2, family=3)
    tasks = ["--data.task", f"family={path}:family", "--data.task", f"pitch={path}:pitch"]
    assert main(["train", "audio_multitask", *tasks, *TINY_AUDIO, "--name", "a"]) == 0
    assert main(["evaluate", "runs/a", "--robust"]) == 0
    found = read_robust(tmp_path / "runs/a/robust.csv")
    assert {row.examples for row in found} == {10}  # 5 of each task
    assert row_of(found, UNCHANGED).accuracy == pytest.approx(
        float(rows("runs/a/metrics.csv")[-1]["test_accuracy"])
    )
    assert "4 frames along time" in sentences(found)[0]
