"""Networks that take noise from images: from the command to the folder of the run."""

import base64
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from diffstride.lab.cli import main
from diffstride.lab.data import images
from diffstride.lab.data.noise import noise_of
from diffstride.lab.runs.documents import RunError
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training import recipes, robust, runner
from diffstride.lab.training.denoiser import Denoiser
from diffstride.lab.training.image_quality import psnr, ssim
from diffstride.lab.training.preparation import prepare
from diffstride.lab.training.recipes import RECIPES
from diffstride.lab.training.resampling import difference, scores_of_each
from diffstride.lab.training.resolution import measure
from diffstride.lab.training.trained_run import evaluate, load_prepared
from tests.lab.training.generated_data import image_pack, rows

pytestmark = pytest.mark.slow

TINY = "--model.width 0.03 --data.limit 24 --data.batch_size 8 --data.patch 16".split()


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


def train(name, *words):
    return main(["train", "denoise", *TINY, "--trainer.epochs", "2", "--name", name, *words])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run, for tests that leave it as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("runs"))
        assert train("a") == 0
        return str(Path("runs/a").resolve())


def slow_means(folder):
    """Loss and scores on test data, image by image, from the pixels that files have."""
    _, prepared = load_prepared(folder)
    facts, test = prepared.facts, images.load_digits(limit=24, patch=16).test
    mean, std = torch.tensor(facts["mean"]), torch.tensor(facts["std"])
    model, found = prepared.module.model.eval(), []
    for i in range(24):
        clean = test.take(torch.tensor([i])) / 255
        noisy = (clean + 0.2 * noise_of(torch.tensor([i]), (1, 16, 16))).clamp(0, 1)
        with torch.inference_mode():
            inputs = (noisy - mean) / std
            restored = (inputs - model(inputs)) * std + mean
        loss = (restored - clean).square().mean()
        measures = [measure(x, clean) for x in (restored, noisy) for measure in (psnr, ssim)]
        found.append([loss, *(value[0] for value in measures)])
    names = ("loss", "psnr", "ssim", "noisy_psnr", "noisy_ssim")
    means = torch.tensor(found).mean(0).tolist()
    return {f"test_{name}": mean for name, mean in zip(names, means, strict=True)}


def test_training_begins_with_images_as_they_are_and_evaluation_with_what_was_learned(trained):
    begins = prepare(Run(Path(trained)).config)
    inputs, *_ = next(iter(begins.test))
    scale = begins.module.std, begins.module.mean
    restored = begins.module.eval().restore(inputs)
    torch.testing.assert_close(restored, inputs * scale[0] + scale[1])
    network = load_prepared(trained)[1].module.model
    again = Denoiser(network, Run(Path(trained)).config, (1, 16, 16), scale[1], scale[0])
    assert not torch.allclose(again.restore(inputs), restored, atol=1e-3)


