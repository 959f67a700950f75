"""Recipes have the numbers of the paper and of the authors' release."""

import ast
import itertools
from pathlib import Path

import pytest

from diffstride import models
from diffstride.lab.runs import config as config_module
from diffstride.lab.runs.config import DENSE, Config, Kind, ModelName
from diffstride.lab.runs.config_file import flat, read_config, write_config
from diffstride.lab.training import recipes
from diffstride.lab.training.recipes import RECIPES
from diffstride.layers.factory import KINDS

# Section 3.2, "Experimental setup": all datasets, then CIFAR, then ImageNet.
PAPER = {
    "optim.name": "sgd",
    "optim.lr": 0.1,
    "optim.momentum": 0.9,
    "optim.schedule": "steps",
    "optim.stride_lr": None,
    "optim.warmup_steps": 0,
    "optim.label_smoothing": 0.0,
    "data.batch_size": 256,
    "data.flip": True,
    "data.mixup": 0.0,
    "model.downsampling": "diffstride",
    "model.smoothness": 4.0,
    "model.width": 1.0,
    "model.shared_stride": False,
    "stride_penalty": 0.0,
}
CIFAR = PAPER | {
    "trainer.epochs": 400,
    "optim.milestones": (200 / 400, 300 / 400),
    "optim.weight_decay": 5e-3,
    "data.crop_padding": 4,
    "model.name": "resnet18",
    "model.stem": "cifar",
    "model.strides": None,
}
# Section 3.1, "Audio classification": a million batches in all.
AUDIO = {
    "data.kind": "audio",
    "data.batch_size": 256,
    "model.name": "audio_cnn",
    "model.downsampling": "diffstride",
    "model.smoothness": 4.0,
    "model.convention": "paper",
    "model.placement": "after",
    "model.width": 1.0,
    "model.strides": None,  # those of the network, 2, 2, 1, 2, 1, 2
    "optim.name": "adam",
    "optim.lr": 1e-4,
    "optim.schedule": "constant",
    "optim.weight_decay": 0.0,
    "optim.stride_lr": None,
    "trainer.epochs": 1000,
    "trainer.steps": 1000,
    "stride_penalty": 0.0,
}
# Of our own recipes: windows that keep sizes, before the first convolution of a block.
TIGHT = {"model.convention": "tight", "model.smoothness": 1.0, "model.placement": "before"}
SIGNALS = TIGHT | {"model.name": "signal_cnn", "data.kind": "signals", "data.normalise": "each"}
WAVEFORM = SIGNALS | {"data.length": 16_000, "model.strides": (4.0, 4.0, 4.0, 4.0, 2.0)}
EXPECTED = {
    "audio": AUDIO | TIGHT,
    "denoise": TIGHT | {"model.name": "unet", "model.strides": None, "data.noise": 0.2},
    "digits": TIGHT | {"model.strides": (2.0, 2.0, 2.0)},
    "audio_scenes": AUDIO | {"data.layout": "urban_scenes"},
    "audio_birds": AUDIO | {"data.layout": "birds"},
    "audio_instruments": AUDIO | {"data.layout": "nsynth", "data.label": "instrument_family"},
    "audio_pitch": AUDIO | {"data.layout": "nsynth", "data.label": "pitch"},
    "audio_commands": AUDIO | {"data.layout": "speech_commands"},
    "audio_multitask": AUDIO,
    "signals": SIGNALS | {"model.width": 1.0, "trainer.epochs": 100},
    "signals_small": SIGNALS | {"model.width": 0.25, "trainer.epochs": 40},
    "waveform": WAVEFORM | {"model.width": 1.0, "trainer.epochs": 100},
    "waveform_small": WAVEFORM | {"model.width": 0.25, "trainer.epochs": 40},
    "cifar10": CIFAR,
    "cifar100": CIFAR,
    "fashion_mnist": CIFAR,
    "imagenet": PAPER
    | {
        "trainer.epochs": 90,
        "optim.milestones": (30 / 90, 60 / 90, 80 / 90),
        "optim.weight_decay": 1e-3,
        "data.image_size": 224,
        "data.inception_crop": True,
        "model.stem": "imagenet",
        "model.strides": (1.0, 2.0, 2.0, 2.0),
    },
    # The appendix: "DenseNet experiments on CIFAR" and "EfficientNet experiments on CIFAR".
    "cifar10_densenet": CIFAR | {"model.name": "densenet121"},
    "cifar10_efficientnet": CIFAR
    | {
        "model.name": "efficientnet_b0",
        "model.stem": "imagenet",
        "data.image_size": 128,
        "data.crop_padding": 16,
    },
    # The release's cifar10.gin.
    "cifar10_released": CIFAR
    | {
        "model.name": "preact_resnet18",
        "data.batch_size": 128,
        "data.mixup": 0.2,
        "optim.label_smoothing": 0.2,
        "optim.weight_decay": 5e-4,
        "optim.warmup_steps": 400,
        "optim.milestones": (pytest.approx(18_000 / 156_000), pytest.approx(32_000 / 156_000)),
    },
}