def test_a_run_has_everything_and_is_judged_by_psnr(trained, capsys):
    run = Run(Path(trained))
    metrics = rows(run.metrics_file)
    names = ["loss", "psnr", "ssim", "noisy_psnr", "noisy_ssim"]
    expected = ["train_loss", "train_psnr", *(f"test_{name}" for name in names)]
    assert [name for name in metrics[0] if name.startswith(("train", "test"))] == expected
    assert (len(metrics), run.epochs_done) == (2, 2)
    last = {name: float(metrics[-1][name]) for name in expected if name.startswith("test")}
    assert last == pytest.approx(slow_means(trained), rel=1e-4)
    # What the images had with their noise is the same whatever is learned.
    assert metrics[0]["test_noisy_psnr"] == metrics[1]["test_noisy_psnr"]
    assert last["test_noisy_ssim"] < 1
    assert main(["evaluate", trained, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == pytest.approx(last)
    best = max(metrics, key=lambda row: float(row["test_psnr"]))
    found = evaluate(trained, best=True)
    assert found["test_psnr"] == pytest.approx(float(best["test_psnr"]))
    assert main(["table", trained, "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["runs"]
    assert line["psnr"] == pytest.approx(last["test_psnr"])
    for name in ("strides", "cost", "report"):
        assert main([name, trained]) == 0


def test_what_is_printed_says_decibels(capsys):
    assert train("a") == 0
    out = capsys.readouterr().out
    first, last = (rows("runs/a/metrics.csv")[i] for i in (0, -1))
    loss, value = float(first["train_loss"]), float(first["test_psnr"])
    assert out.startswith(f"epoch   1  loss {loss:#.3g}  PSNR {value:.2f} dB  strides ")
    before, after = float(last["test_noisy_psnr"]), float(last["test_psnr"])
    told = f"test PSNR {after:.2f} dB after 2 epochs, of images that had {before:.2f} dB with"
    assert told in out
    assert "accuracy" not in out
    assert "what layers do not let pass, skips carry past them" in out
    assert main(["table", "runs/a"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:3] == ["run", "downsampling", "PSNR"]
    assert f"{after:.2f} dB" in table[1]


def test_examples_are_kept_clean_noisy_and_restored(trained):
    content = json.loads(Run(Path(trained)).restored_file.read_text())
    assert content["epoch"] == 2
    _, prepared = load_prepared(trained)
    module, test = prepared.module.eval(), prepared.test
    labels = test.split.labels.tolist()
    numbers = torch.tensor(sorted(labels.index(label) for label in (0, 1, 2)))
    assert [image["label"] for image in content["images"]] == [str(labels[i]) for i in numbers]
    noisy, clean = test.pair(numbers)
    with torch.inference_mode():
        restored = module.restore(test.normalised(noisy))
    for i, image in enumerate(content["images"]):
        for name, expected in (("clean", clean), ("noisy", noisy), ("restored", restored)):
            pixels = (255 * expected[i].clamp(0, 1)).round()[0]
            assert (decoded(image[name]) - pixels).abs().max() <= 1, name
        assert image["psnr"] == pytest.approx(psnr(restored, clean)[i].item(), rel=1e-4)
        assert image["noisy_psnr"] == pytest.approx(psnr(noisy, clean)[i].item(), rel=1e-4)


def decoded(letters):
    picture = Image.open(io.BytesIO(base64.b64decode(letters)))
    return torch.from_numpy(np.array(picture)).float()


class Killed(Exception):
    pass


def test_an_interrupted_run_ends_as_if_it_had_not_been(monkeypatch):
    options = ["--data.flip", "--data.crop_padding", "2", "--trainer.epochs", "3"]
    assert train("whole", *options) == 0
    step, steps = Denoiser.training_step, iter(range(100))

    def counted(self, batch, index):
        if next(steps) == 5:  # in the second epoch of 3
            raise Killed
        return step(self, batch, index)

    monkeypatch.setattr(Denoiser, "training_step", counted)
    with pytest.raises(Killed):
        runner.train(replace(Run.open("runs/whole").config, name="broken"), "denoise")
    monkeypatch.setattr(Denoiser, "training_step", step)
    assert main(["resume", "runs/broken"]) == 0
    for file in ("metrics.csv", "strides.csv", "restored.json"):
        whole, broken = (Path("runs", name, file).read_text() for name in ("whole", "broken"))
        assert whole == broken


def test_a_budget_is_spent_on_a_held_out_part_of_colour_images(tmp_path, capsys):
    pack = image_pack(tmp_path / "pack", size=20)
    words = ["--data.path", pack, "--data.held_out", "0.25", "--macs_budget", "0.5", "--spend"]
    words += ["--optim.strides_by", "gradient", "--data.crop_padding", "0"]
    assert train("a", *words) == 0
    assert "PSNR on the held-out part of the training set" in capsys.readouterr().out
    run = Run.open("runs/a")
    assert run.data["size"] == [3, 16, 16]
    assert (run.data["train"], run.data["test"]) == (18, 6)
    last = rows(run.metrics_file)[-1]
    assert float(last["mmacs"]) == pytest.approx(0.5, rel=0.1)
    assert "Held-out PSNR" in (run.folder / "report.html").read_text()
    with pytest.raises(RunError, match=r"resolution is for networks that classify: .* by PSNR"):
        measure("runs/a")
    with pytest.raises(RunError, match=r"--robust is for networks that classify: .* by PSNR"):
        robust.measure("runs/a")


def test_processes_together_count_what_one_does(trained):
    _, prepared = load_prepared(trained)
    module, test = prepared.module.eval(), prepared.test
    module.shown = torch.tensor([0, 3, 9])
    sums, restored = [], []
    for rank, processes in ((0, 1), (0, 3), (1, 3), (2, 3)):
        test.place = lambda here=(rank, processes): here
        scores_of_each(module, test)
        sums.append(module.sums["test", ""])
        restored.append(module.restored)
    torch.testing.assert_close(sums[0], sum(sums[1:]), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(restored[0], sum(restored[1:]))
    assert sums[0][-1] == 24


def test_two_networks_are_compared_image_by_image(trained):
    _, prepared = load_prepared(trained)
    one = scores_of_each(prepared.module, prepared.test)
    assert one[""].shape == (24,)
    assert one[""].mean() == pytest.approx(evaluate(trained)["test_psnr"])
    found = difference(one, {"": one[""] + 1.5})
    assert (found.mean, found.low, found.high) == pytest.approx((1.5, 1.5, 1.5))


WRONG = {
    "--data.noise 0": "--data.noise must be above 0, got 0.0",
    "--data.noise 1.5": "--data.noise must be at most 1, got 1.5",
    "--data.noise -0.1": "--data.noise must be at least 0, got -0.1",
    "--data.noise nan": "--data.noise must be a finite number, got nan",
    "--model.name resnet18": "--data.noise is taken away place by place, and resnet18 classifies",
    "--data.noise None": "--model.name unet can't classify: .* or give --data.noise",
    "--data.mixup 0.2": "--data.mixup blends classes, and --data.noise has none",
    "--optim.label_smoothing 0.1": "--optim.label_smoothing is for classes",
    "--data.inception_crop --data.patch 8": "--data.patch and --data.inception_crop both cut out",
    "--data.noise None --model.name resnet18 --data.patch 8": "--data.patch is for --data.noise",
    "--data.kind audio": "--data.noise is for images, and --data.kind is audio",
}


@pytest.mark.parametrize("words", WRONG)
def test_settings_that_make_no_sense_say_what_to_do(words):
    config = recipes.override(RECIPES["denoise"].config, words.split(), "test")
    with pytest.raises(ValueError, match=WRONG[words]):
        config.check()


def test_images_must_be_large_enough_to_be_judged():
    config = RECIPES["denoise"].config
    small = replace(config, data=replace(config.data, patch=5, limit=20))
    with pytest.raises(ValueError, match=r"must have at least 6 pixels a side, .*, got 5×5"):
        prepare(small)


def test_other_images_need_no_known_classes(trained, tmp_path):
    """Grey ones of another size, of three classes and not ten."""
    pack = image_pack(tmp_path / "pack", size=19, channels=1)
    found = evaluate(trained, data_path=pack)
    assert 0 < found["test_psnr"] < 30