@pytest.mark.parametrize("name", EXPECTED)
def test_numbers_are_those_of_the_paper_or_our_own(name):
    values = flat(RECIPES[name].config)
    assert {key: values[key] for key in EXPECTED[name]} == EXPECTED[name]


def test_two_recipes_need_no_data():
    assert set(RECIPES) == set(EXPECTED)
    embedded = ("images", None)
    found = {name: (r.config.data.kind, r.config.data.path) for name, r in RECIPES.items()}
    assert [n for n, data in found.items() if data == embedded] == ["digits", "denoise"]


@pytest.mark.parametrize("name", RECIPES)
def test_a_config_comes_back_from_its_file(name, tmp_path):
    config = RECIPES[name].config
    write_config(tmp_path / "config.yaml", config)
    assert read_config(tmp_path / "config.yaml") == config
    assert recipes.find(str(tmp_path)) == (tmp_path.name, config)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {nam: resnet18}", "unknown names model.nam"),
        ("seed: [", r"config\.yaml, line 1 is no YAML"),
        ("3", "must be a mapping"),
        ("model: 3", "model must have settings of its own, got 3"),
        ("optim: {schedule: cosine}", "optim.schedule must be one of steps, onecycle, constant"),
        ("data: {kind: sound}", "data.kind must be one of images, audio, signals, got 'sound'"),
        ("data: {flip: 'no'}", "data.flip must be true or false, got 'no'"),
        ("data: {batch_size: null}", "data.batch_size must be a whole number, got None"),
        ("trainer: {epochs: ten}", "trainer.epochs must be a whole number, got 'ten'"),
        ("trainer: {epochs: 2.5}", "trainer.epochs must be a whole number, got 2.5"),
        ("trainer: {epochs: true}", "trainer.epochs must be a whole number, got True"),
        ("model: {width: wide}", "model.width must be a number, got 'wide'"),
        ("model: {strides: 3}", "model.strides must be a list, got 3"),
        ("model: {strides: [2, x]}", "model.strides must be a number, got 'x'"),
        ("name: 3", "name must be a word, got 3"),
    ],
)
def test_a_wrong_config_says_what_is_wrong(text, message, tmp_path):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_config(tmp_path / "config.yaml")


def test_what_yaml_takes_for_a_word_may_be_a_number(tmp_path):
    (tmp_path / "config.yaml").write_text("optim: {lr: 1e-3}\nmodel: {strides: [3, 2, 2.5]}\n")
    config = read_config(tmp_path / "config.yaml")
    assert config.optim.lr == 0.001
    assert config.model.strides == (3.0, 2.0, 2.5)


def test_the_command_line_overrides_a_recipe():
    words = ["--model.strides", "3", "2", "3", "--stride_penalty", "0.1", "--seed", "4"]
    config = recipes.override(RECIPES["cifar10"].config, words, "test")
    assert config.model.strides == (3.0, 2.0, 3.0)
    assert (config.stride_penalty, config.seed) == (0.1, 4)
    assert config.optim == RECIPES["cifar10"].config.optim


def test_switches_need_no_value():
    words = ["--data.skip_corrupt", "--model.shared_stride", "--data.no_flip"]
    config = recipes.override(RECIPES["cifar10"].config, words, "test")
    assert config.data.skip_corrupt
    assert config.model.shared_stride
    assert not config.data.flip


def test_every_option_has_a_help_text(capsys):
    """A line a setting, and what stands under each in the config."""
    with pytest.raises(SystemExit) as raised:
        recipes.override(RECIPES["digits"].config, ["--help"], "test")
    assert raised.value.code == 0
    shown = capsys.readouterr().out
    tree = ast.parse(Path(config_module.__file__).read_text())
    settings = 0
    for section in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for setting, text in itertools.pairwise(section.body):
            if isinstance(setting, ast.AnnAssign) and "Config" not in ast.unparse(setting):
                settings += 1
                assert isinstance(text, ast.Expr), f"{ast.unparse(setting)} has no text under it"
                first = text.value.value.split()[:3]
                assert " ".join(first) in " ".join(shown.replace("│", " ").split())
                assert setting.target.id in shown
    assert settings > 35


def test_choices_are_those_of_the_library():
    """Written out, so that help needs no torch."""
    assert list(ModelName.__args__) == models.list()
    made = {name: models.create(name, num_classes=2, width=0.01) for name in models.list()}
    assert [*DENSE] == [name for name, network in made.items() if network.is_dense]
    assert Kind.__args__ == KINDS


@pytest.mark.parametrize("name", DENSE)
def test_networks_that_score_every_place_classify_nothing(name):
    message = f"--model.name {name} can't classify: .* every place .* Take one of resnet18, "
    with pytest.raises(ValueError, match=message):
        recipes.override(RECIPES["digits"].config, ["--model.name", name], "test").check()
    Config().check()
